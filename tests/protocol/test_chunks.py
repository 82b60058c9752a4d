import datetime
import json
import math
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from usechat.errors import InvalidChunk, InvalidJSON, UnknownChunkType
from usechat.protocol import chunks
from usechat.protocol.chunks import (
    CHUNK_TYPES,
    Chunk,
    chunk_from_json,
    chunk_to_json,
    decode_chunk,
    encode_chunk,
    type_of,
)

FULL: list[tuple[Chunk, str]] = [
    (chunks.StartChunk("m", {"a": 1}), '{"type":"start","messageId":"m","messageMetadata":{"a":1}}'),
    (chunks.StartChunk(), '{"type":"start"}'),
    (chunks.StartStepChunk(), '{"type":"start-step"}'),
    (chunks.FinishStepChunk(), '{"type":"finish-step"}'),
    (chunks.ResetStepChunk(), '{"type":"reset-step"}'),
    (chunks.FinishChunk("stop", [1]), '{"type":"finish","finishReason":"stop","messageMetadata":[1]}'),
    (chunks.AbortChunk("why"), '{"type":"abort","reason":"why"}'),
    (chunks.ErrorChunk("broken"), '{"type":"error","errorText":"broken"}'),
    (chunks.TextStartChunk("t"), '{"type":"text-start","id":"t"}'),
    (
        chunks.TextStartChunk("t", {"p": {"k": None}}),
        '{"type":"text-start","id":"t","providerMetadata":{"p":{"k":null}}}',
    ),
    (chunks.TextDeltaChunk("t", "é"), '{"type":"text-delta","id":"t","delta":"é"}'),
    (
        chunks.TextDeltaChunk("t", "x", {"p": {"k": 1}}),
        '{"type":"text-delta","id":"t","delta":"x","providerMetadata":{"p":{"k":1}}}',
    ),
    (chunks.TextEndChunk("t", [{"a": 1}]), '{"type":"text-end","id":"t","citations":[{"a":1}]}'),
    (chunks.ReasoningStartChunk("r"), '{"type":"reasoning-start","id":"r"}'),
    (chunks.ReasoningDeltaChunk("r", "x"), '{"type":"reasoning-delta","id":"r","delta":"x"}'),
    (chunks.ReasoningEndChunk("r"), '{"type":"reasoning-end","id":"r"}'),
    (
        chunks.ToolInputStartChunk("c", "t", "json", True, {"p": {}}, {"m": 1}, False, "Title"),
        '{"type":"tool-input-start","toolCallId":"c","toolName":"t","inputEncoding":"json","providerExecuted":true,'
        '"providerMetadata":{"p":{}},"toolMetadata":{"m":1},"dynamic":false,"title":"Title"}',
    ),
    (chunks.ToolInputDeltaChunk("c", '{"a'), '{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{\\"a"}'),
    (
        chunks.ToolInputAvailableChunk("c", "t", None),
        '{"type":"tool-input-available","toolCallId":"c","toolName":"t","input":null}',
    ),
    (
        chunks.ToolInputErrorChunk("c", "t", {}, "bad"),
        '{"type":"tool-input-error","toolCallId":"c","toolName":"t","input":{},"errorText":"bad"}',
    ),
    (
        chunks.ToolOutputAvailableChunk("c", None, preliminary=True, dynamic=True),
        '{"type":"tool-output-available","toolCallId":"c","output":null,"preliminary":true,"dynamic":true}',
    ),
    (chunks.ToolOutputErrorChunk("c", "bad"), '{"type":"tool-output-error","toolCallId":"c","errorText":"bad"}'),
    (chunks.ToolOutputDeniedChunk("c"), '{"type":"tool-output-denied","toolCallId":"c"}'),
    (
        chunks.ToolApprovalRequestChunk("a", "c", input_schema_input=None, is_automatic=True),
        '{"type":"tool-approval-request","approvalId":"a","toolCallId":"c","inputSchemaInput":null,"isAutomatic":true}',
    ),
    (chunks.ToolApprovalRequestChunk("a", "c"), '{"type":"tool-approval-request","approvalId":"a","toolCallId":"c"}'),
    (
        chunks.ToolApprovalResponseChunk("a", False, "no"),
        '{"type":"tool-approval-response","approvalId":"a","approved":false,"reason":"no"}',
    ),
    (chunks.SourceUrlChunk("s", "u", "t"), '{"type":"source-url","sourceId":"s","url":"u","title":"t"}'),
    (
        chunks.SourceDocumentChunk("s", "text/plain", "t", "f"),
        '{"type":"source-document","sourceId":"s","mediaType":"text/plain","title":"t","filename":"f"}',
    ),
    (chunks.FileChunk("u", "image/png"), '{"type":"file","url":"u","mediaType":"image/png"}'),
    (chunks.ReasoningFileChunk("u", "image/png"), '{"type":"reasoning-file","url":"u","mediaType":"image/png"}'),
    (chunks.CustomChunk("p.k"), '{"type":"custom","kind":"p.k"}'),
    (
        chunks.SteeringMessageChunk("u", [{"type": "text", "text": "x"}]),
        '{"type":"steering-message","id":"u","parts":[{"type":"text","text":"x"}]}',
    ),
    (chunks.MessageMetadataChunk(None), '{"type":"message-metadata","messageMetadata":null}'),
    (chunks.DataChunk("data-x", None), '{"type":"data-x","data":null}'),
    (chunks.DataChunk("data-", [1], "d", True), '{"type":"data-","data":[1],"id":"d","transient":true}'),
]
every_chunk = pytest.mark.parametrize(("chunk", "text"), FULL, ids=[text for _, text in FULL])


