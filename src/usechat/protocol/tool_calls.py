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
   under the id of a settled one gets an id of its own (``c1-2``). Parts still name it by the source's id.
3. **Every part validates.** An output of a call whose approval is pending implies the approval; a denial without
   a request gets its request and its answer, or becomes an error where the client knows no denials.
   A call that was denied, or whose input was refused, takes no later outcome.
4. **An approval request is answered under its own id.** Only the newest request of a call counts, because the page
   shows no other; an answer to an earlier one is dropped.
5. **Nothing is left that makes a page post for ever, or wait for ever**: when the turn ends, preliminary results become
   final, approved calls without a result fail, and automatic requests without an answer are denied. Calls that wait for
   the client (its own tools, pending approvals) stay open; if the turn fails, only pending approvals do. A call that
   the provider runs waits for no client. It fails, unless the provider may need the result of a client-side tool first.

Where the protocol cannot send the answer to a request (AI SDK 6 has no ``tool-approval-response``), a request is sent
at the end of the turn, if it is still pending then (:meth:`ToolCalls.show_requests`): a part with a request and an
outcome, but without an answer, does not validate. Pages post nothing before the end of the turn in any case. For the
same reason what the page shows of an earlier turn counts there: a request that it left unanswered stays open, whatever
the source says came of it, and a "no" that it gave stays a "no".

Where a client has no approvals (AI SDK 5), the request becomes a call of the client-side tool ``approval`` whose output
is the answer, likewise at the end of the turn (:meth:`ToolCalls.ask`).

A continued message is untrusted client input. Its calls are restored with a state that agrees with the rest of the
part, so that no claim of a client can lead to a move outside the table.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from usechat.errors import InvalidJSON
from usechat.protocol import chunks, parts
from usechat.protocol.chunks import Chunk
from usechat.protocol.content import metadata, omit_false, omit_none, provider_metadata
from usechat.protocol.releases import Releases
from usechat.protocol.states import SETTLED, TOOL_TRANSITIONS, ToolState, tool_state_after
from usechat.protocol.values import json_value, parse_json

__all__ = [
    "APPROVAL_TOOL",
    "UNKNOWN_TOOL",
    "Call",
    "ToolCalls",
    "call_of",
    "is_settled",
    "tool_parts_of",
]


UNKNOWN_TOOL: Final = "unknown"
APPROVAL_TOOL: Final = "approval"
"""The client-side tool that stands for an approval request where the client has none."""

CUT_OFF: Final = "The tool call was cut off before its input was complete."
NO_RESULT: Final = "The approved tool call gave no result."
NO_PROVIDER_RESULT: Final = "The provider gave no result for this tool call."
DENIED: Final = "The tool call was denied."


