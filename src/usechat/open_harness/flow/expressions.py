"""JSONata: the language of bindings and conditions.

Expressions come from the author of a flow, but their values come from users: a harmless regular expression and a
certain message can take hours. So only *trivial* expressions are evaluated in the event loop's thread: paths,
literals, variables, comparisons and conditions of these. A path that leads through a long list is not: it takes a
microsecond or more for each item. All others are sent to an evaluator process, those of one value together, with the
values that they can read and no others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from usechat.errors import MissingDependency
from usechat.open_harness.errors import ExpressionFailed
from usechat.open_harness.flow import evaluation
from usechat.open_harness.flow.definition import Condition, Place
from usechat.open_harness.flow.evaluators import Requester, evaluate_in_process
from usechat.values import json_text, json_value

__all__ = [
    "Scope",
    "Syntax",
    "binding_problems",
    "check_expression",
    "condition_problems",
    "evaluate",
    "expressions_in",
    "expressions_of_condition",
    "holds",
    "read_syntax",
    "resolve",
]


LIMIT_MS: Final = 5_000.0
"""How many milliseconds expressions may take, if the time limit of their node is not shorter."""

_KEPT_EXPRESSIONS: Final = 1024
_MOST_ITEMS: Final = 1_000
"""Through how many items of lists a path may lead that is evaluated in the event loop's thread."""


