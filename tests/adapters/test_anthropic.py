"""The events of the Anthropic client to parts, and chats to its messages: lists in, lists out."""

from typing import Any

import pytest

from tests.adapters.turns import said_by
from usechat.adapters import conversation
from usechat.adapters.anthropic import AnthropicAdapter, to_anthropic
from usechat.errors import StreamFailed, UnknownEvent
from usechat.parts import (
    BlockEnd,
    Error,
    Metadata,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolError,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolResult,
)

START = {"type": "message_start", "message": {"usage": {"input_tokens": 2, "output_tokens": 1}}}
STOP = {"type": "message_stop"}
USAGE = {"inputTokens": 2, "outputTokens": 3, "totalTokens": 5}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def end(reason: str) -> list[dict[str, Any]]:
    usage = {"input_tokens": None, "output_tokens": 3}
    return [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage}, STOP]


def said(*events: Any) -> list[Part]:
    return said_by(AnthropicAdapter(), events)


def test_thinking_ends_with_its_signature_and_a_text_follows() -> None:
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    events = [
        START,
        {"type": "ping"},
        *block(
            0,
            thinking,
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": "s"},
        ),
        *block(1, {"type": "redacted_thinking", "data": "xyz"}),
        *block(2, {"type": "text", "text": "So"}, {"type": "text_delta", "text": " it is."}),
        {"type": "text", "text": " it is.", "snapshot": "So it is."},
        *end("end_turn"),
    ]
    assert said(*events) == [
        Step(),
        Reasoning("Hm."),
        BlockEnd({"anthropic": {"signature": "s"}}),
        Reasoning("", {"anthropic": {"redactedData": "xyz"}}),
        BlockEnd(),
        Text("So"),
        Text(" it is."),
        BlockEnd(),
        conversation.finish("stop", USAGE),
    ]


def test_a_call_leaves_the_turn_open() -> None:
    use = {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}
    pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"city"', ':"x"}')]
    assert said(START, *block(0, use, *pieces), *end("tool_use")) == [
        Step(),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city"'),
        ToolInputDelta("c1", ':"x"}'),
        ToolCall("c1", "weather", {"city": "x"}),
        Metadata({"finishReason": "tool-calls", "usage": USAGE}),
    ]


def test_an_input_that_is_no_json_fails() -> None:
    use = {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}
    events = block(0, use, {"type": "input_json_delta", "partial_json": "{"})
    assert said(*events)[2] == ToolInputError("c1", "weather", "The input is not valid JSON.", "{")


def test_tools_that_anthropic_runs_are_marked() -> None:
    search = {"type": "server_tool_use", "id": "c1", "name": "web_search", "input": {"query": "owls"}}
    failed = {"type": "web_search_tool_result_error", "error_code": "unavailable"}
    lookup = {"type": "mcp_tool_use", "id": "c2", "name": "lookup", "server_name": "docs", "input": {}}
    answer = {"type": "mcp_tool_result", "tool_use_id": "c2", "content": [{"type": "text", "text": '{"a": 1}'}]}
    events = [
        *block(0, search),
        *block(1, {"type": "web_search_tool_result", "tool_use_id": "c1", "content": failed}),
        *block(2, lookup),
        *block(3, {**answer, "is_error": False}),
        *end("end_turn"),
    ]
    docs = {"provider_executed": True, "dynamic": True, "title": "docs: lookup"}
    assert said(*events)[:-1] == [
        ToolInputStart("c1", "web_search", provider_executed=True),
        ToolCall("c1", "web_search", {"query": "owls"}, provider_executed=True),
        ToolError("c1", conversation.TOOL_FAILED, provider_executed=True),
        ToolInputStart("c2", "lookup", **docs),  # type: ignore[arg-type]
        ToolCall("c2", "lookup", {}, **docs),  # type: ignore[arg-type]
        ToolResult("c2", {"a": 1}, provider_executed=True),
    ]


def test_a_stream_that_breaks_off_or_fails_never_ends_well() -> None:
    assert said(START) == [Step(), Error(conversation.INCOMPLETE)]
    with pytest.raises(StreamFailed, match="Overloaded"):
        said(START, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    with pytest.raises(UnknownEvent, match="telepathy"):
        said({"type": "telepathy"})


def test_only_signed_reasoning_and_full_texts_go_back() -> None:
    def reasoning(**anthropic: str) -> Any:
        return {"type": "reasoning", "text": "Hm.", "providerOptions": {"anthropic": anthropic}}

    call = {"type": "tool-call", "toolCallId": "c1", "toolName": "dig", "input": {"a": 1}}
    failed = {"type": "error-text", "value": "No."}
    image = {"type": "file", "mediaType": "image/png", "data": "data:image/png;base64,aGk="}
    pdf = {"type": "file", "mediaType": "application/pdf", "data": "https://example.org/a.pdf"}
    messages: Any = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [image, pdf]},
        {
            "role": "assistant",
            "content": [
                reasoning(),
                reasoning(signature="s"),
                reasoning(redactedData="x"),
                {"type": "text", "text": " "},
                call,
            ],
        },
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c1", "toolName": "dig", "output": failed}]},
        {"role": "assistant", "content": [{"type": "text", "text": " "}]},
    ]
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    assert to_anthropic(messages) == [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": source},
                {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "tool_use", "id": "c1", "name": "dig", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "No.", "is_error": True}],
        },
    ]
