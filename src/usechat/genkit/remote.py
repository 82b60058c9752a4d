"""A flow on a Genkit server, over HTTP."""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from usechat.errors import InvalidAddress
from usechat.genkit.errors import error_page, unreachable
from usechat.genkit.inputs import FlowInput, InputBuilder, history_input
from usechat.genkit.wire import FlowChunk, FlowEvent, StreamReader
from usechat.turn import Turn, current_context

__all__ = ["RemoteFlow"]

_logger: Final = logging.getLogger("usechat.genkit")

_STREAM_ID: Final = "x-genkit-stream-id"
_TIMEOUTS: Final = httpx2.Timeout(None, connect=10)
"""Only connecting has a limit here: the run limits how long an answer may take."""
_PAUSES: Final = (0.2, 1.0, 3.0)
"""Seconds before each attempt to attach to a durable stream again."""
_MAXIMUM_ERROR_BYTES: Final = 64 * 1024


class RemoteFlow:
    """Runs a flow by POST. A durable stream (``x-genkit-stream-id``) is attached to again when the connection breaks.

    Raises :class:`~usechat.errors.InvalidAddress` if ``url`` is not an HTTP address.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str], pass_on: Iterable[str]) -> None:
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise InvalidAddress(f"{url!r} is no address of a flow; give one such as http://127.0.0.1:3400/chatFlow")
        self._url = url
        self._headers = dict(headers)
        self._pass_on = frozenset(name.lower() for name in pass_on)

    @property
    def default_input(self) -> InputBuilder:
        """The input of the Genkit chat specification."""
        return history_input

    async def run(self, flow_input: FlowInput, turn: Turn) -> AsyncGenerator[FlowEvent, None]:
        """Run the flow and yield its events. Closing the iterator closes the connection."""
        body = {"data": flow_input.data} | ({"init": flow_input.init} if flow_input.init is not None else {})
        headers = {name: value for name, value in turn.headers.items() if name.lower() in self._pass_on}
        # Go, Express and Flask compare the value of `accept` as a whole.
        headers |= self._headers | {"accept": "text/event-stream"}
        request = _StreamRequest(self._url, body, headers)
        async with httpx2.AsyncClient(timeout=_TIMEOUTS, verify=_verification(self._url)) as client:
            for pause in (0.0, *_PAUSES):
                await asyncio.sleep(pause)
                try:
                    async with aclosing(request.send(client)) as events:
                        async for event in events:
                            yield event
                except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                    current_context().source_unreachable()
                    raise unreachable(self._url, error) from error
                if request.is_complete or request.stream_id is None:
                    return


class _StreamRequest:
    """A request that can be repeated. The server sends a durable stream from its start, so known chunks are skipped."""

    def __init__(self, url: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        self.is_complete = False
        self.stream_id: str | None = None
        """The id of a durable stream, if the server has one for this request."""
        self._url = url
        self._body = body
        self._headers = dict(headers)
        self._received = 0

    async def send(self, client: httpx2.AsyncClient) -> AsyncGenerator[FlowEvent, None]:
        """Send the request; yield the events until the stream ends or the connection breaks."""
        headers = self._headers | ({_STREAM_ID: self.stream_id} if self.stream_id else {})
        try:
            async with client.stream("POST", self._url, json=self._body, headers=headers) as response:
                if not await self._has_stream(response):
                    return
                reader, received = StreamReader(), 0
                async for data in response.aiter_bytes():
                    for event in reader.receive(data):
                        received += isinstance(event, FlowChunk)
                        if not isinstance(event, FlowChunk) or received > self._received:
                            yield event
                    self._received = max(self._received, received)
                    if reader.ended:
                        break
                for event in reader.close():
                    yield event
                self.is_complete = reader.ended
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if self.stream_id is None:
                raise
        except httpx2.TransportError as error:
            _logger.warning("the connection to Genkit broke: %s", str(error) or type(error).__name__)

    async def _has_stream(self, response: httpx2.Response) -> bool:
        """Return whether the response is a stream; raise the error that it reports instead."""
        if self.stream_id and response.status_code == 204:
            self.stream_id = None  # the server has deleted the stream
            return False
        if self.stream_id and response.status_code >= 500:
            return False  # the server is not up again yet
        if response.status_code != 200 or "html" in response.headers.get("content-type", ""):
            raise error_page(response.status_code, response.headers, await _beginning(response))
        self.stream_id = response.headers.get(_STREAM_ID, self.stream_id)
        return True


async def _beginning(response: httpx2.Response) -> bytes:
    """Return the beginning of an error's body."""
    body = b""
    async for data in response.aiter_bytes():
        body += data
        if len(body) > _MAXIMUM_ERROR_BYTES:
            break
    return body


def _verification(url: str) -> ssl.SSLContext | bool:
    """Return how certificates are verified. Loading them is slow, so it is done once, and only for HTTPS."""
    return _certificates() if url.startswith("https:") else False


@cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
