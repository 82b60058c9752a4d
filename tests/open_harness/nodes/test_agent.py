"""Agents: text, thinking and tools as they come, failures in words, messages while they run."""

import asyncio
import json
import re
import types
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError

from tests.open_harness.flow_runs import EventLog, constant, edge, flow, run
from tests.open_harness.scripted_models import Script, answering, call, thinking
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.errors import InvalidFlow
from usechat.open_harness.events.failures import failed_step
from usechat.open_harness.models.failures import agent_failure
from usechat.open_harness.models.provider import Answer, Execution
from usechat.open_harness.nodes.builtin import default_registry

USAGE = {"inputTokens": 100, "outputTokens": 8, "cacheCreationInputTokens": 0, "cacheReadInputTokens": 0}


def agent(node_id: str = "a", **fields: Any) -> dict[str, Any]:
    policy = {"policy": fields.pop("policy")} if "policy" in fields else {}
    kind = fields.pop("type", "agent")
    node_input = (
        fields if "messages" in fields or "prompt" in fields else {"prompt": "{{ flow.input.message }}", **fields}
    )
    return {"id": node_id, "type": kind, "input": node_input, **policy}


def tool(name: str) -> str:
    return f"tests.open_harness.agent_tools:{name}"


async def test_an_agent_streams_thinking_text_and_tools_in_rounds() -> None:
    script = Script(
        [thinking("let me "), thinking("see"), call("weather", '{"city": "Rome"}')], ["It is ", "21 degrees."]
    )
    described = flow(agent(tools=[tool("weather")], instructions="Be brief."))
    log, snapshot = await run(described, {"message": "Rome?", "chatId": "c1"}, registry=script.registry)
    events = [
        {key: value for key, value in event.items() if key not in ("nodeId", "runId", "durationMs", "toolCallId")}
        for event in log.named()[2:-2]
    ]
    session = log.of("agent:start")[0]["sessionId"]
    output = {"city": "Rome", "days": 1, "celsius": 21}
    assert events == [
        {"type": "agent:start", "sessionId": session, "model": "scripted", "prompt": "Rome?"},
        {"type": "agent:thinking:delta", "content": "let me "},
        {"type": "agent:thinking:delta", "content": "see"},
        {"type": "agent:thinking", "content": "let me see"},
        {"type": "agent:tool", "toolName": "weather", "toolInput": {"city": "Rome"}},
        {"type": "agent:tool", "toolName": "weather", "toolInput": {"city": "Rome"}, "toolOutput": output},
        {"type": "agent:text:delta", "content": "It is "},
        {"type": "agent:text:delta", "content": "21 degrees."},
        {"type": "agent:text", "content": "It is 21 degrees."},
        {
            "type": "agent:complete",
            "result": "It is 21 degrees.",
            "usage": events[-1]["usage"],
            "modelUsage": {"scripted": {key: events[-1]["usage"][key] for key in ("inputTokens", "outputTokens")}},
            "numTurns": 2,
        },
    ]
    assert len({event["toolCallId"] for event in log.of("agent:tool")}) == 1
    assert {key: snapshot["outputs"]["a"][key] for key in ("text", "sessionId", "numTurns")} == {
        "text": "It is 21 degrees.",
        "sessionId": session,
        "numTurns": 2,
    }
    assert script.instructions == ["Be brief.", "Be brief."]


