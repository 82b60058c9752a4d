"""The web process's side: turns as workflows, read live from their streams.

A turn starts a workflow, or attaches to the one that it started before. The workflow's id is made of the caller's
identity, the chat and the run, so every process that answers the same turn finds the same workflow. What it says is
read from its stream, from the first item on: whoever continues the answer of a web process that died says it again
from its beginning.

**Answers.** A workflow may wait for answers of the page. Then the turn ends, and where its workflow is kept
(:class:`~usechat.pauses.states.PausedStates`). The turn that brings the answers signals them, and reads on behind the
place where the last turn ended. If the workflow has ended meanwhile, they start another one, as they do if it has ended
its turn itself. A new message instead of answers cancels the workflow that waits.

**Stop.** A turn that is cancelled cancels its workflow, which cancels its activities.

**Nobody there.** A server that does not answer is refused with 503 before the turn begins
(:meth:`TemporalSource.require_reachable`). Without a worker a poll of the stream would wait for ever, so a stream that
is silent is asked how long it is: that is answered by a worker, or by nobody.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from usechat.encoded_turns import turn_fields
from usechat.errors import AgentUnreachable, CannotAnswer, CannotServe, MissingDependency, PublicError
from usechat.pauses.handles import state_handle
from usechat.pauses.questions import has_answers
from usechat.protocol.parts import Abort
from usechat.protocol.values import json_value
from usechat.sources import AdapterSource
from usechat.temporal.wire import ANSWERS, TOPIC, AnswerReader, StreamItem, item_of
from usechat.temporal.workflows import public_error
from usechat.turn import AgentInfo, Identity, Turn, TurnContext, thread_id

try:
    from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
    from temporalio.client import (
        Client,
        WorkflowFailureError,
        WorkflowHandle,
        WorkflowQueryFailedError,
        WorkflowUpdateFailedError,
        WorkflowUpdateRPCTimeoutOrCancelledError,
    )
    from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
    from temporalio.contrib.workflow_streams import WorkflowStreamClient
    from temporalio.envconfig import ClientConfig
    from temporalio.exceptions import CancelledError, TerminatedError, WorkflowAlreadyStartedError
    from temporalio.service import RPCError, RPCStatusCode
except ImportError:
    raise MissingDependency("temporalio", "temporal") from None

__all__ = ["TemporalSource", "connection"]

_logger: Final = logging.getLogger("usechat.temporal")

_COOLDOWN: Final = timedelta(milliseconds=50)
"""How long to wait between two polls: each is an event in the workflow's history."""
_PATIENCE: Final = timedelta(seconds=3)
"""How long the server may take to say that it is there, or to take a cancellation."""
_RETRY_SECONDS: Final = 1.0
_LENGTH: Final = "__temporal_workflow_stream_offset"
"""The query that tells how long the stream of a workflow is (temporalio 1.35, contrib.workflow_streams)."""
_PAUSE: Final = "temporal"
"""The name under which the pause of a chat is kept."""
_UNREACHABLE: Final = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED)

Connection: TypeAlias = "Client | Callable[[], Awaitable[Client]]"
_Handle: TypeAlias = "WorkflowHandle[Any, Any]"
ResultT = TypeVar("ResultT")


