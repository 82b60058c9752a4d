"""Workflows behind the HTTP session API of Open Harness.

One session is one run. Its events come as server-sent events, from a position on; after a broken connection they are
read again from there, and events that were seen are skipped by id. The run is paused when it requests input. No event
reports a workflow that crashed, so after some silence the server is asked whether the session still runs.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

import httpx2

from usechat.errors import InvalidFrame, LocalProtocolError, PublicError
from usechat.open_harness.errors import Unreachable
from usechat.open_harness.events.event import EndsAt
from usechat.open_harness.remote.link import backoff, require_scheme, without_secrets
from usechat.open_harness.runtime_protocol import Command, Event, Listener, Listeners, Snapshot
from usechat.transports import EventDecoder, current_context, verification
from usechat.values import json_text, read_json

__all__ = [
    "RemoteSession",
    "RemoteSessions",
    "SessionServer",
]


LOST: Final = "The connection to the workflow was lost before the answer was complete."
REFUSED: Final = "The workflow did not accept the message."
NO_SESSION: Final = "The workflow no longer knows this conversation. Please start again."

_logger: Final = logging.getLogger("usechat.open_harness")
_JSON: Final = {"content-type": "application/json"}
_TIMEOUT: Final = httpx2.Timeout(10.0, read=30.0)
_PATIENT: Final = httpx2.Timeout(10.0, read=None)


class SessionServer:
    """The HTTP client of one session server. Every failure is a PublicError, and the log has the reason.

    Connections are not kept alive: requests are few, and nothing would close idle connections.
    """

    def __init__(self, url: str, headers: Mapping[str, str], connect_seconds: float) -> None:
        self._url = url
        self.connect_seconds = connect_seconds
        self._client = httpx2.AsyncClient(
            headers=dict(headers),
            timeout=_TIMEOUT,
            limits=httpx2.Limits(max_keepalive_connections=0),
            verify=verification(),
        )

    async def create(self, text: str) -> str:
        """Start a session; return its id."""
        response = await self.post("/sessions", {"input": text})
        if isinstance(response, dict) and isinstance(session_id := response.get("sessionId"), str):
            return session_id
        raise PublicError(REFUSED)

    async def is_running(self, session_id: str) -> bool:
        """Return whether the session's workflow is running."""
        response = await self._ask("GET", f"/sessions/{session_id}", None)
        return isinstance(response, dict) and response.get("running") is True

    async def post(self, path: str, body: Any) -> Any:
        """Post JSON and return the answer. A request that may have arrived is not repeated."""
        return await self._ask("POST", path, body)

    async def events(self, session_id: str, position: Callable[[], int], silence: float) -> AsyncGenerator[Event, None]:
        """Yield a session's events from a position on, until there are none for ``silence`` seconds.

        A connection that breaks is opened again at ``position()``. An event may come twice.
        """
        progress = True
        while progress:
            progress = False
            async for _ in backoff(self.connect_seconds):
                try:
                    async with aclosing(self._connection(session_id, position(), silence)) as events:
                        async for event in events:
                            progress = True
                            yield event
                except TimeoutError:
                    return
                except (httpx2.TransportError, InvalidFrame) as error:
                    _logger.warning("the events of session %s ended early: %s", session_id, error)
                if progress:
                    break
        raise PublicError(LOST)

    async def _connection(self, session_id: str, position: int, silence: float) -> AsyncGenerator[Event, None]:
        """Yield the events of one connection; raise TimeoutError after too long a silence."""
        url = f"{self._url}/sessions/{session_id}/events"
        query = {"history": "true", "fromPosition": str(position)}
        decoder = EventDecoder()
        async with self._client.stream("GET", url, params=query, timeout=_PATIENT) as response:
            if response.status_code != 200:
                _logger.warning("%s answered %d", without_secrets(url), response.status_code)
                if response.status_code < 500:
                    raise PublicError(NO_SESSION)
                return
            pieces = response.aiter_bytes()
            while True:
                async with asyncio.timeout(silence):
                    piece = await anext(pieces, b"")
                if not piece:
                    return
                for message in decoder.receive(piece):
                    if (event := _event_in(message.data)) is not None:
                        yield event

    async def _ask(self, method: str, path: str, body: Any) -> Any:
        content = None if body is None else json_text(body).encode()
        async for _ in backoff(self.connect_seconds):
            try:
                response = await self._client.request(method, self._url + path, content=content, headers=_JSON)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:  # nothing was sent, so it can be tried again
                _logger.warning("the workflow at %s cannot be reached: %s", without_secrets(self._url), error)
                continue
            except httpx2.TransportError as error:
                _logger.warning("%s %s failed: %s", method, without_secrets(self._url + path), error)
                raise PublicError(LOST) from error
            if response.status_code >= 400:
                _logger.warning(
                    "%s %s%s answered %d: %.200s", method, self._url, path, response.status_code, response.text
                )
                raise PublicError(NO_SESSION if response.status_code == 404 else REFUSED)
            return _json(response.text)
        raise Unreachable


