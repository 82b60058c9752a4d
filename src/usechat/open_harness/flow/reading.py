"""Reads flow files: YAML, JSON or a mapping becomes a flow, or an InvalidFlow with every problem and its line."""

import difflib
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Final, NamedTuple

from usechat.errors import InvalidSetting, MissingDependency
from usechat.open_harness.errors import InvalidFlow
from usechat.open_harness.flow.definition import Edge, FlowDefinition, FlowState, ForEach, Node, Place, Policy, Retry
from usechat.open_harness.flow.expressions import binding_problems, condition_problems
from usechat.open_harness.flow.problems import FlowProblem, Lines, ProblemReport
from usechat.open_harness.nodes.agent import AgentNode, with_files
from usechat.open_harness.nodes.builtin import default_registry
from usechat.open_harness.nodes.registry import NodeRegistry

__all__ = [
    "FlowReader",
    "ReadYaml",
    "load_flow",
    "read_yaml",
]


_MAXIMUM_VALUES: Final = 100_000
_NAMELESS: Final = "flow"
"""How errors call a flow that is not in a file."""


class ReadYaml(NamedTuple):
    """The value of a YAML text, the lines of its values, and the keys that occur twice."""

    value: Any
    lines: Lines
    twice: list[Place]


def read_yaml(text: str, name: str) -> ReadYaml:
    """Read YAML 1.2, in which ``yes`` and ``on`` are strings; an InvalidFlow names the line."""
    try:
        import yaml
    except ImportError:
        raise MissingDependency("pyyaml", "open-harness") from None
    try:
        loader = _loader_class()(text)
        root = loader.get_single_node()
        if root is not None:
            _measure(root, {}, name)
        value = None if root is None else loader.construct_document(root)
    except InvalidFlow:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = FlowProblem("", f"not YAML: {error.problem or error.context}", mark.line + 1 if mark else None)
        raise InvalidFlow(name, [problem]) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidFlow(name, [FlowProblem("", f"not YAML: {str(error).splitlines()[0]}")]) from error
    lines: dict[Place, int] = {}
    twice: list[Place] = []
    if root is not None:
        for place, line in _walk(root, (), set()):
            if place in lines:
                twice.append(place)
            lines[place] = line
    return ReadYaml(value, Lines(lines), twice)


def _measure(node: Any, sizes: dict[int, int | None], name: str) -> int:
    """Return how many values there are once aliases are expanded; refuse recursive and enormous documents."""
    if id(node) not in sizes:
        sizes[id(node)] = None
        below = node.value if isinstance(node.value, list) else ()
        parts = [part for item in below for part in (item if isinstance(item, tuple) else (item,))]
        sizes[id(node)] = 1 + sum(_measure(part, sizes, name) for part in parts)
    size = sizes[id(node)]
    if size is None or size > _MAXIMUM_VALUES:
        text = "is part of itself" if size is None else f"is more than {_MAXIMUM_VALUES} values"
        raise InvalidFlow(name, [FlowProblem("", f"the value here {text}", node.start_mark.line + 1)])
    return size


def _walk(node: Any, place: Place, visited_ids: set[int]) -> Iterator[tuple[Place, int]]:
    """Yield the line of each value. An aliased value is visited once."""
    import yaml

    if not place:
        yield place, node.start_mark.line + 1
    if id(node) in visited_ids:
        return
    visited_ids.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, item in node.value:
            below = (*place, str(key.value))
            yield below, key.start_mark.line + 1
            yield from _walk(item, below, visited_ids)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*place, index), item.start_mark.line + 1
            yield from _walk(item, (*place, index), visited_ids)


def _integer(loader: Any, node: Any) -> int:
    # In YAML 1.1, 010 is eight.
    return int(loader.construct_scalar(node))


