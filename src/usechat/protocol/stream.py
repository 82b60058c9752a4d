"""Turn parts into chunks: the only module that knows how a message is framed.

A source says *what happened*, in parts: more text, a tool was called, the turn is over. A client wants *frames of a
message*: a start, steps, blocks that are opened, filled and closed under an id, tool calls that pass through their
states in order, one ending. ``MessageStream`` is the function between the two. It is a plain object without I/O: a part
goes in, a list of chunks comes out, and nothing else happens.

What it guarantees, for any parts in any order:

1. **Every stream is legal** for all releases that it is made for (``sdk``). A chunk or field that one of them does not
   know is replaced or left out, and counted in ``downgraded`` (:mod:`~usechat.protocol.releases` has the table).
2. **Every move is in the tables** of :mod:`~usechat.protocol.states`. Each block and each call carries its state, and
   each chunk about it is looked up by that state before it is sent. Further deltas of an open block repeat a move that
   was looked up.
3. **Nothing is lost, repeated or reordered within a lane.** A lane is one speaker. Lanes interleave freely, so several
   blocks can be open at once, at most one per lane.
4. **There is exactly one ending**, and nothing after it. What is incomplete by then is settled first: inputs that were
   cut off fail, blocks are closed, preliminary results become final.

Steps are where most of the thought is, because clients decide by the *last step* whether to post again by themselves
(``lastAssistantMessageIsCompleteWithToolCalls`` and ``…WithApprovalResponses``: the calls of that step all have results
or answers). Five rules follow:

- **Text behind a result begins a new step**, or the page would post again without end.
- **A step ends only when every call in it has its outcome.** A call that waits for the page (a tool of the page, an
  approval) must stand in the last step, or no page would post its answer; which call that will be is not known until
  the turn ends. Readers also look up a streamed input in its own step, and would show the tool twice. So a ``Step`` is
  passed over while a call is open, and text continues in the step. A continued message also continues in its last step.
- **A call behind a denied one begins a new step.** If the page must answer it, neither predicate of the client
  would become true beside the denied one.
- **A call of the provider behind the result of another tool begins a new step.** The first predicate does not count
  it: while the page asks for its approval, the page would post again without end.
- **Text beside a call that was settled later is followed by an empty step**, if the turn ends well, or it would count
  as text before the result and the page would post again without end.

Clients before 7.0.79 forget open blocks when a step ends, so all blocks are closed first, and reopen under fresh ids.
A step begins with its first content, so that none is left empty which the page does not see.

The rules of tool calls have their module, :mod:`~usechat.protocol.tool_calls`. Content that stands by
itself (files, sources, data) is converted in :mod:`~usechat.protocol.content`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple, get_args

import msgspec

from usechat.errors import LocalProtocolError
from usechat.protocol import chunks, parts
from usechat.protocol.chunks import Chunk, type_of
from usechat.protocol.content import ContentPart, check_part, content_chunk, is_citation, provider_metadata
from usechat.protocol.releases import releases_for
from usechat.protocol.states import BlockState, block_state_after
from usechat.protocol.tool_calls import Call, ToolCalls
from usechat.protocol.values import json_object, json_value

__all__ = [
    "BlockIds",
    "MessageStream",
    "OpenBlock",
    "same_metadata",
]

UNFINISHED: Final = "The run ended before this tool finished."
STOPPED: Final = "The run was stopped before this tool finished."
_MOST_REPEATED_IDS: Final = 1000
# Shared until they are needed: most messages have no tools, and thousands of streams are open.
_NO_TOOLS: Final = ToolCalls(releases_for("any"), Counter())


class BlockIds:
    """Choose the ids of blocks: the one that a source asks for if it is free, else the next of ``new_id``."""

    __slots__ = ("_new_id", "_number", "_used")

    def __init__(self, new_id: Callable[[], str] | None = None) -> None:
        self._new_id = new_id
        self._number = 0
        self._used: set[str] = set()

    def give(self, block_id: str | None = None) -> str:
        """Return the id of a new block."""
        new = self._next() if block_id is None or block_id in self._used else block_id
        self._used.add(new)
        return new

    def _next(self) -> str:
        if self._new_id is not None:
            return self._next_of(self._new_id)
        self._number += 1
        while str(self._number) in self._used:
            self._number += 1
        return str(self._number)

    def _next_of(self, new_id: Callable[[], str]) -> str:
        for _ in range(_MOST_REPEATED_IDS):
            new = str(new_id())
            if new not in self._used:
                return new
        raise LocalProtocolError(
            f"new_id returned {_MOST_REPEATED_IDS} ids that this message has already; return a new one each time"
        )


class _BlockChunks(NamedTuple):
    """The chunks of one kind of block."""

    start: type[chunks.TextStartChunk | chunks.ReasoningStartChunk]
    delta: type[chunks.TextDeltaChunk | chunks.ReasoningDeltaChunk]


_BLOCK_CHUNKS: Final[Mapping[type[parts.Text | parts.Reasoning], _BlockChunks]] = {
    parts.Text: _BlockChunks(chunks.TextStartChunk, chunks.TextDeltaChunk),
    parts.Reasoning: _BlockChunks(chunks.ReasoningStartChunk, chunks.ReasoningDeltaChunk),
}


class OpenBlock:
    """A text or reasoning block of one lane: its id on the wire, its state, and the provider metadata it has so far."""

    __slots__ = ("delta", "id", "kind", "provider_metadata", "state")

    def __init__(self, kind: type[parts.Text | parts.Reasoning], block_id: str, metadata: Any) -> None:
        self.kind = kind
        self.id = block_id
        self.provider_metadata: Mapping[str, Any] | None = metadata
        self.state = BlockState.CLOSED
        self.delta = _BLOCK_CHUNKS[kind].delta

    def advance(self, chunk: Chunk) -> None:
        """Make the move of a chunk about this block; LocalProtocolError if the table has no such move."""
        self.state = block_state_after(self.state, chunk)

    def has_metadata(self, metadata: Mapping[str, Any] | None) -> bool:
        """Tell whether provider metadata of a delta says nothing new about this block."""
        own = self.provider_metadata
        return metadata is None or metadata is own or (own is not None and same_metadata(metadata, own))


def same_metadata(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Compare provider metadata; values that cannot be compared (numpy arrays raise) count as different."""
    try:
        return bool(one == other)
    except Exception:  # __eq__ of a foreign class may raise anything
        return False


