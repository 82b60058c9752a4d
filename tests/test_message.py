import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.strategies import Case, cases, known_types
from usechat import chunks
from usechat.chunks import Chunk, chunk_from_json
from usechat.dialects import release
from usechat.errors import LocalProtocolError, StreamFailed, UIMessageStreamError, UnknownChunkType, UnknownRelease
from usechat.message import MessageBuilder
from usechat.ui_messages import UIMessage

Json = Any
FIRST_AND_NEWEST = ["5.0.0", "5", "6.0.0", "6", "7.0.0", "7"]
every_major = pytest.mark.parametrize("sdk", FIRST_AND_NEWEST)
P1, P2 = {"p": {"n": 1}}, {"p": {"n": 2}}


def read(*received: Chunk, sdk: str = "7", **options: Any) -> Json:
    builder = MessageBuilder(sdk=sdk, **options)
    for chunk in received:
        builder.receive(chunk)
    return builder.message


def parts(*received: Chunk, sdk: str = "7", **options: Any) -> Json:
    return read(*received, sdk=sdk, **options)["parts"]


def text(block_id: str, *pieces: str) -> list[Chunk]:
    return [chunks.TextStart(block_id), *(chunks.TextDelta(block_id, piece) for piece in pieces)]


# Text and reasoning.


@every_major
def test_text_grows_until_it_ends(sdk: str) -> None:
    received = [*text("t", "Hel", "lo"), chunks.TextEnd("t")]
    assert [parts(*received[:length], sdk=sdk) for length in range(1, 5)] == [
        [{"type": "text", "text": "", "state": "streaming"}],
        [{"type": "text", "text": "Hel", "state": "streaming"}],
        [{"type": "text", "text": "Hello", "state": "streaming"}],
        [{"type": "text", "text": "Hello", "state": "done"}],
    ]


@pytest.mark.parametrize(
    ("sdk", "part_id"),
    [("5.0.233", {}), ("5.0.234", {"id": "r"}), ("6.0.252", {}), ("6.0.253", {"id": "r"}), ("7.0.63", {"id": "r"})],
)
def test_reasoning_has_its_id_in_newer_releases(sdk: str, part_id: Json) -> None:
    received: list[Chunk] = [chunks.ReasoningStart("r"), chunks.ReasoningDelta("r", "Hm"), chunks.ReasoningEnd("r")]
    assert parts(*received, sdk=sdk) == [{"type": "reasoning", "text": "Hm", "state": "done", **part_id}]


def test_blocks_interleave_and_the_same_id_may_be_text_and_reasoning() -> None:
    received: list[Chunk] = [
        chunks.TextStart("x"),
        chunks.ReasoningStart("x"),
        chunks.TextDelta("x", "text"),
        chunks.ReasoningDelta("x", "thought"),
        chunks.ReasoningEnd("x"),
    ]
    assert parts(*received) == [
        {"type": "text", "text": "text", "state": "streaming"},
        {"type": "reasoning", "id": "x", "text": "thought", "state": "done"},
    ]


@every_major
def test_a_second_start_leaves_the_first_part_unfinished(sdk: str) -> None:
    received = [*text("t", "a"), *text("t", "b"), chunks.TextEnd("t")]
    assert [(part["text"], part["state"]) for part in parts(*received, sdk=sdk)] == [("a", "streaming"), ("b", "done")]


def test_provider_metadata_is_replaced_by_the_next() -> None:
    received: list[Chunk] = [
        chunks.TextStart("t", P1),
        chunks.TextDelta("t", ""),
        chunks.TextEnd("t", provider_metadata=P2),
    ]
    assert [parts(*received[:length])[0]["providerMetadata"] for length in (1, 2, 3)] == [P1, P1, P2]


@pytest.mark.parametrize(("sdk", "citations"), [("7.0.137", {}), ("7.0.138", {"citations": [{"source": {}}]})])
def test_citations_are_kept_by_the_releases_that_know_them(sdk: str, citations: Json) -> None:
    ended = parts(chunks.TextStart("t"), chunks.TextEnd("t", [{"source": {}}]), sdk=sdk)
    assert ended == [{"type": "text", "text": "", "state": "done", **citations}]


@pytest.mark.parametrize("sdk", ["5", "6", "7.0.78"])
def test_finish_step_forgets_open_blocks(sdk: str) -> None:
    builder = MessageBuilder(sdk=sdk)
    for chunk in (*text("t", "a"), chunks.FinishStep()):
        builder.receive(chunk)
    with pytest.raises(UIMessageStreamError):
        builder.receive(chunks.TextDelta("t", "b"))
    assert builder.message["parts"] == [{"type": "text", "text": "a", "state": "streaming"}]


