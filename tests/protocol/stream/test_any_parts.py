"""What holds for any parts at all, in any order."""

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.part_strategies import LANES, any_part, continued_messages, endings, part_lists
from usechat.parts import Part
from usechat.protocol import chunks
from usechat.protocol.chunks import (
    AbortChunk,
    Chunk,
    DataChunk,
    ErrorChunk,
    FinishChunk,
    FinishStepChunk,
    ReasoningDeltaChunk,
    ReasoningEndChunk,
    ReasoningStartChunk,
    ResetStepChunk,
    StartChunk,
    StartStepChunk,
    TextDeltaChunk,
    TextEndChunk,
    TextStartChunk,
    ToolApprovalRequestChunk,
    ToolInputAvailableChunk,
    ToolInputDeltaChunk,
    ToolInputErrorChunk,
    ToolInputStartChunk,
    ToolOutputAvailableChunk,
    ToolOutputDeniedChunk,
    ToolOutputErrorChunk,
)
from usechat.protocol.message import MessageBuilder
from usechat.protocol.releases import CHUNKS, releases_for
from usechat.protocol.stream import MessageStream

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip


def run(parts: list[Part], sdk: str, continues: dict[str, Any] | None) -> list[Chunk]:
    stream = MessageStream(message_id="m1", sdk=sdk, continues=continues)
    return [chunk for part in parts for chunk in stream.send(part)] + stream.close()


sdks = st.sampled_from(["any", "5", "6", "7", "5.0.0", "6.0.150", "7.0.31"])

continuations = st.none() | continued_messages(approvals=True)


@given(part_lists, sdks, continuations)
def test_there_is_one_start_and_one_ending(parts: list[Part], sdk: str, continues: dict[str, Any] | None) -> None:
    out = run(parts, sdk, continues)
    kinds = [type(chunk) for chunk in out]
    assert kinds[0] is StartChunk
    assert kinds[-1] is FinishChunk
    assert [kinds.count(kind) for kind in (StartChunk, FinishChunk)] == [1, 1]
    assert kinds.count(ErrorChunk) + kinds.count(AbortChunk) <= 1
    match kinds[-2]:
        case chunks.ErrorChunk:
            assert isinstance(next(part for part in parts if isinstance(part, p.Error | p.Abort | p.Finish)), p.Error)
        case chunks.AbortChunk:
            assert isinstance(next(part for part in parts if isinstance(part, p.Error | p.Abort | p.Finish)), p.Abort)
        case last:
            # A step that an earlier turn began may go on to the end.
            assert last is FinishStepChunk or (continues is not None and StartStepChunk not in kinds)


@given(part_lists, sdks, continuations)
def test_steps_alternate_and_hold_all_blocks(parts: list[Part], sdk: str, continues: dict[str, Any] | None) -> None:
    out = run(parts, sdk, continues)
    # A continued message may go on in its last step, which has calls without outcome then.
    open_step = inherited = continues is not None
    open_blocks, seen_blocks, open_calls = set[str](), set[str](), set[str]()
    after_output = False
    for number, chunk in enumerate(out):
        match chunk:
            case StartStepChunk():
                assert inherited or not open_step
                assert open_calls == set() or is_question(out[number + 1]), "a call without outcome holds its step"
                open_step, inherited, after_output = True, False, False
            case FinishStepChunk() | FinishChunk():
                assert open_step or isinstance(chunk, FinishChunk)
                assert open_blocks == set()
                open_step, inherited = False, False
            case ResetStepChunk():
                assert open_blocks == set()
                after_output = False
                open_calls.clear()
            case TextStartChunk() | ReasoningStartChunk():
                assert open_step
                assert inherited or open_calls or not after_output, (
                    "text behind a result makes the client post for ever"
                )
                assert chunk.id not in seen_blocks, "ids are fresh"
                open_blocks.add(chunk.id)
                seen_blocks.add(chunk.id)
            case TextDeltaChunk() | ReasoningDeltaChunk():
                assert chunk.id in open_blocks
            case TextEndChunk() | ReasoningEndChunk():
                open_blocks.remove(chunk.id)
            case ToolInputStartChunk() | ToolInputAvailableChunk():
                open_calls.add(chunk.tool_call_id)
            case ToolOutputAvailableChunk(preliminary=True):
                pass
            case ToolOutputAvailableChunk() | ToolOutputErrorChunk() | ToolOutputDeniedChunk() | ToolInputErrorChunk():
                after_output = after_output or chunk.tool_call_id in open_calls
                open_calls.discard(chunk.tool_call_id)


