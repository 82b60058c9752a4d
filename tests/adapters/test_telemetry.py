"""Each framework's turn is one span with the attributes for generative AI; what its tools trace is below that span."""

import pytest
from pydantic_ai.models.instrumented import InstrumentationSettings

from tests.adapters.agents import Deeds, Framework
from tests.adapters.frameworks import FRAMEWORKS
from tests.adapters.telemetry import Traced, check_failed_turn, check_turn
from usechat.server import ChatApp
from usechat.testing import AgentClient, ScriptedModel


@pytest.mark.parametrize("framework", [FRAMEWORKS[0], *FRAMEWORKS[2:]], ids=lambda framework: framework.page)
def test_a_turn_is_one_span_with_its_tokens_and_its_reason(framework: Framework) -> None:
    check_turn(framework)


@pytest.mark.parametrize("framework", [FRAMEWORKS[0], *FRAMEWORKS[2:]], ids=lambda framework: framework.page)
def test_a_turn_whose_model_fails_is_a_span_with_the_type_of_the_error(framework: Framework) -> None:
    check_failed_turn(framework)


def test_the_own_spans_of_pydantic_ai_are_below_that_of_the_turn() -> None:
    traced = Traced()
    with ScriptedModel(["Hello."]) as model:
        agent = FRAMEWORKS[2].make(model, "chat", Deeds())
        agent.instrument = InstrumentationSettings(tracer_provider=traced.provider)
        with AgentClient(ChatApp(agent, observer=traced.observer)) as client:
            client.ask("Hi.")
        assert model.refusals == []
    assert "invoke_agent assistant" in traced.ancestors("chat ")
