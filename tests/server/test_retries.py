"""An output whose run came to nothing may be given again; an approval counts once, however often it comes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2
import pytest

from tests.external_agents import needs_agents_here
from tests.redis_server import redis_server
from tests.server.streams import Streams
from usechat import parts
from usechat.protocol.message import MessageBuilder
from usechat.protocol.sse import ChunkDecoder
from usechat.runs.memory import MemoryRuns
from usechat.runs.redis.store import RedisRuns
from usechat.runs.settings import Conflict
from usechat.runs.store import RunStore
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

pytestmark = pytest.mark.external_agents

USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}


class Agent:
    """Asks the page, or a person before it removes something; what it then does, the test says in the body."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.removals = 0
        self.waits = asyncio.Event()

    async def answer(self, turn: Turn) -> AsyncIterator[Any]:
        then = turn.body.get("then")
        if not turn.request.continues:
            yield parts.ToolCall("t1", "remove" if then == "approve" else "ask", {})
            if then == "approve":
                yield parts.ApprovalRequest("a1", "t1")
            return
        self.answers.append([*(each.output for each in turn.tool_outputs), *(each.approved for each in turn.approvals)])
        if then == "wait":
            self.waits.set()
            await asyncio.Event().wait()
        if then == "fail":
            raise RuntimeError("the model is down")
        for each in turn.approvals:
            self.removals += 1
            yield parts.ToolResult(each.tool_call_id or "", "removed")
        if then == "fail late":
            raise RuntimeError("the model is down")
        yield "Done."


class Page:
    """Posts, and answers what it is asked."""

    def __init__(self, agent: Agent, runs: RunStore, conflict: Conflict = "reject") -> None:
        self.streams = Streams()
        settings = Settings(sdk="7", conflict=conflict)
        self._app = ChatApp(agent.answer, runs=runs, settings=settings, observer=self.streams)
        self._client = httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=self._app), base_url="http://example", timeout=30
        )

    async def __aenter__(self) -> "Page":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()
        await self._app.shut_down()

    async def asked(self, then: str = "") -> list[Any]:
        """Ask, and return the messages with everything answered that the agent asked back."""
        response = await self.post([USER], then)
        builder = MessageBuilder(sdk="7")
        for chunk in ChunkDecoder().receive(response.content):
            builder.receive(chunk)
        message: Any = builder.message
        for part in message["parts"]:
            if part.get("state") == "approval-requested":
                part |= {"state": "approval-responded", "approval": {**part["approval"], "approved": True}}
            elif part.get("state") == "input-available":
                part |= {"state": "output-available", "output": "Bern"}
        return [USER, message]

    async def post(self, messages: list[Any], then: str = "") -> httpx2.Response:
        return await self._client.post("/api/chat", json={"id": "c1", "messages": messages, "then": then})

    async def stop(self) -> None:
        assert (await self._client.post("/api/chat/c1/stop")).status_code == 204


@pytest.fixture(params=["memory", "redis"])
def runs(request: pytest.FixtureRequest) -> Iterator[RunStore]:
    if request.param == "memory":
        yield MemoryRuns()
        return
    with redis_server("valkey") as server:
        yield RedisRuns(server.url)


async def test_an_output_is_taken_again_until_a_run_has_ended_well(runs: RunStore) -> None:
    agent = Agent()
    async with Page(agent, runs) as page:
        messages = await page.asked()
        for then in ("fail", "fail late", "", ""):
            assert (await page.post(messages, then)).status_code == 200
    assert agent.answers == [["Bern"], ["Bern"], ["Bern"], []]


@pytest.mark.parametrize("then", ["fail", "fail late", ""])
async def test_an_approval_counts_once_whatever_became_of_it(runs: RunStore, then: str) -> None:
    agent = Agent()
    async with Page(agent, runs) as page:
        messages = await page.asked("approve")
        statuses = [(await page.post(messages, each)).status_code for each in (then, "")]
    assert (statuses, agent.removals) == ([200, 422], 0 if then == "fail" else 1), "the tool may have run"


@pytest.mark.parametrize("conflict", ["reject", "queue", "interrupt"])
async def test_a_page_that_left_its_run_gives_the_output_again(runs: RunStore, conflict: Conflict) -> None:
    """A stock `stop()` only closes the connection, and the run waits for somebody to come back."""
    agent = Agent()
    async with Page(agent, runs, conflict) as page:
        messages = await page.asked()
        answering = asyncio.ensure_future(page.post(messages, "wait"))
        await asyncio.wait_for(agent.waits.wait(), 30)
        answering.cancel()
        await asyncio.wait([answering])
        assert (await page.post(messages)).status_code == 200
    assert agent.answers == [["Bern"], ["Bern"]]


