"""The chunks of the UI message stream, AI SDK 5 to 7: one Struct per wire ``type``.

The class name is the wire type in PascalCase, a field is the wire key in snake_case. Which release knows which chunk
and field is the business of :mod:`usechat.dialects`; import the chunks from :mod:`usechat.chunks`.
"""

from typing import Any, Final, Literal, TypeAlias, Union, get_args

import msgspec

ProviderMetadata: TypeAlias = dict[str, dict[str, Any]]
FinishReason: TypeAlias = Literal[
    "stop", "length", "content-filter", "tool-calls", "error", "other", "unknown", "interrupted"
]


class ChunkBase(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What all chunks share: wire keys in camelCase, ``None`` never written (clients reject ``null``)."""


class Start(ChunkBase, frozen=True, tag_field="type", tag="start"):
    """The message begins; ``message_id`` becomes its id on the page."""

    message_id: str | None = None
    message_metadata: Any = None


class StartStep(ChunkBase, frozen=True, tag_field="type", tag="start-step"):
    """A step begins: it becomes a ``step-start`` part."""


class FinishStep(ChunkBase, frozen=True, tag_field="type", tag="finish-step"):
    """The step is over; clients before 7.0.79 forget every open text and reasoning block."""


class ResetStep(ChunkBase, frozen=True, tag_field="type", tag="reset-step"):
    """Every part since the last ``start-step`` is void."""


class Finish(ChunkBase, frozen=True, tag_field="type", tag="finish"):
    """The message is complete."""

    finish_reason: FinishReason | None = None
    message_metadata: Any = None


class Abort(ChunkBase, frozen=True, tag_field="type", tag="abort"):
    """The turn was stopped; clients show nothing of it."""

    reason: str | None = None


class Error(ChunkBase, frozen=True, tag_field="type", tag="error"):
    """The turn failed: the client shows the text and reads no further."""

    error_text: str


class TextStart(ChunkBase, frozen=True, tag_field="type", tag="text-start"):
    """A text block opens."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class TextDelta(ChunkBase, frozen=True, tag_field="type", tag="text-delta"):
    """More text for an open block."""

    id: str
    delta: str
    provider_metadata: ProviderMetadata | None = None


class TextEnd(ChunkBase, frozen=True, tag_field="type", tag="text-end"):
    """A text block is complete."""

    id: str
    citations: list[dict[str, Any]] | None = None
    provider_metadata: ProviderMetadata | None = None


class ReasoningStart(ChunkBase, frozen=True, tag_field="type", tag="reasoning-start"):
    """A reasoning block opens."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningDelta(ChunkBase, frozen=True, tag_field="type", tag="reasoning-delta"):
    """More reasoning for an open block."""

    id: str
    delta: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningEnd(ChunkBase, frozen=True, tag_field="type", tag="reasoning-end"):
    """A reasoning block is complete."""

    id: str
    provider_metadata: ProviderMetadata | None = None


class ToolInputStart(ChunkBase, frozen=True, tag_field="type", tag="tool-input-start"):
    """A tool call begins; its input follows as deltas."""

    tool_call_id: str
    tool_name: str
    input_encoding: Literal["json", "text"] | None = None
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    dynamic: bool | None = None
    title: str | None = None


class ToolInputDelta(ChunkBase, frozen=True, tag_field="type", tag="tool-input-delta"):
    """More of a tool call's input text."""

    tool_call_id: str
    input_text_delta: str


class ToolInputAvailable(ChunkBase, frozen=True, tag_field="type", tag="tool-input-available"):
    """A tool call's input is complete."""

    tool_call_id: str
    tool_name: str
    input: Any
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    dynamic: bool | None = None
    title: str | None = None


class ToolInputError(ChunkBase, frozen=True, tag_field="type", tag="tool-input-error"):
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


class ToolOutputAvailable(ChunkBase, frozen=True, tag_field="type", tag="tool-output-available"):
    """A tool returned; ``preliminary`` output is replaced by the next."""

    tool_call_id: str
    output: Any
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    preliminary: bool | None = None
    dynamic: bool | None = None


class ToolOutputError(ChunkBase, frozen=True, tag_field="type", tag="tool-output-error"):
    """A tool failed; the turn goes on."""

    tool_call_id: str
    error_text: str
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: dict[str, Any] | None = None
    dynamic: bool | None = None


class ToolOutputDenied(ChunkBase, frozen=True, tag_field="type", tag="tool-output-denied"):
    """A tool was not allowed to run."""

    tool_call_id: str


class ToolApprovalRequest(ChunkBase, frozen=True, tag_field="type", tag="tool-approval-request"):
    """A person is asked to allow a tool call."""

    approval_id: str
    tool_call_id: str
    approval_descriptor: Any = None
    input_schema_input: Any = msgspec.UNSET
    reason: str | None = None
    is_automatic: bool | None = None
    signature: str | None = None


class ToolApprovalResponse(ChunkBase, frozen=True, tag_field="type", tag="tool-approval-response"):
    """An approval was answered by the server."""

    approval_id: str
    approved: bool
    reason: str | None = None
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None


class SourceUrl(ChunkBase, frozen=True, tag_field="type", tag="source-url"):
    """A web page the answer rests on."""

    source_id: str
    url: str
    title: str | None = None
    provider_metadata: ProviderMetadata | None = None


class SourceDocument(ChunkBase, frozen=True, tag_field="type", tag="source-document"):
    """A document the answer rests on."""

    source_id: str
    media_type: str
    title: str
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None


class File(ChunkBase, frozen=True, tag_field="type", tag="file"):
    """A file made by the model."""

    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningFile(ChunkBase, frozen=True, tag_field="type", tag="reasoning-file"):
    """A file made while thinking."""

    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


class Custom(ChunkBase, frozen=True, tag_field="type", tag="custom"):
    """Provider-specific content."""

    kind: str
    provider_metadata: ProviderMetadata | None = None


class SteeringMessage(ChunkBase, frozen=True, tag_field="type", tag="steering-message"):
    """A user message that joined the run."""

    id: str
    parts: list[dict[str, Any]]


class MessageMetadata(ChunkBase, frozen=True, tag_field="type", tag="message-metadata"):
    """Facts about the message, merged deeply."""

    message_metadata: Any


class Data(ChunkBase, frozen=True):
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
Chunk: TypeAlias = TaggedChunk | Data

CHUNK_TYPES: Final[dict[str, type[ChunkBase]]] = {
    struct.__struct_config__.tag: struct for struct in get_args(TaggedChunk)
}
"""Every chunk class by its wire type; ``data-*`` apart, whose types are open."""
