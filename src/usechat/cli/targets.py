"""What `usechat serve` can serve besides Python objects: flow files, and other systems at their addresses."""

import difflib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from usechat.errors import CannotLoad
from usechat.sources import ChatTransport, Source

__all__ = [
    "KINDS",
    "Opened",
    "app_maker",
    "directory_of",
    "is_asgi_app",
    "kind_of",
    "load_object",
    "open_target",
    "require_answer",
]


KINDS: Final = {
    "agent-ops": "usechat.agent_ops.target",
    "genkit": "usechat.genkit.target",
    "open-harness": "usechat.open_harness.target",
}
"""The names that ``--as`` takes, and the module of each.

Its ``open_target`` takes the text of the target; a module whose routes are its own has ``make_app`` instead, which
takes the whole plan and returns what is served.
"""


class Opened(NamedTuple):
    """What answers, and the paths besides the usual one at which it is asked as well."""

    answer: Any
    also: tuple[str, ...] = ()


def kind_of(target: str) -> str | None:
    """Return the kind of a target that shows it by itself: a flow file."""
    return "open-harness" if target.endswith((".yaml", ".yml")) else None


def app_maker(kind: str) -> Callable[[Any], Any] | None:
    """Return the function that makes the app of a kind with routes of its own."""
    return getattr(import_module(KINDS[kind]), "make_app", None)


def open_target(kind: str, target: str) -> Opened:
    """Return what answers for a target; a UsechatError says what is wrong with it."""
    opened: Opened = import_module(KINDS[kind]).open_target(target)
    return opened


# -- Finding the object that `usechat serve` is asked to serve: `module:name` or `path/to/file.py:name`.


def load_object(target: str) -> Any:
    """Import and return the object that ``target`` names. A dotted name walks through attributes."""
    place, _, names = target.rpartition(":")
    if "://" in target:
        raise CannotLoad(f"{target!r} is an address; say what is there with --as {', --as '.join(KINDS)}")
    if not (_is_file(place) or _is_dotted(place)) or not _is_dotted(names):
        raise CannotLoad(f"{target!r} names no object; give MODULE:NAME or FILE.py:NAME, such as my_app:agent")
    found: Any = _import(place)
    for name in names.split("."):
        if not hasattr(found, name):
            raise CannotLoad(f"{place} has no {names!r}{_hint(name, found)}")
        found = getattr(found, name)
    return found


def is_asgi_app(found: Any) -> bool:
    """Tell whether this is an ASGI app: it is called with scope, receive and send."""
    return not inspect.isclass(found) and callable(found) and _accepts(found, 3) and not _accepts(found, 1)


def require_answer(found: Any, target: str) -> None:
    """Raise unless the object can answer a chat."""
    if inspect.isclass(found):
        raise CannotLoad(f"{target} is a class; make an object of it and name that")
    if isinstance(found, Source | ChatTransport):
        return
    if inspect.isgenerator(found) or inspect.isasyncgen(found) or inspect.iscoroutine(found):
        raise CannotLoad(f"{target} is the result of a call; name the function itself")
    if not callable(found):
        raise CannotLoad(
            f"{target} cannot answer a chat, being of type {type(found).__name__};"
            " name a function, an async generator function, a ChatTransport or an ASGI app"
        )
    if not _accepts(found, 1):
        raise CannotLoad(f"{target} must take one argument, the turn that it answers")


def directory_of(target: str) -> Path:
    """Return the directory in which the code of a target lives, as far as its text tells."""
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
        raise CannotLoad(f"{place} cannot be imported: {_describe(error)}") from error


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


def _describe(error: BaseException) -> str:
    """Say in one line what an imported file did, and where."""
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
