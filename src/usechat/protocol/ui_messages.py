"""Messages, as pages hold them and chat requests carry them: plain dictionaries with the wire's keys.

Optional keys are absent, never ``None``. The parts of AI SDK 5, 6 and 7 are all here; which release knows which
stands in :mod:`usechat.protocol.releases`.

The functions at the end answer every question about a message or one of its parts: which parts are tool calls, what
the tool is called, where the last step begins, what the text is. No other module looks at the ``type`` of a tool part.
They take messages of clients, which may be wrong in any way, and never raise.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NotRequired, TypeAlias, TypedDict, TypeVar

from usechat.protocol.states import SETTLED

__all__ = [
    "EXECUTOR",
    "UNKNOWN_TOOL",
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
    "is_provider_executed",
    "is_settled",
    "is_static_tool",
    "is_step_start",
    "is_tool",
    "last_step",
    "last_step_start",
    "steps_of",
    "text_of",
    "tool_name",
    "tool_parts_of",
]

UNKNOWN_TOOL: Final = "unknown"
"""The name of a tool whose call does not tell it."""

_P = TypeVar("_P", bound=Mapping[str, Any])

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
    """A file; ``url`` is often a data URL.

    >>> file: FileUIPart = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,hello"}
    >>> file["url"].partition(":")[0]
    'data'
    """

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


def is_static_tool(part: Mapping[str, Any]) -> bool:
    """Tell whether a part is a call of a tool the page knows."""
    return str(part.get("type")).startswith("tool-")


def is_dynamic_tool(part: Mapping[str, Any]) -> bool:
    """Tell whether a part is a call of a tool the page does not know beforehand."""
    return part.get("type") == "dynamic-tool"


def is_tool(part: Mapping[str, Any]) -> bool:
    """Tell whether a part is a tool call of either kind.

    >>> is_tool({"type": "tool-search", "toolCallId": "c1"}), is_tool({"type": "text", "text": "Hi"})
    (True, False)
    """
    return is_static_tool(part) or is_dynamic_tool(part)


def is_settled(part: Mapping[str, Any]) -> bool:
    """Tell whether a tool part has an outcome; its state may be any JSON.

    >>> is_settled({"type": "tool-search", "toolCallId": "c1", "state": "input-available"})
    False
    """
    return str(part.get("state")) in SETTLED


def tool_name(part: Mapping[str, Any]) -> str:
    """Return the name of the tool that a tool part calls.

    >>> tool_name({"type": "tool-search"}), tool_name({"type": "dynamic-tool", "toolName": "search"})
    ('search', 'search')
    """
    if is_static_tool(part):
        return str(part["type"]).removeprefix("tool-")
    name = part.get("toolName")
    return name if isinstance(name, str) else UNKNOWN_TOOL


def tool_parts_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tool parts of a message; parts without a type and an id are left out.

    >>> tool_parts_of({"parts": [{"type": "text", "text": "Hi"}, {"type": "tool-search", "toolCallId": "c1"}]})
    [{'type': 'tool-search', 'toolCallId': 'c1'}]
    """
    parts = message.get("parts")
    return [
        part
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, Mapping) and isinstance(part.get("toolCallId"), str) and is_tool(part)
    ]


def steps_of(parts: Sequence[_P]) -> list[list[_P]]:
    """Return the parts by steps, without the boundaries; there is at least one step.

    >>> steps_of([{"type": "step-start"}, {"type": "text", "text": "Hi"}])
    [[], [{'type': 'text', 'text': 'Hi'}]]
    """
    steps: list[list[_P]] = [[]]
    for part in parts:
        if is_step_start(part):
            steps.append([])
        else:
            steps[-1].append(part)
    return steps


def last_step(parts: Sequence[_P]) -> Sequence[_P]:
    """Return the parts behind the last step boundary, or all of them if there is none.

    >>> last_step([{"type": "text", "text": "Hi"}, {"type": "step-start"}, {"type": "text", "text": "Bye"}])
    [{'type': 'text', 'text': 'Bye'}]
    """
    start = last_step_start(parts)
    return parts[start + 1 :] if parts and is_step_start(parts[start]) else parts


def last_step_start(parts: Sequence[_P]) -> int:
    """Return where the last step begins: at the last step boundary, or with the first part if there is none."""
    return next((index for index in range(len(parts) - 1, 0, -1) if is_step_start(parts[index])), 0)


def is_step_start(part: Any) -> bool:
    """Tell whether a part is a step boundary."""
    return isinstance(part, Mapping) and part.get("type") == "step-start"


def text_of(message: Mapping[str, Any], separator: str = "") -> str:
    """Return the text parts of a message, joined.

    >>> text_of({"parts": [{"type": "text", "text": "Hel"}, {"type": "step-start"}, {"type": "text", "text": "lo"}]})
    'Hello'
    """
    texts = (part.get("text") for part in message["parts"] if part.get("type") == "text")
    return separator.join(text for text in texts if isinstance(text, str))


EXECUTOR: Final = "usechat"
"""The key of a call's provider metadata below which stands who runs it, if ``providerExecuted`` of the part differs."""


def is_provider_executed(part: Mapping[str, Any]) -> bool:
    """Tell whether the provider runs a tool call.

    While a call waits for its approval, ``providerExecuted`` of its part may say otherwise, so that pages post at the
    right time (:mod:`usechat.protocol.tool_calls`); the provider metadata has the truth then.

    >>> is_provider_executed({"type": "tool-search", "providerExecuted": True})
    True
    >>> is_provider_executed({"callProviderMetadata": {"usechat": {"providerExecuted": True}}})
    True
    """
    match part.get("callProviderMetadata"):
        case {"usechat": {"providerExecuted": bool(by_provider)}}:
            return by_provider
    return part.get("providerExecuted") is True
