"""A flow behind a Genkit server, over HTTP."""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from usechat.errors import LocalProtocolError
from usechat.genkit.errors import error_page, unreachable
from usechat.genkit.inputs import FlowInput, InputBuilder, history_input
from usechat.genkit.wire import Event, Message, StreamReader
from usechat.turn import Turn, current_context

__all__ = ["RemoteFlow"]

_logger: Final = logging.getLogger("usechat.genkit")

_STREAM_ID: Final = "x-genkit-stream-id"
_TIMEOUTS: Final = httpx2.Timeout(None, connect=10)
"""How long an answer may take is decided by the run."""
_PAUSES: Final = (0.2, 1.0, 3.0)
"""Seconds before each new try to attach to a durable stream that was cut."""
_MAXIMUM_ERROR: Final = 64 * 1024


class RemoteFlow:
    """Runs a flow by POST. A stream that the server keeps (``x-genkit-stream-id``) is taken up again when it is cut."""

    def __init__(self, url: str, *, headers: Mapping[str, str], pass_on: Iterable[str]) -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise LocalProtocolError(
                f"{url!r} is no address of a flow; give one such as http://127.0.0.1:3400/chatFlow"
            )
        self._url = url
        self._headers = dict(headers)
        self._pass_on = frozenset(name.lower() for name in pass_on)

    @property
    def default_input(self) -> InputBuilder:
        """What the flow of the Genkit chat specification takes."""
        return history_input

    async def run(self, flow_input: FlowInput, turn: Turn) -> AsyncGenerator[Event, None]:
        """Run the flow and yield what it says. Closing the iterator closes the connection."""
        body = {"data": flow_input.data} | ({"init": flow_input.init} if flow_input.init is not None else {})
        headers = {name: value for name, value in turn.headers.items() if name.lower() in self._pass_on}
        # Go, Express and Flask compare the value as a whole.
        headers |= self._headers | {"accept": "text/event-stream"}
        attempt = _Attempt(self._url, body, headers)
        async with httpx2.AsyncClient(timeout=_TIMEOUTS, verify=_verification(self._url)) as client:
            for pause in (0.0, *_PAUSES):
                await asyncio.sleep(pause)
                try:
                    async with aclosing(attempt.events(client)) as events:
                        async for event in events:
                            yield event
                except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                    current_context().source_unreachable()
                    raise unreachable(self._url, error) from error
                if attempt.complete or attempt.stream_id is None:
                    return


class _Attempt:
    """One request and, for a durable stream, its repetitions: those begin anew, so what was heard is left out."""

    def __init__(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        self.complete = False
        self.stream_id: str | None = None
        self._url = url
        self._body = body
        self._headers = dict(headers)
        self._heard = 0

    async def events(self, client: httpx2.AsyncClient) -> AsyncGenerator[Event, None]:
        """Ask, and yield the events until the end or the cut."""
        headers = self._headers | ({_STREAM_ID: self.stream_id} if self.stream_id else {})
        try:
            async with client.stream("POST", self._url, json=self._body, headers=headers) as response:
                if self.stream_id and response.status_code == 204:
                    self.stream_id = None  # the server has forgotten the stream
                    return
                if self.stream_id and response.status_code >= 500:
                    return  # it is not back yet
                if response.status_code != 200 or "html" in response.headers.get("content-type", ""):
                    raise error_page(response.status_code, response.headers, await _beginning(response))
                self.stream_id = response.headers.get(_STREAM_ID, self.stream_id)
                async with aclosing(self._read(response)) as events:
                    async for event in events:
                        yield event
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if self.stream_id is None:
                raise
        except httpx2.TransportError as error:
            _logger.warning("the connection to Genkit broke: %s", str(error) or type(error).__name__)

    async def _read(self, response: httpx2.Response) -> AsyncGenerator[Event, None]:
        reader, heard = StreamReader(), 0
        async for data in response.aiter_bytes():
            for event in reader.receive(data):
                heard += isinstance(event, Message)
                if not isinstance(event, Message) or heard > self._heard:
                    yield event
            self._heard = max(self._heard, heard)
            if reader.ended:
                break
        for event in reader.close():
            yield event
        self.complete = reader.ended


async def _beginning(response: httpx2.Response) -> bytes:
    """Return as much of an error's body as anybody wants to read."""
    body = b""
    async for data in response.aiter_bytes():
        body += data
        if len(body) > _MAXIMUM_ERROR:
            break
    return body


def _verification(url: str) -> ssl.SSLContext | bool:
    """Return how certificates are checked; reading them takes long, so it is done once, and only where it matters."""
    return _certificates() if url.startswith("https:") else False


@cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