class Text(str):
    __slots__ = ()


def test_every_type_is_in_the_table() -> None:
    assert {type_of(chunk) for chunk, _ in FULL} == {*CHUNK_TYPES, "data-x", "data-"}
    assert set(get_args(Chunk)) == {*CHUNK_TYPES.values(), chunks.DataChunk}


@every_chunk
def test_a_chunk_is_written_as_the_sdk_writes_it(chunk: Chunk, text: str) -> None:
    assert encode_chunk(chunk).decode() == text
    assert chunk_to_json(chunk) == json.loads(text)


@every_chunk
def test_a_chunk_is_read(chunk: Chunk, text: str) -> None:
    assert decode_chunk(text) == decode_chunk(text.encode()) == chunk_from_json(json.loads(text)) == chunk


@pytest.mark.parametrize(
    ("chunk", "text"),
    [
        (chunks.TextDeltaChunk("t", "a\ud83d"), '{"type":"text-delta","id":"t","delta":"a\\ud83d"}'),
        (chunks.TextDeltaChunk("t", Text("a")), '{"type":"text-delta","id":"t","delta":"a"}'),
        (chunks.ErrorChunk("\udc00"), '{"type":"error","errorText":"\\udc00"}'),
        (
            chunks.TextDeltaChunk("t", "\u2028\x7f/\n\x00"),
            '{"type":"text-delta","id":"t","delta":"\u2028\x7f/\\n\\u0000"}',
        ),
        (chunks.DataChunk("data-x", math.nan), '{"type":"data-x","data":null}'),
        (chunks.DataChunk("data-x", [1.0, 1e-7, 1e21, -0.0]), '{"type":"data-x","data":[1,1e-7,1e+21,0]}'),
        (chunks.DataChunk("data-x", {1: datetime.date(2026, 2, 3)}), '{"type":"data-x","data":{"1":"2026-02-03"}}'),
        (chunks.DataChunk("data-x", 1, extra={"unknown": 1}), '{"type":"data-x","data":1}'),
        (
            chunks.StartChunk("m", {"__proto__": 1}),
            '{"type":"start","messageId":"m","messageMetadata":{"__proto___":1}}',
        ),
    ],
)
def test_values_are_written_as_clients_can_read_them(chunk: Chunk, text: str) -> None:
    assert encode_chunk(chunk).decode() == text


