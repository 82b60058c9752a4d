"""What `usechat serve` can serve besides Python objects: flow files, and other systems at their addresses."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

__all__ = ["KINDS", "Opened", "app_maker", "kind_of", "open_target"]

KINDS: Final = {
    "agent-ops": "usechat.agent_ops.serving",
    "genkit": "usechat.genkit.serving",
    "open-harness": "usechat.open_harness.serving",
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
