"""Agents of Pydantic AI in workflows: their worker is a process, and their model a server that follows a script."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.temporal.pages import Page
from tests.temporal.server import TemporalServer, WorkerProcess
from tests.temporal.test_crashes import lines, until
from usechat.adapters.conversation import TOOL_FAILED
from usechat.chats.recovery import UNKNOWN_OUTCOME
from usechat.server import ChatApp, Settings
from usechat.temporal import TemporalSource
from usechat.testing.models import ModelAnswer, ModelCall, ScriptedModel

WEATHER = ModelAnswer(text=["I look ", "at the weather."], calls=[ModelCall("weather", {"city": "Oslo"}, "c1")])
BOOK = ModelAnswer(text=["Now ", "I book."], calls=[ModelCall("book", {"city": "Oslo"}, "c2")])


class Assistants:
    """Workers with an agent whose model follows a script."""

    def __init__(self, server: TemporalServer, task_queue: str, model: ScriptedModel, notes: Path) -> None:
        self._server = server
        self._task_queue = task_queue
        self.model = model
        self._environment = {"MODEL_URL": model.openai_url, "NOTES": str(notes), "OPENAI_API_KEY": "none"}
        self._workers: list[WorkerProcess] = []
        self.notes = notes

    def start(self, **environment: str) -> WorkerProcess:
        arguments: Any = {"module": "tests.temporal.assistant", "environment": {**self._environment, **environment}}
        self._workers.append(WorkerProcess(self._server.address, self._task_queue, **arguments))
        return self._workers[-1]

    async def page(self) -> Page:
        source = TemporalSource(
            await self._server.client(), "Assistant", task_queue=self._task_queue, worker_seconds=120
        )
        return Page(ChatApp(source, settings=Settings(sdk="7"), metrics=False), self._task_queue)

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()


@contextmanager
def assistants(
    server: TemporalServer, name: str, tmp_path: Path, answers: Sequence[ModelAnswer | str]
) -> Iterator[Assistants]:
    with ScriptedModel(answers) as model:
        running = Assistants(server, name, model, tmp_path / "notes")
        try:
            yield running
        finally:
            running.stop()


async def test_text_and_two_tools(server: TemporalServer, tmp_path: Path) -> None:
    with assistants(server, "pydantic", tmp_path, [WEATHER, BOOK, "It is booked."]) as running:
        running.start()
        answer = await (await running.page()).ask("To Oslo")
    assert answer.texts == ["I look at the weather.", "Now I book.", "It is booked."]
    assert answer.outcomes == [{"celsius": 21}, "booked Oslo"]
    assert '"usage"' in answer.text


async def test_a_tool_that_raises_fails_alone(server: TemporalServer, tmp_path: Path) -> None:
    script: list[ModelAnswer | str] = [ModelAnswer(calls=[ModelCall("broken", {}, "c1")]), "I cannot."]
    with assistants(server, "pydantic-broken", tmp_path, script) as running:
        running.start()
        answer = await (await running.page()).ask("Try")
    assert (answer.texts, answer.outcomes) == (["I cannot."], [TOOL_FAILED])
    assert "secret" not in answer.text


async def test_half_an_answer_of_the_model_is_replaced(server: TemporalServer, tmp_path: Path) -> None:
    slow = ModelAnswer(text=["I "] + ["go on and on "] * 60, pause=0.2)
    with assistants(server, "pydantic-text", tmp_path, [slow, WEATHER, "It is warm."]) as running:
        worker = running.start()
        asking = asyncio.create_task((await running.page()).ask("To Oslo"))
        await until(lambda: len(running.model.requests) == 1)
        await asyncio.sleep(2)
        worker.kill()
        running.start()
        answer = await asking
    assert '"type":"reset-step"' in answer.text
    assert (answer.texts, answer.outcomes) == (["I look at the weather.", "It is warm."], [{"celsius": 21}])


@pytest.mark.parametrize(
    ("first", "outcome", "notes"),
    [
        (BOOK, UNKNOWN_OUTCOME, ["book Oslo"]),
        (WEATHER, {"celsius": 21}, ["weather Oslo", "weather Oslo"]),
    ],
    ids=["one attempt", "replayable"],
)
async def test_a_tool_whose_worker_dies(
    first: ModelAnswer, outcome: Any, notes: list[str], server: TemporalServer, tmp_path: Path
) -> None:
    with assistants(server, f"pydantic-{len(notes)}", tmp_path, [first, "Done."]) as running:
        worker = running.start(TOOL_SECONDS="2")
        asking = asyncio.create_task((await running.page()).ask("To Oslo"))
        await until(lambda: lines(running.notes) == notes[:1])
        worker.kill()
        running.start()
        answer = await asking
    assert (answer.texts[-1], answer.outcomes) == ("Done.", [outcome])
    assert lines(running.notes) == notes


@pytest.mark.parametrize("allowed", [True, False])
async def test_an_approval_starts_the_next_workflow(allowed: bool, server: TemporalServer, tmp_path: Path) -> None:
    script: list[ModelAnswer | str] = [
        ModelAnswer(calls=[ModelCall("delete", {"file": "a.txt"}, "c1")]),
        "That was it.",
    ]
    with assistants(server, f"pydantic-{allowed}", tmp_path, script) as running:
        running.start()
        page = await running.page()
        asked = await page.ask("Delete a.txt")
        [call] = [part for part in asked.parts if part["type"] == "tool-delete"]
        assert call["state"] == "approval-requested"
        answer = await page.decide(asked, approved=allowed)
    assert answer.written == "That was it."
    assert lines(running.notes) == (["delete a.txt"] if allowed else [])


async def test_an_agent_that_a_tool_runs_has_a_lane(server: TemporalServer, tmp_path: Path) -> None:
    script: list[ModelAnswer | str] = [
        ModelAnswer(text=["I ask."], calls=[ModelCall("research", {"topic": "Oslo"}, "c0")]),
        WEATHER,
        "The researcher knows.",
        "It is warm.",
    ]
    with assistants(server, "pydantic-agent-tool", tmp_path, script) as running:
        running.start()
        answer = await (await running.page()).ask("To Oslo")
    assert answer.texts == ["I ask.", "I look at the weather.", "The researcher knows.", "It is warm."]
    assert answer.outcomes == ["The researcher knows.", {"celsius": 21}]
    beside = [part["text"] for part in answer.parts if part.get("providerMetadata") == {"usechat": {"inTool": True}}]
    assert beside == ["I look at the weather.", "The researcher knows."]
    assert [part["data"] for part in answer.parts if part["type"] == "data-agent"] == [{"name": "researcher"}]
