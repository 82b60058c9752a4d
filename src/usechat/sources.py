"""The seam: something that answers a chat. Everything that answers is a :class:`ChatTransport`."""

import asyncio
import contextvars
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

from usechat.errors import LocalProtocolError
from usechat.protocol.chunks import Chunk
from usechat.protocol.parts import Part, Text
from usechat.protocol.reframing import ChunkReader
from usechat.protocol.request import ChatRequest
from usechat.turn import Turn

__all__ = ["AgentChatTransport", "ChatTransport", "HandsOver", "Source", "as_source"]

_AHEAD: Final = 64
"""How many parts a thread may be ahead of the event loop."""
_LOOK_AGAIN: Final = 0.1

Said: TypeAlias = str | Part
Agent: TypeAlias = Callable[[Turn], AsyncIterator[Said] | Iterator[Said] | Awaitable[Said] | Said]


@runtime_checkable
class ChatTransport(Protocol):
    """The AI SDK's own abstraction. Closing the iterator stops the source before ``aclose`` returns."""

    async def send_messages(self, request: ChatRequest) -> AsyncIterator[Chunk]:
        """Answer a request: the chunks of one message."""
        ...

    async def reconnect_to_stream(self, chat_id: str) -> AsyncIterator[Chunk] | None:
        """Return the answer that is being given, from its start, or nothing."""
        ...


@runtime_checkable
class Source(Protocol):
    """Something that answers in parts; the shape in which runs drive everything."""

    async def drive(self, turn: Turn) -> None:
        """Answer the turn in the calling task: say parts with ``turn.send``; return at the end, raise on failure."""
        ...


@runtime_checkable
class HandsOver(Protocol):
    """A source whose running turn takes further messages: instead of a conflict, the new turn goes on with it."""

    def hand_over(self, turn: Turn) -> None:
        """Let the chat's running turn end well and soon, because ``turn`` waits to go on; nothing if none runs here."""
        ...


class AgentChatTransport:
    """Makes a plain function an agent.

    It may be an async generator of texts and parts, a generator (run in a thread), or a function, async or not, that
    returns one text or part.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def drive(self, turn: Turn) -> None:
        """Run the function; its generator is driven and closed in this task."""
        if inspect.isasyncgenfunction(self._agent):
            said = self._agent(turn)
            say = turn.say
            try:
                async for item in said:
                    if say(Text(item) if item.__class__ is str else part_of(item)):
                        await asyncio.sleep(0)
            finally:
                await said.aclose()
        elif inspect.iscoroutinefunction(self._agent):
            turn.send(part_of(await self._agent(turn)))
        else:
            await _drive_thread(self._agent, turn)


class TransportSource:
    """Drives any chat transport: its chunks are read back into parts, so that they can be framed for any client."""

    def __init__(self, transport: ChatTransport) -> None:
        self._transport = transport

    async def drive(self, turn: Turn) -> None:
        """Pass on what the transport says; the iterator is closed in this task."""
        stream = await self._transport.send_messages(turn.request)
        reader = ChunkReader()
        try:
            async for chunk in stream:
                for part in reader.read(chunk):
                    turn.send(part)
                await turn.breathe()
            for part in reader.close():
                turn.send(part)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()


def as_source(answer: Any) -> Source:
    """Return the source behind what a user gave: a source, a chat transport, a function or a framework's object.

    The entry points of the group ``usechat.adapters`` are named after the top-level package of a framework, and each
    is a function that makes a source of its object, or returns nothing if it is not one that can answer.
    """
    if isinstance(answer, Source):
        return answer
    if isinstance(answer, ChatTransport):
        return TransportSource(answer)
    for adapter in _adapters_of(frozenset(base.__module__.partition(".")[0] for base in type(answer).__mro__)):
        source = adapter.load()(answer)
        if source is not None:
            return cast("Source", source)
    if callable(answer):
        return AgentChatTransport(answer)
    raise LocalProtocolError(
        f"{type(answer).__name__} cannot answer a chat; give an async generator function, a function or a ChatTransport"
    )


@functools.cache  # what is installed is read from disk, which takes milliseconds
def _adapters_of(packages: frozenset[str]) -> tuple[EntryPoint, ...]:
    """Return the adapters of these packages."""
    return tuple(found for found in entry_points(group="usechat.adapters") if found.name in packages)


def part_of(said: Any) -> Part:
    """Return what an agent said as a part."""
    if isinstance(said, str):
        return Text(said)
    if isinstance(said, Part):
        return said
    raise LocalProtocolError(f"an agent says texts and parts, not {type(said).__name__}")


async def _drive_thread(agent: Callable[[Turn], Any], turn: Turn) -> None:
    loop = asyncio.get_running_loop()

    def work() -> None:
        said = agent(turn)
        if not inspect.isgenerator(said):
            turn.send(part_of(said))
            return
        try:
            for number, item in enumerate(said, 1):
                if turn.stopped:
                    return
                turn.send(part_of(item))
                if not number % _AHEAD:
                    _wait_for(loop, turn)
        finally:
            said.close()

    await asyncio.to_thread(contextvars.copy_context().run, work)


def _wait_for(loop: asyncio.AbstractEventLoop, turn: Turn) -> None:
    """Wait in a thread until the loop has taken what was said; not if the turn is stopped."""
    taken = threading.Event()
    loop.call_soon_threadsafe(taken.set)
    while not turn.stopped and not taken.wait(_LOOK_AGAIN):
        pass
