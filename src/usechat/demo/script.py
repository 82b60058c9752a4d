"""The demo's own model: it follows a script, so that the demo needs no key and no network.

It really runs through pydantic-ai, at the pace of a model, and calls the same tools.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.profiles import ModelProfile

from usechat.demo.composing import compose
from usechat.demo.library import words_of
from usechat.values import json_text

__all__ = ["researcher", "writer"]

PACE: Final = 0.03
"""Seconds per word: some thirty tokens a second."""
_ARITHMETIC: Final = re.compile(r"[\d.(]+(?:\s*[-+*/%()]+\s*[\d.()]+)+")
_WEATHER: Final = re.compile(r"\bweather\b(?:.*\bin ([a-z][a-z '-]*[a-z]))?", re.IGNORECASE)


def researcher(pace: float = PACE) -> FunctionModel:
    """Return the model that searches."""

    async def stream(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
        question, results = _asked(messages)
        if results:
            pieces: list[Any] = [_findings(results)]
        else:
            pieces = [*_thoughts(question), _calls(question)]
        for piece in pieces:
            yield piece
            await asyncio.sleep(pace)

    return FunctionModel(stream_function=stream, model_name="script", profile=ModelProfile(supports_thinking=True))


def writer(pace: float = PACE) -> FunctionModel:
    """Return the model that writes."""

    async def stream(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[str]:
        prompt, _ = _asked(messages)
        for word in re.findall(r"\s*\S+", compose(prompt)):
            yield word
            await asyncio.sleep(pace)

    return FunctionModel(stream_function=stream, model_name="script")


def _asked(messages: list[ModelMessage]) -> tuple[str, list[ToolReturnPart]]:
    """Return the last thing that was asked, and what the tools said since."""
    question, results = "", list[ToolReturnPart]()
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, UserPromptPart):
            question, results = str(part.content), []
        elif isinstance(part, ToolReturnPart):
            results.append(part)
    return question, results


def _thoughts(question: str) -> list[dict[int, DeltaThinkingPart]]:
    words = ", ".join(words_of(question)[:5]) or "nothing in particular"
    text = f"The question is about {words}. I look into the documentation before I answer."
    return [{0: DeltaThinkingPart(content=piece)} for piece in re.findall(r"\s*\S+", text)]


def _calls(question: str) -> dict[int, DeltaToolCall]:
    calls: list[tuple[str, dict[str, str]]] = []
    arithmetic = _ARITHMETIC.search(question)
    if arithmetic:
        calls.append(("calculate", {"expression": arithmetic[0].strip()}))
    if place := _WEATHER.search(question):
        calls.append(("weather", {"city": (place[1] or "Lisbon").title()}))
    elif not arithmetic or words_of(question.replace(arithmetic[0], "")):
        calls.append(("search_docs", {"query": question.replace(arithmetic[0], "") if arithmetic else question}))
    return {number: DeltaToolCall(name, json_text(given)) for number, (name, given) in enumerate(calls, 1)}


def _findings(results: list[ToolReturnPart]) -> str:
    lines = []
    for result in results:
        if result.tool_name == "search_docs":
            found = result.content if isinstance(result.content, list) else []
            lines += [f"- {section['section']}" for section in found] or ["Nothing was found."]
        else:
            lines.append(f"{result.tool_name} said: {result.content}")
    return "\n".join(lines)
