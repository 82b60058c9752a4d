"""The stream of a Genkit server, read tolerantly: every generation of the Go, JavaScript and Python servers.

A stream is a list of frames: ``data: {"message": …}``, and finally ``data: {"result": …}`` or an error. Servers differ
in the rest (genkit-ai/genkit, its Go, Express, Next, FastAPI and Flask handlers): errors under ``error:`` instead of
``data:``, error JSON that is not escaped, a missing blank line, an error within an error, a bare ``END``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import msgspec

__all__ = [
    "STATUS_NAMES",
    "FlowChunk",
    "FlowEvent",
    "FlowFailure",
    "FlowResult",
    "StreamReader",
    "UnknownFrame",
    "failure_of",
]

STATUS_NAMES: Final = frozenset(
    {
        "OK",
        "CANCELLED",
        "UNKNOWN",
        "INVALID_ARGUMENT",
        "DEADLINE_EXCEEDED",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "RESOURCE_EXHAUSTED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "INTERNAL",
        "UNAVAILABLE",
        "DATA_LOSS",
    }
)
"""The statuses of Genkit, which are those of gRPC. An error with another one is not Genkit's."""

MAXIMUM_FRAME: Final = 16 * 1024 * 1024
"""The largest frame, in bytes. Media is sent as data URLs, so it is large."""

_OTHER_LINES: Final = ("event:", "id:", "retry:", ":")
"""Other lines of server-sent events, such as the keep-alive comments of a proxy."""


class FlowChunk(msgspec.Struct, frozen=True):
    """A chunk that the flow streamed: any JSON value.

    >>> FlowChunk({"text": "Hello"}).chunk
    {'text': 'Hello'}
    """

    chunk: Any


class FlowResult(msgspec.Struct, frozen=True):
    """The return value of the flow; the stream is complete.

    >>> FlowResult("Hello").value
    'Hello'
    """

    value: Any


class FlowFailure(msgspec.Struct, frozen=True):
    """An error that the server reports; ``status`` is Genkit's name of it, such as ``INVALID_ARGUMENT``.

    ``message`` and ``details`` are the server's own, and are logged.

    >>> FlowFailure("INVALID_ARGUMENT", "There is no city.").status
    'INVALID_ARGUMENT'
    """

    status: str = "UNKNOWN"
    message: str = ""
    details: Any = None


class UnknownFrame(msgspec.Struct, frozen=True):
    """A frame that none of these servers sends; ``kind`` describes its content."""

    kind: str


FlowEvent: TypeAlias = FlowChunk | FlowResult | FlowFailure | UnknownFrame


