"""The project's own documentation, cut into sections that can be searched."""

import re
import sqlite3
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

import msgspec

from usechat.errors import LibraryMissing

__all__ = ["Library", "Section", "library", "words_of"]

_UNREAD: Final = frozenset(
    {"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "open-harness-tests.md", "specification.md"}
)
"""Pages for contributors: they match every query and answer no user's question."""
_WEIGHTS: Final = {"cli.md": 0.5, "rules.md": 0.5, "agent-ops.md": 0.7, "genkit.md": 0.7}
"""Lists of all options and rules, and what only some need: they answer when no other page does as well."""
_WORD: Final = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*", re.IGNORECASE)
_COMMON: Final = frozenset(
    _WORD.findall(
        "a about all also am an and any are as at be been but by bye can could did do does doing explain for from get"
        " give good had happens has have hello hey hi how i if in into is it its just kind like make many me mean means"
        " more much my need no not of on one only or our out over please say should so some tell than thank thanks that"
        " the their them then there these they this to up us usechat use used using want was we were what when where"
        " which who why will with without work works would you your"
    )
)
_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "abort": ("stop", "cancel"),
    "attachment": ("file",),
    "attachments": ("files",),
    "cancel": ("stop",),
    "ci": ("github", "junit"),
    "cors": ("origins",),
    "credentials": ("token", "authentication"),
    "database": ("postgresql", "sqlite"),
    "db": ("database",),
    "delete": ("deletes", "privacy"),
    "deploy": ("deploying", "uvicorn"),
    "disconnect": ("connection", "resume"),
    "exception": ("error",),
    "exceptions": ("errors",),
    "history": ("messages", "chats"),
    "install": ("pip",),
    "jwt": ("json web tokens",),
    "kill": ("stop", "shutting down"),
    "load": ("loaded",),
    "login": ("authentication", "token"),
    "monitor": ("metrics",),
    "monitoring": ("metrics",),
    "nginx": ("proxies", "proxy"),
    "password": ("token",),
    "persist": ("store", "stored"),
    "postgres": ("postgresql",),
    "reconnect": ("resume",),
    "refresh": ("reload", "resume"),
    "restart": ("shutting down", "deploying"),
    "save": ("store", "stored"),
    "scale": ("workers",),
    "security": ("authentication", "access"),
    "sqlite": ("database",),
    "terminal": ("command",),
    "test": ("tests",),
    "typescript": ("types",),
    "validate": ("check",),
    "workers": ("processes",),
}
"""Words of questions, and words of the documentation that mean the same."""


class Section(msgspec.Struct, frozen=True):
    """One section of a page: ``id`` is ``page.md#heading``."""

    id: str
    page: str
    heading: str
    text: str


