"""What every contestant streams, in the shape it takes: texts, JSON payloads or finished frames.

Every delta begins with a mark that appears nowhere else, so that the client counts deltas however they are framed. In a
paced stream the time at which the delta was due follows, by the clock that all processes of a machine share.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from functools import partial
from itertools import count
from time import monotonic_ns
from typing import Final, Literal, TypeAlias, TypeVar

from bench.sample import BLOCK_ID, text_deltas

Pace: TypeAlias = Literal["paced", "flood"]
Item = TypeVar("Item", str, bytes)

MARK: Final = b"@"
DIGITS: Final = 16
"""Digits of a time in a delta; nanoseconds since the machine was started."""
PER_SECOND: Final = 30
INTERVAL: Final = 1_000_000_000 // PER_SECOND
FLOOD_DELTAS: Final = 2000
"""Deltas of one flooding answer; the client asks for the next when it has them."""

TEXT: Final = "@%016d"
_PAYLOAD: Final = f'{{"type":"text-delta","id":"{BLOCK_ID}","delta":"{TEXT}"}}'
FRAME: Final = f"data: {_PAYLOAD}\n\n".encode()
_WORDS: Final = [f"@{word.strip()}" for word in text_deltas(FLOOD_DELTAS) if '"' not in word and "\\" not in word]
FLOOD_COUNT: Final = len(_WORDS)


class Load:
    """The deltas of one answer: 30 a second for as long as somebody listens, or all at once."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self._paced = pace == "paced"
        self._payloads = [_PAYLOAD.replace(TEXT, word) for word in _WORDS]
        self._frames = [f"data: {payload}\n\n".encode() for payload in self._payloads]

    @property
    def agent(self) -> Callable[..., AsyncGenerator[str, None]]:
        """The async generator function that says it, in answer to every message."""
        return partial(_paced, TEXT.__mod__) if self._paced else partial(_flood, _WORDS)

    def texts(self) -> AsyncGenerator[str, None]:
        """What an agent says."""
        return self.agent()

    def payloads(self) -> AsyncGenerator[str, None]:
        """The same as JSON, prebuilt."""
        return _paced(_PAYLOAD.__mod__) if self._paced else _flood(self._payloads)

    def frames(self) -> AsyncGenerator[bytes, None]:
        """The same as server-sent events, prebuilt."""
        return _paced(FRAME.__mod__) if self._paced else _flood(self._frames)


async def _paced(write: Callable[[int], Item], _turn: object = None) -> AsyncGenerator[Item, None]:
    """Say something at fixed times, as a model does whose server does not wait for us: who is late catches up."""
    begin = monotonic_ns()
    for number in count():
        due = begin + number * INTERVAL
        early = due - monotonic_ns()
        if early > 0:
            await asyncio.sleep(early / 1e9)
        yield write(due)


async def _flood(items: list[Item], _turn: object = None) -> AsyncGenerator[Item, None]:
    for item in items:
        yield item
