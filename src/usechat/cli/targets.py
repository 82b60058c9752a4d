"""What `usechat serve` can serve besides the kinds of :mod:`usechat.targets`: Python objects, and where they are."""

import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from usechat.errors import CannotLoad, CannotServe
from usechat.targets import installed_targets, is_file

__all__ = ["HasPageFiles", "is_asgi_app", "kind_of", "targets_in"]

_ADK_AGENT: Final = re.compile(r"^(root_agent|app)\b\s*[:=]", re.MULTILINE)
"""What ADK's own commands look for in the file `agent.py` of a package."""


@runtime_checkable
class HasPageFiles(Protocol):
    """A Python object that brings texts, by path, which the page can link to."""

    @property
    def page_files(self) -> Mapping[str, str]:
        """The texts."""
        ...


def kind_of(target: str) -> str | None:
    """Return the kind that recognises a target by its text; ``None`` if it names a Python object."""
    kinds = [name for name, kind in installed_targets().items() if kind.recognises(target)]
    if len(kinds) > 1:
        raise CannotServe(f"{target} may be one of {', '.join(kinds)}; choose one with --as")
    return kinds[0] if kinds else None


def is_asgi_app(instance: Any) -> bool:
    """Tell whether this is an ASGI app: it is called with scope, receive and send."""
    return not inspect.isclass(instance) and callable(instance) and _accepts(instance, 3) and not _accepts(instance, 1)


def targets_in(target: str) -> list[str]:
    """Return the objects that a directory names, in `langgraph.json` or as a package of Google ADK; others as they are.

    Raises :class:`~usechat.errors.CannotLoad` for a directory that names nothing.
    """
    directory = Path(target)
    if not directory.is_dir():
        return [target]
    configuration, agent = directory / "langgraph.json", directory / "agent.py"
    if configuration.is_file():
        return _graphs_of(configuration)
    if agent.is_file() and (name := _ADK_AGENT.search(agent.read_text(encoding="utf-8"))) is not None:
        return [f"{agent}:{name[1]}"]
    raise CannotLoad(
        f"the directory {target} has neither a langgraph.json nor an agent.py with a root_agent;"
        " give MODULE:NAME or FILE.py:NAME, such as my_app:agent"
    )


def _graphs_of(configuration: Path) -> list[str]:
    try:
        graphs = msgspec.json.decode(configuration.read_bytes(), type=_LangGraphProject).graphs
    except msgspec.DecodeError as error:
        raise CannotLoad(f"{configuration} cannot be read: {error}") from None
    paths = [graph if isinstance(graph, str) else graph["path"] for graph in graphs.values()]
    return [str(configuration.parent / path) if is_file(path.rpartition(":")[0]) else path for path in paths]


class _LangGraphProject(msgspec.Struct, frozen=True):
    """What `langgraph.json` says that is needed here: where each graph is."""

    graphs: dict[str, str | dict[str, Any]]


def _accepts(function: Any, count: int) -> bool:
    """Tell whether a function can be called with ``count`` positional arguments and nothing else."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return count == 1
    return True
