"""Is this history one that the AI SDK would take? The mirror of ``validateUIMessages``."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, cast

from usechat.dialects import Release, holds, release
from usechat.errors import InvalidMessages, LocalProtocolError
from usechat.machine import SETTLED, ToolState
from usechat.message_shapes import clean_message
from usechat.ui_messages import UIMessage, is_static_tool
from usechat.values import json_kind

__all__ = ["Schema", "ToolSchema", "validate_messages"]

Schema: TypeAlias = Callable[[Any], Any]
"""Returns the value as it should be, or raises ValueError or TypeError (as pydantic's ``validate_python`` does)."""


class ToolSchema(NamedTuple):
    """What a tool takes, and what it gives if that is to be checked too."""

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
    """Return the messages without unknown keys, or raise InvalidMessages with the offending ``path``.

    Schemas are optional; given ``tools`` or ``data_schemas`` (by the name after ``data-``) must name every tool with a
    pending call and all data. A finished call of an unknown tool, or one whose input no longer fits, becomes a
    ``dynamic-tool`` part. Shapes are those of the release, the rules for schemas those of its major's newest.
    """
    candidate = release(sdk)
    _check_schemas(tools or {}, data_schemas or {}, metadata_schema)
    if not isinstance(messages, list) or not messages:
        found = "an empty array" if messages == [] else json_kind(messages)
        raise InvalidMessages(f"messages must be an array with at least one message, not {found}")
    cleaned = [clean_message(message, f"messages[{index}]", candidate) for index, message in enumerate(messages)]
    for index, message in enumerate(cleaned):
        path = f"messages[{index}]"
        if metadata_schema is not None:
            _apply_metadata_schema(message, metadata_schema, path)
        for position, part in enumerate(message["parts"]):
            part_path = f"{path}.parts[{position}]"
            if data_schemas is not None and part["type"].startswith("data-"):
                part["data"] = _checked_data(part, data_schemas, part_path)
            if tools is not None and is_static_tool(part["type"]):
                message["parts"][position] = _checked_tool(part, tools, part_path, candidate)
    return cast("list[UIMessage]", cleaned)


def _check_schemas(tools: Mapping[str, Any], data_schemas: Mapping[str, Any], metadata_schema: Any) -> None:
    """Complain about the caller's schemas before any message is blamed."""
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
    name = part["type"].removeprefix("tool-")
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
    kept = {key: value for key, value in part.items() if keep_all or key not in _LOST_WITH_THE_TOOL}
    return kept | {"type": "dynamic-tool", "toolName": part["type"].removeprefix("tool-"), "dynamic": False}
