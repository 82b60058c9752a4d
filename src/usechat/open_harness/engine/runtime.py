"""A runtime of flows: runs one flow once, and tells everything that happens as events."""

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from usechat.errors import LocalProtocolError, NotResumable
from usechat.open_harness.engine.flow_run import FlowRun, FlowRunState
from usechat.open_harness.engine.scheduler import Scheduler
from usechat.open_harness.engine.store import FlowRunStore, MemoryRunStore
from usechat.open_harness.events.event import EndsAt
from usechat.open_harness.flow.definition import FlowDefinition
from usechat.open_harness.flow.reading import load_flow
from usechat.open_harness.models.recording import Recorder
from usechat.open_harness.nodes.agent import AgentNode
from usechat.open_harness.nodes.builtin import default_registry
from usechat.open_harness.nodes.registry import NodeRegistry
from usechat.open_harness.runtime_protocol import Command, Listener, Snapshot
from usechat.open_harness.threads import in_thread
from usechat.protocol.values import json_value
from usechat.turn import current_turn

__all__ = ["FlowRuntime"]

_logger: Final = logging.getLogger("usechat.open_harness")

_REMEMBERED: Final = MemoryRunStore(maximum_runs=0)
"""What agents remember whose runtimes have no store: each turn of a chat has its own runtime."""

_CONTINUE: Final = "continue"