class Call:
    """One tool call as the page shows it. ``wire_id`` differs from the source's id only when that id came twice."""

    # A long turn has many, and all are kept to its end: an id that is used again must not find the earlier call.
    __slots__ = (
        "approval_id",
        "approval_shown",
        "approved",
        "asked",
        "by_provider",
        "dynamic",
        "input",
        "input_encoding",
        "input_text",
        "interim",
        "is_automatic",
        "is_question",
        "name",
        "refused",
        "restored",
        "shown_answer",
        "state",
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
        self.asked = False  # whether this stream asked for its approval
        self.is_automatic = False  # the request that the page shows is for the server to answer
        self.by_provider = False  # the provider runs it
        self.refused = False  # its input is not valid, so it never ran
        self.is_question = False  # a call of the client-side tool that asks for the approval of another call
        self.restored = False  # known only from a message that the client sent

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

    def advance(self, *sent: Chunk) -> list[Chunk]:
        """Make the moves of chunks about this call, and return them; LocalProtocolError if one is not in the table."""
        for chunk in sent:
            self.state = tool_state_after(self.state, chunk)
            by_provider = getattr(chunk, "provider_executed", None)
            self.by_provider = self.by_provider if by_provider is None else by_provider
        if self.settled:
            self.input, self.input_text = None, []
        return list(sent)

    def written_input(self) -> Any:
        """Return the input that was streamed so far: its value, or the text itself if that is not JSON."""
        text = "".join(self.input_text)
        if self.input_encoding == "text":
            return text
        try:
            return parse_json(text)
        except InvalidJSON:
            return text or {}


def tool_parts_of(message: Mapping[str, Any], *, last_step: bool = False) -> list[Mapping[str, Any]]:
    """Return the tool parts of a message that a client sent back; parts without a type and an id are left out."""
    parts = message.get("parts")
    found = parts if isinstance(parts, list) else []
    if last_step:
        starts = [
            index for index, part in enumerate(found) if isinstance(part, Mapping) and part.get("type") == "step-start"
        ]
        found = found[starts[-1] :] if starts else found
    return [
        part
        for part in found
        if isinstance(part, Mapping)
        and isinstance(part.get("toolCallId"), str)
        and isinstance(kind := part.get("type"), str)
        and (kind == "dynamic-tool" or kind.startswith("tool-"))
    ]


def is_settled(part: Mapping[str, Any]) -> bool:
    """Tell whether a tool part that a client sent back has an outcome; its state may be any JSON."""
    return str(part.get("state")) in SETTLED


def call_of(part: Mapping[str, Any]) -> Call:
    """Return the call that a tool part describes, in a state that agrees with its approval."""
    dynamic = part["type"] == "dynamic-tool"
    name = str(part.get("toolName", UNKNOWN_TOOL)) if dynamic else part["type"].removeprefix("tool-")
    call = Call(part["toolCallId"], name, dynamic)
    call.restored = True
    call.state = _state_of(part)
    call.input = part.get("input")
    call.by_provider = part.get("providerExecuted") is True
    call.refused = call.state is ToolState.OUTPUT_ERROR and "input" not in part
    approval = part.get("approval")
    if call.state is not ToolState.INPUT_AVAILABLE and isinstance(approval, Mapping):
        _restore_answer(call, approval)
    if part.get("preliminary") and call.state is ToolState.OUTPUT_AVAILABLE and not call.denied:
        call.interim = [part.get("output")]
    return call


def _restore_answer(call: Call, approval: Mapping[str, Any]) -> None:
    call.approval_id = approval["id"] if isinstance(approval.get("id"), str) else None
    call.approval_shown = call.approval_id is not None
    call.is_automatic = approval.get("isAutomatic") is True
    if call.approval_shown and call.state is not ToolState.APPROVAL_REQUESTED:
        # What has an output and was not denied was approved, even if the client does not say so.
        approved = approval.get("approved")
        call.approved = approved if isinstance(approved, bool) else call.state is not ToolState.OUTPUT_DENIED
        call.shown_answer = call.approved


def _state_of(part: Mapping[str, Any]) -> ToolState:
    """Return the state of a tool part that a client sent back, as far as the part bears it out."""
    try:
        state = ToolState(str(part.get("state")))
    except ValueError:
        return ToolState.INPUT_AVAILABLE
    if state in (ToolState.ABSENT, ToolState.INPUT_STREAMING):
        return ToolState.INPUT_AVAILABLE  # an input of an earlier turn is never continued
    if state in (ToolState.APPROVAL_REQUESTED, ToolState.APPROVAL_RESPONDED):
        match part.get("approval"):
            case {"id": str(), "approved": bool()}:
                return state
            case {"id": str()}:
                return ToolState.APPROVAL_REQUESTED
        return ToolState.INPUT_AVAILABLE
    return state


class ToolCalls:
    """The tool calls of one message: returns the chunks that each tool part takes."""

    def __init__(self, releases: Releases, downgraded: Counter[str]) -> None:
        self._releases = releases
        self._downgraded = downgraded
        self._shown: dict[str, Call] = {}  # every call, by its id on the wire
        self._calls: dict[str, Call] = {}  # the current call of each of the source's ids
        self._approvals: dict[str, Call] = {}  # the call that an approval is about
        self._first_asked: dict[str, Call] = {}  # the first call of an approval id: readers find no other by it
        self._questions: dict[str, Call] = {}  # the client-side tool call that asks for an approval
        self._unasked: dict[str, parts.ApprovalRequest] = {}  # by the call: requests that wait for the end of the turn
        self._in_step: dict[str, Call] = {}
        self._open_in_step: dict[str, Call] = {}  # without those that are known to be settled
        self._repeats: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._shown)

    def restore(self, message: Mapping[str, Any]) -> None:
        """Take over the calls of the assistant message that this stream continues, in its last step."""
        for part in tool_parts_of(message):
            # Readers find the last part of an id first, so that is the one that later chunks refer to.
            call = call_of(part)
            self._shown[call.wire_id] = self._calls[call.wire_id] = call
            self._restore_approval(call, part)
        for part in tool_parts_of(message, last_step=True):
            self.place(part["toolCallId"])

    def _restore_approval(self, call: Call, part: Mapping[str, Any]) -> None:
        if call.approval_id is not None:
            self._remember_approval(call.approval_id, call)
            self._first_asked.setdefault(call.approval_id, call)
        if call.name == APPROVAL_TOOL and isinstance(call.input, Mapping):
            approval_id = str(call.input.get("approvalId"))
            self._questions[approval_id] = call
            call.is_question = True
            asked = self._calls.get(str(call.input.get("toolCallId")))
            if asked is not None and asked is not call and not asked.approval_shown:
                self._remember_approval(approval_id, asked)
                answer = part.get("output")
                asked.approved = answer.get("approved") if isinstance(answer, Mapping) else None

    def place(self, wire_id: str) -> None:
        """Note that the part of a call stands in the current step."""
        if wire_id not in self._in_step:
            self._in_step[wire_id] = self._open_in_step[wire_id] = self._shown[wire_id]

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
        for wire_id, call in list(self._open_in_step.items()):
            if call.settled:
                del self._open_in_step[wire_id]
            elif not call.denied:
                return True
        return False

    def streams_input(self) -> bool:
        """Tell whether the input of a call of the current step is incomplete."""
        return any(call.state is ToolState.INPUT_STREAMING for call in self._open_in_step.values())

    def settle_denied(self) -> list[Chunk]:
        """Give the calls of the current step that were denied their outcome."""
        denied = [call for call in self._open_in_step.values() if call.denied and not call.settled]
        return [chunk for call in denied for chunk in self._settle_denied(call)]

    def is_in_step(self, wire_id: str) -> bool:
        """Tell whether the call was announced in the current step; its part stands there, whenever its output comes."""
        return wire_id in self._in_step

    def is_by_provider(self, wire_id: str) -> bool:
        """Tell whether the provider runs the call."""
        return self._shown[wire_id].by_provider

    def meant_by(self, tool_call_id: str) -> Call | None:
        """Return the current call of one of the source's ids."""
        return self._calls.get(tool_call_id)

    def waiting(self) -> list[Call]:
        """Return the calls that wait for the client, without the client-side tools that merely ask for an approval."""
        return [call for call in self._shown.values() if call.waits_for_client and not call.is_question]

    def is_waiting(self) -> bool:
        """Tell whether some call waits for the client: a client-side tool or an approval."""
        return any(call.waits_for_client for call in self._shown.values())

    def send(self, part: parts.ToolPart) -> list[Chunk]:
        """Return the chunks that the part takes."""
        return self._handlers[type(part)](self, part)

    def input_start(self, part: parts.ToolInputStart) -> list[Chunk]:
        """Begin a call; nothing is sent for one that is known and not settled."""
        call = self._open(part.tool_call_id, part.tool_name, part.dynamic)
        if call.state is not ToolState.ABSENT:
            return []
        call.input_encoding = part.input_encoding
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
        sent = []
        if part.tool_call_id not in self._calls:
            sent = self.input_start(parts.ToolInputStart(part.tool_call_id, UNKNOWN_TOOL))
        call = self._calls[part.tool_call_id]
        if chunks.ToolInputDeltaChunk not in TOOL_TRANSITIONS[call.state]:
            return sent
        call.input_text.append(part.text)
        return sent + call.advance(chunks.ToolInputDeltaChunk(call.wire_id, part.text))

    def call(self, part: parts.ToolCall) -> list[Chunk]:
        """Complete the input. A call that is announced twice is one call."""
        return self._available(self._open(part.tool_call_id, part.tool_name, part.dynamic), part)

    def _available(self, call: Call, part: parts.ToolCall) -> list[Chunk]:
        if part.retracts_output and not call.approval_shown:  # `input-available` with an approval does not validate
            call.interim = []
        if call.interim or chunks.ToolInputAvailableChunk not in TOOL_TRANSITIONS[call.state]:
            return []
        call.input = json_value(part.input)
        return call.advance(
            chunks.ToolInputAvailableChunk(
                call.wire_id,
                call.name,
                call.input,
                part.provider_executed,
                provider_metadata(part.provider_metadata),
                metadata(part.tool_metadata),
                omit_false(call.dynamic),
                part.title,
            )
        )

    def input_error(self, part: parts.ToolInputError) -> list[Chunk]:
        """Refuse the call; where ``tool-input-error`` is unknown, send a call and its failure."""
        return self._refuse(self._open(part.tool_call_id, part.tool_name, part.dynamic), part)

    def _refuse(self, call: Call, part: parts.ToolInputError) -> list[Chunk]:
        if chunks.ToolInputErrorChunk not in TOOL_TRANSITIONS[call.state]:
            return self._end_with(call, lambda: self._fail(call, part.error_text))
        call.refused = True
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
        sent = self._announce(part)
        return sent + self._output(self._calls[part.tool_call_id], part)

    def _output(self, call: Call, part: parts.ToolResult) -> list[Chunk]:
        output = json_value(part.output)
        if part.preliminary:
            if call.settled or call.denied:
                return []
            call.interim = [output]
            if not self._releases.knows("tool-output-available", "preliminary"):
                self._downgraded["tool-output-available.preliminary"] += 1
                return []
        else:
            call.interim = []
        chunk = chunks.ToolOutputAvailableChunk(
            call.wire_id,
            output,
            part.provider_executed,
            provider_metadata(part.provider_metadata),
            metadata(part.tool_metadata),
            omit_false(part.preliminary),
            omit_false(call.dynamic),
        )
        return self._end_with(call, lambda: call.advance(chunk))

    def _end_with(self, call: Call, outcome: Callable[[], list[Chunk]]) -> list[Chunk]:
        """Send an outcome, unless the call has one that it would contradict. A denied call is sent as denied."""
        if call.closed:
            return []
        sent = self._imply_answer(call, approved=True)
        if call.unanswered:
            return sent
        if call.denied and not call.settled:
            # Agents report a denial as the tool's result or failure, too.
            return sent + self._deny(call)
        return sent + outcome()

    def error(self, part: parts.ToolError) -> list[Chunk]:
        """Send the failure of a tool."""
        sent = self._announce(part)
        call = self._calls[part.tool_call_id]
        call.interim = []
        chunk = chunks.ToolOutputErrorChunk(
            call.wire_id,
            part.error_text,
            part.provider_executed,
            provider_metadata(part.provider_metadata),
            metadata(part.tool_metadata),
            omit_false(call.dynamic),
        )
        return sent + self._end_with(call, lambda: call.advance(chunk))

    def denied(self, part: parts.ToolDenied) -> list[Chunk]:
        """Settle a call that was not allowed to run.

        A denied part without an answered approval does not validate afterwards (``validateUIMessages``), so the
        answer is supplied where the client knows it, and a plain tool error stands in where it does not.
        """
        sent = self._announce(part)
        call = self._calls[part.tool_call_id]
        if call.closed:
            return sent
        call.interim = []
        if call.approval_id is None and not call.settled and self._releases.knows("tool-approval-response"):
            sent += self._request_automatically(call)
        if call.approval_id is not None:
            sent += self._answer(call, parts.ApprovalResponse(call.approval_id, False, part.reason))
        return sent + self._deny(call, part.reason)

    def request(self, part: parts.ApprovalRequest) -> list[Chunk]:
        """Ask for an approval: now, or at the end of the turn. Automatic requests are for 7 alone."""
        sent = self._announce(part)
        call = self._calls[part.tool_call_id]
        if call.settled:
            return sent
        if part.is_automatic and not self._releases.knows("tool-approval-request", "isAutomatic"):
            self._downgraded["tool-approval-request.isAutomatic"] += 1
            self._approvals[part.approval_id] = call
            return sent
        call.asked, call.approved = True, None
        self._remember_approval(part.approval_id, call)
        if not self._releases.knows("tool-approval-request"):
            self._downgraded["tool-approval-request"] += 1
        if not self._releases.knows("tool-approval-response"):
            self._unasked[call.wire_id] = part
            return sent
        return sent + self._show_request(call, part)

    def _show_request(self, call: Call, part: parts.ApprovalRequest) -> list[Chunk]:
        taken_back = self._take_back_output(call)
        self._first_asked.setdefault(part.approval_id, call)
        call.approval_shown, call.shown_answer, call.is_automatic = True, None, part.is_automatic
        if not part.is_automatic:
            call.interim = []  # made final, an output from before the question would imply that the answer was yes
        return taken_back + call.advance(
            chunks.ToolApprovalRequestChunk(
                part.approval_id,
                call.wire_id,
                json_value(part.descriptor),
                omit_none(part.input_schema_input),
                part.reason,
                omit_false(part.is_automatic),
                part.signature,
            )
        )

    def _take_back_output(self, call: Call) -> list[Chunk]:
        """Announce a call again that has a preliminary result, and readers drop the result.

        A part with an output and a request does not validate.
        """
        if call.state is not ToolState.OUTPUT_AVAILABLE:
            return []
        return call.advance(
            chunks.ToolInputAvailableChunk(call.wire_id, call.name, call.input, dynamic=omit_false(call.dynamic))
        )

    def show_requests(self) -> list[Chunk]:
        """Send the pending approval requests that waited for the end of the turn, where the client has approvals."""
        if not self._releases.knows("tool-approval-request"):
            return []
        return [chunk for part, call in self._take_pending() for chunk in self._show_request(call, part)]

    def _take_pending(self) -> list[tuple[parts.ApprovalRequest, Call]]:
        """Return the requests that waited for the end of the turn and are still pending, each once."""
        unasked, self._unasked = self._unasked, {}
        pending = [(part, self._shown[wire_id]) for wire_id, part in unasked.items()]
        return [(part, call) for part, call in pending if call.approved is None and not call.settled]

    def ask(self) -> list[Chunk]:
        """Ask for the pending approvals through a client-side tool, where the client has no approvals.

        The calls of it must be alone in the last step, at the end of the turn:
        ``lastAssistantMessageIsCompleteWithToolCalls`` wants every call of the last step answered, and the call that
        waits for the approval never is.
        """
        return [chunk for part, call in self._take_pending() for chunk in self._ask_through_tool(part, call)]

    def response(self, part: parts.ApprovalResponse) -> list[Chunk]:
        """Answer an approval; an answer to a request that is unknown, answered or replaced is dropped."""
        call = self._approvals.get(part.approval_id)
        return [] if call is None else self._answer(call, part)

    def _answer(self, call: Call, part: parts.ApprovalResponse) -> list[Chunk]:
        if call.approved is not None or call.settled:
            return []
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
        is_found = is_current and self._first_asked.get(part.approval_id) is call
        sent = [] if is_found else self._request_automatically(call)
        call.approved = call.shown_answer = part.approved
        return sent + call.advance(
            chunks.ToolApprovalResponseChunk(
                str(call.approval_id),
                part.approved,
                part.reason,
                part.provider_executed,
                provider_metadata(part.provider_metadata),
            )
        )

    def _request_automatically(self, call: Call) -> list[Chunk]:
        """Send a request that is answered at once, under an id of its own."""
        approval_id = f"{call.wire_id}-approval"
        while approval_id in self._first_asked or approval_id in self._approvals:
            approval_id += "-2"
        self._remember_approval(approval_id, call)
        return self._show_request(call, parts.ApprovalRequest(approval_id, call.wire_id, is_automatic=True))

    def cut_off_inputs(self) -> list[Chunk]:
        """Fail the calls whose input is incomplete, because the turn is over."""
        sent: list[Chunk] = []
        for call in self._shown.values():
            if call.state is ToolState.INPUT_STREAMING:
                sent += self._refuse(call, parts.ToolInputError(call.wire_id, call.name, CUT_OFF, call.written_input()))
        return sent

    def complete(self) -> list[Chunk]:
        """Settle what is incomplete at a good ending; calls that wait for the client stay open."""
        sent = self._answer_automatic_requests()
        for call in self._shown.values():
            is_asked_about = call.wire_id in self._unasked and call.approved is None
            if call.interim and not is_asked_about:
                sent += self._output(call, parts.ToolResult(call.wire_id, call.interim[0]))
            elif call.approved and not (call.settled or call.unanswered):
                # Left as it is, lastAssistantMessageIsCompleteWithApprovalResponses would re-post for ever.
                sent += self._fail(call, NO_RESULT)
        return sent + self._fail_provider_calls() + self._complete_denials()

    def _answer_automatic_requests(self) -> list[Chunk]:
        """Answer no to the requests that the server was to answer itself, and did not."""
        automatic = [call for call in self._shown.values() if call.is_automatic and call.unanswered]
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
        calls = [call for call in self._shown.values() if call.by_provider and call.approved is None]
        return [
            chunk
            for call in calls
            if not (call.settled or call.pending or call.unanswered)
            for chunk in self._fail(call, NO_PROVIDER_RESULT)
        ]

    def _complete_denials(self) -> list[Chunk]:
        denied = [call for call in self._shown.values() if call.approved is False and not call.settled]
        return [
            chunk
            for call in denied
            for chunk in (self._deny(call) if self.is_in_step(call.wire_id) else self._settle_denied(call))
        ]

    def fail(self, text: str) -> list[Chunk]:
        """Fail the open calls when the turn ends early, except those whose approval is pending: history allows them."""
        sent = self._answer_automatic_requests()
        for call in self._shown.values():
            if call.settled or call.unanswered:
                continue
            if call.shown_answer is False:
                call.approved = False  # even if it was to be asked about again
            elif call.approved is not False:
                sent += self._fail(call, text)
        return sent + self._complete_denials()

    def end_step(self) -> None:
        """End the step: calls announced from now on belong to the next."""
        self._in_step, self._open_in_step = {}, {}

    def reset_step(self) -> None:
        """Forget the calls announced in the current step."""
        void = set(self._in_step)
        for index in (self._shown, self._calls, self._approvals, self._first_asked, self._questions):
            for key in [key for key, call in index.items() if call.wire_id in void]:
                del index[key]
        self.end_step()

    def _open(self, tool_call_id: str, name: str, dynamic: bool) -> Call:
        call = self._calls.get(tool_call_id)
        if call is None or call.settled:
            # Readers look a call up by its id, old ones in the whole message: a second call under the same id would
            # overwrite the first. It gets an id of its own.
            call = self._calls[tool_call_id] = self._show(tool_call_id, name, dynamic)
        return call

    def _show(self, wanted_id: str, name: str, dynamic: bool) -> Call:
        wire_id = wanted_id
        while wire_id in self._shown:
            self._repeats[wanted_id] += 1
            wire_id = f"{wanted_id}-{self._repeats[wanted_id] + 1}"
        call = self._shown[wire_id] = Call(wire_id, name, dynamic)
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
        asked = self._questions[part.approval_id] = self._show(part.approval_id, APPROVAL_TOOL, dynamic=False)
        asked.is_question = True
        return self._available(asked, parts.ToolCall(asked.wire_id, APPROVAL_TOOL, question))

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
        return chunks.ToolOutputErrorChunk(call.wire_id, text, dynamic=omit_false(call.dynamic))

    def _fail(self, call: Call, text: str) -> list[Chunk]:
        call.interim = []
        return call.advance(self._error(call, text))

    def _deny(self, call: Call, reason: str | None = None) -> list[Chunk]:
        """Settle a denied call of the current step, unless the page must answer another one.

        Beside such a call a settled denial keeps both predicates of the client false for ever. The answer that the page
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
