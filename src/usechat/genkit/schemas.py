"""The input of a flow by its JSON schema: which of the shapes that a chat can make fits it.

A chat has texts, Genkit's messages and a history of texts. A property with a default is not required, even if the list
of required ones names it. A schema that forbids other properties (Go structs, pydantic's ``extra="forbid"``) gets only
those that it names.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from usechat import Turn
from usechat.errors import CannotAnswer
from usechat.genkit.history import genkit_messages
from usechat.genkit.inputs import FlowInput, InputBuilder, history_input, mapped_input, messages_input, text_input

__all__ = ["input_for"]

Schema: TypeAlias = Mapping[str, Any]

_NOT_A_MESSAGE: Final = ("string", "integer", "number", "boolean", "array")


def input_for(name: str, schema: Schema) -> InputBuilder:
    """Return the builder for a flow whose input has this JSON schema.

    Raises :class:`~usechat.errors.CannotAnswer` if a chat has nothing that fits.
    """
    definitions: Schema = schema.get("$defs", {})
    alternatives = list(_alternatives(schema, definitions))
    if not schema or any(_is_text(each, definitions) for each in alternatives):
        return text_input
    for each in alternatives:
        if builder := _builder_for(each, definitions):
            return builder
    takes = ", ".join(name for each in alternatives for name in each.get("properties", ()))
    takes = takes or f"a value of type {schema.get('type')}"
    raise CannotAnswer(
        f"the flow {name} takes {takes}, which a chat does not have; name the sources with"
        f" --input KEY=text,KEY=body.FIELD, or serve GenkitChatTransport({name}, build_input=…) instead"
    )


def _builder_for(schema: Schema, definitions: Schema) -> InputBuilder | None:
    if schema.get("type") == "array":
        return _message_list if schema.get("items", {}).get("type") not in _NOT_A_MESSAGE else None
    properties: Schema = schema.get("properties", {})
    required = {name for name in schema.get("required", ()) if "default" not in properties.get(name, {})}
    # The only keys that the flow accepts; `None` if it accepts any.
    names = properties.keys() if schema.get("additionalProperties") is False else None
    if "messages" in properties and required <= {"messages"}:
        return messages_input if names is None or "resume" in names else _messages_only
    texts = {name: value for name, value in properties.items() if _is_text(value, definitions)}
    if "message" in texts and required <= {"message", "conversationHistory"}:
        return history_input if names is None or "conversationHistory" in names else mapped_input({"message": "text"})
    key = _key_of_text(texts, required)
    return None if key is None else mapped_input({key: "text"})


def _key_of_text(texts: Schema, required: set[str]) -> str | None:
    """Return the property that gets the text: the only required one, or else the only one without a default."""
    if required:
        return next(iter(required)) if len(required) == 1 and required <= texts.keys() else None
    without_default = [name for name, value in texts.items() if "default" not in value]
    for names in (without_default, list(texts)):
        if len(names) == 1:
            return names[0]
    return None


def _is_text(schema: Schema, definitions: Schema) -> bool:
    """Tell whether a text fits a schema. One without a type accepts anything."""
    kinds = [
        each.get("type", "" if each.keys() & {"properties", "$ref"} else "string")
        for each in _alternatives(schema, definitions)
    ]
    return any(kind == "string" or (isinstance(kind, list) and "string" in kind) for kind in kinds)


def _alternatives(schema: Schema, definitions: Schema) -> Iterator[Schema]:
    """Yield the alternatives of a schema, such as those of an optional value."""
    for each in schema.get("anyOf", (schema,)):
        yield definitions.get(str(each.get("$ref")).rpartition("/")[2], each)


def _messages_only(turn: Turn) -> FlowInput:
    """Return ``{messages}`` for a flow that takes no ``resume``: answered calls are in the messages, with outputs."""
    return FlowInput({"messages": genkit_messages(turn.messages)})


def _message_list(turn: Turn) -> FlowInput:
    return FlowInput(genkit_messages(turn.messages))
