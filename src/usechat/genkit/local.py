"""A flow, a prompt or an agent of the Python package ``genkit``, run in this process."""

import asyncio
import gc
import os
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextvars import Context, ContextVar
from pathlib import Path
from typing import Any, Final, TypeAlias

from usechat.errors import LocalProtocolError, MissingDependency, PublicError
from usechat.genkit.errors import SENTENCES, TOO_FAST, describe
from usechat.genkit.history import genkit_messages, resume_of
from usechat.genkit.inputs import (
    FlowInput,
    InputBuilder,
    agent_input,
    history_input,
    messages_input,
    stateless_agent_input,
    text_input,
)
from usechat.genkit.transport import Flow, GenkitChatTransport
from usechat.genkit.wire import Event, Failure, Message, Result
from usechat.turn import Turn

try:
    import genkit
    from pydantic import BaseModel
except ImportError:
    raise MissingDependency("genkit", "genkit") from None

__all__ = [
    "OnChunk",
    "input_for",
    "local_flow",
    "source_of",
    "streamed",
]


Schema: TypeAlias = Mapping[str, Any]

_NO_MESSAGE: Final = ("string", "integer", "number", "boolean", "array")


def input_for(name: str, schema: Schema) -> InputBuilder:
    """Return the builder for a flow whose input has this schema."""
    kinds = list(_kinds(schema, schema.get("$defs", {})))
    if not schema or any(kind.get("type") == "string" for kind in kinds):
        return text_input
    for kind in kinds:
        if builder := _builder_for(kind):
            return builder
    takes = ", ".join(name for kind in kinds for name in kind.get("properties", ()))
    takes = takes or f"a value of type {schema.get('type')}"
    raise LocalProtocolError(
        f"the flow {name} takes {takes}, which a chat does not have;"
        f" serve GenkitChatTransport({name}, build_input=…) instead"
    )


def _builder_for(schema: Schema) -> InputBuilder | None:
    properties: Schema = schema.get("properties", {})
    if schema.get("type") == "array" and schema.get("items", {}).get("type") not in _NO_MESSAGE:
        return _message_list
    if "messages" in properties:
        return messages_input
    if "message" in properties:
        return history_input
    texts = [
        key for key, value in properties.items() if any(kind.get("type") == "string" for kind in _kinds(value, {}))
    ]
    if len(texts) == 1 and set(schema.get("required", ())) <= set(texts):
        return lambda turn: FlowInput({texts[0]: text_input(turn).data})
    return None


def _kinds(schema: Schema, definitions: Schema) -> Iterator[Schema]:
    """Yield the alternatives of a schema, such as those of an optional value."""
    for kind in schema.get("anyOf", (schema,)):
        yield definitions.get(str(kind.get("$ref")).rpartition("/")[2], kind)


def _message_list(turn: Turn) -> FlowInput:
    return FlowInput(messages_input(turn).data["messages"])


# -- Something of Genkit that streams through a callback: run in a task of its own, heard here, and really stopped.

MAXIMUM_WAITING: Final = 10_000
"""Chunks that may wait to be passed on. A flow cannot be told to wait, so one that is further ahead fails."""
_REPEAT: Final = 1.0
"""Seconds after which a flow that goes on is cancelled once more."""

_PACKAGE: Final = f"{Path(genkit.__file__).parent}{os.sep}"

_running: Final[ContextVar[asyncio.Event]] = ContextVar("usechat.genkit.running")
"""Marks the tasks of one flow with its abort signal."""

OnChunk: TypeAlias = Callable[[Any], None]
Start: TypeAlias = Callable[[OnChunk, asyncio.Event], Awaitable[Any]]


async def streamed(start: Start) -> AsyncGenerator[Event, None]:
    """Run what ``start`` begins, with a callback and an abort signal, and yield what it says and returns.

    Closing the iterator stops it, and returns when it has stopped.
    """
    waiting: deque[Event] = deque()
    abort_signal, news, crowded = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def on_chunk(chunk: Any) -> None:
        if len(waiting) >= MAXIMUM_WAITING:
            crowded.set()
            raise PublicError(TOO_FAST)
        waiting.append(Message(_plain(chunk)))
        news.set()

    async def own() -> Any:
        _running.set(abort_signal)
        return await start(on_chunk, abort_signal)

    task = asyncio.create_task(own())
    task.add_done_callback(lambda _task: news.set())
    try:
        while not task.done() or waiting:
            await news.wait()
            news.clear()
            if crowded.is_set():
                raise PublicError(TOO_FAST)
            while waiting:
                yield waiting.popleft()
        yield Result(_plain(_result_of(task)))
    finally:
        await _stop(task, abort_signal)


def _plain(value: Any) -> Any:
    """Return the wire's JSON of a Genkit object; other values stay as they are."""
    return value.model_dump(by_alias=True, exclude_none=True) if isinstance(value, BaseModel) else value


def _result_of(task: "asyncio.Task[Any]") -> Any:
    """Return what a flow returned, or raise what people may read of its failure; others keep their traceback."""
    try:
        return task.result()
    except genkit.GenkitError as error:
        for one in (error, error.cause):
            if isinstance(one, genkit.PublicError):
                raise PublicError(one.original_message) from error
            if isinstance(one, PublicError):
                raise one from None
        if error.status in SENTENCES:
            failure = Failure(error.status, error.original_message)
            raise PublicError(describe(failure, error=error)) from error
        raise


# Stopping


