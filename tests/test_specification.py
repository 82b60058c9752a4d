"""What our stream sends where the specification documents say otherwise; docs/specification.md names each test.

That the AI SDK's own clients agree is shown in tests/conformance/test_specification.py.
"""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tests.syntax_trees import tree_of
from usechat.errors import InvalidChunk, LocalProtocolError, UnknownChunkType
from usechat.parts import (
    Abort,
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    Finish,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
)
from usechat.protocol.chunks import CHUNK_TYPES, FinishChunk, StartChunk, chunk_from_json, chunk_to_json
from usechat.protocol.request import ChatRequest, ToolOutput
from usechat.protocol.sse import DONE, encode_frame
from usechat.protocol.stream import MessageStream

pytestmark = pytest.mark.once

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "specification.md"
TEST_FILES = (
    "tests/test_specification.py",
    "tests/conformance/test_specification.py",
    "tests/agent_ops/test_adapter_rows.py",
)

Wire = dict[str, Any]


def sent(*parts: Part, **options: Any) -> list[Wire]:
    """Return the chunks of a stream that got these parts, as the JSON on the wire."""
    stream = MessageStream(**{"message_id": "m", **options})
    return [chunk_to_json(chunk) for part in parts for chunk in stream.send(part)]


def types(chunks: list[Wire]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


# Steps


def test_a_step_begins_with_start_step_and_ends_with_finish_step() -> None:
    assert types(sent(Step(), Text("a"), Step(), Text("b"), Finish())) == [
        "start",
        *("start-step", "text-start", "text-delta", "text-end", "finish-step"),
        *("start-step", "text-start", "text-delta", "text-end", "finish-step"),
        "finish",
    ]


def test_a_step_in_which_nothing_was_said_is_not_repeated() -> None:
    chunks = types(
        sent(Step(lane="silent"), Data("x", 1, lane="silent"), Step(lane="speaks"), Text("a", lane="speaks"))
    )
    assert chunks == ["start", "start-step", "data-x", "text-start", "text-delta"]


def test_text_after_a_tool_result_begins_a_step_even_when_steps_are_hidden() -> None:
    chunks = sent(Step(), ToolCall("c", "t"), ToolResult("c"), Step(), Text("a"), Finish(), send_steps=False)
    assert types(chunks) == [
        *("start", "tool-input-available", "tool-output-available"),
        *("start-step", "text-start", "text-delta", "text-end", "finish-step"),
        "finish",
    ]


# Text and reasoning


def test_every_block_has_an_id_of_its_own_and_only_start_has_the_message_id() -> None:
    chunks = sent(Reasoning("r"), Text("a"), ToolCall("c", "t"), ToolResult("c"), Text("b"), Finish())
    assert [chunk["id"] for chunk in chunks if chunk["type"].endswith("-start") and "id" in chunk] == ["1", "2", "3"]
    assert [chunk["type"] for chunk in chunks if "messageId" in chunk] == ["start"]


def test_text_is_closed_before_a_tool_and_opened_anew_after_it() -> None:
    assert types(sent(Text("a"), ToolCall("c", "t"), ToolResult("c"), Text("b"))) == [
        *("start", "start-step", "text-start", "text-delta", "text-end"),
        *("tool-input-available", "tool-output-available", "finish-step"),
        *("start-step", "text-start", "text-delta"),
    ]


def test_the_end_of_a_block_that_is_not_open_sends_nothing() -> None:
    stream = MessageStream(message_id="m")
    stream.send(Step())
    assert stream.send(BlockEnd()) == []


def test_a_data_part_leaves_the_text_open() -> None:
    assert types(sent(Text("a"), Data("x", 1), Text("b"), BlockEnd())) == [
        *("start", "start-step", "text-start", "text-delta", "data-x", "text-delta", "text-end"),
    ]


def test_reasoning_stands_where_it_came_even_after_the_text() -> None:
    chunks = types(sent(Text("a"), Reasoning("r"), Finish()))
    assert chunks.index("text-end") < chunks.index("reasoning-start")


def test_no_step_begins_while_a_tool_call_of_another_lane_has_no_outcome() -> None:
    call = (ToolCall("done", "t"), ToolResult("done"), ToolInputStart("c", "t", lane="other"))
    assert types(sent(*call, Step(), Text("a"))) == [
        *("start", "start-step", "tool-input-available", "tool-output-available", "tool-input-start"),
        *("text-start", "text-delta"),
    ]


def test_the_same_part_takes_other_chunks_at_another_moment() -> None:
    assert types(sent(Text("a"))) == ["start", "start-step", "text-start", "text-delta"]
    assert types(sent(Text("a"), Text("a")))[4:] == ["text-delta"]
    assert types(sent(Text("a"), Finish(), Text("a")))[-1] == "finish"


# Tools


def test_a_failed_tool_is_a_tool_output_error_and_the_turn_goes_on() -> None:
    chunks = sent(ToolCall("c", "t", {"a": 1}), ToolError("c", "timed out"), Text("sorry"))
    assert chunks[2:4] == [
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {"a": 1}},
        {"type": "tool-output-error", "toolCallId": "c", "errorText": "timed out"},
    ]
    assert chunks[-1] == {"type": "text-delta", "id": "1", "delta": "sorry"}


