"""Runs one node: once, or once for each item of a list."""

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from usechat.errors import PublicError
from usechat.open_harness.engine.flow_run import FlowRun
from usechat.open_harness.errors import AgentFailed, NodeFailed, NodeTimedOut
from usechat.open_harness.flow.definition import Edge, Node, Policy
from usechat.open_harness.flow.expressions import Scope, holds, resolve
from usechat.open_harness.nodes.context import Invocation, NodeContext, StopReason, text_of
from usechat.open_harness.runtime_protocol import Command
from usechat.values import json_value

__all__ = [
    "NodeRun",
    "run_with_policy",
    "run_within",
]


_logger: Final = logging.getLogger("usechat.open_harness")

_GRACE: Final = 5.0
"""How many seconds a node may take to end after it was cancelled; then it is abandoned."""

_PRECISION: Final = 0.005
"""How many seconds before its time limit a node may be stopped: while it waits for a person, its time left is constant,
and waking up for less would keep the processor busy."""


async def run_with_policy(
    attempt: Callable[[], Awaitable[Any]],
    policy: Policy,
    *,
    on_timeout: Callable[[], None],
    on_retry: Callable[[int, Exception], None],
    waiting_time: Callable[[], float] = lambda: 0.0,
) -> Any:
    """Run an attempt until one succeeds or none is left. The pause before each further attempt doubles.

    ``on_retry`` is called with the number of each attempt that failed, and why, unless it was the last.
    ``waiting_time`` returns how many seconds the attempt has waited for a person; the time limit does not count them.
    """

    def timed_out() -> Exception:
        on_timeout()
        return NodeTimedOut(f"Node execution timed out after {policy.timeout_ms:g}ms")

    for number in range(1, policy.retry.max_attempts):
        try:
            return await run_within(attempt(), policy.timeout_ms, timed_out, waiting_time=waiting_time)
        except Exception as error:
            pause = policy.retry.backoff_ms * 2 ** (number - 1) / 1000
            _logger.warning("attempt %d failed; the next one is in %g s", number, pause, exc_info=error)
            on_retry(number, error)
            await asyncio.sleep(pause)
    return await run_within(attempt(), policy.timeout_ms, timed_out, waiting_time=waiting_time)


