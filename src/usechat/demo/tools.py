"""The tools of the demo's agent."""

import ast
import operator
from collections.abc import Callable
from typing import Any, Final

from usechat.documentation import documentation

__all__ = ["calculate", "search_docs", "weather"]

_OPERATORS: Final[dict[type[ast.AST], Callable[..., float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_LONGEST: Final = 200


def search_docs(query: str) -> list[dict[str, str]]:
    """Search the documentation of usechat; returns the best passages with their links, or none."""
    return [
        {"section": passage.section.name, "link": f"docs/{passage.section.id}", "text": passage.excerpt}
        for passage in documentation().search(query)
    ]


def calculate(expression: str) -> float:
    """Calculate an expression of numbers, + - * / // % and brackets."""
    if len(expression) > _LONGEST:
        raise ValueError("The expression is too long.")
    try:
        return _value(ast.parse(expression, mode="eval").body)
    except SyntaxError:
        raise ValueError(f"{expression!r} is not arithmetic.") from None


def weather(city: str) -> str:
    """Return the weather in a city. This tool always fails: it shows what a page makes of that."""
    raise ConnectionError(f"The weather service for {city} cannot be reached.")


def _value(node: Any) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return number
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
        case ast.UnaryOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_value(node.operand))
    raise ValueError(f"{ast.unparse(node)!r} is not arithmetic.")
