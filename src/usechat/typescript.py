"""TypeScript types of an agent's tools, data parts and metadata, for ``useChat<ChatMessage>()``.

`usechat types my_app:agent -o chat-types.ts` writes them. The tools of an agent are found in it if its adapter can
describe them (``tools_of`` in the adapter's module). Everything else is registered where the agent is defined, with
:func:`chat_types`. A type is a pydantic model, a dataclass, a ``msgspec.Struct``, any other type that one of these two
libraries knows, or a JSON schema.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from usechat.errors import InvalidSetting
from usechat.protocol.parts import data_name
from usechat.sources import adapters_for

__all__ = ["ChatTypes", "ToolTypes", "chat_types", "types_of", "typescript"]

Schema: TypeAlias = Mapping[str, Any]
Described: TypeAlias = Any
"""A type, or a JSON schema."""
AgentT = TypeVar("AgentT")

_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_SIMPLE: Final = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}
_SENT_METADATA: Final = """\
export type SentMetadata = {
  finishReason?: string;
  usage?: { inputTokens?: number; outputTokens?: number; totalTokens?: number } & Record<string, unknown>;
  usechat?: { pending: Array<string>; signature?: string; approvals?: Record<string, string> };
};"""
"""The metadata that usechat sends by itself: the end and the usage of an answer, and the calls that wait for the page.

The metadata of an agent may have the same keys, and replaces them."""
_registered: list[tuple[Any, "ChatTypes"]] = []


class ToolTypes(msgspec.Struct, frozen=True):
    """The types of a tool's input and output; ``None`` stands for ``unknown``.

    >>> ToolTypes(input={"type": "string"}, output=int).output
    <class 'int'>
    """

    input: Described = None
    output: Described = None


class ChatTypes(msgspec.Struct, frozen=True, kw_only=True):
    """The types of everything that an agent says.

    ``tools`` and ``data`` are by name; the name of a data part is without ``data-``. ``metadata`` is the type of the
    message metadata.

    >>> ChatTypes(data={"progress": int}).data
    {'progress': <class 'int'>}
    """

    tools: Mapping[str, ToolTypes] = {}
    data: Mapping[str, Described] = {}
    metadata: Described = None


def chat_types(
    *, tools: Mapping[str, ToolTypes] = {}, data: Sequence[type] | Mapping[str, Described] = (), metadata: Any = None
) -> Callable[[AgentT], AgentT]:
    """Register the types of an agent; use it as a decorator, or call what it returns with the agent.

    ``tools`` are by name, and ``metadata`` is the type of the message metadata. A sequence of ``data`` types names each
    part after its type, as ``emit`` does.

    >>> import dataclasses
    >>> @dataclasses.dataclass
    ... class Progress:
    ...     percent: int
    >>> @chat_types(data=[Progress])
    ... def agent(turn):
    ...     turn.emit(Progress(50))
    >>> list(types_of(agent).data)
    ['progress']
    """
    named = data if isinstance(data, Mapping) else {data_name(kind): kind for kind in data}
    types = ChatTypes(tools=tools, data=named, metadata=metadata)

    def register(agent: AgentT) -> AgentT:
        _registered.append((agent, types))
        return agent

    return register


def types_of(agent: Any) -> ChatTypes:
    """Return the types that are registered for an agent, and those of its tools as far as the agent describes them.

    >>> agent = chat_types(metadata=int)(lambda turn: "Hello!")
    >>> types_of(agent).metadata
    <class 'int'>
    """
    registrations = [types for candidate, types in _registered if candidate is agent]
    tools: dict[str, ToolTypes] = dict(_described_tools(agent))
    data: dict[str, Described] = {}
    for types in registrations:
        tools |= types.tools
        data |= types.data
    return ChatTypes(
        tools=tools, data=data, metadata=next((one.metadata for one in registrations if one.metadata), None)
    )


def _described_tools(agent: Any) -> Iterator[tuple[str, ToolTypes]]:
    """Yield the tools that the adapter of the agent's framework finds in it."""
    for adapter in adapters_for(agent):
        describe = getattr(import_module(adapter.module), "tools_of", None)
        if describe is not None:
            yield from ((name, ToolTypes(*types)) for name, *types in describe(agent))


