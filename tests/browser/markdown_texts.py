"""Texts in Markdown that are hard to draw: everything mixed, and 100 kB of one thing."""

import random
from collections.abc import Callable, Mapping
from typing import Final

SIZE: Final = 100_000
END: Final = "\n\nend-of-answer"
WORDS: Final = (
    "word",
    "**bold**",
    "*slanted words*",
    "***both***",
    "~~gone~~",
    "`code * code`",
    "你好，**世界**。",
    "שלום",
    "👩‍👩‍👧",
    "🇵🇹",
    "snake_case_name",
    "2 * 3 * 4",
    "an unclosed **mark",
    "[a link](https://example.org/a_b)",
    "[a bracket",
    "20~25 km and 30~35 km",
    "<b>HTML</b>",
    "<i>open",
    "a&amp;b &copy; &lt;",
    "https://example.org/x",
    r"\*escaped\*",
    "$$a_1 + b$$",
    "costs $5 and $6",
    "[early][early]",
    "[late][]",
    "[late]",
    "[nowhere][nowhere]",
    "noted[^early]",
    "noted[^late]",
)


def mixed(seed: int, blocks: int = 120) -> str:
    """Return a text of many kinds of blocks; its links and notes are defined before and after their use."""
    chance = random.Random(seed)
    kinds: list[Callable[[random.Random], str]] = [
        _paragraph,
        _paragraph,
        _heading,
        _list,
        _quote,
        _table,
        _fence,
        _fence_in_list,
        _html,
        _formula,
        lambda _: "---",
        lambda _: "    indented code\n\n    and more",
    ]
    text = [chance.choice(kinds)(chance) for _ in range(blocks)]
    text.insert(2, "[early]: https://example.org/early 'Early'\n\n[^early]: A note *before* its use.")
    text.append("[late]: <https://example.org/late>\n\n[^late]: A note after its use.\n\n    It has two paragraphs.")
    return "\n\n".join(text) + "\n"


def _words(chance: random.Random, least: int = 1, most: int = 25) -> str:
    return " ".join(chance.choices((*WORDS, *["plain"] * 30), k=chance.randint(least, most)))


def _paragraph(chance: random.Random) -> str:
    lines = [_words(chance) for _ in range(chance.randint(1, 4))]
    return chance.choice(["\n", "  \n", "\\\n"]).join(lines)


def _heading(chance: random.Random) -> str:
    words = _words(chance, 1, 4)
    return chance.choice([f"## {words}", f"Set {words}\n===", f"Set {words}\n---"])


def _list(chance: random.Random) -> str:
    items: list[str] = []
    for number in range(chance.randint(2, 9)):
        indent = " " * chance.choice([0, 0, 4, 8]) if number else ""
        mark = chance.choice(["-", "-", "- [x]", "- [ ]", f"{number + 1}."])
        items.append(f"{indent}{mark} {_words(chance, 1, 6)}")
    return chance.choice(["\n", "\n", "\n\n"]).join(items)


def _quote(chance: random.Random) -> str:
    inside = chance.choice([_paragraph, _list, _fence, _table, _heading])(chance)
    return "\n".join("> " * chance.randint(1, 2) + line for line in inside.splitlines())


def _table(chance: random.Random) -> str:
    rows = [f"| {_cell(chance)} | {_cell(chance)} |" for _ in range(chance.randint(1, 6))]
    return "\n".join(["| left | right |", "|:---|---:|", *rows])


def _cell(chance: random.Random) -> str:
    return _words(chance, 1, 3).replace("|", "")


def _fence(chance: random.Random) -> str:
    mark = chance.choice(["```", "~~~", "````"])
    return (
        f"{mark}{chance.choice(['', 'python', 'text'])}\ndef f():\n\n    return '**no bold**'\n\n# no heading\n{mark}"
    )


def _fence_in_list(chance: random.Random) -> str:
    code = _fence(chance).replace("\n", "\n  ")
    return f"- {_words(chance, 1, 3)}\n\n  {code}\n\n  after it\n- the next"


def _html(chance: random.Random) -> str:
    return chance.choice(
        [
            f"<details>\n<summary>More</summary>\n\n{_words(chance)}\n\n- in it\n\n</details>",
            "<div>\n\n<p>a paragraph</p>\n\n</div>",
            "<!-- a comment -->",
            "<pre>as it is</pre>",
        ]
    )


def _formula(chance: random.Random) -> str:
    return chance.choice(["$$\nx^2\n\n+ y\n$$", "A formula $$\\frac{1}{2}$$ in words."])


def _repeated(make: Callable[[int], str]) -> str:
    parts: list[str] = []
    for number in range(SIZE):
        parts.append(make(number))
        if number % 100 == 0 and sum(map(len, parts)) > SIZE:
            break
    return "".join(parts)


ODD: Final[Mapping[str, str]] = {
    "bold": "Words " + _repeated(lambda number: f"**bold{number}** and *slanted{number}* "),
    "footnotes": _repeated(
        lambda number: f"A claim {number} that wants *proof*[^{number}].\n\n[^{number}]: The source of {number}.\n\n"
    ),
    "nested": _repeated(lambda number: "  " * (number % 20) + f"- item {number} with *some* words\n"),
    "quote": _repeated(lambda number: f"> A *line* of the **quote** {number}.\n" + (">\n" if number % 3 == 0 else "")),
    "rows": "| name | number | bold | remark | code |\n|---|---|---|---|---|\n"
    + _repeated(
        lambda number: f"| row {number} | {number} | **{number}** | some words on {number} | `code_{number}` |\n"
    ),
    "references": _repeated(lambda number: f"See [the page][{number}], it has **many** words.\n\n- item {number}\n\n")
    + "".join(f"[{number}]: https://example.org/{number}\n" for number in range(3000)),
    "table": "| a | b | c |\n|---|---|---|\n"
    + _repeated(lambda number: f"| row {number} | {number} | **{number}** |\n"),
    "word": "x" * SIZE,
}
"""100 kB of one thing each."""
DEEP: Final = ">" * 6000 + " deep"
"""Deeper than any parser goes."""
