"""The guides of usechat: its pages, their sections, and a full-text search over them.

The pages are Markdown files, which a wheel carries and a checkout has beside the package. A section is what follows a
heading. A passage is a paragraph of a section, with the code, the list or the table that follows it: what is ranked is
what is quoted.

The index is SQLite's FTS5 in memory, with the porter stemmer and its own ranking (BM25). It takes some 50 ms to build,
once per process. A passage is found if it holds more than half of the words of a query, in its text or its headings;
words such as `the` do not count. There are no synonyms and no lists of questions: whoever searches for words that the
guides do not use finds nothing, and is told so.
"""

import re
import sqlite3
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import msgspec

from usechat.errors import LibraryMissing

__all__ = ["Documentation", "Passage", "Section", "documentation", "replace_links"]

_FOR_CONTRIBUTORS: Final = frozenset(
    {
        "AGENTS.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "open-harness-tests.md",
        "specification.md",
    }
)
"""Pages that are no guides."""
_WORD: Final = re.compile(r"[^\W_]+(?:[._-][^\W_]+)*")
_STOP_WORDS: Final = frozenset(
    _WORD.findall(
        "a about after all also am an and any are as at be been but by can could did do does doing each for from get"
        " had has have how i if in into is it its just like may me more most much must my no not now of on one only or"
        " other our out please s should so some such t than that the their them then there these they this those to"
        " too up us use used using usechat very want was we were what when where whether which while who why will with"
        " without would you your"
    )
)
_MOST_WORDS: Final = 32
"""Words of a query that are looked up."""
_EXCERPT_LINES: Final = 16
_FENCE: Final = re.compile(r"^(```.*?^```)", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"(?P<image>!?)\[(?P<label>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_ATTACHED: Final = ("```", "|", "- ", "1. ")
"""How code, tables and lists begin: they belong to the paragraph before them."""


class Section(msgspec.Struct, frozen=True):
    """One section of a page: ``id`` is ``page.md#heading``, as links name it; ``title`` is that of the page.

    >>> Section("zoo.md#lions", "zoo.md", "Zoo", "Lions", "They roar.").name
    'Zoo: Lions'
    """

    id: str
    page: str
    title: str
    heading: str
    text: str

    @property
    def name(self) -> str:
        """What readers see: the page's title and the heading."""
        return self.title if self.heading == self.title else f"{self.title}: {self.heading}"


class Passage(msgspec.Struct, frozen=True):
    """A paragraph of a section, with the code, the list or the table that follows it.

    >>> section = Section("zoo.md#lions", "zoo.md", "Zoo", "Lions", "They [roar](roar.md).")
    >>> Passage(section, section.text).excerpt
    'They roar.'
    """

    section: Section
    text: str

    @property
    def excerpt(self) -> str:
        """The first lines of a long passage, or the whole of a short one, without links: they lead from its page."""
        text = replace_links(self.text, lambda match: "" if match["image"] else match["label"])
        lines = text.splitlines()
        if len(lines) <= _EXCERPT_LINES:
            return text
        head = lines[:_EXCERPT_LINES]
        is_in_code = sum(line.startswith("```") for line in head) % 2
        return "\n".join([*head, *(["…", "```"] if is_in_code else ["", "…"])])


class Documentation:
    """Pages in Markdown, by name, that can be searched.

    >>> guides = Documentation({"zoo.md": "# Zoo\\n\\nAnimals.\\n\\n## Lions\\n\\nThey roar."})
    >>> [passage.section.name for passage in guides.search("Who roars?")]
    ['Zoo: Lions']
    """

    def __init__(self, pages: Mapping[str, str]) -> None:
        self.pages = pages
        self.sections = [section for name, text in pages.items() for section in _sections(name, text)]
        self._passages = [Passage(section, text) for section in self.sections for text in _passages(section.text)]
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._index.close)  # Python 3.13 warns of a connection that nobody closes
        self._index.execute("CREATE VIRTUAL TABLE passages USING fts5(title, heading, text, tokenize='porter')")
        rows = [(row, each.section.title, each.section.heading, each.text) for row, each in enumerate(self._passages)]
        self._index.executemany("INSERT INTO passages (rowid, title, heading, text) VALUES (?, ?, ?, ?)", rows)

    def search(self, query: str, limit: int = 3) -> list[Passage]:
        """Return the passages that hold the words of a query, the best first and one of each section."""
        terms = [f'"{word}"' for word in significant_words(query)[:_MOST_WORDS]]
        counts = Counter(row for term in terms for row in self._rows(term))
        rows = [row for row in self._rows(" OR ".join(terms)) if 2 * counts[row] > len(terms)] if terms else []
        best = dict[str, Passage]()
        for passage in (self._passages[row] for row in rows):
            best.setdefault(passage.section.id, passage)
        return [*best.values()][:limit]

    def _rows(self, expression: str) -> list[int]:
        """Return the passages that match an expression of FTS5, the best first."""
        statement = "SELECT rowid FROM passages WHERE passages MATCH ? ORDER BY rank"
        return [row for (row,) in self._index.execute(statement, (expression,))]


