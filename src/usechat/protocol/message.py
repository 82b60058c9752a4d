"""Build the message from its chunks, as the AI SDK's own reader does, for every release of 5, 6 and 7.

``MessageBuilder`` is the mirror of ``MessageStream``, and of ``processUIMessageStream`` in the npm package ``ai``. What
the page would show after each chunk is what :attr:`MessageBuilder.message` holds; what would make the page fail raises,
with the text that the page would show. So what was streamed is what is stored, and a stream can be judged without a
browser.

Readers differ from release to release: whether a block outlives its step, which part a tool chunk is about, which keys
an update replaces. Every difference is a row of ``READER`` in :mod:`~usechat.protocol.releases`, asked with ``_reads``.
Tool parts are built in :mod:`~usechat.protocol.tool_parts`.

Long messages take linear time: text and tool input are collected in pieces, and joined or parsed when somebody looks.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeAlias, cast

import msgspec

from usechat.errors import LocalProtocolError, StreamFailed, UIMessageStreamError, UnknownChunkType
from usechat.protocol import chunks
from usechat.protocol.chunks import CHUNK_TYPES, Chunk, type_of
from usechat.protocol.releases import Release, reads, release, releases_for
from usechat.protocol.states import BLOCK_TRANSITIONS, BlockState, missing_prerequisite
from usechat.protocol.tool_parts import Part, PartList, TextBuffer, ToolParts
from usechat.protocol.ui_messages import UIMessage
from usechat.protocol.values import json_kind, json_text, plain_json

__all__ = [
    "MessageBuilder",
    "merge_metadata",
]


_PROTOTYPE_KEYS: Final = frozenset({"__proto__", "constructor", "prototype"})
_ARRAY_INDEX_LIMIT: Final = 2**32 - 1


def merge_metadata(base: Any, override: Any, release: Release) -> Any:
    """Return ``base`` with ``override`` merged into it, as this release's client stores it.

    Use objects: other values follow JavaScript's rules (arrays and texts become objects by index), and a text, number
    or boolean cannot be merged into; that raises TypeError with JavaScript's own words.
    """
    changes = _members(override)
    if reads(release, "metadata-skips-prototype-keys"):
        changes = {key: item for key, item in changes.items() if key not in _PROTOTYPE_KEYS}
    if changes and not isinstance(base, dict | list):
        text = base if isinstance(base, str) else json_text(base)
        raise TypeError(f"Cannot use 'in' operator to search for '{_first(changes)}' in {text}")
    merged = dict(_members(base))
    for key, item in changes.items():
        current = merged.get(key)
        both_objects = isinstance(current, dict) and isinstance(item, dict)
        merged[key] = merge_metadata(current, item, release) if both_objects else item
    return merged


def _members(value: Any) -> dict[str, Any]:
    """Return what ``{...value}`` gives in JavaScript, where a text is a list of UTF-16 units."""
    if isinstance(value, dict):
        return value
    if isinstance(value, str):
        units = value.encode("utf-16-le", "surrogatepass")
        value = [units[index : index + 2].decode("utf-16-le", "surrogatepass") for index in range(0, len(units), 2)]
    return {str(index): item for index, item in enumerate(value)} if isinstance(value, list) else {}


def _first(members: dict[str, Any]) -> str:
    """Return the key that JavaScript visits first: the smallest array index, else the one written first."""
    indexes = [key for key in members if len(key) <= 10 and key.isdecimal() and key == str(int(key))]
    indexes = [key for key in indexes if int(key) < _ARRAY_INDEX_LIMIT]
    return min(indexes, key=int, default=next(iter(members)))


# Blocks, by type and id

_BLOCK_TYPES: Final[Mapping[type[Chunk], str]] = {
    chunks.TextStartChunk: "text",
    chunks.TextDeltaChunk: "text",
    chunks.TextEndChunk: "text",
    chunks.ReasoningStartChunk: "reasoning",
    chunks.ReasoningDeltaChunk: "reasoning",
    chunks.ReasoningEndChunk: "reasoning",
}
_Key: TypeAlias = tuple[str, str]
"""The type of a block and its id."""

_WHILE_OPEN: Final = BLOCK_TRANSITIONS[BlockState.OPEN]
_WHILE_CLOSED: Final = BLOCK_TRANSITIONS[BlockState.CLOSED]


class _GrowingText:
    """An open text or reasoning part of the message, and the pieces of its text."""

    __slots__ = ("buffer", "part")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.buffer = TextBuffer()

    def catch_up(self) -> None:
        self.part["text"] = self.buffer.text()


class MessageBuilder:
    """Build one assistant message from its chunks, as the client of one release does.

    >>> from usechat import MessageStream
    >>> from usechat.parts import Text
    >>> stream, builder = MessageStream(message_id="m1", sdk="7"), MessageBuilder(sdk="7")
    >>> for chunk in [*stream.send(Text("Hello")), *stream.close()]:
    ...     builder.receive(chunk)
    >>> builder.message["parts"]
    [{'type': 'step-start'}, {'type': 'text', 'text': 'Hello', 'state': 'done'}]
    >>> builder.finish_reason
    'stop'

    :param sdk: the client: a major such as ``"6"`` (its newest release), or one release such as ``"6.0.150"``.
    :param message_id: the id of a new message until a ``start`` chunk names it.
    :param message: the assistant message that the stream continues. It is copied. One of another role is not continued.
    :raises UnknownRelease: if ``sdk`` names no release.
    :raises LocalProtocolError: if ``message`` is no message.

    Values that are not JSON are converted as ``docs/values.md`` says. An instance is for one message and one
    thread.
    """

    def __init__(self, *, sdk: str = "7", message_id: str = "", message: UIMessage | None = None) -> None:
        self._release = release(sdk)
        self._releases = releases_for(str(self._release))
        self._unknown_chunks = _unknown_chunks(self._release)
        continued = None if message is None else _continued(message)
        new: Mapping[str, Any] = {"id": message_id, "role": "assistant", "parts": []}
        base = new if continued is None else continued
        self._fields = {key: plain_json(value) for key, value in base.items() if key != "parts"}
        self._parts = PartList([{key: plain_json(value) for key, value in part.items()} for part in base["parts"]])
        self._tools = ToolParts(self._release, self._parts)
        self._blocks: dict[_Key, _GrowingText] = {}
        self._continues = continued is not None
        self._updates = 0
        self._finish_reason: str | None = None

    def receive(self, chunk: Chunk) -> None:
        """Apply one chunk; an exception is where the client stops reading.

        Raises UIMessageStreamError for a chunk without its prerequisite, StreamFailed for an ``error`` chunk, and
        UnknownChunkType for a chunk this release does not know.
        """
        if type(chunk) in self._unknown_chunks:
            raise UnknownChunkType(
                f"AI SDK {self._release} does not know the chunk type {type_of(chunk)!r}",
                chunk_type=type_of(chunk),
                path="$.type",
            )
        handler = self._HANDLERS.get(type(chunk))
        if handler is None:
            raise LocalProtocolError(
                f"receive() takes a chunk, not {type(chunk).__name__}; "
                "ChunkDecoder turns the bytes of a stream into chunks"
            )
        if handler(self, self._as_read(chunk)):
            self._updates += 1

    @property
    def message(self) -> UIMessage:
        """The message so far: a fresh copy in plain JSON values."""
        return cast("UIMessage", msgspec.to_builtins(self.view()))

    def view(self) -> UIMessage:
        """Return the message so far without a copy of its parts, which change with the next chunk: only look at it."""
        self._catch_up()
        return cast("UIMessage", self._fields | {"parts": self._parts.parts})

    @property
    def finish_reason(self) -> str | None:
        """Why the model stopped, once a ``finish`` chunk said so."""
        return self._finish_reason

    @property
    def updates(self) -> int:
        """How often the client has updated the page: not for steps, transient data and a ``start`` without id."""
        return self._updates

    @property
    def shown(self) -> bool:
        """Whether the page shows the message at all."""
        return self._continues or self._updates > 0

    def tool_parts(self) -> list[Part]:
        """Return the tool parts themselves: a client that answers a call before the stream ends changes them."""
        self._catch_up()
        return list(self._parts.tools())

    def forget(self) -> None:
        """Drop the content of the message, but nothing that reading on needs: open blocks and tool calls stay.

        A reader that wants to know whether a long stream is legal stays small this way. :attr:`message` is incomplete
        afterwards.
        """
        for block in self._blocks.values():
            block.buffer = TextBuffer()
            block.catch_up()
        self._tools.catch_up()
        self._parts.forget()
        self._tools.forget()
        if isinstance(self._fields.get("metadata"), dict):
            self._fields["metadata"] = {}

    def _reads(self, behaviour: str) -> bool:
        return reads(self._release, behaviour)

    def _as_read(self, chunk: Chunk) -> Chunk:
        """Return the chunk without the fields that this release does not look at."""
        unknown = self._releases.unknown_fields(chunk)
        return msgspec.structs.replace(chunk, **{field.name: field.default for field in unknown}) if unknown else chunk

    def _catch_up(self) -> None:
        for block in self._blocks.values():
            block.catch_up()
        self._tools.catch_up()

    # Each handler applies one kind of chunk and tells whether the client updates the page after it.

    def _block_start(self, chunk: chunks.TextStartChunk | chunks.ReasoningStartChunk) -> bool:
        # Legal while the block is closed; clients take it in any state and begin another part.
        part_type = _BLOCK_TYPES[type(chunk)]
        part: Part = {"type": part_type, "text": "", "state": "streaming"}
        if part_type == "reasoning" and self._reads("reasoning-id"):
            part["id"] = chunk.id
        self._set_provider_metadata(part, chunk.provider_metadata)
        self._parts.append(part)
        if previous := self._blocks.get((part_type, chunk.id)):
            previous.catch_up()
        self._blocks[part_type, chunk.id] = _GrowingText(part)
        return True

    def _block_delta(self, chunk: chunks.TextDeltaChunk | chunks.ReasoningDeltaChunk) -> bool:
        block = self._blocks[self._expected(chunk)]
        block.buffer.append(chunk.delta)
        self._set_provider_metadata(block.part, chunk.provider_metadata)
        return True

    def _block_end(self, chunk: chunks.TextEndChunk | chunks.ReasoningEndChunk) -> bool:
        block = self._blocks.pop(self._expected(chunk))
        block.catch_up()
        block.part["state"] = "done"
        self._set_provider_metadata(block.part, chunk.provider_metadata)
        if isinstance(chunk, chunks.TextEndChunk) and chunk.citations is not None:
            block.part["citations"] = [_citation_as_read(plain_json(citation)) for citation in chunk.citations]
        return True

    def _expected(
        self, chunk: chunks.TextDeltaChunk | chunks.TextEndChunk | chunks.ReasoningDeltaChunk | chunks.ReasoningEndChunk
    ) -> _Key:
        """Return the key of the chunk's block, if that is in a state in which the chunk is legal."""
        key = _BLOCK_TYPES[type(chunk)], chunk.id
        if type(chunk) not in (_WHILE_OPEN if key in self._blocks else _WHILE_CLOSED):
            raise missing_prerequisite(chunk, chunk.id, self._release)
        return key

    def _set_provider_metadata(self, part: Part, provider_metadata: Any) -> None:
        if provider_metadata is not None:
            part["providerMetadata"] = plain_json(provider_metadata)

    def _tool(self, chunk: Chunk) -> bool:
        self._tools.receive(chunk)
        return True

    def _content(self, chunk: Chunk) -> bool:
        """Apply a chunk that becomes a part as it is."""
        values = {field.encode_name: getattr(chunk, field.name) for field in msgspec.structs.fields(chunk)}
        if isinstance(chunk, chunks.FileChunk) and not self._reads("file-provider-metadata"):
            del values["providerMetadata"]
        part = {key: plain_json(value) for key, value in values.items() if value is not None}
        self._parts.append({"type": type_of(chunk)} | part)
        return True

    def _data(self, chunk: chunks.DataChunk) -> bool:
        if chunk.transient:
            return False
        existing = None if chunk.id is None else self._parts.data(chunk.type, chunk.id)
        if existing is None:
            options = {"id": chunk.id, "transient": chunk.transient}
            fields = {key: value for key, value in options.items() if value is not None}
            self._parts.append({"type": chunk.type, "data": plain_json(chunk.data)} | fields | plain_json(chunk.extra))
        else:
            existing["data"] = plain_json(chunk.data)
        return True

    def _start(self, chunk: chunks.StartChunk) -> bool:
        if chunk.message_id is not None:
            self._fields["id"] = chunk.message_id
        return self._merge_metadata(chunk) or chunk.message_id is not None

    def _finish(self, chunk: chunks.FinishChunk) -> bool:
        self._finish_reason = chunk.finish_reason or self._finish_reason
        return self._merge_metadata(chunk)

    def _merge_metadata(self, chunk: chunks.StartChunk | chunks.FinishChunk | chunks.MessageMetadataChunk) -> bool:
        metadata = plain_json(chunk.message_metadata)
        if metadata is None:
            return False
        if self._fields.get("metadata") is not None:
            try:
                metadata = merge_metadata(self._fields["metadata"], metadata, self._release)
            except TypeError as error:
                raise UIMessageStreamError(str(error), chunk_type=type_of(chunk)) from None
        self._fields["metadata"] = metadata
        return True

    def _start_step(self, _chunk: chunks.StartStepChunk) -> bool:
        self._parts.append({"type": "step-start"})
        return False

    def _finish_step(self, _chunk: chunks.FinishStepChunk) -> bool:
        if not self._reads("blocks-outlive-steps"):
            self._catch_up()
            self._blocks.clear()
        return False

    def _reset_step(self, _chunk: chunks.ResetStepChunk) -> bool:
        self._catch_up()
        self._blocks.clear()
        self._tools.forget_streaming()
        return self._parts.reset_step()

    def _abort(self, _chunk: chunks.AbortChunk) -> bool:
        return False

    def _error(self, chunk: chunks.ErrorChunk) -> bool:
        raise StreamFailed(chunk.error_text)

    _HANDLERS: ClassVar[Mapping[type[Chunk], Callable[["MessageBuilder", Any], bool]]] = {
        **dict.fromkeys(ToolParts.HANDLERS, _tool),
        chunks.StartChunk: _start,
        chunks.StartStepChunk: _start_step,
        chunks.FinishStepChunk: _finish_step,
        chunks.ResetStepChunk: _reset_step,
        chunks.FinishChunk: _finish,
        chunks.AbortChunk: _abort,
        chunks.ErrorChunk: _error,
        chunks.TextStartChunk: _block_start,
        chunks.TextDeltaChunk: _block_delta,
        chunks.TextEndChunk: _block_end,
        chunks.ReasoningStartChunk: _block_start,
        chunks.ReasoningDeltaChunk: _block_delta,
        chunks.ReasoningEndChunk: _block_end,
        chunks.SourceUrlChunk: _content,
        chunks.SourceDocumentChunk: _content,
        chunks.FileChunk: _content,
        chunks.ReasoningFileChunk: _content,
        chunks.CustomChunk: _content,
        chunks.SteeringMessageChunk: _content,
        chunks.MessageMetadataChunk: _merge_metadata,
        chunks.DataChunk: _data,
    }


