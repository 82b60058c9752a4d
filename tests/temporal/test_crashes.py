"""kill -9 of workers, stops, and replays: with real processes before a real server."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.worker import Replayer

from tests.temporal.pages import Page, Said
from tests.temporal.server import PATIENCE, TemporalServer, WorkerProcess
from tests.temporal.travel import TEXTS, Travel
from usechat.chats.recovery import UNKNOWN_OUTCOME
from usechat.server import ChatApp, Settings
from usechat.temporal import TemporalSource, worker_plugin


class Workers:
    """Workers of one task queue, started one after the other."""

    def __init__(self, address: str, task_queue: str) -> None:
        self.task_queue = task_queue
        self._address = address
        self._processes: list[WorkerProcess] = []

    def start(self) -> WorkerProcess:
        self._processes.append(WorkerProcess(self._address, self.task_queue))
        return self._processes[-1]

    def stop(self) -> None:
        for process in self._processes:
            process.stop()


@pytest.fixture
def workers(server: TemporalServer, request: pytest.FixtureRequest) -> Iterator[Workers]:
    workers = Workers(server.address, request.node.name)
    yield workers
    workers.stop()


async def page(server: TemporalServer, workers: Workers, chat_id: str) -> Page:
    source = TemporalSource(await server.client(), Travel, task_queue=workers.task_queue, worker_seconds=20)
    return Page(ChatApp(source, settings=Settings(sdk="7"), metrics=False), chat_id)


async def until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + PATIENCE
    while not condition():
        assert monotonic() < deadline
        await asyncio.sleep(0.02)


def lines(notes: Path) -> list[str]:
    return notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []


async def killed_when(line: str, asked: Page, workers: Workers, notes: Path, **body: float) -> Said:
    """Ask, kill the worker a moment after it noted a line, start another, and return the whole answer."""
    worker = workers.start()
    asking = asyncio.create_task(asked.ask("To Oslo", notes=str(notes), **body))
    await until(lambda: line in lines(notes))
    await asyncio.sleep(0.5)
    worker.kill()
    workers.start()
    return await asking


async def test_text_that_a_dead_worker_began_is_replaced(
    server: TemporalServer, workers: Workers, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    answer = await killed_when("request 1", await page(server, workers, "text"), workers, notes, delay=0.2)
    assert answer.texts == TEXTS
    assert '"type":"reset-step"' in answer.text
    assert answer.outcomes == [{"celsius": 21}, "booked"]
    assert lines(notes) == ["request 0", "weather Oslo", "request 1", "request 1", "book Oslo", "request 2"]


async def test_a_tool_that_may_have_run_is_not_run_again(
    server: TemporalServer, workers: Workers, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    answer = await killed_when("book Oslo", await page(server, workers, "tool"), workers, notes, tool_delay=2)
    assert (answer.texts, answer.outcomes) == (TEXTS, [{"celsius": 21}, UNKNOWN_OUTCOME])
    assert lines(notes) == ["request 0", "weather Oslo", "request 1", "book Oslo", "request 2"]


async def test_a_replayable_tool_runs_again(server: TemporalServer, workers: Workers, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    answer = await killed_when("weather Oslo", await page(server, workers, "again"), workers, notes, tool_delay=2)
    assert (answer.texts, answer.outcomes) == (TEXTS, [{"celsius": 21}, "booked"])
    assert lines(notes) == ["request 0", "weather Oslo", "weather Oslo", "request 1", "book Oslo", "request 2"]


async def workflow_of(client: Client, chat_id: str) -> str:
    deadline = monotonic() + PATIENCE
    while monotonic() < deadline:  # the list lags behind
        async for workflow in client.list_workflows(f"WorkflowId STARTS_WITH 'usechat//{chat_id}/'"):
            return str(workflow.id)
        await asyncio.sleep(0.1)
    raise AssertionError("no workflow")


async def ended(client: Client, workflow_id: str) -> WorkflowExecutionStatus | None:
    deadline = monotonic() + PATIENCE
    while True:
        status = (await client.get_workflow_handle(workflow_id).describe()).status
        if status is not WorkflowExecutionStatus.RUNNING or monotonic() > deadline:
            return status
        await asyncio.sleep(0.1)


async def test_a_stop_on_the_page_cancels_the_workflow_and_its_activity(
    server: TemporalServer, workers: Workers, tmp_path: Path
) -> None:
    notes, asked, client = tmp_path / "notes", await page(server, workers, "stop"), await server.client()
    workers.start()
    asking = asyncio.create_task(asked.ask("To Oslo", notes=str(notes), delay=0.5))
    await until(lambda: "request 0" in lines(notes))
    assert await asked.stop() == 204
    assert '"type":"abort"' in (await asking).text
    assert await ended(client, await workflow_of(client, "stop")) is WorkflowExecutionStatus.CANCELED
    await asyncio.sleep(3)  # the words of one request take longer
    assert lines(notes) == ["request 0"]


async def test_a_workflow_that_an_operator_cancels_ends_the_answer(
    server: TemporalServer, workers: Workers, tmp_path: Path
) -> None:
    notes, asked, client = tmp_path / "notes", await page(server, workers, "operator"), await server.client()
    workers.start()
    asking = asyncio.create_task(asked.ask("To Oslo", notes=str(notes), delay=0.5))
    await until(lambda: "request 0" in lines(notes))
    await client.get_workflow_handle(await workflow_of(client, "operator")).cancel()
    assert '"type":"abort"' in (await asking).text


async def test_the_history_of_a_workflow_can_be_replayed(
    server: TemporalServer, workers: Workers, tmp_path: Path
) -> None:
    asked, client = await page(server, workers, "replay"), await server.client()
    await killed_when("request 1", asked, workers, tmp_path / "notes", delay=0.1)
    handle = client.get_workflow_handle(await workflow_of(client, "replay"))
    history = await handle.fetch_history()
    await Replayer(workflows=[Travel], plugins=[worker_plugin()]).replay_workflow(history)
