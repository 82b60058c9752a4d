"""The tables of states are the truth: streams make no other move, and every row is a move that some stream makes."""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import usechat.parts as p
from tests.part_strategies import any_part, continued_messages, part_lists, tool_parts, values
from usechat.errors import LocalProtocolError
from usechat.parts import Part
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.states import (
    BLOCK_TRANSITIONS,
    TOOL_TRANSITIONS,
    BlockState,
    ToolState,
    block_state_after,
    tool_state_after,
    tool_state_set_by,
)
from usechat.protocol.stream import MessageStream

pytestmark = pytest.mark.slow

Move: TypeAlias = tuple[BlockState | ToolState, type[Chunk]]

ROWS: set[Move] = {(state, chunk) for state, row in BLOCK_TRANSITIONS.items() for chunk in row} | {
    (state, chunk) for state, row in TOOL_TRANSITIONS.items() for chunk in row
}
BLOCK_CHUNKS = {chunk for row in BLOCK_TRANSITIONS.values() for chunk in row}
SDKS = ["any", "5", "6", "7", "5.0.0", "6.0.150", "7.0.31"]
CALL = p.ToolCall("c1", "t", {})


class Follower:
    """Follow a stream from outside, chunk by chunk, and collect its moves; one outside of the tables raises KeyError.

    It knows of the stream what a page knows: the chunks, and the message that they continue.
    """

    def __init__(self, continues: Mapping[str, Any] | None) -> None:
        self.moves: set[Move] = set()
        self._blocks: dict[tuple[str, str], BlockState] = {}
        self._calls: dict[str, ToolState] = {}
        self._approvals: dict[str, str] = {}
        self._in_step: set[str] = set()
        for part in (continues or {}).get("parts", []):
            if "toolCallId" in part:
                self._calls[part["toolCallId"]] = ToolState(part["state"])
                self._approvals[part.get("approval", {}).get("id")] = part["toolCallId"]

    def receive(self, chunk: Chunk) -> None:
        kind = chunks.type_of(chunk).split("-")[0]
        match chunk:
            case chunks.FinishStepChunk() | chunks.ResetStepChunk():
                for key in self._blocks:
                    self._move_block(key, chunk)
                if isinstance(chunk, chunks.ResetStepChunk):
                    self._calls = {key: state for key, state in self._calls.items() if key not in self._in_step}
                self._in_step.clear()
            case chunks.ToolApprovalResponseChunk():
                self._move_call(self._approvals[chunk.approval_id], chunk)
            case chunks.ToolApprovalRequestChunk():
                self._approvals[chunk.approval_id] = chunk.tool_call_id
                self._move_call(chunk.tool_call_id, chunk)
            case _ if kind == "tool":
                self._move_call(getattr(chunk, "tool_call_id", ""), chunk)
            case _ if type(chunk) in BLOCK_CHUNKS:
                self._move_block((kind, getattr(chunk, "id", "")), chunk)

    def _move_block(self, key: tuple[str, str], chunk: Chunk) -> None:
        before = self._blocks.get(key, BlockState.CLOSED)
        self.moves.add((before, type(chunk)))
        self._blocks[key] = BLOCK_TRANSITIONS[before][type(chunk)]

    def _move_call(self, tool_call_id: str, chunk: Chunk) -> None:
        before = self._calls.get(tool_call_id, ToolState.ABSENT)
        if before is ToolState.ABSENT:
            self._in_step.add(tool_call_id)
        self.moves.add((before, type(chunk)))
        self._calls[tool_call_id] = TOOL_TRANSITIONS[before][type(chunk)]


def moves_of(parts: Iterable[Part], sdk: str, continues: Mapping[str, Any] | None = None) -> set[Move]:
    stream, follower = MessageStream(message_id="m1", sdk=sdk, continues=continues), Follower(continues)
    for chunk in [chunk for part in parts for chunk in stream.send(part)] + stream.close():
        follower.receive(chunk)
    return follower.moves


