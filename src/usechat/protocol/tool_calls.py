"""Turn tool calls and their outcomes into chunks that are legal in the current state of the call.

Sources are careless about tools. They report a result for a call that they never announced, announce a call twice, use
an id again, stream half an input and continue, ask for an approval and never say what came of it. Clients are strict: a
chunk about a call that the page does not know ends the turn with an error, and a message whose parts contradict each
other is refused when it comes back (``validateUIMessages``). ``ToolCalls`` stands between the two. It keeps one
``Call`` per tool part on the page, with the state that the page shows, and answers each part with the chunks that are
missing plus the chunk that was meant.

What it guarantees:

1. **Every chunk is a move of the table** ``TOOL_TRANSITIONS``. ``Call.advance`` looks it up by the state of the call;
   the methods here ask the table first and complete the input, or say nothing, where the chunk is not legal.
2. **One id on the wire is one call.** Readers look calls up by id, old ones in the whole message, so a second call
   under the id of a settled one gets a new id (``c1-2``). Parts still name it by the source's id.
3. **Every part validates.** An output of a call whose approval is pending implies the approval; a denial without
   a request gets its request and its answer, or becomes an error where the client knows no denials.
   A call that was denied, or whose input was refused, takes no later outcome.
4. **An approval request is answered under its own id.** Only the newest request of a call counts, because the page
   shows no other; an answer to an earlier one is dropped.
5. **Nothing is left that makes a page post or wait without end**: when the turn ends, preliminary results become
   final, approved calls without a result fail, and automatic requests without an answer are denied. Calls that wait for
   the client (its own tools, pending approvals) stay open; if the turn fails, only pending approvals do. A call that
   the provider runs waits for no client. It fails, unless the provider may need the result of a client-side tool first.
   A call that the source runs on over the end of the turn stays open in the step that was left. Beside a pending
   approval, whose step cannot be left, it fails until its outcome comes.

Where the protocol cannot send the answer to a request (AI SDK 6 has no ``tool-approval-response``), a request is sent
at the end of the turn, if it is still pending then (:meth:`ToolCalls.show_requests`): a part with a request and an
outcome, but without an answer, does not validate. Pages post nothing before the end of the turn in any case. For the
same reason what the page shows of an earlier turn counts there: a request that it left unanswered stays open,
even if the source reports an outcome, and a "no" that it gave stays a "no".

Where a client has no approvals (AI SDK 5), the request becomes a call of the client-side tool ``approval`` whose output
is the answer, likewise at the end of the turn (:meth:`ToolCalls.ask`).

**Who runs a call, and who is said to.** ``lastAssistantMessageIsCompleteWithToolCalls`` does not count calls with
``providerExecuted``. Beside one that waits for its approval it is true as soon as the other calls have results, and
the page posts without end. So a call of the provider that waits beside other calls is announced again as one that the
predicate counts (:meth:`ToolCalls.show_requests`). In AI SDK 5 it is the other way round: a call that waits for the
tool ``approval`` must not count beside a client-side tool. The truth is recorded in the provider metadata of the call
(``EXECUTOR``), every reader of a history asks :func:`~usechat.protocol.ui_messages.is_provider_executed`, and the
outcome puts the flag right.

A continued message is untrusted client input. Its calls are restored with a state that agrees with the rest of the
part, so that no claim of a client can lead to a move outside the table. An input that was cut off in an earlier turn is
not continued: old readers know nothing of it. In the last step it is completed or refused. In an earlier step, where
no chunk finds its part but an outcome, it fails when the stream starts (:meth:`ToolCalls.settle_earlier_inputs`).
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import msgspec

from usechat.errors import InvalidJSON
from usechat.protocol import chunks, parts
from usechat.protocol.chunks import Chunk
from usechat.protocol.content import metadata, omit_false, omit_none, provider_metadata
from usechat.protocol.mcp_apps import app_metadata, named_app, with_app
from usechat.protocol.releases import Releases, reads
from usechat.protocol.states import SETTLED, TOOL_TRANSITIONS, ToolState, tool_state_after
from usechat.protocol.ui_messages import (
    EXECUTOR,
    UNKNOWN_TOOL,
    is_dynamic_tool,
    is_provider_executed,
    last_step,
    tool_name,
    tool_parts_of,
)
from usechat.protocol.values import json_value, parse_json

__all__ = [
    "APPROVAL_TOOL",
    "Call",
    "ToolCalls",
    "call_of",
]


APPROVAL_TOOL: Final = "approval"
"""The client-side tool that stands for an approval request where the client has none."""

_TAKES_INPUT: Final = frozenset({ToolState.ABSENT, ToolState.INPUT_STREAMING, ToolState.OUTPUT_AVAILABLE})
"""The states in which a source's call is sent: it is new, or a preliminary output is taken back."""

CUT_OFF: Final = "The tool call was cut off before its input was complete."
NO_RESULT: Final = "The approved tool call gave no result."
RUNS_ON: Final = "No result yet: the tool continues when the questions are answered."
NO_PROVIDER_RESULT: Final = "The provider gave no result for this tool call."
DENIED: Final = "The tool call was denied."