async def run_within(
    work: Awaitable[Any],
    timeout_ms: float | None,
    timed_out: Callable[[], Exception],
    *,
    waiting_time: Callable[[], float] = lambda: 0.0,
) -> Any:
    """Return the result of the work, or raise ``timed_out()``. Work that ignores its cancellation is abandoned.

    The seconds that ``waiting_time`` returns do not count.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    task = loop.create_task(_run_and_tell(work, ended))
    try:
        await _wait_within(ended, timeout_ms / 1000 if timeout_ms else None, waiting_time)
    except asyncio.CancelledError:
        await _end(task)
        raise
    if not ended.done():
        error = timed_out()
        await _end(task)
        raise error
    return task.result()


async def _run_and_tell(work: Awaitable[Any], ended: "asyncio.Future[None]") -> Any:
    """Return the result of the work, and set the future at its end: a callback of the task would be one step later."""
    try:
        return await work
    finally:
        if not ended.done():
            ended.set_result(None)


async def _wait_within(ended: "asyncio.Future[None]", seconds: float | None, waiting_time: Callable[[], float]) -> None:
    """Wait for a future for at most ``seconds``, not counting those that ``waiting_time`` returns."""
    if seconds is None:
        await ended
        return
    now = asyncio.get_running_loop().time
    began, left = now(), seconds
    while True:
        await asyncio.wait({ended}, timeout=left)
        left = seconds - (now() - began - waiting_time())
        if ended.done() or left <= _PRECISION:
            return


async def _end(task: "asyncio.Future[Any]") -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=_GRACE)
    if not task.done():
        _logger.error("a node did not end within %g s after it was cancelled; it is abandoned", _GRACE)
        task.add_done_callback(_log_error)
    else:
        _log_error(task)


def _log_error(task: "asyncio.Future[Any]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _logger.warning("a node failed while it was being stopped", exc_info=error)


def _item_scope(items: Sequence[Any], index: int, name: str) -> Scope:
    variables = {
        "iteration": index,
        "first": index == 0,
        "last": index == len(items) - 1,
        "maxIterations": len(items),
    }
    return Scope({}, variables, own={name: items[index]})


class NodeRun:
    """One node, in a separate task. ``failed`` says how it ended, unless it was stopped."""

    ends_flow = False
    """Whether the flow fails with the node."""

    def __init__(
        self,
        run: FlowRun,
        node: Node,
        *,
        fault: Exception | None = None,
        resume_message: str | None = None,
        handed_over: Sequence[Command] = (),
    ) -> None:
        self.node = node
        self.failed = False
        self._run = run
        self._resume_message = resume_message
        self._handed_over = handed_over
        self._is_stopping = False
        self._fault = fault
        self._context: NodeContext | None = None
        run.state.node_status[node.id] = "running"
        self.task = asyncio.create_task(self._invoke())

    def stop(self, reason: StopReason) -> None:
        """Cancel the node, once: a second cancellation would interrupt its cleanup."""
        if self._is_stopping:
            return
        self._is_stopping = True
        if self._context is not None:
            self._context.stop(reason)
        self.task.cancel()

    @property
    def is_waiting(self) -> bool:
        """Whether the node has asked a person and has no answer."""
        return self._context is not None and self._context.is_waiting

    async def _invoke(self) -> None:
        edges = self._run.graph.for_each(self.node.id, self._run.state.edge_status)
        if self._fault is None and edges:
            await self._run_for_each(edges)
            return
        await self._run_once(self._run.scope(), self.node.id, settle=self._settle)

    def _settle(self, output: Any) -> None:
        self._run.state.outputs[self.node.id] = output
        self._run.state.node_status[self.node.id] = "failed" if self.failed else "done"
        self.ends_flow = self.failed and not self.node.policy.continue_on_error

    async def _run_for_each(self, edges: list[Edge]) -> None:
        try:
            items, name = await self._items(edges)
        except Exception as error:
            self._fault = error
            await self._run_once(self._run.scope(), self.node.id, settle=self._settle)
            self.ends_flow = True  # as in Open Harness, whose policy is about the node: it has not run
            return
        iterations = self._iterations_before_pause(items)
        self._run.state.outputs[self.node.id] = {"iterations": iterations}
        self._run.growing.add(self.node.id)
        try:
            for index in range(len(iterations), len(items)):
                self.failed = False
                result = await self._run_item(self._run.scope(_item_scope(items, index, name)), index)
                iterations.append({"item": items[index], **result})
                if self.failed and not self.node.policy.continue_on_error:
                    break
        finally:
            self._run.growing.discard(self.node.id)
        self.failed = self.failed and not self.node.policy.continue_on_error
        self._settle({"iterations": iterations})
        if self.failed:  # as in Open Harness: only a list that has ended has an output
            del self._run.state.outputs[self.node.id]

    def _iterations_before_pause(self, items: list[Any]) -> list[dict[str, Any]]:
        """Return the results from before a pause, so that their items do not run twice."""
        if self._resume_message is None:
            return []
        output = self._run.state.outputs.get(self.node.id)
        iterations = output.get("iterations") if isinstance(output, dict) else None
        if not isinstance(iterations, list) or [each["item"] for each in iterations] != items[: len(iterations)]:
            return []
        return list(iterations)

    async def _items(self, edges: list[Edge]) -> tuple[list[Any], str]:
        if len(edges) > 1:
            raise NodeFailed(f'several forEach edges fired into the node "{self.node.id}"')
        for_each = edges[0].for_each
        assert for_each is not None, "the graph returns edges with forEach"
        items = await resolve(for_each.in_, self._run.scope(), ("forEach",), timeout_ms=self.node.policy.timeout_ms)
        if not isinstance(items, list):
            raise NodeFailed(f"forEach expects a list at {for_each.in_}")
        return items, for_each.as_

    async def _run_item(self, scope: Scope, index: int) -> dict[str, Any]:
        try:
            if not await holds(self.node.when, scope, timeout_ms=self.node.policy.timeout_ms):
                return {"skipped": True}
        except Exception as error:
            self._fault = error
        output = await self._run_once(scope, f"{self.node.id}#{index}", settle=lambda _output: None)
        self._fault = None
        return {"error": output["error"]} if self.failed else {"output": output}

    async def _run_once(self, scope: Scope, session_name: str, *, settle: Callable[[Any], None]) -> Any:
        """Run the node once and emit how it ended. Return its output; the output of a node that failed is its error.

        The output is stored before the event is emitted. A node that was stopped counts as stopped, even if it returns
        or raises.
        """
        run_id = str(uuid.uuid4())
        new_context = self._contexts(run_id, session_name)
        self._run.emit({"type": "node:start", "nodeId": self.node.id, "runId": run_id})
        try:
            output = json_value(await self._try(scope, new_context))
        except Exception as error:
            if self._is_stopping:
                raise asyncio.CancelledError from error
            return self._fail(error, run_id, settle)
        finally:
            self._run.close_inbox(run_id)
        if self._is_stopping:
            raise asyncio.CancelledError
        settle(output)
        self._run.emit({"type": "node:complete", "nodeId": self.node.id, "runId": run_id, "output": output})
        return output

    async def _try(self, scope: Scope, new_context: Callable[[], NodeContext]) -> Any:
        if self._fault is not None:
            raise self._fault
        kind = self._run.registry.get(self.node.type)
        if kind is None:
            raise NodeFailed(f'there is no type "{self.node.type}"')
        fields = await resolve(self.node.input, scope, ("input",), timeout_ms=self.node.policy.timeout_ms)
        for place, problem in kind.problems(fields):
            raise NodeFailed(f"input.{'.'.join(map(str, place))}: {problem}")
        return await run_with_policy(
            lambda: kind.run(fields, new_context()),
            self.node.policy,
            on_timeout=lambda: self._context.stop("timeout") if self._context else None,
            on_retry=self._retry,
            waiting_time=lambda: self._context.waited_seconds if self._context else 0.0,
        )

    def _retry(self, attempt: int, error: Exception) -> None:
        """Emit an event of ours: an attempt failed, what it sent no longer counts, and another one follows."""
        assert self._context is not None, "an attempt has a context"
        fields = {"nodeId": self.node.id, "runId": self._context.run_id, "attempt": attempt, "error": text_of(error)}
        self._run.emit({"type": "node:retry", **fields})

    def _contexts(self, run_id: str, session_name: str) -> Callable[[], NodeContext]:
        """Return a function that makes the context of each attempt."""
        number = self._run.count_invocation(self.node.id)
        invocation = Invocation(self.node.id, run_id, number, session_name, self._hand_over(run_id))

        def new_context() -> NodeContext:
            self._context = NodeContext(invocation, self._run.inbox(run_id), self._run.surroundings)
            return self._context

        return new_context

    def _hand_over(self, run_id: str) -> str | None:
        """Put the commands from before the pause, and the message that ended it, into the first invocation's inbox."""
        message, self._resume_message = self._resume_message, None
        if message is not None:
            named = {} if self._run.resumed_by is None else {"messageId": self._run.resumed_by}
            for command in [*self._handed_over, {"type": "send", "runId": run_id, "message": message, **named}]:
                self._run.inbox(run_id).put(command)
        return message

    def _fail(self, error: Exception, run_id: str, settle: Callable[[Any], None]) -> dict[str, Any]:
        _logger.error(
            'node "%s" of flow "%s" failed (run %s)',
            self.node.id,
            self._run.flow.name,
            run_id,
            exc_info=error,
            extra={"node_id": self.node.id, "run_id": run_id},
        )
        self.failed = True
        text = text_of(error)
        settle({"error": text})
        where = {"nodeId": self.node.id, "runId": run_id}
        if isinstance(error, AgentFailed | PublicError):
            error_type = error.error_type if isinstance(error, AgentFailed) else "public"
            self._run.emit({"type": "agent:error", **where, "errorType": error_type, "message": text})
        self._run.emit({"type": "node:error", **where, "error": text})
        return {"error": text}
