"""One tool call of a message: what the page knows of it."""

from collections.abc import Mapping
from typing import Any, Final

from usechat.chunks import Chunk
from usechat.errors import InvalidJSON
from usechat.machine import SETTLED, ToolState, tool_state_after
from usechat.values import parse_json

__all__ = ["UNKNOWN_TOOL", "Call", "call_of", "tool_parts_of"]

UNKNOWN_TOOL: Final = "unknown"


class Call:
    """One tool call as the page knows it. ``wire_id`` differs from the source's id only when that id came twice."""

    # A long turn has many, and they are kept to its end: an id that comes again must not meet the earlier call.
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
        self.asked = False  # for its approval, by this stream
        self.restored = False  # all that is known of the call is the client's word

    @property
    def settled(self) -> bool:
        """Tell whether the call has its final outcome."""
        return self.state in SETTLED and not self.interim

    def advance(self, *sent: Chunk) -> list[Chunk]:
        """Note what was sent about this call, and pass it on."""
        for chunk in sent:
            self.state = tool_state_after(chunk)
        if self.state is ToolState.INPUT_STREAMING:
            self._streaming.add(self.wire_id)
        else:
            self._streaming.discard(self.wire_id)
        if self.settled:
            self.input, self.input_text = None, []
        return list(sent)

    def written_input(self) -> Any:
        """Return what was streamed of the input: its value, or the bare text when that is no JSON."""
        text = "".join(self.input_text)
        if self.input_encoding == "text":
            return text
        try:
            return parse_json(text)
        except InvalidJSON:
            return text or {}


def tool_parts_of(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the tool parts of a message that a client sent back; what has no type and id of text is none."""
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
    """Return the call that a tool part tells of."""
    dynamic = part["type"] == "dynamic-tool"
    name = str(part.get("toolName", UNKNOWN_TOOL)) if dynamic else part["type"].removeprefix("tool-")
    call = Call(part["toolCallId"], name, dynamic, streaming)
    call.state = _state_of(part)
    call.input = part.get("input")
    call.interim = [part.get("output")] if part.get("preliminary") else []
    call.restored = True
    return call


def _state_of(part: Mapping[str, Any]) -> ToolState:
    """Return the state of a tool part that a client sent back."""
    try:
        state = ToolState(str(part.get("state")))
    except ValueError:
        return ToolState.INPUT_AVAILABLE
    # A half-written call of an earlier turn is never written further.
    return ToolState.INPUT_AVAILABLE if state in (ToolState.ABSENT, ToolState.INPUT_STREAMING) else state
