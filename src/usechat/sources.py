"""Sources: everything that can answer a chat, and the one interface through which runs use it.

A run knows only :class:`Source`: ``drive(context)`` answers one turn in the calling task, writes parts to the context,
returns at the end and raises on failure. Everything people have is turned into one by :func:`as_source`:

- a function or a generator function, async or not, becomes a :class:`FunctionSource`;
- a function without arguments that makes one of these becomes a :class:`FactorySource`; a function of one argument may
  return an agent, too, which then answers this one turn;
- a :class:`ChatTransport`, such as another AI SDK endpoint, is read back into parts;
- an object of a framework is given to that framework's adapter, which an entry point names.

**Adapters.** An :class:`Adapter` turns the events of some system into parts. It does no I/O: ``feed`` takes one event,
``close`` says that no more will come, so it is tested with lists. :class:`AdapterSource` brings it together with an
async iterator of events, and drives it for a run: it iterates, feeds, yields to the event loop when much was written,
closes the iterator in the same task, and passes on one ending. :func:`parts_of` does the same for an agent function
that runs its own loop.

**Entry points** of the group ``usechat.adapters`` are named after the dotted prefix of a framework's modules
(``langgraph``, ``google.adk``); each is a function that makes a source of its object, or returns ``None`` for an object
that cannot answer. A prefix only nominates: people's own packages are called ``agents``, too, so the function checks
the type. Its argument ``context`` is what the agent needs per request, a value or a function of the turn; it is passed
only if somebody gave one.
"""

import asyncio
import contextlib
import functools
import inspect
import logging
import sys
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from concurrent import futures
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from pathlib import Path
from typing import Any, Final, Generic, Protocol, Self, TypeAlias, TypeVar, cast, runtime_checkable

from usechat.errors import CannotAnswer, LocalProtocolError, MissingDependency, PublicError, UnknownEvent
from usechat.protocol.chunks import Chunk
from usechat.protocol.parts import (
    Abort,
    ApprovalResponse,
    Error,
    Finish,
    Part,
    Text,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolResult,
)
from usechat.protocol.reframing import ChunkReader
from usechat.protocol.request import ChatRequest
from usechat.threads import contained, is_async
from usechat.turn import AgentInfo, Identity, Turn, TurnContext, current_context, thread_id

__all__ = [
    "Adapter",
    "AdapterSource",
    "Agent",
    "ChatTransport",
    "FactorySource",
    "FrameworkObject",
    "FunctionSource",
    "HandsOver",
    "HasMcpServers",
    "OpenSession",
    "Reachable",
    "Said",
    "Servable",
    "Source",
    "adapters_for",
    "as_source",
    "context_maker",
    "continues_after_crash",
    "is_factory",
    "is_restartable",
    "must_commit",
    "object_source",
    "part_of",
    "parts_of",
    "rereads_after_crash",
    "restartable",
    "warn_of_forgetting",
    "warn_of_process_memory",
]

_logger: Final = logging.getLogger("usechat.server")

