"""Agents as people write them, with the frameworks: plain objects, guardrails, services, schemas, parallel agents."""

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from agno.agent import Agent as AgnoAgent
from agno.guardrails import PromptInjectionGuardrail
from agno.team import Team
from agno.tools import tool as agno_tool
from agno.workflow import Loop as AgnoLoop
from agno.workflow import Parallel as AgnoParallel
from agno.workflow import Step as AgnoStep
from agno.workflow import Workflow as AgnoWorkflow
from agno.workflow.types import HumanReview
from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.tools import ToolContext, load_memory
from google.genai import types
from pydantic import BaseModel
from smolagents import CodeAgent, ToolCallingAgent
from strands import Agent as StrandsAgent
from strands.multiagent import Swarm
from strands.session import FileSessionManager

from tests.adapters import agno_agent, google_adk_agent, smolagents_agent, strands_agent
from usechat.adapters.agno import AgnoSource
from usechat.adapters.google_adk import GoogleAdkSource
from usechat.adapters.strands import StrandsSource
from usechat.errors import CannotAnswer
from usechat.sources import as_source
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

pytestmark = [
    pytest.mark.live,
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:(Parallel|Sequential)Agent is deprecated:DeprecationWarning"),
]


class City(BaseModel):
    name: str


def data_of(answer: Any, name: str) -> list[Any]:
    return [part["data"] for part in answer.message.parts if part["type"] == f"data-{name}"]


def roles(request: Any) -> list[str]:
    return [message["role"] for message in request["messages"]]


# -- Strands and smolagents: one object, many chats.


def strands_object(model: ScriptedModel) -> Any:
    return StrandsAgent(model=strands_agent.chat_model(model, "chat"), system_prompt="Be brief.", callback_handler=None)


def smolagents_object(model: ScriptedModel) -> Any:
    return ToolCallingAgent(tools=[], model=smolagents_agent.chat_model(model), stream_outputs=True, verbosity_level=0)


def final(text: str) -> ModelAnswer:
    return ModelAnswer(calls=[ModelCall("final_answer", {"answer": text})])


def test_a_strands_agent_is_served_as_it_is_and_chats_share_nothing() -> None:
    with ScriptedModel(["One.", "Two.", "Other."]) as model:
        agent = strands_object(model)
        with AgentClient(agent) as first, AgentClient(agent) as second:
            assert [first.ask("a").text, first.ask("b").text, second.ask("c").text] == ["One.", "Two.", "Other."]
        assert [roles(request) for request in model.requests] == [
            ["system", "user"],
            ["system", "user", "assistant", "user"],
            ["system", "user"],
        ]
        assert agent.messages == []


def test_a_strands_agent_answers_two_chats_at_once() -> None:
    with ScriptedModel([ModelAnswer(text=["a", "b"], pause=0.5)] * 2) as model:
        agent = strands_object(model)
        with AgentClient(agent) as first, AgentClient(agent) as second, ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda client: client.ask("Hi").text, [first, second]))
    assert answers == ["ab", "ab"]


def test_a_swarm_of_strands_answers_two_chats_at_once() -> None:
    with ScriptedModel([ModelAnswer(text=["a", "b"], pause=0.5)] * 2) as model:
        swarm = Swarm([strands_object(model)])
        with AgentClient(swarm) as first, AgentClient(swarm) as second, ThreadPoolExecutor() as pool:
            answers = list(pool.map(lambda client: client.ask("Hi").text, [first, second]))
        assert [node.executor.messages for node in swarm.nodes.values()] == [[]]
    assert answers == ["ab", "ab"]


WAITS = HumanReview(requires_confirmation=True)


def pay(_input: Any) -> str:
    return "paid"


@pytest.mark.parametrize(
    "step",
    [
        AgnoStep(name="pay", executor=pay, human_review=WAITS),
        AgnoLoop(name="pay", steps=[AgnoStep(name="pay", executor=pay)], human_review=WAITS),
        AgnoParallel(AgnoStep(name="pay", executor=pay, human_review=WAITS), name="both"),
    ],
)
def test_a_workflow_of_agno_with_a_step_that_waits_for_a_person_is_refused(step: Any) -> None:
    with pytest.raises(CannotAnswer, match="the step 'pay' of the workflow 'payments' waits for a person"):
        as_source(AgnoWorkflow(name="payments", steps=[step], telemetry=False))


def test_a_workflow_of_agno_whose_tool_waits_for_a_person_fails_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    with ScriptedModel([ModelAnswer(calls=[ModelCall("spend", {})])]) as model:

        @agno_tool(requires_confirmation=True)  # type: ignore[untyped-decorator]
        def spend() -> str:
            """Spend money."""
            return "spent"

        agent = AgnoAgent(name="ann", model=agno_agent.chat_model(model, "chat"), tools=[spend], telemetry=False)
        workflow = AgnoWorkflow(name="payments", steps=[AgnoStep(name="pay", agent=agent)], telemetry=False)
        with AgentClient(workflow) as client:
            assert str(client.ask("Pay").error).startswith("An error occurred.")
    assert "the step pay of the Agno workflow waits for a person" in caplog.text


def test_a_function_may_make_the_agent_of_strands_once_or_for_each_turn() -> None:
    with ScriptedModel(["One.", "Two.", "Three."]) as model:

        async def make(_turn: Any) -> Any:
            return strands_object(model)

        for agent in (lambda: strands_object(model), make, StrandsSource(make)):
            with AgentClient(agent) as client:
                assert client.ask("Hi").text in ("One.", "Two.", "Three.")


def test_a_strands_agent_that_stores_one_conversation_is_refused(tmp_path: Any) -> None:
    with ScriptedModel([]) as model:
        manager = FileSessionManager(session_id="s1", storage_dir=str(tmp_path))
        agent = StrandsAgent(model=strands_agent.chat_model(model, "chat"), session_manager=manager)
    with pytest.raises(CannotAnswer, match="stores one conversation"):
        as_source(agent)


