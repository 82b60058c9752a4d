"""Turn what tools did into chunks that are legal now, whatever was announced before.

Sources are careless about tools. They report a result for a call that they never announced, announce a call twice, use
an id again, stream half an input and go on, ask for an approval and never say what came of it. Clients are strict: a
chunk about a call that the page does not know ends the turn with an error, and a message whose parts contradict each
other is refused when it comes back (``validateUIMessages``). ``ToolCalls`` stands between the two. It keeps one
``Call`` per tool part on the page, with the state that the page shows, and answers each part with the chunks that are
missing plus the chunk that was meant.

What it guarantees:

1. **Every chunk is a move of the table** ``TOOL_TRANSITIONS``. ``Call.advance`` looks it up by the state of the call;
   the methods here ask the table first and complete the input, or say nothing, where the chunk is not legal.
2. **One id on the wire is one call.** Readers look calls up by id, old ones in the whole message, so a second call
   under the id of a settled one gets an id of its own (``c1-2``). Parts go on naming it by the source's id.
3. **A finished call validates.** An output of a call whose approval is pending implies the approval; a denial without
   a request gets its request and its answer, or becomes an error where the client knows no denials.
4. **Nothing is left that makes a page post for ever**: when the turn ends, preliminary results become final and
   approved calls without a result fail. Calls that wait for the client (its own tools, pending approvals) stay open;
   if the turn fails, only pending approvals do.

Where a client has no approvals (AI SDK 5), the request becomes a call of the client-side tool ``approval`` whose output
is the answer. ``_questions`` holds those calls.

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
    "tool_parts_of",
]


UNKNOWN_TOOL: Final = "unknown"
APPROVAL_TOOL: Final = "approval"
"""The client-side tool that stands for an approval request where the client has none."""

CUT_OFF: Final = "The tool call was cut off before its input was complete."
NO_RESULT: Final = "The approved tool call gave no result."
DENIED: Final = "The tool call was denied."


class Call:
    """One tool call as the page shows it. ``wire_id`` differs from the source's id only when that id came twice."""

    # A long turn has many, and all are kept to its end: an id that is used again must not find the earlier call.
    __slots__ = (
        "_streaming",
        "approval_id",
        "approval_shown",
        "approved",
        "asked",
        "dynamic",
        "input",
        "input_encoding",
        "input_text",
        "interim",
        "name",
        "restored",
        "state",
        "wire_id",
    )

    def __init__(self, wire_id: str, name: str, dynamic: bool, streaming: set[str]) -> None:
        self._streaming = streaming  # shared by all calls: the ids of those whose input is being written
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
        self.approved: bool | None = None
        self.asked = False  # whether this stream asked for its approval
        self.restored = False  # known only from a message that the client sent

    @property
    def settled(self) -> bool:
        """Tell whether the call has its final outcome."""
        return self.state in SETTLED and not self.interim

    def advance(self, *sent: Chunk) -> list[Chunk]:
        """Make the moves of chunks about this call, and return them; LocalProtocolError if one is not in the table."""
        for chunk in sent:
            self.state = tool_state_after(self.state, chunk)
        if self.state is ToolState.INPUT_STREAMING:
            self._streaming.add(self.wire_id)
        else:
            self._streaming.discard(self.wire_id)
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


