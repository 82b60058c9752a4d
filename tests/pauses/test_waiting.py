"""Tasks that wait for a person over the end of a turn, without any framework."""

import asyncio
import weakref
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest

from tests.adapters.turns import assistant, tool, user
from tests.pauses.workers import PATIENCE, Worker
from usechat import emit
from usechat.errors import PublicError
from usechat.parts import ApprovalRequest, Data, Finish, Part, Step, Text, ToolCall, ToolResult
from usechat.pauses.tasks import WaitingTasks
from usechat.protocol.request import ApprovalAnswer, ToolOutput
from usechat.sources import AdapterSource
from usechat.testing import AgentClient
from usechat.turn import Answer, PageQuestion, Turn, current_context


async def ask(call_id: str, **options: Any) -> Answer:
    """Ask about a call as the source of a framework does."""
    context = current_context()

    def show() -> None:
        context.send(ApprovalRequest(f"a-{call_id}", call_id))

    return await context.ask(PageQuestion(call_id, show, **options))


class Digger:
    """An agent that asks before it goes on, and notes what happened to it."""

    def __init__(self, *calls: str, **options: Any) -> None:
        self._calls = calls
        self._options = options
        self.noted: list[Any] = []

    async def __call__(self, _turn: Turn) -> AsyncIterator[str]:
        try:
            yield "begun"
            self.noted += await asyncio.gather(*(ask(call, **self._options) for call in self._calls))
            yield "done"
        except asyncio.CancelledError:
            self.noted.append("cancelled")
            raise


BEGUN = [Text("begun"), ApprovalRequest("a-c1", "c1")]


def approved(*calls: str) -> list[Any]:
    parts = [tool("dig", call, "approval-responded", approval={"id": f"a-{call}", "approved": True}) for call in calls]
    return [user("Dig."), assistant(*parts)]


async def until(noted: list[Any], expected: list[Any]) -> None:
    async with asyncio.timeout(PATIENCE):
        while noted != expected:  # noqa: ASYNC110 (a timer changes it)
            await asyncio.sleep(0.01)


async def test_a_turn_ends_where_the_agent_asks_and_the_next_one_goes_on() -> None:
    digger = Digger("c1")
    worker = Worker(digger)
    assert await worker.turn(user("Dig.")) == BEGUN
    assert digger.noted == []
    assert await worker.turn(*approved("c1")) == [Text("done")]
    [answer] = digger.noted
    assert isinstance(answer, ApprovalAnswer)
    assert (answer.tool_call_id, answer.approved) == ("c1", True)


async def test_questions_that_are_asked_together_are_answered_together_each_by_its_call() -> None:
    digger = Digger("c1", "c2")
    worker = Worker(digger)
    assert await worker.turn(user("Dig.")) == [*BEGUN, ApprovalRequest("a-c2", "c2")]
    assert await worker.turn(*approved("c2")) == [Text("done")]
    assert [answer and answer.tool_call_id for answer in digger.noted] == [None, "c2"]


async def test_the_output_of_a_client_tool_is_an_answer() -> None:
    digger = Digger("c1")
    worker = Worker(digger)
    await worker.turn(user("Where?"))
    located = assistant(tool("location", "c1", "output-available", output="Paris"))
    assert await worker.turn(user("Where?"), located) == [Text("done")]
    [answer] = digger.noted
    assert isinstance(answer, ToolOutput)
    assert answer.output == "Paris"


async def test_a_question_apart_is_shown_behind_those_of_the_agents_calls_in_a_step_of_its_own() -> None:
    async def agent(_turn: Turn) -> str:
        await asyncio.gather(ask("c1", is_apart=True), ask("c2", is_apart=True), ask("c3"))
        return "done"

    parts = await Worker(agent).turn(user("Dig."))
    assert parts == [
        ApprovalRequest("a-c3", "c3"),
        Step(leaves_calls=True),
        ApprovalRequest("a-c1", "c1"),
        ApprovalRequest("a-c2", "c2"),
    ]


async def test_an_answer_that_no_task_waits_for_reaches_the_agent() -> None:
    async def agent(turn: Turn) -> str:
        return f"{[answer.tool_call_id for answer in turn.approvals]}"

    worker = Worker(agent)
    assert await worker.turn(*approved("c1")) == [Text("['c1']")]


async def test_an_answer_counts_once() -> None:
    digger = Digger("c1")
    worker = Worker(digger)
    await worker.turn(user("Dig."))
    await worker.turn(*approved("c1"))
    assert await worker.turn(*approved("c1")) == BEGUN  # a turn like any other
    assert len(digger.noted) == 1


async def test_another_message_cancels_the_task_that_waits_before_it_is_answered() -> None:
    noted: list[str] = []

    async def agent(turn: Turn) -> str:
        if turn.text == "Never mind.":
            return f"{noted}"
        try:
            await ask("c1")
        finally:
            await asyncio.sleep(0.01)
            noted.append("cleaned up")
        return "never"

    worker = Worker(agent)
    await worker.turn(user("Dig."))
    assert await worker.turn(user("Dig."), assistant(), user("Never mind.", "u2")) == [Text("['cleaned up']")]


