"""The events of frameworks as JSON, and back: objects keep the names of their classes and fields."""

import base64
import dataclasses
from collections.abc import Mapping
from datetime import date
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel

Json = Any
_TYPE: Final = "$type"
_BYTES: Final = "$bytes"
_TIMES: Final = frozenset({"created_at", "timestamp", "duration", "time_to_first_token"})
"""Fields that are different in each recording and that no adapter reads."""


def encoded(value: Any) -> Json:
    """Return an event as JSON: objects with the name of their class, so that they become objects again."""
    match value:
        case None | bool() | int() | float():
            return value
        case Enum():
            return encoded(value.value)
        case str():
            return str(value)
        case bytes():
            return {_BYTES: base64.b64encode(value).decode()}
        case date():
            return value.isoformat()
        case Mapping():
            return {str(key): encoded(each) for key, each in value.items() if _is_plain(each)}
        case list() | tuple():
            return [encoded(each) for each in value]
        case BaseException():
            return {_TYPE: type(value).__name__}
        case set() | frozenset():
            return sorted(encoded(each) for each in value)
    fields = value.__dict__ if not dataclasses.is_dataclass(value) else _fields(value)
    values = {name: encoded(each) for name, each in fields.items() if _is_kept(name, each)}
    return {_TYPE: type(value).__name__, **values}


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}


def _is_kept(name: str, value: Any) -> bool:
    return value is not None and not name.startswith("_") and name not in _TIMES and _is_plain(value)


def _is_plain(value: Any) -> bool:
    """Tell whether this is data: agents, tracers and functions that events carry along are not recorded."""
    plain = (str, int, float, bool, bytes, date, Enum, Mapping, list, tuple, set, frozenset, BaseModel, type(None))
    return isinstance(value, (*plain, Exception)) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


class Recorded:
    """An object of a recording; what was not recorded is ``None``."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self.__dict__.update(fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return None


def decoded(value: Json) -> Any:
    """Return what :func:`encoded` made into JSON."""
    if isinstance(value, list):
        return [decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    if _BYTES in value:
        return base64.b64decode(value[_BYTES])
    fields = {name: decoded(each) for name, each in value.items() if name != _TYPE}
    return type(value[_TYPE], (Recorded,), {})(fields) if _TYPE in value else fields
