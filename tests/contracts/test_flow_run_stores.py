"""Every store of flow runs keeps the same promises."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import asyncpg  # type: ignore[import-untyped]
import pytest

from tests.open_harness.flow_runs import flow, python
from tests.postgres_server import postgres_server
from usechat.errors import InvalidSetting
from usechat.open_harness import FlowRuntimes, OpenHarnessChatTransport
from usechat.open_harness.engine.batched_store import BatchedRunStore
from usechat.open_harness.engine.postgres_store import PostgresRunStore
from usechat.open_harness.engine.processes import new_start, this_process
from usechat.open_harness.engine.sqlite_store import SqliteRunStore
from usechat.open_harness.engine.store import FlowRunStore, MemoryRunStore, SharedRunStore
from usechat.protocol.chunks import TextDeltaChunk
from usechat.protocol.request import ChatRequest


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def opening(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], FlowRunStore]:
    """Return a function that opens the store, as one more worker; memory has one worker alone."""
    if request.param == "memory":
        memory = MemoryRunStore()
        return lambda: memory
    if request.param == "sqlite":
        return lambda: SqliteRunStore(tmp_path / "runs.db")
    url = request.getfixturevalue("postgres")
    asyncio.run(empty(url))
    return lambda: PostgresRunStore(url)


async def empty(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await connection.close()


@pytest.fixture
def open_store(opening: Callable[[], FlowRunStore]) -> Iterator[Callable[[], FlowRunStore]]:
    with ExitStack() as opened:

        def open_one() -> FlowRunStore:
            store = opening()
            if isinstance(store, BatchedRunStore):
                opened.enter_context(store)
            return store

        yield open_one


@pytest.fixture
def store(open_store: Callable[[], FlowRunStore]) -> FlowRunStore:
    return open_store()


def snapshot(status: str, chat_id: str = "c", owner: str = "") -> dict[str, Any]:
    return {"runId": "r", "status": status, "input": {"chatId": chat_id}, "owner": owner}


def test_events_are_numbered_per_run_from_one(store: FlowRunStore) -> None:
    for number in range(3):
        store.append_event("a", {"type": "x", "number": number})
    store.append_event("b", {"type": "y"})
    assert store.load_events("a") == [(number + 1, {"type": "x", "number": number}) for number in range(3)]
    assert store.load_events("a", 2) == [(3, {"type": "x", "number": 2})]
    assert store.load_events("b") == [(1, {"type": "y"})]
    assert store.load_events("nobody") == []


def test_the_latest_snapshot_counts(store: FlowRunStore) -> None:
    assert store.load_snapshot("r") is None
    store.save_snapshot("r", snapshot("running"))
    store.save_snapshot("r", snapshot("paused"))
    assert store.load_snapshot("r") == snapshot("paused")


def test_a_session_is_replaced(store: FlowRunStore) -> None:
    assert store.load_session("s") is None
    store.save_session("s", {"messages": [[1, "a"]]})
    store.save_session("s", {"messages": [[1, "a"], [1, "b"]]})
    assert store.load_session("s") == {"messages": [[1, "a"], [1, "b"]]}


def test_a_paused_run_is_found_by_its_chat_and_owner_while_it_is_the_latest(store: FlowRunStore) -> None:
    store.save_snapshot("one", snapshot("paused"))
    store.save_snapshot("two", snapshot("paused", owner="ann"))
    assert (store.unfinished_run("c"), store.unfinished_run("c", "ann"), store.unfinished_run("d")) == (
        "one",
        "two",
        None,
    )
    store.save_snapshot("one", snapshot("complete"))
    assert store.unfinished_run("c") is None


def test_a_run_whose_process_is_gone_is_found_and_one_that_runs_is_not(store: FlowRunStore) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        dead_process = this_process().replace(f"/{os.getpid()}/", f"/{process.pid}/")
        process.kill()
    for chat_id, name in (
        ("gone", dead_process),
        ("here", this_process()),
        ("elsewhere", "another-host/1/2"),
        ("old", ""),
    ):
        run = {"status": "running", "owner": "", "input": {"chatId": chat_id}, "process": name}
        store.save_snapshot(f"run of {chat_id}", run)
    assert [store.unfinished_run(chat_id) for chat_id in ("gone", "here", "elsewhere", "old")] == [
        "run of gone",
        None,
        None,
        "run of old",
    ]


def test_the_later_of_two_runs_of_one_instant_is_the_latest(store: FlowRunStore) -> None:
    """They are stored in one transaction, with one time; their ids say nothing."""
    for run_id in ("b", "c", "a"):
        store.save_snapshot(run_id, {**snapshot("paused"), "startedAt": new_start()})
    assert store.unfinished_run("c") == "a"
    store.save_snapshot("a", {**snapshot("complete"), "startedAt": new_start()})
    assert store.unfinished_run("c") is None


def test_commands_are_taken_once_and_in_order(store: FlowRunStore) -> None:
    if not isinstance(store, SharedRunStore):
        assert isinstance(store, MemoryRunStore), "it belongs to one process"
        return
    for run_id, number in (("a", 1), ("b", 2), ("a", 3)):
        store.send_command(run_id, {"type": "send", "message": number})
    store.flush()
    assert store.take_commands(["a", "c"]) == [("a", {"type": "send", "message": n}) for n in (1, 3)]
    assert store.take_commands(["a", "b"]) == [("b", {"type": "send", "message": 2})]
    assert store.take_commands(["a", "b"]) == []


def test_a_run_whose_process_lives_is_running(store: FlowRunStore) -> None:
    if not isinstance(store, SharedRunStore):
        assert isinstance(store, MemoryRunStore), "it belongs to one process"
        return
    rows = {
        "here": ("running", this_process()),
        "gone": ("running", this_process() + "0"),
        "paused": ("paused", this_process()),
    }
    for chat_id, (status, process) in rows.items():
        run = {"status": status, "owner": "", "input": {"chatId": chat_id}, "process": process}
        store.save_snapshot(f"run of {chat_id}", run)
    assert [store.running_run(chat_id) for chat_id in (*rows, "none")] == ["run of here", None, None, None]


def test_flush_returns_when_nothing_waits(store: FlowRunStore) -> None:
    store.append_event("a", {"type": "x"})
    store.flush()
    store.flush()


def test_runs_of_an_instant_that_the_clock_cannot_divide_are_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    now = new_start() + 10**12
    monkeypatch.setattr("time.time_ns", lambda: now)
    starts = [new_start() for _ in range(3000)]
    assert starts == sorted(set(starts))


@pytest.mark.parametrize("text", ["a\u0000b \U0001f600 'quoted' %s :name {}", "half an emoji: \ud83d"])
def test_values_with_any_text_come_back_as_they_were(store: FlowRunStore, text: str) -> None:
    session, event = {"messages": [[1, text]]}, {"type": "agent:text:delta", "content": text}
    paused = {**snapshot("paused"), "outputs": {"a": {"text": text}}}
    store.save_session("s", session)
    store.append_event("r", event)
    store.save_snapshot("r", paused)
    assert store.load_session("s") == session
    assert store.load_events("r") == [(1, event)]
    assert (store.unfinished_run("c"), store.load_snapshot("r")) == ("r", paused)
    if isinstance(store, SharedRunStore):
        store.send_command("r", {"type": "send", "message": text})
        store.flush()
        assert store.take_commands(["r"]) == [("r", {"type": "send", "message": text})]


def test_workers_that_start_at_the_same_time_share_the_store(open_store: Callable[[], FlowRunStore]) -> None:
    stores = [open_store() for _ in range(4)]

    def write(number: int) -> None:
        stores[number].append_event(f"run {number}", {"type": "x"})
        stores[number].flush()

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [stores[0].load_events(f"run {number}") for number in range(4)] == [[(1, {"type": "x"})]] * 4


async def said(transport: OpenHarnessChatTransport, text: str, number: int) -> list[str]:
    """Return the words of the answer to the chat's message of this number."""
    message = {"id": f"u{number}", "role": "user", "parts": [{"type": "text", "text": text}]}
    chunks = await transport.send_messages(ChatRequest.parse({"id": "chat", "messages": [message]}))
    return [chunk.delta async for chunk in chunks if isinstance(chunk, TextDeltaChunk)]