class TemporalSource:
    """Answers turns with a workflow: one for each turn.

    ``client`` is a client of Temporal, or an async function that connects one at the first turn. ``workflow`` is the
    class of the workflow, or the name of its type. Its run method takes one argument, which
    :func:`~usechat.temporal.turn_of` reads. ``worker_seconds`` is how long a workflow may be without a worker until the
    page is told. An answer goes on after its web process died.

    >>> from temporalio.client import Client
    >>> async def agent():  # for ChatApp or `usechat serve`
    ...     return TemporalSource(await Client.connect("127.0.0.1:7233"), "Chat", task_queue="chat")
    """

    continues = True
    rereads = True

    def __init__(
        self, client: Connection, workflow: type | str, *, task_queue: str, worker_seconds: float = 30.0
    ) -> None:
        self._connection = client
        self._client: Client | None = client if isinstance(client, Client) else None
        self._workflow = _type_name(workflow)
        self._task_queue = task_queue
        self._worker_seconds = worker_seconds

    async def require_reachable(self) -> None:
        """Raise :class:`~usechat.errors.AgentUnreachable` if the server does not answer; the log says why."""
        try:
            client = await self._connected()
            await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=_PATIENCE)
        except (RPCError, RuntimeError) as error:  # a client raises RuntimeError if it cannot connect
            _log_refusal(error)
            raise AgentUnreachable from None

    async def drive(self, context: TurnContext) -> None:
        """Answer one turn with its workflow."""
        source = AdapterSource(
            lambda _turn: self._items(context), AnswerReader, agent=AgentInfo("temporal", self._workflow)
        )
        await source.drive(context)

    async def _connected(self) -> "Client":
        if self._client is None and not isinstance(self._connection, Client):
            self._client = await self._connection()
        assert self._client is not None
        return self._client

    async def _items(self, context: TurnContext) -> AsyncGenerator[StreamItem]:
        """Yield what the workflow of a turn says, up to its end, or until it waits. Closing cancels the workflow."""
        client = await self._connected()
        pause = await self._answered(client, context)
        handle = await self._begin(client, context) if pause is None else client.get_workflow_handle(pause.workflow_id)
        stream = _Stream(client, handle, self._task_queue, self._worker_seconds, 0 if pause is None else pause.offset)
        is_over = False
        try:
            async with aclosing(stream.items()) as items:
                async for item in items:
                    yield item
            is_over = True
        except RPCError as error:
            context.source_unreachable()
            raise _unreachable(error) from error
        finally:
            if not is_over:
                await _cancel(handle)
            await _keep(context, _Pause(handle.id, stream.offset) if stream.waits and is_over else None)

    async def _answered(self, client: "Client", context: TurnContext) -> "_Pause | None":
        """Signal the answers of a turn to the workflow that waits for them, and return where to read on.

        Another process may have done so, and died: the pause is kept until the end of the turn.
        """
        pause, answers = await _kept(context), answers_in(context.turn)
        if pause is None:
            return None
        handle, is_repeated = client.get_workflow_handle(pause.workflow_id), pause.run_id == context.run_id
        if answers is None and not is_repeated:
            await _cancel(handle)
            return None
        pause = pause if is_repeated else msgspec.structs.replace(pause, run_id=context.run_id, answers=answers)
        await _keep(context, pause)
        try:
            await handle.signal(ANSWERS, pause.answers)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                context.source_unreachable()
                raise _unreachable(error) from error
            if not is_repeated:  # it has ended without the answers
                await _keep(context, None)
                return None
        return pause

    async def _begin(self, client: "Client", context: TurnContext) -> _Handle:
        turn = context.turn
        workflow_id = f"usechat/{thread_id(turn)}/{context.run_id}"
        identity = None if turn.identity is None else Identity(turn.identity.subject)
        argument = turn_fields(msgspec.structs.replace(turn.input, identity=identity, headers={}))
        try:
            return await client.start_workflow(
                self._workflow,
                argument,
                id=workflow_id,
                task_queue=self._task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            )
        except WorkflowAlreadyStartedError:  # it has ended, and its stream has the whole answer
            return client.get_workflow_handle(workflow_id)
        except RPCError as error:
            context.source_unreachable()
            raise _unreachable(error) from error


def connection(address: str) -> Callable[[], Awaitable["Client"]]:
    """Return a function that makes a client of the server at an address, which connects when it is used.

    Everything else is read as Temporal's own client reads it: from the environment, and from a profile file. Raises
    :class:`~usechat.errors.CannotServe` if they cannot be read.
    """
    try:
        settings = ClientConfig.load_client_connect_config()
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CannotServe(
            f"Temporal's settings in the environment or in its profile file are wrong: {reason}"
        ) from None
    settings["target_host"] = address

    async def connect() -> "Client":
        return await Client.connect(**settings, lazy=True)

    return connect


class _Pause(msgspec.Struct, frozen=True):
    """Where a workflow waits: behind which offset of its stream. ``answers`` are those that the run brought."""

    workflow_id: str
    offset: int
    run_id: str = ""
    answers: dict[str, Any] | None = None


async def _kept(context: TurnContext) -> _Pause | None:
    """Return where the chat's workflow waits."""
    state = await context.states.take_state(state_handle(context.turn, _PAUSE))
    return None if state is None else msgspec.json.decode(state, type=_Pause)


async def _keep(context: TurnContext, pause: _Pause | None) -> None:
    """Keep where the chat's workflow waits; ``None`` if none does."""
    handle = state_handle(context.turn, _PAUSE)
    if pause is None:
        await context.states.take_state(handle)
    else:
        await context.states.keep_state(handle, msgspec.json.encode(pause))


def answers_in(turn: Turn) -> dict[str, Any] | None:
    """Return the answers of the page as a signal brings them; ``None`` if a turn has none."""
    if not has_answers(turn):
        return None
    return {
        "approvals": msgspec.to_builtins(turn.approvals),
        "outputs": json_value(msgspec.to_builtins(turn.tool_outputs)),
    }


