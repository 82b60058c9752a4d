"""Server-sent events: everything that is known about the bytes of a stream.

A frame is one event: ``data: ``, the JSON of a chunk, an empty line. JSON has no line breaks outside of strings and
escapes those inside, so in our own streams an empty line always ends a frame, and bytes can be cut, joined and counted
without being parsed. Every module that handles our own frames as bytes uses this one. The checker, the Genkit client
and the search for secrets in ``usechat.testing`` also read lines that are not legal frames, and ``usechat.testing``
writes the frames of model APIs.

- **Writing**: :func:`encode_frame`, :func:`encode_frames`, and :class:`FrameStream` for a whole message, which writes
  most deltas by filling a template with the escaped text.
- **Handling our own frames**: :func:`end_of_piece` and :func:`pieces_of` cut between frames, :func:`chunks_json` takes
  the JSON out, :class:`ShortenedFrames` keeps a long stream in few bytes, and :class:`Restorer` writes it as it was.
- **Reading what others write**: :class:`EventDecoder` and :class:`ChunkDecoder` take bytes in any split.

The decoder gives what the AI SDK's client gives (``TextDecoderStream``, then ``eventsource-parser`` 3): invalid UTF-8
is replaced, a byte order mark is dropped, lines end with LF, CR or CRLF and with nothing else, ``id``, ``retry``,
comments and unknown fields mean nothing, and an event without its blank line does not count.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from usechat.errors import InvalidFrame, InvalidJSON, LocalProtocolError, RemoteProtocolError
from usechat.protocol import parts
from usechat.protocol.chunks import Chunk, FinishChunk, decode_chunk, encode_chunk, type_of
from usechat.protocol.stream import MessageStream, OpenBlock, same_metadata

__all__ = [
    "DONE",
    "END_MARK",
    "KEEP_ALIVE",
    "MAXIMUM_EVENT_BYTES",
    "STREAM_OPEN",
    "ChunkDecoder",
    "Cuts",
    "Event",
    "EventDecoder",
    "FrameStream",
    "Restorer",
    "ShortenedFrames",
    "chunks_json",
    "encode_frame",
    "encode_frames",
    "end_of_first_frame",
    "end_of_last_frame",
    "end_of_piece",
    "ends_step",
    "has_ending",
    "own_chunks",
    "pieces_of",
    "take_frames",
    "without_first",
]


END_MARK: Final = "[DONE]"
"""The data of the last frame of a stream."""

DONE: Final = f"data: {END_MARK}\n\n".encode()
"""The last frame of a stream; clients do without it."""

STREAM_OPEN: Final = b": stream-open\n\n"
"""A comment that comes first, so that headers are sent before the first chunk is ready; the AI SDK writes it, too."""

KEEP_ALIVE: Final = b": keep-alive\n\n"
"""A comment for idle times, so that no proxy closes the connection."""

MAXIMUM_EVENT_BYTES: Final = 16 * 1024 * 1024
"""The default limit of a decoder: large enough for a picture in a data URL."""

_DATA: Final = b"data: "
_FRAME_END: Final = b"\n\n"
_EVENT_NAMES: Final = {"start": "message-start", "finish": "message-finish"}
_LINE_ENDS: Final = str.maketrans("\r\n", "  ")
_MARK: Final = b"\xef\xbb\xbf"
_MARK_ENCODED_TWICE: Final = b"\xc3\xaf\xc2\xbb\xc2\xbf"
_Bytes: TypeAlias = bytes | bytearray | memoryview


# Writing


def encode_frame(chunk: Chunk, *, event_names: bool = False) -> bytes:
    r"""Write one chunk as a server-sent event.

    >>> from usechat import MessageStream, Text
    >>> encode_frame(MessageStream(message_id="m1", sdk="7").send(Text("Hello"))[-1])
    b'data: {"type":"text-delta","id":"1","delta":"Hello"}\n\n'

    :param event_names: add an ``event:`` line, which clients ignore and people who watch the bytes may like.

    Values that are not JSON are converted as ``docs/values.md`` says; nothing is refused.
    """
    frame = _DATA + encode_chunk(chunk) + _FRAME_END
    if event_names:
        name = _EVENT_NAMES.get(type_of(chunk)) or type_of(chunk).translate(_LINE_ENDS)
        return b"event: " + name.encode("utf-8", "replace") + b"\n" + frame
    return frame


def encode_frames(chunks: Sequence[Chunk], *, event_names: bool = False) -> bytes:
    """Write chunks as server-sent events; a ``finish`` at the end is followed by ``[DONE]``."""
    frames = [encode_frame(chunk, event_names=event_names) for chunk in chunks]
    if chunks and isinstance(chunks[-1], FinishChunk):
        frames.append(DONE)
    return b"".join(frames)


_encode_text: Final = msgspec.json.Encoder().encode


class FrameStream:
    r"""Turn the parts of one assistant message into server-sent events.

    The same as :class:`~usechat.protocol.stream.MessageStream` with :func:`encode_frame` and ``[DONE]``, in bytes, and
    about three times as fast for text.

    >>> from usechat import MessageStream
    >>> from usechat.parts import Text
    >>> frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
    >>> opening = frames.send(Text("Hel"))
    >>> frames.send(Text("lo"))
    b'data: {"type":"text-delta","id":"1","delta":"lo"}\n\n'
    >>> frames.close().endswith(b"data: [DONE]\n\n")
    True

    :param stream: the message; nobody else may send to it.
    :param event_names: add an ``event:`` line to each frame, which clients ignore.

    Each method returns the frames to pass on, which may be none (``b""``), and raises what the method of the stream
    raises.
    """

    # Deltas are most of a stream. While a block is open, and this object is the only sender, all that can change in the
    # next frame of its lane is the text: it is put into a template, and no chunk is built and encoded.
    # Used for every delta of every stream: no __dict__, see usechat.runs.log.
    __slots__ = ("_kind", "_lane", "_metadata", "_stream", "_template", "event_names")

    def __init__(self, stream: MessageStream, *, event_names: bool = False) -> None:
        self._stream = stream
        self.event_names = event_names
        self._kind: type[parts.Text | parts.Reasoning] | None = None  # of the block that the template is for
        self._lane = ""
        self._metadata: Any = None
        self._template = b""

    def send(self, part: parts.Part) -> bytes:
        """Return the frames that this part takes: none, one or several."""
        if (
            part.__class__ is self._kind
            and part.lane == self._lane
            and (text := part.text)
            and text.__class__ is str
            and (
                (metadata := part.provider_metadata) is None
                or metadata is self._metadata
                or (self._metadata is not None and same_metadata(metadata, self._metadata))
            )
        ):
            try:
                return self._template % _encode_text(text)
            except UnicodeEncodeError:
                pass  # a lone surrogate: only encode_chunk can write it
        return self._write(self._stream.send(part), part.lane)

    def settle(self) -> bytes:
        """Settle everything that is incomplete, as a good ending would: :meth:`MessageStream.settle` in bytes."""
        return self._write(self._stream.settle())

    def fail(self, text: str) -> bytes:
        """End the stream with an error that the user sees."""
        return self._write(self._stream.fail(text))

    def close(self) -> bytes:
        """End the stream well, unless it has ended already."""
        return self._write(self._stream.close())

    def _write(self, chunks: list[Chunk], lane: str = "") -> bytes:
        block = self._stream.open_block(lane)
        self._kind = None
        if block is not None and chunks and chunks[-1].__class__ is block.delta:
            self._expect_more(block, lane)
        return encode_frames(chunks, event_names=self.event_names)

    def _expect_more(self, block: OpenBlock, lane: str) -> None:
        """Make the template for the next text of an open block."""
        empty = encode_frame(block.delta(block.id, ""), event_names=self.event_names)
        self._template = empty.replace(b"%", b"%%").replace(b'""}', b"%b}")
        self._kind, self._lane, self._metadata = block.kind, lane, block.provider_metadata


# Handling our own frames


def end_of_piece(frames: bytes | bytearray, begin: int, size: int, end: int) -> int:
    """Return where a piece of whole frames ends that begins at ``begin`` and has at least ``size`` bytes.

    It is ``end`` if there are fewer.
    """
    position = frames.find(_FRAME_END, begin + max(0, size - len(_FRAME_END)), end)
    return end if position < 0 else position + len(_FRAME_END)


def pieces_of(frames: bytes, size: int) -> Iterator[bytes]:
    """Cut frames into pieces of whole frames, each of about ``size`` bytes."""
    begin = 0
    while begin < len(frames):
        end = end_of_piece(frames, begin, size, len(frames))
        yield frames[begin:end]
        begin = end


def end_of_first_frame(frames: bytes) -> int:
    """Return where the first whole frame ends; 0 if there is none."""
    return frames.find(_FRAME_END) + len(_FRAME_END) if _FRAME_END in frames else 0


def end_of_last_frame(frames: bytes) -> int:
    """Return where the last whole frame ends; 0 if there is none."""
    return frames.rfind(_FRAME_END) + len(_FRAME_END) if _FRAME_END in frames else 0


def ends_step(frames: bytes) -> bool:
    """Tell whether frames of ours may end a step. Text that contains the name of the chunk counts, too."""
    return b'"finish-step"' in frames


def take_frames(received: bytearray) -> list[bytes]:
    """Remove the complete frames from what was received and return them; the rest stays.

    >>> received = bytearray(b"data: 1\\n\\ndata: 2")
    >>> take_frames(received), bytes(received)
    ([b'data: 1\\n\\n'], b'data: 2')
    """
    *complete, rest = bytes(received).split(_FRAME_END)
    received[:] = rest
    return [frame + _FRAME_END for frame in complete]


def chunks_json(frames: bytes) -> list[bytes]:
    """Return the JSON of each chunk as it was encoded; comments and ``[DONE]`` are left out."""
    # A frame begins with "data: ", or has it behind the name of the event; a comment of ours never holds it.
    lines = (frame.partition(_DATA)[2] for frame in frames.split(_FRAME_END))
    return [data for data in lines if data and data != b"[DONE]"]


def own_chunks(frames: bytes) -> Iterator[Chunk]:
    """Read the chunks of whole frames that this program has written: however large one is, it was sent."""
    return map(decode_chunk, chunks_json(frames))


def has_ending(frames: bytes) -> bool:
    """Tell whether frames of ours hold the chunk behind which a client expects nothing more."""
    return any(data.startswith(_ENDINGS) for data in chunks_json(frames))


def without_first(frames: bytes, count: int) -> tuple[bytes, int]:
    r"""Leave out the first ``count`` chunks of whole frames; return the rest, and how many were left out.

    >>> without_first(b'data: {}\n\n: a comment\n\ndata: []\n\n', 1)
    (b': a comment\n\ndata: []\n\n', 1)
    """
    left_out = end = 0
    while left_out < count and (next_end := frames.find(_FRAME_END, end) + len(_FRAME_END)) >= len(_FRAME_END):
        left_out += len(chunks_json(frames[end:next_end]))
        end = next_end
    return frames[end:], left_out


_ENDINGS: Final = (b'{"type":"finish"', b'{"type":"error"')
_DELTA_END: Final = b'"}' + _FRAME_END
_DELTA_BEGIN: Final = re.compile(
    rb'(?:event: [a-z-]+\n)?data: \{"type":"(?:text|reasoning)-delta","id":"(?:[^"\\\n]|\\.)*","delta":"'
)
"""The beginning of a delta without provider metadata, up to its text."""
_LARGEST_MERGED: Final = 64 * 1024
"""Bytes of a merged frame: readers take the log in pieces of whole frames, which must not grow too large."""
_BETWEEN_FRAMES: Final = re.compile(rb"(?<=\n\n)(?!\Z)")


class ShortenedFrames:
    """Keep the frames of a run in few bytes: deltas of one block that follow each other become one.

    The frame of a one-word delta takes ten times as many bytes as the word. What is read makes the same message.
    Tool inputs stay as they are, because they are short. ``before`` is how many bytes of the stream are elsewhere;
    ``cuts`` has their cuts, and gets those of these.
    """

    __slots__ = ("_before", "_beginning", "_frames", "_last", "cuts")

    def __init__(self, before: int = 0, cuts: "Cuts | None" = None) -> None:
        self.cuts = Cuts() if cuts is None else cuts
        """Where deltas were merged."""
        self._before = before
        self._frames = bytearray()
        self._last = 0  # where the last frame begins
        self._beginning = b""  # of the last frame, if text can be added to it

    def __bytes__(self) -> bytes:
        return bytes(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def read(self, place: int, size: int) -> bytes:
        """Return whole frames from a place on: at most ``size`` bytes, but at least one frame if there is any."""
        end = len(self._frames)
        if end - place > size:
            cut = self._frames.rfind(_FRAME_END, place, place + size)
            end = end_of_piece(self._frames, place, 0, end) if cut < 0 else cut + len(_FRAME_END)
        if end > self._last:
            self._beginning = b""  # nothing may be added to a frame that somebody has read
        return bytes(self._frames[place:end])

    def add(self, frames: bytes) -> None:
        """Add whole frames."""
        if len(frames) > _LARGEST_MERGED or not self._add_deltas(frames):  # mostly they all are deltas of one block
            for frame in _BETWEEN_FRAMES.split(frames):
                if not self._add_deltas(frame):
                    self._frames += frame
                    self._beginning = b""

    def _add_deltas(self, frames: bytes) -> bool:
        """Add frames if they are deltas of one block that hold nothing but text; tell whether they are."""
        match = _DELTA_BEGIN.match(frames)
        if match is None:
            return False
        beginning = match[0]
        merged = frames.replace(_DELTA_END + beginning, b"")
        if not merged.endswith(_DELTA_END) or merged.find(_FRAME_END) != len(merged) - len(_FRAME_END):
            return False
        if beginning == self._beginning and len(self._frames) - self._last + len(merged) <= _LARGEST_MERGED:
            del self._frames[-len(_DELTA_END) :]
            merged = merged[len(beginning) :]
            self.cuts.add(self._before + len(self._frames))
            text_begin = len(self._frames)
        else:
            self._last = len(self._frames)
            text_begin = self._last + len(beginning)
        if len(merged) < len(frames) - len(beginning):  # there are several
            self._add_cuts(frames, beginning, self._before + text_begin)
        self._frames += merged
        self._beginning = beginning
        return True

    def _add_cuts(self, frames: bytes, beginning: bytes, place: int) -> None:
        texts = frames[len(beginning) : -len(_DELTA_END)].split(_DELTA_END + beginning)
        for text in texts[:-1]:
            place += len(text)
            self.cuts.add(place)


class Cuts:
    """Where deltas meet that were merged into one: places in shortened frames, in a byte or two for each."""

    __slots__ = ("_last", "gaps")

    def __init__(self) -> None:
        self.gaps = bytearray()
        """The distance of each cut from the one before it, in groups of seven bits, the lowest first."""
        self._last = 0

    def __len__(self) -> int:
        return len(self.gaps)

    def add(self, place: int) -> None:
        """Add the next cut."""
        gap, self._last = place - self._last, place
        while gap >= _GROUP:
            self.gaps.append(gap % _GROUP + _GROUP)
            gap //= _GROUP
        self.gaps.append(gap)


_GROUP: Final = 128


class Restorer:
    """Writes shortened frames as they were before, going through them once, while more may be added behind."""

    __slots__ = ("_cut", "_place", "_position")

    def __init__(self) -> None:
        self._place = 0  # how many shortened bytes were restored
        self._position = 0  # of the next cut in the gaps
        self._cut = 0  # the cut before that

    def restore(self, frames: bytes, cuts: Cuts) -> bytes:
        """Take the next whole frames, and return them with each delta alone."""
        begin, self._place = self._place, self._place + len(frames)
        pieces: list[bytes] = []
        end, separator = 0, b""
        for cut in self._until(self._place, cuts.gaps):
            frame = frames.rfind(_FRAME_END, end, cut - begin)
            if frame >= 0 or not separator:
                match = _DELTA_BEGIN.match(frames, 0 if frame < 0 else frame + len(_FRAME_END))
                assert match is not None, "a cut is inside of a delta"
                separator = _DELTA_END + match[0]
            pieces += (frames[end : cut - begin], separator)
            end = cut - begin
        return b"".join([*pieces, frames[end:]])

    def _until(self, end: int, gaps: bytearray) -> Iterator[int]:
        while self._position < len(gaps):
            gap, groups = 0, 0
            while (group := gaps[self._position + groups]) >= _GROUP:
                gap += (group - _GROUP) << 7 * groups
                groups += 1
            gap += group << 7 * groups
            if self._cut + gap >= end:
                return
            self._cut += gap
            self._position += groups + 1
            yield self._cut


# Reading what others write


def _to_bytes(data: object) -> bytes:
    if not isinstance(data, _Bytes):
        raise LocalProtocolError(f"a decoder accepts bytes, not {type(data).__name__}; encode a text as UTF-8 first")
    return bytes(data)


class Event(msgspec.Struct, frozen=True):
    """One event as it came: its data lines joined, its name if it had one, its place in the stream from 1 on."""

    data: str
    name: str | None = None
    number: int = 1


class EventDecoder:
    """Turn bytes into events, in time linear in the bytes however they are cut, and memory bounded by one event.

    An event over the limit is an :class:`~usechat.errors.InvalidFrame`. What came before it in the same bytes is
    returned first; the error is raised by the next call, and by every call after it. ``maximum_event_bytes`` is the
    limit.

    >>> [event.data for event in EventDecoder().receive(b"data: Hello\\n\\n")]
    ['Hello']
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
        if self._is_one_event(data):
            self._count += 1
            return [Event(bytes(data[6:-2]).decode("utf-8", "replace"), None, self._count)]
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

    def _is_one_event(self, data: _Bytes) -> bool:
        """Tell whether these bytes are exactly one event of one line, as most senders write them."""
        return (
            type(data) is bytes
            and not (self._line or self._data or self._name or self._at_start)
            and data.startswith(b"data: ")
            and data.endswith(b"\n\n")
            and data.count(b"\n") == 2
            and b"\r" not in data
            and len(data) - 2 <= self._maximum
        )

    def close(self) -> str:
        """End the input; return the lines of an event that was not finished, which no client sees."""
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
    r"""Turn the bytes of a stream into chunks; ``[DONE]`` is left out.

    >>> decoder = ChunkDecoder()
    >>> decoder.receive(b'data: {"type":"text-delta","id":"1",')
    []
    >>> decoder.receive(b'"delta":"Hello"}\n\ndata: [DONE]\n\n')
    [TextDeltaChunk(id='1', delta='Hello', provider_metadata=None)]
    >>> decoder.close()
    ''

    :param maximum_event_bytes: the largest event that is read, which bounds the memory.

    :meth:`receive` and :meth:`close` raise :class:`~usechat.errors.RemoteProtocolError`, which names the frame, for
    what is not a legal chunk. The chunks before it in the same bytes are returned first; the error is raised by the
    next call, and by every call after it.
    """

    def __init__(self, *, maximum_event_bytes: int = MAXIMUM_EVENT_BYTES) -> None:
        self._events = EventDecoder(maximum_event_bytes=maximum_event_bytes)
        self._error: RemoteProtocolError | None = None
        self.is_done = False
        """Whether ``[DONE]`` was read."""

    def receive(self, data: _Bytes) -> list[Chunk]:
        """Take the next bytes and return the chunks that they complete."""
        if self._error is not None:
            raise self._error
        chunks: list[Chunk] = []
        try:
            for event in self._events.receive(data):
                chunks += _chunks_of(event)
                self.is_done = self.is_done or event.data == END_MARK
        except RemoteProtocolError as error:
            self._error = error
            if not chunks:
                raise
        return chunks

    def close(self) -> str:
        """End the input; return the lines of an event that was not finished, which no client sees."""
        if self._error is not None:
            raise self._error
        return self._events.close()


def _chunks_of(event: Event) -> list[Chunk]:
    if event.data == END_MARK:
        return []
    try:
        return [decode_chunk(event.data)]
    except RemoteProtocolError as error:
        excerpt = f": {event.data[:80]!r}" if isinstance(error, InvalidJSON) else ""
        error.args = (f"frame {event.number}: {error}{excerpt}",)
        raise
