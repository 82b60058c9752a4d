"""A paused run of the OpenAI Agents SDK: its state stays on the server, any worker can go on with it, and once only."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.adapters.agents import INSTRUCTIONS, Deeds
from tests.adapters.openai_agents_agent import make
from tests.adapters.turns import assistant, request, tool, user
from usechat.adapters import conversation
from usechat.adapters.openai_agents import OpenAIAgentsSource
from usechat.errors import PublicError
from usechat.parts import ApprovalRequest, Part, Text, ToolResult
from usechat.paused_states import MemoryStates
from usechat.testing import ModelAnswer, ModelCall, ScriptedModel
from usechat.turn import Identity, TurnContext

DELETE = ModelAnswer(calls=[ModelCall("delete", {"path": "a"}, id="call_a")])
QUESTION = user("Delete a.")
APPROVED = assistant(
    tool("delete", "call_a", "approval-responded", approval={"id": "approval-call_a", "approved": True})
    | {"input": {"path": "a"}}
)


class Worker:
    """A process that answers with the agent; workers share the states."""

    def __init__(self, model: ScriptedModel, states: MemoryStates) -> None:
        self.deeds = Deeds()
        self._source = OpenAIAgentsSource(make(model, "responses", self.deeds))
        self._states = states

    async def answer(self, *messages: Any, identity: str = "ada") -> list[Part]:
        said: list[Part] = []
        context = TurnContext(request(*messages), identity=Identity(identity))
        context.states = self._states
        context.connect(said.append)
        context.enter()
        await self._source.drive(context)
        return said


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel([DELETE, "It is gone.", "Hello."]) as model:
        yield model
        assert model.refusals == []


async def test_another_worker_goes_on_with_a_paused_run(model: ScriptedModel) -> None:
    states = MemoryStates()
    here, there = Worker(model, states), Worker(model, states)
    asked = await here.answer(QUESTION)
    assert ApprovalRequest("approval-call_a", "call_a") in asked
    said = await there.answer(QUESTION, APPROVED)
    assert ToolResult("call_a", "a is gone") in said
    assert [part.text for part in said if isinstance(part, Text)] == ["It is gone."]
    assert (here.deeds.done, there.deeds.done) == ([], ["delete a"])


async def test_the_state_is_used_once(model: ScriptedModel) -> None:
    worker = Worker(model, MemoryStates())
    await worker.answer(QUESTION)
    await worker.answer(QUESTION, APPROVED)
    with pytest.raises(PublicError, match=conversation.PAUSE_IS_GONE):
        await worker.answer(QUESTION, APPROVED)
    assert worker.deeds.done == ["delete a"]


async def test_another_caller_cannot_go_on_with_it(model: ScriptedModel) -> None:
    worker = Worker(model, MemoryStates())
    await worker.answer(QUESTION)
    with pytest.raises(PublicError, match=conversation.PAUSE_IS_GONE):
        await worker.answer(QUESTION, APPROVED, identity="bob")
    assert worker.deeds.done == []


async def test_another_message_ends_the_pause(model: ScriptedModel) -> None:
    worker = Worker(model, MemoryStates())
    await worker.answer(QUESTION)
    await worker.answer(QUESTION, assistant(tool("delete", "call_a", "input-available")), user("Never mind.", "u2"))
    with pytest.raises(PublicError, match=conversation.PAUSE_IS_GONE):
        await worker.answer(QUESTION, APPROVED)


async def test_nothing_of_the_state_goes_to_the_page(model: ScriptedModel) -> None:
    kept: list[tuple[str, bytes]] = []

    class Noted(MemoryStates):
        async def keep_state(self, handle: str, state: bytes) -> None:
            kept.append((handle, state))
            await super().keep_state(handle, state)

    said = str(await Worker(model, Noted()).answer(QUESTION))
    [(handle, state)] = kept
    assert b"current_agent" in state
    assert not any(text in said for text in (handle, INSTRUCTIONS, "current_agent"))
    assert not any(text in handle for text in ("ada", "c1"))
