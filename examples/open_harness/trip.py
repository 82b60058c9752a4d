"""The functions of `trip-flow.yaml`: tools, thinking and text, like those of an agent."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from usechat.open_harness import NodeContext

PAUSE = 0.05


async def look_up_weather(inputs: Mapping[str, Any], context: NodeContext) -> dict[str, Any]:
    """Use a tool: one event for the start, another for the result."""
    context.emit({"type": "agent:thinking", "content": "Is it warm there? "})
    context.emit({"type": "agent:tool", "toolName": "weather", "toolInput": {"city": inputs["city"]}})
    await asyncio.sleep(PAUSE)
    context.emit({"type": "agent:tool", "toolName": "weather", "toolOutput": {"celsius": 21}})
    return {"celsius": 21}


def look_up_hotels(inputs: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Use a tool that fails. This function is not async, so it runs in a thread."""
    yield {"type": "agent:tool", "toolName": "hotels", "toolInput": dict(inputs), "error": "no answer, it timed out"}


async def write(inputs: Mapping[str, Any]) -> AsyncIterator[str]:
    """Stream a text, word by word."""
    text = f"It is {inputs['celsius']} °C in {inputs['city']}."
    if inputs.get("note"):
        text += " Take sunglasses along."
    for word in text.split():
        yield f"{word} "
        await asyncio.sleep(PAUSE)


def criticise(inputs: Mapping[str, Any]) -> dict[str, str]:
    """Return a note until the text says what to pack."""
    return {} if "Take" in inputs["text"] else {"note": "Say what to take along."}
