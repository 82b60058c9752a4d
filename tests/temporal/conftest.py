"""One Temporal server for all tests of a process, and a worker for those that kill none."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # imported on use: the tests without a server run where Temporal is not installed
    from tests.temporal.server import TemporalServer

TASK_QUEUE = "travel"


@pytest.fixture(scope="session")
def server() -> "Iterator[TemporalServer]":
    from tests.temporal.server import TemporalServer

    server = TemporalServer()
    asyncio.run(server.start())
    yield server
    server.stop()


@pytest.fixture(scope="session")
def worker(server: "TemporalServer") -> Iterator[str]:
    """The task queue of a worker."""
    from tests.temporal.server import WorkerProcess

    process = WorkerProcess(server.address, TASK_QUEUE)
    yield TASK_QUEUE
    process.stop()
