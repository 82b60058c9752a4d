"""The worker's side: a workflow that answers a chat, and activities that say parts while they run.

:class:`WorkflowAnswer` hosts the stream of one turn in the workflow, and runs activities by the rules of answers that
survive a crash. A model's request (:meth:`WorkflowAnswer.step`) is made again, and what it says takes the place of what
it had said. A tool (:meth:`WorkflowAnswer.tool`) gets one attempt, unless it is :func:`~usechat.replayable`: if its
worker dies, nobody knows whether it took effect, and the model reads that.

Temporal notices that a worker is gone when an activity's heartbeats stop. :func:`worker_plugin` sends them, and lets
workflows import usechat in Temporal's sandbox.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Final, Self, cast

import msgspec

from usechat.adapters.conversation import TOOL_FAILED
from usechat.chats.recovery import UNKNOWN_OUTCOME
from usechat.encoded_turns import turn_input_of
from usechat.errors import MissingDependency, PublicError
from usechat.protocol.parts import ApprovalRequest, ToolCall, ToolError, ToolResult
from usechat.protocol.request import ApprovalAnswer, ToolOutput
from usechat.sources import Said, part_of
from usechat.temporal.wire import ANSWERS, END, TOPIC, WAITS, Begins, item_of, marker
from usechat.turn import Turn, TurnContext, is_replayable

try:
    from temporalio import activity, exceptions, workflow
    from temporalio.common import RetryPolicy
    from temporalio.contrib.workflow_streams import WorkflowStream, WorkflowStreamClient
    from temporalio.converter import PayloadConverter
    from temporalio.exceptions import ActivityError, ApplicationError, FailureError
    from temporalio.plugin import SimplePlugin
    from temporalio.service import RPCError
    from temporalio.worker import (
        ActivityInboundInterceptor,
        ActivityOutboundInterceptor,
        ExecuteActivityInput,
        Interceptor,
        StartActivityInput,
        WorkflowInboundInterceptor,
        WorkflowInterceptorClassInput,
        WorkflowOutboundInterceptor,
        WorkflowRunner,
    )
    from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
except ImportError:
    raise MissingDependency("temporalio", "temporal") from None

__all__ = [
    "ACTIVITY",
    "ATTEMPTS",
    "Speaker",
    "WorkflowAnswer",
    "failure_text",
    "hand_over",
    "public_error",
    "publish",
    "retries",
    "speaker",
    "speaks",
    "turn_of",
    "worker_plugin",
]

_BATCH_SECONDS: Final = 0.1
"""How long an activity collects parts before it sends them: each batch is an event in the workflow's history."""
ACTIVITY: Final[Mapping[str, timedelta]] = {
    "start_to_close_timeout": timedelta(minutes=10),
    "heartbeat_timeout": timedelta(seconds=5),
}
"""How long an activity may take, and how long its worker may be silent."""
ATTEMPTS: Final = 5
"""How often a model is asked, and a tool called that may run again."""
_BEATS: Final = 3
"""How many heartbeats an activity sends within its heartbeat timeout."""
_IN_SANDBOX: Final = ("usechat", "msgspec")


def turn_of(argument: Any) -> Turn:
    """Return the turn that a workflow answers, given the argument that it was started with.

    It has the chat, its messages, the answers of the page, the body and the subject of the caller's identity. Headers,
    claims and tokens stay in the web process: Temporal keeps every argument in the workflow's history. Call it in the
    workflow or in an async activity.

    >>> from temporalio import activity
    >>> @activity.defn
    ... async def think(argument: dict):
    ...     return turn_of(argument).text
    """
    return TurnContext(turn_input_of(argument)).turn


