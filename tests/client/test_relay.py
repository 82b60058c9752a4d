"""A client's transport that is served: what the endpoint is sent, and what the page gets."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.client.endpoints import HELLO, Endpoint, frame, served
from tests.conformance.served import serving, unanswered_port
from usechat import parts
from usechat.client import Chat, HttpChatTransport, WebSocketChatTransport
from usechat.client.in_process import InProcessTransport
from usechat.client.relay import with_native_approvals
from usechat.errors import StreamFailed
from usechat.protocol.request import ChatRequest
from usechat.server import ChatApp, Observer, Settings
from usechat.testing import AgentClient
from usechat.turn import Turn

CALL = {"type": "tool-remove", "toolCallId": "t1", "state": "input-available", "input": {"file": "a"}}
QUESTION = {"approvalId": "a1", "toolCallId": "t1", "toolName": "remove", "input": {"file": "a"}, "signature": "s1"}
ASKED = {"type": "tool-approval", "toolCallId": "a1", "state": "output-available", "input": QUESTION}
USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Remove a."}]}


def request_with(*parts_of_answer: Any, after: Any = ()) -> ChatRequest:
    answer = {"id": "m1", "role": "assistant", "parts": list(parts_of_answer)}
    return ChatRequest.parse({"id": "c1", "messages": [USER, answer, *after]})


@pytest.mark.parametrize(
    ("output", "approval"),
    [
        ({"approved": True}, {"id": "a1", "approved": True, "signature": "s1"}),
        ({"approved": False, "reason": "No."}, {"id": "a1", "approved": False, "reason": "No.", "signature": "s1"}),
        ("yes", {"id": "a1", "approved": True, "signature": "s1"}),
    ],
)
def test_an_approval_that_was_asked_through_a_tool_becomes_an_answered_request(output: Any, approval: Any) -> None:
    request = with_native_approvals(request_with(CALL, ASKED | {"output": output}), signed={"a1"})
    assert request.messages[-1]["parts"] == [CALL | {"state": "approval-responded", "approval": approval}]


@pytest.mark.parametrize("question", [ASKED | {"output": "yes"}, None])
def test_only_signatures_of_the_endpoint_itself_are_sent_to_it(question: Any) -> None:
    approval = {"id": "a1", "approved": True}
    call = CALL | {"state": "approval-responded", "approval": approval | {"signature": "s1"}}
    request = request_with(CALL, question) if question else request_with(call)
    unsigned, signed = with_native_approvals(request), with_native_approvals(request, signed={"a1"})
    assert unsigned.messages[-1]["parts"] == [call | {"approval": approval}]
    assert signed.messages[-1]["parts"] == [call]


def test_what_was_asked_earlier_is_left_out_and_the_outcome_stays() -> None:
    done = CALL | {"state": "output-available", "output": "removed"}
    request = with_native_approvals(request_with(done, ASKED | {"output": {"approved": True}}, after=[USER]))
    assert request.messages[1]["parts"] == [done]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "text", "text": "Hi"},
        {"type": "tool-approval", "toolCallId": "x", "state": "output-available", "input": {}, "output": 1},
        CALL | {"state": "approval-responded", "approval": {"id": "a1", "approved": True}},
    ],
)
def test_everything_else_is_sent_as_it_came(part: Any) -> None:
    request = request_with(part)
    assert with_native_approvals(request) == request


async def asking(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """An endpoint that asks for an approval, and for the output of a tool of the page."""
    if turn.approvals:
        [answer] = turn.approvals
        yield parts.ToolResult("t1", "removed") if answer.approved else parts.ToolDenied("t1")
        yield parts.ToolCall("t2", "location", {})
    elif turn.tool_outputs:
        yield f"Removed in {turn.tool_outputs[0].output}."
    else:
        yield parts.Reasoning("Hm.")
        yield parts.ToolCall("t1", "remove", {"file": "a"})
        yield parts.ApprovalRequest("a1", "t1")


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with serving({"app": ChatApp(asking, settings=Settings(sdk="7"))}) as running:
        yield running.url("app")


@pytest.mark.parametrize("sdk", ["5", "6", "7", "any"])
def test_approvals_and_tools_of_the_page_go_through_for_every_release(upstream: str, sdk: str) -> None:
    served_app = ChatApp(lambda: HttpChatTransport(upstream), settings=Settings(sdk=sdk))
    release = "7" if sdk == "any" else sdk
    with AgentClient(served_app, sdk=release, approve=True, tools={"location": "Paris"}) as client:
        answer = client.ask("Remove a.")
        answer.assert_legal(sdk)
    assert answer.error is None
    assert (answer.text, answer.reasoning) == ("Removed in Paris.", "Hm.")
    assert [tool.output for tool in answer.tools if tool.name == "remove"] == ["removed"]


async def test_a_socket_can_be_served_too(upstream: str) -> None:
    transport = WebSocketChatTransport(f"{upstream}/ws")
    inner = InProcessTransport(ChatApp(transport))
    async with transport, HttpChatTransport("http://page/api/chat", http=inner) as page, Chat(page) as chat:
        answer = await chat.send("Remove a.")
        assert answer is not None
        assert answer.reasoning == "Hm."


async def test_headers_of_the_page_are_passed_on_by_a_list() -> None:
    endpoint = Endpoint()
    with served(endpoint) as url:
        app = ChatApp(lambda: HttpChatTransport(url, headers={"x-team": "blue"}, pass_on=["X-Person"]))
        with AgentClient(app, headers={"x-person": "ada", "x-secret": "no"}) as client:
            assert client.ask("hi").text == "Hello"
    headers = endpoint.headers[0]
    assert (headers["x-team"], headers["x-person"], "x-secret" in headers) == ("blue", "ada", False)


class Counts(Observer):
    def __init__(self) -> None:
        self.events: list[str] = []

    def source_unreachable(self) -> None:
        self.events.append("unreachable")

    def source_connected(self) -> None:
        self.events.append("connected")

    def source_disconnected(self) -> None:
        self.events.append("disconnected")


def test_connections_to_the_endpoint_are_counted() -> None:
    counts = Counts()
    with served(Endpoint()) as url, AgentClient(ChatApp(lambda: HttpChatTransport(url), observer=counts)) as client:
        client.ask("hi")
    assert counts.events == ["connected", "disconnected"]


def test_an_endpoint_that_is_away_is_a_failure_without_its_address() -> None:
    counts = Counts()
    with unanswered_port() as port:
        url = f"http://127.0.0.1:{port}/secret"
        app = ChatApp(lambda: HttpChatTransport(url, retries=0), observer=counts)
        with AgentClient(app) as client:
            answer = client.ask("hi")
    assert isinstance(answer.error, StreamFailed)
    answer.assert_redacted(str(port), "/secret")
    assert counts.events == ["unreachable"]


def test_an_answer_that_breaks_off_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    with (
        served(Endpoint(frame(HELLO[0]) + frame(HELLO[1]))) as url,
        AgentClient(lambda: HttpChatTransport(url)) as client,
    ):
        answer = client.ask("hi")
    assert isinstance(answer.error, StreamFailed)
    answer.assert_redacted(url)
    assert f"lost the connection to {url}: the stream ends without `finish` and without [DONE]" in caplog.text


def test_a_stop_reaches_the_endpoint() -> None:
    endpoint = Endpoint(b"".join(map(frame, HELLO[:4])), holds=True)
    with served(endpoint) as url, AgentClient(ChatApp(lambda: HttpChatTransport(url))) as client:
        client.run(client.check_stop("hi", 5))
    assert endpoint.requests[-1][1].endswith("/stop")
