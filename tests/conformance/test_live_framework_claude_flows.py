"""Claude Code in flows, live: the real program, a model that rejects what the real one rejects, and the npm clients."""

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.adapters import claude_flow
from tests.adapters.agents import SECRET, Deeds, Framework
from tests.adapters.claude_agent import PREFIX, environment
from tests.adapters.scripts import DELETE_A, SCRIPTS, WEATHER, Chat, Script, calls, shown
from tests.conformance.http_client import NEWEST, Browser
from tests.conformance.script_rows import clients_in_turn
from tests.conformance.served import serving
from tests.open_harness.flow_runs import FLOWS, run
from usechat.open_harness import (
    FileRecordings,
    FlowRuntime,
    FlowRuntimes,
    MemoryRunStore,
    OpenHarnessChatTransport,
    Recorder,
    load_flow,
)
from usechat.server import ChatApp
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

pytestmark = [
    pytest.mark.live,
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:Exception ignored in. <function MemoryObject"),  # left by Claude's SDK
    pytest.mark.filterwarnings("ignore:can_use_tool will not be invoked for"),  # tools that need no permission
]

FLOW = Framework(
    name="Claude in a flow",
    page="claude",
    factory="claude_flow:make",
    apis=("anthropic",),
    tool_prefix=PREFIX,
    asks_one_by_one=True,
)
PLAYED = [
    "reasoning",
    "streamed tool input",
    "two parallel tools",
    "tool failure",
    "model failure before the answer",
    "approval",
    "denial",
    "two approvals in reverse order",
    "stop in text",
    "stop in a tool",
    "three turns",
    "regenerate",
    "edit",
]


ROWS = [
    pytest.param(script, release, id=f"{script.name}, {release}")
    for script, release in clients_in_turn(script for script in SCRIPTS if script.name in PLAYED)
]


@pytest.mark.parametrize(("script", "release"), ROWS)
def test_the_script_plays_in_a_flow(script: Script, release: str, browser: Browser) -> None:
    deeds = Deeds()
    with (
        ScriptedModel(FLOW.answers(script.answers)) as model,
        claude_flow.make(model, "anthropic", deeds) as transport,
        serving({"agent": ChatApp(transport)}) as served,
    ):
        script.play(Chat(FLOW, script.open(release, served, browser), model, served, deeds))
        assert model.refusals == []


@pytest.fixture
def home() -> Iterator[str]:
    with claude_flow.home() as directory:
        yield directory


@pytest.fixture
def deeds() -> Deeds:
    record = Deeds()
    claude_flow.use_tools(record)
    return record


def answers(*replies: ModelAnswer | str) -> ScriptedModel:
    return ScriptedModel(FLOW.answers(replies))


def client(described: Any, **options: Any) -> AgentClient:
    transport = OpenHarnessChatTransport(FlowRuntimes(described), send_flow_metadata=True)
    return AgentClient(transport, headers={"x-ai-sdk": "7"}, **options)


def test_text_has_the_label_of_its_node_and_usage_is_counted(home: str) -> None:
    with answers(ModelAnswer(text=["It ", "is ", "sunny."])) as model:
        with client(claude_flow.flow(claude_flow.node(model, home))) as page:
            answer = page.ask("How is the weather?")
        [text] = [part for part in answer.message.parts if part["type"] == "text"]
        assert model.refusals == []
    assert text["text"] == "It is sunny."
    named = text["providerMetadata"]["openHarness"]
    assert (named["nodeId"], named["label"]) == ("assistant", "Assistant")
    usage = answer.message.metadata["usage"]
    assert (usage["inputTokens"], usage["outputTokens"]) == (11, 7)
    assert "claudeSession" not in json.dumps(answer.message.message)
    answer.assert_legal(sdk="7")


