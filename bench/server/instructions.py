"""`python -m bench.server.instructions`: the instructions of a short turn, for each server of `bench.server.turns`.

valgrind counts them outside of the kernel, so that they are nearly the same on a busy machine; PostgreSQL's own are not
among them. Chats of 20 turns are counted, and chats of two, whose history is short.
"""

import re
import socket
import subprocess
import tempfile
from itertools import count
from pathlib import Path
from typing import Final

from bench.report import table
from bench.server.process import free_port, serving_at
from bench.server.turns import BY_HAND, CHAT_APP, POSTGRES, SERVE, SQLITE, TURNS_OF_CHAT, ask, command_of

_CALLGRIND: Final = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
_PATIENCE: Final = 600.0
"""Seconds that a server may take to start: valgrind makes it fifty times slower."""
_WARM: Final = 40
_COUNTED: Final = 40
_SHORT_CHAT: Final = 2


def instructions(name: str, *, turns_of_chat: int, warm: int = _WARM, counted: int = _COUNTED) -> float:
    """Return the instructions of a turn."""
    port = free_port()
    with tempfile.TemporaryDirectory() as directory, command_of(name, port) as command:
        out = Path(directory, "callgrind")
        under = [*_CALLGRIND, f"--callgrind-out-file={out}", *command]
        with (
            serving_at(port, under, patience=_PATIENCE) as server,
            socket.create_connection(("127.0.0.1", port)) as connection,
        ):
            numbers = count()
            for _ in range(warm):
                ask(connection, next(numbers), turns_of_chat)
            _control("--instr=on", server.pid)
            for _ in range(counted):
                ask(connection, next(numbers), turns_of_chat)
            _control("--instr=off", server.pid)
            _control("--dump", server.pid)
            return _total(Path(directory)) / counted


def _control(option: str, pid: int) -> None:
    subprocess.run(["callgrind_control", option, str(pid)], check=True, capture_output=True)


def _total(directory: Path) -> int:
    text = next(file for file in sorted(directory.iterdir()) if file.stat().st_size).read_text("utf-8")
    totals = re.search(r"^totals: (\d+)", text, re.MULTILINE)
    assert totals is not None
    return int(totals[1])


def report() -> str:
    """Return the table, in millions."""
    rows = []
    for name in (BY_HAND, CHAT_APP, SERVE, SQLITE, POSTGRES):
        long, short = (instructions(name, turns_of_chat=turns) / 1e6 for turns in (TURNS_OF_CHAT, _SHORT_CHAT))
        rows.append([name, f"{long:.2f}", f"{short:.2f}"])
    return table(["server", f"chats of {TURNS_OF_CHAT} turns", f"chats of {_SHORT_CHAT}"], rows)


if __name__ == "__main__":
    print(report())
