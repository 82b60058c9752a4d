"""Read a stream back into parts, to write it again for another release or for a client that resumes.

Chunks say how a message is framed, parts say what happened. Going back from chunks to parts drops the framing, and
sending the parts to a new ``MessageStream`` makes framing that is legal for the release that reads it. That serves:

- a source that is itself an AI SDK endpoint: :class:`ChunkReader`, an adapter whose events are chunks;
- a client of another release than the run was written for: :class:`Reframer`;
- a client that joins late: :func:`shorten` merges the deltas of each block, because nobody watches old text being
  typed, and a ``Reframer`` puts the parts of the continued message in front, which the client may not have.

Each block on the wire becomes a separate lane, so that blocks which interleave stay apart.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET

from usechat.protocol import chunks, parts
from usechat.protocol.chunks import Chunk
from usechat.protocol.parts import Part
from usechat.protocol.sse import ChunkDecoder, FrameStream, encode_frames, own_chunks
from usechat.protocol.stream import MessageStream
from usechat.protocol.ui_messages import is_dynamic_tool, is_settled, is_tool, tool_name, tool_parts_of

__all__ = [
    "INCOMPLETE",
    "ChunkReader",
    "Reframer",
    "compact",
    "earlier_parts",
    "grown_parts",
    "parts_from_chunk",
    "shorten",
    "unseen_parts",
]


INCOMPLETE: Final = "The answer ended before it was complete."


class ChunkReader:
    """Turn the chunks of one message into parts; an adapter whose events are chunks."""

    def __init__(self) -> None:
        self._abort: parts.Abort | None = None
        self._ended = False

    def feed(self, chunk: Chunk) -> list[Part]:
        """Return the parts of a chunk; an abort is returned when the message is complete, with its metadata."""
        match chunk:
            case chunks.AbortChunk():
                self._abort = parts.Abort(chunk.reason)
                return []
            case chunks.FinishChunk() if self._abort is not None:
                self._ended = True
                return [parts.Abort(self._abort.reason, metadata=chunk.message_metadata)]
            case chunks.FinishChunk() | chunks.ErrorChunk():
                self._ended = True
        return parts_from_chunk(chunk)

    def close(self, error: BaseException | None = None) -> list[Part]:
        """Return the ending of a stream that has none: one that was cut short is a failure, never a good end."""
        if self._ended or error is not None:
            return []
        return [self._abort or parts.Error(INCOMPLETE)]


def parts_from_chunk(chunk: Chunk) -> list[Part]:
    """Return the parts of a chunk. Each block is a separate lane, so that none splits another."""
    if isinstance(chunk, chunks.DataChunk):
        return [parts.Data(chunk.type.removeprefix("data-"), chunk.data, chunk.id, bool(chunk.transient))]
    return _READERS[type(chunk)](chunk)


def _text(chunk: chunks.TextStartChunk | chunks.TextDeltaChunk) -> list[Part]:
    return [parts.Text(getattr(chunk, "delta", ""), chunk.provider_metadata, lane=f"text {chunk.id}")]


def _text_end(chunk: chunks.TextEndChunk) -> list[Part]:
    citations = None if chunk.citations is None else tuple(chunk.citations)
    return [parts.BlockEnd(chunk.provider_metadata, citations, lane=f"text {chunk.id}")]


def _reasoning(chunk: chunks.ReasoningStartChunk | chunks.ReasoningDeltaChunk) -> list[Part]:
    return [parts.Reasoning(getattr(chunk, "delta", ""), chunk.provider_metadata, lane=f"reasoning {chunk.id}")]


def _reasoning_end(chunk: chunks.ReasoningEndChunk) -> list[Part]:
    return [parts.BlockEnd(chunk.provider_metadata, lane=f"reasoning {chunk.id}")]


def _tool_input_start(chunk: chunks.ToolInputStartChunk) -> list[Part]:
    return [
        parts.ToolInputStart(
            chunk.tool_call_id,
            chunk.tool_name,
            bool(chunk.dynamic),
            chunk.provider_executed,
            chunk.provider_metadata,
            chunk.tool_metadata,
            chunk.title,
            chunk.input_encoding,
        )
    ]


def _tool_input_available(chunk: chunks.ToolInputAvailableChunk) -> list[Part]:
    return [
        parts.ToolCall(
            chunk.tool_call_id,
            chunk.tool_name,
            chunk.input,
            bool(chunk.dynamic),
            chunk.provider_executed,
            chunk.provider_metadata,
            chunk.tool_metadata,
            chunk.title,
        )
    ]


def _tool_input_error(chunk: chunks.ToolInputErrorChunk) -> list[Part]:
    return [
        parts.ToolInputError(
            chunk.tool_call_id,
            chunk.tool_name,
            chunk.error_text,
            chunk.input,
            bool(chunk.dynamic),
            chunk.provider_executed,
            chunk.provider_metadata,
            chunk.tool_metadata,
            chunk.title,
        )
    ]


def _tool_output_available(chunk: chunks.ToolOutputAvailableChunk) -> list[Part]:
    return [
        parts.ToolResult(
            chunk.tool_call_id,
            chunk.output,
            bool(chunk.preliminary),
            dynamic=bool(chunk.dynamic),
            provider_executed=chunk.provider_executed,
            provider_metadata=chunk.provider_metadata,
            tool_metadata=chunk.tool_metadata,
        )
    ]


def _tool_output_error(chunk: chunks.ToolOutputErrorChunk) -> list[Part]:
    return [
        parts.ToolError(
            chunk.tool_call_id,
            chunk.error_text,
            dynamic=bool(chunk.dynamic),
            provider_executed=chunk.provider_executed,
            provider_metadata=chunk.provider_metadata,
            tool_metadata=chunk.tool_metadata,
        )
    ]


def _tool_approval_request(chunk: chunks.ToolApprovalRequestChunk) -> list[Part]:
    return [
        parts.ApprovalRequest(
            chunk.approval_id,
            chunk.tool_call_id,
            chunk.reason,
            bool(chunk.is_automatic),
            chunk.signature,
            chunk.approval_descriptor,
            None if chunk.input_schema_input is UNSET else chunk.input_schema_input,
        )
    ]


def _tool_approval_response(chunk: chunks.ToolApprovalResponseChunk) -> list[Part]:
    return [
        parts.ApprovalResponse(
            chunk.approval_id, chunk.approved, chunk.reason, chunk.provider_executed, chunk.provider_metadata
        )
    ]


_READERS: Final[Mapping[type[Any], Callable[[Any], list[Part]]]] = {
    chunks.StartChunk: lambda chunk: [parts.Start(chunk.message_id, chunk.message_metadata)],
    chunks.StartStepChunk: lambda _chunk: [parts.Step()],
    chunks.FinishStepChunk: lambda _chunk: [],
    chunks.ResetStepChunk: lambda _chunk: [parts.ResetStep()],
    chunks.FinishChunk: lambda chunk: [parts.Finish(chunk.finish_reason, metadata=chunk.message_metadata)],
    chunks.AbortChunk: lambda chunk: [parts.Abort(chunk.reason)],
    chunks.ErrorChunk: lambda chunk: [parts.Error(chunk.error_text)],
    chunks.TextStartChunk: _text,
    chunks.TextDeltaChunk: _text,
    chunks.TextEndChunk: _text_end,
    chunks.ReasoningStartChunk: _reasoning,
    chunks.ReasoningDeltaChunk: _reasoning,
    chunks.ReasoningEndChunk: _reasoning_end,
    chunks.ToolInputStartChunk: _tool_input_start,
    chunks.ToolInputDeltaChunk: lambda chunk: [parts.ToolInputDelta(chunk.tool_call_id, chunk.input_text_delta)],
    chunks.ToolInputAvailableChunk: _tool_input_available,
    chunks.ToolInputErrorChunk: _tool_input_error,
    chunks.ToolOutputAvailableChunk: _tool_output_available,
    chunks.ToolOutputErrorChunk: _tool_output_error,
    chunks.ToolOutputDeniedChunk: lambda chunk: [parts.ToolDenied(chunk.tool_call_id)],
    chunks.ToolApprovalRequestChunk: _tool_approval_request,
    chunks.ToolApprovalResponseChunk: _tool_approval_response,
    chunks.SourceUrlChunk: lambda chunk: [
        parts.SourceUrl(chunk.source_id, chunk.url, chunk.title, chunk.provider_metadata)
    ],
    chunks.SourceDocumentChunk: lambda chunk: [
        parts.SourceDocument(chunk.source_id, chunk.media_type, chunk.title, chunk.filename, chunk.provider_metadata)
    ],
    chunks.FileChunk: lambda chunk: [parts.File(chunk.url, chunk.media_type, chunk.provider_metadata)],
    chunks.ReasoningFileChunk: lambda chunk: [
        parts.ReasoningFile(chunk.url, chunk.media_type, chunk.provider_metadata)
    ],
    chunks.CustomChunk: lambda chunk: [parts.Custom(chunk.kind, chunk.provider_metadata)],
    chunks.SteeringMessageChunk: lambda chunk: [parts.SteeringMessage(chunk.id, tuple(chunk.parts))],
    chunks.MessageMetadataChunk: lambda chunk: [parts.Metadata(chunk.message_metadata)],
}


# For readers that come late


def shorten(frames: bytes, *, event_names: bool = False) -> bytes:
    """Write the frames of a run so far again, with one delta per block."""
    return encode_frames(compact(own_chunks(frames)), event_names=event_names)


def compact(stream: Iterable[Chunk]) -> list[Chunk]:
    """Merge all deltas of a block, or of a tool input, into the first of them."""
    result: list[Chunk | _Pieces] = []
    places: dict[tuple[type[Chunk], str], int] = {}
    for chunk in stream:
        key, text = _delta(chunk)
        if isinstance(chunk, chunks.TextStartChunk | chunks.ReasoningStartChunk):
            opened = chunks.TextDeltaChunk if isinstance(chunk, chunks.TextStartChunk) else chunks.ReasoningDeltaChunk
            places.pop((opened, chunk.id), None)  # an id that is used again is another block
        if key is None:
            result.append(chunk)
        elif key not in places:
            places[key] = len(result)
            result.append(_Pieces(chunk, [text]))
        else:
            cast("_Pieces", result[places[key]]).add(chunk, text)
    return [chunk.merged() if isinstance(chunk, _Pieces) else chunk for chunk in result]


class _Pieces:
    """The deltas of one block."""

    def __init__(self, first: Chunk, texts: list[str]) -> None:
        self._chunk = first
        self._texts = texts

    def add(self, chunk: Chunk, text: str) -> None:
        self._texts.append(text)
        if getattr(chunk, "provider_metadata", None) is not None:
            self._chunk = chunk

    def merged(self) -> Chunk:
        field = "input_text_delta" if isinstance(self._chunk, chunks.ToolInputDeltaChunk) else "delta"
        return msgspec.structs.replace(self._chunk, **{field: "".join(self._texts)})


def _delta(chunk: Chunk) -> tuple[tuple[type[Chunk], str] | None, str]:
    match chunk:
        case chunks.TextDeltaChunk() | chunks.ReasoningDeltaChunk():
            return (type(chunk), chunk.id), chunk.delta
        case chunks.ToolInputDeltaChunk():
            return (type(chunk), chunk.tool_call_id), chunk.input_text_delta
    return None, ""


def earlier_parts(message: Mapping[str, Any]) -> list[Part]:
    """Return the parts that make a message as it is stored."""
    return [
        part
        for number, ui_part in enumerate(message.get("parts", ()))
        for part in _stored_parts(ui_part, f"earlier {number}")
    ]


def unseen_parts(message: Mapping[str, Any], copy: Mapping[str, Any]) -> list[Part]:
    """Return what a stored message has and an older copy of it has not: outcomes of calls, and the parts behind it."""
    length = len(copy["parts"])
    settled = {part["toolCallId"] for part in tool_parts_of(copy) if is_settled(part)}
    outcomes = [
        outcome
        for outcome in earlier_parts({"parts": message["parts"][:length]})
        if isinstance(outcome, parts.ToolResult | parts.ToolError | parts.ToolDenied)
        and outcome.tool_call_id not in settled
    ]
    return [*outcomes, *earlier_parts({"parts": message["parts"][length:]})]


def grown_parts(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Part] | None:
    """Return the parts by which a message has grown; ``None`` if something was taken back.

    A text that is still written keeps its lane, so that what follows is more of the same block. What stands
    behind the outcome of a call may get a step of its own: the message does not say which of the two came first.

    >>> text = {"type": "text", "text": "Hel", "state": "streaming"}
    >>> before = {"parts": [{"type": "step-start"}, text]}
    >>> after = {"parts": [{"type": "step-start"}, {**text, "text": "Hello"}]}
    >>> [(type(part).__name__, part.text, part.lane) for part in grown_parts(before, after)]
    [('Text', 'lo', 'grown 1')]
    >>> grown_parts(after, before) is None
    True
    """
    old, new = before["parts"], after["parts"]
    if len(new) < len(old):
        return None
    first = _first_content(new)
    has_no_steps = _first_content(old) is None and first not in (None, "step-start")
    grown: list[Part] = [parts.Start(steps=False)] if has_no_steps else []
    for index, part in enumerate(new):
        earlier = old[index] if index < len(old) else None
        growth = [] if part == earlier else _growth(earlier, part, f"grown {index}")
        if growth is None:
            return None
        grown += growth
    metadata = after.get("metadata")
    if isinstance(metadata, Mapping) and metadata != before.get("metadata"):
        grown.append(parts.Metadata(metadata))
    return grown


def _first_content(ui_parts: Iterable[Mapping[str, Any]]) -> str | None:
    """Return the type of the first part that belongs to a step; data may come before."""
    return next((part["type"] for part in ui_parts if not part["type"].startswith("data-")), None)


def _growth(earlier: Mapping[str, Any] | None, part: Mapping[str, Any], lane: str) -> list[Part] | None:
    kind = part["type"]
    if earlier is not None and earlier["type"] != kind:
        return None
    if kind in ("text", "reasoning"):
        return _grown_text(earlier, part, lane)
    if is_tool(part):
        return _grown_call(earlier, part)
    is_same_data = earlier is not None and kind.startswith("data-") and earlier.get("id") == part.get("id") is not None
    return _stored_parts(part, lane) if earlier is None or is_same_data else None


def _grown_text(earlier: Mapping[str, Any] | None, part: Mapping[str, Any], lane: str) -> list[Part] | None:
    so_far = "" if earlier is None else earlier["text"]
    if not part["text"].startswith(so_far) or (earlier is not None and earlier.get("state") != "streaming"):
        return None
    kind = parts.Text if part["type"] == "text" else parts.Reasoning
    more: list[Part] = [kind(part["text"][len(so_far) :], part.get("providerMetadata"), lane=lane)]
    if part.get("state") != "streaming":
        more.append(parts.BlockEnd(citations=tuple(part.get("citations") or ()) or None, lane=lane))
    return more


def _grown_call(earlier: Mapping[str, Any] | None, part: Mapping[str, Any]) -> list[Part] | None:
    if earlier is not None and earlier.get("toolCallId") != part.get("toolCallId"):
        return None
    if part["state"] == "input-streaming":  # a message has the value of an unfinished input, not its text
        return [_input_start(part)] if earlier is None else []
    new = _call_parts(part)
    if earlier is None or earlier["state"] == "input-streaming":
        return new
    old = _call_parts(earlier)
    if earlier.get("preliminary"):
        old.pop()
    is_grown = earlier.get("input") == part.get("input") and old[1:] == new[1 : len(old)]
    return new[len(old) :] if is_grown else None


def _input_start(part: Mapping[str, Any]) -> Part:
    return parts.ToolInputStart(
        str(part.get("toolCallId")),
        tool_name(part),
        is_dynamic_tool(part),
        part.get("providerExecuted"),
        tool_metadata=part.get("toolMetadata"),
        title=part.get("title"),
    )


def _stored_parts(part: Mapping[str, Any], lane: str) -> list[Part]:
    kind = str(part.get("type", ""))
    metadata = part.get("providerMetadata")
    match kind:
        case "step-start":
            return [parts.Step(leaves_calls=True)]
        case "text":
            return [parts.Text(str(part.get("text", "")), metadata, lane=lane), parts.BlockEnd(lane=lane)]
        case "reasoning":
            return [parts.Reasoning(str(part.get("text", "")), metadata, lane=lane), parts.BlockEnd(lane=lane)]
        case "file" | "reasoning-file" | "source-url" | "source-document" | "custom" | "steering-message":
            return parts_from_chunk(chunks.chunk_from_json(dict(part)))
    if kind.startswith("data-"):
        return [parts.Data(kind.removeprefix("data-"), part.get("data"), part.get("id"))]
    return _call_parts(part) if is_tool(part) else []


def _call_parts(part: Mapping[str, Any]) -> list[Part]:
    call_id = str(part.get("toolCallId"))
    call_parts: list[Part] = [
        parts.ToolCall(
            call_id,
            tool_name(part),
            part.get("input"),
            is_dynamic_tool(part),
            part.get("providerExecuted"),
            part.get("callProviderMetadata"),
            part.get("toolMetadata"),
            part.get("title"),
        )
    ]
    approval = part.get("approval")
    if isinstance(approval, Mapping) and "id" in approval:
        call_parts.append(parts.ApprovalRequest(str(approval["id"]), call_id, signature=approval.get("signature")))
        if "approved" in approval:
            call_parts.append(parts.ApprovalResponse(str(approval["id"]), approval["approved"] is True))
    match part.get("state"):
        case "output-available":
            call_parts.append(parts.ToolResult(call_id, part.get("output"), bool(part.get("preliminary"))))
        case "output-error":
            call_parts.append(parts.ToolError(call_id, str(part.get("errorText", ""))))
        case "output-denied":
            call_parts.append(parts.ToolDenied(call_id))
    return call_parts


_OUTSIDE_OF_STEPS: Final = (
    chunks.StartChunk,
    chunks.MessageMetadataChunk,
    chunks.DataChunk,
    chunks.FinishChunk,
    chunks.ErrorChunk,
    chunks.AbortChunk,
)
"""Chunks that may come before the first step of a message."""


def _same_step(part: Part) -> Part:
    """Let a step begin where it began in the run, although calls of the message before it may be open."""
    return parts.Step(leaves_calls=True) if isinstance(part, parts.Step) else part


class Reframer:
    """Write a run again: for a client of another release, or behind the message that it continues.

    ``earlier`` is the message that the run continues and that the client does not have; ``continues`` is the same for a
    client that has it. With ``exact`` no deltas are merged: how the frames were batched makes no difference.
    """

    def __init__(
        self,
        message_id: str,
        sdk: str,
        *,
        earlier: Mapping[str, Any] | None = None,
        continues: Mapping[str, Any] | None = None,
        exact: bool = False,
        event_names: bool = False,
    ) -> None:
        self._exact = exact
        self._decoder = ChunkDecoder(maximum_event_bytes=sys.maxsize)  # however large a chunk is, it was sent
        self._reader = ChunkReader()
        stream = MessageStream(message_id=message_id, sdk=sdk, continues=continues)
        self._frames = FrameStream(stream, event_names=event_names)
        self._earlier = earlier_parts(earlier) if earlier else []
        # A run that continues a message may begin in its last step.
        self._may_hide_steps = not earlier and not continues

    def receive(self, frames: bytes) -> bytes:
        """Take frames of the run, split anywhere, and return those for the other release."""
        received = self._decoder.receive(frames)
        new_parts = [part for chunk in (received if self._exact else compact(received)) for part in self._parts(chunk)]
        if self._earlier and new_parts:
            # The first part is the start of the message; what the message held before comes right behind it.
            new_parts[1:1] = self._earlier
            self._earlier = []
        return b"".join([self._frames.send(_same_step(part)) for part in new_parts])

    def _parts(self, chunk: Chunk) -> list[Part]:
        """Return the parts of a chunk. If the first one that needs a step has none, the run was made without steps."""
        if not self._may_hide_steps or isinstance(chunk, _OUTSIDE_OF_STEPS):
            return self._reader.feed(chunk)
        self._may_hide_steps = False
        hidden = [] if isinstance(chunk, chunks.StartStepChunk) else [parts.Start(steps=False)]
        return [*hidden, *self._reader.feed(chunk)]