@pytest.mark.parametrize(
    ("name", "error", "error_type"),
    [
        ("broken", "no weather in Rome", None),
        ("closed", "The station of Rome is closed.", "public"),
        ("slow", "slow timed out after 0.05 s", None),
        ("blocking", "blocking timed out after 0.05 s", None),
    ],
)
async def test_a_tool_that_fails_or_does_not_end_is_told_to_the_model_and_the_turn_goes_on(
    name: str, error: str, error_type: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script([call(name, '{"city": "Rome"}')], ["I could not look."])
    described = flow(agent(tools=[tool(name)], toolTimeoutMs=50))
    log, snapshot = await run(described, {"message": "Rome?"}, registry=script.registry)
    ended = log.of("agent:tool")[1]
    assert (ended["toolName"], ended["error"], ended["toolOutput"]) == (name, error, None)
    assert ended.get("errorType") == error_type
    assert script.requests[1][-1] == ("tool-return", f"Error: {error}")
    assert snapshot["outputs"]["a"]["text"] == "I could not look."
    assert f"tool {name} failed" in caplog.text


async def test_calls_at_the_same_time_are_told_apart() -> None:
    calls = [call("weather", f'{{"city": "{city}"}}', index=index) for index, city in enumerate(("Rome", "Oslo"), 1)]
    script = Script(calls, ["done"])
    log, _ = await run(flow(agent(tools=[tool("weather")])), {"message": "?"}, registry=script.registry)
    events = log.of("agent:tool")
    starts = {event["toolCallId"]: event["toolInput"]["city"] for event in events if "toolOutput" not in event}
    ended = {event["toolCallId"]: event["toolOutput"]["city"] for event in events if "toolOutput" in event}
    assert starts == ended
    assert sorted(starts.values()) == ["Oslo", "Rome"]


async def test_wrong_arguments_are_a_tool_that_failed() -> None:
    script = Script([call("weather", '{"town": 1}')], ["sorry"])
    log, _ = await run(flow(agent(tools=[tool("weather")])), {"message": "?"}, registry=script.registry)
    assert "city" in log.of("agent:tool")[1]["error"]
    assert log.events[-1]["status"] == "complete"


@pytest.mark.parametrize(
    ("raised", "error_type"),
    [
        (TimeoutError("too slow"), "timeout"),
        (ModelHTTPError(429, "m"), "rate_limit"),
        (ModelHTTPError(401, "m"), "auth"),
        (ModelHTTPError(500, "m"), "network"),
        (ModelHTTPError(529, "m"), "network"),
        (ModelHTTPError(400, "m"), "execution_error"),
        (ConnectionRefusedError("refused"), "network"),
        (RuntimeError("Set the `OPENAI_API_KEY` environment variable"), "auth"),
        (RuntimeError("who knows"), "execution_error"),
    ],
)
async def test_a_model_that_fails_is_told_as_agent_error_and_node_error_with_the_same_text(
    raised: Exception, error_type: str
) -> None:
    log, _ = await run(flow(agent()), {"message": "?"}, registry=Script(["I ", raised]).registry)
    text = log.of("node:error")[0]["error"]
    assert log.brief()[-3:] == ["agent:error a.1", "node:error a.1", "flow:complete failed"]
    error = {key: log.of("agent:error")[0][key] for key in ("errorType", "message")}
    assert error == {"errorType": error_type, "message": text}


def test_the_cause_of_a_failure_counts() -> None:
    try:
        try:
            raise TimeoutError("deep")
        except TimeoutError as error:
            raise RuntimeError("the request failed") from error
    except RuntimeError as error:
        failure = agent_failure(error)
    assert (failure.error_type, str(failure)) == ("timeout", "the request failed")


async def test_a_model_that_says_garbage_fails_the_node(caplog: pytest.LogCaptureFixture) -> None:
    script = Script(*[[call("no_such_tool", "[not json")]] * 5)
    log, _ = await run(flow(agent()), {"message": "?"}, registry=script.registry)
    assert log.brief()[-3:] == ["agent:error a.1", "node:error a.1", "flow:complete failed"]
    assert "Traceback" in caplog.text


async def test_a_retried_agent_tells_only_the_last_failure() -> None:
    script = Script([RuntimeError("first")], ["good"])
    described = flow(agent(policy={"retry": {"maxAttempts": 2}}))
    log, snapshot = await run(described, {"message": "?"}, registry=script.registry)
    assert (log.of("agent:error"), snapshot["outputs"]["a"]["text"]) == ([], "good")


async def test_an_agent_that_never_ends_times_out() -> None:
    script = Script(["I am ", asyncio.Event()])
    log, _ = await run(flow(agent(policy={"timeoutMs": 50})), {"message": "?"}, registry=script.registry)
    assert log.of("node:error")[0]["error"] == "Node execution timed out after 50ms"
    assert not log.of("agent:aborted", "agent:paused", "agent:complete")


async def test_a_message_while_the_agent_runs_is_one_more_of_the_user() -> None:
    script = Script(["First."], ["Second."])
    runtime = FlowRuntime(flow(agent()), registry=script.registry)
    log = EventLog(runtime)

    def send(event: Any) -> None:
        if event["type"] == "agent:text:delta" and not log.of("command:received"):
            runtime.dispatch({"type": "send", "message": "and Oslo?", "runId": event["runId"]})

    runtime.on_event(send)
    snapshot = await runtime.run({"message": "Rome?"})
    assert script.requests[1] == [("user-prompt", "Rome?"), ("text", "First."), ("user-prompt", "and Oslo?")]
    assert [event["content"] for event in log.of("agent:text")] == ["First.", "Second."]
    assert snapshot["inbox"] == []


async def test_a_message_that_comes_after_the_answer_is_left_for_others() -> None:
    runtime = FlowRuntime(flow(agent()), registry=Script(["First."]).registry)
    late: list[Any] = []

    def send(event: Any) -> None:
        if event["type"] == "agent:complete":
            late.append({"type": "send", "message": "too late", "runId": event["runId"]})
            runtime.dispatch(late[0])

    runtime.on_event(send)
    assert (await runtime.run({"message": "Rome?"}))["inbox"] == late


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"messages": ["one", "two"]}, [("user-prompt", "one\n\ntwo")]),
        (
            {"messages": [{"content": "one"}, {"message": {"role": "user", "content": "two"}}]},
            [("user-prompt", "one\n\ntwo")],
        ),
        (
            {"messages": "{{ flow.input.messages }}"},
            [("user-prompt", "hi"), ("text", "hello"), ("user-prompt", "how are you?")],
        ),
    ],
)
async def test_messages_may_be_texts_inputs_or_those_of_the_page(fields: dict[str, Any], expected: Any) -> None:
    page = [
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
        {
            "id": "2",
            "role": "assistant",
            "parts": [{"type": "reasoning", "text": "x"}, {"type": "text", "text": "hello"}],
        },
        {"id": "3", "role": "user", "parts": [{"type": "text", "text": "how are "}, {"type": "text", "text": "you?"}]},
    ]
    script = Script(["fine"])
    await run(flow(agent(**fields)), {"messages": page}, registry=script.registry)
    assert script.requests == [expected]


