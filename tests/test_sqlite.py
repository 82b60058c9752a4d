"""Statements of SQLite: how often they travel to the thread of their connection, and what they bring back."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.chats.talking import answer, ask, begin, turn, user
from usechat.chats import SqlChats
from usechat.database import Schema
from usechat.errors import UnusableChats
from usechat.sqlite import Connection, connect

pytestmark = pytest.mark.stores


@pytest.fixture
async def engine(tmp_path: Path) -> AsyncIterator[AsyncEngine]:
    schema = Schema(title="the test database", addresses="sqlite:///FILE", error=UnusableChats)
    engine = schema.engine(f"sqlite:///{tmp_path}/test.db")
    async with engine.begin() as connection:
        await connection.execute(text("CREATE TABLE animals (id INTEGER PRIMARY KEY, name TEXT UNIQUE)"))
        await connection.execute(text("INSERT INTO animals (name) VALUES ('ant')"))
    yield engine
    await engine.dispose()


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of what is taken to a thread, as it happens."""
    names: list[str] = []
    in_thread = Connection.in_thread

    async def counting(self: Connection, function: Callable[..., Any], *values: Any, **options: Any) -> Any:
        names.append(function.__name__)
        return await in_thread(self, function, *values, **options)

    monkeypatch.setattr(Connection, "in_thread", counting)
    return names


async def names_in(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        return list((await connection.execute(text("SELECT name FROM animals ORDER BY id"))).scalars())


async def test_rows_counts_and_keys_of_a_statement_are_those_of_sqlite(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        names = [{"name": "bee"}, {"name": "cat"}]
        assert (await connection.execute(text("INSERT INTO animals (name) VALUES (:name)"), names)).rowcount == 2
        assert (await connection.execute(text("INSERT INTO animals (name) VALUES ('dog')"))).lastrowid == 4
        assert (await connection.execute(text("DELETE FROM animals WHERE id > 2"))).rowcount == 2
        rows = (await connection.execute(text("SELECT id, name AS called FROM animals"))).mappings().all()
    assert [dict(row) for row in rows] == [{"id": 1, "called": "ant"}, {"id": 2, "called": "bee"}]


async def test_a_transaction_that_fails_leaves_nothing(engine: AsyncEngine) -> None:
    async def fail() -> None:
        async with engine.begin() as connection:
            await connection.execute(text("INSERT INTO animals (name) VALUES ('bee')"))
            await connection.execute(text("INSERT INTO plants (name) VALUES ('oak')"))

    with pytest.raises(OperationalError, match="no such table: plants"):
        await fail()
    assert await names_in(engine) == ["ant"]


async def test_a_short_answer_takes_one_hop_for_each_statement_and_each_commit(tmp_path: Path, hops: list[str]) -> None:
    store = SqlChats(str(tmp_path / "chats.db"))
    await turn(store, ask(user("u1", "Q1")), "A1")
    hops.clear()
    start = await begin(store, ask(user("u2", "Q2")))
    await store.finish(start.claim, answer(start.claim.message_id, "A2"), "finished")
    assert hops == [*["_run"] * 5, "commit", *["_run"] * 3, "commit"]
    await store.close()


async def test_a_transaction_without_a_statement_takes_no_hop(tmp_path: Path, hops: list[str]) -> None:
    store = SqlChats(str(tmp_path / "chats.db"))
    await store.open()
    async with store.engine.connect():  # SQLAlchemy asks the first connection for its version
        pass
    hops.clear()
    async with store.engine.begin():
        pass
    assert hops == []
    await store.close()


def test_statements_that_outlive_their_event_loop_end_in_silence() -> None:
    async def begin() -> None:
        connection = connect(":memory:")
        await connection
        await connection.create_function("rest", 0, lambda: time.sleep(0.3))
        asyncio.create_task(connection.run("execute", "SELECT rest()", ()))  # noqa: RUF006 - it is to be lost
        await asyncio.sleep(0.1)
        connection.stop()

    before = set(threading.enumerate())
    asyncio.run(begin())
    (thread,) = set(threading.enumerate()) - before
    thread.join(10)
    assert not thread.is_alive()