def typescript(types: ChatTypes, *, source: str = "usechat types") -> str:
    """Return a TypeScript file that exports ``ChatMessage`` and the types that it is made of.

    ``source`` is the command that the first line names as its writer.

    Raises :class:`~usechat.errors.InvalidSetting` for a type that cannot be described.

    >>> print(typescript(ChatTypes(tools={"weather": ToolTypes({"type": "string"}, {"type": "number"})})))
    // Written by `usechat types`; run it again instead of editing this file.
    import type { UIMessage } from "ai";
    <BLANKLINE>
    export type ChatTools = {
      weather: { input: string; output: number };
    };
    <BLANKLINE>
    export type ChatData = {};
    <BLANKLINE>
    export type SentMetadata = {
      finishReason?: string;
      usage?: { inputTokens?: number; outputTokens?: number; totalTokens?: number } & Record<string, unknown>;
      usechat?: { pending: Array<string>; signature?: string; approvals?: Record<string, string> };
    };
    <BLANKLINE>
    export type ChatMetadata = SentMetadata;
    <BLANKLINE>
    export type ChatMessage = UIMessage<ChatMetadata, ChatData, ChatTools>;
    <BLANKLINE>
    """
    writer = _TypeWriter()
    tools = {
        name: f"{{ input: {writer.type(tool.input, f'the input of {name}')};"
        f" output: {writer.type(tool.output, f'the output of {name}', is_sent=True)} }}"
        for name, tool in types.tools.items()
    }
    data = {name: writer.type(kind, f"data-{name}", is_sent=True) for name, kind in types.data.items()}
    own = writer.type(types.metadata, "the metadata", is_sent=True)
    has_own = types.metadata is not None
    metadata = "Omit<SentMetadata, keyof AgentMetadata> & AgentMetadata" if has_own else "SentMetadata"
    blocks = [
        f'// Written by `{source}`; run it again instead of editing this file.\nimport type {{ UIMessage }} from "ai";',
        *(f"export type {name} = {text};" for name, text in writer.named.items()),
        f"export type ChatTools = {_object(tools)};",
        f"export type ChatData = {_object(data)};",
        _SENT_METADATA,
        *([f"export type AgentMetadata = {own};"] if has_own else []),
        f"export type ChatMetadata = {metadata};",
        "export type ChatMessage = UIMessage<ChatMetadata, ChatData, ChatTools>;",
    ]
    return "\n\n".join(blocks) + "\n"


def _object(fields: Mapping[str, str]) -> str:
    lines = [f"  {_key(name)}: {text};" for name, text in fields.items()]
    return "\n".join(["{", *lines, "}"]) if lines else "{}"


def _key(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else json.dumps(name)


_RESERVED: Final = frozenset(
    {"AgentMetadata", "Array", "ChatData", "ChatMessage", "ChatMetadata", "ChatTools"}
    | {"Omit", "Record", "SentMetadata", "UIMessage"}
)
"""The names that every generated file defines or uses itself."""


class _TypeWriter:
    """Turns types into TypeScript; ``named`` are those that others refer to, such as recursive ones."""

    def __init__(self) -> None:
        self.named: dict[str, str] = {}
        self._sources: dict[str, tuple[str, bool]] = {}

    def type(self, described: Described, place: str, *, is_sent: bool = False) -> str:
        """Return the TypeScript of a type; one that is sent has all its fields."""
        if described is None:
            return "unknown"
        schema, has_all_fields = _schema_of(described, place, is_sent=is_sent)
        return _Document(self, schema, has_all_fields).text(schema)

    def name_for(self, title: str, schema: Any, *, has_all_fields: bool) -> tuple[str, bool]:
        """Return a name for a definition, and whether it is new: two of one name that differ get two."""
        base = "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", title)) or "Type"
        text = json.dumps(schema, sort_keys=True)
        source = (text, has_all_fields and ('"properties"' in text or '"$ref"' in text))
        number = 1
        while (name := base if number == 1 else f"{base}{number}") in self._sources or name in _RESERVED:
            if self._sources.get(name) == source:
                return name, False
            number += 1
        self._sources[name] = source
        return name, True


