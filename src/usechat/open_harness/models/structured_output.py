"""Structured output: the JSON schema of an agent's answer, and whether an answer follows it.

Model providers take the schema of an object alone: no ``anyOf`` at the root, no array, no reference that leads in a
circle. So they get :func:`provider_schema`, in which any other root stands below the key ``value``, references are
replaced by what they refer to, and one that leads in a circle by "anything". Answers are validated by the schema as the
flow has it.
"""

from collections.abc import Mapping
from typing import Any, Final

from usechat.errors import MissingDependency

__all__ = ["provider_schema", "provider_value", "schema_problem", "value_problems"]

_VALUE: Final = "value"
"""The key of the answer in an object that only exists because providers want one."""
_DEFINITIONS: Final = ("$defs", "definitions")
_NOT_AT_THE_ROOT: Final = ("$ref", "allOf", "anyOf", "const", "enum", "not", "oneOf")
"""What providers refuse at the root of a schema."""


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Return why a mapping cannot be used as a schema, or ``None``."""
    try:
        from jsonschema import Draft202012Validator, SchemaError  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        raise MissingDependency("jsonschema", "open-harness") from None
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"is not a JSON schema: {error.message}"
    try:
        provider_schema(schema)
    except LookupError as error:
        return f"has the reference {error.args[0]!r}, which leads to nothing within the schema"
    return None


def value_problems(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return where a value does not follow a schema without problems, and why."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    # An empty registry: without one, jsonschema would fetch what a reference names.
    validator = Draft202012Validator(schema, registry=Registry())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def provider_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object for a provider. Raises LookupError with a reference that leads to nothing."""
    inlined: dict[str, Any] = _inlined({key: schema[key] for key in schema if key not in _DEFINITIONS}, schema, ("#",))
    if _is_object(schema):
        return inlined
    return {"type": "object", "properties": {_VALUE: inlined}, "required": [_VALUE]}


def provider_value(schema: Mapping[str, Any], answer: Any) -> Any:
    """Return the value of an answer that a provider gave for :func:`provider_schema`."""
    if _is_object(schema) or not isinstance(answer, Mapping):
        return answer
    return answer.get(_VALUE)


def _is_object(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" and not any(key in schema for key in _NOT_AT_THE_ROOT)


def _inlined(part: Any, root: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    """Return a part of a schema without references; ``within`` are those that lead to the part."""
    if isinstance(part, list | tuple):
        return [_inlined(each, root, within) for each in part]
    if not isinstance(part, Mapping):
        return part
    reference = part.get("$ref")
    if not isinstance(reference, str):
        return {key: _inlined(each, root, within) for key, each in part.items()}
    target = {} if reference in within else _inlined(_at(root, reference), root, (*within, reference))
    others = {key: _inlined(each, root, within) for key, each in part.items() if key != "$ref"}
    return {**target, **others} if isinstance(target, Mapping) else target


def _at(root: Mapping[str, Any], reference: str) -> Any:
    """Return what a reference such as ``#/$defs/task`` leads to."""
    found: Any = root
    start, *steps = reference.split("/")
    for step in steps:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and key in found:
            found = found[key]
        elif isinstance(found, list | tuple) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            raise LookupError(reference)
    if start != "#":
        raise LookupError(reference)
    return found
