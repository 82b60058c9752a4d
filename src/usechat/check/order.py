"""The order of chunks: problems that no client reports although users notice them. The same for every release.

A client refuses few sequences; those are found by :mod:`~usechat.check.verdict`. Many more are accepted and show
something wrong: a block that is never ended keeps its cursor, text behind a finished tool in the same step makes pages
send the chat again and again, a stream without ``finish`` looks complete. :class:`Order` follows the blocks and the
message as a whole, :class:`~usechat.check.tool_calls.CheckedCalls` follows the tool calls.

Each chunk type has one handler, which yields notes: a finding and the frame it is about. ``end`` yields what is
missing. ``rule_for_missing`` names the rule for a chunk that a client refused, because only the history tells why the
block or the call is not there. After ``error`` nothing but the endings that the AI SDK's own server sends is expected.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from usechat.check.frames import Frame, Place
from usechat.check.problems import Finding
from usechat.check.tool_calls import CheckedCalls
from usechat.errors import CannotJudge
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk, type_of
from usechat.protocol.states import BLOCK_TRANSITIONS, BlockState

__all__ = ["Note", "Order"]

Note: TypeAlias = tuple[Finding, Frame | Place | None]
"""A finding, and the frame it is about; of an earlier frame the place."""

_BLOCKS: Final[Mapping[type[Chunk], str]] = {
    chunks.TextStartChunk: "text",
    chunks.TextDeltaChunk: "text",
    chunks.TextEndChunk: "text",
    chunks.ReasoningStartChunk: "reasoning",
    chunks.ReasoningDeltaChunk: "reasoning",
    chunks.ReasoningEndChunk: "reasoning",
}
_INVISIBLE: Final = (
    chunks.StartChunk,
    chunks.StartStepChunk,
    chunks.FinishStepChunk,
    chunks.ResetStepChunk,
    chunks.FinishChunk,
    chunks.AbortChunk,
    chunks.ErrorChunk,
    chunks.MessageMetadataChunk,
)
_MAXIMUM_OPEN: Final = 100_000
"""Blocks that are open at the same time, each of which takes about 1.5 KB; a stream has one or a few."""
_MAXIMUM_CLOSED: Final = 200_000
"""Blocks whose ending is remembered, so that memory is bounded; beyond it, a late delta counts as never opened."""
_ENDINGS: Final = (chunks.FinishStepChunk, chunks.FinishChunk, chunks.AbortChunk)
"""The chunks that the AI SDK's own server sends after an error."""


class _OpenBlock(NamedTuple):
    place: Place
    calls: int
    """How many tool calls there were when the block was opened."""


