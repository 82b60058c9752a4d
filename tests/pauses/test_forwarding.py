"""Answers that come to another worker than the one whose task waits: two workers that share a store."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.adapters.turns import assistant, tool, user
from tests.pauses.workers import PATIENCE, SharedStates, Worker
from tests.redis_server import redis_server
from tests.runs.redis_stores import Workers
from usechat.adapters import conversation
from usechat.errors import PublicError, StoreUnreachable, StreamFailed
from usechat.parts import ApprovalRequest, Finish, Part, Text, ToolCall, ToolResult
from usechat.pauses.questions import PAUSE_IS_GONE
from usechat.pauses.states import MemoryStates
from usechat.pauses.tasks import WaitingTasks
from usechat.protocol.request import ApprovalAnswer
from usechat.turn import Answer, PageQuestion, Turn, current_context, current_turn


class Digger:
    """An agent that asks before it digs."""

    def __init__(self) -> None:
        self.stopped: list[bool] = []

    async def __call__(self, turn: Turn) -> AsyncIterator[Part]:
        conversation.refuse_answers(turn)
        yield ToolCall("c1", "dig", {"depth": 3})
        answer = await ask("c1")
        assert isinstance(answer, ApprovalAnswer)
        if answer.reason == "fail":
            raise ConnectionError("gone")
        yield ToolResult("c1", {"approved": answer.approved, "by": str(current_turn().identity)})
        if answer.reason == "again":
            await ask("c2")
        if answer.reason == "wait":
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.append(True)
        yield Text("Done.")
        yield Finish("stop")


async def ask(call_id: str) -> Answer:
    context = current_context()
    return await context.ask(PageQuestion(call_id, lambda: context.send(ApprovalRequest("a1", call_id))))


ASKED = [user("Dig.")]


def answered(call_id: str = "c1", **answer: Any) -> list[Any]:
    call = tool("dig", call_id, "approval-responded", approval={"id": "a1", "approved": True, **answer})
    return [*ASKED, assistant(call)]


BEGUN = [ToolCall("c1", "dig", {"depth": 3}), ApprovalRequest("a1", "c1")]
DONE = [ToolResult("c1", {"approved": True, "by": "Identity('ada')"}), Text("Done."), Finish("stop")]


def impatient(states: SharedStates) -> Worker:
    return Worker(Digger(), states, tasks=WaitingTasks(patience=0.1))


async def test_the_answer_reaches_the_process_that_waits_and_its_parts_come_back() -> None:
    states = SharedStates()
    here, there = Worker(Digger(), states), Worker(Digger(), SharedStates(states))
    assert await here.turn(*ASKED) == BEGUN
    assert await there.turn(*answered()) == DONE
    with pytest.raises(PublicError, match=PAUSE_IS_GONE):
        await impatient(states).turn(*answered())


async def test_the_same_goes_through_redis() -> None:
    with redis_server("valkey") as server:
        workers = Workers(server)
        here, there = Worker(Digger(), workers.store()), Worker(Digger(), workers.store())
        await here.turn(*ASKED)
        assert await there.turn(*answered()) == DONE
        await workers.close()


async def test_an_answer_to_the_process_that_waits_is_not_forwarded() -> None:
    states = SharedStates()
    worker = Worker(Digger(), states)
    await worker.turn(*ASKED)
    states.is_connected = False
    assert await worker.turn(*answered()) == DONE


async def test_a_task_that_asks_again_waits_in_its_process_for_the_next_answer() -> None:
    states = SharedStates()
    here, there = Worker(Digger(), states), Worker(Digger(), SharedStates(states))
    await here.turn(*ASKED)
    assert await there.turn(*answered(reason="again")) == [DONE[0], ApprovalRequest("a1", "c2")]
    assert await there.turn(*answered("c2")) == DONE[1:]


async def test_answers_to_other_calls_than_those_that_were_asked_about_stay_here() -> None:
    async def agent(turn: Turn) -> str:
        return f"{[answer.tool_call_id for answer in turn.approvals]}"

    states = SharedStates()
    await Worker(Digger(), states).turn(*ASKED)
    assert await Worker(agent, SharedStates(states)).turn(*answered("c7")) == [Text("['c7']")]


async def test_a_process_that_died_is_told_to_the_page() -> None:
    states = SharedStates()
    await Worker(Digger(), states).turn(*ASKED)
    other = SharedStates(states)
    other.is_connected = False
    with pytest.raises(PublicError, match=PAUSE_IS_GONE):
        await impatient(other).turn(*answered())


async def test_a_task_that_is_gone_from_its_process_is_told_to_the_page() -> None:
    states = SharedStates()
    here = Worker(Digger(), states)
    await here.turn(*ASKED)
    await here.tasks.close(PATIENCE)
    with pytest.raises(PublicError, match=PAUSE_IS_GONE):
        await Worker(Digger(), SharedStates(states)).turn(*answered())


async def test_a_failure_there_is_a_failure_here() -> None:
    states = SharedStates()
    here, there = Worker(Digger(), states), Worker(Digger(), SharedStates(states))
    await here.turn(*ASKED)
    with pytest.raises(StreamFailed, match="ConnectionError: gone"):
        await there.turn(*answered(reason="fail"))


async def test_a_stop_here_stops_the_task_there() -> None:
    states = SharedStates()
    digger = Digger()
    await Worker(digger, states).turn(*ASKED)
    turn = Worker(Digger(), SharedStates(states)).begin(*answered(reason="wait"))
    async with asyncio.timeout(PATIENCE):
        while not turn.parts:  # noqa: ASYNC110 (parts arrive by themselves)
            await asyncio.sleep(0.01)
        turn.task.cancel()
        while digger.stopped != [True]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await turn.ending


async def test_a_task_that_other_workers_cannot_find_fails_its_turn() -> None:
    class Unreachable(SharedStates):
        async def keep_state(self, handle: str, state: bytes) -> None:  # noqa: ARG002
            raise StoreUnreachable

    with pytest.raises(StoreUnreachable):
        await Worker(Digger(), Unreachable()).turn(*ASKED)


async def test_states_of_one_process_forward_nothing() -> None:
    with pytest.raises(PublicError, match=PAUSE_IS_GONE):
        await Worker(Digger(), MemoryStates()).turn(*answered())
