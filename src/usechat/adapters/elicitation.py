"""Elicitations: what an MCP server asks the user while one of its tools runs, as questions of the page.

:func:`elicit` is an elicitation callback with the signature of the official ``mcp`` package, so every client that is
built on it can use it: ``mcp.Client(server, elicitation_callback=elicit)``.

**The question** is a call of the tool ``interrupt`` (:mod:`usechat.pauses.questions`) whose input is what the server
sent: ``{"mode": "form", "message": …, "requestedSchema": …}`` or ``{"mode": "url", "message": …, "url": …}``. **The
answer** is its output, in the form of MCP's own result: ``{"action": "accept", "content": {…}}``,
``{"action": "decline"}`` or ``{"action": "cancel"}``. An answer that does not fit is asked again, with ``error`` in the
input; after three of them the server gets ``cancel``. So it does if another message comes instead of an answer.

**Sessions.** In revisions of MCP before 2026-07-28 a server's question does not say which call it belongs to, and
clients call back in the task that opened the session. So a session must be opened in the turn that uses it: one that is
shared by several chats would ask the page of the chat that opened it.
"""

import datetime
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any, Final, TypedDict
from urllib.parse import urlsplit

import msgspec

from usechat.errors import ProtocolError, RemoteProtocolError
from usechat.pauses.questions import ask_page
from usechat.protocol.request import ToolOutput

__all__ = ["elicit"]

_ATTEMPTS: Final = 3
_CANCEL: Final[Mapping[str, Any]] = {"action": "cancel"}
_SHAPE: Final = 'An answer is {"action": "accept", "content": {…}}, {"action": "decline"} or {"action": "cancel"}.'
_SHOWN: Final = frozenset({"elicitationId", "message", "mode", "requestedSchema", "url"})
_URL_SCHEMES: Final = frozenset({"http", "https"})
"""A page shows the URL as a link, so ``javascript:`` and the like must not reach it."""
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_logger: Final = logging.getLogger("usechat.adapters")


async def elicit(context: Any, params: Any, *more: Any) -> Any:  # noqa: ARG001
    """Ask the page what an MCP server asks, and return an ``ElicitResult``; for clients of the package ``mcp``.

    Frameworks may add further arguments behind ``params``. Outside of a turn the server gets an error.

    >>> def client(server):
    ...     from mcp import Client
    ...
    ...     return Client(server, elicitation_callback=elicit)
    """
    types = import_module("mcp.types")
    try:
        answer = await answer_to(params.model_dump(by_alias=True, mode="json", exclude_none=True))
        return types.ElicitResult(**answer)
    except (ProtocolError, ValueError) as error:  # ValueError: values that an ElicitResult cannot hold
        _logger.warning("an MCP server's question cannot be asked: %s", error)
        return types.ErrorData(code=types.INVALID_REQUEST, message="The question cannot be shown to a user.")