class FlowRuntime:
    """Runs a flow once. ``resume`` goes on with a kept run: ``{"runId": …}`` of the store, or ``{"snapshot": …}``.

    Without a ``store``, nothing is kept but what agents remember of a chat, as long as the process lives.
    ``owner`` is whose chat it is, by default who asks in the turn that runs: what agents remember is not for others.
    """

    def __init__(
        self,
        flow: FlowDefinition | str | Path | Mapping[str, Any],
        *,
        registry: NodeRegistry | None = None,
        store: FlowRunStore | None = None,
        resume: Mapping[str, Any] | None = None,
        recording: Recorder | None = None,
        owner: str | None = None,
    ) -> None:
        registry = registry or default_registry()
        self.flow = flow if isinstance(flow, FlowDefinition) else load_flow(flow, registry=registry)
        if recording is None or recording.mode != "replay":
            _require_model_library(self.flow, registry)
        state = _kept_state(self.flow, store, resume) if resume else FlowRunState.new(self.flow, str(uuid.uuid4()))
        self._run = FlowRun(
            self.flow, registry, _REMEMBERED if store is None else store, state, recorder=recording, pause=self.pause
        )
        self._owner = owner
        self._driver: Scheduler | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._rested = asyncio.Event()
        self._rested.set()

    ends_at: EndsAt = "flow"
    """Whose events end the run."""

    @property
    def run_id(self) -> str:
        """The id of the run; the ``runId`` of events is another one, that of a node's invocation."""
        return self._run.state.run_id

    async def run(self, input: Mapping[str, Any] | None = None) -> Snapshot:  # noqa: A002
        """Run the flow, or go on with one that is paused; return when it is complete, failed, paused or stopped."""
        state = self._run.state
        if state.status == "paused":
            return await self.resume()
        if state.status != "idle":
            raise NotResumable(f"Run {state.run_id} is not resumable")
        state.input = json_value(input or {})
        state.owner = _asking() if self._owner is None else self._owner
        state.status = "running"
        self._run.emit({"type": "flow:start", "flowName": self.flow.name})
        return await self._drive(Scheduler(self._run, on_cancelled=self._cancelled))

    async def resume(self, message: str | None = None) -> Snapshot:
        """Go on with a paused flow; the nodes that were running run anew and find the message in their inbox."""
        state = self._run.state
        if state.status != "paused":
            raise NotResumable(f"Run {state.run_id} is not resumable")
        command = {"type": "resume"} if message is None else {"type": "resume", "message": message}
        self._run.emit({"type": "command:received", "command": command})
        await self._rested.wait()
        if state.status != "paused":
            raise NotResumable(f"Run {state.run_id} is not resumable")
        state.status = "running"
        self._run.emit({"type": "flow:resumed"})
        resuming = [node for node, status in state.node_status.items() if status == "running"]
        for node in resuming:
            state.node_status[node] = "pending"
        return await self._drive(
            Scheduler(self._run, on_cancelled=self._cancelled, resuming=resuming, resume_message=message or _CONTINUE)
        )

    def pause(self) -> None:
        """Ask the flow to pause."""
        self.dispatch({"type": "pause"})

    def stop(self) -> None:
        """Ask the flow to stop for good."""
        self.dispatch({"type": "stop"})

    def dispatch(self, command: Command) -> None:
        """Take a command of either generation: send, reply, abort, resume; pause, resume, stop."""
        match command.get("type"):
            case "send" | "reply":
                self._deliver(command)
                return
            case "pause":
                is_pause = True
            case "abort":
                is_pause = command.get("resumable") is True
            case "stop":
                is_pause = False
            case "resume":
                self._resume_soon(command.get("message"))
                return
            case unknown:
                self._run.emit({"type": "command:received", "command": dict(command)})
                _logger.warning("unknown command %r", unknown)
                return
        self._run.emit({"type": "command:received", "command": dict(command)})
        self._end(is_pause=is_pause)

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return what ends that."""
        return self._run.listen(listener)

    def get_snapshot(self) -> Snapshot:
        """Return how the run stands."""
        return self._run.snapshot()

    def _deliver(self, command: Command) -> None:
        run_id = command.get("runId")
        if run_id:
            self._run.inbox(str(run_id)).put(dict(command))
        self._run.emit({"type": "command:received", "command": dict(command)})
        if not run_id:
            raise ValueError("Runtime command missing runId")

    def _resume_soon(self, message: str | None) -> None:
        if self._run.state.status != "paused":
            self._run.emit({"type": "command:received", "command": {"type": "resume", "message": message}})
            _logger.warning("run %s is not paused; there is nothing to resume", self.run_id)
            return
        task = asyncio.get_running_loop().create_task(self.resume(message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self, *, is_pause: bool) -> None:
        state = self._run.state
        if state.status == "running" or (state.status == "paused" and not is_pause):
            state.status = "paused" if is_pause else "aborted"
            self._run.emit({"type": "flow:paused" if is_pause else "flow:aborted"})
            if self._driver is not None:
                self._driver.stop("pause" if is_pause else "abort")
            self._run.save()

    def _cancelled(self) -> None:
        self._end(is_pause=False)

    async def _drive(self, driver: Scheduler) -> Snapshot:
        self._run.begin()
        self._driver = driver
        self._rested.clear()
        try:
            failed = await driver.drive()
        except Exception:
            _logger.exception("run %s failed", self.run_id)
            failed = True
        finally:
            self._driver = None
            self._rested.set()
        if self._run.state.status == "running":
            self._run.state.status = "complete"
            status = "failed" if failed else "complete"
            self._run.emit({"type": "flow:complete", "flowName": self.flow.name, "status": status})
        self._run.save()
        await in_thread(self._run.flush)
        return self.get_snapshot()


def _asking() -> str:
    """Return who asks in the turn that runs; nobody if there is none."""
    try:
        identity = current_turn().identity
    except LocalProtocolError:
        return ""
    return "" if identity is None else identity.subject


def _require_model_library(flow: FlowDefinition, registry: NodeRegistry) -> None:
    for kind in {registry.get(node.type) for node in flow.nodes}:
        if isinstance(kind, AgentNode):
            kind.require_model_library()


def _kept_state(flow: FlowDefinition, store: FlowRunStore | None, resume: Mapping[str, Any]) -> FlowRunState:
    snapshot, run_id = resume.get("snapshot"), resume.get("runId")
    if snapshot is None:
        if store is None:
            raise ValueError("to resume a run by its runId, a store is needed")
        snapshot = store.load_snapshot(str(run_id))
    if snapshot is None:
        raise NotResumable(f"No snapshot found for runId {run_id}")
    state = FlowRunState.kept(flow, snapshot, run_id)
    if state.status == "running":  # its process ended before it did
        state.status = "paused"
    return state