class Call:
    """One tool call as the page shows it. ``wire_id`` differs from the source's id only when that id came twice."""

    # A long turn has many, and all are kept to its end: an id that is used again must not find the earlier call.
    __slots__ = (
        "approval_id",
        "approval_shown",
        "approved",
        "at_page",
        "by_provider",
        "dynamic",
        "input",
        "input_encoding",
        "input_text",
        "interim",
        "is_automatic",
        "is_left",
        "is_question",
        "name",
        "provider_metadata",
        "refused",
        "request",
        "restored",
        "shown_answer",
        "shown_by_provider",
        "state",
        "tool_metadata",
        "was_requested",
        "wire_id",
    )

    def __init__(self, wire_id: str, name: str, dynamic: bool) -> None:
        self.wire_id = wire_id
        self.name = name
        self.dynamic = dynamic
        self.state = ToolState.ABSENT
        self.input: Any = None
        self.input_text: list[str] = []
        self.input_encoding: str | None = None
        self.interim: list[Any] = []
        self.approval_id: str | None = None
        self.approval_shown = False  # the part on the page carries the approval
        self.shown_answer: bool | None = None  # and this answer
        self.approved: bool | None = None  # as far as the source or the page has said
        self.was_requested = False  # whether this stream asked for its approval
        self.is_automatic = False  # the request that the page shows is for the server to answer
        self.by_provider = False  # the provider runs it
        self.shown_by_provider = False  # the part on the page says so
        self.provider_metadata: dict[str, dict[str, Any]] | None = None  # of the call
        self.tool_metadata: dict[str, Any] | None = None
        self.request: parts.ApprovalRequest | None = None  # the one that the page shows
        self.refused = False  # its input is not valid, so it never ran
        self.is_question = False  # a call of the client-side tool that asks for the approval of another call
        self.restored = False  # known only from a message that the client sent
        self.is_left = False  # the source runs it on in the current step, over the end of the turn
        self.at_page = False  # the earlier turn ended with it in the last step, open: only the page can answer it

    @property
    def settled(self) -> bool:
        """Tell whether the call has its final outcome."""
        return self.state in SETTLED and not self.interim

    @property
    def closed(self) -> bool:
        """Tell whether a later outcome would contradict the one that the page shows (``validateUIMessages``)."""
        return self.refused or self.state is ToolState.OUTPUT_DENIED

    @property
    def denied(self) -> bool:
        """Tell whether the page shows an approval of this call that was answered with no, and is not asked again."""
        return self.shown_answer is False and self.approved is False

    @property
    def unanswered(self) -> bool:
        """Tell whether the page shows a request without an answer; with an outcome it would not validate."""
        return self.approval_shown and self.shown_answer is None

    @property
    def pending(self) -> bool:
        """Tell whether the approval of this call was asked for and is not answered."""
        return self.approval_id is not None and self.approved is None

    @property
    def waits_for_client(self) -> bool:
        """Tell whether the client must run this call or answer a question about it."""
        return not self.settled and (self.pending or not self.by_provider)

    @property
    def waits_for_nobody_but_page(self) -> bool:
        """Tell whether the source runs nothing for this call: it is settled, denied, or asked about."""
        return self.settled or self.denied or self.pending or self.by_provider or self.at_page

    def advance(self, *new_chunks: Chunk) -> list[Chunk]:
        """Make the moves of chunks about this call, and return them; LocalProtocolError if one is not in the table."""
        for chunk in new_chunks:
            self.state = tool_state_after(self.state, chunk)
            by_provider = getattr(chunk, "provider_executed", None)
            if by_provider is not None:
                self.by_provider = self.shown_by_provider = by_provider
        if self.settled:
            self.input, self.input_text, self.request = None, [], None
            self.provider_metadata = self.tool_metadata = None
        return list(new_chunks)

    def written_input(self) -> Any:
        """Return the input that was streamed so far: its value, or the text itself if that is not JSON."""
        text = "".join(self.input_text)
        if self.input_encoding == "text":
            return text
        try:
            return parse_json(text)
        except InvalidJSON:
            return text or {}


def call_of(part: Mapping[str, Any]) -> Call:
    """Return the call that a tool part describes, in a state that agrees with its approval."""
    call = Call(part["toolCallId"], tool_name(part), is_dynamic_tool(part))
    call.restored = True
    call.state = _state_of(part)
    call.input = part.get("input")
    if call.state is ToolState.INPUT_STREAMING:
        text = part.get("rawInput")
        call.input_text = [text] if isinstance(text, str) else []
    call.by_provider, call.shown_by_provider = is_provider_executed(part), part.get("providerExecuted") is True
    call.provider_metadata = metadata(part.get("callProviderMetadata"))
    call.tool_metadata = metadata(part.get("toolMetadata"))
    call.refused = call.state is ToolState.OUTPUT_ERROR and "input" not in part
    approval = part.get("approval")
    if call.state not in (ToolState.INPUT_STREAMING, ToolState.INPUT_AVAILABLE) and isinstance(approval, Mapping):
        _restore_answer(call, approval)
    if part.get("preliminary") and call.state is ToolState.OUTPUT_AVAILABLE and not call.denied:
        call.interim = [part.get("output")]
    return call


def _restore_answer(call: Call, approval: Mapping[str, Any]) -> None:
    call.approval_id = approval["id"] if isinstance(approval.get("id"), str) else None
    call.approval_shown = call.approval_id is not None
    call.is_automatic = approval.get("isAutomatic") is True
    if call.approval_shown:
        call.request = _request_of(call, approval)
    if call.approval_shown and call.state is not ToolState.APPROVAL_REQUESTED:
        # What has an output and was not denied was approved, even if the client does not say so.
        approved = approval.get("approved")
        call.approved = approved if isinstance(approved, bool) else call.state is not ToolState.OUTPUT_DENIED
        call.shown_answer = call.approved


