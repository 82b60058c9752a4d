"""Agents of the OpenAI Agents SDK in workflows: with Temporal's plugin, and a model that follows a script."""

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.temporal.pages import Page, question, shown
from tests.temporal.server import TemporalServer, WorkerProcess
from tests.temporal.test_crashes import lines, until
from usechat.adapters.conversation import TOOL_FAILED
from usechat.chats.recovery import UNKNOWN_OUTCOME
from usechat.server import ChatApp, Settings
from usechat.temporal import TemporalSource
from usechat.testing.models import ModelAnswer, ModelCall, ScriptedModel

PACKAGES: Final = Path(__file__).parents[2] / "build" / "temporal_openai_agents"
WEATHER = ModelAnswer(text=["I look ", "at the weather."], calls=[ModelCall("weather", {"city": "Oslo"}, "c1")])
DEAD_AFTER: Final = "10"
DELETE = ModelAnswer(calls=[ModelCall("delete", {"file": "a.txt"}, "c1")])


class Assistants:
    """Workers with an agent whose model follows a script."""

    def __init__(self, server: TemporalServer, task_queue: str, model: ScriptedModel, notes: Path) -> None:
        self._server = server
        self._task_queue = task_queue
        self._workers: list[WorkerProcess] = []
        self.model = model
        self.notes = notes

    def start(self, **more: str) -> WorkerProcess:
        paths = os.pathsep.join([str(PACKAGES), *sys.path])
        environment = {"MODEL_URL": self.model.openai_url, "NOTES": str(self.notes), "PYTHONPATH": paths, **more}
        module = "tests.temporal.openai_assistant"
        self._workers.append(
            WorkerProcess(self._server.address, self._task_queue, module=module, environment=environment)
        )
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
    if not PACKAGES.is_dir():
        pytest.skip("temporalio-openai-agents is not installed: `make test-temporal` installs it")
    with ScriptedModel(answers) as model:
        running = Assistants(server, f"openai-{name}", model, tmp_path / "notes")
        try:
            yield running
        finally:
            running.stop()


async def test_text_and_a_tool_that_is_an_activity(server: TemporalServer, tmp_path: Path) -> None:
    with assistants(server, "text", tmp_path, [WEATHER, "It is warm."]) as running:
        running.start()
        answer = await (await running.page()).ask("To Oslo")
    assert answer.texts == ["I look at the weather.", "It is warm."]
    assert answer.outcomes == ["21 degrees in Oslo"]
    assert '"usage"' in answer.text


async def test_a_tool_that_raises_fails_alone(server: TemporalServer, tmp_path: Path) -> None:
    script: list[ModelAnswer | str] = [ModelAnswer(calls=[ModelCall("broken", {}, "c1")]), "I cannot."]
    with assistants(server, "broken", tmp_path, script) as running:
        running.start()
        answer = await (await running.page()).ask("Try")
    assert (answer.texts, answer.outcomes) == (["I cannot."], [TOOL_FAILED])
    assert "secret" not in answer.text


async def test_half_an_answer_of_the_model_is_replaced(server: TemporalServer, tmp_path: Path) -> None:
    slow = ModelAnswer(text=["I "] + ["go on and on "] * 60, pause=0.2)
    with assistants(server, "killed", tmp_path, [slow, WEATHER, "It is warm."]) as running:
        worker = running.start(SECONDS=DEAD_AFTER)
        asking = asyncio.create_task((await running.page()).ask("To Oslo"))
        await until(lambda: len(running.model.requests) == 1)
        await asyncio.sleep(2)
        worker.kill()
        running.start()
        answer = await asking
    assert '"type":"reset-step"' in answer.text
    assert (answer.texts, answer.outcomes) == (["I look at the weather.", "It is warm."], ["21 degrees in Oslo"])
    assert lines(running.notes) == ["weather Oslo"]


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_workflow_waits_for_an_approval(allowed: bool, server: TemporalServer, tmp_path: Path) -> None:
    with assistants(server, f"approval-{allowed}", tmp_path, [DELETE, "That was it."]) as running:
        running.start()
        page = await running.page()
        asked = await page.ask("Delete a.txt")
        [call] = [part for part in asked.parts if part["type"] == "tool-delete"]
        assert call["state"] == "approval-requested"
        answer = await page.decide(asked, approved=allowed)
    assert answer.written == "That was it."
    assert ("a.txt is gone" in answer.text, '"tool-output-denied"' in answer.text) == (allowed, not allowed)


