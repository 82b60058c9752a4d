"""JSONata: the language of bindings and conditions."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from usechat.errors import ExpressionFailed, MissingDependency
from usechat.open_harness.flow.definition import Condition, Place
from usechat.protocol.values import json_text, json_value

__all__ = [
    "Scope",
    "binding_problems",
    "check_expression",
    "condition_problems",
    "evaluate",
    "holds",
    "resolve",
    "resolve_text",
]


_TIMEOUT_MS: Final = 2000
_DEEPEST: Final = 100
"""How deep an expression may nest. A level takes four Python frames, so this stays below the recursion limit."""

_KEPT_EXPRESSIONS: Final = 1024


class Scope:
    """What expressions can see: plain JSON values by name, and variables, which are written with a ``$``."""

    def __init__(self, values: Mapping[str, Any], variables: Mapping[str, Any] | None = None) -> None:
        self.values = dict(values)
        self.variables: Mapping[str, Any] = variables or {}


def check_expression(text: str) -> str | None:
    """Return what is wrong with an expression, or ``None``."""
    try:
        _compile(text)
    except ExpressionFailed as error:
        return str(error)
    return None


def evaluate(text: str, scope: Scope) -> Any:
    """Return the value of an expression as plain JSON values; what does not exist is ``None``."""
    compiled = _compile(text)
    try:
        # The clock of the bounds starts when they are set.
        compiled.environment.set_runtime_bounds(_TIMEOUT_MS, _DEEPEST)
        # Bindings are always given: without them the library would write into the compiled expression.
        return json_value(compiled.evaluate(scope.values, scope.variables))
    except Exception as error:
        raise ExpressionFailed(f"the expression {text!r} failed: {error}") from error


@lru_cache(maxsize=_KEPT_EXPRESSIONS)
def _compile(text: str) -> Any:
    try:
        from jsonata import Jsonata  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        raise MissingDependency("jsonata-python", "open-harness") from None
    try:
        return Jsonata(text)
    except Exception as error:
        raise ExpressionFailed(f"the expression {text!r} is not JSONata: {error}") from error


# Bindings: ``{{ expression }}`` within the strings of a node's input

_KEPT_TEMPLATES: Final = 1024


class _Segment(NamedTuple):
    text: str
    is_expression: bool


def resolve(value: Any, scope: Scope, place: Place = ()) -> Any:
    """Return the value with every binding in it replaced.

    A text that is a binding and nothing else becomes the value with its type; in any other text the value is written:
    nothing for what does not exist, JSON for objects and arrays. An ExpressionFailed names the place.
    """
    if isinstance(value, str):
        try:
            return resolve_text(value, scope)
        except ExpressionFailed as error:
            raise ExpressionFailed(f"{'.'.join(map(str, place))}: {error}") from error
    if isinstance(value, Mapping):
        return {key: resolve(item, scope, (*place, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [resolve(item, scope, (*place, index)) for index, item in enumerate(value)]
    return value


def resolve_text(text: str, scope: Scope) -> Any:
    """Resolve the bindings of one string."""
    segments = _segments(text.strip())
    if len(segments) == 1 and segments[0].is_expression:
        return evaluate(segments[0].text, scope)
    return "".join(
        _written(evaluate(segment.text, scope)) if segment.is_expression else segment.text
        for segment in _segments(text)
    )


def binding_problems(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yield the bindings within a value that are not JSONata: the place, and what is wrong."""
    if isinstance(value, str):
        for segment in _segments(value):
            if segment.is_expression and (problem := check_expression(segment.text)):
                yield place, problem
            elif not segment.is_expression and "{{" in segment.text:
                yield place, f"the binding in {segment.text.strip()!r} does not end; look at its quotes and braces"
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from binding_problems(item, (*place, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from binding_problems(item, (*place, index))


def _written(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json_text(value)


@lru_cache(maxsize=_KEPT_TEMPLATES)
def _segments(text: str) -> tuple[_Segment, ...]:
    segments: list[_Segment] = []
    position = 0
    while (begin := text.find("{{", position)) >= 0 and (end := _end_of_expression(text, begin + 2)) >= 0:
        if begin > position:
            segments.append(_Segment(text[position:begin], False))
        if expression := text[begin + 2 : end].strip():
            segments.append(_Segment(expression, True))
        position = end + 2
    if position < len(text):
        segments.append(_Segment(text[position:], False))
    return tuple(segments)


def _end_of_expression(text: str, position: int) -> int:
    """Return the position of the ``}}`` that ends an expression, outside of quotes and objects; -1 if there is none."""
    quote = ""
    depth = 0
    while position < len(text):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "\"'`":
            quote = character
        elif character == "{":
            depth += 1
        elif character == "}":
            if depth == 0:
                return position if text.startswith("}}", position) else -1
            depth -= 1
        position += 1
    return -1


# Conditions: whether a node runs, whether an edge fires

_OPERATORS: Final = ("equals", "not", "and", "or")


def holds(condition: Condition | None, scope: Scope) -> bool:
    """Return whether a condition holds: there is none, or the value of its expression is truthy in JavaScript."""
    if condition is None:
        return True
    if isinstance(condition, str):
        return _truthy(evaluate(condition, scope))
    ((operator, operand),) = condition.items()
    if operator == "equals":
        found = evaluate(operand["var"], scope)
        return found is not None and _same(found, operand.get("value"))
    if operator == "not":
        return not holds(operand, scope)
    return (all if operator == "and" else any)(holds(item, scope) for item in operand)


def condition_problems(condition: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yield what is wrong with a condition, and where."""
    if isinstance(condition, str):
        if problem := check_expression(condition):
            yield place, problem
        return
    if not isinstance(condition, Mapping) or len(condition) != 1 or next(iter(condition)) not in _OPERATORS:
        yield place, "must be a JSONata text, or an object with one of the keys equals, not, and, or"
        return
    ((operator, operand),) = condition.items()
    below = (*place, operator)
    if operator == "equals":
        yield from _equals_problems(operand, below)
    elif operator == "not":
        yield from condition_problems(operand, below)
    elif isinstance(operand, list | tuple):
        for index, item in enumerate(operand):
            yield from condition_problems(item, (*below, index))
    else:
        yield below, "must be a list of conditions"


def _equals_problems(operand: Any, place: Place) -> Iterator[tuple[Place, str]]:
    if not isinstance(operand, Mapping) or not isinstance(operand.get("var"), str) or "value" not in operand:
        yield place, "must be an object with the keys var (a JSONata text) and value"
    elif problem := check_expression(operand["var"]):
        yield (*place, "var"), problem


def _truthy(value: Any) -> bool:
    # As JavaScript does it, where empty arrays and objects are true.
    return True if isinstance(value, list | dict) else bool(value)


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON: 1 is 1.0, but not true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