def test_two_nodes_ask_at_the_same_time_and_are_answered_in_reverse_order(
    home: str, browser: Browser, deeds: Deeds
) -> None:
    one = calls(msgspec.structs.replace(DELETE_A, name=f"{PREFIX}delete"))
    with (
        ScriptedModel([one, "Done."]) as first,
        ScriptedModel([calls(ModelCall(f"{PREFIX}delete", {"path": "b"}, id="call_b")), "Done."]) as second,
    ):
        nodes = [claude_flow.node(first, home, "first"), claude_flow.node(second, home, "second")]
        transport = OpenHarnessChatTransport(FlowRuntimes(claude_flow.flow(*nodes, parallel=True)))
        with serving({"agent": ChatApp(transport)}) as served:
            page = SCRIPTS[0].open(NEWEST[-1], served, browser)
            page.send("Delete a and b.")
            message = page.answer()
            tools = {part["toolCallId"]: part for part in message["parts"] if part["type"] == "tool-delete"}
            assert [part["state"] for part in tools.values()] == ["approval-requested"] * 2
            for call_id, approved in (("call_b", True), ("call_a", False)):
                page.call("addToolApprovalResponse", {"id": tools[call_id]["approval"]["id"], "approved": approved})
            page.until(lambda view: len(view["requests"]) == 2)
            parts = page.answer()["parts"]
            states = {part["toolCallId"]: part["state"] for part in parts if part["type"] == "tool-delete"}
        assert first.refusals == second.refusals == []
    assert states == {"call_a": "output-denied", "call_b": "output-available"}
    assert deeds.done == ["delete b"]


def test_built_in_tools_work_in_the_directory_of_the_flow_and_ask_before_they_write(home: str) -> None:
    note = Path(home) / "note.txt"
    write = ModelAnswer(calls=[ModelCall("Write", {"file_path": str(note), "content": "hello"}, id="call_w")])
    with ScriptedModel([write, "I could not.", write, "It is written."]) as model:
        described = claude_flow.flow(claude_flow.node(model, home, tools=["Write"], mcpServers={}, allowedTools=[]))
        with client(described, approve=lambda _tool: note.with_suffix(".allowed").exists()) as page:
            denied = page.ask("Write a note.")
            assert ([tool.state for tool in denied.tools], note.exists()) == (["output-denied"], False)
            note.with_suffix(".allowed").touch()
            assert page.ask("Do it.").text == "It is written."
        offered = [tool["name"] for tool in model.requests[0]["tools"]]
        assert model.refusals == []
    assert (note.read_text(encoding="utf-8"), offered) == ("hello", ["Write"])


