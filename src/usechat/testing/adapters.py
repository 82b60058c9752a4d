"""What every adapter keeps, driven as runs drive it: in a real run, into real frames.

:func:`check_adapter` asks an agent once and writes down its events. Then it replays them to new adapters: whole, cut
off, followed by a failure, followed by a silence that the user stops. So one agent that answers is enough.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from usechat.parts import Abort, Error, Finish, Part, Text
from usechat.protocol import chunks
from usechat.protocol.message import MessageBuilder
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import ChunkDecoder
from usechat.runs.log import Log
from usechat.runs.run import PreparedRun, Run, RunInfo, RunState
from usechat.runs.settings import Settings
from usechat.server.observers.observer import Observer
from usechat.sources import AdapterSource
from usechat.turn import Turn, TurnContext, TurnInput

__all__ = ["check_adapter"]

_SECRET: Final = "postgres://admin:hunter2@db"
_PATIENCE: Final = 30.0


def check_adapter(
    source_of: Callable[[Any], AdapterSource[Any] | None],
    *,
    agents: Sequence[Any],
    unknown: Any = None,
    text: str = "Hello",
) -> None:
    """Check what every adapter must keep; raise ``AssertionError`` with the rule that is broken.

    ``source_of`` is the entry point of the adapter. Each of ``agents`` must answer ``text`` with two or more pieces of
    text. ``unknown`` is an event that the adapter cannot know; without one, that rule is not checked.

    >>> from usechat import AdapterSource
    >>> from usechat.parts import Error, Finish, Text
    >>> async def events(turn):
    ...     for word in ("Good ", "morning.", None):
    ...         yield word
    >>> class Words:
    ...     is_done = False
    ...     def feed(self, event):
    ...         self.is_done = event is None
    ...         return [Finish("stop")] if self.is_done else [Text(event)]
    ...     def close(self, error=None):
    ...         return [] if self.is_done or error else [Error("The answer ended before it was complete.")]
    >>> def source_of(agent):
    ...     return AdapterSource(agent, Words) if callable(agent) else None
    >>> check_adapter(source_of, agents=[events])
    """
    assert agents, "name at least one agent"
    for agent in agents:
        source = source_of(agent)
        assert source is not None, f"source_of returns nothing for {agent!r}"
        asyncio.run(_check(source, unknown, text))
    assert source_of(object()) is None, "source_of must return None for an object that is not of the framework"


async def _check(source: AdapterSource[Any], unknown: Any, text: str) -> None:
    events = await _events_of(source, text)
    case = _Case(source, events, text)
    case.check_parts()
    words = case.words()
    assert len(words) > 1, f"the agent must answer with two or more pieces of text, not with {words}"
    await case.check_whole(words)
    await case.check_failure()
    await case.check_cut(words)
    await case.check_stop(words)
    await case.check_two_turns(words)
    if unknown is not None:
        await case.check_unknown(words, unknown)


async def _events_of(source: AdapterSource[Any], text: str) -> list[Any]:
    events = source.events(_context(text).turn)
    return [event async for event in (await events if isinstance(events, Awaitable) else events)]


def _context(text: str, observer: Observer | None = None) -> TurnContext:
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}
    turn_input = TurnInput(ChatRequest.parse({"id": "c1", "messages": [message]}))
    return TurnContext(turn_input, observer=observer or Observer())


class _Case(msgspec.Struct, frozen=True):
    """The events of a whole turn, and the rules."""

    source: AdapterSource[Any]
    events: Sequence[Any]
    text: str

    def said(self) -> list[Part]:
        """Return the parts of the whole turn."""
        adapter = self.source.adapter()
        return [part for event in self.events for part in adapter.feed(event)] + list(adapter.close())

    def words(self) -> list[str]:
        """Return the pieces of text."""
        return [part.text for part in self.said() if isinstance(part, Text) and part.text]

    def cut(self) -> Sequence[Any]:
        """Return the events up to and with the second piece of text."""
        adapter, count = self.source.adapter(), 0
        for number, event in enumerate(self.events, start=1):
            count += len([part for part in adapter.feed(event) if isinstance(part, Text) and part.text])
            if count > 1:
                return self.events[:number]
        raise AssertionError("the events have less than two pieces of text")

    def answer(self, upstream: "_Upstream") -> "_Trial":
        """Start a turn with these events."""
        return _Trial(self, upstream)

    def check_parts(self) -> None:
        """What it says are parts, and nothing is said after the end."""
        said: list[Any] = list(self.said())
        strange = [each for each in said if not isinstance(each, Part)]
        assert strange == [], f"an adapter yields parts, not {strange}"
        endings = [part for part in said if isinstance(part, Finish | Error | Abort)]
        assert endings in ([], said[-1:]), f"nothing may follow an ending: {said}"
        assert all(isinstance(ending, Finish) for ending in endings), f"a whole turn ends well, not with {endings}"

    async def check_whole(self, words: Sequence[str]) -> None:
        """Texts keep their order, and the turn ends well."""
        answer = await self.answer(upstream := _Upstream(self.events)).over()
        assert answer.text == "".join(words), f"the page shows {answer.text!r}"
        assert (answer.state, answer.endings()) == (RunState.FINISHED, ["FinishChunk"]), "a whole turn ends well, once"
        assert answer.observer.unknown == [], (
            f"the agent sends events that the adapter does not know: {answer.observer.unknown}"
        )
        assert upstream.closed == 1, "the events are closed once"

    async def check_failure(self) -> None:
        """A failure ends the stream once, and leaks nothing."""
        answer = await self.answer(_Upstream(self.cut(), error=ConnectionError(_SECRET))).over()
        assert answer.state is RunState.FAILED, "an exception of the events fails the turn"
        assert answer.endings() == ["ErrorChunk", "FinishChunk"], "a failure ends the stream once"
        assert _SECRET.encode() not in answer.frames, "the text of an exception reaches the page"

    async def check_cut(self, words: Sequence[str]) -> None:
        """A stream that breaks off is never a good end."""
        answer = await self.answer(_Upstream(self.cut())).over()
        assert answer.state is RunState.FAILED, "events that break off must end with an Error: yield it in close()"
        assert answer.endings() == ["ErrorChunk", "FinishChunk"], "a failure ends the stream once"
        assert answer.text == "".join(words[:2]), "what was said before the end is kept"

    async def check_stop(self, words: Sequence[str]) -> None:
        """A stop closes the events in the task that read them."""
        answer = self.answer(upstream := _Upstream(self.cut(), waits=True))
        async with asyncio.timeout(_PATIENCE):
            while answer.text != "".join(words[:2]):  # noqa: ASYNC110 (it looks at frames)
                await asyncio.sleep(0)
        answer.run.stop()
        await answer.over()
        assert (answer.state, answer.endings()) == (RunState.STOPPED, ["AbortChunk", "FinishChunk"]), "a stop is a stop"
        assert upstream.closed == 1, "a stop closes the events once"
        assert upstream.task is not None, "a stop closes the events in a task"
        assert upstream.task.get_name() == "usechat run", "a stop closes the events in the task that reads them"

    async def check_two_turns(self, words: Sequence[str]) -> None:
        """Two turns share nothing."""
        answers = [self.answer(_Upstream(self.events)) for _ in range(2)]
        texts = [(await answer.over()).text for answer in answers]
        assert texts == ["".join(words)] * 2, f"two turns at once share something: {texts}"

    async def check_unknown(self, words: Sequence[str], unknown: Any) -> None:
        """An unknown event is counted and skipped."""
        head = self.cut()
        answer = await self.answer(_Upstream([*head, unknown, *self.events[len(head) :]])).over()
        assert len(answer.observer.unknown) == 1, "raise UnknownEvent(kind) for an event that you do not know"
        assert (answer.text, answer.state) == ("".join(words), RunState.FINISHED), "an unknown event changes nothing"


class _Upstream:
    """The events of one turn; it knows whether it was closed."""

    def __init__(self, events: Sequence[Any], *, error: Exception | None = None, waits: bool = False) -> None:
        self._events = events
        self._error = error
        self._waits = waits
        self.closed = 0
        self.task: asyncio.Task[Any] | None = None

    async def stream(self, _turn: Turn) -> AsyncIterator[Any]:
        """Yield the events, then fail or wait."""
        try:
            for each in self._events:
                await asyncio.sleep(0)
                yield each
            if self._error is not None:
                raise self._error
            if self._waits:
                await asyncio.Event().wait()
        finally:
            self.closed += 1
            self.task = asyncio.current_task()


class _Observer(Observer):
    """Counts the events that are not known."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def event_unknown(self, kind: str) -> None:
        """Write the kind down."""
        self.unknown.append(kind)


