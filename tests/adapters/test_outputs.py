"""Structured outputs, and what tools send besides their results, through the frameworks themselves."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from agents import Agent as OpenAIAgent
from agents import function_tool
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.tools import tool
from langgraph.config import get_stream_writer
from pydantic import BaseModel
from pydantic_ai import Agent

from tests.adapters import langgraph_agent, openai_agents_agent, pydantic_ai_agent
from tests.adapters.agents import Deeds, Framework
from tests.adapters.frameworks import FRAMEWORKS
from usechat.adapters import openai_agents, pydantic_ai
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel
from usechat.turn import Turn, emit


class City(BaseModel):
    city: str


PARIS = {"city": "Paris"}


def asked(agent: Any) -> Any:
    with AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
        answer = client.ask("Which city?")
    answer.assert_legal(sdk="7")
    return answer


def output_of(answer: Any) -> list[Any]:
    output: list[Any] = answer.message.data["output"]
    return output


def test_the_output_of_pydantic_ai_is_data() -> None:
    with ScriptedModel([ModelAnswer(calls=[ModelCall("final_result", PARIS)])]) as model:
        answer = asked(Agent(pydantic_ai_agent.chat_model(model, "chat"), output_type=City))
        assert model.refusals == []
    assert output_of(answer) == [PARIS]


def test_the_output_of_openai_agents_is_data_and_its_text_is_shown() -> None:
    with ScriptedModel(['{"city":"Paris"}']) as model:
        chat_model = openai_agents_agent.chat_model(model, "responses")
        answer = asked(OpenAIAgent(name="assistant", model=chat_model, output_type=City))
        assert model.refusals == []
    assert (output_of(answer), answer.text) == ([PARIS], '{"city":"Paris"}')


def test_the_output_of_a_langchain_agent_is_data() -> None:
    script = [ModelAnswer(text="I know. ", calls=[ModelCall("City", PARIS)])]
    with ScriptedModel(script) as model:
        chat_model = langgraph_agent.chat_model(model, "chat")
        answer = asked(create_agent(chat_model, [], response_format=ToolStrategy(City)))
        assert model.refusals == []
    assert (output_of(answer), answer.text) == ([PARIS], "I know. ")


def test_an_agent_that_takes_over_from_another_has_a_step_and_a_label() -> None:
    with ScriptedModel([ModelAnswer(calls=[ModelCall("transfer_to_expert")]), "Owls see well."]) as model:
        chat_model = openai_agents_agent.chat_model(model, "responses")
        expert: OpenAIAgent[Any] = OpenAIAgent(name="expert", model=chat_model)
        answer = asked(OpenAIAgent(name="clerk", model=chat_model, handoffs=[expert]))
        assert model.refusals == []
    kinds = [part["type"] for part in answer.message.parts]
    assert kinds == ["step-start", "tool-transfer_to_expert", "step-start", "data-agent", "text"]
    assert (answer.message.data["agent"], answer.text) == ([{"name": "expert"}], "Owls see well.")


def test_what_a_tool_of_a_graph_writes_to_the_stream_is_data() -> None:
    @tool
    def weather(city: str) -> str:
        """Tell the weather."""
        get_stream_writer()({"looking at": city})
        return "sunny"

    with ScriptedModel([ModelAnswer(calls=[ModelCall("weather", PARIS)]), "Sunny."]) as model:
        answer = asked(create_agent(langgraph_agent.chat_model(model, "chat"), [weather]))
        assert model.refusals == []
    assert answer.message is not None
    assert answer.message.data["custom"] == [{"looking at": "Paris"}]


class Telling(Deeds):
    def weather(self, city: str) -> dict[str, Any]:
        emit("progress", {"city": city})
        return super().weather(city)


@pytest.mark.parametrize("framework", [FRAMEWORKS[0], *FRAMEWORKS[2:]], ids=lambda framework: framework.page)
def test_what_a_tool_emits_is_data(framework: Framework) -> None:
    with ScriptedModel([ModelAnswer(calls=[ModelCall("weather", PARIS)]), "Sunny."]) as model:
        answer = asked(framework.make(model, framework.apis[0], Telling()))
        assert model.refusals == []
    assert answer.message is not None
    assert answer.message.data["progress"] == [PARIS]


def researching_with_pydantic_ai(model: ScriptedModel) -> Any:
    researcher = Agent(pydantic_ai_agent.chat_model(model, "chat"), name="researcher")
    researcher.tool_plain(Deeds().weather)
    agent = Agent(pydantic_ai_agent.chat_model(model, "chat"))

    @agent.tool_plain
    async def research(topic: str) -> str:
        return (await researcher.run(topic, event_stream_handler=pydantic_ai.show_sub_agent)).output

    return agent


def researching_with_openai_agents(model: ScriptedModel) -> Any:
    chat_model = openai_agents_agent.chat_model(model, "chat")
    weather = function_tool(Deeds().weather)
    researcher: OpenAIAgent[Any] = OpenAIAgent(name="researcher", model=chat_model, tools=[weather])
    research = researcher.as_tool(
        "research", "Asks.", parameters=openai_agents_agent.Topic, on_stream=openai_agents.show_sub_agent
    )
    return OpenAIAgent(name="assistant", model=chat_model, tools=[research])


@pytest.mark.parametrize("make", [researching_with_pydantic_ai, researching_with_openai_agents])
def test_a_sub_agent_that_calls_tools_has_one_label_and_each_call_once(make: Any) -> None:
    script: list[ModelAnswer | str] = [
        ModelAnswer(calls=[ModelCall("research", {"topic": "owls"}, id="call_r")]),
        ModelAnswer(text="Let me look. ", calls=[ModelCall("weather", PARIS, id="call_w")]),
        "It is sunny.",
        "They like that.",
    ]
    with ScriptedModel(script) as model:
        answer = asked(make(model))
        assert model.refusals == []
    assert answer.message.data["agent"] == [{"name": "researcher"}]
    assert [(tool.name, tool.state) for tool in answer.tools] == [
        ("research", "output-available"),
        ("weather", "output-available"),
    ]
    assert answer.text == "Let me look. It is sunny.They like that."


async def unknown_events() -> AsyncIterator[Any]:
    yield SimpleNamespace(event_kind="telepathy")


async def with_an_event_that_pydantic_ai_does_not_have(turn: Turn) -> AsyncIterator[str]:  # noqa: ARG001
    run: Any = SimpleNamespace(agent=None, run_id="r1")
    await pydantic_ai.show_sub_agent(run, unknown_events())
    yield "done"


async def with_an_event_that_openai_agents_does_not_have(turn: Turn) -> AsyncIterator[str]:  # noqa: ARG001
    event: Any = {"tool_call": None, "agent": SimpleNamespace(name="x"), "event": SimpleNamespace(type="telepathy")}
    await openai_agents.show_sub_agent(event)
    yield "done"


@pytest.mark.parametrize(
    "agent", [with_an_event_that_pydantic_ai_does_not_have, with_an_event_that_openai_agents_does_not_have]
)
def test_an_unknown_event_of_a_sub_agent_is_skipped(agent: Any) -> None:
    assert asked(agent).text == "done"
