"""The agent of the scripts as options of the Claude Agent SDK; an MCP server in this process has its tools."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, create_sdk_mcp_server, tool

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from usechat.testing import ScriptedModel

SERVER = "demo"
PREFIX = f"mcp__{SERVER}__"
"""How the model calls the tools."""


def _tool(name: str, parameter: str, run: Callable[[str], Any]) -> Any:
    async def call(arguments: dict[str, Any]) -> dict[str, Any]:
        result = run(arguments[parameter])
        text = result if isinstance(result, str) else json.dumps(result)
        return {"content": [{"type": "text", "text": text}]}

    return tool(name, name, {parameter: str})(call)


def mcp_server(deeds: Deeds) -> Any:
    """Return an MCP server with the tools of the scripts."""

    @tool("slow", "slow", {"task": str})  # type: ignore[untyped-decorator]
    async def slow(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await deeds.slow(arguments["task"])}]}

    tools = [
        _tool("weather", "city", deeds.weather),
        _tool("clock", "zone", deeds.clock),
        _tool("broken", "reason", deeds.broken),
        slow,
        _tool("delete", "path", deeds.delete),
    ]
    return create_sdk_mcp_server(SERVER, tools=tools)


ALLOWED = [f"{PREFIX}{name}" for name in ("weather", "clock", "broken", "slow")]


@contextmanager
def make(model: ScriptedModel, api: Api, deeds: Deeds) -> Iterator[Any]:
    assert api == "anthropic"
    with tempfile.TemporaryDirectory(prefix="usechat-claude-", ignore_cleanup_errors=True) as home:
        yield ClaudeAgentOptions(
            model="claude-sonnet-4-5",
            system_prompt=INSTRUCTIONS,
            mcp_servers={SERVER: mcp_server(deeds)},
            allowed_tools=[*ALLOWED, "Agent"],
            tools=["Agent"],
            agents={"researcher": AgentDefinition(description="Knows topics.", prompt="Be exact.")},
            thinking={"type": "disabled"},  # the model would insist on it, and most scripts have none
            setting_sources=[],
            cwd=home,
            env=environment(model, home),
        )


def environment(model: ScriptedModel, home: str) -> dict[str, str]:
    """Return the environment of Claude Code: it asks the scripted model alone, and once."""
    return {
        "ANTHROPIC_BASE_URL": model.anthropic_url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_RETRIES": "0",
        "CLAUDE_CONFIG_DIR": home,
    }
