"""The chunks of the UI message stream, AI SDK 5 to 7: one Struct per wire ``type``.

The class name is the wire type in PascalCase, a field is the wire key in snake_case. Which release knows which chunk
and field stands in :mod:`usechat.protocol.releases`.

:func:`encode_chunk` is strict: every client accepts its JSON, for any values in the chunk. :func:`decode_chunk` is as
tolerant as clients are: unknown keys are left out, and what a client would reject raises a typed error.
"""

from typing import Any, Final, Literal, NamedTuple, TypeAlias, Union, get_args, get_origin

import msgspec

from usechat.errors import InvalidChunk, UnknownChunkType
from usechat.protocol.values import is_ordinary, json_kind, json_text, json_value, parse_json

__all__ = [
    "CHUNK_TYPES",
    "AbortChunk",
    "Chunk",
    "CustomChunk",
    "DataChunk",
    "ErrorChunk",
    "FileChunk",
    "FinishChunk",
    "FinishReason",
    "FinishStepChunk",
    "MessageMetadataChunk",
    "ReasoningDeltaChunk",
    "ReasoningEndChunk",
    "ReasoningFileChunk",
    "ReasoningStartChunk",
    "ResetStepChunk",
    "SourceDocumentChunk",
    "SourceUrlChunk",
    "StartChunk",
    "StartStepChunk",
    "SteeringMessageChunk",
    "TextDeltaChunk",
    "TextEndChunk",
    "TextStartChunk",
    "ToolApprovalRequestChunk",
    "ToolApprovalResponseChunk",
    "ToolInputAvailableChunk",
    "ToolInputDeltaChunk",
    "ToolInputErrorChunk",
    "ToolInputStartChunk",
    "ToolOutputAvailableChunk",
    "ToolOutputDeniedChunk",
    "ToolOutputErrorChunk",
    "chunk_from_json",
    "chunk_to_json",
    "decode_chunk",
    "encode_chunk",
    "type_of",
]


ProviderMetadata: TypeAlias = dict[str, dict[str, Any]]
FinishReason: TypeAlias = Literal[
    "stop", "length", "content-filter", "tool-calls", "error", "other", "unknown", "interrupted"
]


