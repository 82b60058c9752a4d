"""Sources: everything that can answer a chat, and the one interface through which runs use it.

A run knows only :class:`Source`: ``drive(context)`` answers one turn in the calling task, writes parts to the context,
returns at the end and raises on failure. Everything people have is turned into one by :func:`as_source`:

- a function or a generator function, async or not, becomes a :class:`FunctionSource`;
- a function without arguments that makes one of these becomes a :class:`FactorySource`;
- a :class:`ChatTransport`, such as another AI SDK endpoint, is read back into parts;
- an object of a framework is given to that framework's adapter, which an entry point names.

**Adapters.** An :class:`Adapter` turns the events of some system into parts. It does no I/O: ``feed`` takes one event,
``close`` says that no more will come, so it is tested with lists. :class:`AdapterSource` brings it together with an
async iterator of events, and drives it for a run: it iterates, feeds, yields to the event loop when much was written,
closes the iterator in the same task, and passes on one ending. :func:`parts_of` does the same for an agent function
with a loop of its own.

**Entry points** of the group ``usechat.adapters`` are named after the dotted prefix of a framework's modules
(``langgraph``, ``google.adk``); each is a function that makes a source of its object, or returns ``None`` for an object
that cannot answer. A prefix only nominates: people's own packages are called ``agents``, too, so the function checks
the type.
"""

import asyncio
import contextlib
import functools
import inspect
import logging
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from usechat.errors import CannotAnswer, LocalProtocolError, MissingDependency, UnknownEvent
from usechat.protocol.chunks import Chunk
from usechat.protocol.parts import Abort, Error, Finish, Part, Text
from usechat.protocol.reframing import ChunkReader
from usechat.protocol.request import ChatRequest
from usechat.threads import contained, is_async
from usechat.turn import AgentInfo, Turn, TurnContext, current_context

__all__ = [
    "Adapter",
    "AdapterSource",
    "Agent",
    "ChatTransport",
    "FactorySource",
    "FunctionSource",
    "HandsOver",
    "Source",
    "adapters_for",
    "as_source",
    "is_factory",
    "is_restartable",
    "object_source",
    "part_of",
    "parts_of",
    "restartable",
]

_logger: Final = logging.getLogger("usechat.server")

_AHEAD: Final = 64
"""How many parts a thread may be ahead of the event loop."""
_ITERATED: Final = (Iterator, list, tuple)
"""What is iterated; not every iterable, or a dict would be sent as its keys."""
_CHECK_SECONDS: Final = 0.1
"""How often a thread that waits for the loop looks whether the turn was stopped."""
_ENDINGS: Final = (Finish, Error, Abort)
_Ending: TypeAlias = Finish | Error | Abort
_NO_ADAPTER: Final = "there is no adapter for it; docs/adapters.md shows how to write one"
_NOT_SERVED: Final = {
    "agent_framework": ("Microsoft Agent Framework", "give an agent"),
    "anthropic": ("the Anthropic client", "give a function that calls it and yields usechat.adapters.anthropic.parts"),
    "autogen_agentchat": ("AutoGen", _NO_ADAPTER),
    "claude_agent_sdk": ("the Claude Agent SDK", "give a ClaudeAgentOptions"),
    "crewai": ("CrewAI", "give an Agent, a Crew or a CrewAiSource"),
    "dspy": ("DSPy", "give a Module"),
    "haystack": ("Haystack", "give an Agent"),
    "langchain_core": ("LangChain", "give an agent or a compiled graph"),
    "llama_index": ("LlamaIndex", "give an agent or a workflow"),
    "openai": ("the OpenAI client", "give a function that calls it and yields usechat.adapters.openai.parts"),
    "smolagents": ("smolagents", "give a SmolagentsSource"),
    "strands": ("Strands Agents", "give a StrandsSource"),
}
"""Frameworks by the prefix of their modules, and what to give instead of an object that no installed adapter took."""

AnswerT = TypeVar("AnswerT")
Event = TypeVar("Event")
EventT_contra = TypeVar("EventT_contra", contravariant=True)
Said: TypeAlias = str | Part
Agent: TypeAlias = Callable[[Turn], AsyncIterable[Said] | Iterator[Said] | Awaitable[Any] | Said | None]
"""A function that answers a turn: with texts and parts, one or many, now or later."""


