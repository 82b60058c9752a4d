"""The signals of harnesses, said in the words of a flow's run.

A signal is `{id, name, payload, timestamp, source?}`, its timestamp a text; `source` names the agent or the harness.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, ClassVar

from usechat.open_harness.interface import Event
from usechat.open_harness.sessions_dialect import Speakers

__all__ = ["SignalDialect"]


class SignalDialect:
    """Translates the signals of one run."""

    def __init__(self) -> None:
        self._speakers = Speakers()
        self._activated: set[str] = set()

    def read(self, name: str, payload: Mapping[str, Any], source: Any, timestamp: Any) -> list[Event] | None:
        """Return what a signal says, or nothing if the dialect has no such signal."""
        translate = self._translations.get(name)
        if translate is None:
            return None
        agent = _agent(payload, source)
        return [{"timestamp": _milliseconds(timestamp), **said} for said in translate(self, payload, agent)]

    def _workflow_started(self, payload: Mapping[str, Any], _agent: str) -> list[Event]:
        return [{"type": "flow:start", "flowName": payload.get("name")}]

    def _workflow_ended(self, payload: Mapping[str, Any], _agent: str) -> list[Event]:
        return [{"type": "flow:complete", "status": "failed" if payload.get("error") else "complete"}]

    def _agent_activated(self, _payload: Mapping[str, Any], agent: str) -> list[Event]:
        self._activated.add(agent)
        return [{"type": "node:start", **self._speakers.begin(agent)}]

    def _agent_skipped(self, _payload: Mapping[str, Any], agent: str) -> list[Event]:
        return [{"type": "node:skipped", "nodeId": agent}]

    def _harness_started(self, _payload: Mapping[str, Any], agent: str) -> list[Event]:
        if agent in self._activated:
            return []
        return [{"type": "node:start", **self._speakers.begin(agent)}]

    def _harness_ended(self, payload: Mapping[str, Any], agent: str) -> list[Event]:
        self._activated.discard(agent)
        output = payload.get("output")
        usage = output.get("usage") if isinstance(output, Mapping) else None
        speaker = self._speakers.current(agent)
        # The node first: where there is no workflow, the end of the agent ends the stream.
        return [
            {"type": "node:complete", **speaker, "output": output},
            {"type": "agent:complete", **speaker, "usage": usage},
        ]

    def _harness_failed(self, payload: Mapping[str, Any], agent: str) -> list[Event]:
        if payload.get("recoverable") is True:
            return []
        error = {"errorType": payload.get("code"), "message": payload.get("message")}
        return [{"type": "agent:error", **self._speakers.current(agent), **error}]

    def _content(self, event_type: str, payload: Mapping[str, Any], agent: str) -> list[Event]:
        return [{"type": event_type, **self._speakers.current(agent), "content": payload.get("content")}]

    def _tool_called(self, payload: Mapping[str, Any], agent: str) -> list[Event]:
        call = {"toolCallId": payload.get("id"), "toolName": payload.get("name"), "toolInput": payload.get("input")}
        return [{"type": "agent:tool", **self._speakers.current(agent), **call}]

    def _tool_ended(self, payload: Mapping[str, Any], agent: str) -> list[Event]:
        outcome = {"toolCallId": payload.get("id"), "toolName": payload.get("name"), "error": payload.get("error")}
        outcome |= {"toolOutput": payload.get("result")}
        return [{"type": "agent:tool", **self._speakers.current(agent), **outcome}]

    _translations: ClassVar[Mapping[str, Callable[[Any, Mapping[str, Any], str], list[Event]]]] = {
        "workflow:start": _workflow_started,
        "workflow:end": _workflow_ended,
        "agent:activated": _agent_activated,
        "agent:skipped": _agent_skipped,
        "harness:start": _harness_started,
        "harness:end": _harness_ended,
        "harness:error": _harness_failed,
        "text:delta": lambda self, payload, agent: self._content("agent:text:delta", payload, agent),
        "text:complete": lambda self, payload, agent: self._content("agent:text", payload, agent),
        "thinking:delta": lambda self, payload, agent: self._content("agent:thinking:delta", payload, agent),
        "thinking:complete": lambda self, payload, agent: self._content("agent:thinking", payload, agent),
        "tool:call": _tool_called,
        "tool:result": _tool_ended,
    }


def _agent(payload: Mapping[str, Any], source: Any) -> str:
    named = source if isinstance(source, Mapping) else {}
    found = (named.get("agent"), payload.get("agent"), named.get("harness"))
    return next((name for name in found if isinstance(name, str) and name), "agent")


def _milliseconds(timestamp: Any) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp() * 1000
    except (TypeError, ValueError):
        return None
