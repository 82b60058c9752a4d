"""CrewAI with the framework: its example and page, crews and flows, what chats cannot share, history, telemetry."""

import json
import runpy
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.adapters import crewai_agent  # first: it switches the telemetry of CrewAI off
from tests.adapters.agents import Deeds, Framework
from tests.adapters.examples import FILES, check_page
from tests.adapters.recorded_frameworks import RECORDED_FRAMEWORKS
from tests.adapters.telemetry import check_failed_turn, check_turn
from tests.adapters.turns import assistant, text, tool, turn_of, user
from usechat import Turn
from usechat.adapters import conversation, crewai
from usechat.adapters.crewai import CrewAiSource
from usechat.errors import CannotAnswer
from usechat.parts import Part
from usechat.sources import as_source
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel
from usechat.typescript import types_of, typescript

from crewai import Agent, Crew, Flow, Task  # isort: skip
from crewai.flow.flow import start  # isort: skip
from crewai.telemetry.telemetry import Telemetry  # isort: skip
from pydantic import BaseModel  # isort: skip

# CrewAI reads fields that it has deprecated.
pytestmark = [pytest.mark.live, pytest.mark.crewai, pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai")]

CREWAI = [framework for framework in RECORDED_FRAMEWORKS if framework.environment == "crewai"]
WEATHER = ModelAnswer(calls=[ModelCall("weather", {"city": "Paris"})])


def agent_of(model: ScriptedModel, role: str = "assistant", **more: Any) -> Agent:
    return Agent(role=role, goal="Answer.", backstory="Be brief.", llm=crewai_agent.chat_model(model, "chat"), **more)


def crew_of(model: ScriptedModel, *descriptions: str, **more: Any) -> Crew:
    agents = [agent_of(model, f"agent {number}") for number, _ in enumerate(descriptions, 1)]
    tasks = [
        Task(description=description, expected_output="A sentence.", agent=agent)
        for description, agent in zip(descriptions, agents, strict=True)
    ]
    return Crew(agents=agents, tasks=tasks, **more)


def test_no_telemetry_of_crewai_is_sent_by_the_tests() -> None:
    assert not Telemetry().ready


def test_the_short_example_answers_with_its_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len((FILES / "crewai_agent.py").read_text(encoding="utf-8").splitlines()) < 40
    with ScriptedModel([WEATHER, "It is 21 °C."]) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        agent = runpy.run_path(str(FILES / "crewai_agent.py"))["agent"]
        with AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("How is the weather?")
        assert (answer.tools[0].output, answer.text) == ({"city": "Paris", "celsius": 21}, "It is 21 °C.")
        answer.assert_legal(sdk="7")
        assert model.refusals == []


def test_the_code_of_the_page_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    check_page("crewai", monkeypatch)


@pytest.mark.parametrize("framework", CREWAI, ids=lambda framework: framework.name)
def test_a_turn_is_one_span_with_its_tokens_and_its_reason(framework: Framework) -> None:
    check_turn(framework)


@pytest.mark.parametrize("framework", CREWAI, ids=lambda framework: framework.name)
def test_a_turn_whose_model_fails_is_a_span_with_the_type_of_the_error(framework: Framework) -> None:
    check_failed_turn(framework)


def test_a_crew_gets_the_message_and_the_chat_and_its_second_agent_is_a_lane() -> None:
    with ScriptedModel(["Owls see well.", "They hunt at night.", "Yes.", "Really."]) as model:
        with AgentClient(crew_of(model, "Answer: {question}", "Go on."), headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("What about owls?")
            answer.assert_legal(sdk="7")
            kinds = [part["type"] for part in answer.message.parts]
            assert kinds == ["step-start", "text", "step-start", "data-agent", "text"]
            assert answer.message.data["agent"] == [{"name": "agent 2"}]
            assert [part["text"] for part in answer.message.parts if part["type"] == "text"] == [
                "Owls see well.",
                "They hunt at night.",
            ]
            assert answer.message.metadata["usage"]["totalTokens"] == 36
            client.ask("Do they?")
        assert "Answer: What about owls?" in json.dumps(model.requests[0])
        prompt = json.dumps(model.requests[2])
        assert "Answer: Do they?" in prompt
        assert "They hunt at night." in prompt
        assert model.refusals == []


def test_chats_do_not_share_a_crew() -> None:
    with ScriptedModel(["One.", "Two."]) as model:
        crew = crew_of(model, "Answer: {question}")
        for question in ("What is first?", "What is second?"):
            with AgentClient(crew, headers={"x-ai-sdk": "7"}) as client:
                client.ask(question)
        assert "What is first?" not in json.dumps(model.requests[1])
        assert crew.tasks[0].description == "Answer: {question}"
        assert model.refusals == []


def test_the_value_of_a_crew_with_a_structure_is_data() -> None:
    class Weather(BaseModel):
        celsius: int

    with ScriptedModel(['{"celsius": 21}']) as model:
        agent = agent_of(model)
        task = Task(description="{city}", expected_output="Degrees.", agent=agent, output_pydantic=Weather)
        with AgentClient(Crew(agents=[agent], tasks=[task]), headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("Paris")
        assert model.refusals == []
    assert answer.message.data["output"] == [{"celsius": 21}]


def flow_of(model: ScriptedModel) -> Any:
    class Greeting(Flow):  # type: ignore[misc]
        """Answers with what an agent says, after its own words."""

        @start()  # type: ignore[untyped-decorator]
        def greet(self) -> str:
            return f"Dear {agent_of(model).kickoff(self.state['message']).raw}"

    return Greeting()


def test_a_flow_that_a_function_makes_answers_with_its_result() -> None:
    with ScriptedModel(["Ann."]) as model:
        with AgentClient(CrewAiSource(lambda _turn: flow_of(model)), headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("Who am I?")
        assert "Who am I?" in json.dumps(model.requests[0])
        assert model.refusals == []
    answer.assert_legal(sdk="7")
    assert [part["text"] for part in answer.message.parts if part["type"] == "text"] == ["Ann.", "Dear Ann."]


def test_the_frames_of_a_flow_are_read_in_an_agent_function() -> None:
    with ScriptedModel(["Ann."]) as model:

        async def agent(turn: Turn) -> AsyncIterator[Part]:
            async for part in crewai.parts(flow_of(model).astream(inputs={"message": turn.text})):
                yield part

        with AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
            assert client.ask("Who am I?").text == "Ann."
        assert model.refusals == []


def test_what_chats_cannot_share_is_refused_and_what_is_nothing_to_ask_too() -> None:
    with ScriptedModel([]) as model:
        assert crewai.source_of(agent_of(model)) is not None
        assert crewai.source_of("a text") is None
        with pytest.raises(
            CannotAnswer, match=r"Greeting is a flow of CrewAI.*give its class, Greeting, or a function that makes one"
        ):
            as_source(flow_of(model))
        with pytest.raises(CannotAnswer, match=r"this Agent of CrewAI has a memory.*give a function"):
            as_source(agent_of(model, memory=True))
        with pytest.raises(CannotAnswer, match=r"this Agent of CrewAI has MCP servers.*give a function"):
            as_source(agent_of(model, mcps=["https://mcp.example.com/mcp"]))
        with pytest.raises(CannotAnswer, match="has the inputs city, day; name the one"):
            as_source(crew_of(model, "{city} on {day}"))
        assert CrewAiSource(crew_of(model, "{city} on {day}"), message="city", options={"day": "Monday"}) is not None
        with pytest.raises(
            CannotAnswer, match=r"Task is an object of CrewAI that .*; give an Agent, a Crew or a CrewAiSource"
        ):
            as_source(Task(description="Hi.", expected_output="Hi."))


def test_a_model_without_function_calling_thinks_aloud_and_answers() -> None:
    action = 'Thought: I need the weather.\nAction: weather\nAction Input: {"city": "Paris"}'
    with ScriptedModel([action, "Thought: I know it.\nFinal Answer: It is 21 °C."]) as model:
        deeds = Deeds()
        agent = agent_of(model, tools=[crewai_agent.tool("weather", deeds.weather, "city")])

        class Plain(type(agent.llm)):  # type: ignore[misc]
            def supports_function_calling(self) -> bool:
                return False

        agent.llm.__class__ = Plain
        with AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("How is the weather?")
        assert model.refusals == []
    answer.assert_legal(sdk="7")
    assert deeds.done == ["weather Paris"]
    assert [call.output for call in answer.tools] == [{"city": "Paris", "celsius": 21}]
    assert answer.text == "It is 21 °C."


def test_the_tools_of_an_agent_are_described() -> None:
    with ScriptedModel([]) as model:
        agent = crewai_agent.make(model, "chat", Deeds())
        described = [typescript(types_of(each)) for each in (agent, Crew(agents=[agent], tasks=[]))]
    assert all("weather: { input: { city: string }" in each for each in described)


async def test_a_chat_becomes_messages_of_an_agent() -> None:
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk=", "filename": "a.png"}
    note = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,hi", "filename": "a.txt"}
    weather = tool("weather", "c1", "output-available", output={"celsius": 21})
    failure = tool("dig", "c2", "output-error", errorText="No.")
    turn = turn_of(
        user("Look.", "u1", image, note),
        assistant({"type": "step-start"}, weather, failure, {"type": "step-start"}, text("Sunny.")),
        user("Thanks.", "u2"),
    )
    question, tool_step, first, second, answer, thanks = crewai.to_crewai(conversation.history(turn))
    assert question == {"role": "user", "content": "Look.\n\na.png (image/png)\n\na.txt:\nhi"}
    assert [(call["id"], call["function"]["name"]) for call in tool_step["tool_calls"]] == [
        ("c1", "weather"),
        ("c2", "dig"),
    ]
    assert [(each["tool_call_id"], each["content"]) for each in (first, second)] == [
        ("c1", '{"celsius":21}'),
        ("c2", "No."),
    ]
    assert (answer, thanks) == ({"role": "assistant", "content": "Sunny."}, {"role": "user", "content": "Thanks."})
