"""What `usechat serve` can serve: Python objects, and kinds of targets that packages bring.

Packages that bring a kind import from :mod:`usechat.targets`, the public name of what they need of this module.
"""

import argparse
import difflib
import functools
import importlib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

import msgspec

from usechat.errors import CannotLoad, CannotServe, InvalidSetting

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from usechat.runs.store import RunStore
    from usechat.server.auth.bearer import TokenRule
    from usechat.server.requests import Authorize
    from usechat.server.settings import Settings
    from usechat.server.site import Site

__all__ = [
    "CommonOptions",
    "HasPageFiles",
    "NoOptions",
    "OptionGroup",
    "ServedAnswer",
    "ServedApp",
    "Target",
    "describe",
    "directory_of",
    "installed_targets",
    "is_asgi_app",
    "kind_of",
    "load_object",
]

_ADDRESS: Final = re.compile(r"[\w.-]+:\d+(/.*)?|(localhost|[\w-]+\.[\w.-]+)/.*(?<!\.py)")
"""An address without its scheme, such as ``localhost:8000/api/chat``."""


class ServedAnswer(NamedTuple):
    """What answers the chats of a target; a :class:`~usechat.server.ChatApp` is made around it.

    ``also`` are paths that answer besides the usual one. ``page_files`` are texts, by path, that the page can
    link to, and ``site`` is a site that was built from them.

    >>> served = ServedAnswer(lambda turn: "Hello", also=("/greeter/stream",))
    >>> served.also
    ('/greeter/stream',)
    """

    answer: Any
    also: tuple[str, ...] = ()
    page_files: Mapping[str, str] | None = None
    site: "Site | None" = None


@runtime_checkable
class HasPageFiles(Protocol):
    """A Python object that brings texts, by path, which the page can link to, and the site that shows them."""

    @property
    def page_files(self) -> Mapping[str, str]:
        """The texts."""
        ...

    @property
    def site(self) -> "Site | None":
        """The site, if it was built."""
        ...


class ServedApp(NamedTuple):
    """An app with routes of its own, for a kind that a ``ChatApp`` does not fit.

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

    def __init__(self, group: Any, taken: dict[str, dict[str, Any]]) -> None:
        self._group = group
        self._taken = taken
        self.flags: dict[str, str] = {}
        """The options of this kind: the name of each, with underscores, and how it is written."""

    def add_argument(self, flag: str, **settings: Any) -> None:
        """Add an option such as ``--volume``; the arguments are those of ``argparse``, but ``dest`` and ``default``.

        An option that is not given is not passed on, so its default is that of the kind's ``options``.
        """
        name = flag.lstrip("-").replace("-", "_")
        self.flags[name] = flag
        if flag in self._taken:  # argparse knows an option once: it is listed with the first kind that has it
            self._share(flag, settings)
        else:
            self._taken[flag] = settings
            self._group.add_argument(flag, dest=f"{self.PREFIX}{name}", default=argparse.SUPPRESS, **settings)

    def _share(self, flag: str, settings: dict[str, Any]) -> None:
        first = self._taken[flag]
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
    ...     def open(self, target: str, options: ParrotOptions, common: CommonOptions) -> ServedAnswer:
    ...         return ServedAnswer(lambda turn: turn.text * options.volume)  # import what is heavy here
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

    def open(self, target: str, options: Any, common: CommonOptions) -> ServedAnswer | ServedApp:
        """Return what answers for a target; raise a ``UsechatError`` with one sentence if that cannot be.

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

    def open(self, target: str, options: Any, common: CommonOptions) -> ServedAnswer | ServedApp:  # noqa: ARG002
        raise CannotLoad(self._text) from self._error


@functools.cache
def installed_targets() -> Mapping[str, Target]:
    """Return the kinds of all installed packages, by their names; ours first, which others cannot disturb."""
    found = sorted(
        entry_points(group="usechat.targets"), key=lambda each: (not each.value.startswith("usechat."), each.name)
    )
    return {each.name: _load_target(each) for each in found}


def _load_target(found: EntryPoint) -> Target:
    try:
        target: Target = found.load()()
    except Exception as error:  # whatever a package of others does when it is imported
        return _BrokenTarget(found.name, error)
    return target


def kind_of(target: str) -> str | None:
    """Return the kind that recognises a target by its text; ``None`` if it names a Python object."""
    kinds = [name for name, kind in installed_targets().items() if kind.recognises(target)]
    if len(kinds) > 1:
        raise CannotServe(f"{target} may be one of {', '.join(kinds)}; choose one with --as")
    return kinds[0] if kinds else None


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
    if not (_is_file(place) or _is_dotted(place)) or not _is_dotted(names):
        hint = f"; if it is an address, write http://{target}" if _ADDRESS.fullmatch(target) else ""
        raise CannotLoad(f"{target!r} names no object; give MODULE:NAME or FILE.py:NAME, such as my_app:agent{hint}")
    found: Any = _import(place)
    for name in names.split("."):
        if not hasattr(found, name):
            raise CannotLoad(f"{place} has no {names!r}{_hint(name, found)}")
        found = getattr(found, name)
    return found


def is_asgi_app(found: Any) -> bool:
    """Tell whether this is an ASGI app: it is called with scope, receive and send."""
    return not inspect.isclass(found) and callable(found) and _accepts(found, 3) and not _accepts(found, 1)


def directory_of(target: str) -> Path:
    """Return the directory of a target's code, as far as its text shows it."""
    place = target.rpartition(":")[0]
    return Path(place).resolve().parent if _is_file(place) else Path.cwd()


def _is_dotted(names: str) -> bool:
    return all(name.isidentifier() for name in names.split("."))


def _is_file(place: str) -> bool:
    return place.endswith(".py") or os.sep in place


def _import(place: str) -> ModuleType:
    directory = str(directory_of(f"{place}:"))
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return _import_file(Path(place)) if _is_file(place) else importlib.import_module(place)
    except CannotLoad:
        raise
    except (Exception, SystemExit) as error:  # whatever the code of the user does when it is imported
        if isinstance(error, ModuleNotFoundError) and f"{place}.".startswith(f"{error.name}."):
            raise CannotLoad(f"there is no module {place!r} in {directory} or on the Python path") from error
        raise CannotLoad(f"{place} cannot be imported: {describe(error)}") from error


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise CannotLoad(f"there is no file {path}")
    path, name = path.resolve(), path.stem
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


def describe(error: BaseException) -> str:
    """Describe in one line what the code of the user raised, and where."""
    said = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    if isinstance(error, SyntaxError) or not frames or frames[-1].filename == __file__:
        return said  # a syntax error names its line itself
    return f"{said} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


def _hint(name: str, found: Any) -> str:
    close = difflib.get_close_matches(name, [known for known in dir(found) if not known.startswith("_")], 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _accepts(function: Any, count: int) -> bool:
    """Tell whether a function can be called with so many positional arguments and nothing else."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return count == 1
    return True
