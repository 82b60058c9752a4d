"""What a node gets besides its input: its inbox, the shared state, and the means to emit events."""

import asyncio
import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from usechat.errors import InvalidSetting
from usechat.open_harness.engine.agent_sessions import AgentSessions
from usechat.open_harness.inbox import Inbox
from usechat.open_harness.models.provider import Decision
from usechat.open_harness.models.recording import Recorder
from usechat.open_harness.runtime_protocol import Command, Event
from usechat.values import json_value

__all__ = [
    "Invocation",
    "NodeContext",
    "SharedState",
    "StopReason",
    "Surroundings",
    "text_of",
]

StopReason: TypeAlias = Literal["pause", "abort", "timeout"]


class SharedState:
    """JSON values that all nodes share, by dotted path such as ``review.score``. Nodes in threads may use it.

    Every change is emitted as a ``state:patch`` event. What :meth:`get` returns is a copy: changing it changes nothing.

    >>> patches: list[dict[str, Any]] = []
    >>> state = SharedState({"review": {"score": 1}}, patches.append)
    >>> state.set("review.score", 2)
    >>> state.get("review")
    {'score': 2}
    """

    def __init__(self, values: Mapping[str, Any], emit_patch: Callable[[dict[str, Any]], None]) -> None:
        self._values: dict[str, Any] = json_value(values)
        self._emit_patch = emit_patch
        self._changing = threading.Lock()

    @property
    def values(self) -> Mapping[str, Any]:
        """All values. A change replaces this object, so the same object has the same values."""
        return self._values

    def get(self, path: str = "") -> Any:
        """Return a copy of the value at a path, or ``None``; all values for the empty path."""
        return copy.deepcopy(_value_at(self._values, path))

    def set(self, path: str, value: Any) -> None:
        """Set the value at a path; missing objects on the way are created.

        Raises :class:`~usechat.errors.InvalidSetting` for the empty path.
        """
        value = json_value(value)
        with self._changing:
            self._values = _with_value(self._values, _path_to(path), value)
        self._emit_patch({"op": "set", "path": path, "value": value})

    def merge(self, path: str, value: Mapping[str, Any]) -> None:
        """Merge the keys of an object into the one at a path."""
        addition = json_value(value)
        with self._changing:
            current = _value_at(self._values, path)
            merged = {**(current if isinstance(current, dict) else {}), **addition}
            self._values = _with_value(self._values, _path_to(path), merged)
        self._emit_patch({"op": "merge", "path": path, "value": addition})

    def snapshot(self) -> dict[str, Any]:
        """Return a copy of all values."""
        return copy.deepcopy(self._values)


def _value_at(value: Any, path: str) -> Any:
    for step in _steps(path):
        if not isinstance(value, dict) or step not in value:
            return None
        value = value[step]
    return value


def _with_value(values: Any, path: Sequence[str], value: Any) -> dict[str, Any]:
    """Return a copy in which the value at a path is another one; only the objects on the path are copied."""
    first, *others = path
    owner = values if isinstance(values, dict) else {}
    return {**owner, first: _with_value(owner.get(first), others, value) if others else value}


def _path_to(path: str) -> list[str]:
    if steps := _steps(path):
        return steps
    raise InvalidSetting("the state cannot be replaced as a whole; name a path such as 'review.score'")


def _steps(path: str) -> list[str]:
    return [step for step in path.split(".") if step]


class Invocation(NamedTuple):
    """One invocation of a node; each attempt has a context of its own."""

    node_id: str
    run_id: str
    number: int
    session_name: str
    resume_message: str | None


class Surroundings(NamedTuple):
    """What a flow run shares with the contexts of its nodes."""

    input: Mapping[str, Any]
    state: SharedState
    sessions: AgentSessions
    recorder: Recorder | None
    emit: Callable[[Event], None]
    pause: Callable[[], None]
    on_question: Callable[[], None]


