"""`python -m bench.server.pulsed NAME STREAMS [traced] [PART…]`: serve one contestant whose agents are woken in turns.

No timer and no client decides what happens when: in each turn of the event loop a few streams get one delta. So the
work of a delta is the same however busy the machine is, and the streams take turns, as paced ones do.

Stdout tells the port and then one line of JSON per command, and stdin has the commands: `time` measures some rounds,
`allocations` tells what Python has allocated for the open streams. The parts that are named are left out.
"""

import asyncio
import gc
import sys
import sysconfig
import tracemalloc
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from time import process_time_ns
from typing import Any, Final

import msgspec
import uvicorn

from bench.server.contestants import APPS
from bench.server.load import FRAME, TEXT, Item, Load
from bench.server.serve import config_of, listen
from usechat.cli.plan import collect_rarely

AT_ONCE: Final = 3
"""Streams that are woken in one turn of the loop: about as many as a core that is nearly full has at a time."""
ROUNDS: Final = 20
"""Deltas of each stream in one measurement."""
TRACED: Final = "traced"
FORGET, PUSH, LOG, WRITE, SEND, TICKS = "forget", "push", "log", "write", "send", "ticks"
_WARM_UP: Final = 30
"""Deltas of each stream before anything is measured: as many as in the first second of a paced one."""


class Pulse:
    """Wakes the streams that wait, the longest waiting first."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait for the next turn of this stream."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    async def begin(self, streams: int) -> None:
        """Wait until that number of streams has begun, and let each say something."""
        while len(self._waiting) < streams:  # noqa: ASYNC110  # connections arrive when they do
            await asyncio.sleep(0.01)
        await self.beat(streams * _WARM_UP)

    async def beat(self, deltas: int) -> None:
        """Wake streams until they have said ``deltas`` deltas."""
        for _ in range(deltas // AT_ONCE):
            for _ in range(AT_ONCE):
                self._waiting.popleft().set_result(None)
            await asyncio.sleep(0)


class PulsedLoad(Load):
    """The deltas of a paced load, said when the pulse wakes the stream."""

    def __init__(self, pulse: Pulse) -> None:
        super().__init__("paced")
        self._pulse = pulse

    @property
    def agent(self) -> Callable[..., AsyncGenerator[str, None]]:
        """The async generator function that says it."""
        return partial(_pulsed, self._pulse, TEXT.__mod__)

    def frames(self) -> AsyncGenerator[bytes, None]:
        """The same as server-sent events, prebuilt."""
        return _pulsed(self._pulse, FRAME.__mod__)


async def _pulsed(pulse: Pulse, write: Callable[[int], Item], _turn: object = None) -> AsyncGenerator[Item, None]:
    for number in count():
        await pulse.wait()
        yield write(number)


def _allocations() -> Mapping[str, int]:
    """Return how many bytes are allocated, by the module whose code did it."""
    gc.collect()
    roots = sorted({str(Path(path)) for path in sysconfig.get_paths().values()} | set(sys.path), key=len, reverse=True)
    sizes: Counter[str] = Counter()
    for trace in tracemalloc.take_snapshot().statistics("filename"):
        path = trace.traceback[0].filename
        root = next((root for root in roots if root and path.startswith(f"{root}/")), "")
        sizes[path.removeprefix(f"{root}/")] += trace.size
    return sizes


async def _obey(pulse: Pulse, streams: int, before: Mapping[str, int]) -> None:
    await pulse.begin(streams)
    _tell("ready")
    while command := sys.stdin.readline().strip():
        if command == "time":
            begin = process_time_ns()
            await pulse.beat(streams * ROUNDS)
            _tell((process_time_ns() - begin) / (streams * ROUNDS) / 1000)
        else:
            now = _allocations()
            _tell({name: (size - before.get(name, 0)) / streams for name, size in now.items()})


async def _nothing(*_: object) -> None:
    """Stand for a method that is left out."""


_PARTS: Final[Mapping[str, tuple[str, str, Callable[..., Any]]]] = {
    FORGET: ("usechat.runs.log:Log", "forget", lambda *_: None),
    PUSH: ("usechat.server.uvicorn:DirectSender", "push", lambda *_: None),
    LOG: ("usechat.runs.log:Log", "append", lambda *_: False),
    WRITE: ("usechat.runs.run:Run", "write", lambda *_: False),
    SEND: ("uvicorn.protocols.http.httptools_impl:RequestResponseCycle", "send", _nothing),
    TICKS: ("usechat.runs.timers:SharedTimer", "add", lambda *_: None),
}
"""What can be left out: a class, its method, and what is called instead."""


def _tell(answer: Any) -> None:
    print(msgspec.json.encode(answer).decode(), flush=True)


def main(name: str, streams: int, *options: str) -> None:
    """Serve until stdin ends."""
    traced = TRACED in options
    for part in options:
        if part in _PARTS:
            owner, method, instead = _PARTS[part]
            setattr(resolve_name(owner), method, instead)
    pulse = Pulse()
    app, listener = APPS[name](PulsedLoad(pulse)), listen()

    async def served(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            scope["path"] = "/api/chat"
        await app(scope, receive, send)

    config = config_of(served)

    async def serve() -> None:
        serving = asyncio.ensure_future(uvicorn.Server(config).serve([listener]))
        if traced:
            tracemalloc.start()
        await _obey(pulse, streams, _allocations() if traced else {})
        serving.cancel()

    _tell(listener.getsockname()[1])
    collect_rarely()
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(serve())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
