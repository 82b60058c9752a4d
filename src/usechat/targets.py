"""The interface for packages that add a kind of target: ``usechat serve --as KIND``.

A *kind* is something behind a file or an address that can answer a chat: a flow file, a session behind a WebSocket.
It is found through the entry-point group ``usechat.targets``; the name of the entry point is what ``--as`` takes, and
its object a class without arguments that follows :class:`Target`:

.. code-block:: toml

    [project.entry-points."usechat.targets"]
    parrot = "parrots.target:ParrotTarget"

:class:`Target` shows such a class. It is loaded for `usechat serve --help`, so its module imports nothing heavy. If a
package is missing that ``open`` needs, it raises :class:`~usechat.errors.MissingDependency`, whose text says how to
install it.
"""

import argparse
import difflib
import functools
import importlib
import importlib.util
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import msgspec

from usechat.cli.options import count, port, rate, upstream_headers
from usechat.errors import CannotLoad, InvalidSetting

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from usechat.runs.settings import Settings
    from usechat.runs.store import RunStore
    from usechat.server.auth.bearer import TokenRule
    from usechat.server.requests import Authorize

__all__ = [
    "CommonOptions",
    "NoOptions",
    "OptionGroup",
    "ServedApp",
    "Target",
    "TargetAgent",
    "count",
    "load_object",
    "port",
    "rate",
    "upstream_headers",
]

_ADDRESS: Final = re.compile(r"[\w.-]+:\d+(/.*)?|(localhost|[\w-]+\.[\w.-]+)/.*(?<!\.py)")
"""An address without its scheme, such as ``localhost:8000/api/chat``."""


class TargetAgent(NamedTuple):
    """The agent of a target; a :class:`~usechat.server.ChatApp` is made around it.

    ``also`` are paths that answer besides the usual one. ``page_files`` are texts, by path, that the page can
    link to.

    >>> served = TargetAgent(lambda turn: "Hello", also=("/greeter/stream",))
    >>> served.also
    ('/greeter/stream',)
    """

    agent: Any
    also: tuple[str, ...] = ()
    page_files: Mapping[str, str] | None = None


class ServedApp(NamedTuple):
    """An app with its own routes, for a kind that a ``ChatApp`` does not fit.

    ``path`` is where a page posts to. ``unsupported_options`` are names of common options that make no sense with it.
    ``disabled_by`` is the environment variable that keeps its route from answering at the moment. ``requires_auth``
    says whether every request needs a token. An app that is not one of usechat's chat apps names its ``routes``, and is
    served by one worker.

    >>> from usechat.server import ChatApp, allow_all
    >>> app = ChatApp(lambda turn: "Hello", path="/api/greeter", authorize=allow_all)
    >>> served = ServedApp(app, "/api/greeter", allow_all, unsupported_options=("redis",))
    """

    app: Any
    path: str
    authorize: "Authorize"
    unsupported_options: tuple[str, ...] = ()
    disabled_by: str = ""
    requires_auth: bool = True
    routes: "Sequence[BaseRoute]" = ()


class CommonOptions(NamedTuple):
    """The options of `usechat serve` that are not of one kind, for a kind that makes its own app.

    ``runs`` is ``None`` without ``--redis``. ``token_rules`` are those of ``--auth``. ``authorize`` is the rule that
    follows from ``--auth`` and ``--cors``. ``path`` is where the page posts to. ``idle_timeout`` and ``drain`` are in
    seconds.

    >>> from usechat.server import ChatApp, Settings, allow_all
    >>> common = CommonOptions(Settings(sdk="7"), None, (), allow_all, "/api/chat", idle_timeout=None, drain=10)
    >>> app = ChatApp(lambda turn: "Hello", settings=common.settings, runs=common.runs, drain=common.drain)
    """

    settings: "Settings"
    runs: "RunStore | None"
    token_rules: "Sequence[TokenRule]"
    authorize: "Authorize"
    path: str
    idle_timeout: float | None
    drain: float


class NoOptions(msgspec.Struct, frozen=True):
    """The options of a kind that has none.

    >>> class GreeterTarget:
    ...     summary = "a greeter at HOST:PORT"
    ...     options = NoOptions
    """


