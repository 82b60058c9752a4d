"""Questions that are asked while an agent runs: the turn ends, the agent's task waits, the next turn continues it."""

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.adapters.turns import assistant, request, text, tool, user
from tests.pauses.workers import SharedStates, Worker
from usechat.adapters import conversation
from usechat.errors import LocalProtocolError, PublicError
from usechat.parts import Data, Part, Step, Text, ToolCall, ToolResult
from usechat.pauses.questions import PAUSE_IS_GONE, ask_page
from usechat.protocol.request import ToolOutput
from usechat.testing import AgentClient
from usechat.turn import Turn, TurnContext, TurnInput, emit


def asked_in(parts: list[Part]) -> list[ToolCall]:
    return [part for part in parts if isinstance(part, ToolCall) and part.tool_name == "interrupt"]


def answered(*pairs: tuple[ToolCall, Any]) -> list[Any]:
    parts = [
        {"type": "dynamic-tool", "toolName": "interrupt", "toolCallId": call.tool_call_id, "input": call.input,
         "state": "output-available", "output": output}
        for call, output in pairs
    ]  # fmt: skip
    return [user("Dig."), assistant({"type": "step-start"}, *parts)]


def output_of(answer: ToolOutput | None) -> Any:
    return None if answer is None else answer.output


async def digger(_turn: Turn) -> AsyncIterator[Part | str]:
    yield ToolCall("c1", "dig", {})
    answer = await ask_page({"message": "How deep?"})
    yield ToolResult("c1", output_of(answer))
    yield "Done."


async def test_a_question_is_a_call_of_its_own_step_and_its_output_continues_the_agent() -> None:
    worker = Worker(digger)
    parts = await worker.turn(user("Dig."))
    [question] = asked_in(parts)
    data = {"id": question.tool_call_id, "toolCallId": question.tool_call_id, "value": {"message": "How deep?"}}
    assert parts == [
        ToolCall("c1", "dig", {}),
        Step(leaves_calls=True),
        Data("interrupt", data, question.tool_call_id),
        ToolCall(question.tool_call_id, "interrupt", {"message": "How deep?"}, dynamic=True),
    ]
    assert await worker.turn(*answered((question, 3))) == [ToolResult("c1", 3), Text("Done.")]


async def test_parallel_questions_are_shown_together_and_answered_each_by_its_call() -> None:
    async def agent(_turn: Turn) -> str:
        answers = await asyncio.gather(ask_page("one"), ask_page("two"))
        return str([output_of(answer) for answer in answers])

    worker = Worker(agent)
    parts = await worker.turn(user("Dig."))
    assert sum(isinstance(part, Step) for part in parts) == 1
    one, two = asked_in(parts)
    assert await worker.turn(*answered((two, 2), (one, 1))) == [Text("[1, 2]")]


async def test_what_is_said_between_two_turns_is_shown_by_the_second() -> None:
    turn_is_over, is_told = asyncio.Event(), asyncio.Event()

    async def tell() -> None:
        await turn_is_over.wait()
        emit("progress", 50)
        is_told.set()

    async def agent(_turn: Turn) -> str:
        telling = asyncio.create_task(tell())
        answer = await ask_page("one")
        await telling
        return str(output_of(answer))

    worker = Worker(agent)
    [one] = asked_in(await worker.turn(user("Dig.")))
    turn_is_over.set()
    await is_told.wait()
    assert await worker.turn(*answered((one, 1))) == [Data("progress", 50), Text("1")]


BESIDE: list[list[Part]] = [
    [ToolCall("c2", "search", {})],
    [Step(), Text("Meanwhile.")],
    [Text("Meanwhile. "), Data("progress", 50)],
    [ToolCall("c2", "search", {}), ToolResult("c2", 3), Step(), ToolCall("c3", "search", {})],
]


