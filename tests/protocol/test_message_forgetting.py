"""A builder that forgets the content of its message reads on as before."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.stream_strategies import chunk_lists, interleaved_tools, mutated_chunk_lists
from usechat.errors import InvalidChunk, UsechatError
from usechat.protocol.chunks import (
    Chunk,
    DataChunk,
    MessageMetadataChunk,
    StartStepChunk,
    TextDeltaChunk,
    TextEndChunk,
    TextStartChunk,
    ToolApprovalRequestChunk,
    ToolInputAvailableChunk,
    ToolInputDeltaChunk,
    ToolInputStartChunk,
    ToolOutputAvailableChunk,
    chunk_from_json,
)
from usechat.protocol.message import MessageBuilder


def receive(builder: MessageBuilder, chunk: Chunk) -> str:
    """Return what the builder says to the chunk."""
    try:
        builder.receive(chunk)
    except UsechatError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def states(builder: MessageBuilder) -> list[Any]:
    """Return what identifies the tool parts, and in which of them the last step begins."""
    parts: list[Any] = builder.message["parts"]
    tools = [part for part in parts if part["type"].startswith(("tool-", "dynamic-tool"))]
    step = next((index for index in range(len(parts), 0, -1) if parts[index - 1]["type"] == "step-start"), 0)
    keys = ("type", "toolCallId", "toolName", "state", "preliminary", "providerExecuted")
    identities = [{key: part.get(key) for key in keys} | {"a": part.get("approval", {}).get("id")} for part in tools]
    return [identities, sum(part in tools for part in parts[step:])]


def chunks_of(values: list[Any]) -> list[Chunk]:
    chunks = []
    for value in values:
        try:
            chunks.append(chunk_from_json(value))
        except InvalidChunk:
            continue
    return chunks


@pytest.mark.parametrize("sdk", ["5.0.0", "5", "6.0.0", "6", "7.0.0", "7"])
@settings(max_examples=60)
@given(chunks=st.one_of(chunk_lists, mutated_chunk_lists, interleaved_tools).map(chunks_of))
def test_forgetting_changes_nothing_of_what_is_accepted(sdk: str, chunks: list[Chunk]) -> None:
    whole, forgetful = MessageBuilder(sdk=sdk), MessageBuilder(sdk=sdk)
    for chunk in chunks:
        assert receive(whole, chunk) == receive(forgetful, chunk)
        assert states(whole) == states(forgetful)
        forgetful.forget()
        assert states(whole) == states(forgetful)


def test_the_content_is_gone_and_the_calls_are_kept() -> None:
    builder = MessageBuilder(sdk="7", message_id="m")
    for chunk in (
        StartStepChunk(),
        TextStartChunk("1"),
        TextDeltaChunk("1", "Hello"),
        DataChunk("data-x", 1, id="d"),
        MessageMetadataChunk({"a": 1}),
        ToolInputAvailableChunk("c1", "search", {"q": "fox"}),
        ToolOutputAvailableChunk("c1", [1, 2, 3]),
        ToolInputAvailableChunk("c2", "delete", {"path": "/"}),
        ToolApprovalRequestChunk("a", "c2", reason="dangerous"),
        StartStepChunk(),
        ToolInputStartChunk("c3", "write"),
        ToolInputDeltaChunk("c3", '{"text":"Hel'),
    ):
        builder.receive(chunk)
    builder.forget()
    assert builder.message == {
        "id": "m",
        "role": "assistant",
        "metadata": {},
        "parts": [
            {"type": "tool-search", "toolCallId": "c1", "state": "output-available"},
            {"type": "tool-delete", "toolCallId": "c2", "state": "approval-requested", "approval": {"id": "a"}},
            {"type": "step-start"},
            {"type": "tool-write", "toolCallId": "c3", "state": "input-streaming"},
        ],
    }


def test_open_blocks_and_inputs_stay_open() -> None:
    builder = MessageBuilder(sdk="7", message_id="m")
    builder.receive(TextStartChunk("1"))
    builder.receive(TextDeltaChunk("1", "Hello"))
    builder.receive(ToolInputStartChunk("c", "write"))
    builder.forget()
    builder.receive(TextDeltaChunk("1", " world"))
    builder.receive(TextEndChunk("1"))
    builder.receive(ToolInputDeltaChunk("c", "1"))
    assert [part.get("state") for part in builder.message["parts"]] == ["input-streaming"]


def test_metadata_that_is_no_object_stays_what_it_is() -> None:
    builder = MessageBuilder(sdk="7", message_id="m")
    builder.receive(MessageMetadataChunk("text"))
    builder.forget()
    assert builder.message["metadata"] == "text"
