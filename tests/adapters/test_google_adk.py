"""The events of Google ADK to parts: lists in, lists out. The objects are those of recordings; no ADK is needed."""

from typing import Any

import pytest

from tests.adapters.recorded_events import decoded
from tests.adapters.turns import said_by
from usechat.adapters import conversation
from usechat.adapters.google_adk import GoogleAdkAdapter, parts
from usechat.errors import StreamFailed, UnknownEvent
from usechat.parts import (
    ApprovalRequest,
    Data,
    Error,
    File,
    Finish,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
)


def event(*parts: dict[str, Any], **fields: Any) -> Any:
    content = {"$type": "Content", "parts": [{"$type": "Part", **part} for part in parts]}
    basis = {"$type": "Event", "id": "e1", "invocation_id": "i1", "author": "assistant"}
    return decoded({**basis, **({"content": content} if parts else {}), **fields})


def call(call_id: str = "c1", name: str = "weather", **fields: Any) -> dict[str, Any]:
    return {"function_call": {"$type": "FunctionCall", "id": call_id, "name": name, **fields}}


def response(value: Any, call_id: str = "c1") -> dict[str, Any]:
    return {"function_response": {"$type": "FunctionResponse", "id": call_id, "name": "weather", "response": value}}


def piece(path: str, **value: Any) -> dict[str, Any]:
    return {"$type": "PartialArg", "json_path": path, **value}


def said(*events: Any, **options: Any) -> list[Part]:
    return said_by(GoogleAdkAdapter(**options), events)


USED = {"$type": "Usage", "prompt_token_count": 2, "candidates_token_count": 3}
CALLED = event(call(args={"city": "Paris"}))


def test_text_and_reasoning_are_streamed_and_their_repetition_left_out() -> None:
    events = [
        event({"text": "Hm.", "thought": True}, partial=True),
        event({"text": "Hel"}, partial=True),
        event({"text": "lo"}, partial=True),
        event({"text": "Hm.", "thought": True}, {"text": "Hello"}, usage_metadata=USED, finish_reason="STOP"),
    ]
    usage = {"inputTokens": 2, "outputTokens": 3, "totalTokens": 5}
    assert said(*events) == [Step(), Reasoning("Hm."), Text("Hel"), Text("lo"), conversation.finish("stop", usage)]


def test_a_text_that_was_not_streamed_is_sent() -> None:
    assert said(event({"text": "Hello"})) == [Step(), Text("Hello"), Finish()]


def test_an_answer_of_an_agent_with_a_schema_is_text_and_data() -> None:
    whole = event({"text": "Hm.", "thought": True}, {"text": '{"city": "Paris"}'})
    events = [event({"text": '{"city":'}, partial=True), event({"text": ' "Paris"}'}, partial=True), whole]
    pieces = [Text('{"city":'), Text(' "Paris"}')]
    assert said(*events, structured={"assistant"}) == [Step(), *pieces, Data("output", {"city": "Paris"}), Finish()]
    assert said(*events, structured={"other"}) == [Step(), *pieces, Finish()]
    assert said(event({"text": "Paris"}), structured={"assistant"}) == [Step(), Text("Paris"), Finish()]
    beside_a_call = event({"text": "1"}, call(args={"city": "Paris"}))
    assert said(beside_a_call, structured={"assistant"})[1:-1] == [
        Text("1"),
        ToolCall("c1", "weather", {"city": "Paris"}),
    ]


def test_plain_arguments_are_streamed_as_json() -> None:
    events = [
        event(call(will_continue=True), partial=True),
        event(call(partial_args=[piece("$.city", string_value='P"', will_continue=True)]), partial=True),
        event(call(partial_args=[piece("$.city", string_value="a", will_continue=False)]), partial=True),
        event(call(partial_args=[piece("$.days", number_value=3), piece("$.rain", bool_value=True)]), partial=True),
        event(call(partial_args=[piece("$.more[0]", string_value="x")]), partial=True),
        event({"function_call": {"$type": "FunctionCall", "name": "weather"}}, partial=True),
        event(call(args={"city": 'P"a', "days": 3, "rain": True, "more": ["x"]})),
    ]
    assert said(*events)[1:-1] == [
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city": "P\\"'),
        ToolInputDelta("c1", 'a"'),
        ToolInputDelta("c1", ', "days": 3'),
        ToolInputDelta("c1", ', "rain": true'),
        ToolCall("c1", "weather", {"city": 'P"a', "days": 3, "rain": True, "more": ["x"]}),
    ]


@pytest.mark.parametrize(("value", "output"), [({"celsius": 21}, {"celsius": 21}), ({"result": "sunny"}, "sunny")])
def test_a_result_follows_its_call_and_begins_no_step(value: Any, output: Any) -> None:
    assert said(CALLED, event(response(value), id="e2"), event({"text": "Hello"}, id="e3")) == [
        Step(),
        ToolCall("c1", "weather", {"city": "Paris"}),
        ToolResult("c1", output),
        Step(),
        Text("Hello"),
        Finish(),
    ]


def code(text: str, code_id: str | None = None) -> dict[str, Any]:
    return {"executable_code": {"$type": "ExecutableCode", "code": text, "language": "PYTHON", "id": code_id}}