def _loader_class() -> Any:
    """Return a loader with the core schema of YAML 1.2, which Open Harness reads; PyYAML's own is that of 1.1."""
    import re

    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as in the base class

    def resolver(tag: str, pattern: str, first: str) -> None:
        Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), list(first))

    resolver("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
    resolver("null", "~|null|Null|NULL|", "~nN")
    Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^$"), [""])
    resolver("int", "[-+]?[0-9]+", "-+0123456789")
    resolver("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789")
    resolver("merge", "<<", "<")
    Loader.add_constructor("tag:yaml.org,2002:int", _integer)
    return Loader


# Plain values to a flow. A problem is reported and reading continues, so that one attempt finds all problems.

_FLOW_KEYS: Final = ("name", "version", "state", "nodes", "edges", "parallel", "flow")
_NODE_KEYS: Final = ("id", "type", "input", "when", "policy", "ui")
_EDGE_KEYS: Final = ("id", "from", "to", "when", "gate", "forEach", "maxIterations")
_POLICY_KEYS: Final = ("retry", "timeoutMs", "continueOnError")
_RETRY_KEYS: Final = ("maxAttempts", "backoffMs")
_NAMES: Final = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_MISSING: Final = object()
_RESERVED: Final = ("flow", "state")
_OLDER_TYPES: Final = {
    "anthropic.text": "use agent, with model and prompt",
    "condition.equals": "write its condition as `when` of the edges behind it",
    "control.foreach": "write `forEach: {in, as}` at the edge into the node that runs for each item",
    "http.get": "use python, with a function that makes the request",
    "map": "use constant, with bindings in its value",
}
"""The types of nodes of flow files before release 0.1, and what stands in their place."""


class FlowReader:
    """Turns plain values into a flow. Keys that it does not know are ignored, unless they look misspelt.

    ``path`` is that of the flow file: a flow without a name has the file's, and the files that it names are beside it.
    """

    def __init__(self, report: ProblemReport, registry: NodeRegistry, path: Path | None) -> None:
        self._report = report
        self._registry = registry
        self._directory = Path() if path is None else path.parent
        self._default_name = "" if path is None else path.stem

    def read(self, value: Any) -> FlowDefinition | None:
        """Return the flow. It is valid only if the report holds no problems."""
        if not isinstance(value, Mapping):
            self._report.add((), "", "a flow is an object with the keys name, nodes and edges")
            return None
        self._look_for_misspelt(value, (), "", _FLOW_KEYS)
        # Before release 0.1 of the flow format, the name stood below `flow`.
        header, place = (value["flow"], ("flow",)) if isinstance(value.get("flow"), Mapping) else (value, ())
        default = self._default_name if header.get("name") is None else ""
        name = default or self._text(header, "name", place, "")
        nodes = self._nodes(value)
        edges = self._edges(value, {node.id for node in nodes})
        state = self._state(value)
        parallel = self._field(value, "parallel", bool, (), "", default=False)
        version = self._field(value, "version", float, (), "", default=None)
        return FlowDefinition(name, tuple(nodes), tuple(edges), version, state, parallel)

    def _nodes(self, flow: Mapping[str, Any]) -> list[Node]:
        items = self._list(flow, "nodes")
        nodes = [self._node(item, ("nodes", index), index) for index, item in enumerate(items)]
        if not items and isinstance(flow.get("nodes"), list | tuple):
            self._report.add(("nodes",), "nodes", "a flow needs at least one node")
        ids: set[str] = set()
        for index, node in enumerate(nodes):
            if node.id in ids:
                self._report.add(("nodes", index, "id"), f'node "{node.id}", id', "another node has the same id")
            elif node.id in _RESERVED:
                self._report.add(("nodes", index, "id"), f'node "{node.id}", id', "is a name that bindings use already")
            ids.add(node.id)
        return nodes

    def _node(self, value: Any, place: Place, index: int) -> Node:
        if not isinstance(value, Mapping):
            self._report.add(place, f"node {index + 1}", "must be an object with the keys id, type and input")
            return Node(f"#{index}", "")
        identity = value.get("id")
        owner = f'node "{identity}"' if isinstance(identity, str) else f"node {index + 1}"
        self._look_for_misspelt(value, place, owner, _NODE_KEYS)
        node_id = self._text(value, "id", place, owner) or f"#{index}"
        node_type = self._text(value, "type", place, owner)
        fields = self._object(value, "input", place, owner)
        if isinstance(self._registry.get(node_type), AgentNode):
            fields = self._with_files(fields, place, owner)
        for where, problem in binding_problems(fields, (*place, "input")):
            self._report.add(where, _owned(owner, where), problem)
        if node_type:
            self._check_type(node_type, fields, place, owner)
        ui = self._object(value, "ui", place, owner) or None
        return Node(
            node_id, node_type, fields, self._condition(value, place, owner), self._policy(value, place, owner), ui
        )

    def _with_files(self, fields: Mapping[str, Any], place: Place, owner: str) -> Mapping[str, Any]:
        try:
            return with_files(fields, self._directory)
        except InvalidSetting as error:
            self._report.add((*place, "input"), f"{owner}, input", str(error))
            return {"prompt": "", **fields}

    def _check_type(self, node_type: str, fields: Mapping[str, Any], place: Place, owner: str) -> None:
        kind = self._registry.get(node_type)
        if kind is None:
            self._report.add((*place, "type"), f"{owner}, type", self._unknown_type(node_type))
            return
        for below, problem in kind.problems(fields):
            self._report.add((*place, "input", *below), f"{owner}, {_path(('input', *below))}", problem)

    def _unknown_type(self, node_type: str) -> str:
        """Return what to do about a type that is not in the registry."""
        names = self._registry.names()
        there_are = f'there is no type "{node_type}"; there are {", ".join(names)}'
        own = f'dd your own: registry.add("{node_type}", function), --registry my_module:registry'
        if older := _OLDER_TYPES.get(node_type):
            return f"{there_are}. It is an older type of Open Harness: {older}. Or a{own}"
        if misspelt := difflib.get_close_matches(node_type, names, 1, 0.75):
            return f"{there_are}. Did you mean {misspelt[0]}? Or a{own}"
        return f"{there_are}. A{own}"

    def _policy(self, node: Mapping[str, Any], place: Place, owner: str) -> Policy:
        value = self._object(node, "policy", place, owner)
        place = (*place, "policy")
        self._look_for_misspelt(value, place, owner, _POLICY_KEYS)
        retry = self._object(value, "retry", place, owner)
        below = (*place, "retry")
        self._look_for_misspelt(retry, below, owner, _RETRY_KEYS)
        return Policy(
            Retry(
                self._field(retry, "maxAttempts", int, below, owner, default=1, at_least=1),
                self._field(retry, "backoffMs", float, below, owner, default=0, at_least=0),
            ),
            self._field(value, "timeoutMs", float, place, owner, default=None, at_least=0),
            self._field(value, "continueOnError", bool, place, owner, default=False),
        )

    def _edges(self, flow: Mapping[str, Any], nodes: set[str]) -> list[Edge]:
        items = self._list(flow, "edges", required=False)
        edges = [self._edge(item, ("edges", index), index, nodes) for index, item in enumerate(items)]
        valid_edges = [edge for edge in edges if edge.from_ in nodes and edge.to in nodes]
        keys: set[str] = set()
        for index, edge in enumerate(edges):
            if edge.key in keys:
                self._report.add(("edges", index), f'edge "{edge.key}"', "occurs twice; give each its own id")
            keys.add(edge.key)
        self._look_for_conflicts(valid_edges)
        # A wrong maxIterations has been reported already, so its edge is not reported as a cycle as well.
        loops = [edge for edge, item in zip(edges, items, strict=True) if _says(item, "maxIterations")]
        self._look_for_cycles([edge for edge in valid_edges if edge not in loops])
        return edges

    def _edge(self, value: Any, place: Place, index: int, nodes: set[str]) -> Edge:
        if not isinstance(value, Mapping):
            self._report.add(place, f"edge {index + 1}", "must be an object with the keys from and to")
            return Edge("", "", f"#{index}")
        owner = f'edge "{value.get("id") or "{}->{}".format(value.get("from"), value.get("to"))}"'
        self._look_for_misspelt(value, place, owner, _EDGE_KEYS)
        ends = [self._text(value, end, place, owner) for end in ("from", "to")]
        for end, name in zip(("from", "to"), ends, strict=True):
            if name and nodes and name not in nodes:  # without any node, that is the problem
                self._report.add((*place, end), f"{owner}, {end}", f'there is no node "{name}"')
        gate = value.get("gate")
        if gate not in (None, "any", "all"):
            self._report.add((*place, "gate"), f"{owner}, gate", "must be any or all")
            gate = None
        return Edge(
            ends[0],
            ends[1],
            self._field(value, "id", str, place, owner, default=None),
            self._condition(value, place, owner),
            gate,
            self._for_each(value, place, owner),
            self._field(value, "maxIterations", int, place, owner, default=None, at_least=1),
        )

    def _for_each(self, edge: Mapping[str, Any], place: Place, owner: str) -> ForEach | None:
        value = self._object(edge, "forEach", place, owner)
        if "forEach" not in edge:
            return None
        place = (*place, "forEach")
        source = self._text(value, "in", place, owner)
        for where, problem in binding_problems(source, (*place, "in")):
            self._report.add(where, _owned(owner, where), problem)
        if source and "{{" not in source:
            self._report.add((*place, "in"), _owned(owner, (*place, "in")), f"must be a binding: {{{{ {source} }}}}")
        return ForEach(source, self._text(value, "as", place, owner))

    def _look_for_conflicts(self, edges: list[Edge]) -> None:
        gates: dict[str, str] = {}
        for index, edge in enumerate(edges):
            if edge.gate is not None and gates.setdefault(edge.to, edge.gate) != edge.gate:
                self._report.add(
                    ("edges", index, "gate"),
                    f'edge "{edge.key}", gate',
                    f'another edge into "{edge.to}" says {gates[edge.to]}',
                )

    def _look_for_cycles(self, edges: list[Edge]) -> None:
        sorter: TopologicalSorter[str] = TopologicalSorter()
        for edge in edges:
            sorter.add(edge.to, edge.from_)
        try:
            sorter.prepare()
        except CycleError as error:
            names = " -> ".join(error.args[1])
            self._report.add(
                ("edges",), "edges", f"{names} wait for each other; the edge that leads back needs maxIterations"
            )

    def _state(self, flow: Mapping[str, Any]) -> FlowState:
        value = self._object(flow, "state", (), "")
        return FlowState(self._object(value, "initial", ("state",), ""), value.get("schema"))

    def _condition(self, value: Mapping[str, Any], place: Place, owner: str) -> Any:
        condition = value.get("when")
        if condition is None:
            return None
        for where, problem in condition_problems(condition, (*place, "when")):
            self._report.add(where, _owned(owner, where), problem)
        return condition

    def _list(self, flow: Mapping[str, Any], key: str, *, required: bool = True) -> list[Any]:
        value = flow.get(key)
        if isinstance(value, list | tuple):
            return list(value)
        if value is not None or required:
            self._report.add((key,), key, "must be a list" if value is not None else "is missing; it is a list")
        return []

    def _object(self, value: Mapping[str, Any], key: str, place: Place, owner: str) -> Mapping[str, Any]:
        item = value.get(key)
        if item is None:
            return {}
        if isinstance(item, Mapping):
            return item
        self._report.add((*place, key), _owned(owner, (*place, key)), "must be an object")
        return {}

    def _text(self, value: Mapping[str, Any], key: str, place: Place, owner: str) -> str:
        item = value.get(key)
        if isinstance(item, str) and item:
            return item
        text = "is missing; it is a text" if item is None else "must be a text that is not empty"
        self._report.add((*place, key), _owned(owner, (*place, key)), text)
        return ""

    def _field(
        self,
        value: Mapping[str, Any],
        key: str,
        kind: type,
        place: Place,
        owner: str,
        *,
        default: Any,
        at_least: float | None = None,
    ) -> Any:
        item = value.get(key, _MISSING)
        if item is _MISSING or item is None:
            return default
        fits = isinstance(item, int | float if kind is float else kind) and (kind is bool or not isinstance(item, bool))
        if fits and (at_least is None or item >= at_least):
            return item
        limit = "" if at_least is None else f", at least {at_least}"
        self._report.add((*place, key), _owned(owner, (*place, key)), f"must be {_NAMES[kind]}{limit}")
        return default

    def _look_for_misspelt(self, value: Mapping[str, Any], place: Place, owner: str, keys: tuple[str, ...]) -> None:
        for key in value:
            if key in keys or not isinstance(key, str):
                continue
            for suggestion in difflib.get_close_matches(key, [name for name in keys if name not in value], 1, 0.75):
                self._report.add(
                    (*place, key), _owned(owner, (*place, key)), f"is not known; did you mean {suggestion}?"
                )


def _owned(owner: str, place: Place) -> str:
    """Name a field and its node or edge. A place begins with the list that holds the owner, and its index."""
    return f"{owner}, {_path(place[2:])}" if owner else _path(place)


def _says(item: Any, key: str) -> bool:
    return isinstance(item, Mapping) and item.get(key) is not None


def _path(place: Place) -> str:
    return ".".join(str(step) for step in place)


def load_flow(source: str | Path | Mapping[str, Any], *, registry: NodeRegistry | None = None) -> FlowDefinition:
    """Read a flow from a file, from the text of a file, or from a mapping.

    A string with several lines, or one that begins with a brace, is the text; any other is a path. ``registry`` holds
    the types of nodes; by default the built-in ones. A file without ``name`` is called like the file. Raises
    :class:`~usechat.open_harness.errors.InvalidFlow` with every problem.

    >>> load_flow({"name": "hello", "nodes": [{"id": "a", "type": "echo", "input": {"text": "Hi"}}]}).name
    'hello'
    """
    registry = registry or default_registry()
    if isinstance(source, Mapping):
        return _read(ReadYaml(source, Lines(), []), registry, None)
    if not isinstance(source, Path) and ("\n" in source or source.lstrip().startswith("{")):
        return _read(read_yaml(source, _NAMELESS), registry, None)
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFlow(str(path), [FlowProblem("", f"cannot be read: {error}")]) from error
    return _read(read_yaml(text, str(path)), registry, path)


def _read(document: ReadYaml, registry: NodeRegistry, path: Path | None) -> FlowDefinition:
    report = ProblemReport(document.lines)
    for place in document.twice:
        report.add(place, "", f"the key {place[-1]!r} occurs twice")
    flow = FlowReader(report, registry, path).read(document.value)
    report.raise_for(_NAMELESS if path is None else str(path))
    assert flow is not None, "a flow that could not be read has problems"
    return flow