class ChunkBase(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What all chunks share: wire keys in camelCase, ``None`` never written (clients reject ``null``)."""


class StartChunk(ChunkBase, frozen=True, tag_field="type", tag="start"):
    """The message begins; ``message_id`` becomes its id on the page."""

    message_id: str | None = None
    message_metadata: Any = None


class StartStepChunk(ChunkBase, frozen=True, tag_field="type", tag="start-step"):
    """A step begins: it becomes a ``step-start`` part."""


class FinishStepChunk(ChunkBase, frozen=True, tag_field="type", tag="finish-step"):
    """The step is over; clients before 7.0.79 forget every open text and reasoning block."""


class ResetStepChunk(ChunkBase, frozen=True, tag_field="type", tag="reset-step"):
    """Every part since the last ``start-step`` is void."""


class FinishChunk(ChunkBase, frozen=True, tag_field="type", tag="finish"):
    """The message is complete."""

    finish_reason: FinishReason | None = None
    message_metadata: Any = None


class AbortChunk(ChunkBase, frozen=True, tag_field="type", tag="abort"):
    """The turn was stopped; clients show nothing of it."""

    reason: str | None = None


class ErrorChunk(ChunkBase, frozen=True, tag_field="type", tag="error"):
    """The turn failed: the client shows the text and reads no further."""

    error_text: str


class TextStartChunk(ChunkBase, frozen=True, tag_field="type", tag="text-start"):
    """A text block opens."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class TextDeltaChunk(ChunkBase, frozen=True, tag_field="type", tag="text-delta"):
    """More text for an open block."""

    id: str
    delta: str
    provider_metadata: ProviderMetadata | None = None


class TextEndChunk(ChunkBase, frozen=True, tag_field="type", tag="text-end"):
    """A text block is complete."""

    id: str
    citations: list[dict[str, Any]] | None = None
    provider_metadata: ProviderMetadata | None = None


class ReasoningStartChunk(ChunkBase, frozen=True, tag_field="type", tag="reasoning-start"):
    """A reasoning block opens."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningDeltaChunk(ChunkBase, frozen=True, tag_field="type", tag="reasoning-delta"):
    """More reasoning for an open block."""

    id: str
    delta: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningEndChunk(ChunkBase, frozen=True, tag_field="type", tag="reasoning-end"):
    """A reasoning block is complete."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class ToolInputStartChunk(ChunkBase, frozen=True, tag_field="type", tag="tool-input-start"):
    """A tool call begins; its input follows as deltas."""

    tool_call_id: str
    tool_name: str
    input_encoding: Literal["json", "text"] | None = None
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    dynamic: bool | None = None
    title: str | None = None


class ToolInputDeltaChunk(ChunkBase, frozen=True, tag_field="type", tag="tool-input-delta"):
    """More of a tool call's input text."""

    tool_call_id: str
    input_text_delta: str


class ToolInputAvailableChunk(ChunkBase, frozen=True, tag_field="type", tag="tool-input-available"):
    """A tool call's input is complete."""

    tool_call_id: str
    tool_name: str
    input: Any
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    dynamic: bool | None = None
    title: str | None = None


class ToolInputErrorChunk(ChunkBase, frozen=True, tag_field="type", tag="tool-input-error"):
    """A tool call that cannot run, with the input that was refused."""

    tool_call_id: str
    tool_name: str
    input: Any
    error_text: str
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    dynamic: bool | None = None
    title: str | None = None


class ToolOutputAvailableChunk(ChunkBase, frozen=True, tag_field="type", tag="tool-output-available"):
    """A tool returned; ``preliminary`` output is replaced by the next."""

    tool_call_id: str
    output: Any
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    preliminary: bool | None = None
    dynamic: bool | None = None


class ToolOutputErrorChunk(ChunkBase, frozen=True, tag_field="type", tag="tool-output-error"):
    """A tool failed; the turn continues."""

    tool_call_id: str
    error_text: str
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    dynamic: bool | None = None


class ToolOutputDeniedChunk(ChunkBase, frozen=True, tag_field="type", tag="tool-output-denied"):
    """A tool was not allowed to run."""

    tool_call_id: str


class ToolApprovalRequestChunk(ChunkBase, frozen=True, tag_field="type", tag="tool-approval-request"):
    """A person is asked to allow a tool call."""

    approval_id: str
    tool_call_id: str
    approval_descriptor: Any = None
    input_schema_input: Any = msgspec.UNSET
    reason: str | None = None
    is_automatic: bool | None = None
    signature: str | None = None


class ToolApprovalResponseChunk(ChunkBase, frozen=True, tag_field="type", tag="tool-approval-response"):
    """An approval was answered by the server."""

    approval_id: str
    approved: bool
    reason: str | None = None
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None


class SourceUrlChunk(ChunkBase, frozen=True, tag_field="type", tag="source-url"):
    """A web page the answer rests on."""

    source_id: str
    url: str
    title: str | None = None
    provider_metadata: ProviderMetadata | None = None


class SourceDocumentChunk(ChunkBase, frozen=True, tag_field="type", tag="source-document"):
    """A document the answer rests on."""

    source_id: str
    media_type: str
    title: str
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None


class FileChunk(ChunkBase, frozen=True, tag_field="type", tag="file"):
    """A file made by the model."""

    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningFileChunk(ChunkBase, frozen=True, tag_field="type", tag="reasoning-file"):
    """A file made while thinking."""

    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


class CustomChunk(ChunkBase, frozen=True, tag_field="type", tag="custom"):
    """Provider-specific content."""

    kind: str
    provider_metadata: ProviderMetadata | None = None


class SteeringMessageChunk(ChunkBase, frozen=True, tag_field="type", tag="steering-message"):
    """A user message that joined the run."""

    id: str
    parts: list[dict[str, Any]]


class MessageMetadataChunk(ChunkBase, frozen=True, tag_field="type", tag="message-metadata"):
    """Facts about the message, merged deeply."""

    message_metadata: Any


class DataChunk(ChunkBase, frozen=True):
    """The application's own data; ``type`` is ``data-<name>``.

    ``extra`` holds further keys that a sender put on the chunk: the client keeps them, because the whole chunk object
    becomes the part. They are never encoded.
    """

    type: str
    data: Any
    id: str | None = None
    transient: bool | None = None
    extra: dict[str, Any] = {}  # msgspec copies an empty dict default for each instance


TaggedChunk: TypeAlias = Union[  # noqa: UP007  msgspec and get_args need the plain union
    StartChunk,
    StartStepChunk,
    FinishStepChunk,
    ResetStepChunk,
    FinishChunk,
    AbortChunk,
    ErrorChunk,
    TextStartChunk,
    TextDeltaChunk,
    TextEndChunk,
    ReasoningStartChunk,
    ReasoningDeltaChunk,
    ReasoningEndChunk,
    ToolInputStartChunk,
    ToolInputDeltaChunk,
    ToolInputAvailableChunk,
    ToolInputErrorChunk,
    ToolOutputAvailableChunk,
    ToolOutputErrorChunk,
    ToolOutputDeniedChunk,
    ToolApprovalRequestChunk,
    ToolApprovalResponseChunk,
    SourceUrlChunk,
    SourceDocumentChunk,
    FileChunk,
    ReasoningFileChunk,
    CustomChunk,
    SteeringMessageChunk,
    MessageMetadataChunk,
]
Chunk: TypeAlias = TaggedChunk | DataChunk

CHUNK_TYPES: Final[dict[str, type[ChunkBase]]] = {
    struct.__struct_config__.tag: struct for struct in get_args(TaggedChunk)
}
"""Every chunk class by its wire type; ``data-*`` apart, whose types are open."""


# Chunks to JSON and back


class _Field(NamedTuple):
    name: str
    key: str
    default: Any
    nullable: bool


def _fields_of(struct: type[ChunkBase]) -> tuple[_Field, ...]:
    return tuple(
        _Field(field.name, field.encode_name, field.default, field.type is Any)
        for field in msgspec.structs.fields(struct)
        if field.name != "extra"
    )


_FIELDS: Final[dict[type[ChunkBase], tuple[_Field, ...]]] = {
    DataChunk: _fields_of(DataChunk),
    **{struct: _fields_of(struct) for struct in CHUNK_TYPES.values()},
}
_DECODER: Final[msgspec.json.Decoder[TaggedChunk]] = msgspec.json.Decoder(TaggedChunk)
_ENCODER: Final = msgspec.json.Encoder()
_WITHOUT_VALUES: Final = frozenset(
    struct
    for struct in CHUNK_TYPES.values()
    if all(field.type is str or field.name in ("finish_reason", "reason") for field in msgspec.structs.fields(struct))
)
_WITHOUT_VALUES_BUT_METADATA: Final = frozenset(
    {TextStartChunk, TextDeltaChunk, ReasoningStartChunk, ReasoningDeltaChunk, ReasoningEndChunk}
)


def type_of(chunk: Chunk) -> str:
    """Return the wire ``type`` of a chunk."""
    return chunk.type if isinstance(chunk, DataChunk) else str(chunk.__struct_config__.tag)


def encode_chunk(chunk: Chunk) -> bytes:
    """Write one chunk as the JSON every client accepts; values are converted as :mod:`usechat.protocol.values` says."""
    if (
        type(chunk) in _WITHOUT_VALUES
        or (type(chunk) in _WITHOUT_VALUES_BUT_METADATA and chunk.provider_metadata is None)  # type: ignore[union-attr]
        or _has_no_values(chunk)
    ):
        try:
            return _ENCODER.encode(chunk)
        except (UnicodeEncodeError, TypeError):
            pass  # a lone surrogate or a subclass of str: only the careful way below can write it
    return json_text(chunk_to_json(chunk)).encode()


def _has_no_values(chunk: Chunk) -> bool:
    """Tell whether a chunk of every message has no values, as it mostly has none."""
    if isinstance(chunk, StartChunk | FinishChunk):
        return chunk.message_metadata is None
    return isinstance(chunk, TextEndChunk) and chunk.citations is None and chunk.provider_metadata is None


def chunk_to_json(chunk: Chunk) -> dict[str, Any]:
    """Return the chunk as the JSON object that goes on the wire."""
    result: dict[str, Any] = {}
    if not isinstance(chunk, DataChunk):
        result["type"] = chunk.__struct_config__.tag
    for field in _FIELDS[type(chunk)]:
        value = getattr(chunk, field.name)
        if value is not field.default:
            result[field.key] = json_value(value)
    return result


def decode_chunk(data: bytes | str) -> Chunk:
    """Read one chunk from JSON text; unknown keys are left out, anything illegal is a typed error."""
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    # The quick way does not see keys that reach for a prototype and takes null for an optional key, as no client does.
    if is_ordinary(text) and "null" not in text:
        try:
            return _DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError):
            pass  # data-* types, and the few texts that JavaScript reads and msgspec does not (lone surrogates)
    return chunk_from_json(parse_json(text))


