"""Claude Code with a tool and a permission: `usechat serve examples/frameworks/claude_agent.py:agent`."""

import json
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool


@tool("weather", "Tell the weather of a city.", {"city": str})  # type: ignore[untyped-decorator]
async def weather(arguments: dict[str, Any]) -> dict[str, Any]:
    result = {"city": arguments["city"], "celsius": 21}
    return {"content": [{"type": "text", "text": json.dumps(result)}]}


@tool("delete_note", "Delete a note.", {"name": str})  # type: ignore[untyped-decorator]
async def delete_note(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"{arguments['name']} is deleted."}]}


agent = ClaudeAgentOptions(
    model="claude-sonnet-4-6",
    system_prompt="Be brief.",
    mcp_servers={"notes": create_sdk_mcp_server("notes", tools=[weather, delete_note])},
    allowed_tools=["mcp__notes__weather"],  # every other tool asks the page
    tools=[],  # none of Claude Code's own
)