@pytest.mark.parametrize("other_parts", BESIDE, ids=["a call", "a step", "text", "calls"])
async def test_what_a_parallel_branch_says_after_a_question_comes_before_it(other_parts: list[Part]) -> None:
    """A page posts an answer once every call of the last step has an output: nothing else may be in that step."""

    async def agent(_turn: Turn) -> AsyncIterator[Part]:
        asking = asyncio.create_task(ask_page("one"))
        await asyncio.sleep(0.01)
        for part in other_parts:
            yield part
        yield Text(str(output_of(await asking)))

    worker = Worker(agent)
    parts = await worker.turn(user("Dig."))
    [one] = asked_in(parts)
    assert parts[: len(other_parts)] == other_parts
    assert parts[len(other_parts) :] == [Step(leaves_calls=True), *parts[-2:]]
    assert parts[-1] == one
    assert await worker.turn(*answered((one, 1))) == [Text("1")]


async def test_a_question_that_comes_between_two_turns_ends_the_second_and_is_answered_in_the_third() -> None:
    turn_is_over, is_told = asyncio.Event(), asyncio.Event()

    async def later() -> Any:
        await turn_is_over.wait()
        asking = asyncio.create_task(ask_page("two"))
        await asyncio.sleep(0.01)
        emit("progress", 50)
        is_told.set()
        return output_of(await asking)

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        second = asyncio.create_task(later())
        yield f"{output_of(await ask_page('one'))}, "
        yield f"{await second}"

    worker = Worker(agent)
    [one] = asked_in(await worker.turn(user("Dig.")))
    turn_is_over.set()
    await is_told.wait()
    parts = await worker.turn(*answered((one, 1)))
    [two] = asked_in(parts)
    assert parts == [Data("progress", 50), Text("1, "), Step(leaves_calls=True), *parts[-2:]]
    assert parts[-1] == two
    assert await worker.turn(*answered((one, 1), (two, 2))) == [Text("2")]


async def test_a_question_that_is_withdrawn_at_once_is_not_shown() -> None:
    async def agent(_turn: Turn) -> str:
        try:
            async with asyncio.timeout(0.01):
                await ask_page("one")
        except TimeoutError:
            return str(output_of(await ask_page("two")))
        return "never"

    worker = Worker(agent)
    [two] = asked_in(await worker.turn(user("Dig.")))
    assert two.input == "two"
    assert await worker.turn(*answered((two, 2))) == [Text("2")]


async def test_a_new_message_cancels_the_agent_that_waits_and_its_question() -> None:
    noted: list[Any] = []

    async def elsewhere() -> None:
        noted.append(await ask_page("How deep?"))

    async def agent(turn: Turn) -> str:
        if turn.text == "Never mind.":
            return "Fine."
        tasks.append(asyncio.create_task(elsewhere()))  # as in the session of an MCP client
        try:
            await asyncio.Event().wait()
        finally:
            noted.append("cancelled")
        return "never"

    tasks: list[asyncio.Task[None]] = []
    worker = Worker(agent)
    await worker.turn(user("Dig."))
    assert await worker.turn(user("Dig."), assistant(), user("Never mind.", "u2")) == [Text("Fine.")]
    await asyncio.wait(tasks)
    assert sorted(noted, key=str) == [None, "cancelled"]


async def test_a_turn_that_is_stopped_while_it_asks_cancels_the_agent() -> None:
    noted: list[str] = []

    async def agent(_turn: Turn) -> None:
        try:
            await ask_page("How deep?")
        except asyncio.CancelledError:
            noted.append("cancelled")
            raise

    worker = Worker(agent)
    turn = worker.begin(user("Dig."))
    await asyncio.sleep(0.05)  # the turn waits for further questions
    turn.task.cancel()
    await asyncio.wait([turn.ending])
    assert noted == ["cancelled"]
    assert turn.parts == []
    with pytest.raises(PublicError, match=PAUSE_IS_GONE):
        await worker.turn(*answered((ToolCall(f"{conversation.ASKED}c1", "interrupt", "How deep?"), 3)))


