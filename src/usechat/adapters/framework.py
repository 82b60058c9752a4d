"""What the sources of several frameworks share: one method for the events of a turn, and one adapter for them.

The adapters that stand on this module read events by the names of their fields and import no framework, so that events
that were recorded elsewhere can be replayed where the framework is not installed. Only the sources import it, on use.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import cached_property, partial
from importlib import import_module
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from usechat.adapters import conversation
from usechat.adapters.questions import AskingTurns
from usechat.errors import MissingDependency
from usechat.forwarded_turns import ForwardedTurns
from usechat.protocol.model_messages import ModelMessage
from usechat.sources import Adapter, AdapterSource
from usechat.turn import AgentInfo, Turn, TurnContext
from usechat.waiting_tasks import WaitingTask, WaitingTasks

__all__ = [
    "NO_OPTIONS",
    "FrameworkSource",
    "Options",
    "WaitingSource",
    "emitted",
    "imported",
    "kept_count",
    "options_of",
    "question_id",
    "without_results",
]

Options: TypeAlias = Mapping[str, Any] | Callable[[Turn], Mapping[str, Any]]
"""Further arguments of a framework's run: the same for each turn, or made from it."""
NO_OPTIONS: Final[Mapping[str, Any]] = {}

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
    """Answers turns with the events of a framework; a subclass provides the events and the adapter."""

    adapter: AdapterClass[Event]
    info: AgentInfo
    """Names the agent for spans and metrics."""

    @abstractmethod
    def events(self, turn: Turn) -> AsyncIterator[Event]:
        """Run the framework on a turn, and return its events. Closing the iterator stops the run."""

    @cached_property
    def _asking(self) -> AskingTurns:
        return AskingTurns(self._answer_turn, self.info.framework)

    async def drive(self, context: TurnContext) -> None:
        """Answer one turn; code that the agent calls may ask the page meanwhile."""
        await self._asking.drive(context)

    async def _answer_turn(self, context: TurnContext) -> None:
        turn = context.turn
        adapter = self.adapter(known_calls=conversation.calls_of(turn), denied=conversation.denials(turn))
        await AdapterSource(self.events, lambda: adapter, agent=self.info).drive(context)


class WaitingSource(FrameworkSource[Event]):
    """Answers turns with a framework whose runs wait for a person in their process (:mod:`usechat.waiting_tasks`).

    A subclass provides the run and the adapter. A run waits for an answer for ``wait_seconds``.
    """

    def __init__(self, *, wait_seconds: float) -> None:
        self._tasks: WaitingTasks[Event] = WaitingTasks(seconds=wait_seconds)
        self._forwarded = ForwardedTurns(super()._answer_turn, self._tasks.is_waiting)

    @abstractmethod
    def run(self, turn: Turn, task: WaitingTask[Event]) -> AsyncGenerator[Event]:
        """Run the framework on a turn, and return its events; ``task`` asks the page. Closing it stops the run."""

    def events(self, turn: Turn) -> AsyncGenerator[Event]:
        """Start a run on the turn, or read on from the run that waits for the turn's answers."""
        return self._tasks.events(turn, self._handle(turn), partial(self.run, turn))

    async def _answer_turn(self, context: TurnContext) -> None:
        """Answer one turn, in the process that waits for it."""
        await self._forwarded.drive(context, self._handle(context.turn))

    def _handle(self, turn: Turn) -> str:
        return conversation.state_handle(turn, self.info.framework)


def imported(module: str, package: str, extra: str) -> Any:
    """Import a module of a framework; raise MissingDependency, which names the extra, if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise MissingDependency(package, extra) from None


def options_of(options: Options, turn: Turn) -> dict[str, Any]:
    """Return the options of one turn."""
    return dict(options(turn) if callable(options) else options)


def question_id(turn: Turn) -> str:
    """Return the id of the user message that a turn answers."""
    return next((message["id"] for message in reversed(turn.messages) if message["role"] == "user"), "")


def kept_count(answered: Sequence[str], turn: Turn) -> int:
    """Return how many entries of a framework's memory stay; what was regenerated or edited away begins behind them.

    ``answered`` names, entry by entry, the user message that it answers; entries of others have an empty name. A page
    that sends the last message alone removes nothing.
    """
    users = [message["id"] for message in turn.messages if message["role"] == "user"]
    if users and users[-1] in answered:
        return answered.index(users[-1])
    if len(users) > 1 and users[-2] in answered:
        later = range(len(answered) - answered[::-1].index(users[-2]), len(answered))
        return next((at for at in later if answered[at]), len(answered))
    return len(answered)


def without_results(messages: Iterable[ModelMessage], calls: Collection[str | None]) -> Iterator[ModelMessage]:
    """Yield the messages without the results of these calls. A repaired history has one for each call, run or not."""
    for message in messages:
        if message["role"] != "tool":
            yield message
            continue
        kept = [part for part in message["content"] if part["type"] != "tool-result" or part["toolCallId"] not in calls]
        if kept:
            yield {"role": "tool", "content": kept}


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
