"""Recordings: a flow with a paid model is tested for free afterwards."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.open_harness.flow_runs import EventLog, edge, flow, run
from tests.open_harness.scripted_models import Script, call, thinking
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.engine.store import MemoryRunStore
from usechat.open_harness.models.provider import Answer, Execution
from usechat.open_harness.models.recording import FileRecordings, Recorder, RecordingStore, SqliteRecordings
from usechat.open_harness.nodes.builtin import default_registry

FLOW = flow(
    {
        "id": "a",
        "type": "agent",
        "input": {"prompt": "{{ flow.input.message }}", "tools": ["tests.open_harness.agent_tools:weather"]},
    },
    {"id": "b", "type": "agent", "input": {"prompt": "Sum up: {{ a.text }}"}},
    edges=(edge("a->b"),),
)


def script() -> Script:
    return Script(
        [thinking("hm"), call("weather", '{"city": "Rome"}')], ["21 ", "degrees"], ["warm"], ["later"], ["cold"]
    )


@pytest.fixture(params=["files", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> RecordingStore:
    return FileRecordings(tmp_path / "recordings") if request.param == "files" else SqliteRecordings(tmp_path / "r.db")


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def without_modes(log: EventLog) -> list[dict[str, Any]]:
    return [{key: value for key, value in event.items() if key not in ("mode", "model")} for event in log.named()]


async def test_a_replay_says_what_was_recorded_and_needs_no_model(store: RecordingStore) -> None:
    flow_input = {"message": "Rome?", "chatId": "c"}
    recorded, _ = await run(
        FLOW, flow_input, registry=script().registry, store=MemoryRunStore(), recording=Recorder("record", store)
    )
    silent = default_registry(default_model="no:model")
    replayed, _ = await run(
        FLOW, flow_input, registry=silent, store=MemoryRunStore(), recording=Recorder("replay", store)
    )
    assert without_modes(replayed) == without_modes(recorded)
    assert "agent:thinking:delta" in replayed.types
    assert "agent:tool" in replayed.types


async def test_every_turn_of_a_chat_has_its_recording(store: RecordingStore) -> None:
    async def chat(recorder: Recorder, registry: Any) -> list[str]:
        run_store = MemoryRunStore()
        texts = []
        for _ in range(2):
            _, snapshot = await run(
                FLOW, {"message": "go on", "chatId": "c"}, registry=registry, store=run_store, recording=recorder
            )
            texts.append(snapshot["outputs"]["b"].get("text"))
        return texts

    recorded = await chat(Recorder("record", store), script().registry)
    assert recorded == ["warm", "cold"]
    assert await chat(Recorder("replay", store), default_registry(default_model="no:model")) == recorded


async def test_the_link_to_a_recording_is_told(tmp_path: Path) -> None:
    store = FileRecordings(tmp_path)
    log, _ = await run(FLOW, {"message": "?"}, registry=script().registry, recording=Recorder("record", store))
    linked = [
        {key: event[key] for key in ("nodeId", "runId", "invocation", "providerType", "mode")}
        for event in log.named()
        if event["type"] == "recording:linked"
    ]
    link = {"invocation": 1, "providerType": "pydantic-ai", "mode": "record"}
    assert linked == [{"nodeId": "a", "runId": "a.1", **link}, {"nodeId": "b", "runId": "b.1", **link}]
    ids = [event["recordingId"] for event in log.of("recording:linked")]
    assert sorted(f"{name}.json" for name in ids) == names_in(tmp_path)
    recording = json.loads((tmp_path / f"{ids[1]}.json").read_text(encoding="utf-8"))
    assert (recording["id"], recording["output"]["text"], recording["error"]) == (ids[1], "warm", None)
    assert [event["event"] for event in recording["events"]] == [
        {"type": "text", "content": "warm", "delta": True},
        {"type": "text", "content": "warm"},
    ]
    assert {"providerType", "createdAt", "inputHash"} <= recording["metadata"].keys()


async def test_live_asks_the_model_and_keeps_nothing(tmp_path: Path) -> None:
    log, _ = await run(
        FLOW, {"message": "?"}, registry=script().registry, recording=Recorder("live", FileRecordings(tmp_path))
    )
    assert (log.of("recording:linked"), names_in(tmp_path)) == ([], [])


async def test_a_failure_is_recorded_too(store: RecordingStore) -> None:
    for mode, registry in (("record", Script([TimeoutError("slow")]).registry), ("replay", Script().registry)):
        recorder = Recorder(mode, store)  # type: ignore[arg-type]
        log, _ = await run(FLOW, {"message": "?"}, registry=registry, recording=recorder)
        error = {key: log.of("agent:error")[0][key] for key in ("errorType", "message")}
        assert error == {"errorType": "timeout", "message": "slow"}


@pytest.mark.parametrize(
    ("spoil", "text"),
    [(lambda _path: None, "there is no recording a-1-"), (lambda path: path.write_text("{"), "cannot be read")],
)
async def test_a_recording_that_is_missing_or_broken_fails_the_agent_with_a_remedy(
    spoil: Callable[[Path], object], text: str, tmp_path: Path
) -> None:
    store = FileRecordings(tmp_path)
    if text == "cannot be read":
        await run(FLOW, {"message": "?"}, registry=script().registry, recording=Recorder("record", store))
        for name in names_in(tmp_path):
            spoil(tmp_path / name)
    log, _ = await run(FLOW, {"message": "?"}, registry=script().registry, recording=Recorder("replay", store))
    assert text in log.of("agent:error")[0]["message"]


async def test_what_was_stopped_halfway_is_not_recorded(tmp_path: Path) -> None:
    registry = Script(["I ", asyncio.Event()]).registry
    runtime = FlowRuntime(FLOW, registry=registry, recording=Recorder("record", FileRecordings(tmp_path)))
    runtime.on_event(lambda event: runtime.stop() if event["type"] == "agent:text:delta" else None)
    await runtime.run({"message": "?"})
    assert names_in(tmp_path) == []


async def test_an_id_cannot_leave_its_folder(tmp_path: Path) -> None:
    store = FileRecordings(tmp_path / "inner")
    store.save("../../outside", "{}")
    assert (store.load("../../outside"), names_in(tmp_path)) == ("{}\n", ["inner"])


def test_a_replay_does_not_import_pydantic_ai(tmp_path: Path) -> None:
    program = f"""
