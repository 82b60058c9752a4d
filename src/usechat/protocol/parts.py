"""Parts: what agents and adapters can report, independent of the wire format.

A part says *what happened*. :class:`~usechat.protocol.stream.MessageStream` decides which chunks to send. Send parts in
the order in which things happen. Every order is allowed: the stream adds what is missing, and leaves out or replaces
what a client cannot show. Nothing is checked when a part is built; ``MessageStream.send`` raises
:class:`~usechat.errors.LocalProtocolError` for a field of the wrong type. Fields that are sent as JSON accept any
Python value (``docs/values.md`` describes the conversion).

Fields that several parts share:

- ``lane`` names the speaker: the agent or node that sends the part. A single agent needs none. Parts of one lane keep
  their order; parts of different lanes may alternate, and each lane has its own text block.
- ``provider_metadata`` maps the name of a provider to an object; the page keeps it with the part.
- ``tool_call_id`` is the source's own id of a call. ``tool_name`` and ``dynamic`` of a result only matter if the call
  was never sent. ``dynamic`` marks a tool that the page does not know beforehand.
- ``provider_executed`` says that the model's provider ran the tool. ``tool_metadata`` and ``title`` are for the page.
- ``usage`` and ``metadata`` of an ending go to the message metadata, usage under the key ``usage``.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from usechat.errors import LocalProtocolError

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
    "McpApp",
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


class McpApp(msgspec.Struct, frozen=True):
    """The user interface that a tool of an MCP server brings: the resource that a page shows beside the call.

    >>> from usechat import MessageStream
    >>> call = ToolCall("c1", "forecast", {}, app=McpApp("ui://weather/map", server="weather"))
    >>> MessageStream(message_id="m1", sdk="7").send(call)[-1].tool_metadata["app"]["resourceUri"]
    'ui://weather/map'

    ``resource_uri`` begins with ``ui://``. ``server`` is the name under which the application knows the MCP server, and
    ``visibility`` says who may call the tool: ``"model"``, ``"app"``, or without it both.
    """

    resource_uri: str
    server: str | None = None
    visibility: tuple[str, ...] | None = None


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    lane: str = ""


class Start(_Part, frozen=True):
    """Name the assistant message, and give it metadata. Only the first part names it; a later one adds its metadata.

    >>> from usechat import MessageStream
    >>> MessageStream(sdk="7").send(Start("m1", {"model": "small"}))
    [StartChunk(message_id='m1', message_metadata={'model': 'small'})]

    ``metadata`` is the application's own: the page finds it in ``message.metadata``. ``lane`` names the speaker;
    :mod:`usechat.parts` explains it.

    With ``steps=False`` the message has no steps from here on but those that the protocol needs, as with
    ``MessageStream(send_steps=False)``.
    """

    message_id: str | None = None
    metadata: Mapping[str, Any] | None = None
    steps: bool = True


class Text(_Part, frozen=True, gc=False):
    """Add text to the answer.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> chunks = stream.send(Text("Hel"))
    >>> stream.send(Text("lo"))
    [TextDeltaChunk(id='1', delta='lo', provider_metadata=None)]

    ``Text("")`` opens a block and adds nothing. ``id`` names the block, if this text opens one and the id is free.

    ``provider_metadata`` is kept with the part, by provider. ``lane`` names the speaker; :mod:`usechat.parts` explains
    it.
    """

    text: str
    provider_metadata: ProviderMetadata | None = None
    id: str | None = None


class Reasoning(_Part, frozen=True):
    """Add text to the thinking that the page shows apart from the answer. ``Reasoning("")`` only opens a block.

    >>> from usechat import MessageStream
    >>> MessageStream(message_id="m1", sdk="7").send(Reasoning("Let me see."))[-1]
    ReasoningDeltaChunk(id='1', delta='Let me see.', provider_metadata=None)

    ``provider_metadata`` is kept with the part, by provider. ``lane`` names the speaker; :mod:`usechat.parts` explains
    it.
    """

    text: str
    provider_metadata: ProviderMetadata | None = None


class BlockEnd(_Part, frozen=True):
    """Complete the lane's open text or reasoning block; the next text begins a new one.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> chunks = stream.send(Text("Hello"))
    >>> stream.send(BlockEnd())
    [TextEndChunk(id='1', citations=None, provider_metadata=None)]

    Blocks end by themselves before tools, files and steps. ``citations`` belong to the text of the block.

    ``provider_metadata`` is kept with the part, by provider. ``lane`` names the speaker; :mod:`usechat.parts` explains
    it.
    """

    provider_metadata: ProviderMetadata | None = None
    citations: tuple[Mapping[str, Any], ...] | None = None


class ToolInputStart(_Part, frozen=True):
    """Begin a tool call whose input follows in pieces.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> stream.send(ToolInputStart("c1", "weather"))[-1]
    ToolInputStartChunk(tool_call_id='c1', tool_name='weather', ...)

    ``input_encoding`` is ``"json"`` (the default) or ``"text"``, for an input that is shown as it is.

    ``dynamic`` marks a tool that the page does not know beforehand, ``provider_executed`` one that the model's provider
    runs. ``tool_metadata`` and ``title`` are for the page. ``lane`` names the speaker; :mod:`usechat.parts`
    explains it.
    ``provider_metadata`` is kept with the part, by provider.
    """

    tool_call_id: str
    tool_name: str
    dynamic: bool = False
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: Mapping[str, Any] | None = None
    title: str | None = None
    input_encoding: Literal["json", "text"] | None = None


class ToolInputDelta(_Part, frozen=True):
    """Add a piece to the input of a tool call, as the JSON text that the model writes.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> chunks = stream.send(ToolInputStart("c1", "weather"))
    >>> stream.send(ToolInputDelta("c1", '{"city": "Os'))
    [ToolInputDeltaChunk(tool_call_id='c1', input_text_delta='{"city": "Os')]

    ``lane`` names the speaker; :mod:`usechat.parts` explains it.
    """

    tool_call_id: str
    text: str


class ToolCall(_Part, frozen=True):
    """Call a tool with its whole input. Without a result before the turn ends, the call waits for the client.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> stream.send(ToolCall("c1", "weather", {"city": "Oslo"}))[-1]
    ToolInputAvailableChunk(tool_call_id='c1', tool_name='weather', input={'city': 'Oslo'}, ...)

    ``dynamic`` marks a tool that the page does not know beforehand, ``provider_executed`` one that the model's provider
    runs: such a call does not wait for the client, and fails without a result. ``tool_metadata`` and ``title`` are for
    the page. ``provider_metadata`` is kept with the part, by provider. ``retracts_output`` takes a preliminary result
    back, because the call waits for the client after all. ``app`` is the user interface that the tool brings.
    ``lane`` names the speaker; :mod:`usechat.parts` explains it.
    """

    tool_call_id: str
    tool_name: str
    input: Any = None
    dynamic: bool = False
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: Mapping[str, Any] | None = None
    title: str | None = None
    retracts_output: bool = False
    app: McpApp | None = None


class ToolInputError(_Part, frozen=True):
    """Report a tool call that cannot run: the tool is unknown, or the input does not fit it.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> stream.send(ToolInputError("c1", "weather", "There is no city.", {}))[-1]
    ToolInputErrorChunk(tool_call_id='c1', tool_name='weather', input={}, error_text='There is no city.', ...)

    ``dynamic`` marks a tool that the page does not know beforehand, ``provider_executed`` one that the model's provider
    runs. ``tool_metadata`` and ``title`` are for the page. ``lane`` names the speaker; :mod:`usechat.parts`
    explains it.
    ``provider_metadata`` is kept with the part, by provider.
    """

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
    """Report what a tool returned.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> chunks = stream.send(ToolCall("c1", "weather", {"city": "Oslo"}))
    >>> stream.send(ToolResult("c1", {"celsius": 21}))
    [ToolOutputAvailableChunk(tool_call_id='c1', output={'celsius': 21}, ...)]

    A ``preliminary`` result is replaced by the next one. The last one becomes final if no other comes.

    ``tool_name`` and ``dynamic`` only matter if the call was never announced. ``provider_executed`` says that the
    model's provider ran the tool; ``tool_metadata`` is for the page. ``app`` is the user interface that the tool
    brings, if the call did not say so. ``lane`` names the speaker; :mod:`usechat.parts` explains it.
    ``provider_metadata`` is kept with the part, by provider.
    """

    tool_call_id: str
    output: Any = None
    preliminary: bool = False
    tool_name: str | None = None
    dynamic: bool = False
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: Mapping[str, Any] | None = None
    app: McpApp | None = None


class ToolError(_Part, frozen=True):
    """Report that a tool failed; the turn continues. The text is shown to the user.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> chunks = stream.send(ToolCall("c1", "weather", {"city": "Oslo"}))
    >>> stream.send(ToolError("c1", "The weather service is down."))
    [ToolOutputErrorChunk(tool_call_id='c1', error_text='The weather service is down.', ...)]

    ``tool_name`` and ``dynamic`` only matter if the call was never announced. ``provider_executed`` says that the
    model's provider ran the tool; ``tool_metadata`` is for the page. ``lane`` names the speaker;
    :mod:`usechat.parts` explains it.
    ``provider_metadata`` is kept with the part, by provider.
    """

    tool_call_id: str
    error_text: str
    tool_name: str | None = None
    dynamic: bool = False
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None
    tool_metadata: Mapping[str, Any] | None = None


class ToolDenied(_Part, frozen=True):
    """Report that a tool call was not allowed to run.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> chunks = stream.send(ApprovalRequest("a1", "c1", tool_name="delete"))
    >>> stream.send(ToolDenied("c1", "Not today."))[-1]
    ToolOutputDeniedChunk(tool_call_id='c1')

    ``reason`` is for the page. ``tool_name`` and ``dynamic`` only matter if the call was never announced. ``lane``
    names the speaker; :mod:`usechat.parts` explains it.
    """

    tool_call_id: str
    reason: str | None = None
    tool_name: str | None = None
    dynamic: bool = False


class ApprovalRequest(_Part, frozen=True):
    """Ask a person to allow a tool call. If the turn ends now, the client posts again with the answer.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> chunks = stream.send(ToolCall("c1", "delete", {"file": "a.txt"}))
    >>> stream.send(ApprovalRequest("a1", "c1"))
    [ToolApprovalRequestChunk(approval_id='a1', tool_call_id='c1', ...)]

    A stream for AI SDK 6, or for any, sends the request when the turn ends, if it is still pending then.

    ``is_automatic`` marks a request that the server answers itself; without an answer it is denied when the turn ends.
    ``reason``, ``descriptor`` and
    ``input_schema_input`` are for the page. ``signature`` is made by the server if it has a secret.

    ``tool_name`` and ``dynamic`` only matter if the call was never announced. ``lane`` names the speaker;
    :mod:`usechat.parts` explains it.
    """

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
    """Report that an approval was given or refused during the turn.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> chunks = stream.send(ApprovalRequest("a1", "c1", tool_name="delete"))
    >>> stream.send(ApprovalResponse("a1", approved=True))
    [ToolApprovalResponseChunk(approval_id='a1', approved=True, ...)]

    ``reason`` is the person's own. ``provider_executed`` says that the model's provider runs the tool. ``lane`` names
    the speaker; :mod:`usechat.parts` explains it.
    ``provider_metadata`` is kept with the part, by provider.
    """

    approval_id: str
    approved: bool
    reason: str | None = None
    provider_executed: bool | None = None
    provider_metadata: ProviderMetadata | None = None


class SourceUrl(_Part, frozen=True):
    """Cite a web page that the answer rests on.

    >>> from usechat import MessageStream
    >>> MessageStream(message_id="m1", sdk="7").send(SourceUrl("s1", "https://example.com", "An example"))[-1]
    SourceUrlChunk(source_id='s1', url='https://example.com', title='An example', provider_metadata=None)

    ``source_id`` identifies the source in the message. ``provider_metadata`` is kept with the part, by provider.
    ``lane`` names the speaker; :mod:`usechat.parts` explains it.
    """

    source_id: str
    url: str
    title: str | None = None
    provider_metadata: ProviderMetadata | None = None


class SourceDocument(_Part, frozen=True):
    """Cite a document that the answer rests on.

    >>> from usechat import MessageStream
    >>> MessageStream(message_id="m1", sdk="7").send(SourceDocument("s1", "application/pdf", "The manual"))[-1]
    SourceDocumentChunk(source_id='s1', media_type='application/pdf', title='The manual', ...)

    ``source_id`` identifies the source in the message, and ``filename`` is shown with it. ``provider_metadata`` is kept
    with the part, by provider. ``lane`` names the speaker; :mod:`usechat.parts` explains it.
    """

    source_id: str
    media_type: str
    title: str
    filename: str | None = None
    provider_metadata: ProviderMetadata | None = None


class File(_Part, frozen=True):
    """Send a file that the model made; ``url`` may be a ``data:`` URL.

    >>> from usechat import MessageStream
    >>> MessageStream(message_id="m1", sdk="7").send(File("https://example.com/a.png", "image/png"))[-1]
    FileChunk(url='https://example.com/a.png', media_type='image/png', provider_metadata=None)

    ``provider_metadata`` is kept with the part, by provider. ``lane`` names the speaker; :mod:`usechat.parts` explains
    it.
    """

    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


class ReasoningFile(_Part, frozen=True):
    """Send a file that the model made while thinking.

    >>> from usechat import MessageStream
    >>> MessageStream(message_id="m1", sdk="7").send(ReasoningFile("https://example.com/a.png", "image/png"))[-1]
    ReasoningFileChunk(url='https://example.com/a.png', media_type='image/png', provider_metadata=None)

    ``provider_metadata`` is kept with the part, by provider. ``lane`` names the speaker; :mod:`usechat.parts` explains
    it.
    """

    url: str
    media_type: str
    provider_metadata: ProviderMetadata | None = None


class Custom(_Part, frozen=True):
    """Send content of a provider's own kind; ``kind`` reads ``provider.kind``.

    >>> from usechat import MessageStream
    >>> MessageStream(message_id="m1", sdk="7").send(Custom("openai.compaction"))[-1]
    CustomChunk(kind='openai.compaction', provider_metadata=None)

    ``provider_metadata`` is kept with the part, by provider. ``lane`` names the speaker; :mod:`usechat.parts` explains
    it.
    """

    kind: str
    provider_metadata: ProviderMetadata | None = None


class Data(_Part, frozen=True):
    """Send data of the application's own, which the page gets as the part ``data-<name>``.

    >>> from usechat import MessageStream
    >>> MessageStream(message_id="m1", sdk="7").send(Data("progress", {"percent": 40}, id="p1"))[-1]
    DataChunk(type='data-progress', data={'percent': 40}, id='p1', transient=None, extra={})

    Data of the same name and ``id`` replaces the earlier one. ``transient`` data is not kept in the message.

    ``lane`` names the speaker; :mod:`usechat.parts` explains it.
    """

    name: str
    data: Any
    id: str | None = None
    transient: bool = False

    @classmethod
    def of(cls, value: Any, id: str | None = None, transient: bool = False) -> "Data":  # noqa: A002
        """Return a part that is named after the type of its data: a dataclass, a Struct or a pydantic model.

        ``id`` and ``transient`` are those of :class:`Data`. Raises :class:`~usechat.errors.LocalProtocolError` for data
        of another type.

        >>> import msgspec
        >>> class SearchResult(msgspec.Struct):
        ...     url: str
        >>> Data.of(SearchResult("https://example.org")).name
        'search-result'
        """
        is_described = dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct)
        if isinstance(value, type) or not (is_described or hasattr(value, "model_dump")):
            raise LocalProtocolError(
                f"data without a name is a dataclass, a msgspec Struct or a pydantic model, not {type(value).__name__};"
                " give a name and the data"
            )
        return cls(data_name(type(value)), value, id, transient)


def data_name(kind: type) -> str:
    """Return the name of the data part that is named after a type: ``SearchResult`` becomes ``search-result``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", kind.__name__.strip("_")).lower()


