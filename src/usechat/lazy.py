"""Names of a package that are imported on use: one ``__getattr__`` (PEP 562) for every package that has some."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package; ``homes`` has the module of each name that is imported on use.

    >>> load = lazy_names("usechat", {"new_id": "usechat.ids"})
    >>> load("new_id").__module__
    'usechat.ids'
    >>> load("nothing")
    Traceback (most recent call last):
    AttributeError: module 'usechat' has no attribute 'nothing'
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name]), name)

    return load
