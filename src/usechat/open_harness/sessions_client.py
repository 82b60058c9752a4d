"""Workflows behind the session API of Open Harness: one session is one run, and pauses when it requests input."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

from usechat.errors import LocalProtocolError
from usechat.open_harness.events import EndsAt
from usechat.open_harness.interface import Command, Event, Listener, Snapshot
from usechat.open_harness.listeners import Listeners
from usechat.open_harness.remote_link import Unreachable, require_scheme
from usechat.open_harness.sessions_http import SessionServer
from usechat.runs.failures import PublicError
from usechat.turn import current_turn

__all__ = ["RemoteSession", "RemoteSessions"]

GONE: Final = "The workflow stopped before the answer was complete."
NO_TEXT: Final = "The workflow takes text, and the message has none."

_HISTORY_SECONDS: Final = 1.0
"""How long the events of a session that has ended may take; they are all there, and sent at once."""

_logger: Final = logging.getLogger("usechat.open_harness")


class RemoteSessions:
    """A server of sessions at ``http://…``; called, it makes the runtime of a new session.

    ``connect_seconds`` is how long a connection is tried again and again. After ``silence`` seconds without an event
    the server is asked whether the session still runs: no event tells of a workflow that has failed.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        connect_seconds: float = 5.0,
        silence: float = 10.0,
    ) -> None:
        require_scheme(url, ("http", "https"))
        self._server = SessionServer(url.rstrip("/"), headers or {}, connect_seconds)
        self._silence = silence

    def __call__(self) -> "RemoteSession":
        """Return a runtime for a new session."""
        return RemoteSession(self._server, silence=self._silence)


class RemoteSession:
    """One session. Its events have the names and payloads of the session API."""

    ends_at: EndsAt = "flow"

    def __init__(self, server: SessionServer, *, silence: float) -> None:
        self._server = server
        self._silence = silence
        self._session_id: str | None = None
        self._status = "idle"
        self._seen: set[str] = set()
        self._listeners = Listeners()
        self._orders: set[asyncio.Task[None]] = set()

    async def run(self, input: Mapping[str, Any] | None = None) -> Snapshot:  # noqa: A002
        """Start a session with the input's ``message``; return when the workflow is complete or requests input."""
        return await self._owned(self._begin(str((input or {}).get("message", ""))))

    async def resume(self, message: str | None = None) -> Snapshot:
        """Answer what the session asked; return as ``run`` does."""
        return await self._owned(self._answer(message or ""))

    def pause(self) -> None:
        """Ask the server to interrupt the workflow; the session stays there."""
        self._order(lambda session_id: self._server.post(f"/sessions/{session_id}/pause", None))

    def stop(self) -> None:
        """Interrupt the workflow: deleting the session would be the only other way."""
        self.pause()

    def dispatch(self, command: Command) -> None:
        """Post what a ``send`` or a ``reply`` says as input of the session."""
        match command:
            case {"type": "send", "message": str(text)} | {"type": "reply", "content": str(text)}:
                self._order(lambda session_id: self._server.post(f"/sessions/{session_id}/input", {"input": text}))
            case {"type": "abort" | "pause" | "stop"}:
                self.pause()
            case _:
                raise LocalProtocolError(f"a session knows no command {command.get('type')!r}")

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return what ends that."""
        return self._listeners.add(listener)

    def get_snapshot(self) -> Snapshot:
        """Return the session's id and how it stands."""
        return {"runId": self._session_id, "status": self._status, "outputs": {}, "nodeStatus": {}}

    async def _owned(self, turn: Coroutine[Any, Any, None]) -> Snapshot:
        """Do a turn; one that is cancelled interrupts the workflow before it goes."""
        self._status = "running"
        try:
            await turn
        except asyncio.CancelledError:
            self._status = "aborted"
            self.stop()
            raise
        except BaseException:
            self._status = "aborted"
            raise
        finally:
            if self._orders:
                await asyncio.wait(self._orders, timeout=self._server.connect_seconds)
        return self.get_snapshot()

    async def _begin(self, text: str) -> None:
        if not text:
            raise PublicError(NO_TEXT)
        creating = asyncio.get_running_loop().create_task(self._create(text))
        try:
            await asyncio.shield(creating)
        except asyncio.CancelledError:  # a session that is being made can only be interrupted when it has an id
            await asyncio.wait([creating], timeout=self._server.connect_seconds)
            creating.cancel()
            raise
        await self._follow()

    async def _create(self, text: str) -> None:
        try:
            self._session_id = await self._server.create(text)
        except Unreachable:
            with suppress(LocalProtocolError):  # used without a chat
                current_turn().source_unreachable()
            raise

    async def _answer(self, text: str) -> None:
        if not text:
            raise PublicError(NO_TEXT)
        await self._server.post(f"/sessions/{self._session_id}/input", {"input": text})
        await self._follow()

    async def _follow(self) -> None:
        """Tell events to the end of the turn. Silence is looked into."""
        begin = start = len(self._seen)
        silence, last_chance = self._silence, False
        while not await self._listen(start, silence):
            if last_chance:
                raise PublicError(GONE)
            if not await self._server.is_running(str(self._session_id)):
                # The server may lose what happens while it goes over from history to live events: read all again.
                last_chance, start, silence = True, begin, _HISTORY_SECONDS
            else:
                start = len(self._seen)

    async def _listen(self, start: int, silence: float) -> bool:
        """Tell events until the turn ends, or until there are none for some time; tell which of the two it was."""
        position = start
        async with aclosing(self._server.events(str(self._session_id), lambda: position, silence)) as events:
            async for event in events:
                self._tell(event)
                position = len(self._seen)
                if (status := _status_after(event)) is not None:
                    self._status = status
                    return True
        return False

    def _tell(self, event: Event) -> None:
        if (event_id := str(event.get("id"))) in self._seen:
            return
        self._seen.add(event_id)
        self._listeners.tell(event)

    def _order(self, post: Callable[[str], Coroutine[Any, Any, Any]]) -> None:
        """Post something beside the turn; nobody waits for it but the end of the turn."""
        if self._session_id is None:
            return
        session_id = self._session_id

        async def send() -> None:
            try:
                await post(session_id)
            except PublicError as error:
                _logger.warning("session %s did not take a command: %s", session_id, error)

        task = asyncio.get_running_loop().create_task(send(), name=f"usechat command for session {session_id}")
        self._orders.add(task)
        task.add_done_callback(self._orders.discard)


def _status_after(event: Event) -> str | None:
    """Return how the session stands after an event that ends the turn."""
    match event:
        case {"name": "workflow:completed"} | {"name": "phase:exited", "payload": {"reason": "error"}}:
            return "complete"
        case {"name": "input:requested"}:
            return "paused"
    return None