class Scope:
    """What expressions can see: plain JSON values by name, and variables, which are written with a ``$``.

    ``own`` are the values of an item of a list, which hide those of the same name. ``requester`` is the flow run, for
    the evaluators.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        variables: Mapping[str, Any] | None = None,
        *,
        own: Mapping[str, Any] | None = None,
        requester: Requester | None = None,
    ) -> None:
        self.own: Mapping[str, Any] = own or {}
        self.shared = values
        if not self.own.keys().isdisjoint(values):
            self.shared = {name: value for name, value in values.items() if name not in self.own}
        self.variables: Mapping[str, Any] = variables or {}
        self.requester = requester or Requester()

    @property
    def values(self) -> Mapping[str, Any]:
        """All values by name."""
        return {**self.shared, **self.own} if self.own else self.shared


# What the syntax of an expression tells

_TRIVIAL: Final = frozenset(
    {"path", "name", "string", "number", "value", "variable", "binary", "condition", "block", "filter"}
)
_COMPARISONS: Final = frozenset({"=", "!=", "<", "<=", ">", ">=", "in", "and", "or"})
_WHOLE: Final = frozenset({"wildcard", "descendant", "parent"})


class Syntax(NamedTuple):
    """What the syntax of an expression tells.

    ``names`` are the values that it can read; ``None`` if that may be any. ``variables`` are the variables and the
    functions that it names. ``paths`` are the paths of a trivial expression, each as the names of its steps.
    ``input_keys`` are the keys of ``flow.input`` that it reads, and ``optional_keys`` those of them whose existence it
    asks for.
    """

    is_trivial: bool
    names: frozenset[str] | None
    variables: frozenset[str]
    paths: tuple[tuple[str, ...], ...]
    input_keys: frozenset[str]
    optional_keys: frozenset[str]


@lru_cache(maxsize=_KEPT_EXPRESSIONS)
def read_syntax(text: str) -> Syntax:
    """Return what the syntax of an expression tells; raise ExpressionFailed if it is not JSONata."""
    try:
        tree = evaluation.compile_expression(text).ast
    except ImportError:
        raise MissingDependency("jsonata-python", "open-harness") from None
    except Exception as error:
        raise ExpressionFailed(f"the expression {text!r} is not JSONata: {error}") from error
    symbols = list(_symbols(tree, set()))
    named = {id(symbol.steps[0]) for symbol in symbols if _begins_with_a_name(symbol)}
    is_whole = any(_reads_everything(symbol) for symbol in symbols if id(symbol) not in named)
    optional_symbols = [call.arguments[0] for call in symbols if _called(call) == "exists" and call.arguments]
    optional_symbols += [symbol.condition for symbol in symbols if symbol.type == "condition" and _has_default(symbol)]
    return Syntax(
        all(_is_trivial(symbol) for symbol in symbols),
        None if is_whole else frozenset(str(symbol.value) for symbol in symbols if symbol.type == "name"),
        frozenset(str(symbol.value) for symbol in symbols if symbol.type == "variable"),
        tuple(tuple(str(step.value) for step in symbol.steps) for symbol in symbols if symbol.type == "path"),
        _input_keys(symbols),
        _input_keys(optional_symbols),
    )


def _symbols(symbol: Any, visited_ids: set[int]) -> Iterator[Any]:
    """Yield the symbols of a syntax tree; they refer to each other in lists and lists of pairs."""
    if isinstance(symbol, list | tuple):
        for each in symbol:
            yield from _symbols(each, visited_ids)
    elif hasattr(symbol, "lbp") and id(symbol) not in visited_ids:  # what every symbol of jsonata has
        visited_ids.add(id(symbol))
        yield symbol
        for each in vars(symbol).values():
            yield from _symbols(each, visited_ids)


def _is_trivial(symbol: Any) -> bool:
    if symbol.type not in _TRIVIAL or symbol.focus is not None or symbol.index is not None:
        return False
    match symbol.type:
        case "binary":
            return symbol.value in _COMPARISONS
        case "filter":
            return bool(symbol.expr.type == "number")
        case "path":
            return all(step.type in ("name", "variable") for step in symbol.steps)
        case "variable":
            return not _reads_everything(symbol)
    return True


def _reads_everything(symbol: Any) -> bool:
    if symbol.type == "variable":
        return symbol.value in ("", "$")
    name = _called(symbol)
    return (
        symbol.type in _WHOLE
        or name == "eval"
        or (symbol.type in ("function", "partial") and _takes_context(symbol, name))
    )


def _begins_with_a_name(symbol: Any) -> bool:
    """Return whether a symbol is a path such as ``$$.item.n``, which reads one value of all."""
    if symbol.type != "path" or len(symbol.steps) < 2:
        return False
    first, second = symbol.steps[:2]
    is_plain = not any(getattr(first, key, None) for key in ("predicate", "stages", "group"))
    return first.type == "variable" and first.value in ("", "$") and is_plain and second.type == "name"


def _called(symbol: Any) -> str | None:
    """Return the name of the function that a symbol calls, if it has one."""
    procedure = symbol.procedure if symbol.type in ("function", "partial") else None
    return str(procedure.value) if procedure is not None and procedure.type == "variable" else None


def _takes_context(call: Any, name: str | None) -> bool:
    """Return whether a call may read all values, because an argument is missing: ``$keys()`` is ``$keys($)``.

    The value that stands in for the argument must be of its type, and all values together are an object: a function
    that takes a text, such as ``$substring``, fails with it.
    """
    from jsonata import Jsonata  # type: ignore[import-untyped]  # it has no types

    function = Jsonata.static_frame.lookup(name) if name is not None else None
    signature = getattr(function, "signature", None)
    if signature is None:
        return not call.arguments
    first, *others = signature._params or [None]  # noqa: SLF001 (jsonata has no public name for it)
    if first is None or not first.context or "o" not in first.regex:
        return False
    # A parameter of any type takes the first argument, unless the others need them all.
    needed = [each for each in others if not each.regex.endswith("?")] if first.type == "x" else others
    return len(call.arguments) <= len(needed)


def _input_keys(symbols: Sequence[Any]) -> frozenset[str]:
    """Return the keys in ``flow.input.key``, ``flow.input.(key & …)`` and ``$lookup(flow.input, "key")``."""
    within = [steps for symbol in symbols if (steps := _within_input(symbol))]
    looked_up = [
        call.arguments[1]
        for call in symbols
        if _called(call) == "lookup" and len(call.arguments) == 2 and _within_input(call.arguments[0]) == []
    ]
    return frozenset(
        [key for steps in within for key in _first_names(steps[0])]
        + [str(key.value) for key in looked_up if key.type == "string"]
    )


def _has_default(condition: Any) -> bool:
    """Return whether a condition is such as ``a.b ?: 1``, which is ``a.b ? a.b : 1``."""
    test, then = condition.condition, condition.then
    if test.type != "path" or then.type != "path":
        return False
    return [step.value for step in test.steps] == [step.value for step in then.steps]


def _within_input(symbol: Any) -> Sequence[Any] | None:
    """Return the steps that follow ``flow.input`` in a path; ``None`` if it does not begin so."""
    if symbol.type != "path":
        return None
    first, second, *others = [*_from_the_root(symbol.steps), None, None]
    is_input = [getattr(each, "value", None) for each in (first, second)] == ["flow", "input"]
    return others[:-2] if is_input else None


def _first_names(symbol: Any) -> Iterator[str]:
    """Yield the names that a symbol reads of the value it is applied to."""
    if symbol.type == "name":
        yield str(symbol.value)
    elif symbol.type == "path":
        yield from _first_names(symbol.steps[0])
    else:
        below = list(_symbols([value for key, value in vars(symbol).items() if key != "steps"], set()))
        inner = {id(each) for path in below if path.type == "path" for each in _symbols(path.steps, set())}
        for each in below:
            if each.type == "path" and id(each) not in inner:
                yield from _first_names(each)


def _from_the_root(steps: Sequence[Any]) -> Sequence[Any]:
    """Leave out the first step of a path such as ``$$.flow.input``: it is the root, where every path begins."""
    return steps[1:] if steps[0].type == "variable" and steps[0].value in ("", "$") else steps


def check_expression(text: str) -> str | None:
    """Return what is wrong with an expression, or ``None``."""
    try:
        read_syntax(text)
    except ExpressionFailed as error:
        return str(error)
    return None


# Values of expressions

_Values = Callable[[str], Any]
"""Returns the value of an expression by its text, or ``ABSENT``; raises ExpressionFailed."""


async def evaluate(text: str, scope: Scope, timeout_ms: float | None = None) -> Any:
    """Return the value of an expression as plain JSON values; what does not exist is ``None``."""
    return _present((await _values([text], scope, timeout_ms))(text))


async def _values(texts: Iterable[str], scope: Scope, timeout_ms: float | None) -> _Values:
    """Evaluate the expressions that are not trivial, and return a function that returns the value of each."""
    limit = min(timeout_ms or LIMIT_MS, LIMIT_MS)
    answers: Mapping[str, Mapping[str, Any]] = {}
    slow = tuple(text for text in dict.fromkeys(texts) if not _is_quick(text, scope))
    if slow:
        read = _what_is_read(slow)
        outcomes = await evaluate_in_process(slow, read.of(scope.shared), read.own(scope), limit, scope.requester)
        answers = dict(zip(slow, outcomes, strict=True))

    def value_of(text: str) -> Any:
        answer = answers.get(text)
        if answer is None:
            try:
                value = evaluation.evaluate(text, scope.values, scope.variables)
                return value if value is evaluation.ABSENT else json_value(value)
            except Exception as error:
                raise ExpressionFailed(f"the expression {text!r} failed: {error}") from error
        if "error" in answer:
            raise ExpressionFailed(f"the expression {text!r} failed: {answer['error']}")
        return answer.get("value", evaluation.ABSENT)

    return value_of


def _is_quick(text: str, scope: Scope) -> bool:
    syntax = read_syntax(text)
    return syntax.is_trivial and not any(_leads_through_many(path, scope.values) for path in syntax.paths)


def _leads_through_many(path: Sequence[str], values: Mapping[str, Any]) -> bool:
    """Return whether a path reads something of each item of a long list. What it ends with is not read."""
    reached: list[Any] = [values]
    for name in path[:-1]:
        below = [each.get(name) for each in reached if isinstance(each, Mapping)]
        reached = []
        for each in below:
            reached += each if isinstance(each, list) and len(each) <= _MOST_ITEMS else [each]
        if len(reached) > _MOST_ITEMS or any(isinstance(each, list) for each in reached):
            return True
    return False


class _Read(NamedTuple):
    """What expressions read; ``names`` is ``None`` if that may be anything.

    Only that is sent to an evaluator: to send everything for each item of a list would be quadratic.
    """

    names: frozenset[str] | None
    variables: frozenset[str]

    def of(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the values that are read."""
        return values if self.names is None else {name: values[name] for name in self.names if name in values}

    def own(self, item: Scope) -> Mapping[str, Any]:
        """Return what is read of an item of a list, for an evaluator."""
        variables = item.variables
        if self.names is not None:
            variables = {name: variables[name] for name in self.variables if name in variables}
        return {"values": self.of(item.own), "variables": variables}