def ran(output: str, code_id: str | None = None, outcome: str = "OUTCOME_OK") -> dict[str, Any]:
    result = {"$type": "CodeExecutionResult", "output": output, "outcome": outcome, "id": code_id}
    return {"code_execution_result": result}


def code_call(call_id: str, text: str) -> ToolCall:
    return ToolCall(call_id, "code_execution", {"language": "PYTHON", "code": text}, provider_executed=True)


def test_code_that_the_provider_runs_is_a_call_in_its_place_and_its_repetition_left_out() -> None:
    pieces = [{"text": "Let me count. "}, code("1+1"), ran("2"), {"text": "Two."}]
    parts = [
        Step(),
        Text("Let me count. "),
        code_call("i1-code-1", "1+1"),
        ToolResult("i1-code-1", "2", provider_executed=True),
        Text("Two."),
        Finish(),
    ]
    assert said(*(event(part, partial=True) for part in pieces), event(*pieces)) == parts
    assert said(event(*pieces)) == parts


def test_results_of_code_are_found_by_their_ids_and_failures_are_shown_without_their_text() -> None:
    whole = event(code("a", "k1"), code("b", "k2"), ran("B", "k2"), ran("secret", "k1", "OUTCOME_FAILED"))
    assert said(whole)[1:-1] == [
        code_call("k1", "a"),
        code_call("k2", "b"),
        ToolResult("k2", "B", provider_executed=True),
        ToolError("k1", conversation.TOOL_FAILED, provider_executed=True),
    ]


def test_code_that_an_executor_runs_has_its_result_in_an_event_that_begins_no_step() -> None:
    text_event = event({"text": "```1+1```"}, partial=True)
    assert said(text_event, event(code("1+1")), event(ran("2"), id="e2"), event({"text": "Two."}, id="e3")) == [
        Step(),
        Text("```1+1```"),
        code_call("i1-code-1", "1+1"),
        ToolResult("i1-code-1", "2", provider_executed=True),
        Step(),
        Text("Two."),
        Finish(),
    ]


def test_a_confirmation_is_an_approval_and_the_text_that_asks_for_it_no_result() -> None:
    confirmation = call("b1", "adk_request_confirmation", args={"originalFunctionCall": {"id": "c1"}})
    actions = {"$type": "EventActions", "requested_tool_confirmations": {"c1": {}}}
    results = event(response({"error": "Please approve."}), response({"result": 1}, "c2"), actions=actions)
    assert said(CALLED, event(confirmation, id="e2"), results)[2:] == [
        Step(),
        ApprovalRequest("b1", "c1"),
        ToolResult("c2", 1),
        Finish(),
    ]
    assert said(event(confirmation, partial=True))[1:] == [Error(conversation.INCOMPLETE)]


def test_a_call_that_the_page_has_is_not_sent_again_and_one_that_was_denied_is_denied() -> None:
    events = [event(call(), partial=True), CALLED, event(response({"error": "Rejected."}), id="e2")]
    assert said(*events, known_calls={"c1"}, denied={"c1": "No."}) == [Step(), ToolDenied("c1", "No."), Finish()]


def test_another_agent_is_named_and_a_branch_is_a_lane() -> None:
    events = [event({"text": "Hi."}), event({"text": "Owls."}, id="e2", author="researcher", branch="b")]
    assert said(*events)[2:] == [
        Step(lane="b"),
        Data("agent", {"name": "researcher"}, id="b", lane="b"),
        Text("Owls.", lane="b"),
        Finish(),
    ]


def test_an_agent_that_takes_over_is_a_lane_that_is_named_once() -> None:
    events = [
        event({"text": "Hi."}),
        event({"text": "Owls."}, id="e2", author="researcher"),
        event({"text": "They see."}, id="e3", author="researcher"),
        event({"text": "Bye."}, id="e4"),
    ]
    lane = "agent-researcher"
    assert said(*events)[2:-1] == [
        Step(lane=lane),
        Data("agent", {"name": "researcher"}, id=lane, lane=lane),
        Text("Owls.", lane=lane),
        Step(lane=lane),
        Text("They see.", lane=lane),
        Step(),
        Text("Bye."),
    ]


def test_a_file_of_the_model_is_a_file() -> None:
    blob = {"$type": "Blob", "mime_type": "image/png", "data": {"$bytes": "aGk="}}
    assert said(event({"inline_data": blob}))[1] == File("data:image/png;base64,aGk=", "image/png")


def test_an_error_that_ends_the_run_raises_when_it_is_over() -> None:
    failed = event(error_code="SAFETY", error_message="blocked")
    with pytest.raises(StreamFailed, match="SAFETY: blocked"):
        said(failed)
    adapter = GoogleAdkAdapter()
    assert [*adapter.feed(failed), *adapter.close(ValueError("secret"))] == []


def test_a_run_without_a_whole_answer_is_incomplete_and_an_odd_event_is_unknown() -> None:
    assert said(event({"text": "Hel"}, partial=True))[-1] == Error(conversation.INCOMPLETE)
    with pytest.raises(UnknownEvent, match="dict"):
        said({})


async def test_the_parts_of_a_run_can_be_read_in_a_loop_of_ones_own() -> None:
    async def run() -> Any:
        yield event({"text": "Hello"})

    assert [part async for part in parts(run())] == [Step(), Text("Hello"), Finish()]
