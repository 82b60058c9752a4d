"""A flow, a prompt or an agent of the Python package ``genkit``, run in this process.

Genkit reports chunks through a callback and returns the result from a coroutine. :func:`stream_action` turns that into
an async iterator: the coroutine runs in a separate task, the callback puts chunks into a queue, and the iterator
takes them out. The callback is synchronous, so a flow cannot be made to wait; one that is more than
:data:`MAXIMUM_QUEUED` chunks ahead fails instead of filling the memory.

Stopping is the harder half. Closing the iterator must return only when nothing of the flow runs any more, because the
run reports a stopped turn as stopped. Three things are needed:

1. The flow's ``abort_signal`` is set and its task is cancelled. A flow may ignore a cancellation, so it is cancelled
   again every second.
2. Genkit starts further tasks for a flow (the loop of an agent, ``generate_stream``, ``Action.stream``) and does not
   cancel them with it (genkit 0.12.0). It keeps no list of them, but a task inherits a copy of the context in which it
   was created. So the flow's task marks its context, and tasks of Genkit's code with that mark are cancelled, too.
3. The task factory of a run (:mod:`usechat.runs.run`) sees those tasks, too, but this module also works without a run.

Invariants: events keep the order of the callback; the result comes last; after closing, no task of the flow is left.
"""

import asyncio
import gc
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextvars import Context, ContextVar
from pathlib import Path
from typing import Any, Final, TypeAlias

from usechat import Turn
from usechat.errors import CannotAnswer, MissingDependency, PublicError
from usechat.genkit.approvals import MapApproval
from usechat.genkit.errors import NO_FILES, SENTENCES, TOO_FAST, describe
from usechat.genkit.history import genkit_messages, resumed_history
from usechat.genkit.inputs import FlowInput, InputBuilder, agent_input, stateless_agent_input
from usechat.genkit.schemas import input_for
from usechat.genkit.wire import FlowChunk, FlowEvent, FlowFailure, FlowResult

try:
    import genkit
    from pydantic import BaseModel
except ImportError:
    raise MissingDependency("genkit", "genkit") from None

__all__ = ["MAXIMUM_QUEUED", "LocalAction", "LocalPrompt", "can_answer", "local_flow", "stream_action"]

MAXIMUM_QUEUED: Final = 10_000
"""How many chunks a flow may be ahead of the run."""
_CANCEL_INTERVAL: Final = 1.0
"""Seconds after which a flow that ignored its cancellation is cancelled again."""
_ANSWERING_KINDS: Final = ("flow", "agent")
"""The kinds of actions that can answer; others, such as models and tools, are parts of an answer."""

_PACKAGE: Final = f"{Path(genkit.__file__).parent}{os.sep}"

_running: Final[ContextVar[asyncio.Event]] = ContextVar("usechat.genkit.running")
"""Marks the context of a flow's tasks with its abort signal."""

OnChunk: TypeAlias = Callable[[Any], None]
StartFlow: TypeAlias = Callable[[OnChunk, asyncio.Event], Awaitable[Any]]


async def stream_action(start: StartFlow) -> AsyncGenerator[FlowEvent, None]:
    """Call ``start`` with a chunk callback and an abort signal; yield the chunks, then the result.

    Closing the iterator stops the flow and returns when it has stopped.
    """
    queue: deque[FlowEvent] = deque()
    abort_signal, has_news, is_full = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def on_chunk(chunk: Any) -> None:
        if len(queue) >= MAXIMUM_QUEUED:
            is_full.set()
            raise PublicError(TOO_FAST)
        queue.append(FlowChunk(_json_value(chunk)))
        has_news.set()

    async def run_marked() -> Any:
        _running.set(abort_signal)
        return await start(on_chunk, abort_signal)

    task = asyncio.create_task(run_marked())
    task.add_done_callback(lambda _task: has_news.set())
    try:
        while not task.done() or queue:
            await has_news.wait()
            has_news.clear()
            if is_full.is_set():
                raise PublicError(TOO_FAST)
            while queue:
                yield queue.popleft()
        yield FlowResult(_json_value(_result_of(task)))
    finally:
        await _stop(task, abort_signal)


def _json_value(value: Any) -> Any:
    """Return a Genkit object as JSON; other values are returned unchanged."""
    return value.model_dump(by_alias=True, exclude_none=True) if isinstance(value, BaseModel) else value


def _result_of(task: "asyncio.Task[Any]") -> Any:
    """Return the result of a flow; raise a ``PublicError`` if people may read the failure, else the original error."""
    try:
        return task.result()
    except genkit.GenkitError as error:
        for each in (error, error.cause):
            if isinstance(each, genkit.PublicError):
                raise PublicError(each.original_message) from error
            if isinstance(each, PublicError):
                raise each from None
        if error.status in SENTENCES:
            failure = FlowFailure(error.status, error.original_message)
            raise PublicError(describe(failure, error=error)) from error
        raise


