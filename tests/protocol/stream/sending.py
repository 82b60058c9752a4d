"""What the tests of a stream have in common: parts in, all chunks out."""

from typing import Any

from usechat.parts import Part
from usechat.protocol.chunks import (
    Chunk,
    ErrorChunk,
    FinishChunk,
    FinishStepChunk,
    StartChunk,
    TextDeltaChunk,
    TextEndChunk,
    TextStartChunk,
    ToolInputAvailableChunk,
    ToolOutputAvailableChunk,
)
from usechat.protocol.stream import MessageStream

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip

STOP = FinishChunk("stop")
TOOL_CALLS = FinishChunk("tool-calls")


def send(parts: list[Part], sdk: str = "7", **options: Any) -> list[Chunk]:
    """Return all chunks of a stream, ended well unless the parts end it."""
    stream = MessageStream(message_id="m1", sdk=sdk, **options)
    out = [chunk for part in parts for chunk in stream.send(part)]
    return out + stream.close()


def body(parts: list[Part], sdk: str = "7", **options: Any) -> list[Chunk]:
    """Return what stands between `start` and the last `finish-step` or `error`."""
    out = send(parts, sdk, **options)
    assert out[0] == StartChunk("m1")
    endings_at = [index for index, chunk in enumerate(out) if isinstance(chunk, FinishStepChunk | ErrorChunk)]
    return out[1 : endings_at[-1]]


WEATHER = p.ToolCall("c1", "weather", {"city": "Paris"})
WEATHER_CHUNK = ToolInputAvailableChunk("c1", "weather", {"city": "Paris"})
SUNNY = p.ToolResult("c1", "sunny")
SUNNY_CHUNK = ToolOutputAvailableChunk("c1", "sunny")


def text(block_id: str, *deltas: str) -> list[Chunk]:
    return [TextStartChunk(block_id), *[TextDeltaChunk(block_id, delta) for delta in deltas], TextEndChunk(block_id)]
