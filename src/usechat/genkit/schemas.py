"""Which input a flow wants, as its JSON schema tells."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from usechat.errors import LocalProtocolError
from usechat.genkit.inputs import FlowInput, InputBuilder, history_input, messages_input, text_input
from usechat.turn import Turn

__all__ = ["input_for"]

Schema: TypeAlias = Mapping[str, Any]

_NO_MESSAGE: Final = ("string", "integer", "number", "boolean", "array")


def input_for(name: str, schema: Schema) -> InputBuilder:
    """Return the builder for a flow whose input has this schema."""
    kinds = list(_kinds(schema, schema.get("$defs", {})))
    if not schema or any(kind.get("type") == "string" for kind in kinds):
        return text_input
    for kind in kinds:
        if builder := _builder_for(kind):
            return builder
    takes = ", ".join(name for kind in kinds for name in kind.get("properties", ()))
    takes = takes or f"a value of type {schema.get('type')}"
    raise LocalProtocolError(
        f"the flow {name} takes {takes}, which a chat does not have;"
        f" serve GenkitChatTransport({name}, build_input=…) instead"
    )


def _builder_for(schema: Schema) -> InputBuilder | None:
    properties: Schema = schema.get("properties", {})
    if schema.get("type") == "array" and schema.get("items", {}).get("type") not in _NO_MESSAGE:
        return _message_list
    if "messages" in properties:
        return messages_input
    if "message" in properties:
        return history_input
    texts = [
        key for key, value in properties.items() if any(kind.get("type") == "string" for kind in _kinds(value, {}))
    ]
    if len(texts) == 1 and set(schema.get("required", ())) <= set(texts):
        return lambda turn: FlowInput({texts[0]: text_input(turn).data})
    return None


def _kinds(schema: Schema, definitions: Schema) -> Iterator[Schema]:
    """Yield the alternatives of a schema, such as those of an optional value."""
    for kind in schema.get("anyOf", (schema,)):
        yield definitions.get(str(kind.get("$ref")).rpartition("/")[2], kind)


def _message_list(turn: Turn) -> FlowInput:
    return FlowInput(messages_input(turn).data["messages"])