@runtime_checkable
class ChatTransport(Protocol):
    """The AI SDK's own abstraction of something that answers a chat. An object with these two methods can be served.

    Closing an iterator that ``send_messages`` returned stops the answer before ``aclose`` returns. Chunks come from a
    :class:`~usechat.MessageStream`, or from another endpoint with :class:`~usechat.ChunkDecoder`.

    >>> import asyncio
    >>> from usechat import MessageStream, Text
    >>> from usechat.client import Chat
    >>> class Greeter:
    ...     async def send_messages(self, request):
    ...         return self.answer()
    ...
    ...     async def reconnect_to_stream(self, chat_id):
    ...         return None
    ...
    ...     async def answer(self):
    ...         stream = MessageStream(message_id="m1", sdk="7")
    ...         for chunk in [*stream.send(Text("Hello")), *stream.close()]:
    ...             yield chunk
    >>> async def main(transport: ChatTransport) -> str:
    ...     return (await Chat(transport).send("Hi")).text
    >>> asyncio.run(main(Greeter()))
    'Hello'
    """

    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Answer a request: the chunks of one message."""
        ...

    async def reconnect_to_stream(self, chat_id: str) -> AsyncIterator[Chunk] | None:
        """Return the running answer of a chat from its start, or ``None``."""
        ...


@runtime_checkable
class Source(Protocol):
    """Something that answers turns; the only shape that runs know."""

    async def drive(self, context: TurnContext) -> None:
        """Answer one turn in the calling task: write parts with ``context.send``, return at the end, raise on failure.

        A turn that is stopped is cancelled. One source drives many turns, also at the same time.
        """
        ...


@runtime_checkable
class HandsOver(Protocol):
    """A source whose running turn takes further messages: instead of a conflict, the new turn continues it."""

    def hand_over(self, turn: Turn) -> None:
        """Let the chat's running turn end well and soon, because ``turn`` waits; do nothing if none runs here."""
        ...


class Adapter(Protocol[EventT_contra]):
    """Turns the events of one turn into parts. It does no I/O and knows nothing of framing.

    Each turn gets an adapter of its own, which is called in the event loop, by one task.

    >>> from usechat.parts import Part, Text
    >>> class Words:
    ...     def feed(self, event: str) -> list[Part]:
    ...         return [Text(event)]
    ...
    ...     def close(self, error: BaseException | None = None) -> list[Part]:
    ...         return []
    >>> [part.text for part in Words().feed("Hello")]
    ['Hello']
    """

    def feed(self, event: EventT_contra) -> Iterable[Part]:
        """Return the parts that an event becomes.

        Raise :class:`~usechat.errors.UnknownEvent` for an event that is not known: it is counted and skipped. The
        source yields to the event loop between events only: one event with very many parts delays all other chats.
        """
        ...

    def close(self, error: BaseException | None = None) -> Iterable[Part]:
        """Return what is left to say after the last event. It is called once.

        ``error`` is what ended the events early: an exception, or ``CancelledError`` if the turn was stopped. If the
        parts hold an ending, that is how the turn ends; otherwise an exception is logged and shown as a reference.
        """
        ...


class AdapterSource(Generic[Event]):
    """Drives an adapter with the events of each turn. One source serves many turns.

    ``events`` starts the upstream and returns its events, now or as an awaitable. ``adapter`` makes the adapter of one
    turn. ``agent`` names the agent for spans and metrics. See ``docs/adapters.md`` for a complete example.

    >>> from collections.abc import AsyncIterator
    >>> from usechat.parts import Part
    >>> async def events(turn: Turn) -> AsyncIterator[dict[str, str]]:
    ...     yield {"type": "word", "text": f"You said {turn.text}."}
    >>> class Words:
    ...     def feed(self, event: dict[str, str]) -> list[Part]:
    ...         return [Text(event["text"])]
    ...
    ...     def close(self, error: BaseException | None = None) -> list[Part]:
    ...         return []
    >>> agent = AdapterSource(events, Words)  # give it to chat_response, ChatApp or `usechat serve`
    """

    def __init__(
        self,
        events: Callable[[Turn], AsyncIterable[Event] | Awaitable[AsyncIterable[Event]]],
        adapter: Callable[[], Adapter[Event]],
        *,
        agent: AgentInfo | None = None,
    ) -> None:
        self._events = events
        self._adapter = adapter
        self._agent = agent

    async def drive(self, context: TurnContext) -> None:
        """Feed every event to a new adapter; close the events in this task, however the turn ends."""
        if self._agent is None:
            await self._answer(context)
            return
        context.agent_invoked(self._agent)
        try:
            ending = await self._answer(context)
        except BaseException as error:
            context.agent_ended(self._agent, None, error)
            raise
        context.agent_ended(self._agent, ending)

    async def _answer(self, context: TurnContext) -> _Ending | None:
        """Return the ending that the adapter said."""
        adapter = self._adapter()
        try:
            ending = await self._feed_all(adapter, context)
        except (Exception, asyncio.CancelledError) as error:
            ending = _send_all(adapter.close(error), context)
            if ending is not None and isinstance(error, Exception):
                return ending  # the adapter reported the failure in its own words
            raise
        return _send_all(adapter.close(), context) or ending

    async def _feed_all(self, adapter: Adapter[Event], context: TurnContext) -> _Ending | None:
        ending = None
        events = self._events(context.turn)
        async with _closing(await events if isinstance(events, Awaitable) else events) as iterator:
            async for event in iterator:
                try:
                    ending = _send_all(adapter.feed(event), context) or ending
                except UnknownEvent as unknown:
                    context.event_unknown(unknown.kind)
                await context.yield_to_loop()
        return ending


