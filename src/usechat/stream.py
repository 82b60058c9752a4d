"""Parts in, chunks out: the one place that knows framing.

Whatever parts arrive, in whatever order, the chunks are legal for every release the stream is made for, and there is
exactly one ending.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, assert_never

import msgspec

from usechat import chunks, parts
from usechat.calls import ToolBook, provider_metadata
from usechat.chunks import Chunk, type_of
from usechat.dialects import dialect
from usechat.errors import LocalProtocolError
from usechat.values import json_object, json_value

__all__ = ["MessageStream"]

BROKEN_OFF: Final = "The run ended before this tool finished."
STOPPED: Final = "The run was stopped before this tool finished."


class _Block(NamedTuple):
    """An open text or reasoning block of one lane."""

    kind: type[parts.Text | parts.Reasoning]
    id: str
    provider_metadata: Mapping[str, Any] | None


class MessageStream:
    """Turns the parts of one assistant message into chunks.

    ``continues`` is the assistant message that this stream goes on with after a tool result or an approval: its id is
    reused and its open calls are known. ``new_id`` names blocks; by default they are numbered.
    """

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
        self.message_id = str(continues["id"]) if continues else message_id
        self.ended = False
        self.downgraded: Counter[str] = Counter()
        """What the client could not take, and how often: ``custom``, ``tool-input-start.title``."""
        self._dialect = dialect(sdk)
        self._new_id = new_id or map(str, itertools.count(1)).__next__
        self._send_reasoning = send_reasoning
        self._send_steps = send_steps
        self._continues = continues is not None
        self._blocks: dict[str, _Block] = {}
        self._tools = ToolBook(self._dialect)
        if continues:
            self._tools.restore(continues)
        self._out: list[Chunk] = []
        self._waiting: list[parts.Part] = []
        self._started = False
        self._step_open = False
        self._step_empty = True
        self._output_in_step = False
        self._text_beside_output = False
        self._asking = False

    def send(self, part: parts.Part) -> list[Chunk]:
        """Return the chunks that this part takes; nothing once the stream has ended."""
        if type(part) is parts.Text:
            # The hot path: more text for a block that is open.
            block = self._blocks.get(part.lane)
            if (
                block is not None
                and block.kind is parts.Text
                and part.text
                and part.provider_metadata is block.provider_metadata
            ):
                return [chunks.TextDelta(block.id, part.text)]
        if self.ended:
            return []
        self._out = []
        self._start(part)
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
        if self._must_wait(part):
            self._waiting.append(part)
            return
        match part:
            case parts.Text() | parts.Reasoning():
                self._send_text(part)
            case parts.BlockEnd():
                self._close_block(part.lane, part)
            case (
                parts.ToolInputStart()
                | parts.ToolInputDelta()
                | parts.ToolCall()
                | parts.ToolInputError()
                | parts.ToolResult()
                | parts.ToolError()
                | parts.ToolDenied()
                | parts.ApprovalRequest()
                | parts.ApprovalResponse()
            ):
                self._send_tool(part)
            case parts.SourceUrl():
                self._content(
                    chunks.SourceUrl(part.source_id, part.url, part.title, provider_metadata(part.provider_metadata))
                )
            case parts.SourceDocument():
                metadata = provider_metadata(part.provider_metadata)
                self._content(
                    chunks.SourceDocument(part.source_id, part.media_type, part.title, part.filename, metadata)
                )
            case parts.File() | parts.ReasoningFile() | parts.Custom():
                self._send_content(part)
            case parts.Data() | parts.SteeringMessage():
                self._send_data(part)
            case parts.Step():
                if self._send_steps:
                    self._next_step()
            case parts.ResetStep():
                self._reset_step()
            case parts.Metadata():
                self._send_metadata(part.metadata)
            case parts.Start():
                if part.metadata:
                    self._send_metadata(part.metadata)
            case parts.Finish() | parts.Error() | parts.Abort():
                self._end(part)
            case _:
                assert_never(part)

    # Beginning

    def _start(self, part: parts.Part) -> None:
        if self._started:
            return
        self._started = True
        metadata = None
        if isinstance(part, parts.Start):
            if part.message_id is not None and not self._continues:
                self.message_id = part.message_id
            metadata = json_object(part.metadata) if part.metadata else None
        if not self.message_id:
            raise LocalProtocolError(
                "the stream has no message id; give MessageStream(message_id=…) or send Start(message_id) first",
                chunk_type="start",
            )
        self._emit(chunks.Start(self.message_id, metadata))

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
            delta = chunks.TextDelta if is_text else chunks.ReasoningDelta
            self._emit(delta(block.id, part.text, metadata))
            return
        if part.text:
            self._emit(chunks.TextDelta(block.id, part.text) if is_text else chunks.ReasoningDelta(block.id, part.text))

    def _open_block(self, part: parts.Text | parts.Reasoning) -> _Block:
        self._close_block(part.lane)
        if self._output_in_step:
            self._next_step()
        block = self._blocks[part.lane] = _Block(type(part), self._new_id(), part.provider_metadata)
        start = chunks.TextStart if block.kind is parts.Text else chunks.ReasoningStart
        self._content(start(block.id, provider_metadata(part.provider_metadata)))
        return block

    def _close_block(self, lane: str, part: parts.BlockEnd | None = None) -> None:
        block = self._blocks.pop(lane, None)
        if block is None:
            return
        metadata = provider_metadata(part.provider_metadata) if part else None
        if block.kind is parts.Reasoning:
            self._emit(chunks.ReasoningEnd(block.id, metadata))
            return
        citations = json_value(part.citations) if part and part.citations else None
        if citations and not (self._dialect.knows("text-end", "citations") and all(map(_is_citation, citations))):
            self.downgraded["text-end.citations"] += 1
            self._emit(chunks.Data("data-citations", {"citations": citations}))
            citations = None
        self._emit(chunks.TextEnd(block.id, citations, metadata))

    def _close_blocks(self) -> None:
        for lane in list(self._blocks):
            self._close_block(lane)

    # Tools

    def _send_tool(self, part: parts.Part) -> None:
        self._close_block(part.lane)
        match part:
            case parts.ToolInputStart():
                sent = self._tools.input_start(part)
            case parts.ToolInputDelta():
                sent = self._tools.input_delta(part)
            case parts.ToolCall():
                sent = self._tools.call(part)
            case parts.ToolInputError():
                sent = self._tools.input_error(part)
            case parts.ToolResult():
                sent = self._tools.result(part)
            case parts.ToolError():
                sent = self._tools.error(part)
            case parts.ToolDenied():
                sent = self._tools.denied(part)
            case parts.ApprovalResponse():
                sent = self._tools.response(part)
            case parts.ApprovalRequest():
                if self._tools.needs_own_step(part):
                    self.downgraded["tool-approval-request"] += 1
                    if not self._asking:
                        self._next_step()
                    self._asking = True
                sent = self._tools.request(part)
            case _:
                raise AssertionError(part)
        self._send_tool_chunks(sent)

    def _send_tool_chunks(self, sent: Iterable[Chunk]) -> None:
        for chunk in sent:
            if isinstance(chunk, _INPUTS):
                self._content(chunk)
            else:
                # No step needed: after an approval the answer stands before the next step (ai, streamText).
                self._emit(chunk)
            if isinstance(chunk, _OUTPUTS):
                self._output_in_step = True
                self._text_beside_output = self._text_beside_output or bool(self._blocks)

    # Other content

    def _send_content(self, part: parts.File | parts.ReasoningFile | parts.Custom) -> None:
        metadata = provider_metadata(part.provider_metadata)
        if isinstance(part, parts.Custom):
            if self._dialect.knows("custom"):
                self._content(chunks.Custom(part.kind, metadata))
            else:
                self.downgraded["custom"] += 1
                payload = {"kind": part.kind} if metadata is None else {"kind": part.kind, "providerMetadata": metadata}
                self._emit(chunks.Data("data-custom", payload))
            return
        self._close_block(part.lane)
        if isinstance(part, parts.ReasoningFile):
            if not self._send_reasoning:
                return
            if self._dialect.knows("reasoning-file"):
                self._content(chunks.ReasoningFile(part.url, part.media_type, metadata))
                return
            self.downgraded["reasoning-file"] += 1
        self._content(chunks.File(part.url, part.media_type, metadata))

    def _send_data(self, part: parts.Data | parts.SteeringMessage) -> None:
        if isinstance(part, parts.Data):
            transient = True if part.transient else None
            self._emit(chunks.Data(f"data-{part.name}", json_value(part.data), part.id, transient))
            return
        payload = json_value(part.parts)
        if self._dialect.knows("steering-message") and all(map(_is_steering_part, payload)):
            self._content(chunks.SteeringMessage(part.id, payload))
        else:
            self.downgraded["steering-message"] += 1
            self._emit(chunks.Data("data-steering-message", {"id": part.id, "parts": payload}))

    def _send_metadata(self, metadata: object) -> None:
        if merged := json_object(metadata):
            self._emit(chunks.MessageMetadata(merged))

    # Steps

    def _must_wait(self, part: parts.Part) -> bool:
        """Tell whether the part needs a step boundary that cannot be now.

        A boundary in the middle of a tool's input would split that tool into two parts on the page (readers look an
        input up in its own step), so it waits until the input is complete, and what follows in that lane waits behind.
        """
        if isinstance(part, _NEVER_WAITS) or self._tools.concerns_streaming_call(part):
            return False
        if any(waiting.lane == part.lane for waiting in self._waiting):
            return True
        return self._wants_boundary(part) and self._tools.is_streaming()

    def _wants_boundary(self, part: parts.Part) -> bool:
        match part:
            case parts.Text() | parts.Reasoning():
                block = self._blocks.get(part.lane)
                return self._output_in_step and (block is None or block.kind is not type(part))
            case parts.Step():
                return self._send_steps and not self._step_empty
            case parts.ApprovalRequest():
                return self._tools.needs_own_step(part) and not self._asking
            case parts.ResetStep():
                return not self._dialect.knows("reset-step")
            case _:
                return False

    def _send_waiting(self) -> None:
        while self._waiting and not self._tools.is_streaming() and not self.ended:
            waiting, self._waiting = self._waiting, []
            for part in waiting:
                self._send(part)

    def _next_step(self) -> None:
        if self._step_open and self._step_empty:
            return
        self._finish_step()
        self._begin_step()

    def _begin_step(self) -> None:
        self._emit(chunks.StartStep())
        self._step_open = True
        self._step_empty = True
        self._output_in_step = False
        self._text_beside_output = False
        self._asking = False

    def _finish_step(self) -> None:
        self._close_blocks()
        if self._step_open:
            self._emit(chunks.FinishStep())
            self._tools.end_step()
            self._step_open = False

    def _reset_step(self) -> None:
        if not self._dialect.knows("reset-step"):
            self.downgraded["reset-step"] += 1
            self._next_step()
        elif self._step_open:
            self._close_blocks()
            self._tools.reset_step()
            self._emit(chunks.ResetStep())
            self._step_empty = True
            self._output_in_step = False
            self._text_beside_output = False
            self._asking = False

    # Endings

    def _end(self, part: parts.Finish | parts.Error | parts.Abort) -> None:
        self._flush()
        self._close_blocks()
        metadata = {**({"usage": part.usage} if part.usage else {}), **(part.metadata or {})}
        match part:
            case parts.Finish():
                self._end_well(part, metadata)
            case parts.Error():
                self._send_tool_chunks(self._tools.fail(BROKEN_OFF))
                metadata = self._with_reason(metadata, "error")
                self._send_metadata(metadata)
                # Clients stop reading at `error`: everything they should know stands before it.
                self._emit(chunks.Error(part.error_text))
                self._emit(chunks.Finish(self._reason("error")))
            case parts.Abort():
                self._send_tool_chunks(self._tools.fail(STOPPED))
                self._finish_step()
                self._emit(chunks.Abort(part.reason))
                self._finish("other", metadata)
        self.ended = True

    def _end_well(self, part: parts.Finish, metadata: Mapping[str, Any]) -> None:
        self._send_tool_chunks(self._tools.complete())
        if not self._step_open:
            self._begin_step()
        waiting = self._tools.is_waiting()
        if self._text_beside_output and not waiting:
            # Text went on in another lane beside a finished tool: without a step behind them
            # lastAssistantMessageIsCompleteWithToolCalls would re-post for ever.
            self._next_step()
        self._finish_step()
        self._finish(part.reason or ("tool-calls" if waiting else "stop"), metadata)

    def _flush(self) -> None:
        """Settle the inputs that are half written, so that nothing that waits for them is lost."""
        self._send_tool_chunks(self._tools.cut_off_inputs())
        while self._waiting:
            self._send_waiting()
            self._send_tool_chunks(self._tools.cut_off_inputs())

    def _finish(self, reason: str, metadata: Mapping[str, Any]) -> None:
        merged = json_object(self._with_reason(metadata, reason))
        self._emit(chunks.Finish(self._reason(reason), merged or None))

    def _reason(self, reason: str) -> Any:
        return self._dialect.finish_reason(reason) if self._dialect.knows("finish", "finishReason") else None

    def _with_reason(self, metadata: Mapping[str, Any], reason: str) -> Mapping[str, Any]:
        if self._dialect.knows("finish", "finishReason"):
            return metadata
        return {"finishReason": self._dialect.finish_reason(reason), **metadata}

    # Out

    def _content(self, chunk: Chunk) -> None:
        """Emit what belongs into a step."""
        if not self._step_open:
            self._begin_step()
        self._step_empty = False
        self._emit(chunk)

    def _emit(self, chunk: Chunk) -> None:
        unknown = self._dialect.unknown_fields(chunk)
        if unknown:
            self.downgraded.update(f"{type_of(chunk)}.{name}" for name in unknown)
            defaults = {field.name: field.default for field in msgspec.structs.fields(chunk)}
            chunk = msgspec.structs.replace(chunk, **{name: defaults[name] for name in unknown})
        self._out.append(chunk)


_INPUTS: Final = (chunks.ToolInputStart, chunks.ToolInputDelta, chunks.ToolInputAvailable, chunks.ToolInputError)
_OUTPUTS: Final = (chunks.ToolOutputAvailable, chunks.ToolOutputError, chunks.ToolOutputDenied, chunks.ToolInputError)
_NEVER_WAITS: Final = (parts.Start, parts.Data, parts.Metadata, parts.Finish, parts.Error, parts.Abort)


def _is_citation(value: Any) -> bool:
    """Tell whether clients from 7.0.138 on accept the citation; one they refuse would end the turn."""
    if not isinstance(value, dict) or not isinstance(value.get("source"), dict):
        return False
    source = value["source"]
    keys = {"url": ("id", "url"), "document": ("id", "mediaType", "title")}.get(source.get("sourceType"), ())
    return (
        bool(keys)
        and source.get("type") == "source"
        and all(isinstance(source.get(key), str) for key in keys)
        and all(isinstance(value[key], int) and value[key] >= 0 for key in ("startIndex", "endIndex") if key in value)
        and isinstance(value.get("citedText", ""), str)
        and all(isinstance(source.get(key, ""), str) for key in ("title", "filename"))
        and "providerMetadata" not in source
    )


def _is_steering_part(value: Any) -> bool:
    """Tell whether clients from 7.0.163 on accept the part of a steering message."""
    if not isinstance(value, dict) or "providerMetadata" in value or "providerReference" in value:
        return False
    required = {"text": ("text",), "file": ("mediaType", "url")}.get(value.get("type"), ())
    return (
        bool(required)
        and all(isinstance(value.get(key), str) for key in required)
        and isinstance(value.get("filename", ""), str)
    )
