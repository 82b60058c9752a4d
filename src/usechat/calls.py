"""The book of tool calls of one message: what each call has shown so far, and the chunks that its next event takes."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import UNSET

from usechat import chunks, parts
from usechat.chunks import Chunk
from usechat.dialects import Dialect
from usechat.errors import InvalidJSON
from usechat.machine import SETTLED, TOOL_TRANSITIONS, ToolState, tool_state_after
from usechat.values import json_object, json_value, parse_json

__all__ = ["APPROVAL_TOOL", "ToolBook"]

APPROVAL_TOOL: Final = "approval"
"""The client-side tool that stands for an approval request where the client has none."""

UNKNOWN_TOOL: Final = "unknown"
CUT_OFF: Final = "The tool call was cut off before its input was complete."
NO_RESULT: Final = "The approved tool call gave no result."
DENIED: Final = "The tool call was denied."


class Call:
    """One tool call as the page knows it. ``wire_id`` differs from the source's id only when that id came twice."""

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
        self.approved: bool | None = None

    @property
    def settled(self) -> bool:
        """Tell whether the call has its final outcome."""
        return self.state in SETTLED and not self.interim

    def advance(self, *sent: Chunk) -> list[Chunk]:
        """Note what was sent about this call, and pass it on."""
        for chunk in sent:
            self.state = tool_state_after(chunk)
        return list(sent)


