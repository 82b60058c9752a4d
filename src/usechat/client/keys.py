"""The keys of the terminal that `usechat serve --step` runs in."""

import asyncio
import contextlib
import os
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from usechat.client.views import printable
from usechat.errors import CannotServe

__all__ = ["TerminalKeys"]

_LONGEST_LINE: Final = 160


class TerminalKeys:
    """The keys of the terminal that this process runs in: each lets one frame go."""

    def __init__(self) -> None:
        if not sys.stdin.isatty():
            raise CannotServe("--step needs a terminal: each key that is pressed in it sends a frame")
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def release(self, frame: bytes) -> None:
        """Show a frame, and wait for a key before it is sent."""
        text = printable(frame.decode("utf-8", "replace")).strip().replace("\n", " ")
        sys.stdout.write(f"next: {text if len(text) <= _LONGEST_LINE else text[:_LONGEST_LINE] + '…'}\n")
        sys.stdout.flush()
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append(waiting)
        await waiting

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Read keys as long as the app is served."""
        loop = asyncio.get_running_loop()
        with _unbuffered(sys.stdin.fileno()):
            threading.Thread(target=self._read, args=(loop,), name="usechat keys", daemon=True).start()
            yield

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        while os.read(sys.stdin.fileno(), 1):
            try:
                loop.call_soon_threadsafe(self._pressed)
            except RuntimeError:  # the loop is closed: the process exits
                return

    def _pressed(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return


@contextlib.contextmanager
def _unbuffered(terminal: int) -> Iterator[None]:
    """Let a terminal give each key at once, and show none; afterwards it is as before."""
    try:
        import termios
        import tty
    except ImportError:
        raise CannotServe("--step needs a Unix terminal") from None
    before: Any = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
