"""The tool calls of one stream: problems that no client reports although users notice them."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final

from usechat.check.frames import Frame, Place
from usechat.check.page import updates_page
from usechat.check.problems import Finding
from usechat.errors import CannotJudge
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.states import SETTLED, TOOL_TRANSITIONS, ToolState, tool_state_set_by

__all__ = ["CheckedCall", "CheckedCalls"]

_RUNNING: Final = frozenset({ToolState.INPUT_STREAMING, ToolState.INPUT_AVAILABLE, ToolState.APPROVAL_RESPONDED})


_MAXIMUM_CALLS: Final = 200_000
"""Tool calls of one stream: each takes about 2 KB for as long as the stream is read, since a result may come late."""


class CheckedCall:
    """A tool call as the stream has described it so far."""

    __slots__ = (
        "dynamic", "has_answer", "is_preliminary", "is_provider_executed", "place", "state", "step",
        "tool_call_id", "was_refused",
    )  # fmt: skip

    def __init__(self, tool_call_id: str, frame: Frame, *, dynamic: bool) -> None:
        self.tool_call_id = tool_call_id
        self.place = frame.place
        """Where it began; with its chunk until it has its final result."""
        self.dynamic = dynamic
        self.state = ToolState.ABSENT
        self.step = 0
        self.is_provider_executed = False
        self.is_preliminary = False
        self.was_refused = False
        """Whether `tool-input-error` settled it."""
        self.has_answer = False

    @property
    def is_settled(self) -> bool:
        """Whether it has its final result."""
        return self.state in SETTLED and not self.is_preliminary

    @property
    def is_complete(self) -> bool:
        """Whether `lastAssistantMessageIsCompleteWithToolCalls` counts it as a call that the page has answered."""
        return self.is_settled and self.state is not ToolState.OUTPUT_DENIED and not self.is_provider_executed


class CheckedCalls:
    """Follows the tool chunks of one stream."""

    def __init__(self) -> None:
        self._calls: dict[str, CheckedCall] = {}
        self._by_approval: dict[str, CheckedCall] = {}
        self._step = 0
        self._seen_step = 0
        """The last step that the page shows: a new step appears with the next visible chunk."""
        self.count = 0
        """How many calls have started."""
        self._last_complete: CheckedCall | None = None
        self._result_places: dict[str, Place] = {}
        """Where the results of the last calls are: of those in the step that the page shows, and later."""
        self._confused: set[str] = set()
        """The calls with an input that is repeated, goes on late or changes its kind."""
        self._in_step: set[str] = set()
        """The calls whose input came in the current step."""
        self._incomplete: set[str] = set()
        """Those of them that keep a page from sending the chat by itself."""
        self._step_with_text_after = -1
        """The last step in which text follows a finished call."""
        self._text_after: tuple[Finding, Place] | None = None
        """Where it follows."""

    def knows(self, tool_call_id: str) -> bool:
        """Return whether there was input for the call."""
        return tool_call_id in self._calls

    def explained(self) -> set[str]:
        """Return the calls that have a problem which may leave a part in ``input-streaming``."""
        streaming = {key for key, call in self._calls.items() if call.state is ToolState.INPUT_STREAMING}
        return streaming | self._confused

    def place_of(self, tool_call_id: str) -> Place | None:
        """Return where a call began, if there was input for it."""
        call = self._calls.get(tool_call_id)
        return None if call is None else call.place

    def running(self) -> Iterator[CheckedCall]:
        """Yield the calls that a page shows as running."""
        return (call for call in self._calls.values() if call.state in _RUNNING)

    def text_begins(self, kind: str, frame: Frame) -> None:
        """Note a text that follows a finished call, if all calls of the current step are finished."""
        call = self._last_complete
        if call is None or call.step != self._step or self._incomplete or self._step_with_text_after == self._step:
            return
        text = f'{kind} follows the result of "{call.tool_call_id}" in the same step'
        self._step_with_text_after = self._step
        self._text_after = Finding("UC412", call.tool_call_id, text), frame.place

    def receive(self, chunk: Chunk, frame: Frame) -> Iterator[Finding]:
        """Take the next chunk and yield the problems of its place."""
        if self._seen_step != self._step and updates_page(chunk):
            self._seen_step = self._step
            self._result_places = {}
        handler = self._HANDLERS.get(type(chunk))
        if handler is not None:
            yield from handler(self, chunk, frame)

    def end(self, *, waits_for_page: bool) -> Iterator[tuple[Finding, Place | None]]:
        """End the stream and yield what is missing."""
        for call in self._calls.values():
            name = f'the tool call "{call.tool_call_id}"'
            if call.state is ToolState.INPUT_STREAMING:
                yield Finding("UC411", call.tool_call_id, f"{name} never gets its whole input"), call.place
            elif call.state is ToolState.INPUT_AVAILABLE and not (waits_for_page and not call.is_provider_executed):
                yield Finding("UC411", call.tool_call_id, f"{name} never gets a result"), call.place
            elif call.is_preliminary:
                yield Finding("UC418", call.tool_call_id, f"the last result of {name[4:]} is preliminary"), call.place
        own = [call for call in self._calls.values() if not call.is_provider_executed]
        last = [call for call in own if call.step == self._seen_step]
        if not (last and all(call.is_complete for call in last)):
            return
        if self._text_after is not None and self._seen_step == self._step_with_text_after:
            yield self._text_after
        else:
            names = ", ".join(f'"{call.tool_call_id}"' for call in last[:3])
            places = [self._result_places.get(call.tool_call_id, Place()) for call in last]
            place = max(places, key=lambda place: place.number or 0)
            yield Finding("UC421", "", f"the last step ends with the result of {names}"), place

    def _start_step(self, _chunk: chunks.StartStepChunk, _frame: Frame) -> Iterator[Finding]:
        self._step += 1
        self._in_step, self._incomplete = set(), set()
        yield from ()

    def _reset_step(self, _chunk: chunks.ResetStepChunk, _frame: Frame) -> Iterator[Finding]:
        for tool_call_id in self._in_step:
            del self._calls[tool_call_id]
        self._in_step, self._incomplete = set(), set()
        self._last_complete = None
        yield from ()

    def _input(self, chunk: Any, frame: Frame) -> Iterator[Finding]:
        call = self._calls.get(chunk.tool_call_id)
        dynamic = bool(chunk.dynamic)
        if call is None:
            call = self._begin(chunk, frame)
        elif call.is_settled or isinstance(chunk, chunks.ToolInputStartChunk):
            text = f'the tool call id "{chunk.tool_call_id}" was used already, in frame {call.place.number}'
            self._confused.add(chunk.tool_call_id)
            yield Finding("UC415", chunk.tool_call_id, text)
            call = self._begin(chunk, frame)
        elif call.dynamic is not dynamic and isinstance(chunk, chunks.ToolInputAvailableChunk):
            text = f'the tool call "{chunk.tool_call_id}" began {_kind(call.dynamic)} and is now {_kind(dynamic)}'
            self._confused.add(chunk.tool_call_id)
            yield Finding("UC416", chunk.tool_call_id, text)
        call.state, call.is_preliminary = tool_state_set_by(chunk), False
        call.is_provider_executed |= bool(chunk.provider_executed)
        self._move_here(call)
        if isinstance(chunk, chunks.ToolInputErrorChunk):
            call.was_refused = True
            self._settle(call, frame)

    def _input_delta(self, chunk: chunks.ToolInputDeltaChunk, _frame: Frame) -> Iterator[Finding]:
        call = self._calls.get(chunk.tool_call_id)
        if call is None:
            return
        if type(chunk) not in TOOL_TRANSITIONS[call.state]:
            text = f'the input of the tool call "{call.tool_call_id}" goes on after it was complete'
            self._confused.add(call.tool_call_id)
            yield Finding("UC423", call.tool_call_id, text)
        elif call.step != self._step:
            text = f'the input of the tool call "{call.tool_call_id}" goes on in another step'
            self._confused.add(call.tool_call_id)
            yield Finding("UC423", call.tool_call_id, text)
        call.state = tool_state_set_by(chunk)
        self._move_here(call)

    def _move_here(self, call: CheckedCall) -> None:
        call.step = self._step
        self._in_step.add(call.tool_call_id)
        self._note_completeness(call)

    def _note_completeness(self, call: CheckedCall) -> None:
        if call.is_complete or call.is_provider_executed:
            self._incomplete.discard(call.tool_call_id)
        elif call.step == self._step:
            self._incomplete.add(call.tool_call_id)

    def _begin(self, chunk: Any, frame: Frame) -> CheckedCall:
        self.count += 1
        if len(self._calls) >= _MAXIMUM_CALLS:
            raise CannotJudge(f"there are more than {_MAXIMUM_CALLS} tool calls up to frame {frame.number}")
        call = self._calls[chunk.tool_call_id] = CheckedCall(chunk.tool_call_id, frame, dynamic=bool(chunk.dynamic))
        return call

    def _output(self, chunk: Any, frame: Frame) -> Iterator[Finding]:
        call = self._calls.get(chunk.tool_call_id)
        if call is None:
            return
        # AI SDK 5 and 6 themselves send tool-output-error after tool-input-error.
        repeats_refusal = call.was_refused and isinstance(chunk, chunks.ToolOutputErrorChunk)
        if call.is_settled and not repeats_refusal:
            yield Finding("UC417", call.tool_call_id, f'the tool call "{call.tool_call_id}" has a result already')
        if isinstance(chunk, chunks.ToolOutputDeniedChunk) and not call.has_answer:
            text = f'the tool call "{call.tool_call_id}" is denied, and its approval was not answered'
            yield Finding("UC419", call.tool_call_id, text)
        call.state = tool_state_set_by(chunk)
        call.is_preliminary = isinstance(chunk, chunks.ToolOutputAvailableChunk) and bool(chunk.preliminary)
        self._settle(call, frame)

    def _settle(self, call: CheckedCall, frame: Frame) -> None:
        self._result_places[call.tool_call_id] = frame.place
        if call.is_settled:
            call.place = call.place._replace(chunk=None)
        self._note_completeness(call)
        if call.is_complete:
            self._last_complete = call

    def _approval_request(self, chunk: chunks.ToolApprovalRequestChunk, _frame: Frame) -> Iterator[Finding]:
        call = self._calls.get(chunk.tool_call_id)
        if call is not None:
            call.state = tool_state_set_by(chunk)
            self._by_approval[chunk.approval_id] = call
        yield from ()

    def _approval_response(self, chunk: chunks.ToolApprovalResponseChunk, _frame: Frame) -> Iterator[Finding]:
        call = self._by_approval.get(chunk.approval_id)
        if call is not None:
            call.state = tool_state_set_by(chunk)
            call.has_answer = True
        yield from ()

    _HANDLERS: ClassVar[Mapping[type[Chunk], Callable[["CheckedCalls", Any, Frame], Iterator[Finding]]]] = {
        chunks.StartStepChunk: _start_step,
        chunks.ResetStepChunk: _reset_step,
        chunks.ToolInputStartChunk: _input,
        chunks.ToolInputDeltaChunk: _input_delta,
        chunks.ToolInputAvailableChunk: _input,
        chunks.ToolInputErrorChunk: _input,
        chunks.ToolOutputAvailableChunk: _output,
        chunks.ToolOutputErrorChunk: _output,
        chunks.ToolOutputDeniedChunk: _output,
        chunks.ToolApprovalRequestChunk: _approval_request,
        chunks.ToolApprovalResponseChunk: _approval_response,
    }


def _kind(dynamic: bool) -> str:
    return "dynamic" if dynamic else "static"
