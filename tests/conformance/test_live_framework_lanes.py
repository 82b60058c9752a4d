"""Agents that hand over to others, with the frameworks: each other agent is a lane with a label in its first step."""

from typing import Any

import pytest
from agno.agent import Agent
from agno.team import Team
from google.adk.agents import LlmAgent

from tests.adapters import agno_agent, claude_agent, google_adk_agent
from tests.adapters.agents import Deeds
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

pytestmark = [
    pytest.mark.live,
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning"),
]


def shown(agent: Any) -> list[Any]:
    """Ask an agent; return what its message shows, without the calls."""
    with AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
        answer = client.ask("What about owls?")
    answer.assert_legal(sdk="7")
    kinds: dict[str, Any] = {
        "step-start": lambda _: "step",
        "text": lambda part: part["text"],
        "data-agent": lambda part: part["data"],
    }
    return [kinds[part["type"]](part) for part in answer.message.parts if part["type"] in kinds]


def test_an_agent_of_adk_that_takes_over_is_a_lane() -> None:
    handoff = ModelAnswer(calls=[ModelCall("transfer_to_agent", {"agent_name": "researcher"})])
    with ScriptedModel([handoff, "Owls see well."]) as model:
        claude = google_adk_agent.ScriptedClaude(model="claude-test", url=model.anthropic_url)
        researcher = LlmAgent(name="researcher", model=claude, description="Knows owls.")
        contents = shown(LlmAgent(name="assistant", model=claude, sub_agents=[researcher]))
        assert model.refusals == []
    assert contents == ["step", "step", {"name": "researcher"}, "Owls see well."]


def test_a_member_of_a_team_of_agno_is_a_lane() -> None:
    task = ModelCall("delegate_task_to_member", {"member_id": "researcher", "task": "Owls?"})
    with ScriptedModel([ModelAnswer(calls=[task]), "Owls see well.", "They see."]) as model:
        researcher = Agent(name="researcher", model=agno_agent.chat_model(model, "anthropic"), telemetry=False)
        team = Team(
            name="team",
            model=agno_agent.chat_model(model, "anthropic"),
            members=[researcher],
            stream_member_events=True,
            telemetry=False,
        )
        contents = shown(team)
        assert model.refusals == []
    assert contents == ["step", {"name": "researcher"}, "Owls see well.", "step", "They see."]  # while the call is open


@pytest.mark.filterwarnings("ignore:can_use_tool will not be invoked for", "ignore:Exception ignored in. <function Mem")
@pytest.mark.parametrize(("approve", "done"), [(True, ["delete a"]), (False, [])])
def test_a_sub_agent_of_claude_asks_for_a_permission(approve: bool, done: list[str]) -> None:
    task = ModelCall("Agent", {"subagent_type": "researcher", "description": "Asks.", "prompt": "Delete a."})
    delete = ModelCall(f"{claude_agent.PREFIX}delete", {"path": "a"})
    deeds = Deeds()
    with (
        ScriptedModel([ModelAnswer(calls=[task]), ModelAnswer(calls=[delete]), "I tried.", "Done."]) as model,
        claude_agent.make(model, "anthropic", deeds) as options,
        AgentClient(options, headers={"x-ai-sdk": "7"}, approve=approve) as client,
    ):
        answer = client.ask("Delete a.")
        assert model.refusals == []
    answer.assert_legal(sdk="7")
    assert [tool.state for tool in answer.tools] == [
        "output-available",
        f"output-{'available' if approve else 'denied'}",
    ]
    assert (answer.tools[0].output, deeds.done) == ("I tried.", done)
    texts = [part["text"] for part in answer.message.parts if part["type"] == "text"]
    assert texts == ["I tried.", "Done."]
