"""Server-sent events: chunks to frames, and bytes in any split back to events and chunks. Both ways are pure.

The decoder gives what the AI SDK's client gives (``TextDecoderStream``, then ``eventsource-parser`` 3): invalid UTF-8
is replaced, a byte order mark is dropped, lines end with LF, CR or CRLF and with nothing else, ``id``, ``retry``,
comments and unknown fields mean nothing, and an event without its blank line does not count.
"""

from typing import Final, TypeAlias

import msgspec

from usechat.errors import InvalidFrame, InvalidJSON, LocalProtocolError, RemoteProtocolError
from usechat.protocol import parts
from usechat.protocol.chunks import Chunk, FinishChunk, TextDeltaChunk, decode_chunk, encode_chunk, type_of
from usechat.protocol.stream import MessageStream

__all__ = [
    "DONE",
    "KEEP_ALIVE",
    "MAXIMUM_EVENT_BYTES",
    "STREAM_OPEN",
    "ChunkDecoder",
    "Event",
    "EventDecoder",
    "FrameStream",
    "encode_frame",
]


DONE: Final = b"data: [DONE]\n\n"
"""The last frame of a stream; clients do without it."""

STREAM_OPEN: Final = b": stream-open\n\n"
"""A comment to begin with, so that the headers go out before the first chunk is ready; the AI SDK writes the same."""

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment for idle times, so that no proxy takes the connection for dead."""

MAXIMUM_EVENT_BYTES: Final = 16 * 1024 * 1024
"""Room for a picture in a data URL."""

_EVENT_NAMES: Final = {"start": "message-start", "finish": "message-finish"}
_LINE_ENDS: Final = str.maketrans("\r\n", "  ")
_MARK: Final = b"\xef\xbb\xbf"
_MARK_ENCODED_TWICE: Final = b"\xc3\xaf\xc2\xbb\xc2\xbf"
_Bytes: TypeAlias = bytes | bytearray | memoryview


def encode_frame(chunk: Chunk, *, event_names: bool = False) -> bytes:
    """Write one chunk as a server-sent event; ``event_names`` adds an ``event:`` line, which clients ignore."""
    frame = b"data: " + encode_chunk(chunk) + b"\n\n"
    if event_names:
        name = _EVENT_NAMES.get(type_of(chunk)) or type_of(chunk).translate(_LINE_ENDS)
        return b"event: " + name.encode("utf-8", "replace") + b"\n" + frame
    return frame


def _to_bytes(data: object) -> bytes:
    if not isinstance(data, _Bytes):
        raise LocalProtocolError(f"a decoder takes bytes, not {type(data).__name__}; encode a text as UTF-8 first")
    return bytes(data)


class Event(msgspec.Struct, frozen=True):
    """One event as it came: its data lines joined, its name if it had one, its place in the stream from 1 on."""

    data: str
    name: str | None = None
    number: int = 1


class EventDecoder:
    """Bytes to events. The work is linear in the bytes, however they are cut; memory is bounded by one event.

    An event over the limit is an :class:`~usechat.errors.InvalidFrame`. What came before it in the same bytes is
    returned first; the error is raised by the next call, and by every call after it.
    """

    def __init__(self, *, maximum_event_bytes: int = MAXIMUM_EVENT_BYTES) -> None:
        self._maximum = maximum_event_bytes
        self._line = bytearray()  # the line that has not ended yet
        self._data: list[bytes] = []
        self._size = 0  # of the lines in _data
        self._name: str | None = None
        self._count = 0
        self._at_start = True
        self._error: InvalidFrame | None = None

    def receive(self, data: _Bytes) -> list[Event]:
        """Take the next bytes and return the events that they complete."""
        if self._error is not None:
            raise self._error
        events: list[Event] = []
        try:
            for line in self._lines(data if type(data) is bytes else _to_bytes(data)):
                self._receive_line(line, events)
            self._check_size(len(self._line) - self._line.endswith(b"\r"))
        except InvalidFrame as error:
            self._error = error
            self._line.clear()
            self._data.clear()
            if not events:
                raise
        return events

    def close(self) -> str:
        """Say that the bytes are over. Returns what no client will see: the lines of an event that was not finished."""
        if self._error is not None:
            raise self._error
        line = bytes(self._line).removesuffix(b"\r")
        return b"\n".join([*self._data, line] if line else self._data).decode("utf-8", "replace")

    def _lines(self, data: bytes) -> list[bytes]:
        after_return = self._line.endswith(b"\r")
        self._line += data
        if not (after_return or b"\n" in data or b"\r" in data):
            return []
        received = bytes(self._line)
        lines = received.splitlines()
        self._line.clear()
        if not received.endswith(b"\n"):
            self._line += lines.pop()
            if received.endswith(b"\r"):
                self._line += b"\r"  # perhaps half of a CRLF; the client waits for the next character, too
        return lines

    def _receive_line(self, line: bytes, events: list[Event]) -> None:
        self._check_size(len(line))
        if self._at_start:
            # TextDecoderStream drops the mark, eventsource-parser one that was taken for Latin-1 and encoded again.
            line = line.removeprefix(_MARK).removeprefix(_MARK_ENCODED_TWICE)
            self._at_start = False
        if not line:
            self._dispatch(events)
            return
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
            self._size += len(line)
        elif field == b"event":
            self._name = value.removeprefix(b" ").decode("utf-8", "replace") or None

    def _dispatch(self, events: list[Event]) -> None:
        if self._data:
            self._count += 1
            events.append(Event(b"\n".join(self._data).decode("utf-8", "replace"), self._name, self._count))
            self._data = []
            self._size = 0
        self._name = None

    def _check_size(self, line_size: int) -> None:
        if self._size + line_size > self._maximum:
            raise InvalidFrame(
                f"frame {self._count + 1}: an event of more than {self._maximum} bytes; send less in one chunk,"
                " or read with a larger maximum_event_bytes"
            )


class ChunkDecoder:
    """Bytes to chunks, without ``[DONE]``.

    What is not a legal chunk is a :class:`~usechat.errors.RemoteProtocolError` that names its frame. The chunks before
    it in the same bytes are returned first; the error is raised by the next call, and by every call after it.
    """

    def __init__(self, *, maximum_event_bytes: int = MAXIMUM_EVENT_BYTES) -> None:
        self._events = EventDecoder(maximum_event_bytes=maximum_event_bytes)
        self._error: RemoteProtocolError | None = None

    def receive(self, data: _Bytes) -> list[Chunk]:
        """Take the next bytes and return the chunks that they complete."""
        if self._error is not None:
            raise self._error
        chunks: list[Chunk] = []
        try:
            for event in self._events.receive(data):
                chunks += _chunks_of(event)
        except RemoteProtocolError as error:
            self._error = error
            if not chunks:
                raise
        return chunks

    def close(self) -> str:
        """Say that the bytes are over; the result is that of :meth:`EventDecoder.close`."""
        if self._error is not None:
            raise self._error
        return self._events.close()


def _chunks_of(event: Event) -> list[Chunk]:
    if event.data == "[DONE]":
        return []
    try:
        return [decode_chunk(event.data)]
    except RemoteProtocolError as error:
        excerpt = f": {event.data[:80]!r}" if isinstance(error, InvalidJSON) else ""
        error.args = (f"frame {event.number}: {error}{excerpt}",)
        raise


# -- Parts in, bytes out: a message stream that writes its own frames.

_encode_text: Final = msgspec.json.Encoder().encode


class FrameStream:
    """Writes the server-sent events of one message; the caller passes them on as they come.

    Text deltas are most of a stream. As the only sender of its stream it knows which text block is open, and fills a
    template with the escaped text instead of building a chunk and encoding it.
    """

    # Used for every delta of every stream: no __dict__, see usechat.runs.log.
    __slots__ = ("_lane", "_stream", "_template", "event_names")

    def __init__(self, stream: MessageStream, *, event_names: bool = False) -> None:
        self._stream = stream
        self.event_names = event_names
        self._lane = ""
        self._template: bytes | None = None

    def send(self, part: parts.Part) -> bytes:
        """Return the frames that this part takes: none, one or several."""
        if (
            self._template is not None
            and part.__class__ is parts.Text
            and part.lane == self._lane
            and (text := part.text)
            and text.__class__ is str
            and part.provider_metadata is None
        ):
            try:
                return self._template % _encode_text(text)
            except UnicodeEncodeError:
                pass  # a lone surrogate takes the long way
        return self._frames(self._stream.send(part), part.lane)

    def fail(self, text: str) -> bytes:
        """End the stream with an error that the user sees."""
        return self._frames(self._stream.fail(text))

    def close(self) -> bytes:
        """End the stream well, unless it has ended already."""
        return self._frames(self._stream.close())

    def _frames(self, chunks: list[Chunk], lane: str = "") -> bytes:
        last = chunks[-1] if chunks else None
        self._lane = lane
        self._template = None
        if isinstance(last, TextDeltaChunk) and not self._stream.holds_back:
            self._template = _template(last.id, event_names=self.event_names)
        frames = [encode_frame(chunk, event_names=self.event_names) for chunk in chunks]
        if isinstance(last, FinishChunk):
            frames.append(DONE)
        return b"".join(frames)


def _template(block_id: str, *, event_names: bool) -> bytes:
    empty = encode_frame(TextDeltaChunk(block_id, ""), event_names=event_names)
    return empty.replace(b"%", b"%%").replace(b'""}', b"%b}")