_AHEAD: Final = 64
"""How many parts a thread may be ahead of the event loop."""
_ITERATED: Final = (Iterator, list, tuple)
"""What is iterated; not every iterable, or a dict would be sent as its keys."""
_CHECK_SECONDS: Final = 0.1
"""How often a thread that waits for the loop looks whether the turn was stopped."""
_ENDINGS: Final = (Finish, Error, Abort)
_COMMITTED: Final = (ToolCall, ToolResult, ToolError, ToolDenied, ApprovalResponse)
_Ending: TypeAlias = Finish | Error | Abort
_NO_ADAPTER: Final = "there is no adapter for it; docs/adapters.md shows how to write one"
_CANNOT_CONTINUE: Final = "The server was interrupted, and this answer cannot be continued."
_NOT_SERVED: Final = {
    "agent_framework": ("Microsoft Agent Framework", "give an agent"),
    "agents.realtime": ("the OpenAI Agents SDK", "it speaks, and does not write; give an Agent"),
    "agents.voice": ("the OpenAI Agents SDK", "it speaks, and does not write; give an Agent"),
    "anthropic": ("the Anthropic client", "give a function that calls it and yields usechat.adapters.anthropic.parts"),
    "autogen": ("AG2", _NO_ADAPTER),
    "autogen_agentchat": ("AutoGen", _NO_ADAPTER),
    "autogen_core": ("AutoGen", _NO_ADAPTER),
    "browser_use": ("browser-use", _NO_ADAPTER),
    "burr": ("Burr", _NO_ADAPTER),
    "claude_agent_sdk": ("the Claude Agent SDK", "give a ClaudeAgentOptions"),
    "crewai": ("CrewAI", "give an Agent, a Crew or a CrewAiSource"),
    "dspy": ("DSPy", "give a Module"),
    "google.genai": ("the Google Gen AI client", "give a function that calls it and yields texts"),
    "haystack": ("Haystack", "give an Agent"),
    "langchain_core": ("LangChain", "give an agent or a compiled graph"),
    "letta": ("Letta", _NO_ADAPTER),
    "letta_client": ("Letta", _NO_ADAPTER),
    "livekit": ("LiveKit Agents", "it speaks, and does not write; give the agent that it asks"),
    "llama_index": ("LlamaIndex", "give an agent, a workflow or a chat engine"),
    "mcp_agent": ("mcp-agent", _NO_ADAPTER),
    "mirascope": ("Mirascope", "give a function that calls it and yields texts"),
    "openai": ("the OpenAI client", "give a function that calls it and yields usechat.adapters.openai.parts"),
    "pocketflow": ("PocketFlow", _NO_ADAPTER),
    "semantic_kernel": ("Semantic Kernel", _NO_ADAPTER),
    "smolagents": ("smolagents", "give an agent"),
    "strands": ("Strands Agents", "give an Agent"),
}
"""Frameworks by the prefix of their modules, and what to give instead of an object that no installed adapter took."""

AgentT = TypeVar("AgentT")
Event = TypeVar("Event")
EventT_contra = TypeVar("EventT_contra", contravariant=True)
Said: TypeAlias = str | Part
OpenSession: TypeAlias = Callable[[Identity], contextlib.AbstractAsyncContextManager[Any]]
"""Opens a session with an MCP server for a person: a ``ClientSession`` or a ``Client`` of ``mcp``."""
Agent: TypeAlias = Callable[[Turn], AsyncIterable[Said] | Iterator[Said] | Awaitable[Any] | Said | None]
"""A function that answers a turn: with texts and parts, one or many, now or later; or with an agent that answers."""


class _Named(Protocol):
    @property
    def name(self) -> Any: ...


class _Runnable(Protocol):
    @property
    def run(self) -> Any: ...


class _Crew(Protocol):
    @property
    def kickoff(self) -> Any: ...


class _ClaudeOptions(Protocol):
    @property
    def system_prompt(self) -> Any: ...


class _A2aClient(Protocol):
    @property
    def send_message(self) -> Any: ...


FrameworkObject: TypeAlias = _Named | _Runnable | _Crew | _ClaudeOptions | _A2aClient
"""An object of a framework, by an attribute that its agents have: type checkers need not know the framework."""


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


Servable: TypeAlias = Agent | Source | ChatTransport | FrameworkObject | Callable[[], Any]
"""Everything that can answer chats, for type checkers; the last is a factory. :func:`as_source` has the last word."""


@runtime_checkable
class HandsOver(Protocol):
    """A source whose running turn takes further messages: instead of a conflict, the new turn continues it."""

    def hand_over(self, turn: Turn) -> None:
        """Let the chat's running turn end well and soon, because ``turn`` waits; do nothing if none runs here."""
        ...


@runtime_checkable
class Reachable(Protocol):
    """A source whose agent runs elsewhere, and which can tell before a turn begins that it would fail."""

    async def require_reachable(self) -> None:
        """Raise :class:`~usechat.errors.AgentUnreachable` if the agent cannot be reached."""
        ...


@runtime_checkable
class HasMcpServers(Protocol):
    """A source whose agent has MCP servers, so that the apps which their tools bring can ask them."""

    def mcp_servers(self) -> Mapping[str, OpenSession]:
        """Return how to open a session with each server, by the name that the calls of its tools have."""
        ...