async def test_an_agent_hands_over(server: TemporalServer, tmp_path: Path) -> None:
    handoff = ModelAnswer(calls=[ModelCall("transfer_to_expert", {}, "c1")])
    with assistants(server, "handoff", tmp_path, [handoff, "I know it.", "I still know it."]) as running:
        running.start()
        page = await running.page()
        answer = await page.ask("Who knows?")
        again = await page.ask("And now?", messages=[question("Who knows?"), shown(answer), question("And now?")])
    assert (answer.texts, answer.outcomes) == (["I know it."], [{"assistant": "expert"}])
    assert [part["data"] for part in answer.parts if part["type"] == "data-agent"] == [{"name": "expert"}]
    order = [part["type"] for part in answer.parts if part["type"] != "step-start"]
    assert order == ["tool-transfer_to_expert", "data-agent", "text"]
    assert again.texts == ["I still know it."]
    assert [part["id"] for part in again.parts if part["type"] == "data-agent"] == ["agent-expert"]
    assert "You know it." in str(running.model.requests[-1]), "the next message goes to the agent that took over"


async def test_half_an_answer_of_an_agent_that_took_over_is_replaced(server: TemporalServer, tmp_path: Path) -> None:
    slow = ModelAnswer(text=["I "] + ["go on and on "] * 600, pause=0.2)
    script: list[ModelAnswer | str] = [ModelAnswer(calls=[ModelCall("transfer_to_expert", {}, "c1")]), slow, "I know."]
    with assistants(server, "handoff-killed", tmp_path, script) as running:
        worker = running.start(SECONDS=DEAD_AFTER)
        asking = asyncio.create_task((await running.page()).ask("Who knows?"))
        await until(lambda: len(running.model.requests) == 2)
        await asyncio.sleep(1)
        worker.kill()
        running.start()
        answer = await asking
    assert (answer.texts, answer.outcomes) == (["I know."], [{"assistant": "expert"}])
    assert [part["data"] for part in answer.parts if part["type"] == "data-agent"] == [{"name": "expert"}]


async def test_an_agent_that_is_a_tool_has_a_lane(server: TemporalServer, tmp_path: Path) -> None:
    script: list[ModelAnswer | str] = [
        ModelAnswer(text=["I ask."], calls=[ModelCall("research", {"input": "Oslo"}, "c0")]),
        WEATHER,
        "The researcher knows.",
        "It is warm.",
    ]
    with assistants(server, "agent-tool", tmp_path, script) as running:
        running.start()
        answer = await (await running.page()).ask("To Oslo")
    assert answer.texts == ["I ask.", "I look at the weather.", "The researcher knows.", "It is warm."]
    assert answer.outcomes == ["The researcher knows.", "21 degrees in Oslo"]
    beside = [part["text"] for part in answer.parts if part.get("providerMetadata") == {"usechat": {"inTool": True}}]
    assert beside == ["I look at the weather.", "The researcher knows."]
    assert [part["data"] for part in answer.parts if part["type"] == "data-agent"] == [{"name": "researcher"}]


async def test_a_tool_whose_worker_dies_is_not_run_again(server: TemporalServer, tmp_path: Path) -> None:
    script: list[ModelAnswer | str] = [ModelAnswer(calls=[ModelCall("book", {"city": "Oslo"}, "c1")]), "Who knows?"]
    with assistants(server, "tool-killed", tmp_path, script) as running:
        worker = running.start(GATE=str(tmp_path / "gate"), SECONDS=DEAD_AFTER)
        asking = asyncio.create_task((await running.page()).ask("To Oslo"))
        await until(lambda: lines(running.notes) == ["book Oslo"])
        worker.kill()
        running.start()
        answer = await asking
    assert (answer.texts, answer.outcomes) == (["Who knows?"], [UNKNOWN_OUTCOME])
    assert lines(running.notes) == ["book Oslo"]
