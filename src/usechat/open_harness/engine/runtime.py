"""The flow engine: runs one flow once, and reports everything that happens as events.

**Nodes and edges.** A node has a status: pending, running, done or failed. It is *ready* when it is pending and no node
before it is pending or running; loop edges do not count as "before" (:mod:`~usechat.open_harness.engine.graph`). For a
ready node the edges into it decide: all must have fired, or one of them with ``gate: any``; then its own ``when`` must
hold. Otherwise the node is skipped, which settles it like a node that ran. When a node is settled, its outgoing edges
are evaluated and fire or not. An edge that fires into a settled node makes it pending again: that is a loop, and
``maxIterations`` ends it.

**Scheduling.** :class:`~usechat.open_harness.engine.scheduler.Scheduler` repeats: start every ready node (one at a time
unless the flow says ``parallel``), wait until a node ends, fire its edges, store a snapshot. It ends when nothing is
ready and nothing runs, when a node failed for good, or when the run is paused or stopped. A node runs in a task of its
own (:class:`~usechat.open_harness.engine.node_run.NodeRun`) with its retries, its time limit and its ``forEach`` list.
One *invocation* of a node is one such run for one item; its ``runId`` names it in every event.

**State.** Everything that a run must remember is in :class:`~usechat.open_harness.engine.flow_run.FlowRunState`, and a
snapshot holds it: statuses, outputs, loop counters, shared state, unread commands, agent sessions. A run that was
paused, or whose process died, continues from its snapshot: nodes that were running are pending again, run again and
find the message that resumed the flow in their inbox. Completed nodes do not run twice.

**Events and threads.** Listeners are called in the event loop's thread, in order, before ``emit`` returns. Code in
threads emits through the loop. A store never makes a run fail: its errors are logged.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

from usechat import Turn, current_turn
from usechat.errors import InvalidSetting, LocalProtocolError
from usechat.open_harness.engine.agent_sessions import id_of_current_message
from usechat.open_harness.engine.flow_run import FlowRun, FlowRunState
from usechat.open_harness.engine.other_workers import Readers, ReleaseRun, StoredRun, receiving
from usechat.open_harness.engine.processes import new_start, this_process
from usechat.open_harness.engine.scheduler import Scheduler
from usechat.open_harness.engine.store import FlowRunStore, MemoryRunStore, SharedRunStore
from usechat.open_harness.errors import LoopLimitReached, NotResumable
from usechat.open_harness.events.event import EndsAt
from usechat.open_harness.flow.definition import FlowDefinition
from usechat.open_harness.flow.reading import load_flow
from usechat.open_harness.models.recording import Recorder
from usechat.open_harness.nodes.agent import AgentNode
from usechat.open_harness.nodes.builtin import default_registry
from usechat.open_harness.nodes.registry import NodeRegistry
from usechat.open_harness.runtime_protocol import Command, Listener, Snapshot
from usechat.open_harness.threads import in_thread
from usechat.values import json_value

__all__ = ["FlowRuntime", "FlowRuntimes"]

_logger: Final = logging.getLogger("usechat.open_harness")

_SESSIONS_ONLY: Final = MemoryRunStore(maximum_runs=0)
"""Agent sessions of runtimes without a store. Each turn of a chat has its own runtime, so the store is shared."""

_CONTINUE: Final = "continue"


class FlowRuntime:
    """Runs a flow once, in this process.

    ``flow`` is what :func:`load_flow` returned, or anything that it takes. ``registry`` holds the types of nodes.
    ``store`` keeps events, snapshots and agent sessions; without one, only agent sessions are kept, in memory.
    ``resume`` continues a stored run: ``{"runId": …}`` with a store, or ``{"snapshot": …}``. ``recording`` records or
    replays the agents' models. ``owner`` owns the agent sessions; by default the identity of the turn that runs.

    Raises :class:`~usechat.open_harness.errors.InvalidFlow` for a flow with problems,
    :class:`~usechat.open_harness.errors.NotResumable` and :class:`~usechat.errors.InvalidSetting` for a run that
    cannot be resumed, and :class:`~usechat.errors.MissingDependency` if a package is missing. Use it in the thread of
    the event loop.

    >>> import asyncio
    >>> flow = {"name": "greet", "nodes": [{"id": "a", "type": "echo", "input": {"text": "Hi {{ flow.input.name }}"}}]}
    >>> asyncio.run(FlowRuntime(flow).run({"name": "Ada"}))["outputs"]
    {'a': {'text': 'Hi Ada'}}
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
        state = _stored_state(self.flow, store, resume) if resume else FlowRunState.new(self.flow, str(uuid.uuid4()))
        self._run = FlowRun(
            self.flow, registry, _SESSIONS_ONLY if store is None else store, state, recorder=recording, pause=self.pause
        )
        self._owner = owner
        self._readers = Readers(record=self._run.record, dispatch=self.dispatch, stop=self.stop)
        self._scheduler: Scheduler | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._rested = asyncio.Event()
        self._rested.set()

    takes_message_ids = True
    """Whether ``send`` may have a ``messageId``, and ``resume`` a ``message_id``."""
    ends_at: EndsAt = "flow"
    """Which events end the run: those of the flow, not those of a single agent."""

    @property
    def run_id(self) -> str:
        """The id of the run; the ``runId`` of events is another one, that of a node's invocation."""
        return self._run.state.run_id

    async def run(self, input: Mapping[str, Any] | None = None) -> Snapshot:  # noqa: A002
        """Run the flow, or resume it if it is paused; return when it is complete, failed, paused or stopped.

        Raises :class:`~usechat.open_harness.errors.LoopLimitReached` where a loop reaches its limit.
        """
        state = self._run.state
        if state.status == "paused":
            return await self.resume()
        if state.status != "idle":
            raise NotResumable(f"Run {state.run_id} is not resumable")
        state.input = json_value(input or {})
        state.owner = _owner_of_turn() if self._owner is None else self._owner
        state.status = "running"
        state.started_at = new_start()
        self._run.emit({"type": "flow:start", "flowName": self.flow.name})
        return await self._drive(Scheduler(self._run, on_cancelled=self._on_cancelled))

    async def resume(self, message: str | None = None, *, message_id: str | None = None) -> Snapshot:
        """Resume a paused flow. Nodes that were running run again and find the message in their inbox.

        ``message_id`` is the id of the user's message; by default that of the turn that runs.
        """
        state = self._run.state
        if state.status != "paused":
            raise NotResumable(f"Run {state.run_id} is not resumable")
        command = {"type": "resume"} if message is None else {"type": "resume", "message": message}
        self._run.emit({"type": "command:received", "command": command})
        await self._rested.wait()
        if state.status != "paused":
            raise NotResumable(f"Run {state.run_id} is not resumable")
        state.status = "running"
        self._run.resumed_by = None if message is None else message_id or id_of_current_message()
        self._run.emit({"type": "flow:resumed"})
        resuming = [node for node, status in state.node_status.items() if status == "running"]
        for node in resuming:
            state.node_status[node] = "pending"
        return await self._drive(
            Scheduler(
                self._run, on_cancelled=self._on_cancelled, resuming=resuming, resume_message=message or _CONTINUE
            )
        )

    def pause(self) -> None:
        """Ask the flow to pause."""
        self.dispatch({"type": "pause"})

    def stop(self) -> None:
        """Ask the flow to stop for good."""
        self.dispatch({"type": "stop"})

    def dispatch(self, command: Command) -> None:
        """Execute a command of either Open Harness generation: send, reply, abort, resume; pause, resume, stop.

        Raises :class:`~usechat.errors.InvalidSetting` for a ``send`` or ``reply`` without ``runId``.
        """
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
                self._start_resuming(command.get("message"))
                return
            case unknown:
                self._run.emit({"type": "command:received", "command": dict(command)})
                _logger.warning("unknown command %r", unknown)
                return
        self._run.emit({"type": "command:received", "command": dict(command)})
        self._end(is_pause=is_pause)

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return a function that removes it."""
        return self._run.listen(listener)

    def on_release(self, release: ReleaseRun) -> None:
        """Call ``release`` when a turn of another worker wants to show the run."""
        self._readers.release_here = release

    def get_snapshot(self) -> Snapshot:
        """Return a snapshot of the run."""
        return self._run.snapshot()

    def _deliver(self, command: Command) -> None:
        run_id = command.get("runId")
        if run_id:
            self._run.inbox(str(run_id)).put(dict(command))
        self._run.emit({"type": "command:received", "command": dict(command)})
        if not run_id:
            raise InvalidSetting("Runtime command missing runId")

    def _start_resuming(self, message: str | None) -> None:
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
            if self._scheduler is not None:
                self._scheduler.stop("pause" if is_pause else "abort")
            self._run.save()

    def _on_cancelled(self) -> None:
        self._end(is_pause=False)

    def _receiving(self) -> AbstractContextManager[None]:
        """Receive the commands of other workers while the flow runs, if there can be any."""
        store = self._run.store
        if not isinstance(store, SharedRunStore):
            return nullcontext()
        return receiving(store, self.run_id, self._readers.receive)

    async def _drive(self, scheduler: Scheduler) -> Snapshot:
        self._run.begin()
        self._run.state.process = this_process()
        self._scheduler = scheduler
        self._rested.clear()
        try:
            with self._receiving():
                failed = await scheduler.drive()
        except LoopLimitReached:
            if self._run.state.status == "running":  # it was neither paused nor stopped meanwhile
                self._run.abandon()
                await in_thread(self._run.flush)
                raise
            failed = True
        except Exception:
            _logger.exception("run %s failed", self.run_id)
            failed = True
        finally:
            self._scheduler = None
            self._readers.close()
            self._rested.set()
        if self._run.state.status == "running":
            self._run.state.status = "complete"
            status = "failed" if failed else "complete"
            self._run.emit({"type": "flow:complete", "flowName": self.flow.name, "status": status})
        self._run.save()
        await in_thread(self._run.flush)
        return self.get_snapshot()


class FlowRuntimes:
    """Makes the runtimes of one flow, one per turn. The arguments are those of :class:`FlowRuntime`.

    With a store, a turn continues the chat's latest run if that is paused, or if its process ended before it did:
    completed nodes do not run twice. If another worker is running that run, the turn shows what follows.

    >>> from usechat.open_harness import OpenHarnessChatTransport
    >>> from usechat.testing import AgentClient
    >>> flow = {"name": "echo", "nodes": [{"id": "a", "type": "echo", "input": {"text": "{{ flow.input.message }}"}}]}
    >>> with AgentClient(OpenHarnessChatTransport(FlowRuntimes(flow))) as client:
    ...     client.ask("Hello").error is None
    True
    """

    def __init__(
        self,
        flow: FlowDefinition | str | Path | Mapping[str, Any],
        *,
        registry: NodeRegistry | None = None,
        store: FlowRunStore | None = None,
        recording: Recorder | None = None,
    ) -> None:
        self._registry = registry or default_registry()
        self.flow = flow if isinstance(flow, FlowDefinition) else load_flow(flow, registry=self._registry)
        self._store = store
        self._recording = recording
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def finds_paused_runs(self) -> bool:
        """Whether a turn gets the paused run of its chat from the store, where another worker may have resumed it."""
        return self._store is not None

    def release(self, turn: Turn) -> None:
        """Ask the worker that runs the chat's flow to end the turn that shows it; ``turn`` shows what follows.

        A turn that regenerates an answer stops the flow.
        """
        store = self._store
        if not isinstance(store, SharedRunStore):
            return
        command = {"type": "stop" if turn.request.trigger == "regenerate-message" else "release"}

        def send() -> None:
            if (run_id := store.running_run(turn.chat_id, _owner(turn))) is not None:
                store.send_command(run_id, command)

        task = asyncio.get_running_loop().create_task(in_thread(send))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def __call__(self, turn: Turn) -> FlowRuntime | StoredRun:
        """Return the runtime of a turn."""
        if (running := await self._running(turn)) is not None:
            return running
        run_id = None if self._store is None else await in_thread(partial(_unfinished_run, self._store, turn))
        return FlowRuntime(
            self.flow,
            registry=self._registry,
            store=self._store,
            resume=None if run_id is None else {"runId": run_id},
            recording=self._recording,
        )

    async def _running(self, turn: Turn) -> StoredRun | None:
        """Return the chat's latest run if a worker is running it. A regenerated answer starts from the beginning."""
        store = self._store
        if not isinstance(store, SharedRunStore) or turn.request.trigger == "regenerate-message":
            return None
        run_id = await in_thread(partial(store.running_run, turn.chat_id, _owner(turn)))
        if run_id is None:
            return None
        run = StoredRun(self.flow, store, run_id)
        return run if await run.open() else None


