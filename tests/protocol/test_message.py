import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.strategies import Case, cases, known_types
from usechat.errors import LocalProtocolError, StreamFailed, UIMessageStreamError, UnknownChunkType, UnknownRelease
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk, chunk_from_json
from usechat.protocol.message import MessageBuilder
from usechat.protocol.releases import release

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
    return [chunks.TextStartChunk(block_id), *(chunks.TextDeltaChunk(block_id, piece) for piece in pieces)]


# Text and reasoning.


@every_major
def test_text_grows_until_it_ends(sdk: str) -> None:
    received = [*text("t", "Hel", "lo"), chunks.TextEndChunk("t")]
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
    received: list[Chunk] = [
        chunks.ReasoningStartChunk("r"),
        chunks.ReasoningDeltaChunk("r", "Hm"),
        chunks.ReasoningEndChunk("r"),
    ]
    assert parts(*received, sdk=sdk) == [{"type": "reasoning", "text": "Hm", "state": "done", **part_id}]


def test_blocks_interleave_and_the_same_id_may_be_text_and_reasoning() -> None:
    received: list[Chunk] = [
        chunks.TextStartChunk("x"),
        chunks.ReasoningStartChunk("x"),
        chunks.TextDeltaChunk("x", "text"),
        chunks.ReasoningDeltaChunk("x", "thought"),
        chunks.ReasoningEndChunk("x"),
    ]
    assert parts(*received) == [
        {"type": "text", "text": "text", "state": "streaming"},
        {"type": "reasoning", "id": "x", "text": "thought", "state": "done"},
    ]


@every_major
def test_a_second_start_leaves_the_first_part_unfinished(sdk: str) -> None:
    received = [*text("t", "a"), *text("t", "b"), chunks.TextEndChunk("t")]
    assert [(part["text"], part["state"]) for part in parts(*received, sdk=sdk)] == [("a", "streaming"), ("b", "done")]


def test_provider_metadata_is_replaced_by_the_next() -> None:
    received: list[Chunk] = [
        chunks.TextStartChunk("t", P1),
        chunks.TextDeltaChunk("t", ""),
        chunks.TextEndChunk("t", provider_metadata=P2),
    ]
    assert [parts(*received[:length])[0]["providerMetadata"] for length in (1, 2, 3)] == [P1, P1, P2]


@pytest.mark.parametrize(("sdk", "citations"), [("7.0.137", {}), ("7.0.138", {"citations": [{"source": {}}]})])
def test_citations_are_kept_by_the_releases_that_know_them(sdk: str, citations: Json) -> None:
    ended = parts(chunks.TextStartChunk("t"), chunks.TextEndChunk("t", [{"source": {}}]), sdk=sdk)
    assert ended == [{"type": "text", "text": "", "state": "done", **citations}]


@pytest.mark.parametrize(
    "source",
    [
        {"type": "source", "sourceType": "url", "id": "s1", "url": "https://example.com", "title": "t"},
        {"type": "source", "sourceType": "document", "id": "s1", "mediaType": "text/plain", "title": "t"},
    ],
)
def test_keys_of_a_citation_that_the_client_does_not_know_are_stripped(source: Json) -> None:
    citation = {"source": source, "startIndex": 0, "citedText": "a"}
    longer_citation = {**citation, "score": 1, "source": {**source, "page": 2}}
    builder = MessageBuilder(sdk="7")
    builder.receive(chunks.TextStartChunk("1"))
    builder.receive(chunks.TextEndChunk("1", [longer_citation]))
    assert builder.message["parts"] == [{"type": "text", "text": "", "state": "done", "citations": [citation]}]


@pytest.mark.parametrize("sdk", ["5", "6", "7.0.78"])
def test_finish_step_forgets_open_blocks(sdk: str) -> None:
    builder = MessageBuilder(sdk=sdk)
    for chunk in (*text("t", "a"), chunks.FinishStepChunk()):
        builder.receive(chunk)
    with pytest.raises(UIMessageStreamError):
        builder.receive(chunks.TextDeltaChunk("t", "b"))
    assert builder.message["parts"] == [{"type": "text", "text": "a", "state": "streaming"}]


def test_blocks_outlive_their_step_since_7_0_79() -> None:
    received = [*text("t", "a"), chunks.FinishStepChunk(), chunks.TextDeltaChunk("t", "b")]
    assert parts(*received, sdk="7.0.79")[0]["text"] == "ab"


@pytest.mark.parametrize(
    "chunk",
    [
        chunks.TextDeltaChunk("x", ""),
        chunks.TextEndChunk("x"),
        chunks.ReasoningDeltaChunk("x", ""),
        chunks.ReasoningEndChunk("x"),
    ],
)
def test_a_block_that_was_not_started_cannot_go_on(chunk: Chunk) -> None:
    with pytest.raises(UIMessageStreamError, match=r"missing (text|reasoning) part") as raised:
        read(chunks.TextStartChunk("t"), chunks.ReasoningStartChunk("t"), chunk)
    assert raised.value.chunk_id == "x"