async def test_an_answer_is_refused_if_the_process_that_asked_is_gone_or_it_comes_from_somebody_else() -> None:
    worker = Worker(digger)
    [question] = asked_in(await worker.turn(user("Dig.")))
    with pytest.raises(PublicError, match=PAUSE_IS_GONE):
        await Worker(digger).turn(*answered((question, 3)))
    with pytest.raises(PublicError, match=PAUSE_IS_GONE):
        await worker.turn(*answered((question, 3)), identity="bob")
    assert await worker.turn(*answered((question, 3))) == [ToolResult("c1", 3), Text("Done.")]


async def test_an_answer_reaches_the_worker_that_asked_from_another_one() -> None:
    states = SharedStates()
    here, there = Worker(digger, states), Worker(digger, SharedStates(states))
    [question] = asked_in(await here.turn(user("Dig.")))
    assert await there.turn(*answered((question, 3))) == [ToolResult("c1", 3), Text("Done.")]


async def test_outputs_of_other_tools_and_approvals_begin_a_turn_of_their_own() -> None:
    async def agent(turn: Turn) -> str:
        return f"{[output.output for output in turn.tool_outputs]}"

    states = SharedStates()
    located = [user("Where?"), assistant(tool("location", "c1", "output-available", output="Paris"))]
    assert await Worker(agent, states).turn(*located) == [Text("['Paris']")]


def test_an_agent_in_a_thread_asks_with_a_loop_of_its_own() -> None:
    def agent(_turn: Turn) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return f"It is {output_of(asyncio.run(ask_page('How deep?')))}."

    with AgentClient(agent, tools={"interrupt": "deep"}) as client:
        assert client.ask("Dig.").text == "It is deep."


def test_what_an_agent_raises_after_an_answer_fails_the_turn_that_brought_it() -> None:
    async def agent(_turn: Turn) -> str:
        await ask_page("How deep?")
        raise PublicError("Too deep.")

    with AgentClient(agent, tools={"interrupt": 3}) as client:
        assert str(client.ask("Dig.").error) == "Too deep."


def test_an_agent_that_leaves_the_process_or_cancels_itself_ends_its_turn_with_an_error() -> None:
    async def agent(turn: Turn) -> str:
        if turn.text == "exit":
            raise SystemExit(3)
        raise asyncio.CancelledError

    for message in ("exit", "cancel"):
        with AgentClient(agent) as client:
            assert "reference" in str(client.ask(message).error).lower()


async def test_asking_is_refused_in_a_turn_without_a_run_and_outside_of_a_turn() -> None:
    with pytest.raises(LocalProtocolError, match="no turn is running here"):
        await ask_page("How deep?")
    TurnContext(TurnInput(request(user("Hi.")))).enter()
    with pytest.raises(LocalProtocolError, match="no run drives this turn"):
        await ask_page("How deep?")


async def test_asking_is_refused_when_the_turn_is_over() -> None:
    is_over, tasks = asyncio.Event(), []

    async def later() -> None:
        await is_over.wait()
        await ask_page("How deep?")

    async def agent(_turn: Turn) -> str:
        tasks.append(asyncio.create_task(later()))
        return "Bye."

    assert await Worker(agent).turn(user("Dig.")) == [Text("Bye.")]
    is_over.set()
    with pytest.raises(LocalProtocolError, match="the turn is over"):
        await tasks[0]


async def test_questions_are_no_calls_of_a_model_in_the_history() -> None:
    worker = Worker(digger)
    [question] = asked_in(await worker.turn(user("Dig.")))
    dug = tool("dig", "c1", "output-available", output=3)
    _, message = answered((question, 3))
    message["parts"] = [dug, *message["parts"], text("Done.")]
    turn = TurnContext(TurnInput(request(user("Dig."), message, user("Thanks.", "u2")))).turn
    history: list[Any] = conversation.history(turn)
    calls = [part["toolName"] for entry in history for part in entry["content"] if part["type"] == "tool-call"]
    assert calls == ["dig"]