def test_a_call_without_a_result_waits_for_the_client_and_is_an_error_only_when_the_turn_breaks_off() -> None:
    assert types(sent(ToolCall("c", "t"), Finish())) == [
        *("start", "start-step", "tool-input-available", "finish-step", "finish"),
    ]
    assert types(sent(ToolCall("c", "t"), Error("x")))[3:] == [
        "tool-output-error",
        "message-metadata",
        "error",
        "finish",
    ]
    stopped = types(sent(ToolCall("c", "t"), Abort()))
    assert (stopped[3], stopped[-2:]) == ("tool-output-error", ["abort", "finish"])


def test_a_result_of_nothing_is_null() -> None:
    chunks = sent(ToolCall("c", "t"), ToolResult("c"))
    assert chunks[2:] == [
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": None},
        {"type": "tool-output-available", "toolCallId": "c", "output": None},
    ]


def test_a_result_without_its_call_gets_one() -> None:
    assert sent(ToolResult("c", 4))[2:] == [
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "unknown", "input": {}},
        {"type": "tool-output-available", "toolCallId": "c", "output": 4},
    ]


def test_a_result_completes_the_input_of_its_call() -> None:
    assert sent(ToolInputStart("c", "t"), ToolResult("c", 4))[2:] == [
        {"type": "tool-input-start", "toolCallId": "c", "toolName": "t"},
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {}},
        {"type": "tool-output-available", "toolCallId": "c", "output": 4},
    ]


def test_a_piece_of_tool_input_is_called_input_text_delta() -> None:
    chunks = sent(ToolInputStart("c", "t"), ToolInputDelta("c", '{"fitness'))
    assert chunks[-1] == {"type": "tool-input-delta", "toolCallId": "c", "inputTextDelta": '{"fitness'}
    with pytest.raises(InvalidChunk, match="inputTextDelta"):
        chunk_from_json({"type": "tool-input-delta", "toolCallId": "c", "delta": "{"})


def test_the_title_of_a_tool_goes_to_6_and_7_only() -> None:
    call = ToolCall("c", "t", {}, title="A tool")
    assert [sent(call, sdk=sdk)[-1].get("title") for sdk in ("any", "5", "6", "7")] == [None, None, "A tool", "A tool"]


def test_a_question_can_be_an_approval() -> None:
    question_parts = (ToolCall("c", "delete", {}), ApprovalRequest("a", "c"))
    request = {"type": "tool-approval-request", "approvalId": "a", "toolCallId": "c"}
    assert [request in sent(*question_parts, Finish(), sdk=sdk) for sdk in ("any", "6", "7")] == [True, True, True]
    question = {"approvalId": "a", "toolCallId": "c", "toolName": "delete", "input": {}}
    call = {"type": "tool-input-available", "toolCallId": "a", "toolName": "approval", "input": question}
    assert call in sent(*question_parts, Finish(), sdk="5")


# Data and errors


@pytest.mark.parametrize("payload", [{"status": "thinking", "detail": None}, {"question": {"text": "Proceed?"}}])
def test_a_custom_payload_stands_under_data(payload: Wire) -> None:
    assert sent(Data("agent-status", payload))[-1] == {"type": "data-agent-status", "data": payload}
    with pytest.raises(InvalidChunk, match="under the key 'data'"):
        chunk_from_json({"type": "data-agent-status", **payload})


def test_the_text_of_an_error_is_called_error_text() -> None:
    assert {"type": "error", "errorText": "Turn failed"} in sent(Error("Turn failed"))
    with pytest.raises(InvalidChunk, match="errorText"):
        chunk_from_json({"type": "error", "error": "Turn failed"})


