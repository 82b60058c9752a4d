"""What pydantic-ai says while a model answers, as the events of a provider."""

import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
)

from usechat.ids import new_id
from usechat.open_harness.failures import PUBLIC
from usechat.open_harness.node_failures import text_of
from usechat.open_harness.providers import StreamEvent
from usechat.runs.failures import PublicError
from usechat.values import json_value

__all__ = ["ModelEvents"]


class _Call(NamedTuple):
    id: str
    name: str
    input: Any
    began: float


class ModelEvents:
    """Turns the events of one run of a model into those of a provider."""

    def __init__(self, failures: Mapping[str, Exception]) -> None:
        self._failures = failures
        self._calls: dict[str, _Call] = {}
        self._pieces: list[str] = []

    @property
    def unfinished_text(self) -> str:
        """What the model has said of a block of text that has not ended."""
        return "".join(self._pieces)

    def feed(self, event: Any) -> list[StreamEvent]:
        """Return what an event of pydantic-ai says; nothing for those that a page does not show."""
        match event:
            case PartStartEvent(part=TextPart(content=content)):
                self._pieces = []
                return self._text(content)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=content)):
                return self._text(content)
            case PartEndEvent(part=TextPart(content=content)):
                self._pieces = []
                return [{"type": "text", "content": content}] if content else []
            case PartStartEvent(part=ThinkingPart(content=content)):
                return _thinking(content)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=content)):
                return _thinking(content)
            case PartEndEvent(part=ThinkingPart(content=content)):
                return [{"type": "thinking", "content": content}] if content else []
            case FunctionToolCallEvent(part=part):
                return [self._began(part)]
            case FunctionToolResultEvent(part=part):
                return self._ended(part)
        return []

    def _text(self, content: str) -> list[StreamEvent]:
        if not content:
            return []
        self._pieces.append(content)
        return [{"type": "text", "content": content, "delta": True}]

    def _began(self, part: Any) -> StreamEvent:
        call = _Call(new_id(), part.tool_name, _arguments(part), time.monotonic())
        self._calls[part.tool_call_id] = call
        return {"type": "tool", "phase": "start", "id": call.id, "name": call.name, "data": call.input}

    def _ended(self, part: Any) -> list[StreamEvent]:
        call = self._calls.pop(part.tool_call_id, None)
        if call is None:
            return []
        failure = self._failure(part)
        ended = {
            "type": "tool",
            "phase": "complete",
            "id": call.id,
            "name": call.name,
            "input": call.input,
            "data": None if failure else json_value(part.content),
            "durationMs": round((time.monotonic() - call.began) * 1000),
        }
        return [{**ended, **failure}]

    def _failure(self, part: Any) -> dict[str, str]:
        """Return why a call failed; nothing if it did not."""
        raised = self._failures.get(part.tool_call_id)
        if raised is not None:
            kind = {"errorType": PUBLIC} if isinstance(raised, PublicError) else {}
            return {"error": text_of(raised), **kind}
        # A call that the model has to repeat, for instance because its arguments were wrong.
        if getattr(part, "outcome", "success") != "success" or part.part_kind == "retry-prompt":
            return {"error": str(part.content)}
        return {}


def _thinking(content: str | None) -> list[StreamEvent]:
    return [{"type": "thinking", "content": content, "delta": True}] if content else []


def _arguments(part: Any) -> Any:
    try:
        return json_value(part.args_as_dict())
    except Exception:  # what the model wrote is no JSON object
        return json_value(part.args)
