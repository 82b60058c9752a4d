"""How the demo's own writer makes an answer: it quotes what fits the question best, and says where that is from."""

import re
from typing import Final, NamedTuple

from usechat.demo.library import words_of

__all__ = ["NOTHING_FOUND", "compose"]

NOTHING_FOUND: Final = "The documentation does not answer this."
_TOPICS: Final = "Ask about serving, resuming, stopping, authentication, metrics, flows or checking."
_GREETING: Final = re.compile(r"\W*(hi|hello|hey|good (morning|day|evening)|thanks?|thank you|bye)\b", re.IGNORECASE)
_WELCOME: Final = (
    "I answer questions about usechat from its own documentation, with a script instead of a model. "
    f"{_TOPICS} I can also calculate `(17 + 4) * 2`, fail to find the weather, and delete your notes if you consent."
)
_SECTION: Final = re.compile(
    r"^### ([\w-]+\.md)#\S+\n\n([^\n]+)\n\n(.*?)(?=\n\n### [\w-]+\.md#|\Z)", re.DOTALL | re.MULTILINE
)
_LINK: Final = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)")
_LONGEST: Final = 16
"""Lines of a code block or a table that are quoted."""


class _Quote(NamedTuple):
    page: str
    heading: str
    text: str


def compose(prompt: str) -> str:
    """Write an answer from the prompt of the flow's writer: what was asked, what was found."""
    question = _between(prompt, "Question: ", "\n\nWhat the researcher said: ")
    said = _between(prompt, "What the researcher said: ", "\n\nSections:")
    sections = [_Quote(*found) for found in _SECTION.findall(prompt)]
    told = [line.partition(" said: ")[2] for line in said.splitlines() if " said: " in line]
    answers = [_tool_sentence(text) for text in told]
    if sections:
        answers += [_best(sections[0], question), _cited([section.page for section in sections])]
    if not answers:
        greeting = _GREETING.match(question)
        greeted = greeting and ("You are welcome." if greeting[1].lower().startswith("thank") else "Hello!")
        answers.append(f"{greeted} {_WELCOME}" if greeted else f"{NOTHING_FOUND} {_TOPICS}")
    return "\n\n".join(answers)


def _tool_sentence(text: str) -> str:
    failed = text.startswith("Error: ")
    return f"That did not work: {text.removeprefix('Error: ')}" if failed else f"The result is **{text}**."


def _cited(pages: list[str]) -> str:
    links = [f"[{page}](docs/{page})" for page in dict.fromkeys(pages)]
    more = f"; see also {' and '.join(links[1:])}" if links[1:] else ""
    return f"This is from {links[0]}{more}."


def _best(section: _Quote, question: str) -> str:
    """Return the block of a section that shares most with the question, and what belongs to it."""
    blocks = _blocks(section.text)
    words = {_stem(word) for word in words_of(question)}
    scores = [len(words & {_stem(word) for word in words_of(block)}) for block in blocks]
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
    quoted = [_shortened(_LINK.sub(r"\1", block)) for block in blocks[first:last]]
    return "\n\n".join(quoted if _is_prose(blocks[first]) else [f"**{section.heading}**:", *quoted])


def _blocks(text: str) -> list[str]:
    """Cut at blank lines, but not within a fence."""
    blocks, lines, fenced = list[str](), list[str](), False
    for line in [*text.splitlines(), ""]:
        fenced ^= line.startswith("```")
        if line or fenced:
            lines.append(line)
        elif lines:
            blocks.append("\n".join(lines))
            lines = []
    return blocks or [text]


def _is_prose(block: str) -> bool:
    return not block.startswith(("```", "|", "- ", "1. "))


def _shortened(block: str) -> str:
    lines = block.splitlines()
    if _is_prose(block) or len(lines) <= _LONGEST:
        return block
    return "\n".join([*lines[:_LONGEST], *(["…", "```"] if block.startswith("```") else ["", "…"])])


def _stem(word: str) -> str:
    return re.sub(r"(ing|ed|es|s)$", "", word) if len(word) > 4 else word


def _between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0].strip()
