"""A flow as its file describes it: nodes, edges between them, and shared state. Read-only."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

__all__ = ["Condition", "Edge", "FlowDefinition", "FlowState", "ForEach", "Node", "Place", "Policy", "Retry"]

Condition: TypeAlias = str | Mapping[str, Any]
"""A JSONata text, or the operator form: ``{equals: {var, value}}``, ``{not: …}``, ``{and: […]}``, ``{or: […]}``."""

Place: TypeAlias = tuple[str | int, ...]
"""The path of a value in a flow file, such as ``("nodes", 0, "input", "prompt")``."""


class Retry(msgspec.Struct, frozen=True, rename="camel"):
    """How often a failing node is tried, and how long the first pause is; each further pause doubles."""

    max_attempts: int = 1
    backoff_ms: float = 0


class Policy(msgspec.Struct, frozen=True, rename="camel"):
    """Retries, time limit, and whether the flow continues after a failure."""

    retry: Retry = Retry()
    timeout_ms: float | None = None
    continue_on_error: bool = False


class Node(msgspec.Struct, frozen=True):
    """One step of a flow; ``input`` may hold bindings."""

    id: str
    type: str
    input: Mapping[str, Any] = {}
    when: Condition | None = None
    policy: Policy = Policy()
    ui: Mapping[str, Any] | None = None


class ForEach(msgspec.Struct, frozen=True, rename={"in_": "in", "as_": "as"}):
    """The list over which the target of an edge runs, and the name that an item has in bindings."""

    in_: str
    as_: str


class Edge(
    msgspec.Struct,
    frozen=True,
    rename={"from_": "from", "for_each": "forEach", "max_iterations": "maxIterations"},
    omit_defaults=True,
):
    """Lets ``to`` run after ``from_``. With ``max_iterations`` it is a loop: it lets ``to`` run again."""

    from_: str
    to: str
    id: str | None = None
    when: Condition | None = None
    gate: Literal["any", "all"] | None = None
    for_each: ForEach | None = None
    max_iterations: int | None = None

    @property
    def key(self) -> str:
        """The name of the edge in a snapshot."""
        return self.id if self.id is not None else f"{self.from_}->{self.to}"

    @property
    def is_loop(self) -> bool:
        """Whether it leads back to a node that has run."""
        return self.max_iterations is not None


class FlowState(msgspec.Struct, frozen=True):
    """What the nodes of a flow share: the values in the beginning."""

    initial: Mapping[str, Any] = {}
    schema: Any = None


class FlowDefinition(msgspec.Struct, frozen=True):
    """A flow, as a flow file describes it. ``parallel`` lets nodes that are ready run at the same time."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...] = ()
    version: float | None = None
    state: FlowState = FlowState()
    parallel: bool = False
