"""Chunks in, the message out: the mirror of the AI SDK's own reader, for every release of 5, 6 and 7.

What the page would show after each chunk is what :attr:`MessageBuilder.message` holds; what would make the page fail
raises, with the text that the page would get.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeAlias, cast

import msgspec

from usechat import chunks
from usechat.chunks import CHUNK_TYPES, Chunk, type_of
from usechat.dialects import Release, dialect, reads, release
from usechat.errors import LocalProtocolError, StreamFailed, UIMessageStreamError, UnknownChunkType
from usechat.machine import BLOCK_TRANSITIONS, BlockState
from usechat.metadata import merge_metadata
from usechat.part_list import Part, PartList
from usechat.plain_json import plain_json
from usechat.prerequisites import missing_prerequisite
from usechat.text_buffer import TextBuffer
from usechat.tool_parts import ToolParts
from usechat.ui_messages import UIMessage
from usechat.values import json_kind

__all__ = ["MessageBuilder"]

_BLOCK_TYPES: Final[Mapping[type[Chunk], str]] = {
    chunks.TextStart: "text",
    chunks.TextDelta: "text",
    chunks.TextEnd: "text",
    chunks.ReasoningStart: "reasoning",
    chunks.ReasoningDelta: "reasoning",
    chunks.ReasoningEnd: "reasoning",
}
_Key: TypeAlias = tuple[str, str]
"""The type of a block and its id."""

_WHILE_OPEN: Final = BLOCK_TRANSITIONS[BlockState.OPEN]
_WHILE_CLOSED: Final = BLOCK_TRANSITIONS[BlockState.CLOSED]


class _Block:
    """An open text or reasoning part."""

    __slots__ = ("buffer", "part")

    def __init__(self, part: Part) -> None:
        self.part = part
        self.buffer = TextBuffer()

    def catch_up(self) -> None:
        self.part["text"] = self.buffer.text()


class MessageBuilder:
    """Builds one assistant message from its chunks, as the client of ``sdk`` does (a major or one release).

    ``message`` is the assistant message that the stream continues; it is copied. One of another role is not continued.
    A new message bears ``message_id`` until a ``start`` chunk names it. Values that are no JSON are converted as
    :mod:`usechat.values` says.
    """

    def __init__(self, *, sdk: str = "7", message_id: str = "", message: UIMessage | None = None) -> None:
        self._release = release(sdk)
        self._dialect = dialect(str(self._release))
        self._unknown_chunks = _unknown_chunks(self._release)
        continued = None if message is None else _continued(message)
        new: Mapping[str, Any] = {"id": message_id, "role": "assistant", "parts": []}
        base = new if continued is None else continued
        self._fields = {key: plain_json(value) for key, value in base.items() if key != "parts"}
        self._parts = PartList([{key: plain_json(value) for key, value in part.items()} for part in base["parts"]])
        self._tools = ToolParts(self._release, self._parts)
        self._blocks: dict[_Key, _Block] = {}
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
                f"receive() takes a chunk of usechat.chunks, not {type(chunk).__name__}; "
                "chunk_from_json makes one of a JSON object, ChunkDecoder of bytes"
            )
        if handler(self, self._as_read(chunk)):
            self._updates += 1

    @property
    def message(self) -> UIMessage:
        """The message so far: a fresh copy in plain JSON values."""
        self._catch_up()
        return cast("UIMessage", msgspec.to_builtins(self._fields | {"parts": self._parts.parts}))

    @property
    def finish_reason(self) -> str | None:
        """Why the model stopped, once a ``finish`` chunk said so."""
        return self._finish_reason

    @property
    def updates(self) -> int:
        """How often the client has told the page of a change: not at steps, transient data and a bare ``start``."""
        return self._updates

    @property
    def shown(self) -> bool:
        """Whether the page shows the message at all."""
        return self._continues or self._updates > 0

    def _reads(self, behaviour: str) -> bool:
        return reads(self._release, behaviour)

    def _as_read(self, chunk: Chunk) -> Chunk:
        """Return the chunk without the fields that this release does not look at."""
        unknown = self._dialect.unknown_fields(chunk)
        return msgspec.structs.replace(chunk, **{field.name: field.default for field in unknown}) if unknown else chunk

    def _catch_up(self) -> None:
        for block in self._blocks.values():
            block.catch_up()
        self._tools.catch_up()

    # Each handler applies one kind of chunk and tells whether the client updates the page after it.

    def _block_start(self, chunk: chunks.TextStart | chunks.ReasoningStart) -> bool:
        # Legal while the block is closed; clients take it in any state and begin another part.
        part_type = _BLOCK_TYPES[type(chunk)]
        part: Part = {"type": part_type, "text": "", "state": "streaming"}
        if part_type == "reasoning" and self._reads("reasoning-id"):
            part["id"] = chunk.id
        self._set_provider_metadata(part, chunk.provider_metadata)
        self._parts.append(part)
        if previous := self._blocks.get((part_type, chunk.id)):
            previous.catch_up()
        self._blocks[part_type, chunk.id] = _Block(part)
        return True

    def _block_delta(self, chunk: chunks.TextDelta | chunks.ReasoningDelta) -> bool:
        block = self._blocks[self._expected(chunk)]
        block.buffer.append(chunk.delta)
        self._set_provider_metadata(block.part, chunk.provider_metadata)
        return True

    def _block_end(self, chunk: chunks.TextEnd | chunks.ReasoningEnd) -> bool:
        block = self._blocks.pop(self._expected(chunk))
        block.catch_up()
        block.part["state"] = "done"
        self._set_provider_metadata(block.part, chunk.provider_metadata)
        if isinstance(chunk, chunks.TextEnd) and chunk.citations is not None:
            block.part["citations"] = plain_json(chunk.citations)
        return True

    def _expected(self, chunk: chunks.TextDelta | chunks.TextEnd | chunks.ReasoningDelta | chunks.ReasoningEnd) -> _Key:
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
        if isinstance(chunk, chunks.File) and not self._reads("file-provider-metadata"):
            del values["providerMetadata"]
        part = {key: plain_json(value) for key, value in values.items() if value is not None}
        self._parts.append({"type": type_of(chunk)} | part)
        return True

    def _data(self, chunk: chunks.Data) -> bool:
        if chunk.transient:
            return False
        existing = None if chunk.id is None else self._parts.data(chunk.type, chunk.id)
        if existing is None:
            options = {"id": chunk.id, "transient": chunk.transient}
            given = {key: value for key, value in options.items() if value is not None}
            self._parts.append({"type": chunk.type, "data": plain_json(chunk.data)} | given | plain_json(chunk.extra))
        else:
            existing["data"] = plain_json(chunk.data)
        return True

    def _start(self, chunk: chunks.Start) -> bool:
        if chunk.message_id is not None:
            self._fields["id"] = chunk.message_id
        return self._merge_metadata(chunk) or chunk.message_id is not None

    def _finish(self, chunk: chunks.Finish) -> bool:
        self._finish_reason = chunk.finish_reason or self._finish_reason
        return self._merge_metadata(chunk)

    def _merge_metadata(self, chunk: chunks.Start | chunks.Finish | chunks.MessageMetadata) -> bool:
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

    def _start_step(self, _chunk: chunks.StartStep) -> bool:
        self._parts.append({"type": "step-start"})
        return False

    def _finish_step(self, _chunk: chunks.FinishStep) -> bool:
        if not self._reads("blocks-outlive-steps"):
            self._catch_up()
            self._blocks.clear()
        return False

    def _reset_step(self, _chunk: chunks.ResetStep) -> bool:
        self._catch_up()
        self._blocks.clear()
        self._tools.forget_streaming()
        return self._parts.reset_step()

    def _abort(self, _chunk: chunks.Abort) -> bool:
        return False

    def _error(self, chunk: chunks.Error) -> bool:
        raise StreamFailed(chunk.error_text)

    _HANDLERS: ClassVar[Mapping[type[Chunk], Callable[["MessageBuilder", Any], bool]]] = {
        **dict.fromkeys(ToolParts.HANDLERS, _tool),
        chunks.Start: _start,
        chunks.StartStep: _start_step,
        chunks.FinishStep: _finish_step,
        chunks.ResetStep: _reset_step,
        chunks.Finish: _finish,
        chunks.Abort: _abort,
        chunks.Error: _error,
        chunks.TextStart: _block_start,
        chunks.TextDelta: _block_delta,
        chunks.TextEnd: _block_end,
        chunks.ReasoningStart: _block_start,
        chunks.ReasoningDelta: _block_delta,
        chunks.ReasoningEnd: _block_end,
        chunks.SourceUrl: _content,
        chunks.SourceDocument: _content,
        chunks.File: _content,
        chunks.ReasoningFile: _content,
        chunks.Custom: _content,
        chunks.SteeringMessage: _content,
        chunks.MessageMetadata: _merge_metadata,
        chunks.Data: _data,
    }


def _continued(message: object) -> Mapping[str, Any] | None:
    """Return the message if it is the assistant's; raise if it is none that a builder can go on with."""
    if not isinstance(message, Mapping):
        raise LocalProtocolError(f"message must be an object with id, role and parts, not {json_kind(message)}")
    if message.get("role") != "assistant":
        return None
    parts = message.get("parts")
    if not isinstance(parts, list):
        raise LocalProtocolError(f"message.parts must be a list of parts, not {json_kind(parts)}")
    for index, part in enumerate(parts):
        if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
            found = "one without it" if isinstance(part, Mapping) else json_kind(part)
            raise LocalProtocolError(f"message.parts[{index}] must be an object with a string 'type', not {found}")
    return message


@functools.lru_cache(maxsize=64)
def _unknown_chunks(candidate: Release) -> frozenset[type]:
    """Return the chunks that this release does not know."""
    knows = dialect(str(candidate)).knows
    return frozenset(kind for chunk_type, kind in CHUNK_TYPES.items() if not knows(chunk_type))