class Adapter(Protocol[EventT_contra]):
    """Turns the events of one turn into parts. It does no I/O and knows nothing of framing.

    Each turn gets its own adapter, which is called in the event loop, by one task.

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
        self.events = events
        self.adapter = adapter
        self.continues: bool | None = None
        self._agent = agent

    async def drive(self, context: TurnContext) -> None:
        """Feed every event to a new adapter; close the events in this task, however the turn ends."""
        # In one coroutine: every frame between the task and the framework costs at each wake-up.
        with _Answering(self.adapter(), context, self._agent) as answering, context.fed_by(answering.feed):
            events = self.events(context.turn)
            async with _closing(await events if isinstance(events, Awaitable) else events) as iterator:
                async for event in iterator:
                    answering.feed(event)
                    await context.yield_to_loop()


class _Answering(Generic[Event]):
    """Feeds one adapter within a ``with`` statement, closes it, and reports the agent's beginning and end.

    An exception is passed on, unless the adapter made an ending of it: it has reported the failure in its own words.
    """

    def __init__(self, adapter: Adapter[Event], context: TurnContext, agent: AgentInfo | None) -> None:
        self._adapter = adapter
        self._context = context
        self._agent = agent
        self._ending: _Ending | None = None

    def __enter__(self) -> Self:
        if self._agent is not None:
            self._context.agent_invoked(self._agent)
        return self

    def feed(self, event: Event) -> None:
        """Send the parts of an event; count one that the adapter does not know."""
        try:
            self._ending = _send_all(self._adapter.feed(event), self._context) or self._ending
        except UnknownEvent as unknown:
            self._context.event_unknown(unknown.kind)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        try:
            is_reported = self._close(error)
        except BaseException as raised:
            self._report(None, raised)
            raise
        self._report(*((self._ending, None) if error is None or is_reported else (None, error)))
        return is_reported

    def _close(self, error: BaseException | None) -> bool:
        """Close the adapter; return whether it made an ending of an exception."""
        if error is None:
            self._ending = _send_all(self._adapter.close(), self._context) or self._ending
            return False
        if not isinstance(error, (Exception, asyncio.CancelledError)):
            return False  # such as SystemExit: nothing is left to say
        self._ending = _send_all(self._adapter.close(error), self._context)
        return self._ending is not None and isinstance(error, Exception)

    def _report(self, ending: _Ending | None, error: BaseException | None) -> None:
        if self._agent is not None:
            self._context.agent_ended(self._agent, ending, error)


async def parts_of(events: AsyncIterable[Event], adapter: Adapter[Event]) -> AsyncIterator[Part]:
    """Yield the parts of a turn, for an agent that runs its own loop.

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
    - a text or a part is sent; ``None`` sends nothing more;
    - an agent, or an async context manager of one, answers the turn, with ``agent_context`` if somebody gave one.

    Async functions are called in the event loop, all others in a thread, because they may block. They get the turn; a
    function whose argument is called ``config`` makes a graph of LangGraph, and gets the configuration of its thread.

    >>> from usechat.testing import AgentClient
    >>> with AgentClient(FunctionSource(lambda turn: turn.text.upper())) as client:
    ...     client.ask("hi").text
    'HI'
    """

    __slots__ = ("_agent", "_agent_context", "_is_async", "_takes_config", "restartable")

    def __init__(self, agent: Agent, agent_context: Any = None) -> None:
        self._agent = agent
        self._agent_context = agent_context
        self._is_async = is_async(agent)
        self._takes_config = _takes_config(agent)

    async def drive(self, context: TurnContext) -> None:
        """Call the function with the turn, and say what it gives. Iterators are closed in the task that uses them."""
        agent: Callable[[Any], Any] = self._agent
        argument = _langgraph_config(context.turn) if self._takes_config else context.turn
        result = (
            agent(argument)
            if self._is_async
            else await context.threads.run(_call_and_iterate, agent, argument, context)
        )
        while not isinstance(result, AsyncIterable) and inspect.isawaitable(result):
            result = await result
        if isinstance(result, AsyncIterable):
            # Not in a separate coroutine: every frame between the task and the agent costs at each wake-up.
            outlet = context.outlet
            iterator = aiter(result)
            try:
                async for item in iterator:
                    if outlet.write(Text(item) if item.__class__ is str else part_of(item)):
                        await context.pause()
            finally:
                close = getattr(iterator, "aclose", None)
                if close is not None:
                    await close()
        elif isinstance(result, _ITERATED):
            await context.threads.run(_iterate, iter(result), context)
        elif isinstance(result, (str, Part)):
            context.send(part_of(result))
        elif result is not None:
            await self._hand_to(result, context)

    async def _hand_to(self, result: Any, context: TurnContext) -> None:
        """Answer the turn with an agent that the function made for it."""
        source = object_source(result, context=self._agent_context)
        if source is not None:  # some agents are context managers, too
            if context.has_begun_before and continues_after_crash(source) is False:
                raise PublicError(_CANNOT_CONTINUE)
            try:
                await source.drive(context)
            finally:
                if isinstance(source, FactorySource):  # made for this turn
                    await source.close()
        elif isinstance(result, contextlib.AbstractAsyncContextManager):
            async with result as agent:
                await self._hand_to(agent, context)
        else:
            _refuse_framework(result)
            raise LocalProtocolError(
                f"an agent yields or returns texts and parts, or returns another agent, not {type(result).__name__}"
            )


def _takes_config(function: Any) -> bool:
    try:
        return list(inspect.signature(function).parameters) == ["config"]
    except ValueError:  # a builtin without a signature
        return False


def _langgraph_config(turn: Turn) -> dict[str, Any]:
    """Return what LangGraph's own server gives a function that makes a graph: the thread and the user."""
    user = "" if turn.identity is None else turn.identity.subject
    return {"configurable": {"thread_id": thread_id(turn), "langgraph_auth_user_id": user}}


