"""Flow runs and the turns of a chat that they answer.

A flow run may outlive a turn. While it runs, the user can send another message; that message starts a new turn, and the
run continues in it: it is *handed over*. So the run is not driven by a turn. It has its own task
(:class:`FlowTurns`), and each turn reads its share of the run's events (:class:`FlowTurn`), as the event source and the
adapter of an :class:`~usechat.sources.AdapterSource`:

.. code-block:: text

    runtime ──► queue ──► events() of the turn that reads ──► AdapterSource ──► parts of that turn
                  ▲
       emit() of the flow's own code

- Events and emitted parts share one queue, so their order is kept. What comes between two turns waits in the queue for
  the second. If no second turn comes in time, or too much waits, the flow is stopped.
- A message to a running flow is sent to the node that runs, or to the next one that starts. That is done when an event
  happens, not when it is read: a node that looks into its inbox once, at its start, must find the message there. If a
  node ends without reading the message, the next node gets it. If the flow ends first, the turn is not answered yet,
  and the transport starts another run for it.
- A turn of another worker may show the rest of the run (:mod:`~usechat.open_harness.engine.other_workers`). The run is
  *released* then: the turn here ends as if the run were handed over, and this worker shows no more of the run.
- A flow that waits for a person (``flow:waiting``) ends the turn and runs on; the turn with the answer reads on. It is
  stopped if no answer comes for an hour. Another message denies everything that the flow has asked for.
- A turn ends when the flow has ended and its runtime's task is done, so that the next turn finds a run that has come to
  rest. Stopping a turn stops the flow before the turn ends.

:class:`FlowChats` remembers, per chat, the run that is running or the paused runtime that the next message resumes.
"""

import asyncio
import contextlib
import contextvars
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from usechat import Turn
from usechat.errors import UnknownEvent
from usechat.open_harness.engine.other_workers import Releasable
from usechat.open_harness.events.adapter import OpenHarnessAdapter
from usechat.open_harness.events.dialects import Dialects
from usechat.open_harness.runtime_protocol import Command, Event, Runtime, Snapshot
from usechat.parts import Abort, Error, Finish, Part
from usechat.transports import WAIT_SECONDS, TurnContext

__all__ = [
    "FlowChat",
    "FlowChats",
    "FlowTurn",
    "FlowTurns",
]


_logger: Final = logging.getLogger("usechat.open_harness")

STOP_SECONDS: Final = 5.0
"""How long a runtime may take to end once its flow has ended or was stopped; then its task is cancelled."""

ORPHAN_SECONDS: Final = 30.0
"""How long a flow continues between two turns; the second may never come."""

MAXIMUM_EVENTS_BETWEEN: Final = 10_000

_WITHDRAWN: Final = "no: The user has sent another message instead of an answer."

_ENDINGS: Final = (Finish, Error, Abort)

_released: Final[set["asyncio.Task[Snapshot]"]] = set()
"""The tasks of runs that turns of other workers show: an event loop does not keep its tasks alive."""


class Ready(NamedTuple):
    """Parts that pass the adapter as they are, such as those that the flow's own code emitted."""

    parts: tuple[Part, ...]


Item: TypeAlias = Event | Ready