def chunk_from_json(value: Any) -> Chunk:
    """Read one chunk from a parsed JSON value."""
    if not isinstance(value, dict):
        raise InvalidChunk(f"a chunk is a JSON object, not {json_kind(value)}")
    chunk_type = value.get("type")
    if not isinstance(chunk_type, str):
        raise InvalidChunk("a chunk needs a string under the key 'type'", path="$.type")
    if chunk_type.startswith("data-"):
        return _data_from_json(value)
    if chunk_type not in CHUNK_TYPES:
        raise UnknownChunkType(
            f"no AI SDK release knows the chunk type {chunk_type!r}{_suggestion(chunk_type)}",
            chunk_type=chunk_type,
            path="$.type",
        )
    for field in _FIELDS[CHUNK_TYPES[chunk_type]]:
        if field.key in value and value[field.key] is None and not field.nullable:
            raise InvalidChunk(
                f"{chunk_type}: {field.key!r} must not be null; leave the key out",
                chunk_type=chunk_type,
                path=f"$.{field.key}",
            )
    try:
        return msgspec.convert(value, CHUNK_TYPES[chunk_type])  # type: ignore[return-value]
    except msgspec.ValidationError as error:
        path = str(error).partition(" - at `")[2].rstrip("`") or "$"
        raise InvalidChunk(_explain(chunk_type, value, path), chunk_type=chunk_type, path=path) from None


