"""Schedules a flow run: which node starts when, and which edges fire after it. The idea is in ``runtime.py``."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from usechat.open_harness.engine.flow_run import FlowRun
from usechat.open_harness.engine.node_run import NodeRun
from usechat.open_harness.errors import LoopLimitReached
from usechat.open_harness.flow.definition import Condition, Edge, Node
from usechat.open_harness.flow.expressions import holds
from usechat.open_harness.nodes.context import StopReason

__all__ = ["Scheduler"]


class Scheduler:
    """Runs one node at a time, in the order of the flow, or every ready node if the flow says ``parallel``."""

    def __init__(
        self,
        run: FlowRun,
        *,
        on_cancelled: Callable[[], None],
        resuming: Iterable[str] = (),
        resume_message: str | None = None,
    ) -> None:
        self._run = run
        self._on_cancelled = on_cancelled
        self._resuming = set(resuming)
        self._resume_message = resume_message
        self._handed_over = run.take_waiting() if self._resuming else []
        self._running: list[NodeRun] = []
        self._faults: dict[str, Exception] = {}
        self._evaluating: asyncio.Task[bool] | None = None
        self._is_idle = False
        run.on_question = self._report_waiting

    async def drive(self) -> bool:
        """Run until nothing is left, a node failed for good, or the run's status changed. Return whether one failed.

        Raises :class:`~usechat.open_harness.errors.LoopLimitReached`.
        """
        try:
            while self._run.state.status == "running":
                await self._start_ready()
                self._run.save()  # if the process ends now, the nodes that run are those that run again
                if not self._running:
                    return False
                await self._wait_for_one()
                if await self._settle_ended():
                    return True
            return False
        except asyncio.CancelledError:
            self._on_cancelled()
            raise
        finally:
            self.stop("abort")
            await self._wait_for_all()

    def stop(self, reason: StopReason) -> None:
        """Stop every running node. A pause waits for the conditions that are being evaluated: a snapshot holds them."""
        for node_run in self._running:
            node_run.stop(reason)
        if reason == "abort" and self._evaluating is not None:
            self._evaluating.cancel()

    async def _wait_for_one(self) -> None:
        """Wait until a node has ended."""
        self._is_idle = True
        self._report_waiting()
        await asyncio.wait([node_run.task for node_run in self._running], return_when=asyncio.FIRST_COMPLETED)
        self._is_idle = False

    def _report_waiting(self) -> None:
        """Emit an event of ours if nothing will happen before a person has answered."""
        if self._is_idle and all(node_run.is_waiting for node_run in self._running):
            self._run.emit({"type": "flow:waiting"})

    async def _wait_for_all(self) -> None:
        if tasks := [node_run.task for node_run in self._running]:
            await asyncio.wait(tasks)
        for task in tasks:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _start_ready(self) -> None:
        limit = len(self._run.flow.nodes) if self._run.flow.parallel else 1
        while len(self._running) < limit and self._run.state.status == "running":
            ready = self._run.graph.ready(self._run.state.node_status)
            if not ready:
                return
            await self._decide(self._run.graph.nodes[ready[0]])

    async def _decide(self, node: Node) -> None:
        """Start a node, or skip it."""
        state = self._run.state
        fault = self._faults.pop(node.id, None)
        if fault is None and not self._run.graph.lets_run(node.id, state.edge_status):
            await self._skip(node, "edge")
            return
        # With forEach the node's own condition is asked for each item.
        if fault is None and not self._run.graph.for_each(node.id, state.edge_status):
            try:
                if not await self._holds(node.when, node.policy.timeout_ms):
                    await self._skip(node, "when")
                    return
            except Exception as error:
                fault = error
        if self._run.state.status != "running":  # it was paused or stopped during the evaluation
            return
        self._running.append(self._new_run(node, fault))

    def _new_run(self, node: Node, fault: Exception | None) -> NodeRun:
        if node.id not in self._resuming:
            return NodeRun(self._run, node, fault=fault)
        self._resuming.discard(node.id)
        handed_over, self._handed_over = self._handed_over, []
        return NodeRun(self._run, node, fault=fault, resume_message=self._resume_message, handed_over=handed_over)

    async def _holds(self, condition: Condition | None, timeout_ms: float | None = None) -> bool:
        """Evaluate a condition; ``False`` if the run is stopped meanwhile."""
        if condition is None:
            return True
        self._evaluating = asyncio.create_task(holds(condition, self._run.scope(), timeout_ms=timeout_ms))
        try:
            await asyncio.wait({self._evaluating})
            return not self._evaluating.cancelled() and self._evaluating.result()
        finally:
            self._evaluating.cancel()
            self._evaluating = None

    async def _skip(self, node: Node, reason: str) -> None:
        if self._run.state.status != "running":  # it was paused or stopped during the evaluation
            return
        self._run.state.node_status[node.id] = "done"
        self._run.state.outputs[node.id] = {"skipped": True, "reason": reason}
        self._run.emit({"type": "node:skipped", "nodeId": node.id, "reason": reason})
        await self._fire_edges(node)

    async def _settle_ended(self) -> bool:
        """Fire the edges of the nodes that have ended. Return whether one of them failed for good."""
        ended = [node_run for node_run in self._running if node_run.task.done()]
        self._running = [node_run for node_run in self._running if not node_run.task.done()]
        for node_run in ended:
            if self._run.state.node_status[node_run.node.id] == "running":
                if not node_run.task.cancelled():
                    node_run.task.result()
                continue  # it was stopped; one that was stopped after its end has ended
            if node_run.ends_flow:
                return True
            await self._fire_edges(node_run.node)
        return False

    async def _fire_edges(self, node: Node) -> None:
        for edge in self._run.graph.outgoing[node.id]:
            try:
                # The target's limit: it is what fails if the condition does.
                fires = await self._holds(edge.when, self._run.graph.nodes[edge.to].policy.timeout_ms)
            except Exception as error:
                self._faults[edge.to] = error
                fires = True
            if fires:
                self._fire(edge)
            else:
                self._run.state.edge_status[edge.key] = "skipped"

    def _fire(self, edge: Edge) -> None:
        state = self._run.state
        again = state.node_status[edge.to] in ("done", "failed")
        if again:
            state.node_status[edge.to] = "pending"
        state.edge_status[edge.key] = "fired"
        ids: dict[str, Any] = {} if edge.id is None else {"edgeId": edge.id}
        self._run.emit({"type": "edge:fire", **ids, "from": edge.from_, "to": edge.to})
        if again and edge.max_iterations is not None:
            state.loop_counters[edge.key] += 1
            count = state.loop_counters[edge.key]
            self._run.emit({"type": "loop:iterate", **ids, "iteration": count})
            if count >= edge.max_iterations:
                raise LoopLimitReached(f"Loop edge {edge.from_} -> {edge.to} exceeded {edge.max_iterations}")