class FlowTurns:
    """One flow run, in a separate task, whose events are read by one turn after another."""

    def __init__(self, runtime: Runtime, adapter: OpenHarnessAdapter) -> None:
        self.runtime = runtime
        self.adapter = adapter
        self.is_abandoned = False
        """Whether no turn came for the rest in time."""
        self.is_released = False
        """Whether a turn of another worker shows the rest."""
        self._queue: deque[Item] = deque()
        self._wake = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._is_read = False
        self._requested_ending: type[Finish | Abort] | None = None
        self._failure: Exception | None = None
        self._task: asyncio.Task[Snapshot] | None = None
        self._is_left = False
        self._context: TurnContext | None = None
        self._delivery = _Delivery(runtime)
        self._dialects = Dialects()
        self._orphaned: asyncio.TimerHandle | None = None
        self._leave: Callable[[], None] | None = runtime.on_event(self._hear)
        if isinstance(runtime, Releasable):
            runtime.on_release(self._release)

    @property
    def is_over(self) -> bool:
        """Whether no more events will come."""
        return self._is_left or (self._task is not None and self._task.done())

    @property
    def is_delivered(self) -> bool:
        """Whether a node has read the message, as far as the runtime can tell."""
        return self._delivery.is_done

    def start(self, run: Callable[[], Awaitable[Snapshot]], context: TurnContext) -> None:
        """Run the flow in a task. It is not called for a runtime that other code runs.

        The flow's own code writes to a context of the run, not of the turn: it may outlive the turn.
        """

        async def result() -> Snapshot:
            return await run()

        self._context = context.fork(self._emitted)
        variables = contextvars.copy_context()
        variables.run(self._context.enter)
        self._task = asyncio.get_running_loop().create_task(result(), name="usechat flow", context=variables)
        self._task.add_done_callback(lambda _task: self._wake.set())

    def replay(self, events: Iterable[Event]) -> None:
        """Take the events that earlier turns have shown, without showing them again."""
        for event in events:
            if self.adapter.is_waiting:
                self.adapter.take_over(continues=True)
            with contextlib.suppress(UnknownEvent):
                self.adapter.feed(event)
            for each in self._dialects.read(event) or ():
                self._delivery.receive(each)
        self.adapter.take_notices()
        if not self.adapter.is_waiting:
            self.adapter.hand_over()

    def deliver(self, message: str, message_id: str | None = None) -> None:
        """Send a message to the node that runs, or to the next one that starts; deny what the flow has asked for."""
        for question in self._delivery.questions:
            self._delivery.reply(question, _WITHDRAWN)
        self._delivery.deliver(message, message_id)

    def has_asked(self, call_ids: Iterable[str | None]) -> bool:
        """Return whether a node has asked about one of these calls and waits for the answer."""
        return not self._delivery.questions.isdisjoint(call_ids)

    def reply(self, answers: Mapping[str | None, str]) -> None:
        """Send answers to the nodes that have asked, by the ids of the calls."""
        for question in self._delivery.questions & answers.keys():
            self._delivery.reply(str(question), answers[question])

    def end_turn(self, *, stop: bool) -> None:
        """End the turn that reads the events soon, and either stop the flow or let it run for the next turn."""
        if self._is_read:
            self._requested_ending = Abort if stop else Finish
            self._wake.set()

    async def events(self, begin: Callable[[], None] | None, *, continues: bool = False) -> AsyncIterator[Item]:
        """Yield the events of one turn: to the end of the flow, or until another turn wants to read them.

        ``begin`` starts the flow or delivers the message. With ``continues`` the turn goes on with the message of the
        one before. Closing the iterator early stops the flow.
        """
        self.end_turn(stop=False)
        async with self._one_at_a_time:
            self._is_read = True
            self._cancel_orphan_timer()
            try:
                if self.adapter.ended:
                    continues = continues and self.adapter.is_waiting
                    yield Ready(tuple(self.adapter.take_over(continues=continues)))
                if begin is not None:
                    begin()
                while True:
                    while self._queue and not self.adapter.is_waiting:
                        yield self._queue.popleft()
                    if self._requested_ending or self._failure or self.adapter.ended or self.is_over:
                        break
                    self._wake.clear()
                    await self._wake.wait()
                for item in await self._last_items():
                    yield item
            except BaseException:
                await self.stop()
                raise
            finally:
                self._is_read, self._requested_ending = False, None

    async def stop(self) -> None:
        """Stop the flow and wait until its task is done."""
        self._unsubscribe()
        self._cancel_orphan_timer()
        if not self.is_over and not self.is_released:
            self._stop_runtime()
            await self._rest()
            self._log_late_error()

    def _release(self, *, is_gone: bool = False) -> bool:
        """Leave the run to a turn of another worker; with ``is_gone`` that turn has it already.

        Return ``False`` if no turn reads the events here, or its end is near.
        """
        is_ending = not self._is_read or self._requested_ending is not None or self.adapter.ended
        if not is_gone and is_ending and (self._is_read or not self.adapter.is_waiting):
            return False
        self.is_released = True
        self._cancel_orphan_timer()
        self._unsubscribe()
        self.end_turn(stop=False)
        if self._task is not None:
            _released.add(self._task)
            self._task.add_done_callback(_released.discard)
        return True

    def _hear(self, event: Event) -> None:
        """Take an event where it happens. The runtime ignores what its listeners raise, so errors are kept."""
        try:
            events = self._dialects.read(event)
            if events is None:
                self._put(event)  # the adapter says why it is unknown
                return
            for each in events:
                self._put(each)
                self._delivery.receive(each)
        except Exception as error:
            self._failure = error
            self._wake.set()

    def _emitted(self, part: Part) -> None:
        self._put(Ready((part,)))

    def _put(self, item: Item) -> None:
        if self._is_read or len(self._queue) < MAXIMUM_EVENTS_BETWEEN:
            self._queue.append(item)
            if len(self._queue) == 1:  # a turn waits only while the queue is empty
                self._wake.set()
        else:
            self._stop_runtime()

    async def _last_items(self) -> Iterable[Item]:
        """Return what ends the turn. A flow that continues is handed over; the run of the turn adds the ending then."""
        if self._failure is not None:
            raise self._failure
        if not self.adapter.ended and self._requested_ending is Abort:
            await self.stop()
            return [Ready((*self.adapter.close(asyncio.CancelledError()), Abort()))]
        if self.is_released:
            return [Ready(tuple(self.adapter.hand_over()))]
        if self.adapter.is_waiting and not self.is_over:
            self._orphaned = asyncio.get_running_loop().call_later(WAIT_SECONDS, self._abandon)
            return []
        if not self.adapter.ended and not self.is_over:
            self._orphaned = asyncio.get_running_loop().call_later(ORPHAN_SECONDS, self._abandon)
            return [Ready(tuple(self.adapter.hand_over()))]
        await self._rest()
        self._unsubscribe()
        rest, self._queue = self._queue, deque()
        return [*rest, *self._missing_end()]

    def _missing_end(self) -> list[Event]:
        """Return the event that the runtime should have ended with, by its status; raise what its task raised."""
        snapshot, error = self._outcome()
        if error is not None and (self.adapter.ended or self.adapter.failure):
            self._log_late_error()
        if self.adapter.ended:
            return []
        if error is not None:
            raise error
        closing = _closing_event(snapshot.get("status"))
        return [] if closing is None else [closing]

    def _abandon(self) -> None:
        self.is_abandoned = True
        self._unsubscribe()
        if not self.is_over:
            self._stop_runtime()

    def _stop_runtime(self) -> None:
        if self._context is not None:
            self._context.stop()
        self.runtime.stop()

    def _outcome(self) -> tuple[Snapshot, BaseException | None]:
        if self._task is None or not self._task.done() or self._task.cancelled():
            return {"status": "aborted"}, None
        error = self._task.exception()
        return ({} if error else self._task.result()), error

    async def _rest(self) -> None:
        """Wait until the runtime's task is done; cancel it if that takes too long."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=STOP_SECONDS)
            if not self._task.done():
                _logger.warning("a flow did not end in time and was cancelled")
                self._task.cancel()
                await asyncio.wait([self._task], timeout=STOP_SECONDS)
        self._is_left = True

    def _log_late_error(self) -> None:
        if (error := self._outcome()[1]) is not None:
            _logger.warning("a runtime raised after its flow had ended or failed", exc_info=error)

    def _unsubscribe(self) -> None:
        if self._leave is not None:
            self._leave()
            self._leave = None
        if self._context is not None:
            self._context.disconnect(self._emitted)

    def _cancel_orphan_timer(self) -> None:
        if self._orphaned is not None:
            self._orphaned.cancel()


def _closing_event(status: Any) -> Event | None:
    """Return the event that ends a run with this status; ``None`` if the run has none."""
    match status:
        case "paused" | "aborted":
            return {"type": f"flow:{status}"}
        case "running":
            return None
        case _:
            return {"type": "flow:complete", "status": status}


class FlowTurn:
    """One turn's share of a flow run: the events that it reads, and the adapter that turns them into parts.

    The ending is kept back until the events are over. If the flow finished without reading the turn's message,
    ``is_answered`` is false and there is no ending: another run has to answer.
    """

    def __init__(self, flow: FlowTurns, context: TurnContext, begin: Callable[[], None] | None) -> None:
        self.is_answered = True
        self._flow = flow
        self._context = context
        self._begin = begin
        self._ending: Part | None = None

    def events(self, turn: Turn) -> AsyncIterator[Item]:
        """Return the events of the turn."""
        return self._flow.events(self._begin, continues=turn.request.continues is not None)

    def feed(self, item: Item) -> list[Part]:
        """Return the parts of an event, without the ending."""
        if isinstance(item, Ready):
            return self._without_ending(list(item.parts))
        adapter = self._flow.adapter
        try:
            parts = adapter.feed(item)
        finally:
            if adapter.notices:
                self._log_notices()
        return self._without_ending(parts) if adapter.ended else parts

    def close(self, error: BaseException | None = None) -> list[Part]:
        """Return the ending; after an error, what the adapter closes with."""
        if error is not None:
            return self._flow.adapter.close(error)
        parts = self._without_ending(self._flow.adapter.close())
        if self._flow.is_over and isinstance(self._ending, Finish) and not self._flow.is_delivered:
            self.is_answered = False
        elif self._ending is not None:
            parts.append(self._ending)
        return parts

    def _without_ending(self, parts: list[Part]) -> list[Part]:
        if parts and isinstance(parts[-1], _ENDINGS):
            self._ending = parts.pop()
        return parts

    def _log_notices(self) -> None:
        for notice in self._flow.adapter.take_notices():
            chat_id = self._context.turn.chat_id
            extra = {"chat_id": chat_id, "reference": notice.reference}
            if notice.kind == "failure":
                _logger.error("chat %s: %s; reference %s", chat_id, notice.text, notice.reference, extra=extra)
            else:
                _logger.warning("chat %s: %s", chat_id, notice.text, extra=extra)
            if notice.kind == "nameless-tool":  # unknown events are counted by the source that feeds them
                self._context.event_unknown(notice.event)


# Messages to a running flow

_FLOW_ENDS: Final = ("flow:complete", "flow:paused", "flow:aborted")
_NODE_ENDS: Final = ("node:complete", "node:error")
_SPEAKS: Final = (
    "agent:text:delta",
    "agent:thinking:delta",
    "agent:text",
    "agent:thinking",
    "agent:tool",
    "agent:start",
    "agent:error",
    "node:start",
)


class _Delivery:
    """Delivers the message of a turn to the node invocation that spoke last, or to the next one that starts.

    Answers are delivered to the invocations that have asked.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._running: dict[str, None] = {}  # run ids of invocations; the one that spoke last is at the end
        self._message: dict[str, str] | None = None
        self._command: Command | None = None
        self._asked_by: dict[str, str] = {}

    @property
    def questions(self) -> set[str | None]:
        """The ids of the calls that nodes have asked about."""
        return set(self._asked_by)

    def reply(self, question: str | None, content: str) -> None:
        """Send an answer."""
        run_id = self._asked_by.pop(str(question))
        self._runtime.dispatch({"type": "reply", "promptId": question, "content": content, "runId": run_id})

    @property
    def is_done(self) -> bool:
        """Whether a node has read the message, as far as the runtime can tell."""
        if self._message is not None:
            return False
        return self._command is None or self._command not in list(self._runtime.get_snapshot().get("inbox") or ())

    def deliver(self, message: str, message_id: str | None) -> None:
        """Send a message now, or as soon as a node runs."""
        # The commands of Open Harness have no id.
        is_named = message_id is not None and getattr(self._runtime, "takes_message_ids", False)
        self._message = {"message": message, **({"messageId": str(message_id)} if is_named else {})}
        self._send()

    def receive(self, event: Event) -> None:
        """Follow which nodes run."""
        kind, run_id = event["type"], event.get("runId")
        if kind in _FLOW_ENDS:
            self._running.clear()
            self._asked_by.clear()
        elif kind == "input:requested" and "toolCallId" in event:
            self._asked_by[event["id"]] = str(run_id)
        elif kind == "input:received":
            self._asked_by.pop(str(event.get("id")), None)
        elif not isinstance(run_id, str):
            return
        elif kind in _NODE_ENDS:
            self._running.pop(run_id, None)
            self._asked_by = {call_id: asker for call_id, asker in self._asked_by.items() if asker != run_id}
            self._take_back(run_id)
        elif kind in _SPEAKS and (not self._running or next(reversed(self._running)) != run_id):
            self._running.pop(run_id, None)
            self._running[run_id] = None
        self._send()

    def _take_back(self, run_id: str) -> None:
        """Keep the message for the next node, if this one has ended without reading it."""
        command = self._command
        if command is not None and command["runId"] == run_id and not self.is_done:
            self._message = {key: command[key] for key in ("message", "messageId") if key in command}
            self._command = None

    def _send(self) -> None:
        if self._message is not None and self._running:
            run_id = next(reversed(self._running))
            self._command, self._message = {"type": "send", **self._message, "runId": run_id}, None
            self._runtime.dispatch(self._command)


