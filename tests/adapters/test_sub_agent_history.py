"""What an agent says that works for a tool: a page shows it, and the main agent reads the result of the tool alone."""

from typing import Any

import pytest
from agents import set_tracing_disabled

from tests.adapters import langgraph_agent, openai_agents_agent, pydantic_ai_agent
from tests.adapters.agents import Deeds
from usechat.protocol.ui_messages import text_of
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

RESEARCH = ModelAnswer(calls=[ModelCall("research", {"topic": "owls"})])


@pytest.mark.parametrize("make", [langgraph_agent.without_memory, pydantic_ai_agent.make, openai_agents_agent.make])
@pytest.mark.parametrize("sdk", ["5", "7"])
def test_the_words_of_a_sub_agent_stay_out_of_later_turns(make: Any, sdk: str) -> None:
    set_tracing_disabled(True)
    with ScriptedModel([RESEARCH, "Owls see well.", "They see.", "Bye."]) as model:
        with AgentClient(make(model, "chat", Deeds()), headers={"x-ai-sdk": sdk}, sdk=sdk) as client:
            client.ask("What about owls?").assert_legal(sdk=sdk)
            assert text_of(client.messages[-1]) == "Owls see well.They see."
            assert client.ask("Bye").text == "Bye."
        history = [message for message in model.requests[-1]["messages"] if message["role"] != "system"]
    assert [message["role"] for message in history] == ["user", "assistant", "tool", "assistant", "user"]
    assert ["Owls see well." in str(message) for message in history] == [False, False, True, False, False]