async def test_a_chat_does_not_answer_the_task_of_another() -> None:
    digger = Digger("c1")
    worker = Worker(digger)
    await worker.turn(user("Dig."))
    await worker.turn(*approved("c1"), identity="bob")
    await worker.turn(*approved("c1"), chat_id="c2")
    assert digger.noted == []


async def test_a_task_is_cancelled_when_nobody_has_answered_in_time() -> None:
    digger = Digger("c1", wait_seconds=0.01)
    await Worker(digger).turn(user("Dig."))
    await until(digger.noted, ["cancelled"])


async def test_the_oldest_task_is_cancelled_when_too_many_wait() -> None:
    tasks = WaitingTasks(maximum=1)
    first, second = Digger("c1"), Digger("c1")
    await Worker(first, tasks=tasks).turn(user("Dig."), chat_id="one")
    worker = Worker(second, tasks=tasks)
    await worker.turn(user("Dig."), chat_id="two")
    await until(first.noted, ["cancelled"])
    assert await worker.turn(*approved("c1"), chat_id="two") == [Text("done")]


async def test_closing_cancels_the_tasks_that_wait_and_lets_them_end() -> None:
    digger = Digger("c1")
    worker = Worker(digger)
    await worker.turn(user("Dig."))
    await worker.tasks.close(PATIENCE)
    assert digger.noted == ["cancelled"]


async def test_a_task_that_says_too_much_between_two_turns_is_cancelled() -> None:
    noted: list[str] = []

    async def chatter() -> None:
        await asyncio.sleep(0.05)
        for number in range(10_001):
            emit("progress", number)

    async def agent(_turn: Turn) -> None:
        chattering = asyncio.create_task(chatter())
        try:
            await ask("c1")
            await chattering
        except asyncio.CancelledError:
            noted.append("cancelled")
            raise

    await Worker(agent).turn(user("Dig."))
    await until(noted, ["cancelled"])


async def test_what_the_agent_raises_ends_the_turn_that_brought_the_answer() -> None:
    async def agent(_turn: Turn) -> None:
        if await ask("c1") is not None:
            raise ConnectionError("gone")

    worker = Worker(agent)
    await worker.turn(user("Dig."))
    with pytest.raises(ConnectionError, match="gone"):
        await worker.turn(*approved("c1"))


async def test_an_agent_that_ends_while_other_code_asks_ends_the_turn_that_answers() -> None:
    tasks: list[asyncio.Task[Answer]] = []

    async def agent(_turn: Turn) -> None:
        tasks.append(asyncio.create_task(ask("c1")))
        await asyncio.sleep(0.05)
        raise PublicError("Never mind.")

    worker = Worker(agent)
    assert await worker.turn(user("Dig.")) == [ApprovalRequest("a-c1", "c1")]
    await asyncio.sleep(0.1)
    with pytest.raises(PublicError, match="Never mind"):
        await worker.turn(*approved("c1"))
    assert isinstance(await tasks[0], ApprovalAnswer)


async def test_a_task_that_waits_keeps_nothing_of_the_turn_that_it_has_left() -> None:
    worker = Worker(Digger("c1"))
    turn = worker.begin(user("Dig."))
    await turn.ending
    owner = weakref.ref(turn)
    del turn
    assert owner() is None
    assert await worker.turn(*approved("c1")) == [Text("done")]


class Parts:
    """Passes parts on."""

    def feed(self, event: Part) -> list[Part]:
        return [event]

    def close(self, error: BaseException | None = None) -> list[Part]:  # noqa: ARG002
        return []


def test_a_page_approves_while_the_task_waits_and_later_emits_reach_the_second_turn() -> None:
    async def events(_turn: Turn) -> AsyncGenerator[Part]:
        yield ToolCall("c1", "dig", {"depth": 3})
        answer = await ask("c1")
        assert isinstance(answer, ApprovalAnswer)
        emit("progress", {"percent": 50})
        yield ToolResult("c1", "dug" if answer.approved else None)
        yield Text("Done.")
        yield Finish("stop")

    with AgentClient(AdapterSource(events, Parts), approve=True, headers={"x-ai-sdk": "7"}) as client:
        answer = client.ask("Dig.")
    assert (answer.tools[0].output, answer.text) == ("dug", "Done.")
    assert answer.message.data == {"progress": [{"percent": 50}]}


def test_an_adapter_is_closed_when_its_events_have_ended_not_when_a_turn_ends() -> None:
    class Closing(Parts):
        def close(self, error: BaseException | None = None) -> list[Part]:  # noqa: ARG002
            return [Data("closed", {"by": "the adapter"})]

    async def events(_turn: Turn) -> AsyncGenerator[Part]:
        yield ToolCall("c1", "dig", {"depth": 3})
        await ask("c1")
        yield ToolResult("c1", "dug")

    source = AdapterSource(events, Closing)
    with AgentClient(source, headers={"x-ai-sdk": "7"}) as client:
        assert client.ask("Dig.").message.data == {}
    with AgentClient(source, approve=True, headers={"x-ai-sdk": "7"}) as client:
        assert client.ask("Dig.").message.data == {"closed": [{"by": "the adapter"}]}
