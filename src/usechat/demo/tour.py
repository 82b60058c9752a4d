"""The tour: one short answer for each thing that a chat can show, made on the spot and without a model."""

import asyncio
import base64
import re
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any, Final

from usechat import Turn
from usechat.ids import new_id
from usechat.open_harness import FlowRuntime, NodeRegistry, OpenHarnessChatTransport, load_flow
from usechat.parts import ApprovalRequest, Data, File, Part, Reasoning, SourceUrl, ToolCall, ToolDenied, ToolResult
from usechat.transports import FunctionSource, TurnContext

__all__ = ["STEPS", "Tour", "drinks", "menu", "snacks"]

PACE: Final = 0.03
"""Seconds per word."""
_NOTES: Final = ("Buy milk", "Call Ada", "Water the plants")

Said = AsyncIterator[str | Part]


async def _words(text: str, pace: float) -> Said:
    for word in re.findall(r"\s*\S+", text):
        yield word
        await asyncio.sleep(pace)


def _how(code: str, section: str) -> str:
    """Return the line that says how the code behind an answer looks."""
    return f"\n\nThe code: `{code}` ([documentation](docs/{section}))."


async def _streaming(_turn: Turn, pace: float) -> Said:
    for word in re.findall(r"\s*\S+", "The user wants to see streaming. I say a little, word by word, and then stop."):
        yield Reasoning(word)
        await asyncio.sleep(pace)
    text = (
        "Each word arrived on its own, as soon as it was there. What I thought before that is folded above.\n\n"
        "```python\nasync def agent(turn):\n    yield Reasoning('Let me see.')\n    yield 'Hello!'\n```"
    )
    async for word in _words(text + _how("yield Reasoning(…)", "parts.md#parts-what-an-agent-can-send"), pace):
        yield word


async def _tools(_turn: Turn, pace: float) -> Said:
    lisbon, oslo = new_id(), new_id()
    yield ToolCall(lisbon, "weather", {"city": "Lisbon"})
    yield ToolCall(oslo, "weather", {"city": "Oslo"})
    await asyncio.sleep(20 * pace)
    yield ToolResult(oslo, {"sky": "snow", "celsius": -3})
    await asyncio.sleep(20 * pace)
    yield ToolResult(lisbon, {"sky": "sun", "celsius": 21})
    text = "Both calls ran at the same time, and Oslo was faster. (These values are made up: the demo is offline.)"
    async for word in _words(
        text + _how("yield ToolCall(…); yield ToolResult(…)", "tools.md#tools-that-run-on-the-server"), pace
    ):
        yield word


async def _approval(turn: Turn, pace: float) -> Said:
    if not turn.approvals:
        yield f"The demo has {len(_NOTES)} notes: {', '.join(_NOTES)}. I would like to delete them all."
        call_id = new_id()
        yield ToolCall(call_id, "delete_notes", {"notes": list(_NOTES)})
        yield ApprovalRequest(call_id, call_id)
        return
    call_id = turn.approvals[-1].approval_id
    if turn.approvals[-1].approved:
        yield ToolResult(call_id, {"deleted": len(_NOTES), "left": 0})
        text = "You approved, so the tool ran: no note is left."
    else:
        yield ToolDenied(call_id)
        text = "You denied it, so the tool did not run: all notes are still there."
    async for word in _words(text + _how("yield ApprovalRequest(…)", "tools.md#approvals"), pace):
        yield word


async def _clock(turn: Turn, pace: float) -> Said:
    if not turn.tool_outputs:
        yield "I do not know your time, but your browser does. I ask it."
        yield ToolCall(new_id(), "browser_time", {})
        return
    output = turn.tool_outputs[-1].output
    clock = output if isinstance(output, Mapping) else {}
    text = f"Your browser says that it is {clock.get('time', 'unknown')} ({clock.get('timeZone', 'unknown zone')})."
    async for word in _words(
        text + _how('yield ToolCall(id, "browser_time", {})', "tools.md#tools-that-run-on-the-page"), pace
    ):
        yield word


async def _files(_turn: Turn, pace: float) -> Said:
    yield File(_inline("image/png", _gradient(240, 120)), "image/png")
    table = "city,celsius\nLisbon,21\nOslo,-3\n"
    yield File(_inline("text/csv", table.encode()), "text/csv")
    text = "I drew the image a moment ago, pixel by pixel, and wrote the table. Click the image to enlarge it."
    async for word in _words(text + _how('yield File(url, "image/png")', "files.md#what-the-agent-makes"), pace):
        yield word


