"""The chunks of the UI message stream and their JSON: decoded tolerantly, encoded strictly."""

from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec

from usechat.chunk_types import (
    CHUNK_TYPES,
    Abort,
    Chunk,
    ChunkBase,
    Custom,
    Data,
    Error,
    File,
    Finish,
    FinishReason,
    FinishStep,
    MessageMetadata,
    ProviderMetadata,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningFile,
    ReasoningStart,
    ResetStep,
    SourceDocument,
    SourceUrl,
    Start,
    StartStep,
    SteeringMessage,
    TaggedChunk,
    TextDelta,
    TextEnd,
    TextStart,
    ToolApprovalRequest,
    ToolApprovalResponse,
    ToolInputAvailable,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolOutputAvailable,
    ToolOutputDenied,
    ToolOutputError,
)
from usechat.errors import InvalidChunk, UnknownChunkType
from usechat.values import is_ordinary, json_kind, json_text, json_value, parse_json

__all__ = [
    "CHUNK_TYPES",
    "Abort",
    "Chunk",
    "Custom",
    "Data",
    "Error",
    "File",
    "Finish",
    "FinishReason",
    "FinishStep",
    "MessageMetadata",
    "ReasoningDelta",
    "ReasoningEnd",
    "ReasoningFile",
    "ReasoningStart",
    "ResetStep",
    "SourceDocument",
    "SourceUrl",
    "Start",
    "StartStep",
    "SteeringMessage",
    "TextDelta",
    "TextEnd",
    "TextStart",
    "ToolApprovalRequest",
    "ToolApprovalResponse",
    "ToolInputAvailable",
    "ToolInputDelta",
    "ToolInputError",
    "ToolInputStart",
    "ToolOutputAvailable",
    "ToolOutputDenied",
    "ToolOutputError",
    "chunk_from_json",
    "chunk_to_json",
    "decode_chunk",
    "encode_chunk",
    "type_of",
]


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
    Data: _fields_of(Data),
    **{struct: _fields_of(struct) for struct in CHUNK_TYPES.values()},
}
_DECODER: Final[msgspec.json.Decoder[TaggedChunk]] = msgspec.json.Decoder(TaggedChunk)
_ENCODER: Final = msgspec.json.Encoder()
_WITHOUT_VALUES: Final = frozenset(
    struct
    for struct in CHUNK_TYPES.values()
    if all(field.type is str or field.name in ("finish_reason", "reason") for field in msgspec.structs.fields(struct))
)
_WITHOUT_VALUES_BUT_METADATA: Final = frozenset({TextStart, TextDelta, ReasoningStart, ReasoningDelta, ReasoningEnd})


def type_of(chunk: Chunk) -> str:
    """Return the wire ``type`` of a chunk."""
    return chunk.type if isinstance(chunk, Data) else str(chunk.__struct_config__.tag)


def encode_chunk(chunk: Chunk) -> bytes:
    """Write one chunk as the JSON every client accepts; values are converted as :mod:`usechat.values` says."""
    if type(chunk) in _WITHOUT_VALUES or (
        type(chunk) in _WITHOUT_VALUES_BUT_METADATA and chunk.provider_metadata is None  # type: ignore[union-attr]
    ):
        try:
            return _ENCODER.encode(chunk)
        except (UnicodeEncodeError, TypeError):
            pass  # a lone surrogate or a subclass of str: only the careful way below can write it
    return json_text(chunk_to_json(chunk)).encode()


def chunk_to_json(chunk: Chunk) -> dict[str, Any]:
    """Return the chunk as the JSON object that goes on the wire."""
    result: dict[str, Any] = {}
    if not isinstance(chunk, Data):
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


_WANTED: Final = {
    str: "a string",
    bool: "a boolean",
    dict: "an object",
    list: "an array of objects",
    ProviderMetadata: "an object of objects",
}


def _explain(chunk_type: str, value: dict[str, Any], path: str) -> str:
    """Say what is wrong with a chunk, where, and what would be legal."""
    found = msgspec.structs.fields(CHUNK_TYPES[chunk_type])
    for field in found:
        if field.required and field.encode_name not in value:
            return f"{chunk_type}: the key {field.encode_name!r} is missing"
    key = path.removeprefix("$.").partition("[")[0].partition(".")[0]
    kind = next(field.type for field in found if field.encode_name == key)
    kind = next((option for option in get_args(kind) if option is not type(None)), kind) if _is_optional(kind) else kind
    if get_origin(kind) is Literal:
        return f"{chunk_type}: {key!r} must be one of {', '.join(get_args(kind))}, not {json_text(value[key])[:80]}"
    wanted = _WANTED.get(kind) or _WANTED[get_origin(kind)]
    return f"{chunk_type}: {key!r} must be {wanted}, not {json_text(value[key])[:80]}"


def _is_optional(kind: Any) -> bool:
    return type(None) in get_args(kind)


def _data_from_json(value: dict[str, Any]) -> Data:
    known = {"type", "data", "id", "transient"}
    if "data" not in value:
        raise InvalidChunk(
            f"{value['type']}: the payload must stand under the key 'data'", chunk_type=value["type"], path="$.data"
        )
    for key, kind in (("id", str), ("transient", bool)):
        if key in value and not isinstance(value[key], kind):
            raise InvalidChunk(
                f"{value['type']}: {key!r} must be {_WANTED[kind]}, not {json_text(value[key])[:80]}",
                chunk_type=value["type"],
                path=f"$.{key}",
            )
    return Data(
        value["type"],
        value["data"],
        value.get("id"),
        value.get("transient"),
        {key: item for key, item in value.items() if key not in known},
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
    meant = _MISNAMED.get(chunk_type)
    return f"; {meant!r} is the chunk for that" if meant else ""
