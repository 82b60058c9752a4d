"""The types of messages, as pages hold them and chat requests carry them: plain dictionaries with the wire's keys.

Optional keys are absent, never ``None``. The parts of AI SDK 5, 6 and 7 are all here; which release knows which
stands in :mod:`usechat.protocol.releases`.
"""

from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

__all__ = [
    "CustomUIPart",
    "DataUIPart",
    "DynamicToolUIPart",
    "FileUIPart",
    "ReasoningFileUIPart",
    "ReasoningUIPart",
    "SourceDocumentUIPart",
    "SourceUrlUIPart",
    "SteeringMessageUIPart",
    "StepStartUIPart",
    "TextUIPart",
    "ToolApproval",
    "ToolUIPart",
    "UIMessage",
    "UIPart",
    "is_dynamic_tool",
    "is_static_tool",
]

ProviderMetadata: TypeAlias = dict[str, dict[str, Any]]
TextState: TypeAlias = Literal["streaming", "done"]
ToolPartState: TypeAlias = Literal[
    "input-streaming",
    "input-available",
    "approval-requested",
    "approval-responded",
    "output-available",
    "output-error",
    "output-denied",
]


class TextUIPart(TypedDict):
    """Text of the answer, or of the user."""

    type: Literal["text"]
    text: str
    state: NotRequired[TextState]
    citations: NotRequired[list[dict[str, Any]]]
    providerMetadata: NotRequired[ProviderMetadata]


class ReasoningUIPart(TypedDict):
    """What the model thought before it answered."""

    type: Literal["reasoning"]
    text: str
    id: NotRequired[str]
    state: NotRequired[TextState]
    providerMetadata: NotRequired[ProviderMetadata]


class StepStartUIPart(TypedDict):
    """The boundary before a step."""

    type: Literal["step-start"]


class FileUIPart(TypedDict):
    """A file; ``url`` is often a data URL."""

    type: Literal["file"]
    mediaType: str
    url: str
    filename: NotRequired[str]
    providerReference: NotRequired[dict[str, str]]
    providerMetadata: NotRequired[ProviderMetadata]


class ReasoningFileUIPart(TypedDict):
    """A file made while thinking."""

    type: Literal["reasoning-file"]
    mediaType: str
    url: str
    providerMetadata: NotRequired[ProviderMetadata]


class SourceUrlUIPart(TypedDict):
    """A web page the answer rests on."""

    type: Literal["source-url"]
    sourceId: str
    url: str
    title: NotRequired[str]
    providerMetadata: NotRequired[ProviderMetadata]


class SourceDocumentUIPart(TypedDict):
    """A document the answer rests on."""

    type: Literal["source-document"]
    sourceId: str
    mediaType: str
    title: str
    filename: NotRequired[str]
    providerMetadata: NotRequired[ProviderMetadata]


class CustomUIPart(TypedDict):
    """Provider-specific content."""

    type: Literal["custom"]
    kind: str
    providerMetadata: NotRequired[ProviderMetadata]


class SteeringMessageUIPart(TypedDict):
    """A user message that joined the run."""

    type: Literal["steering-message"]
    id: str
    parts: list[TextUIPart | FileUIPart]


class DataUIPart(TypedDict):
    """The application's own data; ``type`` is ``data-<name>``."""

    type: str
    data: Any
    id: NotRequired[str]


class ToolApproval(TypedDict):
    """A request to allow a tool call; ``approved`` is there once a person has answered."""

    id: str
    approved: NotRequired[bool]
    reason: NotRequired[str]
    requestReason: NotRequired[str]
    isAutomatic: NotRequired[bool]
    signature: NotRequired[str]
    descriptor: NotRequired[Any]
    inputSchemaInput: NotRequired[Any]


class _ToolCall(TypedDict):
    """What both kinds of tool part share; ``state`` says which of the other keys are there."""

    toolCallId: str
    state: ToolPartState
    input: NotRequired[Any]
    rawInput: NotRequired[Any]
    inputEncoding: NotRequired[Literal["json", "text"]]
    output: NotRequired[Any]
    errorText: NotRequired[str]
    preliminary: NotRequired[bool]
    approval: NotRequired[ToolApproval]
    providerExecuted: NotRequired[bool]
    title: NotRequired[str]
    toolMetadata: NotRequired[dict[str, Any]]
    callProviderMetadata: NotRequired[ProviderMetadata]
    resultProviderMetadata: NotRequired[ProviderMetadata]


class ToolUIPart(_ToolCall):
    """A call of a tool the page knows; ``type`` is ``tool-<name>``."""

    type: str


class DynamicToolUIPart(_ToolCall):
    """A call of a tool the page does not know beforehand."""

    type: Literal["dynamic-tool"]
    toolName: str
    dynamic: NotRequired[Literal[False]]


UIPart: TypeAlias = (
    TextUIPart
    | ReasoningUIPart
    | StepStartUIPart
    | FileUIPart
    | ReasoningFileUIPart
    | SourceUrlUIPart
    | SourceDocumentUIPart
    | CustomUIPart
    | SteeringMessageUIPart
    | DataUIPart
    | ToolUIPart
    | DynamicToolUIPart
)


class UIMessage(TypedDict):
    """One message of a chat, as pages hold it and requests carry it. It is a plain dictionary.

    >>> question: UIMessage = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}
    >>> question["parts"][0]["type"]
    'text'

    ``metadata`` is the application's own, and absent if there is none. A dictionary that came from a client is
    untrusted: check it with :func:`~usechat.protocol.validation.validate_messages`.
    """

    id: str
    role: Literal["system", "user", "assistant"]
    parts: list[UIPart]
    metadata: NotRequired[Any]


def is_static_tool(part_type: str) -> bool:
    """Tell whether parts of this type are calls of a tool the page knows."""
    return part_type.startswith("tool-")


def is_dynamic_tool(part_type: str) -> bool:
    """Tell whether parts of this type are calls of a tool the page does not know beforehand."""
    return part_type == "dynamic-tool"
