"""How the demo's own writer makes an answer: it quotes what fits the question best, and says where that is from."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, NamedTuple

from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.profiles import ModelProfile

from usechat.demo.library import telling_words_of, words_of
from usechat.protocol.values import json_text

__all__ = [
    "NOTHING_FOUND",
    "compose",
    "researcher",
    "writer",
]


NOTHING_FOUND: Final = "I found nothing about that."
_TOPICS: Final = "Ask about serving, resuming, stopping, authentication, metrics, flows or checking."
_GREETING: Final = re.compile(r"\W*(hi|hello|hey|good (morning|day|evening)|thanks?|thank you|bye)\b", re.IGNORECASE)
_WELCOME: Final = (
    "I answer questions about usechat from its own documentation, with a script instead of a model. "
    f"{_TOPICS} I can also calculate `(17 + 4) * 2`, fail to find the weather, and delete your notes if you consent."
)
_ABOUT_ITSELF: Final = re.compile(
    r"\W*help\W*$"
    r"|.*\b(who|what) are you\b"
    r"|.*\bare you (an? )?(ai|bot|chatbot|chatgpt|human|llm|model|person|real|robot|script)\b"
    r"|.*\bwhat (can|do) you (answer|do|know)\b"
    r"|.*\bwhat can i ask\b"
    r"|.*\b(what|which) ((ai|language) )?(llm|model) (are|do) you\b",
    re.IGNORECASE,
)
"""Questions about the one who answers: the documentation has other things in mind that are called so."""
_SECTION: Final = re.compile(
    r"^### \[([^\]\n]+)\]\((docs/[^)\s]+)\)\n\n(.*?)(?=\n\n### \[|\n\nNearest headings:)", re.DOTALL | re.MULTILINE
)
_NEAREST: Final = re.compile(r"^Nearest headings: (.+)$", re.MULTILINE)
_RESULT: Final = re.compile(r"^- (Result|No result): (.+)", re.MULTILINE)
"""How the researcher notes what a tool returned; the writer makes a sentence of it."""
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)")
_CONTINUES: Final = re.compile(r"(Also|And|But|Or|Then)\b")
"""How a block begins that says nothing without the one before it."""
_LONGEST: Final = 16
"""Lines of a code block or a table that are quoted."""


class _Quote(NamedTuple):
    name: str
    link: str
    text: str


def compose(prompt: str) -> str:
    """Write an answer from the prompt of the flow's writer: what was asked, what was found."""
    question = _between(prompt, "Question: ", "\n\nWhat the researcher said: ")
    said = _between(prompt, "What the researcher said: ", "\n\nSections:")
    if _ABOUT_ITSELF.match(question):
        return _WELCOME
    sections = [_Quote(*found) for found in _SECTION.findall(prompt)]
    answers = [
        f"The result is **{value}**." if kind == "Result" else f"That did not work: {value}"
        for kind, value in _RESULT.findall(said)
    ]
    if sections:
        answers += [_best(sections[0], question), _cited(sections)]
    if not answers:
        greeting = _GREETING.match(question)
        greeted = greeting and ("You are welcome." if greeting[1].lower().startswith("thank") else "Hello!")
        answers.append(f"{greeted} {_WELCOME}" if greeted else _nothing(prompt))
    return "\n\n".join(answers)


def _nothing(prompt: str) -> str:
    nearest = _NEAREST.search(prompt)
    return f"{NOTHING_FOUND} The nearest headings: {nearest[1]}." if nearest else f"{NOTHING_FOUND} {_TOPICS}"


def _cited(sections: list[_Quote]) -> str:
    links = [f"[{section.name}]({section.link})" for section in sections]
    more = f" See also {' and '.join(links[1:])}." if links[1:] else ""
    return f"From {links[0]}.{more}"


def _best(section: _Quote, question: str) -> str:
    """Return the block that shares most with the question, and what belongs to it; by default the section's first."""
    blocks = _blocks(section.text)
    words = _stems(telling_words_of(question)) - _stems(words_of(section.name))
    scores = [_shared(words, block) for block in blocks]
    best = scores.index(max(scores))
    first, last = best, best + 1
    if not _is_prose(blocks[best]):
        if best > 0 and _is_prose(blocks[best - 1]):
            first = best - 1
        elif blocks[last:] and _is_prose(blocks[last]):
            last += 1
    elif blocks[last:] and not _is_prose(blocks[last]):
        last += 1
    while blocks[last - 1].endswith(":") and blocks[last:]:
        last += 1
    first = _beginning(blocks, first)
    quoted = [_shortened(_LINK.sub(r"\1", block), words) for block in blocks[first:last]]
    return "\n\n".join(quoted if _is_prose(blocks[first]) else [f"**{section.name}**:", *quoted])


def _beginning(blocks: list[str], first: int) -> int:
    """Return where to begin, so that a block that continues another one has that before it."""
    while first > 0 and _CONTINUES.match(blocks[first]):
        first -= 1
        while first > 0 and not _is_prose(blocks[first]):
            first -= 1
    return first


def _blocks(text: str) -> list[str]:
    """Cut at blank lines, but not within a fence. Images are left out: they are not served."""
    blocks, lines, fenced = list[str](), list[str](), False
    for line in [*text.splitlines(), ""]:
        fenced ^= line.startswith("```")
        if line or fenced:
            lines.append(line)
        elif lines:
            blocks.append("\n".join(lines))
            lines = []
    return [block for block in blocks if not block.startswith("![")] or [text]


def _is_prose(block: str) -> bool:
    return not block.startswith(("```", "|", "- ", "1. "))


def _shortened(block: str, words: set[str]) -> str:
    """Return the lines of a long block that share most with the words; by default its first."""
    lines = block.splitlines()
    above = lines[:1] if block.startswith("```") else lines[:2] if block.startswith("|") else []
    below = ["```"] if block.startswith("```") else []
    inner = lines[len(above) : len(lines) - len(below)]
    if _is_prose(block) or len(inner) <= _LONGEST:
        return block
    start = max(range(len(inner) - _LONGEST + 1), key=lambda at: _shared(words, "\n".join(inner[at : at + _LONGEST])))
    shown = inner[start : start + _LONGEST]
    more = ["…"] if below else ["", "…"]
    return "\n".join(
        [*above, *(["…"] if start and below else []), *shown, *(more if start + _LONGEST < len(inner) else []), *below]
    )


def _shared(words: set[str], text: str) -> int:
    return len(words & _stems(words_of(text)))


def _stems(words: Iterable[str]) -> set[str]:
    return {re.sub(r"(ing|ed|es|s)$", "", word) if len(word) > 4 else word for word in words}


def _between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0].strip()


# The demo's own model follows a script, so that the demo needs no key and no network. It really runs through
# pydantic-ai, at the pace of a model, and calls the same tools.

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
            found = result.content if isinstance(result.content, dict) else {}
            lines += [] if found.get("found") else [NOTHING_FOUND]
            lines += [f"- {section['section']}" for section in found.get("found") or found.get("nearest") or ()]
        elif str(result.content).startswith("Error: "):
            lines.append(f"- No result: {str(result.content).removeprefix('Error: ')}")
        else:
            lines.append(f"- Result: {result.content}")
    return "\n".join(lines)
