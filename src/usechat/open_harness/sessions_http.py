"""The session API of Open Harness over HTTP: what is posted, and the events of a session from a position on."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import httpx2

from usechat.errors import InvalidFrame
from usechat.open_harness.interface import Event
from usechat.open_harness.remote_link import Unreachable, backoff, without_secrets
from usechat.runs.failures import PublicError
from usechat.sse import EventDecoder
from usechat.values import json_text, read_json

__all__ = ["SessionServer"]

LOST: Final = "The connection to the workflow was lost before the answer was complete."
REFUSED: Final = "The workflow did not take the message."
NO_SESSION: Final = "The workflow does not know this conversation any more. Please start again."

_logger: Final = logging.getLogger("usechat.open_harness")
_JSON: Final = {"content-type": "application/json"}
_TIMEOUT: Final = httpx2.Timeout(10.0, read=30.0)
_PATIENT: Final = httpx2.Timeout(10.0, read=None)


class SessionServer:
    """Asks a server; whatever goes wrong is a PublicError, and the log has the reason.

    Connections are not kept: requests are few, and nobody would close what is left open.
    """

    def __init__(self, url: str, headers: Mapping[str, str], connect_seconds: float) -> None:
        self._url = url
        self.connect_seconds = connect_seconds
        self._client = httpx2.AsyncClient(
            headers=dict(headers), timeout=_TIMEOUT, limits=httpx2.Limits(max_keepalive_connections=0)
        )

    async def create(self, text: str) -> str:
        """Start a session; return its id."""
        told = await self.post("/sessions", {"input": text})
        if isinstance(told, dict) and isinstance(session_id := told.get("sessionId"), str):
            return session_id
        raise PublicError(REFUSED)

    async def is_running(self, session_id: str) -> bool:
        """Ask whether the session's workflow goes on."""
        told = await self._ask("GET", f"/sessions/{session_id}", None)
        return isinstance(told, dict) and told.get("running") is True

    async def post(self, path: str, body: Any) -> Any:
        """Post JSON; return what is answered. Nothing is posted twice."""
        return await self._ask("POST", path, body)

    async def events(self, session_id: str, position: Callable[[], int], silence: float) -> AsyncGenerator[Event, None]:
        """Yield a session's events from a position on, until there are none for ``silence`` seconds.

        A connection that breaks is opened again where ``position`` says by then. An event may come twice.
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
                    _logger.warning("the events of session %s broke off: %s", session_id, error)
                if progress:
                    break
        raise PublicError(LOST)

    async def _connection(self, session_id: str, position: int, silence: float) -> AsyncGenerator[Event, None]:
        """Yield what comes over one connection; raise TimeoutError when nothing comes for too long."""
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
                for told in decoder.receive(piece):
                    if (event := _event_in(told.data)) is not None:
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
    """Return the event that a frame holds."""
    event = _json(text)
    if isinstance(event, dict) and isinstance(event.get("name"), str):
        return event
    _logger.warning("a frame of a session was ignored: it holds no event")
    return None