def once_per_id(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message in which a call id has one part: with two, chunks do not say which of them is meant."""
    return {**message, "parts": list({part.get("toolCallId"): part for part in message["parts"]}.values())}


@settings(max_examples=200)
@given(
    part_lists | st.lists(tool_parts, max_size=14),
    st.sampled_from(SDKS),
    st.none() | continued_messages(approvals=True).map(once_per_id),
)
def test_every_move_of_a_stream_is_in_the_tables(parts: list[Part], sdk: str, continues: dict[str, Any] | None) -> None:
    assert moves_of(parts, sdk, continues) <= ROWS


ABOUT_ONE_CALL: list[Part] = [
    p.ToolInputStart("c1", "t"),
    p.ToolInputDelta("c1", "{"),
    CALL,
    p.ToolInputError("c1", "t", "bad"),
    p.ToolResult("c1", 1),
    p.ToolResult("c1", 1, preliminary=True),
    p.ToolError("c1", "failed"),
    p.ToolDenied("c1"),
    p.ApprovalRequest("a1", "c1"),
    p.ApprovalResponse("a1", approved=True),
]
BLOCKS: list[Part] = [p.Text("a"), p.Reasoning("b"), p.BlockEnd(), p.Step(), p.ResetStep()]


PROVIDER_WAITS = (
    p.ToolCall("c1", "delete", {}, provider_executed=True),
    p.ApprovalRequest("a", "c1"),
    p.ToolCall("c2", "time", {}),
    p.ToolResult("c2", 1),
)


def test_every_row_of_the_tables_is_taken() -> None:
    """All short sequences are tried, so a row that is not taken is a row that no stream needs."""
    moves: set[Move] = set()
    for sdk in ("6", "7"):
        for parts in itertools.chain(itertools.product(ABOUT_ONE_CALL, repeat=3), itertools.product(BLOCKS, repeat=3)):
            moves |= moves_of(parts, sdk)
    # A page that was asked in the turn before, and a release that cannot be told the answer.
    question = {
        "type": "tool-t",
        "toolCallId": "c1",
        "state": "approval-requested",
        "input": {},
        "approval": {"id": "a"},
    }
    for parts in itertools.product(ABOUT_ONE_CALL, repeat=2):
        moves |= moves_of(parts, "6", {"id": "m1", "parts": [question]})
    # A call that the provider runs, and that waits beside one that has ended, is announced anew at the end.
    moves |= moves_of(PROVIDER_WAITS, "7")
    waiting = {"type": "tool-t", "toolCallId": "c1", "state": "input-available", "input": {}, "providerExecuted": False}
    metadata = {"callProviderMetadata": {"usechat": {"providerExecuted": True}}}
    moves |= moves_of(PROVIDER_WAITS[1:3], "5", {"id": "m1", "parts": [waiting | metadata]})
    assert moves == ROWS


states = st.sampled_from([*(state.value for state in ToolState), "other", None])
approvals = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {}, optional={"id": st.sampled_from(["a1", "a2", 5]), "approved": st.booleans() | st.none() | st.just("yes")}
    ),
    values,
)
forged_parts = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["tool-search", "dynamic-tool", "tool-approval"]),
        "toolCallId": st.sampled_from(["c1", "c2"]),
        "state": states,
        "approval": approvals,
        "input": values | st.just({"approvalId": "a1", "toolCallId": "c1"}),
    },
    optional={"preliminary": st.booleans(), "output": values},
)


@settings(max_examples=200)
@given(
    st.lists(tool_parts | any_part, max_size=10),
    st.sampled_from(SDKS),
    st.lists(forged_parts, max_size=3),
)
def test_no_claim_of_a_client_leads_out_of_the_tables(parts: list[Part], sdk: str, forged: list[Any]) -> None:
    stream = MessageStream(sdk=sdk, continues={"id": "m1", "role": "assistant", "parts": forged})
    for part in parts:
        stream.send(part)
    stream.close()
    assert stream.ending is not None


def test_a_chunk_gives_a_call_the_same_state_wherever_it_is_legal() -> None:
    for row in TOOL_TRANSITIONS.values():
        for chunk, state in row.items():
            assert {other[chunk] for other in TOOL_TRANSITIONS.values() if chunk in other} == {state}
    assert tool_state_set_by(chunks.ToolOutputDeniedChunk("c1")) is ToolState.OUTPUT_DENIED


@pytest.mark.parametrize(
    ("look_up", "state", "chunk", "text", "chunk_id"),
    [
        (
            block_state_after,
            BlockState.CLOSED,
            chunks.TextDeltaChunk("b1", "x"),
            "'text-delta' is illegal for the block 'b1' while it is closed; "
            "legal here: finish-step, reasoning-start, reset-step, text-start",
            "b1",
        ),
        (
            block_state_after,
            BlockState.OPEN,
            chunks.FinishStepChunk(),
            "'finish-step' is illegal for the block while it is open; "
            "legal here: reasoning-delta, reasoning-end, text-delta, text-end",
            None,
        ),
        (
            tool_state_after,
            ToolState.ABSENT,
            chunks.ToolOutputAvailableChunk("c1", 1),
            "'tool-output-available' is illegal for the tool call 'c1' while it is absent; "
            "legal here: tool-input-available, tool-input-error, tool-input-start",
            "c1",
        ),
    ],
)
def test_a_move_that_is_not_in_the_table_is_our_error_and_names_state_and_chunk(
    look_up: Any, state: Any, chunk: Chunk, text: str, chunk_id: str | None
) -> None:
    with pytest.raises(LocalProtocolError) as raised:
        look_up(state, chunk)
    assert str(raised.value) == text
    assert (raised.value.chunk_type, raised.value.chunk_id) == (chunks.type_of(chunk), chunk_id)


FAILED_YET_PRELIMINARY = {
    "type": "tool-t",
    "toolCallId": "c1",
    "state": "output-error",
    "preliminary": True,
    "input": {},
}
PENDING = {"type": "tool-t", "toolCallId": "c1", "state": "approval-requested", "input": {}, "approval": {"id": "a1"}}
ABOUT_ITSELF = {
    "type": "tool-approval",
    "toolCallId": "c1",
    "state": "approval-requested",
    "approval": {"id": "a1"},
    "input": {"approvalId": "a1", "toolCallId": "c1"},
    "output": {"approved": True},
}
ANSWERED_BY_A_TOOL = ABOUT_ITSELF | {"toolCallId": "c2", "state": "output-available", "approval": None}


@pytest.mark.parametrize("sdk", SDKS)
@pytest.mark.parametrize(
    "forged",
    [[FAILED_YET_PRELIMINARY], [ABOUT_ITSELF], [PENDING, ANSWERED_BY_A_TOOL]],
    ids=["failed", "itself", "both"],
)
def test_a_contradiction_that_a_client_claims_ends_the_turn_well(forged: list[Any], sdk: str) -> None:
    stream = MessageStream(sdk=sdk, continues={"id": "m1", "role": "assistant", "parts": forged})
    out = [*stream.send(p.ApprovalRequest("a1", "c1")), *stream.close()]
    assert isinstance(out[-1], chunks.FinishChunk)