async def _data(_turn: Turn, pace: float) -> Said:
    for percent in range(0, 101, 10):
        yield Data("progress", {"percent": percent, "label": "Counting the visitors"}, "progress")
        await asyncio.sleep(4 * pace)
    visitors = {"name": "Visitors", "values": [120, 180, 150, 240, 310, 280, 190]}
    days = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
    yield Data("week", {"series": [visitors], "labels": days, "kind": "bar"})
    text = "The progress bar was one part that changed ten times; the chart is another. (The numbers are made up.)"
    async for word in _words(
        text + _how('turn.emit("progress", {"percent": 10}, id="count")', "data.md#one-part-that-changes"), pace
    ):
        yield word


async def _sources(_turn: Turn, pace: float) -> Said:
    yield SourceUrl("tour-serving", "docs/serving.md", "Serving")
    yield SourceUrl("tour-chats", "docs/chats.md", "Store your chats")
    text = "An answer can say what it rests on: the sources are the chips below."
    async for word in _words(text + _how("yield SourceUrl(id, url, title)", "parts.md#all-parts"), pace):
        yield word


async def _failure(_turn: Turn, pace: float) -> Said:
    text = "Now my code raises an error whose text holds a password. You see a reference only."
    code = _how("raise RuntimeError(…)", "errors.md#errors-how-they-are-shown-to-people")
    async for word in _words(text + code, pace):
        yield word
    raise RuntimeError("cannot log in with the password 'swordfish'")


async def _counting(_turn: Turn, pace: float) -> Said:
    yield "Reload the page now: the answer continues where it was. Or press Stop: it ends on the server, too."
    yield _how("ChatApp(agent)", "resume.md#resume") + "\n\n"  # a stopped answer has no end
    for number in range(1, 121):
        yield f"{number} "
        await asyncio.sleep(6 * pace)


STEPS: Final[Mapping[str, Callable[[Turn, float], Said] | None]] = {
    "Show streaming with reasoning": _streaming,
    "Show two tools at once": _tools,
    "Show an approval and its effect": _approval,
    "Show a tool that runs in my browser": _clock,
    "Show a file and an image": _files,
    "Show progress and a chart": _data,
    "Show sources": _sources,
    "Show a flow with two parallel nodes": None,
    "Show an error that is redacted": _failure,
    "Show a stop and a resume": _counting,
}
"""What answers each step, by what the user asks, in the order of the tour; where nothing is named, the flow does."""


class Tour:
    """Answers the questions of the tour; ``pace`` is in seconds per word."""

    def __init__(self, registry: NodeRegistry, pace: float = PACE) -> None:
        text = (files("usechat") / "demo" / "tour.yaml").read_text(encoding="utf-8")
        flow = load_flow(text, registry=registry)
        self._flow = OpenHarnessChatTransport(partial(FlowRuntime, flow, registry=registry), send_flow_metadata=True)
        self._pace = pace

    def answers(self, turn: Turn) -> bool:
        """Whether a turn is a step of the tour."""
        return turn.text in STEPS

    async def drive(self, context: TurnContext) -> None:
        """Answer a turn of the tour."""
        step = STEPS[context.turn.text]
        source = FunctionSource(lambda turn: step(turn, self._pace)) if step else self._flow
        await source.drive(context)


# The nodes of the tour's flow, see tour.yaml.


async def snacks(_fields: Mapping[str, Any]) -> Said:
    """Think of snacks."""
    async for word in _words("For snacks I suggest olives, bread and cheese.", PACE):
        yield word


async def drinks(_fields: Mapping[str, Any]) -> Said:
    """Think of drinks, at the same time."""
    async for word in _words("For drinks I suggest water, lemonade and green tea.", PACE):
        yield word


async def menu(_fields: Mapping[str, Any]) -> Said:
    """Bring both together."""
    text = "Two nodes worked side by side, and this one waited for both. The flow panel shows it."
    async for word in _words(text + _how("usechat serve flow.yaml", "open-harness-reference.md#the-flow-file"), PACE):
        yield word


def _inline(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def _gradient(width: int, height: int) -> bytes:
    """Return a PNG with colours that run into each other."""
    rows = b"".join(
        b"\0" + bytes(value for x in range(width) for value in (255 * x // width, 110, 255 - 255 * y // height))
        for y in range(height)
    )
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