async def test_what_a_stopped_run_was_given_may_be_given_again(runs: RunStore) -> None:
    agent = Agent()
    async with Page(agent, runs) as page:
        messages = await page.asked()
        answering = asyncio.ensure_future(page.post(messages, "wait"))
        await asyncio.wait_for(agent.waits.wait(), 30)
        await page.stop()
        await answering
        await page.post(messages)
    assert agent.answers == [["Bern"], ["Bern"]]


async def test_a_message_of_the_user_leaves_the_answers_behind() -> None:
    agent = Agent()
    async with Page(agent, MemoryRuns()) as page:
        messages = await page.asked("approve")
        await page.post(messages, "fail")
        await page.post([USER, {**USER, "id": "u2"}])
        assert (await page.post(messages)).status_code == 422
    assert agent.removals == 0


@pytest.mark.parametrize(
    ("conflict", "status"),
    [
        pytest.param("reject", 409, marks=needs_agents_here("an answer is known to be read after a moment only")),
        ("attach", 200),
        ("queue", 422),
        ("interrupt", 422),
    ],
)
async def test_a_double_click_runs_a_tool_once(runs: RunStore, conflict: Conflict, status: int) -> None:
    agent = Agent()
    async with Page(agent, runs, conflict) as page:
        messages = await page.asked("approve")
        first = asyncio.ensure_future(page.post(messages, "wait"))
        await asyncio.wait_for(agent.waits.wait(), 30)
        await page.streams.wait_for(2)  # the question, and its answer that waits
        second = asyncio.ensure_future(page.post(messages))
        match conflict:
            case "reject":
                await asyncio.wait([second])
            case "attach":
                await page.streams.wait_for(1)
            case _:
                await asyncio.sleep(0.2)  # whether it waits already changes nothing
        await page.stop()
        assert [(await task).status_code for task in (first, second)] == [200, status]
    assert agent.answers == [[True]]


class Cashier:
    """Asks twice before it pays, and waits after the first payment."""

    def __init__(self) -> None:
        self.payments: list[str | None] = []
        self.go_on = asyncio.Event()

    async def answer(self, turn: Turn) -> AsyncIterator[Any]:
        if not turn.request.continues:
            for call_id in ("t1", "t2"):
                yield parts.ToolCall(call_id, "pay", {})
                yield parts.ApprovalRequest(f"approval {call_id}", call_id)
            return
        for each in turn.approvals:
            self.payments.append(each.tool_call_id)
            yield parts.ToolResult(each.tool_call_id or "", "paid")
        await self.go_on.wait()


def payment(call_id: str, state: str, **approval: bool) -> dict[str, Any]:
    part = {"type": "tool-pay", "toolCallId": call_id, "input": {}, "state": state}
    output = {"output": "paid"} if state == "output-available" else {}
    return {**part, **output, "approval": {"id": f"approval {call_id}", **approval}}


async def test_two_that_wait_with_the_same_answer_run_its_tool_once(runs: RunStore) -> None:
    cashier = Cashier()
    app = ChatApp(cashier.answer, runs=runs, settings=Settings(sdk="7", conflict="queue"))
    transport = httpx2.ASGITransport(app=app)

    async with httpx2.AsyncClient(transport=transport, base_url="http://example", timeout=30) as client:

        async def post(*calls: dict[str, Any]) -> int:
            message = [{"id": "m1", "role": "assistant", "parts": list(calls)}] if calls else []
            return (await client.post("/api/chat", json={"id": "c1", "messages": [USER, *message]})).status_code

        assert await post() == 200
        requested, yes = payment("t2", "approval-requested"), payment("t2", "approval-responded", approved=True)
        first = asyncio.ensure_future(post(payment("t1", "approval-responded", approved=True), requested))
        async with asyncio.timeout(30):
            while not cashier.payments:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        others = [asyncio.ensure_future(post(payment("t1", "output-available", approved=True), yes)) for _ in range(2)]
        await asyncio.sleep(0.2)
        cashier.go_on.set()
        assert sorted(await asyncio.gather(first, *others)) == [200, 200, 422]
    await app.shut_down()
    assert cashier.payments == ["t1", "t2"]
