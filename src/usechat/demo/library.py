"""The project's own documentation, cut into sections that can be searched.

Each section is a row in an index of SQLite's full-text search, with the porter stemmer. It has a field each for the
title of its page, its heading, other words for what it is about (``vocabulary.toml``), questions that it answers
(``questions.toml``), its prose and its code.

Words that are misspelt are corrected. Each word of a question is looked up on its own, with its synonyms. A section
scores the sum over the words, times the share of the question's meaning that it covers. A word means more the fewer
sections hold it, and little if it is in no title, heading or vocabulary.

To that score is added how much the question is like one that the section is known to answer.
Nothing was found if the best section covers too little of the question, and answers none that is like it.
"""

import math
import posixpath
import re
import sqlite3
import tomllib
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from usechat.demo.similar import KnownQuestions, stem
from usechat.demo.spelling import Spelling
from usechat.errors import LibraryMissing

__all__ = ["Found", "Library", "Section", "Vocabulary", "library", "read_vocabulary", "telling_words_of", "words_of"]

_UNREAD: Final = frozenset(
    {"ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "open-harness-tests.md", "specification.md"}
)
"""Pages for contributors: they match every query and answer no user's question."""
_WEIGHTS: Final = {
    "README": 0.8,
    "cli": 0.7,
    "rules": 0.6,
    "agent-ops": 0.7,
    "genkit": 0.7,
    "frameworks": 0.7,
    "tutorial": 0.7,
}
"""Lists of all options and rules, and what only some need: they answer when no other page does as well."""
_FIELDS: Final = {"title": 1.2, "heading": 1.4, "keywords": 1.0, "questions": 0.5, "prose": 0.6, "code": 0.2}
"""What a word in each field is worth."""
_CENTRAL_FIELDS: Final = ("title", "heading", "keywords")
"""Fields that say what a section is about."""
_LONG_FIELDS: Final = frozenset({"prose", "code"})
"""Fields in which it matters how often a word is there, and in how long a text."""
_SYNONYM: Final = 0.35
"""What a synonym is worth, beside the word itself."""
_PAIR: Final = 2.0
"""What two words that stand close to each other as in the question are worth, beside the words themselves."""
_HEADED: Final = 0.6
"""What a heading is worth whose words are those of the question."""
_NAMED: Final = 1.3
"""What a page is worth whose name is in the question."""
_LIGHT: Final = 0.6
"""What a word of everyday language is worth, beside one of the field."""
_LEAST: Final = 0.1
"""What a word means that is in every section."""
_ENOUGH: Final = 0.85
"""What a section must reach that answers: the share of the question's meaning that it covers, and how similar a known
question is that it answers."""
_SHORT: Final = 6
"""Words of a question that says no more than it must: who tells a story uses words beside the matter."""
_TALK: Final = 0.03
"""What a section need not reach for each word beyond these."""
_TOLD: Final = 0.2
"""What it need not reach at most."""
_SIMILAR: Final = 0.4
"""What a known question that is like the one that was asked is worth, beside the best score by words."""
_SAME: Final = 0.8
"""What it is worth in addition if it is the same."""
_WORD: Final = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*", re.IGNORECASE)
_COMMON: Final = frozenset(
    _WORD.findall(
        "a able about actually after again all also always am an and another any anything are as at be"
        " because been before being best but by bye can cannot could did do does doesn doing don done each"
        " either else ever every explain for from front general generally generic get gets getting give gives"
        " go goes going good got had happen happens has have having hello help here hey hi how i if in instead"
        " into is isn it its just keep keeps kind know least let like ll make makes many may me mean means"
        " might mine more most much must my need needs no not now of off on once one ones only or other our"
        " out over own please possible put re really recommended right run running runs s same say see seem"
        " should show shown so some something sometimes still such sure t take takes tell than thank thanks"
        " that the their them then there these they thing things this those through to too try two up us use"
        " usechat used user users uses using ve very via want wants was way we well were what whats when where"
        " whether which while who whole why will with within without won work works would yet you your"
    )
)
_FENCE: Final = re.compile(r"^(```.*?^```)", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_EVERYDAY: Final = frozenset(
    _WORD.findall(
        "ability above across add adding agent already answer anybody anyone app appear apply around ask bad"
        " become begin behave behind below better between big bit both bring brought build built busy buy call"
        " came case cause change changed check choice choose choosing clean clear clever click clicked clicks code"
        " come comes company complete comply config configure configured connect consider contain correct"
        " correctly create current currently customer customers cut cutting day decide decides deep define detail"
        " detect differ different difficult easily easy end ends enough everybody everyone everything exactly"
        " existing expect expensive few fill find finished first fit follow following form found full further hand"
        " handle happening hard hear hit hits hold idea important include includes inside involved keep kept"
        " laptop last later lead learn left less life line lines list little live lives long look looking looks"
        " lot low machine main mention middle missing moment month move multi must myself name necessary never new"
        " next nobody note number offer often old onto option order others paid paying people person phone piece"
        " place plan plug point pop pops position prefer press pressed prevent problem project proper properly"
        " provide push quick quickly quite rather reach read readable reading real reason receive refuse refuses"
        " reply report request requests require required rest result return round safe said second seconds seems"
        " send sends separate set setting several short simple simply since single small solve somebody somehow"
        " someone somewhere soon sort special specific standard start started state stay stays straight strange"
        " style suddenly support supported supports talk team text think third time times today together told top"
        " total toward true turn type typical understand until useful usual usually value visitor visitors wait"
        " watch week went white word words world write writes writing written wrong year years"
    )
)
"""Words that a question may have for any reason."""


class Section(msgspec.Struct, frozen=True):
    """One section of a page: ``id`` is ``page.md#heading``, as links name it; ``title`` is that of the page."""

    id: str
    page: str
    title: str
    heading: str
    text: str

    @property
    def name(self) -> str:
        """What readers see: the page's title and the heading."""
        return self.title if self.is_first else f"{self.title}: {self.heading}"

    @property
    def link(self) -> str:
        """The address of the section, relative to the chat page."""
        return f"docs/{self.id}"

    @property
    def is_first(self) -> bool:
        """Whether it begins its page: its heading is the page's title."""
        return self.heading == self.title


class Vocabulary(NamedTuple):
    """What readers say.

    ``synonyms`` are groups of words that stand for each other. ``keywords`` are other words for what a section is
    about, and ``questions`` those that it answers, by the section's id. A ``*`` in an id stands for any name, and an id
    without a heading for the first section of its page.
    """

    synonyms: Sequence[Sequence[str]] = ()
    keywords: Mapping[str, str] = MappingProxyType({})
    questions: Mapping[str, Sequence[str]] = MappingProxyType({})


class Found(NamedTuple):
    """What a search brought: the sections that answer, best first, and those that come nearest if none does."""

    sections: list[Section]
    nearest: list[Section]


class _Match(NamedTuple):
    """How well a section holds one word of a question."""

    score: float
    in_heading: float = 0.0


class _Word(NamedTuple):
    """One word of a question: how much it means, and the sections that hold it, by row."""

    meaning: float
    is_central: bool
    matches: Mapping[int, _Match]


class Library:
    """Pages whose sections are in an index of SQLite's full-text search."""

    def __init__(self, pages: Mapping[str, str], vocabulary: Vocabulary) -> None:
        self._pages = pages
        self._synonyms = defaultdict[str, list[str]](list)
        for group in vocabulary.synonyms:
            for word in group:
                self._synonyms[stem(word)] += [other for other in group if other != word]
        phrases = {word for group in vocabulary.synonyms for word in group if " " in word}
        longest_first = sorted(phrases, key=lambda phrase: (-len(phrase), phrase))
        self._phrases = re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b") if phrases else None
        self._sections = [section for name, text in pages.items() for section in _sections(name, text)]
        self._by_name = {section.name: section for section in self._sections}
        questions = self._questions(vocabulary.questions)
        self._known = KnownQuestions(questions, vocabulary.synonyms)
        lists = [*vocabulary.synonyms, *questions.values(), [*_COMMON, *_EVERYDAY]]
        self._spelling = Spelling([*pages.values(), *vocabulary.keywords.values(), *map(" ".join, lists)])
        self._look_up_once = lru_cache(maxsize=1000)(self._look_up)
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._index.close)  # Python 3.13 warns of a connection that nobody closes
        words = defaultdict[str, list[str]](list)
        for name, keywords in vocabulary.keywords.items():
            words[self.place_of(name)].append(keywords)
        columns = ", ".join(_FIELDS)
        self._index.execute(f"CREATE VIRTUAL TABLE sections USING fts5({columns}, tokenize='porter unicode61')")
        rows = [
            (row, *_fields(section, " ".join(words[section.id]), " ".join(questions[section.id])))
            for row, section in enumerate(self._sections)
        ]
        values = ", ".join("?" * (1 + len(_FIELDS)))
        self._index.executemany(f"INSERT INTO sections (rowid, {columns}) VALUES ({values})", rows)

    def search(self, question: str, limit: int = 3) -> Found:
        """Find the sections that answer a question."""
        question = self._spelling.corrected(question)
        words = self._words_of(question) or ["usechat"] * ("usechat" in question.lower())
        looked_up = [self._look_up_once(word) for word in words]
        meaning = sum(word.meaning for word in looked_up) or 1.0
        shares = {
            row: sum(word.meaning for word in looked_up if row in word.matches) / meaning
            for row in {row for word in looked_up for row in word.matches}
        }
        by_words = {row: score * shares[row] for row, score in self._scores(words, looked_up).items()}
        highest = max(by_words.values(), default=1.0)
        similar = self._known.similar_to(question)
        alike = {row: similar[section.id] for row, section in enumerate(self._sections) if section.id in similar}
        totals = {
            row: by_words.get(row, 0.0) / highest + _SIMILAR * alike.get(row, 0.0) + _SAME * alike.get(row, 0.0) ** 3
            for row in {*by_words, *alike}
        }
        best = sorted(totals, key=lambda row: (-totals[row], row))
        central = {row for word in looked_up if word.is_central for row in word.matches}
        least = _ENOUGH - min(_TOLD, _TALK * max(0, len(words) - _SHORT))
        sure = {row for row in best if shares.get(row, 0.0) + alike.get(row, 0.0) > least}
        enough = [row for row in best if row in sure] if sure.intersection(best[:1]) else []
        nearest = [] if enough else [row for row in best if row in central]
        return Found(*([self._sections[row] for row in rows[:limit]] for rows in (enough, nearest)))

    def get(self, name: str) -> Section | None:
        """Return a section by its name."""
        return self._by_name.get(name)

    def place_of(self, name: str) -> str:
        """Return the id of the section that an id or a page names; one that moved to another page is found there."""
        ids = [section.id for section in self._sections]
        heading = name.partition("#")[2]
        moved = [each for each in ids if heading and each.endswith(f"#{heading}")]
        first = [each for each in ids if each.startswith(f"{name}#")]
        if name in ids:
            return name
        return next(iter(first), moved[0] if len(moved) == 1 else "")

    @property
    def sources(self) -> Mapping[str, str]:
        """The pages as they were given, by name."""
        return self._pages

    @property
    def pages(self) -> Mapping[str, str]:
        """The whole pages, by name; their links are relative to the chat page."""
        return {name: self._with_links(name, text) for name, text in self._pages.items()}

    def _with_links(self, page: str, text: str) -> str:
        """Let links lead to the pages that are there. Images are left out, and links to other files are their text."""
        at = "" if page == "README.md" else "docs/"

        def rewrite(found: re.Match[str]) -> str:
            image, label, target = found.groups()
            if image or "://" in target:
                return "" if image else found[0]
            path, _, fragment = target.partition("#")
            whole = posixpath.normpath(posixpath.join(posixpath.dirname(at + page), path)) if path else at + page
            name = whole.removeprefix("docs/")
            anchor = f"#{fragment}" if fragment else ""
            return f"[{label}](docs/{name}{anchor})" if name in self._pages else label

        pieces = _FENCE.split(text)
        pieces[::2] = [_LINK.sub(rewrite, piece) for piece in pieces[::2]]
        return "".join(pieces)

    def _questions(self, listed: Mapping[str, Sequence[str]]) -> defaultdict[str, list[str]]:
        """Return the known questions by the ids of the sections that answer them."""
        known = defaultdict[str, list[str]](list)
        for pattern, questions in listed.items():
            for section in self._sections if "*" in pattern else ():
                place = section.id if pattern.partition("#")[2] else f"{section.page}#" if section.is_first else ""
                if fnmatch(place, pattern):
                    known[section.id] += [question.replace("{title}", section.title) for question in questions]
            if "*" not in pattern:
                known[self.place_of(pattern)] += questions
        return known

    @property
    def sections(self) -> Sequence[Section]:
        """All sections, page by page."""
        return self._sections

    def _words_of(self, question: str) -> list[str]:
        """Return the words of a question that mean something; some mean it only together, such as `front end`."""
        text = question.lower()
        together = self._phrases.findall(text) if self._phrases else []
        apart = words_of(self._phrases.sub(" ", text) if self._phrases else text)
        return [*together, *(each for word in apart for each in self._known_pieces(word))]

    def _known_pieces(self, word: str) -> list[str]:
        """Return the pieces of a word such as `anthropic.messages` that is nowhere; any other word is one piece."""
        pieces = words_of(re.sub("[._-]", " ", word))
        return pieces if len(pieces) > 1 and not self._look_up_once(word).matches else [word]

    def _scores(self, words: list[str], looked_up: list[_Word]) -> dict[int, float]:
        """Return how well each section fits, by row."""
        meaning = sum(word.meaning for word in looked_up) or 1.0
        scores, headed, recalled = defaultdict[int, float](float), defaultdict[int, float](float), dict[int, float]()
        for word in looked_up:
            for row, match in word.matches.items():
                scores[row] += word.meaning * match.score
                headed[row] += match.in_heading
                recalled[row] = recalled.get(row, 0) + match.in_heading * word.meaning / meaning
        for pair in pairwise(words):
            for row in self._matching(f"NEAR({_quoted(pair[0])} {_quoted(pair[1])}, 3)"):
                scores[row] += _PAIR
        for row, recall in recalled.items():
            section = self._sections[row]
            heading = [word for word in _WORD.findall(section.heading.lower()) if word in words or word not in _COMMON]
            precision = min(1.0, headed[row] / max(1, len(heading)))
            scores[row] *= _weight(section.page, words) * (1 + _HEADED * precision * recall)
        return scores

    def _look_up(self, word: str) -> _Word:
        """Find the sections that hold a word or a synonym of it; the better of both counts."""
        matches, rarity, is_central = dict[int, _Match](), 0.0, False
        highest = math.log(len(self._sections) + 1)
        for value, each in [(1.0, word), *((_SYNONYM, other) for other in self._synonyms.get(stem(word), ()))]:
            fields = {field: self._matching(f"{field} : {_quoted(each)}") for field in _FIELDS}
            is_central = is_central or any(fields[field] for field in _CENTRAL_FIELDS)
            for row in {row for found in fields.values() for row in found}:
                score = sum(
                    weight * (fields[field][row] if field in _LONG_FIELDS else 1)
                    for field, weight in _FIELDS.items()
                    if row in fields[field]
                )
                in_heading = row in fields["heading"] or (row in fields["title"] and self._sections[row].is_first)
                matches[row] = max(matches.get(row, _Match(0)), _Match(value * score, value * in_heading))
            if matches and not rarity:
                rarity = highest - math.log(len(matches) + 1) + _LEAST
        is_central = is_central and word not in _EVERYDAY
        if not matches:
            return _Word(_LIGHT * highest if word in _EVERYDAY else highest, False, matches)
        return _Word(rarity if is_central else _LIGHT * rarity, is_central, matches)

    def _matching(self, query: str) -> dict[int, float]:
        """Return the rows that match, with scores up to 1."""
        query_text = "SELECT rowid, -bm25(sections) FROM sections WHERE sections MATCH ?"
        found = dict(self._index.execute(query_text, (query,)).fetchall())
        best = max(found.values(), default=1.0)
        return {row: score / best for row, score in found.items()}


def _weight(page: str, words: list[str]) -> float:
    """Return what a page is worth for a question: more than others if the question names it."""
    names = {*re.split("[/.]", page), *re.split("[/.-]", page)} if page != "README.md" else {"usechat"}
    if any(word in names for word in words if word not in _EVERYDAY):
        return _NAMED
    return _WEIGHTS.get(re.split("[/.]", page)[0], 1.0)


def _quoted(word: str) -> str:
    return f'"{word}"'


def words_of(question: str) -> list[str]:
    """Return the words of a question that mean something."""
    return [word for word in dict.fromkeys(_WORD.findall(question.lower())) if word not in _COMMON]


def telling_words_of(question: str) -> list[str]:
    """Return the words of a question that say what it is about."""
    return [word for word in words_of(question) if word not in _EVERYDAY]


@cache
def library() -> Library:
    """Return the library of this installation."""
    pages = dict(_pages())
    if not pages:
        raise LibraryMissing
    return Library(pages, read_vocabulary())


def read_vocabulary() -> Vocabulary:
    """Read the words and the questions of users."""
    demo = files("usechat") / "demo"
    words, questions = (
        tomllib.loads((demo / name).read_text(encoding="utf-8")) for name in ("vocabulary.toml", "questions.toml")
    )
    return Vocabulary(words["synonyms"], words["keywords"], questions)


def _pages() -> Iterator[tuple[str, str]]:
    """Yield name and text of the pages, which a wheel carries and a checkout has beside the package."""
    carried, checkout = files("usechat") / "demo" / "docs", Path(__file__).parents[3]
    roots: list[Traversable] = [carried] if carried.is_dir() else [checkout, checkout / "docs"]
    directories = [("", root) for root in roots] + [("frameworks/", root / "frameworks") for root in roots]
    found = {
        prefix + page.name: page
        for prefix, directory in directories
        if directory.is_dir()
        for page in directory.iterdir()
        if page.name.endswith(".md") and page.name not in _UNREAD
    }
    yield from ((name, found[name].read_text(encoding="utf-8")) for name in sorted(found))


def _sections(page: str, text: str) -> Iterator[Section]:
    names, title = dict[str, int](), ""
    for heading, body in _cut(text):
        title = title or heading
        name = re.sub(r"[^\w -]+", "", heading.lower()).replace(" ", "-")
        names[name] = names.get(name, 0) + 1
        number = f"-{names[name] - 1}" if names[name] > 1 else ""
        if body:
            yield Section(f"{page}#{name}{number}", page, title, heading, body)


def _cut(text: str) -> Iterator[tuple[str, str]]:
    """Yield heading and text of each section; a line in a fence is no heading."""
    heading, lines, fenced = "", list[str](), False
    for line in [*text.splitlines(), "# "]:
        fenced ^= line.startswith("```")
        if not fenced and re.match(r"#{1,4} ", line):
            if heading:
                yield heading, "\n".join(lines).strip()
            heading, lines = line.lstrip("# ").replace("`", ""), []
        elif not line.startswith("<!--"):
            lines.append(line)


def _fields(section: Section, keywords: str, questions: str) -> tuple[str, ...]:
    """Return the fields of a section in the order of ``_FIELDS``."""
    pieces = _FENCE.split(section.text)
    prose, code = " ".join(pieces[::2]), " ".join(pieces[1::2])
    title = f"{section.title} {section.page.removesuffix('.md')}"
    heading = "" if section.is_first else section.heading
    return title, heading, keywords, questions, prose, code