class StreamReader:
    """Turns bytes into events, up to the result or the failure; ``ended`` says whether one came."""

    def __init__(self) -> None:
        self.ended = False
        self.is_genkit = False
        """Whether one of the frames was Genkit's. Unknown frames are not, nor errors with a foreign status."""
        self._line = bytearray()
        self._frame: list[str] = []
        self._has_prefix = False  # whether the frame began with `data:` or `error:`
        self._size = 0

    def receive(self, data: bytes) -> Iterator[FlowEvent]:
        """Yield the events that are complete with these bytes."""
        self._line += data
        if b"\n" not in data:
            if len(self._line) > MAXIMUM_FRAME:
                yield from self._end(_TOO_LARGE)
            return
        *lines, rest = self._line.split(b"\n")
        self._line = rest
        for line in lines:
            yield from self._read_line(line.decode("utf-8", "replace").removesuffix("\r"))

    def close(self) -> Iterator[FlowEvent]:
        """Yield the last event, which needs no blank line after it."""
        last, self._line = self._line.decode("utf-8", "replace"), bytearray()
        yield from self._read_line(last)
        yield from self._flush(cut=True)

    def _read_line(self, line: str) -> Iterator[FlowEvent]:
        if not line.strip():
            yield from self._flush()
        elif line.startswith(("data:", "error:")):
            # A missing blank line (Python servers up to 0.9): the next frame ends the one before.
            yield from self._flush()
            self._has_prefix = True
            self._add(line.partition(":")[2])
        elif self._frame or line.lstrip().startswith("{"):
            # The next line of a text that is not escaped (Go up to 1.2.0), or a body without framing.
            self._has_prefix = self._has_prefix and bool(self._frame)
            self._add(line)
        elif line.strip() != "END" and not line.startswith(_OTHER_LINES) and not self.ended:
            yield UnknownFrame("text")
        if self._size > MAXIMUM_FRAME:
            yield from self._end(_TOO_LARGE)

    def _add(self, text: str) -> None:
        if not self.ended:
            self._frame.append(text)
            self._size += len(text)

    def _flush(self, *, cut: bool = False) -> Iterator[FlowEvent]:
        text = "\n".join(self._frame).strip()
        self._frame, self._size = [], 0
        event = _event_of(text, is_framed=self._has_prefix) if text and not self.ended else None
        if event is not None:
            # With status 200, Genkit reports errors in frames, or with its name for their status.
            is_nameless = isinstance(event, FlowFailure) and event.status == "UNKNOWN" and not self._has_prefix
            yield from self._end(event, is_readable=not is_nameless)
        elif text and not self.ended and not cut:  # a truncated frame is not reported twice
            not_json = FlowFailure("DATA_LOSS", f"a frame is not JSON: {text[:200]}")
            yield from self._end(not_json, is_readable=False)

    def _end(self, event: FlowEvent, *, is_readable: bool = True) -> Iterator[FlowEvent]:
        if not self.ended:
            self.is_genkit = self.is_genkit or (is_readable and not _is_foreign(event))
            self.ended = isinstance(event, FlowResult | FlowFailure)
            if self.ended:
                self._line, self._frame, self._size = bytearray(), [], 0
            yield event


def _is_foreign(event: FlowEvent) -> bool:
    return isinstance(event, UnknownFrame) or (isinstance(event, FlowFailure) and event.status not in STATUS_NAMES)


def failure_of(value: Any) -> FlowFailure:
    """Read an error in any of the shapes that servers use; errors may be nested."""
    while isinstance(value, Mapping) and "error" in value:
        value = value["error"]
    if not isinstance(value, Mapping):
        return FlowFailure(message=value if isinstance(value, str) else "")
    status, message = value.get("status"), value.get("message")
    return FlowFailure(
        status.replace(" ", "_") if isinstance(status, str) else "UNKNOWN",  # Express itself writes INVALID ARGUMENT
        message if isinstance(message, str) else "",
        value.get("details"),
    )


_TOO_LARGE: Final = FlowFailure("DATA_LOSS", "a frame of the stream is too large")


def _event_of(text: str, *, is_framed: bool) -> FlowEvent | None:
    """Read a frame; return ``None`` if it is not JSON.

    A body without framing is a plain answer of Genkit only if it has a result or an error: a chunk, a flow that returns
    nothing and the other shapes of errors come in frames, or with a status other than 200.
    """
    try:
        value = _read_json(text)
    except (ValueError, RecursionError):
        return _malformed(text)
    if not isinstance(value, dict):
        return UnknownFrame(type(value).__name__)
    if not is_framed and not value.keys() & {"result", "error"}:
        return UnknownFrame(",".join(value))
    if "message" in value and "status" not in value:
        return FlowChunk(value["message"])
    if "result" in value or not value:
        return FlowResult(value.get("result"))  # JavaScript leaves the key out for a flow that returns nothing
    if "error" in value or "message" in value:
        return failure_of(value)
    return UnknownFrame(",".join(value))


def _read_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return json.loads(text)  # Python servers write NaN and lone surrogates


def _malformed(text: str) -> FlowFailure | None:
    """Read what can be read of invalid JSON: Go up to 1.2.0 does not escape the text of an error."""
    if not re.match(r'\{\s*"error"', text):
        return None
    matches = {name: re.search(rf'"{name}"\s*:\s*"([^"]*)"', text) for name in ("status", "message")}
    status, message = (match.group(1) if match else "" for match in matches.values())
    details = re.search(r'"details"\s*:\s*"(.*?)"?[\s}]*$', text, re.DOTALL)
    return FlowFailure(status or "INTERNAL", message, details.group(1) if details else text)
