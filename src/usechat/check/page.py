"""What a page shows of a message; this can lag behind the message that its stream reader holds."""

from typing import Any, Final

import msgspec

from usechat.protocol import chunks
from usechat.protocol.chunks import CHUNK_TYPES, Chunk
from usechat.protocol.message import MessageBuilder

__all__ = ["Page", "updates_page"]

_WITHOUT_CONTENT: Final = (chunks.StartChunk, chunks.FinishChunk, chunks.MessageMetadataChunk)
_WITHOUT_UPDATE: Final = frozenset(
    {chunks.StartStepChunk, chunks.FinishStepChunk, chunks.AbortChunk, chunks.ErrorChunk}
)
_CONTENT: Final = frozenset(CHUNK_TYPES.values()) - {*_WITHOUT_CONTENT, *_WITHOUT_UPDATE, chunks.ResetStepChunk}
"""The chunks that always change what the page shows."""


def updates_page(chunk: Chunk) -> bool:
    """Return whether the client renders the message again after this chunk (`reset-step`: if it removes something)."""
    if isinstance(chunk, chunks.StartChunk):
        return chunk.message_id is not None or chunk.message_metadata is not None
    if isinstance(chunk, _WITHOUT_CONTENT):
        return chunk.message_metadata is not None
    if isinstance(chunk, chunks.DataChunk):
        return not chunk.transient
    return type(chunk) not in _WITHOUT_UPDATE


class Page:
    """Simulates the state of `useChat` while a message is read.

    The client updates its state only after chunks that change the message visibly. The first update passes the message
    object itself, later ones a copy (`ReactChatState` of @ai-sdk/react). So a step that begins after the last update is
    not in the state, unless the state still holds the original object.

    A message can be larger than memory should be: after :meth:`forget` it is the message up to then.
    """

    def __init__(self, builder: MessageBuilder, message_id: str) -> None:
        self._builder = builder
        self._id = message_id
        self._shown_id = message_id
        self._updates = 0
        self._holds_original = False
        self._has_content = False
        self._unseen_steps = 0
        self._beginning: Any = None
        self.is_shortened = False
        """Whether the message is only the beginning of what the page shows."""

    def receive(self, chunk: Chunk) -> None:
        """Apply a chunk. Raises what the builder raises."""
        self._builder.receive(chunk)
        if type(chunk) in _CONTENT:
            self._has_content = True
            self._update()
        elif isinstance(chunk, chunks.StartChunk) and chunk.message_id is not None:
            self._id = chunk.message_id
            self._update()
        elif isinstance(chunk, chunks.StartStepChunk):
            self._unseen_steps += 1
        elif isinstance(chunk, chunks.ResetStepChunk):
            if self._has_content and self._unseen_steps == 0:
                self._update()
        elif updates_page(chunk):
            self._has_content |= isinstance(chunk, chunks.DataChunk)
            self._update()

    def forget(self, messages: list[Any]) -> None:
        """Keep the message as it is now, and no more of what follows than reading on needs.

        ``messages`` are those that other pages keep: an equal one is shared, a new one is added.
        """
        if self._beginning is None:
            message = self.copy_of_message()
            self._beginning = next((other for other in messages if other == message), message)
            if self._beginning is message:
                messages.append(message)
        self.is_shortened = True
        self._builder.forget()
        self._unseen_steps = min(self._unseen_steps, 1)

    def parts(self) -> list[dict[str, Any]]:
        """Return the parts that the page shows; of those that were forgotten only the tools and their states."""
        parts: list[dict[str, Any]] = self._whole()["parts"] if self._updates else []
        return parts

    def message(self) -> Any:
        """Return the message that the page shows, or its beginning, until the next chunk; None if there is none."""
        if self._updates == 0:
            return None
        return self._whole() if self._beginning is None else self._beginning

    def copy_of_message(self) -> Any:
        """Return the message that the page shows, or its beginning, as it is now."""
        return msgspec.to_builtins(self.message())

    def _whole(self) -> Any:
        message: Any = self._builder.view()
        if not self._holds_original:
            message["id"] = self._shown_id
            message["parts"] = message["parts"][: len(message["parts"]) - self._unseen_steps]
        return message

    def _update(self) -> None:
        was_renamed = self._id != self._shown_id and not self._holds_original
        self._holds_original = self._updates == 0 or was_renamed
        self._updates += 1
        self._unseen_steps = 0
        self._shown_id = self._id