def _call_and_iterate(agent: Callable[[Any], Any], argument: Any, context: TurnContext) -> Any:
    """Call a function in a thread; return what is left to do in the event loop."""
    result = agent(argument)
    if isinstance(result, _ITERATED):
        _iterate(iter(result), context)
        return None
    return result


def _iterate(iterator: Iterator[Any], context: TurnContext) -> None:
    """Send the values of an iterator, in a thread that is never far ahead of the event loop, nor of the readers."""
    try:
        for number, item in enumerate(iterator, 1):
            if context.stopped:
                return
            part = part_of(item)
            context.send(part)
            is_due = not number % _AHEAD or must_commit(part)
            if is_due and not _wait_for_loop(context):
                return
    finally:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()


def _wait_for_loop(context: TurnContext) -> bool:
    """Wait in a thread until the loop has taken what was sent, and paused; return whether the iterator may go on.

    It may not if the turn is stopped. Raises what the pause raises: a call that could not be stored must not run.
    """
    pausing = asyncio.run_coroutine_threadsafe(context.pause(), context.loop)
    while not context.stopped and not pausing.done():
        futures.wait([pausing], _CHECK_SECONDS)
    if not pausing.cancel():
        pausing.result()
    return not context.stopped


def must_commit(part: Part) -> bool:
    """Tell whether a part must be stored before its agent goes on: a call before its tool starts, and its outcome.

    >>> must_commit(ToolCall("c1", "pay", {})), must_commit(ToolResult("c1", "half", preliminary=True))
    (True, False)
    """
    return isinstance(part, _COMMITTED) and not (isinstance(part, ToolResult) and part.preliminary)


def part_of(item: Any) -> Part:
    """Return an item of an agent as a part.

    Raises :class:`~usechat.errors.LocalProtocolError` if the item is neither a text nor a part.
    """
    if isinstance(item, str):
        return Text(item)
    if isinstance(item, Part):
        return item
    raise LocalProtocolError(f"an agent yields texts and parts, not {type(item).__name__}")


