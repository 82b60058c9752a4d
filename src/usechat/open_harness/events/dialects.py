"""Translates the three event dialects of Open Harness into one: that of flow runs.

- A flow run emits `{type, timestamp, …}`. Its events pass as they are.
- A session emits `{id, name, payload, timestamp}`: agents are named, tools have ids, and blocks have no ends.
- A harness emits signals, `{id, name, payload, timestamp, source?}`, with timestamps as strings.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, Final

from usechat.open_harness.runtime_protocol import Event

__all__ = [
    "Dialects",
    "SessionDialect",
    "SignalDialect",
    "Speakers",
]


_SILENT: Final = frozenset({"phase:entered", "state:intent", "state:checkpoint", "session:forked"})


class Speakers:
    """Makes run ids for agents that have none: the agent's name and the number of the invocation."""

    def __init__(self) -> None:
        self._invocations: dict[str, int] = {}

    def begin(self, agent: str) -> dict[str, Any]:
        """Return the ids of a new invocation."""
        self._invocations[agent] = self._invocations.get(agent, 0) + 1
        return self.current(agent)

    def current(self, agent: str) -> dict[str, Any]:
        """Return the ids of the latest invocation."""
        return {"nodeId": agent, "runId": f"{agent}-{self._invocations.get(agent, 1)}"}


class SessionDialect:
    """Translates the events of one session."""

    def __init__(self) -> None:
        self._speakers = Speakers()

    def read(self, name: str, payload: Mapping[str, Any], timestamp: Any) -> list[Event] | None:
        """Return the events of a flow run for an event of a session; ``None`` if the dialect has no such event."""
        if name in _SILENT:
            return []
        translate = self._translations.get(name)
        if translate is None:
            return None
        return [{"timestamp": timestamp, **event} for event in translate(self, payload)]

    def _started(self, payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "flow:start", "flowName": payload.get("workflow")}]

    def _completed(self, _payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "flow:complete", "status": "complete"}]

    def _phase_exited(self, payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "flow:complete", "status": "failed"}] if payload.get("reason") == "error" else []

    def _agent_started(self, payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "node:start", **self._speakers.begin(_sessions_agent(payload))}]

    def _agent_completed(self, payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "node:complete", **self._speaker(payload), "output": payload.get("output")}]

    def _text(self, payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "agent:text:delta", **self._speaker(payload), "content": payload.get("delta")}]

    def _thinking(self, payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "agent:thinking:delta", **self._speaker(payload), "content": payload.get("delta")}]

    def _tool_called(self, payload: Mapping[str, Any]) -> list[Event]:
        call = {"toolCallId": payload.get("toolId"), "toolName": payload.get("toolName")}
        return [{"type": "agent:tool", **self._speaker(payload), **call, "toolInput": payload.get("input")}]

    def _tool_result(self, payload: Mapping[str, Any]) -> list[Event]:
        key = "error" if payload.get("isError") else "toolOutput"
        outcome = {"toolCallId": payload.get("toolId"), key: payload.get("output")}
        return [{"type": "agent:tool", **self._speaker(payload), **outcome}]

    def _input_requested(self, payload: Mapping[str, Any]) -> list[Event]:
        question = {key: payload.get(key) for key in ("id", "prompt", "options")}
        return [{"type": "input:requested", **question, "kind": payload.get("type")}]

    def _input_received(self, payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "input:received", **payload}]

    def _speaker(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        return self._speakers.current(_sessions_agent(payload))

    _translations: ClassVar[Mapping[str, Callable[[Any, Mapping[str, Any]], list[Event]]]] = {
        "workflow:started": _started,
        "workflow:completed": _completed,
        "phase:exited": _phase_exited,
        "agent:started": _agent_started,
        "agent:completed": _agent_completed,
        "text:delta": _text,
        "thinking:delta": _thinking,
        "tool:called": _tool_called,
        "tool:result": _tool_result,
        "input:requested": _input_requested,
        "input:received": _input_received,
    }


def _sessions_agent(payload: Mapping[str, Any]) -> str:
    agent = payload.get("agent")
    return agent if isinstance(agent, str) and agent else "agent"


# Signals of harnesses: `source` names the agent or the harness.


class SignalDialect:
    """Translates the signals of one run."""

    def __init__(self) -> None:
        self._speakers = Speakers()
        self._activated: set[str] = set()

    def read(self, name: str, payload: Mapping[str, Any], source: Any, timestamp: Any) -> list[Event] | None:
        """Return the events of a flow run for a signal; ``None`` if the dialect has no such signal."""
        translate = self._translations.get(name)
        if translate is None:
            return None
        agent = _signals_agent(payload, source)
        return [{"timestamp": _milliseconds(timestamp), **event} for event in translate(self, payload, agent)]

    def _workflow_started(self, payload: Mapping[str, Any], _signals_agent: str) -> list[Event]:
        return [{"type": "flow:start", "flowName": payload.get("name")}]

    def _workflow_ended(self, payload: Mapping[str, Any], _signals_agent: str) -> list[Event]:
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


def _signals_agent(payload: Mapping[str, Any], source: Any) -> str:
    named = source if isinstance(source, Mapping) else {}
    names = (named.get("agent"), payload.get("agent"), named.get("harness"))
    return next((name for name in names if isinstance(name, str) and name), "agent")


def _milliseconds(timestamp: Any) -> float | None:
    try:
        return datetime.fromisoformat(timestamp).timestamp() * 1000
    except (TypeError, ValueError):
        return None


class Dialects:
    """Recognizes the dialect of each event and translates it."""

    def __init__(self) -> None:
        self._sessions = SessionDialect()
        self._signals = SignalDialect()

    def read(self, event: Any) -> Sequence[Event] | None:
        """Return the events of a flow run for an event of any dialect; ``None`` if it belongs to no dialect."""
        if not isinstance(event, dict | Mapping):  # dict first: an abstract class takes ten times as long to ask
            return None
        if "type" in event:
            return (event,)
        name, payload, timestamp = event.get("name"), event.get("payload"), event.get("timestamp")
        if not isinstance(name, str):
            return None
        fields = payload if isinstance(payload, Mapping) else {}
        if "source" in event or isinstance(timestamp, str) or name.startswith("harness:"):
            return self._signals.read(name, fields, event.get("source"), timestamp)
        return self._sessions.read(name, fields, timestamp)
