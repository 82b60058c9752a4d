"""One tool call of a message: what the page knows of it."""

from collections.abc import Mapping
from typing import Any

from usechat.chunks import Chunk
from usechat.errors import InvalidJSON
from usechat.machine import SETTLED, ToolState, tool_state_after
from usechat.values import parse_json

__all__ = ["Call", "state_of"]


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
        self.approval_shown = False  # the part on the page carries the approval
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

    def written_input(self) -> Any:
        """Return what was streamed of the input: its value, or the bare text when that is no JSON."""
        text = "".join(self.input_text)
        if self.input_encoding == "text":
            return text
        try:
            return parse_json(text)
        except InvalidJSON:
            return text or {}


def state_of(part: Mapping[str, Any]) -> ToolState:
    """Return the state of a tool part that a client sent back."""
    try:
        state = ToolState(str(part.get("state")))
    except ValueError:
        return ToolState.INPUT_AVAILABLE
    # A half-written call of an earlier turn is never written further.
    return ToolState.INPUT_AVAILABLE if state in (ToolState.ABSENT, ToolState.INPUT_STREAMING) else state
