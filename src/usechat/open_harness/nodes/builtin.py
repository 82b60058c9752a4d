"""The built-in types of nodes."""

from collections.abc import Iterable, Mapping
from typing import Any

from usechat.open_harness.flow.definition import Place
from usechat.open_harness.models.provider import Provider
from usechat.open_harness.nodes.agent import AgentNode
from usechat.open_harness.nodes.context import NodeContext
from usechat.open_harness.nodes.python import PythonNode
from usechat.open_harness.nodes.registry import NodeRegistry

__all__ = ["ConstantNode", "EchoNode", "default_registry"]


class ConstantNode:
    """Returns its ``value``; nothing if the value is a binding that leads to nothing."""

    def problems(self, fields: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:  # noqa: ARG002 (as the protocol has it)
        """Yield nothing: any value is valid, also none."""
        return ()

    async def run(self, fields: Mapping[str, Any], context: NodeContext) -> Any:  # noqa: ARG002 (as the protocol has it)
        """Return the value."""
        return {key: fields[key] for key in ("value",) if key in fields}


class EchoNode:
    """Returns its ``text``."""

    def problems(self, fields: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:
        """Yield a problem if ``text`` is not a string."""
        if not isinstance(fields.get("text"), str):
            yield ("text",), "must be a text"

    async def run(self, fields: Mapping[str, Any], context: NodeContext) -> Any:  # noqa: ARG002 (as the protocol has it)
        """Return the text."""
        return {"text": fields["text"]}


def default_registry(*, default_model: Any = None, provider: Provider | None = None) -> NodeRegistry:
    """Return a new registry with the built-in types: agent, claude.agent, constant, echo and python.

    ``default_model`` is the model of agents that name none. ``provider`` answers all agents, instead of pydantic-ai:
    see :class:`Provider`.

    >>> default_registry().names()
    ['agent', 'claude.agent', 'constant', 'echo', 'python']
    """
    registry = NodeRegistry(default_model=default_model, provider=provider)
    registry.add("constant", ConstantNode())
    registry.add("echo", EchoNode())
    registry.add("python", PythonNode())
    registry.add("agent", AgentNode(registry))
    registry.add("claude.agent", AgentNode(registry, claude=True))
    return registry