class ToolBook:
    """Turns what tools did into chunks that are legal now, whatever was or was not announced before."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._shown: dict[str, Call] = {}  # every call, by its id on the wire
        self._calls: dict[str, Call] = {}  # the current call of each of the source's ids
        self._approvals: dict[str, Call] = {}  # the call that an approval is about
        self._questions: dict[str, Call] = {}  # the client-side tool call that asks for an approval
        self._in_step: dict[str, Call] = {}

    def restore(self, message: Mapping[str, Any]) -> None:
        """Take over the calls of the assistant message that this stream continues."""
        for part in message.get("parts", ()):
            kind = part.get("type", "")
            dynamic = kind == "dynamic-tool"
            if not dynamic and not kind.startswith("tool-"):
                continue
            name = str(part.get("toolName", UNKNOWN_TOOL)) if dynamic else kind.removeprefix("tool-")
            call = self._show(str(part.get("toolCallId")), name, dynamic)
            call.state = _state_of(part)
            call.input = part.get("input")
            if part.get("preliminary"):
                call.interim = [part.get("output")]
            self._calls[call.wire_id] = call
            approval = part.get("approval")
            if isinstance(approval, Mapping) and isinstance(approval.get("id"), str):
                self._remember_approval(approval["id"], call)
                call.approved = approval.get("approved")
            if name == APPROVAL_TOOL and isinstance(call.input, Mapping):
                self._questions[str(call.input.get("approvalId"))] = call
        self.end_step()

    def is_streaming(self) -> bool:
        """Tell whether some call's input is still being written."""
        return any(call.state is ToolState.INPUT_STREAMING for call in self._shown.values())

    def is_waiting(self) -> bool:
        """Tell whether some call waits for the client: a client-side tool or an approval."""
        return any(not call.settled for call in self._shown.values())

    def concerns_streaming_call(self, part: parts.Part) -> bool:
        """Tell whether the part speaks of a call whose input is still being written."""
        call = self._calls.get(getattr(part, "tool_call_id", ""))
        return call is not None and call.state is ToolState.INPUT_STREAMING

    def needs_own_step(self, part: parts.ApprovalRequest) -> bool:
        """Tell whether the request becomes a client-side tool, which must be alone with its like in the last step.

        ``lastAssistantMessageIsCompleteWithToolCalls`` wants every call of the last step answered; the call that waits
        for the approval never is.
        """
        return not part.is_automatic and not self._dialect.knows("tool-approval-request")

    def input_start(self, part: parts.ToolInputStart) -> list[Chunk]:
        """A call begins; nothing is sent for one that is known and not over."""
        call = self._open(part.tool_call_id, part.tool_name, part.dynamic)
        if call.state is not ToolState.ABSENT:
            return []
        call.input_encoding = part.input_encoding
        return call.advance(
            chunks.ToolInputStart(
                call.wire_id,
                call.name,
                part.input_encoding,
                part.provider_executed,
                provider_metadata(part.provider_metadata),
                _metadata(part.tool_metadata),
                _true(call.dynamic),
                part.title,
            )
        )

    def input_delta(self, part: parts.ToolInputDelta) -> list[Chunk]:
        """More input; late pieces, after the input was complete, say nothing new."""
        sent = []
        if part.tool_call_id not in self._calls:
            sent = self.input_start(parts.ToolInputStart(part.tool_call_id, UNKNOWN_TOOL))
        call = self._calls[part.tool_call_id]
        if chunks.ToolInputDelta not in TOOL_TRANSITIONS[call.state]:
            return sent
        call.input_text.append(part.text)
        return sent + call.advance(chunks.ToolInputDelta(call.wire_id, part.text))

    def call(self, part: parts.ToolCall) -> list[Chunk]:
        """The input is complete. A call announced twice is one call."""
        return self._available(self._open(part.tool_call_id, part.tool_name, part.dynamic), part)

    def _available(self, call: Call, part: parts.ToolCall) -> list[Chunk]:
        if chunks.ToolInputAvailable not in TOOL_TRANSITIONS[call.state]:
            return []
        call.input = json_value(part.input)
        return call.advance(
            chunks.ToolInputAvailable(
                call.wire_id,
                call.name,
                call.input,
                part.provider_executed,
                provider_metadata(part.provider_metadata),
                _metadata(part.tool_metadata),
                _true(call.dynamic),
                part.title,
            )
        )

    def input_error(self, part: parts.ToolInputError) -> list[Chunk]:
        """The call cannot run; where ``tool-input-error`` is unknown it is a call and its failure."""
        return self._refuse(self._open(part.tool_call_id, part.tool_name, part.dynamic), part)

    def _refuse(self, call: Call, part: parts.ToolInputError) -> list[Chunk]:
        if chunks.ToolInputError not in TOOL_TRANSITIONS[call.state]:
            return self._fail(call, part.error_text)
        call.input = json_value(part.input)
        options = (
            part.provider_executed,
            provider_metadata(part.provider_metadata),
            _metadata(part.tool_metadata),
            _true(call.dynamic),
        )
        if self._dialect.knows("tool-input-error"):
            error = chunks.ToolInputError(call.wire_id, call.name, call.input, part.error_text, *options, part.title)
            return call.advance(error)
        available = chunks.ToolInputAvailable(call.wire_id, call.name, call.input, *options, part.title)
        return call.advance(available, self._error(call, part.error_text))

    def result(self, part: parts.ToolResult) -> list[Chunk]:
        """A tool returned. Interim results that the client cannot take are kept until the call is over."""
        sent = self._announce(part)
        return sent + self._output(self._calls[part.tool_call_id], part)

    def _output(self, call: Call, part: parts.ToolResult) -> list[Chunk]:
        output = json_value(part.output)
        if part.preliminary:
            if call.settled:
                return []
            call.interim = [output]
            if not self._dialect.knows("tool-output-available", "preliminary"):
                return []
        else:
            call.interim = []
        return self._imply_approval(call) + call.advance(
            chunks.ToolOutputAvailable(
                call.wire_id,
                output,
                part.provider_executed,
                provider_metadata(part.provider_metadata),
                _metadata(part.tool_metadata),
                _true(part.preliminary),
                _true(call.dynamic),
            )
        )

    def error(self, part: parts.ToolError) -> list[Chunk]:
        """A tool failed."""
        sent = self._announce(part)
        call = self._calls[part.tool_call_id]
        call.interim = []
        sent += self._imply_approval(call)
        return sent + call.advance(
            chunks.ToolOutputError(
                call.wire_id,
                part.error_text,
                part.provider_executed,
                provider_metadata(part.provider_metadata),
                _metadata(part.tool_metadata),
                _true(call.dynamic),
            )
        )

    def denied(self, part: parts.ToolDenied) -> list[Chunk]:
        """A tool was not allowed to run.

        A denied part without an answered approval does not validate afterwards (``validateUIMessages``), so the
        answer is supplied where the client knows it, and a plain tool error stands in where it does not.
        """
        sent = self._announce(part)
        call = self._calls[part.tool_call_id]
        call.interim = []
        if self._dialect.knows("tool-approval-response") and call.approved is None:
            approval_id = call.approval_id or f"{call.wire_id}-approval"
            if call.approval_id is None:
                sent += self.request(parts.ApprovalRequest(approval_id, part.tool_call_id, is_automatic=True))
            sent += self.response(parts.ApprovalResponse(approval_id, False, part.reason))
        if self._dialect.knows("tool-output-denied") and call.approval_id is not None and not call.approved:
            return sent + call.advance(chunks.ToolOutputDenied(call.wire_id))
        return sent + self._fail(call, f"{DENIED} {part.reason}" if part.reason else DENIED)

    def request(self, part: parts.ApprovalRequest) -> list[Chunk]:
        """A person is asked. Clients without approvals get a client-side tool; automatic ones are for 7 alone."""
        sent = self._announce(part)
        call = self._calls[part.tool_call_id]
        if call.settled:
            return sent
        if self.needs_own_step(part):
            return sent + self._ask_through_tool(part, call)
        if part.is_automatic and not self._dialect.knows("tool-approval-request", "isAutomatic"):
            return sent
        self._remember_approval(part.approval_id, call)
        return sent + call.advance(
            chunks.ToolApprovalRequest(
                part.approval_id,
                call.wire_id,
                json_value(part.descriptor),
                _given(part.input_schema_input),
                part.reason,
                _true(part.is_automatic),
                part.signature,
            )
        )

    def response(self, part: parts.ApprovalResponse) -> list[Chunk]:
        """An approval was answered; an answer to no question says nothing."""
        if question := self._questions.get(part.approval_id):
            answer = {"approved": part.approved, **({"reason": part.reason} if part.reason is not None else {})}
            return self._output(question, parts.ToolResult(question.wire_id, answer))
        call = self._approvals.get(part.approval_id)
        if call is None or call.approved is not None or call.settled:
            return []
        call.approved = part.approved
        if not self._dialect.knows("tool-approval-response"):
            return []
        metadata = provider_metadata(part.provider_metadata)
        return call.advance(
            chunks.ToolApprovalResponse(part.approval_id, part.approved, part.reason, part.provider_executed, metadata)
        )

    def cut_off_inputs(self) -> list[Chunk]:
        """The turn is over: no input can be completed any more."""
        sent: list[Chunk] = []
        for call in self._shown.values():
            if call.state is ToolState.INPUT_STREAMING:
                sent += self._refuse(call, parts.ToolInputError(call.wire_id, call.name, CUT_OFF, _written_input(call)))
        return sent

    def complete(self) -> list[Chunk]:
        """The turn ended well: settle what the source left half said; calls that wait for the client stay open."""
        sent: list[Chunk] = []
        for call in self._shown.values():
            if call.interim:
                sent += self._output(call, parts.ToolResult(call.wire_id, call.interim[0]))
            elif call.approved is not None and not call.settled:
                # Left as it is, lastAssistantMessageIsCompleteWithApprovalResponses would re-post for ever.
                sent += self._fail(call, NO_RESULT) if call.approved else self._settle_denied(call)
        return sent

    def fail(self, text: str) -> list[Chunk]:
        """The turn broke off: no call may stay open but one whose approval is pending, which history allows."""
        sent: list[Chunk] = []
        for call in self._shown.values():
            if not call.settled and call.state is not ToolState.APPROVAL_REQUESTED:
                sent += self._fail(call, text)
        return sent

    def end_step(self) -> None:
        """A step is over: calls announced from now on belong to the next."""
        self._in_step = {}

    def reset_step(self) -> None:
        """Forget the calls announced in the current step."""
        void = set(self._in_step)
        for book in (self._shown, self._calls, self._approvals, self._questions):
            for key in [key for key, call in book.items() if call.wire_id in void]:
                del book[key]
        self._in_step = {}

    def _open(self, tool_call_id: str, name: str, dynamic: bool) -> Call:
        call = self._calls.get(tool_call_id)
        if call is None or call.settled:
            # Readers look a call up by its id, old ones in the whole message: a second call under the same id would
            # overwrite the first. It gets an id of its own.
            call = self._calls[tool_call_id] = self._show(tool_call_id, name, dynamic)
        return call

    def _show(self, wanted_id: str, name: str, dynamic: bool) -> Call:
        wire_id, count = wanted_id, 1
        while wire_id in self._shown:
            count += 1
            wire_id = f"{wanted_id}-{count}"
        call = self._shown[wire_id] = self._in_step[wire_id] = Call(wire_id, name, dynamic)
        return call

    def _announce(self, part: parts.ToolResult | parts.ToolError | parts.ToolDenied | parts.ApprovalRequest) -> list[Chunk]:
        """Make sure that the page knows the call and its whole input."""
        call = self._calls.get(part.tool_call_id)
        if call is None:
            name = part.tool_name or UNKNOWN_TOOL
            return self.call(parts.ToolCall(part.tool_call_id, name, {}, dynamic=part.dynamic))
        if call.state is ToolState.INPUT_STREAMING:
            return self.call(parts.ToolCall(part.tool_call_id, call.name, _written_input(call)))
        return []

    def _ask_through_tool(self, part: parts.ApprovalRequest, call: Call) -> list[Chunk]:
        question = {
            "approvalId": part.approval_id,
            "toolCallId": call.wire_id,
            "toolName": call.name,
            "input": call.input,
        }
        for key, value in (("reason", part.reason), ("descriptor", part.descriptor), ("signature", part.signature)):
            if value is not None:
                question[key] = value
        asked = self._questions[part.approval_id] = self._show(part.approval_id, APPROVAL_TOOL, dynamic=False)
        return self._available(asked, parts.ToolCall(asked.wire_id, APPROVAL_TOOL, question))

    def _imply_approval(self, call: Call) -> list[Chunk]:
        """A tool that answers was allowed to run: say so, or the finished part does not validate afterwards."""
        if call.approval_id is None or call.approved is not None:
            return []
        return self.response(parts.ApprovalResponse(call.approval_id, True))

    def _remember_approval(self, approval_id: str, call: Call) -> None:
        call.approval_id = approval_id
        self._approvals[approval_id] = call

    def _error(self, call: Call, text: str) -> Chunk:
        return chunks.ToolOutputError(call.wire_id, text, dynamic=_true(call.dynamic))

    def _fail(self, call: Call, text: str) -> list[Chunk]:
        call.interim = []
        return call.advance(self._error(call, text))

    def _settle_denied(self, call: Call) -> list[Chunk]:
        if self._dialect.knows("tool-output-denied"):
            return call.advance(chunks.ToolOutputDenied(call.wire_id))
        return self._fail(call, DENIED)


def provider_metadata(value: Mapping[str, Any] | None) -> dict[str, dict[str, Any]] | None:
    """Return provider metadata as clients demand it: an object of objects."""
    if value is None:
        return None
    return {key: item if isinstance(item, dict) else {"value": item} for key, item in json_object(value).items()}


def _metadata(value: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else json_object(value)


def _true(flag: bool) -> bool | None:
    return True if flag else None


def _given(value: Any) -> Any:
    return UNSET if value is None else json_value(value)


def _written_input(call: Call) -> Any:
    text = "".join(call.input_text)
    if call.input_encoding == "text":
        return text
    try:
        return parse_json(text)
    except InvalidJSON:
        return text or {}


def _state_of(part: Mapping[str, Any]) -> ToolState:
    try:
        state = ToolState(str(part.get("state")))
    except ValueError:
        return ToolState.INPUT_AVAILABLE
    # A half-written call of an earlier turn is never written further.
    return ToolState.INPUT_AVAILABLE if state in (ToolState.ABSENT, ToolState.INPUT_STREAMING) else state
