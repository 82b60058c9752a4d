"""Whether reading stays linear: the time per delta of short and of long messages, bytes to message or to a report."""

import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from bench.rounds import TURN, Figure, measure_in_rounds, timed
from bench.sample import text_deltas
from usechat import parts
from usechat.check import check_pieces
from usechat.parts import Part
from usechat.protocol.message import MessageBuilder
from usechat.protocol.sse import ChunkDecoder, FrameStream
from usechat.protocol.stream import MessageStream
from usechat.protocol.ui_messages import UIMessage

Growth: TypeAlias = dict[str, dict[int, Figure]]
"""Per kind of message and number of deltas: the time for one of them."""

TEXT: Final = "text"
TOOL_INPUT: Final = "tool input"
CHECKED_TEXT: Final = "text, checked"
CHECKED_CALLS: Final = "tool calls, checked"
SIZES: Final[Mapping[str, Sequence[int]]] = {
    TEXT: (1_000, 10_000, 40_000),
    TOOL_INPUT: (500, 4_000, 16_000),
    CHECKED_TEXT: (1_000, 10_000, 40_000),
    CHECKED_CALLS: (100, 500, 2_000),
}
"""How many deltas, or calls, the messages have, from the shortest to the longest."""


def text_parts(count: int) -> Iterable[Part]:
    return map(parts.Text, text_deltas(count))


def tool_input_parts(count: int) -> Iterable[Part]:
    """Return the parts of a tool call whose input comes in so many pieces of JSON text."""
    tool_input = {"words": text_deltas(count)}
    text = json.dumps(tool_input)
    cuts = [index * len(text) // count for index in range(count + 1)]
    yield parts.ToolInputStart("call-1", "write")
    for begin, end in itertools.pairwise(cuts):
        yield parts.ToolInputDelta("call-1", text[begin:end])
    yield parts.ToolCall("call-1", "write", tool_input)


def call_parts(count: int) -> Iterable[Part]:
    """Return so many calls with their results, each followed by text in a step of its own."""
    for index in range(count):
        yield parts.ToolCall(f"call-{index}", "search", {"q": "fox"})
        yield parts.ToolResult(f"call-{index}", [{"title": "A fox", "url": "https://example.org/fox"}] * 5)
        yield parts.Text("Found.")


KINDS: Final[Mapping[str, Callable[[int], Iterable[Part]]]] = {
    TEXT: text_parts,
    TOOL_INPUT: tool_input_parts,
    CHECKED_TEXT: text_parts,
    CHECKED_CALLS: call_parts,
}


def frames_of_message(kind: str, count: int) -> list[bytes]:
    """Return the whole stream of a message, in the pieces in which it would come over the network."""
    frames = FrameStream(MessageStream(message_id="message-1", sdk="7"))
    return [*map(frames.send, KINDS[kind](count)), frames.close()]


def read_message(frames: Iterable[bytes]) -> UIMessage:
    """Decode and build; nobody looks at the message before it is complete."""
    decoder = ChunkDecoder()
    builder = MessageBuilder(sdk="7")
    for frame in frames:
        for chunk in decoder.receive(frame):
            builder.receive(chunk)
    return builder.message


READERS: Final[Mapping[str, Callable[[Iterable[bytes]], object]]] = {
    TEXT: read_message,
    TOOL_INPUT: read_message,
    CHECKED_TEXT: check_pieces,
    CHECKED_CALLS: check_pieces,
}


def measure_growth(*, rounds: int, scale: int = 1, least: int = TURN) -> Growth:
    """Measure all sizes of all kinds in the same rounds; ``scale`` divides the sizes."""
    sizes = {kind: [count // scale for count in counts] for kind, counts in SIZES.items()}
    measures = {
        f"{kind} {count}": timed(partial(READERS[kind], frames_of_message(kind, count)), count, least=least)
        for kind, counts in sizes.items()
        for count in counts
    }
    figures = measure_in_rounds(measures, rounds=rounds, warm_up=1, title="decode, build, check")
    return {kind: {count: figures[f"{kind} {count}"] for count in counts} for kind, counts in sizes.items()}
