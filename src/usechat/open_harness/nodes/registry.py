"""Which types of nodes there are, and which models agents may name."""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from usechat.open_harness.flow.definition import Place
from usechat.open_harness.nodes.context import NodeContext
from usechat.open_harness.nodes.python import FunctionNode

__all__ = ["NodeRegistry", "NodeType"]


@runtime_checkable
class NodeType(Protocol):
    """How nodes of one type run."""

    def problems(self, fields: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:
        """Yield what is wrong with an input that may still hold bindings: the place within it, and a text."""
        ...

    async def run(self, fields: Mapping[str, Any], context: NodeContext) -> Any:
        """Run with the resolved input and return the output; an exception is a failure, cancellation a stop."""
        ...


class NodeRegistry:
    """Types of nodes by name, and models by name. A plain function is a type, too.

    ``default_model`` is what agents use that name none.
    """

    def __init__(self, *, default_model: Any = None) -> None:
        self.default_model = default_model
        self._types: dict[str, NodeType] = {}
        self._models: dict[str, Any] = {}

    def add(self, name: str, node: Any) -> None:
        """Add a type: an object with ``problems`` and ``run``, or a function as ``python`` nodes name them."""
        self._types[name] = node if isinstance(node, NodeType) else FunctionNode(node)

    def add_model(self, name: str, model: Any) -> None:
        """Let agents use a model, a pydantic-ai ``Model`` or the name of one, under a name of your own."""
        self._models[name] = model

    def get(self, name: str) -> NodeType | None:
        """Return a type, or nothing."""
        return self._types.get(name)

    def names(self) -> list[str]:
        """Return the names of all types."""
        return sorted(self._types)

    def model(self, name: str | None) -> Any:
        """Return the model that a name means here; a name that was not added stands for itself."""
        return self.default_model if name is None else self._models.get(name, name)
