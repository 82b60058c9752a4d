"""Tools of a real MCP server that bring a user interface, in the frameworks that tell of them."""

import sys
from pathlib import Path
from typing import Any

import pytest
from agents import Agent as OpenAIAgent
from agents import OpenAIChatCompletionsModel, set_tracing_disabled
from agents.mcp import MCPServerStdio
from fastmcp.client.transports import StdioTransport
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset

from tests.adapters import langgraph_agent, pydantic_ai_agent
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

SERVER = str(Path(__file__).with_name("app_server.py"))
CALL = ModelAnswer(calls=[ModelCall("forecast", {"city": "Oslo"})])
MAP = {"resourceUri": "ui://weather/map", "mimeType": "text/html;profile=mcp-app"}
APP_ONLY = {"refresh", "wait", "flood", "fail"}


def pydantic_ai(model: ScriptedModel) -> Any:
    toolset: Any = MCPToolset(StdioTransport(sys.executable, [SERVER]), id="weather", init_timeout=120)
    return Agent(pydantic_ai_agent.chat_model(model, "chat"), toolsets=[toolset])


def openai_agents(model: ScriptedModel) -> Any:
    set_tracing_disabled(True)
    server = MCPServerStdio(
        {"command": sys.executable, "args": [SERVER]}, name="weather", client_session_timeout_seconds=60
    )
    chat_model = OpenAIChatCompletionsModel("gpt-4o", AsyncOpenAI(base_url=model.openai_url, api_key="none"))
    return OpenAIAgent(name="clerk", model=chat_model, mcp_servers=[server])


@pytest.mark.parametrize("sdk", ["5", "7"])
@pytest.mark.parametrize("agent_of", [pydantic_ai, openai_agents])
def test_the_app_of_a_tool_is_told_and_tools_for_apps_are_kept_from_the_model(agent_of: Any, sdk: str) -> None:
    with ScriptedModel([CALL, "Mild."]) as model, AgentClient(agent_of(model), headers={"x-ai-sdk": sdk}) as client:
        answer = client.ask("Weather?")
        tools = {tool["function"]["name"] for request in model.requests for tool in request["tools"]}
        history = str([request["messages"] for request in model.requests])
    [part] = [part for part in answer.message.parts if "toolCallId" in part]
    assert part["output"] == {"celsius": 4}
    assert part["callProviderMetadata"]["mcp"]["app"] == {**MAP, "serverId": "weather"}
    assert part.get("toolMetadata") == (None if sdk == "5" else {"app": {**MAP, "serverId": "weather"}})
    assert tools == {"forecast", "forget"}
    assert "ui://" not in history


def test_the_app_of_a_tool_of_langchain_is_told_with_its_call(caplog: pytest.LogCaptureFixture) -> None:
    async def forecast(city: str) -> str:
        """Tell the weather of a city."""
        return f"mild in {city}"

    def tool(name: str, *visibility: str) -> StructuredTool:
        meta = {"ui": {"resourceUri": "ui://weather/map", "visibility": list(visibility)}}
        metadata = {"_meta": meta}  # as langchain-mcp-adapters 0.3.2 sets it
        return StructuredTool.from_function(coroutine=forecast, name=name, metadata=metadata)

    with ScriptedModel([CALL, "Mild."]) as model:
        graph = create_agent(
            langgraph_agent.chat_model(model, "chat"), [tool("forecast", "model", "app"), tool("refresh", "app")]
        )
        with AgentClient(graph, headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("Weather?")
    [part] = [part for part in answer.message.parts if "toolCallId" in part]
    assert part["toolMetadata"] == {"app": {**MAP, "visibility": ["model", "app"]}}
    assert "the tool refresh is for MCP apps alone" in caplog.text


def test_a_server_that_nobody_has_named_does_not_tell_its_program() -> None:
    server = MCPServerStdio({"command": sys.executable, "args": [SERVER]}, client_session_timeout_seconds=60)
    set_tracing_disabled(True)
    with ScriptedModel([CALL, "Mild."]) as model:
        chat_model = OpenAIChatCompletionsModel("gpt-4o", AsyncOpenAI(base_url=model.openai_url, api_key="none"))
        agent = OpenAIAgent(name="clerk", model=chat_model, mcp_servers=[server])
        with AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("Weather?")
    [part] = [part for part in answer.message.parts if "toolCallId" in part]
    assert len(part["toolMetadata"]["app"]["serverId"]) == 12
    assert "python" not in str(part["toolMetadata"])
