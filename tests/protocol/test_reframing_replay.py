"""A reader that comes late gets the same message: shortened, for another release, or behind what was there before."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.part_strategies import continued_messages, part_lists
from usechat import parts
from usechat.errors import StreamFailed
from usechat.parts import Part, Text, ToolInputStart
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.reframing import Reframer, compact, earlier_parts, grown_parts, shorten, unseen_parts
from usechat.protocol.sse import DONE, ChunkDecoder, FrameStream
from usechat.protocol.stream import MessageStream
from usechat.protocol.ui_messages import UIMessage

pytestmark = pytest.mark.slow


def frames_of(source_parts: list[Part], sdk: str = "7", continues: Any = None) -> bytes:
    frames = FrameStream(MessageStream(message_id="m1", sdk=sdk, continues=continues))
    return b"".join([frames.send(part) for part in source_parts]) + frames.close()


def read(frames: bytes, sdk: str = "7", message: Any = None) -> tuple[UIMessage, str | None]:
    builder = MessageBuilder(sdk=sdk, message=message)
    error = None
    try:
        for chunk in ChunkDecoder().receive(frames):
            builder.receive(chunk)
    except StreamFailed as failure:
        error = str(failure)
    return builder.message, error


def without_ids(message: UIMessage) -> Any:
    """Return a message without the ids of its reasoning blocks, which are made anew."""
    return {**message, "parts": [{k: v for k, v in part.items() if k != "id"} for part in message["parts"]]}


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(
            [
                chunks.TextStartChunk("1"),
                chunks.TextDeltaChunk("1", "a"),
                chunks.TextDeltaChunk("1", "b"),
                chunks.TextEndChunk("1"),
            ],
            [chunks.TextStartChunk("1"), chunks.TextDeltaChunk("1", "ab"), chunks.TextEndChunk("1")],
            id="one-delta-per-block",
        ),
        pytest.param(
            [
                chunks.TextStartChunk("1"),
                chunks.TextDeltaChunk("1", "a"),
                chunks.ReasoningStartChunk("1"),
                chunks.ReasoningDeltaChunk("1", "r"),
                chunks.TextDeltaChunk("1", "b", {"p": {"x": 1}}),
                chunks.ReasoningDeltaChunk("1", "s"),
            ],
            [
                chunks.TextStartChunk("1"),
                chunks.TextDeltaChunk("1", "ab", {"p": {"x": 1}}),
                chunks.ReasoningStartChunk("1"),
                chunks.ReasoningDeltaChunk("1", "rs"),
            ],
            id="interleaved-blocks-and-their-last-metadata",
        ),
        pytest.param(
            [
                chunks.TextStartChunk("1"),
                chunks.TextDeltaChunk("1", "a"),
                chunks.TextEndChunk("1"),
                chunks.TextStartChunk("1"),
                chunks.TextDeltaChunk("1", "b"),
            ],
            [
                chunks.TextStartChunk("1"),
                chunks.TextDeltaChunk("1", "a"),
                chunks.TextEndChunk("1"),
                chunks.TextStartChunk("1"),
                chunks.TextDeltaChunk("1", "b"),
            ],
            id="an-id-used-again-is-another-block",
        ),
        pytest.param(
            [
                chunks.ToolInputStartChunk("c", "t"),
                chunks.ToolInputDeltaChunk("c", '{"a":'),
                chunks.ToolInputDeltaChunk("c", "1}"),
                chunks.ReasoningStartChunk("9"),
            ],
            [
                chunks.ToolInputStartChunk("c", "t"),
                chunks.ToolInputDeltaChunk("c", '{"a":1}'),
                chunks.ReasoningStartChunk("9"),
            ],
            id="tool-inputs-too",
        ),
    ],
)
def test_compact(stream: list[Chunk], expected: list[Chunk]) -> None:
    assert compact(stream) == expected


@settings(max_examples=200)
@given(part_lists)
def test_a_shortened_run_gives_the_same_message(source_parts: list[Part]) -> None:
    frames = frames_of(source_parts)
    short = shorten(frames)
    assert read(short) == read(frames)
    assert short.endswith(DONE)
    assert len(short) <= len(frames)


def test_a_run_that_goes_on_is_shortened_without_an_ending() -> None:
    frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
    so_far = frames.send(parts.Text("a")) + frames.send(parts.Text("b"))
    assert shorten(so_far).endswith(b'"delta":"ab"}\n\n')


@settings(max_examples=200)
@given(
    part_lists.filter(
        lambda source_parts: not any(isinstance(part, parts.ResetStep | parts.Step) for part in source_parts)
    )
)
def test_a_run_made_anew_gives_the_same_message(source_parts: list[Part]) -> None:
    frames = frames_of(source_parts)
    again = Reframer("m1", "7").receive(frames)
    message, error = read(again)
    original, original_error = read(frames)
    assert without_ids(message) == without_ids(original)
    assert error == original_error


@settings(max_examples=100)
@given(part_lists, st.sampled_from(["5", "6", "any"]), st.integers(1, 40))
def test_a_run_made_for_another_release_is_legal_there_in_any_split(
    source_parts: list[Part], sdk: str, size: int
) -> None:
    frames = frames_of(source_parts)
    reframer = Reframer("m1", sdk)
    whole = b"".join(reframer.receive(frames[i : i + size]) for i in range(0, len(frames), size))
    fives = () if b'"type":"tool-approval-request"' in whole else ("5.0.0",)
    for release in (*fives, "6.0.0", "7.0.0") if sdk == "any" else (sdk,):
        read(whole, release)
    assert whole.count(b'"type":"finish"') <= 1


@pytest.mark.parametrize("sdk", ["5", "6", "7", "any"])
@pytest.mark.parametrize("size", [1, 10_000])
def test_a_run_without_steps_has_none_for_another_release_either(sdk: str, size: int) -> None:
    source_parts: list[Part] = [
        parts.Start(steps=False),
        parts.Data("x", 1),
        parts.Step(),
        parts.Text("a"),
        parts.Step(),
        parts.Reasoning("b"),
        parts.Finish(),
    ]
    frames, reframer = frames_of(source_parts, "6"), Reframer("m1", sdk)
    again = b"".join(reframer.receive(frames[i : i + size]) for i in range(0, len(frames), size))
    assert b"start-step" not in again
    assert b"finish-step" not in again
    message, error = read(again, "6" if sdk == "any" else sdk)
    assert ([part["type"] for part in message["parts"]], error) == (["data-x", "text", "reasoning"], None)


CONTINUED: dict[str, Any] = {
    "id": "m1",
    "role": "assistant",
    "parts": [
        {"type": "step-start"},
        {"type": "text", "text": "Let me see.", "state": "done"},
        {"type": "reasoning", "text": "Hm.", "state": "done"},
        {"type": "tool-ask", "toolCallId": "c1", "state": "input-available", "input": {"q": 1}},
        {"type": "tool-run", "toolCallId": "c2", "state": "output-available", "input": {}, "output": 1},
        {
            "type": "dynamic-tool",
            "toolName": "run",
            "toolCallId": "c3",
            "state": "output-error",
            "input": {},
            "errorText": "x",
        },
        {
            "type": "tool-remove",
            "toolCallId": "c4",
            "state": "approval-responded",
            "input": {},
            "approval": {"id": "a4", "approved": True},
        },
        {"type": "data-progress", "id": "d1", "data": {"done": 1}},
        {"type": "source-url", "sourceId": "s1", "url": "https://example.com"},
        {"type": "odd"},
    ],
}


def test_what_was_there_before_waits_for_the_start_of_the_message() -> None:
    frames = frames_of([parts.ToolResult("c1", 2), parts.Text("Done.")], continues=CONTINUED)
    reframer = Reframer("m1", "7", earlier=CONTINUED)
    assert reframer.receive(frames[:10]) == b""
    assert reframer.receive(frames[10:]) == Reframer("m1", "7", earlier=CONTINUED).receive(frames)


def test_a_continuation_is_replayed_behind_what_was_there_before() -> None:
    frames = frames_of([parts.ToolResult("c1", 2), parts.ToolResult("c4", 3), parts.Text("Done.")], continues=CONTINUED)
    message, _ = read(Reframer("m1", "7", earlier=CONTINUED).receive(frames))
    summary = [(part["type"], part.get("state"), part.get("text"), part.get("output")) for part in message["parts"]]
    assert summary == [
        ("step-start", None, None, None),
        ("text", "done", "Let me see.", None),
        ("reasoning", "done", "Hm.", None),
        ("tool-ask", "output-available", None, 2),
        ("tool-run", "output-available", None, 1),
        ("dynamic-tool", "output-error", None, None),
        ("tool-remove", "output-available", None, 3),
        ("data-progress", None, None, None),
        ("source-url", None, None, None),
        ("step-start", None, None, None),
        ("text", "done", "Done.", None),
    ]


def test_a_denied_call_stays_denied() -> None:
    denied = {
        "type": "tool-t",
        "toolCallId": "c1",
        "state": "output-denied",
        "input": {},
        "approval": {"id": "a", "approved": False},
    }
    assert earlier_parts({"parts": [denied]}) == [
        parts.ToolCall("c1", "t", {}),
        parts.ApprovalRequest("a", "c1"),
        parts.ApprovalResponse("a", False),
        parts.ToolDenied("c1"),
    ]


@settings(max_examples=100)
@given(part_lists, continued_messages(approvals=True))
def test_any_continuation_can_be_replayed(source_parts: list[Part], continues: dict[str, Any]) -> None:
    continues = {**continues, "id": "m1"}
    message, _ = read(Reframer("m1", "7", earlier=continues).receive(frames_of(source_parts, continues=continues)))
    assert message["id"] == "m1"
    assert message["parts"][1]["type"] == "text"


def approved_call(state: str, **fields: Any) -> dict[str, Any]:
    approval = {"id": "a", "approved": True}
    return {"type": "tool-t", "toolCallId": "c1", "state": state, "input": {}, "approval": approval, **fields}


@pytest.mark.parametrize(("sdk", "is_shown"), [("6", False), ("7", True)])
def test_an_answered_approval_is_shown_only_where_its_answer_can_be(sdk: str, is_shown: bool) -> None:
    continues = {"id": "m1", "role": "assistant", "parts": [approved_call("approval-responded")]}
    frames = frames_of([parts.ToolResult("c1", 1)], sdk=sdk, continues=continues)
    replay = ChunkDecoder().receive(Reframer("m1", sdk, earlier=continues).receive(frames))
    assert any(isinstance(chunk, chunks.ToolApprovalRequestChunk) for chunk in replay) is is_shown
    assert any(isinstance(chunk, chunks.ToolOutputAvailableChunk) for chunk in replay)


@pytest.mark.parametrize("sdk", ["6", "7"])
def test_a_page_that_has_the_continued_message_gets_only_what_follows(sdk: str) -> None:
    continues = {"id": "m1", "role": "assistant", "parts": [approved_call("approval-responded")]}
    frames = frames_of([parts.ToolResult("c1", 1), parts.Text("Done.")], continues=continues)
    message, _ = read(Reframer("m1", sdk, continues=continues).receive(frames), sdk, continues)
    summary = [(part["type"], part.get("state"), part.get("text")) for part in message["parts"]]
    assert summary == [("tool-t", "output-available", None), ("step-start", None, None), ("text", "done", "Done.")]


def test_a_call_of_the_continued_message_is_replayed_with_all_that_describes_it() -> None:
    call = {
        "type": "tool-t",
        "toolCallId": "c1",
        "state": "output-available",
        "input": {},
        "output": 1,
        "title": "Look it up",
        "providerExecuted": True,
        "callProviderMetadata": {"p": {"k": 1}},
        "toolMetadata": {"server": "s"},
    }
    continues = {"id": "m1", "role": "assistant", "parts": [{"type": "step-start"}, call]}
    frames = frames_of([parts.Text("Done.")], continues=continues)
    message, _ = read(Reframer("m1", "7", earlier=continues).receive(frames))
    assert message["parts"][1] == call


def test_a_page_that_is_behind_gets_the_outcomes_and_parts_that_it_lacks() -> None:
    settled = {"type": "tool-t", "toolCallId": "c0", "state": "output-available", "input": {}, "output": 0}
    text = {"type": "text", "text": "Done."}
    copy = {"parts": [settled, approved_call("approval-responded")]}
    message = {"parts": [settled, approved_call("output-available", output=1), text]}
    assert unseen_parts(message, copy) == [
        parts.ToolResult("c1", 1),
        parts.Text("Done.", lane="earlier 0"),
        parts.BlockEnd(lane="earlier 0"),
    ]
    assert unseen_parts(message, message) == []


def test_a_provider_call_that_waits_beside_another_is_announced_again_when_its_run_is_written_again() -> None:
    provider_call = parts.ToolCall("c1", "delete", {}, provider_executed=True)
    frames = frames_of([provider_call, parts.ApprovalRequest("a1", "c1"), parts.ToolCall("c2", "time", {})])
    again = Reframer("m1", "7").receive(frames)
    announced = [
        (chunk.provider_executed, chunk.provider_metadata)
        for chunk in ChunkDecoder().receive(again)
        if isinstance(chunk, chunks.ToolInputAvailableChunk) and chunk.tool_call_id == "c1"
    ]
    assert announced == [(True, None), (False, {"usechat": {"providerExecuted": True}})]


class Copy:
    """A page that is told how a message has grown, and begins again where something was taken back."""

    def __init__(self) -> None:
        self._message: Any = {"parts": []}
        self._begin()

    def _begin(self) -> None:
        self._frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
        self._decoder = ChunkDecoder()
        self.builder = MessageBuilder(sdk="7")

    def see(self, message: UIMessage) -> None:
        grown = grown_parts(self._message, message)
        if grown is None:
            self._begin()
            grown = grown_parts({"parts": []}, message)
        assert grown is not None
        self._message = message
        self._show(b"".join([self._frames.send(part) for part in grown]))

    def end(self) -> None:
        self._show(self._frames.close())

    def _show(self, frames: bytes) -> None:
        for chunk in self._decoder.receive(frames):
            self.builder.receive(chunk)


_SHOWN = ("type", "text", "toolCallId", "state", "approval", "input", "output", "errorText", "data", "url")


def shown(message: UIMessage) -> list[dict[str, Any]]:
    """Return what a page shows of a message: no steps, of a failed call not its input, and an answer No as a denial."""
    ui_parts: list[dict[str, Any]] = [
        {key: part.get(key) for key in _SHOWN} for part in message["parts"] if part["type"] != "step-start"
    ]
    for part in ui_parts:
        if part["state"] == "output-error":
            part["input"] = None
        if (part["approval"] or {}).get("approved") is False:
            part["state"] = "output-denied"
        del part["approval"]
    return ui_parts


@settings(max_examples=100)
@given(part_lists, st.integers(1, 5))
@example([ToolInputStart("c1", "search"), Text("so")], 2)
def test_a_message_that_is_seen_now_and_then_is_the_same_in_the_end(source_parts: list[Part], pause: int) -> None:
    builder, copy = MessageBuilder(sdk="7"), Copy()
    with suppress(StreamFailed):
        for number, chunk in enumerate(ChunkDecoder().receive(frames_of(source_parts))):
            builder.receive(chunk)
            if number % pause == 0:
                copy.see(builder.message)
    copy.see(builder.message)
    copy.end()
    assert shown(copy.builder.message) == shown(builder.message)


CALL: dict[str, Any] = {"type": "tool-t", "toolCallId": "c1", "input": {"q": 1}}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(
            {"type": "text", "text": "Hel", "state": "streaming"},
            {"type": "text", "text": "Hello", "state": "done"},
            [parts.Text("lo", lane="grown 0"), parts.BlockEnd(lane="grown 0")],
            id="text",
        ),
        pytest.param(
            {**CALL, "state": "input-streaming"},
            {**CALL, "state": "output-available", "output": 1},
            [parts.ToolCall("c1", "t", {"q": 1}), parts.ToolResult("c1", 1)],
            id="unfinished input",
        ),
        pytest.param(
            {**CALL, "state": "output-available", "output": 1, "preliminary": True},
            {**CALL, "state": "output-available", "output": 2},
            [parts.ToolResult("c1", 2)],
            id="preliminary result",
        ),
        pytest.param(
            {**CALL, "state": "input-available"},
            {**CALL, "state": "approval-requested", "approval": {"id": "a"}},
            [parts.ApprovalRequest("a", "c1")],
            id="question",
        ),
        pytest.param(
            {"type": "data-x", "id": "d", "data": 1},
            {"type": "data-x", "id": "d", "data": 2},
            [parts.Data("x", 2, "d")],
            id="data",
        ),
        pytest.param(
            {**CALL, "state": "output-available", "output": 1},
            {**CALL, "state": "output-available", "output": 2},
            None,
            id="another result",
        ),
        pytest.param(
            {**CALL, "state": "input-streaming"},
            {**CALL, "toolCallId": "c2", "state": "input-available"},
            None,
            id="another call",
        ),
        pytest.param(
            {"type": "text", "text": "Hello", "state": "streaming"},
            {"type": "text", "text": "Help", "state": "streaming"},
            None,
            id="another text",
        ),
    ],
)
def test_what_a_part_has_got_since(before: Any, after: Any, expected: list[Part] | None) -> None:
    assert grown_parts({"parts": [before]}, {"parts": [after]}) == expected


def test_metadata_grows_too() -> None:
    message = {"parts": [], "metadata": {"a": 1}}
    assert grown_parts({"parts": []}, message) == [parts.Metadata({"a": 1})]
    assert grown_parts(message, message) == []
