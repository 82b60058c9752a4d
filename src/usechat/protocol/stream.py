"""Parts in, chunks out: the one place that knows framing.

Whatever parts arrive, in whatever order, the chunks are legal for every release the stream is made for, and there is
exactly one ending.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, get_args

import msgspec

from usechat.errors import LocalProtocolError
from usechat.protocol import chunks, parts
from usechat.protocol.chunks import Chunk, type_of
from usechat.protocol.content import ContentPart, check_part, content_chunk, is_citation, provider_metadata
from usechat.protocol.releases import releases_for
from usechat.protocol.tool_calls import Call, ToolCalls
from usechat.protocol.values import json_object, json_value

__all__ = [
    "BlockIds",
    "MessageStream",
]


class BlockIds:
    """Gives ids to blocks: the one that a source wants if no block had it, else the next of ``new_id``."""

    __slots__ = ("_given", "_new_id", "_number")

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        self._new_id = new_id
        self._number = 0
        self._given: dict[str, bool] = {}  # and whether a source wanted it

    def give(self, wanted: str | None = None) -> str:
        """Return the id of a new block."""
        if wanted is not None and wanted not in self._given:
            self._given[wanted] = True
            return wanted
        new = self._next()
        while self._given.get(new):
            new = self._next()
        self._given[new] = False
        return new

    def _next(self) -> str:
        if self._new_id is not None:
            return str(self._new_id())
        self._number += 1
        return str(self._number)


# -- Parts in, chunks out: the one place that knows framing. Whatever parts arrive, in whatever order, the chunks
# are legal for every release the stream is made for, and there is exactly one ending.

BROKEN_OFF: Final = "The run ended before this tool finished."
STOPPED: Final = "The run was stopped before this tool finished."
# What most messages need none of, and a thousand open streams would have a megabyte of.
_NO_LANES: Final = frozenset[str]()
_NO_TOOLS: Final = ToolCalls(releases_for("any"), Counter())


class _Block(msgspec.Struct, frozen=True):
    """An open text or reasoning block of one lane."""

    kind: type[parts.Text | parts.Reasoning]
    id: str
    provider_metadata: Mapping[str, Any] | None


class _Step(msgspec.Struct):
    """What the current step holds: anything, a tool's outcome, text behind a call, questions for the client."""

    open: bool = False
    empty: bool = False
    output: bool = False
    text_after_call: bool = False
    asking: bool = False


