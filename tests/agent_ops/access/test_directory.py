"""The session directory in both databases: roles, tokens, migrations up and down."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, update

from tests.agent_ops.directories import KINDS, PEOPLE, directory_at, fill, sqlite
from tests.postgres_server import postgres_server
from usechat.agent_ops.access.directory import (
    DirectoryChanges,
    ListedSession,
    SessionDirectory,
    digest_of,
    directory_url,
)
from usechat.agent_ops.access.roles import Membership, Role
from usechat.agent_ops.access.tables import METADATA, TOKENS
from usechat.agent_ops.errors import AccessUnknown, UnusableDirectory
from usechat.errors import Unauthenticated
from usechat.turn import Identity


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
async def empty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SessionDirectory]:
    """A database without tables."""
    url = sqlite(tmp_path) if request.param == "sqlite" else request.getfixturevalue("postgres")
    async with directory_at(url) as directory:
        yield directory
        await DirectoryChanges(directory).migrate("base")


@pytest.fixture
async def changes(empty: SessionDirectory) -> DirectoryChanges:
    return await fill(empty)


@pytest.fixture
def directory(empty: SessionDirectory, changes: DirectoryChanges) -> SessionDirectory:  # noqa: ARG001
    return empty


@pytest.mark.parametrize("kind", KINDS)
async def test_everybody_has_the_role_that_they_were_given(directory: SessionDirectory, kind: str) -> None:
    for subject, role in PEOPLE.items():
        assert await directory.role_of(Identity(subject), kind) == Membership(role, kind)
    assert await directory.role_of(Identity("stranger"), kind) is None


@pytest.mark.parametrize("session_id", ["unknown", "", "interactive ", "%", "' OR '1'='1"])
async def test_a_session_that_is_not_there_is_nobodys(directory: SessionDirectory, session_id: str) -> None:
    assert await directory.role_of(Identity("olivia"), session_id) is None


async def test_a_session_is_switched_on_and_off(directory: SessionDirectory, changes: DirectoryChanges) -> None:
    await changes.switch("interactive", enabled=False)
    assert await directory.role_of(Identity("carl"), "interactive") == Membership(Role.COLLABORATOR, enabled=False)
    await changes.switch("interactive", enabled=True)
    assert await directory.role_of(Identity("carl"), "interactive") == Membership(Role.COLLABORATOR)


async def test_a_new_session_is_switched_off(directory: SessionDirectory, changes: DirectoryChanges) -> None:
    await changes.add("fresh", "olivia", "interactive")
    assert await directory.role_of(Identity("olivia"), "fresh") == Membership(Role.OWNER, enabled=False)


async def test_a_role_is_changed_and_taken_away(directory: SessionDirectory, changes: DirectoryChanges) -> None:
    await changes.grant("interactive", "vera", Role.COLLABORATOR)
    assert await directory.role_of(Identity("vera"), "interactive") == Membership(Role.COLLABORATOR)
    await changes.revoke("interactive", "vera")
    assert await directory.role_of(Identity("vera"), "interactive") is None


async def test_a_session_is_handed_over(directory: SessionDirectory, changes: DirectoryChanges) -> None:
    await changes.grant("workflow", "carl", Role.OWNER)
    assert await directory.role_of(Identity("carl"), "workflow") == Membership(Role.OWNER, "workflow")
    assert await directory.role_of(Identity("olivia"), "workflow") is None
    assert (await changes.sessions())[2] == ListedSession("workflow", "workflow", "carl", True, {"vera": "viewer"})


async def test_a_session_that_is_removed_takes_its_participants_along(
    directory: SessionDirectory, changes: DirectoryChanges
) -> None:
    await changes.remove("interactive")
    await changes.add("interactive", "somebody", "interactive")
    await changes.switch("interactive", enabled=True)
    assert await directory.role_of(Identity("carl"), "interactive") is None


async def test_what_does_not_go_is_said_in_a_sentence(changes: DirectoryChanges) -> None:
    with pytest.raises(UnusableDirectory, match=r"^the session workflow is in the directory already$"):
        await changes.add("workflow", "olivia", "workflow")
    for change in (
        changes.remove("nothing"),
        changes.switch("nothing", enabled=True),
        changes.grant("nothing", "carl", Role.VIEWER),
        changes.grant("nothing", "carl", Role.OWNER),
    ):
        with pytest.raises(UnusableDirectory, match=r"^no session nothing is in the directory$"):
            await change
    with pytest.raises(UnusableDirectory, match=r"^olivia owns the session workflow; grant owner to somebody else"):
        await changes.grant("workflow", "olivia", Role.VIEWER)
    with pytest.raises(UnusableDirectory, match=r"^olivia owns the session workflow; grant owner to somebody else"):
        await changes.revoke("workflow", "olivia")
    with pytest.raises(UnusableDirectory, match=r"^stranger takes no part in the session workflow$"):
        await changes.revoke("workflow", "stranger")
    with pytest.raises(UnusableDirectory, match=r"^no session nothing is in the directory$"):
        await changes.revoke("nothing", "carl")


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb"])
async def test_what_cannot_be_a_name_is_refused(changes: DirectoryChanges, name: str) -> None:
    for change in (
        changes.add("fresh", name, "interactive"),
        changes.grant("interactive", name, Role.VIEWER),
        changes.grant("interactive", name, Role.OWNER),
        changes.new_token(name),
    ):
        with pytest.raises(UnusableDirectory, match=r"cannot be a name: up to 200 characters that can be printed$"):
            await change


@pytest.mark.parametrize("session_id", ["", "..", "a b", "a/b", "x" * 201])
async def test_what_cannot_be_the_id_of_a_session_is_refused(changes: DirectoryChanges, session_id: str) -> None:
    with pytest.raises(UnusableDirectory, match=r"cannot be the id of a session: letters, digits and _ - \. : ~$"):
        await changes.add(session_id, "olivia", "interactive")


async def test_a_token_is_good_until_it_is_revoked(directory: SessionDirectory, changes: DirectoryChanges) -> None:
    token = await changes.new_token("carl")
    other = await changes.new_token("carl", days=1)
    assert await directory.identify(token) == Identity("carl", token=token)
    await changes.revoke_token(digest_of(token)[:12])
    assert await directory.identify(token) is None
    assert await directory.identify(other) == Identity("carl", token=other)


async def test_a_token_expires(directory: SessionDirectory, changes: DirectoryChanges) -> None:
    token = await changes.new_token("carl", days=1)
    async with directory.engine.begin() as connection:
        await connection.execute(update(TOKENS).values(expires_at=int(time.time())))
    with pytest.raises(Unauthenticated, match=r"^The token has expired\.$"):
        await directory.identify(token)


async def test_the_directory_holds_no_token(directory: SessionDirectory, changes: DirectoryChanges) -> None:
    token = await changes.new_token("carl")
    [listed] = await changes.tokens()
    assert (listed.digest, listed.subject, listed.expires_at, listed.revoked_at) == (
        digest_of(token),
        "carl",
        None,
        None,
    )
    async with directory.engine.connect() as connection:
        rows = (await connection.execute(TOKENS.select())).all()
    assert token not in str(rows)


@pytest.mark.parametrize(
    ("prefix", "complaint"),
    [
        ("0" * 64, "no tokens begin with 0"),
        ("abc", "abc are not 8 or more digits of a SHA-256"),
        ("%%%%%%%%", "%%%%%%%% are not 8 or more digits"),
    ],
)
async def test_a_token_is_named_by_its_digest(changes: DirectoryChanges, prefix: str, complaint: str) -> None:
    await changes.new_token("carl")
    with pytest.raises(UnusableDirectory, match=f"^{complaint}"):
        await changes.revoke_token(prefix)


def tables_of(connection: Connection) -> set[str]:
    return set(inspect(connection).get_table_names())


def differences(connection: Connection) -> list[object]:
    return list(compare_metadata(MigrationContext.configure(connection), METADATA))


async def test_migrations_go_up_and_down_and_up_again(empty: SessionDirectory) -> None:
    changes = DirectoryChanges(empty)
    for revision, tables in [
        ("head", {"sessions", "participants", "tokens", "alembic_version"}),
        ("head", {"sessions", "participants", "tokens", "alembic_version"}),
        ("base", {"alembic_version"}),
        ("head", {"sessions", "participants", "tokens", "alembic_version"}),
    ]:
        await changes.migrate(revision)
        async with empty.engine.connect() as connection:
            assert await connection.run_sync(tables_of) == tables


async def test_migrations_make_the_tables_that_the_code_reads(directory: SessionDirectory) -> None:
    async with directory.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_without_its_tables_a_directory_lets_nobody_in(empty: SessionDirectory) -> None:
    for question in (empty.role_of(Identity("olivia"), "interactive"), empty.identify("token"), empty.check()):
        with pytest.raises(AccessUnknown, match=r"^Access cannot be checked at the moment\.$"):
            await question
    with pytest.raises(UnusableDirectory, match=r"tables are missing or old; run: usechat sessions migrate$"):
        await DirectoryChanges(empty).sessions()


async def test_a_directory_with_its_tables_is_ready(directory: SessionDirectory) -> None:
    await directory.check()


@pytest.mark.parametrize("url", ["sqlite:////nowhere/at/all/sessions.db", "postgresql://u:secret@127.0.0.1:1/d"])
async def test_a_database_that_cannot_be_reached_lets_nobody_in(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    async with directory_at(url) as directory:
        with pytest.raises(AccessUnknown):
            await directory.role_of(Identity("olivia"), "interactive")
        with pytest.raises(UnusableDirectory, match=r"^the directory cannot be used: ") as refused:
            await DirectoryChanges(directory).migrate()
    assert "secret" not in f"{caplog.text}{refused.value}"
    # aiosqlite (0.22) does not wait for the thread of a connection that failed, which then misses its event loop.
    for thread in threading.enumerate():
        if "_connection_worker_thread" in thread.name:
            await asyncio.to_thread(thread.join)


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://localhost/x", "postgresql+nothing://localhost/x"])
def test_an_address_that_is_none_is_told(url: str) -> None:
    with pytest.raises(UnusableDirectory, match=r"^a directory is sqlite:///FILE or postgresql://USER@HOST/DATABASE$"):
        SessionDirectory(url)


def test_where_the_directory_is() -> None:
    assert directory_url("sqlite:///a", {"USECHAT_SESSIONS": "sqlite:///b"}) == "sqlite:///a"
    assert directory_url(None, {"USECHAT_SESSIONS": "sqlite:///b"}) == "sqlite:///b"
    assert directory_url(None, {}) == "sqlite:///usechat-sessions.db"
