"""Stored chats: what list, open and append take in a small and in a large database, and what storing adds to an answer.

And what it adds to a tool call that it is stored before its tool starts.

Both databases hold chats of 100 messages: 10 of them, and 1,000. They are asked in turns, each time for another chat.
The time is the clock's, because a database works in another thread or process.
"""

import asyncio
import random
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import Any, Final, TypeAlias

import httpx2
import msgspec
from sqlalchemy import Insert, delete, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from bench.machine import Circumstances, Others, circumstances
from bench.report import table
from bench.results import Goal
from bench.rounds import Figure, say
from bench.sample import text_deltas
from bench.server.results import BUSY
from tests.postgres_server import postgres_server
from usechat.chats import Begun, ChatStore, MemoryChats, SqlChats
from usechat.chats.recording import AnswerRecorder
from usechat.chats.tables import CHATS, MESSAGES
from usechat.protocol.parts import Finish, ToolCall, ToolResult
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import FrameStream
from usechat.protocol.stream import MessageStream
from usechat.protocol.ui_messages import UIMessage
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

CALL_MS: Final = 2.0
"""Milliseconds that the commit of a tool call may take with SQLite."""
READ_MS: Final = 1.5
"""Milliseconds that a chat, or a page of the list, may take to read."""
FLAT: Final = 1.25
"""How many times its time in the small database an operation may take in the large one."""
WITHOUT: Final = "without chats"
OPERATIONS: Final = ("list", "open", "append")
READ: Final = ("list", "open")
_OWNER: Final = "ada"
_LISTED: Final = 10
"""Chats in a page of the list: as many as the small database has."""
_PACKAGES: Final = {name: name for name in ("sqlalchemy", "aiosqlite", "asyncpg", "starlette")}

Work: TypeAlias = Callable[[], Awaitable[object]]


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    length: int = 100
    """Messages of a chat."""
    chats: tuple[int, int] = (10, 1_000)
    """Chats in the small and in the large database."""
    rounds: int = 300
    answers: int = 200
    words: int = 200
    """Deltas of an answer."""
    calls: int = 20
    """Tool calls of an answer."""


QUICK: Final = Plan(length=4, chats=(2, 4), rounds=2, answers=2, words=5, calls=2)


class ChatsResults(msgspec.Struct, frozen=True):
    """One run: nanoseconds by database, operation and number of messages, and nanoseconds per answer."""

    circumstances: Circumstances
    others: float
    """The share of the machine that other processes took."""
    operations: dict[str, dict[str, dict[int, Figure]]]
    answers: dict[str, Figure]
    calls: dict[str, Figure]

    def growth(self, database: str, operation: str) -> float:
        """Return how many times its time in the small database an operation takes in the large one."""
        figures = self.operations[database][operation]
        return figures[max(figures)].median / figures[min(figures)].median


def measure(plan: Plan) -> ChatsResults:
    """Measure both databases."""
    others = Others()
    with TemporaryDirectory() as directory, postgres_server() as url:
        postgres = url.replace("postgresql://", "postgresql+asyncpg://")
        operations, answers, calls = asyncio.run(_measure(plan, Path(directory), postgres))
    return ChatsResults(circumstances(_PACKAGES), others.share(), operations, answers, calls)


async def _measure(
    plan: Plan, directory: Path, postgres: str
) -> tuple[dict[str, dict[str, dict[int, Figure]]], dict[str, Figure], dict[str, Figure]]:
    operations = {}
    async with AsyncExitStack() as stack:
        await _create_databases(postgres, ["small", "large", "answers"])
        for name, urls in {
            "SQLite": [str(directory / f"{size}.db") for size in ("small", "large")],
            "PostgreSQL": [postgres.replace("/postgres?", f"/{size}?") for size in ("small", "large")],
        }.items():
            databases = [
                await _filled(stack, url, count, plan.length) for url, count in zip(urls, plan.chats, strict=True)
            ]
            operations[name] = await _operations(databases, plan, name)
        stores: dict[str, ChatStore | None] = {
            WITHOUT: None,
            "in memory": MemoryChats(),
            "SQLite": await _opened(stack, str(directory / "answers.db")),
            "PostgreSQL": await _opened(stack, postgres.replace("/postgres?", "/answers?")),
        }
        answers = await _answers(stores, plan)
        calls = await _calls({name: store for name, store in stores.items() if store is not None}, plan)
    return operations, answers, calls


