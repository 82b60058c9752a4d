"""The chunks of the UI message stream, AI SDK 5 to 7: one Struct per wire ``type``, and their JSON.

The class name is the wire type in PascalCase, a field is the wire key in snake_case. Which release knows which chunk
and field is the business of :mod:`usechat.dialects`. Decoding is tolerant of unknown keys, encoding is strict.
"""

from typing import Any, Final, Literal, NamedTuple, TypeAlias, Union, get_args

import msgspec

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

ProviderMetadata: TypeAlias = dict[str, dict[str, Any]]
FinishReason: TypeAlias = Literal[
    "stop", "length", "content-filter", "tool-calls", "error", "other", "unknown", "interrupted"
]


class _Chunk(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What all chunks share: wire keys in camelCase, ``None`` never written (clients reject ``null``)."""


class Start(_Chunk, frozen=True, tag_field="type", tag="start"):
    """The message begins; ``message_id`` becomes its id on the page."""

    message_id: str | None = None
    message_metadata: Any = None


class StartStep(_Chunk, frozen=True, tag_field="type", tag="start-step"):
    """A step begins: it becomes a ``step-start`` part."""


class FinishStep(_Chunk, frozen=True, tag_field="type", tag="finish-step"):
    """The step is over; clients before 7.0.79 forget every open text and reasoning block."""


class ResetStep(_Chunk, frozen=True, tag_field="type", tag="reset-step"):
    """Every part since the last ``start-step`` is void."""


class Finish(_Chunk, frozen=True, tag_field="type", tag="finish"):
    """The message is complete."""

    finish_reason: FinishReason | None = None
    message_metadata: Any = None


class Abort(_Chunk, frozen=True, tag_field="type", tag="abort"):
    """The turn was stopped; clients show nothing of it."""

    reason: str | None = None


class Error(_Chunk, frozen=True, tag_field="type", tag="error"):
    """The turn failed: the client shows the text and reads no further."""

    error_text: str


class TextStart(_Chunk, frozen=True, tag_field="type", tag="text-start"):
    """A text block opens."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class TextDelta(_Chunk, frozen=True, tag_field="type", tag="text-delta"):
    """More text for an open block."""

    id: str
    delta: str
    provider_metadata: ProviderMetadata | None = None


class TextEnd(_Chunk, frozen=True, tag_field="type", tag="text-end"):
    """A text block is complete."""

    id: str
    citations: list[dict[str, Any]] | None = None
    provider_metadata: ProviderMetadata | None = None


class ReasoningStart(_Chunk, frozen=True, tag_field="type", tag="reasoning-start"):
    """A reasoning block opens."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningDelta(_Chunk, frozen=True, tag_field="type", tag="reasoning-delta"):
    """More reasoning for an open block."""

    id: str
    delta: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningEnd(_Chunk, frozen=True, tag_field="type", tag="reasoning-end"):
    """A reasoning block is complete."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class ToolInputStart(_Chunk, frozen=True, tag_field="type", tag="tool-input-start"):
    """A tool call begins; its input follows as deltas."""

    tool_call_id: str
    tool_name: str
    input_encoding: Literal["json", "text"] | None = None
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    dynamic: bool | None = None
    title: str | None = None


class ToolInputDelta(_Chunk, frozen=True, tag_field="type", tag="tool-input-delta"):
    """More of a tool call's input text."""

    tool_call_id: str
    input_text_delta: str


class ToolInputAvailable(_Chunk, frozen=True, tag_field="type", tag="tool-input-available"):
    """A tool call's input is complete."""

    tool_call_id: str
    tool_name: str
    input: Any
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    dynamic: bool | None = None
    title: str | None = None


class ToolInputError(_Chunk, frozen=True, tag_field="type", tag="tool-input-error"):
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


class ToolOutputAvailable(_Chunk, frozen=True, tag_field="type", tag="tool-output-available"):
    """A tool returned; ``preliminary`` output is replaced by the next."""

    tool_call_id: str
    output: Any
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    preliminary: bool | None = None
    dynamic: bool | None = None


class ToolOutputError(_Chunk, frozen=True, tag_field="type", tag="tool-output-error"):
    """A tool failed; the turn goes on."""

    tool_call_id: str
    error_text: str
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    dynamic: bool | None = None


class ToolOutputDenied(_Chunk, frozen=True, tag_field="type", tag="tool-output-denied"):
    """A tool was not allowed to run."""

    tool_call_id: str


class ToolApprovalRequest(_Chunk, frozen=True, tag_field="type", tag="tool-approval-request"):
    """A person is asked to allow a tool call."""

    approval_id: str
    tool_call_id: str
    approval_descriptor: Any = None
    input_schema_input: Any = msgspec.UNSET
    reason: str | None = None
    is_automatic: bool | None = None
    signature: str | None = None


class ToolApprovalResponse(_Chunk, frozen=True, tag_field="type", tag="tool-approval-response"):
    """An approval was answered by the server."""

    approval_id: str
    approved: bool
    reason: str | None = None
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None


class SourceUrl(_Chunk, frozen=True, tag_field="type", tag="source-url"):
    """A web page the answer rests on."""

    source_id: str
    url: str
    title: str | None = None
    provider_metadata: ProviderMetadata | None = None


class SourceDocument(_Chunk, frozen=True, tag_field="type", tag="source-document"):
    """A document the answer rests on."""

    source_id: str
    media_type: str
    title: str
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None


class File(_Chunk, frozen=True, tag_field="type", tag="file"):
    """A file made by the model."""

    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningFile(_Chunk, frozen=True, tag_field="type", tag="reasoning-file"):
    """A file made while thinking."""

    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


class Custom(_Chunk, frozen=True, tag_field="type", tag="custom"):
    """Provider-specific content."""

    kind: str
    provider_metadata: ProviderMetadata | None = None


class SteeringMessage(_Chunk, frozen=True, tag_field="type", tag="steering-message"):
    """A user message that joined the run."""

    id: str
    parts: list[dict[str, Any]]


class MessageMetadata(_Chunk, frozen=True, tag_field="type", tag="message-metadata"):
    """Facts about the message, merged deeply."""

    message_metadata: Any


class Data(_Chunk, frozen=True):
    """The application's own data; ``type`` is ``data-<name>``.

    ``extra`` holds further keys that a sender put on the chunk: the client keeps them, because the whole chunk object
    becomes the part. They are never encoded.
    """

    type: str
    data: Any
    id: str | None = None
    transient: bool | None = None
    extra: dict[str, Any] = {}  # msgspec copies an empty dict default for each instance


_Tagged: TypeAlias = Union[  # noqa: UP007  msgspec and get_args need the plain union
    Start,
    StartStep,
    FinishStep,
    ResetStep,
    Finish,
    Abort,
    Error,
    TextStart,
    TextDelta,
    TextEnd,
    ReasoningStart,
    ReasoningDelta,
    ReasoningEnd,
    ToolInputStart,
    ToolInputDelta,
    ToolInputAvailable,
    ToolInputError,
    ToolOutputAvailable,
    ToolOutputError,
    ToolOutputDenied,
    ToolApprovalRequest,
    ToolApprovalResponse,
    SourceUrl,
    SourceDocument,
    File,
    ReasoningFile,
    Custom,
    SteeringMessage,
    MessageMetadata,
]
Chunk: TypeAlias = _Tagged | Data

CHUNK_TYPES: Final[dict[str, type[_Chunk]]] = {struct.__struct_config__.tag: struct for struct in get_args(_Tagged)}
"""Every chunk class by its wire type; ``data-*`` apart, whose types are open."""


class _Field(NamedTuple):
    name: str
    key: str
    default: Any
    nullable: bool


def _fields_of(struct: type[_Chunk]) -> tuple[_Field, ...]:
    return tuple(
        _Field(field.name, field.encode_name, field.default, field.type is Any)
        for field in msgspec.structs.fields(struct)
        if field.name != "extra"
    )


_FIELDS: Final[dict[type[_Chunk], tuple[_Field, ...]]] = {
    Data: _fields_of(Data),
    **{struct: _fields_of(struct) for struct in CHUNK_TYPES.values()},
}
_DECODER: Final[msgspec.json.Decoder[_Tagged]] = msgspec.json.Decoder(_Tagged)
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
                f"{chunk_type}: null is illegal here; leave the key out", chunk_type=chunk_type, path=f"$.{field.key}"
            )
    try:
        return msgspec.convert(value, CHUNK_TYPES[chunk_type])  # type: ignore[return-value]
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `")
        raise InvalidChunk(f"{chunk_type}: {text}", chunk_type=chunk_type, path=path.rstrip("`") or "$") from None


def _data_from_json(value: dict[str, Any]) -> Data:
    known = {"type", "data", "id", "transient"}
    if "data" not in value:
        raise InvalidChunk(
            f"{value['type']}: the payload must stand under the key 'data'", chunk_type=value["type"], path="$.data"
        )
    for key, kind in (("id", str), ("transient", bool)):
        if key in value and not isinstance(value[key], kind):
            raise InvalidChunk(
                f"{value['type']}: Expected `{kind.__name__}`, got {json_kind(value[key])}",
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
