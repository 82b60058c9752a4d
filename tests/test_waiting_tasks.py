"""Tasks that wait for a person over the end of a turn, without any framework."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.adapters.turns import assistant, tool, turn_of, user
from usechat import emit
from usechat.errors import PublicError
from usechat.parts import ApprovalRequest, Data, Finish, Part, Text, ToolCall, ToolResult
from usechat.protocol.request import ApprovalAnswer, ToolOutput
from usechat.sources import AdapterSource
from usechat.testing import AgentClient
from usechat.turn import Turn
from usechat.waiting_tasks import PAUSE_IS_GONE, WaitingTask, WaitingTasks


class Log:
    """An agent that asks before it goes on, and notes what happened to it."""

    def __init__(self, *calls: str) -> None:
        self._calls = calls
        self.noted: list[Any] = []

    async def start(self, task: WaitingTask[str]) -> AsyncGenerator[str]:
        try:
            yield "begun"
            answers = await asyncio.gather(*(task.ask(call, f"ask {call}") for call in self._calls))
            self.noted += answers
            yield "done"
        except asyncio.CancelledError:
            self.noted.append("cancelled")
            raise


def approved(*calls: str) -> Turn:
    parts = [tool("dig", call, "approval-responded", approval={"id": f"a-{call}", "approved": True}) for call in calls]
    return turn_of(user("Dig."), assistant(*parts))


async def read(tasks: WaitingTasks[str], turn: Turn, log: Log, handle: str = "h") -> list[str]:
    return [event async for event in tasks.events(turn, handle, log.start)]


async def test_a_turn_ends_where_the_task_asks_and_the_next_one_reads_on() -> None:
    tasks: WaitingTasks[str] = WaitingTasks()
    log = Log("c1")
    assert await read(tasks, turn_of(user("Dig.")), log) == ["begun", "ask c1"]
    assert log.noted == []
    assert await read(tasks, approved("c1"), log) == ["done"]
    [answer] = log.noted
    assert isinstance(answer, ApprovalAnswer)
    assert (answer.tool_call_id, answer.approved) == ("c1", True)


async def test_questions_that_are_asked_together_are_answered_together_each_by_its_call() -> None:
    tasks: WaitingTasks[str] = WaitingTasks()
    log = Log("c1", "c2")
    assert await read(tasks, turn_of(user("Dig.")), log) == ["begun", "ask c1", "ask c2"]
    assert await read(tasks, approved("c2"), log) == ["done"]
    assert [answer and answer.tool_call_id for answer in log.noted] == [None, "c2"]


async def test_the_output_of_a_client_tool_is_an_answer() -> None:
    tasks: WaitingTasks[str] = WaitingTasks()
    log = Log("c1")
    await read(tasks, turn_of(user("Where?")), log)
    turn = turn_of(user("Where?"), assistant(tool("location", "c1", "output-available", output="Paris")))
    assert await read(tasks, turn, log) == ["done"]
    [answer] = log.noted
    assert isinstance(answer, ToolOutput)
    assert answer.output == "Paris"


async def test_an_answer_that_nobody_waits_for_is_refused_with_a_sentence() -> None:
    with pytest.raises(PublicError, match=PAUSE_IS_GONE):
        await read(WaitingTasks(), approved("c1"), Log("c1"))


async def test_an_answer_counts_once() -> None:
    tasks: WaitingTasks[str] = WaitingTasks()
    log = Log("c1")
    await read(tasks, turn_of(user("Dig.")), log)
    await read(tasks, approved("c1"), log)
    with pytest.raises(PublicError):
        await read(tasks, approved("c1"), log)


async def test_another_message_cancels_the_task_that_waits() -> None:
    tasks: WaitingTasks[str] = WaitingTasks()
    first, second = Log("c1"), Log()
    await read(tasks, turn_of(user("Dig.")), first)
    assert await read(tasks, turn_of(user("Never mind.", "u2")), second) == ["begun", "done"]
    assert first.noted == ["cancelled"]


async def test_a_chat_does_not_answer_the_task_of_another() -> None:
    tasks: WaitingTasks[str] = WaitingTasks()
    await read(tasks, turn_of(user("Dig.")), Log("c1"), "ada")
    with pytest.raises(PublicError):
        await read(tasks, approved("c1"), Log(), "bob")


async def test_a_task_is_cancelled_when_nobody_has_answered_in_time() -> None:
    log = Log("c1")
    tasks: WaitingTasks[str] = WaitingTasks(seconds=0.01)
    await read(tasks, turn_of(user("Dig.")), log)
    async with asyncio.timeout(30):
        while log.noted != ["cancelled"]:  # noqa: ASYNC110 (a timer cancels it)
            await asyncio.sleep(0.01)
    with pytest.raises(PublicError):
        await read(tasks, approved("c1"), log)


async def test_the_oldest_task_is_cancelled_when_too_many_wait() -> None:
    tasks: WaitingTasks[str] = WaitingTasks(maximum=1)
    first, second = Log("c1"), Log("c1")
    await read(tasks, turn_of(user("Dig.")), first, "one")
    await read(tasks, turn_of(user("Dig.")), second, "two")
    async with asyncio.timeout(30):
        while first.noted != ["cancelled"]:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert await read(tasks, approved("c1"), second, "two") == ["done"]


async def test_a_reader_that_leaves_cancels_the_task() -> None:
    tasks: WaitingTasks[str] = WaitingTasks()
    closed = []

    async def start(_task: WaitingTask[str]) -> AsyncGenerator[str]:
        try:
            yield "begun"
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    events = tasks.events(turn_of(user("Dig.")), "h", start)
    assert await anext(events) == "begun"
    await events.aclose()
    assert closed == [True]


async def test_what_the_task_raises_is_raised_in_the_turn_that_reads_it() -> None:
    tasks: WaitingTasks[str] = WaitingTasks()

    async def start(task: WaitingTask[str]) -> AsyncGenerator[str]:
        if await task.ask("c1", "ask") is not None:
            raise ConnectionError("gone")
        yield "never"

    assert [event async for event in tasks.events(turn_of(user("Dig.")), "h", start)] == ["ask"]
    with pytest.raises(ConnectionError, match="gone"):
        [event async for event in tasks.events(approved("c1"), "h", start)]


async def test_questions_are_the_last_events_unless_the_reader_takes_its_time() -> None:
    tasks: WaitingTasks[str] = WaitingTasks()
    is_read = asyncio.Event()

    async def start(task: WaitingTask[str]) -> AsyncGenerator[str]:
        asking = asyncio.create_task(task.ask("c1", "ask"))
        await asyncio.sleep(0)
        yield "beside it"
        await is_read.wait()
        yield "while it is read"
        await asking
        yield "done"

    told = []
    async for event in tasks.events(turn_of(user("Dig.")), "h", start):
        told.append(event)
        if event == "ask":
            is_read.set()
            await asyncio.sleep(0.01)
    assert told == ["beside it", "ask", "while it is read"]
    assert [event async for event in tasks.events(approved("c1"), "h", start)] == ["done"]


class Parts:
    """Passes parts on."""

    def feed(self, event: Part) -> list[Part]:
        return [event]

    def close(self, error: BaseException | None = None) -> list[Part]:  # noqa: ARG002
        return []


def test_a_page_approves_while_the_task_waits_and_later_emits_reach_the_second_turn() -> None:
    tasks: WaitingTasks[Part] = WaitingTasks()

    async def start(task: WaitingTask[Part]) -> AsyncGenerator[Part]:
        yield ToolCall("c1", "dig", {"depth": 3})
        answer = await task.ask("c1", ApprovalRequest("a1", "c1"))
        assert isinstance(answer, ApprovalAnswer)
        emit("progress", {"percent": 50})
        yield ToolResult("c1", "dug" if answer.approved else None)
        yield Text("Done.")
        yield Finish("stop")

    def events(turn: Turn) -> AsyncGenerator[Part]:
        return tasks.events(turn, turn.chat_id, start)

    with AgentClient(AdapterSource(events, Parts), approve=True, headers={"x-ai-sdk": "7"}) as client:
        answer = client.ask("Dig.")
    assert (answer.tools[0].output, answer.text) == ("dug", "Done.")
    assert answer.message.data == {"progress": [{"percent": 50}]}


def test_what_the_adapter_says_at_the_end_belongs_to_the_turn_that_ends() -> None:
    tasks: WaitingTasks[Part] = WaitingTasks()

    class Closing(Parts):
        def close(self, error: BaseException | None = None) -> list[Part]:  # noqa: ARG002
            return [Data("closed", {"by": "the adapter"})]

    async def start(task: WaitingTask[Part]) -> AsyncGenerator[Part]:
        yield ToolCall("c1", "dig", {"depth": 3})
        await task.ask("c1", ApprovalRequest("a1", "c1"))

    source = AdapterSource(lambda turn: tasks.events(turn, turn.chat_id, start), Closing)
    with AgentClient(source, headers={"x-ai-sdk": "7"}) as client:
        assert client.ask("Dig.").message.data == {"closed": [{"by": "the adapter"}]}