async def _create_databases(url: str, names: Sequence[str]) -> None:
    engine = SqlChats(url).engine.execution_options(isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        for name in names:
            await connection.exec_driver_sql(f"CREATE DATABASE {name}")
    await engine.dispose()


async def _opened(stack: AsyncExitStack, url: str) -> SqlChats:
    store = SqlChats(url)
    stack.push_async_callback(store.close)
    await store.migrate()
    return store


# A chat database.


class Database:
    """A database with ``count`` chats of ``length`` messages each."""

    def __init__(self, store: SqlChats, count: int, length: int) -> None:
        self.store = store
        self.count = count
        self.length = length
        self._random = random.Random(count)
        self._questions = 0
        self._longer: set[str] = set()

    @property
    def messages(self) -> int:
        """How many messages there are."""
        return self.count * self.length

    async def list(self) -> None:
        """Read the first page of the list."""
        await self.store.list_chats(_OWNER, limit=_LISTED)

    async def open(self) -> None:
        """Load a chat."""
        await self.store.load(self._any_chat(), owner=_OWNER)

    async def append(self) -> None:
        """Add a question and its answer to a chat."""
        self._questions += 1
        chat_id = self._any_chat()
        self._longer.add(chat_id)
        request = ChatRequest(chat_id=chat_id, messages=[_message(f"u{self._questions}", "user")])
        start = await self.store.begin(request, owner=_OWNER, run_id=f"run{self._questions}")
        assert isinstance(start, Begun)
        await self.store.finish(start.claim, _message(start.claim.message_id, "assistant"), "finished")

    async def restore(self) -> None:
        """Remove what was appended, so that all chats stay equally long.

        By the keys of the chats: to scan the whole table would empty the database's cache before the next append.
        """
        longer = CHATS.c.id.in_(self._longer)
        async with self.store.engine.begin() as connection:
            keys = (await connection.execute(select(CHATS.c.key).where(longer))).scalars().all()
            conditions = (MESSAGES.c.chat.in_(keys), MESSAGES.c.sequence > self.length)
            await connection.execute(delete(MESSAGES).where(*conditions))
            await connection.execute(update(CHATS).where(CHATS.c.key.in_(keys)).values(leaf=self.length))
        self._longer.clear()

    def _any_chat(self) -> str:
        return f"chat{self._random.randrange(self.count)}"


def _message(message_id: str, role: Any) -> UIMessage:
    text = "".join(text_deltas(60))
    return {"id": message_id, "role": role, "parts": [{"type": "text", "text": text}]}


async def _filled(stack: AsyncExitStack, url: str, count: int, length: int) -> Database:
    """Fill a database: one chat through the store, the others as copies of its rows."""
    store = await _opened(stack, url)
    for number in range(length // 2):
        request = ChatRequest(chat_id="chat0", messages=[_message(f"m{number}", "user")])
        start = await store.begin(request, owner=_OWNER, run_id=f"fill{number}")
        assert isinstance(start, Begun)
        await store.finish(start.claim, _message(start.claim.message_id, "assistant"), "finished")
    async with store.engine.begin() as connection:
        for number in range(1, count):
            await _copy_chat(connection, number)
    async with store.engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        await connection.exec_driver_sql("ANALYZE")
    say(f"{store.engine.dialect.name}: {count * length:,} messages in {count:,} chats")
    return Database(store, count, length)


async def _copy_chat(connection: AsyncConnection, number: int) -> None:
    first = select(CHATS.c.key).where(CHATS.c.id == "chat0").scalar_subquery()
    replaced = {"id": literal(f"chat{number}"), "updated": CHATS.c.updated - number}
    result = await connection.execute(_copied(CHATS, replaced, CHATS.c.id == "chat0").returning(CHATS.c.key))
    await connection.execute(_copied(MESSAGES, {"chat": literal(result.scalar_one())}, MESSAGES.c.chat == first))


def _copied(rows: Any, replaced: Mapping[str, Any], which: Any) -> Insert:
    """Return the statement that copies rows, with some columns replaced; the database numbers chats."""
    columns = [column for column in rows.columns if column is not CHATS.c.key]
    selection = select(*[replaced.get(column.name, column) for column in columns]).where(which)
    return insert(rows).from_select([column.name for column in columns], selection)


# Measuring.


async def _operations(databases: Sequence[Database], plan: Plan, name: str) -> dict[str, dict[int, Figure]]:
    operations: dict[str, dict[int, Figure]] = {}
    for operation in OPERATIONS:
        works = {str(each.messages): getattr(each, operation) for each in databases}
        after = [each.restore for each in databases] if operation == "append" else []
        figures = await _in_turns(works, plan.rounds, after)
        operations[operation] = {int(messages): figure for messages, figure in figures.items()}
        say(f"{name}: {operation} measured")
    return operations


async def _answers(stores: Mapping[str, ChatStore | None], plan: Plan) -> dict[str, Figure]:
    """Measure whole answers over HTTP in this process, each the first of a new chat."""
    words = text_deltas(plan.words)

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        for word in words:
            yield word

    async with AsyncExitStack() as stack:
        works = {}
        for name, store in stores.items():
            app = ChatApp(agent, chats=store, settings=Settings(sdk="7"), metrics=False)
            stack.push_async_callback(app.shut_down)
            transport = httpx2.ASGITransport(app)
            client = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, base_url="http://bench"))
            works[name] = _asking(client)
        figures = await _in_turns(works, plan.answers)
    say("answers measured")
    return figures


