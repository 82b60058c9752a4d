"""Every store of flow runs keeps the same promises."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from usechat.open_harness.engine.processes import new_start, this_process
from usechat.open_harness.engine.sqlite_store import SqliteRunStore
from usechat.open_harness.engine.store import FlowRunStore, MemoryRunStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FlowRunStore]:
    if request.param == "memory":
        yield MemoryRunStore()
    else:
        with SqliteRunStore(tmp_path / "runs.db") as opened:
            yield opened


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
        gone = this_process().replace(f"/{os.getpid()}/", f"/{process.pid}/")
        process.kill()
    for chat_id, name in (("gone", gone), ("here", this_process()), ("elsewhere", "another-host/1/2"), ("old", "")):
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


def test_flush_returns_when_nothing_waits(store: FlowRunStore) -> None:
    store.append_event("a", {"type": "x"})
    store.flush()
    store.flush()