def is_question(chunk: Chunk) -> bool:
    """Tell whether the chunk asks for an approval through the client-side tool."""
    return isinstance(chunk, ToolInputAvailableChunk) and chunk.tool_name == "approval"


@given(part_lists, sdks, continuations)
def test_every_chunk_and_field_is_known_to_the_client(
    parts: list[Part], sdk: str, continues: dict[str, Any] | None
) -> None:
    releases = releases_for(sdk)
    for chunk in run(parts, sdk, continues):
        if not isinstance(chunk, DataChunk):
            chunk_type = chunks.type_of(chunk)
            assert releases.knows(chunk_type)
            for key in chunks.chunk_to_json(chunk):
                assert key == "type" or key not in CHUNKS[chunk_type].fields or releases.knows(chunk_type, key)


@given(st.lists(any_part.filter(lambda part: not isinstance(part, p.ResetStep)), max_size=20), endings, sdks)
def test_nothing_that_is_said_is_lost_doubled_or_reordered_in_its_lane(
    parts: list[Part], ending: Part, sdk: str
) -> None:
    tokens: dict[str, list[str]] = {lane: [] for lane in LANES}
    numbered_parts: list[Part] = []
    for number, part in enumerate(parts):
        if isinstance(part, p.Text):
            tokens[part.lane].append(f"<{number}>")
            numbered_parts.append(p.Text(f"<{number}>", part.provider_metadata, lane=part.lane))
        else:
            numbered_parts.append(part)
    stream = MessageStream(message_id="m1", sdk=sdk)
    builder = MessageBuilder(sdk="7" if sdk == "any" else sdk)
    for chunk in [chunk for part in [*numbered_parts, ending] for chunk in stream.send(part)]:
        if isinstance(chunk, ErrorChunk):
            break
        builder.receive(chunk)
    message: Any = builder.message
    page = "".join(part["text"] for part in message["parts"] if part["type"] == "text")
    page_tokens = re.findall("<[0-9]+>", page)
    assert sorted(page_tokens) == sorted(token for lane in tokens.values() for token in lane)
    for lane in tokens.values():
        assert [token for token in page_tokens if token in lane] == lane


@given(part_lists, sdks)
def test_no_tool_is_left_half_said(parts: list[Part], sdk: str) -> None:
    state: dict[str, str] = {}
    out = run(parts, sdk, None)
    for chunk in out:
        match chunk:
            case ToolInputStartChunk() | ToolInputDeltaChunk():
                state[chunk.tool_call_id] = "streaming"
            case ToolInputAvailableChunk():
                state[chunk.tool_call_id] = "waiting"
            case ToolOutputAvailableChunk(preliminary=True):
                state[chunk.tool_call_id] = "interim"
            case ToolOutputAvailableChunk() | ToolOutputErrorChunk() | ToolOutputDeniedChunk() | ToolInputErrorChunk():
                state[chunk.tool_call_id] = "settled"
            case ToolApprovalRequestChunk():
                state[chunk.tool_call_id] = "asked"
            case ResetStepChunk():
                state.clear()
    allowed = {"settled", "waiting", "asked"} if isinstance(out[-2], FinishStepChunk) else {"settled", "asked"}
    assert set(state.values()) <= allowed
