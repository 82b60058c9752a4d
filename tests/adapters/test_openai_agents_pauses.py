"""A paused run of the OpenAI Agents SDK: its state stays on the server, any worker can go on with it, and once only."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.adapters.agents import INSTRUCTIONS, Deeds
from tests.adapters.openai_agents_agent import make
from tests.adapters.turns import assistant, request, tool, user
from usechat.adapters import conversation
from usechat.adapters.openai_agents import OpenAIAgentsSource
from usechat.chats import SqlChats
from usechat.errors import PublicError
from usechat.parts import ApprovalRequest, Part, Text, ToolResult
from usechat.pauses.states import MemoryStates
from usechat.server import ChatApp
from usechat.testing import ModelAnswer, ModelCall, ScriptedModel
from usechat.turn import Identity, TurnContext, TurnInput

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
        parts: list[Part] = []
        context = TurnContext(TurnInput(request(*messages), identity=Identity(identity)))
        context.states = self._states
        context.connect(parts.append)
        context.enter()
        await self._source.drive(context)
        return parts


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel([DELETE, "It is gone.", "Hello."]) as model:
        yield model
        assert model.refusals == []


async def test_another_worker_goes_on_with_a_paused_run(model: ScriptedModel) -> None:
    states = MemoryStates()
    here, there = Worker(model, states), Worker(model, states)
    first_parts = await here.answer(QUESTION)
    assert ApprovalRequest("approval-call_a", "call_a") in first_parts
    parts = await there.answer(QUESTION, APPROVED)
    assert ToolResult("call_a", "a is gone") in parts
    assert [part.text for part in parts if isinstance(part, Text)] == ["It is gone."]
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
    states: list[tuple[str, bytes]] = []

    class Noted(MemoryStates):
        async def keep_state(self, handle: str, state: bytes) -> None:
            states.append((handle, state))
            await super().keep_state(handle, state)

    output = str(await Worker(model, Noted()).answer(QUESTION))
    [(handle, state)] = states
    assert b"current_agent" in state
    assert not any(text in output for text in (handle, INSTRUCTIONS, "current_agent"))
    assert not any(text in handle for text in ("ada", "c1"))


async def answer_from(chats: Path, model: ScriptedModel, *messages: Any) -> tuple[Any, list[str]]:
    """Start a server, let it answer a chat, and stop it; return the stored message and what the tools did."""
    deeds, store = Deeds(), SqlChats(str(chats))
    app = ChatApp(make(model, "responses", deeds), chats=store)
    body = {"id": "c1", "messages": messages}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://a") as client:
        assert (await client.post("/api/chat", json=body, timeout=30)).status_code == 200
        stored = (await store.load("c1", owner=None)).messages[-1]
    await app.shut_down()
    return stored, deeds.done


async def test_in_a_stored_chat_a_paused_run_survives_a_restart(model: ScriptedModel, tmp_path: Path) -> None:
    message, done = await answer_from(tmp_path / "chats.db", model, QUESTION)
    assert (message["parts"][-1]["state"], done) == ("approval-requested", [])
    copy = {**message, "parts": [*message["parts"][:-1], answered(message["parts"][-1])]}
    continued, done = await answer_from(tmp_path / "chats.db", model, QUESTION, copy)
    assert ([part["output"] for part in continued["parts"] if "output" in part], done) == (["a is gone"], ["delete a"])
    assert continued["parts"][-1]["text"] == "It is gone."


def answered(part: Any) -> Any:
    return {**part, "state": "approval-responded", "approval": {**part["approval"], "approved": True}}
