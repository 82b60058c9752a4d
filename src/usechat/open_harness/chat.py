"""One run of a flow, told to one turn after another."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from usechat.errors import PublicError
from usechat.open_harness.events.adapter import OpenHarnessAdapter
from usechat.open_harness.runtime_protocol import Command, Event, Runtime, Snapshot
from usechat.protocol.parts import Abort, Error, Finish, Part
from usechat.turn import Turn, TurnContext

__all__ = [
    "FlowChat",
    "FlowChats",
    "FlowTurns",
]


_logger: Final = logging.getLogger("usechat.open_harness")

STOP_SECONDS: Final = 5.0
"""How long a runtime may take to go once its flow has ended or is to stop; then its task is cancelled."""

ORPHAN_SECONDS: Final = 30.0
"""How long a flow goes on between two turns; the second may never come."""

MAXIMUM_EVENTS_BETWEEN: Final = 10_000


class FlowTurns:
    """Runs a runtime in a task of its own and tells the turn of the moment what it says, event by event.

    Nothing is queued while a turn listens: an event becomes parts where it happens.
    """

    def __init__(self, runtime: Runtime, adapter: OpenHarnessAdapter) -> None:
        self.runtime = runtime
        self._adapter = adapter
        self.is_abandoned = False
        """Whether no turn came for the rest in time."""
        self._task: asyncio.Task[Snapshot] | None = None
        self._has_ended = False
        self._is_left = False
        self._context: TurnContext | None = None
        self._one_at_a_time = asyncio.Lock()
        self._first_context: TurnContext | None = None
        self._between: list[Event | Part] = []
        self._wake = asyncio.Event()
        self._wanted: type[Finish | Abort] | None = None
        self._ending: Finish | Error | None = None
        self._broken: Exception | None = None
        self._message: str | None = None
        self._sent: Command | None = None
        self._orphaned: asyncio.TimerHandle | None = None
        self._leave: Callable[[], None] | None = runtime.on_event(self._hear)

    @property
    def is_over(self) -> bool:
        """Whether the flow says no more."""
        return self._is_left or (self._has_ended if self._task is None else self._task.done())

    def start(self, work: Awaitable[Snapshot]) -> None:
        """Run the flow; without this, somebody else runs it."""
        self._first_context = self._context
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(lambda _task: self._wake.set())

    def end_turn(self, *, stop: bool) -> None:
        """Let the turn that listens end soon: well, while the flow goes on, or with the flow stopped."""
        if self._context is not None:
            self._wanted = Abort if stop else Finish
            self._wake.set()

    def deliver(self, message: str) -> None:
        """Send a message to the node invocation that runs now, or to the next one."""
        self._message = message
        self._try_to_deliver()

    @property
    def is_delivered(self) -> bool:
        """Whether a node has read the message, as far as the runtime can tell."""
        if self._message is not None:
            return False
        return self._sent is None or self._sent not in list(self.runtime.get_snapshot().get("inbox") or ())

    async def tell(
        self, context: TurnContext, *, begin: Callable[[], None] | None = None
    ) -> Finish | Error | Abort | None:
        """Tell the turn what the flow says until it ends, and return the ending, unsaid.

        If another turn wants the flow, this one ends before, without an ending. A cancelled turn stops the flow.
        """
        self.end_turn(stop=False)
        async with self._one_at_a_time:
            try:
                self._listen(context)
                if begin is not None:
                    begin()
                while not (self._wanted or self._ending or self._broken or self.is_over):
                    self._wake.clear()
                    await self._wake.wait()
                return await self._ended(context)
            except BaseException:
                await self.stop()
                raise
            finally:
                self._context, self._wanted = None, None

    async def stop(self) -> None:
        """Stop the flow and wait until it has gone."""
        self._unsubscribe()
        self._cancel_orphan_timer()
        if not self.is_over:
            self.runtime.stop()
            await self._gone()
            self._log_error()

    def _listen(self, context: TurnContext) -> None:
        self._cancel_orphan_timer()
        self._context = context
        if self._adapter.ended:
            for part in self._adapter.take_over():
                context.send(part)
        between, self._between = self._between, []
        for item in between:
            if isinstance(item, Part):
                context.send(item)
            else:
                self._hear(item)
        if self._first_context is not None:
            # The flow's own code speaks for the turn that it was started in, wherever that has gone: usechat.emit.
            self._first_context.connect(context.write)

    def _hear(self, event: Event) -> None:
        """Take an event, where it happens."""
        context = self._context
        if context is None:
            self._keep(event)
            return
        try:
            for part in self._adapter.feed(event):
                self._say(context, part)
            self._has_ended = self._ending is not None
            self._report(context)
            self._take_back(event)
            self._try_to_deliver()
        except Exception as error:  # the runtime swallows what its listeners raise
            self._broken = error
            self._wake.set()

    def _say(self, context: TurnContext, part: Part) -> None:
        if isinstance(part, Finish | Error):
            self._ending = part
            self._wake.set()
        else:
            context.send(part)

    def _keep(self, item: Event | Part) -> None:
        if len(self._between) < MAXIMUM_EVENTS_BETWEEN:
            self._between.append(item)
        else:
            self.runtime.stop()

    def _report(self, context: TurnContext) -> None:
        for notice in self._adapter.take_notices():
            extra = {"chat_id": context.turn.chat_id, "reference": notice.reference}
            if notice.kind == "failure":
                _logger.error(
                    "chat %s: %s; reference %s", context.turn.chat_id, notice.text, notice.reference, extra=extra
                )
            else:
                _logger.warning("chat %s: %s", context.turn.chat_id, notice.text, extra=extra)
                context.event_unknown(notice.event)

    def _try_to_deliver(self) -> None:
        run_id = self._adapter.current_run_id
        if self._message is None or run_id is None:
            return
        self._sent, self._message = {"type": "send", "message": self._message, "runId": run_id}, None
        self.runtime.dispatch(self._sent)

    def _take_back(self, event: Event) -> None:
        """A node has ended without reading the message: the next one may."""
        sent = self._sent
        if sent is not None and _ends(event, sent["runId"]) and not self.is_delivered:
            self._message, self._sent = sent["message"], None

    async def _ended(self, context: TurnContext) -> Finish | Error | Abort | None:
        if self._broken is not None:
            raise self._broken
        if self._ending is None and self._wanted is Abort:
            await self.stop()
            return Abort()
        if self._ending is None and not self.is_over:
            self._hand_over(context)
            return None
        await self._gone()
        self._unsubscribe()
        if self._ending is None:
            self._close(context)
        self._log_error()
        return self._ending

    def _hand_over(self, context: TurnContext) -> None:
        """End the message; its run adds the ending when the turn returns."""
        for part in self._adapter.hand_over():
            context.send(part)
        if self._first_context is not None:
            self._first_context.connect(self._keep)
        self._orphaned = asyncio.get_running_loop().call_later(ORPHAN_SECONDS, self._abandon)

    def _abandon(self) -> None:
        self.is_abandoned = True
        self._unsubscribe()
        if not self.is_over:
            self.runtime.stop()

    def _close(self, context: TurnContext) -> None:
        """Say the ending of a run that told none: by how it stands, or by what it raised."""
        snapshot, error = self._outcome()
        closing = _closing_event(snapshot.get("status")) if error is None else None
        is_told = error is None or (bool(self._adapter.failure) and not isinstance(error, PublicError))
        for part in self._adapter.feed(closing) if closing else self._adapter.close():
            if is_told or not isinstance(part, Error):
                self._say(context, part)
        if error is not None and not is_told:
            raise error

    def _outcome(self) -> tuple[Snapshot, BaseException | None]:
        if self._task is None or not self._task.done() or self._task.cancelled():
            return {"status": "aborted"}, None
        error = self._task.exception()
        return ({} if error else self._task.result()), error

    async def _gone(self) -> None:
        """Wait until the runtime has gone, but not for ever."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=STOP_SECONDS)
            if not self._task.done():
                _logger.warning("a flow did not end in time and was cancelled")
                self._task.cancel()
                await asyncio.wait([self._task], timeout=STOP_SECONDS)
        self._is_left = True

    def _log_error(self) -> None:
        if (error := self._outcome()[1]) is not None:
            _logger.warning("a runtime raised after its flow had told its end", exc_info=error)

    def _unsubscribe(self) -> None:
        if self._leave is not None:
            self._leave()
            self._leave = None

    def _cancel_orphan_timer(self) -> None:
        if self._orphaned is not None:
            self._orphaned.cancel()


