"""Flow files: YAML, JSON or a mapping becomes a Flow, or a report of all that is wrong with it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from usechat.open_harness.flow import Flow
from usechat.open_harness.flow_problems import FlowProblem, InvalidFlow, Lines, Report
from usechat.open_harness.flow_reader import FlowReader
from usechat.open_harness.flow_yaml import read_yaml
from usechat.open_harness.registry import NodeRegistry, default_registry

__all__ = ["load_flow"]


def load_flow(source: str | Path | Mapping[str, Any], *, registry: NodeRegistry | None = None) -> Flow:
    """Read a flow from a file, from the text of one, or from a mapping; an InvalidFlow tells every problem.

    A text is one that has several lines or begins with a brace; any other is the path of a file.
    ``registry`` knows the types of nodes; by default these are the built-in ones.
    """
    registry = registry or default_registry()
    if isinstance(source, Mapping):
        return _read(source, Lines(), [], "flow", registry)
    if isinstance(source, Path) or not ("\n" in source or source.lstrip().startswith("{")):
        name = str(source)
        try:
            text = Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidFlow(name, [FlowProblem("", f"cannot be read: {error}")]) from error
    else:
        name, text = "flow", source
    value, lines, twice = read_yaml(text, name)
    return _read(value, lines, twice, name, registry)


def _read(value: Any, lines: Lines, twice: list[Any], name: str, registry: NodeRegistry) -> Flow:
    report = Report(lines)
    for place in twice:
        report.add(place, "", f"the key {place[-1]!r} stands here twice")
    flow = FlowReader(report, registry).read(value)
    report.raise_for(name)
    assert flow is not None, "a flow that could not be read has problems"
    return flow