class NodeContext:
    """One attempt of one invocation of a node: the second argument of a node's function.

    ``inbox`` holds the messages that the user sends while the node runs, ``state`` what all nodes share, ``flow_input``
    the input of the flow. ``node_id`` is the node, ``run_id`` its invocation, and ``invocation`` the number of it.
    ``resume_message`` is the message that resumed a paused flow; ``stop_reason`` says why the
    attempt ends. ``emit`` and ``pause`` may be called from any thread. ``ask`` asks a person about a tool call,
    and calls ``on_question``.
    ``sessions``, ``session_name`` and ``recorder`` are for nodes that ask models.

    >>> from usechat.open_harness import FlowRuntime, default_registry
    >>> async def search(given, context):
    ...     context.emit({"type": "agent:tool", "toolName": "search", "toolInput": given["query"]})
    ...     context.emit({"type": "agent:tool", "toolName": "search", "toolOutput": ["barn owl"]})
    ...     return {"hits": ["barn owl"]}
    >>> registry = default_registry()
    >>> registry.add("search", search)
    >>> flow = {"name": "find", "nodes": [{"id": "a", "type": "search", "input": {"query": "owls"}}]}
    >>> import asyncio
    >>> asyncio.run(FlowRuntime(flow, registry=registry).run())["outputs"]
    {'a': {'hits': ['barn owl']}}
    """

    def __init__(self, invocation: Invocation, inbox: Inbox, flow: Surroundings) -> None:
        self.node_id = invocation.node_id
        self.run_id = invocation.run_id
        self.invocation = invocation.number
        self.session_name = invocation.session_name
        self.resume_message = invocation.resume_message
        self.inbox = inbox
        self.flow_input = flow.input
        self.state = flow.state
        self.sessions = flow.sessions
        self.recorder = flow.recorder
        self.stop_reason: StopReason | None = None
        self._flow = flow
        self._questions: dict[str, asyncio.Future[Command]] = {}
        self._waits_since = 0.0
        self._waiting_time = 0.0
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def stopped(self) -> bool:
        """Whether this attempt should end. Code in threads should check it regularly."""
        return self.stop_reason is not None

    def emit(self, event: Event) -> None:
        """Emit an event, from any thread; ``nodeId`` and ``runId`` are added. Events of a stopped node are dropped."""
        full = {"type": event["type"], "nodeId": self.node_id, "runId": self.run_id, **event}
        if threading.get_ident() == self._thread:
            self._say(full)
        else:
            self._loop.call_soon_threadsafe(self._say, full)

    def pause(self) -> None:
        """Pause the flow, from any thread. When it is resumed the node runs again, with ``resume_message``."""
        self._loop.call_soon_threadsafe(self._flow.pause)

    @property
    def is_waiting(self) -> bool:
        """Whether a person was asked and has not answered."""
        return any(not question.done() for question in self._questions.values())

    @property
    def waited_seconds(self) -> float:
        """How long this attempt has waited for a person; time limits do not count it."""
        return self._waiting_time + (self._loop.time() - self._waits_since if self._questions else 0.0)

    async def ask(self, call_id: str) -> Decision:
        """Ask a person whether a tool call may run, and wait for the decision of a later turn.

        The start of the call must have been emitted, with ``call_id`` as its ``toolCallId``.
        """
        reply = self.inbox.ask(call_id)
        if not self._questions:
            self._waits_since = self._loop.time()
        self._questions[call_id] = reply
        try:
            self.emit({"type": "input:requested", "id": call_id, "kind": "approval", "toolCallId": call_id})
            self._flow.on_question()
            decision = _decision(str((await reply).get("content", "")))
        finally:
            self._waiting_time, self._waits_since = self.waited_seconds, self._loop.time()
            del self._questions[call_id]
        reason = {} if decision.reason is None else {"reason": decision.reason}
        self.emit(
            {"type": "input:received", "id": call_id, "toolCallId": call_id, "approved": decision.approved, **reason}
        )
        return decision

    def stop(self, reason: StopReason) -> None:
        """Set the reason, by which the node knows that it should end."""
        self.stop_reason = self.stop_reason or reason

    def _say(self, event: Event) -> None:
        # A stopped agent may still report that it stopped.
        if not self.stopped or event["type"] in ("agent:paused", "agent:aborted"):
            self._flow.emit(event)


def _decision(content: str) -> Decision:
    """Read an answer as Open Harness does: what begins with "y" is an approval. A reason follows ``no:``."""
    if content[:1] in ("y", "Y"):
        return Decision(True)
    _, _, reason = content.partition(":")
    return Decision(False, reason.strip() or None)


def text_of(error: BaseException) -> str:
    """Return the text of an error, or the name of its class if it has none."""
    return str(error) or type(error).__name__
