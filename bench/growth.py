"""Whether reading and sending stay linear: the time per delta or call of short and of long messages.

Read from bytes to a message or to a report, or sent from parts to chunks.
"""

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
CHECKED_APPROVALS: Final = "approvals, checked"
SENT_CALLS: Final = "open calls with steps, sent"
SENT_DENIALS: Final = "denied calls beside an open one, sent"
SENT_RESETS: Final = "calls, each behind a step that is begun again, sent"
SIZES: Final[Mapping[str, Sequence[int]]] = {
    TEXT: (1_000, 10_000, 40_000),
    TOOL_INPUT: (500, 4_000, 16_000),
    CHECKED_TEXT: (1_000, 10_000, 40_000),
    CHECKED_CALLS: (100, 500, 2_000),
    CHECKED_APPROVALS: (100, 500, 2_000),
    SENT_CALLS: (500, 2_000, 8_000),
    SENT_DENIALS: (500, 2_000, 8_000),
    SENT_RESETS: (500, 2_000, 8_000),
}
"""How many deltas, or calls, the messages have, from the shortest to the longest."""


def text_parts(count: int) -> Iterable[Part]:
    return map(parts.Text, text_deltas(count))


def tool_input_parts(count: int) -> Iterable[Part]:
    """Return the parts of a tool call whose input comes in ``count`` pieces of JSON text."""
    tool_input = {"words": text_deltas(count)}
    text = json.dumps(tool_input)
    cuts = [index * len(text) // count for index in range(count + 1)]
    yield parts.ToolInputStart("call-1", "write")
    for begin, end in itertools.pairwise(cuts):
        yield parts.ToolInputDelta("call-1", text[begin:end])
    yield parts.ToolCall("call-1", "write", tool_input)


def call_parts(count: int) -> Iterable[Part]:
    """Return ``count`` calls with their results, each followed by text in its own step."""
    for index in range(count):
        yield parts.ToolCall(f"call-{index}", "search", {"q": "fox"})
        yield parts.ToolResult(f"call-{index}", [{"title": "A fox", "url": "https://example.org/fox"}] * 5)
        yield parts.Text("Found.")


def open_call_parts(count: int) -> Iterable[Part]:
    """Return ``count`` calls that stay open, each followed by both kinds of steps."""
    for index in range(count):
        yield parts.ToolCall(f"call-{index}", "remove", {})
        yield parts.Step()
        yield parts.ApprovalRequest(f"approval-{index}", f"call-{index}")
        yield parts.Step(leaves_calls=True)


def denied_call_parts(count: int) -> Iterable[Part]:
    """Return ``count`` calls whose approval is denied, beside one that waits for the page."""
    yield parts.ToolCall("open", "locate", {})
    for index in range(count):
        yield parts.ToolCall(f"call-{index}", "remove", {})
        yield parts.ApprovalRequest(f"approval-{index}", f"call-{index}")
    for index in range(count):
        yield parts.ApprovalResponse(f"approval-{index}", False)


def reset_parts(count: int) -> Iterable[Part]:
    """Return ``count`` calls with their results, each behind a text that is taken back."""
    for index in range(count):
        yield parts.Text("On second thoughts")
        yield parts.ResetStep()
        yield parts.ToolCall(f"call-{index}", "search", {})
        yield parts.ToolResult(f"call-{index}", 1)
        yield parts.Step()


KINDS: Final[Mapping[str, Callable[[int], Iterable[Part]]]] = {
    TEXT: text_parts,
    TOOL_INPUT: tool_input_parts,
    CHECKED_TEXT: text_parts,
    CHECKED_CALLS: call_parts,
    CHECKED_APPROVALS: denied_call_parts,
    SENT_CALLS: open_call_parts,
    SENT_DENIALS: denied_call_parts,
    SENT_RESETS: reset_parts,
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


def send_parts(new_parts: Iterable[Part]) -> None:
    """Send the parts of a message and end it."""
    stream = MessageStream(message_id="message-1", sdk="7")
    for part in new_parts:
        stream.send(part)
    stream.close()


READERS: Final[Mapping[str, Callable[[Iterable[bytes]], object]]] = {
    TEXT: read_message,
    TOOL_INPUT: read_message,
    CHECKED_TEXT: check_pieces,
    CHECKED_CALLS: check_pieces,
    CHECKED_APPROVALS: check_pieces,
}


def work(kind: str, count: int) -> Callable[[], object]:
    """Return what is measured of a kind of message."""
    if kind in READERS:
        return partial(READERS[kind], frames_of_message(kind, count))
    return partial(send_parts, list(KINDS[kind](count)))


def measure_growth(*, rounds: int, scale: int = 1, least: int = TURN) -> Growth:
    """Measure all sizes of all kinds in the same rounds; ``scale`` divides the sizes."""
    sizes = {kind: [count // scale for count in counts] for kind, counts in SIZES.items()}
    measures = {
        f"{kind} {count}": timed(work(kind, count), count, least=least)
        for kind, counts in sizes.items()
        for count in counts
    }
    figures = measure_in_rounds(measures, rounds=rounds, warm_up=1, title="decode, build, check, send")
    return {kind: {count: figures[f"{kind} {count}"] for count in counts} for kind, counts in sizes.items()}
