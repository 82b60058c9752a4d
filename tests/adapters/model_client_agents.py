"""The agent of the scripts as a function that calls the model in a loop, with the clients of OpenAI and Anthropic."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat import Turn
from usechat.adapters import anthropic as anthropic_adapter
from usechat.adapters import conversation
from usechat.adapters import openai as openai_adapter
from usechat.parts import Part, ToolCall, ToolError, ToolResult
from usechat.protocol.model_messages import ModelMessage
from usechat.testing import ScriptedModel

Ask = Callable[[Sequence[ModelMessage]], Awaitable[AsyncIterator[Part]]]
_PARAMETERS = {
    "weather": "city",
    "clock": "zone",
    "broken": "reason",
    "slow": "task",
    "location": "exact",
}


def _schema(parameter: str) -> dict[str, Any]:
    return {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}


def chat_tools() -> list[Any]:
    return [
        {"type": "function", "function": {"name": name, "parameters": _schema(parameter)}}
        for name, parameter in _PARAMETERS.items()
    ]


async def _run(deeds: Deeds, call: ToolCall) -> Part:
    try:
        result = getattr(deeds, call.tool_name)(**call.input)
        return ToolResult(call.tool_call_id, await result if inspect.isawaitable(result) else result)
    except RuntimeError:
        return ToolError(call.tool_call_id, "It failed.")


def agent_of(ask: Ask, deeds: Deeds) -> Any:
    """Return an agent function that asks a model and runs the tools, until it has an answer."""

    async def answer(turn: Turn) -> AsyncIterator[Part]:
        history = conversation.history(turn)
        while True:
            parts: list[Part] = []
            async for part in await ask(history):
                parts.append(part)
                yield part
            calls = [part for part in parts if isinstance(part, ToolCall) and not part.provider_executed]
            if not calls or any(call.tool_name == "location" for call in calls):
                return  # the page answers
            for call in calls:
                parts.append(await _run(deeds, call))
                yield parts[-1]
            history += conversation.messages_of(parts)

    return answer


def openai(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    client = AsyncOpenAI(base_url=model.openai_url, api_key="none", max_retries=0)

    async def ask_chat(history: Sequence[ModelMessage]) -> AsyncIterator[Part]:
        messages = [{"role": "system", "content": INSTRUCTIONS}, *openai_adapter.to_chat_completions(history)]
        stream: Any = await client.chat.completions.create(
            model="gpt-4o",
            messages=messages,
            tools=chat_tools(),
            stream=True,
            stream_options={"include_usage": True},
        )
        return openai_adapter.parts(stream)

    async def ask_responses(history: Sequence[ModelMessage]) -> AsyncIterator[Part]:
        tools: list[Any] = [
            {"type": "function", "name": name, "parameters": _schema(parameter), "strict": False}
            for name, parameter in _PARAMETERS.items()
        ]
        stream: Any = await client.responses.create(
            model="gpt-4o",
            instructions=INSTRUCTIONS,
            input=openai_adapter.to_responses(history),
            tools=tools,
            stream=True,
        )
        return openai_adapter.parts(stream)

    return agent_of(ask_responses if api == "responses" else ask_chat, deeds)


def anthropic(model: ScriptedModel, api: Api, deeds: Deeds) -> Any:
    assert api == "anthropic"
    client = AsyncAnthropic(base_url=model.anthropic_url, api_key="none", max_retries=0)
    tools: Any = [{"name": name, "input_schema": _schema(parameter)} for name, parameter in _PARAMETERS.items()]

    async def ask(history: Sequence[ModelMessage]) -> AsyncIterator[Part]:
        stream = await client.messages.create(
            model="claude-test",
            max_tokens=4096,
            system=INSTRUCTIONS,
            messages=anthropic_adapter.to_anthropic(history),
            tools=tools,
            thinking={"type": "enabled", "budget_tokens": 1024} if _has_thinking(history) else {"type": "disabled"},
            stream=True,
        )
        return anthropic_adapter.parts(stream)

    return agent_of(ask, deeds)


def _has_thinking(history: Sequence[ModelMessage]) -> bool:
    """The model is strict about thinking if it is enabled; the scripts have answers without it, too."""
    content: Any = next((each["content"] for each in reversed(history) if each["role"] == "assistant"), ())
    return any(part["type"] == "reasoning" for part in content)