class FactorySource:
    """Creates the agent with a factory: a function without arguments, async or not, or an async context manager.

    The factory is called once, by ``open`` or by the first turn, and so is a factory that it returns. A context manager
    is entered and left in one separate task, as cancel scopes demand; ``close`` leaves it.
    """

    def __init__(self, factory: Callable[[], Any], agent_context: Any = None) -> None:
        self._factory = factory
        self._agent_context = agent_context
        self._source: asyncio.Future[Source] | None = None
        self._inner: FactorySource | None = None
        """The source of a factory that the factory has made."""
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.restartable = False
        """Whether what was made may be restarted."""

    async def drive(self, context: TurnContext) -> None:
        """Answer the turn with what the factory made."""
        await (await self.open()).drive(context)

    @property
    def opened(self) -> Source | None:
        """What the factory has made; ``None`` if it has not."""
        future = self._source
        is_made = future is not None and future.done() and future.exception() is None
        return future.result() if future is not None and is_made else None

    async def open(self) -> Source:
        """Call the factory, if that was not done, and return what it made; raise what the factory raises."""
        if self._source is None:
            loop = asyncio.get_running_loop()
            self._source = loop.create_future()
            self._task = loop.create_task(self._keep(self._source), name="usechat factory")
        return await asyncio.shield(self._source)

    async def close(self) -> None:
        """Leave the context manager, after those of a factory that was made in it."""
        if self._inner is not None:
            await self._inner.close()
        if self._task is not None:
            self._closing.set()
            try:
                await self._task
            except Exception:  # what else is open must be closed, too
                _logger.exception("the factory of an agent raised when it was closed")

    async def _keep(self, future: "asyncio.Future[Source]") -> None:
        try:
            with contained():
                await self._make(future)
        except Exception as error:
            if future.done():
                raise
            future.set_exception(error)

    async def _make(self, future: "asyncio.Future[Source]") -> None:
        product = self._factory()
        if inspect.isawaitable(product):
            product = await product
        if not isinstance(product, contextlib.AbstractAsyncContextManager):
            await self._settle(future, product)
            return
        async with product as agent:
            await self._settle(future, agent)
            await self._closing.wait()

    async def _settle(self, future: "asyncio.Future[Source]", agent: Any) -> None:
        self.restartable = is_restartable(agent)
        source = as_source(agent, context=self._agent_context)
        if isinstance(source, FactorySource):
            self._inner = source
            source = await self._inner.open()
            self.restartable = self.restartable or self._inner.restartable
        future.set_result(source)


def is_factory(agent: Any) -> bool:
    """Tell whether this is a function without arguments that returns the agent."""
    if not callable(agent) or _is_generator_function(agent):
        return False
    try:
        return not inspect.signature(agent).parameters
    except ValueError:  # a builtin without a signature
        return False


def _makes_context(function: Any) -> bool:
    """Tell whether a function is a generator function behind ``asynccontextmanager``: its call gives no generator."""
    return getattr(function, "__globals__", None) is vars(contextlib)


def _is_generator_function(agent: Any) -> bool:
    """Tell whether a call gives a generator, also behind a wrapper and in an object that can be called."""
    function = inspect.unwrap(agent, stop=_makes_context)
    calls = function, type(function).__call__
    return any(inspect.isasyncgenfunction(call) or inspect.isgeneratorfunction(call) for call in calls)


def as_source(agent: Any, *, context: Any = None) -> Source:
    """Return the source behind what a user gave: a source, a chat transport, a framework's object or a function.

    A function without arguments is a factory of such a thing (:class:`FactorySource`). ``context`` is what an agent of
    a framework needs per request: a value, a function of the turn, async or not, that returns it, or a class.

    Raises :class:`~usechat.errors.CannotAnswer` for everything else, and says what is accepted.
    """
    context = context_maker(context)
    if isinstance(agent, type):
        source = _framework_source(agent, context)  # some frameworks make an object of a class for each run
        if source is None:
            raise CannotAnswer(f"{agent.__name__} is a class; create an instance and serve that")
        return source
    source = object_source(agent, context=context)
    if source is not None:
        return source
    _refuse_framework(agent)
    if is_factory(agent):
        return FactorySource(agent, context)
    _require_callable(agent)
    if context is not None and _is_generator_function(agent):
        raise CannotAnswer(f"{_name_of(agent)} gets the turn itself; a context is for an agent of a framework")
    return FunctionSource(agent, context)