def test_blocks_outlive_their_step_since_7_0_79() -> None:
    received = [*text("t", "a"), chunks.FinishStep(), chunks.TextDelta("t", "b")]
    assert parts(*received, sdk="7.0.79")[0]["text"] == "ab"


@pytest.mark.parametrize(
    "chunk",
    [chunks.TextDelta("x", ""), chunks.TextEnd("x"), chunks.ReasoningDelta("x", ""), chunks.ReasoningEnd("x")],
)
def test_a_block_that_was_not_started_cannot_go_on(chunk: Chunk) -> None:
    with pytest.raises(UIMessageStreamError, match=r"missing (text|reasoning) part") as raised:
        read(chunks.TextStart("t"), chunks.ReasoningStart("t"), chunk)
    assert raised.value.chunk_id == "x"


# Steps.


def test_a_step_is_reset_to_its_boundary() -> None:
    received: list[Chunk] = [
        *text("t", "kept"),
        chunks.ToolInputStart("c", "search"),
        chunks.ToolInputDelta("c", "[1"),
        chunks.StartStep(),
        chunks.TextStart("u"),
        chunks.ResetStep(),
    ]
    assert parts(*received) == [
        {"type": "text", "text": "kept", "state": "streaming"},
        {"type": "tool-search", "toolCallId": "c", "state": "input-streaming", "input": [1], "rawInput": "[1"},
        {"type": "step-start"},
    ]


@pytest.mark.parametrize(
    "chunk", [chunks.TextDelta("t", ""), chunks.TextDelta("u", ""), chunks.ToolInputDelta("c", "")]
)
def test_nothing_that_was_open_goes_on_after_a_reset(chunk: Chunk) -> None:
    opened: list[Chunk] = [
        chunks.TextStart("t"),
        chunks.ToolInputStart("c", "x"),
        chunks.StartStep(),
        chunks.TextStart("u"),
    ]
    with pytest.raises(UIMessageStreamError):
        read(*opened, chunks.ResetStep(), chunk)


# Parts that come whole.


@pytest.mark.parametrize(
    ("chunk", "part"),
    [
        (
            chunks.SourceUrl("s", "https://a.example", "A", P1),
            {"type": "source-url", "sourceId": "s", "url": "https://a.example", "title": "A", "providerMetadata": P1},
        ),
        (
            chunks.SourceDocument("s", "text/plain", "D"),
            {"type": "source-document", "sourceId": "s", "mediaType": "text/plain", "title": "D"},
        ),
        (chunks.ReasoningFile("u", "a/b"), {"type": "reasoning-file", "mediaType": "a/b", "url": "u"}),
        (chunks.Custom("k.x", P1), {"type": "custom", "kind": "k.x", "providerMetadata": P1}),
        (
            chunks.SteeringMessage("u", [{"type": "text", "text": "x"}]),
            {"type": "steering-message", "id": "u", "parts": [{"type": "text", "text": "x"}]},
        ),
        (chunks.StartStep(), {"type": "step-start"}),
    ],
)
def test_a_chunk_becomes_a_part(chunk: Chunk, part: Json) -> None:
    assert parts(chunk) == [part]


@pytest.mark.parametrize(
    ("sdk", "metadata"),
    [("5", {}), ("6.0.112", {}), ("6.0.114", {"providerMetadata": P1}), ("7", {"providerMetadata": P1})],
)
def test_files_keep_their_metadata_in_newer_releases(sdk: str, metadata: Json) -> None:
    assert parts(chunks.File("u", "a/b", P1), sdk=sdk) == [{"type": "file", "mediaType": "a/b", "url": "u", **metadata}]


def test_tools_and_texts_share_the_parts() -> None:
    received: list[Chunk] = [
        chunks.ToolInputAvailable("c", "search", {"q": 1}),
        chunks.ToolOutputAvailable("c", None),
        chunks.TextStart("t"),
    ]
    assert parts(*received) == [
        {"type": "tool-search", "toolCallId": "c", "state": "output-available", "input": {"q": 1}, "output": None},
        {"type": "text", "text": "", "state": "streaming"},
    ]


# Data.