async def test_a_flow_of_claude_agents_runs_unchanged_with_the_models_of_the_registry(
    caplog: pytest.LogCaptureFixture,
) -> None:
    script = Script(["ok"])
    registry = default_registry()
    registry.add_model("anthropic:claude-haiku", script.model)
    options = {"model": "claude-haiku", "systemPrompt": "Be kind.", "maxTurns": 3, "permissionMode": "plan"}
    log, snapshot = await run(flow(agent(type="claude.agent", options=options)), {"message": "hi"}, registry=registry)
    assert (snapshot["outputs"]["a"]["text"], script.instructions) == ("ok", ["Be kind."])
    assert log.of("agent:start")[0]["model"] == "scripted"
    assert "agents ignore the options permissionMode" in caplog.text


async def test_thinking_is_a_setting_of_the_model() -> None:
    script = Script(["ok"])
    await run(flow(agent(thinking="high")), {"message": "hi"}, registry=script.registry)
    assert script.thinking == ["high"]


async def test_too_many_turns_fail_the_agent() -> None:
    script = Script(*[[call("weather", '{"city": "Rome"}')]] * 5)
    described = flow(agent(tools=[tool("weather")], maxTurns=2))
    log, _ = await run(described, {"message": "hi"}, registry=script.registry)
    assert log.of("agent:error")[0]["errorType"] == "rate_limit"


