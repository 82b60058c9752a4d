"""Nodes that are Python functions."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Final

from usechat.errors import InvalidSetting
from usechat.open_harness.errors import NodeFailed
from usechat.open_harness.flow.definition import Place
from usechat.open_harness.nodes.context import NodeContext
from usechat.open_harness.threads import in_thread

__all__ = ["FunctionNode", "PythonNode", "import_function"]

_YIELD_EVERY: Final = 32
"""After how many items to yield to the event loop."""


def import_function(name: Any) -> Callable[..., Any]:
    """Return the function that ``module:function`` names; raise InvalidSetting if there is none."""
    module, colon, attributes = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not (module and colon and attributes):
        raise InvalidSetting(f"must be a text such as my_module:my_function, not {name!r}")
    try:
        target: Any = import_module(module)
        for attribute in attributes.split("."):
            target = getattr(target, attribute)
    except Exception as error:  # the module is foreign code
        raise InvalidSetting(f"{name!r} cannot be imported: {error}") from error
    if not callable(target):
        raise InvalidSetting(f"{name!r} is not a function")
    function: Callable[..., Any] = target
    return function


class FunctionNode:
    """Runs a function with the input and, if it takes two arguments, the context.

    It may be plain (run in a thread), async, a generator or an async generator. What it returns is the output. What a
    generator yields is emitted at once: texts, and events such as ``{"type": "agent:thinking:delta", "content": "…"}``;
    the output is then ``{"text": …}`` with all texts, unless it returns something else.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def problems(self, fields: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:  # noqa: ARG002 (as the protocol has it)
        """Yield nothing: only the function knows what it takes."""
        return ()

    async def run(self, fields: Mapping[str, Any], context: NodeContext) -> Any:
        """Call the function."""
        return await _call_function(self._function, (fields, context)[: self._argument_count], context)

    @cached_property
    def _argument_count(self) -> int:
        return _argument_count(self._function)


class PythonNode:
    """Runs the function that its input names as ``function: module:function``; the rest of the input goes to it."""

    def problems(self, fields: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:
        """Yield why the function cannot be used. One that a binding names is checked when the node runs."""
        name = fields.get("function")
        if isinstance(name, str) and "{{" in name:
            return
        try:
            import_function(name)
        except InvalidSetting as error:
            yield ("function",), str(error)

    async def run(self, fields: Mapping[str, Any], context: NodeContext) -> Any:
        """Call the function."""
        rest = {key: value for key, value in fields.items() if key != "function"}
        function = import_function(fields.get("function"))
        return await _call_function(function, (rest, context)[: _argument_count(function)], context)


async def _call_function(function: Callable[..., Any], arguments: tuple[Any, ...], context: NodeContext) -> Any:
    """Call a function of any kind and return its output."""
    texts: list[str] = []
    output: Any = None
    if inspect.isasyncgenfunction(function):
        await _drive(function(*arguments), context, texts)
    elif inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004 (an object whose __call__ is async)
        output = await function(*arguments)
    else:
        output = await in_thread(lambda: _call_in_thread(function, arguments, context, texts))
        if inspect.isawaitable(output):
            output = await output
    if not texts:
        return output
    context.emit({"type": "agent:text", "content": "".join(texts)})
    return {"text": "".join(texts)} if output is None else output


async def _drive(items: AsyncGenerator[Any, None], context: NodeContext, texts: list[str]) -> None:
    try:
        count = 0
        async for item in items:
            _emit_item(item, context, texts)
            count += 1
            if count % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
    finally:
        await items.aclose()


def _call_in_thread(
    function: Callable[..., Any], arguments: tuple[Any, ...], context: NodeContext, texts: list[str]
) -> Any:
    result: Any = function(*arguments)
    return _exhaust(result, context, texts) if inspect.isgenerator(result) else result


def _exhaust(items: Generator[Any, Any, Any], context: NodeContext, texts: list[str]) -> Any:
    try:
        while not context.stopped:
            try:
                _emit_item(next(items), context, texts)
            except StopIteration as end:
                return end.value
    finally:
        items.close()
    return None


def _emit_item(item: Any, context: NodeContext, texts: list[str]) -> None:
    if isinstance(item, str):
        texts.append(item)
        context.emit({"type": "agent:text:delta", "content": item})
    elif isinstance(item, Mapping) and isinstance(item.get("type"), str):
        context.emit(item)
    else:
        raise NodeFailed(f"a node yields texts and events, not {type(item).__name__}")


def _argument_count(function: Callable[..., Any]) -> int:
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 2
    return sum(
        parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
    )
