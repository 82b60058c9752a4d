"""JSON as JavaScript reads and writes it.

:func:`json_value` turns any Python value into plain JSON values and never fails:

| Python value | becomes |
|---|---|
| ``None bool int str`` | itself |
| ``float`` | itself; ``1.0`` becomes ``1``, ``-0.0`` becomes ``0``, NaN and the infinities ``None`` (as ``JSON.stringify``) |
| mappings | objects; keys that are no strings become the text of their JSON value |
| lists, tuples, sets, other iterables of the ``collections.abc`` kinds | arrays |
| dataclasses, msgspec Structs, pydantic models | objects (pydantic through ``model_dump(mode="json", by_alias=True)``) |
| ``Enum`` | its value |
| ``datetime date time timedelta`` | ISO 8601 text |
| ``UUID``, ``Decimal``, paths | their text (a Decimal keeps all its digits) |
| ``bytes`` and the like | base64 text |
| numpy arrays and scalars (anything with ``tolist``) | what ``tolist()`` gives |
| anything else | ``str(value)`` |
| anything below 100 levels of nesting, or within itself | the text ``[nested too deeply]`` |
| the key ``__proto__``, and ``constructor`` over null or over an object with ``prototype`` | the key with ``_`` appended: every AI SDK client refuses the original |
"""

import base64
import dataclasses
import datetime
import decimal
import enum
import json
import math
import pathlib
import re
import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final, Literal, NoReturn

import msgspec

from usechat.errors import InvalidJSON

__all__ = ["MAXIMUM_DEPTH", "json_object", "json_text", "json_value", "parse_json"]

MAXIMUM_DEPTH: Final = 100
"""Deeper values are cut: a page cannot show them, and a value that contains itself has no end."""

TOO_DEEP: Final = "[nested too deeply]"

_LARGEST_EXACT: Final = 2.0**53
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SUSPECT_KEY: Final = re.compile(r"__proto__|constructor|\\u")


def json_value(value: object) -> Any:
    """Return ``value`` as plain JSON values, converted as the module's table says."""
    return _convert(value, 0)


def json_object(value: object) -> dict[str, Any]:
    """Return ``value`` as a JSON object; what is no object is put under the key ``value``."""
    converted = json_value(value)
    return converted if isinstance(converted, dict) else {"value": converted}


def json_text(value: Any) -> str:
    """Write plain JSON values as ``JSON.stringify`` does: no spaces, its numbers, lone surrogates escaped."""
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


def parse_json(text: str) -> Any:
    """Parse ``text`` as an AI SDK client does: JSON alone, no ``NaN``, no keys that reach for a prototype."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_integer)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidJSON(f"not JSON: {reason}") from None
    if _SUSPECT_KEY.search(text) and _reaches_for_prototype(value):
        raise InvalidJSON("the keys __proto__ and constructor.prototype are forbidden")
    return value


def _convert(value: object, depth: int) -> Any:
    convert = _CONVERTERS.get(type(value))
    if convert is None:
        convert = _find_converter(value)
    return convert(value, depth)


def _find_converter(value: object) -> "Callable[[Any, int], Any]":
    for kinds, convert in _CONVERTERS_BY_KIND:
        if isinstance(value, kinds):
            return convert
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _from_dataclass
    if not isinstance(value, type):
        for method, convert in _CONVERTERS_BY_METHOD:
            if callable(getattr(value, method, None)):
                return convert
    return _from_anything


def _same(value: Any, _depth: int) -> Any:
    return value


def _from_float(value: float, _depth: int) -> int | float | None:
    if not math.isfinite(value):
        return None
    value = float(value)
    return int(value) if value.is_integer() and abs(value) < _LARGEST_EXACT else value


def _from_mapping(value: Mapping[Any, Any], depth: int) -> Any:
    if depth >= MAXIMUM_DEPTH:
        return TOO_DEEP
    result = {}
    for key, item in value.items():
        text = key if type(key) is str else _key_text(key)
        converted = _convert(item, depth + 1)
        if text == "__proto__" or (text == "constructor" and _is_prototype_bait(converted)):
            text += "_"
        result[text] = converted
    return result


def _from_sequence(value: Sequence[Any] | Set[Any], depth: int) -> Any:
    if depth >= MAXIMUM_DEPTH:
        return TOO_DEEP
    return [_convert(item, depth + 1) for item in value]


def _from_dataclass(value: Any, depth: int) -> Any:
    return _from_mapping({field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}, depth)


def _from_struct(value: msgspec.Struct, depth: int) -> Any:
    fields = type(value).__struct_encode_fields__, type(value).__struct_fields__
    return _from_mapping({name: getattr(value, attribute, None) for name, attribute in zip(*fields, strict=True)}, depth)


def _from_pydantic(value: Any, depth: int) -> Any:
    try:
        return _convert(value.model_dump(mode="json", by_alias=True), depth)
    except Exception:  # user code: a serializer of the model's own may raise anything
        return _from_anything(value, depth)


def _from_array(value: Any, depth: int) -> Any:
    try:
        return _convert(value.tolist(), depth)
    except Exception:  # user code behind a method that merely has this name
        return _from_anything(value, depth)


def _from_anything(value: object, _depth: int) -> str:
    try:
        return str(value)
    except Exception:  # user code
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
    # ECMAScript Number::toString: the shortest digits that round-trip (as repr gives), plain up to 1e21 and down to 1e-6.
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


def _is_prototype_bait(value: Any) -> bool:
    return value is None or (isinstance(value, dict) and "prototype" in value)


def _reaches_for_prototype(value: Any) -> bool:
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            if "__proto__" in node or ("constructor" in node and _is_prototype_bait(node["constructor"])):
                return True
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    return False


_CONVERTERS: Final[dict[type, Callable[[Any, int], Any]]] = {
    str: _same,
    int: _same,
    bool: _same,
    type(None): _same,
    float: _from_float,
    dict: _from_mapping,
    list: _from_sequence,
    tuple: _from_sequence,
}


def _through_msgspec(value: Any, _depth: int) -> Any:
    return msgspec.to_builtins(value)


def _from_enum(value: enum.Enum, depth: int) -> Any:
    return _convert(value.value, depth)


def _from_bytes(value: bytes | bytearray | memoryview, _depth: int) -> str:
    return base64.b64encode(value).decode()


_CONVERTERS_BY_KIND: Final[tuple[tuple[Any, Callable[[Any, int], Any]], ...]] = (
    (enum.Enum, _from_enum),
    (str, lambda value, _depth: str.__str__(value)),
    (int, lambda value, _depth: int(value)),
    (float, _from_float),
    ((datetime.date, datetime.time, datetime.timedelta, uuid.UUID, decimal.Decimal), _through_msgspec),
    ((bytes, bytearray, memoryview), _from_bytes),
    (pathlib.PurePath, _from_anything),
    (Mapping, _from_mapping),
    ((Sequence, Set), _from_sequence),
    (msgspec.Struct, _from_struct),
)

_CONVERTERS_BY_METHOD: Final[tuple[tuple[Literal["model_dump", "tolist"], Callable[[Any, int], Any]], ...]] = (
    ("model_dump", _from_pydantic),
    ("tolist", _from_array),
)
