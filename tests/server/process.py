"""`usechat serve` as a real process, on a free loopback port."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2

from tests.plain_asgi import PLAIN_ASGI

PATIENCE: Final = 120.0
"""Seconds to wait for something that should happen soon; a loaded machine is slow."""

_PROGRAM: Final = "import sys; from usechat.cli import main; sys.exit(main())"
_PLAIN_PROGRAM: Final = (
    f"import sys; sys.path.append({str(Path(__file__).parents[2])!r});"
    f" from tests.plain_asgi import switch_off_internals; switch_off_internals(); {_PROGRAM}"
)


def question(text: str = "Hi", chat_id: str = "c1") -> dict[str, Any]:
    return {"id": chat_id, "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}]}


def eventually(condition: Callable[[], object], what: str, *, seconds: float = PATIENCE) -> None:
    """Wait until this holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


class ServeProcess:
    """A running command, and what it wrote."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self._log = log
        self.url = ""

    @property
    def written(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def wait_until_it_answers(self) -> None:
        eventually(self._answers, "the server answers")

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.written
        match = re.search(r'usechat serves .* at ((?:http://|unix:)[^\s"]+)', self.written)
        if match is None:
            return False
        uds = match[1].removeprefix("unix:")
        self.url = match[1] if uds == match[1] else "http://localhost"
        transport = None if uds == match[1] else httpx2.HTTPTransport(uds=uds)
        try:
            with httpx2.Client(transport=transport, timeout=5) as client:
                return client.get(f"{self.url}/healthz").status_code == 200
        except httpx2.TransportError:
            return False


@contextmanager
def serve_process(
    directory: Path,
    *arguments: str,
    command: str = "serve",
    is_app: bool = False,
    environment: Mapping[str, str] | None = None,
    port: int = 0,
) -> Iterator[ServeProcess]:
    """Run `usechat serve`, or a command like it, in a directory until the block ends; what is left is killed.

    An ASGI app (`is_app`) is served as it is: its workers read `USECHAT_TEST_PLAIN_ASGI` themselves. `environment` is
    added to that of the test.
    """
    log = directory / "output.txt"
    # Workers are processes of their own, which only know the options.
    has_workers = bool({"--workers", "--reload"} & set(arguments))
    program = _PLAIN_PROGRAM if PLAIN_ASGI and not has_workers else _PROGRAM
    plain = ["--plain-asgi"] if PLAIN_ASGI and has_workers and not is_app else []
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", program, command, *arguments, *plain, "--port", str(port)],
            cwd=directory,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    served = ServeProcess(process, log)
    try:
        served.wait_until_it_answers()
        yield served
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