@pytest.mark.parametrize(
    ("text", "chunk"),
    [
        (' { "id" : "a" , "type" : "text-start" } ', chunks.TextStartChunk("a")),
        ('{"type":"text-start","id":"a","unknown":{"b":1}}', chunks.TextStartChunk("a")),
        ('{"type":"text-start","id":"a","id":"b"}', chunks.TextStartChunk("b")),
        ('{"type":"start","type":"finish"}', chunks.FinishChunk()),
        ('{"type":"text-start","id":"\\ud800"}', chunks.TextStartChunk("\ud800")),
        ('{"type":"text-start","id":"\ud800"}', chunks.TextStartChunk("\ud800")),
        ('{"type":"text-start","id":"\\u0041null"}', chunks.TextStartChunk("Anull")),
        ('{"type":"start","messageMetadata":null}', chunks.StartChunk()),
        ('{"type":"start","messageMetadata":1e400}', chunks.StartChunk(None, math.inf)),
        ('{"type":"data-x","data":1,"more":2}', chunks.DataChunk("data-x", 1, extra={"more": 2})),
        (
            '{"type":"message-metadata","messageMetadata":{"constructor":null}}',
            chunks.MessageMetadataChunk({"constructor": None}),
        ),
    ],
)
def test_reading_is_tolerant_where_clients_are(text: str, chunk: Chunk) -> None:
    assert decode_chunk(text) == chunk


def test_invalid_utf8_is_replaced_as_clients_do() -> None:
    assert decode_chunk(b'{"type":"text-start","id":"\xff"}') == chunks.TextStartChunk("\ufffd")


@pytest.mark.parametrize(
    ("text", "reason", "path"),
    [
        ("[]", "a chunk is a JSON object, not an array", "$"),
        ("null", "a chunk is a JSON object, not null", "$"),
        ("{}", "a chunk needs a string under the key 'type'", "$.type"),
        ('{"type":1}', "a chunk needs a string under the key 'type'", "$.type"),
        ('{"type":"text-start"}', "text-start: the key 'id' is missing", "$"),
        ('{"type":"text-start","id":1}', "text-start: 'id' must be a string, not 1", "$.id"),
        ('{"type":"text-start","id":null}', "text-start: 'id' must not be null; leave the key out", "$.id"),
        ('{"type":"start","messageId":null}', "start: 'messageId' must not be null; leave the key out", "$.messageId"),
        (
            '{"type":"text-end","id":"t","providerMetadata":{"p":1}}',
            "text-end: 'providerMetadata' must be an object of objects, not {\"p\":1}",
            "$.providerMetadata[...]",
        ),
        (
            '{"type":"finish","finishReason":"done"}',
            "finish: 'finishReason' must be one of stop, length, content-filter, tool-calls, error, other, unknown, "
            'interrupted, not "done"',
            "$.finishReason",
        ),
        ('{"type":"data-x"}', "data-x: the payload must be under the key 'data'", "$.data"),
        ('{"type":"data-x","data":1,"id":[]}', "data-x: 'id' must be a string, not []", "$.id"),
        (
            '{"type":"data-x","data":1,"transient":null}',
            "data-x: 'transient' must be a boolean, not null",
            "$.transient",
        ),
        ('{"type":"tool-input-start"}', "tool-input-start: the key 'toolCallId' is missing", "$"),
    ],
)
def test_an_illegal_chunk_is_refused_with_its_place(text: str, reason: str, path: str) -> None:
    with pytest.raises(InvalidChunk) as caught:
        decode_chunk(text)
    assert (str(caught.value), caught.value.path) == (reason, path)


def test_an_illegal_chunk_is_named_by_its_type() -> None:
    with pytest.raises(InvalidChunk) as caught:
        decode_chunk('{"type":"data-x"}')
    assert caught.value.chunk_type == "data-x"


