"""Messages of the Claude Agent SDK to events of an agent, and a node's input to options: values in, values out."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.recorded_events import decoded
from tests.adapters.test_claude import END, block, message, result, start, text, whole
from tests.open_harness.flow_runs import flow
from usechat.errors import MissingDependency
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.errors import AgentFailed, InvalidFlow
from usechat.open_harness.models import claude
from usechat.open_harness.models.claude import ClaudeEvents
from usechat.open_harness.models.claude_options import claude_options
from usechat.open_harness.models.provider import AgentRequest, Answer, Execution, PromptMessage
from usechat.open_harness.nodes.agent import read_request
from usechat.open_harness.nodes.builtin import default_registry

RECORDINGS = Path(__file__).parents[2] / "adapters" / "recordings" / "claude-agent-sdk.json"


def events(*messages: Any, reader: ClaudeEvents | None = None) -> list[Any]:
    """Return the events of messages, without durations."""
    reader = reader or ClaudeEvents()
    stream = [event for each in messages for event in reader.feed(each)]
    return [{key: value for key, value in event.items() if key != "durationMs"} for event in stream]


def use(call_id: str, name: str = "mcp__notes__dig") -> dict[str, Any]:
    return {"$type": "ToolUseBlock", "id": call_id, "name": name, "input": {"depth": 1}}


def begun(call_id: str, name: str = "dig") -> dict[str, Any]:
    return {"type": "tool", "phase": "start", "id": call_id, "name": name, "data": {"depth": 1}}


def ended(call_id: str, data: Any, name: str = "dig", **failure: str) -> dict[str, Any]:
    call = {"type": "tool", "phase": "complete", "id": call_id, "name": name, "input": {"depth": 1}, "data": data}
    return {**call, **failure}


def test_text_and_thinking_are_streamed_and_their_repetitions_left_out() -> None:
    thinking = block(0, {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": "Hm."})
    repeated = whole({"$type": "ThinkingBlock", "thinking": "Hm."}, {"$type": "TextBlock", "text": "Hello"})
    assert events(message("SystemMessage", subtype="init"), start(), *thinking, *text("Hello"), repeated, END) == [
        {"type": "thinking", "content": "Hm.", "delta": True},
        {"type": "thinking", "content": "Hm."},
        {"type": "text", "content": "Hello", "delta": True},
        {"type": "text", "content": "Hello"},
    ]


def test_a_message_that_was_not_streamed_is_read_as_a_whole() -> None:
    message = whole({"$type": "ThinkingBlock", "thinking": "Hm."}, {"$type": "TextBlock", "text": "Hello"})
    assert events(message) == [{"type": "thinking", "content": "Hm."}, {"type": "text", "content": "Hello"}]


def test_of_parallel_calls_one_is_open_at_a_time() -> None:
    calls = events(
        whole(use("c1")),
        whole(use("c2", "Read")),
        result("c1", [{"type": "text", "text": '{"a": 1}'}]),
        result("c2", "No such file", is_error=True),
    )
    failed = ended("c2", None, "Read", error="No such file")
    assert calls == [begun("c1"), ended("c1", {"a": 1}), begun("c2", "Read"), failed]


def test_a_call_that_a_person_is_asked_about_is_begun_once_and_has_no_result_if_it_is_denied() -> None:
    reader = ClaudeEvents()
    assert events(whole(use("c1")), whole(use("c2")), reader=reader) == [begun("c1")]
    assert reader.ask("c1", "mcp__notes__dig", {"depth": 1}) == []
    reader.deny("c1")
    assert events(result("c1", "No.", is_error=True), reader=reader) == []
    assert reader.ask("c2", "mcp__notes__dig", {"depth": 1}) == [begun("c2")]
    assert events(result("c2", "dug"), reader=reader) == [ended("c2", "dug")]


def test_of_a_sub_agent_only_the_calls_are_told() -> None:
    inner = whole({"$type": "TextBlock", "text": "I search."}, use("c1", "Grep"), parent_tool_use_id="t1")
    streamed = [message("StreamEvent", event=each.event, parent_tool_use_id="t1") for each in (start(), *text("I "))]
    calls = events(whole(use("t1", "Task")), *streamed, inner, result("c1", "found"), result("t1", "Owls."))
    names = [(event["id"], event["phase"]) for event in calls]
    assert names == [("t1", "start"), ("c1", "start"), ("c1", "complete"), ("t1", "complete")]


def test_the_tool_of_structured_outputs_and_the_text_of_a_failure_are_not_shown() -> None:
    reader = ClaudeEvents()
    synthetic = whole({"$type": "TextBlock", "text": "API Error: 500 secret"}, error="server_error")
    assert events(whole(use("c1", "StructuredOutput")), result("c1", "ok"), synthetic, reader=reader) == []
    assert reader.error == "server_error"


def test_what_was_said_last_is_the_text() -> None:
    reader = ClaudeEvents()
    events(
        start(), *text("Let me look."), whole(use("c1")), result("c1", "dug"), start(), *text("Gone."), reader=reader
    )
    assert reader.text == "Gone."


@pytest.mark.parametrize(
    ("script", "texts", "calls"),
    [
        ("text", ["It is sunny."], []),
        ("reasoning", ["It is 21 °C."], ["weather"]),
        ("two parallel tools", ["It is noon."], ["weather", "clock"]),
        ("tool failure", ["It did not work."], ["broken"]),
    ],
)
def test_recorded_responses_become_events(script: str, texts: list[str], calls: list[str]) -> None:
    recorded = json.loads(RECORDINGS.read_text(encoding="utf-8"))[f"{script}, anthropic"][0]
    stream = events(*(decoded(entry["event"]) for entry in recorded if "event" in entry))
    assert [event["content"] for event in stream if event["type"] == "text" and "delta" not in event] == texts
    phases = [(event["name"], event["phase"]) for event in stream if event["type"] == "tool"]
    assert phases == [(name, phase) for name in calls for phase in ("start", "complete")]


# Options

ISOLATED = {
    "strict_mcp_config": True,
    "setting_sources": [],
}


def options(**fields: Any) -> dict[str, Any]:
    request = read_request({"provider": "claude", "prompt": "Hi", **fields}, claude=False)
    return claude_options(request, "claude-sonnet-5")


def test_nothing_is_allowed_that_the_flow_does_not_name() -> None:
    arguments = options()
    assert {key: arguments[key] for key in ISOLATED} == ISOLATED
    assert (arguments["tools"], arguments["allowed_tools"], arguments["mcp_servers"]) == ([], [], {})
    assert (arguments["permission_mode"], arguments["model"], arguments["cwd"]) == (None, "claude-sonnet-5", None)


def test_the_keys_of_a_flow_become_options() -> None:
    servers = {"web": {"type": "http", "url": "https://example.org/mcp"}, "notes": f"{__name__}:SERVER"}
    arguments = options(
        options={"maxTurns": 3, "systemPrompt": {"type": "preset", "preset": "claude_code"}},
        tools=["Read"],
        allowedTools=["Read", "Bash(git log *)", "mcp__web__search"],
        disallowedTools=["WebFetch"],
        permissionMode="acceptEdits",
        mcpServers=servers,
        cwd=".",
        additionalDirectories=["docs"],
        env={"A": "b"},
        fallbackModel="claude-haiku-5",
        maxBudgetUsd=0.5,
        settingSources=["project"],
        toolTimeoutMs=2000,
        thinking="minimal",
        outputFormat={"type": "json_schema", "schema": {"type": "array", "items": {"type": "string"}}},
    )
    expected = {
        "system_prompt": {"type": "preset", "preset": "claude_code"},
        "tools": ["Read", "Bash"],
        "allowed_tools": ["Read", "Bash(git log *)", "mcp__web__search"],
        "disallowed_tools": ["WebFetch"],
        "permission_mode": "acceptEdits",
        "mcp_servers": {"web": servers["web"], "notes": SERVER},
        "setting_sources": ["project"],
        "max_turns": 3,
        "max_budget_usd": 0.5,
        "fallback_model": "claude-haiku-5",
        "cwd": ".",
        "add_dirs": ["docs"],
        "env": {"MCP_TOOL_TIMEOUT": "2000", "A": "b"},
        "thinking": {"type": "adaptive"},
        "effort": "low",
    }
    assert {key: arguments[key] for key in expected} == expected
    assert arguments["output_format"]["schema"]["type"] == "object"


SERVER = {"type": "sdk", "name": "notes", "instance": None}


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        (True, {"thinking": {"type": "adaptive"}}),
        (False, {"thinking": {"type": "disabled"}}),
        ("high", {"thinking": {"type": "adaptive"}, "effort": "high"}),
    ],
)
def test_thinking_is_an_option(*, thinking: bool | str, expected: dict[str, Any]) -> None:
    arguments = options(thinking=thinking, systemPrompt="Be brief.")
    assert {key: arguments[key] for key in ("thinking", "effort") if key in arguments} == expected
    assert arguments["system_prompt"] == "Be brief."


class Silent:
    """A provider that answers nothing, so that no package is needed to load a flow."""

    type = "silent"

    async def execute(self, execution: Execution) -> Answer:
        return Answer(execution.request.prompt)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"provider": "gpt"}, "provider: must be claude or pydantic-ai"),
        ({"tools": "Read"}, "tools: must be a list of names such as Read"),
        ({"tools": ["a:b"], "cwd": "."}, "tools: a:b is no built-in tool; offer functions in mcpServers"),
        ({"tools": ["Read"]}, "cwd: is missing; it is the directory in which the built-in tools of Claude Code work"),
        ({"allowedTools": ["Bash(git *)"]}, "cwd: is missing"),
        ({"cwd": "no/such/place"}, "cwd: there is no directory no/such/place"),
        ({"permissionMode": "yolo"}, "permissionMode: must be one of default, acceptEdits, plan"),
        ({"permissionMode": "{{ flow.input.mode }}"}, "permissionMode: must not hold bindings"),
        ({"allowedTools": ["{{ flow.input.tool }}"]}, "allowedTools: must not hold bindings"),
        ({"mcpServers": {"a": {"command": "{{ state.command }}"}}}, "mcpServers: must not hold bindings"),
        ({"mcpServers": ["a"]}, "mcpServers: must be an object of MCP servers by name"),
        ({"mcpServers": {"a": "nothing"}}, "mcpServers.a: must be an object such as {command, args}"),
        ({"mcpServers": {"a": "no_such_module:server"}}, "mcpServers.a: no_such_module:server cannot be imported"),
        ({"settingSources": ["all"]}, "settingSources: must be a list of user, project, local"),
        ({"env": {"A": 1}}, "env: must be an object of texts"),
        ({"maxBudgetUsd": True}, "maxBudgetUsd: must be a number above 0"),
        ({"systemPrompt": 7}, "systemPrompt: must be a text"),
    ],
)
def test_what_is_wrong_with_the_input_is_said_with_its_field(fields: dict[str, Any], problem: str) -> None:
    described = {"id": "a", "type": "agent", "input": {"provider": "claude", "prompt": "Hi", **fields}}
    with pytest.raises(InvalidFlow) as raised:
        FlowRuntime(flow(described), registry=default_registry(provider=Silent()))
    assert f'node "a", input.{problem}' in str(raised.value)


def test_keys_that_are_not_known_are_logged_when_a_flow_is_loaded(caplog: pytest.LogCaptureFixture) -> None:
    fields = {"provider": "claude", "prompt": "Hi", "cwd": ".", "resume": "{{ state.session }}", "telepathy": True}
    FlowRuntime(flow({"id": "a", "type": "agent", "input": fields}), registry=default_registry(provider=Silent()))
    assert "agents ignore the options telepathy" in caplog.text


def test_a_missing_package_is_named_when_a_flow_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("usechat.open_harness.nodes.agent.find_spec", lambda _name: None)
    described = flow({"id": "a", "type": "claude.agent", "input": {"provider": "claude", "prompt": "Hi"}})
    with pytest.raises(MissingDependency, match=r"pip install 'usechat\[claude\]'"):
        FlowRuntime(described)


# What Claude gets


def content(*files: dict[str, Any]) -> list[Any]:
    return claude.prompt_content(AgentRequest(None, "See", files=files), "See", with_files=True)


def test_files_reach_claude_and_urls_are_not_fetched() -> None:
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw=="}
    remote = {"type": "file", "mediaType": "image/png", "url": "https://example.invalid/cat.png"}
    assert content(image, remote) == [
        {"type": "text", "text": "See"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
        {"type": "text", "text": "[file: https://example.invalid/cat.png]"},
    ]


def test_the_session_of_the_last_answer_is_forked_and_the_first_is_that_of_the_flow() -> None:
    request = AgentRequest(None, "Hi", options={"resume": "s0"})
    history = [{"claudeSession": "s1", "parts": []}, {"claudeSession": "s2", "parts": []}]
    assert claude.session_before(request, []) == "s0"
    assert claude.session_before(request, history) == "s2"
    page = AgentRequest(None, "Hi", conversation=(PromptMessage("user", "One?"),))
    assert claude.session_before(page, []) is None


def test_a_chat_whose_session_is_gone_is_told_as_text() -> None:
    parts = [{"part_kind": "user-prompt", "content": "One?"}, {"part_kind": "text", "content": "One."}]
    request = AgentRequest(None, "Hi", conversation=(PromptMessage("user", "Zero?"),))
    lines = claude.earlier_messages(request, [{"claudeSession": "s1", "parts": parts}])
    assert lines == ["user: Zero?", "user: One?", "assistant: One."]


@pytest.mark.parametrize(
    ("fields", "error", "error_type"),
    [
        ({"subtype": "success", "api_error_status": 429}, "rate_limit", "rate_limit"),
        ({"subtype": "success", "api_error_status": 529}, "server_error", "network"),
        ({"subtype": "success"}, "authentication_failed", "auth"),
        ({"subtype": "error_max_turns", "errors": ["Reached maximum number of turns (1)"]}, None, "max_turns"),
        ({"subtype": "error_during_execution"}, None, "execution_error"),
    ],
)
def test_a_response_that_failed_fails_the_agent(fields: dict[str, Any], error: str | None, error_type: str) -> None:
    failed = message("ResultMessage", is_error=True, **fields)
    with pytest.raises(AgentFailed) as raised:
        claude.require_success(failed, error)
    assert raised.value.error_type == error_type


def test_an_answer_counts_all_responses() -> None:
    used = {"input_tokens": 2, "output_tokens": 3, "cache_read_input_tokens": 5}
    models = {"claude-sonnet-5": {"inputTokens": 2, "outputTokens": 3, "webSearchRequests": 0}}
    denied = [{"tool_name": "Bash", "tool_use_id": "c1", "tool_input": {}}]
    one = message("ResultMessage", num_turns=2, usage=used, model_usage=models, total_cost_usd=0.25)
    two = message("ResultMessage", num_turns=1, usage=used, permission_denials=denied)
    answer = claude.answer_of(AgentRequest(None, "Hi"), [one, two], "Hello")
    assert (answer.text, answer.num_turns, answer.total_cost_usd) == ("Hello", 3, 0.25)
    assert answer.usage == {
        "inputTokens": 4,
        "outputTokens": 6,
        "cacheCreationInputTokens": 0,
        "cacheReadInputTokens": 10,
    }
    assert answer.model_usage == {"claude-sonnet-5": {"inputTokens": 2, "outputTokens": 3}}
    assert answer.permission_denials == denied


def test_a_structured_output_is_the_value_and_its_json_the_text() -> None:
    request = AgentRequest(None, "Hi", output_schema={"type": "array"})
    ended = message("ResultMessage", num_turns=1, structured_output={"value": [1]})
    answer = claude.answer_of(request, [ended], "Here it is.")
    assert (answer.structured_output, answer.text) == ([1], "[1]")
