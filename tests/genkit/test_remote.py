"""A flow behind HTTP: what is sent, what is passed on, and durable streams; over real sockets."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.conformance.served import Served, serving
from tests.genkit.asking import answer, asked, assistant, text_of, turn, user
from usechat.errors import InvalidAddress, StreamFailed
from usechat.genkit import GenkitChatTransport, agent_input, text_input
from usechat.genkit.errors import ERROR_PAGE
from usechat.genkit.inputs import FlowInput
from usechat.genkit.remote import RemoteFlow
from usechat.genkit.transport import PASSED_ON
from usechat.genkit.wire import FlowChunk, FlowEvent, FlowResult
from usechat.protocol.request import ChatRequest
from usechat.turn import Turn

Answer = Callable[[Request], Awaitable[Response]]
STREAM_ID = "x-genkit-stream-id"
HEARD: list[tuple[dict[str, str], Any]] = []
ATTACHED: list[str | None] = []


async def cut(*frames: str) -> AsyncIterator[str]:
    """Say something, and break off as a server does that dies."""
    for frame in frames:
        yield frame
    await asyncio.sleep(0.05)  # the frames are on their way
    raise ConnectionError


async def listening(request: Request) -> Response:
    HEARD.append((dict(request.headers), await request.json()))
    return StreamingResponse(iter(['data: {"message":"Hi"}\n\n', 'data: {"result":"Hi"}\n\n']))


async def durable(request: Request) -> Response:
    ATTACHED.append(request.headers.get(STREAM_ID))
    headers = {STREAM_ID: "s1"}
    frames = [f'data: {{"message":"{word}"}}\n\n' for word in ("One ", "two ", "three")]
    match len(ATTACHED):
        case 1:
            return StreamingResponse(cut(*frames[:1]), headers=headers)
        case 2:
            return StreamingResponse(cut(*frames[:2]), headers=headers)
    return StreamingResponse(iter([*frames, 'data: {"result":null}\n\n']), headers=headers)


async def restarting(request: Request) -> Response:
    ATTACHED.append(request.headers.get(STREAM_ID))
    headers = {STREAM_ID: "s1"}
    match len(ATTACHED):
        case 1:
            return StreamingResponse(cut('data: {"message":"One "}\n\n'), headers=headers)
        case 2:
            return Response("not ready", 503)
    whole = ['data: {"message":"One "}\n\n', 'data: {"message":"two"}\n\n', 'data: {"result":null}\n\n']
    return StreamingResponse(iter(whole), headers=headers)


async def forgotten(request: Request) -> Response:
    ATTACHED.append(request.headers.get(STREAM_ID))
    if request.headers.get(STREAM_ID):
        return Response(status_code=204)
    return StreamingResponse(cut('data: {"message":"One "}\n\n'), headers={STREAM_ID: "s1"})


async def deadlocked(request: Request) -> Response:
    """Accept the id of a durable stream and say nothing, as Go's in-memory manager does after 100 chunks."""
    ATTACHED.append(request.headers.get(STREAM_ID))
    if request.headers.get(STREAM_ID):
        while not await request.is_disconnected():  # noqa: ASYNC110 (nothing else tells it)
            await asyncio.sleep(0.005)
        return Response()
    return StreamingResponse(cut('data: {"message":"One "}\n\n'), headers={STREAM_ID: "s1"})


async def elsewhere(_request: Request) -> Response:
    return Response('{"hello": "world"}', media_type="application/json")


async def false_gzip(_request: Request) -> Response:
    return Response('data: {"result":"Hi"}\n\n', headers={"content-encoding": "gzip"})


async def cut_gzip(_request: Request) -> Response:
    whole = gzip.compress(b'data: {"message":"Hi"}\n\ndata: {"result":"Hi"}\n\n')
    return Response(whole[:12] + b"\0" * 40, headers={"content-encoding": "gzip"})


async def false_gzip_error(_request: Request) -> Response:
    return Response("Internal Error", 500, headers={"content-encoding": "gzip"})


