"""The ways from a text delta to the bytes of its frame, in Python.

Each way takes the deltas and returns a function that writes the frame of every one of them and returns the last. What
stands before that function is not measured; its loop is the same for all.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from bench.sample import BLOCK_ID
from usechat.parts import Reasoning, Text
from usechat.protocol.sse import FrameStream, encode_frame
from usechat.protocol.stream import MessageStream

Run: TypeAlias = Callable[[], bytes]
Way: TypeAlias = Callable[[Sequence[str]], Run]

FLOOR: Final = "floor: prebuilt prefix + escaped delta"
PART_GIVEN: Final = "usechat: FrameStream.send, part given"
PART_BUILT: Final = "usechat: FrameStream.send, part built"
WITH_METADATA: Final = "usechat: FrameStream.send, part with provider metadata built"
REASONING: Final = "usechat: FrameStream.send, reasoning part built"
STREAM_AND_FRAME: Final = "usechat: MessageStream.send + encode_frame"
PYDANTIC_AI_GIVEN: Final = "pydantic-ai: encode_event, chunk given"
PYDANTIC_AI_BUILT: Final = "pydantic-ai: encode_event, chunk built"
JSON_DUMPS: Final = "plain dict + json.dumps"


def floor(deltas: Sequence[str]) -> Run:
    template = b'data: {"type":"text-delta","id":"%b","delta":%%b}\n\n' % BLOCK_ID.encode()
    encode = msgspec.json.Encoder().encode

    def run() -> bytes:
        frame = b""
        for delta in deltas:
            frame = template % encode(delta)
        return frame

    return run


def open_stream() -> MessageStream:
    return MessageStream(message_id="message-1", sdk="7", new_id=lambda: BLOCK_ID)


def part_given(deltas: Sequence[str]) -> Run:
    frames = FrameStream(open_stream())
    frames.send(Text("The block is open."))
    parts = [Text(delta) for delta in deltas]

    def run() -> bytes:
        send = frames.send
        frame = b""
        for part in parts:
            frame = send(part)
        return frame

    return run


def part_built(deltas: Sequence[str]) -> Run:
    frames = FrameStream(open_stream())
    frames.send(Text("The block is open."))

    def run() -> bytes:
        send = frames.send
        frame = b""
        for delta in deltas:
            frame = send(Text(delta))
        return frame

    return run


def with_metadata(deltas: Sequence[str]) -> Run:
    """As adapters of agents write it: each delta names its agent, and all of a block name the same."""
    metadata = {"open-harness": {"runId": "run-1", "nodeId": "writer"}}
    frames = FrameStream(open_stream())
    frames.send(Text("The block is open.", metadata))

    def run() -> bytes:
        send = frames.send
        frame = b""
        for delta in deltas:
            frame = send(Text(delta, metadata))
        return frame

    return run


def reasoning(deltas: Sequence[str]) -> Run:
    frames = FrameStream(open_stream())
    frames.send(Reasoning("The block is open."))

    def run() -> bytes:
        send = frames.send
        frame = b""
        for delta in deltas:
            frame = send(Reasoning(delta))
        return frame

    return run


def stream_and_frame(deltas: Sequence[str]) -> Run:
    stream = open_stream()
    stream.send(Text("The block is open."))

    def run() -> bytes:
        send = stream.send
        frame = b""
        for delta in deltas:
            for chunk in send(Text(delta)):
                frame = encode_frame(chunk)
        return frame

    return run


def pydantic_ai_given(deltas: Sequence[str]) -> Run:
    from pydantic_ai.ui.vercel_ai import VercelAIEventStream
    from pydantic_ai.ui.vercel_ai.response_types import TextDeltaChunk

    encode = VercelAIEventStream(sdk_version=6).encode_event
    chunks = [TextDeltaChunk(id=BLOCK_ID, delta=delta) for delta in deltas]

    def run() -> bytes:
        frame = b""
        for chunk in chunks:
            frame = encode(chunk).encode()  # Starlette's StreamingResponse makes the bytes
        return frame

    return run


def pydantic_ai_built(deltas: Sequence[str]) -> Run:
    from pydantic_ai.ui.vercel_ai import VercelAIEventStream
    from pydantic_ai.ui.vercel_ai.response_types import TextDeltaChunk

    encode = VercelAIEventStream(sdk_version=6).encode_event

    def run() -> bytes:
        frame = b""
        for delta in deltas:
            frame = encode(TextDeltaChunk(id=BLOCK_ID, delta=delta)).encode()
        return frame

    return run


def json_dumps(deltas: Sequence[str]) -> Run:
    def run() -> bytes:
        frame = b""
        for delta in deltas:
            chunk = {"type": "text-delta", "id": BLOCK_ID, "delta": delta}
            frame = f"data: {json.dumps(chunk)}\n\n".encode()
        return frame

    return run


WAYS: Final[Mapping[str, Way]] = {
    FLOOR: floor,
    PART_GIVEN: part_given,
    PART_BUILT: part_built,
    WITH_METADATA: with_metadata,
    REASONING: reasoning,
    STREAM_AND_FRAME: stream_and_frame,
    JSON_DUMPS: json_dumps,
}
PYDANTIC_AI_WAYS: Final[Mapping[str, Way]] = {
    PYDANTIC_AI_GIVEN: pydantic_ai_given,
    PYDANTIC_AI_BUILT: pydantic_ai_built,
}


def frames_of(way: Way, deltas: Sequence[str]) -> list[bytes]:
    """Return the frame of each delta, from the very function that is measured."""
    return [way([delta])() for delta in deltas]
