"""The agent of the scripts as a function that calls the model in a loop, with LiteLLM."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import litellm

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from tests.adapters.model_client_agents import agent_of, chat_tools
from usechat.adapters import litellm as litellm_adapter
from usechat.parts import Part
from usechat.protocol.model_messages import ModelMessage
from usechat.testing import ScriptedModel


def make(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    name, url = {
        "chat": ("openai/gpt-4o", model.openai_url),
        "anthropic": ("anthropic/claude-sonnet-4-5", model.anthropic_url),
    }[api]

    async def ask(history: Sequence[ModelMessage]) -> AsyncIterator[Part]:
        stream = await litellm.acompletion(
            model=name,
            api_base=url,
            api_key="none",
            max_retries=0,
            messages=[{"role": "system", "content": INSTRUCTIONS}, *litellm_adapter.to_litellm(history)],
            tools=chat_tools(),
            stream=True,
            stream_options={"include_usage": True},
        )
        return litellm_adapter.parts(stream)

    return agent_of(ask, deeds)
