"""Agents of the OpenAI Agents SDK as people write them: handoffs, MCP servers, sessions, approvals in a long chat."""

import asyncio
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, ModelSettings, RunContextWrapper, SQLiteSession, function_tool, set_tracing_disabled
from agents.mcp import MCPServerStdio
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from agents.models.openai_responses import OpenAIResponsesModel
from openai import AsyncOpenAI
from packaging.requirements import Requirement
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Route

from usechat.adapters import openai_agents
from usechat.adapters.openai_agents import OpenAIAgentsSource
from usechat.errors import CannotAnswer
from usechat.server import chat_response
from usechat.sources import FactorySource
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("weather")

@server.tool()
def weather(city: str) -> str:
    return f"sunny in {city}"

server.run()
"""


@pytest.fixture(autouse=True)
def _without_tracing() -> None:
    set_tracing_disabled(True)


def chat_model(model: ScriptedModel, kind: Any = OpenAIChatCompletionsModel) -> Any:
    return kind("gpt-4o", AsyncOpenAI(base_url=model.openai_url, api_key="none"))


def parts_named(answer: Any, kind: str) -> list[Any]:
    return [part for part in answer.message.parts if part["type"] == kind]


@pytest.mark.parametrize("kind", [OpenAIChatCompletionsModel, OpenAIResponsesModel])
@pytest.mark.parametrize("approve", [True, False])
def test_an_approval_after_an_answered_turn_continues_the_run(kind: Any, approve: bool) -> None:
    paths = []

    @function_tool(needs_approval=True)
    def delete(path: str) -> str:
        paths.append(path)
        return "gone"

    with ScriptedModel(["Hello.", ModelAnswer(calls=[ModelCall("delete", {"path": "a"})]), "Done."]) as model:
        agent = Agent(name="clerk", model=chat_model(model, kind), tools=[delete])
        with AgentClient(agent, headers={"x-ai-sdk": "7"}, approve=approve) as client:
            client.ask("Hi")
            assert client.ask("Delete a.").text == "Done."
        assert model.refusals == []
    assert paths == (["a"] if approve else [])


def test_the_next_message_goes_to_the_agent_that_took_over() -> None:
    handoff = ModelAnswer(calls=[ModelCall("transfer_to_bob", {})])
    with ScriptedModel([handoff, "I am Bob.", "Still Bob."]) as model:
        bob = Agent(name="bob", instructions="You are Bob.", model=chat_model(model))
        alice = Agent(name="alice", instructions="You are Alice.", model=chat_model(model), handoffs=[bob])
        with AgentClient(alice, headers={"x-ai-sdk": "7"}) as client:
            client.ask("Bob, please.")
            answer = client.ask("Who is there?")
        assert model.requests[-1]["messages"][0]["content"] == "You are Bob."
    assert [part["data"] for part in parts_named(answer, "data-agent")] == [{"name": "bob"}]


def test_mcp_servers_are_connected_and_their_results_are_texts() -> None:
    server = weather_server()
    with ScriptedModel([WEATHER, "Sunny."]) as model:
        agent = Agent(name="clerk", model=chat_model(model), mcp_servers=[server])
        with AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("Weather?")
    assert [tool.output for tool in answer.tools] == ["sunny in Paris"]
    assert server.session is None  # it was closed with the app


def weather_server() -> MCPServerStdio:
    return MCPServerStdio({"command": sys.executable, "args": ["-c", SERVER]}, client_session_timeout_seconds=60)


WEATHER = ModelAnswer(calls=[ModelCall("weather", {"city": "Paris"})])


@pytest.mark.parametrize("is_async", [True, False])
def test_a_server_of_an_agent_that_is_made_for_a_turn_is_closed_with_the_turn(is_async: bool) -> None:
    servers: list[MCPServerStdio] = []
    were_closed = []

    def agent_of_turn(_turn: Any) -> Any:
        were_closed.append([server.session is None for server in servers])
        servers.append(weather_server())
        return Agent(name="clerk", model=chat_model(model), mcp_servers=[servers[-1]])

    async def later(turn: Any) -> Any:
        return agent_of_turn(turn)

    agent = later if is_async else agent_of_turn
    with ScriptedModel([WEATHER, "Sunny."] * 2) as model, AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
        outputs = [[tool.output for tool in client.ask("Weather?").tools] for _ in range(2)]
        were_closed.append([server.session is None for server in servers])
    assert outputs == [["sunny in Paris"]] * 2
    assert were_closed == [[], [True], [True, True]]


def test_a_server_of_a_turn_is_closed_although_the_turn_fails() -> None:
    server = weather_server()
    with ScriptedModel([WEATHER, ModelAnswer(error="Overloaded.", status=400)]) as model:
        agent = Agent(name="clerk", model=chat_model(model), mcp_servers=[server])
        with AgentClient(lambda _turn: agent, headers={"x-ai-sdk": "7"}) as client:
            assert client.ask("Weather?").error is not None
            assert server.session is None


async def test_turns_that_overlap_share_one_connection_until_the_last_has_ended() -> None:
    server = weather_server()
    first, second, third = (openai_agents.source_of(Agent(name="clerk", mcp_servers=[server])) for _ in range(3))
    assert isinstance(first, FactorySource)
    await first.open()
    session = server.session
    later = openai_agents.source_of(Agent(name="clerk", mcp_servers=[server]))
    assert isinstance(later, FactorySource)
    await later.open()
    await first.close()
    assert server.session is session is not None
    await later.close()
    assert server.session is None
    assert isinstance(second, FactorySource)
    assert isinstance(third, FactorySource)
    await asyncio.gather(second.open(), third.open())
    await asyncio.gather(second.close(), third.close())
    assert server.session is None


async def test_a_server_that_somebody_has_connected_stays_connected() -> None:
    async with weather_server() as server:
        agent = Agent(name="clerk", mcp_servers=[server, weather_server()])
        source = openai_agents.source_of(agent)
        assert isinstance(source, FactorySource)
        await source.open()
        await source.close()
        assert server.session is not None


async def test_a_server_that_cannot_be_connected_is_tried_again() -> None:
    server = MCPServerStdio({"command": "/nowhere", "args": []})
    for _ in range(2):
        source = openai_agents.source_of(Agent(name="clerk", mcp_servers=[server]))
        assert isinstance(source, FactorySource)
        with pytest.raises(FileNotFoundError):
            await source.open()
        await source.close()


def test_a_route_of_an_application_connects_the_servers_of_its_agent_for_each_turn() -> None:
    server = weather_server()
    with ScriptedModel([WEATHER, "Sunny.", "Bye."]) as model:
        agent = Agent(name="clerk", model=chat_model(model), mcp_servers=[server])

        async def chat(request: Request) -> Any:
            return await chat_response(request, agent)

        with AgentClient(Starlette(routes=[Route("/api/chat", chat, methods=["POST"])])) as client:
            assert [tool.output for tool in client.ask("Weather?").tools] == ["sunny in Paris"]
            assert server.session is None
            assert client.ask("Bye").text == "Bye."
            assert server.session is None


def test_a_session_holds_the_history_alone() -> None:
    with ScriptedModel(["One.", "Two.", "Three."]) as model:
        agent = Agent(name="clerk", model=chat_model(model, OpenAIResponsesModel))
        with AgentClient(OpenAIAgentsSource(agent, options={"session": SQLiteSession("s1")})) as client:
            for text in ("a", "b", "c"):
                client.ask(text)
        assert [item["role"] for item in model.requests[-1]["input"]] == ["user", "assistant"] * 2 + ["user"]


def test_encrypted_reasoning_is_sent_back_with_its_text() -> None:
    with ScriptedModel([ModelAnswer(text="One.", reasoning="Hm."), "Two."]) as model:
        settings = ModelSettings(response_include=["reasoning.encrypted_content"], store=False)
        agent = Agent(name="clerk", model=chat_model(model, OpenAIResponsesModel), model_settings=settings)
        with AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
            client.ask("a")
            assert client.ask("b").text == "Two."
        assert model.refusals == []
        kinds = [item.get("type", "message") for item in model.requests[-1]["input"]]
    assert kinds == ["message", "reasoning", "message", "message"]


def test_every_release_before_the_next_major_one_may_be_installed() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    [requirement] = map(Requirement, project["optional-dependencies"]["openai-agents"])
    versions = ["0.23.9", "0.24.0", "0.25.0", "0.99.0", "1.0.0"]
    assert list(requirement.specifier.filter(versions)) == versions[1:4]


@dataclass
class Visitor:
    name: str


def greeting(context: RunContextWrapper[Visitor], _agent: Agent[Visitor]) -> str:
    return f"Greet {context.context.name}."


def test_an_agent_that_needs_a_context_is_refused_without_one() -> None:
    with ScriptedModel(["Hello."]) as model:
        client = AsyncOpenAI(base_url=model.openai_url, api_key="none")
        chat_model = OpenAIChatCompletionsModel("gpt-4o", client)
        agent = Agent[Visitor](name="clerk", instructions=greeting, model=chat_model)
        with pytest.raises(CannotAnswer, match="the agent 'clerk' needs a context of the type Visitor with name;"):
            OpenAIAgentsSource(agent)
        for source in (
            OpenAIAgentsSource(agent, context=Visitor("Ada")),
            OpenAIAgentsSource(agent, options={"context": Visitor("Ada")}),
        ):
            assert source.info.name == "clerk"
        with AgentClient(source) as page:
            assert page.ask("Hi").text == "Hello."
        assert "Greet Ada." in str(model.requests[0]["messages"])