class Order:
    """Follows the chunks of one stream and yields the problems of their order."""

    def __init__(self) -> None:
        self._calls = CheckedCalls()
        self._open: dict[tuple[str, str], _OpenBlock] = {}
        self._closed: dict[tuple[str, str], str] = {}
        """For each closed block, the rule for a chunk that comes after its end."""
        self._opened_in_step: list[tuple[str, str]] = []
        self._first: Place | None = None
        self._start: Place | None = None
        self._finish: Place | None = None
        self._error: Place | None = None
        self._is_visible = False
        self.was_aborted = False
        self.waits_for_page = False
        """Whether the stream says that the page is to run the calls without a result."""

    def receive(self, chunk: Chunk, frame: Frame) -> Iterator[Note]:
        """Take the next chunk and yield the problems of its place."""
        name = type_of(chunk)
        if self._error is not None:
            if not isinstance(chunk, _ENDINGS):
                yield Finding("UC409", "", f'"{name}" comes after the error of frame {self._error.number}'), frame
            return
        if self._finish is not None:
            yield Finding("UC408", "", f'"{name}" comes after the finish of frame {self._finish.number}'), frame
        if not isinstance(chunk, _INVISIBLE) and not (isinstance(chunk, chunks.DataChunk) and chunk.transient):
            self._is_visible = True
        if self._first is None:
            self._first = frame.place
        handler = self._HANDLERS.get(type(chunk))
        if handler is not None:
            yield from handler(self, chunk, frame)
        for finding in self._calls.receive(chunk, frame):
            yield finding, frame

    def end(self) -> Iterator[Note]:
        """End the stream and yield what is missing."""
        if self._first is None:
            return
        if self._start is None:
            yield Finding("UC403", "", "the stream has no `start`"), self._first
        if self._error is not None:
            return
        if self._finish is None and not self.was_aborted:
            yield Finding("UC407", "", "the stream ends without `finish` and without `error`"), None
        for (kind, block_id), block in self._open.items():
            yield Finding("UC410", f"{kind} {block_id}", f'the {kind} block "{block_id}" is never ended'), block.place
        yield from self._calls.end(waits_for_page=self.waits_for_page)
        if not self._is_visible:
            yield Finding("UC420", "", "the stream holds nothing that a page shows"), None

    def explained_calls(self) -> set[str]:
        """Return the calls whose problems, if they leave a part in ``input-streaming``, are reported already."""
        return self._calls.explained()

    def place_of(self, tool_call_id: str) -> Place | None:
        """Return where a call began, if that is known."""
        return self._calls.place_of(tool_call_id)

    def rule_for_missing(self, chunk: Chunk) -> str:
        """Return the rule for a chunk that a client refused because its block, call or approval is not there."""
        if type(chunk) in _BLOCKS:
            return self._closed.get((_BLOCKS[type(chunk)], chunk.id), "UC301")  # type: ignore[union-attr, arg-type]
        if isinstance(chunk, chunks.ToolInputDeltaChunk):
            return "UC304"
        if isinstance(chunk, chunks.ToolApprovalResponseChunk):
            return "UC307"
        if isinstance(chunk, chunks.StartChunk | chunks.FinishChunk | chunks.MessageMetadataChunk):
            return "UC308"
        return "UC306" if self._calls.knows(chunk.tool_call_id) else "UC305"  # type: ignore[union-attr]

    def _start_of_message(self, chunk: chunks.StartChunk, frame: Frame) -> Iterator[Note]:
        if self._start is not None:
            yield Finding("UC406", "", f"`start` came already, in frame {self._start.number}"), frame
            return
        self._start = frame.place
        if self._first is not None and self._first.number != frame.number:
            yield Finding("UC405", "", f"`start` comes after other chunks, in frame {frame.number}"), frame
        if chunk.message_id is None:
            yield Finding("UC404", "", "`start` has no `messageId`"), frame

    def _finish_of_message(self, chunk: chunks.FinishChunk, frame: Frame) -> Iterator[Note]:
        self._finish = self._finish or frame.place
        # A stream for every release has its finish reason in the metadata, since 5.0.0 knows no finishReason.
        metadata = chunk.message_metadata if isinstance(chunk.message_metadata, dict) else {}
        self.waits_for_page |= "tool-calls" in (chunk.finish_reason, metadata.get("finishReason"))
        yield from ()

    def _error_chunk(self, chunk: chunks.ErrorChunk, frame: Frame) -> Iterator[Note]:
        self._error = frame.place
        yield Finding("UC401", "", f'the turn ends with the error "{chunk.error_text[:200]}"'), frame
        for call in self._calls.running():
            text = f'the turn fails while the tool call "{call.tool_call_id}" is running'
            yield Finding("UC402", call.tool_call_id, text), frame

    def _abort(self, _chunk: chunks.AbortChunk, frame: Frame) -> Iterator[Note]:
        self.was_aborted = True
        yield Finding("UC422", "", "the stream says that it was aborted"), frame

    def _block_start(self, chunk: Any, frame: Frame) -> Iterator[Note]:
        kind, key = _BLOCKS[type(chunk)], (_BLOCKS[type(chunk)], chunk.id)
        if type(chunk) not in BLOCK_TRANSITIONS[BlockState.OPEN if key in self._open else BlockState.CLOSED]:
            yield Finding("UC414", f"{kind} {chunk.id}", f'the {kind} block "{chunk.id}" is open already'), frame
        if len(self._open) >= _MAXIMUM_OPEN:
            raise CannotJudge(f"more than {_MAXIMUM_OPEN} blocks are open at frame {frame.number}")
        self._open[key] = _OpenBlock(frame.place, self._calls.count)
        self._opened_in_step.append(key)
        self._closed.pop(key, None)
        self._calls.text_begins(kind, frame)

    def _block_delta(self, chunk: Any, frame: Frame) -> Iterator[Note]:
        kind = _BLOCKS[type(chunk)]
        block = self._open.get((kind, chunk.id))
        if block is not None and chunk.delta and self._calls.count > block.calls:
            text = f'the {kind} block "{chunk.id}" goes on after a tool call, and was opened before it'
            yield Finding("UC413", f"{kind} {chunk.id}", text), frame

    def _block_end(self, chunk: Any, _frame: Frame) -> Iterator[Note]:
        key = _BLOCKS[type(chunk)], chunk.id
        if self._open.pop(key, None) is not None:
            self._close(key, "UC302")
        yield from ()

    def _finish_step(self, _chunk: chunks.FinishStepChunk, _frame: Frame) -> Iterator[Note]:
        for key in self._opened_in_step:
            if key in self._open:
                self._close(key, "UC303")
        self._opened_in_step.clear()
        yield from ()

    def _close(self, key: tuple[str, str], rule: str) -> None:
        self._closed[key] = rule
        if len(self._closed) > _MAXIMUM_CLOSED:
            del self._closed[next(iter(self._closed))]

    def _reset_step(self, _chunk: chunks.ResetStepChunk, _frame: Frame) -> Iterator[Note]:
        self._open.clear()
        yield from ()

    _HANDLERS: ClassVar[Mapping[type[Chunk], Callable[["Order", Any, Frame], Iterator[Note]]]] = {
        chunks.StartChunk: _start_of_message,
        chunks.FinishChunk: _finish_of_message,
        chunks.ErrorChunk: _error_chunk,
        chunks.AbortChunk: _abort,
        chunks.TextStartChunk: _block_start,
        chunks.ReasoningStartChunk: _block_start,
        chunks.TextDeltaChunk: _block_delta,
        chunks.ReasoningDeltaChunk: _block_delta,
        chunks.TextEndChunk: _block_end,
        chunks.ReasoningEndChunk: _block_end,
        chunks.FinishStepChunk: _finish_step,
        chunks.ResetStepChunk: _reset_step,
    }
