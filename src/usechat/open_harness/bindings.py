"""Bindings: ``{{ expression }}`` within the texts of a node's input."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from usechat.open_harness.expressions import ExpressionFailed, Scope, check_expression, evaluate
from usechat.open_harness.flow import Place
from usechat.values import json_text

__all__ = ["binding_problems", "resolve", "resolve_text"]

_KEPT: Final = 1024


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
    """Return what one text with bindings becomes."""
    segments = _segments(text.strip())
    if len(segments) == 1 and segments[0].is_expression:
        return evaluate(segments[0].text, scope)
    return "".join(
        _written(evaluate(segment.text, scope)) if segment.is_expression else segment.text
        for segment in _segments(text)
    )


def binding_problems(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yield the bindings within a value that are not JSONata: where they stand, and what is wrong."""
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


@lru_cache(maxsize=_KEPT)
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
    """Return where the ``}}`` stands that ends an expression; one within quotes or within an object does not."""
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
