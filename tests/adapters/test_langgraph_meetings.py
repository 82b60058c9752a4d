"""What approvals, questions, parallel tools and stops of one step do to each other, in a graph with a checkpointer."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt

from tests.adapters.agents import Deeds
from tests.adapters.langgraph_agent import chat_model, with_memory
from usechat.chats import MemoryChats
from usechat.client import (
    Chat,
    HttpChatTransport,
    is_complete_with_approval_responses,
    is_complete_with_tool_calls,
)
from usechat.client.in_process import InProcessTransport
from usechat.protocol.ui_messages import UIMessage
from usechat.server import ChatApp
from usechat.testing import ModelAnswer, ModelCall, ScriptedModel

DELETE = ModelCall("delete", {"path": "a"}, id="call_a")
WEATHER = ModelCall("weather", {"city": "Paris"}, id="call_w")
LOCATION = ModelCall("location", {"exact": True}, id="call_l")
SLOW = ModelCall("slow", {"task": "dig"}, id="call_s")
PARIS = {"city": "Paris", "celsius": 21}

Talking = Callable[..., AbstractAsyncContextManager[tuple[Chat, Deeds]]]


def is_complete(messages: Sequence[UIMessage]) -> bool:
    return is_complete_with_tool_calls(messages) or is_complete_with_approval_responses(messages)


@pytest.fixture(params=["stored", "not stored"])
def talking(request: pytest.FixtureRequest) -> Talking:
    """Returns a page whose agent is told by its model to call some tools at once, and then to finish."""

    @asynccontextmanager
    async def talking(*calls: ModelCall, agent: Any = with_memory) -> AsyncIterator[tuple[Chat, Deeds]]:
        deeds, chats = Deeds(), MemoryChats() if request.param == "stored" else None
        with ScriptedModel([ModelAnswer(calls=calls), "Done.", "Hello."]) as model:
            app = ChatApp(agent(model, "responses", deeds), metrics=False, drain=0, chats=chats)
            transport = HttpChatTransport("http://a/api/chat", http=InProcessTransport(app), retries=0)
            async with transport, Chat(transport, id="c1", send_automatically_when=is_complete) as chat:
                yield chat, deeds
            assert model.refusals == []

    return talking


def tools(chat: Chat) -> dict[str, Any]:
    """Return the states and outcomes of the calls of the last message, by their ids."""
    assert chat.last is not None
    return {tool.call_id: (tool.name, tool.state, tool.output or tool.error_text) for tool in chat.last.tools}


def open_call(chat: Chat) -> str:
    [call_id] = [call_id for call_id, (_, state, _) in tools(chat).items() if state == "input-available"]
    return call_id


async def approve(chat: Chat) -> None:
    assert chat.last is not None
    [approval_id] = [tool.part["approval"]["id"] for tool in chat.last.tools if tool.state == "approval-requested"]
    await chat.add_approval_response(approval_id, True)


def text_of(chat: Chat) -> str:
    assert chat.last is not None
    return chat.last.text


async def test_a_tool_beside_an_approval_has_not_run_yet_and_runs_with_it(talking: Talking) -> None:
    async with talking(WEATHER, DELETE) as (chat, deeds):
        await chat.send("Go.")
        waits = "The tool has not run yet, because another call waits for an approval."
        assert tools(chat)["call_w"] == ("weather", "output-error", waits)
        assert deeds.done == []
        await approve(chat)
        assert tools(chat)["call_w"] == ("weather", "output-available", PARIS)
        assert tools(chat)["call_a"] == ("delete", "output-available", "a is gone")
        assert sorted(deeds.done) == ["delete a", "weather Paris"]
        assert text_of(chat) == "Done."


async def test_a_tool_of_the_page_beside_an_approval_asks_after_it(talking: Talking) -> None:
    async with talking(DELETE, LOCATION) as (chat, deeds):
        await chat.send("Go.")
        await approve(chat)
        call_id = open_call(chat)
        assert tools(chat)[call_id][0] == "location"
        await chat.add_tool_output(call_id, "Rome")
        assert tools(chat)["call_l"] == ("location", "output-available", "Rome")
        assert (deeds.done, text_of(chat)) == (["delete a"], "Done.")


def asking_twice(model: ScriptedModel, api: Any, deeds: Deeds) -> Any:
    def location(exact: bool) -> str:
        """Ask where, and then when."""
        deeds.done.append(f"{interrupt({'exact': exact})} {interrupt('When?')}")
        return deeds.done[-1]

    return create_agent(chat_model(model, api), [StructuredTool.from_function(location)], checkpointer=InMemorySaver())


async def test_a_tool_that_asks_twice_gets_both_answers(talking: Talking) -> None:
    async with talking(LOCATION, agent=asking_twice) as (chat, deeds):
        await chat.send("Go.")
        await chat.add_tool_output(open_call(chat), "Rome")
        call_id = open_call(chat)
        assert chat.last is not None
        assert chat.last.data["interrupt"][-1] == {"id": call_id, "toolCallId": call_id, "value": "When?"}
        await chat.add_tool_output(call_id, "now")
        assert tools(chat)["call_l"] == ("location", "output-available", "Rome now")
        assert (deeds.done, text_of(chat)) == (["Rome now"], "Done.")


async def test_another_message_keeps_the_result_of_a_tool_beside_one_that_waits(talking: Talking) -> None:
    async with talking(WEATHER, LOCATION) as (chat, deeds):
        await chat.send("Go.")
        assert open_call(chat) == "call_l"
        await chat.send("Never mind.")
        assert (deeds.done, text_of(chat)) == (["weather Paris"], "Done.")


async def test_the_next_message_keeps_the_result_of_a_tool_beside_one_that_was_stopped(talking: Talking) -> None:
    async with talking(WEATHER, SLOW) as (chat, deeds):
        async for _update in chat.send("Go."):
            if tools(chat).get("call_w", ("", "", None))[1] == "output-available" and "slow dig" in deeds.done:
                break
        await chat.stop()
        await chat.send("Never mind.")
        assert text_of(chat) == "Done."