class SteeringMessage(_Part, frozen=True):
    """Report a user message that joined the run; ``parts`` are text and file parts as pages hold them.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> stream.send(SteeringMessage("u2", ({"type": "text", "text": "In Celsius."},)))[-1]
    SteeringMessageChunk(id='u2', parts=[{'type': 'text', 'text': 'In Celsius.'}])

    ``lane`` names the speaker; :mod:`usechat.parts` explains it.
    """

    id: str
    parts: tuple[Mapping[str, Any], ...]


class Step(_Part, frozen=True):
    """Begin a step: another model call, another node.

    The step begins with its first content. While a tool call of the current step has no outcome, none begins.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> chunks = stream.send(File("https://example.com/a.png", "image/png"))
    >>> stream.send(Step())
    [FinishStepChunk()]
    >>> stream.send(Text("Next"))[0]
    StartStepChunk()

    ``leaves_calls`` begins the step even so, because the source runs these calls itself and reports their outcomes in a
    later turn. Inputs that are being streamed are completed first in any case, and the step continues if an approval is
    pending in it, because pages post answers to the calls of the last step only.

    ``lane`` names the speaker; :mod:`usechat.parts` explains it.
    """

    leaves_calls: bool = False


class ResetStep(_Part, frozen=True):
    """Tell the page to drop everything since the last step began, for example because the model call is retried.

    >>> from usechat import MessageStream
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> chunks = stream.send(Text("Hm"))
    >>> stream.send(ResetStep())
    [TextEndChunk(id='1', ...), ResetStepChunk()]

    ``lane`` names the speaker; :mod:`usechat.parts` explains it.
    """


