"""One turn of the upstream as parts: each text once, each tool call by its states, one ending.

Both dialects may report the same turn, whole messages repeat what deltas said, and a reconnecting page has part of it
already. So :class:`RunningTurn` remembers what was sent and yields only what is new. Of the text it keeps a length and
a digest rather than the text itself, because a turn may be long and sessions are many.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from usechat.agent_ops.turn_events import Dialect, FileAdded, ToolChanged, TurnEnded
from usechat.parts import Error, File, Finish, Part, Start, Text, ToolCall, ToolError, ToolInputStart, ToolResult
from usechat.ui_messages import is_settled, tool_name

__all__ = ["TOOL_FAILED", "TURN_FAILED", "UNSETTLED", "RunningTurn", "TextDigest"]

TURN_FAILED: Final = "Turn failed"
TOOL_FAILED: Final = "Tool execution failed"
UNSETTLED: Final = "The turn ended before this tool did."

_STATUSES: Final = ("pending", "running", "completed", "error")


class TextDigest:
    """The length and the digest of a text that grows."""

    def __init__(self) -> None:
        self.length = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def append(self, text: str) -> None:
        """Add text at the end."""
        self.length += len(text)
        self._digest.update(_bytes(text))

    def suffix_of(self, whole: str) -> str | None:
        """Return what follows this text in ``whole``, or ``None`` if ``whole`` does not start with it."""
        if len(whole) < self.length:
            return None
        beginning = hashlib.blake2b(_bytes(whole[: self.length]), digest_size=16)
        return whole[self.length :] if beginning.digest() == self._digest.digest() else None

    def matches(self, text: str) -> bool:
        """Return whether this is the digest of exactly this text."""
        return self.suffix_of(text) == ""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


class _ShownTool:
    """What the page knows of a tool call."""

    def __init__(self, name: str, *, has_input: bool = False, settled: bool = False) -> None:
        self.name = name
        self.args: Any = None
        self.has_input = has_input
        self.settled = settled

    def call(self, call_id: str) -> ToolCall:
        """Return the call with the arguments known so far, and remember that its input was sent."""
        self.has_input = True
        return ToolCall(call_id, self.name, {} if self.args is None else self.args, dynamic=True)


class RunningTurn:
    """Turns the events of one turn into parts. ``parts`` are those that the page has of it already."""

    def __init__(self, turn_id: str, parts: Sequence[Mapping[str, Any]] | None = None) -> None:
        self.turn_id = turn_id
        self.has_output = parts is not None
        self.ending: TurnEnded | None = None
        """How the upstream ended the turn. Tools may still be open then."""
        self._writer: Dialect | None = None
        self._text = TextDigest()
        self._segment = TextDigest()  # since the last tool
        self._last_segment = TextDigest()
        self._tools: dict[str, _ShownTool] = {}
        self._files: set[bytes] = set()
        for part in parts or ():
            self._restore(part)

    @property
    def has_open_tools(self) -> bool:
        """Whether some tool has no outcome yet."""
        return any(not tool.settled for tool in self._tools.values())

    def start(self) -> Iterator[Part]:
        """Yield the start. Message and first text block have the turn's id."""
        yield Start(self.turn_id)
        yield Text("", id=self.turn_id)

    def append_text(self, text: str, dialect: Dialect) -> Iterator[Part]:
        """Yield appended text. The dialect that appends first is the only one listened to for this turn."""
        if self._writer is None:
            self._writer = dialect
        if self._writer == dialect:
            yield from self._text_part(text)

    def update_text(self, text: str) -> Iterator[Part]:
        """Yield what a snapshot of the whole text holds beyond what was sent."""
        yield from self._text_part(self._text.suffix_of(text) or "")

    def update_tool(self, change: ToolChanged) -> Iterator[Part]:
        """Yield what is new about a tool call. The upstream may have skipped any of its states."""
        if change.status not in _STATUSES:
            return
        call_id = change.call_id
        tool = self._tools.get(call_id)
        is_new = tool is None
        if tool is None:
            tool = self._tools[call_id] = _ShownTool(change.tool_name)
            self._end_segment()
        if tool.settled:
            return
        self.has_output = True
        tool.args = tool.args if change.args is None else change.args
        is_over = change.status in ("completed", "error")
        if not tool.has_input and (is_over or (change.status == "running" and tool.args is not None)):
            yield tool.call(call_id)
        elif is_new:
            yield ToolInputStart(call_id, tool.name, dynamic=True)
        if is_over:
            tool.settled = True
            yield _outcome(change)

    def add_file(self, file: FileAdded) -> Iterator[Part]:
        """Yield an image or a sound, unless the page has it."""
        digest = _digest(file.url)
        if digest not in self._files:
            self._files.add(digest)
            self.has_output = True
            yield File(file.url, file.media_type)

    def complete_inputs(self) -> Iterator[Part]:
        """Yield the calls whose input was not sent yet, with the arguments known so far."""
        for call_id, tool in self._tools.items():
            if not tool.has_input:
                yield tool.call(call_id)

    def end(self, ending: TurnEnded) -> Iterator[Part]:
        """Yield the text that only the end event holds. :meth:`settle` yields the ending itself."""
        self.ending = ending
        yield from self._text_part(self._missing(ending.final_text or ""))

    def settle(self) -> Iterator[Part]:
        """Yield an error for every open tool, then the ending."""
        for call_id, tool in self._tools.items():
            if not tool.settled:
                yield ToolError(call_id, UNSETTLED)
        ending = self.ending
        if ending is not None and ending.reason == "error":
            yield Error(ending.error or TURN_FAILED)
        elif ending is None and not self.has_output:
            yield Error(TURN_FAILED)
        else:
            yield Finish("other" if ending is not None and ending.reason == "canceled" else None)

    def _text_part(self, text: str) -> Iterator[Part]:
        if text:
            self.has_output = True
            self._text.append(text)
            self._segment.append(text)
            yield Text(text)

    def _end_segment(self) -> None:
        if self._segment.length:
            self._last_segment, self._segment = self._segment, TextDigest()

    def _missing(self, final: str) -> str:
        """Return the part of the final text that was not streamed.

        The final text may be all text, the text after the last tool, or the only text there is. Where it contradicts
        the streamed text, the streamed text is kept.
        """
        rest = self._text.suffix_of(final)
        if rest is None and not self._last_segment.matches(final):
            rest = self._segment.suffix_of(final)
        return rest or ""

    def _restore(self, part: Mapping[str, Any]) -> None:
        call_id = part.get("toolCallId")
        if part.get("type") == "text" and isinstance(text := part.get("text"), str):
            self._text.append(text)
            self._segment.append(text)
        elif part.get("type") == "file" and isinstance(url := part.get("url"), str):
            self._files.add(_digest(url))
        elif isinstance(call_id, str):
            self._tools[call_id] = _ShownTool(tool_name(part), has_input=True, settled=is_settled(part))
            self._end_segment()


def _digest(text: str) -> bytes:
    return hashlib.blake2b(_bytes(text), digest_size=16).digest()


def _outcome(change: ToolChanged) -> Part:
    if change.status == "completed":
        return ToolResult(change.call_id, change.result)
    return ToolError(change.call_id, change.error or TOOL_FAILED)
