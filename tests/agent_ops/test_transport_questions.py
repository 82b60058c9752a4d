"""Questions of a session: shown as data while the turn waits, or answered with the next request."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from examples.agent_ops_session.server import Sessions, serving
from tests.agent_ops.talking import DrivenTurn, until
from usechat import parts as p
from usechat.agent_ops import AgentOpsChatTransport
from usechat.protocol.chunks import Chunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.request import ChatRequest

RELEASES = ("early", "later")


@pytest.fixture(params=RELEASES)
async def sessions(request: pytest.FixtureRequest) -> AsyncIterator[Sessions]:
    async with serving(release=request.param) as running:
        yield running


def heard(sessions: Sessions) -> list[str]:
    return [command["type"] for _user, command in sessions["s1"].commands]


async def test_the_clock_stands_still_while_a_question_is_open(sessions: Sessions) -> None:
    transport = AgentOpsChatTransport(sessions.url, idle_timeout=2)
    turn = DrivenTurn(transport, "ask")
    await until(lambda: any(isinstance(part, p.Data) and part.name == "question" for part in turn.parts))
    await asyncio.sleep(2.5)
    assert not turn.task.done()
    sessions["s1"].answer("question-3", "no")
    assert (await turn.end())[-2:] == [p.Text("You answered: no"), p.Finish()]
    assert heard(sessions) == ["prompt"]


class Page:
    """What a page keeps of a chat, and sends back."""

    def __init__(self, transport: AgentOpsChatTransport) -> None:
        self._transport = transport
        self.messages: list[Any] = []

    async def send(self) -> list[Chunk]:
        last = self.messages[-1]
        builder = MessageBuilder(message=last if last["role"] == "assistant" else None)
        chunks = []
        async for chunk in await self._transport.send_messages(ChatRequest(chat_id="c", messages=self.messages)):
            builder.receive(chunk)
            chunks.append(chunk)
        if last["role"] == "assistant":
            self.messages.pop()
        self.messages.append(builder.message)
        return chunks

    def part(self, kind: str) -> Any:
        return next(part for part in self.messages[-1]["parts"] if part["type"] == kind and _is_question(part))


def _is_question(part: Any) -> bool:
    return "question" in (part.get("toolName"), part["type"].replace("tool-approval", "question"))


async def asked(sessions: Sessions, sdk: str, text: str = "ask") -> Page:
    """Return a page that was asked, and whose stream has ended."""
    transport = AgentOpsChatTransport(
        sessions.url, session_id="s1", service_token="ada", questions="approval", sdk=sdk, idle_timeout=5
    )
    page = Page(transport)
    page.messages.append({"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]})
    await page.send()
    await until(lambda: not sessions["s1"].clients)
    assert (heard(sessions), sessions["s1"].busy) == (["prompt"], True)
    return page


@pytest.mark.parametrize("sdk", ["6", "7"])
@pytest.mark.parametrize(
    ("approved", "reason", "answer"), [(True, None, True), (True, "yes", "yes"), (False, "no", False)]
)
async def test_an_approval_is_sent_back_as_the_answer_and_the_same_turn_goes_on(
    sessions: Sessions, sdk: str, approved: bool, reason: str | None, answer: object
) -> None:
    page = await asked(sessions, sdk)
    question = page.part("dynamic-tool")
    assert (question["state"], question["approval"]["id"]) == ("approval-requested", "question-3")
    explanation = {"reason": reason} if reason is not None else {}
    question |= {"state": "approval-responded", "approval": {"id": "question-3", "approved": approved, **explanation}}
    await page.send()
    assert sessions["s1"].commands[-1] == ("ada", {"type": "answer", "questionId": "question-3", "answer": answer})
    message = page.messages[-1]
    texts = [part["text"] for part in message["parts"] if part["type"] == "text"]
    states = [(part["toolName"], part["state"]) for part in message["parts"] if part["type"] == "dynamic-tool"]
    assert (message["id"], texts) == ("turn-2", ["One moment.", f"You answered: {answer}"])
    outcome = "output-available" if approved else "output-denied"
    assert states == [("read_file", "output-available"), ("question", outcome)]
    assert "abort" not in heard(sessions)


async def test_clients_without_approvals_answer_with_a_tool_of_theirs(sessions: Sessions) -> None:
    page = await asked(sessions, "5")
    question = page.part("tool-approval")
    assert question["input"]["input"] is not None
    question |= {"state": "output-available", "output": {"approved": True, "reason": "yes"}}
    await page.send()
    assert sessions["s1"].commands[-1][1] == {"type": "answer", "questionId": "question-3", "answer": "yes"}
    assert page.messages[-1]["parts"][-1]["text"] == "You answered: yes"


DECISIONS = [
    (True, None, {"type": "approve-action"}, "Approved."),
    (True, "go on", {"type": "approve-action"}, "Approved."),
    (False, None, {"type": "deny-action"}, "Denied: none"),
    (False, "too risky", {"type": "deny-action", "reason": "too risky"}, "Denied: too risky"),
]


@pytest.mark.parametrize("sdk", ["5", "6", "7"])
@pytest.mark.parametrize(("approved", "reason", "command", "text"), DECISIONS)
async def test_the_approval_of_a_tool_is_an_action_and_no_answer(
    sessions: Sessions, sdk: str, approved: bool, reason: str | None, command: dict[str, str], text: str
) -> None:
    page = await asked(sessions, sdk, "approve")
    explanation = {"reason": reason} if reason is not None else {}
    if sdk == "5":
        page.part("tool-approval").update(
            {"state": "output-available", "output": {"approved": approved, **explanation}}
        )
    else:
        decision = {"id": "invocation-3", "approved": approved, **explanation}
        page.part("dynamic-tool").update({"state": "approval-responded", "approval": decision})
    await page.send()
    assert sessions["s1"].commands[-1] == ("ada", {**command, "invocationId": "invocation-3"})
    assert page.messages[-1]["parts"][-1]["text"] == text


async def test_the_scripted_session_takes_an_answer_to_an_approval_for_a_denial(sessions: Sessions) -> None:
    turn = DrivenTurn(AgentOpsChatTransport(sessions.url), "approve")
    await until(lambda: any(isinstance(part, p.Data) and part.name == "question" for part in turn.parts))
    sessions["s1"].answer("invocation-3", True)
    assert (await turn.end())[-2:] == [p.Text("Denied: true"), p.Finish()]


async def test_an_answer_that_comes_when_the_turn_is_over(sessions: Sessions) -> None:
    page = await asked(sessions, "7")
    await sessions["s1"].close()
    question = page.part("dynamic-tool")
    question |= {"state": "approval-responded", "approval": {"id": "question-3", "approved": True}}
    transport = AgentOpsChatTransport(sessions.url, questions="approval", idle_timeout=5)
    late = DrivenTurn(transport, request=ChatRequest(chat_id="c", messages=page.messages))
    error = (await late.end())[-1]
    assert isinstance(error, p.Error)
    assert error.error_text in ("The turn had ended before the answer came.", "No such question.")