import asyncio, sys
from usechat.open_harness.models.recording import Recorder
from usechat.open_harness.models.recording import FileRecordings
from usechat.open_harness.engine.runtime import FlowRuntime
flow = {{"name": "x", "nodes": [{{"id": "a", "type": "agent", "input": {{"prompt": "hi", "model": "m"}}}}]}}
asyncio.run(FlowRuntime(flow, recording=Recorder("replay", FileRecordings({str(tmp_path)!r}))).run())
print("pydantic_ai" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "False"


class Careful:
    """A provider that asks before it deletes."""

    type = "careful"

    async def execute(self, execution: Execution) -> Answer:
        call = {"type": "tool", "id": "c1", "name": "delete"}
        execution.emit({**call, "phase": "start", "data": {}})
        decision = await execution.ask("c1")
        if decision.approved:
            execution.emit({**call, "phase": "complete", "input": {}, "data": "gone"})
        return Answer("Gone." if decision.approved else "Kept.")


async def careful(recorder: Recorder, answer: str) -> EventLog:
    """Run a flow whose agent asks; answer it."""
    asking = {"name": "x", "nodes": [{"id": "a", "type": "agent", "input": {"prompt": "hi", "model": "m"}}]}
    runtime = FlowRuntime(asking, registry=default_registry(provider=Careful()), recording=recorder)
    log = EventLog(runtime)

    def reply(event: Any) -> None:
        if event["type"] == "input:requested":
            runtime.dispatch({"type": "reply", "promptId": "c1", "content": answer, "runId": event["runId"]})

    runtime.on_event(reply)
    await runtime.run()
    return log


@pytest.mark.parametrize("answer", ["yes", "no"])
async def test_a_replay_asks_again_and_goes_on_as_recorded(answer: str, store: RecordingStore) -> None:
    recorded = await careful(Recorder("record", store), answer)
    replayed = await careful(Recorder("replay", store), answer)
    assert replayed.brief() == recorded.brief()
    assert replayed.of("agent:complete")[0]["result"] == ("Gone." if answer == "yes" else "Kept.")
    other = await careful(Recorder("replay", store), "no" if answer == "yes" else "yes")
    assert "the call c1 was " in other.of("agent:error")[0]["message"]