class OptionGroup:
    """The options of one kind, as `usechat serve --help` shows them. Kinds may share an option that reads alike.

    >>> import argparse
    >>> parser = argparse.ArgumentParser()
    >>> group = OptionGroup(parser.add_argument_group("parrot", ""), {})
    >>> group.add_argument("--volume", type=int, metavar="N", help="how often it repeats (default: 1)")
    >>> group.flags
    {'volume': '--volume'}
    """

    PREFIX = "kind_"

    def __init__(self, group: Any, settings_by_flag: dict[str, dict[str, Any]]) -> None:
        self._group = group
        self._settings_by_flag = settings_by_flag
        self.flags: dict[str, str] = {}
        """The options of this kind: the name of each, with underscores, and how it is written."""

    def add_argument(self, flag: str, **settings: Any) -> None:
        """Add an option such as ``--volume``; the arguments are those of ``argparse``, but ``dest`` and ``default``.

        An option that is not given is not passed on, so its default is that of the kind's ``options``.
        """
        name = flag.lstrip("-").replace("-", "_")
        self.flags[name] = flag
        if (
            flag in self._settings_by_flag
        ):  # argparse knows an option once: it is listed with the first kind that has it
            self._share(flag, settings)
        else:
            self._settings_by_flag[flag] = settings
            self._group.add_argument(flag, dest=f"{self.PREFIX}{name}", default=argparse.SUPPRESS, **settings)

    def _share(self, flag: str, settings: dict[str, Any]) -> None:
        first = self._settings_by_flag[flag]
        if {**first, "help": "", "metavar": ""} != {**settings, "help": "", "metavar": ""}:
            raise InvalidSetting(f"{flag} is read in another way by another kind; give it another name")
        explained = "as above" if first["help"] == settings["help"] else settings["help"]
        self._group.description += f"\n{flag}: {explained}"


class Target(Protocol):
    """A kind of target: serves what is behind a file or an address.

    >>> import msgspec
    >>> class ParrotOptions(msgspec.Struct, frozen=True):
    ...     volume: int = 1
    >>> class ParrotTarget:
    ...     summary = "a parrot in a file NAME.parrot"
    ...     options = ParrotOptions
    ...
    ...     def recognises(self, target: str) -> bool:
    ...         return target.endswith(".parrot")
    ...
    ...     def add_options(self, group: OptionGroup) -> None:
    ...         group.add_argument("--volume", type=int, metavar="N", help="how often it repeats (default: 1)")
    ...
    ...     def open(self, target: str, options: ParrotOptions, common: CommonOptions) -> TargetAgent:
    ...         return TargetAgent(lambda turn: turn.text * options.volume)  # import what is heavy here
    >>> kind: Target = ParrotTarget()
    >>> kind.recognises("polly.parrot")
    True
    """

    summary: str
    """What OBJECT is with this kind, for `usechat serve --help`."""
    options: type[Any]
    """The kind's own options: a frozen ``msgspec.Struct`` with a field and a default for each."""

    def recognises(self, target: str) -> bool:
        """Tell whether a target is of this kind without ``--as``, by its text alone, such as ``flow.yaml``."""
        ...

    def add_options(self, group: OptionGroup) -> None:
        """Add the kind's options to the command line."""
        ...

    def open(self, target: str, options: Any, common: CommonOptions) -> TargetAgent | ServedApp:
        """Return the agent or the app of a target; raise a ``UsechatError`` with one sentence if it cannot be served.

        It is called once in each worker, before anything is served.
        """
        ...


class _BrokenTarget:
    """Stands for a kind that cannot be loaded: others are not affected."""

    options = NoOptions

    def __init__(self, name: str, error: Exception) -> None:
        self._text = f"the kind {name} cannot be loaded: {describe(error)}"
        self.summary = f"unknown: {self._text}"
        self._error = error

    def recognises(self, target: str) -> bool:  # noqa: ARG002
        return False

    def add_options(self, group: OptionGroup) -> None:
        pass

    def open(self, target: str, options: Any, common: CommonOptions) -> TargetAgent | ServedApp:  # noqa: ARG002
        raise CannotLoad(self._text) from self._error


@functools.cache
def installed_targets() -> Mapping[str, Target]:
    """Return the kinds of all installed packages, by their names; ours first, which others cannot disturb."""
    entries = sorted(
        entry_points(group="usechat.targets"), key=lambda each: (not each.value.startswith("usechat."), each.name)
    )
    return {each.name: _load_target(each) for each in entries}


