"""A command in a real terminal: a pseudo-terminal of a given size, and what its screen shows."""

import codecs
import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyte

from tests.server.process import PATIENCE, eventually

ROWS = 24


class _Screen(pyte.Screen):
    """A screen that answers the questions of the command, such as where the cursor is."""

    def __init__(self, columns: int, terminal: int) -> None:
        super().__init__(columns, ROWS)
        self._terminal = terminal

    def write_process_input(self, data: str) -> None:
        os.write(self._terminal, data.encode())


class Terminal:
    """A terminal in which a command runs."""

    def __init__(self, columns: int, terminal: int) -> None:
        self._terminal = terminal
        self._screen = _Screen(columns, terminal)
        self._changing = threading.Lock()
        self._output = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def type(self, keys: str) -> None:
        """Press keys."""
        os.write(self._terminal, keys.encode())

    @property
    def lines(self) -> list[str]:
        """What the screen shows, without the spaces at the ends of lines and without empty lines."""
        with self._changing:
            lines = [line.rstrip() for line in self._screen.display]
        return [line for line in lines if line]

    @property
    def written(self) -> str:
        """Everything that was written to the terminal so far, with its control sequences."""
        return self._output

    def wait_for(self, *lines: str) -> None:
        """Wait until these lines are the last ones on the screen."""
        try:
            eventually(lambda: self.lines[-len(lines) :] == list(lines), f"{lines} are shown")
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen shows {self.lines}") from None

    def _read(self) -> None:
        stream, decode = pyte.Stream(self._screen), codecs.getincrementaldecoder("utf-8")().decode
        while data := self._next():
            text = decode(data)
            self._output += text
            with self._changing:
                stream.feed(text)

    def _next(self) -> bytes:
        try:
            return os.read(self._terminal, 65536)
        except OSError:  # the command has ended
            return b""


@contextmanager
def terminal(command: Sequence[str], directory: Path, columns: int) -> Iterator[Terminal]:
    """Run a command in a terminal of so many columns, in a directory; it has ended by itself when the block is left."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    process: subprocess.Popen[Any] = subprocess.Popen(
        command,
        cwd=directory,
        env={**{name: value for name, value in os.environ.items() if name != "COLUMNS"}, "TERM": "xterm-256color"},
        stdin=inner,
        stdout=inner,
        stderr=inner,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # Ctrl-C is a signal to the command  # noqa: PLW1509
    )
    os.close(inner)
    try:
        yield Terminal(columns, outer)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait(PATIENCE)
        os.close(outer)
