"""Conditions: whether a node runs, whether an edge fires."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from usechat.open_harness.expressions import Scope, check_expression, evaluate
from usechat.open_harness.flow import Condition, Place

__all__ = ["condition_problems", "holds"]

_OPERATORS: Final = ("equals", "not", "and", "or")


def holds(condition: Condition | None, scope: Scope) -> bool:
    """Return whether a condition holds: none at all does, and a text whose value JavaScript takes for true."""
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