def context_maker(context: Any) -> Any:
    """Return a context as it is, but a class as a function that makes an object of it for each turn.

    A class may take the turn. Raises :class:`~usechat.errors.CannotAnswer` for one that needs other arguments.

    >>> class Visitor:
    ...     def __init__(self, name):
    ...         self.name = name
    >>> context_maker(Visitor)
    Traceback (most recent call last):
    ...
    usechat.errors.CannotAnswer: the context Visitor is a class that needs name; give a function of the turn that \
makes one: def context(turn): return Visitor(name=…)
    """
    if not isinstance(context, type):
        return context
    required = _required_parameters(context)
    if not required:
        return lambda _turn: context()
    if len(required) > 1 or not _takes_turn(required[0]):
        names = [parameter.name for parameter in required]
        raise CannotAnswer(
            f"the context {context.__name__} is a class that needs {', '.join(names)}; give a function of the turn that"
            f" makes one: def context(turn): return {context.__name__}({', '.join(f'{name}=…' for name in names)})"
        )
    if required[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return lambda turn: context(**{required[0].name: turn})
    return lambda turn: context(turn)  # noqa: PLW0108 (the class itself would be looked at again)


def _required_parameters(function: Any) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a builtin without a signature
        return []
    variable = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return [each for each in parameters if each.default is each.empty and each.kind not in variable]


def _takes_turn(parameter: inspect.Parameter) -> bool:
    annotation = getattr(parameter.annotation, "__name__", str(parameter.annotation))
    return parameter.name == "turn" or annotation.rpartition(".")[2] == "Turn"


def object_source(agent: Any, *, context: Any = None) -> Source | None:
    """Return the source behind a source, a chat transport or a framework's object; ``None`` for everything else.

    Raises :class:`~usechat.errors.CannotAnswer` if there is a context, and nothing that takes one.
    """
    if context is not None and isinstance(agent, (Source, ChatTransport)):
        raise CannotAnswer(f"{type(agent).__name__} takes no context; give it to the source of the agent, in your code")
    if isinstance(agent, Source):
        _require_async(agent.drive, f"{type(agent).__name__}.drive", "the context of the turn")
        return agent
    if isinstance(agent, ChatTransport):
        if not inspect.isasyncgenfunction(agent.send_messages):  # its call gives the chunks, without an await
            _require_async(agent.send_messages, f"{type(agent).__name__}.send_messages", "the request")
        relay = AdapterSource(lambda turn: agent.send_messages(turn.request), ChunkReader)
        relay.continues = False  # the prompt is never sent twice
        return relay
    return _framework_source(agent, context)


def _framework_source(agent: Any, context: Any) -> Source | None:
    """Return the source that the adapter of a framework makes of its object; ``None`` if no adapter knows it."""
    for adapter in adapters_for(agent):
        try:
            make = adapter.load()
            source = make(agent) if context is None else _with_context(make, agent, context)
        except MissingDependency as missing:
            _refuse_release(agent, adapter, missing.name or "")
            continue  # the framework is not here, so this is an object of another package of that name
        if source is not None:
            return cast("Source", source)
    return None


def _refuse_release(agent: Any, adapter: EntryPoint, package: str) -> None:
    """Refuse an object of a framework that is installed in a release which the adapter cannot use."""
    try:
        installed = distribution(package)
    except PackageNotFoundError:
        return
    file = getattr(sys.modules.get(type(agent).__module__), "__file__", None)
    if file is None or not Path(file).is_relative_to(str(installed.locate_file(""))):
        return  # people's own package has the name of the framework's
    requirements = (adapter.dist and adapter.dist.requires) or ()
    needed = next((each.partition(";")[0] for each in requirements if package in each), "another release")
    raise CannotAnswer(f"{package} {installed.version} is installed, and its adapter needs {needed}")


def _with_context(make: Callable[..., Any], agent: Any, context: Any) -> Any:
    if "context" not in inspect.signature(make).parameters:
        raise CannotAnswer(f"the adapter for {type(agent).__name__} takes no context")
    return make(agent, context=context)


def _require_async(method: Callable[..., Any], name: str, argument: str) -> None:
    """Refuse a method that is not async, or that does not take one argument: every turn would fail."""
    if not inspect.iscoroutinefunction(inspect.unwrap(method)):
        raise CannotAnswer(f"{name} must be an async function")
    try:
        inspect.signature(method).bind(None)
    except TypeError:
        raise CannotAnswer(f"{name} must take one argument, {argument}") from None


def adapters_for(agent: Any) -> tuple[EntryPoint, ...]:
    """Return the installed adapters that may know an object, by the modules of its class, their bases and metaclass."""
    return _adapters_for(_modules(agent))


def _modules(agent: Any) -> tuple[str, ...]:
    return tuple(base.__module__ for base in (*type(agent).__mro__, *type(type(agent)).__mro__))


def _refuse_framework(agent: Any) -> None:
    """Refuse an object of a framework that no adapter took. Some of them can be called, but not with a turn."""
    for module in _modules(agent):
        for prefix, (framework, instead) in _NOT_SERVED.items():
            if f"{module}.".startswith(f"{prefix}."):
                name = type(agent).__name__
                raise CannotAnswer(f"this {name} is an object of {framework} that cannot answer a chat; {instead}")


def continues_after_crash(source: Source) -> bool | None:
    """Tell whether an answer of a source can go on after its process died: its attribute ``continues``.

    ``True``: it reports every effect as a call, waits until the call is stored, and goes on from the history.
    ``False``: never, such as a relay, which would send the prompt again. ``None``: nobody knows, so the operator must
    say so.
    """
    return cast("bool | None", getattr(source, "continues", None))


def warn_of_process_memory(source: Source) -> None:
    """Log what a source keeps where other processes do not find it: its attribute ``process_memory``, a sentence.

    Call it at the start, where several processes may answer one chat.
    """
    sentence = getattr(source, "process_memory", None)
    if sentence is not None:
        _logger.warning("%s", sentence)


def warn_of_forgetting(source: Source) -> None:
    """Log what a source forgets unless chats are stored in a database: its attribute ``forgets``, a sentence."""
    sentence = getattr(source, "forgets", None)
    if sentence is not None:
        _logger.warning("%s", sentence)


def rereads_after_crash(source: Source) -> bool:
    """Tell whether a source says the answer of a dead process again, from the beginning of its turn: ``rereads``.

    What the answer was made of is kept elsewhere: nothing is asked again, and no tool runs again.
    """
    return getattr(source, "rereads", False) is True


def restartable(agent: AgentT) -> AgentT:
    """Mark an agent whose turns may be restarted when its process has died. Use it as a decorator or as a function.

    Only `usechat worker` reads the mark. Mark an agent only if answering a turn twice does no harm: it may have called
    tools before its process died. Returns the agent. Raises :class:`~usechat.errors.CannotAnswer` for an object that
    takes no attributes.

    >>> @restartable
    ... async def agent(turn):
    ...     yield f"You said: {turn.text}"
    """
    try:
        cast("Any", agent).restartable = True
    except (AttributeError, TypeError, ValueError):
        name = type(agent).__name__
        raise CannotAnswer(f"cannot set attributes on {name}; wrap it in a function and mark that") from None
    return agent


def is_restartable(agent: Any) -> bool:
    """Tell whether an agent, or what its factory made, was marked with :func:`restartable`."""
    return getattr(agent, "restartable", False) is True


def _name_of(agent: Any) -> str:
    return str(getattr(agent, "__qualname__", type(agent).__name__))


def _require_callable(agent: Any) -> None:
    name = type(agent).__name__
    if inspect.isgenerator(agent) or inspect.isasyncgen(agent) or inspect.iscoroutine(agent):
        raise CannotAnswer(f"this {name} is the result of a call; give the function itself")
    if not callable(agent):
        raise CannotAnswer(
            f"{name} cannot answer a chat; give a function, an async generator function, a ChatTransport,"
            " or an object of a framework whose adapter is installed"
        )
    try:
        inspect.signature(agent).bind(None)
    except TypeError:
        raise CannotAnswer(
            f"{_name_of(agent)} must take one argument, the turn that it answers;"
            " or no argument, if it is a factory that returns the agent"
        ) from None
    except ValueError:
        pass  # a builtin without a signature


@functools.cache  # what is installed is read from disk, which takes milliseconds
def _adapters_for(modules: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the adapters for a class by the modules of it and its bases: nearest class first, longest prefix first."""
    installed = sorted(entry_points(group="usechat.adapters"), key=lambda adapter: -len(adapter.name))
    adapters = [each for module in modules for each in installed if f"{module}.".startswith(f"{each.name}.")]
    return tuple(dict.fromkeys(adapters))