_EXPECTED: Final = {
    str: "a string",
    bool: "a boolean",
    dict: "an object",
    list: "an array of objects",
    ProviderMetadata: "an object of objects",
}


def _explain(chunk_type: str, value: dict[str, Any], path: str) -> str:
    """Say what is wrong with a chunk, where, and what would be legal."""
    fields = msgspec.structs.fields(CHUNK_TYPES[chunk_type])
    for field in fields:
        if field.required and field.encode_name not in value:
            return f"{chunk_type}: the key {field.encode_name!r} is missing"
    key = path.removeprefix("$.").partition("[")[0].partition(".")[0]
    kind = next(field.type for field in fields if field.encode_name == key)
    kind = next((option for option in get_args(kind) if option is not type(None)), kind) if _is_optional(kind) else kind
    if get_origin(kind) is Literal:
        return f"{chunk_type}: {key!r} must be one of {', '.join(get_args(kind))}, not {json_text(value[key])[:80]}"
    expected = _EXPECTED.get(kind) or _EXPECTED[get_origin(kind)]
    return f"{chunk_type}: {key!r} must be {expected}, not {json_text(value[key])[:80]}"


def _is_optional(kind: Any) -> bool:
    return type(None) in get_args(kind)


def _data_from_json(value: dict[str, Any]) -> DataChunk:
    fields = {"type", "data", "id", "transient"}
    if "data" not in value:
        raise InvalidChunk(
            f"{value['type']}: the payload must be under the key 'data'", chunk_type=value["type"], path="$.data"
        )
    for key, kind in (("id", str), ("transient", bool)):
        if key in value and not isinstance(value[key], kind):
            raise InvalidChunk(
                f"{value['type']}: {key!r} must be {_EXPECTED[kind]}, not {json_text(value[key])[:80]}",
                chunk_type=value["type"],
                path=f"$.{key}",
            )
    return DataChunk(
        value["type"],
        value["data"],
        value.get("id"),
        value.get("transient"),
        {key: item for key, item in value.items() if key not in fields},
    )


_MISNAMED: Final = {
    "step-start": "start-step",
    "step-finish": "finish-step",
    "message-start": "start",
    "message-finish": "finish",
    "tool-call": "tool-input-available",
    "tool-result": "tool-output-available",
    "text": "text-delta",
    "reasoning": "reasoning-delta",
}


def _suggestion(chunk_type: str) -> str:
    name = _MISNAMED.get(chunk_type)
    return f"; {name!r} is the chunk for that" if name else ""
