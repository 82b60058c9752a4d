"""A builder that forgets the content of its message reads on as before."""

import gc
import tracemalloc
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
    ResetStepChunk,
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

pytestmark = pytest.mark.slow


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
        forgetful.forget()
        assert_is_the_same_but_for_finished_calls(whole, forgetful)
    for part in whole.tool_parts():
        late = ToolOutputAvailableChunk(part["toolCallId"], 1, dynamic=part["type"] == "dynamic-tool")
        assert receive(whole, late) == receive(forgetful, late)
        assert_is_the_same_but_for_finished_calls(whole, forgetful)


def assert_is_the_same_but_for_finished_calls(whole: MessageBuilder, forgetful: MessageBuilder) -> None:
    [tools, in_step], [forgetful_tools, kept_in_step] = states(whole), states(forgetful)
    assert in_step == kept_in_step
    assert tools[len(tools) - in_step :] == forgetful_tools[len(forgetful_tools) - in_step :]
    finished = [
        tool for tool in tools[: len(tools) - in_step] if tool["state"].startswith("output") and tool["a"] is None
    ]
    assert [tool for tool in tools if tool not in finished] == [
        tool for tool in forgetful_tools if tool not in finished
    ]
    assert all(tool in tools for tool in forgetful_tools)


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


@pytest.mark.parametrize("metadata", [{}, {"toolMetadata": {"a": 1}}])
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_finished_call_is_found_again(dynamic: bool | None, metadata: dict[str, Any]) -> None:
    """Its input goes on as a part of the later step, as clients do it, and has its result there."""
    builder = MessageBuilder(sdk="7", message_id="m")
    for chunk in (
        StartStepChunk(),
        ToolInputStartChunk("c1", "write", dynamic=dynamic, title="Write", tool_metadata=metadata.get("toolMetadata")),
        ToolInputDeltaChunk("c1", '{"a":1}'),
        ToolInputAvailableChunk("c1", "write", {"a": 1}, dynamic=dynamic),
        ToolOutputAvailableChunk("c1", 1, dynamic=dynamic),
        ToolInputAvailableChunk("c2", "read", {}),
        StartStepChunk(),
    ):
        builder.receive(chunk)
    builder.forget()
    kind = {"type": "dynamic-tool", "toolName": "write"} if dynamic else {"type": "tool-write"}
    waiting = {"type": "tool-read", "toolCallId": "c2", "state": "input-available"}
    assert builder.message["parts"] == [waiting, {"type": "step-start"}]
    builder.receive(ToolInputDeltaChunk("c1", "[2"))
    streaming = kind | {"toolCallId": "c1", "state": "input-streaming", "title": "Write", "input": [2]} | metadata
    streaming |= {} if dynamic else {"rawInput": "[2"}
    assert builder.message["parts"] == [waiting, {"type": "step-start"}, streaming]
    builder.forget()
    builder.receive(StartStepChunk())
    builder.receive(ToolOutputAvailableChunk("c1", 3, dynamic=dynamic))
    [late] = [part for part in builder.message["parts"] if part.get("output")]
    assert late == kind | {"toolCallId": "c1", "state": "output-available", "output": 3}


def test_a_call_with_a_late_result_has_its_part_again() -> None:
    builder = MessageBuilder(sdk="7", message_id="m")
    for chunk in (
        StartStepChunk(),
        ToolInputAvailableChunk("c1", "write", {"a": 1}, provider_executed=True),
        ToolOutputAvailableChunk("c1", 1),
        StartStepChunk(),
        TextStartChunk("1"),
    ):
        builder.receive(chunk)
    builder.forget()
    builder.forget()
    assert builder.message["parts"] == [{"type": "step-start"}]
    builder.receive(ToolOutputAvailableChunk("c1", 2))
    part = {
        "type": "tool-write",
        "toolCallId": "c1",
        "state": "output-available",
        "output": 2,
        "providerExecuted": True,
    }
    assert builder.message["parts"] == [part, {"type": "step-start"}]


def test_a_step_that_is_taken_back_leaves_no_input_open() -> None:
    builder = MessageBuilder(sdk="7", message_id="m")
    for chunk in (
        StartStepChunk(),
        ToolInputStartChunk("c1", "write"),
        ToolInputAvailableChunk("c1", "write", {}),
        ToolOutputAvailableChunk("c1", 1),
        StartStepChunk(),
    ):
        builder.receive(chunk)
    builder.forget()
    builder.receive(ResetStepChunk())
    assert receive(builder, ToolInputDeltaChunk("c1", "1")).startswith("UIMessageStreamError")


def test_a_part_that_someone_else_made_is_kept() -> None:
    odd: list[Any] = [{"type": "tool-x", "toolCallId": 1}, {"type": "tool-x", "toolCallId": "c", "toolName": {}}]
    parts = [part | {"state": "output-available"} for part in odd] + [{"type": "step-start"}]
    builder = MessageBuilder(sdk="7", message={"id": "m", "role": "assistant", "parts": parts})
    builder.forget()
    assert builder.message["parts"] == parts


def test_finished_calls_take_little_memory() -> None:
    def size(calls: int) -> int:
        tracemalloc.start()
        builder = MessageBuilder(sdk="7", message_id="m")
        for number in range(calls):
            name = f"call-{number}"
            builder.receive(StartStepChunk())
            builder.receive(ToolInputStartChunk(name, "write"))
            builder.receive(ToolInputDeltaChunk(name, '{"a":1}'))
            builder.receive(ToolInputAvailableChunk(name, "write", {"a": number}))
            builder.receive(ToolOutputAvailableChunk(name, [number]))
        builder.forget()
        gc.collect()
        result = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return result

    assert (size(400) - size(200)) / 200 < 400  # bytes per call: its id, and a row in each of two indexes


def test_metadata_that_is_no_object_stays_what_it_is() -> None:
    builder = MessageBuilder(sdk="7", message_id="m")
    builder.receive(MessageMetadataChunk("text"))
    builder.forget()
    assert builder.message["metadata"] == "text"
