"""Check a history as the AI SDK does: the mirror of ``validateUIMessages``, release by release.

First the shapes, as tables: a shape says which keys an object may have, and keys it does not name are left out of the
result. Then the caller's own schemas for tools, data and metadata.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, cast

from usechat.errors import InvalidMessages, LocalProtocolError
from usechat.protocol.releases import Release, holds, release
from usechat.protocol.states import SETTLED, ToolState
from usechat.protocol.ui_messages import UIMessage, is_static_tool, tool_name
from usechat.protocol.values import json_kind, json_text

__all__ = [
    "Schema",
    "ToolSchema",
    "clean_message",
    "validate_messages",
]


Check: TypeAlias = Callable[[Any, str], Any]
"""Takes a value and its path; returns the value as it is kept, or raises InvalidMessages."""


class Field(NamedTuple):
    """One key of a shape."""

    check: Check
    required: bool = False


Shape: TypeAlias = dict[str, Field]
_LARGEST_INTEGER: Final = 2**53 - 1


def invalid(path: str, expected: str, value: Any) -> InvalidMessages:
    """Return the error for a value that should have been something else."""
    text = json_text(value) if isinstance(value, str | int | float) else json_kind(value)
    return InvalidMessages(f"{path} must be {expected}, not {text[:80]}", path=path)


# Values.


def _anything(value: Any, _path: str) -> Any:
    return value


def _forbidden(_value: Any, path: str) -> Any:
    raise InvalidMessages(f"{path} must be absent in this state", path=path)


def _of_type(kind: type, expected: str) -> Check:
    def check(value: Any, path: str) -> Any:
        if not isinstance(value, kind):
            raise invalid(path, expected, value)
        return value

    return check


_string = _of_type(str, "a string")
_boolean = _of_type(bool, "a boolean")
_object = _of_type(dict, "an object")


def _one_of(*choices: str | bool) -> Check:
    def check(value: Any, path: str) -> Any:
        if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
            raise invalid(path, " or ".join(map(json_text, choices)), value)
        return value

    return check


def _index(value: Any, path: str) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= _LARGEST_INTEGER or value != int(value):
        raise invalid(path, "a whole number from 0 on", value)
    return value


def _object_of(check_item: Check) -> Check:
    def check(value: Any, path: str) -> Any:
        return {key: check_item(item, f"{path}.{key}") for key, item in _object(value, path).items()}

    return check


def _array_of(check_item: Check) -> Check:
    def check(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise invalid(path, "an array", value)
        return [check_item(item, f"{path}[{index}]") for index, item in enumerate(value)]

    return check


def _shaped(shape: Shape) -> Check:
    def check(value: Any, path: str) -> Any:
        _object(value, path)
        for key, field in shape.items():
            if field.required and key not in value:
                raise InvalidMessages(f"{path}.{key} is missing", path=f"{path}.{key}")
        return {key: field.check(value[key], f"{path}.{key}") for key, field in shape.items() if key in value}

    return check


def _chosen_by(key: str, shapes: Mapping[str, Check]) -> Check:
    """Return the check of an object whose shape depends on one of its keys."""

    def check(value: Any, path: str) -> Any:
        choice = _object(value, path).get(key)
        if not isinstance(choice, str) or choice not in shapes:
            raise invalid(f"{path}.{key}", " or ".join(map(json_text, shapes)), choice)
        return shapes[choice](value, path)

    return check


def _required(**checks: Check) -> dict[str, Field]:
    return {key: Field(check, required=True) for key, check in checks.items()}


def _optional(**checks: Check) -> dict[str, Field]:
    return {key: Field(check) for key, check in checks.items()}


# Parts that are no tools.

_two_level_object = _object_of(_object)
_PROVIDER: Final = _optional(providerMetadata=_two_level_object)
_BLOCK: Final = _required(type=_string, text=_string) | _optional(state=_one_of("streaming", "done")) | _PROVIDER
_SOURCE: Final = _required(type=_one_of("source"), sourceType=_string, id=_string) | _PROVIDER
_CITATION: Final = _shaped(
    _required(
        source=_chosen_by(
            "sourceType",
            {
                "url": _shaped(_SOURCE | _required(url=_string) | _optional(title=_string)),
                "document": _shaped(
                    _SOURCE | _required(mediaType=_string, title=_string) | _optional(filename=_string)
                ),
            },
        )
    )
    | _optional(startIndex=_index, endIndex=_index, citedText=_string)
)
_TEXT: Final = _required(type=_string, text=_string) | _PROVIDER
_FILE: Final = (
    _required(type=_string, mediaType=_string, url=_string)
    | _optional(filename=_string, providerReference=_object_of(_string))
    | _PROVIDER
)
_PLAIN_PARTS: Final[Mapping[str, Shape]] = {
    "text": _BLOCK | _optional(citations=_array_of(_CITATION)),
    "reasoning": _BLOCK | _optional(id=_string),
    "step-start": _required(type=_string),
    "file": _FILE,
    "reasoning-file": _required(type=_string, mediaType=_string, url=_string) | _PROVIDER,
    "source-url": _required(type=_string, sourceId=_string, url=_string) | _optional(title=_string) | _PROVIDER,
    "source-document": _required(type=_string, sourceId=_string, mediaType=_string, title=_string)
    | _optional(filename=_string)
    | _PROVIDER,
    "custom": _required(type=_string, kind=_string) | _PROVIDER,
    "steering-message": _required(
        type=_string, id=_string, parts=_array_of(_chosen_by("type", {"text": _shaped(_TEXT), "file": _shaped(_FILE)}))
    ),
    "data-": _required(type=_string, data=_anything) | _optional(id=_string),
}

# Tool parts. What each state requires, allows and forbids.

_TOOL: Final = _required(type=_string, toolCallId=_string, state=_string) | _optional(
    title=_string, toolMetadata=_object, providerExecuted=_boolean, callProviderMetadata=_two_level_object
)
_DYNAMIC_TOOL: Final = _TOOL | _required(toolName=_string) | _optional(dynamic=_one_of(False))
_NO_RESULT: Final = _optional(output=_forbidden, errorText=_forbidden)
_REQUEST: Final = _required(id=_string) | _optional(
    requestReason=_string,
    isAutomatic=_boolean,
    signature=_string,
    descriptor=_anything,
    inputSchemaInput=_anything,
)
_APPROVALS: Final[Mapping[str, Shape]] = {
    "requested": _REQUEST | _optional(approved=_forbidden, reason=_forbidden),
    "responded": _REQUEST | _required(approved=_boolean) | _optional(reason=_string),
    "granted": _REQUEST | _required(approved=_one_of(True)) | _optional(reason=_string),
    "denied": _REQUEST | _required(approved=_one_of(False)) | _optional(reason=_string),
}


def _tool_states(approvals: Mapping[str, Check]) -> Mapping[ToolState, Shape]:
    pending = _required(input=_anything) | _NO_RESULT
    result = _optional(approval=approvals["granted"], resultProviderMetadata=_two_level_object)
    return {
        ToolState.INPUT_STREAMING: _NO_RESULT
        | _optional(input=_anything, rawInput=_string, inputEncoding=_one_of("json", "text"), approval=_forbidden),
        ToolState.INPUT_AVAILABLE: pending | _optional(approval=_forbidden),
        ToolState.APPROVAL_REQUESTED: pending | _required(approval=approvals["requested"]),
        ToolState.APPROVAL_RESPONDED: pending | _required(approval=approvals["responded"]),
        ToolState.OUTPUT_AVAILABLE: result
        | _required(input=_anything, output=_anything)
        | _optional(errorText=_forbidden, preliminary=_boolean),
        ToolState.OUTPUT_ERROR: result
        | _required(errorText=_string)
        | _optional(input=_anything, rawInput=_anything, output=_forbidden),
        ToolState.OUTPUT_DENIED: pending | _required(approval=approvals["denied"]),
    }


# What a release has of it.


def _known(shape: Shape, release: Release, *owners: str) -> Shape:
    return {key: field for key, field in shape.items() if all(holds(release, f"{owner}.{key}") for owner in owners)}


def _tool_check(release: Release, *, dynamic: bool) -> Check:
    approvals = {name: _shaped(_known(shape, release, "approval")) for name, shape in _APPROVALS.items()}
    checks = {}
    for state, shape in _tool_states(approvals).items():
        owners = ("tool", state.value, "dynamic-tool") if dynamic else ("tool", state.value)
        whole = (_DYNAMIC_TOOL if dynamic else _TOOL) | shape
        if state is ToolState.OUTPUT_ERROR and not holds(release, "output-error-without-input"):
            whole |= _required(input=_anything)
        fields = _known(whole, release, *owners)
        if all(key in fields for key, field in whole.items() if field.required):
            checks[state.value] = _shaped(fields)
    return _chosen_by("state", checks)


@functools.lru_cache(maxsize=64)
def _part_checks(release: Release) -> Mapping[str, Check]:
    """Return the check of each part that this release knows; ``data-`` and ``tool-`` stand for all types so begun."""
    plain = {
        part_type: _shaped(_known(shape, release, part_type))
        for part_type, shape in _PLAIN_PARTS.items()
        if holds(release, part_type)
    }
    tools = {"tool-": _tool_check(release, dynamic=False), "dynamic-tool": _tool_check(release, dynamic=True)}
    return plain | tools


def _part_check(release: Release) -> Check:
    checks = _part_checks(release)

    def check(value: Any, path: str) -> Any:
        part_type = _string(_object(value, path).get("type"), f"{path}.type")
        prefix = next((prefix for prefix in ("data-", "tool-") if part_type.startswith(prefix)), part_type)
        if prefix not in checks:
            raise InvalidMessages(
                f"{path}.type: AI SDK {release} knows no parts of type {json_text(part_type)[:80]}; it knows "
                + ", ".join(f"{name}NAME" if name.endswith("-") else name for name in checks),
                path=f"{path}.type",
            )
        return checks[prefix](value, path)

    return check


@functools.lru_cache(maxsize=64)
def _message_check(release: Release) -> Check:
    shape = _required(
        id=_string, role=_one_of("system", "user", "assistant"), parts=_array_of(_part_check(release))
    ) | _optional(metadata=_anything)
    return _shaped(shape)


def clean_message(value: Any, path: str, release: Release) -> dict[str, Any]:
    """Return a message with the keys that this release knows, or raise InvalidMessages."""
    message: dict[str, Any] = _message_check(release)(value, path)
    may_be_empty = message["role"] == "assistant" and holds(release, "assistant-without-parts")
    if not message["parts"] and not may_be_empty:
        raise InvalidMessages(f"{path}.parts must have a part in a message of this role", path=f"{path}.parts")
    return message


# The caller's schemas

Schema: TypeAlias = Callable[[Any], Any]
"""Returns the value as it should be, or raises ValueError or TypeError (as pydantic's ``validate_python`` does)."""


class ToolSchema(NamedTuple):
    """The schemas of a tool: of its ``input``, and of its ``output`` if that is to be checked, too.

    A schema is a function of one value that raises ValueError or TypeError if the value is wrong.

    >>> from usechat import validate_messages
    >>> call = {"type": "tool-double", "toolCallId": "c1", "state": "input-available", "input": "two"}
    >>> message = {"id": "m1", "role": "assistant", "parts": [call]}
    >>> validate_messages([message], tools={"double": ToolSchema(input=int)})
    Traceback (most recent call last):
        ...
    usechat.errors.InvalidMessages: messages[0].parts[0].input ...
    """

    input: Schema
    output: Schema | None = None


_CHECKED_EARLY: Final = frozenset({ToolState.INPUT_AVAILABLE, ToolState.OUTPUT_AVAILABLE, ToolState.OUTPUT_ERROR})
_LOST_WITH_THE_TOOL: Final = frozenset({"approval", "rawInput"})


def validate_messages(
    messages: object,
    *,
    sdk: str = "7",
    tools: Mapping[str, ToolSchema] | None = None,
    data_schemas: Mapping[str, Schema] | None = None,
    metadata_schema: Schema | None = None,
) -> list[UIMessage]:
    """Check messages as the AI SDK's ``validateUIMessages`` does, and return them without unknown keys.

    >>> validate_messages([{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Hi"}], "x": 1}])
    [{'id': 'u1', 'role': 'user', 'parts': [{'type': 'text', 'text': 'Hi'}]}]
    >>> validate_messages([{"id": "u1", "role": "user", "parts": []}])
    Traceback (most recent call last):
        ...
    usechat.errors.InvalidMessages: messages[0].parts must have a part in a message of this role

    :param messages: the messages, as parsed JSON. They are not changed.
    :param sdk: the client whose shapes count: a major, or one release. The rules for schemas are those of the newest
        release of its major.
    :param tools: what each tool takes and gives; if given, every tool with a pending call must be named. A finished
        call of an unknown tool, or one whose input no longer fits, becomes a ``dynamic-tool`` part.
    :param data_schemas: a schema for each name behind ``data-``; if given, all data must be named.
    :param metadata_schema: the schema of the metadata of every message.
    :raises InvalidMessages: with the offending ``path``.
    :raises LocalProtocolError: if one of the schemas is not callable.

    A schema takes a value, and returns it as it should be or raises ValueError or TypeError.
    """
    candidate = release(sdk)
    _check_schemas(tools or {}, data_schemas or {}, metadata_schema)
    if not isinstance(messages, list) or not messages:
        kind = "an empty array" if messages == [] else json_kind(messages)
        raise InvalidMessages(f"messages must be an array with at least one message, not {kind}")
    cleaned = [clean_message(message, f"messages[{index}]", candidate) for index, message in enumerate(messages)]
    for index, message in enumerate(cleaned):
        path = f"messages[{index}]"
        if metadata_schema is not None:
            _apply_metadata_schema(message, metadata_schema, path)
        for position, part in enumerate(message["parts"]):
            part_path = f"{path}.parts[{position}]"
            if data_schemas is not None and part["type"].startswith("data-"):
                part["data"] = _checked_data(part, data_schemas, part_path)
            if tools is not None and is_static_tool(part):
                message["parts"][position] = _checked_tool(part, tools, part_path, candidate)
    return cast("list[UIMessage]", cleaned)


def _check_schemas(tools: Mapping[str, Any], data_schemas: Mapping[str, Any], metadata_schema: Any) -> None:
    """Raise if a schema of the caller is wrong, before any message is checked."""
    for name, tool in tools.items():
        if not isinstance(tool, ToolSchema):
            hint = f"ToolSchema(input={getattr(tool, '__name__', '…')})" if callable(tool) else "ToolSchema(input=…)"
            raise LocalProtocolError(f"tools[{name!r}] must be a ToolSchema, not {type(tool).__name__}; give {hint}")
    schemas = {
        **{f"tools[{name!r}].input": tool.input for name, tool in tools.items()},
        **{f"tools[{name!r}].output": tool.output for name, tool in tools.items() if tool.output is not None},
        **{f"data_schemas[{name!r}]": schema for name, schema in data_schemas.items()},
        **({} if metadata_schema is None else {"metadata_schema": metadata_schema}),
    }
    for place, schema in schemas.items():
        if not callable(schema):
            kind = type(schema).__name__
            raise LocalProtocolError(f"{place} must be a function that checks and returns a value, not {kind}")


def _call(schema: Schema, value: Any, path: str) -> Any:
    try:
        return schema(value)
    except (ValueError, TypeError) as error:
        raise InvalidMessages(f"{path} does not fit its schema: {error}", path=path) from error


def _apply_metadata_schema(message: dict[str, Any], schema: Schema, path: str) -> None:
    metadata = _call(schema, message.get("metadata"), f"{path}.metadata")
    if metadata is not None or "metadata" in message:
        message["metadata"] = metadata


def _checked_data(part: dict[str, Any], schemas: Mapping[str, Schema], path: str) -> Any:
    name = part["type"].removeprefix("data-")
    if name not in schemas:
        raise InvalidMessages(f"{path}.data: no data schema found for data part {name}", path=f"{path}.data")
    return _call(schemas[name], part["data"], f"{path}.data")


def _checked_tool(
    part: dict[str, Any], tools: Mapping[str, ToolSchema], path: str, candidate: Release
) -> dict[str, Any]:
    name = tool_name(part)
    state = ToolState(part["state"])
    in_every_state = holds(candidate, "tools-checked-in-every-state")
    if name not in tools:
        if state in SETTLED and (in_every_state or state is not ToolState.OUTPUT_DENIED):
            return _unavailable(part, keep_all=in_every_state)
        raise InvalidMessages(f"{path}.input: no tool schema found for tool part {name}", path=f"{path}.input")
    tool = tools[name]
    fits = True
    if state is not ToolState.INPUT_STREAMING and (in_every_state or state in _CHECKED_EARLY):
        fits = _input_fits(part, tool.input, state, path)
    if state is ToolState.OUTPUT_AVAILABLE and tool.output is not None:
        _call(tool.output, part["output"], f"{path}.output")
    return part if fits else _unavailable(part, keep_all=in_every_state)


def _input_fits(part: dict[str, Any], schema: Schema, state: ToolState, path: str) -> bool:
    """Tell whether the input fits; raise if it does not and the call is neither failed nor done with an empty input."""
    approval = part.get("approval", {})
    if state is ToolState.OUTPUT_ERROR and "input" not in part and "inputSchemaInput" not in approval:
        return True
    try:
        value = _call(schema, approval.get("inputSchemaInput", part.get("input")), f"{path}.input")
        if "inputSchemaInput" in approval and value != part.get("input"):
            raise InvalidMessages(f"{path}.input is not what inputSchemaInput gives", path=f"{path}.input")
    except InvalidMessages:
        if state is ToolState.OUTPUT_ERROR or (state is ToolState.OUTPUT_AVAILABLE and part["input"] == {}):
            return False
        raise
    return True


def _unavailable(part: dict[str, Any], *, keep_all: bool) -> dict[str, Any]:
    """Return a finished call as one of a tool that no longer exists as it was."""
    fields = {key: value for key, value in part.items() if keep_all or key not in _LOST_WITH_THE_TOOL}
    return fields | {"type": "dynamic-tool", "toolName": tool_name(part), "dynamic": False}
