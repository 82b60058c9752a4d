"""Write a long capture to standard output: `python -m bench.captures "tool calls" 100 > calls.sse` writes 100 MB.

What `usechat check` takes for it, in seconds of a core and kilobytes at the peak:
`/usr/bin/time -f '%U s + %S s, %M KB' usechat check calls.sse`.
"""

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from bench.growth import call_parts, text_parts
from usechat.parts import Part
from usechat.protocol.sse import FrameStream
from usechat.protocol.stream import MessageStream

MEGABYTE: Final = 1_000_000
KINDS: Final[Mapping[str, Callable[[], Iterable[Part]]]] = {
    "text": lambda: itertools.chain.from_iterable(text_parts(1_000) for _ in itertools.count()),
    "tool calls": lambda: call_parts(sys.maxsize),
}


def capture(kind: str, size: int) -> Iterator[bytes]:
    """Yield the frames of one message of at least ``size`` bytes."""
    frames = FrameStream(MessageStream(message_id="message-1", sdk="7"))
    total = 0
    for part in KINDS[kind]():
        piece = frames.send(part)
        yield piece
        total += len(piece)
        if total >= size:
            break
    yield frames.close()


if __name__ == "__main__":
    for piece in capture(sys.argv[1], int(sys.argv[2]) * MEGABYTE):
        sys.stdout.buffer.write(piece)
