from collections.abc import Iterator

import pytest

from tests.conformance.served import Served, serving
from tests.server.socket_apps import socket_apps


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    """A real uvicorn with chat apps whose sockets can be opened."""
    with serving(socket_apps()) as running:
        yield running