async def parts_of(events: AsyncIterable[Event], adapter: Adapter[Event]) -> AsyncIterator[Part]:
    """Yield the parts of a turn, for an agent with a loop of its own.

    ``events`` is iterated and closed; ``adapter`` is one that was not used yet. An unknown event is counted and
    skipped. What the events raise is raised, unless the adapter's ``close`` makes an ending of it.

    >>> from collections.abc import AsyncIterator
    >>> from usechat.parts import Part
    >>> class Shout:
    ...     def feed(self, event: str) -> list[Part]:
    ...         return [Text(event.upper())]
    ...
    ...     def close(self, error: BaseException | None = None) -> list[Part]:
    ...         return []
    >>> async def events(turn: Turn) -> AsyncIterator[str]:
    ...     yield f"{turn.text}!"
    >>> async def agent(turn: Turn) -> AsyncIterator[Part]:
    ...     async for part in parts_of(events(turn), Shout()):
    ...         yield part
    >>> from usechat.testing import AgentClient
    >>> with AgentClient(agent) as client:
    ...     client.ask("hi").text
    'HI!'
    """
    try:
        async with _closing(events) as iterator:
            async for event in iterator:
                try:
                    for part in adapter.feed(event):
                        yield part
                except UnknownEvent as unknown:
                    with contextlib.suppress(LocalProtocolError):  # outside of a turn nobody counts
                        current_context().event_unknown(unknown.kind)
    except Exception as error:
        closing = list(adapter.close(error))
        for part in closing:
            yield part
        if any(isinstance(part, _ENDINGS) for part in closing):
            return
        raise
    for part in adapter.close():
        yield part


@contextlib.asynccontextmanager
async def _closing(events: AsyncIterable[Event]) -> AsyncIterator[AsyncIterator[Event]]:
    """Close an iterator in the task that iterated it, if it can be closed."""
    iterator = aiter(events)
    try:
        yield iterator
    finally:
        close = getattr(iterator, "aclose", None)
        if close is not None:
            await close()


def _send_all(parts: Iterable[Part], context: TurnContext) -> _Ending | None:
    """Send parts; return the first ending among them."""
    ending = None
    for part in parts:
        context.send(part)
        if ending is None and isinstance(part, _ENDINGS):
            ending = part
    return ending


class FunctionSource:
    """Drives a plain function. What the call returns decides how, not how the function is written:

    - an async iterator of texts and parts is iterated here;
    - an awaitable is awaited, and what it gives is looked at in the same way;
    - an iterator, a list or a tuple is iterated in a thread;
    - a text or a part is sent; ``None`` sends nothing more.

    Async functions are called in the event loop, all others in a thread, because they may block.
    """

    __slots__ = ("_agent", "_is_async")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._is_async = is_async(agent)

    async def drive(self, context: TurnContext) -> None:
        """Call the function with the turn, and say what it gives. Iterators are closed in the task that uses them."""
        agent = self._agent
        said = agent(context.turn) if self._is_async else await context.threads.run(_call_and_iterate, agent, context)
        while not isinstance(said, AsyncIterable) and inspect.isawaitable(said):
            said = await said
        if isinstance(said, AsyncIterable):
            # Not in a coroutine of its own: every frame between the task and the agent costs at each wake-up.
            write = context.write
            iterator = aiter(said)
            try:
                async for item in iterator:
                    if write(Text(item) if item.__class__ is str else part_of(item)):
                        await asyncio.sleep(0)
            finally:
                close = getattr(iterator, "aclose", None)
                if close is not None:
                    await close()
        elif isinstance(said, _ITERATED):
            await context.threads.run(_iterate, iter(said), context)
        elif said is not None:
            context.send(part_of(said))


