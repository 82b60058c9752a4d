"""What a reader gets who comes late: the whole message so far, short, and in its own dialect."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from usechat import chunks, parts
from usechat.chunk_parts import ChunkReader, parts_from_chunk
from usechat.chunks import Chunk
from usechat.frames import FrameStream
from usechat.parts import Part
from usechat.sse import DONE, ChunkDecoder, encode_frame
from usechat.stream import MessageStream
from usechat.ui_messages import is_dynamic_tool, is_static_tool

__all__ = ["Reframer", "compact", "earlier_parts", "pieces_of", "shorten"]


def shorten(frames: bytes, *, event_names: bool = False) -> bytes:
    """Return the frames of a run so far with one delta per block."""
    end = DONE if frames.endswith(DONE) else b""
    short = compact(ChunkDecoder().receive(frames))
    return b"".join([encode_frame(chunk, event_names=event_names) for chunk in short]) + end


def pieces_of(frames: bytes, size: int) -> Iterator[bytes]:
    """Yield the same in pieces of whole frames, each of about so many bytes."""
    begin = 0
    while begin < len(frames):
        place = frames.find(b"\n\n", begin + max(0, size - 2))
        end = len(frames) if place < 0 else place + 2
        yield frames[begin:end]
        begin = end


def compact(found: Iterable[Chunk]) -> list[Chunk]:
    """Merge all deltas of a block, or of a tool input, into the first of them."""
    result: list[Chunk | _Pieces] = []
    places: dict[tuple[type[Chunk], str], int] = {}
    for chunk in found:
        key, text = _delta(chunk)
        if isinstance(chunk, chunks.TextStart | chunks.ReasoningStart):
            opened = chunks.TextDelta if isinstance(chunk, chunks.TextStart) else chunks.ReasoningDelta
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
        field = "input_text_delta" if isinstance(self._chunk, chunks.ToolInputDelta) else "delta"
        return msgspec.structs.replace(self._chunk, **{field: "".join(self._texts)})


def _delta(chunk: Chunk) -> tuple[tuple[type[Chunk], str] | None, str]:
    match chunk:
        case chunks.TextDelta() | chunks.ReasoningDelta():
            return (type(chunk), chunk.id), chunk.delta
        case chunks.ToolInputDelta():
            return (type(chunk), chunk.tool_call_id), chunk.input_text_delta
    return None, ""


def earlier_parts(message: Mapping[str, Any]) -> list[Part]:
    """Return what a message says, in parts."""
    return [said for number, part in enumerate(message.get("parts", ())) for said in _said(part, f"earlier {number}")]


def _said(part: Mapping[str, Any], lane: str) -> list[Part]:
    kind = str(part.get("type", ""))
    metadata = part.get("providerMetadata")
    match kind:
        case "step-start":
            return [parts.Step()]
        case "text":
            return [parts.Text(str(part.get("text", "")), metadata, lane=lane), parts.BlockEnd(lane=lane)]
        case "reasoning":
            return [parts.Reasoning(str(part.get("text", "")), metadata, lane=lane), parts.BlockEnd(lane=lane)]
        case "file" | "reasoning-file" | "source-url" | "source-document" | "custom" | "steering-message":
            return parts_from_chunk(chunks.chunk_from_json(dict(part)))
    if kind.startswith("data-"):
        return [parts.Data(kind.removeprefix("data-"), part.get("data"), part.get("id"))]
    if is_static_tool(kind) or is_dynamic_tool(kind):
        return _called(part, kind)
    return []


def _called(part: Mapping[str, Any], kind: str) -> list[Part]:
    dynamic = is_dynamic_tool(kind)
    name = str(part.get("toolName")) if dynamic else kind.removeprefix("tool-")
    call_id = str(part.get("toolCallId"))
    said: list[Part] = [parts.ToolCall(call_id, name, part.get("input"), dynamic)]
    approval = part.get("approval")
    if isinstance(approval, Mapping) and "id" in approval:
        said.append(parts.ApprovalRequest(str(approval["id"]), call_id))
        if "approved" in approval:
            said.append(parts.ApprovalResponse(str(approval["id"]), approval["approved"] is True))
    match part.get("state"):
        case "output-available":
            said.append(parts.ToolResult(call_id, part.get("output")))
        case "output-error":
            said.append(parts.ToolError(call_id, str(part.get("errorText", ""))))
        case "output-denied":
            said.append(parts.ToolDenied(call_id))
    return said


class Reframer:
    """Writes a run anew: for a client of another release, or behind the message that it continues."""

    def __init__(
        self, message_id: str, sdk: str, *, earlier: Mapping[str, Any] | None = None, event_names: bool = False
    ) -> None:
        self._decoder = ChunkDecoder()
        self._reader = ChunkReader()
        self._frames = FrameStream(MessageStream(message_id=message_id, sdk=sdk), event_names=event_names)
        self._earlier = earlier_parts(earlier) if earlier else []

    def receive(self, frames: bytes) -> bytes:
        """Return the same, in the other dialect."""
        said = [part for chunk in compact(self._decoder.receive(frames)) for part in self._reader.read(chunk)]
        if self._earlier and said:
            # The first part is the start of the message; what it held already follows.
            said[1:1] = self._earlier
            self._earlier = []
        return b"".join([self._frames.send(part) for part in said])