def test_an_agent_of_smolagents_is_served_as_it_is_and_chats_share_nothing() -> None:
    with ScriptedModel([final("One."), final("Two."), final("Other.")]) as model:
        agent = smolagents_object(model)
        with AgentClient(agent) as first, AgentClient(agent) as second:
            assert [first.ask("a").text, first.ask("b").text, second.ask("c").text] == ["One.", "Two.", "Other."]
        assert len(roles(model.requests[1])) > len(roles(model.requests[0])) == len(roles(model.requests[2]))


def test_the_variables_of_a_code_agent_are_those_of_one_turn() -> None:
    codes = ["<code>\nsecret = 7\nfinal_answer('kept')\n</code>", "<code>\nfinal_answer(str(secret))\n</code>"]
    with ScriptedModel([*codes, "<code>\nfinal_answer('gone')\n</code>"]) as model:
        agent = CodeAgent(tools=[], model=smolagents_agent.chat_model(model), verbosity_level=0)
        with AgentClient(agent) as first, AgentClient(agent) as second:
            assert [first.ask("a").text, second.ask("b").text] == ["kept", "gone"]


# -- Agno.


def test_a_guardrail_of_agno_reads_the_question_in_every_turn() -> None:
    with ScriptedModel(["One.", "Two."]) as model:
        agent = AgnoAgent(
            model=agno_agent.chat_model(model, "chat"), pre_hooks=[PromptInjectionGuardrail()], telemetry=False
        )
        with AgentClient(agent) as client:
            assert [client.ask("a").text, client.ask("b").text] == ["One.", "Two."]
        assert roles(model.requests[1]) == ["user", "assistant", "user"]


def test_a_team_of_agno_without_a_database_reads_its_answers() -> None:
    with ScriptedModel(["One.", "Two."]) as model:
        member = AgnoAgent(name="clerk", model=agno_agent.chat_model(model, "chat"), telemetry=False)
        team = Team(model=agno_agent.chat_model(model, "chat"), members=[member], telemetry=False)
        with AgentClient(team) as client:
            assert [client.ask("a").text, client.ask("b").text] == ["One.", "Two."]
        assert roles(model.requests[1])[-3:] == ["user", "assistant", "user"]


def test_the_output_of_a_schema_of_agno_arrives_once() -> None:
    with ScriptedModel(['{"name": "Paris"}']) as model:
        agent = AgnoAgent(model=agno_agent.chat_model(model, "chat"), output_schema=City, telemetry=False)
        with AgentClient(agent) as client:
            assert data_of(client.ask("Where?"), "output") == [{"name": "Paris"}]


def test_the_dependencies_of_agno_come_from_the_turn() -> None:
    async def dependencies(turn: Any) -> dict[str, str]:
        return {"city": turn.headers["x-city"]}

    with ScriptedModel(["Hello."]) as model:
        agent = AgnoAgent(model=agno_agent.chat_model(model, "chat"), add_dependencies_to_context=True, telemetry=False)
        with AgentClient(AgnoSource(agent, context=dependencies), headers={"x-city": "Paris"}) as client:
            client.ask("Where?")
        assert "Paris" in str(model.requests[0]["messages"])


# -- Google ADK.


def claude(model: ScriptedModel) -> Any:
    return google_adk_agent.ScriptedClaude(model="claude-test", url=model.anthropic_url)


def test_tools_of_adk_store_artifacts_and_search_the_memory() -> None:
    async def save(text: str, tool_context: ToolContext) -> int:
        return int(await tool_context.save_artifact("note.txt", types.Part(text=text)))

    calls = [ModelCall("save", {"text": "hi"}), ModelCall("load_memory", {"query": "hi"})]
    with ScriptedModel([ModelAnswer(calls=[calls[0]]), ModelAnswer(calls=[calls[1]]), "Done."]) as model:
        agent = LlmAgent(name="clerk", model=claude(model), tools=[save, load_memory])
        with AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("Save it.")
    assert (answer.text, [tool.state for tool in answer.tools]) == ("Done.", ["output-available"] * 2)


def test_the_state_of_an_adk_session_comes_from_the_turn() -> None:
    with ScriptedModel(["Hello."]) as model:
        agent = LlmAgent(name="clerk", model=claude(model), instruction="You are in {city}.")
        source = GoogleAdkSource(agent, context=lambda turn: {"city": turn.headers["x-city"]})
        with AgentClient(source, headers={"x-city": "Paris"}) as client:
            client.ask("Where?")
        assert "You are in Paris." in str(model.requests[0]["system"])


class Words(BaseLlm):  # type: ignore[misc]
    """A model that streams like Gemini: pieces, and then the whole text again."""

    async def generate_content_async(self, llm_request: Any, stream: bool = False) -> AsyncIterator[Any]:  # noqa: ARG002
        for piece in ("Hello ", "world."):
            yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=piece)]), partial=True)
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text="Hello world.")]))


@pytest.mark.parametrize("kind", [ParallelAgent, SequentialAgent])
def test_each_agent_of_a_group_has_its_name_and_one_text(kind: Any) -> None:
    members = [LlmAgent(name=name, model=Words(model="words")) for name in ("ann", "bob")]
    with AgentClient(kind(name="group", sub_agents=members), headers={"x-ai-sdk": "7"}) as client:
        answer = client.ask("Hi")
    answer.assert_legal(sdk="7")
    assert sorted(each["name"] for each in data_of(answer, "agent")) == ["ann", "bob"]
    assert [part["text"] for part in answer.message.parts if part["type"] == "text"] == ["Hello world."] * 2