async def told(request: Request) -> Response:
    """Fail as the input names it: with the status and the text of a Genkit error."""
    status, message = (await request.json())["data"].split("|")
    error = {"error": {"status": status, "message": message}}
    return StreamingResponse(iter([f"data: {json.dumps(error)}\n\n"]))


async def told_at_once(request: Request) -> Response:
    status, message = (await request.json())["data"].split("|")
    return Response(json.dumps({"status": status, "message": message}), 400, media_type="application/json")


async def plain(request: Request) -> Response:
    ATTACHED.append(request.headers.get(STREAM_ID))
    return StreamingResponse(cut('data: {"message":"One "}\n\n'))


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    answers: list[Answer] = [
        *(listening, durable, restarting, forgotten, plain, deadlocked, elsewhere),
        *(false_gzip, cut_gzip, false_gzip_error, told, told_at_once),
    ]
    routes = [Route(f"/{answer.__name__}", answer, methods=["POST"]) for answer in answers]
    with serving({"genkit": Starlette(routes=routes)}) as running:
        yield running


@pytest.fixture(autouse=True)
def nothing_heard_yet() -> None:
    HEARD.clear()
    ATTACHED.clear()


def url(served: Served, name: str) -> str:
    return f"http://127.0.0.1:{served.port}/genkit/{name}"


async def events(flow: RemoteFlow, flow_input: FlowInput, asking: Turn) -> list[FlowEvent]:
    return [event async for event in flow.run(flow_input, asking)]


async def test_a_request_is_data_and_init(served: Served) -> None:
    flow = RemoteFlow(url(served, "listening"), headers={}, pass_on=())
    assert await events(flow, FlowInput("hi"), turn(user("hi"))) == [FlowChunk("Hi"), FlowResult("Hi")]
    await events(flow, FlowInput("hi", {"sessionId": "s"}), turn(user("hi")))
    assert [body for _, body in HEARD] == [{"data": "hi"}, {"data": "hi", "init": {"sessionId": "s"}}]


PAGE = {
    "authorization": "Bearer t",
    "accept-language": "it",
    "x-request-id": "r",
    "cookie": "c",
    "accept": "*/*",
    "host": "example.org",
}


async def test_headers_are_passed_on_by_a_list_and_own_ones_win(served: Served) -> None:
    flow = RemoteFlow(url(served, "listening"), headers={"x-request-id": "own", "x-key": "k"}, pass_on=PASSED_ON)
    await events(flow, FlowInput("hi"), turn(user("hi"), headers=PAGE))
    headers = HEARD[0][0]
    assert (headers["accept-language"], headers["x-request-id"], headers["x-key"]) == ("it", "own", "k")
    assert headers["accept"] == "text/event-stream"
    assert headers["host"].startswith("127.0.0.1")
    assert "cookie" not in headers


async def test_the_token_of_the_page_is_passed_on_only_if_it_is_named(served: Served) -> None:
    for pass_on in (PASSED_ON, (*PASSED_ON, "Authorization")):
        flow = RemoteFlow(url(served, "listening"), headers={}, pass_on=pass_on)
        await events(flow, FlowInput("hi"), turn(user("hi"), headers=PAGE))
    assert [headers.get("authorization") for headers, _ in HEARD] == [None, "Bearer t"]


async def say(transport: GenkitChatTransport) -> str:
    return text_of(await answer(transport, asked(user("hi"))))


async def test_a_durable_stream_is_taken_up_again_each_time_it_is_cut(served: Served) -> None:
    assert await say(GenkitChatTransport(url(served, "durable"))) == "One two three"
    assert ATTACHED == [None, "s1", "s1"]


async def test_a_durable_stream_waits_for_a_server_that_starts_anew(served: Served) -> None:
    assert await say(GenkitChatTransport(url(served, "restarting"))) == "One two"
    assert ATTACHED == [None, "s1", "s1"]


@pytest.mark.parametrize(("name", "attached"), [("forgotten", [None, "s1"]), ("plain", [None])])
async def test_a_stream_that_nobody_keeps_is_an_error(served: Served, name: str, attached: list[Any]) -> None:
    with pytest.raises(StreamFailed, match="broke before the answer was complete"):
        await say(GenkitChatTransport(url(served, name)))
    assert attached == ATTACHED