async def answer_to(request: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the page what the parameters of ``elicitation/create`` ask; return the fields of the result.

    Raises :class:`~usechat.errors.LocalProtocolError` outside of a turn, and
    :class:`~usechat.errors.RemoteProtocolError` if the URL is no web address or the schema of the form cannot be read.
    """
    question = {"mode": "form", **{name: value for name, value in request.items() if name in _SHOWN}}
    _check(question)
    error: str | None = None
    for _ in range(_ATTEMPTS):
        output = await ask_page(question if error is None else {**question, "error": error})
        if output is None or output.error_text is not None:
            break
        error = _shape_error(output) or next(_content_errors(question, output.output), None)
        if error is None:
            return _result(question, output.output)
    return dict(_CANCEL)


class _FieldSchema(TypedDict, total=False):
    """The keywords of a field's schema that are read. Some servers write ``null`` for those they do not use."""

    type: str | list[str] | None
    anyOf: list["_FieldSchema | bool"] | None
    oneOf: list["_FieldSchema | bool"] | None
    enum: list[Any]
    minLength: float | None
    maxLength: float | None
    minimum: float | None
    maximum: float | None
    minItems: float | None
    maxItems: float | None
    items: "_FieldSchema | bool | None"


class _FormSchema(TypedDict, total=False):
    properties: dict[str, _FieldSchema | bool] | None
    required: list[str] | None


def _check(question: Mapping[str, Any]) -> None:
    """Raise RemoteProtocolError for a question that cannot be shown, or whose answers cannot be checked."""
    if question["mode"] == "url":
        if _scheme(str(question.get("url"))) not in _URL_SCHEMES:
            raise RemoteProtocolError("the URL of an elicitation must begin with https: or http:")
        return
    try:
        msgspec.convert(question.get("requestedSchema") or {}, _FormSchema)
    except msgspec.ValidationError as error:
        raise RemoteProtocolError(f"the requestedSchema of an elicitation is not valid: {error}") from error


def _scheme(url: str) -> str:
    """Return the scheme of a URL; an empty text if it has none, or is no URL."""
    try:
        return urlsplit(url).scheme
    except ValueError:  # such as http://[
        return ""


def _shape_error(output: ToolOutput) -> str | None:
    answer = output.output
    action = answer.get("action") if isinstance(answer, Mapping) else None
    return None if action in ("accept", "decline", "cancel") else _SHAPE


def _result(question: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    if answer["action"] == "accept" and question["mode"] == "form":
        return {"action": "accept", "content": dict(answer.get("content") or {})}
    return {"action": answer["action"]}


def _content_errors(question: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the content of an accepted form, as sentences for the person who filled it in."""
    if answer["action"] != "accept" or question["mode"] != "form":
        return
    content = answer.get("content") or {}
    if not isinstance(content, Mapping):
        yield "The content of an answer is an object with a value for each field."
        return
    schema = question.get("requestedSchema") or {}
    fields = schema.get("properties") or {}
    for name in schema.get("required") or ():
        if name not in content:
            yield f"{name} is missing."
    for name, value in content.items():
        if name not in fields:
            yield f"{name} was not asked for."
        elif (expected := _mismatch(fields[name], value)) is not None:
            yield f"{name} must be {expected}."


def _mismatch(schema: Mapping[str, Any] | bool, value: Any) -> str | None:
    """Return what a value should be instead; ``None`` if it fits. MCP allows flat forms and a few keywords only."""
    if isinstance(schema, bool):
        schema = {}
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return _mismatch_of_all(options, value)
    if "const" in schema:
        return None if value == schema["const"] else str(schema["const"])
    if "enum" in schema:
        return None if value in schema["enum"] else "one of " + ", ".join(str(each) for each in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, list):
        return _mismatch_of_all([{**schema, "type": each} for each in kind], value)
    return _TYPES.get(str(kind), _text_mismatch)(schema, value)


def _mismatch_of_all(options: Iterable[Mapping[str, Any] | bool], value: Any) -> str | None:
    expected = [_mismatch(option, value) for option in options]
    return None if None in expected else " or ".join(str(each) for each in expected)


def _text_mismatch(schema: Mapping[str, Any], value: Any) -> str | None:
    if not isinstance(value, str):
        return "a text"
    if (length := _outside(schema, "Length", len(value))) is not None:
        return f"a text of {length} characters"
    name, fits = _FORMATS.get(str(schema.get("format")), ("", None))
    return None if fits is None or fits(value) else name


def _number_mismatch(schema: Mapping[str, Any], value: Any) -> str | None:
    kind = "a whole number" if schema["type"] == "integer" else "a number"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return kind
    if schema["type"] == "integer" and isinstance(value, float) and not value.is_integer():
        return kind
    bounds = _outside(schema, "imum", value)
    return None if bounds is None else f"{kind}, {bounds}"


def _boolean_mismatch(_schema: Mapping[str, Any], value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _null_mismatch(_schema: Mapping[str, Any], value: Any) -> str | None:
    return None if value is None else "empty"


def _list_mismatch(schema: Mapping[str, Any], value: Any) -> str | None:
    if not isinstance(value, list):
        return "a list"
    if (length := _outside(schema, "Items", len(value))) is not None:
        return f"a list of {length} values"
    items = schema.get("items") or {}
    expected = next((each for each in (_mismatch(items, item) for item in value) if each is not None), None)
    return None if expected is None else f"a list whose values are {expected}"


def _outside(schema: Mapping[str, Any], suffix: str, size: float) -> str | None:
    """Return the bounds that a size is outside of, such as ``at least 3``."""
    least, most = schema.get(f"min{suffix}"), schema.get(f"max{suffix}")
    if least is not None and size < least:
        return f"at least {least}"
    return f"at most {most}" if most is not None and size > most else None


def _parses(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def fits(value: str) -> bool:
        try:
            parse(value)
        except ValueError:
            return False
        return True

    return fits


_TYPES: Final[Mapping[str, Callable[[Mapping[str, Any], Any], str | None]]] = {
    "string": _text_mismatch,
    "number": _number_mismatch,
    "integer": _number_mismatch,
    "boolean": _boolean_mismatch,
    "null": _null_mismatch,
    "array": _list_mismatch,
}
_FORMATS: Final[Mapping[str, tuple[str, Callable[[str], object]]]] = {
    "email": ("an email address", _EMAIL.fullmatch),
    "uri": ("a URI", _scheme),
    "date": ("a date such as 2026-12-31", _parses(datetime.date.fromisoformat)),
    "date-time": ("a date and time such as 2026-12-31T12:00:00Z", _parses(datetime.datetime.fromisoformat)),
}
