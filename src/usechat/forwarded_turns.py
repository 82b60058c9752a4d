"""Answers that reach a waiting task from any worker.

A task that waits in a process (:mod:`usechat.waiting_tasks`) is known to that process alone, but the request with the
answer may come to another worker. That worker puts the turn into the run store, under the chat's handle. The
process that waits takes it, answers it, and puts the parts back in batches, until the end. The other worker sends them
to its page, so the run belongs to the worker that the page asked, as always.

The store needs nothing but :class:`~usechat.paused_states.PausedStates`: both sides look for the next entry in short
intervals, and only while a task waits or a turn is being forwarded. If no process takes the turn, or it falls silent,
the page is told.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from usechat.errors import PublicError, StoreUnreachable, StreamFailed
from usechat.ids import new_id
from usechat.paused_states import PausedStates
from usechat.protocol import parts
from usechat.protocol.request import ChatRequest
from usechat.protocol.values import json_text, json_value
from usechat.turn import Identity, Turn, TurnContext
from usechat.waiting_tasks import PAUSE_IS_GONE

__all__ = ["ForwardedTurns"]

_LISTEN_SECONDS: Final = 0.5
"""How often a process that waits looks for a turn, and for a stop."""
_READ_SECONDS: Final = 0.05
"""How often parts are written and read."""
_ALIVE_SECONDS: Final = 1.0
"""How often the process that answers writes, also if it has nothing to say."""
_PATIENCE: Final = 5.0
"""How long the other worker waits for the next entry."""
_SILENT: Final = "The answer ended before it was complete."
_logger: Final = logging.getLogger("usechat.runs")


class ForwardedTurns:
    """Drives the turns of a source whose tasks may wait in another worker.

    ``drive`` answers a turn in this process; ``is_waiting`` tells whether a task waits here under a handle.
    """

    def __init__(
        self,
        drive: Callable[[TurnContext], Awaitable[None]],
        is_waiting: Callable[[str], bool],
        *,
        patience: float = _PATIENCE,
    ) -> None:
        self._drive = drive
        self._is_waiting = is_waiting
        self._patience = patience
        self._listening: dict[str, asyncio.Task[None]] = {}

    async def drive(self, context: TurnContext, handle: str) -> None:
        """Answer a turn here, or in the process where a task waits for it.

        Raises :class:`~usechat.errors.PublicError` if the task is gone.
        """
        turn, states = context.turn, context.states
        if not getattr(states, "is_shared", False):
            await self._drive(context)
            return
        if (turn.approvals or turn.tool_outputs) and not self._is_waiting(handle):
            await self._forward(context, states, handle)
            return
        await self._drive(context)
        if self._is_waiting(handle) and handle not in self._listening:
            await states.take_state(_inbox(handle))  # a turn that nobody took in time
            task = asyncio.create_task(self._listen(states, handle), name="usechat forwarded turns")
            self._listening[handle] = task
            task.add_done_callback(lambda _task: self._listening.pop(handle, None))

    # The worker that the page asked.

    async def _forward(self, context: TurnContext, states: PausedStates, handle: str) -> None:
        reply = new_id()
        await states.keep_state(_inbox(handle), _encode_turn(context.turn, reply))
        number, is_over = 0, False
        try:
            while not is_over:
                is_over = self._receive(context, await self._next(states, f"{reply}/{number}", is_first=not number))
                number += 1
        except asyncio.CancelledError:
            await states.keep_state(f"{reply}/stop", b"stop")
            raise
        finally:
            if not number:
                await states.take_state(_inbox(handle))

    async def _next(self, states: PausedStates, key: str, *, is_first: bool) -> Any:
        """Return the next entry; raise PublicError if there is none for too long."""
        deadline = asyncio.get_running_loop().time() + self._patience
        while (entry := await states.take_state(key)) is None:
            if asyncio.get_running_loop().time() > deadline:
                raise PublicError(PAUSE_IS_GONE if is_first else _SILENT)
            await asyncio.sleep(_READ_SECONDS)
        return msgspec.json.decode(entry)

    def _receive(self, context: TurnContext, entry: Any) -> bool:
        """Send what an entry holds; return whether it is the last one. Raise what ended the turn elsewhere."""
        for name, fields in entry["parts"]:
            context.send(getattr(parts, name)(**fields))
        if (failure := entry.get("failure")) is not None:
            raise PublicError(failure)
        if (failure := entry.get("exception")) is not None:
            raise StreamFailed(f"the worker that answers failed: {failure}")
        return bool(entry["is_over"])

    # The process that waits.

    async def _listen(self, states: PausedStates, handle: str) -> None:
        while self._is_waiting(handle):
            await asyncio.sleep(_LISTEN_SECONDS)
            try:
                found = await states.take_state(_inbox(handle))
                if found is not None:
                    await self._answer(states, found)
            except StoreUnreachable:
                continue  # the store has logged it
            except Exception:
                _logger.exception("a turn of another worker cannot be answered")

    async def _answer(self, states: PausedStates, found: bytes) -> None:
        reply, context = _decode_turn(found)
        said: list[parts.Part] = []
        context.connect(said.append)
        context.states = states
        driving = asyncio.ensure_future(self._drive_here(context))
        number, next_look = 0, 0.0
        now = asyncio.get_running_loop().time
        written = now() - _ALIVE_SECONDS
        try:
            while not driving.done():
                if said or now() - written >= _ALIVE_SECONDS:
                    await states.keep_state(f"{reply}/{number}", _encode_parts(said))
                    number, written = number + 1, now()
                if now() > next_look:
                    next_look = now() + _LISTEN_SECONDS
                    if await states.take_state(f"{reply}/stop") is not None:
                        context.stop()
                        driving.cancel()
                await asyncio.wait([driving], timeout=_READ_SECONDS)
        finally:
            driving.cancel()  # if the store does not answer
            await asyncio.wait([driving])
        await states.keep_state(f"{reply}/{number}", _encode_parts(said, **_ending(driving)))

    async def _drive_here(self, context: TurnContext) -> None:
        context.enter()
        await self._drive(context)


def _ending(driving: "asyncio.Future[None]") -> dict[str, Any]:
    error = None if driving.cancelled() else driving.exception()
    if error is None:
        return {"is_over": True}
    if isinstance(error, PublicError):
        return {"is_over": True, "failure": str(error)}
    _logger.error("a turn of another worker failed", exc_info=error)
    return {"is_over": True, "exception": f"{type(error).__name__}: {error}"}


def _inbox(handle: str) -> str:
    return f"{handle}/turn"


def _encode_turn(turn: Turn, reply: str) -> bytes:
    request = {name: getattr(turn.request, name) for name in ChatRequest.__struct_fields__}
    request["pending_calls"] = None if turn.request.pending_calls is None else sorted(turn.request.pending_calls)
    subject = None if turn.identity is None else turn.identity.subject
    return json_text({"reply": reply, "request": json_value(request), "subject": subject}).encode()


def _decode_turn(data: bytes) -> tuple[str, TurnContext]:
    found = msgspec.json.decode(data)
    pending = found["request"].pop("pending_calls")
    request = ChatRequest(**found["request"], pending_calls=None if pending is None else frozenset(pending))
    subject = found["subject"]
    return found["reply"], TurnContext(request, identity=None if subject is None else Identity(subject))


def _encode_parts(said: list[parts.Part], *, is_over: bool = False, **ending: str) -> bytes:
    """Return what was said as an entry, and forget it."""
    listed = [[type(part).__name__, json_value(msgspec.structs.asdict(part))] for part in said]
    said.clear()
    return json_text({"parts": listed, "is_over": is_over, **ending}).encode()