def _continued(message: object) -> Mapping[str, Any] | None:
    """Return the message if it is the assistant's; raise LocalProtocolError if a builder cannot continue it."""
    if not isinstance(message, Mapping):
        raise LocalProtocolError(f"message must be an object with id, role and parts, not {json_kind(message)}")
    if message.get("role") != "assistant":
        return None
    parts = message.get("parts")
    if not isinstance(parts, list):
        raise LocalProtocolError(f"message.parts must be a list of parts, not {json_kind(parts)}")
    for index, part in enumerate(parts):
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            kind = "one without it" if isinstance(part, Mapping) else json_kind(part)
            raise LocalProtocolError(f"message.parts[{index}] must be an object with a string 'type', not {kind}")
    return message


_CITATION_KEYS: Final = ("source", "startIndex", "endIndex", "citedText")
_SOURCE_KEYS: Final = {
    "url": ("type", "id", "url", "title", "providerMetadata"),
    "document": ("type", "id", "mediaType", "title", "filename", "providerMetadata"),
}


def _citation_as_read(citation: Any) -> Any:
    """Return a citation without the keys that the client's schema (``citationSchema``) strips."""
    match citation:
        case {"source": {"sourceType": "url" | "document" as source_type, **source}}:
            keys = _SOURCE_KEYS[source_type]
            fields = {"sourceType": source_type, **{key: source[key] for key in keys if key in source}}
            return {key: citation[key] for key in _CITATION_KEYS if key in citation} | {"source": fields}
    return citation


@functools.lru_cache(maxsize=64)
def _unknown_chunks(candidate: Release) -> frozenset[type]:
    """Return the chunks that this release does not know."""
    knows = releases_for(str(candidate)).knows
    return frozenset(kind for chunk_type, kind in CHUNK_TYPES.items() if not knows(chunk_type))
