"""Whether an instance is alive: by the lock on its file, or by its session."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from sqlalchemy import text

from tests.chats.talking import ask, begin, user
from tests.postgres_server import postgres_server
from usechat.chats import SqlChats
from usechat.chats.instances import InstanceFile

pytestmark = pytest.mark.stores

NO_CONNECTION = cast("Any", None)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


async def test_an_instance_is_alive_until_it_is_released(tmp_path: Path) -> None:
    here, there = (InstanceFile(str(tmp_path / "chats.db")) for _ in range(2))
    await here.hold()
    await there.hold()
    assert await here.is_alive(there.id, NO_CONNECTION)
    assert await here.is_alive(here.id, NO_CONNECTION)
    await there.release()
    assert not await here.is_alive(there.id, NO_CONNECTION)
    assert names(tmp_path) == {f"chats.db-instance-{here.id}"}
    await here.release()


async def test_the_file_of_a_dead_instance_is_removed(tmp_path: Path) -> None:
    (tmp_path / "chats.db-instance-dead").touch()
    (tmp_path / "other.db-instance-dead").touch()
    instance = InstanceFile(str(tmp_path / "chats.db"))
    await instance.hold()
    assert names(tmp_path) == {f"chats.db-instance-{instance.id}", "other.db-instance-dead"}
    await instance.release()


async def test_a_database_that_has_no_file_leaves_the_decision_to_the_lease() -> None:
    instance = InstanceFile("file:chats.db?mode=rwc")
    await instance.hold()
    assert await instance.is_alive("another", NO_CONNECTION)
    await instance.release()


async def test_a_claim_is_void_when_its_session_has_ended_and_it_was_not_renewed(postgres: str) -> None:
    here, there = SqlChats(postgres, lease=30), SqlChats(postgres, lease=30)
    await here.migrate()
    claim = (await begin(here, ask(user("u1")))).claim
    await end_sessions(there)
    assert await there.orphaned() == [], "its process may open another session"
    await let_pass(there, seconds=11)
    assert await there.orphaned() == ["c1"]
    await here.renew(claim)
    await let_pass(there, seconds=11)
    assert await there.orphaned() == [], "it has another session"
    assert await here.orphaned() == []
    await here.close()
    assert await there.orphaned() == ["c1"]
    await there.close()


async def test_the_list_does_not_say_that_an_answer_of_a_dead_instance_is_running(tmp_path: Path) -> None:
    here, there = (SqlChats(str(tmp_path / "chats.db")) for _ in range(2))
    await begin(here, ask(user("u1")))
    assert [listed.running for listed in (await there.list_chats("ada")).chats] == [True]
    await here.close()
    assert [listed.running for listed in (await there.list_chats("ada")).chats] == [False]
    await there.close()


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


async def end_sessions(store: SqlChats) -> None:
    """End all sessions that have an advisory lock, as a restart of the database does."""
    async with store.engine.connect() as connection:
        await connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
            )
        )


async def let_pass(store: SqlChats, seconds: float) -> None:
    """Do as if time had passed since the claims were renewed."""
    async with store.engine.begin() as connection:
        await connection.execute(text("UPDATE usechat_claims SET expires = expires - :seconds"), {"seconds": seconds})