@every_major
def test_data_with_the_same_type_and_id_is_replaced_in_place(sdk: str) -> None:
    received: list[Chunk] = [
        chunks.Data("data-x", {"a": 1}, "d"),
        chunks.Data("data-y", 0, "d"),
        chunks.Data("data-x", 2),
        chunks.Data("data-x", {"b": 2}, "d"),
        chunks.Data("data-x", 3),
    ]
    assert parts(*received, sdk=sdk) == [
        {"type": "data-x", "id": "d", "data": {"b": 2}},
        {"type": "data-y", "id": "d", "data": 0},
        {"type": "data-x", "data": 2},
        {"type": "data-x", "data": 3},
    ]


def test_the_whole_data_chunk_becomes_the_part() -> None:
    chunk = chunks.Data("data-x", 1, "d", False, {"extra": [1]})
    assert parts(chunk) == [{"type": "data-x", "id": "d", "data": 1, "transient": False, "extra": [1]}]


def test_transient_data_leaves_no_part() -> None:
    assert parts(chunks.Data("data-x", 1, transient=True)) == []


# The message itself.


def test_start_names_the_message() -> None:
    assert read(message_id="ours") == {"id": "ours", "role": "assistant", "parts": []}
    assert read(chunks.Start("theirs"), message_id="ours")["id"] == "theirs"
    assert read(chunks.Start(), message_id="ours")["id"] == "ours"


def test_metadata_is_merged_from_every_chunk_that_has_some() -> None:
    received: list[Chunk] = [
        chunks.Start(message_metadata={"a": {"x": 1}}),
        chunks.MessageMetadata({"a": {"y": 2}}),
        chunks.MessageMetadata(None),
        chunks.Finish(message_metadata={"b": 3}),
        chunks.Finish(),
    ]
    assert read(*received)["metadata"] == {"a": {"x": 1, "y": 2}, "b": 3}


def test_metadata_that_cannot_be_merged_fails_with_the_words_of_javascript() -> None:
    builder = MessageBuilder()
    builder.receive(chunks.MessageMetadata("text"))
    with pytest.raises(UIMessageStreamError, match="Cannot use 'in' operator to search for 'a' in text") as raised:
        builder.receive(chunks.Start("named all the same", {"a": 1}))
    assert raised.value.chunk_type == "start"
    message: Json = builder.message
    assert message == {"id": "named all the same", "role": "assistant", "metadata": "text", "parts": []}


@pytest.mark.parametrize(("sdk", "reason"), [("5.0.91", None), ("5.0.92", "length"), ("7", "length")])
def test_the_finish_reason_is_kept(sdk: str, reason: str | None) -> None:
    builder = MessageBuilder(sdk=sdk)
    builder.receive(chunks.Finish("length"))
    builder.receive(chunks.Finish())
    assert builder.finish_reason == reason


def test_abort_changes_nothing() -> None:
    assert parts(chunks.Abort("stopped")) == []


def test_an_error_ends_the_turn() -> None:
    with pytest.raises(StreamFailed, match=r"^broken$"):
        read(chunks.Error("broken"))


@pytest.mark.parametrize(
    ("sdk", "chunk"),
    [
        ("5", chunks.ToolApprovalRequest("a", "c")),
        ("5.0.6", chunks.ToolInputError("c", "t", 1, "e")),
        ("6", chunks.ToolApprovalResponse("a", True)),
        ("7.0.69", chunks.ResetStep()),
    ],
)
def test_a_chunk_that_the_release_does_not_know_cannot_be_received(sdk: str, chunk: Chunk) -> None:
    with pytest.raises(UnknownChunkType, match="does not know the chunk type"):
        read(chunk, sdk=sdk)


def test_a_reader_is_of_one_release() -> None:
    with pytest.raises(UnknownRelease):
        MessageBuilder(sdk="any")


# What the page shows.


@pytest.mark.parametrize(
    ("received", "updates"),
    [
        ([chunks.Start()], 0),
        ([chunks.StartStep(), chunks.FinishStep()], 0),
        ([chunks.Data("data-x", 1, transient=True)], 0),
        ([chunks.Finish("stop"), chunks.Abort(), chunks.MessageMetadata(None)], 0),
        ([chunks.StartStep(), chunks.ResetStep()], 0),
        ([chunks.Start("m")], 1),
        ([chunks.Start(message_metadata={})], 1),
        ([chunks.Finish(message_metadata={})], 1),
        ([chunks.TextStart("t"), chunks.TextDelta("t", "x"), chunks.TextEnd("t"), chunks.ResetStep()], 4),
        ([chunks.ToolInputAvailable("c", "t", 1), chunks.Data("data-x", 1)], 2),
    ],
)
def test_the_page_hears_of_what_can_be_seen(received: list[Chunk], updates: int) -> None:
    builder = MessageBuilder()
    for chunk in received:
        builder.receive(chunk)
    assert (builder.updates, builder.shown) == (updates, updates > 0)


