"""What the sources of several frameworks share: one method for the events of a turn, and one adapter for them.

The adapters that stand on this module read events by the names of their fields and import no framework, so that events
that were recorded elsewhere can be replayed where the framework is not installed. Only the sources import it, on use.
"""

import asyncio
import dataclasses
import json
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from importlib import import_module
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar, cast

from usechat.adapters import conversation, model_files
from usechat.errors import MissingDependency, PublicError, UsechatError
from usechat.protocol.model_messages import ModelMessage
from usechat.protocol.parts import Metadata, Part, ToolCall, ToolInputDelta, ToolInputError, ToolInputStart
from usechat.sources import Adapter, AdapterSource, context_maker
from usechat.turn import AgentInfo, Turn, TurnContext, current_context

__all__ = [
    "NO_OPTIONS",
    "FrameworkSource",
    "Options",
    "StreamedCall",
    "closing",
    "emitted",
    "ending",
    "for_turn",
    "imported",
    "kept_count",
    "question_id",
    "required_fields",
    "whole_call",
    "without_results",
]

Options: TypeAlias = Mapping[str, Any] | Callable[[Turn], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]
"""Further arguments of a framework's run: the same for each turn, or made from it by a function, async or not."""
NO_OPTIONS: Final[Mapping[str, Any]] = {}
_REFUSED: Final = frozenset({400, 413, 415, 422})
"""The statuses with which providers refuse a request for what it holds."""

Event = TypeVar("Event")
EventT_contra = TypeVar("EventT_contra", contravariant=True)


class AdapterClass(Protocol[EventT_contra]):
    """The class of an adapter.

    ``known_calls`` are the calls that the page has already, when a turn continues; ``denied`` are those that a person
    has denied, with the reasons.
    """

    def __call__(
        self, *, known_calls: Collection[str] = ..., denied: Mapping[str, str | None] = ...
    ) -> Adapter[EventT_contra]:
        """Return the adapter of one turn."""
        ...


class FrameworkSource(ABC, Generic[Event]):
    """Answers turns with the events of a framework; a subclass provides the events and the adapter.

    ``context`` is what the agent needs per request: a value, a function of the turn, async or not, that returns it, or
    a class whose objects need no argument but the turn. ``options`` are further arguments of a run: a mapping, or such
    a function.
    """

    adapter: AdapterClass[Event]
    info: AgentInfo
    """Names the agent for spans and metrics."""
    continues: bool | None = None
    """Whether an answer can go on after its process died (:func:`~usechat.sources.continues_after_crash`)."""
    process_memory: str | None = None
    """What the agent keeps in this process alone (:func:`~usechat.sources.warn_of_process_memory`)."""
    forgets: str | None = None
    """What the agent forgets unless chats are stored in a database (:func:`~usechat.sources.warn_of_forgetting`)."""
    retries_without_files: ClassVar[bool] = False
    """Whether a run that failed before the model said anything leaves nothing behind, and may be run again."""
    context_argument: ClassVar[str | None] = None
    """The argument of a run that takes the context; without one its entries are arguments of the run themselves."""

    def __init__(self, *, options: Options = NO_OPTIONS, context: Any = None) -> None:
        self._options = options
        self._context = context_maker(context)

    @abstractmethod
    def events(self, turn: Turn) -> AsyncIterator[Event]:
        """Run the framework on a turn, and return its events. Closing the iterator stops the run."""

    async def drive(self, context: TurnContext) -> None:
        """Answer one turn."""
        adapter = self.adapter_of(context.turn)
        has_doubtful_files = any(map(model_files.doubtful_files, context.turn.messages))
        events = self._events_without_files if self.retries_without_files and has_doubtful_files else self.events
        await AdapterSource(events, lambda: adapter, agent=self.info).drive(context)

    def says(self, event: Event) -> bool:  # noqa: ARG002 (for those that tell more)
        """Tell whether an event shows that the model has taken the chat."""
        return True

    async def _events_without_files(self, turn: Turn) -> AsyncGenerator[Event]:
        """Run the framework on a turn with files that the model may refuse: then without those of earlier messages.

        Raise PublicError, which names the file, if the model refuses that of the new message.
        """
        is_begun = False
        refusal: Exception | None = None
        for attempt in (turn, model_files.without_doubtful_files(turn)):
            try:
                async with aclosing(cast("AsyncGenerator[Event]", self.events(attempt))) as events:
                    async for event in events:
                        is_begun = is_begun or self.says(event)
                        yield event
            except Exception as error:
                if is_begun or not _may_be_about_files(error):
                    raise
                refusal = error
            else:
                return
        names = model_files.doubtful_files(turn.request.last_user_message)
        if not names and refusal is not None:
            raise refusal
        raise PublicError(
            f"The model cannot read {', '.join(names)}. Send a text, an image or a PDF file instead."
        ) from refusal

    def adapter_of(self, turn: Turn) -> Adapter[Event]:
        """Return the adapter of one turn."""
        return self.adapter(known_calls=conversation.calls_of(turn), denied=conversation.denials(turn))

    async def arguments(self, turn: Turn) -> dict[str, Any]:
        """Return the further arguments of the run on a turn: the options, and the context as the framework takes it."""
        arguments = dict(await for_turn(self._options, turn))
        context = await for_turn(self._context, turn)
        if context is not None:
            arguments |= context if self.context_argument is None else {self.context_argument: context}
        return arguments


def _may_be_about_files(error: Exception) -> bool:
    """Tell whether an error may say that a model cannot take a file: of a converter, or of the provider."""
    status = getattr(error, "status_code", None)
    if status is not None:
        return status in _REFUSED
    return isinstance(error, (ValueError, TypeError, RuntimeError)) and not isinstance(error, UsechatError)