# What chats keep between their turns

_Key: TypeAlias = tuple[str, ...]

MAXIMUM: Final = 1_000
IDLE_SECONDS: Final = 3_600.0


class FlowChat:
    """One chat: the flow run that is running, or the paused runtime that the next message resumes."""

    def __init__(self) -> None:
        self.flow: FlowTurns | None = None
        self.paused: Runtime | None = None
        self.used = 0.0

    @property
    def is_running(self) -> bool:
        """Whether a flow runs, even between two turns."""
        return self.flow is not None and not self.flow.is_over

    def holds(self, runtime: Runtime) -> bool:
        """Return whether this chat uses a runtime."""
        return self.paused is runtime or (self.is_running and self.flow is not None and self.flow.runtime is runtime)


class FlowChats:
    """The chats of one transport. Idle chats are forgotten, the oldest first."""

    def __init__(self, *, maximum: int = MAXIMUM, idle_seconds: float = IDLE_SECONDS) -> None:
        self._maximum = maximum
        self._idle_seconds = idle_seconds
        self._chats: OrderedDict[_Key, FlowChat] = OrderedDict()

    def __len__(self) -> int:
        return len(self._chats)

    def open(self, turn: Turn, now: float) -> FlowChat:
        """Return the chat of a turn; ``now`` is the time in seconds."""
        chat = self._chats.setdefault(_key(turn), FlowChat())
        chat.used = now
        self._chats.move_to_end(_key(turn))
        return chat

    def find(self, turn: Turn) -> FlowChat | None:
        """Return the chat of a turn, if it is known."""
        return self._chats.get(_key(turn))

    def holder(self, runtime: Runtime) -> FlowChat | None:
        """Return the chat that uses a runtime."""
        return next((chat for chat in self._chats.values() if chat.holds(runtime)), None)

    def forget(self, now: float) -> list[Runtime]:
        """Forget idle chats and those over the maximum; return their paused runtimes."""
        released: list[Runtime] = []
        for key, chat in list(self._chats.items()):
            is_idle = now - chat.used > self._idle_seconds
            if not is_idle and len(self._chats) < self._maximum:
                break
            if not chat.is_running:
                del self._chats[key]
                released += [chat.paused] if chat.paused is not None else []
        return released


def _key(turn: Turn) -> _Key:
    """Return the key of a chat. Clients choose chat ids, so two people may use the same id."""
    subject = turn.identity.subject if turn.identity is not None else ""
    others = [str(value) for name, value in turn.path_params.items() if name != "chat_id"]
    return (subject, *others, turn.chat_id)
