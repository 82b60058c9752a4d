"""Agents with a tool of a real MCP server that asks the user, one per framework that lets us answer."""

import sys
from pathlib import Path
from typing import Any, Final

from fastmcp import Client as FastMcpClient
from fastmcp.client.transports import StdioTransport
from langchain.agents import create_agent
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from mcp import Client, StdioServerParameters
from pydantic_ai import Agent, RunContext
from pydantic_ai.mcp import MCPToolset

from tests.adapters import langgraph_agent, pydantic_ai_agent
from tests.adapters.agents import Api, Deeds
from usechat.adapters.elicitation import elicit
from usechat.adapters.pydantic_ai import elicitation_handler
from usechat.testing import ScriptedModel

SCRIPT: Final = str(Path(__file__).parents[2] / "examples" / "mcp" / "restaurant.py")


def pydantic_ai(model: ScriptedModel, api: Api, _deeds: Deeds) -> Any:
    """Return an agent that starts the server in each run."""
    agent = Agent(pydantic_ai_agent.chat_model(model, api))

    @agent.toolset(per_run_step=False)
    def restaurant(_context: RunContext[object]) -> MCPToolset[object]:
        transport = StdioTransport(sys.executable, [SCRIPT], keep_alive=False)
        return MCPToolset(FastMcpClient(transport, mode="legacy", elicitation_handler=elicitation_handler))

    return agent


def langgraph(model: ScriptedModel, api: Api, _deeds: Deeds) -> Any:
    """Return an agent whose tool starts the server."""

    @tool
    async def book(day: str) -> str:
        """Book a table."""
        server = StdioServerParameters(command=sys.executable, args=[SCRIPT])
        async with Client(server, elicitation_callback=elicit) as client:
            result = await client.call_tool("book", {"day": day})
        content: Any = result.content[0]
        return str(content.text)

    return create_agent(langgraph_agent.chat_model(model, api), [book], checkpointer=InMemorySaver())