def _load_target(entry_point: EntryPoint) -> Target:
    try:
        target: Target = entry_point.load()()
    except Exception as error:  # importing a package of others may raise anything
        return _BrokenTarget(entry_point.name, error)
    return target


# Python objects: `module:name` or `path/to/file.py:name`.


def load_object(target: str) -> Any:
    """Import and return the object that ``target`` names; a dotted name walks through attributes.

    Raises :class:`~usechat.errors.CannotLoad`, whose cause is the exception of the imported code.

    >>> load_object("json:dumps")({"a": 1})
    '{"a": 1}'
    """
    place, _, names = target.rpartition(":")
    if "://" in target:
        raise CannotLoad(f"{target!r} is an address; name its kind with --as {', --as '.join(installed_targets())}")
    if not (is_file(place) or _is_dotted(place)) or not _is_dotted(names):
        hint = f"; if it is an address, write http://{target}" if _ADDRESS.fullmatch(target) else ""
        raise CannotLoad(f"{target!r} names no object; give MODULE:NAME or FILE.py:NAME, such as my_app:agent{hint}")
    instance: Any = _import(place)
    for name in names.split("."):
        if not hasattr(instance, name):
            raise CannotLoad(f"{place} has no {names!r}{_hint(name, instance)}")
        instance = getattr(instance, name)
    return instance


def directory_of(target: str) -> Path:
    """Return the directory of a target's code, as far as its text shows it."""
    place = target.rpartition(":")[0]
    return Path(place).resolve().parent if is_file(place) else Path.cwd()


def _is_dotted(names: str) -> bool:
    return all(name.isidentifier() for name in names.split("."))


def is_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place


def _import(place: str) -> ModuleType:
    directory = str(directory_of(f"{place}:"))
    for path in (str(Path.cwd()), directory):
        if path not in sys.path:
            sys.path.insert(0, path)
    try:
        return _import_file(Path(place)) if is_file(place) else importlib.import_module(place)
    except CannotLoad:
        raise
    except (Exception, SystemExit) as error:  # importing the code of the user may raise anything
        if isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}."):
            raise CannotLoad(f"there is no module {place!r} in {directory} or on the Python path") from error
        raise CannotLoad(f"{place} cannot be imported: {describe(error)}{_remedy(error)}") from error


def _remedy(error: BaseException) -> str:
    """Return how to install a framework that is missing; nothing for any other error."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    for adapter in entry_points(group="usechat.adapters") if name else ():
        # A namespace such as `google` is missing as a whole where none of its packages is installed.
        is_its_own = f"{name}.".startswith(f"{adapter.name}.") or adapter.name.startswith(f"{name}.")
        if adapter.dist is None or not is_its_own:
            continue
        extras = adapter.dist.metadata.get_all("Provides-Extra") or []
        for part in adapter.module.replace("_", "-").split("."):
            if part in extras:
                return f"; run: pip install '{adapter.dist.name}[{part}]'"
    return ""


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise CannotLoad(f"there is no file {path}")
    path, name = path.resolve(), path.stem
    if (path.parent / "__init__.py").is_file():
        return _import_from_package(path)
    if (loaded := sys.modules.get(name)) is not None and loaded.__file__ == str(path):
        return loaded
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or name in sys.modules:
        raise CannotLoad(f"{path.name} cannot be imported under the name {name!r}; rename the file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it is run, as every import does: dataclasses and pickles look there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _import_from_package(path: Path) -> ModuleType:
    """Import a file of a package under its whole name, so that its relative imports work."""
    root = path.parent
    while (root.parent / "__init__.py").is_file():
        root = root.parent
    if str(root.parent) not in sys.path:
        sys.path.insert(0, str(root.parent))
    return importlib.import_module(".".join(path.relative_to(root.parent).with_suffix("").parts))


def describe(error: BaseException) -> str:
    """Describe in one line what the code of the user raised, and where."""
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    if isinstance(error, SyntaxError) or not frames or frames[-1].filename == __file__:
        return text  # a syntax error names its line itself
    return f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def _hint(name: str, owner: Any) -> str:
    close = difflib.get_close_matches(name, [attribute for attribute in dir(owner) if not attribute.startswith("_")], 1)
    return f"; did you mean {close[0]!r}?" if close else ""