def _asking(client: httpx2.AsyncClient) -> Work:
    numbers = iter(range(1_000_000))

    async def ask() -> None:
        body = {"id": f"answer{next(numbers)}", "messages": [_message("u1", "user")]}
        response = await client.post("/api/chat", json=body)
        assert response.text.endswith("data: [DONE]\n\n"), response.text

    return ask


async def _calls(stores: Mapping[str, ChatStore], plan: Plan) -> dict[str, Figure]:
    """Measure the commit of a tool call, which its tool waits for, in answers of many calls."""
    durations: dict[str, list[int]] = {name: [] for name in stores}
    warming = plan.answers // 10
    for number in range(plan.answers + warming):
        for name, store in stores.items():
            taken = await _commit_calls(store, f"calls{number}", plan.calls)
            durations[name] += taken if number >= warming else []
    say("calls measured")
    return {name: Figure(statistics.median(each), min(each)) for name, each in durations.items()}


async def _commit_calls(store: ChatStore, chat_id: str, count: int) -> list[int]:
    """Record an answer of so many calls, and return how long each commit of a call took."""
    request = ChatRequest(chat_id=chat_id, messages=[_message("u1", "user")])
    start = await store.begin(request, owner=_OWNER, run_id=chat_id)
    assert isinstance(start, Begun)
    recorder = AnswerRecorder(store, start.claim, sdk="7")
    stream = FrameStream(MessageStream(message_id=start.claim.message_id))
    durations = []
    for number in range(count):
        recorder.receive(stream.send(ToolCall(f"call{number}", "search", {"query": "owls"})))
        begin = perf_counter_ns()
        await recorder.commit()
        durations.append(perf_counter_ns() - begin)
        recorder.receive(stream.send(ToolResult(f"call{number}", "They hunt at night.")))
    recorder.receive(stream.send(Finish()))
    await recorder.finish("finished")
    return durations


