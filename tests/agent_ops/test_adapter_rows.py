"""The unit tests that the Agent Ops RFC lists, one per row and named after it. Steps are left out.

A failed tool is a failure of that tool, not of the turn: clients stop reading at an ``error``.
"""

import pytest

from tests.agent_ops.frames import (
    ARGS,
    CREATE,
    IDLE,
    adapter,
    chunk,
    chunks_of,
    delta,
    fed,
    finalize,
    message,
    row,
    status,
    tool,
    updated,
    user_says,
)
from usechat.protocol.chunks import (
    DataChunk,
    ErrorChunk,
    FinishChunk,
    StartChunk,
    TextDeltaChunk,
    TextEndChunk,
    TextStartChunk,
    ToolInputAvailableChunk,
    ToolInputStartChunk,
    ToolOutputAvailableChunk,
    ToolOutputErrorChunk,
)

pytestmark = pytest.mark.quick

FINISH = FinishChunk("stop")
PENDING = ToolInputStartChunk("c1", "calculator", dynamic=True)
AVAILABLE = ToolInputAvailableChunk("c1", "calculator", ARGS, dynamic=True)


def test_message_create_to_start_and_text_start() -> None:
    assert row([CREATE]) == [StartChunk("t1"), TextStartChunk("t1")]


def test_message_part_text_delta_to_text_delta() -> None:
    text = " \u2028é😀\n\x00"
    assert row([delta(text)], after=[CREATE]) == [TextDeltaChunk("t1", text)]


def test_chunk_to_text_delta() -> None:
    assert row([chunk("4.")], after=[user_says(), message()]) == [TextDeltaChunk("t1", "4.")]


def test_message_part_tool_update_pending_to_tool_input_start() -> None:
    assert row([tool("pending")], after=[CREATE]) == [TextEndChunk("t1"), PENDING]


def test_message_part_tool_update_running_with_args_to_tool_input_available() -> None:
    assert row([tool("running", args=ARGS)], after=[CREATE, tool("pending")]) == [AVAILABLE]


def test_message_part_tool_update_completed_to_tool_output_available() -> None:
    before = [CREATE, tool("running", args=ARGS)]
    output = ToolOutputAvailableChunk("c1", {"result": 4}, dynamic=True)
    assert row([tool("completed", args=ARGS, result={"result": 4})], after=before) == [output]


def test_message_part_tool_update_error_to_error() -> None:
    before = [CREATE, tool("running", args=ARGS)]
    assert row([tool("error", error="No such file")], after=before) == [
        ToolOutputErrorChunk("c1", "No such file", dynamic=True)
    ]
    assert row([tool("error")], after=before) == [ToolOutputErrorChunk("c1", "Tool execution failed", dynamic=True)]


def test_message_finalize_end_turn_to_text_end_finish_step_and_message_finish() -> None:
    assert row([finalize()], after=[CREATE, delta("4.")]) == [TextEndChunk("t1"), FINISH]


def test_message_finalize_error_to_error_and_message_finish() -> None:
    failed = [TextEndChunk("t1"), ErrorChunk("The model is overloaded."), FinishChunk("error")]
    assert row([finalize("error", error="The model is overloaded.")], after=[CREATE]) == failed
    assert row([finalize("error")], after=[CREATE])[1] == ErrorChunk("Turn failed")


def test_message_finalize_canceled_to_text_end_and_message_finish() -> None:
    assert row([finalize("canceled")], after=[CREATE, delta("4")]) == [TextEndChunk("t1"), FinishChunk("other")]


def test_empty_turn() -> None:
    assert row([CREATE, finalize()]) == [StartChunk("t1"), TextStartChunk("t1"), TextEndChunk("t1"), FINISH]


def test_unknown_v2_event_to_empty_array() -> None:
    unknown: list[str] = []
    to = adapter()
    fed([CREATE], to)
    assert fed([{"type": "quantum-state"}, {"type": 7}, {}], to, unknown) == []
    assert unknown == ["quantum-state", "7", "None"]


def test_full_turn_lifecycle() -> None:
    frames = [
        CREATE,
        delta("The"),
        delta(" answer is"),
        tool("pending"),
        tool("running", args=ARGS),
        tool("completed", args=ARGS, result=4),
        delta(" 4."),
        finalize(finalText=" 4."),
    ]
    assert row(frames) == [
        StartChunk("t1"),
        TextStartChunk("t1"),
        TextDeltaChunk("t1", "The"),
        TextDeltaChunk("t1", " answer is"),
        TextEndChunk("t1"),
        PENDING,
        AVAILABLE,
        ToolOutputAvailableChunk("c1", 4, dynamic=True),
        TextStartChunk("1"),
        TextDeltaChunk("1", " 4."),
        TextEndChunk("1"),
        FINISH,
    ]


def test_multiple_tool_calls_in_single_turn() -> None:
    frames = [tool("running", call_id, args={"n": call_id}) for call_id in ("c1", "c2")]
    call_ids = [
        chunk.tool_call_id for chunk in row(frames, after=[CREATE]) if isinstance(chunk, ToolInputAvailableChunk)
    ]
    assert call_ids == ["c1", "c2"]


def test_concurrent_text_and_tool_updates() -> None:
    frames = [delta("a"), tool("running", args=ARGS), delta("b"), tool("completed", result=4), delta("c")]
    assert row(frames, after=[CREATE]) == [
        TextDeltaChunk("t1", "a"),
        TextEndChunk("t1"),
        AVAILABLE,
        TextStartChunk("1"),
        TextDeltaChunk("1", "b"),
        TextEndChunk("1"),
        ToolOutputAvailableChunk("c1", 4, dynamic=True),
        TextStartChunk("2"),
        TextDeltaChunk("2", "c"),
    ]


def test_agent_status_to_data_agent_status() -> None:
    frame = {"type": "agentStatus", "status": "tool_calling", "detail": "calculator"}
    data = {"status": "tool_calling", "detail": "calculator"}
    assert row([frame], after=[CREATE]) == [DataChunk("data-agent-status", data, transient=True)]
    assert row([IDLE], after=[CREATE]) == [DataChunk("data-agent-status", {"status": "idle"}, transient=True)]


def test_question_to_data_question() -> None:
    payload = {"questionId": "q1", "text": "Deploy?", "options": ["yes", "no"], "expiresAt": 1764000000}
    assert row([{"type": "question", **payload}], after=[CREATE]) == [DataChunk("data-question", payload, "q1")]


def test_skipped_events() -> None:
    skipped = [
        user_says("Something else", "u7"),
        updated("another's", turn_id="t7"),
        {"type": "init", "session": {"messages": []}, "data": {}},
        status(sandboxRunning=True),
        {"type": "git-state", "data": {"branch": "main"}},
        {"type": "diff", "requestId": "r1", "data": {"files": []}},
    ]
    unknown: list[str] = []
    to = adapter()
    start = fed([CREATE], to)
    assert chunks_of([*start, *fed(skipped, to, unknown)]) == chunks_of(start)
    assert unknown == []