def _call_and_iterate(agent: Agent, context: TurnContext) -> Any:
    """Call a function in a thread; return what is left to do in the event loop."""
    said = agent(context.turn)
    if isinstance(said, _ITERATED):
        _iterate(iter(said), context)
        return None
    return said


def _iterate(said: Iterator[Any], context: TurnContext) -> None:
    """Send the values of an iterator, in a thread that is never far ahead of the event loop."""
    try:
        for number, item in enumerate(said, 1):
            if context.stopped:
                return
            context.send(part_of(item))
            if not number % _AHEAD:
                _wait_for_loop(context)
    finally:
        close = getattr(said, "close", None)
        if close is not None:
            close()


def _wait_for_loop(context: TurnContext) -> None:
    """Wait in a thread until the loop has taken what was sent; not if the turn is stopped."""
    taken = threading.Event()
    context.call_soon(taken.set)
    while not context.stopped and not taken.wait(_CHECK_SECONDS):
        pass


def part_of(said: Any) -> Part:
    """Return what an agent said as a part; raise :class:`~usechat.errors.LocalProtocolError` if it is none."""
    if isinstance(said, str):
        return Text(said)
    if isinstance(said, Part):
        return said
    raise LocalProtocolError(f"an agent yields texts and parts, not {type(said).__name__}")


class FactorySource:
    """Makes what answers with a factory: a function without arguments, async or not, or an async context manager.

    The factory is called once, by ``open`` or by the first turn. A context manager is entered and left in one task of
    its own, as cancel scopes demand, and left by ``close``.
    """

    def __init__(self, factory: Callable[[], Any]) -> None:
        self._factory = factory
        self._made: asyncio.Future[Source] | None = None
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.restartable = False
        """Whether what was made may be restarted."""

    async def drive(self, context: TurnContext) -> None:
        """Answer the turn with what the factory made."""
        await (await self.open()).drive(context)

    async def open(self) -> Source:
        """Call the factory, if that was not done, and return what it made; raise what the factory raises."""
        if self._made is None:
            loop = asyncio.get_running_loop()
            self._made = loop.create_future()
            self._task = loop.create_task(self._keep(self._made), name="usechat factory")
        return await asyncio.shield(self._made)

    async def close(self) -> None:
        """Leave the context manager."""
        if self._task is not None:
            self._closing.set()
            try:
                await self._task
            except Exception:  # what else is open must be closed, too
                _logger.exception("the factory of an agent raised when it was closed")

    async def _keep(self, made: "asyncio.Future[Source]") -> None:
        try:
            with contained():
                await self._make(made)
        except Exception as error:
            if made.done():
                raise
            made.set_exception(error)

    async def _make(self, made: "asyncio.Future[Source]") -> None:
        found = self._factory()
        if inspect.isawaitable(found):
            found = await found
        if not isinstance(found, contextlib.AbstractAsyncContextManager):
            self._settle(made, found)
            return
        async with found as entered:
            self._settle(made, entered)
            await self._closing.wait()

    def _settle(self, made: "asyncio.Future[Source]", answer: Any) -> None:
        self.restartable = is_restartable(answer)
        made.set_result(as_source(answer))


def is_factory(answer: Any) -> bool:
    """Tell whether this is a function without arguments that makes what answers."""
    if not callable(answer) or _is_generator_function(answer):
        return False
    try:
        return not inspect.signature(answer).parameters
    except ValueError:  # a builtin without a signature
        return False


def _makes_context(function: Any) -> bool:
    """Tell whether a function is a generator function behind ``asynccontextmanager``: its call gives no generator."""
    return getattr(function, "__globals__", None) is vars(contextlib)


def _is_generator_function(answer: Any) -> bool:
    """Tell whether a call gives a generator, also behind a wrapper and in an object that can be called."""
    function = inspect.unwrap(answer, stop=_makes_context)
    calls = function, type(function).__call__
    return any(inspect.isasyncgenfunction(call) or inspect.isgeneratorfunction(call) for call in calls)