class MessageStream:
    """Turns the parts of one assistant message into chunks.

    ``continues`` is the assistant message that this stream goes on with after a tool result or an approval: its id is
    reused and its open calls are known. ``new_id`` names blocks; by default they are numbered.
    """

    __slots__ = (
        "_block_ids",
        "_blocks",
        "_continues",
        "_out",
        "_releases",
        "_send_reasoning",
        "_send_steps",
        "_started",
        "_step",
        "_tools",
        "_waiting",
        "_waiting_lanes",
        "downgraded",
        "ending",
        "message_id",
        "vouch",
    )

    def __init__(
        self,
        *,
        message_id: str = "",
        sdk: str = "any",
        new_id: Callable[[], str] | None = None,
        send_reasoning: bool = True,
        send_steps: bool = True,
        continues: Mapping[str, Any] | None = None,
    ) -> None:
        continued_id = continues.get("id") if continues else None
        self.message_id = continued_id if isinstance(continued_id, str) and continued_id else message_id
        self.ending: parts.Finish | parts.Error | parts.Abort | None = None
        """The part that ended the stream."""
        self.downgraded: Counter[str] = Counter()
        """What the clients cannot take as it was said, and how often: ``custom``, ``tool-input-start.title``."""
        self.vouch: Callable[[], Mapping[str, Any]] | None = None
        """Asked at a good end for metadata of its own about the calls that wait for the client."""
        self._releases = releases_for(sdk)
        self._block_ids = BlockIds(new_id)
        self._send_reasoning = send_reasoning
        self._send_steps = send_steps
        self._continues = continues is not None
        self._blocks: dict[str, _Block] = {}
        self._tools = _NO_TOOLS
        if continues:
            self._open_tool_book()
            self._tools.restore(continues)
        self._out: list[Chunk] = []
        self._waiting: list[parts.Part] = []
        self._waiting_lanes = _NO_LANES
        self._started = False
        self._step = _Step()

    @property
    def holds_back(self) -> bool:
        """Whether parts wait for a step that cannot begin yet."""
        return bool(self._waiting)

    @property
    def waiting_calls(self) -> list[Call]:
        """The calls that the client must answer: client-side tools, and calls whose approval is pending."""
        return self._tools.waiting()

    def call_meant_by(self, tool_call_id: str) -> Call | None:
        """Return the call that the source means by an id; on the wire it may have another."""
        return self._tools.meant_by(tool_call_id)

    def send(self, part: parts.Part) -> list[Chunk]:
        """Return the chunks that this part takes; nothing once the stream has ended."""
        if type(part) is parts.Text:
            # The hot path: more text for a block that is open.
            block = self._blocks.get(part.lane)
            if (
                block is not None
                and block.kind is parts.Text
                and part.provider_metadata is block.provider_metadata
                and part.text
                and part.text.__class__ is str
                and not self._waiting
            ):
                return [chunks.TextDeltaChunk(block.id, part.text)]
        if self.ending is not None:
            return []
        check_part(part)
        self._out = []
        if not self._started:
            self._start(part)
            if isinstance(part, parts.Start):
                return self._out
        self._send(part)
        self._send_waiting()
        return self._out

    def fail(self, text: str) -> list[Chunk]:
        """End the stream with an error that the user sees."""
        return self.send(parts.Error(text))

    def close(self) -> list[Chunk]:
        """End the stream well, unless it has ended already."""
        return self.send(parts.Finish())

    def _send(self, part: parts.Part) -> None:
        if isinstance(part, parts.ToolPart):
            self._open_tool_book()
        if self._must_wait(part):
            self._waiting.append(part)
            self._waiting_lanes |= {part.lane}
            return
        self._handlers[type(part)](self, part)

    def _open_tool_book(self) -> None:
        if self._tools is _NO_TOOLS:
            self._tools = ToolCalls(self._releases, self.downgraded)

    # Beginning

    def _start(self, part: parts.Part) -> None:
        metadata = None
        if isinstance(part, parts.Start):
            if part.message_id is not None and not self._continues:
                self.message_id = part.message_id
            metadata = json_object(part.metadata) if part.metadata else None
        if not self.message_id or not isinstance(self.message_id, str):
            raise LocalProtocolError(
                "the stream has no message id; give MessageStream(message_id=…) or send Start(message_id) first",
                chunk_type="start",
            )
        self._started = True
        self._emit(chunks.StartChunk(self.message_id, metadata))

    # Text and reasoning

    def _send_text(self, part: parts.Text | parts.Reasoning) -> None:
        kind = type(part)
        if kind is parts.Reasoning and not self._send_reasoning:
            return
        is_text = kind is parts.Text
        block = self._blocks.get(part.lane)
        if block is None or block.kind is not kind:
            block = self._open_block(part)
        elif part.provider_metadata is not None and part.provider_metadata != block.provider_metadata:
            metadata = provider_metadata(part.provider_metadata)
            self._blocks[part.lane] = _Block(kind, block.id, part.provider_metadata)
            delta = chunks.TextDeltaChunk if is_text else chunks.ReasoningDeltaChunk
            self._emit(delta(block.id, part.text, metadata))
            return
        if part.text:
            self._emit(
                chunks.TextDeltaChunk(block.id, part.text)
                if is_text
                else chunks.ReasoningDeltaChunk(block.id, part.text)
            )

    def _open_block(self, part: parts.Text | parts.Reasoning) -> _Block:
        self._close_block(part.lane)
        if self._step.output:
            self._next_step()
        self._step.text_after_call = self._step.text_after_call or self._tools.has_calls_in_step()
        block_id = self._block_ids.give(part.id if isinstance(part, parts.Text) else None)
        block = self._blocks[part.lane] = _Block(type(part), block_id, part.provider_metadata)
        start = chunks.TextStartChunk if block.kind is parts.Text else chunks.ReasoningStartChunk
        self._content(start(block.id, provider_metadata(part.provider_metadata)))
        return block

    def _close_block(self, lane: str, part: parts.BlockEnd | None = None) -> None:
        block = self._blocks.pop(lane, None)
        if block is None:
            return
        metadata = provider_metadata(part.provider_metadata) if part else None
        if block.kind is parts.Reasoning:
            self._emit(chunks.ReasoningEndChunk(block.id, metadata))
            return
        citations = json_value(part.citations) if part and part.citations else None
        if citations and not (self._releases.knows("text-end", "citations") and all(map(is_citation, citations))):
            self.downgraded["text-end.citations"] += 1
            self._emit(chunks.DataChunk("data-citations", {"citations": citations}))
            citations = None
        self._emit(chunks.TextEndChunk(block.id, citations, metadata))

    def _close_blocks(self) -> None:
        for lane in list(self._blocks):
            self._close_block(lane)

    # Tools

    def _send_tool(self, part: parts.ToolPart) -> None:
        self._close_block(part.lane)
        if isinstance(part, parts.ApprovalRequest) and self._tools.needs_own_step(part):
            if not self._step.asking:
                self._next_step()
            self._step.asking = True
        self._send_tool_chunks(self._tools.send(part))

    def _send_tool_chunks(self, sent: Iterable[Chunk]) -> None:
        for chunk in sent:
            if isinstance(chunk, _INPUTS):
                self._content(chunk)
                self._step.text_after_call = self._step.text_after_call or bool(self._blocks)
            else:
                # No step needed: after an approval the answer stands before the next step (ai, streamText).
                self._emit(chunk)
            if isinstance(chunk, _OUTPUTS) and self._tools.is_in_step(chunk.tool_call_id):
                self._step.output = True

    # Other content

    def _send_content(self, part: ContentPart) -> None:
        if isinstance(part, parts.File | parts.ReasoningFile):
            self._close_block(part.lane)
        if isinstance(part, parts.ReasoningFile) and not self._send_reasoning:
            return
        chunk, downgraded = content_chunk(part, self._releases)
        if downgraded:
            self.downgraded[downgraded] += 1
        if isinstance(chunk, chunks.DataChunk):
            self._emit(chunk)
        else:
            self._content(chunk)

    def _send_metadata(self, metadata: object) -> None:
        if merged := json_object(metadata):
            self._emit(chunks.MessageMetadataChunk(merged))

    # Steps

    def _must_wait(self, part: parts.Part) -> bool:
        """Tell whether the part needs a step boundary that cannot be now.

        A boundary in the middle of a tool's input would split that tool into two parts on the page (readers look an
        input up in its own step), so it waits until the input is complete, and what follows in that lane waits behind.
        """
        if isinstance(part, _NEVER_WAITS) or self._tools.concerns_streaming_call(part):
            return False
        return part.lane in self._waiting_lanes or (self._wants_boundary(part) and self._tools.is_streaming())

    def _wants_boundary(self, part: parts.Part) -> bool:
        match part:
            case parts.Text() | parts.Reasoning():
                block = self._blocks.get(part.lane)
                return self._step.output and (block is None or block.kind is not type(part))
            case parts.Step():
                return self._send_steps and not self._step.empty
            case parts.ApprovalRequest():
                return self._tools.needs_own_step(part) and not self._step.asking
            case parts.ResetStep():
                return not self._releases.knows("reset-step")
            case _:
                return False

    def _send_waiting(self) -> None:
        while self._waiting and not self._tools.is_streaming():
            waiting, self._waiting, self._waiting_lanes = self._waiting, [], _NO_LANES
            for part in waiting:
                self._send(part)

    def _next_step(self) -> None:
        if self._step.open and self._step.empty:
            return
        self._finish_step()
        self._begin_step()

    def _begin_step(self) -> None:
        self._emit(chunks.StartStepChunk())
        self._step = _Step(open=True, empty=True)

    def _finish_step(self) -> None:
        self._close_blocks()
        if self._step.open:
            self._emit(chunks.FinishStepChunk())
            self._tools.end_step()
            self._step.open = False

    def _reset_step(self, _part: parts.ResetStep) -> None:
        if not self._releases.knows("reset-step"):
            self.downgraded["reset-step"] += 1
            self._next_step()
        elif self._step.open:
            self._close_blocks()
            self._tools.reset_step()
            self._emit(chunks.ResetStepChunk())
            self._step = _Step(open=True, empty=True)

    # Endings

    def _end(self, part: parts.Finish | parts.Error | parts.Abort) -> None:
        self._flush()
        self._close_blocks()
        metadata = {**({"usage": part.usage} if part.usage else {}), **json_object(part.metadata or {})}
        match part:
            case parts.Finish():
                self._end_well(part, metadata)
            case parts.Error():
                self._end_in_failure(part, metadata)
            case _:
                self._end_stopped(part, metadata)
        self.ending = part

    def _end_in_failure(self, part: parts.Error, metadata: Mapping[str, Any]) -> None:
        self._send_tool_chunks(self._tools.fail(BROKEN_OFF))
        # Clients stop reading at `error`: everything they should know stands before it.
        self._send_metadata(self._with_reason(metadata, "error"))
        self._emit(chunks.ErrorChunk(part.error_text))
        self._emit(chunks.FinishChunk(self._reason("error")))

    def _end_stopped(self, part: parts.Abort, metadata: Mapping[str, Any]) -> None:
        self._send_tool_chunks(self._tools.fail(STOPPED))
        if self._tools:
            # A last step whose tools are all settled makes lastAssistantMessageIsCompleteWithToolCalls true: the client
            # would post again at once and undo the stop.
            self._next_step()
        self._finish_step()
        self._emit(chunks.AbortChunk(part.reason))
        self._finish("other", metadata)

    def _end_well(self, part: parts.Finish, metadata: Mapping[str, Any]) -> None:
        self._send_tool_chunks(self._tools.complete())
        if not self._step.open:
            self._begin_step()
        waiting = self._tools.is_waiting()
        if self._step.text_after_call and self._step.output and not waiting:
            # Text was written beside a tool whose outcome came later: without a step behind them
            # lastAssistantMessageIsCompleteWithToolCalls would re-post for ever.
            self._next_step()
        self._finish_step()
        vouched = self.vouch() if self.vouch is not None else {}
        self._finish(part.reason or ("tool-calls" if waiting else "stop"), {**metadata, **vouched})

    def _flush(self) -> None:
        """Settle the inputs that are half written, so that nothing that waits for them is lost."""
        self._send_tool_chunks(self._tools.cut_off_inputs())
        while self._waiting:
            self._send_waiting()
            self._send_tool_chunks(self._tools.cut_off_inputs())

    def _finish(self, reason: str, metadata: Mapping[str, Any]) -> None:
        merged = json_object(self._with_reason(metadata, reason))
        # A reader takes no snapshot at start-step; metadata, even empty, makes it take one, so that a last step with
        # nothing in it reaches the page.
        self._emit(chunks.FinishChunk(self._reason(reason), merged if merged or self._step.empty else None))

    def _reason(self, reason: str) -> Any:
        if self._releases.knows("finish", "finishReason"):
            return self._releases.finish_reason(reason)
        self.downgraded["finish.finishReason"] += 1
        return None

    def _with_reason(self, metadata: Mapping[str, Any], reason: str) -> Mapping[str, Any]:
        if self._releases.knows("finish", "finishReason"):
            return metadata
        return {"finishReason": self._releases.finish_reason(reason), **metadata}

    def _content(self, chunk: Chunk) -> None:
        """Emit what belongs into a step."""
        if not self._step.open:
            self._begin_step()
        self._step.empty = False
        self._emit(chunk)

    def _emit(self, chunk: Chunk) -> None:
        unknown = self._releases.unknown_fields(chunk)
        if unknown:
            self.downgraded.update(f"{type_of(chunk)}.{field.encode_name}" for field in unknown)
            chunk = msgspec.structs.replace(chunk, **{field.name: field.default for field in unknown})
        self._out.append(chunk)

    _handlers: ClassVar[Mapping[type[parts.Part], Callable[[Any, Any], None]]] = {
        parts.Start: lambda self, part: self._send_metadata(part.metadata or {}),
        parts.Text: _send_text,
        parts.Reasoning: _send_text,
        parts.BlockEnd: lambda self, part: self._close_block(part.lane, part),
        **dict.fromkeys(get_args(parts.ToolPart), _send_tool),
        **dict.fromkeys(get_args(ContentPart), _send_content),
        parts.Step: lambda self, _part: self._next_step() if self._send_steps else None,
        parts.ResetStep: _reset_step,
        parts.Metadata: lambda self, part: self._send_metadata(part.metadata),
        parts.Finish: _end,
        parts.Error: _end,
        parts.Abort: _end,
    }


_INPUTS: Final = (
    chunks.ToolInputStartChunk,
    chunks.ToolInputDeltaChunk,
    chunks.ToolInputAvailableChunk,
    chunks.ToolInputErrorChunk,
)
_OUTPUTS: Final = (
    chunks.ToolOutputAvailableChunk,
    chunks.ToolOutputErrorChunk,
    chunks.ToolOutputDeniedChunk,
    chunks.ToolInputErrorChunk,
)
_NEVER_WAITS: Final = (parts.Start, parts.Data, parts.Metadata, parts.Finish, parts.Error, parts.Abort)
