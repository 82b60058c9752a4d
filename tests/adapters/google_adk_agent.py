"""The agent of the scripts as an agent of Google ADK, whose model speaks Anthropic's API."""

from functools import cached_property
from typing import Any

from anthropic import AsyncAnthropic
from google.adk.agents import LlmAgent
from google.adk.models.anthropic_llm import AnthropicLlm
from google.adk.tools import AgentTool, FunctionTool, LongRunningFunctionTool

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.testing import ScriptedModel


class ScriptedClaude(AnthropicLlm):  # type: ignore[misc]
    url: str

    @cached_property
    def _anthropic_client(self) -> AsyncAnthropic:
        return AsyncAnthropic(base_url=self.url, api_key="none", max_retries=0)


def location(exact: bool) -> None:
    """Say where the user is."""


def make(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:  # noqa: ARG001 (there is one)
    claude = ScriptedClaude(model="claude-test", url=model.anthropic_url)

    return LlmAgent(
        name="assistant",
        model=claude,
        instruction=INSTRUCTIONS,
        tools=[
            deeds.weather,
            deeds.clock,
            deeds.broken,
            deeds.slow,
            FunctionTool(deeds.delete, require_confirmation=True),
            LongRunningFunctionTool(location),
            AgentTool(LlmAgent(name="research", model=claude, description="Asks another agent about a topic.")),
        ],
    )
