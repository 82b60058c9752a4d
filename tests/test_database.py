"""Addresses, revisions and migrations of the databases, whichever store asks."""

import asyncio
import contextlib
import sqlite3
import struct
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import Final

import pytest
from sqlalchemy import make_url, text
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.postgres_server import postgres_server
from usechat import database
from usechat.agent_ops.access.directory import DirectoryChanges, SessionDirectory
from usechat.agent_ops.errors import UnusableDirectory
from usechat.chats import SqlChats
from usechat.database import Schema
from usechat.errors import UnusableChats


async def open_and_close(path: Path) -> None:
    store = SqlChats(str(path))
    try:
        await store.open()
        assert (await store.list_chats(None)).chats == []
    finally:
        await store.close()


async def test_stores_of_one_event_loop(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.db", "b.db", "c.db", "c.db")]
    await asyncio.gather(*map(open_and_close, files))


def test_stores_of_several_threads(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        files = [tmp_path / f"{number % 3}.db" for number in range(4)]
        list(threads.map(lambda path: asyncio.run(open_and_close(path)), files))


async def test_stores_of_different_kinds(tmp_path: Path) -> None:
    directory = SessionDirectory(f"sqlite:///{tmp_path}/sessions.db")
    await asyncio.gather(open_and_close(tmp_path / "chats.db"), DirectoryChanges(directory).migrate())
    await directory.require_migrated()
    await directory.close()


async def test_tables_of_a_newer_release_are_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "chats.db"
    await open_and_close(path)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE usechat_chats_version SET version_num = '9999'")
    with pytest.raises(UnusableChats, match=r"was made by a newer usechat: .* '9999', .*; upgrade usechat"):
        await open_and_close(path)


@pytest.mark.parametrize("url", ["mysql://host/database", "no url", "postgresql+psycopg://host/database", ""])
def test_an_address_of_another_kind_is_a_sentence(url: str) -> None:
    schema = Schema(title="the test database", addresses="a test is sqlite:///FILE", error=UnusableDirectory)
    with pytest.raises(UnusableDirectory, match="a test is sqlite:///FILE"):
        schema.engine(url)


@pytest.mark.parametrize("url", ["postgresql://user@host/database", "postgresql+asyncpg://user@host/database"])
def test_a_store_may_take_one_kind_of_database(url: str) -> None:
    schema = Schema(
        title="the test database", addresses="postgresql://…", error=UnusableDirectory, databases=("postgresql",)
    )
    assert schema.engine(url).url.drivername == "postgresql+asyncpg"
    with pytest.raises(UnusableDirectory, match="postgresql://…"):
        schema.engine("sqlite:///file.db")


POSTGRESQL: Final = Schema(
    title="the test database", addresses="postgresql://…", error=UnusableDirectory, databases=("postgresql",)
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


async def session_of(engine: AsyncEngine) -> int:
    """Return the session of PostgreSQL behind a connection of the pool."""
    async with engine.begin() as connection:
        return int((await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one())


async def test_a_connection_that_the_server_has_closed_is_replaced(postgres: str) -> None:
    engine, other = POSTGRESQL.engine(postgres), POSTGRESQL.engine(postgres)
    session = await session_of(engine)
    assert await session_of(engine) == session
    async with other.begin() as connection:
        await connection.execute(text("SELECT pg_terminate_backend(:session, 5000)"), {"session": session})
    assert await session_of(engine) != session
    await engine.dispose()
    await other.dispose()


class Firewall:
    """A way to a server that can forget its connections: what is sent later on one of them is answered by a reset."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._known: set[asyncio.StreamWriter] = set()

    def forget(self) -> None:
        self._known.clear()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[int]:
        async with await asyncio.start_server(self._connect, "127.0.0.1", 0) as server:
            yield server.sockets[0].getsockname()[1]

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._known.add(writer)
        theirs, ours = await asyncio.open_unix_connection(self._socket_path)
        replies = asyncio.create_task(self._pass_on(theirs, writer))
        while data := await reader.read(65536):
            if writer not in self._known:
                writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                break
            ours.write(data)
        replies.cancel()
        ours.close()
        writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()


async def test_a_connection_that_rested_for_long_is_asked_first(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_LONG_REST", -1)
    firewall = Firewall(f"{make_url(postgres).query['host']}/.s.PGSQL.5432")
    async with firewall.open() as port:
        engine = POSTGRESQL.engine(f"postgresql://tester@127.0.0.1:{port}/postgres?ssl=disable")
        session = await session_of(engine)
        assert await session_of(engine) == session
        firewall.forget()
        assert await session_of(engine) != session
        await engine.dispose()
