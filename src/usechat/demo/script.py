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

from usechat.demo.library import words_of
from usechat.values import json_text

__all__ = ["NOTHING_FOUND", "researcher", "writer"]

PACE: Final = 0.03
"""Seconds per word: some thirty tokens a second."""
NOTHING_FOUND: Final = "The documentation does not answer this."
_ARITHMETIC: Final = re.compile(r"[\d.(]+(?:\s*[-+*/%()]+\s*[\d.()]+)+")
_WEATHER: Final = re.compile(r"\bweather\b(?:.*\bin ([A-Z]\w+))?")
_SENTENCE: Final = re.compile(r"(?<=[.:!?])\s+(?=[A-Z`*])")


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
    if arithmetic := _ARITHMETIC.search(question):
        calls.append(("calculate", {"expression": arithmetic[0].strip()}))
    if place := _WEATHER.search(question):
        calls.append(("weather", {"city": place[1] or "Lisbon"}))
    if not calls:
        calls.append(("search_docs", {"query": question}))
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


def compose(prompt: str) -> str:
    """Write an answer from the prompt of the flow's writer: what was asked, what was found."""
    question = _between(prompt, "Question: ", "\n\nWhat the researcher said: ")
    said = _between(prompt, "What the researcher said: ", "\n\nSections:")
    sections = re.findall(r"^### ([\w-]+\.md)#\S+\n\n(.*?)(?=\n\n### [\w-]+\.md#|\Z)", prompt, re.DOTALL | re.MULTILINE)
    told = [line.partition(" said: ")[2] for line in said.splitlines() if " said: " in line]
    if told:
        return "\n\n".join(_tool_sentence(text) for text in told)
    if not sections:
        return f"{NOTHING_FOUND} Ask about serving, resuming, stopping, authentication, metrics, flows or checking."
    first_page, text = sections[0]
    pages = list(dict.fromkeys(page for page, _ in sections))
    more = [f"[{page}](docs/{page})" for page in pages[1:]]
    answer = f"{_best(text, question)}\n\nThis is from [{first_page}](docs/{first_page})"
    return f"{answer}; see also {' and '.join(more)}." if more else f"{answer}."


def _tool_sentence(text: str) -> str:
    return (
        f"That did not work: {text.removeprefix('Error: ')}"
        if text.startswith("Error: ")
        else f"The result is **{text}**."
    )


def _best(text: str, question: str) -> str:
    """Return the paragraph that shares most with the question, and the code or table that follows it."""
    blocks = [block for block in re.split(r"\n\n(?=(?:[^`]*```[^`]*```)*[^`]*\Z)", text) if block.strip()]
    words = set(words_of(question))
    scored = [(len(words & set(words_of(block))), -number) for number, block in enumerate(blocks)]
    best = -max(scored, default=(0, 0))[1]
    chosen = blocks[best : best + 1]
    if chosen and chosen[0].rstrip().endswith(":"):
        chosen += blocks[best + 1 : best + 2]
    return "\n\n".join(chosen) or text[:300]


def _between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0].strip()