class WorkflowAnswer:
    """The answer of a workflow to one turn: create it in ``@workflow.init``, and work within ``async with``.

    ``stream`` is the workflow's stream if it has one for other topics.

    >>> from temporalio import workflow
    >>> from usechat.temporal import turn_of
    >>> @workflow.defn
    ... class Chat:
    ...     @workflow.init
    ...     def __init__(self, argument: dict) -> None:
    ...         self.answer = WorkflowAnswer()
    ...
    ...     @workflow.run
    ...     async def run(self, argument: dict) -> None:
    ...         async with self.answer:
    ...             self.answer.send(f"You said: {turn_of(argument).text}")
    """

    def __init__(self, stream: WorkflowStream | None = None) -> None:
        self._stream = stream or WorkflowStream()
        self._topic = self._stream.topic(TOPIC)
        self._answers: dict[str, ApprovalAnswer | ToolOutput] = {}
        workflow.set_signal_handler(ANSWERS, self._take)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the answer, and let go of its readers: a workflow cannot end while somebody polls it."""
        if error is None:
            self._topic.publish(END)
        self._stream.detach_pollers()
        await workflow.wait_condition(workflow.all_handlers_finished)

    def send(self, said: Said) -> None:
        """Say a text or a part, from the workflow itself."""
        self._topic.publish(item_of(part_of(said)))

    async def step(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Run the activity of a model's request, and return its result. Its worker may die: it gets five attempts.

        ``options`` are those of ``workflow.execute_activity``. By default a request may take ten minutes, and a worker
        that is silent for five seconds is taken for dead. A ``PublicError`` is never tried again.
        """
        options = {"retry_policy": retries(ATTEMPTS), **ACTIVITY, **options}
        return await workflow.execute_activity(function, args=arguments, **options)

    async def tool(self, call: ToolCall, function: Callable[..., Any], **options: Any) -> ToolResult | ToolError:
        """Run the activity of a tool with the input of a call, say its outcome, and return it.

        A tool that is not :func:`~usechat.replayable` gets one attempt. If its worker dies, the outcome is an error
        that says so. The text of another failure stays in the logs, except that of a ``PublicError``.
        """
        options = {"retry_policy": retries(ATTEMPTS if is_replayable(function) else 1), **ACTIVITY, **options}
        outcome: ToolResult | ToolError
        try:
            outcome = ToolResult(call.tool_call_id, await workflow.execute_activity(function, call.input, **options))
        except ActivityError as error:
            if (text := failure_text(error)) is None:
                raise
            outcome = ToolError(call.tool_call_id, text)
        self.send(outcome)
        return outcome

    async def ask(self, *calls: ToolCall, days: float = 7) -> list[ApprovalAnswer]:
        """Let a person allow calls or not, and return the answers in the order of the calls.

        The turn ends, and the workflow waits for up to ``days``. If another message comes instead, it is cancelled.
        """
        for call in calls:
            self.send(ApprovalRequest(f"approval-{call.tool_call_id}", call.tool_call_id))
        return cast("list[ApprovalAnswer]", await self._answers_to(calls, days))

    async def outputs(self, *calls: ToolCall, days: float = 7) -> list[ToolOutput]:
        """Let the page run calls, such as a question, and return their outputs in the order of the calls.

        The turn ends, and the workflow waits for up to ``days``. If another message comes instead, it is cancelled.
        """
        return cast("list[ToolOutput]", await self._answers_to(calls, days))

    async def _answers_to(self, calls: Sequence[ToolCall], days: float) -> list[Any]:
        self._topic.publish(WAITS)
        ids = [call.tool_call_id for call in calls]
        await workflow.wait_condition(lambda: self._answers.keys() >= set(ids), timeout=timedelta(days=days))
        return [self._answers[call_id] for call_id in ids]

    def _take(self, answers: dict[str, list[dict[str, Any]]]) -> None:
        """Take the answers of a turn; those that another process has brought already stay."""
        approvals = msgspec.convert(answers["approvals"], list[ApprovalAnswer])
        outputs = msgspec.convert(answers["outputs"], list[ToolOutput])
        taken: list[ApprovalAnswer | ToolOutput] = [*approvals, *outputs]
        for answer in taken:
            self._answers.setdefault(answer.tool_call_id or "", answer)


def retries(attempts: int) -> RetryPolicy:
    """Return how often Temporal tries an activity; what is meant for people is not tried again."""
    return RetryPolicy(maximum_attempts=attempts, non_retryable_error_types=[PublicError.__name__])


def failure_text(error: BaseException) -> str | None:
    """Return what the page and the model read of a tool that failed; ``None`` if it was cancelled."""
    cause = error.cause if isinstance(error, ActivityError) else None
    if isinstance(cause, exceptions.TimeoutError):
        may_have_run = cause.type is not exceptions.TimeoutType.SCHEDULE_TO_START
        return UNKNOWN_OUTCOME if may_have_run else TOOL_FAILED
    if isinstance(cause, ApplicationError):
        public = public_error(error)
        return TOOL_FAILED if public is None else str(public)
    return None


def public_error(error: BaseException | None) -> PublicError | None:
    """Return the ``PublicError`` that a failure of Temporal was; it keeps the name of its type and its text."""
    while isinstance(error, FailureError):
        if isinstance(error, ApplicationError) and error.type == PublicError.__name__:
            return PublicError(error.message)
        error = error.cause
    return None


