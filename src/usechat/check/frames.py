"""Split the body of a response into events, as a client does, and note what clients skip silently.

Clients drop lines that are no field, bytes that are not UTF-8, and a last event without a blank line. They report none
of it, so :class:`Body` records it for the rules. :class:`JsonReader` reads the JSON of each event as JavaScript does.

A body can be larger than the memory: it is taken in pieces, and of what was read only notes of a fixed size are kept.
An event, too, is limited, to the size that usechat's own decoder takes.
"""

import enum
import io
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple, NoReturn

import msgspec

from usechat.errors import CannotJudge, InvalidFrame
from usechat.protocol.sse import END_MARK, MAXIMUM_EVENT_BYTES, EventDecoder
from usechat.protocol.values import READABLE_DEPTH, is_deeper, json_text

__all__ = ["Body", "Frame", "JsonReader", "Place", "PrototypeKey", "ReadEvent", "Unreadable", "shortened"]

_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
_BARE_FIELDS: Final = (b"data", b"event", b"id", b"retry")
_MAXIMUM_NOTES: Final = 10
_LONGEST_NOTE: Final = 2_000
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MAXIMUM_VALUES: Final = 1_000_000
"""Commas and opening brackets of one event: the values in 16 MiB of empty objects would take a gigabyte."""
_USUAL_VALUES: Final = 10
"""How many an ordinary chunk has; in longer ones those inside of strings are not counted."""
_HEAD: Final = 16 * 1024
"""Bytes of the beginning of a body that are kept to tell what it is."""
_FED_AT_ONCE: Final = 64 * 1024
"""Bytes of lines without a blank one that are collected before the decoder gets them."""
_LONGEST_EXCERPT: Final = 2_000
"""Characters of a chunk that a report shows."""
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_EXACT: Final = 2.0**53
_EXACT_DIGITS: Final = 15


class Unreadable(msgspec.Struct, frozen=True):
    """Why the data of an event is not JSON: the rule, and the reason in words."""

    rule: str
    reason: str


class PrototypeKey(enum.Enum):
    """A key that clients refuse because it could change the prototype of an object."""

    FORBIDDEN = enum.auto()
    NULL_CONSTRUCTOR = enum.auto()
    """Refused by old releases alone."""


class Place(NamedTuple):
    """Where a problem is: the frame, the line, and the chunk as the report shows it, which is never large."""

    number: int | None = None
    line: int | None = None
    chunk: Any = None


class ReadEvent(NamedTuple):
    """One event before its JSON is read: its number (from 1), its first line and its data.

    ``end`` is the number of bytes of the body up to the end of this event.
    """

    number: int
    line: int
    text: str
    end: int = 0


class Frame(msgspec.Struct, frozen=True):
    """One event: its number (from 1), its first line, its data, and the JSON value in it."""

    number: int
    line: int
    text: str
    value: Any = None
    unreadable: Unreadable | None = None
    prototype_key: PrototypeKey | None = None
    has_rounded_number: bool = False
    value_count: int = 0
    """How many values it holds beyond those that an ordinary chunk has."""

    @property
    def is_done(self) -> bool:
        """Whether this is the end mark."""
        return self.text == END_MARK

    @property
    def place(self) -> Place:
        """Where it is, and its chunk: shortened if it is long, and as it was written if it is not JSON."""
        if self.unreadable is not None:
            return Place(self.number, self.line, shortened(self.text))
        is_long = len(self.text) > _LONGEST_EXCERPT and len(json_text(self.value)) > _LONGEST_EXCERPT
        return Place(self.number, self.line, shortened(json_text(self.value)) if is_long else self.value)


def shortened(text: str) -> str:
    """Return the beginning of a text, as much as a report shows of it."""
    return text if len(text) <= _LONGEST_EXCERPT else text[:_LONGEST_EXCERPT] + "…"


