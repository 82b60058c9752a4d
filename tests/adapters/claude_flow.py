"""The agent of the scripts as a node of a flow that Claude Code answers."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.adapters.agents import INSTRUCTIONS, Api, Deeds
from tests.adapters.claude_agent import ALLOWED, SERVER, environment, mcp_server
from usechat.ids import new_id
from usechat.open_harness import FlowRuntimes, OpenHarnessChatTransport
from usechat.testing import ScriptedModel

TOOLS: Any = None
"""The MCP server of the test that runs: flows name it."""


def node(model: ScriptedModel, home: str, node_id: str = "assistant", **more: Any) -> dict[str, Any]:
    """Return a node; ``more`` are further keys of its input, and its policy."""
    policy = {"policy": more.pop("policy")} if "policy" in more else {}
    fields = {
        "provider": "claude",
        "model": "claude-sonnet-4-5",
        "instructions": INSTRUCTIONS,
        "prompt": "{{ flow.input.message }}",
        "files": "{{ flow.input.files }}",
        "mcpServers": {SERVER: f"{__name__}:TOOLS"},
        "allowedTools": ALLOWED,
        "thinking": False,  # the model would insist on it, and most scripts have none
        "cwd": home,
        "env": environment(model, home),
    }
    return {"id": node_id, "type": "agent", "input": {**fields, **more}, **policy, "ui": {"label": node_id.title()}}


def flow(*nodes: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return a new flow: agents of one flow, chat and node share their memory."""
    return {"name": f"claude-{new_id()}", "nodes": list(nodes), "edges": [], **fields}


def use_tools(deeds: Deeds) -> None:
    """Let the flows of this test use these tools."""
    globals()["TOOLS"] = mcp_server(deeds)


@contextmanager
def home() -> Iterator[str]:
    """Make a directory for Claude Code's sessions; its process may still write there when the test ends."""
    with tempfile.TemporaryDirectory(prefix="usechat-claude-", ignore_cleanup_errors=True) as directory:
        yield directory


@contextmanager
def make(model: ScriptedModel, api: Api, deeds: Deeds) -> Iterator[Any]:
    assert api == "anthropic"
    use_tools(deeds)
    with home() as directory:
        yield OpenHarnessChatTransport(FlowRuntimes(flow(node(model, directory))))
