"""The demo's own model: it follows a script, so that the demo needs no key and no network.

It runs through pydantic-ai, at the pace of a model, and calls the tools that a real model would call. Its answer quotes
what they returned.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.profiles import ModelProfile

from usechat.documentation import significant_words
from usechat.values import json_text

__all__ = ["NOTHING_FOUND", "script"]

PACE: Final = 0.03
"""Seconds per word: some thirty tokens a second."""
NOTHING_FOUND: Final = "I found nothing about that in the documentation."
_WELCOME: Final = (
    "I answer questions about usechat with quotes from its documentation: I am a script, not a model. Ask about"
    " serving, resuming, stopping, authentication, metrics, flows or checking. I can also calculate `(17 + 4) * 2`,"
    " fail to find the weather, and delete your notes if you consent."
)
_SMALL_TALK: Final = re.compile(
    r"\W*(hi|hello|hey|good (morning|day|evening)|thanks?|thank you|bye|help)\b[^?]{0,20}$"
    r"|.*\b(who|what) are you\b|.*\bwhat can (you do|i ask)\b",
    re.IGNORECASE,
)
_ARITHMETIC: Final = re.compile(r"[\d.(]+(?:\s*[-+*/%()]+\s*[\d.()]+)+")
_WEATHER: Final = re.compile(r"\bweather\b(?:.*\bin ([a-z][a-z '-]*[a-z]))?", re.IGNORECASE)


def script(pace: float = PACE) -> FunctionModel:
    """Return the model; ``pace`` is in seconds per word."""

    async def stream(messages: list[ModelMessage], _info: AgentInfo) -> AsyncIterator[Any]:
        for piece in _pieces(*_last_question(messages)):
            yield piece
            await asyncio.sleep(pace)

    return FunctionModel(stream_function=stream, model_name="script", profile=ModelProfile(supports_thinking=True))


def _last_question(messages: list[ModelMessage]) -> tuple[str, list[ToolReturnPart]]:
    """Return the last question, and what the tools have returned since."""
    question, results = "", list[ToolReturnPart]()
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, UserPromptPart):
            question, results = str(part.content), []
        elif isinstance(part, ToolReturnPart):
            results.append(part)
    return question, results


def _pieces(question: str, results: list[ToolReturnPart]) -> Iterator[Any]:
    """Yield the response of the model: small talk, or tool calls, or the answer from their results."""
    if results or _SMALL_TALK.match(question):
        text = "\n\n".join(map(_result_text, results)) or _WELCOME
        yield from re.findall(r"\s*\S+", text)
    else:
        topic = ", ".join(significant_words(question)[:5]) or "nothing in particular"
        thought = f"The question is about {topic}. I look into the documentation before I answer."
        yield from ({0: DeltaThinkingPart(content=word)} for word in re.findall(r"\s*\S+", thought))
        yield _calls(question)


def _calls(question: str) -> dict[int, DeltaToolCall]:
    calls: list[tuple[str, dict[str, str]]] = []
    arithmetic = _ARITHMETIC.search(question)
    words = question.replace(arithmetic[0], "") if arithmetic else question
    if arithmetic:
        calls.append(("calculate", {"expression": arithmetic[0].strip()}))
    if weather := _WEATHER.search(question):
        calls.append(("weather", {"city": (weather[1] or "Lisbon").title()}))
    elif not arithmetic or significant_words(words):
        calls.append(("search_docs", {"query": words}))
    return {number: DeltaToolCall(name, json_text(fields)) for number, (name, fields) in enumerate(calls, 1)}


def _result_text(result: ToolReturnPart) -> str:
    if str(result.content).startswith("Error: "):
        return f"That did not work: {str(result.content).removeprefix('Error: ')}"
    if result.tool_name != "search_docs":
        return f"The result is **{result.content}**."
    passages = result.content if isinstance(result.content, list) else []
    quotes = [f"{passage['text']}\n\nFrom [{passage['section']}]({passage['link']})." for passage in passages]
    return "\n\n---\n\n".join(quotes) or NOTHING_FOUND