# Steps.


def test_a_step_is_reset_to_its_boundary() -> None:
    received: list[Chunk] = [
        *text("t", "kept"),
        chunks.ToolInputStartChunk("c", "search"),
        chunks.ToolInputDeltaChunk("c", "[1"),
        chunks.StartStepChunk(),
        chunks.TextStartChunk("u"),
        chunks.ResetStepChunk(),
    ]
    assert parts(*received) == [
        {"type": "text", "text": "kept", "state": "streaming"},
        {"type": "tool-search", "toolCallId": "c", "state": "input-streaming", "input": [1], "rawInput": "[1"},
        {"type": "step-start"},
    ]


@pytest.mark.parametrize(
    "chunk", [chunks.TextDeltaChunk("t", ""), chunks.TextDeltaChunk("u", ""), chunks.ToolInputDeltaChunk("c", "")]
)
def test_nothing_that_was_open_goes_on_after_a_reset(chunk: Chunk) -> None:
    opened: list[Chunk] = [
        chunks.TextStartChunk("t"),
        chunks.ToolInputStartChunk("c", "x"),
        chunks.StartStepChunk(),
        chunks.TextStartChunk("u"),
    ]
    with pytest.raises(UIMessageStreamError):
        read(*opened, chunks.ResetStepChunk(), chunk)


# Parts that come whole.


@pytest.mark.parametrize(
    ("chunk", "part"),
    [
        (
            chunks.SourceUrlChunk("s", "https://a.example", "A", P1),
            {"type": "source-url", "sourceId": "s", "url": "https://a.example", "title": "A", "providerMetadata": P1},
        ),
        (
            chunks.SourceDocumentChunk("s", "text/plain", "D"),
            {"type": "source-document", "sourceId": "s", "mediaType": "text/plain", "title": "D"},
        ),
        (chunks.ReasoningFileChunk("u", "a/b"), {"type": "reasoning-file", "mediaType": "a/b", "url": "u"}),
        (chunks.CustomChunk("k.x", P1), {"type": "custom", "kind": "k.x", "providerMetadata": P1}),
        (
            chunks.SteeringMessageChunk("u", [{"type": "text", "text": "x"}]),
            {"type": "steering-message", "id": "u", "parts": [{"type": "text", "text": "x"}]},
        ),
        (chunks.StartStepChunk(), {"type": "step-start"}),
    ],
)
def test_a_chunk_becomes_a_part(chunk: Chunk, part: Json) -> None:
    assert parts(chunk) == [part]


@pytest.mark.parametrize(
    ("sdk", "metadata"),
    [("5", {}), ("6.0.112", {}), ("6.0.114", {"providerMetadata": P1}), ("7", {"providerMetadata": P1})],
)
def test_files_keep_their_metadata_in_newer_releases(sdk: str, metadata: Json) -> None:
    assert parts(chunks.FileChunk("u", "a/b", P1), sdk=sdk) == [
        {"type": "file", "mediaType": "a/b", "url": "u", **metadata}
    ]


def test_tools_and_texts_share_the_parts() -> None:
    received: list[Chunk] = [
        chunks.ToolInputAvailableChunk("c", "search", {"q": 1}),
        chunks.ToolOutputAvailableChunk("c", None),
        chunks.TextStartChunk("t"),
    ]
    assert parts(*received) == [
        {"type": "tool-search", "toolCallId": "c", "state": "output-available", "input": {"q": 1}, "output": None},
        {"type": "text", "text": "", "state": "streaming"},
    ]


# Data.


@every_major
def test_data_with_the_same_type_and_id_is_replaced_in_place(sdk: str) -> None:
    received: list[Chunk] = [
        chunks.DataChunk("data-x", {"a": 1}, "d"),
        chunks.DataChunk("data-y", 0, "d"),
        chunks.DataChunk("data-x", 2),
        chunks.DataChunk("data-x", {"b": 2}, "d"),
        chunks.DataChunk("data-x", 3),
    ]
    assert parts(*received, sdk=sdk) == [
        {"type": "data-x", "id": "d", "data": {"b": 2}},
        {"type": "data-y", "id": "d", "data": 0},
        {"type": "data-x", "data": 2},
        {"type": "data-x", "data": 3},
    ]


def test_the_whole_data_chunk_becomes_the_part() -> None:
    chunk = chunks.DataChunk("data-x", 1, "d", False, {"extra": [1]})
    assert parts(chunk) == [{"type": "data-x", "id": "d", "data": 1, "transient": False, "extra": [1]}]


def test_transient_data_leaves_no_part() -> None:
    assert parts(chunks.DataChunk("data-x", 1, transient=True)) == []


# The message itself.


