"""Split the body of a response into events, as a client does, and note what clients skip silently.

Clients drop lines that are no field, bytes that are not UTF-8, and a last event without a blank line. They report none
of it, so :class:`Body` records it for the rules. The JSON of each event is read as JavaScript reads it.
"""

import enum
import io
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import msgspec

from usechat.errors import CannotJudge
from usechat.protocol.sse import EventDecoder
from usechat.protocol.values import MAXIMUM_DEPTH, is_deeper, json_text

__all__ = ["Body", "Frame", "PrototypeKey", "Unreadable"]

_FIELDS: Final = (b"data:", b"event:", b"id:", b"retry:", b":")
_BARE_FIELDS: Final = (b"data", b"event", b"id", b"retry")
_MAXIMUM_NOTES: Final = 10
_LONGEST_NOTE: Final = 2_000
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MAXIMUM_VALUES: Final = 1_000_000
"""Commas and opening brackets: the messages built from 16 MiB of empty objects for three releases would take 2.8 GB."""
_USUAL_VALUES: Final = 10
"""How many an ordinary chunk has; these are not counted, since a stream may have many chunks."""
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


class Frame(msgspec.Struct, frozen=True):
    """One event: its number (from 1), its first line, its data, and the JSON value in it.

    ``end`` is the number of bytes of the body up to the end of this event.
    """

    number: int
    line: int
    text: str
    value: Any = None
    unreadable: Unreadable | None = None
    prototype_key: PrototypeKey | None = None
    has_rounded_number: bool = False
    end: int = 0

    @property
    def is_done(self) -> bool:
        """Whether this is the end mark."""
        return self.text == "[DONE]"


class Body:
    """Reads a whole body. When :meth:`frames` is exhausted, the attributes hold what clients skip."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.ignored_lines: list[tuple[int, str]] = []
        """Numbers and beginnings of lines that are no field of an event; at most ten."""
        self.ignored_count = 0
        self.invalid_lines: list[int] = []
        """Numbers of lines that are not UTF-8; at most ten."""
        self.has_carriage_returns_alone = b"\r" in data and b"\n" not in data
        self.lost = ""
        """The data of the last event, if it is not ended by a blank line: clients drop it."""

    def frames(self) -> Iterator[Frame]:
        """Yield the events, and record what clients skip."""
        events = EventDecoder(maximum_event_bytes=len(self._data) + 1)
        reader = _JsonReader()
        first_line = began = end = 0
        line = b""
        for number, line in enumerate(io.BytesIO(self._data), 1):
            end += len(line)
            if line == b"\n" or line == b"\r\n":
                if first_line == 0:
                    continue
                first_line, began = 0, first_line
            else:
                first_line = first_line or number
                self._note(number, line)
            for event in events.receive(line):
                yield reader.frame(event.number, began or number, event.data, end)
        self.lost = _unfinished(events.close(), line)

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


class _JsonReader:
    """Reads JSON as JavaScript does: NaN is refused, large integers are rounded."""

    def __init__(self) -> None:
        self._decode = json.JSONDecoder(parse_constant=_refuse_constant, parse_int=self._parse_integer).decode
        self._has_rounded_number = False
        self._values = 0

    def frame(self, number: int, line: int, text: str, end: int) -> Frame:
        if text == "[DONE]":
            return Frame(number, line, text, end=end)
        self._has_rounded_number = False
        self._values += max(_count_values(text) - _USUAL_VALUES, 0)
        if self._values > _MAXIMUM_VALUES:
            raise CannotJudge(f"the chunks up to frame {number} hold more values than usechat judges")
        try:
            value = self._decode(text)
        except RecursionError:
            raise _too_deep(number) from None
        except ValueError as error:
            return Frame(number, line, text, unreadable=_unreadable(text, error), end=end)
        if text.count("{") + text.count("[") > MAXIMUM_DEPTH and is_deeper(value, MAXIMUM_DEPTH):
            raise _too_deep(number)
        prototype_key = (
            _find_prototype_key(value) if "constructor" in text or "proto" in text or "\\u" in text else None
        )
        return Frame(number, line, text, value, None, prototype_key, self._has_rounded_number, end)

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
        f"frame {number} is nested in more than {MAXIMUM_DEPTH} levels, which is more than usechat judges"
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
        return text == "[DONE]"
    return True


def _find_prototype_key(value: Any) -> PrototypeKey | None:
    found = None
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            constructor = node.get("constructor", "")
            if "__proto__" in node or (isinstance(constructor, dict) and "prototype" in constructor):
                return PrototypeKey.FORBIDDEN
            if constructor is None:
                found = PrototypeKey.NULL_CONSTRUCTOR
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return found