def _schema_of(described: Described, place: str, *, is_sent: bool) -> tuple[Schema, bool]:
    """Return a type's JSON schema, and whether every field is there although a default makes it optional."""
    if isinstance(described, Mapping):
        return described, False
    try:
        if _is_pydantic(described):
            return _pydantic_schema(described, is_sent=is_sent), is_sent
        omits = getattr(getattr(described, "__struct_config__", None), "omit_defaults", False)
        hook = functools.partial(_pydantic_schema, is_sent=is_sent)
        return msgspec.json.schema(described, schema_hook=hook), is_sent and not omits
    except Exception as error:  # libraries raise any error for a type that they cannot describe
        raise InvalidSetting(f"{place} cannot be described: {error}") from error


def _pydantic_schema(kind: Any, *, is_sent: bool) -> dict[str, Any]:
    """Return the JSON schema of a pydantic type; msgspec asks for those in its own types."""
    if not _is_pydantic(kind):
        raise TypeError(f"neither msgspec nor pydantic knows {kind}")
    from pydantic import TypeAdapter

    mode: Literal["serialization", "validation"] = "serialization" if is_sent else "validation"
    return TypeAdapter(kind).json_schema(mode=mode)


def _is_pydantic(kind: Any) -> bool:
    return hasattr(kind, "__pydantic_core_schema__") or hasattr(kind, "__pydantic_fields__")


class _Document:
    """One JSON schema with its definitions."""

    def __init__(self, writer: _TypeWriter, root: Schema, has_all_fields: bool) -> None:
        self._writer = writer
        self._root = root
        self._definitions: Mapping[str, Any] = root.get("$defs") or root.get("definitions") or {}
        self._has_all_fields = has_all_fields

    def text(self, schema: Any) -> str:
        """Return the TypeScript of a part of the schema."""
        if not isinstance(schema, Mapping):
            return "never" if schema is False else "unknown"
        if "$defs" in schema and schema is not self._root:  # a pydantic type in one of msgspec
            inner = {**schema, "$defs": {**self._definitions, **schema["$defs"]}}
            return _Document(self._writer, inner, self._has_all_fields).text(inner)
        if "$ref" in schema:
            return self._reference(str(schema["$ref"]).rpartition("/")[2])
        if "const" in schema:
            return json.dumps(schema["const"])
        if "enum" in schema:
            return _union(map(json.dumps, schema["enum"]))
        for key, join in {"anyOf": _union, "oneOf": _union, "allOf": _intersection}.items():
            if key in schema:
                return join(map(self.text, schema[key]))
        return self._by_type(schema)

    def _by_type(self, schema: Schema) -> str:
        kind = schema.get("type")
        if isinstance(kind, list):
            return _union(self._by_type({**schema, "type": one}) for one in kind)
        if kind == "array":
            return self._array(schema)
        if kind == "object" or "properties" in schema:
            return self._fields(schema)
        return _SIMPLE.get(str(kind), "unknown")

    def _array(self, schema: Schema) -> str:
        if "prefixItems" in schema:
            return f"[{', '.join(map(self.text, schema['prefixItems']))}]"
        item = self.text(schema.get("items", {}))
        return f"Array<{item}>"

    def _fields(self, schema: Schema) -> str:
        required = schema.get("properties", {}) if self._has_all_fields else schema.get("required", ())
        fields = [
            f"{_key(name)}{'' if name in required else '?'}: {self.text(field)}"
            for name, field in schema.get("properties", {}).items()
        ]
        others = schema.get("additionalProperties")
        if not fields:
            return f"Record<string, {self.text({} if others is None or others is True else others)}>"
        object_type = f"{{ {'; '.join(fields)} }}"
        return object_type if not others or others is True else f"{object_type} & Record<string, unknown>"

    def _reference(self, key: str) -> str:
        schema = self._definitions.get(key, {})
        name, is_new = self._writer.name_for(key, schema, has_all_fields=self._has_all_fields)
        if is_new:
            self._writer.named[name] = "unknown"  # its place, before what it refers to
            self._writer.named[name] = self.text(schema)
        return name


def _union(texts: Any) -> str:
    return " | ".join(dict.fromkeys(texts)) or "never"


def _intersection(texts: Any) -> str:
    return " & ".join(f"({text})" if " | " in text else text for text in dict.fromkeys(texts)) or "unknown"