async def test_files_reach_the_model_and_urls_are_not_fetched() -> None:
    script = Script(["nice"])
    files = [
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw=="},
        {"type": "file", "mediaType": "image/png", "url": "https://example.invalid/cat.png"},
        {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,???"},
    ]
    await run(flow(agent(files="{{ flow.input.files }}")), {"message": "see", "files": files}, registry=script.registry)
    text, image, url = script.requests[0][0][1]
    assert (text, image.data, image.media_type, url) == (
        "see",
        b"\x89PNG",
        "image/png",
        "[file: https://example.invalid/cat.png]",
    )


async def test_a_model_may_be_named_by_its_place_in_a_module() -> None:
    described = flow(agent(model="python:tests.open_harness.nodes.test_agent:ECHO"))
    _, snapshot = await run(described, {"message": "hi there"})
    assert snapshot["outputs"]["a"]["text"] == "you said hi there"


async def test_a_model_that_does_not_exist_fails_the_agent() -> None:
    log, _ = await run(flow(agent(model="no-such-model")), {"message": "hi"})
    assert "no-such-model" in log.of("agent:error")[0]["message"]


async def test_one_agent_reads_what_another_said() -> None:
    described = flow(agent("b", prompt="Sum up: {{ a.text }}"), agent("a"), edges=(edge("a->b"),))
    _, snapshot = await run(described, {"message": "x"}, registry=default_registry(default_model=ECHO))
    assert snapshot["outputs"]["b"]["text"] == "you said Sum up: you said x"


@pytest.mark.parametrize(
    "fields",
    [{"prompt": ""}, {"prompt": " "}, {}, {"prompt": "{{ x.missing }}"}],
    ids=["empty", "blank", "none", "unset"],
)
async def test_an_agent_without_a_prompt_is_asked_the_users_message(fields: dict[str, Any]) -> None:
    script = Script(["Hello"])
    described = flow(constant("x"), {"id": "a", "type": "agent", "input": fields}, edges=(edge("x->a"),))
    log, _ = await run(described, {"message": "Are bees awake?"}, registry=script.registry)
    assert script.requests == [[("user-prompt", "Are bees awake?")]]
    assert log.of("agent:start")[0]["prompt"] == "Are bees awake?"


async def test_an_agent_without_a_prompt_takes_the_files_of_the_message_too() -> None:
    script = Script(["A bee."])
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0KGgo="}
    await run(flow(agent(prompt="")), {"message": "", "files": [image]}, registry=script.registry)
    [[(kind, content)]] = script.requests
    assert (kind, [type(each).__name__ for each in content]) == ("user-prompt", ["str", "BinaryContent"])


async def test_an_agent_without_a_prompt_in_a_flow_without_a_message_fails_with_the_name_of_the_field() -> None:
    log, _ = await run(flow(agent(prompt="")), registry=Script().registry)
    assert log.of("node:error")[0]["error"] == "input.prompt: is empty, and the flow got no message"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"prompt": "x", "messages": ["y"]}, "prompt: an agent takes either prompt (a text) or messages (a list)"),
        ({"prompt": 7}, "prompt: must be a text"),
        ({"messages": 7}, "messages: must be a list"),
        ({"prompt": "x", "options": "fast"}, "options: must be an object"),
        ({"prompt": "x", "model": 7}, "model: must be a text"),
        ({"prompt": "x", "toolTimeoutMs": 0}, "toolTimeoutMs: must be a number above 0"),
        ({"prompt": "x", "maxTurns": True}, "maxTurns: must be a number above 0"),
        ({"prompt": "x", "thinking": "hard"}, "thinking: must be true, false or one of minimal, low"),
        ({"prompt": "x", "tools": "weather"}, "tools: must be a list of texts such as my_module:my_function"),
        ({"prompt": "x", "tools": [tool("weather"), tool("nothing")]}, "tools.1: 'tests.open_harness.agent_tools:noth"),
    ],
)
def test_what_is_wrong_with_an_agent_is_told_with_its_field(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidFlow) as raised:
        FlowRuntime(flow(agent(**fields)), registry=Script().registry)
    assert f'node "a", input.{problem}' in str(raised.value)


@pytest.mark.parametrize("messages", [[], [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]])
async def test_messages_without_a_question_fail_the_agent(messages: list[Any]) -> None:
    described = flow(agent(messages="{{ flow.input.messages }}"))
    log, _ = await run(described, {"messages": messages}, registry=Script().registry)
    assert log.brief()[-2:] == ["node:error a.1", "flow:complete failed"]


ECHO = answering(lambda text: f"you said {text}")


class Parrot:
    """A provider that repeats what it is asked."""

    type = "parrot"

    async def execute(self, execution: Execution) -> Answer:
        execution.emit({"type": "text", "content": execution.request.prompt, "delta": True})
        return Answer(execution.request.prompt, messages=[execution.request.prompt])


async def test_a_provider_of_your_own_answers_the_agents() -> None:
    registry = default_registry(provider=Parrot())
    described = flow({"id": "a", "type": "agent", "input": {"prompt": "{{ flow.input.message }}"}})
    log, snapshot = await run(described, {"message": "Hello"}, registry=registry)
    assert [event["content"] for event in log.of("agent:text:delta")] == ["Hello"]
    assert snapshot["outputs"]["a"]["text"] == "Hello"


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def structured(**fields: Any) -> dict[str, Any]:
    return flow({"id": "a", "type": "agent", "input": {"prompt": "?", **fields}})