class _Stream:
    """The stream of one workflow from an offset on, read to its end, or to where the workflow waits."""

    def __init__(self, client: "Client", handle: _Handle, task_queue: str, worker_seconds: float, offset: int) -> None:
        self._client = client
        self._handle = handle
        self._task_queue = task_queue
        self._worker_seconds = worker_seconds
        self.offset = offset
        """The next item that is read."""
        self.waits = False
        """Whether the workflow waits for answers."""

    async def items(self) -> AsyncGenerator[StreamItem]:
        """Yield the items, and the ending that the workflow's own end is if the stream has none."""
        loop = asyncio.get_running_loop()
        failing_since: float | None = None
        while True:
            try:
                async with aclosing(self._subscription()) as items:
                    async for item in items:
                        failing_since = None
                        yield item
                        self.waits = "waits" in item
                        if self.waits or "end" in item:
                            return
                yield await self._ending()
                return
            except RPCError as error:
                failing_since = failing_since or loop.time()
                if error.status not in _UNREACHABLE or loop.time() - failing_since > self._worker_seconds:
                    raise
                await asyncio.sleep(_RETRY_SECONDS)

    async def _subscription(self) -> AsyncGenerator[StreamItem]:
        """Yield items from the next one on, until the workflow has ended."""
        stream = WorkflowStreamClient.create(self._client, self._handle.id)
        items = stream.subscribe(TOPIC, self.offset, poll_cooldown=_COOLDOWN)
        while True:
            try:
                item = await self._watched(anext(items, None))
            except (WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError, WorkflowQueryFailedError) as e:
                raise self._unusable(e) from e
            if item is None:
                return
            self.offset = item.offset + 1
            yield item.data

    async def _watched(self, coming: Awaitable[ResultT]) -> ResultT:
        """Return what comes; while nothing does, look whether there is a worker."""
        waiting = asyncio.ensure_future(coming)
        try:
            while not (await asyncio.wait([waiting], timeout=self._worker_seconds / 2))[0]:
                await self._require_worker()
            return await waiting
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait([waiting])

    async def _require_worker(self) -> None:
        """Ask the workflow how long its stream is. Raises ``PublicError`` if no worker answers."""
        try:
            await self._handle.query(_LENGTH, rpc_timeout=timedelta(seconds=self._worker_seconds / 2))
        except WorkflowQueryFailedError as error:
            raise self._unusable(error) from error
        except RPCError as error:
            if error.status is RPCStatusCode.UNAVAILABLE:
                return  # it is the server that does not answer, which the poll finds, too
            _logger.error(
                "workflow %s: no worker answers on the task queue %r of the namespace %r; start one",
                self._handle.id,
                self._task_queue,
                self._client.namespace,
            )
            raise PublicError("Nothing is running that could answer. Please try again later.") from None

    def _unusable(self, error: BaseException) -> CannotAnswer:
        return CannotAnswer(
            f"the workflow {self._handle.id} has no stream to read ({error}); create"
            " usechat.temporal.WorkflowAnswer() in its @workflow.init"
        )

    async def _ending(self) -> StreamItem:
        """Return the ending of a workflow that ended without one. Raises why it failed."""
        try:
            await self._handle.result()
        except WorkflowFailureError as failure:
            if isinstance(failure.cause, (CancelledError, TerminatedError)):
                return item_of(Abort("stopped"))
            raise public_error(failure.cause) or failure from None
        return {"end": True}


def _type_name(workflow: type | str) -> str:
    if isinstance(workflow, str):
        return workflow
    definition = getattr(workflow, "__temporal_workflow_definition", None)
    if definition is None or definition.name is None:
        raise CannotAnswer(
            f"{getattr(workflow, '__name__', workflow)} is not a workflow; decorate the class with @workflow.defn"
        )
    return str(definition.name)


def _unreachable(error: RPCError) -> PublicError:
    _log_refusal(error)
    return PublicError(str(AgentUnreachable()))


def _log_refusal(error: RPCError | RuntimeError) -> None:
    is_answer = isinstance(error, RPCError) and error.status not in _UNREACHABLE
    _logger.warning("the Temporal server %s: %s", "refuses the turn" if is_answer else "cannot be reached", error)


async def _cancel(handle: _Handle) -> None:
    """Cancel a workflow whose answer nobody waits for any more."""
    try:
        await handle.cancel(rpc_timeout=_PATIENCE)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:  # it has ended
            _logger.warning("workflow %s: it was not cancelled, and goes on: %s", handle.id, error)