async def _stop(task: "asyncio.Task[Any]", abort_signal: asyncio.Event) -> None:
    """Cancel a flow that is not done and the tasks it left behind, until all of them have ended."""
    abort_signal.set()
    running = [] if task.done() else [task]
    while running:
        for each in running:
            each.cancel()
        await asyncio.wait(running, timeout=_CANCEL_INTERVAL)
        running = [each for each in (task, *_tasks_left(abort_signal)) if not each.done()]
    if not task.cancelled():
        task.exception()  # mark it as retrieved, so that asyncio does not log it


def _tasks_left(abort_signal: asyncio.Event) -> Iterator["asyncio.Task[Any]"]:
    """Yield the tasks of Genkit's code that carry the mark of a flow (see the module's docstring)."""
    for task in asyncio.all_tasks():
        code = getattr(task.get_coro(), "cr_code", None)
        is_of_genkit = code is not None and code.co_filename.startswith(_PACKAGE)
        if is_of_genkit and _context_of(task).get(_running) is abort_signal:
            yield task


def _context_of(task: "asyncio.Task[Any]") -> Context:
    """Return the context of a task. In Python 3.11, which has no ``get_context``, the garbage collector finds it."""
    if sys.version_info >= (3, 12):
        return task.get_context()
    return next((referent for referent in gc.get_referents(task) if isinstance(referent, Context)), Context())


def can_answer(flow: Any) -> bool:
    """Return whether an object is a flow, prompt or agent of Genkit."""
    return isinstance(flow, genkit.ExecutablePrompt) or _kind(flow) in _ANSWERING_KINDS


def local_flow(flow: Any) -> "LocalAction | LocalPrompt":
    """Return the runner of a Genkit object; raise :class:`~usechat.errors.CannotAnswer` for any other object."""
    if not can_answer(flow):
        raise CannotAnswer(
            f"an object of type {type(flow).__name__} is not a Genkit flow; give a URL, or a flow, prompt or agent of"
            " genkit"
        )
    return LocalPrompt(flow) if isinstance(flow, genkit.ExecutablePrompt) else LocalAction(flow)


class LocalAction:
    """Runs a flow or an agent."""

    def __init__(self, action: Any) -> None:
        self._action = action

    @property
    def default_input(self) -> InputBuilder:
        """The input that fits the agent's store or the flow's schema."""
        if _kind(self._action) == "agent":
            return agent_input if self._action.store is not None else stateless_agent_input
        return input_for(self._action.name, self._action.input_schema)

    def run(self, flow_input: FlowInput, turn: Turn) -> AsyncGenerator[FlowEvent, None]:
        """Run the flow and yield its events. Closing the iterator cancels it."""

        async def start(on_chunk: OnChunk, abort_signal: asyncio.Event) -> Any:
            answer = await self._action.run(
                flow_input.data,
                on_chunk=on_chunk,
                context=_context(turn),
                abort_signal=abort_signal,
                init=flow_input.init,
            )
            return answer.response

        return stream_action(start)


class LocalPrompt:
    """Runs a prompt as a chat: the history follows the prompt's messages, the last message is its ``{{message}}``."""

    def __init__(self, prompt: Any) -> None:
        self._prompt = prompt

    @property
    def default_input(self) -> InputBuilder:
        """The variables of the template, and the messages as options."""
        return _prompt_input

    def run(self, flow_input: FlowInput, turn: Turn) -> AsyncGenerator[FlowEvent, None]:
        """Run the prompt and yield its events. Closing the iterator cancels it."""

        async def start(on_chunk: OnChunk, _abort_signal: asyncio.Event) -> Any:
            options = await self._options(flow_input)
            return await self._prompt(flow_input.data, on_chunk=on_chunk, context=_context(turn), **options)

        return stream_action(start)

    async def _options(self, flow_input: FlowInput) -> dict[str, Any]:
        init = flow_input.init or {}
        messages = list(init.get("messages", ()))
        rendered = await self._prompt.render(flow_input.data)
        if messages and messages[-1]["role"] == "user" and any(each.role == "user" for each in rendered.messages):
            last = messages.pop()  # the template has its text
            if any("media" in part for part in last["content"]):
                raise PublicError(NO_FILES)
        options: dict[str, Any] = {"messages": [genkit.Message.model_validate(message) for message in messages]}
        for key in ("respond", "restart"):
            if key in init:
                options[f"resume_{key}"] = [genkit.Part.model_validate(part) for part in init[key]]
        return options


def _prompt_input(turn: Turn, *, map_approval: MapApproval | None = None) -> FlowInput:
    if resumed := resumed_history(turn, map_approval):
        messages, resume = resumed
        return FlowInput({"message": turn.text}, {"messages": messages, **resume.wire})
    return FlowInput({"message": turn.text}, {"messages": genkit_messages(turn.messages)})


def _context(turn: Turn) -> Mapping[str, Any]:
    """Return ``ctx.context`` of a flow: the caller's identity, if it is known."""
    if turn.identity is None or not turn.identity.subject:
        return {}
    return {"auth": {"uid": turn.identity.subject, "claims": dict(turn.identity.claims)}}


def _kind(flow: Any) -> str:
    """Return the kind of an action; an empty text for other objects."""
    return str(flow.kind) if isinstance(flow, genkit.Action) else ""
