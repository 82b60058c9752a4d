"""Spans and token counts of the frameworks of the second column, with the frameworks."""

import pytest

from tests.adapters.agents import Framework
from tests.adapters.recorded_frameworks import RECORDED_FRAMEWORKS
from tests.adapters.telemetry import check_failed_turn, check_turn

pytestmark = [
    pytest.mark.live,
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:Exception ignored in. <function MemoryObject"),  # left by Claude's SDK
    pytest.mark.filterwarnings("ignore:can_use_tool will not be invoked for"),  # Claude: tools that need no permission
]

REMOTE = {"a2a_agent:make", "ag_ui_agent:at_an_address"}
IN_PROCESS = [
    framework
    for framework in RECORDED_FRAMEWORKS
    if framework.environment == "frameworks" and framework.factory not in REMOTE
]


@pytest.mark.parametrize("framework", IN_PROCESS, ids=lambda framework: framework.name)
def test_a_turn_is_one_span_with_its_tokens_and_its_reason(framework: Framework) -> None:
    check_turn(framework)


@pytest.mark.parametrize("framework", IN_PROCESS, ids=lambda framework: framework.name)
def test_a_turn_whose_model_fails_is_a_span_with_the_type_of_the_error(framework: Framework) -> None:
    check_failed_turn(framework)