async def test_a_flow_that_paused_on_one_worker_goes_on_at_another_and_only_once(
    open_store: Callable[[], FlowRunStore],
) -> None:
    described = flow(python("ask", "asks_and_pauses"), python("count", "counts"))
    stores = [open_store(), open_store()]
    first, second = [OpenHarnessChatTransport(FlowRuntimes(described, store=store)) for store in stores]
    await said(first, "hello", 1)
    paused = stores[1].unfinished_run("chat")
    assert paused is not None
    await said(second, "blue", 2)
    assert stores[0].load_snapshot(paused)["outputs"]["ask"]["answer"] == "blue"  # type: ignore[index]
    assert stores[0].unfinished_run("chat") is None
    await said(first, "hello again", 3)  # the first worker has not kept the run that the second has ended
    again = stores[1].unfinished_run("chat")
    assert (again is not None, again != paused) == (True, True)


def test_a_database_that_cannot_be_used_is_told_when_it_is_opened(postgres: str) -> None:
    for url, message in [
        ("postgresql://user:secret@127.0.0.1:1/runs", "ConnectionRefusedError"),
        (postgres.replace("/postgres?", "/missing?"), 'database "missing" does not exist'),
    ]:
        with PostgresRunStore(url) as store, pytest.raises(InvalidSetting, match=message) as raised:
            store.open()
        assert "the run database cannot be used" in str(raised.value)
        assert "secret" not in str(raised.value)


def test_a_store_of_another_kind_is_refused() -> None:
    for url in ("sqlite:///runs.db", "runs.db", "mysql://host/database"):
        with pytest.raises(InvalidSetting, match="postgresql://"):
            PostgresRunStore(url)
