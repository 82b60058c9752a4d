"""Pairs `agent:tool` events: a call comes in one or in two of them, and most carry no id."""

import itertools
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from usechat.open_harness.events.failures import Notice, failed_tool
from usechat.open_harness.runtime_protocol import Event
from usechat.parts import ApprovalRequest, Part, ProviderMetadata, ToolCall, ToolDenied, ToolError, ToolPart, ToolResult

__all__ = ["UNFINISHED", "UNKNOWN", "AgentToolCalls"]

UNKNOWN: Final = "unknown"
"""The name of a tool whose event has none."""

UNFINISHED: Final = "{tool} did not finish."


class _Open(NamedTuple):
    id: str
    name: str
    input: Any
    source_id: str | None
    called_by: ProviderMetadata
    is_asked: bool = False

    def announced(self, run_id: str) -> ToolCall:
        """Return the call as a part. Its provider metadata names the node, as that of texts does."""
        return ToolCall(self.id, self.name, self.input, provider_metadata=self.called_by, lane=run_id)


class AgentToolCalls:
    """The tool calls of one run: announces, pairs and ends them.

    Events of one invocation and one tool are paired first in, first out. Ids decide where events carry them.
    """

    def __init__(self, new_reference: Callable[[], str], notices: list[Notice]) -> None:
        self._notices = notices
        self._new_reference = new_reference
        self._numbers = itertools.count(1)
        self._open: dict[str, list[_Open]] = {}  # by run id
        self._left: set[str] = set()
        """The calls that a person was asked about, in a message that another message has followed."""

    def read(self, event: Event, called_by: ProviderMetadata) -> list[ToolPart]:
        """Return the parts of an `agent:tool` event; ``called_by`` names the node."""
        run_id, name = event["runId"], event.get("toolName")
        if event.get("toolCallId") in self._left:
            return []
        if event.get("toolCallId") is None and not (isinstance(name, str) and name):
            self._notices.append(
                Notice("nameless-tool", f"a tool of node {event['nodeId']!r} has no name", "agent:tool")
            )
        ends = "toolOutput" in event or event.get("error") is not None
        call = self._find(event)
        announced: list[ToolPart] = []
        if call is None:
            call = self._new(event, called_by)
            self._open.setdefault(run_id, []).append(call)
            announced = [call.announced(run_id)]
        elif "toolInput" not in event:
            ends = True  # a second event with nothing in it: the tool returned nothing
        return [*announced, *([self._outcome(event, call)] if ends else [])]

    def ask(self, event: Event) -> list[Part]:
        """Return the request for an approval of an open call."""
        call = self._find(event)
        if call is None:
            return []
        calls = self._open[event["runId"]]
        calls[calls.index(call)] = call._replace(is_asked=True)
        return [ApprovalRequest(f"approval-{call.id}", call.id, lane=event["runId"])]

    def decide(self, event: Event) -> list[ToolPart]:
        """Return the outcome of a call that a person has denied; nothing for one that was allowed: it continues."""
        call = self._find(event)
        if call is None:
            return []
        calls = self._open[event["runId"]]
        if event.get("approved"):
            calls[calls.index(call)] = call._replace(is_asked=False)
            return []
        self._close(call, event["runId"])
        return [ToolDenied(call.id, event.get("reason"), lane=event["runId"])]

    def settle(self, run_id: str) -> list[ToolPart]:
        """End the open calls of an invocation."""
        return self._end(self._open.pop(run_id, []), run_id, UNFINISHED)

    def settle_all(self, text: str = UNFINISHED) -> list[ToolPart]:
        """End all open calls."""
        return [part for run_id in list(self._open) for part in self._end(self._open.pop(run_id), run_id, text)]

    def leave_open(self, text: str) -> list[ToolPart]:
        """End the open calls in this message, except those that a person is asked about; keep them for the next one."""
        unasked = {run_id: [call for call in calls if not call.is_asked] for run_id, calls in self._open.items()}
        return [part for run_id, calls in unasked.items() for part in self._end(calls, run_id, text)]

    def again(self, *, continues: bool) -> list[ToolPart]:
        """Announce the open calls again. Those that a person was asked about are in the message, if it ``continues``.

        In another message they are left: later events about them are ignored.
        """
        announced: list[ToolPart] = []
        for run_id, calls in self._open.items():
            questions = [call for call in calls if call.is_asked]
            again = [call._replace(id=self._new_id(run_id)) for call in calls if not call.is_asked]
            self._open[run_id] = [*(questions if continues else ()), *again]
            self._left |= set() if continues else {str(call.source_id) for call in questions}
            announced += [call.announced(run_id) for call in again]
        return announced

    def _find(self, event: Event) -> _Open | None:
        """Return the open call of an event, if any. An event with another input starts another call."""
        calls = self._open.get(event["runId"], [])
        source_id, name = event.get("toolCallId"), event.get("toolName") or UNKNOWN
        if source_id is not None:
            return next((call for call in calls if call.source_id == source_id), None)
        if "toolInput" in event:
            ends = "toolOutput" in event or event.get("error") is not None
            repeated = [call for call in calls if call.name == name and call.input == event["toolInput"]]
            return repeated[0] if ends and repeated else None
        # Providers lose the name of a tool that has ended: an end without a name belongs to the oldest call.
        named = [call for call in calls if call.name == name] or (calls if name == UNKNOWN else [])
        return named[0] if named else None

    def _new(self, event: Event, called_by: ProviderMetadata) -> _Open:
        name, source_id = event.get("toolName"), event.get("toolCallId")
        return _Open(
            id=self._new_id(event["runId"]) if source_id is None else str(source_id),
            name=name if isinstance(name, str) and name else UNKNOWN,
            input=event.get("toolInput", {}),
            source_id=source_id,
            called_by=called_by,
        )

    def _new_id(self, run_id: str) -> str:
        return f"{run_id}-{next(self._numbers)}"

    def _outcome(self, event: Event, call: _Open) -> ToolPart:
        self._close(call, event["runId"])
        error = event.get("error")
        if error is None:
            return ToolResult(call.id, event.get("toolOutput"), lane=event["runId"])
        text, reference = failed_tool(call.name, event.get("errorType"), str(error), self._new_reference)
        logged = f"tool {call.name!r} of node {event['nodeId']!r} failed: {error!r}"
        self._notices.append(Notice("failure", logged, "agent:tool", reference))
        return ToolError(call.id, text, lane=event["runId"])

    def _close(self, call: _Open, run_id: str) -> None:
        self._open[run_id].remove(call)
        if not self._open[run_id]:
            del self._open[run_id]

    def _end(self, calls: list[_Open], run_id: str, text: str) -> list[ToolPart]:
        return [ToolError(call.id, text.format(tool=call.name), lane=run_id) for call in calls]