def _request_of(call: Call, approval: Mapping[str, Any]) -> parts.ApprovalRequest:
    reason, signature = approval.get("requestReason"), approval.get("signature")
    return parts.ApprovalRequest(
        approval["id"],
        call.wire_id,
        reason if isinstance(reason, str) else None,
        call.is_automatic,
        signature if isinstance(signature, str) else None,
        approval.get("descriptor"),
        approval.get("inputSchemaInput"),
    )


def _state_of(part: Mapping[str, Any]) -> ToolState:
    """Return the state of a tool part that a client sent back, as far as the part bears it out."""
    try:
        state = ToolState(str(part.get("state")))
    except ValueError:
        return ToolState.INPUT_AVAILABLE
    if state is ToolState.ABSENT:
        return ToolState.INPUT_AVAILABLE
    if state in (ToolState.APPROVAL_REQUESTED, ToolState.APPROVAL_RESPONDED):
        match part.get("approval"):
            case {"id": str(), "approved": bool()}:
                return state
            case {"id": str()}:
                return ToolState.APPROVAL_REQUESTED
        return ToolState.INPUT_AVAILABLE
    return state


def _app_of(call: Call) -> dict[str, Any] | None:
    return named_app(call.provider_metadata, call.tool_metadata)


def _executor(call: Call, by_provider: bool | None = None) -> bool | None:
    """Return who ran a call, as its outcome says it: also if the source does not, but the page shows it wrongly."""
    return call.by_provider if by_provider is None and call.by_provider is not call.shown_by_provider else by_provider


def _request_chunk(call: Call, part: parts.ApprovalRequest) -> Chunk:
    return chunks.ToolApprovalRequestChunk(
        part.approval_id,
        call.wire_id,
        json_value(part.descriptor),
        omit_none(part.input_schema_input),
        part.reason,
        omit_false(part.is_automatic),
        part.signature,
    )


