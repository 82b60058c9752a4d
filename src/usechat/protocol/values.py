"""JSON as JavaScript reads and writes it.

:func:`json_value` turns any Python value into plain JSON values and never fails:

| Python value | becomes |
|---|---|
| ``None``, ``bool``, ``str`` | itself |
| ``int`` | itself, with all digits; ``null`` beyond ±1.8e308, which JavaScript reads as infinity |
| ``float`` | itself, as JavaScript writes it: ``1.0`` as ``1``, ``1e-07`` as ``1e-7``; NaN and infinity: ``null`` |
| mappings | an object; a key that is not a string becomes the text of its JSON value |
| lists, tuples, sets, and every ``Sequence``, ``Set`` or ``ValuesView`` | an array, in iteration order |
| dataclasses, msgspec Structs | an object |
| pydantic models | the result of ``model_dump(mode="json", by_alias=True)`` |
| ``Enum`` | its value |
| ``datetime``, ``date``, ``time``, ``timedelta`` | ISO 8601 text |
| ``UUID``, ``Decimal``, ``UserString``, paths | its text; a ``Decimal`` keeps all digits |
| ``bytes``, ``bytearray``, ``memoryview`` | base64 text |
| numpy arrays and scalars, and every object with ``tolist`` | the result of ``tolist()`` |
| any other object, or one whose conversion raises | its type name, as ``[Client]``: its text may contain secrets |
| a value nested more than 100 levels deep, or inside itself | the text ``[nested too deeply]`` |
| a lone surrogate (half of an emoji) | its escape sequence, as ``JSON.stringify`` writes it |
| the key ``__proto__``, which AI SDK clients reject | ``__proto___`` |
| the key ``constructor`` with ``null`` or an object with ``prototype``, which they also reject | ``constructor_`` |
"""

import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Set, ValuesView
from typing import Any, Final, Literal, NoReturn, TypeAlias

import msgspec

from usechat.errors import InvalidJSON

__all__ = [
    "MAXIMUM_DEPTH",
    "READABLE_DEPTH",
    "encodable",
    "has_finite_numbers",
    "has_more_values",
    "is_deeper",
    "is_ordinary",
    "json_kind",
    "json_object",
    "json_text",
    "json_value",
    "parse_json",
    "plain_json",
    "read_json",
]


MAXIMUM_DEPTH: Final = 100
"""Deeper values are cut when they are written: a page cannot show them."""

READABLE_DEPTH: Final = 128
"""Deeper JSON is refused when it is read. A written value fits, also within a chunk or a message."""

TOO_DEEP: Final = "[nested too deeply]"

_LARGEST: Final = int(sys.float_info.max)
_LARGEST_EXACT: Final = 2.0**53
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_Within: TypeAlias = tuple[int, ...]
"""The ids of the values that contain the one being converted, from the outermost on."""


def json_value(value: object) -> Any:
    """Return ``value`` as plain JSON values, converted as the module's table says.

    >>> json_value({"at": {1, 2}, "ratio": float("inf")})
    {'at': [1, 2], 'ratio': None}
    """
    try:
        return _convert(value, ())
    except RecursionError:  # the caller itself is deep in the stack
        return TOO_DEEP


def json_object(value: object) -> dict[str, Any]:
    """Return ``value`` as a JSON object; what is no object is put under the key ``value``."""
    converted = json_value(value)
    return converted if isinstance(converted, dict) else {"value": converted}


def json_text(value: Any) -> str:
    """Write plain JSON values as ``JSON.stringify`` does: no spaces, its numbers, lone surrogates escaped.

    >>> json_text({"ratio": 1.0, "tags": ["a"]})
    '{"ratio":1,"tags":["a"]}'
    """
    if isinstance(value, str):
        return _string_text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number_text(value)
    if isinstance(value, dict):
        return "{" + ",".join([f"{_string_text(key)}:{json_text(item)}" for key, item in value.items()]) + "}"
    return "[" + ",".join([json_text(item) for item in value]) + "]"


