"""Chunks back to parts: what another AI SDK endpoint streamed, in the words that adapters speak."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import UNSET

from usechat import chunks, parts
from usechat.chunks import Chunk
from usechat.parts import Part

__all__ = ["BROKE_OFF", "ChunkReader", "parts_from_chunk"]

BROKE_OFF: Final = "The answer broke off before it was complete."


class ChunkReader:
    """Reads the chunks of one message; knows whether they came to an end."""

    def __init__(self) -> None:
        self._abort: parts.Abort | None = None
        self._ended = False

    def read(self, chunk: Chunk) -> list[Part]:
        """Return what a chunk says; a stop is told when the message is complete, with its metadata."""
        match chunk:
            case chunks.Abort():
                self._abort = parts.Abort(chunk.reason)
                return []
            case chunks.Finish() if self._abort is not None:
                self._ended = True
                return [parts.Abort(self._abort.reason, metadata=chunk.message_metadata)]
            case chunks.Finish() | chunks.Error():
                self._ended = True
        return parts_from_chunk(chunk)

    def close(self) -> list[Part]:
        """Nothing follows: a stream cut short is a failure that people see, never a silent end."""
        if self._ended:
            return []
        return [self._abort or parts.Error(BROKE_OFF)]


def parts_from_chunk(chunk: Chunk) -> list[Part]:
    """Return what a chunk says. Each block speaks in a lane of its own, so that none tears another."""
    if isinstance(chunk, chunks.Data):
        return [parts.Data(chunk.type.removeprefix("data-"), chunk.data, chunk.id, bool(chunk.transient))]
    return _READERS[type(chunk)](chunk)


def _text(chunk: chunks.TextStart | chunks.TextDelta) -> list[Part]:
    return [parts.Text(getattr(chunk, "delta", ""), chunk.provider_metadata, lane=f"text {chunk.id}")]


def _text_end(chunk: chunks.TextEnd) -> list[Part]:
    citations = None if chunk.citations is None else tuple(chunk.citations)
    return [parts.BlockEnd(chunk.provider_metadata, citations, lane=f"text {chunk.id}")]


def _reasoning(chunk: chunks.ReasoningStart | chunks.ReasoningDelta) -> list[Part]:
    return [parts.Reasoning(getattr(chunk, "delta", ""), chunk.provider_metadata, lane=f"reasoning {chunk.id}")]


def _reasoning_end(chunk: chunks.ReasoningEnd) -> list[Part]:
    return [parts.BlockEnd(chunk.provider_metadata, lane=f"reasoning {chunk.id}")]


def _tool_input_start(chunk: chunks.ToolInputStart) -> list[Part]:
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


def _tool_input_available(chunk: chunks.ToolInputAvailable) -> list[Part]:
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


def _tool_input_error(chunk: chunks.ToolInputError) -> list[Part]:
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


def _tool_output_available(chunk: chunks.ToolOutputAvailable) -> list[Part]:
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


def _tool_output_error(chunk: chunks.ToolOutputError) -> list[Part]:
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


def _tool_approval_request(chunk: chunks.ToolApprovalRequest) -> list[Part]:
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


def _tool_approval_response(chunk: chunks.ToolApprovalResponse) -> list[Part]:
    return [
        parts.ApprovalResponse(
            chunk.approval_id, chunk.approved, chunk.reason, chunk.provider_executed, chunk.provider_metadata
        )
    ]


_READERS: Final[Mapping[type[Any], Callable[[Any], list[Part]]]] = {
    chunks.Start: lambda chunk: [parts.Start(chunk.message_id, chunk.message_metadata)],
    chunks.StartStep: lambda _chunk: [parts.Step()],
    chunks.FinishStep: lambda _chunk: [],
    chunks.ResetStep: lambda _chunk: [parts.ResetStep()],
    chunks.Finish: lambda chunk: [parts.Finish(chunk.finish_reason, metadata=chunk.message_metadata)],
    chunks.Abort: lambda chunk: [parts.Abort(chunk.reason)],
    chunks.Error: lambda chunk: [parts.Error(chunk.error_text)],
    chunks.TextStart: _text,
    chunks.TextDelta: _text,
    chunks.TextEnd: _text_end,
    chunks.ReasoningStart: _reasoning,
    chunks.ReasoningDelta: _reasoning,
    chunks.ReasoningEnd: _reasoning_end,
    chunks.ToolInputStart: _tool_input_start,
    chunks.ToolInputDelta: lambda chunk: [parts.ToolInputDelta(chunk.tool_call_id, chunk.input_text_delta)],
    chunks.ToolInputAvailable: _tool_input_available,
    chunks.ToolInputError: _tool_input_error,
    chunks.ToolOutputAvailable: _tool_output_available,
    chunks.ToolOutputError: _tool_output_error,
    chunks.ToolOutputDenied: lambda chunk: [parts.ToolDenied(chunk.tool_call_id)],
    chunks.ToolApprovalRequest: _tool_approval_request,
    chunks.ToolApprovalResponse: _tool_approval_response,
    chunks.SourceUrl: lambda chunk: [parts.SourceUrl(chunk.source_id, chunk.url, chunk.title, chunk.provider_metadata)],
    chunks.SourceDocument: lambda chunk: [
        parts.SourceDocument(chunk.source_id, chunk.media_type, chunk.title, chunk.filename, chunk.provider_metadata)
    ],
    chunks.File: lambda chunk: [parts.File(chunk.url, chunk.media_type, chunk.provider_metadata)],
    chunks.ReasoningFile: lambda chunk: [parts.ReasoningFile(chunk.url, chunk.media_type, chunk.provider_metadata)],
    chunks.Custom: lambda chunk: [parts.Custom(chunk.kind, chunk.provider_metadata)],
    chunks.SteeringMessage: lambda chunk: [parts.SteeringMessage(chunk.id, tuple(chunk.parts))],
    chunks.MessageMetadata: lambda chunk: [parts.Metadata(chunk.message_metadata)],
}
