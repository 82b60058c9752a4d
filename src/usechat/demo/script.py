"""The demo's own model: it follows a script, so that the demo needs no key and no network.

It runs through pydantic-ai, at the pace of a model, and calls the tool that a real model would call. Its answer quotes
what it returned.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.profiles import ModelProfile

from usechat.values import json_text

__all__ = ["NOTHING_FOUND", "script"]

PACE: Final = 0.03
"""Seconds per word: some thirty tokens a second."""
NOTHING_FOUND: Final = "I found nothing about that in the documentation."
_WELCOME: Final = (
    "I answer questions about usechat with quotes from its documentation: I am a script, not a model. Ask about"
    " serving, resuming, stopping, authentication, metrics, flows or checking."
)
_SMALL_TALK: Final = re.compile(
    r"\W*(hi|hello|hey|good (morning|day|evening)|thanks?|thank you|bye|help)\b[^?]{0,20}$"
    r"|.*\b(who|what) are you\b|.*\bwhat can (you do|i ask)\b",
    re.IGNORECASE,
)


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
    """Yield the response of the model: small talk, or a search, or the answer from its results."""
    if results or _SMALL_TALK.match(question):
        text = "\n\n".join(map(_result_text, results)) or _WELCOME
        yield from re.findall(r"\s*\S+", text)
    else:
        thought = "The answer stands in the documentation, if anywhere. I look into it before I answer."
        yield from ({0: DeltaThinkingPart(content=word)} for word in re.findall(r"\s*\S+", thought))
        yield {1: DeltaToolCall("search_docs", json_text({"query": question}))}


def _result_text(result: ToolReturnPart) -> str:
    """Return what the passages of a search say, each with its link."""
    passages = result.content if isinstance(result.content, list) else []
    quotes = [f"{passage['text']}\n\nFrom [{passage['section']}]({passage['link']})." for passage in passages]
    return "\n\n".join(quotes) or NOTHING_FOUND