class Metadata(_Part, frozen=True):
    """Add facts about the whole message; the page merges them deeply into what was sent before.

    >>> from usechat import MessageStream
    >>> MessageStream(message_id="m1", sdk="7").send(Metadata({"model": "small"}))[-1]
    MessageMetadataChunk(message_metadata={'model': 'small'})

    ``lane`` names the speaker; :mod:`usechat.parts` explains it.
    """

    metadata: Mapping[str, Any]


class Finish(_Part, frozen=True):
    """End the turn well.

    >>> from usechat import MessageStream
    >>> MessageStream(message_id="m1", sdk="7").send(Finish("length", usage={"outputTokens": 7}))[-1]
    FinishChunk(finish_reason='length', message_metadata={'usage': {'outputTokens': 7}})

    ``reason`` defaults to ``tool-calls`` while a call waits for the client, and else to ``stop``.

    ``usage`` and ``metadata`` go to the metadata of the message, usage under the key ``usage``. ``lane`` names the
    speaker; :mod:`usechat.parts` explains it.
    """

    reason: str | None = None
    usage: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None


class Error(_Part, frozen=True):
    """End the turn as failed. The text is shown to the user.

    >>> from usechat import MessageStream
    >>> MessageStream(message_id="m1", sdk="7").send(Error("The model does not answer."))[-2:]
    [ErrorChunk(error_text='The model does not answer.'), FinishChunk(finish_reason='error', message_metadata=None)]

    ``usage`` and ``metadata`` go to the metadata of the message, usage under the key ``usage``. ``lane`` names the
    speaker; :mod:`usechat.parts` explains it.
    """

    error_text: str
    usage: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None


class Abort(_Part, frozen=True):
    """End the turn as stopped on purpose.

    >>> from usechat import MessageStream
    >>> MessageStream(message_id="m1", sdk="7").send(Abort("The user pressed stop."))[-2]
    AbortChunk(reason='The user pressed stop.')

    ``usage`` and ``metadata`` go to the metadata of the message, usage under the key ``usage``. ``lane`` names the
    speaker; :mod:`usechat.parts` explains it.
    """

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