def _json(text: str) -> Any:
    try:
        return read_json(text)
    except (ValueError, RecursionError):
        return None


def _event_in(text: str) -> Event | None:
    """Return the event in a frame, or ``None``."""
    event = _json(text)
    if isinstance(event, dict) and isinstance(event.get("name"), str):
        return event
    _logger.warning("a frame of a session was ignored: it has no event")
    return None


GONE: Final = "The workflow stopped before the answer was complete."
NO_TEXT: Final = "The workflow needs text, but the message has none."

_YES: Final = re.compile(r"y(es)?\b", re.IGNORECASE)
"""How a message begins that approves. Open Harness itself would also take “You must not do that” as an approval."""
_HISTORY_SECONDS: Final = 1.0
"""How many seconds the events of an ended session may take. They are all stored, and sent at once."""
_PAUSE_SECONDS: Final = 1.0
"""How many seconds a server may take to pause a session before a stop no longer waits for it."""


class RemoteSessions:
    """Workflows behind a session server, ``http://…`` or ``https://…``. A call returns the runtime of a new session.

    ``headers`` are sent with each request. ``connect_seconds`` is how long to retry a connection. After ``silence``
    seconds without an event the server is asked whether the session still runs: no event reports a crashed workflow.
    Raises :class:`~usechat.errors.InvalidAddress` for another kind of URL.

    >>> from usechat.open_harness import OpenHarnessChatTransport
    >>> transport = OpenHarnessChatTransport(RemoteSessions("http://localhost:42069"))
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
        self._event_ids: set[str] = set()
        self._question: Mapping[str, Any] | None = None
        self._listeners = Listeners()
        self._posts: set[asyncio.Task[None]] = set()
        self._turn: asyncio.Task[None] | None = None

    async def run(self, input: Mapping[str, Any] | None = None) -> Snapshot:  # noqa: A002
        """Start a session with the input's ``message``; return when the workflow is complete or requests input."""
        return await self._owned(self._begin(str((input or {}).get("message", ""))))

    async def resume(self, message: str | None = None) -> Snapshot:
        """Answer the session's question; return as ``run`` does."""
        return await self._owned(self._answer(message or ""))

    def pause(self) -> None:
        """Interrupt the workflow; the session is kept."""
        self._interrupt("paused")

    def stop(self) -> None:
        """Interrupt the workflow. The only other way to stop it would delete the session."""
        self._interrupt("aborted")

    def dispatch(self, command: Command) -> None:
        """Post the text of a ``send`` or ``reply`` as input of the session."""
        match command:
            case {"type": "send", "message": str(text)} | {"type": "reply", "content": str(text)}:
                self._post_soon(lambda session_id: self._server.post(f"/sessions/{session_id}/input", {"input": text}))
            case {"type": "pause"} | {"type": "abort", "resumable": True}:
                self.pause()
            case {"type": "abort" | "stop"}:
                self.stop()
            case _:
                raise LocalProtocolError(f"a session knows no command {command.get('type')!r}")

    def on_event(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every event from now on; return a function that removes it."""
        return self._listeners.add(listener)

    def get_snapshot(self) -> Snapshot:
        """Return the session's id and status."""
        return {"runId": self._session_id, "status": self._status, "outputs": {}, "nodeStatus": {}}

    async def _owned(self, work: Coroutine[Any, Any, None]) -> Snapshot:
        """Execute a turn. Cancelling it interrupts the workflow."""
        self._status = "running"
        turn = self._turn = asyncio.get_running_loop().create_task(work, name="usechat turn of a session")
        try:
            await asyncio.wait([turn])
        except asyncio.CancelledError:
            turn.cancel()
            await asyncio.wait([turn])
            self.stop()
            raise
        finally:
            self._turn = None
            if self._posts:
                await asyncio.wait(self._posts, timeout=self._server.connect_seconds)
        if not turn.cancelled() and turn.exception() is not None:
            self._status = "aborted"
            turn.result()
        return self.get_snapshot()

    def _interrupt(self, status: str) -> None:
        """Interrupt the workflow and end the turn with the server's answer: no event reports an interruption.

        A stop ends the turn whatever the answer is. A workflow that the server did not pause goes on.
        """

        async def interrupt(session_id: str) -> None:
            is_over = status == "aborted"
            try:
                async with asyncio.timeout(_PAUSE_SECONDS):
                    await self._server.post(f"/sessions/{session_id}/pause", None)
                is_over = True
            finally:
                if is_over:
                    self._end_turn(status)

        self._post_soon(interrupt)

    def _end_turn(self, status: str) -> None:
        self._status = status
        if self._turn is not None:
            self._turn.cancel()

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
                current_context().source_unreachable()
            raise

    async def _answer(self, text: str) -> None:
        if not text:
            raise PublicError(NO_TEXT)
        is_approval = self._question is not None and self._question.get("type") == "approval"
        answer = f"no: {text}" if is_approval and _is_yes(text) and not _YES.match(text) else text
        await self._server.post(f"/sessions/{self._session_id}/input", {"input": answer})
        await self._follow()

    async def _follow(self) -> None:
        """Pass on events to the end of the turn; after a silence, ask whether the session still runs."""
        begin = start = len(self._event_ids)
        silence, last_chance = self._silence, False
        while not await self._listen(start, silence):
            if last_chance:
                raise PublicError(GONE)
            if not await self._server.is_running(str(self._session_id)):
                # The server may lose what happens while it goes over from history to live events: read all again.
                last_chance, start, silence = True, begin, _HISTORY_SECONDS
            else:
                start = len(self._event_ids)

    async def _listen(self, start: int, silence: float) -> bool:
        """Pass on events until the turn ends or none comes for some time. Return whether the turn ended."""
        position = start
        async with aclosing(self._server.events(str(self._session_id), lambda: position, silence)) as events:
            async for event in events:
                self._pass_on(event)
                position = len(self._event_ids)
                if (status := _status_after(event)) is not None:
                    self._status = status
                    return True
        return False

    def _pass_on(self, event: Event) -> None:
        if (event_id := str(event.get("id"))) in self._event_ids:
            return
        self._event_ids.add(event_id)
        self._listeners.notify(self._with_question(event))

    def _with_question(self, event: Event) -> Event:
        """Add to an answer the question that it answers: the newest server's ``input:received`` has no id."""
        match event:
            case {"name": "input:requested", "payload": {"id": str()} as question}:
                self._question = question
            case {"name": "input:received", "payload": {"response": response} as received} if self._question:
                answer = {"id": self._question["id"], "value": response}
                if self._question.get("type") == "approval":
                    answer["approved"] = _is_yes(response)
                return {**event, "payload": {**answer, **received}}
        return event

    def _post_soon(self, post: Callable[[str], Coroutine[Any, Any, Any]]) -> None:
        """Post something in the background. The end of the turn waits for it."""
        if self._session_id is None:
            return
        session_id = self._session_id

        async def send() -> None:
            try:
                await post(session_id)
            except PublicError as error:
                _logger.warning("session %s did not accept a command: %s", session_id, error)
            except TimeoutError:
                _logger.warning("session %s did not answer a command in time", session_id)

        task = asyncio.get_running_loop().create_task(send(), name=f"usechat command for session {session_id}")
        self._posts.add(task)
        task.add_done_callback(self._posts.discard)


def _is_yes(response: Any) -> bool:
    """Return whether Open Harness takes an answer as an approval: it begins with "y"."""
    return isinstance(response, str) and response.lower().startswith("y")


def _status_after(event: Event) -> str | None:
    """Return the status of the session after an event that ends the turn; ``None`` for other events."""
    match event:
        case {"name": "workflow:completed"} | {"name": "phase:exited", "payload": {"reason": "error"}}:
            return "complete"
        case {"name": "input:requested"}:
            return "paused"
    return None
