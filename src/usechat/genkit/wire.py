"""What Genkit servers send, read with tolerance: every generation of the Go, JavaScript and Python servers.

A stream is a list of frames, ``data: {"message": …}`` and at last ``data: {"result": …}`` or an error. Servers differ
in the rest (genkit-ai/genkit, its Go, Express, Next, FastAPI and Flask handlers): errors under ``error:`` instead of
``data:``, error JSON that is not escaped, a missing blank line, an error within an error, a bare ``END``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

__all__ = ["Event", "Failure", "Message", "Result", "StreamReader", "Unknown", "failure_of"]

MAXIMUM_FRAME: Final = 16 * 1024 * 1024
"""Bytes of one frame; media comes as data URLs, so it is much."""

_ASIDES: Final = ("event:", "id:", "retry:", ":")
"""Lines that server-sent events may have besides, for example of a proxy that keeps the connection alive."""


class Message(msgspec.Struct, frozen=True):
    """A chunk that the flow streamed: whatever it chose."""

    chunk: Any


class Result(msgspec.Struct, frozen=True):
    """What the flow returned; the stream is complete."""

    value: Any


class Failure(msgspec.Struct, frozen=True):
    """What the server says went wrong; ``status`` is Genkit's name of it, such as ``INVALID_ARGUMENT``."""

    status: str = "UNKNOWN"
    message: str = ""
    details: Any = None


class Unknown(msgspec.Struct, frozen=True):
    """A frame that none of these servers sends; ``kind`` is what it holds."""

    kind: str


Event: TypeAlias = Message | Result | Failure | Unknown


class StreamReader:
    """Bytes in, events out. Nothing is read after the result or the failure; ``ended`` tells whether one came."""

    def __init__(self) -> None:
        self.ended = False
        self._line = bytearray()
        self._frame: list[str] = []
        self._size = 0

    def receive(self, data: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete."""
        self._line += data
        if b"\n" not in data:
            if len(self._line) > MAXIMUM_FRAME:
                yield from self._end(_TOO_LARGE)
            return
        *lines, rest = self._line.split(b"\n")
        self._line = rest
        for line in lines:
            yield from self._read_line(line.decode("utf-8", "replace").removesuffix("\r"))

    def close(self) -> Iterator[Event]:
        """Yield what the last bytes hold, which need no blank line behind them."""
        last, self._line = self._line.decode("utf-8", "replace"), bytearray()
        yield from self._read_line(last)
        yield from self._flush(cut=True)

    def _read_line(self, line: str) -> Iterator[Event]:
        if not line.strip():
            yield from self._flush()
        elif line.startswith(("data:", "error:")):
            # A missing blank line (Python servers up to 0.9): the next frame ends the one before.
            yield from self._flush()
            self._add(line.partition(":")[2])
        elif self._frame or line.lstrip().startswith("{"):
            # More of a text that is not escaped (Go up to 1.2.0), or a body without any framing.
            self._add(line)
        elif line.strip() != "END" and not line.startswith(_ASIDES) and not self.ended:
            yield Unknown("text")
        if self._size > MAXIMUM_FRAME:
            yield from self._end(_TOO_LARGE)

    def _add(self, text: str) -> None:
        if not self.ended:
            self._frame.append(text)
            self._size += len(text)

    def _flush(self, *, cut: bool = False) -> Iterator[Event]:
        text = "\n".join(self._frame).strip()
        self._frame, self._size = [], 0
        event = _event_of(text) if text and not self.ended else None
        if event is not None:
            yield from self._end(event)
        elif text and not self.ended and not cut:  # a frame that was cut is no failure of its own
            yield from self._end(Failure("DATA_LOSS", f"a frame is not JSON: {text[:200]}"))

    def _end(self, event: Event) -> Iterator[Event]:
        if not self.ended:
            self.ended = isinstance(event, Result | Failure)
            if self.ended:
                self._line, self._frame, self._size = bytearray(), [], 0
            yield event


def failure_of(value: Any) -> Failure:
    """Read an error in any of the shapes that servers give it; one may be wrapped in another."""
    while isinstance(value, Mapping) and "error" in value:
        value = value["error"]
    if not isinstance(value, Mapping):
        return Failure(message=value if isinstance(value, str) else "")
    status, message = value.get("status"), value.get("message")
    return Failure(
        status.replace(" ", "_") if isinstance(status, str) else "UNKNOWN",  # Express itself writes INVALID ARGUMENT
        message if isinstance(message, str) else "",
        value.get("details"),
    )


_TOO_LARGE: Final = Failure("DATA_LOSS", "a frame of the stream is too large")


def _event_of(text: str) -> Event | None:
    """Read a frame; nothing if it is not JSON."""
    try:
        value = _read_json(text)
    except (ValueError, RecursionError):
        return _malformed(text)
    if not isinstance(value, dict):
        return Unknown(type(value).__name__)
    if "message" in value and "status" not in value:
        return Message(value["message"])
    if "result" in value or not value:
        return Result(value.get("result"))  # JavaScript leaves the key out for a flow that returns nothing
    if "error" in value or "message" in value:
        return failure_of(value)
    return Unknown(",".join(value))


def _read_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return json.loads(text)  # Python servers write NaN and lone surrogates


def _malformed(text: str) -> Failure | None:
    """Read what can be read: Go up to 1.2.0 puts the text of an error into the JSON without escaping it."""
    if not re.match(r'\{\s*"error"', text):
        return None
    found = {name: re.search(rf'"{name}"\s*:\s*"([^"]*)"', text) for name in ("status", "message")}
    status, message = (match.group(1) if match else "" for match in found.values())
    details = re.search(r'"details"\s*:\s*"(.*?)"?[\s}]*$', text, re.DOTALL)
    return Failure(status or "INTERNAL", message, details.group(1) if details else text)