def imported(module: str, package: str, extra: str) -> Any:
    """Import a module of a framework; raise MissingDependency, which names the extra, if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingDependency(package, extra) from None


async def for_turn(value: Any, turn: Turn) -> Any:
    """Return a value for one turn: what a function makes of the turn, or the value itself.

    A function that is not async runs in a thread, because it may block.
    """
    return await current_context().threads.call(value, turn) if callable(value) else value


def required_fields(schema: Any) -> list[str] | None:
    """Return the fields that an object of a class needs: a dataclass or a pydantic model; ``None`` for other types.

    >>> @dataclasses.dataclass
    ... class Visitor:
    ...     name: str
    ...     language: str = "en"
    >>> required_fields(Visitor)
    ['name']
    """
    if dataclasses.is_dataclass(schema):
        return [
            field.name
            for field in dataclasses.fields(schema)
            if field.init and field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]
    fields = getattr(schema, "model_fields", None)
    return None if fields is None else [name for name, field in fields.items() if field.is_required()]


def question_id(turn: Turn) -> str:
    """Return the id of the user message that a turn answers."""
    return next((message["id"] for message in reversed(turn.messages) if message["role"] == "user"), "")


def kept_count(question_ids: Sequence[str], turn: Turn) -> int:
    """Return how many entries of a framework's memory stay; what was regenerated or edited away begins behind them.

    ``question_ids`` has, for each entry, the id of the user message that it answers, or an empty text if it answers
    none. A page that sends the last message alone removes nothing.
    """
    users = [message["id"] for message in turn.messages if message["role"] == "user"]
    if users and users[-1] in question_ids:
        return question_ids.index(users[-1])
    if len(users) > 1 and users[-2] in question_ids:
        later = range(len(question_ids) - question_ids[::-1].index(users[-2]), len(question_ids))
        return next((at for at in later if question_ids[at]), len(question_ids))
    return len(question_ids)


def without_results(messages: Iterable[ModelMessage], calls: Collection[str | None]) -> Iterator[ModelMessage]:
    """Yield the messages without the results of these calls. A repaired history has one for each call, run or not."""
    for message in messages:
        if message["role"] != "tool":
            yield message
            continue
        parts = [
            part for part in message["content"] if part["type"] != "tool-result" or part["toolCallId"] not in calls
        ]
        if parts:
            yield {"role": "tool", "content": parts}


class _End:
    """The last entry of a queue of events."""


async def emitted(run: Callable[[Callable[[Event], None]], Coroutine[Any, Any, Any]]) -> AsyncGenerator[Event]:
    """Yield what a function emits while it runs, for frameworks that call back; raise what it raises.

    ``run`` gets the function that takes an event, which may be called in any thread. It is cancelled when the iterator
    is closed.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[Event | _End] = asyncio.Queue()

    def emit(event: Event | _End) -> None:
        loop.call_soon_threadsafe(queue.put_nowait, event)

    task = loop.create_task(run(emit), name="usechat framework")
    task.add_done_callback(lambda _task: emit(_End()))
    try:
        while not isinstance(event := await queue.get(), _End):
            yield event
        await task
    finally:
        task.cancel()
        await asyncio.wait([task])


# One call of a model, for the adapters of model clients.


def ending(reason: str | None, used: Mapping[str, int] | None) -> Part:
    """Return the end of one model call: of the turn too, unless the model asks for tools."""
    if reason != "tool-calls":
        return conversation.finish(reason, used)
    return Metadata({"finishReason": reason} if used is None else {"finishReason": reason, "usage": used})


class StreamedCall:
    """A call whose input a model streams as JSON text. It starts as soon as its id and its name are known.

    >>> call = StreamedCall("c1", "clock")
    >>> [type(part).__name__ for part in [*call.feed("{"), *call.feed("}"), call.whole()]]
    ['ToolInputStart', 'ToolInputDelta', 'ToolInputDelta', 'ToolCall']
    """

    def __init__(self, call_id: str = "", name: str = "") -> None:
        self.id = call_id
        self.name = name
        self.length = 0
        """How many characters of the input there are."""
        self._pieces: list[str] = []
        self._has_started = False

    @property
    def text(self) -> str:
        """The input so far."""
        return "".join(self._pieces)

    def add(self, text: str) -> None:
        """Add a piece of the input that the page does not see."""
        self._pieces.append(text)
        self.length += len(text)

    def feed(self, text: str) -> Iterator[Part]:
        """Add a piece of the input, and yield what the page is told: the start, and the input that is new to it."""
        self.add(text)
        if not self._has_started and self.id and self.name:
            self._has_started = True
            yield ToolInputStart(self.id, self.name)
            text = self.text
        if self._has_started and text:
            yield ToolInputDelta(self.id, text)

    def whole(self) -> Part:
        """Return the call with its whole input."""
        return whole_call(self.id, self.name, self.text)


def whole_call(call_id: str, name: str, arguments: str) -> Part:
    """Return a call with its whole input."""
    try:
        return ToolCall(call_id, name, json.loads(arguments) if arguments else {})
    except ValueError:
        return ToolInputError(call_id, name, conversation.INVALID_INPUT, arguments)


async def closing(stream: Any) -> AsyncIterator[Any]:
    """Yield the events of a client's stream, and close its connection, so that a stop reaches the model."""
    try:
        async for event in stream:
            yield event
    finally:
        close = getattr(stream, "close", None) or getattr(stream, "aclose", None)
        if close is not None:
            await close()