def tool_parts_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tool parts of a message that a client sent back; parts without a type and an id are left out."""
    parts = message.get("parts")
    return [
        part
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, Mapping)
        and isinstance(part.get("toolCallId"), str)
        and isinstance(kind := part.get("type"), str)
        and (kind == "dynamic-tool" or kind.startswith("tool-"))
    ]


def call_of(part: Mapping[str, Any], streaming: set[str]) -> Call:
    """Return the call that a tool part describes, in a state that agrees with its approval."""
    dynamic = part["type"] == "dynamic-tool"
    name = str(part.get("toolName", UNKNOWN_TOOL)) if dynamic else part["type"].removeprefix("tool-")
    call = Call(part["toolCallId"], name, dynamic, streaming)
    call.restored = True
    call.state = _state_of(part)
    call.input = part.get("input")
    call.interim = [part.get("output")] if part.get("preliminary") else []
    approval = part.get("approval")
    if call.state is ToolState.INPUT_AVAILABLE or not isinstance(approval, Mapping):
        return call
    call.approval_id = approval["id"] if isinstance(approval.get("id"), str) else None
    call.approval_shown = call.approval_id is not None
    if call.approval_shown and call.state is not ToolState.APPROVAL_REQUESTED:
        # What has an output and was not denied was approved, even if the client does not say so.
        approved = approval.get("approved")
        call.approved = approved if isinstance(approved, bool) else call.state is not ToolState.OUTPUT_DENIED
    return call


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
        self._questions: dict[str, Call] = {}  # the client-side tool call that asks for an approval
        self._in_step: dict[str, Call] = {}
        self._streaming: set[str] = set()  # the wire ids of calls whose input is being written
        self._repeats: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return bool(self._shown)

    def restore(self, message: Mapping[str, Any]) -> None:
        """Take over the calls of the assistant message that this stream continues."""
        for part in tool_parts_of(message):
            # Readers find the last part of an id first, so that is the one that can be spoken of.
            call = call_of(part, self._streaming)
            self._shown[call.wire_id] = self._calls[call.wire_id] = call
            self._restore_approval(call, part)

    def _restore_approval(self, call: Call, part: Mapping[str, Any]) -> None:
        if call.approval_id is not None:
            self._remember_approval(call.approval_id, call)
        if call.name == APPROVAL_TOOL and isinstance(call.input, Mapping):
            approval_id = str(call.input.get("approvalId"))
            self._questions[approval_id] = call
            if asked := self._calls.get(str(call.input.get("toolCallId"))):
                self._remember_approval(approval_id, asked)
                answer = part.get("output")
                asked.approved = answer.get("approved") if isinstance(answer, Mapping) else None

    def has_calls_in_step(self) -> bool:
        """Tell whether a call was announced in the current step."""
        return bool(self._in_step)

    def is_in_step(self, wire_id: str) -> bool:
        """Tell whether the call was announced in the current step; its part stands there, whenever its output comes."""
        return wire_id in self._in_step

    def is_streaming(self) -> bool:
        """Tell whether some call's input is still being written."""
        return bool(self._streaming)

    def meant_by(self, tool_call_id: str) -> Call | None:
        """Return the current call of one of the source's ids."""
        return self._calls.get(tool_call_id)

    def waiting(self) -> list[Call]:
        """Return the calls that wait for the client, without the client-side tools that merely ask for an approval."""
        return [call for call in self._shown.values() if not call.settled and call not in self._questions.values()]

    def is_waiting(self) -> bool:
        """Tell whether some call waits for the client: a client-side tool or an approval."""
        return any(not call.settled for call in self._shown.values())

    def concerns_streaming_call(self, part: parts.Part) -> bool:
        """Tell whether the part speaks of a call whose input is still being written."""
        call = self._calls.get(getattr(part, "tool_call_id", None))  # type: ignore[arg-type]
        return call is not None and call.state is ToolState.INPUT_STREAMING

    def needs_own_step(self, part: parts.ApprovalRequest) -> bool:
        """Tell whether the request becomes a client-side tool, which must be alone with its like in the last step.

        ``lastAssistantMessageIsCompleteWithToolCalls`` wants every call of the last step answered; the call that waits
        for the approval never is.
        """
        return not part.is_automatic and not self._releases.knows("tool-approval-request")

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
        if chunks.ToolInputAvailableChunk not in TOOL_TRANSITIONS[call.state]:
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
            return self._imply_approval(call) + self._fail(call, part.error_text)
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
            if call.settled:
                return []
            call.interim = [output]
            if not self._releases.knows("tool-output-available", "preliminary"):
                self._downgraded["tool-output-available.preliminary"] += 1
                return []
        else:
            call.interim = []
        return self._imply_approval(call) + call.advance(
            chunks.ToolOutputAvailableChunk(
                call.wire_id,
                output,
                part.provider_executed,
                provider_metadata(part.provider_metadata),
                metadata(part.tool_metadata),
                omit_false(part.preliminary),
                omit_false(call.dynamic),
            )
        )

    def error(self, part: parts.ToolError) -> list[Chunk]:
        """Send the failure of a tool."""
        sent = self._announce(part)
        call = self._calls[part.tool_call_id]
        call.interim = []
        sent += self._imply_approval(call)
        return sent + call.advance(
            chunks.ToolOutputErrorChunk(
                call.wire_id,
                part.error_text,
                part.provider_executed,
                provider_metadata(part.provider_metadata),
                metadata(part.tool_metadata),
                omit_false(call.dynamic),
            )
        )

    def denied(self, part: parts.ToolDenied) -> list[Chunk]:
        """Settle a call that was not allowed to run.

        A denied part without an answered approval does not validate afterwards (``validateUIMessages``), so the
        answer is supplied where the client knows it, and a plain tool error stands in where it does not.
        """
        sent = self._announce(part)
        call = self._calls[part.tool_call_id]
        call.interim = []
        if call.approval_id is None and self._releases.knows("tool-approval-response"):
            approval_id = f"{call.wire_id}-approval"
            sent += self.request(parts.ApprovalRequest(approval_id, part.tool_call_id, is_automatic=True))
        if call.approval_id is not None:
            sent += self.response(parts.ApprovalResponse(call.approval_id, False, part.reason))
        return sent + self._settle_denied(call, part.reason)

    def request(self, part: parts.ApprovalRequest) -> list[Chunk]:
        """Ask for an approval: clients without approvals get a client-side tool; automatic ones are for 7 alone."""
        sent = self._announce(part)
        call = self._calls[part.tool_call_id]
        if call.settled:
            return sent
        call.asked = True
        if not part.is_automatic:
            call.interim = []  # made final, an output from before the question would imply that the answer was yes
        self._remember_approval(part.approval_id, call)
        if self.needs_own_step(part):
            self._downgraded["tool-approval-request"] += 1
            return sent + self._ask_through_tool(part, call)
        if part.is_automatic and not self._releases.knows("tool-approval-request", "isAutomatic"):
            self._downgraded["tool-approval-request.isAutomatic"] += 1
            return sent
        call.approval_shown = True
        return sent + call.advance(
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

    def response(self, part: parts.ApprovalResponse) -> list[Chunk]:
        """Answer an approval; an answer without a request, and a second one, are dropped."""
        call = self._approvals.get(part.approval_id)
        if call is None or call.approved is not None or call.settled:
            return []
        call.approved = part.approved
        if question := self._questions.get(part.approval_id):
            answer = {"approved": part.approved, **({"reason": part.reason} if part.reason is not None else {})}
            return self._output(question, parts.ToolResult(question.wire_id, answer))
        if not self._releases.knows("tool-approval-response"):
            self._downgraded["tool-approval-response"] += 1
            return []
        return call.advance(
            chunks.ToolApprovalResponseChunk(
                part.approval_id,
                part.approved,
                part.reason,
                part.provider_executed,
                provider_metadata(part.provider_metadata),
            )
        )

    def cut_off_inputs(self) -> list[Chunk]:
        """Fail the calls whose input is incomplete, because the turn is over."""
        sent: list[Chunk] = []
        for call in self._shown.values():
            if call.state is ToolState.INPUT_STREAMING:
                sent += self._refuse(call, parts.ToolInputError(call.wire_id, call.name, CUT_OFF, call.written_input()))
        return sent

    def complete(self) -> list[Chunk]:
        """Settle what is incomplete at a good ending; calls that wait for the client stay open."""
        sent: list[Chunk] = []
        for call in self._shown.values():
            if call.interim:
                sent += self._output(call, parts.ToolResult(call.wire_id, call.interim[0]))
            elif call.approved is not None and not call.settled:
                # Left as it is, lastAssistantMessageIsCompleteWithApprovalResponses would re-post for ever.
                sent += self._fail(call, NO_RESULT) if call.approved else self._settle_denied(call)
        return sent

    def fail(self, text: str) -> list[Chunk]:
        """Fail the open calls when the turn breaks off, except those whose approval is pending: history allows them."""
        sent: list[Chunk] = []
        for call in self._shown.values():
            if call.approved is False and not call.settled:
                sent += self._settle_denied(call)
            elif not call.settled and call.state is not ToolState.APPROVAL_REQUESTED:
                sent += self._fail(call, text)
        return sent

    def end_step(self) -> None:
        """End the step: calls announced from now on belong to the next."""
        self._in_step = {}

    def reset_step(self) -> None:
        """Forget the calls announced in the current step."""
        void = set(self._in_step)
        self._streaming -= void
        for index in (self._shown, self._calls, self._approvals, self._questions):
            for key in [key for key, call in index.items() if call.wire_id in void]:
                del index[key]
        self._in_step = {}

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
        call = self._shown[wire_id] = self._in_step[wire_id] = Call(wire_id, name, dynamic, self._streaming)
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
        return self._available(asked, parts.ToolCall(asked.wire_id, APPROVAL_TOOL, question))

    def _imply_approval(self, call: Call) -> list[Chunk]:
        """Answer a pending approval with yes, because the tool ran: the finished part would not validate otherwise."""
        if call.approval_id is None or call.approved is not None:
            return []
        return self.response(parts.ApprovalResponse(call.approval_id, True))

    def _remember_approval(self, approval_id: str, call: Call) -> None:
        call.approval_id = approval_id
        self._approvals[approval_id] = call

    def _error(self, call: Call, text: str) -> Chunk:
        return chunks.ToolOutputErrorChunk(call.wire_id, text, dynamic=omit_false(call.dynamic))

    def _fail(self, call: Call, text: str) -> list[Chunk]:
        call.interim = []
        return call.advance(self._error(call, text))

    def _settle_denied(self, call: Call, reason: str | None = None) -> list[Chunk]:
        if call.approval_shown and not call.approved and self._releases.knows("tool-output-denied"):
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
