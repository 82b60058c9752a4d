"""A person who approves a call with another input than the one it was asked for."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver

from tests.adapters import langgraph_agent, pydantic_ai_agent
from tests.adapters.agents import Deeds
from usechat.client import Chat, HttpChatTransport
from usechat.client.in_process import InProcessTransport
from usechat.errors import StreamFailed
from usechat.server import ChatApp
from usechat.testing import ModelAnswer, ModelCall, ScriptedModel

DELETE = ModelCall("delete", {"path": "a"}, id="call_a")
AGAIN = ModelCall("delete", {"path": "b"}, id="call_b")


def graph(model: ScriptedModel, deeds: Deeds, **middleware: Any) -> Any:
    return create_agent(
        langgraph_agent.chat_model(model, "chat"),
        [StructuredTool.from_function(deeds.delete, description="Deletes a file.")],
        middleware=[HumanInTheLoopMiddleware(**{"interrupt_on": {"delete": True}, **middleware})],
        checkpointer=InMemorySaver(),
    )


@asynccontextmanager
async def page_of(agent: Any) -> AsyncIterator[Chat]:
    transport = HttpChatTransport("http://a/api/chat", http=InProcessTransport(ChatApp(agent)), retries=0)
    async with transport, Chat(transport) as chat:
        yield chat


async def approve_with(chat: Chat, value: Any) -> None:
    assert chat.last is not None
    approval_ids = [str(call.approval_id) for call in chat.last.tools if call.state == "approval-requested"]
    for approval_id in approval_ids:
        await chat.add_approval_response(approval_id, True)
    edits = {} if value is None else dict.fromkeys(approval_ids, value)
    await chat.send(body={"editedInputs": edits})


def shown(chat: Chat) -> tuple[list[tuple[str, Any]], str]:
    assert chat.last is not None
    return [(call.state, call.output) for call in chat.last.tools], chat.last.text


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize(("edit", "path"), [({"path": "b"}, "b"), (None, "a")])
async def test_an_approved_tool_runs_with_the_input_that_the_person_wrote(mode: str, edit: Any, path: str) -> None:
    deeds = Deeds()
    with ScriptedModel([ModelAnswer(calls=[DELETE]), "Done."]) as model:
        async with page_of(graph(model, deeds, interrupt_mode=mode, edit_notice="")) as chat:
            await chat.send("Go.")
            await approve_with(chat, edit)
            assert shown(chat) == ([("output-available", f"{path} is gone")], "Done.")
    assert deeds.done == [f"delete {path}"]


async def test_each_call_that_a_middleware_interrupts_by_itself_is_asked_about() -> None:
    deeds = Deeds()
    with ScriptedModel([ModelAnswer(calls=[DELETE, AGAIN]), "Done."]) as model:
        async with page_of(graph(model, deeds, interrupt_mode="per_call")) as chat:
            await chat.send("Go.")
            await approve_with(chat, None)
            assert shown(chat)[1] == "Done."
    assert sorted(deeds.done) == ["delete a", "delete b"]


@pytest.mark.parametrize(
    ("allowed", "edit", "sentence"),
    [
        (["approve", "reject"], {"path": "b"}, "The input of this call cannot be changed."),
        (["edit", "reject"], None, "This call cannot be approved as it is."),
    ],
)
async def test_a_decision_that_the_middleware_does_not_allow_is_refused(
    allowed: list[str], edit: Any, sentence: str
) -> None:
    deeds = Deeds()
    with ScriptedModel([ModelAnswer(calls=[DELETE])]) as model:
        async with page_of(graph(model, deeds, interrupt_on={"delete": {"allowed_decisions": allowed}})) as chat:
            await chat.send("Go.")
            with pytest.raises(StreamFailed, match=sentence):
                await approve_with(chat, edit)
    assert deeds.done == []


async def test_an_agent_that_cannot_change_a_call_is_told_to_make_it_again() -> None:
    deeds = Deeds()
    script: list[ModelAnswer | str] = [ModelAnswer(calls=[DELETE]), ModelAnswer(calls=[AGAIN]), "Done."]
    with ScriptedModel(script) as model:
        async with page_of(pydantic_ai_agent.make(model, "chat", deeds)) as chat:
            await chat.send("Go.")
            await approve_with(chat, {"path": "b"})
            assert 'edited: {"path":"b"}' in str(model.requests[-1]["messages"]).replace("\\", "")
            assert deeds.done == []
            await approve_with(chat, None)
            assert shown(chat)[1] == "Done."
    assert deeds.done == ["delete b"]
