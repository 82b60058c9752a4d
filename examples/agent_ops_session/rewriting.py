"""The runner's events in the browser's dialect: chunks of text and whole messages."""

from collections.abc import Iterator, Mapping
from time import time
from typing import Any

from examples.agent_ops_session.scripts import Event


class Turn:
    """A turn as a message."""

    def __init__(self, turn_id: str, channel: Mapping[str, str]) -> None:
        self._head = {"id": turn_id, "role": "assistant", "createdAt": int(time()), **channel}
        self._deltas: list[str] = []
        self._final: str | None = None
        self.parts: list[dict[str, Any]] = []

    def as_message(self) -> dict[str, Any]:
        content = self._final or "".join(self._deltas)
        return {**self._head, "content": content, "parts": [_joined(part) for part in self.parts]}

    def write(self, delta: str) -> None:
        self._deltas.append(delta)
        if not self.parts or self.parts[-1]["type"] != "text":
            self.parts.append({"type": "text", "text": [], "streaming": True})
        self.parts[-1]["text"].append(delta)

    def change_tool(self, update: Event) -> None:
        keys = ("callId", "toolName", "status", "args", "result", "error")
        part = {"type": "tool-call", **{key: update[key] for key in keys if key in update}}
        for index, other in enumerate(self.parts):
            if other.get("callId") == part["callId"]:
                self.parts[index] = part
                return
        self.parts.append(part)

    def finalize(self, event: Event) -> None:
        self._final = event.get("finalText")
        self.parts.append({"type": "finish", "reason": event["reason"]})
        if event.get("error"):
            self.parts.append({"type": "error", "message": event["error"]})


def _joined(part: dict[str, Any]) -> dict[str, Any]:
    return {**part, "text": "".join(part["text"])} if part["type"] == "text" else dict(part)


class Rewriter:
    """Turns the runner's events into those for browsers. It keeps one turn at a time."""

    def __init__(self) -> None:
        self.turn: Turn | None = None

    def rewrite(self, event: Event, channel: Mapping[str, str]) -> Iterator[Event]:
        kind = event["type"]
        if kind == "message.create":
            self.turn = Turn(event["turnId"], channel)
            yield {"type": "message", "data": self.turn.as_message()}
        elif not kind.startswith("message."):
            if kind != "complete":
                yield event
        elif self.turn is not None and isinstance(event.get("turnId"), str):
            yield from self._change(self.turn, event, channel)

    def _change(self, turn: Turn, event: Event, channel: Mapping[str, str]) -> Iterator[Event]:
        if event["type"] == "message.part.text-delta":
            turn.write(event["delta"])
            yield {"type": "chunk", "content": event["delta"], "messageId": event["turnId"], **channel}
            return
        if event["type"] == "message.part.tool-update":
            turn.change_tool(event)
        else:
            turn.finalize(event)
        yield {"type": "message.updated", "data": turn.as_message()}
