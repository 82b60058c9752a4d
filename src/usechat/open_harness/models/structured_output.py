"""Structured output: the JSON schema of an agent's answer, and whether an answer follows it.

Model providers take the schema of an object alone: no ``anyOf`` at the root, no array, no reference that leads in a
circle. So they get :func:`provider_schema`, in which any other root stands below the key ``value``, references are
replaced by what they refer to, and one that leads in a circle by "anything". Answers are validated by the schema as the
flow has it, by the draft that its ``$schema`` names; without one by the draft 2020-12.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from usechat.errors import MissingDependency

__all__ = ["provider_schema", "provider_value", "schema_problem", "value_problems"]

_VALUE: Final = "value"
"""The key of the answer in an object that only exists because providers want one."""
_DEFINITIONS: Final = ("$defs", "definitions")
_BY_NAME: Final = (*_DEFINITIONS, "properties", "patternProperties", "dependentSchemas", "dependencies")
"""The keywords whose value has a schema for each name."""
_DATA: Final = ("const", "default", "enum", "examples")
"""The keywords whose value is no schema."""
_ANCHORS: Final = ("$anchor", "$id", "id")
"""The keywords that name a part of a schema; those of older drafts have the ``#`` of a reference to it."""
_NOT_AT_THE_ROOT: Final = ("$ref", "allOf", "anyOf", "const", "enum", "not", "oneOf")
"""What providers refuse at the root of a schema."""


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Return why a mapping cannot be used as a schema, or ``None``."""
    try:
        from jsonschema import SchemaError  # type: ignore[import-untyped]  # it has no types
    except ImportError:
        raise MissingDependency("jsonschema", "open-harness") from None
    try:
        _validator_class(schema).check_schema(schema)
    except SchemaError as error:
        return f"is not a JSON schema: {error.message}"
    try:
        provider_schema(schema)
    except LookupError as error:
        return f"has the reference {error.args[0]!r}, which leads to nothing within the schema"
    return None


def value_problems(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return where a value does not follow a schema without problems, and why."""
    from referencing import Registry

    # An empty registry: without one, jsonschema would fetch what a reference names.
    validator = _validator_class(schema)(schema, registry=Registry())
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


def _validator_class(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]  # it has no types

    is_named = isinstance(schema.get("$schema"), str)
    return validator_for(schema, default=Draft202012Validator) if is_named else Draft202012Validator


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
    others = {key: _inlined_keyword(key, value, root, within) for key, value in part.items() if key != "$ref"}
    reference = part.get("$ref")
    if not isinstance(reference, str):
        return others
    target = {} if reference in within else _inlined(_at(root, reference), root, (*within, reference))
    return {**target, **others} if isinstance(target, Mapping) else target


def _inlined_keyword(key: str, value: Any, root: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    if key in _DATA:
        return value
    if key in _BY_NAME and isinstance(value, Mapping):
        return {name: _inlined(each, root, within) for name, each in value.items()}
    return _inlined(value, root, within)


def _at(root: Mapping[str, Any], reference: str) -> Any:
    """Return what a reference such as ``#/$defs/task`` or ``#task`` leads to."""
    document, _, fragment = reference.partition("#")
    if document not in ("", str(root.get("$id", "")).removesuffix("#")):
        raise LookupError(reference)
    if fragment and not fragment.startswith("/"):
        return _named(root, fragment, reference)
    value: Any = root
    for step in unquote(fragment).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list | tuple) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            raise LookupError(reference)
    return value


def _named(root: Mapping[str, Any], name: str, reference: str) -> Any:
    """Return the part of a schema that has a name: an ``$anchor``, or the id of older drafts."""
    for part in _objects_in(root):
        if any(part.get(key) == (name if key == "$anchor" else f"#{name}") for key in _ANCHORS):
            return part
    raise LookupError(reference)


def _objects_in(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
        value = list(value.values())
    for each in value if isinstance(value, list | tuple) else ():
        yield from _objects_in(each)