def _unfinished_run(store: FlowRunStore, turn: Turn) -> str | None:
    """Return the run that a turn continues. A regenerated answer starts from the beginning."""
    if turn.request.trigger == "regenerate-message":
        return None
    return store.unfinished_run(turn.chat_id, _owner(turn))


def _owner(turn: Turn) -> str:
    return "" if turn.identity is None else turn.identity.subject


def _owner_of_turn() -> str:
    """Return the subject of the turn that runs; an empty text if there is none."""
    try:
        identity = current_turn().identity
    except LocalProtocolError:
        return ""
    return "" if identity is None else identity.subject


def _require_model_library(flow: FlowDefinition, registry: NodeRegistry) -> None:
    for node in flow.nodes:
        kind = registry.get(node.type)
        if isinstance(kind, AgentNode):
            kind.require_model_library(node.input)


def _stored_state(flow: FlowDefinition, store: FlowRunStore | None, resume: Mapping[str, Any]) -> FlowRunState:
    snapshot, run_id = resume.get("snapshot"), resume.get("runId")
    if snapshot is None:
        if store is None:
            raise InvalidSetting(
                'a run can be resumed by its runId only if a store is given; pass store=, or resume={"snapshot": …}'
            )
        snapshot = store.load_snapshot(str(run_id))
    if snapshot is None:
        raise NotResumable(f"No snapshot found for runId {run_id}")
    state = FlowRunState.from_snapshot(flow, snapshot, run_id)
    if state.status == "running":  # its process ended before it did
        state.status = "paused"
    return state
