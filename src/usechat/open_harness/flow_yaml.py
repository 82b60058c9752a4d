"""YAML with lines: plain values, and where each of them begins."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from usechat.errors import MissingDependency
from usechat.open_harness.flow import Place
from usechat.open_harness.flow_problems import FlowProblem, InvalidFlow, Lines

__all__ = ["ReadYaml", "read_yaml"]

_MAXIMUM_VALUES: Final = 100_000


class ReadYaml(NamedTuple):
    """The value of a YAML text, the lines of its values, and the keys that stand twice."""

    value: Any
    lines: Lines
    twice: list[Place]


def read_yaml(text: str, name: str) -> ReadYaml:
    """Read YAML as its release 1.2 says, in which ``yes`` and ``on`` are texts; an InvalidFlow names the line."""
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
    """Return how many values there are once aliases are written out; refuse what is endless, or as good as."""
    if id(node) not in sizes:
        sizes[id(node)] = None
        below = node.value if isinstance(node.value, list) else ()
        parts = [part for item in below for part in (item if isinstance(item, tuple) else (item,))]
        sizes[id(node)] = 1 + sum(_measure(part, sizes, name) for part in parts)
    size = sizes[id(node)]
    if size is None or size > _MAXIMUM_VALUES:
        text = "is part of itself" if size is None else f"is more than {_MAXIMUM_VALUES} values"
        raise InvalidFlow(name, [FlowProblem("", f"what stands here {text}", node.start_mark.line + 1)])
    return size


def _walk(node: Any, place: Place, seen: set[int]) -> Iterator[tuple[Place, int]]:
    """Yield the lines; what an alias repeats is looked at once only."""
    import yaml

    if not place:
        yield place, node.start_mark.line + 1
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, item in node.value:
            below = (*place, str(key.value))
            yield below, key.start_mark.line + 1
            yield from _walk(item, below, seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*place, index), item.start_mark.line + 1
            yield from _walk(item, (*place, index), seen)


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
