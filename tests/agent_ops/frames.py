"""Frames of a session's socket, in both dialects, and what an adapter makes of them."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from usechat import parts as p
from usechat.agent_ops.adapter import SessionAdapter
from usechat.agent_ops.prompt_tracker import PromptTracker
from usechat.errors import UnknownEvent
from usechat.protocol.chunks import Chunk, FinishStepChunk, StartStepChunk
from usechat.protocol.stream import MessageStream

Frame: TypeAlias = Mapping[str, Any]

PROMPT = "What is 2+2?"
ARGS = {"expression": "2+2"}

CREATE: Frame = {"type": "message.create", "turnId": "t1"}
COMPLETE: Frame = {"type": "complete"}
IDLE: Frame = {"type": "agentStatus", "status": "idle"}
INIT: Frame = {"type": "init", "session": {}, "data": {"runnerBusy": False, "promptsQueued": 0}}
BEGIN: list[p.Part] = [p.Start("t1"), p.Text("", id="t1")]


def delta(text: str, turn_id: str = "t1") -> Frame:
    return {"type": "message.part.text-delta", "turnId": turn_id, "delta": text}


def chunk(text: str, turn_id: str = "t1") -> Frame:
    return {"type": "chunk", "content": text, "messageId": turn_id}


def tool(status: str, call_id: str = "c1", turn_id: str = "t1", **more: Any) -> Frame:
    fields = {"turnId": turn_id, "callId": call_id, "toolName": "calculator", "status": status}
    return {"type": "message.part.tool-update", **fields, **more}


def finalize(reason: str = "end_turn", turn_id: str | None = "t1", **more: Any) -> Frame:
    return {"type": "message.finalize", "turnId": turn_id, "reason": reason, **more}


def status(**data: Any) -> Frame:
    return {"type": "status", "data": data}


def user_says(text: str = PROMPT, message_id: str = "u1", **more: Any) -> Frame:
    return {"type": "message", "data": {"id": message_id, "role": "user", "content": text, **more}}


def message(turn_id: str = "t1", **more: Any) -> Frame:
    """The empty message with which a turn begins for browsers."""
    return {"type": "message", "data": {"id": turn_id, "role": "assistant", "content": "", "parts": [], **more}}


def updated(content: str, *parts: Frame, turn_id: str = "t1") -> Frame:
    data = {"id": turn_id, "role": "assistant", "content": content, "parts": list(parts)}
    return {"type": "message.updated", "data": data}


def tool_part(status: str, call_id: str = "c1", **more: Any) -> Frame:
    return {"type": "tool-call", "callId": call_id, "toolName": "calculator", "status": status, **more}


def finish_part(reason: str = "end_turn") -> Frame:
    return {"type": "finish", "reason": reason}


def adapter(
    *, prompt: PromptTracker | None = None, events: Iterable[str] = (), init: bool = True, **options: Any
) -> SessionAdapter:
    """Return the adapter of a prompt that was just sent; with `init`, to a session whose runner is free."""
    to = SessionAdapter(prompt or PromptTracker(PROMPT), events=frozenset(events), **options)
    assert fed([INIT] if init else [], to) == []
    return to


def fed(frames: Iterable[Frame], to: SessionAdapter | None = None, unknown: list[str] | None = None) -> list[p.Part]:
    """Return the parts of these frames; the types of unknown ones are appended to `unknown`."""
    to = to or adapter()
    parts: list[p.Part] = []
    for frame in frames:
        try:
            parts.extend(to.feed(frame))
        except UnknownEvent as error:
            if unknown is not None:
                unknown.append(error.kind)
    return parts


def chunks_of(parts: Iterable[p.Part]) -> list[Chunk]:
    """Return what goes to the page, without steps."""
    stream = MessageStream(message_id="m1", sdk="7")
    chunks = [chunk for part in parts for chunk in stream.send(part)]
    return [chunk for chunk in chunks if not isinstance(chunk, StartStepChunk | FinishStepChunk)]


def row(frames: Iterable[Frame], after: Iterable[Frame] = ()) -> list[Chunk]:
    """Return the chunks that frames make when others came before them."""
    to = adapter()
    before = fed(after, to)
    return chunks_of([*before, *fed(frames, to)])[len(chunks_of(before)) :]
