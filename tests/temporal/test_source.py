"""Turns as workflows of a real Temporal server, run by a worker in a process of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from tests.temporal.pages import Page
from tests.temporal.server import TemporalServer
from tests.temporal.travel import TEXTS, Brief, Failing, Silent, Travel
from usechat.errors import CannotAnswer
from usechat.server import ChatApp, Settings
from usechat.temporal import TemporalSource


async def page(server: TemporalServer, worker: str, chat_id: str, workflow: Any = Travel, **options: Any) -> Page:
    source = TemporalSource(await server.client(), workflow, task_queue=worker, **options)
    return Page(ChatApp(source, settings=Settings(sdk="7"), metrics=False), chat_id)


async def history(client: Client, chat_id: str) -> Sequence[str]:
    """The ids of the workflows of a chat."""
    query = f"WorkflowId STARTS_WITH 'usechat//{chat_id}/'"
    return [workflow.id async for workflow in client.list_workflows(query)]


async def test_a_turn_is_a_workflow_whose_text_and_tools_the_page_reads(
    server: TemporalServer, worker: str, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    said = await (await page(server, worker, "whole")).ask("To Oslo", notes=str(notes))
    assert (said.status, said.texts) == (200, TEXTS)
    assert said.outcomes == [{"celsius": 21}, "booked"]
    assert notes.read_text().splitlines() == [
        "request 0", "weather Oslo", "request 1", "book Oslo", "request 2"
    ]  # fmt: skip


async def test_the_id_of_a_workflow_is_made_of_identity_chat_and_run(server: TemporalServer, worker: str) -> None:
    asked = await page(server, worker, "a chat/1")
    await asked.ask("To Oslo")
    client = await server.client()
    [first] = await history(client, "a%20chat%2F1")
    await asked.ask("To Oslo")
    assert len(set(await history(client, "a%20chat%2F1"))) == 2
    assert first.startswith("usechat//a%20chat%2F1/")


async def test_an_error_that_is_meant_for_people_reaches_the_page(server: TemporalServer, worker: str) -> None:
    said = await (await page(server, worker, "public", Failing)).ask("hi")
    assert said.texts == ["Well"]
    assert '"errorText":"The booking system is closed."' in said.text


async def test_a_workflow_without_a_stream_is_named(
    server: TemporalServer, worker: str, caplog: pytest.LogCaptureFixture
) -> None:
    said = await (await page(server, worker, "silent", Silent)).ask("hi")
    assert '"type":"error"' in said.text
    assert "create usechat.temporal.WorkflowAnswer() in its @workflow.init" in caplog.text


async def test_without_a_worker_the_page_is_told_after_a_while(
    server: TemporalServer, caplog: pytest.LogCaptureFixture
) -> None:
    said = await (await page(server, "nobody", "nobody", worker_seconds=2)).ask("hi")
    assert '"errorText":"Nothing is running that could answer. Please try again later."' in said.text
    assert "no worker answers on the task queue 'nobody' of the namespace 'default'; start one" in caplog.text


async def test_an_unreachable_server_is_503_and_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    gone = await TemporalServer().start()
    asked = await page(gone, "travel", "gone")
    gone.stop()
    caplog.clear()
    said = await asked.ask("hi")
    assert (said.status, said.text) == (503, "The agent cannot be reached. Please try again later.")
    [line] = [record for record in caplog.records if record.name.startswith("usechat")]
    assert line.getMessage().startswith("the Temporal server cannot be reached: ")


async def test_a_class_that_is_no_workflow_is_refused(server: TemporalServer) -> None:
    with pytest.raises(
        CannotAnswer, match=r"TemporalServer is not a workflow; decorate the class with @workflow\.defn"
    ):
        TemporalSource(await server.client(), TemporalServer, task_queue="travel")


async def test_an_activity_may_end_as_soon_as_it_has_spoken(server: TemporalServer, worker: str) -> None:
    said = await (await page(server, worker, "brief", Brief)).ask("hi")
    assert said.texts == ["At once."] * 20
