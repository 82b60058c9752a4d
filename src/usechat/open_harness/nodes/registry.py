"""The types of nodes that flows may use, and the models that agents may name."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from usechat.open_harness.flow.definition import Place
from usechat.open_harness.models.provider import Provider
from usechat.open_harness.nodes.context import NodeContext
from usechat.open_harness.nodes.python import FunctionNode

__all__ = ["NodeRegistry", "NodeType"]


@runtime_checkable
class NodeType(Protocol):
    """A type of node: checks an input, and runs with it."""

    def problems(self, fields: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:
        """Yield the problems of an input, which may still hold bindings: the place within it, and a text."""
        ...

    async def run(self, fields: Mapping[str, Any], context: NodeContext) -> Any:
        """Run with the resolved input and return the output. An exception is a failure; a cancellation is a stop."""
        ...


class NodeRegistry:
    """Types of nodes by name, and models by name. :func:`default_registry` returns one with the built-in types.

    ``default_model`` is the model of agents that name none. ``provider`` answers all agents, instead of pydantic-ai.

    >>> registry = NodeRegistry()
    >>> registry.add("shout", lambda given: {"text": given["text"].upper()})
    >>> registry.names()
    ['shout']
    """

    def __init__(self, *, default_model: Any = None, provider: Provider | None = None) -> None:
        self.default_model = default_model
        self.provider = provider
        self._types: dict[str, NodeType] = {}
        self._models: dict[str, Any] = {}

    def add(self, name: str, node: Any) -> None:
        """Add a type: an object with ``problems`` and ``run``, or a function of the input, or of input and context."""
        self._types[name] = node if isinstance(node, NodeType) else FunctionNode(node)

    def add_model(self, name: str, model: Any) -> None:
        """Give a model a name that agents may use. It is a pydantic-ai ``Model`` or the name of one."""
        self._models[name] = model

    def get(self, name: str) -> NodeType | None:
        """Return a type, or ``None``."""
        return self._types.get(name)

    def names(self) -> list[str]:
        """Return the names of all types."""
        return sorted(self._types)

    def model(self, name: str | None) -> Any:
        """Return the model of a name; a name that was not added is returned as it is."""
        return self.default_model if name is None else self._models.get(name, name)
