"""The app that `usechat serve` serves in the processes that are killed at random; its environment says which.

Every agent gives the same answer: four texts, and behind the first three of them tools. Each effect is a line of a
file, and happens at most once in the life of an answer. A model that reads the history decides what is next
(:mod:`tests.chats.killing`).
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from agents import Agent as OpenAIAgent
from agents import OpenAIResponsesModel, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.chats.killing import PREFIX, STEPS
from usechat import Turn
from usechat.adapters import conversation
from usechat.adapters import openai as openai_adapter
from usechat.chats import SqlChats
from usechat.errors import UnknownOutcome
from usechat.parts import Part, ToolCall, ToolResult
from usechat.runs.redis.store import RedisRuns
from usechat.server import ChatApp, Settings

__all__ = ["make_app"]

_WORKING: Final = 0.03
"""Seconds that an effect takes, before and after it."""


def _note(line: str) -> None:
    with Path(os.environ[f"{PREFIX}EFFECTS"]).open("a") as file:
        file.write(line)


async def act(what: str) -> str:
    """Have an effect."""
    await asyncio.sleep(_WORKING)
    _note(f"{what}\n")
    await asyncio.sleep(_WORKING)
    return f"{what} is done"


def _client() -> AsyncOpenAI:
    return AsyncOpenAI(base_url=os.environ[f"{PREFIX}MODEL"], api_key="none", max_retries=0)


def _pydantic() -> Any:
    return Agent(OpenAIChatModel("gpt-4o", provider=OpenAIProvider(openai_client=_client())), tools=[act])


def _openai_agents() -> Any:
    set_tracing_disabled(True)
    model = OpenAIResponsesModel(model="gpt-4o", openai_client=_client())
    return OpenAIAgent(name="assistant", model=model, tools=[function_tool(act)])


def _loop() -> Any:
    schema = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
    tools: Any = [{"type": "function", "function": {"name": "act", "parameters": schema}}]
    client = _client()

    async def answer(turn: Turn) -> AsyncIterator[Part]:
        history = conversation.history(turn)
        while True:
            messages: Any = openai_adapter.to_chat_completions(history)
            stream = await client.chat.completions.create(model="gpt-4o", messages=messages, tools=tools, stream=True)
            parts: list[Part] = []
            async for part in openai_adapter.parts(stream):
                parts.append(part)
                yield part
            calls = [part for part in parts if isinstance(part, ToolCall)]
            if not calls:
                return
            for call in calls:
                parts.append(ToolResult(call.tool_call_id, await act(**call.input)))
                yield parts[-1]
            history += conversation.messages_of(parts)

    return answer


def _steps() -> Any:
    async def answer(turn: Turn) -> AsyncIterator[str]:
        if turn.text != "Go":
            yield "More."
            return
        for text, effects in STEPS:
            for piece in text.partition("i"):
                yield piece
                await asyncio.sleep(_WORKING)
            for effect in effects:
                try:
                    await turn.step("act", act, effect)
                except UnknownOutcome:  # it may have happened, so it does not happen again
                    yield ""

    return answer


_MAKERS: Final = {"loop": _loop, "openai-agents": _openai_agents, "pydantic": _pydantic, "steps": _steps}


def make_app() -> ChatApp:
    """Return the app that the environment asks for."""
    environment = {name.removeprefix(PREFIX): value for name, value in os.environ.items() if name.startswith(PREFIX)}
    lease = float(environment["LEASE"])
    redis = environment["REDIS"]
    rule: Any = environment["AFTER_CRASH"] or None
    return ChatApp(
        _MAKERS[environment["AGENT"]](),
        chats=SqlChats(environment["DATABASE"], lease=lease),
        runs=RedisRuns(redis, lease=lease) if redis else None,
        settings=Settings(sdk="7", disconnect="continue", after_crash=rule),
        metrics=False,
        drain=0.1,
    )
