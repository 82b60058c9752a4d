from collections.abc import AsyncIterator, Iterator

import pytest

from tests.redis_server import SERVERS, RedisServer, redis_server
from tests.runs.redis_stores import Workers


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with redis_server(request.param) as running:
        yield running


@pytest.fixture
async def workers(server: RedisServer) -> AsyncIterator[Workers]:
    """Stores on a server that goes on."""
    stores = Workers(server)
    yield stores
    await stores.close()


@pytest.fixture(params=SERVERS)
def own_server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    with redis_server(request.param) as running:
        yield running


@pytest.fixture
async def restarted(own_server: RedisServer) -> AsyncIterator[Workers]:
    """Stores on a server that the test may stop."""
    stores = Workers(own_server)
    yield stores
    await stores.close()
