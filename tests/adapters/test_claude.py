"""The messages of the Claude Agent SDK to parts: lists in, lists out. The objects are those of recordings."""

from typing import Any

import pytest

from tests.adapters.recorded_events import decoded
from tests.adapters.turns import said_by
from usechat.adapters import conversation
from usechat.adapters.claude import AnswerStarted, ClaudeAdapter, PermissionAsked, PermissionDenied, parts
from usechat.errors import StreamFailed, UnknownEvent
from usechat.parts import (
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    Part,
    Reasoning,
    Start,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
)

USED = {"input_tokens": 2, "output_tokens": 3}
USAGE = {"inputTokens": 2, "outputTokens": 3, "totalTokens": 5}


def message(kind: str, **fields: Any) -> Any:
    return decoded({"$type": kind, **fields})


def stream(event: dict[str, Any], parent: str | None = None) -> Any:
    return message("StreamEvent", event=event, parent_tool_use_id=parent)


def start(parent: str | None = None) -> Any:
    return stream({"type": "message_start", "message": {"id": "msg_1"}}, parent)


def block(index: int, content: dict[str, Any], delta: dict[str, Any]) -> list[Any]:
    return [
        stream({"type": "content_block_start", "index": index, "content_block": content}),
        stream({"type": "content_block_delta", "index": index, "delta": delta}),
        stream({"type": "content_block_stop", "index": index}),
    ]


def text(content: str) -> list[Any]:
    return block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": content})


def use(index: int, call_id: str, name: str = "mcp__notes__dig") -> list[Any]:
    content = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
    return block(index, content, {"type": "input_json_delta", "partial_json": '{"depth":1}'})


def whole(*blocks: dict[str, Any], **fields: Any) -> Any:
    return message("AssistantMessage", content=list(blocks), message_id="msg_1", **fields)


def result(call_id: str, content: Any, *, is_error: bool = False) -> Any:
    tool_result = {"$type": "ToolResultBlock", "tool_use_id": call_id, "content": content, "is_error": is_error}
    return message("UserMessage", content=[tool_result])


END = message("ResultMessage", is_error=False, stop_reason="end_turn", usage=USED)
FINISH = conversation.finish("stop", USAGE)
CALL = ToolCall("c1", "dig", {"depth": 1}, title="notes: dig")


def said(*events: Any, **options: Any) -> list[Part]:
    return said_by(ClaudeAdapter(**options), events)


def test_text_is_streamed_and_its_repetition_left_out() -> None:
    repeated = whole({"$type": "TextBlock", "text": "Hello"})
    events = [AnswerStarted("m1"), message("SystemMessage", subtype="init"), start(), *text("Hello"), repeated, END]
    assert said(*events) == [Start("m1"), Step(), Text("Hello"), BlockEnd(), FINISH]


def test_a_message_that_was_not_streamed_is_read_as_a_whole() -> None:
    events = [
        whole({"$type": "ThinkingBlock", "thinking": "Hm."}, {"$type": "TextBlock", "text": "Hello"}),
        whole({"$type": "ToolUseBlock", "id": "c1", "name": "mcp__notes__dig", "input": {"depth": 1}}),
        result("c1", "dug"),
        END,
    ]
    assert said(*events) == [Step(), Reasoning("Hm."), Text("Hello"), CALL, ToolResult("c1", "dug"), FINISH]


def test_of_parallel_calls_the_first_is_streamed_and_the_others_come_with_their_results() -> None:
    events = [start(), *use(0, "c1"), *use(1, "c2", "Read"), result("c1", [{"type": "text", "text": '{"a": 1}'}])]
    assert said(*events, result("c2", "No such file", is_error=True), END) == [
        Step(),
        ToolInputStart("c1", "dig", title="notes: dig"),
        ToolInputDelta("c1", '{"depth":1}'),
        CALL,
        ToolResult("c1", {"a": 1}),
        ToolCall("c2", "Read", {"depth": 1}),
        ToolError("c2", conversation.TOOL_FAILED),
        FINISH,
    ]


ASKING = [start(), *use(0, "c1"), *use(1, "c2"), PermissionAsked("c1", "mcp__notes__dig", {"depth": 1})]