@asynccontextmanager
async def publish(*, begins: Begins = "step") -> AsyncIterator[Callable[[Said], None]]:
    """Let an async activity say parts of the answer while it runs; gives the function that says one.

    By default the activity is a model's request: a step of the answer. If Temporal runs it again, what it says takes
    the place of what it had said. ``begins="work"`` is for other activities, such as a tool that reports its progress.

    >>> from temporalio import activity
    >>> @activity.defn
    ... async def think(question: str):
    ...     async with publish() as say:
    ...         say(f"You said: {question}")
    """
    info = activity.info()
    if info.workflow_id is None:
        raise RuntimeError("publish() works in an activity that a workflow has started; this one has no workflow")
    client, step, attempt = activity.client(), info.activity_id, info.attempt
    handle = client.get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
    stream = WorkflowStreamClient(handle, client=client)
    topic = stream.topic(TOPIC)
    topic.publish(marker(begins, step=step, attempt=attempt))
    await stream.flush()
    # Not `async with stream`: on Python 3.11 it waits for ever if its flusher is cancelled while it wakes up
    # (temporalio 1.35.0; `asyncio.wait_for` loses the cancellation).
    flushing = asyncio.create_task(_flush_regularly(stream))
    try:
        yield lambda said: topic.publish(item_of(part_of(said), step=step, attempt=attempt))
    finally:
        flushing.cancel()
        await asyncio.wait([flushing])
        await stream.flush()


async def _flush_regularly(stream: WorkflowStreamClient) -> None:
    while True:
        await asyncio.sleep(_BATCH_SECONDS)
        with suppress(RPCError):  # the batch is sent again
            await stream.flush()


# Several agents.


class Speaker(msgspec.Struct, frozen=True):
    """An agent that speaks beside the one that was asked: it has a lane. ``is_in_tool``: as a tool of another one."""

    name: str
    lane: str
    is_in_tool: bool = False


class _Stage:
    """Who speaks in the activities of one agent's run: all its tasks share it."""

    def __init__(self, speaker: Speaker | None) -> None:
        self.speaker = speaker


_stage: Final[ContextVar[_Stage]] = ContextVar("usechat.temporal.stage")
_SPEAKER: Final = "usechat-speaker"
"""The header that tells an activity who speaks."""


@contextmanager
def speaks(speaker: Speaker | None) -> Iterator[None]:
    """Let an agent speak in the activities that start within the block; ``None`` for the one that was asked."""
    token = _stage.set(_Stage(speaker))
    try:
        yield
    finally:
        _stage.reset(token)


def hand_over(speaker: Speaker) -> None:
    """Let another agent speak from now on, within the innermost block of :func:`speaks`."""
    _stage.get().speaker = speaker


def speaker() -> Speaker | None:
    """Return who speaks: in a workflow, and in the activities that it starts."""
    stage = _stage.get(None)
    return None if stage is None else stage.speaker


# The plugin.


def worker_plugin() -> SimplePlugin:
    """Return the plugin of a worker whose workflows answer chats: ``Worker(…, plugins=[worker_plugin()])``.

    >>> worker_plugin().name()
    'usechat'
    """
    return SimplePlugin("usechat", interceptors=[_ActivityContext()], workflow_runner=_in_sandbox)


def _in_sandbox(runner: WorkflowRunner | None) -> WorkflowRunner:
    if isinstance(runner, SandboxedWorkflowRunner):
        return replace(runner, restrictions=runner.restrictions.with_passthrough_modules(*_IN_SANDBOX))
    if runner is None:
        raise RuntimeError("the worker has no workflow runner; add worker_plugin() to the plugins of a Worker")
    return runner


class _ActivityContext(Interceptor):
    """Tells activities who speaks, and sends heartbeats while one runs that has a heartbeat timeout."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:  # noqa: A002, ARG002
        return _SpeakingWorkflow

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:  # noqa: A002
        return _BeatingActivity(next)


class _SpeakingWorkflow(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_SpeakingActivities(outbound))


class _SpeakingActivities(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> "workflow.ActivityHandle[Any]":  # noqa: A002
        speaking = speaker()
        if speaking is not None:
            header = PayloadConverter.default.to_payload(msgspec.to_builtins(speaking))
            input.headers = {**input.headers, _SPEAKER: header}
        return super().start_activity(input)


class _BeatingActivity(ActivityInboundInterceptor):
    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self._outbound = _LastDetails(outbound)
        super().init(self._outbound)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:  # noqa: A002
        timeout, header = activity.info().heartbeat_timeout, input.headers.get(_SPEAKER)
        async with AsyncExitStack() as stack:
            if header is not None:
                speaking = msgspec.convert(PayloadConverter.default.from_payload(header), Speaker)
                stack.enter_context(speaks(speaking))
            if timeout:
                beating = asyncio.create_task(self._beat(timeout.total_seconds() / _BEATS))
                stack.callback(beating.cancel)
            return await super().execute_activity(input)

    async def _beat(self, seconds: float) -> None:
        while True:
            self._outbound.heartbeat(*self._outbound.details)
            await asyncio.sleep(seconds)


class _LastDetails(ActivityOutboundInterceptor):
    """Remembers what an activity's own heartbeats say, so that ours do not erase it."""

    details: tuple[Any, ...] = ()

    def heartbeat(self, *details: Any) -> None:
        self.details = details
        super().heartbeat(*details)