def as_source(answer: Any) -> Source:
    """Return the source behind what a user gave: a source, a chat transport, a framework's object or a function.

    A function without arguments is a factory of such a thing (:class:`FactorySource`).

    Raises :class:`~usechat.errors.CannotAnswer` for everything else, and says what is accepted.
    """
    if isinstance(answer, type):
        raise CannotAnswer(f"{answer.__name__} is a class; make an object of it and give that")
    source = object_source(answer)
    if source is not None:
        return source
    _refuse_framework(answer)
    if is_factory(answer):
        return FactorySource(answer)
    _require_callable(answer)
    return FunctionSource(answer)


def object_source(answer: Any) -> Source | None:
    """Return the source behind a source, a chat transport or a framework's object; ``None`` for everything else."""
    if isinstance(answer, Source):
        _require_async(answer.drive, f"{type(answer).__name__}.drive", "the context of the turn")
        return answer
    if isinstance(answer, ChatTransport):
        if not inspect.isasyncgenfunction(answer.send_messages):  # its call gives the chunks, without an await
            _require_async(answer.send_messages, f"{type(answer).__name__}.send_messages", "the request")
        return AdapterSource(lambda turn: answer.send_messages(turn.request), ChunkReader)
    for adapter in adapters_for(answer):
        try:
            source = adapter.load()(answer)
        except MissingDependency:
            continue  # the framework is not here, so this is an object of another package of that name
        if source is not None:
            return cast("Source", source)
    return None


def _require_async(method: Callable[..., Any], name: str, argument: str) -> None:
    """Refuse a method that is not async, or that does not take one argument: every turn would fail."""
    if not inspect.iscoroutinefunction(inspect.unwrap(method)):
        raise CannotAnswer(f"{name} must be an async function")
    try:
        inspect.signature(method).bind(None)
    except TypeError:
        raise CannotAnswer(f"{name} must take one argument, {argument}") from None


def adapters_for(answer: Any) -> tuple[EntryPoint, ...]:
    """Return the installed adapters that may know an object, by the modules of its class and their bases."""
    return _adapters_for(_modules(answer))


def _modules(answer: Any) -> tuple[str, ...]:
    return tuple(base.__module__ for base in type(answer).__mro__)


def _refuse_framework(answer: Any) -> None:
    """Refuse an object of a framework that no adapter took. Some of them can be called, but not with a turn."""
    for module in _modules(answer):
        for prefix, (framework, instead) in _NOT_SERVED.items():
            if f"{module}.".startswith(f"{prefix}."):
                name = type(answer).__name__
                raise CannotAnswer(f"this {name} is an object of {framework} that cannot answer a chat; {instead}")


def restartable(answer: AnswerT) -> AnswerT:
    """Mark an agent whose turns may be restarted when its process has died. Use it as a decorator or as a function.

    Only `usechat worker` reads the mark. Mark an agent only if answering a turn twice does no harm: it may have called
    tools before its process died. Returns the agent. Raises :class:`~usechat.errors.CannotAnswer` for an object that
    takes no attributes.

    >>> @restartable
    ... async def agent(turn):
    ...     yield f"You said: {turn.text}"
    """
    try:
        cast("Any", answer).restartable = True
    except (AttributeError, TypeError, ValueError):
        name = type(answer).__name__
        raise CannotAnswer(f"a {name} takes no attributes; wrap it in a function and mark that") from None
    return answer


def is_restartable(answer: Any) -> bool:
    """Tell whether an agent, or what its factory made, was marked with :func:`restartable`."""
    return getattr(answer, "restartable", False) is True


def _require_callable(answer: Any) -> None:
    name = type(answer).__name__
    if inspect.isgenerator(answer) or inspect.isasyncgen(answer) or inspect.iscoroutine(answer):
        raise CannotAnswer(f"this {name} is the result of a call; give the function itself")
    if not callable(answer):
        raise CannotAnswer(
            f"{name} cannot answer a chat; give a function, an async generator function, a ChatTransport,"
            " or an object of a framework whose adapter is installed"
        )
    try:
        inspect.signature(answer).bind(None)
    except TypeError:
        called = getattr(answer, "__qualname__", name)
        raise CannotAnswer(
            f"{called} must take one argument, the turn that it answers; or none, and return what answers"
        ) from None
    except ValueError:
        pass  # a builtin without a signature


@functools.cache  # what is installed is read from disk, which takes milliseconds
def _adapters_for(modules: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the adapters for a class by the modules of it and its bases: nearest class first, longest prefix first."""
    installed = sorted(entry_points(group="usechat.adapters"), key=lambda found: -len(found.name))
    found = [each for module in modules for each in installed if f"{module}.".startswith(f"{each.name}.")]
    return tuple(dict.fromkeys(found))