async def _stop(task: "asyncio.Task[Any]", abort_signal: asyncio.Event) -> None:
    """Stop a flow that is not done, then what it left behind; again if need be, for a flow may go on regardless."""
    abort_signal.set()
    going_on = [] if task.done() else [task]
    while going_on:
        for one in going_on:
            one.cancel()
        await asyncio.wait(going_on, timeout=_REPEAT)
        going_on = [one for one in (task, *_left_behind(abort_signal)) if not one.done()]
    if not task.cancelled():
        task.exception()  # it was looked at; nobody waits for it any more


def _left_behind(abort_signal: asyncio.Event) -> Iterator["asyncio.Task[Any]"]:
    """Yield the tasks that Genkit began for a flow and leaves behind when the flow is cancelled (genkit 0.12.0).

    These are the loop of an agent, and whatever `generate_stream` and `Action.stream` do. Genkit keeps no list of
    them; but a task begins with a copy of the context that began it, so our mark is in it.
    """
    for task in asyncio.all_tasks():
        code = getattr(task.get_coro(), "cr_code", None)
        of_genkit = code is not None and code.co_filename.startswith(_PACKAGE)
        if of_genkit and _context_of(task).get(_running) is abort_signal:
            yield task


def _context_of(task: "asyncio.Task[Any]") -> Context:
    """Return the context of a task.

    Python 3.11 has no ``get_context``, but the garbage collector sees what a task holds. A task factory would see the
    tasks begin, but it is the event loop's only one: it would slow down, or drop, what the application does with it.
    """
    if sys.version_info >= (3, 12):
        return task.get_context()
    return next((held for held in gc.get_referents(task) if isinstance(held, Context)), Context())


# -- A flow, a prompt or an agent of the Python package ``genkit``, run in this process.


_KINDS: Final = ("flow", "agent")
"""Actions that answer; others are parts of an answer, such as models and tools."""


def source_of(found: Any) -> GenkitChatTransport | None:
    """Return what answers with a Genkit object; nothing for objects that do not answer."""
    if isinstance(found, genkit.ExecutablePrompt) or _kind(found) in _KINDS:
        return GenkitChatTransport(found)
    return None


def local_flow(found: Any) -> Flow:
    """Return the flow behind a Genkit object."""
    if isinstance(found, genkit.ExecutablePrompt):
        return LocalPrompt(found)
    if _kind(found) in _KINDS:
        return LocalAction(found)
    raise LocalProtocolError(
        f"{type(found).__name__} is no Genkit flow; give a URL, or a flow, prompt or agent of genkit"
    )


class LocalAction:
    """Runs a flow or an agent."""

    def __init__(self, action: Any) -> None:
        self._action = action

    @property
    def default_input(self) -> InputBuilder:
        """What the agent's store, or the flow's schema, asks for."""
        if _kind(self._action) == "agent":
            return agent_input if self._action.store is not None else stateless_agent_input
        return input_for(self._action.name, self._action.input_schema)

    def run(self, flow_input: FlowInput, turn: Turn) -> AsyncGenerator[Event, None]:
        """Run the flow and yield what it says. Closing the iterator cancels it."""

        async def start(on_chunk: OnChunk, abort_signal: asyncio.Event) -> Any:
            answer = await self._action.run(
                flow_input.data,
                on_chunk=on_chunk,
                context=_context(turn),
                abort_signal=abort_signal,
                init=flow_input.init,
            )
            return answer.response

        return streamed(start)


class LocalPrompt:
    """Runs a prompt as a chat: the history is put behind its own messages, the last message is its ``{{message}}``."""

    def __init__(self, prompt: Any) -> None:
        self._prompt = prompt

    @property
    def default_input(self) -> InputBuilder:
        """The template's variables, and the messages as options."""
        return _prompt_input

    def run(self, flow_input: FlowInput, turn: Turn) -> AsyncGenerator[Event, None]:
        """Run the prompt and yield what it says. Closing the iterator cancels it."""

        async def start(on_chunk: OnChunk, _abort_signal: asyncio.Event) -> Any:
            options = await self._options(flow_input)
            return await self._prompt(flow_input.data, on_chunk=on_chunk, context=_context(turn), **options)

        return streamed(start)

    async def _options(self, flow_input: FlowInput) -> dict[str, Any]:
        told = flow_input.init or {}
        messages = list(told.get("messages", ()))
        rendered = await self._prompt.render(flow_input.data)
        if messages and messages[-1]["role"] == "user" and any(said.role == "user" for said in rendered.messages):
            messages.pop()  # the template says it
        options: dict[str, Any] = {"messages": [genkit.Message.model_validate(message) for message in messages]}
        for key in ("respond", "restart"):
            if key in told:
                options[f"resume_{key}"] = [genkit.Part.model_validate(part) for part in told[key]]
        return options


def _prompt_input(turn: Turn) -> FlowInput:
    if resume := resume_of(turn):
        messages = genkit_messages(turn.messages, answered=resume.call_ids)
        return FlowInput({"message": turn.text}, {"messages": messages, **resume.wire})
    return FlowInput({"message": turn.text}, {"messages": genkit_messages(turn.messages)})


def _context(turn: Turn) -> Mapping[str, Any]:
    """Return what a flow finds in ``ctx.context``: who asks, as far as it is known."""
    if turn.identity is None or not turn.identity.subject:
        return {}
    return {"auth": {"uid": turn.identity.subject, "claims": dict(turn.identity.claims)}}


def _kind(found: Any) -> str:
    """Return which kind of action an object is, or nothing."""
    return str(found.kind) if isinstance(found, genkit.Action) else ""
