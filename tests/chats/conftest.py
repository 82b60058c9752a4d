"""A PostgreSQL server with the tables of chats."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.postgres_server import postgres_server
from usechat.chats import SqlChats


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        asyncio.run(migrate(url))
        yield url


async def migrate(url: str) -> None:
    store = SqlChats(url)
    await store.migrate()
    await store.close()