def test_a_continued_message_is_shown_from_the_beginning() -> None:
    builder = MessageBuilder(message={"id": "m", "role": "assistant", "parts": []})
    assert (builder.updates, builder.shown) == (0, True)


# Continuing a message.


def test_a_message_is_continued_with_all_it_has_and_left_as_it_was() -> None:
    message: Json = {
        "id": "m",
        "role": "assistant",
        "metadata": {"a": 1},
        "createdAt": "today",
        "parts": [
            {"type": "tool-search", "toolCallId": "c", "state": "input-available", "input": {"q": 1}},
            {"type": "data-x", "id": "d", "data": {"n": 1}},
        ],
    }
    before = copy.deepcopy(message)
    received: list[Chunk] = [
        chunks.ToolOutputAvailable("c", 1),
        chunks.Data("data-x", 2, "d"),
        chunks.MessageMetadata({"b": 2}),
        chunks.StartStep(),
    ]
    assert read(*received, message=message) == {
        "id": "m",
        "role": "assistant",
        "metadata": {"a": 1, "b": 2},
        "createdAt": "today",
        "parts": [
            {"type": "tool-search", "toolCallId": "c", "state": "output-available", "input": {"q": 1}, "output": 1},
            {"type": "data-x", "id": "d", "data": 2},
            {"type": "step-start"},
        ],
    }
    assert message == before


def test_a_message_of_the_user_is_not_continued() -> None:
    user: UIMessage = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    assert read(message=user, message_id="m") == {"id": "m", "role": "assistant", "parts": []}


# The copy.


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("hi", "message must be an object with id, role and parts, not a string"),
        ({"role": "assistant"}, "message.parts must be a list of parts, not null"),
        ({"role": "assistant", "parts": "x"}, "message.parts must be a list of parts, not a string"),
        (
            {"role": "assistant", "parts": ["x"]},
            "message.parts[0] must be an object with a string 'type', not a string",
        ),
        (
            {"role": "assistant", "parts": [{"type": "step-start"}, {"text": "x"}]},
            "message.parts[1] must be an object with a string 'type', not one without it",
        ),
    ],
)
def test_what_is_no_message_cannot_be_continued(message: Any, text: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        MessageBuilder(message=message)
    assert str(caught.value) == text


@pytest.mark.parametrize("received", [{"type": "start"}, b"data: {}", None])
def test_what_is_no_chunk_cannot_be_received(received: Any) -> None:
    with pytest.raises(LocalProtocolError, match=rf"takes a chunk of usechat.chunks, not {type(received).__name__}; "):
        MessageBuilder().receive(received)


def test_the_message_is_a_fresh_copy_in_plain_json() -> None:
    output = {"at": datetime(2026, 1, 1, tzinfo=UTC), "nan": float("nan"), "items": (1, 2.0)}
    builder = MessageBuilder()
    builder.receive(chunks.ToolInputAvailable("c", "t", {}))
    builder.receive(chunks.ToolOutputAvailable("c", output))
    output["items"] = "changed"
    message: Json = builder.message
    assert message["parts"][0]["output"] == {"at": "2026-01-01T00:00:00Z", "nan": None, "items": [1, 2]}
    message["parts"][0]["output"]["items"].append(3)
    message["parts"].clear()
    assert json.loads(json.dumps(builder.message))["parts"][0]["output"]["items"] == [1, 2]


@given(case=cases, sdk=st.sampled_from(FIRST_AND_NEWEST))
def test_looking_between_the_chunks_changes_nothing(case: Case, sdk: str) -> None:
    watched, unwatched = (MessageBuilder(sdk=sdk, message=case.message) for _ in range(2))
    for chunk in known_types(case.chunks, release(sdk)):
        failures = []
        for builder in (watched, unwatched):
            try:
                builder.receive(chunk_from_json(chunk))
            except (StreamFailed, UIMessageStreamError) as error:
                failures.append(str(error))
        watched.message  # noqa: B018
        assert failures in ([], [*failures[:1]] * 2)
    assert watched.message == unwatched.message