class _Step(msgspec.Struct):
    """What the current step holds: anything, a tool's outcome, that of a tool the provider did not run, a denial, text
    behind a call.

    ``inherited`` marks the last step of the message that this stream continues, ``unmarked`` a step without chunks of
    its own, at the beginning of a message that has none.
    """

    open: bool = False
    ended: bool = False
    inherited: bool = False
    unmarked: bool = False
    empty: bool = False
    output: bool = False
    own_output: bool = False
    denied: bool = False
    text_after_call: bool = False


class MessageStream:
    """Turn the parts of one assistant message into chunks.

    Send each part with :meth:`send` and pass the chunks on in order; end with :meth:`close`, :meth:`fail` or one of
    the ending parts. Everything that frames the message is added: starts and ends, ids, steps.

    >>> from usechat.parts import Text
    >>> stream = MessageStream(message_id="m1", sdk="7")
    >>> for chunk in [*stream.send(Text("Hel")), *stream.send(Text("lo")), *stream.close()]:
    ...     print(chunk)
    StartChunk(message_id='m1', message_metadata=None)
    StartStepChunk()
    TextStartChunk(id='1', provider_metadata=None)
    TextDeltaChunk(id='1', delta='Hel', provider_metadata=None)
    TextDeltaChunk(id='1', delta='lo', provider_metadata=None)
    TextEndChunk(id='1', citations=None, provider_metadata=None)
    FinishStepChunk()
    FinishChunk(finish_reason='stop', message_metadata=None)

    :param message_id: the id of the message; the first part may give it instead (``Start(message_id=…)``).
    :param sdk: the clients that must accept the stream: ``"any"`` (all releases of AI SDK 5, 6 and 7), a major such as
        ``"6"`` (its newest release), or one release such as ``"6.0.150"``.
    :param new_id: makes the ids of blocks; by default they are numbered.
    :param send_reasoning: whether reasoning is sent at all.
    :param send_steps: whether there are steps: at the beginning, and where a ``Step`` part begins one. Steps that the
        protocol needs, such as that of text behind a tool's result, are sent in any case.
    :param continues: the assistant message that this stream continues after a tool result or an approval. Its id is
        kept and its open calls are known.
    :raises UnknownRelease: if ``sdk`` names no AI SDK release.

    An instance is for one message and one thread. Parts are values: change no mapping that a part holds.
    """

    __slots__ = (
        "_block_ids",
        "_blocks",
        "_continues",
        "_metadata_fits",
        "_out",
        "_releases",
        "_send_reasoning",
        "_send_steps",
        "_started",
        "_step",
        "_tools",
        "downgraded",
        "ending",
        "message_id",
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
        """The id of the message; it may change with the first part."""
        self.ending: parts.Finish | parts.Error | parts.Abort | None = None
        """The part that ended the stream."""
        self.downgraded: Counter[str] = Counter()
        """What some client does not know, and how often it was replaced or left out: ``tool-input-start.title``."""
        self._releases = releases_for(sdk)
        self._block_ids = BlockIds(new_id)
        self._send_reasoning = send_reasoning
        self._send_steps = send_steps
        self._continues = continues is not None
        self._blocks: dict[str, OpenBlock] = {}  # by lane
        self._tools = _NO_TOOLS
        self._out: list[Chunk] = []
        self._started = False
        self._step = _Step()
        self._metadata_fits = True
        if continues:
            self._restore(continues)

    def _restore(self, message: Mapping[str, Any]) -> None:
        # Clients merge metadata key by key, and fail if there is a text or a number to merge into.
        self._metadata_fits = isinstance(message.get("metadata"), Mapping | None)
        tools = self._own_tools()
        tools.restore(message)
        if tools.has_open_calls_in_step():
            self._step = _Step(open=True, inherited=True, output=tools.has_settled_calls_in_step())
        else:
            tools.leave_step()

    @property
    def waiting_calls(self) -> list[Call]:
        """The calls that the client must answer: client-side tools, and calls whose approval is pending."""
        return self._tools.waiting()

    def call_meant_by(self, tool_call_id: str) -> Call | None:
        """Return the call that the source means by an id; on the wire it may have another."""
        return self._tools.meant_by(tool_call_id)

    def open_block(self, lane: str) -> OpenBlock | None:
        """Return the block that is open in a lane."""
        return self._blocks.get(lane)

    def send(self, part: parts.Part) -> list[Chunk]:
        """Return the chunks that this part takes; nothing once the stream has ended.

        :raises LocalProtocolError: if it is no part, if a field of it has the wrong type, or if no message id is known.
            The stream can continue after that.
        """
        if part.__class__ is parts.Text or part.__class__ is parts.Reasoning:
            # The hot path: more text for a block that is open, which is the table's move from open to open.
            try:
                block = self._blocks.get(part.lane)
            except TypeError:  # a lane that cannot be hashed; check_part names it
                block = None
            if (
                block is not None
                and block.kind is part.__class__
                and (text := part.text)
                and text.__class__ is str
                and ((metadata := part.provider_metadata) is None or block.has_metadata(metadata))
            ):
                return [block.delta(block.id, text)]
        if self.ending is not None:
            return []
        check_part(part)
        self._out = []
        if not self._started:
            self._start(part)
            if isinstance(part, parts.Start):
                return self._out
        if isinstance(part, parts.ToolPart):
            self._own_tools()
        self._handlers[type(part)](self, part)
        return self._out

    def settle(self) -> list[Chunk]:
        """Settle everything that is incomplete, as a good ending would; nothing once the stream has ended.

        Inputs that were cut off fail, blocks are closed, preliminary results become final, approved calls without a
        result fail. :attr:`waiting_calls` is final then, and facts about those calls can be sent before the ending.
        """
        if self.ending is not None:
            return []
        self._out = []
        if not self._started:
            self._start()
        self._settle()
        self._complete_tools()
        return self._out

    def fail(self, text: str) -> list[Chunk]:
        """End the stream with an error that the user sees."""
        return self.send(parts.Error(text))

    def close(self) -> list[Chunk]:
        """End the stream well, unless it has ended already."""
        return self.send(parts.Finish())

    def _own_tools(self) -> ToolCalls:
        if self._tools is _NO_TOOLS:
            self._tools = ToolCalls(self._releases, self.downgraded)
        return self._tools

    # Beginning

    def _start(self, part: parts.Part | None = None) -> None:
        metadata = None
        if isinstance(part, parts.Start):
            if part.message_id and not self._continues:
                self.message_id = part.message_id
            self._send_steps = self._send_steps and part.steps
            metadata = self._fitting(json_object(part.metadata)) if part.metadata else None
        if not self.message_id or not isinstance(self.message_id, str):
            raise LocalProtocolError(
                "the stream has no message id; give MessageStream(message_id=…) or send Start(message_id) first",
                chunk_type="start",
            )
        self._started = True
        self._emit(chunks.StartChunk(self.message_id, metadata))
        self._send_tool_chunks(self._tools.settle_earlier_inputs())

    def _start_again(self, part: parts.Start) -> None:
        self._send_steps = self._send_steps and part.steps
        self._send_metadata(part.metadata or {})

    # Text and reasoning

    def _send_text(self, part: parts.Text | parts.Reasoning) -> None:
        if isinstance(part, parts.Reasoning) and not self._send_reasoning:
            return
        block = self._blocks.get(part.lane)
        if block is None or block.kind is not type(part):
            block = self._open_block(part)
        elif not block.has_metadata(part.provider_metadata):
            block.provider_metadata = part.provider_metadata
            self._about(block, block.delta(block.id, part.text, provider_metadata(part.provider_metadata)))
            return
        if part.text:
            self._about(block, block.delta(block.id, part.text))

    def _open_block(self, part: parts.Text | parts.Reasoning) -> OpenBlock:
        self._close_block(part.lane)
        if self._step.output:
            self._next_step()
        self._step.text_after_call = self._step.text_after_call or self._tools.has_calls_in_step()
        block_id = self._block_ids.give(part.id if isinstance(part, parts.Text) else None)
        block = OpenBlock(type(part), block_id, part.provider_metadata)
        start = _BLOCK_CHUNKS[block.kind].start(block_id, provider_metadata(part.provider_metadata))
        block.advance(start)
        self._content(start)
        self._blocks[part.lane] = block
        return block

    def _close_block(self, lane: str, part: parts.BlockEnd | None = None) -> None:
        if block := self._blocks.get(lane):
            self._end_block(block, part)
            del self._blocks[lane]

    def _close_blocks(self) -> None:
        for block in self._blocks.values():
            self._end_block(block)
        self._blocks.clear()

    def _end_block(self, block: OpenBlock, part: parts.BlockEnd | None = None) -> None:
        metadata = provider_metadata(part.provider_metadata) if part else None
        if block.kind is parts.Reasoning:
            self._about(block, chunks.ReasoningEndChunk(block.id, metadata))
            return
        citations = json_value(part.citations) if part and part.citations else None
        if citations and not (self._releases.knows("text-end", "citations") and all(map(is_citation, citations))):
            self.downgraded["text-end.citations"] += 1
            self._emit(chunks.DataChunk("data-citations", {"citations": citations}))
            citations = None
        self._about(block, chunks.TextEndChunk(block.id, citations, metadata))

    def _about(self, block: OpenBlock, chunk: Chunk) -> None:
        block.advance(chunk)
        self._emit(chunk)

    # Tools

    def _send_tool(self, part: parts.ToolPart) -> None:
        self._close_block(part.lane)
        self._send_tool_chunks(self._tools.send(part))

    def _send_tool_chunks(self, tool_chunks: Iterable[Chunk]) -> None:
        for chunk in tool_chunks:
            if isinstance(chunk, _INPUTS) and not self._tools.is_in_step(chunk.tool_call_id):
                if self._step.denied or (self._step.own_output and getattr(chunk, "provider_executed", None)):
                    self._next_step()
                self._content(chunk)
                self._tools.place(chunk.tool_call_id)
                self._step.text_after_call = self._step.text_after_call or bool(self._blocks)
            else:
                # No step needed: the part of the call stands in its own. After an approval the answer stands before
                # the next step (ai, streamText).
                self._emit(chunk)
            if isinstance(chunk, _OUTPUTS) and self._tools.is_in_step(chunk.tool_call_id):
                self._step.output = True
                self._step.own_output = self._step.own_output or not self._tools.is_by_provider(chunk.tool_call_id)
                self._step.denied = self._step.denied or isinstance(chunk, chunks.ToolOutputDeniedChunk)

    # Other content

    def _send_content(self, part: ContentPart) -> None:
        if isinstance(part, parts.File | parts.ReasoningFile):
            self._close_block(part.lane)
        if isinstance(part, parts.ReasoningFile) and not self._send_reasoning:
            return
        chunk, downgraded = content_chunk(part, self._releases)
        if downgraded:
            self.downgraded[downgraded] += 1
        if not isinstance(chunk, chunks.DataChunk):
            self._content(chunk)
            return
        if self._step.ended and not chunk.transient:
            self._begin_step()
        self._emit(chunk)

    def _send_metadata(self, metadata: object) -> None:
        if merged := self._fitting(json_object(metadata)):
            self._emit(chunks.MessageMetadataChunk(merged))

    def _fitting(self, metadata: dict[str, Any]) -> dict[str, Any] | None:
        """Return metadata that a client can merge into what the message has; nothing if that is no object."""
        if not metadata or self._metadata_fits:
            return metadata or None
        self.downgraded["message-metadata"] += 1
        return None

    # Steps

    def _send_step(self, part: parts.Step) -> None:
        if not (self._send_steps or part.leaves_calls) or (self._step.open and self._step.empty):
            return
        if part.leaves_calls:
            self._tools.leave_running()
            is_held = self._tools.streams_input() or self._tools.asks_in_step()
        else:
            is_held = self._is_held()
        self._leave_step(part.lane, is_held=is_held)

    def _leave_step(self, lane: str, *, is_held: bool) -> None:
        """End the step, unless it must continue. The next one begins with its first content."""
        if is_held:
            self._close_block(lane)
        else:
            self._finish_step()
            self._step.ended = True  # also before the first step: data that follows stands in a step

    def _is_held(self) -> bool:
        """Tell whether the step must continue, because a call in it has no outcome; denied calls get theirs now."""
        if not self._step.open:
            return False
        is_held = self._tools.holds_step()
        if not is_held:
            self._send_tool_chunks(self._tools.settle_denied())
        return is_held

    def _is_left_waiting(self) -> bool:
        """Tell whether the step was left and none began since, so that the page still finds its open calls in it."""
        return not self._step.open and self._tools.holds_step()

    def _next_step(self) -> None:
        """Begin a step, unless the current one is empty or must continue."""
        if (self._step.open and self._step.empty) or self._is_held():
            return
        self._finish_step()
        self._begin_step()

    def _begin_step(self) -> None:
        unmarked = not (self._send_steps or self._step.ended or self._continues)
        # Up to here readers find the calls of the step before, although it was finished.
        for chunk in self._tools.leave_step():
            self._emit(chunk)
        if not unmarked:
            self._emit(chunks.StartStepChunk())
        self._step = _Step(open=True, empty=True, unmarked=unmarked)

    def _finish_step(self) -> None:
        if not self._step.open:
            return
        if self._step.inherited or self._step.unmarked:
            self._close_blocks()  # its start-step was in another stream, or nowhere
        else:
            self._end_step(chunks.FinishStepChunk())
        self._step.open, self._step.inherited, self._step.ended = False, False, True

    def _reset_step(self, part: parts.ResetStep) -> None:
        if not self._releases.knows("reset-step") or self._step.inherited or self._step.unmarked:
            self.downgraded["reset-step"] += 1
            self._leave_step(part.lane, is_held=self._is_held())
        elif self._step.open:
            self._end_step(chunks.ResetStepChunk())
            self._tools.reset_step()
            self._step = _Step(open=True, empty=True)

    def _end_step(self, boundary: chunks.FinishStepChunk | chunks.ResetStepChunk) -> None:
        """End all blocks, and then the step: the table allows a boundary for closed blocks alone."""
        for block in self._blocks.values():
            self._end_block(block)
        for block in self._blocks.values():
            block.advance(boundary)
        self._blocks.clear()
        self._emit(boundary)

    # Endings

    def _end(self, part: parts.Finish | parts.Error | parts.Abort) -> None:
        self._settle()
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
        self._send_tool_chunks(self._tools.fail(UNFINISHED))
        # Clients stop reading at `error`: everything they should know stands before it.
        self._send_metadata(self._with_reason(metadata, "error"))
        self._emit(chunks.ErrorChunk(part.error_text))
        self._emit(chunks.FinishChunk(self._reason("error")))

    def _end_stopped(self, part: parts.Abort, metadata: Mapping[str, Any]) -> None:
        self._send_tool_chunks(self._tools.fail(STOPPED))
        if self._tools and not self._is_left_waiting():
            # A last step whose tools are all settled makes lastAssistantMessageIsCompleteWithToolCalls true: the client
            # would post again at once and undo the stop.
            self._next_step()
        self._show_empty_step()
        self._finish_step()
        self._emit(chunks.AbortChunk(part.reason))
        self._finish("other", metadata)

    def _end_well(self, part: parts.Finish, metadata: Mapping[str, Any]) -> None:
        self._complete_tools()
        self._ask()
        if self._step.inherited or (self._step.text_after_call and self._step.output):
            # Text was written beside a tool whose outcome came later: without a step behind them
            # lastAssistantMessageIsCompleteWithToolCalls would post again without end.
            self._next_step()
        elif not self._step.open and not self._is_left_waiting():
            self._begin_step()
        self._show_empty_step()
        self._finish_step()
        self._finish(part.reason or ("tool-calls" if self._tools.is_waiting() else "stop"), metadata)

    def _ask(self) -> None:
        """Ask for pending approvals, if the client needs a client-side tool for that."""
        if not self._tools.has_questions():
            return
        is_apart = not self._step.open or self._tools.asks_apart()
        if is_apart:
            self._finish_step()
        self._send_tool_chunks(self._tools.ask(is_apart=is_apart))

    def _settle(self) -> None:
        """Settle inputs that are half written, and close all blocks."""
        self._send_tool_chunks(self._tools.cut_off_inputs())
        self._close_blocks()

    def _complete_tools(self) -> None:
        """Send approval requests that waited for the end of the turn, and settle what a good ending settles."""
        self._send_tool_chunks(self._tools.show_requests())
        self._send_tool_chunks(self._tools.complete())

    def _show_empty_step(self) -> None:
        """Put an empty text into an empty step that no metadata can show; see :meth:`_finish`."""
        if self._step.empty and not self._metadata_fits:
            self._open_block(parts.Text(""))
            self._close_blocks()

    def _finish(self, reason: str, metadata: Mapping[str, Any]) -> None:
        merged = self._fitting(json_object(self._with_reason(metadata, reason)))
        # A reader takes no snapshot at start-step; metadata, even empty, makes it take one, so that a last step with
        # nothing in it reaches the page.
        self._emit(chunks.FinishChunk(self._reason(reason), merged or ({} if self._step.empty else None)))

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
        if not self._step.open or self._step.inherited:
            self._next_step()
        self._step.empty = False
        self._emit(chunk)

    def _emit(self, chunk: Chunk) -> None:
        unknown = self._releases.unknown_fields(chunk)
        if unknown:
            self.downgraded.update(f"{type_of(chunk)}.{field.encode_name}" for field in unknown)
            chunk = msgspec.structs.replace(chunk, **{field.name: field.default for field in unknown})
        self._out.append(chunk)

    _handlers: ClassVar[Mapping[type[parts.Part], Callable[[Any, Any], None]]] = {
        parts.Start: _start_again,
        parts.Text: _send_text,
        parts.Reasoning: _send_text,
        parts.BlockEnd: lambda self, part: self._close_block(part.lane, part),
        **dict.fromkeys(get_args(parts.ToolPart), _send_tool),
        **dict.fromkeys(get_args(ContentPart), _send_content),
        parts.Step: _send_step,
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
