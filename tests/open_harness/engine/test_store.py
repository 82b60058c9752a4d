"""Runs that are kept: after a restart they go on; a store that fails does not harm them."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.open_harness.engine import crashing
from tests.open_harness.flow_runs import constant, flow, python, run
from usechat.errors import InvalidSetting
from usechat.open_harness.engine.runtime import FlowRuntime, FlowRuntimes
from usechat.open_harness.engine.sqlite_store import SqliteRunStore
from usechat.open_harness.engine.store import MemoryRunStore
from usechat.open_harness.errors import NotResumable
from usechat.open_harness.runtime_protocol import Snapshot
from usechat.protocol.request import ChatRequest
from usechat.turn import TurnContext, TurnInput

ROOT = Path(__file__).parents[3]


STORED = "SELECT 1 FROM run_snapshots WHERE json_extract(snapshot, '$.nodeStatus.wait') = 'running'"


def in_a_process(path: Path, run_id: str, message: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.open_harness.engine.restarting", str(path), run_id, message]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=120)
    snapshot: dict[str, Any] = json.loads(done.stdout)
    return snapshot


def test_a_paused_flow_goes_on_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    paused = in_a_process(path, "", "hello")
    assert (paused["status"], paused["outputs"], paused["state"]) == ("paused", {"count": {"count": 1}}, {"count": 1})
    complete = in_a_process(path, paused["runId"], "blue")
    assert (complete["runId"], complete["status"]) == (paused["runId"], "complete")
    assert complete["outputs"]["end"] == {"value": "blue 1 hello"}, "the node that had run was not run again"
    with sqlite3.connect(path) as connection:
        numbers = [row[0] for row in connection.execute("SELECT seq FROM run_events ORDER BY seq")]
        types = [json.loads(row[0])["type"] for row in connection.execute("SELECT event FROM run_events ORDER BY seq")]
    connection.close()
    assert numbers == list(range(1, len(numbers) + 1))
    assert (types[0], types.count("flow:paused"), types.count("flow:resumed"), types[-1]) == (
        "flow:start",
        1,
        1,
        "flow:complete",
    )


def test_after_a_crash_the_next_message_goes_on_with_the_run_that_was_running(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    command = [sys.executable, "-m", "tests.open_harness.engine.crashing", str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            while not connection.execute(STORED).fetchone():
                time.sleep(0.01)  # until the store has written what it gathers
        process.kill()

    async def go_on() -> Snapshot:
        request = ChatRequest.parse({"id": "c", "messages": [user("go on")]})
        runtime = await FlowRuntimes(crashing.FLOW, store=store)(TurnContext(TurnInput(request)).turn)
        return await runtime.resume("go on")

    with SqliteRunStore(path) as store:
        snapshot = asyncio.run(asyncio.wait_for(go_on(), 60))
    assert (snapshot["status"], snapshot["outputs"]) == ("complete", {"count": {"count": 1}, "wait": {"text": "go on"}})


async def test_a_regenerated_answer_is_a_run_of_its_own() -> None:
    store = MemoryRunStore()
    store.save_snapshot("one", {"status": "paused", "input": {"chatId": "c"}, "owner": ""})
    runtimes = FlowRuntimes(flow(constant("a")), store=store)
    for trigger, status in (("submit-message", "paused"), ("regenerate-message", "idle")):
        request = ChatRequest.parse({"id": "c", "messages": [user("hi")], "trigger": trigger})
        assert (await runtimes(TurnContext(TurnInput(request)).turn)).get_snapshot()["status"] == status


def user(text: str) -> dict[str, Any]:
    return {"id": text, "role": "user", "parts": [{"type": "text", "text": text}]}


async def test_every_event_is_kept_as_it_was_told(tmp_path: Path) -> None:
    with SqliteRunStore(tmp_path / "runs.db") as store:
        log, snapshot = await run(flow(python("a", "said"), constant("b", {"x": [1]})), store=store)
        assert [event for _, event in store.load_events(snapshot["runId"])] == log.events
        assert store.load_snapshot(snapshot["runId"]) == snapshot


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_paused_run_of_a_chat_is_found_by_its_owner_alone_and_only_while_it_is_paused(
    kind: str, tmp_path: Path
) -> None:
    store = MemoryRunStore() if kind == "memory" else SqliteRunStore(tmp_path / "runs.db")
    runs: dict[str, FlowRuntime] = {}
    for owner in ("ann", "bob"):
        runs[owner] = FlowRuntime(flow(python("a", "asks_and_pauses")), store=store, owner=owner)
        await runs[owner].run({"chatId": "c1"})
    assert [store.unfinished_run("c1", owner) for owner in ("ann", "bob", "eve", "")] == [
        *(runs["ann"].run_id, runs["bob"].run_id),
        *(None, None),
    ]
    assert store.unfinished_run("c2", "ann") is None
    await runs["ann"].resume("blue")
    assert (store.unfinished_run("c1", "ann"), store.unfinished_run("c1", "bob")) == (None, runs["bob"].run_id)
    if isinstance(store, SqliteRunStore):
        store.close()


async def test_a_run_whose_process_died_goes_on_with_what_had_not_ended() -> None:
    store = MemoryRunStore()
    runtime = FlowRuntime(flow(python("a", "counts"), python("b", "asks_and_pauses")), store=store)
    paused = await runtime.run()
    died = {**paused, "status": "running"}
    again = FlowRuntime(runtime.flow, resume={"snapshot": died})
    snapshot = await again.run()
    assert (snapshot["runId"], snapshot["state"], snapshot["outputs"]["b"]["answer"]) == (
        paused["runId"],
        {"count": 1},
        "continue",
    )


async def test_a_flow_that_has_changed_since_goes_on_with_what_it_still_has() -> None:
    runtime = FlowRuntime(flow(python("old", "counts"), python("b", "asks_and_pauses")))
    paused = await runtime.run()
    again = FlowRuntime(flow(python("b", "asks_and_pauses"), constant("new")), resume={"snapshot": paused})
    snapshot = await again.resume("hi")
    assert snapshot["nodeStatus"] == {"b": "done", "new": "done"}


async def test_what_cannot_be_resumed_is_refused() -> None:
    described = flow(constant("a"))
    _, ended = await run(described)
    with pytest.raises(NotResumable, match="is not resumable"):
        await FlowRuntime(described, resume={"snapshot": ended}).run()
    with pytest.raises(NotResumable, match="No snapshot found for runId nobody"):
        FlowRuntime(described, store=MemoryRunStore(), resume={"runId": "nobody"})
    with pytest.raises(InvalidSetting, match="only if a store is given"):
        FlowRuntime(described, resume={"runId": "nobody"})


async def test_a_store_that_fails_is_logged_and_the_flow_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteRunStore(tmp_path / "runs.db")
    store.close()
    log, _ = await run(flow(constant("a")), store=store)
    assert log.types[-1] == "flow:complete"
    assert "the run store failed" in caplog.text


async def test_a_table_that_cannot_be_written_is_logged_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "runs.db"
    with SqliteRunStore(path) as store:
        connection = sqlite3.connect(path)
        connection.execute("DROP TABLE run_events")
        connection.close()
        log, _ = await run(flow(constant("a")), store=store)
    assert log.types[-1] == "flow:complete"
    assert "no such table" in caplog.text


async def test_writing_does_not_hold_up_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with SqliteRunStore(path) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # nothing can be written now, and nobody waits for that
            began = time.thread_time()
            for number in range(2000):
                store.append_event("r", {"type": "agent:text:delta", "content": f"word {number}"})
            worked = time.thread_time() - began
            assert other.execute("SELECT COUNT(*) FROM run_events").fetchone() == (0,)
        await asyncio.to_thread(store.flush)
        assert len(store.load_events("r")) == 2000
    assert worked < 1, "half a millisecond each, of the processor's time"


def test_a_flush_does_not_wait_for_those_who_go_on_writing(tmp_path: Path) -> None:
    is_enough = threading.Event()

    def write_on_and_on(store: SqliteRunStore) -> None:
        while not is_enough.is_set():
            store.append_event("busy", {"type": "x"})

    with SqliteRunStore(tmp_path / "runs.db") as store:
        writer = threading.Thread(target=write_on_and_on, args=(store,))
        writer.start()
        try:
            store.save_snapshot("r", {"status": "paused"})
            assert store.load_snapshot("r") == {"status": "paused"}
        finally:
            is_enough.set()
            writer.join()


def test_memory_forgets_what_was_used_longest_ago() -> None:
    store = MemoryRunStore(maximum_runs=2, maximum_sessions=1)
    for run_id in ("a", "b", "c"):
        store.append_event(run_id, {"type": "x"})
        store.save_snapshot(run_id, {"status": "complete", "input": {}, "owner": ""})
        store.save_session(run_id, {"messages": []})
    assert [bool(store.load_events(run_id)) for run_id in "abc"] == [False, True, True]
    assert [store.load_snapshot(run_id) is not None for run_id in "abc"] == [False, True, True]
    assert [store.load_session(run_id) is not None for run_id in "abc"] == [False, False, True]
