"""Deltas that follow each other in one block, taken as one: most of a stream is made of them.

A delta that holds nothing but text, and was found to be in order, leaves everybody who reads it in the same state, with
a longer text. So the next delta of the same block is in order, too. :class:`DeltaRun` recognizes it by the beginning of
its JSON, which is the same up to the text, and collects the texts until something else comes. This is what makes the
check of a long stream fast.
"""

import re
from typing import Final, TypeAlias

import msgspec

from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk

__all__ = ["Delta", "DeltaRun", "text_of"]

Delta: TypeAlias = chunks.TextDeltaChunk | chunks.ReasoningDeltaChunk | chunks.ToolInputDeltaChunk

_BEGINNING: Final = re.compile(
    r'\s*\{\s*"type"\s*:\s*"(?:text-delta"\s*,\s*"id"\s*:\s*"[^"\\]*"\s*,\s*"delta"'
    r'|reasoning-delta"\s*,\s*"id"\s*:\s*"[^"\\]*"\s*,\s*"delta"'
    r'|tool-input-delta"\s*,\s*"toolCallId"\s*:\s*"[^"\\]*"\s*,\s*"inputTextDelta")\s*:\s*(?=")'
)
"""A delta with its keys in the order in which everybody writes them, up to its text."""
_LONGEST: Final = 1024 * 1024
"""Characters that are collected at most."""

_read_text: Final = msgspec.json.Decoder(str).decode


class DeltaRun:
    """Collect the texts of deltas that continue one another.

    >>> run = DeltaRun()
    >>> run.begin('{"type":"text-delta","id":"1","delta":"He"}', chunks.TextDeltaChunk("1", "He"))
    >>> run.continues('{"type":"text-delta","id":"1","delta":"llo"}'), run.continues('{"type":"finish"}')
    (True, False)
    >>> run.end()
    TextDeltaChunk(id='1', delta='llo', provider_metadata=None)
    """

    def __init__(self) -> None:
        self._beginning = ""
        self._delta: Delta | None = None
        self._texts: list[str] = []
        self._size = 0

    def begin(self, text: str, chunk: Chunk) -> None:
        """Expect that the delta in this event, which is in order, is continued. Other chunks begin nothing."""
        if not isinstance(chunk, Delta):
            return
        match = _BEGINNING.match(text)
        # An empty delta is in order where one with text is not: see UC413.
        if match is not None and text_of(chunk):
            self._beginning, self._delta = match[0], chunk

    def continues(self, text: str) -> bool:
        """Collect the text of the next event if it is another delta of the block; return whether it is."""
        if self._delta is None or not text.startswith(self._beginning) or text[-1] != "}" or self._size > _LONGEST:
            return False
        try:
            # What follows the beginning is a text and a brace; another key behind the text is no JSON here.
            delta = _read_text(text[len(self._beginning) : -1])
        except (msgspec.DecodeError, UnicodeEncodeError):
            return False  # also half a character, which is read the long way
        self._texts.append(delta)
        self._size += len(delta)
        return True

    def end(self) -> Delta | None:
        """End the run; return all that was collected as one delta, if there was any."""
        delta = _with_text(self._delta, "".join(self._texts)) if self._delta and self._texts else None
        self._delta = None
        self._texts = []
        self._size = 0
        return delta


def text_of(delta: Delta) -> str:
    """Return the text of a delta of any kind."""
    return delta.input_text_delta if isinstance(delta, chunks.ToolInputDeltaChunk) else delta.delta


def _with_text(delta: Delta, text: str) -> Delta:
    if isinstance(delta, chunks.ToolInputDeltaChunk):
        return chunks.ToolInputDeltaChunk(delta.tool_call_id, text)
    return type(delta)(delta.id, text)