async def test_a_running_answer_can_be_read_again_from_its_start(served: Served) -> None:
    transport = GenkitChatTransport(url(served, "durable"))
    chunks = await transport.send_messages(asked(user("hi")))
    again = await transport.reconnect_to_stream("c1")
    assert again is not None
    first = [chunk async for chunk in chunks]
    assert [chunk async for chunk in again][-1] == first[-1]
    assert await transport.reconnect_to_stream("c1") is None


async def test_builders_are_chosen_by_the_user(served: Served) -> None:
    await say(GenkitChatTransport(url(served, "listening")))
    await say(GenkitChatTransport(url(served, "listening"), build_input=text_input))
    await say(GenkitChatTransport(url(served, "listening"), build_input=agent_input))
    history, text, agent = (body for _, body in HEARD)
    assert history == {"data": {"message": "hi", "conversationHistory": []}}
    assert text == {"data": "hi"}
    assert agent["init"].keys() == {"sessionId"}


async def test_a_flow_without_tools_of_the_page_is_not_asked_again(served: Served) -> None:
    part = {"type": "tool-ask", "toolCallId": "c", "state": "output-available", "input": {}, "output": 1}
    transport = GenkitChatTransport(url(served, "listening"))
    with pytest.raises(StreamFailed, match="cannot continue with a tool"):
        await answer(transport, asked(user("hi"), assistant(part)))
    assert HEARD == []


async def test_a_durable_stream_that_says_nothing_ends_after_the_idle_limit(served: Served) -> None:
    with pytest.raises(StreamFailed, match="broke before the answer was complete"):
        await say(GenkitChatTransport(url(served, "deadlocked"), idle_timeout=2))
    assert ATTACHED == [None, "s1"]


async def test_what_is_not_genkit_is_in_the_log_with_its_first_bytes(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StreamFailed, match=r"^The agent's answer cannot be read\. Try again\. Reference: "):
        await say(GenkitChatTransport(url(served, "elsewhere")))
    address = url(served, "elsewhere")
    assert f"{address} is not a Genkit flow: HTTP 200, application/json, it begins with" in caplog.text
    assert """b'{"hello": "world"}'""" in caplog.text