def test_a_permission_is_asked_for_with_its_call_as_the_only_open_one() -> None:
    adapter = ClaudeAdapter()
    parts = [part for event in ASKING for part in adapter.feed(event)]
    assert parts[-2:] == [CALL, ApprovalRequest("approval-c1", "c1")]


def test_a_run_goes_on_with_the_calls_that_it_made_before_it_asked() -> None:
    denied = PermissionDenied("c1", "I need it.")
    events = [*ASKING, denied, result("c1", "I need it.", is_error=True), result("c2", "dug"), END]
    assert said(*events)[-4:] == [
        ToolDenied("c1", "I need it."),
        ToolCall("c2", "dig", {"depth": 1}, title="notes: dig"),
        ToolResult("c2", "dug"),
        FINISH,
    ]


RESEARCHER = {"subagent_type": "researcher"}
LABEL = Data("agent", {"name": "researcher"}, id="t1", lane="t1")


def test_a_sub_agent_speaks_in_a_lane_of_its_own_behind_its_name() -> None:
    task = {"$type": "ToolUseBlock", "id": "t1", "name": "Agent", "input": RESEARCHER}
    inner = {"$type": "ToolUseBlock", "id": "c1", "name": "Grep", "input": {}}
    events = [
        whole(task),
        whole({"$type": "TextBlock", "text": "I search."}, parent_tool_use_id="t1"),
        whole(inner, parent_tool_use_id="t1"),
        result("c1", "found"),
        result("t1", "Owls."),
        END,
    ]
    assert said(*events) == [
        Step(),
        Step(lane="t1"),
        LABEL,
        Text("I search.", lane="t1"),
        ToolCall("c1", "Grep", {}, lane="t1"),
        ToolResult("c1", "found", lane="t1"),
        ToolCall("t1", "Agent", RESEARCHER),
        ToolResult("t1", "Owls."),
        FINISH,
    ]


@pytest.mark.parametrize("counts", [{}, {"harnessNoteCount": 1, "harnessTailCount": 1}])
def test_the_report_of_a_sub_agent_is_shown_without_what_claude_code_adds(counts: dict[str, int]) -> None:
    framed = result("t1", [{"type": "text", "text": "[Subagent hand-back] The report follows:\n  Owls."}])
    note, report = {"type": "text", "text": "<tools-used>"}, {"type": "text", "text": "Owls."}
    framed.tool_use_result = {"agentId": "a1", "content": [note, report, note] if counts else [report], **counts}
    assert said(framed, END) == [ToolResult("t1", "Owls."), FINISH]


def test_a_sub_agent_asks_for_a_permission_in_a_step_without_the_call_that_runs_it() -> None:
    events = [start(), *use(0, "t1", "Agent"), PermissionAsked("c1", "mcp__notes__dig", {"depth": 1})]
    assert said(*events)[-4:-1] == [Step(leaves_calls=True), CALL, ApprovalRequest("approval-c1", "c1")]


def test_a_failure_of_the_model_shows_nothing_of_its_text() -> None:
    synthetic = whole({"$type": "TextBlock", "text": "API Error: 500 secret"}, error="server_error")
    adapter = ClaudeAdapter()
    assert list(adapter.feed(synthetic)) == []
    failed = message("ResultMessage", is_error=True, subtype="success", result="API Error: 500 secret")
    with pytest.raises(StreamFailed, match="API Error"):
        list(adapter.feed(failed))


def test_a_structured_output_is_data() -> None:
    ended = message("ResultMessage", is_error=False, stop_reason="end_turn", usage=USED, structured_output={"a": 1})
    assert said(ended) == [Data("output", {"a": 1}), FINISH]


def test_a_response_without_a_result_is_an_error_and_unknown_messages_are_named() -> None:
    assert said(start()) == [Step(), Error(conversation.INCOMPLETE)]
    with pytest.raises(UnknownEvent, match="Telepathy"):
        said(message("Telepathy"))


async def test_parts_are_read_in_a_loop_of_ones_own() -> None:
    async def response() -> Any:
        yield END

    assert [part async for part in parts(response())] == [FINISH]
