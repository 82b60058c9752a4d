"""Answers that reach a waiting task from any worker.

A task that waits in a process (:mod:`usechat.pauses.waiting`) is known to that process alone, but the request with the
answer may come to another worker. The process that waits keeps its address in the run store, under the chat's handle.
The other worker takes it and posts the turn there (:class:`~usechat.pauses.states.Mailbox`), once; the process that
waits continues its task and posts the parts back, until the end. The other worker sends them to its page, so the run
belongs to the worker that the page asked, as always.

Messages are pushed: a process that waits for one does nothing meanwhile. The process that answers posts at least once a
second, so that its death is noticed. The page gets an error then, and if no process waits.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from usechat.encoded_turns import decode_json, encode_json, turn_fields, turn_input_of
from usechat.errors import PublicError, StoreUnreachable, StreamFailed
from usechat.ids import new_id
from usechat.pauses.questions import ASKED, PAUSE_IS_GONE, answers_of
from usechat.pauses.states import Mailbox
from usechat.pauses.waiting import WaitingTask
from usechat.protocol import parts
from usechat.protocol.reframing import INCOMPLETE
from usechat.protocol.values import json_value
from usechat.sources import Source
from usechat.turn import Turn, TurnContext

__all__ = ["Forwarding"]

_ALIVE_SECONDS: Final = 1.0
"""How often the process that answers posts, also if it has nothing to say."""
_logger: Final = logging.getLogger("usechat.runs")


class Forwarding:
    """Posts turns to the processes whose tasks wait for them, and answers those that others post here.

    ``take`` returns the task that waits here under a handle, and forgets it. A process that answers may be silent for
    ``patience`` seconds.
    """

    def __init__(self, take: Callable[[str], WaitingTask | None], patience: float) -> None:
        self._take = take
        self._patience = patience
        self._address = new_id()
        self._replies: dict[str, asyncio.Queue[Any]] = {}
        """What comes back for the turns that were posted, by the id of the exchange."""
        self._turns: dict[str, _ForwardedTurn] = {}
        """The turns of other workers, by the id of the exchange."""

    async def announce(self, task: WaitingTask) -> None:
        """Let other workers find a task that waits here."""
        mailbox = task.mailbox
        if mailbox is not None:
            self._listen(mailbox)
            location = [mailbox.worker, self._address, sorted(task.page_calls)]
            await mailbox.keep_state(_address_of(task.handle), encode_json(location))

    def elsewhere(self, source: Source, handle: str) -> Source:
        """Return a source for a turn with answers that no task of this process waits for."""
        return _AnsweredElsewhere(self, source, handle)

    async def forward(self, context: TurnContext, handle: str) -> bool:
        """Answer a turn in the process where a task waits for it; return ``False`` if none does."""
        mailbox = context.states
        if not isinstance(mailbox, Mailbox):
            return False
        state = await mailbox.take_state(_address_of(handle))
        if state is None:
            return False
        worker, address, calls = decode_json(state)
        if answers_of(context.turn).keys().isdisjoint(calls):
            return False
        self._listen(mailbox)
        await self._exchange(context, mailbox, worker, address, handle)
        return True

    async def _exchange(self, context: TurnContext, mailbox: Mailbox, worker: str, address: str, handle: str) -> None:
        exchange = new_id()
        replies = self._replies[exchange] = asyncio.Queue()
        message = {
            "exchange": exchange,
            "handle": handle,
            "turn": _fields_of(context),
            "from": [mailbox.worker, self._address],
        }
        try:
            await mailbox.post(worker, address, encode_json(message))
            failure = PAUSE_IS_GONE
            while not _pass_on(context, await self._next(replies, failure)):
                failure = INCOMPLETE
        except asyncio.CancelledError:
            await mailbox.post(worker, address, encode_json({"exchange": exchange, "stop": True}))
            raise
        finally:
            del self._replies[exchange]

    async def _next(self, replies: "asyncio.Queue[Any]", failure: str) -> Any:
        """Return the next message; raise PublicError with ``failure`` if there is none for too long."""
        try:
            async with asyncio.timeout(self._patience):
                return await replies.get()
        except TimeoutError:
            raise PublicError(failure) from None

    def _listen(self, mailbox: Mailbox) -> None:
        mailbox.receive(self._address, lambda message: self._receive(mailbox, message))

    def _receive(self, mailbox: Mailbox, message: bytes) -> None:
        fields = decode_json(message)
        exchange = fields["exchange"]
        if "turn" in fields:
            turn = self._turns[exchange] = _ForwardedTurn(self._take(fields["handle"]), mailbox, fields)
            turn.posting.add_done_callback(lambda _task: self._turns.pop(exchange))
        elif "stop" in fields:
            if exchange in self._turns:
                self._turns[exchange].stop()
        elif exchange in self._replies:
            self._replies[exchange].put_nowait(fields)


class _AnsweredElsewhere:
    """A source whose turn brings answers: a task of another worker may wait for them, or the source itself."""

    def __init__(self, forwarding: Forwarding, source: Source, handle: str) -> None:
        self._forwarding = forwarding
        self._source = source
        self._handle = handle

    async def drive(self, context: TurnContext) -> None:
        """Answer one turn. Raises PublicError if it answers a question whose task is gone."""
        if await self._forwarding.forward(context, self._handle):
            return
        if _answers_question(context.turn):
            raise PublicError(PAUSE_IS_GONE)
        await self._source.drive(context)


def _answers_question(turn: Turn) -> bool:
    """Tell whether a turn answers a question that only a waiting task asks."""
    return any(output.tool_call_id.startswith(ASKED) for output in turn.tool_outputs)


def _pass_on(context: TurnContext, message: Any) -> bool:
    """Send what a message holds; return whether it is the last one. Raise what ended the turn elsewhere."""
    for name, fields in message["parts"]:
        context.send(getattr(parts, name)(**fields))
    if (failure := message.get("failure")) is not None:
        raise PublicError(failure)
    if (failure := message.get("exception")) is not None:
        raise StreamFailed(f"the worker that answers failed: {failure}")
    return bool(message["is_over"])


class _ForwardedTurn:
    """A turn of another worker: owns the task that waited for it, and posts its parts until the end."""

    def __init__(self, task: WaitingTask | None, mailbox: Mailbox, message: Mapping[str, Any]) -> None:
        self._task = task
        self._mailbox = mailbox
        self._exchange = message["exchange"]
        self._worker, self._address = message["from"]
        self._parts: list[parts.Part] = []
        self._has_news = asyncio.Event()
        self._ending: dict[str, Any] | None = None
        context = TurnContext(turn_input_of(message["turn"]))
        context.connect(self._say)
        if task is None:
            self.task_ended(PublicError(PAUSE_IS_GONE))
        else:
            task.answer(context, self, None)
        self.posting = asyncio.create_task(self._post_all(), name="usechat forwarded parts")

    def stop(self) -> None:
        """Stop the task."""
        if self._task is not None:
            self._task.cancel()

    def task_paused(self) -> None:
        """End the turn: the task waits for the next one."""
        self._end({})

    def task_ended(self, error: BaseException | None) -> None:
        """End the turn as the task ended."""
        self._end(_failure(error))

    def _end(self, failure: dict[str, str]) -> None:
        self._task = None
        self._ending = {"is_over": True, **failure}
        self._has_news.set()

    def _say(self, part: parts.Part) -> None:
        self._parts.append(part)
        self._has_news.set()

    async def _post_all(self) -> None:
        try:
            while self._ending is None:
                self._has_news.clear()
                await self._post(is_over=False)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ALIVE_SECONDS):
                        await self._has_news.wait()
            await self._post(**self._ending)
        except StoreUnreachable:
            self.stop()  # the store has logged it, and the other worker notices the silence

    async def _post(self, **ending: Any) -> None:
        """Post what was said since the last time."""
        listed = [[type(part).__name__, json_value(msgspec.structs.asdict(part))] for part in self._parts]
        self._parts = []
        message = encode_json({"exchange": self._exchange, "parts": listed, **ending})
        await self._mailbox.post(self._worker, self._address, message)


def _failure(error: BaseException | None) -> dict[str, str]:
    if error is None or isinstance(error, asyncio.CancelledError):
        return {}
    if isinstance(error, PublicError):
        return {"failure": str(error)}
    _logger.error("a turn of another worker failed", exc_info=error)
    return {"exception": f"{type(error).__name__}: {error}"}


def _address_of(handle: str) -> str:
    return f"{handle}/address"


def _fields_of(context: TurnContext) -> dict[str, Any]:
    """Return what another process needs to answer a turn. Headers may hold credentials, and stay here."""
    return turn_fields(msgspec.structs.replace(context.turn.input, headers={}))