def encodable(value: Any) -> Any:
    """Return plain JSON values in which each lone surrogate (half of an emoji), which no encoder takes, is replaced.

    >>> encodable({"half": "\\ud83d", "whole": "\\ud83d\\ude00"}) == {"half": "\\ufffd", "whole": "\\U0001f600"}
    True
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # halves that meet become one
        return value
    if isinstance(value, list):
        return [encodable(each) for each in value]
    return {key: encodable(each) for key, each in value.items()} if isinstance(value, dict) else value


def json_kind(value: Any) -> str:
    """Name the kind of a JSON value for an error text: ``an object``, ``null``."""
    if value is None:
        return "null"
    for kind, name in ((bool, "a boolean"), (str, "a string"), ((int, float), "a number"), (Mapping, "an object")):
        if isinstance(value, kind):
            return name
    return "an array" if isinstance(value, list) else f"a Python {type(value).__name__}"


def read_json(text: str) -> Any:
    """Read JSON and nothing else, or raise ``ValueError``; ``RecursionError`` if it is too deep for Python.

    >>> read_json('{"a": [1, 2]}')
    {'a': [1, 2]}
    """
    return json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_integer)


def parse_json(text: str) -> Any:
    """Parse ``text`` as an AI SDK client does: JSON alone, no ``NaN``, no keys that reach for a prototype."""
    try:
        value = read_json(text)
    except RecursionError:
        raise InvalidJSON("not JSON: nested too deeply") from None
    except ValueError as error:
        raise InvalidJSON(f"not JSON: {error}") from None
    if not is_ordinary(text):
        if is_deeper(value, READABLE_DEPTH):
            raise InvalidJSON(f"nested too deeply: more than {READABLE_DEPTH} levels")
        if _reaches_for_prototype(value):
            raise InvalidJSON("the keys __proto__ and constructor.prototype are forbidden")
    return value


def is_ordinary(text: str) -> bool:
    """Tell whether JSON text is surely not deep and surely free of keys that reach for a prototype, escaped or not."""
    if len(text) > 2 * READABLE_DEPTH and text.count("{") + text.count("[") > READABLE_DEPTH:
        return False
    return "__proto__" not in text and "constructor" not in text and "\\u00" not in text


def has_more_values(data: bytes, limit: int) -> bool:
    """Tell whether JSON holds more than ``limit`` values, without reading it: reading many takes seconds.

    A comma or an opening bracket outside of strings counts as one value; that is never too few.
    """
    if _value_marks(data) < limit:
        return False  # even if all of them were outside of strings
    plain = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > 4 * (limit + 1):  # a string is a value or a key
        return True
    return sum(map(_value_marks, plain.split(b'"')[::2])) >= limit


def _value_marks(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def is_deeper(value: Any, levels: int) -> bool:
    """Tell whether objects and arrays are nested in more than ``levels`` levels."""
    level = [value]
    for _ in range(levels + 1):
        level = [node for node in level if isinstance(node, (dict, list))]
        if not level:
            return False
        level = [item for node in level for item in (node.values() if isinstance(node, dict) else node)]
    return True


def has_finite_numbers(value: Any) -> bool:
    """Tell whether no number is NaN or too large for JavaScript; ``1e999`` is JSON, but no reader gets its number back.

    >>> has_finite_numbers({"a": [1.5]}), has_finite_numbers({"a": [1e999]})
    (True, False)
    """
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, (int, float)) and not -_LARGEST <= node <= _LARGEST:  # NaN is never within
            return False
    return True


def _convert(value: object, within: _Within) -> Any:
    convert = _CONVERTERS.get(type(value))
    if convert is not None:
        return convert(value, within)
    try:
        return _find_converter(value)(value, within)
    except Exception:  # user code: properties, iterators and serializers may raise anything
        return _from_anything(value, within)


def _find_converter(value: object) -> "_Converter":
    for kinds, convert in _CONVERTERS_BY_KIND:
        if isinstance(value, kinds):
            return convert
    if isinstance(value, type):
        return _from_anything
    if dataclasses.is_dataclass(value):
        return _from_dataclass
    for method, convert in _CONVERTERS_BY_METHOD:
        if callable(getattr(type(value), method, None)):  # asked of the type: a proxy or mock has every attribute
            return convert
    return _from_anything


def _same(value: Any, _within: _Within) -> Any:
    return value


def _from_integer(value: int, _within: _Within) -> int | None:
    return int.__int__(value) if -_LARGEST <= value <= _LARGEST else None


def _from_float(value: float, _within: _Within) -> int | float | None:
    value = float.__float__(value)
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < _LARGEST_EXACT else value


def _from_items(owner: object, items: Iterable[tuple[Any, Any]], within: _Within) -> Any:
    if len(within) >= MAXIMUM_DEPTH or id(owner) in within:
        return TOO_DEEP
    inside = (*within, id(owner))
    result = {}
    for key, item in list(items):
        text = key if type(key) is str else _key_text(key)
        converted = _convert(item, inside)
        if text == "__proto__" or (text == "constructor" and (converted is None or _has_prototype(converted))):
            text += "_"
        result[text] = converted
    return result


def _from_mapping(value: Mapping[Any, Any], within: _Within) -> Any:
    return _from_items(value, value.items(), within)


def _from_sequence(value: Sequence[Any] | Set[Any] | ValuesView[Any], within: _Within) -> Any:
    if len(within) >= MAXIMUM_DEPTH or id(value) in within:
        return TOO_DEEP
    inside = (*within, id(value))
    return [_convert(item, inside) for item in value]


def _from_dataclass(value: Any, within: _Within) -> Any:
    fields = dataclasses.fields(value)
    return _from_items(value, [(field.name, getattr(value, field.name, None)) for field in fields], within)


def _from_struct(value: msgspec.Struct, within: _Within) -> Any:
    config = value.__struct_config__
    items: list[tuple[str, Any]] = [] if config.tag_field is None else [(config.tag_field, config.tag)]
    for name, attribute in zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True):
        item = getattr(value, attribute, msgspec.UNSET)
        if item is not msgspec.UNSET:
            items.append((name, item))
    return _from_items(value, items, within)


def _from_pydantic(value: Any, within: _Within) -> Any:
    return _convert(value.model_dump(mode="json", by_alias=True), within)


def _from_array(value: Any, within: _Within) -> Any:
    return _convert(value.tolist(), within)


def _from_text(value: object, _within: _Within) -> str:
    return str.__str__(str(value))


def _from_anything(value: object, _within: _Within) -> str:
    return f"[{type(value).__name__}]"


def _key_text(key: object) -> str:
    converted = json_value(key)
    return str(converted) if isinstance(converted, str) else json_text(converted)


def _string_text(text: str) -> str:
    try:
        return msgspec.json.encode(text).decode()
    except UnicodeEncodeError:
        # Half an emoji, cut by an upstream: JSON.stringify escapes it (well-formed JSON.stringify, ES2019).
        return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(text, ensure_ascii=False))


def _number_text(value: float) -> str:
    if not math.isfinite(value):
        return "null"
    # ECMAScript Number::toString: the shortest digits that round-trip, as repr gives; plain up to 1e21, down to 1e-6.
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = repr(abs(value)).partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + ("" if fraction == "0" else fraction)).lstrip("0") or "0"
    if digits == "0":
        return "0"
    point = _point_position(whole, fraction, int(exponent or "0"))
    digits = digits.rstrip("0")
    if 0 < point <= 21:
        return sign + (digits.ljust(point, "0") if len(digits) <= point else f"{digits[:point]}.{digits[point:]}")
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction_text = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction_text}e{point - 1:+d}"


def _point_position(whole: str, fraction: str, exponent: int) -> int:
    """Return where the decimal point stands, counted from the first digit that is not zero."""
    if whole != "0":
        return len(whole) + exponent
    return exponent - (len(fraction) - len(fraction.lstrip("0")))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value; write null")


def _parse_integer(text: str) -> int | float:
    # Python refuses to read integers of thousands of digits; JavaScript reads them as a (rounded) number.
    return int(text) if len(text) < 400 else float(text)


def _has_prototype(value: Any) -> bool:
    return isinstance(value, dict) and "prototype" in value


def _reaches_for_prototype(value: Any) -> bool:
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            # A null constructor too is fatal to 5.0.0 and 6.0.0, so it is never written; newer releases read it.
            if "__proto__" in node or _has_prototype(node.get("constructor")):
                return True
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return False


def _from_date(value: datetime.date | datetime.time, _within: _Within) -> str:
    text = value.isoformat()
    return text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text


def _from_timedelta(value: datetime.timedelta, _within: _Within) -> Any:
    # msgspec writes ISO 8601 durations, though not of subclasses.
    return msgspec.to_builtins(datetime.timedelta(value.days, value.seconds, value.microseconds))


def _from_enum(value: enum.Enum, within: _Within) -> Any:
    return _convert(value.value, within)


def _from_bytes(value: bytes | bytearray | memoryview, _within: _Within) -> str:
    return base64.b64encode(bytes(value)).decode()


_Converter: TypeAlias = Callable[[Any, _Within], Any]

_CONVERTERS: Final[dict[type, _Converter]] = {
    str: _same,
    int: _from_integer,
    bool: _same,
    type(None): _same,
    float: _from_float,
    dict: _from_mapping,
    list: _from_sequence,
    tuple: _from_sequence,
}

_CONVERTERS_BY_KIND: Final[tuple[tuple[Any, _Converter], ...]] = (
    (enum.Enum, _from_enum),
    (str, lambda value, _within: str.__str__(value)),
    (int, _from_integer),
    (float, _from_float),
    ((datetime.date, datetime.time), _from_date),
    (datetime.timedelta, _from_timedelta),
    ((uuid.UUID, decimal.Decimal, collections.UserString, pathlib.PurePath), _from_text),
    ((bytes, bytearray, memoryview), _from_bytes),
    (Mapping, _from_mapping),
    ((Sequence, Set, ValuesView), _from_sequence),
    (msgspec.Struct, _from_struct),
)

_CONVERTERS_BY_METHOD: Final[tuple[tuple[Literal["model_dump", "tolist"], _Converter], ...]] = (
    ("model_dump", _from_pydantic),
    ("tolist", _from_array),
)


# Copies of values that were received, so that later changes to them have no effect here


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