@lru_cache(maxsize=_KEPT_EXPRESSIONS)
def _what_is_read(texts: tuple[str, ...]) -> _Read:
    syntaxes = [read_syntax(text) for text in texts]
    names = [syntax.names for syntax in syntaxes if syntax.names is not None]
    return _Read(
        frozenset[str]().union(*names) if len(names) == len(syntaxes) else None,
        frozenset[str]().union(*(syntax.variables for syntax in syntaxes)),
    )


# Bindings: ``{{ expression }}`` within the strings of a node's input

_KEPT_TEMPLATES: Final = 1024


class _Segment(NamedTuple):
    text: str
    is_expression: bool


async def resolve(value: Any, scope: Scope, place: Place = (), *, timeout_ms: float | None = None) -> Any:
    """Return the value with every binding in it replaced.

    A text that is a binding and nothing else becomes the value with its type; in any other text the value is written:
    nothing for what does not exist, JSON for objects and arrays. A key whose binding leads to nothing is left out, as
    in Open Harness; in a list, and alone, it is ``None``. An ExpressionFailed names the place, unless the expressions
    together take too long.
    """
    return _present(_resolved(value, await _values(expressions_in(value), scope, timeout_ms), place))


def _present(value: Any) -> Any:
    return None if value is evaluation.ABSENT else value


