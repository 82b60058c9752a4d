"""Answers that come to another worker than the one whose task waits: two sources that share a store."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import pytest

from tests.adapters.turns import assistant, request, tool, user
from tests.redis_server import redis_server
from tests.runs.redis_stores import Workers
from usechat.errors import PublicError, StreamFailed
from usechat.forwarded_turns import ForwardedTurns
from usechat.parts import ApprovalRequest, Finish, Part, Text, ToolCall, ToolResult
from usechat.paused_states import MemoryStates, PausedStates
from usechat.protocol.request import ApprovalAnswer
from usechat.sources import AdapterSource
from usechat.turn import Identity, Turn, TurnContext, current_turn
from usechat.waiting_tasks import PAUSE_IS_GONE, WaitingTask, WaitingTasks

PATIENCE = 30.0


class SharedStates(MemoryStates):
    """The states of a worker, which all workers have, and messages from one to another."""

    def __init__(self, others: "SharedStates | None" = None) -> None:
        super().__init__()
        self._addresses: dict[tuple[str, str], Callable[[bytes], None]] = {}
        self.worker = "first"
        self.is_connected = True
        if others is not None:
            self.__dict__ |= {**others.__dict__, "worker": "second"}

    async def post(self, worker: str, address: str, message: bytes) -> None:
        if self.is_connected and (worker, address) in self._addresses:
            asyncio.get_running_loop().call_soon(self._addresses[worker, address], message)

    def receive(self, address: str, on_message: Callable[[bytes], None]) -> None:
        self._addresses[self.worker, address] = on_message


class Parts:
    """Passes parts on."""

    def feed(self, event: Part) -> list[Part]:
        return [event]

    def close(self, error: BaseException | None = None) -> list[Part]:  # noqa: ARG002
        return []


class Worker:
    """A source in a process of its own: nothing but the store is shared."""

    def __init__(self, states: PausedStates, *, patience: float = PATIENCE) -> None:
        self._states = states
        self.tasks: WaitingTasks[Part] = WaitingTasks()
        self.stopped: list[bool] = []
        source = AdapterSource(self._events, Parts)
        self._forwarded = ForwardedTurns(source.drive, self.tasks.is_waiting, patience=patience)

    def _events(self, turn: Turn) -> AsyncIterator[Part]:
        return self.tasks.events(turn, turn.chat_id, self._start)

    async def _start(self, task: WaitingTask[Part]) -> AsyncGenerator[Part]:
        yield ToolCall("c1", "dig", {"depth": 3})
        answer = await task.ask("c1", ApprovalRequest("a1", "c1"))
        assert isinstance(answer, ApprovalAnswer)
        if answer.reason == "fail":
            raise ConnectionError("gone")
        yield ToolResult("c1", {"approved": answer.approved, "by": str(current_turn().identity)})
        if answer.reason == "wait":
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.append(True)
        yield Text("Done.")
        yield Finish("stop")

    async def answer(self, *messages: Any, said: list[Part] | None = None) -> list[Part]:
        """Drive one turn; return what it said."""
        context = TurnContext(request(*messages), identity=Identity("ada"))
        context.states = self._states
        said = [] if said is None else said
        context.connect(said.append)
        context.enter()
        async with asyncio.timeout(PATIENCE):
            await self._forwarded.drive(context, context.turn.chat_id)
        return said


ASKED = [user("Dig.")]


def answered(**answer: Any) -> list[Any]:
    call = tool("dig", "c1", "approval-responded", approval={"id": "a1", "approved": True, **answer})
    return [*ASKED, assistant(call)]


DONE = [ToolResult("c1", {"approved": True, "by": "Identity('ada')"}), Text("Done."), Finish("stop")]


async def test_the_answer_reaches_the_process_that_waits_and_its_parts_come_back() -> None:
    states = SharedStates()
    here, there = Worker(states), Worker(SharedStates(states))
    assert await here.answer(*ASKED) == [ToolCall("c1", "dig", {"depth": 3}), ApprovalRequest("a1", "c1")]
    assert await there.answer(*answered()) == DONE
    with pytest.raises(PublicError, match=PAUSE_IS_GONE):
        await Worker(states, patience=0.1).answer(*answered())


async def test_the_same_goes_through_redis() -> None:
    with redis_server("valkey") as server:
        workers = Workers(server)
        here, there = Worker(workers.store()), Worker(workers.store())
        await here.answer(*ASKED)
        assert await there.answer(*answered()) == DONE
        await workers.close()


async def test_an_answer_to_the_process_that_waits_is_not_forwarded() -> None:
    worker = Worker(SharedStates())
    await worker.answer(*ASKED)
    assert await worker.answer(*answered()) == DONE


async def test_a_process_that_died_is_told_to_the_page() -> None:
    states = SharedStates()
    await Worker(states).answer(*ASKED)
    other = SharedStates(states)
    other.is_connected = False
    with pytest.raises(PublicError, match=PAUSE_IS_GONE):
        await Worker(other, patience=0.1).answer(*answered())


async def test_a_process_that_is_gone_is_told_to_the_page() -> None:
    states = SharedStates()
    with pytest.raises(PublicError, match=PAUSE_IS_GONE):
        await Worker(states, patience=0.1).answer(*answered())
    here = Worker(states)
    await here.answer(*ASKED)
    assert await here.answer(*answered()) == DONE


async def test_a_failure_there_is_a_failure_here() -> None:
    states = SharedStates()
    here, there = Worker(states), Worker(SharedStates(states))
    await here.answer(*ASKED)
    with pytest.raises(StreamFailed, match="ConnectionError: gone"):
        await there.answer(*answered(reason="fail"))


async def test_a_stop_here_stops_the_task_there() -> None:
    states = SharedStates()
    here, there = Worker(states), Worker(SharedStates(states))
    await here.answer(*ASKED)
    said: list[Part] = []
    turn = asyncio.create_task(there.answer(*answered(reason="wait"), said=said))
    async with asyncio.timeout(PATIENCE):
        while not said:  # noqa: ASYNC110 (parts arrive by themselves)
            await asyncio.sleep(0.01)
        turn.cancel()
        while here.stopped != [True]:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await turn


async def test_states_of_one_process_forward_nothing() -> None:
    with pytest.raises(PublicError, match=PAUSE_IS_GONE):
        await Worker(MemoryStates()).answer(*answered())
