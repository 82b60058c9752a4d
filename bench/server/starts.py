"""What a start costs: processor time until a server can take requests, beside a command that only helps and an import.

Each is started some times; the least counts, because other load only adds to it. Compiled files are there already.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.request import urlopen

from bench.rounds import say
from bench.server.process import free_port, serving_at
from bench.server.turns import usechat

IMPORT: Final = "import usechat"
HELP: Final = "usechat --help"
READY: Final = "usechat serve"
READY_WITH_CHATS: Final = "usechat serve --chats chats.db"


def measure_starts(*, rounds: int = 5) -> dict[str, float]:
    """Return the seconds of processor time that each start takes."""
    with TemporaryDirectory() as directory:
        chats = ["--chats", str(Path(directory, "chats.db"))]
        starts: dict[str, Callable[[], float]] = {
            IMPORT: partial(_to_the_end, [sys.executable, "-c", "import usechat"]),
            HELP: partial(_to_the_end, [usechat(), "--help"]),
            READY: _until_ready,
            READY_WITH_CHATS: partial(_until_ready, *chats),
        }
        for start in starts.values():  # it compiles, and makes the tables
            start()
        seconds = {name: min(start() for _ in range(rounds)) for name, start in starts.items()}
    for name, cost in seconds.items():
        say(f"{name}: {cost:.3f} s of CPU")
    return seconds


def _to_the_end(command: list[str]) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}")
    return used.ru_utime + used.ru_stime


def _until_ready(*options: str) -> float:
    port = free_port()
    command = [usechat(), "serve", "bench.server.turns:agent", "--port", str(port), *options]
    with serving_at(port, command) as server:
        with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=60) as answer:
            answer.read()
        return server.processor_nanoseconds() / 1e9