def _ends(event: Any, run_id: str) -> bool:
    """Tell whether an event is the end of a node's invocation."""
    is_event = isinstance(event, Mapping) and event.get("type") in ("node:complete", "node:error")
    return bool(is_event and event.get("runId") == run_id)


def _closing_event(status: Any) -> Mapping[str, Any] | None:
    """Return the event that a run which stands like this should have ended with; nothing if it broke off."""
    match status:
        case "paused" | "aborted":
            return {"type": f"flow:{status}"}
        case "running":
            return None
        case _:
            return {"type": "flow:complete", "status": status}


# -- What chats keep between their turns: the flow that runs, or the runtime that is paused.

_Key: TypeAlias = tuple[str, ...]

MAXIMUM: Final = 1_000
IDLE_SECONDS: Final = 3_600.0


class FlowChat:
    """One chat: ``flow`` runs, ``paused`` waits for the next message."""

    def __init__(self) -> None:
        self.flow: FlowTurns | None = None
        self.paused: Runtime | None = None
        self.used = 0.0

    @property
    def is_running(self) -> bool:
        """Whether a flow runs, be it between two turns."""
        return self.flow is not None and not self.flow.is_over

    def holds(self, runtime: Runtime) -> bool:
        """Tell whether this chat uses a runtime."""
        return self.paused is runtime or (self.is_running and self.flow is not None and self.flow.runtime is runtime)


