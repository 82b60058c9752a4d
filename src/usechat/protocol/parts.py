"""The neutral vocabulary of adapters: what happened, with no word about framing.

A part says *what* the source did; :class:`~usechat.protocol.stream.MessageStream` decides which chunks that takes.
``lane`` names the speaker (a node, an agent): parts of one lane are in order, lanes interleave freely.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

__all__ = [
    "Abort",
    "ApprovalRequest",
    "ApprovalResponse",
    "BlockEnd",
    "Custom",
    "Data",
    "Error",
    "File",
    "Finish",
    "Metadata",
    "Part",
    "ProviderMetadata",
    "Reasoning",
    "ReasoningFile",
    "ResetStep",
    "SourceDocument",
    "SourceUrl",
    "Start",
    "SteeringMessage",
    "Step",
    "Text",
    "ToolCall",
    "ToolDenied",
    "ToolError",
    "ToolInputDelta",
    "ToolInputError",
    "ToolInputStart",
    "ToolPart",
    "ToolResult",
]

ProviderMetadata: TypeAlias = Mapping[str, Mapping[str, Any]]


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    lane: str = ""


class Start(_Part, frozen=True):
    """Names the assistant message. Only the first part can: a later one keeps its metadata and loses its id."""

    message_id: str | None = None
    metadata: Mapping[str, Any] | None = None


class Text(_Part, frozen=True, gc=False):
    """More answer text. ``Text("")`` opens a block and adds nothing. ``id`` names the block, if the text opens one."""

    text: str
    provider_metadata: ProviderMetadata | None = None
    id: str | None = None


class Reasoning(_Part, frozen=True):
    """More thinking text. ``Reasoning("")`` opens a block and adds nothing."""

    text: str
    provider_metadata: ProviderMetadata | None = None


class BlockEnd(_Part, frozen=True):
    """The lane's open text or reasoning block is complete; the next text starts a new one."""

    provider_metadata: ProviderMetadata | None = None
    citations: tuple[Mapping[str, Any], ...] | None = None


class ToolInputStart(_Part, frozen=True):
    """The model began to write a tool call; its input follows in pieces."""

    tool_call_id: str
    tool_name: str
    dynamic: bool = False
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: Mapping[str, Any] | None = None
    title: str | None = None
    input_encoding: Literal["json", "text"] | None = None


class ToolInputDelta(_Part, frozen=True):
    """A piece of the tool call's input, as the JSON text the model writes."""

    tool_call_id: str
    text: str


class ToolCall(_Part, frozen=True):
    """A tool call whose input is complete. Without a result it waits for the client."""

    tool_call_id: str
    tool_name: str
    input: Any = None
    dynamic: bool = False
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: Mapping[str, Any] | None = None
    title: str | None = None


class ToolInputError(_Part, frozen=True):
    """A tool call that cannot run: unknown tool, or input that does not fit it."""

    tool_call_id: str
    tool_name: str
    error_text: str
    input: Any = None
    dynamic: bool = False
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: Mapping[str, Any] | None = None
    title: str | None = None


class ToolResult(_Part, frozen=True):
    """What a tool returned. ``tool_name`` and ``dynamic`` only matter when the call was never announced."""

    tool_call_id: str
    output: Any = None
    preliminary: bool = False
    tool_name: str | None = None
    dynamic: bool = False
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: Mapping[str, Any] | None = None


class ToolError(_Part, frozen=True):
    """A tool failed; the turn goes on. The text is shown to people."""

    tool_call_id: str
    error_text: str
    tool_name: str | None = None
    dynamic: bool = False
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: Mapping[str, Any] | None = None


class ToolDenied(_Part, frozen=True):
    """A tool call was not allowed to run."""

    tool_call_id: str
    reason: str | None = None
    tool_name: str | None = None
    dynamic: bool = False


class ApprovalRequest(_Part, frozen=True):
    """A person must allow this tool call first."""

    approval_id: str
    tool_call_id: str
    reason: str | None = None
    is_automatic: bool = False
    signature: str | None = None
    descriptor: Any = None
    input_schema_input: Any = None
    tool_name: str | None = None
    dynamic: bool = False


class ApprovalResponse(_Part, frozen=True):
    """An approval was given or refused during the turn."""

    approval_id: str
    approved: bool
    reason: str | None = None
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None


class SourceUrl(_Part, frozen=True):
    """A web page the answer rests on."""

    source_id: str
    url: str
    title: str | None = None
    provider_metadata: ProviderMetadata | None = None


class SourceDocument(_Part, frozen=True):
    """A document the answer rests on."""

    source_id: str
    media_type: str
    title: str
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None


class File(_Part, frozen=True):
    """A file made by the model; ``url`` may be a ``data:`` URL."""

    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningFile(_Part, frozen=True):
    """A file made while thinking."""

    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


class Custom(_Part, frozen=True):
    """Provider-specific content; ``kind`` reads ``provider.kind``."""

    kind: str
    provider_metadata: ProviderMetadata | None = None


class Data(_Part, frozen=True):
    """The application's own data. The same name and id replaces; transient data is not kept in the message."""

    name: str
    data: Any
    id: str | None = None
    transient: bool = False


class SteeringMessage(_Part, frozen=True):
    """A user message that joined the run while it was going on."""

    id: str
    parts: tuple[Mapping[str, Any], ...]


class Step(_Part, frozen=True):
    """The source moved on: another model call, another node."""


class ResetStep(_Part, frozen=True):
    """Everything since the last step began is void, for example because the model call is retried."""


class Metadata(_Part, frozen=True):
    """Facts about the whole message, merged deeply into what was sent before."""

    metadata: Mapping[str, Any]


class Finish(_Part, frozen=True):
    """The turn ended well. ``reason`` defaults to ``tool-calls`` while a call waits for the client, else ``stop``."""

    reason: str | None = None
    usage: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None


class Error(_Part, frozen=True):
    """The turn failed. The text is shown to people."""

    error_text: str
    usage: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None


class Abort(_Part, frozen=True):
    """The turn was stopped on purpose."""

    reason: str | None = None
    usage: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None


ToolPart: TypeAlias = (
    ToolInputStart
    | ToolInputDelta
    | ToolCall
    | ToolInputError
    | ToolResult
    | ToolError
    | ToolDenied
    | ApprovalRequest
    | ApprovalResponse
)
Part: TypeAlias = (
    Start
    | Text
    | Reasoning
    | BlockEnd
    | ToolPart
    | SourceUrl
    | SourceDocument
    | File
    | ReasoningFile
    | Custom
    | Data
    | SteeringMessage
    | Step
    | ResetStep
    | Metadata
    | Finish
    | Error
    | Abort
)
