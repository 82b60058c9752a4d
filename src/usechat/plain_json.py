"""A copy of a value that was received, so that nobody's later change reaches it."""

import math
from typing import Any

from usechat.values import json_value

__all__ = ["plain_json"]


def plain_json(value: Any) -> Any:
    """Return a copy in plain JSON values: JSON as it is, anything else converted as when it is sent.

    ``json_value`` alone would not do: it renames keys that old clients refuse, and these came through.
    """
    try:
        return _copy(value)
    except (TypeError, RecursionError):
        return json_value(value)


def _copy(value: Any) -> Any:
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return value
    if kind is dict and all(type(key) is str for key in value):
        return {key: _copy(item) for key, item in value.items()}
    if kind is list:
        return [_copy(item) for item in value]
    if kind is float and math.isfinite(value):
        return value
    raise TypeError(f"{kind.__name__} is not plain JSON")