class FlowChats:
    """The chats of one transport. Those that were idle for long are forgotten, the oldest first."""

    def __init__(self, *, maximum: int = MAXIMUM, idle_seconds: float = IDLE_SECONDS) -> None:
        self._maximum = maximum
        self._idle_seconds = idle_seconds
        self._chats: OrderedDict[_Key, FlowChat] = OrderedDict()

    def __len__(self) -> int:
        return len(self._chats)

    def open(self, turn: Turn, now: float) -> FlowChat:
        """Return the chat of a turn; ``now`` is the time in seconds."""
        conversation = self._chats.setdefault(_key(turn), FlowChat())
        conversation.used = now
        self._chats.move_to_end(_key(turn))
        return conversation

    def find(self, turn: Turn) -> FlowChat | None:
        """Return the chat of a turn, if it is known."""
        return self._chats.get(_key(turn))

    def holder(self, runtime: Runtime) -> FlowChat | None:
        """Return the chat that uses a runtime."""
        return next((chat for chat in self._chats.values() if chat.holds(runtime)), None)

    def forget(self, now: float) -> list[Runtime]:
        """Make room; return the paused runtimes that nobody holds any more."""
        let_go: list[Runtime] = []
        for key, conversation in list(self._chats.items()):
            is_idle = now - conversation.used > self._idle_seconds
            if not is_idle and len(self._chats) < self._maximum:
                break
            if not conversation.is_running:
                del self._chats[key]
                let_go += [conversation.paused] if conversation.paused is not None else []
        return let_go


def _key(turn: Turn) -> _Key:
    """Return whose chat it is: ids are chosen by pages, so that two people may have the same."""
    subject = turn.identity.subject if turn.identity is not None else ""
    others = [str(value) for name, value in turn.path_params.items() if name != "chat_id"]
    return (subject, *others, turn.chat_id)