class ToolCalls:
    """The tool calls of one message: returns the chunks that each tool part takes."""

    def __init__(self, releases: Releases, downgraded: Counter[str]) -> None:
        self._releases = releases
        self._downgraded = downgraded
        self._by_wire_id: dict[str, Call] = {}  # every call, by its id on the wire
        self._calls: dict[str, Call] = {}  # the current call of each of the source's ids
        self._approvals: dict[str, Call] = {}  # the call that an approval is about
        self._first_calls: dict[str, Call] = {}  # the first call of an approval id: readers find no other by it
        self._questions: dict[str, Call] = {}  # the client-side tool call that asks for an approval
        # By the call: requests that wait for the end of the turn.
        self._late_requests: dict[str, parts.ApprovalRequest] = {}
        self._in_step: dict[str, Call] = {}
        # Those that may hold the step. One that is settled or denied leaves when it is first in the queue, so that
        # every call is looked at once, however many are open.
        self._holding: deque[Call] = deque()
        self._running: deque[Call] = deque()  # likewise, those that the source may run
        self._asking: deque[Call] = deque()  # likewise, those that may wait for their approval
        self._leaves_calls = False  # the source runs some on, over the end of the turn
        self._streaming: dict[str, Call] = {}  # whose input is incomplete
        self._repeats: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._by_wire_id)

    def restore(self, message: Mapping[str, Any]) -> None:
        """Take over the calls of the assistant message that this stream continues, in its last step."""
        tool_parts = tool_parts_of(message)
        for part in tool_parts:
            # Readers find the last part of an id first, so that is the one that later chunks refer to.
            call = call_of(part)
            self._by_wire_id[call.wire_id] = self._calls[call.wire_id] = call
            if call.state is ToolState.INPUT_STREAMING:
                self._streaming[call.wire_id] = call
            self._restore_approval(call, part)
        step = last_step(message["parts"]) if tool_parts else []
        for part in tool_parts_of({"parts": step}):
            call = self._by_wire_id[part["toolCallId"]]
            is_asked_about = call.by_provider or call.approval_id is not None
            call.at_page = call.state is ToolState.INPUT_AVAILABLE and not is_asked_about
            self.place(call.wire_id)

    def _restore_approval(self, call: Call, part: Mapping[str, Any]) -> None:
        if call.approval_id is not None:
            self._remember_approval(call.approval_id, call)
            self._first_calls.setdefault(call.approval_id, call)
        if call.name == APPROVAL_TOOL and isinstance(call.input, Mapping):
            approval_id = str(call.input.get("approvalId"))
            self._questions[approval_id] = call
            call.is_question = True
            subject = self._calls.get(str(call.input.get("toolCallId")))
            if subject is not None and subject is not call and not subject.approval_shown:
                self._remember_approval(approval_id, subject)
                answer = part.get("output")
                subject.approved = answer.get("approved") if isinstance(answer, Mapping) else None

    def place(self, wire_id: str) -> None:
        """Note that the part of a call stands in the current step."""
        if wire_id not in self._in_step:
            call = self._in_step[wire_id] = self._by_wire_id[wire_id]
            self._holding.append(call)
            self._running.append(call)
            self._asking.append(call)

    def has_calls_in_step(self) -> bool:
        """Tell whether a call was announced in the current step."""
        return bool(self._in_step)

    def has_open_calls_in_step(self) -> bool:
        """Tell whether a call that was announced in the current step has no outcome yet."""
        return any(not call.settled for call in self._in_step.values())

    def has_settled_calls_in_step(self) -> bool:
        """Tell whether a call that was announced in the current step has its outcome."""
        return any(call.settled for call in self._in_step.values())

    def holds_step(self) -> bool:
        """Tell whether a call of the current step has no outcome yet; one that was denied needs no waiting for it."""
        while self._holding and (self._holding[0].settled or self._holding[0].denied):
            self._holding.popleft()
        return bool(self._holding)

    def leave_running(self) -> None:
        """Note that the source runs its open calls on, whenever the turn ends."""
        self._leaves_calls = True
        while self._running:
            call = self._running.popleft()
            call.is_left = not call.waits_for_nobody_but_page

    def asks_in_step(self) -> bool:
        """Tell whether a call of the current step waits for the page, which must find it there.

        It waits for its approval, or the page has left it open when it answered others. Where the page is asked for
        approvals through a client-side tool, that call stands in the last step, and the one it is about anywhere.
        """
        knows_approvals = self._releases.knows("tool-approval-request")
        while self._asking:
            call = self._asking[0]
            if not call.settled and (call.at_page or (call.pending and knows_approvals)):
                return True
            self._asking.popleft()
        return False

    def streams_input(self) -> bool:
        """Tell whether the input of a call of the current step is incomplete."""
        return any(wire_id in self._in_step for wire_id in self._streaming)

    def leave_step(self) -> list[Chunk]:
        """End the step: calls announced from now on belong to the next.

        Preliminary results of open calls are taken back. If an approval is asked for later, no chunk could do so.
        """
        if not self._in_step:
            return []
        interim = [call for call in self._holding if call.interim]
        new_chunks = [chunk for call in interim for chunk in self._take_back_output(call)]
        self._forget_step()
        return new_chunks

    def _forget_step(self) -> None:
        self._in_step = {}
        self._holding, self._running, self._asking = deque(), deque(), deque()

    def settle_denied(self) -> list[Chunk]:
        """Give the calls of the current step that were denied their outcome."""
        denied = [call for call in self._in_step.values() if call.denied and not call.settled]
        return [chunk for call in denied for chunk in self._settle_denied(call)]

    def settle_earlier_inputs(self) -> list[Chunk]:
        """Fail the calls of earlier steps whose input was cut off in an earlier turn."""
        calls = [call for wire_id, call in self._streaming.items() if wire_id not in self._in_step]
        for call in calls:
            del self._streaming[call.wire_id]
            call.state, call.refused = ToolState.INPUT_AVAILABLE, True
        return [chunk for call in calls for chunk in self._fail(call, CUT_OFF)]

    def is_in_step(self, wire_id: str) -> bool:
        """Tell whether the call was announced in the current step; its part stands there, whenever its output comes."""
        return wire_id in self._in_step

    def is_by_provider(self, wire_id: str) -> bool:
        """Tell whether the page shows that the provider runs the call."""
        return self._by_wire_id[wire_id].shown_by_provider

    def meant_by(self, tool_call_id: str) -> Call | None:
        """Return the current call of one of the source's ids."""
        return self._calls.get(tool_call_id)

    def waiting(self) -> list[Call]:
        """Return the calls that wait for the client, without the client-side tools that merely ask for an approval."""
        return [call for call in self._by_wire_id.values() if call.waits_for_client and not call.is_question]

    def is_waiting(self) -> bool:
        """Tell whether some call waits for the client: a client-side tool or an approval."""
        return any(call.waits_for_client for call in self._by_wire_id.values())

    def send(self, part: parts.ToolPart) -> list[Chunk]:
        """Return the chunks that the part takes."""
        return self._handlers[type(part)](self, part)

    def input_start(self, part: parts.ToolInputStart) -> list[Chunk]:
        """Begin a call; nothing is sent for one that is known and not settled."""
        call = self._open(part.tool_call_id, part.tool_name, part.dynamic)
        if call.state is not ToolState.ABSENT:
            return []
        call.input_encoding = part.input_encoding
        self._streaming[call.wire_id] = call
        return call.advance(
            chunks.ToolInputStartChunk(
                call.wire_id,
                call.name,
                part.input_encoding,
                part.provider_executed,
                provider_metadata(part.provider_metadata),
                metadata(part.tool_metadata),
                omit_false(call.dynamic),
                part.title,
            )
        )

    def input_delta(self, part: parts.ToolInputDelta) -> list[Chunk]:
        """Add to the input; pieces that come after the input was complete are dropped."""
        new_chunks = []
        if part.tool_call_id not in self._calls:
            new_chunks = self.input_start(parts.ToolInputStart(part.tool_call_id, UNKNOWN_TOOL))
        call = self._calls[part.tool_call_id]
        if call.restored or chunks.ToolInputDeltaChunk not in TOOL_TRANSITIONS[call.state]:
            return new_chunks
        call.input_text.append(part.text)
        return new_chunks + call.advance(chunks.ToolInputDeltaChunk(call.wire_id, part.text))

    def call(self, part: parts.ToolCall) -> list[Chunk]:
        """Complete the input. A call that is announced twice is one call."""
        known = self._calls.get(part.tool_call_id)
        if known is not None and known.closed and EXECUTOR in (provider_metadata(part.provider_metadata) or {}):
            return []  # a stream that is written again asks about a call that was denied in the new one
        return self._available(self._open(part.tool_call_id, part.tool_name, part.dynamic), part)

    def _available(self, call: Call, part: parts.ToolCall) -> list[Chunk]:
        if self._is_announced_again(call, part):
            return self._announce_again(call, by_provider=part.provider_executed)
        if part.retracts_output and not call.approval_shown:  # `input-available` with an approval does not validate
            call.interim = []
        call_metadata, tool_metadata = provider_metadata(part.provider_metadata), metadata(part.tool_metadata)
        app = app_metadata(part.app) if part.app else named_app(call_metadata, tool_metadata)
        if call.interim or call.state not in _TAKES_INPUT:
            return self._announce_app(call, app)
        self._streaming.pop(call.wire_id, None)
        call.input = json_value(part.input)
        call.provider_metadata, call.tool_metadata = call_metadata, tool_metadata
        self._name_app(call, app)
        return call.advance(
            chunks.ToolInputAvailableChunk(
                call.wire_id,
                call.name,
                call.input,
                part.provider_executed,
                call.provider_metadata,
                call.tool_metadata,
                omit_false(call.dynamic),
                part.title,
            )
        )

    def _name_app(self, call: Call, app: Mapping[str, Any] | None) -> None:
        """Add an app to the metadata of its call: for each release where it knows it."""
        if app is not None:
            call.provider_metadata = with_app(call.provider_metadata, app)
            if self._releases.knows("tool-input-available", "toolMetadata"):
                call.tool_metadata = {**(call.tool_metadata or {}), "app": dict(app)}

    def _announce_app(self, call: Call, app: Mapping[str, Any] | None) -> list[Chunk]:
        """Announce a call again whose app was not known before: pages keep what they know, and add the metadata."""
        is_announced = call.state is ToolState.INPUT_AVAILABLE and not call.approval_shown
        if app is None or not is_announced or not self.is_in_step(call.wire_id) or app == _app_of(call):
            return []
        self._name_app(call, app)
        new_chunks = self._announce_again(call)
        return [msgspec.structs.replace(chunk, tool_metadata=call.tool_metadata) for chunk in new_chunks]

    def input_error(self, part: parts.ToolInputError) -> list[Chunk]:
        """Refuse the call; where ``tool-input-error`` is unknown, send a call and its failure."""
        return self._refuse(self._open(part.tool_call_id, part.tool_name, part.dynamic), part)

    def _refuse(self, call: Call, part: parts.ToolInputError) -> list[Chunk]:
        if chunks.ToolInputErrorChunk not in TOOL_TRANSITIONS[call.state]:
            return self._end_with(call, lambda: self._fail(call, part.error_text))
        call.refused = True
        self._streaming.pop(call.wire_id, None)
        call.input = json_value(part.input)
        options = (
            part.provider_executed,
            provider_metadata(part.provider_metadata),
            metadata(part.tool_metadata),
            omit_false(call.dynamic),
        )
        if self._releases.knows("tool-input-error"):
            error = chunks.ToolInputErrorChunk(
                call.wire_id, call.name, call.input, part.error_text, *options, part.title
            )
            return call.advance(error)
        self._downgraded["tool-input-error"] += 1
        available = chunks.ToolInputAvailableChunk(call.wire_id, call.name, call.input, *options, part.title)
        return call.advance(available, self._error(call, part.error_text))

    def result(self, part: parts.ToolResult) -> list[Chunk]:
        """Send an output. Preliminary ones that the client does not know are kept until the call is settled."""
        new_chunks = self._announce(part)
        call = self._calls[part.tool_call_id]
        if part.app is not None:
            new_chunks += self._announce_app(call, app_metadata(part.app))
        return new_chunks + self._output(call, part)

    def _output(self, call: Call, part: parts.ToolResult) -> list[Chunk]:
        output = json_value(part.output)
        if part.preliminary:
            if call.settled or call.denied:
                return []
            call.interim = [output]
            if not self._releases.knows("tool-output-available", "preliminary"):
                self._downgraded["tool-output-available.preliminary"] += 1
                return []
            if not self.is_in_step(call.wire_id):
                return []  # it could not be taken back
        else:
            call.interim = []
        chunk = chunks.ToolOutputAvailableChunk(
            call.wire_id,
            output,
            _executor(call, part.provider_executed),
            provider_metadata(part.provider_metadata),
            self._result_metadata(call, part),
            omit_false(part.preliminary),
            omit_false(call.dynamic),
        )
        return self._end_with(call, lambda: call.advance(chunk))

    def _result_metadata(self, call: Call, part: parts.ToolResult) -> dict[str, Any] | None:
        """Return the tool metadata of a result; it names an app that the call could not name."""
        tool_metadata = metadata(part.tool_metadata)
        app = None if part.app is None else app_metadata(part.app)
        if app is None or app == _app_of(call) or not self._releases.knows("tool-output-available", "toolMetadata"):
            return tool_metadata
        return {**(call.tool_metadata or {}), **(tool_metadata or {}), "app": app}

    def _end_with(self, call: Call, outcome: Callable[[], list[Chunk]]) -> list[Chunk]:
        """Send an outcome, unless the call has one that it would contradict. A denied call is sent as denied."""
        if call.closed:
            return []
        new_chunks = self._imply_answer(call, approved=True)
        if call.unanswered:
            return new_chunks
        if call.denied and not call.settled:
            # Agents report a denial as the tool's result or failure, too.
            return new_chunks + self._deny(call)
        return new_chunks + outcome()

    def error(self, part: parts.ToolError) -> list[Chunk]:
        """Send the failure of a tool."""
        new_chunks = self._announce(part)
        call = self._calls[part.tool_call_id]
        call.interim = []
        chunk = chunks.ToolOutputErrorChunk(
            call.wire_id,
            part.error_text,
            _executor(call, part.provider_executed),
            provider_metadata(part.provider_metadata),
            metadata(part.tool_metadata),
            omit_false(call.dynamic),
        )
        return new_chunks + self._end_with(call, lambda: call.advance(chunk))

    def denied(self, part: parts.ToolDenied) -> list[Chunk]:
        """Settle a call that was not allowed to run.

        A denied part without an answered approval does not validate afterwards (``validateUIMessages``), so the
        answer is supplied where the client knows it, and a plain tool error stands in where it does not.
        """
        new_chunks = self._announce(part)
        call = self._calls[part.tool_call_id]
        if call.closed:
            return new_chunks
        call.interim = []
        if call.approval_id is None and not call.settled and self._releases.knows("tool-approval-response"):
            new_chunks += self._request_automatically(call)
        if call.approval_id is not None:
            new_chunks += self._answer(call, parts.ApprovalResponse(call.approval_id, False, part.reason))
        return new_chunks + self._deny(call, part.reason)

    def request(self, part: parts.ApprovalRequest) -> list[Chunk]:
        """Ask for an approval: now, or at the end of the turn. Automatic requests are for 7 alone."""
        new_chunks = self._announce(part)
        call = self._calls[part.tool_call_id]
        if call.settled or (call.state is ToolState.OUTPUT_AVAILABLE and not self.is_in_step(call.wire_id)):
            return new_chunks  # also if its output cannot be taken back
        if part.is_automatic and not self._releases.knows("tool-approval-request", "isAutomatic"):
            self._downgraded["tool-approval-request.isAutomatic"] += 1
            self._approvals[part.approval_id] = call
            return new_chunks
        call.was_requested, call.approved = True, None
        self._remember_approval(part.approval_id, call)
        if self.is_in_step(call.wire_id):
            self._holding.append(call)  # it may have been denied before
            self._asking.append(call)
        if not self._releases.knows("tool-approval-request"):
            self._downgraded["tool-approval-request"] += 1
        if not self._releases.knows("tool-approval-response"):
            self._late_requests[call.wire_id] = part
            new_chunks += self._take_back_output(call)
            call.interim = []
            return new_chunks
        return new_chunks + self._show_request(call, part)

    def _show_request(self, call: Call, part: parts.ApprovalRequest) -> list[Chunk]:
        taken_back = self._take_back_output(call)
        call.request = part
        self._first_calls.setdefault(part.approval_id, call)
        call.approval_shown, call.shown_answer, call.is_automatic = True, None, part.is_automatic
        if not part.is_automatic:
            call.interim = []  # made final, an output from before the question would imply that the answer was yes
        return taken_back + call.advance(_request_chunk(call, part))

    def _take_back_output(self, call: Call) -> list[Chunk]:
        """Announce a call again that has a preliminary result, and readers drop the result.

        A part with an output and a request does not validate.
        """
        return self._announce_again(call) if call.state is ToolState.OUTPUT_AVAILABLE else []

    def _is_announced_again(self, call: Call, part: parts.ToolCall) -> bool:
        """Tell whether a stream that is written again changes who is said to run a call."""
        is_open = call.state in (ToolState.INPUT_AVAILABLE, ToolState.APPROVAL_REQUESTED)
        return (
            is_open and self.is_in_step(call.wire_id) and EXECUTOR in (provider_metadata(part.provider_metadata) or {})
        )

    def _announce_again(self, call: Call, *, by_provider: bool | None = None) -> list[Chunk]:
        """Announce a call that the page shows in the current step; ``by_provider`` changes who is said to run it."""
        truth, call_metadata = call.by_provider, call.provider_metadata
        if by_provider is not None:
            call_metadata = (call_metadata or {}) | {EXECUTOR: {"providerExecuted": truth}}
        chunk = chunks.ToolInputAvailableChunk(
            call.wire_id, call.name, call.input, by_provider, call_metadata, dynamic=omit_false(call.dynamic)
        )
        new_chunks = call.advance(chunk)
        call.by_provider = truth
        return new_chunks

    def show_requests(self) -> list[Chunk]:
        """Send the pending approval requests that waited for the end of the turn, where the client has approvals.

        Calls of the provider that wait beside other calls of the step are announced again as calls that
        ``lastAssistantMessageIsCompleteWithToolCalls`` counts.
        """
        if not self._releases.knows("tool-approval-request"):
            return []
        new_chunks = [chunk for part, call in self._take_pending() for chunk in self._show_request(call, part)]
        return new_chunks + self._count_pending()

    def _count_pending(self) -> list[Chunk]:
        if all(call.shown_by_provider for call in self._in_step.values()):
            return []
        pending = [call for call in self._in_step.values() if call.shown_by_provider and call.unanswered]
        return [
            chunk
            for call in pending
            if call.request is not None and not call.is_automatic
            for chunk in (
                *self._announce_again(call, by_provider=False),
                *call.advance(_request_chunk(call, call.request)),
            )
        ]

    def _take_pending(self) -> list[tuple[parts.ApprovalRequest, Call]]:
        """Return the requests that waited for the end of the turn and are still pending, each once."""
        requests, self._late_requests = self._late_requests, {}
        pending = [(part, self._by_wire_id[wire_id]) for wire_id, part in requests.items()]
        return [(part, call) for part, call in pending if call.approved is None and not call.settled]

    def asks_apart(self) -> bool:
        """Tell whether the client-side tool calls that ask for approvals need a separate step, at the end of the turn.

        ``lastAssistantMessageIsCompleteWithToolCalls`` wants every call of the last step answered, and a call that
        waits for its approval never is. Beside a client-side tool, whose answer must be in the last step as well, it is
        not counted instead; see :meth:`ask`.
        """
        in_step = self._in_step.values()
        has_client_tool = any(not (call.settled or call.pending or call.shown_by_provider) for call in in_step)
        return not has_client_tool or any(call.pending and not self._can_be_uncounted(call) for call in in_step)

    def _can_be_uncounted(self, call: Call) -> bool:
        return not call.dynamic or all(
            reads(candidate, "provider-executed-on-dynamic-parts") for candidate in self._releases.releases
        )

    def ask(self, *, is_apart: bool) -> list[Chunk]:
        """Ask for the pending approvals through a client-side tool, where the client has no approvals.

        Those calls stand in a step of their own (:meth:`asks_apart`), or in that of client-side tools. There the calls
        that they are about are announced again as calls of the provider, which the client does not count.
        """
        pending = self._take_pending()
        in_step = [] if is_apart else [call for _, call in pending if self.is_in_step(call.wire_id)]
        subjects = [call for call in in_step if not call.shown_by_provider]
        return [
            *(chunk for call in subjects for chunk in self._announce_again(call, by_provider=True)),
            *(chunk for part, call in pending for chunk in self._ask_through_tool(part, call)),
        ]

    def has_questions(self) -> bool:
        """Tell whether :meth:`ask` has something to ask."""
        return any(
            call.approved is None and not call.settled
            for call in (self._by_wire_id[wire_id] for wire_id in self._late_requests)
        )

    def response(self, part: parts.ApprovalResponse) -> list[Chunk]:
        """Answer an approval; an answer to a request that is unknown, answered or replaced is dropped."""
        call = self._approvals.get(part.approval_id)
        return [] if call is None else self._answer(call, part)

    def _answer(self, call: Call, part: parts.ApprovalResponse) -> list[Chunk]:
        if call.approved is not None or call.settled:
            return []
        if self.is_in_step(call.wire_id):
            self._running.append(call)
        is_current = self._approvals.get(part.approval_id) is call
        if is_current and (question := self._questions.get(part.approval_id)):
            call.approved = part.approved
            answer = {"approved": part.approved, **({"reason": part.reason} if part.reason is not None else {})}
            return self._output(question, parts.ToolResult(question.wire_id, answer))
        if not self._releases.knows("tool-approval-response"):
            self._downgraded["tool-approval-response"] += 1
            if not call.unanswered:
                call.approved = part.approved and call.shown_answer is not False
            return []
        # Readers find one call by an id, so if a request about another call has it, this one is made again.
        is_found = is_current and self._first_calls.get(part.approval_id) is call
        new_chunks = [] if is_found else self._request_automatically(call)
        call.approved = call.shown_answer = part.approved
        return new_chunks + call.advance(
            chunks.ToolApprovalResponseChunk(
                str(call.approval_id),
                part.approved,
                part.reason,
                part.provider_executed,
                provider_metadata(part.provider_metadata),
            )
        )

    def _request_automatically(self, call: Call) -> list[Chunk]:
        """Send a request that is answered at once, under a new id."""
        approval_id = f"{call.wire_id}-approval"
        while approval_id in self._first_calls or approval_id in self._approvals:
            approval_id += "-2"
        self._remember_approval(approval_id, call)
        return self._show_request(call, parts.ApprovalRequest(approval_id, call.wire_id, is_automatic=True))

    def cut_off_inputs(self) -> list[Chunk]:
        """Fail the calls whose input is incomplete, because the turn is over."""
        new_chunks: list[Chunk] = []
        for call in list(self._streaming.values()):
            new_chunks += self._refuse(
                call, parts.ToolInputError(call.wire_id, call.name, CUT_OFF, call.written_input())
            )
        return new_chunks

    def complete(self) -> list[Chunk]:
        """Settle what is incomplete at a good ending; calls that wait for the client stay open."""
        new_chunks = self._answer_automatic_requests()
        for call in self._by_wire_id.values():
            if call.interim:
                new_chunks += self._output(call, parts.ToolResult(call.wire_id, call.interim[0]))
            elif call.approved and not (call.settled or call.unanswered) and not self._runs_elsewhere(call):
                # Left as it is, lastAssistantMessageIsCompleteWithApprovalResponses would post again without end.
                new_chunks += self._fail(call, RUNS_ON if call.is_left else NO_RESULT)
        return new_chunks + self._pause_running() + self._fail_provider_calls() + self._complete_denials()

    def _runs_elsewhere(self, call: Call) -> bool:
        """Tell whether the source runs a call on in an earlier step, where no predicate of the client sees it."""
        return self._leaves_calls and not self.is_in_step(call.wire_id)

    def _pause_running(self) -> list[Chunk]:
        """Fail the calls that the source runs on beside a pending approval; their outcome replaces this one later.

        ``lastAssistantMessageIsCompleteWithApprovalResponses`` wants an outcome or an answer of each call of the step,
        or no page would post the answer of the person.
        """
        calls = [call for call in self._in_step.values() if call.is_left and call.state is ToolState.INPUT_AVAILABLE]
        return [chunk for call in calls for chunk in self._fail(call, RUNS_ON)] if self.asks_in_step() else []

    def _answer_automatic_requests(self) -> list[Chunk]:
        """Answer no to the requests that the server was to answer itself, and did not."""
        automatic = [call for call in self._by_wire_id.values() if call.is_automatic and call.unanswered]
        return [chunk for call in automatic for chunk in self._imply_answer(call, approved=False)]

    def _fail_provider_calls(self) -> list[Chunk]:
        """Fail the calls that the provider ran and gave no result for.

        They stay open beside client-side tools, whose results the provider may need first. Beside an approval they do
        not: ``lastAssistantMessageIsCompleteWithApprovalResponses`` wants an outcome of each call of the step.
        """
        in_step = self._in_step.values()
        waits = any(call.waits_for_client and call.approved is None for call in in_step)
        if waits and all(call.approval_id is None for call in in_step):
            return []
        calls = [call for call in self._by_wire_id.values() if call.by_provider and call.approved is None]
        return [
            chunk
            for call in calls
            if not (call.settled or call.pending or call.unanswered)
            for chunk in self._fail(call, NO_PROVIDER_RESULT)
        ]

    def _complete_denials(self) -> list[Chunk]:
        denied = [call for call in self._by_wire_id.values() if call.approved is False and not call.settled]
        return [
            chunk
            for call in denied
            for chunk in (self._deny(call) if self.is_in_step(call.wire_id) else self._settle_denied(call))
        ]

    def fail(self, text: str) -> list[Chunk]:
        """Fail the open calls when the turn ends early, except those whose approval is pending: history allows them."""
        new_chunks = self._answer_automatic_requests()
        for call in self._by_wire_id.values():
            if call.settled or call.unanswered:
                continue
            if call.shown_answer is False:
                call.approved = False  # even if it was to be asked about again
            elif call.approved is not False:
                new_chunks += self._fail(call, text)
        return new_chunks + self._complete_denials() + self._count_pending()

    def reset_step(self) -> None:
        """Forget the calls announced in the current step."""
        if not self._in_step:
            return
        void = set(self._in_step)
        indexes = (self._by_wire_id, self._calls, self._approvals, self._first_calls, self._questions, self._streaming)
        for index in indexes:
            for key in [key for key, call in index.items() if call.wire_id in void]:
                del index[key]
        self._forget_step()

    def _open(self, tool_call_id: str, name: str, dynamic: bool) -> Call:
        call = self._calls.get(tool_call_id)
        if call is None or call.settled:
            # Readers look a call up by its id, old ones in the whole message: a second call under the same id would
            # overwrite the first. It gets a new id.
            call = self._calls[tool_call_id] = self._show(tool_call_id, name, dynamic)
        return call

    def _show(self, wanted_id: str, name: str, dynamic: bool) -> Call:
        wire_id = wanted_id
        while wire_id in self._by_wire_id:
            self._repeats[wanted_id] += 1
            wire_id = f"{wanted_id}-{self._repeats[wanted_id] + 1}"
        call = self._by_wire_id[wire_id] = Call(wire_id, name, dynamic)
        return call

    def _announce(
        self, part: parts.ToolResult | parts.ToolError | parts.ToolDenied | parts.ApprovalRequest
    ) -> list[Chunk]:
        """Complete what the page knows of the call: its name and its whole input."""
        call = self._calls.get(part.tool_call_id)
        if call is None:
            name = part.tool_name or UNKNOWN_TOOL
            return self.call(parts.ToolCall(part.tool_call_id, name, {}, dynamic=part.dynamic))
        if call.state is ToolState.INPUT_STREAMING:
            return self.call(parts.ToolCall(part.tool_call_id, call.name, call.written_input()))
        return []

    def _ask_through_tool(self, part: parts.ApprovalRequest, call: Call) -> list[Chunk]:
        asides = {"reason": part.reason, "descriptor": part.descriptor, "signature": part.signature}
        question = {
            "approvalId": part.approval_id,
            "toolCallId": call.wire_id,
            "toolName": call.name,
            "input": call.input,
            **{key: value for key, value in asides.items() if value is not None},
        }
        question_call = self._questions[part.approval_id] = self._show(part.approval_id, APPROVAL_TOOL, dynamic=False)
        question_call.is_question = True
        return self._available(question_call, parts.ToolCall(question_call.wire_id, APPROVAL_TOOL, question))

    def _imply_answer(self, call: Call, *, approved: bool) -> list[Chunk]:
        """Answer a pending approval, with yes if the tool ran: the finished part would not validate otherwise."""
        if call.approval_id is None:
            return []
        return self._answer(call, parts.ApprovalResponse(call.approval_id, approved))

    def _remember_approval(self, approval_id: str, call: Call) -> None:
        """Let the call wait for the answer to this request; one to an earlier request finds the call no more."""
        if call.approval_id is not None and self._approvals.get(call.approval_id) is call:
            del self._approvals[call.approval_id]
        call.approval_id = approval_id
        self._approvals[approval_id] = call

    def _error(self, call: Call, text: str) -> Chunk:
        return chunks.ToolOutputErrorChunk(call.wire_id, text, _executor(call), dynamic=omit_false(call.dynamic))

    def _fail(self, call: Call, text: str) -> list[Chunk]:
        call.interim = []
        return call.advance(self._error(call, text))

    def _deny(self, call: Call, reason: str | None = None) -> list[Chunk]:
        """Settle a denied call of the current step, unless the page must answer another one.

        Beside such a call a settled denial keeps both predicates of the client false. The answer that the page
        shows does not; the next step, or the next turn, settles the call.
        """
        return [] if call.denied and self.holds_step() else self._settle_denied(call, reason)

    def _settle_denied(self, call: Call, reason: str | None = None) -> list[Chunk]:
        if call.unanswered:
            return []
        call.interim = []
        is_legal = chunks.ToolOutputDeniedChunk in TOOL_TRANSITIONS[call.state]
        if is_legal and call.denied and self._releases.knows("tool-output-denied"):
            return call.advance(chunks.ToolOutputDeniedChunk(call.wire_id))
        self._downgraded["tool-output-denied"] += 1
        return self._fail(call, f"{DENIED} {reason}" if reason else DENIED)

    _handlers: ClassVar[Mapping[type[parts.ToolPart], Callable[[Any, Any], list[Chunk]]]] = {
        parts.ToolInputStart: input_start,
        parts.ToolInputDelta: input_delta,
        parts.ToolCall: call,
        parts.ToolInputError: input_error,
        parts.ToolResult: result,
        parts.ToolError: error,
        parts.ToolDenied: denied,
        parts.ApprovalRequest: request,
        parts.ApprovalResponse: response,
    }