@pytest.mark.parametrize(
    "fields",
    [
        {"outputFormat": {"type": "json_schema", "schema": SCHEMA}},
        {"options": {"outputFormat": {"type": "json_schema", "schema": SCHEMA}}},
        {"output": {"schema": SCHEMA}},
    ],
)
async def test_an_agent_with_a_schema_has_a_structured_output(fields: dict[str, Any]) -> None:
    script = Script(["Let me see. ", call("final_result", '{"n": 7}')])
    log, snapshot = await run(structured(**fields), {}, registry=script.registry)
    assert snapshot["outputs"]["a"]["structuredOutput"] == {"n": 7}
    assert snapshot["outputs"]["a"]["text"] == '{"n":7}'
    assert log.of("agent:complete")[0]["structuredOutput"] == {"n": 7}
    assert log.of("agent:tool") == [], "how the output is given is no tool of the flow"


@pytest.mark.parametrize(
    ("pieces", "texts"),
    [
        (["{", '"n": 7}'], []),
        (["Let me see."], ["Let me see."]),
        (["{braces} are", " no output"], ["{braces} are", " no output"]),
        (['{"m": 1}'], ['{"m": 1}']),
    ],
    ids=["output", "text", "braces", "another object"],
)
async def test_an_output_that_the_model_writes_as_text_is_shown_as_data_alone(
    pieces: list[str], texts: list[str]
) -> None:
    class Writer:
        type = "writer"

        async def execute(self, execution: Execution) -> Answer:
            for piece in pieces:
                execution.emit({"type": "text", "content": piece, "delta": True})
            execution.emit({"type": "text", "content": "".join(pieces)})
            return Answer("".join(pieces), structured_output={"n": 7})

    log, snapshot = await run(structured(output={"schema": SCHEMA}), {}, registry=default_registry(provider=Writer()))
    assert [event["content"] for event in log.of("agent:text:delta")] == texts
    assert len(log.of("agent:text")) == bool(texts)
    assert snapshot["outputs"]["a"]["structuredOutput"] == {"n": 7}


async def test_an_output_that_is_not_valid_is_asked_for_again_and_then_fails_the_node() -> None:
    wrong = [call("final_result", '{"n": "seven"}')]
    script = Script(wrong, [call("final_result", '{"n": 7}')])
    _, snapshot = await run(structured(output={"schema": SCHEMA}), {}, registry=script.registry)
    assert snapshot["outputs"]["a"]["structuredOutput"] == {"n": 7}
    assert "$.n: 'seven' is not of type 'integer'" in str(script.requests[1][-1][1])
    _, snapshot = await run(structured(output={"schema": SCHEMA}), {}, registry=Script(*[wrong] * 9).registry)
    assert "error" in snapshot["outputs"]["a"]


NUMBER = {"type": "integer"}
TREE = {"type": "object", "properties": {"under": {"type": "array", "items": {"$ref": "#"}}}, "required": ["under"]}


@pytest.mark.parametrize(
    ("schema", "value", "wrong"),
    [
        ({"anyOf": [SCHEMA, {"type": "null"}]}, {"n": 7}, {"n": "seven"}),
        ({"anyOf": [SCHEMA, {"type": "null"}]}, None, 7),
        ({"$ref": "#/$defs/found", "$defs": {"found": SCHEMA}}, {"n": 7}, {"n": "seven"}),
        ({"properties": {"n": NUMBER}, "required": ["n"]}, {"n": 7}, {}),
        ({"type": "array", "items": NUMBER}, [1, 2], [1, "two"]),
        ({"type": "string"}, "seven", 7),
        ({"enum": ["red", "green"]}, "green", "blue"),
    ],
)
async def test_a_schema_may_have_any_root(schema: dict[str, Any], value: Any, wrong: Any) -> None:
    """Providers take objects alone, so the model gives the value within one; what is wrong is asked for again."""
    answers = [[call("final_result", json.dumps({"value": each}))] for each in (wrong, value)]
    script = Script(*answers)
    _, snapshot = await run(structured(output={"schema": schema}), {}, registry=script.registry)
    assert (snapshot["outputs"]["a"]["structuredOutput"], len(script.requests)) == (value, 2)
    assert json.loads(snapshot["outputs"]["a"]["text"]) == value


async def test_a_schema_may_refer_to_itself() -> None:
    wrong: Any = {"under": [{}]}
    right: Any = {"under": [{"under": []}]}
    script = Script(*([call("final_result", json.dumps(each))] for each in (wrong, right)))
    _, snapshot = await run(structured(output={"schema": TREE}), {}, registry=script.registry)
    assert (snapshot["outputs"]["a"]["structuredOutput"], len(script.requests)) == (right, 2)


