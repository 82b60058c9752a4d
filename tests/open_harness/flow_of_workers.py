"""A flow whose node talks with its user, for workers that share a run store."""

import asyncio
from collections.abc import Mapping
from typing import Any

from usechat.open_harness import NodeContext
from usechat.turn import emit

FLOW = """
name: talk
nodes:
  - id: talk
    type: python
    input: {function: "flow_of_workers:talks"}
"""
"""It is served from a directory that also has this module."""


async def talks(_fields: Mapping[str, Any], context: NodeContext) -> Any:
    """Repeat what is heard, until somebody says bye."""
    context.emit({"type": "agent:text:delta", "content": "Hello. "})
    async for command in context.inbox:
        emit("heard", command["message"])
        context.emit({"type": "agent:text:delta", "content": f"You said {command['message']}. "})
        if command["message"] == "bye":
            return {"text": "bye"}
    return None


async def deaf(_fields: Mapping[str, Any], context: NodeContext) -> Any:
    """Speak, and end without reading what was sent, as soon as something was."""
    context.emit({"type": "agent:text:delta", "content": "Not listening. "})
    while not len(context.inbox):  # noqa: ASYNC110 (it must not read)
        await asyncio.sleep(0.01)
    return {}