@pytest.mark.parametrize(
    ("chunk_type", "suggestion"),
    [
        ("step-start", "; 'start-step' is the chunk for that"),
        ("message-start", "; 'start' is the chunk for that"),
        ("tool-result", "; 'tool-output-available' is the chunk for that"),
        ("ping", ""),
    ],
)
def test_an_unknown_type_is_refused_with_what_was_meant(chunk_type: str, suggestion: str) -> None:
    with pytest.raises(UnknownChunkType) as caught:
        decode_chunk(json.dumps({"type": chunk_type}))
    assert str(caught.value) == f"no AI SDK release knows the chunk type {chunk_type!r}{suggestion}"
    assert caught.value.chunk_type == chunk_type


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        '{"type":"start"} x',
        '{"type":"text-start","id":"a\nb"}',
        '{"type":"start","messageMetadata":NaN}',
        '{"type":"start","messageMetadata":01}',
        '{"type":"start","__proto__":1}',
        '{"type":"start","messageMetadata":{"constructor":{"prototype":1}}}',
        '{"type":"tool-output-available","toolCallId":"c","output":{"\\u005f_proto__":1}}',
        '\ufeff{"type":"start"}',
    ],
)
def test_what_is_not_json_for_a_client_is_refused(text: str) -> None:
    with pytest.raises(InvalidJSON):
        decode_chunk(text)


@pytest.mark.parametrize("depth", [130, 500, 900, 2000, 100_000])
@pytest.mark.parametrize(
    "opening",
    ["", '{"type":"start","unknown":', '{"type":"data-x","data":1,"id":', '{"type":"start","messageMetadata":'],
)
def test_depth_never_exhausts_the_stack(opening: str, depth: int) -> None:
    with pytest.raises(InvalidJSON, match="nested too deeply"):
        decode_chunk(opening + "[" * depth + "]" * depth + ("}" if opening else ""))


def test_chunks_of_equal_content_share_no_state() -> None:
    assert chunks.DataChunk("data-x", 1).extra is not chunks.DataChunk("data-x", 1).extra


texts = st.text(max_size=6) | st.sampled_from(["null", "\ud800", "__proto__", "%b", "\\u0041", "[DONE]"])
plain: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(-1e15, 1e15).filter(lambda x: not x.is_integer())
    | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts.filter(lambda key: key not in ("__proto__", "constructor")), inner, max_size=3)
    ),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from(["a", "b", "é"]), plain, max_size=2)
STRATEGIES: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    bool: st.booleans(),
    Any: plain,
    dict[str, dict[str, Any]]: st.dictionaries(texts.filter(lambda key: key != "__proto__"), objects, max_size=2),
    dict[str, Any]: objects,
    list[dict[str, Any]]: st.lists(objects, max_size=2),
}


def values_of(field_type: Any) -> st.SearchStrategy[Any]:
    if field_type in STRATEGIES:
        return STRATEGIES[field_type]
    options = get_args(field_type)
    if all(isinstance(option, str) for option in options):
        return st.sampled_from(options)
    return st.one_of(*[st.none() if option is type(None) else values_of(option) for option in options])


def chunks_of(struct: type[Any]) -> st.SearchStrategy[Chunk]:
    fields = {field.name: values_of(field.type) for field in msgspec.structs.fields(struct)}
    return st.builds(struct, **fields)


any_chunk: st.SearchStrategy[Chunk] = st.one_of(
    *[chunks_of(struct) for struct in CHUNK_TYPES.values()],
    st.builds(
        chunks.DataChunk,
        texts.map(lambda name: f"data-{name}"),
        plain,
        st.none() | texts,
        st.none() | st.booleans(),
    ),
)


@settings(max_examples=500)
@given(any_chunk)
def test_every_chunk_survives_being_written_and_read(chunk: Chunk) -> None:
    assert decode_chunk(encode_chunk(chunk)) == chunk
    assert chunk_from_json(chunk_to_json(chunk)) == chunk


@given(
    st.one_of(
        plain,
        st.fixed_dictionaries(
            {"type": st.sampled_from([*CHUNK_TYPES, "data-x", "ping"])},
            optional={"id": plain, "delta": plain, "data": plain},
        ),
    )
)
def test_any_json_is_a_chunk_or_a_typed_error(value: Any) -> None:
    try:
        chunk = chunk_from_json(value)
    except InvalidChunk:
        return
    assert type_of(chunk) == value["type"]


@given(st.text(alphabet=st.sampled_from('{}[]":,\\u0019.eE+-tfn \n\x00abc'), max_size=20))
def test_any_text_is_a_chunk_or_a_typed_error(text: str) -> None:
    with pytest.raises((InvalidJSON, InvalidChunk)):
        decode_chunk(text)