def test_the_example_reads_and_asks_before_it_writes(
    home: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    described = load_flow(FLOWS / "claude-flow.yaml")
    target = tmp_path / "a.txt"
    write = ModelAnswer(calls=[ModelCall("Write", {"file_path": str(target), "content": "hi"}, id="call_w")])
    monkeypatch.chdir(tmp_path)
    with ScriptedModel([write, "Written."]) as model:
        for name, value in {**environment(model, home), "MAX_THINKING_TOKENS": "0"}.items():
            monkeypatch.setenv(name, value)
        with client(described, approve=True) as page:
            answer = page.ask("Write it.")
        assert model.refusals == []
    assert ([tool.state for tool in answer.tools], answer.text) == (["output-available"], "Written.")
    assert target.read_text(encoding="utf-8") == "hi"


@pytest.mark.usefixtures("deeds")
def test_a_message_to_a_running_agent_is_asked_when_its_answer_is_complete(home: str) -> None:
    async def chat(model: ScriptedModel) -> Any:
        runtime = FlowRuntime(claude_flow.flow(claude_flow.node(model, home)), store=MemoryRunStore())

        def send(event: Any) -> None:
            if event["type"] == "agent:text:delta" and not events:
                events.append(event)
                runtime.dispatch({"type": "send", "message": "and Oslo?", "runId": event["runId"]})

        events: list[Any] = []
        runtime.on_event(send)
        return await runtime.run({"message": "Rome?", "files": []})

    with answers("Warm.", "Cold.") as model:
        snapshot = asyncio.run(chat(model))
        assert model.refusals == []
        prompt = json.dumps(model.requests[-1])
    assert (snapshot["outputs"]["assistant"]["text"], snapshot["inbox"]) == ("Cold.", [])
    assert all(text in prompt for text in ("Rome?", "Warm.", "and Oslo?"))


def test_a_session_that_is_gone_is_told_as_text(home: str) -> None:
    with answers("One.", "Two.") as model:
        with client(claude_flow.flow(claude_flow.node(model, home))) as page:
            assert page.ask("First?").text == "One."
            shutil.rmtree(Path(home) / "projects")
            assert page.ask("Second?").text == "Two."
        prompt = json.dumps(model.requests[-1])
        assert model.refusals == []
    assert "user: First?" in prompt
    assert "assistant: One." in prompt


def test_an_attempt_that_failed_leaves_nothing_in_the_next(home: str) -> None:
    with answers(ModelAnswer(error=SECRET, status=500), "Fine.") as model:
        node = claude_flow.node(model, home, policy={"retry": {"maxAttempts": 2}})
        with client(claude_flow.flow(node)) as page:
            answer = page.ask("Hi.")
        prompt = json.dumps(model.requests[-1]["messages"])
    assert (answer.text, answer.error) == ("Fine.", None)
    assert prompt.count("Hi.") == 1
    answer.assert_redacted(SECRET)


@pytest.mark.usefixtures("deeds")
def test_the_time_limit_of_a_node_reaches_the_model(home: str) -> None:
    with answers(ModelAnswer(text=["Once ", *["upon "] * 2000], pause=0.05)) as model:
        node = claude_flow.node(model, home, policy={"timeoutMs": 6000})
        events, _ = asyncio.run(run(claude_flow.flow(node), {"message": "A story.", "files": []}))
        deadline = time.monotonic() + 10
        while not model.disconnects and time.monotonic() < deadline:
            time.sleep(0.01)
        assert model.disconnects == 1
    assert events.of("node:error")[0]["error"] == "Node execution timed out after 6000ms"


@pytest.mark.parametrize("loop", [name for name in ("asyncio", "uvloop") if find_spec(name)])
@pytest.mark.usefixtures("deeds")
def test_a_flow_runs_in_every_event_loop(loop: str, home: str) -> None:
    factory = None if loop == "asyncio" else __import__("uvloop").new_event_loop
    with answers(calls(WEATHER), "Warm.") as model, asyncio.Runner(loop_factory=factory) as runner:
        described = claude_flow.flow(claude_flow.node(model, home))
        events, snapshot = runner.run(run(described, {"message": "Rome?", "files": []}))
        assert model.refusals == []
    assert snapshot["outputs"]["assistant"]["text"] == "Warm."
    assert [event["toolName"] for event in events.of("agent:tool")] == ["weather", "weather"]


def test_structured_output_is_the_value_of_the_node(home: str) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    call = ModelAnswer(calls=[ModelCall("StructuredOutput", {"city": "Rome"})])
    with ScriptedModel([call, "Done."]) as model:
        node = claude_flow.node(model, home, outputFormat={"type": "json_schema", "schema": schema})
        events, snapshot = asyncio.run(run(claude_flow.flow(node), {"message": "Where?", "files": []}))
        assert model.refusals == []
    assert snapshot["outputs"]["assistant"]["structuredOutput"] == {"city": "Rome"}
    assert events.of("agent:tool") == []


def test_what_was_recorded_is_replayed_without_claude(home: str, tmp_path: Path, deeds: Deeds) -> None:
    delete = calls(msgspec.structs.replace(DELETE_A, name=f"{PREFIX}delete"))
    with ScriptedModel([delete, "It is gone."]) as model:
        described = claude_flow.flow(claude_flow.node(model, home))
        messages: list[Any] = []
        for mode in ("record", "replay"):
            recorder = Recorder(mode, FileRecordings(tmp_path))
            transport = OpenHarnessChatTransport(FlowRuntimes(described, recording=recorder, store=MemoryRunStore()))
            with AgentClient(transport, approve=True, headers={"x-ai-sdk": "7"}) as page:
                messages.append(shown(page.ask("Delete a.").message.message))
        assert len(model.requests) == 2
        assert model.refusals == []
    assert messages[0] == messages[1] == [("tool-delete", "output-available", "a is gone"), "It is gone."]
    assert deeds.done == ["delete a"]
