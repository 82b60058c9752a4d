"""JSONata: the language of bindings and conditions."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from usechat.errors import MissingDependency, UsechatError
from usechat.values import json_value

__all__ = ["ExpressionFailed", "Scope", "check_expression", "evaluate"]

_TIMEOUT_MS: Final = 2000
_DEEPEST: Final = 100
"""How deep an expression may nest, well before Python's own limit: a level takes four of its frames."""

_KEPT: Final = 1024


class ExpressionFailed(UsechatError):
    """A JSONata expression that cannot be read, or that failed on these values."""


class Scope:
    """What expressions can see: plain JSON values by name, and variables, which are written with a ``$``."""

    def __init__(self, values: Mapping[str, Any], variables: Mapping[str, Any] | None = None) -> None:
        self.values = dict(values)
        self.variables: Mapping[str, Any] = variables or {}


def check_expression(text: str) -> str | None:
    """Return what is wrong with the text of an expression, or nothing."""
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


@lru_cache(maxsize=_KEPT)
def _compile(text: str) -> Any:
    try:
        from jsonata import Jsonata  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        raise MissingDependency("jsonata-python", "open-harness") from None
    try:
        return Jsonata(text)
    except Exception as error:
        raise ExpressionFailed(f"the expression {text!r} is not JSONata: {error}") from error
