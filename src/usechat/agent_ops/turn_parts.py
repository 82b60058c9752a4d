"""One turn of the upstream as parts: text once, tools by their states, and one end."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from usechat.agent_ops.turn_events import Dialect, Ended, ToolChanged
from usechat.protocol.parts import Error, Finish, Part, Start, Text, ToolCall, ToolError, ToolInputStart, ToolResult

__all__ = [
    "TURN_FAILED",
    "RunningTurn",
    "TextTrace",
]


class TextTrace:
    """The length and the digest of a text that grows."""

    def __init__(self, text: str = "") -> None:
        self.length = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self.add(text)

    def add(self, text: str) -> None:
        """Note that more was written."""
        self.length += len(text)
        self._digest.update(_bytes(text))

    def rest_of(self, whole: str) -> str | None:
        """Return what ``whole`` has behind the traced text, or nothing if it does not begin with it."""
        if len(whole) < self.length:
            return None
        beginning = hashlib.blake2b(_bytes(whole[: self.length]), digest_size=16)
        return whole[self.length :] if beginning.digest() == self._digest.digest() else None

    def is_trace_of(self, text: str) -> bool:
        """Tell whether exactly this was written."""
        return self.rest_of(text) == ""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


# -- One turn of the upstream as parts: text once, tools by their states, and one end.

TURN_FAILED: Final = "Turn failed"
TOOL_FAILED: Final = "Tool execution failed"
UNSETTLED: Final = "The turn ended before this tool did."

_STATUSES: Final = ("pending", "running", "completed", "error")


class _Tool:
    """A tool call as the page knows it."""

    def __init__(self, name: str, *, has_input: bool = False, settled: bool = False) -> None:
        self.name = name
        self.args: Any = None
        self.has_input = has_input
        self.settled = settled


class RunningTurn:
    """Says what happens in a turn, once, whichever dialects tell it and how often.

    ``shown`` are the parts that the page has of it already.
    """

    def __init__(self, turn_id: str, shown: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.turn_id = turn_id
        self.has_output = shown is not None
        self.ended: Ended | None = None
        """How the upstream ended the turn; tools may still be open then."""
        self._writer: Dialect | None = None
        self._text = TextTrace()
        self._segment = TextTrace()  # since the last tool
        self._last_segment = TextTrace()
        self._tools: dict[str, _Tool] = {}
        for part in shown or ():
            self._restore(part)

    @property
    def has_open_tools(self) -> bool:
        """Whether some tool has no outcome yet."""
        return any(not tool.settled for tool in self._tools.values())

    def begin(self) -> Iterator[Part]:
        """Yield the beginning: message and first text block bear the turn's id."""
        yield Start(self.turn_id)
        yield Text("", id=self.turn_id)

    def write(self, text: str, dialect: Dialect) -> Iterator[Part]:
        """Yield more text. Whichever dialect writes first writes all of the turn."""
        if self._writer is None:
            self._writer = dialect
        if self._writer == dialect:
            yield from self._say(text)

    def write_so_far(self, text: str) -> Iterator[Part]:
        """Yield what was missed of all text so far."""
        yield from self._say(self._text.rest_of(text) or "")

    def change_tool(self, changed: ToolChanged) -> Iterator[Part]:
        """Yield what is new about a tool call; any of its states may have been skipped."""
        if changed.status not in _STATUSES:
            return
        call_id = changed.call_id
        tool = self._tools.get(call_id)
        is_new = tool is None
        if tool is None:
            tool = self._tools[call_id] = _Tool(changed.tool_name)
            self._end_segment()
        if tool.settled:
            return
        self.has_output = True
        tool.args = tool.args if changed.args is None else changed.args
        is_over = changed.status in ("completed", "error")
        if not tool.has_input and (is_over or (changed.status == "running" and tool.args is not None)):
            tool.has_input = True
            yield ToolCall(call_id, tool.name, {} if tool.args is None else tool.args, dynamic=True)
        elif is_new:
            yield ToolInputStart(call_id, tool.name, dynamic=True)
        if is_over:
            tool.settled = True
            yield _outcome(changed)

    def complete_inputs(self) -> Iterator[Part]:
        """Yield the calls whose input is still missing with what is known of it, because something must follow."""
        for call_id, tool in self._tools.items():
            if not tool.has_input:
                tool.has_input = True
                yield ToolCall(call_id, tool.name, {} if tool.args is None else tool.args, dynamic=True)

    def end(self, ended: Ended) -> Iterator[Part]:
        """Yield the text that only the end tells. The ending itself is for :meth:`settle` to say."""
        self.ended = ended
        yield from self._say(self._missing(ended.final_text or ""))

    def settle(self) -> Iterator[Part]:
        """Yield the outcome of tools that have none, and the ending."""
        for call_id, tool in self._tools.items():
            if not tool.settled:
                yield ToolError(call_id, UNSETTLED)
        ended = self.ended
        if ended is not None and ended.reason == "error":
            yield Error(ended.error or TURN_FAILED)
        elif ended is None and not self.has_output:
            yield Error(TURN_FAILED)
        else:
            yield Finish("other" if ended is not None and ended.reason == "canceled" else None)

    def _say(self, text: str) -> Iterator[Part]:
        if text:
            self.has_output = True
            self._text.add(text)
            self._segment.add(text)
            yield Text(text)

    def _end_segment(self) -> None:
        if self._segment.length:
            self._last_segment, self._segment = self._segment, TextTrace()

    def _missing(self, final: str) -> str:
        """Return what the final text says that was not streamed.

        It may be all text, the text behind the last tool, or the only text; where it contradicts what was streamed,
        what was streamed counts.
        """
        rest = self._text.rest_of(final)
        if rest is None and not self._last_segment.is_trace_of(final):
            rest = self._segment.rest_of(final)
        return rest or ""

    def _restore(self, part: Mapping[str, Any]) -> None:
        call_id = part.get("toolCallId")
        if part.get("type") == "text" and isinstance(text := part.get("text"), str):
            self._text.add(text)
            self._segment.add(text)
        elif isinstance(call_id, str):
            settled = part.get("state") in ("output-available", "output-error", "output-denied")
            self._tools[call_id] = _Tool(str(part.get("toolName")), has_input=True, settled=settled)
            self._end_segment()


def _outcome(changed: ToolChanged) -> Part:
    if changed.status == "completed":
        return ToolResult(changed.call_id, changed.result)
    return ToolError(changed.call_id, changed.error or TOOL_FAILED)
