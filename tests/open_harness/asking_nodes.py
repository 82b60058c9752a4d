"""A type of node that asks a person about a tool call before it does its work."""

from collections.abc import Mapping
from typing import Any

from usechat.open_harness import NodeContext, NodeRegistry, default_registry


async def delete(fields: Mapping[str, Any], context: NodeContext) -> dict[str, Any]:
    """Ask whether a file may be deleted, and say what was done."""
    path = fields["path"]
    call = {"type": "agent:tool", "toolCallId": f"call_{path}", "toolName": "delete", "toolInput": {"path": path}}
    context.emit(call)
    decision = await context.ask(f"call_{path}")
    text = f"{path} stays: {decision.reason}. "
    if decision.approved:
        context.emit({**call, "toolOutput": f"{path} is gone"})
        text = f"{path} is gone. "
    while (command := context.inbox.next()) is not None:
        text += f"You wrote {command['message']!r}. "
    context.emit({"type": "agent:text", "content": text})
    return {"text": text}


def registry() -> NodeRegistry:
    nodes = default_registry()
    nodes.add("delete", delete)
    return nodes


def node(path: str, **fields: Any) -> dict[str, Any]:
    return {"id": path, "type": "delete", "input": {"path": path}, **fields}