def _resolved(value: Any, values: _Values, place: Place) -> Any:
    if isinstance(value, str):
        try:
            return _resolved_text(value, values)
        except ExpressionFailed as error:
            raise ExpressionFailed(f"{'.'.join(map(str, place))}: {error}") from error
    if isinstance(value, Mapping):
        items = ((key, _resolved(item, values, (*place, key))) for key, item in value.items())
        return {key: item for key, item in items if item is not evaluation.ABSENT}
    if isinstance(value, list | tuple):
        return [_present(_resolved(item, values, (*place, index))) for index, item in enumerate(value)]
    return value


def _resolved_text(text: str, values: _Values) -> Any:
    segments = _segments(text.strip())
    if len(segments) == 1 and segments[0].is_expression:
        return values(segments[0].text)
    return "".join(
        _written(values(segment.text)) if segment.is_expression else segment.text for segment in _segments(text)
    )


def expressions_in(value: Any) -> Iterator[str]:
    """Yield the expressions of all bindings within a value."""
    if isinstance(value, str):
        yield from (segment.text for segment in _segments(value) if segment.is_expression)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from expressions_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from expressions_in(item)


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
    if value is None or value is evaluation.ABSENT:
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


async def holds(condition: Condition | None, scope: Scope, *, timeout_ms: float | None = None) -> bool:
    """Return whether a condition holds: there is none, or the value of its expression is truthy in JavaScript."""
    if condition is None:
        return True
    return _holds(condition, await _values(expressions_of_condition(condition), scope, timeout_ms))


def _holds(condition: Condition, values: _Values) -> bool:
    if isinstance(condition, str):
        return _truthy(values(condition))
    ((operator, operand),) = condition.items()
    if operator == "equals":
        value = values(operand["var"])
        return _present(value) is not None and _same(value, operand.get("value"))
    if operator == "not":
        return not _holds(operand, values)
    return (all if operator == "and" else any)(_holds(item, values) for item in operand)


def expressions_of_condition(condition: Condition | None) -> Iterator[str]:
    """Yield the expressions of a condition without problems."""
    if isinstance(condition, str):
        yield condition
    elif condition is not None:
        ((operator, operand),) = condition.items()
        if operator == "equals":
            yield operand["var"]
        else:
            for item in [operand] if operator == "not" else operand:
                yield from expressions_of_condition(item)


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
    return True if isinstance(value, list | dict) else bool(_present(value))


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON: 1 is 1.0, but not true."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