class Structured:
    """A provider that returns what it is given as structured output."""

    type = "structured"

    def __init__(self, **fields: Any) -> None:
        self._answer = Answer("", **fields)

    async def execute(self, execution: Execution) -> Answer:  # noqa: ARG002
        return self._answer


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"structured_output": {"n": "seven"}}, "does not follow its schema: $.n: 'seven' is not of type 'integer'"),
        ({}, "the answer has no structured output"),
    ],
)
async def test_the_structured_output_of_every_provider_is_validated(fields: dict[str, Any], problem: str) -> None:
    registry = default_registry(provider=Structured(**fields))
    log, snapshot = await run(structured(output={"schema": SCHEMA}), {}, registry=registry)
    assert problem in snapshot["outputs"]["a"]["error"]
    assert [event["errorType"] for event in log.of("agent:error")] == ["structured_output"]
    valid = default_registry(provider=Structured(structured_output={"n": 7}))
    assert (await run(structured(output={"schema": SCHEMA}), {}, registry=valid))[1]["outputs"]["a"][
        "structuredOutput"
    ] == {"n": 7}


class Unavailable:
    """A provider whose service answers with an HTTP status; ``at_response`` as the errors of httpx have it."""

    type = "unavailable"

    def __init__(self, status: int, *, at_response: bool) -> None:
        self._error = RuntimeError("no answer")
        response = types.SimpleNamespace(status_code=status)
        setattr(self._error, *(("response", response) if at_response else ("status_code", status)))

    async def execute(self, execution: Execution) -> Answer:  # noqa: ARG002
        raise self._error


@pytest.mark.parametrize("at_response", [True, False])
async def test_a_failing_service_of_another_provider_reads_try_again(at_response: bool) -> None:
    registry = default_registry(provider=Unavailable(503, at_response=at_response))
    log, _ = await run(structured(), {}, registry=registry)
    (failed,) = log.of("agent:error")
    assert failed_step("a", failed["errorType"], failed["message"], "r").endswith("Please try again.")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"outputFormat": "json"}, "outputFormat: must be an object with the key schema"),
        ({"output": {"schema": 1}}, "output: must be an object with the key schema"),
        ({"output": {"schema": {"type": "array", "items": {"$ref": "#/$defs/no"}}}}, "reference '#/$defs/no', which"),
        ({"output": {"schema": {"$ref": "https://example.org/x.json"}}}, "leads to nothing within the schema"),
        ({"output": {"schema": {"type": "object", "required": 1}}}, "is not a JSON schema"),
        ({"outputSchemaFile": "nothing.json"}, "outputSchemaFile: there is no file nothing.json"),
        ({"options": {"outputSchemaFile": "{{ flow.input.x }}"}}, "must be the path of a file, without bindings"),
    ],
)
def test_a_schema_that_cannot_be_used_is_a_problem_of_the_flow(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidFlow, match=re.escape(problem)):
        FlowRuntime(structured(**fields), registry=Script().registry)


@pytest.mark.parametrize("key", ["promptFile", "promptTemplateFile"])
async def test_prompts_and_schemas_come_from_files_beside_the_flow_or_in_the_working_directory(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside, working = tmp_path / "flows", tmp_path / "work"
    beside.mkdir()
    working.mkdir()
    monkeypatch.chdir(working)
    (beside / "ask.md").write_text("How many {{ flow.input.what }}?", encoding="utf-8")
    (working / "schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    node = {
        "id": "a",
        "type": "agent",
        "input": {key: "ask.md", "options": {"outputSchemaFile": "schema.json"}},
    }
    (beside / "flow.yaml").write_text(json.dumps(flow(node)), encoding="utf-8")
    script = Script([call("final_result", '{"n": 7}')])
    _, snapshot = await run(beside / "flow.yaml", {"what": "bees"}, registry=script.registry)
    assert script.requests == [[("user-prompt", "How many bees?")]]
    assert snapshot["outputs"]["a"]["structuredOutput"] == {"n": 7}
    (working / "schema.json").write_text("{", encoding="utf-8")
    with pytest.raises(InvalidFlow, match=r"schema\.json cannot be read"):
        FlowRuntime(beside / "flow.yaml", registry=script.registry)