@cache
def documentation() -> Documentation:
    """Return the guides of this installation.

    >>> "README.md" in documentation().pages
    True
    """
    return Documentation({name: page.read_text(encoding="utf-8") for name, page in page_files().items()})


def page_files() -> Mapping[str, Traversable]:
    """Return the files of the guides, by name, such as ``frameworks/langgraph.md``."""
    carried, checkout = files("usechat") / "docs", Path(__file__).parents[2]
    roots: Sequence[Traversable] = [carried] if carried.is_dir() else [checkout, checkout / "docs"]
    folders = [("", root) for root in roots] + [("frameworks/", root / "frameworks") for root in roots]
    pages = {
        prefix + page.name: page
        for prefix, folder in folders
        if folder.is_dir()
        for page in folder.iterdir()
        if page.name.endswith(".md") and page.name not in _FOR_CONTRIBUTORS
    }
    if not pages:
        raise LibraryMissing
    return {name: pages[name] for name in sorted(pages)}


def significant_words(text: str) -> list[str]:
    """Return the words of a text that mean something, each once.

    >>> significant_words("How do I use the stop button?")
    ['stop', 'button']
    """
    return [word for word in dict.fromkeys(_WORD.findall(text.lower())) if word not in _STOP_WORDS]


def replace_links(text: str, replacement: Callable[[re.Match[str]], str]) -> str:
    """Replace the links and images of a text in Markdown, but none in a code block.

    The groups of a match are ``image`` (``!`` or nothing), ``label`` and ``target``.

    >>> replace_links("See [tools](tools.md).", lambda match: match["label"])
    'See tools.'
    """
    pieces = _FENCE.split(text)
    pieces[::2] = [_LINK.sub(replacement, piece) for piece in pieces[::2]]
    return "".join(pieces)


def _sections(page: str, text: str) -> Iterator[Section]:
    counts, title = Counter[str](), ""
    for heading, body in _cut_at_headings(text):
        title = title or heading
        anchor = re.sub(r"[^\w -]+", "", heading.lower()).replace(" ", "-")
        suffix = f"-{counts[anchor]}" if counts[anchor] else ""
        counts[anchor] += 1
        if body:
            yield Section(f"{page}#{anchor}{suffix}", page, title, heading, body)


def _cut_at_headings(text: str) -> Iterator[tuple[str, str]]:
    """Yield heading and text of each section; a line in a fence is no heading."""
    heading, lines, is_code = "", list[str](), False
    for line in [*text.splitlines(), "# "]:
        is_code ^= line.startswith("```")
        if not is_code and re.match(r"#{1,4} ", line):
            if heading:
                yield heading, "\n".join(lines).strip()
            heading, lines = line.lstrip("# ").replace("`", ""), []
        elif not line.startswith("<!--"):
            lines.append(line)


def _passages(text: str) -> list[str]:
    """Cut the text of a section before each paragraph."""
    passages = list[str]()
    for block in _blocks(text):
        if passages and block.startswith(_ATTACHED):
            passages[-1] += f"\n\n{block}"
        else:
            passages.append(block)
    return passages


def _blocks(text: str) -> Iterator[str]:
    """Cut a text at blank lines, but not within a fence."""
    lines, is_code = list[str](), False
    for line in [*text.splitlines(), ""]:
        is_code ^= line.startswith("```")
        if line or is_code:
            lines.append(line)
        elif lines:
            yield "\n".join(lines)
            lines = []
