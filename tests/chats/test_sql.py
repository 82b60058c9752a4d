"""What is special about databases: processes that share a file, migrations, and a database that is away."""

import asyncio
import shlex
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, event, inspect, make_url, text

from tests.chats.sql_worker import CHATS
from tests.chats.talking import answer, ask, begin, texts, turn, user
from tests.postgres_server import postgres_server
from usechat.chats import SqlChats
from usechat.chats.sql import ClockJumps, chats_url
from usechat.chats.tables import METADATA
from usechat.errors import ChatNotFound, ChatsUnreachable, MissingDependency, UnusableChats

pytestmark = pytest.mark.stores

WORKERS = 3
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture
async def unmigrated(postgres: str) -> str:
    """A database without the tables, whatever the tests before it have left there."""
    store = SqlChats(postgres)
    await store.migrate("base")
    await store.close()
    return postgres


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[SqlChats]:
    store = SqlChats(str(tmp_path / "chats.db"))
    yield store
    await store.close()


async def test_processes_that_share_a_file_take_turns(tmp_path: Path, file: SqlChats) -> None:
    """They start at once: the tables are made once, and every chat has one answer at a time."""
    path = str(tmp_path / "chats.db")
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.chats.sql_worker", path, f"w{number}", cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )
        for number in range(WORKERS)
    ]
    ended = await asyncio.gather(*[process.communicate() for process in processes])
    assert [process.returncode for process in processes] == [0] * WORKERS
    finished = sum(int(output) for output, _ in ended)
    answer_texts = []
    for chat in range(CHATS):
        messages = (await file.load(f"c{chat}", owner="ada")).messages
        assert [message["role"] for message in messages] == ["user", "assistant"] * (len(messages) // 2)
        answer_texts += texts(messages)[1::2]
    assert answer_texts == ["All of it"] * finished


@pytest.mark.parametrize("text", ["a\0", "a\ud83d", "a" * 2000], ids=["NUL", "half", "long"])
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
async def test_an_id_that_no_database_can_keep_is_not_there(
    database: str, text: str, postgres: str, tmp_path: Path
) -> None:
    """The database would refuse the question, as if it were away."""
    store = SqlChats(str(tmp_path / "chats.db") if database == "sqlite" else postgres)
    await store.migrate()
    for asking in (
        store.load(text, owner="ada"),
        store.look_up(text, owner="ada"),
        store.delete(text, owner="ada"),
        store.share(text, owner="ada"),
        store.rate(text, "u1", 1, owner="ada"),
        store.load_shared(text),
        store.list_chats("ada", starting_after=text),
    ):
        with pytest.raises(ChatNotFound):
            await asking
    await store.close()


async def test_a_file_is_in_wal_mode_and_keeps_its_foreign_keys(tmp_path: Path, file: SqlChats) -> None:
    await turn(file, ask(user("u1")), "A1")
    with sqlite3.connect(tmp_path / "chats.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    async with file.engine.connect() as opened:
        assert (await opened.execute(text("PRAGMA foreign_keys"))).scalar() == 1
        assert (await opened.execute(text("PRAGMA busy_timeout"))).scalar() == 30_000
    await file.delete("c1", owner="ada")
    async with file.engine.connect() as opened:
        for table in METADATA.tables:
            assert (await opened.execute(text(f"SELECT count(*) FROM {table}"))).scalar() == 0


def _differences(connection: Connection) -> list[Any]:
    context = MigrationContext.configure(connection, opts={"version_table": "usechat_chats_version"})
    return list(compare_metadata(context, METADATA))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_the_migrations_make_the_tables_and_drop_them(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    store = SqlChats(str(tmp_path / "chats.db") if kind == "sqlite" else request.getfixturevalue("postgres"))
    await store.migrate()
    await store.migrate()
    async with store.engine.connect() as connection:
        assert await connection.run_sync(_differences) == []
    await store.migrate("base")
    async with store.engine.connect() as connection:
        left = await connection.run_sync(lambda each: inspect(each).get_table_names())
    assert left == ["usechat_chats_version"]
    await store.close()


async def test_a_postgresql_is_migrated_by_command_alone(unmigrated: str) -> None:
    store = SqlChats(unmigrated)
    with pytest.raises(UnusableChats, match="usechat chats migrate"):
        await store.load("c1", owner="ada")
    await store.migrate()
    await turn(store, ask(user("u1")), "A1")
    await store.migrate("base")
    await store.close()


async def test_the_command_that_is_named_has_no_password(unmigrated: str) -> None:
    address = unmigrated.partition("@")[2]
    for url in (f"postgresql://tester:secret@{address}", f"postgresql://tester@{address}&password=secret"):
        store = SqlChats(url)
        with pytest.raises(UnusableChats) as raised:
            await store.open()
        await store.close()
        reason, _, command = str(raised.value).partition(": ")
        assert reason == "the chat tables are missing or old; set PGPASSWORD and run"
        *start, named = shlex.split(command)
        assert start == ["usechat", "chats", "migrate", "--chats"]
        assert make_url(named) == make_url(f"postgresql+asyncpg://tester@{address}")


async def test_the_tables_stand_beside_those_of_others(tmp_path: Path) -> None:
    path = tmp_path / "own.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('their own')")
    connection.close()
    store = SqlChats(f"sqlite+aiosqlite:///{path}")
    await turn(store, ask(user("u1")), "A1")
    await store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT * FROM alembic_version").fetchall() == [("their own",)]
    connection.close()


@pytest.mark.parametrize(
    "url", ["mysql://x/y", "sqlite://", "sqlite+aiosqlite:///:memory:", "postgresql+psycopg://x/y", "://"]
)
def test_a_database_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(UnusableChats):
        SqlChats(url)


def test_a_plain_path_is_a_file() -> None:
    assert chats_url("/data/chats.db") == "sqlite+aiosqlite:////data/chats.db"
    assert chats_url("postgresql://x/y") == "postgresql://x/y"


async def test_a_file_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    broken_file = tmp_path / "broken.db"
    broken_file.write_bytes(b"this is no database, but it is long enough to be taken for one" * 50)
    for path in (tmp_path / "missing" / "chats.db", broken_file):
        store = SqlChats(str(path))
        with pytest.raises(UnusableChats, match="cannot be used"):
            await store.open()
        await store.close()


async def test_a_database_that_goes_away_is_unreachable_without_telling_its_address(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with postgres_server() as url:
        store = SqlChats(url)
        await store.migrate()
        beginning = await begin(store, ask(user("u1")))
        await store.check()
    for attempt in (
        store.check(),
        store.load("c1", owner="ada"),
        store.save(beginning.claim, answer("a1", "A1")),
        store.begin(ask(user("u2")), owner="ada", run_id="r2"),
    ):
        with pytest.raises(ChatsUnreachable, match=r"^The chat database cannot be reached\.$"):
            await attempt
    assert url not in caplog.text
    await store.close()


async def test_a_save_that_failed_is_made_good_by_the_next(tmp_path: Path, file: SqlChats) -> None:
    """Nobody knows how far a write came whose connection broke: the next one writes the whole message."""
    beginning = await begin(file, ask(user("u1")))
    await file.save(beginning.claim, answer("a1", "One"))
    await file.save(beginning.claim, answer("a1", "One", "Two"))
    with sqlite3.connect(tmp_path / "chats.db") as connection:
        connection.execute("ALTER TABLE usechat_claims RENAME TO away")
    with pytest.raises(ChatsUnreachable):
        await file.save(beginning.claim, answer("a1", "One", "Two", "Three"))
    with connection:
        connection.execute("ALTER TABLE away RENAME TO usechat_claims")
    connection.close()
    await file.save(beginning.claim, answer("a1", "One", "Two", "Three", "Four"))
    async with file.engine.connect() as opened:
        body = (await opened.execute(text("SELECT body FROM usechat_messages WHERE role = 'assistant'"))).scalar()
        growth = (await opened.execute(text("SELECT count(*) FROM usechat_growth"))).scalar()
    assert ("Four" in str(body), growth) == (True, 0)


async def test_a_full_disk_is_reported_once_and_until_there_is_room(
    file: SqlChats, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "usechat.chats")
    beginning = await begin(file, ask(user("u1")))
    pages = 1

    def limit_pages(connection: Connection) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")  # SQLite allows no more than there are, if more

    event.listen(file.engine.sync_engine, "begin", limit_pages)
    long = answer("a1", "word " * 20_000)
    for _ in range(3):
        with pytest.raises(ChatsUnreachable):
            await file.save(beginning.claim, long)
    assert [record.getMessage() for record in caplog.records] == [
        "the chat database cannot be written: database or disk is full"
    ]
    pages = 1_000_000
    await file.check()
    await file.finish(beginning.claim, long, "finished")
    assert [record.getMessage() for record in caplog.records][1:] == ["the chat database can be written again"]


@pytest.mark.parametrize(
    ("clocks", "times"),
    [
        pytest.param([(1000, 50), (1010, 60), (1040, 90)], [1000, 1010, 1040], id="no jump"),
        pytest.param([(1000, 50), (1070, 60), (1075, 65)], [1000, 1010, 1015], id="a jump, for as long as a lease"),
        pytest.param([(1000, 50), (1070, 60), (1099, 89), (1100, 90)], [1000, 1010, 1039, 1100], id="then no more"),
        pytest.param([(1000, 50), (1070, 60), (1130, 70)], [1000, 1010, 1020], id="two jumps"),
        pytest.param([(1000, 50), (950, 60), (960, 70)], [1000, 950, 960], id="a jump back ends no lease"),
    ],
)
def test_leases_are_judged_by_the_time_before_a_jump_of_the_clock(
    clocks: list[tuple[float, float]], times: list[float]
) -> None:
    jumps = ClockJumps(lease=30)
    assert [jumps.lease_time(now, monotonic) for now, monotonic in clocks] == times


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    with pytest.raises(MissingDependency, match="postgresql"):
        SqlChats("postgresql://x/y")