class _Trial:
    """One run of an adapter."""

    def __init__(self, case: _Case, upstream: _Upstream) -> None:
        self.observer = _Observer()
        self._ends: list[Run] = []
        self.run = Run(
            PreparedRun(RunInfo("r1", "c1", "m1", "7"), _context(case.text, self.observer)),
            Log(),
            Settings(on_error=lambda _error: "Reference: 1234"),
            on_end=self._ends.append,
        )
        self.run.start(AdapterSource(upstream.stream, case.source.adapter))

    async def over(self) -> "_Trial":
        """Wait for the end."""
        await self.run.wait(_PATIENCE)
        assert len(self._ends) == 1, "a turn ends once"
        return self

    @property
    def state(self) -> RunState:
        """How it ended."""
        return self.run.info.state

    @property
    def frames(self) -> bytes:
        """What the page got."""
        return self.run.log.so_far()

    @property
    def text(self) -> str:
        """What the page shows, up to an error."""
        builder = MessageBuilder(sdk="7")
        received = ChunkDecoder().receive(self.frames)
        for chunk in itertools.takewhile(lambda each: not isinstance(each, chunks.ErrorChunk), received):
            builder.receive(chunk)
        message: Any = builder.message
        return "".join(part["text"] for part in message["parts"] if part["type"] == "text")

    def endings(self) -> list[str]:
        """Return the names of the chunks that end a message."""
        kinds = (chunks.ErrorChunk, chunks.AbortChunk, chunks.FinishChunk)
        return [type(chunk).__name__ for chunk in ChunkDecoder().receive(self.frames) if isinstance(chunk, kinds)]
