"""The state that the nodes of a flow share, by dotted path."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

from usechat.values import json_value

__all__ = ["SharedState"]


class SharedState:
    """Plain JSON values by path, such as ``review.score``. Every change is told as a ``state:patch`` event."""

    def __init__(self, values: Mapping[str, Any], tell: Callable[[dict[str, Any]], None]) -> None:
        self._values: dict[str, Any] = json_value(values)
        self._tell = tell

    def get(self, path: str = "") -> Any:
        """Return the value at a path, or ``None``; all values for the empty path."""
        value: Any = self._values
        for step in _steps(path):
            if not isinstance(value, dict) or step not in value:
                return None
            value = value[step]
        return value

    def set(self, path: str, value: Any) -> None:
        """Put a value at a path; what is missing on the way becomes an object."""
        value = json_value(value)
        self._put(path, value)
        self._tell({"op": "set", "path": path, "value": value})

    def merge(self, path: str, value: Mapping[str, Any]) -> None:
        """Add the keys of an object to the one at a path."""
        added, found = json_value(value), self.get(path)
        self._put(path, {**(found if isinstance(found, dict) else {}), **added})
        self._tell({"op": "merge", "path": path, "value": added})

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of all values."""
        return copy.deepcopy(self._values)

    def _put(self, path: str, value: Any) -> None:
        *way, last = _steps(path) or [""]
        if not last:
            raise ValueError("a value of the state needs a path")
        owner = self._values
        for step in way:
            below = owner.get(step)
            if not isinstance(below, dict):
                below = owner[step] = {}
            owner = below
        owner[last] = value


def _steps(path: str) -> list[str]:
    return [step for step in path.split(".") if step]
