"""Half an emoji (a lone surrogate) in what a tool returns, a person writes or a page answers: no encoder takes it."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from agents import Agent as OpenAIAgent
from agents import function_tool, set_tracing_disabled
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai import Agent

from tests.adapters import langgraph_agent, openai_agents_agent, pydantic_ai_agent
from usechat.client import Chat, HttpChatTransport, is_complete_with_approval_responses
from usechat.client.in_process import InProcessTransport
from usechat.server import ChatApp
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

HALF: Final = "\ud83d"

Make = Callable[[ScriptedModel, bool], Any]


def read() -> str:
    """Read the note."""
    return f"note {HALF}"


def graph(model: ScriptedModel, needs_approval: bool, memory: Any = None) -> Any:
    middleware = [HumanInTheLoopMiddleware({"read": True})] if needs_approval else []
    chat_model = langgraph_agent.chat_model(model, "chat")
    return create_agent(chat_model, [tool(read)], middleware=middleware, checkpointer=memory)


def remembering(model: ScriptedModel, needs_approval: bool) -> Any:
    return graph(model, needs_approval, InMemorySaver())


def pydantic_ai(model: ScriptedModel, needs_approval: bool) -> Any:
    agent = Agent(pydantic_ai_agent.chat_model(model, "chat"))
    agent.tool_plain(requires_approval=needs_approval)(read)
    return agent


def openai_agents(model: ScriptedModel, needs_approval: bool) -> Any:
    set_tracing_disabled(True)
    tools: list[Any] = [function_tool(read, needs_approval=needs_approval)]
    return OpenAIAgent(name="clerk", model=openai_agents_agent.chat_model(model, "chat"), tools=tools)


CALL: Final = ModelAnswer(calls=[ModelCall("read", {})])


@pytest.mark.parametrize("make", [graph, remembering, pydantic_ai, openai_agents])
def test_half_an_emoji_from_a_tool_spoils_no_later_turn(make: Make) -> None:
    with ScriptedModel([CALL, "Bye."]) as model, AgentClient(make(model, False)) as client:
        assert client.ask("Read the note.").error is not None  # the framework has sent it to the model
        assert client.ask("Bye").text == "Bye."
        [result] = [each["content"] for each in model.requests[-1]["messages"] if each["role"] == "tool"]
        assert result in ("note \ufffd", "note ?")  # the second is what a checkpointer makes of it


@pytest.mark.parametrize("make", [remembering, pydantic_ai, openai_agents])
async def test_half_an_emoji_in_a_denial_spoils_no_turn(make: Make) -> None:
    with ScriptedModel([CALL, "I see.", "Bye."]) as model:
        transport = HttpChatTransport(
            "http://a/api/chat", http=InProcessTransport(ChatApp(make(model, True))), retries=0
        )
        async with transport, Chat(transport, send_automatically_when=is_complete_with_approval_responses) as chat:
            await chat.send("Read the note.")
            [call] = chat.last.tools if chat.last is not None else []
            await chat.add_approval_response(str(call.approval_id), False, f"not now {HALF}")
            assert chat.last is not None
            assert chat.last.text == "I see."
            assert "not now \ufffd" in str(model.requests[-1]["messages"])
            await chat.send("Bye")
            assert chat.last.text == "Bye."