# Endings


@pytest.mark.parametrize(
    ("ending", "chunks"),
    [
        (Finish(), ["text-end", "finish-step", "finish"]),
        (Error("x"), ["text-end", "message-metadata", "error", "finish"]),
        (Abort(), ["text-end", "finish-step", "abort", "finish"]),
    ],
    ids=["finish", "error", "abort"],
)
def test_every_ending_closes_the_text_and_sends_finish(ending: Part, chunks: list[str]) -> None:
    assert types(sent(Text("a"), ending))[4:] == chunks


def test_nothing_is_sent_after_the_ending() -> None:
    for ending in (Finish(), Error("x"), Abort()):
        assert types(sent(ending, Text("a"), Error("y"), Finish()))[-1] == "finish"


def test_an_empty_turn_has_a_step_and_no_text() -> None:
    assert types(sent(Finish())) == ["start", "start-step", "finish-step", "finish"]
    assert types(sent(Text(""), Finish())) == [
        *("start", "start-step", "text-start", "text-end", "finish-step", "finish"),
    ]


# Ids and names


def test_the_message_id_is_given_and_never_invented() -> None:
    with pytest.raises(LocalProtocolError, match="no message id"):
        MessageStream().send(Text("a"))


def test_a_continued_message_keeps_its_id() -> None:
    continued = {"id": "old", "role": "assistant", "parts": []}
    assert sent(Text("a"), continues=continued)[0] == {"type": "start", "messageId": "old"}


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("step-start", "start-step"), ("message-start", "start"), ("message-finish", "finish")],
)
def test_a_type_that_no_release_knows_is_refused_with_the_right_name(wrong: str, right: str) -> None:
    assert wrong not in CHUNK_TYPES
    with pytest.raises(UnknownChunkType, match=f"'{right}' is the chunk for that"):
        chunk_from_json({"type": wrong})


def test_there_are_more_chunk_types_than_the_documents_list() -> None:
    unlisted = {"abort", "message-metadata", "tool-input-error", "tool-output-error", "tool-approval-request"}
    assert unlisted <= set(CHUNK_TYPES)


# Framing


def test_event_names_are_written_only_when_asked_for() -> None:
    assert encode_frame(StartChunk("m")) == b'data: {"type":"start","messageId":"m"}\n\n'
    assert encode_frame(StartChunk("m"), event_names=True).startswith(b"event: message-start\ndata: {")
    assert encode_frame(FinishChunk(), event_names=True) == b'event: message-finish\ndata: {"type":"finish"}\n\n'
    assert DONE == b"data: [DONE]\n\n"


# Requests


def test_a_request_with_content_is_read_like_one_with_parts() -> None:
    for message in ({"content": "2+2?"}, {"parts": [{"type": "text", "text": "2+2?"}]}):
        assert ChatRequest.parse({"messages": [{"role": "user", **message}]}).text == "2+2?"


def test_a_request_that_ends_in_an_assistant_message_goes_on_with_it() -> None:
    tool_part = {"type": "tool-t", "toolCallId": "c", "state": "output-available", "input": {}, "output": 4}
    messages = [
        {"id": "u", "role": "user", "parts": [{"type": "text", "text": "2+2?"}]},
        {"id": "m", "role": "assistant", "parts": [tool_part]},
    ]
    request = ChatRequest.parse({"messages": messages})
    assert (request.continues, request.tool_outputs) == (messages[1], [ToolOutput("c", "t", 4)])


# The page


def names_in(path: str) -> set[str]:
    tree = tree_of(ROOT / path)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {function.name for function in functions if function.name.startswith("test_")}


def named_in(text: str) -> set[tuple[str, str]]:
    return set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text))


def test_every_test_that_the_page_names_exists() -> None:
    named = named_in(PAGE.read_text(encoding="utf-8"))
    assert {(path, name) for path, name in named if name not in names_in(path)} == set()


@pytest.mark.parametrize("path", TEST_FILES)
def test_the_page_names_every_test_of_these_files(path: str) -> None:
    assert {(path, name) for name in names_in(path)} - named_in(PAGE.read_text(encoding="utf-8")) == set()


def test_every_row_of_the_page_names_its_test() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("|") and not line.startswith(("| Where |", "|---"))]
    assert rows
    assert [row for row in rows if not named_in(row)] == []