class Body:
    """Read a body piece by piece. When :meth:`events` is exhausted, the attributes hold what clients skip."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = pieces
        self.head = b""
        """The beginning of the body."""
        self.ignored_lines: list[tuple[int, str]] = []
        """Numbers and beginnings of lines that are no field of an event; at most ten."""
        self.ignored_count = 0
        self.invalid_lines: list[int] = []
        """Numbers of lines that are not UTF-8; at most ten."""
        self.has_carriage_returns_alone = False
        self.lost = ""
        """The data of the last event, if it is not ended by a blank line: clients drop it."""

    def frames(self) -> Iterator[Frame]:
        """Yield the events with their JSON, and record what clients skip."""
        return map(JsonReader().frame, self.events())

    def events(self) -> Iterator[ReadEvent]:
        """Yield the events, and record what clients skip. Raises CannotJudge for a line or an event over the limit."""
        decoder = EventDecoder()
        waiting: list[bytes] = []
        count = first_line = waiting_bytes = end = 0
        line = b""
        try:
            for number, line in enumerate(self._lines(), 1):
                end += len(line)
                waiting.append(line)
                waiting_bytes += len(line)
                is_blank = line == b"\n" or line == b"\r\n"
                if not is_blank:
                    first_line = first_line or number
                    self._note(number, line)
                    if waiting_bytes < _FED_AT_ONCE:
                        continue
                for event in decoder.receive(b"".join(waiting)):
                    count = event.number
                    yield ReadEvent(count, first_line, event.data, end)
                waiting, waiting_bytes = [], 0
                if is_blank:
                    first_line = 0
            for event in decoder.receive(b"".join(waiting)):
                yield ReadEvent(event.number, first_line, event.data, end)
            self.lost = shortened(_unfinished(decoder.close(), line))
        except InvalidFrame:
            raise _too_long(f"frame {count + 1}") from None

    def _lines(self) -> Iterator[bytes]:
        """Yield the lines with their line ends. Only LF ends a line here; the decoder splits at the other line ends."""
        rest: list[bytes] = []
        size = count = 0
        has_line_feed = has_carriage_return = False
        for piece in self._pieces:
            if len(self.head) < _HEAD:
                self.head += piece[: _HEAD - len(self.head)]
            has_carriage_return = has_carriage_return or b"\r" in piece
            for line in io.BytesIO(piece):
                rest.append(line)
                size += len(line)
                if line.endswith(b"\n"):
                    has_line_feed = True
                    count += 1
                    yield line if len(rest) == 1 else b"".join(rest)
                    rest, size = [], 0
                elif size > MAXIMUM_EVENT_BYTES:
                    raise _too_long(f"line {count + 1}")
        self.has_carriage_returns_alone = has_carriage_return and not has_line_feed
        if rest:
            yield b"".join(rest)

    def _note(self, number: int, line: bytes) -> None:
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line.isascii() and _is_invalid(line) and len(self.invalid_lines) < _MAXIMUM_NOTES:
            self.invalid_lines.append(number)
        if line.startswith(_FIELDS) and b"\r" not in line[:-2]:
            return
        for content in line.splitlines():
            if content and not content.startswith(_FIELDS) and content not in _BARE_FIELDS:
                self._ignore(number, content)

    def _ignore(self, number: int, content: bytes) -> None:
        self.ignored_count += 1
        if len(self.ignored_lines) < _MAXIMUM_NOTES:
            self.ignored_lines.append((number, content[:_LONGEST_NOTE].decode("utf-8", "replace")))


def _too_long(what: str) -> CannotJudge:
    return CannotJudge(f"{what} is longer than {MAXIMUM_EVENT_BYTES} bytes, which is more than usechat judges")


def _unfinished(text: str, last_line: bytes) -> str:
    """Return the data of the unfinished event; a last line without a line end may not be a data line."""
    tail = "" if last_line.endswith((b"\n", b"\r")) else last_line.decode("utf-8", "replace")
    lines = text.removesuffix(tail)
    return lines + tail.removeprefix("data:").removeprefix(" ") if tail.startswith("data:") else lines.strip("\n")


def _is_invalid(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return True
    return False


class _NotFinite(ValueError):
    """NaN or an infinity: Python's json writes them, JavaScript does not read them."""


class JsonReader:
    """Read JSON as JavaScript does: NaN is refused, large integers are rounded."""

    def __init__(self) -> None:
        self._decode = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=self._parse_integer).decode
        self._has_rounded_number = False

    def frame(self, event: ReadEvent) -> Frame:
        """Read the JSON of an event. Raises CannotJudge for more values or levels than memory allows."""
        number, line, text, _ = event
        if text == END_MARK:
            return Frame(number, line, text)
        value_count = max(_count_values(text) - _USUAL_VALUES, 0)
        if value_count > _MAXIMUM_VALUES:
            raise CannotJudge(f"frame {number} holds more than {_MAXIMUM_VALUES} values, more than usechat judges")
        self._has_rounded_number = False
        try:
            value = self._decode(text)
        except RecursionError:
            raise _too_deep(number) from None
        except ValueError as error:
            return Frame(number, line, text, unreadable=_unreadable(text, error))
        if text.count("{") + text.count("[") > READABLE_DEPTH and is_deeper(value, READABLE_DEPTH):
            raise _too_deep(number)
        prototype_key = (
            _find_prototype_key(value) if "constructor" in text or "proto" in text or "\\u" in text else None
        )
        return Frame(number, line, text, value, None, prototype_key, self._has_rounded_number, value_count)

    def _parse_integer(self, text: str) -> int | float:
        if len(text) <= _EXACT_DIGITS:
            return int(text)
        rounded = float(text)
        if abs(rounded) < _EXACT:
            return int(text)
        self._has_rounded_number |= json_text(rounded) != text
        return rounded


def _count_values(text: str) -> int:
    """Count the commas and opening brackets of a JSON text; if there are many, without those in strings."""
    count = text.count(",") + text.count("{") + text.count("[")
    if count <= _USUAL_VALUES:
        return count
    bare = _STRING.sub("", text)
    return bare.count(",") + bare.count("{") + bare.count("[")


def _refuse_constant(name: str) -> NoReturn:
    raise _NotFinite(f"{name} is not JSON")


def _too_deep(number: int) -> CannotJudge:
    return CannotJudge(
        f"frame {number} is nested in more than {READABLE_DEPTH} levels, which is more than usechat judges"
    )


def _unreadable(text: str, error: ValueError) -> Unreadable:
    if not text.strip():
        return Unreadable("UC103", "the event has no data")
    if text.strip(" \t\"'[]").upper() == "DONE":
        return Unreadable("UC104", f"{text!r} is not the end mark")
    if isinstance(error, _NotFinite):
        return Unreadable("UC105", str(error))
    if "\n" in text and all(_is_json(line) for line in text.split("\n")):
        return Unreadable("UC102", f"{text.count(chr(10)) + 1} chunks stand in one event")
    return Unreadable("UC101", f"the event is not JSON: {error}")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text == END_MARK
    return True


def _find_prototype_key(value: Any) -> PrototypeKey | None:
    prototype_key = None
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            constructor = node.get("constructor", "")
            if "__proto__" in node or (isinstance(constructor, dict) and "prototype" in constructor):
                return PrototypeKey.FORBIDDEN
            if constructor is None:
                prototype_key = PrototypeKey.NULL_CONSTRUCTOR
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return prototype_key