@pytest.mark.parametrize(
    "body",
    ["{}", '{"message": "Welcome"}', '{"message": "up", "status": "ok"}', "Welcome", '{"error": "Cannot POST /flow"}'],
)
async def test_a_body_without_frames_is_genkits_only_with_a_result_or_an_error_with_a_status(
    body: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def welcome(_request: Request) -> Response:
        return Response(body)

    with serving({"": Starlette(routes=[Route("/flow", welcome, methods=["POST"])])}) as running:
        address = f"http://127.0.0.1:{running.port}/flow"
        with pytest.raises(StreamFailed, match=r"^The agent's answer cannot be read\. Try again\. Reference: "):
            await say(GenkitChatTransport(address))
    assert f"{address} is not a Genkit flow" in caplog.text
    assert f"it begins with {body.encode()!r}" in caplog.text


@pytest.mark.parametrize(
    "body",
    [
        'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: [DONE]\n\n',
        'data: {"error":{"status":"error","message":"No such model"}}\n\n',
        'data: {"status":"fail","message":"No such model"}\n\n',
        "data: hello\n\n",
        "data: hello\ndata: again",
    ],
)
async def test_a_stream_of_another_server_is_in_the_log_with_its_first_bytes(
    body: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def completions(_request: Request) -> Response:
        return Response(body, headers={"content-type": "text/event-stream"})

    with serving({"": Starlette(routes=[Route("/flow", completions, methods=["POST"])])}) as running:
        address = f"http://127.0.0.1:{running.port}/flow"
        with pytest.raises(StreamFailed, match=r"^The agent's answer cannot be read\. Try again\. Reference: "):
            await say(GenkitChatTransport(address))
    assert f"{address} is not a Genkit flow: HTTP 200, text/event-stream, it begins" in caplog.text
    assert repr(body.encode()) in caplog.text


async def test_a_frame_of_genkit_that_is_not_json_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_request: Request) -> Response:
        return Response('data: {"message":"Hi"}\n\ndata: {"mess\n\n')

    with serving({"": Starlette(routes=[Route("/flow", broken, methods=["POST"])])}) as running:
        transport = GenkitChatTransport(f"http://127.0.0.1:{running.port}/flow")
        with pytest.raises(StreamFailed, match=r"^The agent's answer cannot be read\. Try again\. Reference: "):
            await say(transport)
    assert 'DATA_LOSS: a frame is not JSON: {"mess' in caplog.text


async def test_a_web_page_is_in_the_log_with_its_address(caplog: pytest.LogCaptureFixture) -> None:
    async def welcome(_request: Request) -> Response:
        return HTMLResponse("<html>Welcome</html>")

    with serving({"": Starlette(routes=[Route("/flow", welcome, methods=["POST"])])}) as running:
        address = f"http://127.0.0.1:{running.port}/flow"
        with pytest.raises(StreamFailed, match=f"^{ERROR_PAGE}"):
            await say(GenkitChatTransport(address))
    assert f"{address} answered with an HTML page" in caplog.text
    assert "begins with b'<html>Welcome</html>'" in caplog.text


@pytest.mark.parametrize("name", ["false_gzip", "cut_gzip", "false_gzip_error"])
async def test_an_encoding_that_is_false_is_an_error_of_the_server(
    served: Served, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with pytest.raises(StreamFailed, match=r"^The agent's answer cannot be read\. Try again\. Reference: "):
        await say(GenkitChatTransport(url(served, name)))
    assert f"the response of {url(served, name)} cannot be decoded" in caplog.text


@pytest.mark.parametrize(
    ("build_input", "shape"),
    [(None, "an object with message, conversationHistory"), (text_input, "a text")],
)
async def test_a_flow_that_has_only_failed_may_take_another_input(
    build_input: Any, shape: str, caplog: pytest.LogCaptureFixture
) -> None:
    """JavaScript reports an input of another schema as an internal error."""
    answers = iter(
        ['error: {"error":{"status":"INTERNAL"}}', 'data: {"result":"Hi"}', 'data: {"error":{"status":"INTERNAL"}}']
    )

    async def flow(_request: Request) -> Response:
        return Response(f"{next(answers)}\n\n")

    with serving({"": Starlette(routes=[Route("/flow", flow, methods=["POST"])])}) as running:
        address = f"http://127.0.0.1:{running.port}/flow"
        transport = GenkitChatTransport(address, build_input=build_input)
        first, second, third = (ChatRequest.parse({"id": chat, "messages": [user("hi")]}) for chat in ("1", "2", "3"))
        with pytest.raises(StreamFailed):
            await answer(transport, first)
        assert f"{address} has only failed so far. It got {shape}. If it takes something else, name its" in caplog.text
        caplog.clear()
        assert text_of(await answer(transport, second)) == "Hi"
        with pytest.raises(StreamFailed):
            await answer(transport, third)
    assert "name its input" not in caplog.text


# Errors of the server that are meant for people


@pytest.mark.parametrize("name", ["told", "told_at_once"])
@pytest.mark.parametrize(
    ("failure", "hidden", "sentence"),
    [
        ("INVALID_ARGUMENT|Name a city.", "The agent did not accept this message.", "Name a city."),
        ("INVALID_ARGUMENT|INVALID_ARGUMENT: Name a city.", "The agent did not accept this message.", "Name a city."),
        ("NOT_FOUND|not found", "The agent was not found.", "The agent was not found."),
        ("INTERNAL|a secret", "The agent failed while it answered.", "The agent failed while it answered."),
    ],
)
async def test_a_public_error_is_shown_when_asked_for(
    served: Served, name: str, failure: str, hidden: str, sentence: str
) -> None:
    for expected, is_shown in ((hidden, False), (sentence, True)):
        transport = GenkitChatTransport(url(served, name), build_input=text_input, show_public_errors=is_shown)
        with pytest.raises(StreamFailed, match=f"^{expected}.* Reference: "):
            await answer(transport, asked(user(failure)))


# The schema of the flow, from the reflection server; tests/conformance has the real one of the npm package


def listing(schema: Any, **tools: Any) -> dict[str, Starlette]:
    """Return a made-up server of the flow ``ask``, and a made-up reflection server that lists it and the tools."""

    async def actions(_request: Request) -> Response:
        listed = {f"/tool/{name}": {"name": name, **tool} for name, tool in tools.items()}
        return Response(json.dumps({"/flow/ask": {"key": "/flow/ask", "name": "ask", "inputSchema": schema}, **listed}))

    return {
        "reflection": Starlette(routes=[Route("/api/actions", actions)]),
        "flows": Starlette(routes=[Route("/ask", listening, methods=["POST"])]),
    }


QUESTION = {"type": "object", "properties": {"question": {"type": "string"}}, "additionalProperties": False}
NUMBERS = {"type": "object", "properties": {"first": {"type": "integer"}}, "required": ["first"]}
HISTORY = {"message": "hi", "conversationHistory": []}


@pytest.mark.parametrize(
    ("schema", "data", "warning"),
    [
        (QUESTION, {"question": "hi"}, ""),
        ({"properties": {"messages": {}}}, {"messages": [{"role": "user", "content": [{"text": "hi"}]}]}, ""),
        (NUMBERS, HISTORY, "the flow ask takes first, which a chat does not have"),
        (None, HISTORY, "has no schema of the flow ask, so the input is #history"),
    ],
)
async def test_a_schema_that_the_reflection_server_lists_decides_the_input(
    schema: Any, data: Any, warning: str, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(listing(schema)) as running:
        address = f"http://127.0.0.1:{running.port}"
        transport = GenkitChatTransport(f"{address}/flows/ask", reflection=f"{address}/reflection/")
        await say(transport)
        await say(transport)
    assert [body for _, body in HEARD] == [{"data": data}, {"data": data}]
    assert [warning in record.getMessage() for record in caplog.records] == ([True] if warning else [])


CONFIRMED = {"type": "object", "properties": {"confirmed": {"type": "boolean"}}, "required": ["confirmed"]}


RESPONSE = {"toolResponse": {"name": "confirm", "ref": "r1", "output": {"confirmed": False}}}
RESTART = {
    "toolRequest": {"name": "confirm", "ref": "r1", "input": {}},
    "metadata": {"resumed": {"approved": False}},
}


@pytest.mark.parametrize(
    ("metadata", "resume"),
    [({"tool": {"restartable": False}}, {"respond": [RESPONSE]}), ({}, {"restart": [RESTART]})],
)
async def test_a_tool_that_the_reflection_server_lists_as_never_restarted_is_answered_by_a_response(
    metadata: Any, resume: Any
) -> None:
    denied = {"state": "approval-responded", "approval": {"id": "x", "approved": False}}
    call = {"type": "tool-confirm", "toolCallId": "r1", "input": {}, **denied}
    tool = {"metadata": {"type": "tool", **metadata}, "outputSchema": CONFIRMED}
    with serving(listing({"properties": {"messages": {}}}, confirm=tool)) as running:
        address = f"http://127.0.0.1:{running.port}"
        transport = GenkitChatTransport(
            f"{address}/flows/ask", reflection=f"{address}/reflection", interrupts="approval"
        )
        message: Any = assistant({"type": "step-start"}, call)
        await answer(transport, asked(user("hi"), message), message=message)
    assert [body["data"]["resume"] for _, body in HEARD] == [resume]


async def test_a_reflection_server_that_does_not_answer_is_asked_again(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    address = url(served, "listening")
    transport = GenkitChatTransport(address, reflection=address)
    for _ in range(2):
        await say(transport)
    assert [body for _, body in HEARD] == [{"data": HISTORY}, {"data": HISTORY}]
    assert caplog.text.count(f"{address}/api/actions does not list the actions of Genkit") == 2


def test_an_address_of_a_reflection_server_is_checked() -> None:
    with pytest.raises(InvalidAddress, match="'3100' is not the address of a reflection server"):
        GenkitChatTransport("http://127.0.0.1/flow", reflection="3100")
