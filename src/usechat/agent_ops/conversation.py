"""One request's use of its socket: what is said, how long it is listened to, and how it is left."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from usechat.agent_ops.adapter import SessionAdapter
from usechat.agent_ops.own_turn import Phase
from usechat.agent_ops.questions import answered_parts
from usechat.agent_ops.session import Session, SessionClosed, in_channel
from usechat.agent_ops.wire import Channel
from usechat.parts import Part
from usechat.runs.failures import PublicError
from usechat.turn import Turn

__all__ = ["Conversation"]

SILENT: Final = "The session was silent for too long, so the answer was stopped."

_SETTLING: Final = 2.0
"""Seconds in which tools may still end behind the end of their turn."""
_LEAVING: Final = 1.0
"""Seconds to find out whether a prompt that is taken back runs already."""


class Conversation:
    """Sends commands and passes on the turn that answers them."""

    def __init__(
        self, turn: Turn, adapter: SessionAdapter, commands: Sequence[Mapping[str, Any]], channel: Channel | None
    ) -> None:
        self._turn = turn
        self._adapter = adapter
        self._commands = commands
        self._channel = channel

    async def hold(self, session: Session, idle_timeout: float | None) -> None:
        """Say what is to be said, and listen until the turn is over. Whoever breaks this off stops the turn."""
        try:
            for command in self._commands:
                await session.send(command)
            for answer in self._turn.approvals:
                self._say(answered_parts(answer))
            await self._listen(session, idle_timeout)
        except SessionClosed:
            self._say(self._adapter.close())
        except TimeoutError:
            await self._leave(session)
            raise PublicError(SILENT) from None
        except (asyncio.CancelledError, Exception):
            await self._leave(session)
            raise

    async def _listen(self, session: Session, idle_timeout: float | None) -> None:
        adapter, clock = self._adapter, _Clock(idle_timeout)
        try:
            async with asyncio.timeout(None) as limit:
                while not adapter.ended:
                    clock.set(limit, adapter)
                    frame = await session.receive()
                    if frame.get("type") != "pong":
                        clock.hear()
                    self._say(adapter.feed(frame))
                    await self._turn.breathe()
        except TimeoutError:
            if not adapter.settling:
                raise
            self._say(adapter.settle())

    async def _leave(self, session: Session) -> None:
        """Stop our turn, and nobody else's: some upstreams empty everybody's queue when they are told to abort."""
        adapter = self._adapter
        if adapter.own.phase is Phase.SENT:
            await self._find_out(session)
        if adapter.ended:
            return
        if adapter.own.is_running:
            await session.send_last({"type": "abort", **in_channel(self._channel)})
        elif adapter.withdrawable:
            await session.send_last({"type": "queue.withdraw"})

    async def _find_out(self, session: Session) -> None:
        adapter = self._adapter
        try:
            async with asyncio.timeout(_LEAVING):
                while adapter.own.phase is Phase.SENT and not adapter.ended:
                    for _part in adapter.feed(await session.receive()):
                        pass
        except (TimeoutError, SessionClosed):
            return

    def _say(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self._turn.send(part)


class _Clock:
    """Says until when a frame must come. It stands still while a person is asked."""

    def __init__(self, idle_timeout: float | None) -> None:
        self._idle_timeout = idle_timeout
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._settles: float | None = None

    def hear(self) -> None:
        """Note that the session is alive."""
        self._heard = self._loop.time()

    def set(self, limit: asyncio.Timeout, adapter: SessionAdapter) -> None:
        """Set the limit for the next frame, unless it is about right: a timer for each frame would cost too much."""
        wanted = self._deadline(adapter)
        current = limit.when()
        if wanted is None or current is None or self._idle_timeout is None:
            exact = wanted == current
        else:
            exact = 0 <= wanted - current < self._idle_timeout / 50
        if not exact:
            limit.reschedule(wanted)

    def _deadline(self, adapter: SessionAdapter) -> float | None:
        if adapter.settling:
            self._settles = self._settles or self._loop.time() + _SETTLING
            return self._settles
        self._settles = None
        if adapter.asking or self._idle_timeout is None:
            return None
        return self._heard + self._idle_timeout
