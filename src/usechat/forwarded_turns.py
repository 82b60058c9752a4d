"""Answers that reach a waiting task from any worker.

A task that waits in a process (:mod:`usechat.waiting_tasks`) is known to that process alone, but the request with the
answer may come to another worker. The process that waits keeps its address in the run store, under the chat's handle.
The other worker takes it and posts the turn there (:class:`~usechat.paused_states.Mailbox`); the process that waits
answers it and posts the parts back, until the end. The other worker sends them to its page, so the run belongs to the
worker that the page asked, as always.

Messages are pushed: a process that waits for one does nothing meanwhile. The process that answers posts at least once a
second, so that its death is noticed. The page gets an error then, and if no process waits.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from usechat.encoded_turns import decode_json, encode_json, identity_of, request_of, turn_fields
from usechat.errors import PublicError, StoreUnreachable, StreamFailed
from usechat.ids import new_id
from usechat.paused_states import Mailbox
from usechat.protocol import parts
from usechat.protocol.values import json_value
from usechat.turn import Turn, TurnContext
from usechat.waiting_tasks import PAUSE_IS_GONE, has_answers

__all__ = ["ForwardedTurns"]

_ALIVE_SECONDS: Final = 1.0
"""How often the process that answers posts, also if it has nothing to say."""
_PATIENCE: Final = 5.0
"""How long the other worker waits for the next message."""
_SILENT: Final = "The answer ended before it was complete."
_logger: Final = logging.getLogger("usechat.runs")


class ForwardedTurns:
    """Drives the turns of a source whose tasks may wait in another worker.

    ``drive`` answers a turn in this process; ``is_waiting`` tells whether a task waits here under a handle, and
    ``is_answer`` whether a turn answers what such tasks ask.
    """

    def __init__(
        self,
        drive: Callable[[TurnContext], Awaitable[None]],
        is_waiting: Callable[[str], bool],
        *,
        is_answer: Callable[[Turn], bool] = has_answers,
        patience: float = _PATIENCE,
    ) -> None:
        self._drive = drive
        self._is_answer = is_answer
        self._is_waiting = is_waiting
        self._patience = patience
        self._address = new_id()
        self._replies: dict[str, asyncio.Queue[Any]] = {}
        """What comes back for the turns that were posted, by the id of the exchange."""
        self._answering: dict[str, _Answering] = {}
        """The turns of other workers, by the id of the exchange."""

    async def drive(self, context: TurnContext, handle: str) -> None:
        """Answer a turn here, or in the process where a task waits for it.

        Raises :class:`~usechat.errors.PublicError` if the task is gone.
        """
        turn, states = context.turn, context.states
        if not isinstance(states, Mailbox):
            await self._drive(context)
            return
        states.receive(self._address, lambda message: self._receive(states, message))
        if self._is_answer(turn) and not self._is_waiting(handle):
            await self._forward(context, states, handle)
            return
        await self._drive(context)
        await self._keep_address(states, handle)

    async def _drive_other(self, context: TurnContext, handle: str) -> None:
        """Answer a turn of another worker here."""
        context.enter()
        await self._drive(context)
        await self._keep_address(context.states, handle)

    async def _keep_address(self, states: Any, handle: str) -> None:
        """Let other workers find the task, if one waits."""
        if self._is_waiting(handle):
            await states.keep_state(_address_of(handle), encode_json([states.worker, self._address]))

    def _receive(self, states: Mailbox, message: bytes) -> None:
        found = decode_json(message)
        exchange = found["exchange"]
        if "turn" in found:
            answering = self._answering[exchange] = _Answering(self._drive_other, states, found)
            answering.task.add_done_callback(lambda _task: self._answering.pop(exchange))
        elif "stop" in found:
            if exchange in self._answering:
                self._answering[exchange].stop()
        elif exchange in self._replies:
            self._replies[exchange].put_nowait(found)

    # The worker that the page asked.

    async def _forward(self, context: TurnContext, states: Mailbox, handle: str) -> None:
        kept = await states.take_state(_address_of(handle))
        if kept is None:
            raise PublicError(PAUSE_IS_GONE)
        worker, address = decode_json(kept)
        exchange = new_id()
        replies = self._replies[exchange] = asyncio.Queue()
        message = {
            "exchange": exchange,
            "handle": handle,
            "turn": _asked(context),
            "from": [states.worker, self._address],
        }
        try:
            await states.post(worker, address, encode_json(message))
            failure = PAUSE_IS_GONE
            while not self._pass_on(context, await self._next(replies, failure)):
                failure = _SILENT
        except asyncio.CancelledError:
            await states.post(worker, address, encode_json({"exchange": exchange, "stop": True}))
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

    def _pass_on(self, context: TurnContext, message: Any) -> bool:
        """Send what a message holds; return whether it is the last one. Raise what ended the turn elsewhere."""
        for name, fields in message["parts"]:
            context.send(getattr(parts, name)(**fields))
        if (failure := message.get("failure")) is not None:
            raise PublicError(failure)
        if (failure := message.get("exception")) is not None:
            raise StreamFailed(f"the worker that answers failed: {failure}")
        return bool(message["is_over"])


# The process that waits.


class _Answering:
    """Answers a turn of another worker, and posts its parts until the end."""

    def __init__(
        self,
        drive: Callable[[TurnContext, str], Coroutine[Any, Any, None]],
        states: Mailbox,
        message: Mapping[str, Any],
    ) -> None:
        self._states = states
        self._exchange = message["exchange"]
        self._worker, self._address = message["from"]
        self._said: list[parts.Part] = []
        self._has_news = asyncio.Event()
        asked = message["turn"]
        self._context = TurnContext(
            request_of(asked["request"]),
            identity=identity_of(asked["identity"]),
            path_params=asked["path_params"],
            query=asked["query"],
        )
        self._context.connect(self._say)
        self._context.states = states
        self._driving = asyncio.create_task(drive(self._context, message["handle"]), name="usechat forwarded turn")
        self._driving.add_done_callback(lambda _task: self._has_news.set())
        self.task = asyncio.create_task(self._post_all(), name="usechat forwarded parts")

    def stop(self) -> None:
        """Stop the turn."""
        self._context.stop()
        self._driving.cancel()

    def _say(self, part: parts.Part) -> None:
        self._said.append(part)
        self._has_news.set()

    async def _post_all(self) -> None:
        try:
            while not self._driving.done():
                self._has_news.clear()
                await self._post(is_over=False)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ALIVE_SECONDS):
                        await self._has_news.wait()
            await self._post(is_over=True, **_failure(self._driving))
        except StoreUnreachable:
            pass  # the store has logged it, and the other worker notices the silence
        finally:
            self._driving.cancel()
            await asyncio.wait([self._driving])

    async def _post(self, **ending: Any) -> None:
        """Post what was said since the last time."""
        listed = [[type(part).__name__, json_value(msgspec.structs.asdict(part))] for part in self._said]
        self._said = []
        message = encode_json({"exchange": self._exchange, "parts": listed, **ending})
        await self._states.post(self._worker, self._address, message)


def _failure(driving: "asyncio.Task[None]") -> dict[str, str]:
    error = None if driving.cancelled() else driving.exception()
    if error is None:
        return {}
    if isinstance(error, PublicError):
        return {"failure": str(error)}
    _logger.error("a turn of another worker failed", exc_info=error)
    return {"exception": f"{type(error).__name__}: {error}"}


def _address_of(handle: str) -> str:
    return f"{handle}/address"


def _asked(context: TurnContext) -> dict[str, Any]:
    """Return what another process needs to answer a turn. Headers may hold credentials, and stay here."""
    turn = context.turn
    return turn_fields(turn.request, identity=turn.identity, headers={}, path_params=turn.path_params, query=turn.query)
