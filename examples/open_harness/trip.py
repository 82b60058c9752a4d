"""The functions of `trip-flow.yaml`: tools, thinking and text, as agents would say them."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from usechat.open_harness import NodeContext

PAUSE = 0.05


async def look_up_weather(given: Mapping[str, Any], context: NodeContext) -> dict[str, Any]:
    """Use a tool: an event says that it began, another what came of it."""
    context.emit({"type": "agent:thinking", "content": "Is it warm there? "})
    context.emit({"type": "agent:tool", "toolName": "weather", "toolInput": {"city": given["city"]}})
    await asyncio.sleep(PAUSE)
    context.emit({"type": "agent:tool", "toolName": "weather", "toolOutput": {"celsius": 21}})
    return {"celsius": 21}


def look_up_hotels(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Use a tool that fails; in a thread, because this is no async function."""
    yield {"type": "agent:tool", "toolName": "hotels", "toolInput": dict(given), "error": "no answer, it timed out"}


async def write(given: Mapping[str, Any]) -> AsyncIterator[str]:
    """Say something, word by word."""
    text = f"It is {given['celsius']} °C in {given['city']}."
    if given["note"]:
        text += " Take sunglasses along."
    for word in text.split():
        yield f"{word} "
        await asyncio.sleep(PAUSE)


def criticise(given: Mapping[str, Any]) -> dict[str, str]:
    """Ask for more, until there is."""
    return {} if "Take" in given["text"] else {"note": "Say what to take along."}
