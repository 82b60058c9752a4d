"""The events of sessions, said in the words of a flow's run.

A session tells `{id, name, payload, timestamp}`; agents are named, tools have ids, and blocks have no ends.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from usechat.open_harness.interface import Event

__all__ = ["SessionDialect", "Speakers"]

_SILENT: Final = frozenset({"phase:entered", "state:intent", "state:checkpoint", "session:forked"})


class Speakers:
    """Run ids for agents that have none: an invocation of an agent is named after it, and numbered."""

    def __init__(self) -> None:
        self._invocations: dict[str, int] = {}

    def begin(self, agent: str) -> dict[str, Any]:
        """Name a new invocation."""
        self._invocations[agent] = self._invocations.get(agent, 0) + 1
        return self.current(agent)

    def current(self, agent: str) -> dict[str, Any]:
        """Name the invocation that goes on."""
        return {"nodeId": agent, "runId": f"{agent}-{self._invocations.get(agent, 1)}"}


class SessionDialect:
    """Translates the events of one session."""

    def __init__(self) -> None:
        self._speakers = Speakers()

    def read(self, name: str, payload: Mapping[str, Any], timestamp: Any) -> list[Event] | None:
        """Return what an event says, or nothing if the dialect has no such event."""
        if name in _SILENT:
            return []
        translate = self._translations.get(name)
        if translate is None:
            return None
        return [{"timestamp": timestamp, **said} for said in translate(self, payload)]

    def _started(self, payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "flow:start", "flowName": payload.get("workflow")}]

    def _completed(self, _payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "flow:complete", "status": "complete"}]

    def _phase_exited(self, payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "flow:complete", "status": "failed"}] if payload.get("reason") == "error" else []

    def _agent_started(self, payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "node:start", **self._speakers.begin(_agent(payload))}]

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
        asked = {key: payload.get(key) for key in ("id", "prompt", "options")}
        return [{"type": "input:requested", **asked, "kind": payload.get("type")}]

    def _input_received(self, payload: Mapping[str, Any]) -> list[Event]:
        return [{"type": "input:received", **payload}]

    def _speaker(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        return self._speakers.current(_agent(payload))

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


def _agent(payload: Mapping[str, Any]) -> str:
    agent = payload.get("agent")
    return agent if isinstance(agent, str) and agent else "agent"