def test_start_names_the_message() -> None:
    assert read(message_id="ours") == {"id": "ours", "role": "assistant", "parts": []}
    assert read(chunks.StartChunk("theirs"), message_id="ours")["id"] == "theirs"
    assert read(chunks.StartChunk(), message_id="ours")["id"] == "ours"


def test_metadata_is_merged_from_every_chunk_that_has_some() -> None:
    received: list[Chunk] = [
        chunks.StartChunk(message_metadata={"a": {"x": 1}}),
        chunks.MessageMetadataChunk({"a": {"y": 2}}),
        chunks.MessageMetadataChunk(None),
        chunks.FinishChunk(message_metadata={"b": 3}),
        chunks.FinishChunk(),
    ]
    assert read(*received)["metadata"] == {"a": {"x": 1, "y": 2}, "b": 3}


def test_metadata_that_cannot_be_merged_fails_with_the_words_of_javascript() -> None:
    builder = MessageBuilder()
    builder.receive(chunks.MessageMetadataChunk("text"))
    with pytest.raises(UIMessageStreamError, match="Cannot use 'in' operator to search for 'a' in text") as raised:
        builder.receive(chunks.StartChunk("named all the same", {"a": 1}))
    assert raised.value.chunk_type == "start"
    message: Json = builder.message
    assert message == {"id": "named all the same", "role": "assistant", "metadata": "text", "parts": []}


@pytest.mark.parametrize(("sdk", "reason"), [("5.0.91", None), ("5.0.92", "length"), ("7", "length")])
def test_the_finish_reason_is_kept(sdk: str, reason: str | None) -> None:
    builder = MessageBuilder(sdk=sdk)
    builder.receive(chunks.FinishChunk("length"))
    builder.receive(chunks.FinishChunk())
    assert builder.finish_reason == reason


def test_abort_changes_nothing() -> None:
    assert parts(chunks.AbortChunk("stopped")) == []


def test_an_error_ends_the_turn() -> None:
    with pytest.raises(StreamFailed, match=r"^broken$"):
        read(chunks.ErrorChunk("broken"))


@pytest.mark.parametrize(
    ("sdk", "chunk"),
    [
        ("5", chunks.ToolApprovalRequestChunk("a", "c")),
        ("5.0.6", chunks.ToolInputErrorChunk("c", "t", 1, "e")),
        ("6", chunks.ToolApprovalResponseChunk("a", True)),
        ("7.0.69", chunks.ResetStepChunk()),
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
        ([chunks.StartChunk()], 0),
        ([chunks.StartStepChunk(), chunks.FinishStepChunk()], 0),
        ([chunks.DataChunk("data-x", 1, transient=True)], 0),
        ([chunks.FinishChunk("stop"), chunks.AbortChunk(), chunks.MessageMetadataChunk(None)], 0),
        ([chunks.StartStepChunk(), chunks.ResetStepChunk()], 0),
        ([chunks.StartChunk("m")], 1),
        ([chunks.StartChunk(message_metadata={})], 1),
        ([chunks.FinishChunk(message_metadata={})], 1),
        (
            [
                chunks.TextStartChunk("t"),
                chunks.TextDeltaChunk("t", "x"),
                chunks.TextEndChunk("t"),
                chunks.ResetStepChunk(),
            ],
            4,
        ),
        ([chunks.ToolInputAvailableChunk("c", "t", 1), chunks.DataChunk("data-x", 1)], 2),
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
        chunks.ToolOutputAvailableChunk("c", 1),
        chunks.DataChunk("data-x", 2, "d"),
        chunks.MessageMetadataChunk({"b": 2}),
        chunks.StartStepChunk(),
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
    for role in ("user", "agent", None):
        other: Any = {"id": "u", "role": role, "parts": [{"type": "text", "text": "hi"}]}
        assert read(message=other, message_id="m") == {"id": "m", "role": "assistant", "parts": []}


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
    with pytest.raises(LocalProtocolError, match=rf"takes a chunk, not {type(received).__name__}; "):
        MessageBuilder().receive(received)


def test_the_message_is_a_fresh_copy_in_plain_json() -> None:
    output = {"at": datetime(2026, 1, 1, tzinfo=UTC), "nan": float("nan"), "items": (1, 2.0)}
    builder = MessageBuilder()
    builder.receive(chunks.ToolInputAvailableChunk("c", "t", {}))
    builder.receive(chunks.ToolOutputAvailableChunk("c", output))
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


def test_a_client_may_answer_a_call_before_the_stream_ends() -> None:
    builder = MessageBuilder(sdk="7")
    builder.receive(chunks.ToolInputAvailableChunk("c1", "location", {}))
    builder.receive(chunks.TextStartChunk("t"))
    (part,) = builder.tool_parts()
    part |= {"state": "output-available", "output": "Paris"}
    builder.receive(chunks.TextDeltaChunk("t", "Hi"))
    assert [one.get("output", one.get("text")) for one in builder.message["parts"]] == ["Paris", "Hi"]