class Library:
    """Pages whose sections are in an index of SQLite's full-text search."""

    def __init__(self, pages: Mapping[str, str]) -> None:
        self._pages = pages
        sections = [section for name, text in pages.items() for section in _sections(name, text)]
        self._sections = {section.id: section for section in sections}
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        self._index.execute(
            "CREATE VIRTUAL TABLE sections USING fts5(id UNINDEXED, page, heading, text, tokenize=porter)"
        )
        rows = [(section.id, section.page, section.heading, section.text) for section in sections]
        self._index.executemany("INSERT INTO sections VALUES (?, ?, ?, ?)", rows)

    def search(self, question: str, limit: int = 3) -> list[Section]:
        """Return the sections that answer best; none when the words of the question are hardly there."""
        words = words_of(question) or ["usechat"] * ("usechat" in question.lower())
        found = [(self._covered(name, words), score, name) for name, score in self._ranked(words)] if words else []
        # More than half of the words must be there; a page that is about nothing else begins with the answer.
        about = self._about(words)
        enough = [
            (about.get(name, 99), -(covered + self._headed(name, words)) * score, name)
            for covered, score, name in found
            if 2 * covered > len(words)
        ]
        return [self._sections[name] for *_, name in sorted(enough, key=lambda each: each[:2])][:limit]

    def get(self, name: str) -> Section | None:
        """Return a section by its id."""
        return self._sections.get(name)

    @property
    def pages(self) -> Mapping[str, str]:
        """The whole pages, by name."""
        return self._pages

    def _ranked(self, words: list[str]) -> list[tuple[str, float]]:
        """Return the sections that hold some of the words, with a score that is higher for those that fit better."""
        wanted = " OR ".join(map(_matching, words))
        query = "SELECT id, page, -bm25(sections, 0, 4, 6, 1) FROM sections WHERE sections MATCH ?"
        return [(name, score * _WEIGHTS.get(page, 1)) for name, page, score in self._index.execute(query, (wanted,))]

    def _about(self, words: list[str]) -> dict[str, int]:
        """Return the first sections of pages whose name or title holds all of the words, and how many more it holds."""
        first = {section.page: section for section in reversed(self._sections.values())}
        titles = {
            section.id: set(re.findall(r"[a-z0-9]+", f"{section.page} {section.heading}".lower()))
            for section in first.values()
        }
        return {name: len(title - set(words)) for name, title in titles.items() if set(words) <= title}

    def _covered(self, name: str, words: list[str]) -> int:
        """Count the words that are in a section, its heading or its page's name."""
        return sum(self._holds(name, _matching(word)) for word in words)

    def _headed(self, name: str, words: list[str]) -> int:
        """Count the words that are in the heading of a section: what a section is called, it is about."""
        return sum(self._holds(name, f"heading : {_matching(word)}") for word in words)

    def _holds(self, name: str, wanted: str) -> int:
        query = "SELECT count(*) FROM sections WHERE id = ? AND sections MATCH ?"
        return int(self._index.execute(query, (name, wanted)).fetchone()[0])


def _matching(word: str) -> str:
    """Return the query for a word and those that mean the same."""
    return "(" + " OR ".join(f'"{each}"' for each in (word, *_SYNONYMS.get(word, ()))) + ")"


def words_of(question: str) -> list[str]:
    """Return the words of a question that mean something."""
    return [word for word in dict.fromkeys(_WORD.findall(question.lower())) if word not in _COMMON]


@cache
def library() -> Library:
    """Return the library of this installation."""
    pages = {page.name: page.read_text(encoding="utf-8") for page in _pages()}
    if not pages:
        raise LibraryMissing
    return Library(pages)


def _pages() -> Iterator[Traversable]:
    """Yield the pages, which a wheel carries and a checkout has beside the package."""
    carried, checkout = files("usechat") / "demo" / "docs", Path(__file__).parents[3]
    directories: list[Traversable] = [carried] if carried.is_dir() else [checkout, checkout / "docs"]
    found = [page for directory in directories if directory.is_dir() for page in directory.iterdir()]
    known = [page for page in found if page.name.endswith(".md") and page.name not in _UNREAD]
    yield from sorted(known, key=lambda page: page.name)


def _sections(page: str, text: str) -> Iterator[Section]:
    names: dict[str, int] = {}
    for heading, body in _cut(text):
        name = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
        names[name] = names.get(name, 0) + 1
        number = f"-{names[name]}" if names[name] > 1 else ""
        yield Section(f"{page}#{name}{number}", page, heading, body)


def _cut(text: str) -> Iterator[tuple[str, str]]:
    """Yield heading and text of each section; a line in a fence is no heading."""
    heading, lines, fenced = "", list[str](), False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        if not fenced and re.match(r"#{1,3} ", line):
            if heading and any(lines):
                yield heading, "\n".join(lines).strip()
            heading, lines = line.lstrip("# ").replace("`", ""), []
        elif not line.startswith("<!--"):
            lines.append(line)
    if heading and any(lines):
        yield heading, "\n".join(lines).strip()
