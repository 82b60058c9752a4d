"""`usechat.testing` on apps of all kinds: ours, and those of people who do not use our server."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from usechat import parts
from usechat.client import RecordedExchange, StreamPlayer, StreamRecording
from usechat.errors import (
    AnswerTimedOut,
    CannotAnswer,
    CannotStart,
    ConnectionLost,
    InvalidSetting,
    PublicError,
    RequestRefused,
    StreamFailed,
)
from usechat.server import ChatApp, Settings
from usechat.testing import AgentClient
from usechat.turn import Turn

Clients = Callable[..., AgentClient]


async def weather(turn: Turn) -> AsyncIterator[str | parts.Part]:
    yield "It is "
    yield parts.ToolCall("c1", "weather", {"city": turn.text})
    yield parts.ToolResult("c1", {"celsius": 21})
    yield "21 "
    yield "degrees."


def frames(*chunks: Any) -> list[bytes]:
    return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


PLAIN = frames(
    {"type": "start", "messageId": "m1"},
    {"type": "start-step"},
    {"type": "text-start", "id": "1"},
    {"type": "text-delta", "id": "1", "delta": "Hel"},
    {"type": "text-delta", "id": "1", "delta": "lo"},
    {"type": "text-end", "id": "1"},
    {"type": "finish-step"},
    {"type": "finish"},
)


def strangers_app(body: Iterable[bytes]) -> FastAPI:
    """A FastAPI app that knows nothing of us."""
    app = FastAPI()

    @app.post("/api/chat")
    async def chat() -> StreamingResponse:
        return StreamingResponse(iter(list(body)), media_type="text/event-stream")

    return app


def wsgi_app(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    body = json.loads(environ["wsgi.input"].read())
    assert (environ["REQUEST_METHOD"], environ["PATH_INFO"]) == ("POST", "/api/chat")
    assert environ["HTTP_X_TEAM"] == "blue"
    assert body["trigger"] == "submit-message"
    start_response("200 OK", [("Content-Type", "text/event-stream")])
    yield from PLAIN


def test_an_agent_is_asked_in_five_lines(usechat_client: Clients) -> None:
    answer = usechat_client(weather).ask("Paris")
    answer.assert_legal(sdk="any")
    assert answer.tools[0].output == {"celsius": 21}
    assert answer.text == "It is 21 degrees."
    assert answer.deltas == ["It is ", "21 ", "degrees."]
    assert answer.first_delta_seconds is not None


@pytest.mark.parametrize(
    "target", [ChatApp(weather), weather, strangers_app(PLAIN)], ids=["our app", "agent", "a stranger's app"]
)
def test_every_kind_of_app_is_asked_alike(usechat_client: Clients, target: Any) -> None:
    answer = usechat_client(target).ask("Paris")
    answer.assert_legal(sdk="any")
    assert answer.error is None
    assert "".join(answer.deltas) == answer.text


def test_a_stream_that_was_cut_off_is_not_legal(usechat_client: Clients) -> None:
    cut = [frame for frame in PLAIN if b'"finish"' not in frame and b"[DONE]" not in frame]
    answer = usechat_client(strangers_app(cut)).ask("Paris")
    with pytest.raises(AssertionError, match=r"UC407 There is no finish: the response"):
        answer.assert_legal()
    usechat_client(strangers_app([*cut, b"data: [DONE]\n\n"])).ask("Paris").assert_legal()


def test_a_wsgi_app_gets_the_request_as_its_standard_says(usechat_client: Clients) -> None:
    answer = usechat_client(wsgi_app, headers={"x-team": "blue"}).ask("Paris")
    answer.assert_legal()
    assert answer.text == "Hello"


@pytest.mark.parametrize("complies", [True, False], ids=["unless asked not to", "always"])
def test_the_answer_of_an_app_that_compresses_is_judged_and_searched(usechat_client: Clients, complies: bool) -> None:
    async def app(scope: Any, _receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        is_compressed = not complies or b"gzip" in dict(scope["headers"]).get(b"accept-encoding", b"")
        headers = [(b"content-type", b"text/event-stream"), *([(b"content-encoding", b"gzip")] * is_compressed)]
        body = b"".join(PLAIN)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": gzip.compress(body) if is_compressed else body})

    answer = usechat_client(app).ask("hi")
    assert (answer.text, answer.exchanges[0].body) == ("Hello", b"".join(PLAIN))
    assert (answer.exchanges[0].pieces[0][1] == b"".join(PLAIN)) is complies
    answer.assert_legal()
    with pytest.raises(AssertionError, match="in the deltas"):
        answer.assert_redacted("Hello")


def test_a_body_that_is_not_compressed_as_its_header_says_is_kept_as_it_arrived(usechat_client: Clients) -> None:
    async def app(scope: Any, _receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = [(b"content-encoding", b"gzip")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"sk-1234"})

    answer = usechat_client(app).ask("hi")
    assert answer.error is not None
    with pytest.raises(AssertionError, match="in the body"):
        answer.assert_redacted("sk-1234")


def test_what_cannot_answer_is_named() -> None:
    with pytest.raises(CannotAnswer, match="int cannot answer a chat"):
        AgentClient(1)


def test_a_tool_that_returns_none_fails_with_the_rule_the_frame_and_the_remedy(usechat_client: Clients) -> None:
    call = {"toolCallId": "c1", "toolName": "weather", "input": {}}
    body = frames(
        {"type": "start", "messageId": "m1"},
        {"type": "tool-input-available", **call},
        {"type": "tool-output-available", "toolCallId": "c1"},  # what exclude_none makes of an output of None
        {"type": "finish"},
    )
    answer = usechat_client(strangers_app(body)).ask("Paris")
    with pytest.raises(AssertionError) as failure:
        answer.assert_legal(sdk="any")
    text = str(failure.value)
    assert "UC205 A key is missing: frame 3: \"tool-output-available\": the key 'output' is missing." in text
    assert '{"type": "tool-output-available", "toolCallId": "c1"}' in text
    assert "To fix it: Send the key." in text


def test_a_failure_of_the_turn_is_kept_and_not_raised(usechat_client: Clients) -> None:
    def failing(_turn: Turn) -> str:
        raise PublicError("No luck.")

    answer = usechat_client(failing).ask("hi")
    assert isinstance(answer.error, StreamFailed)
    assert str(answer.error) == "No luck."
    answer.assert_legal()


def test_a_refused_request_is_illegal_and_has_no_message(usechat_client: Clients) -> None:
    answer = usechat_client(weather, path="/nowhere").ask("hi")
    assert isinstance(answer.error, RequestRefused)
    assert answer.error.status == 404
    with pytest.raises(AssertionError, match="UC001 The server answers with a failure"):
        answer.assert_legal()
    with pytest.raises(
        AssertionError, match="the agent gave no answer: http://testserver/nowhere answered with status 404"
    ):
        _ = answer.text


def test_an_answer_without_anything_is_none() -> None:
    with AgentClient(
        StreamPlayer(StreamRecording("http://h", [RecordedExchange(0, "POST", "", status=200)]))
    ) as client:
        answer = client.ask("hi")
    with pytest.raises(AssertionError, match="the agent gave no answer: the stream is empty"):
        _ = answer.text


def test_a_client_of_the_fixture_may_be_closed_before_the_test_ends(usechat_client: Clients) -> None:
    with usechat_client(weather) as client:
        client.ask("hi")
    assert len(client.messages) == 2
    with pytest.raises(InvalidSetting, match="this chat is closed"):
        client.ask("again")


def test_an_agent_may_send_much_at_once(usechat_client: Clients) -> None:
    async def flooding(_turn: Turn) -> AsyncIterator[str]:
        for letter in "abc":
            yield letter * 2_000_000

    answer = usechat_client(flooding).ask("hi")
    assert (len(answer.text), answer.error) == (6_000_000, None)


@pytest.mark.parametrize("secrets", [(), ("",), ("sk-1234", "")])
def test_without_a_secret_nothing_can_be_redacted(usechat_client: Clients, secrets: tuple[str, ...]) -> None:
    with pytest.raises(InvalidSetting, match="needs at least one secret, and no secret may be empty"):
        usechat_client(weather).ask("hi").assert_redacted(*secrets)


def test_nothing_is_redacted_where_there_is_no_endpoint(usechat_client: Clients) -> None:
    answer = usechat_client(ChatApp(weather), path="/api/chatt").ask("hi")
    with pytest.raises(AssertionError, match=r"there is no endpoint: POST http.*/api/chatt answered 404"):
        answer.assert_redacted("sk-1234")


def test_a_server_without_a_route_for_stops_has_an_endpoint(usechat_client: Clients) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/stop"):
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        elif scope["type"] == "http":
            await ChatApp(endless)(scope, receive, send)

    client = usechat_client(app, timeout=1)
    answer = client.ask("hi")
    assert [exchange.status for exchange in answer.exchanges] == [200, 404]
    answer.assert_redacted("sk-1234")


async def endless(_turn: Turn) -> AsyncIterator[str]:
    while True:
        yield "a"
        await asyncio.sleep(0.1)


async def asking(turn: Turn) -> AsyncIterator[str | parts.Part]:
    if turn.approvals:
        yield parts.ToolResult("c2", "gone") if turn.approvals[0].approved else parts.ToolDenied("c2")
        yield "Done."
    elif turn.tool_outputs:
        yield f"You are in {turn.tool_outputs[0].output}. "
        yield parts.ToolCall("c2", "delete", {"path": "/"})
        yield parts.ApprovalRequest("a2", "c2")
    else:
        yield parts.ToolCall("c1", "location", {"exact": True})


@pytest.mark.parametrize(("approve", "state"), [(True, "output-available"), (False, "output-denied")])
def test_tools_and_approvals_are_answered_as_scripted(usechat_client: Clients, approve: bool, state: str) -> None:
    inputs: list[Any] = []

    def location(tool_input: Any) -> str:
        inputs.append(tool_input)
        return "Paris"

    tools = {"location": location}
    app = ChatApp(asking, settings=Settings(sdk="7"))
    answer = usechat_client(app, tools=tools, approve=approve).ask("go")
    assert inputs == [{"exact": True}]
    assert [tool.state for tool in answer.tools] == ["output-available", state]
    assert answer.text == "You are in Paris. Done."
    assert len(answer.exchanges) == 3
    answer.assert_legal(sdk="7")


@pytest.mark.parametrize("approve", [True, lambda _tool: False])
@pytest.mark.parametrize(("sdk", "asks_with_tool"), [("5", True), ("any", False)])
def test_approvals_are_answered_too_where_the_server_asks_with_a_tool(
    usechat_client: Clients, sdk: str, asks_with_tool: bool, approve: Any
) -> None:
    app = ChatApp(asking, settings=Settings(sdk=sdk))
    answer = usechat_client(app, tools={"location": "Paris"}, approve=approve).ask("go")
    answer.assert_legal(sdk=sdk)
    assert answer.text == "You are in Paris. Done."
    assert ("approval" in [tool.name for tool in answer.tools]) is asks_with_tool


def test_a_continued_answer_of_a_foreign_server_is_judged_with_the_calls_that_its_client_knows(
    usechat_client: Clients,
) -> None:
    app = FastAPI()
    call = {"type": "tool-input-available", "toolCallId": "c1", "toolName": "delete", "input": {}}
    asks = frames(
        {"type": "start", "messageId": "m1"},
        call,
        {"type": "tool-approval-request", "approvalId": "a", "toolCallId": "c1"},
    )
    ran = frames(
        {"type": "start", "messageId": "m1"}, {"type": "tool-output-available", "toolCallId": "c1", "output": 1}
    )

    @app.post("/api/chat")
    async def chat(body: dict[str, Any]) -> StreamingResponse:
        is_answered = body["messages"][-1]["role"] == "assistant"
        return StreamingResponse(iter(ran if is_answered else asks), media_type="text/event-stream")

    answer = usechat_client(app, approve=True).ask("go")
    answer.assert_legal(sdk="7")
    assert answer.tools[0].output == 1


def test_a_server_that_asks_the_same_again_is_answered_once(usechat_client: Clients) -> None:
    call = {"type": "tool-input-available", "toolCallId": "c1", "toolName": "location", "input": {}}
    app = strangers_app(frames({"type": "start"}, call, {"type": "finish"}))
    client = usechat_client(app, tools={"location": "Paris"})
    assert len(client.ask("Where?").exchanges) == 2


def test_a_secret_is_found_even_if_it_is_cut_into_deltas(usechat_client: Clients) -> None:
    async def leaking(_turn: Turn) -> AsyncIterator[str]:
        for piece in ("the key is sk-", "12", "34"):
            yield piece

    answer = usechat_client(leaking).ask("hi")
    answer.assert_redacted("sk-9999", "password")
    with pytest.raises(AssertionError, match=r"the secret sk-… of 7 characters reached the client in the deltas"):
        answer.assert_redacted("sk-1234")
    with pytest.raises(AssertionError, match="in the body"):
        answer.assert_redacted("the key")


def text_frames(part: str, *deltas: str) -> list[bytes]:
    """Return the frames of a text part; the deltas are JSON."""
    return [
        b'data: {"type":"text-start","id":"%s"}\n\n' % part.encode(),
        *(b'data: {"type":"text-delta","id":"%s","delta":%s}\n\n' % (part.encode(), d.encode()) for d in deltas),
        b'data: {"type":"text-end","id":"%s"}\n\n' % part.encode(),
    ]


@pytest.mark.parametrize(
    ("body", "secret", "place"),
    [
        ([rb'data: {"type":"error","errorText":"bad key a\u0026b"}', b"\n\n"], "a&b", "the decoded JSON"),
        ([rb'data: {"type":"error","errorText":"bad key sk\/1234"}', b"\n\n"], "sk/1234", "the decoded JSON"),
        (
            [
                b'data: {"type":"tool-input-available","toolCallId":"c","toolName":"t","input":{}}\n\n',
                rb'data: {"type":"tool-output-available","toolCallId":"c","output":{"keys":["p\u003cw\u00E4\"1"]}}',
                b"\n\n",
            ],
            'p<wä"1',
            "the decoded JSON",
        ),
        ([rb'{"error":', b"\n", rb'"sk\/1234"}'], "sk/1234", "the decoded JSON"),
        (text_frames("1", r'"sk\/1"', '"234"'), "sk/1234", "the deltas"),
        ([*text_frames("1", '"sk-12"'), *text_frames("2", '"34"')], "sk-1234", "the deltas"),
        ([*text_frames("1", '"sk-"'), *text_frames("2", '"12"'), *text_frames("1", '"34"')], "sk-1234", "the deltas"),
        (
            [
                *text_frames("1", '"sk-"')[:2],
                *text_frames("2", '"34"')[:2],
                *text_frames("1", '"12"')[1:],
            ],
            "sk-1234",
            "the deltas",
        ),
        (
            [
                b'data: {"type":"text-start","id":"1"}\n\n',
                b'data: {"type":"text-delta",\ndata: "id":"1","delta":"sk-12"}\n\n',
                b'data: {"type":"text-delta","id":"1","delta":"34"}\n\n',
            ],
            "sk-1234",
            "the deltas",
        ),
    ],
    ids=[
        "Go's escapes",
        "PHP's escapes",
        "in a tool output",
        "in a body of JSON",
        "escaped in a delta",
        "cut into two parts",
        "cut into three parts of two ids",
        "cut into interleaved parts",
        "in an event of two lines",
    ],
)
def test_a_secret_is_found_in_whatever_the_client_reads(
    usechat_client: Clients, body: list[bytes], secret: str, place: str
) -> None:
    answer = usechat_client(strangers_app(body)).ask("hi")
    answer.assert_redacted(f"{secret}5", "password")
    with pytest.raises(AssertionError, match=f"reached the client in {place}$"):
        answer.assert_redacted(secret)


def test_a_secret_is_found_if_an_answer_that_a_tool_interrupted_goes_on_with_the_rest_of_it(
    usechat_client: Clients,
) -> None:
    async def leaking(turn: Turn) -> AsyncIterator[str | parts.Part]:
        if turn.tool_outputs:
            yield "34"
        else:
            yield "sk-12"
            yield parts.ToolCall("c1", "location", {})

    answer = usechat_client(leaking, tools={"location": "Paris"}).ask("go")
    assert answer.text == "sk-1234"
    with pytest.raises(AssertionError, match=r"reached the client in the deltas$"):
        answer.assert_redacted("sk-1234")


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85"])
def test_a_secret_is_found_after_a_unicode_line_separator(usechat_client: Clients, separator: str) -> None:
    async def leaking(_turn: Turn) -> AsyncIterator[str]:
        yield f"a{separator}sk-12"
        yield "34"

    with pytest.raises(AssertionError, match="in the deltas"):
        usechat_client(leaking).ask("hi").assert_redacted("sk-1234")


class Slow:
    """An agent that takes its time, and tells whether it was stopped."""

    def __init__(self, *, heeds_stops: bool = True) -> None:
        self._heeds_stops = heeds_stops
        self.cancelled = 0

    async def __call__(self, _turn: Turn) -> AsyncIterator[str]:
        yield "One "
        try:
            await asyncio.sleep(0.3)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        yield "two."


def test_an_answer_that_takes_its_time_resumes_and_stops(usechat_client: Clients) -> None:
    agent = Slow()
    answer = usechat_client(agent).ask("hi")
    assert answer.text == "One two."
    answer.assert_resumes()
    assert agent.cancelled == 0
    answer.assert_stops()
    assert agent.cancelled == 1


def test_what_an_answer_holds_is_not_changed_by_its_checks(usechat_client: Clients) -> None:
    answer = usechat_client(Slow()).ask("hi")
    before = len(answer.chunks)
    answer.assert_resumes()
    answer.assert_stops()
    assert (len(answer.exchanges), len(answer.chunks)) == (1, before)
    answer.assert_legal()


def test_an_app_without_resume_fails_to_resume(usechat_client: Clients) -> None:
    answer = usechat_client(strangers_app(PLAIN)).ask("hi")
    with pytest.raises(AssertionError, match=r"the server cannot resume: GET .*/stream answered 404, .*Not Found"):
        answer.assert_resumes()


def test_an_answer_is_asked_again_with_the_headers_and_the_body_of_the_client(usechat_client: Clients) -> None:
    async def agent(turn: Turn) -> AsyncIterator[str]:
        if (turn.headers.get("x-team"), turn.body.get("model")) != ("blue", "small"):
            raise PublicError("Who are you?")
        async for piece in Slow()(turn):
            yield piece

    client = usechat_client(agent, headers={"x-team": "blue"}, body={"model": "small"})
    answer = client.ask("hi")
    assert answer.text == "One two."
    answer.assert_resumes()
    answer.assert_stops()


def test_an_app_that_goes_on_without_its_client_does_not_stop(usechat_client: Clients) -> None:
    app = FastAPI()

    async def stubborn(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"].endswith("/stop"):
            await app(scope, receive, send)
            return
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"".join(PLAIN[:4]), "more_body": True})
        await asyncio.sleep(1.5)  # whether or not anybody reads

    answer = usechat_client(stubborn).ask("hi")
    with pytest.raises(AssertionError, match=r"still runs 0\.2 s after it was stopped"):
        answer.assert_stops(seconds=0.2)


async def never_ends(_turn: Turn) -> AsyncIterator[str]:
    while True:
        yield "still "
        await asyncio.sleep(0.05)


async def says_nothing(_turn: Turn) -> AsyncIterator[str]:
    await asyncio.Event().wait()
    yield "never"


@pytest.mark.parametrize("agent", [never_ends, says_nothing])
def test_an_answer_that_takes_too_long_is_stopped(usechat_client: Clients, agent: Any) -> None:
    answer = usechat_client(agent, timeout=0.5).ask("Hi")
    assert (type(answer.error), str(answer.error)) == (AnswerTimedOut, "the answer took longer than 0.5 s")
    with pytest.raises(AssertionError, match=r"the answer took longer than 0\.5 s"):
        answer.assert_resumes()


def test_a_snapshot_is_the_same_twice(usechat_client: Clients) -> None:
    client = usechat_client(weather)
    first, second = client.ask("Paris").snapshot(), client.ask("Paris").snapshot()
    assert first == second
    assert (first["id"], first["parts"][2]["toolCallId"]) == ("message-1", "call-1")
    assert first["parts"][2]["output"] == {"celsius": 21}


def test_a_snapshot_has_no_item_ids_of_a_provider(usechat_client: Clients) -> None:
    items = iter(["msg_1", "msg_2"])
    app = FastAPI()

    @app.post("/api/chat")
    async def chat() -> StreamingResponse:
        metadata = {"openai": {"itemId": next(items)}}
        body = frames({"type": "start"}, {"type": "text-start", "id": "1", "providerMetadata": metadata})
        return StreamingResponse(iter(body), media_type="text/event-stream")

    client = usechat_client(app)
    first, second = client.ask("hi").snapshot(), client.ask("hi").snapshot()
    assert first == second
    assert first["parts"][0]["providerMetadata"] == {"openai": {"itemId": "item-1"}}


def test_a_chat_goes_on_with_what_was_said_before(usechat_client: Clients) -> None:
    client = usechat_client(lambda turn: f"{len(turn.messages)} messages")
    assert [client.ask("one").text, client.ask("two").text] == ["1 messages", "3 messages"]
    assert client.regenerate().text == "3 messages"
    assert len(client.messages) == 4


def test_an_app_that_returns_without_a_response_is_an_error_of_the_answer(usechat_client: Clients) -> None:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        pass

    answer = usechat_client(app).ask("hi")
    assert isinstance(answer.error, ConnectionLost)
    assert str(answer.error).endswith(": the app returned without a response")


def test_the_lifespan_of_an_app_begins_and_ends() -> None:
    events: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for _ in range(2):
                event = (await receive())["type"]
                events.append(event)
                await send({"type": f"{event}.complete"})
            return
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"".join(PLAIN)})

    with AgentClient(app) as client:
        assert client.ask("hi").text == "Hello"
        assert events == ["lifespan.startup"]
    assert events == ["lifespan.startup", "lifespan.shutdown"]


def test_an_app_whose_startup_fails_cannot_be_asked() -> None:
    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "there is no database"})

    with pytest.raises(CannotStart, match="the app cannot start: there is no database"), AgentClient(app) as client:
        client.ask("hi")
