"""Parts in, bytes out: a message stream that writes its own frames."""

from typing import Final

import msgspec

from usechat import parts
from usechat.chunks import Chunk, Finish, TextDelta
from usechat.sse import DONE, encode_frame
from usechat.stream import MessageStream

__all__ = ["FrameStream"]

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
        if isinstance(last, TextDelta) and not self._stream.holds_back:
            self._template = _template(last.id, event_names=self.event_names)
        frames = [encode_frame(chunk, event_names=self.event_names) for chunk in chunks]
        if isinstance(last, Finish):
            frames.append(DONE)
        return b"".join(frames)


def _template(block_id: str, *, event_names: bool) -> bytes:
    empty = encode_frame(TextDelta(block_id, ""), event_names=event_names)
    return empty.replace(b"%", b"%%").replace(b'""}', b"%b}")