async def _in_turns(works: Mapping[str, Work], rounds: int, after: Sequence[Work] = ()) -> dict[str, Figure]:
    """Do everything once per round, in an order that rotates; the first tenth of the rounds does not count."""
    durations: dict[str, list[float]] = {name: [] for name in works}
    names = list(works)
    for _ in range(rounds + rounds // 10):
        names = [*names[1:], names[0]]
        for name in names:
            begin = perf_counter_ns()
            await works[name]()
            durations[name].append(perf_counter_ns() - begin)
        for clean_up in after:
            await clean_up()
    samples = {name: each[rounds // 10 :] for name, each in durations.items()}
    return {name: Figure(statistics.median(each), min(each)) for name, each in samples.items()}


# The report.


def goals(results: ChatsResults) -> list[Goal]:
    """Judge the run."""
    return (
        [
            Goal(
                f"{database}: {operation} within {FLAT}x from {min(figures):,} to {max(figures):,} messages",
                f"{results.growth(database, operation):.2f}x",
                results.growth(database, operation) <= FLAT,
            )
            for database, operations in results.operations.items()
            for operation, figures in operations.items()
        ]
        + [
            Goal(
                f"{database}: {operation} takes at most {READ_MS:g} ms with {max(figures):,} messages",
                f"{figures[max(figures)].median / 1e6:.2f} ms",
                figures[max(figures)].median / 1e6 <= READ_MS,
            )
            for database, operations in results.operations.items()
            for operation, figures in operations.items()
            if operation in READ
        ]
        + [
            Goal(
                f"SQLite: a tool call is stored within {CALL_MS:g} ms",
                f"{figure.median / 1e6:.2f} ms",
                figure.median / 1e6 <= CALL_MS,
            )
            for name, figure in results.calls.items()
            if name == "SQLite"
        ]
    )


def report(results: ChatsResults) -> str:
    """Return the whole report."""
    header = ["operation", "messages", "median ms", "best ms", "x small"]
    rows = [
        [
            f"{database}: {operation}",
            f"{messages:,}",
            f"{figure.median / 1e6:.2f}",
            f"{figure.best / 1e6:.2f}",
            f"{figure.median / figures[min(figures)].median:.2f}",
        ]
        for database, operations in results.operations.items()
        for operation, figures in operations.items()
        for messages, figure in sorted(figures.items())
    ]
    without = results.answers[WITHOUT].median
    answer_header = ["stored", "median ms", "best ms", "added ms"]
    answers = [
        [name, f"{each.median / 1e6:.2f}", f"{each.best / 1e6:.2f}", f"{(each.median - without) / 1e6:.2f}"]
        for name, each in results.answers.items()
    ]
    calls = [[name, f"{each.median / 1e6:.2f}", f"{each.best / 1e6:.2f}"] for name, each in results.calls.items()]
    return "\n\n".join(
        [
            "# Stored chats",
            summary(results),
            "## List, open and append",
            table(header, rows),
            "## A whole answer, the first of its chat",
            "![Milliseconds per answer](chats.svg)",
            table(answer_header, answers),
            "## A tool call, stored before its tool starts",
            table(["stored", "median ms", "best ms"], calls),
        ]
    )


def summary(results: ChatsResults) -> str:
    """Return what the README shows of it."""
    run = results.circumstances
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    busy = f" Other processes took {results.others:.0%} of the machine: run it again." if results.others > BUSY else ""
    listed = "\n".join(f"- {'met' if goal.met else 'MISSED'}: {goal.text}: {goal.measured}" for goal in goals(results))
    without = results.answers[WITHOUT].median
    costs = ", ".join(
        f"{(figure.median - without) / 1e6:.1f} ms {name}"
        for name, figure in results.answers.items()
        if name != WITHOUT
    )
    answers = f"An answer takes {without / 1e6:.1f} ms without chats. Storing it adds {costs}."
    return f"{run.date}, {run.machine}, {run.python}; {versions}.{busy}\n\n{listed}\n\n{answers}"
