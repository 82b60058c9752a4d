"""Answers with a tool of an MCP server that asks the user: `usechat serve examples/mcp/agent.py:agent`, "Friday"."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from usechat import Text, ToolCall, ToolResult, Turn
from usechat.adapters.elicitation import elicit
from usechat.parts import Part

SERVER = StdioServerParameters(command=sys.executable, args=[str(Path(__file__).with_name("restaurant.py"))])


async def agent(turn: Turn) -> AsyncIterator[Part]:
    """Book a table on the day that the user names."""
    call_id, day = f"book-{len(turn.messages)}", {"day": turn.text}
    yield ToolCall(call_id, "book", day)
    async with Client(SERVER, elicitation_callback=elicit) as client:
        result = await client.call_tool("book", day)
    booked: Any = result.content[0]
    yield ToolResult(call_id, booked.text)
    yield Text(booked.text)
