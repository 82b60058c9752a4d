"""Turns the events of a flow run into parts.

One *invocation* of a node has a run id, which is the lane of all its parts: nodes that run in parallel keep their texts
apart. Texts, reasoning and tool calls carry the node's id and the run id as provider metadata.

Three things are not obvious from the events:

- **Blocks.** A text comes as deltas, as one complete event, or as both. After deltas the complete event only closes the
  block; without them it is the block.
- **Endings.** In a flow, the end of an agent ends nothing: the flow does. A runtime of a bare agent emits no flow
  events, so there the agent's end is the ending (``ends_at``).
- **Failures.** A failed node may be retried, or the flow may continue without it. So a failure is only remembered,
  and the end of the flow reports it, once. Raw error texts go to the log as notices; the page gets a sentence and a
  reference.

A run that continues in another message is left with ``hand_over`` and continued with ``take_over``: open tool calls end
in the first message and are announced again in the second. A call that a person is asked about stays open: the message
ends when the whole flow waits (``flow:waiting``), and goes on with the answer.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from usechat.errors import PublicError, UnknownEvent
from usechat.open_harness.events.dialects import Dialects
from usechat.open_harness.events.event import REQUIRED, EndsAt, lacking
from usechat.open_harness.events.failures import Notice, failed_step
from usechat.open_harness.events.metadata import FlowData, FlowGraph, Usage, node_output, structured_output
from usechat.open_harness.events.tool_calls import AgentToolCalls
from usechat.open_harness.runtime_protocol import Event
from usechat.parts import (
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    Finish,
    Metadata,
    Part,
    ProviderMetadata,
    Reasoning,
    ResetStep,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolResult,
)
from usechat.values import json_text

__all__ = ["OpenHarnessAdapter"]

ABORTED: Final = "The flow was stopped before it finished."
INCOMPLETE: Final = "The connection to the flow was lost before the flow finished."
FAILED: Final = "The flow failed."
GOES_ON: Final = "{tool} continues in the next message."

_SPOKEN: Final[Mapping[str, type[Text | Reasoning]]] = {
    "agent:text:delta": Text,
    "agent:text": Text,
    "agent:thinking:delta": Reasoning,
    "agent:thinking": Reasoning,
}


class _Invocation(msgspec.Struct):
    """One invocation of a node that has not ended.

    ``names`` identify it in data parts. ``is_asking`` tells whether its agent has started and not ended. ``last_text``
    is its last complete text.
    """

    run_id: str
    node_id: str
    provider_metadata: ProviderMetadata
    names: Mapping[str, str]
    is_asking: bool = False
    speaking: type[Text | Reasoning] | None = None
    attempts: int = 0
    last_text: str = ""
    delta_kinds: set[type[Text | Reasoning]] = msgspec.field(default_factory=set)
    errors: set[str] = msgspec.field(default_factory=set)


def _is_json_of(text: str, value: Any) -> bool:
    try:
        return bool(msgspec.json.decode(text) == value)
    except msgspec.DecodeError:
        return False


class OpenHarnessAdapter:
    """Turns the events of one flow run into parts, for code that drives the run itself.

    The other arguments are those of :class:`OpenHarnessChatTransport`. ``ends_at`` says which events end the stream;
    without it, those of an agent do unless there are flow events. ``graph`` holds the ``nodes`` and ``edges`` of the
    flow; ``new_reference`` makes the references under which failures are logged.

    >>> adapter = OpenHarnessAdapter(send_step_markers=False)
    >>> adapter.feed({"type": "agent:text:delta", "nodeId": "a", "runId": "r1", "content": "Hello"})[0].text
    'Hello'
    >>> adapter.feed({"type": "agent:complete", "nodeId": "a", "runId": "r1"})[-1]
    Finish(reason=None, usage=None, metadata=None, lane='')
    """

    def __init__(
        self,
        *,
        send_reasoning: bool = True,
        send_step_markers: bool = True,
        send_flow_metadata: bool = False,
        send_node_outputs: bool = False,
        ends_at: EndsAt | None = None,
        graph: Mapping[str, Any] | None = None,
        new_reference: Callable[[], str] | None = None,
    ) -> None:
        self.ended = False
        """Whether the message is complete; later events are ignored."""
        self.is_waiting = False
        """Whether the message is complete because the flow waits for a person."""
        self.failure = ""
        """The sentence about the last failure; the end of the flow decides whether it is shown."""
        self._failed_run = ""
        """The invocation that failed last."""
        self.notices: list[Notice] = []
        """What the log should know; :meth:`take_notices` empties it."""
        self._send_reasoning = send_reasoning
        self._send_step_markers = send_step_markers
        self._send_node_outputs = send_node_outputs
        self._graph = FlowGraph()
        self._graph.learn(graph)
        self._data = FlowData(self._graph) if send_flow_metadata else None
        self._latest: Event | None = None
        self._ends_at = ends_at
        self._has_flow_events = False
        self._new_reference = new_reference or map(str, itertools.count(1)).__next__
        self._dialects = Dialects()
        self._tools = AgentToolCalls(self._new_reference, self.notices)
        self._usage = Usage()
        self._invocations: dict[str, _Invocation] = {}

    def feed(self, event: Event) -> list[Part]:
        """Return the parts of an event; nothing once the message is complete.

        Raises :class:`~usechat.errors.UnknownEvent` for an event that cannot be read; a notice says why.
        """
        if self.ended:
            return []
        events = self._dialects.read(event)
        if events is None:
            raise self._unknown(event, "its kind is unknown")
        return [part for each in events for part in self._read(each)]

    def close(self, error: BaseException | None = None) -> list[Part]:
        """End the message if the events have not.

        With an error that is no :class:`~usechat.errors.PublicError`, the failure that the flow reported is the ending.
        If it reported none, or the turn was stopped, nodes and flow get their last status; the run writes the ending. A
        flow that has reported nothing gets none: the message may not have reached it.
        """
        if self.ended:
            return []
        if isinstance(error, asyncio.CancelledError):
            return list(self._end_statuses({}, "aborted"))
        if error is None or (self.failure and not isinstance(error, PublicError)):
            return list(self._end_failed({}, self.failure or INCOMPLETE))
        if not self._has_flow_events and not self._invocations:
            self.ended = True
            return []
        return [*self._tools.settle_all(), *self._end_statuses({}, "failed")]

    def hand_over(self) -> list[Part]:
        """Leave the message while the run continues; the next message begins with :meth:`take_over`."""
        self.ended = True
        return list(self._tools.leave_open(GOES_ON))

    def take_over(self, *, continues: bool = False) -> list[Part]:
        """Begin the next message of a run; with ``continues``, go on with the message that waited for a person."""
        self.ended = self.is_waiting = False
        data = self._data.again() if self._data else []
        parts: list[Part] = [*data, *self._tools.again(continues=continues)]
        if continues:
            return parts
        self._usage = Usage()
        return [Step(), *parts] if self._send_step_markers else parts

    def take_notices(self) -> list[Notice]:
        """Return the notices for the log, and forget them."""
        notices = list(self.notices)
        self.notices.clear()
        return notices

    def _read(self, event: Event) -> Iterable[Part]:
        kind = event["type"]
        if not isinstance(kind, str) or kind not in REQUIRED:
            raise self._unknown(event, "its type is unknown")
        self._has_flow_events = self._has_flow_events or kind.startswith("flow:")
        if key := lacking(event):
            raise self._unknown(event, f"it has no {key}")
        handler = self._handlers.get(kind)
        return () if handler is None or self.ended else handler(self, event)

    def _unknown(self, event: Any, why: str) -> UnknownEvent:
        kind = (event.get("type") or event.get("name")) if isinstance(event, Mapping) else type(event).__name__
        self.notices.append(Notice("unknown", f"an event {kind!r} was skipped: {why}", str(kind)))
        return UnknownEvent(str(kind))

    # The flow

    def _flow_started(self, event: Event) -> Iterator[Part]:
        self._graph.learn(event.get("graph"))
        if self._data:
            yield from self._data.graph()
            yield self._data.status("running", event.get("flowName"))

    def _flow_resumed(self, event: Event) -> Iterator[Part]:
        self._graph.learn(event.get("graph"))
        if self._data:
            yield from self._data.graph()
            yield self._data.status("running")

    def _flow_completed(self, event: Event) -> Iterator[Part]:
        if event.get("status") == "failed":
            yield from self._end_failed(event, self.failure or FAILED, event.get("flowName"))
        else:
            if self._graph.is_silent and self._latest is not None:
                yield from self._said(self._latest)
            yield from self._end(event, "complete", Finish(), event.get("flowName"))

    def _said(self, event: Event) -> Iterator[Part]:
        """Return the output of a node as text."""
        output = event.get("output")
        value = output.get("text", output.get("value")) if isinstance(output, Mapping) else None
        text = value if isinstance(value, str) else json_text(value)
        if text and value is not None:
            yield Text(text, self._invocation(event).provider_metadata, lane=event["runId"])

    def _flow_paused(self, event: Event) -> Iterator[Part]:
        yield from self._end(event, "paused", Finish(metadata={"openHarness": {"status": "paused"}}))

    def _flow_aborted(self, event: Event) -> Iterator[Part]:
        yield from self._end(event, "aborted", Error(ABORTED))

    def _flow_waiting(self, _event: Event) -> Iterator[Part]:
        """End the message: a page sends the answer of a person only then."""
        self.ended = self.is_waiting = True
        yield from self._wait_for_person()

    def _edge_fired(self, event: Event) -> Iterator[Part]:
        if self._data:
            yield self._data.edge_fired(event)

    def _loop_iterated(self, event: Event) -> Iterator[Part]:
        if self._data:
            yield from self._data.iterated(event)

    # Nodes

    def _node_started(self, event: Event) -> Iterator[Part]:
        self._invocation(event)
        if self._send_step_markers:
            yield Step(lane=event["runId"])
        if self._data:
            yield self._data.node_started(event)

    def _node_completed(self, event: Event) -> Iterator[Part]:
        self._latest = event
        names = self._invocation(event).names
        yield from self._node_ended(event, "complete")
        if self._send_node_outputs:
            yield node_output(names, event.get("output"))

    def _node_failed(self, event: Event) -> Iterator[Part]:
        self._fail(event, None, event.get("error"))
        yield from self._node_ended(event, "failed")

    def _node_ended(self, event: Event, status: str) -> Iterator[Part]:
        yield from self._end_agent(event)
        self._invocations.pop(event["runId"], None)
        if self._data:
            yield from self._data.node_ended(event, status)

    def _node_retried(self, event: Event) -> Iterator[Part]:
        """Log why an attempt failed, and take back what it said."""
        before = self.failure, self._failed_run
        self._fail(event, None, event.get("error"))
        self.failure, self._failed_run = before
        yield from self._take_back(event)

    def _take_back(self, event: Event) -> Iterator[Part]:
        """Take back what a failed attempt said. Where that is not possible, its blocks end and a data part marks them.

        AI SDK 7 can reset a step. A step that holds the parts of other nodes, too, is not reset.
        """
        yield from self._end_agent(event)
        invocation = self._invocation(event)
        invocation.delta_kinds.clear()
        invocation.errors.clear()
        invocation.attempts += 1
        if self._send_step_markers and list(self._invocations) == [invocation.run_id]:
            yield ResetStep(lane=invocation.run_id)
        data = {**invocation.names, "attempt": event.get("attempt", invocation.attempts)}
        yield Data("node-retry", data, lane=invocation.run_id)

    def _node_skipped(self, event: Event) -> Iterator[Part]:
        if self._data:
            yield self._data.node_skipped(event)

    # Agents

    def _agent_started(self, event: Event) -> Iterator[Part]:
        """Begin an answer. Open Harness emits no ``node:retry``: it starts the agent of the same invocation again."""
        invocation = self._invocation(event)
        if invocation.is_asking:
            if self._failed_run == invocation.run_id:
                self.failure = self._failed_run = ""
            yield from self._take_back(event)
        invocation.is_asking = True

    def _delta(self, event: Event) -> Sequence[Part]:
        """Read a delta. It is the hot path: a plain tuple, no generator."""
        invocation, kind = self._invocation(event), _SPOKEN[event["type"]]
        invocation.delta_kinds.add(kind)
        if not event["content"] or (kind is Reasoning and not self._send_reasoning):
            return ()
        invocation.speaking = kind
        return (kind(event["content"], invocation.provider_metadata, lane=invocation.run_id),)

    def _block(self, event: Event) -> Iterator[Part]:
        """Read the full text of a block: with no deltas before it, it is the block; after deltas it only closes it."""
        invocation, kind = self._invocation(event), _SPOKEN[event["type"]]
        if kind not in invocation.delta_kinds:
            yield from self._delta(event)
        invocation.delta_kinds.discard(kind)
        if kind is Text:
            invocation.last_text = event["content"]
        if invocation.speaking is kind:
            invocation.speaking = None
            yield BlockEnd(lane=invocation.run_id)

    def _tool(self, event: Event) -> Iterator[Part]:
        self._invocation(event).speaking = None
        yield from self._tools.read(event, self._invocation(event).provider_metadata)

    def _agent_failed(self, event: Event) -> Iterator[Part]:
        self._fail(event, event.get("errorType"), event.get("message"))
        if self._is_bare:
            yield from self._end_failed(event, self.failure)

    def _agent_completed(self, event: Event) -> Iterator[Part]:
        yield from self._end_agent(event)
        invocation = self._invocation(event)
        # A runtime may have sent the same value as text, which cannot be taken back: it is shown once.
        if "structuredOutput" in event and not _is_json_of(invocation.last_text, event["structuredOutput"]):
            yield structured_output(invocation.names, event["structuredOutput"])
        if used := self._usage.add(event):
            yield Metadata(used)
        if self._is_bare:
            yield from self._end(event, "complete", Finish())

    def _agent_paused(self, event: Event) -> Iterator[Part]:
        self._invocation(event).is_asking = False
        if self._is_bare:
            yield from self._flow_paused(event)

    def _agent_aborted(self, event: Event) -> Iterator[Part]:
        self._invocation(event).is_asking = False
        if self._is_bare:
            yield from self._flow_aborted(event)

    def _end_agent(self, event: Event) -> Iterator[Part]:
        """Close the block and the open tool calls of an agent that has ended."""
        invocation = self._invocations.get(event["runId"])
        if invocation is not None:
            invocation.is_asking = False
            if invocation.speaking is not None:
                invocation.speaking = None
                yield BlockEnd(lane=invocation.run_id)
        yield from self._tools.settle(event["runId"])

    # Questions to a person

    def _input_requested(self, event: Event) -> Iterator[Part]:
        """Ask about a tool call, which ends the message with ``flow:waiting``; or end it with a call that asks."""
        if "toolCallId" in event:
            yield from self._tools.ask(event)
            return
        call_id, prompt, asked_by = event["id"], event.get("prompt"), self._asking(event)
        if event.get("kind") == "approval":
            yield ToolCall(call_id, "approve", {"prompt": prompt}, provider_metadata=asked_by)
            yield ApprovalRequest(call_id, call_id)
        else:
            choice = {"prompt": prompt, "options": event.get("options")}
            yield ToolCall(call_id, "choose", choice, provider_metadata=asked_by)
        self.ended = True
        yield from self._wait_for_person()

    def _wait_for_person(self) -> Iterator[Part]:
        yield from self._tools.leave_open(GOES_ON)
        if self._data:
            yield from self._data.waiting()
        yield Finish()

    def _asking(self, event: Event) -> ProviderMetadata | None:
        """Return the metadata of the invocation that asks: the one named in the event, or the only one."""
        open_invocations = list(self._invocations.values())
        named = self._invocations.get(event.get("runId", "")) or (
            open_invocations[0] if len(open_invocations) == 1 else None
        )
        return named.provider_metadata if named else None

    def _input_received(self, event: Event) -> Iterator[Part]:
        """Read the answer to a question. The newest session server does not say to which: its event has no id."""
        if "toolCallId" in event:
            yield from self._tools.decide(event)
            return
        call_id = event.get("id")
        if not isinstance(call_id, str):
            return
        if event.get("approved") is False:
            yield ToolDenied(call_id)
        else:
            yield ToolResult(call_id, event.get("value"))

    # Endings

    @property
    def _is_bare(self) -> bool:
        """Whether the events of an agent end the stream: the runtime says so, or there are no flow events."""
        return self._ends_at == "agent" or (self._ends_at is None and not self._has_flow_events)

    def _fail(self, event: Event, error_type: Any, text: Any) -> None:
        """Remember a failure for the end of the flow. An agent's error and its node's are often the same."""
        invocation = self._invocation(event)
        if str(text) in invocation.errors:
            return
        invocation.errors.add(str(text))
        reference = self._new_reference()
        what = f"{error_type}: {text!r}" if error_type else repr(text)
        logged = f"node {invocation.node_id!r} failed in run {invocation.run_id}: {what}"
        self.notices.append(Notice("failure", logged, event["type"], reference))
        if error_type or len(invocation.errors) == 1:
            self.failure = failed_step(invocation.node_id, str(error_type or ""), str(text), reference)
            self._failed_run = invocation.run_id

    def _end_failed(self, event: Event, text: str, flow_name: Any = None) -> Iterator[Part]:
        yield from self._end(event, "failed", Error(text), flow_name)

    def _end(self, event: Event, status: str, ending: Finish | Error, flow_name: Any = None) -> Iterator[Part]:
        yield from self._tools.settle_all()
        yield from self._end_statuses(event, status, flow_name)
        yield ending

    def _end_statuses(self, event: Event, status: str, flow_name: Any = None) -> Iterator[Part]:
        """End all statuses. Where the flow failed, nodes that did not fail themselves were aborted."""
        self.ended = True
        if self._data:
            failed = [run_id for run_id, invocation in self._invocations.items() if invocation.errors]
            yield from self._data.all_ended(event, "aborted" if status == "failed" else status, failed=failed)
            yield self._data.status(status, flow_name)

    def _invocation(self, event: Event) -> _Invocation:
        run_id = event["runId"]
        invocation = self._invocations.get(run_id)
        if invocation is None:
            names = {"nodeId": event["nodeId"], **self._graph.label(event["nodeId"]), "runId": run_id}
            invocation = _Invocation(run_id, event["nodeId"], {"openHarness": names}, names)
            self._invocations[run_id] = invocation
        return invocation

    _handlers: ClassVar[Mapping[str, Callable[[Any, Event], Iterable[Part]]]] = {
        "flow:start": _flow_started,
        "flow:resumed": _flow_resumed,
        "flow:complete": _flow_completed,
        "flow:paused": _flow_paused,
        "flow:aborted": _flow_aborted,
        "flow:waiting": _flow_waiting,
        "node:start": _node_started,
        "node:complete": _node_completed,
        "node:error": _node_failed,
        "node:retry": _node_retried,
        "node:skipped": _node_skipped,
        "edge:fire": _edge_fired,
        "loop:iterate": _loop_iterated,
        "agent:start": _agent_started,
        "agent:text:delta": _delta,
        "agent:text": _block,
        "agent:thinking:delta": _delta,
        "agent:thinking": _block,
        "agent:tool": _tool,
        "agent:error": _agent_failed,
        "agent:complete": _agent_completed,
        "agent:paused": _agent_paused,
        "agent:aborted": _agent_aborted,
        "input:requested": _input_requested,
        "input:received": _input_received,
    }
