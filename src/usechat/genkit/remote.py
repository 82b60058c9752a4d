"""A flow on a Genkit server, over HTTP."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from usechat import Turn
from usechat.errors import CannotAnswer, InvalidAddress, PublicError
from usechat.genkit.approvals import MapApproval, respond_by_schema
from usechat.genkit.errors import FIRST_BYTES, error_page, not_genkit, unreachable, unreadable
from usechat.genkit.inputs import (
    AsyncInputBuilder,
    FlowInput,
    InputBuilder,
    agent_input,
    history_input,
    messages_input,
    restarted_tools,
    stateless_agent_input,
)
from usechat.genkit.schemas import input_for
from usechat.genkit.wire import FlowChunk, FlowEvent, FlowFailure, FlowResult, StreamReader
from usechat.transports import current_context, verification

__all__ = ["RemoteFlow"]

_logger: Final = logging.getLogger("usechat.genkit")

_STREAM_ID: Final = "x-genkit-stream-id"
_CONNECT_TIMEOUT: Final = 10.0
_TIMEOUTS: Final = httpx2.Timeout(None, connect=_CONNECT_TIMEOUT)
"""Only connecting has a limit here: the run limits how long an answer may take."""
_PAUSES: Final = (0.2, 1.0, 3.0)
"""Seconds before each attempt to attach to a durable stream again."""
_MAXIMUM_ERROR_BYTES: Final = 64 * 1024
_SCHEMA_TIMEOUTS: Final = httpx2.Timeout(2.0, connect=_CONNECT_TIMEOUT)
"""The limits for the request of the schema."""
_MAY_BE_INPUT: Final = ("INTERNAL", "INVALID_ARGUMENT")
"""The statuses of a flow whose input has another schema; JavaScript reports it as an internal error (1.42.0)."""
_RESUMING: Final = (messages_input, agent_input, stateless_agent_input)
"""The inputs that hold the answers to interrupted tools."""


class RemoteFlow:
    """Runs a flow by POST. A durable stream (``x-genkit-stream-id``) is attached to again when the connection breaks.

    ``reflection`` is the address of Genkit's reflection server, which tells the schema of the flow's input.

    Raises :class:`~usechat.errors.InvalidAddress` if one of them is not an HTTP address.
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        pass_on: Iterable[str],
        idle_timeout: float | None = None,
        show_public: bool = False,
        reflection: str | None = None,
    ) -> None:
        if not _is_http(url):
            raise InvalidAddress(
                f"{url!r} is not the address of a flow; give one such as http://127.0.0.1:3400/chatFlow"
            )
        if reflection is not None and not _is_http(reflection):
            raise InvalidAddress(
                f"{reflection!r} is not the address of a reflection server; give one such as http://127.0.0.1:3100"
            )
        self._url = url
        self._headers = dict(headers)
        self._pass_on = frozenset(name.lower() for name in pass_on)
        self._idle_timeout = idle_timeout
        self._show_public = show_public
        self._reflection = reflection
        self._has_answered = False
        self._actions: Mapping[str, Any] | None = None
        self._input_builder: InputBuilder = history_input

    @property
    def default_input(self) -> InputBuilder | AsyncInputBuilder:
        """The input of the chat specification; with a reflection server, the one that fits the flow's schema."""
        return history_input if self._reflection is None else self._build_input

    async def _build_input(self, turn: Turn, *, map_approval: MapApproval | None = None) -> FlowInput:
        if self._actions is None and (actions := await self._list_actions()) is not None:
            self._actions, self._input_builder = actions, self._find_input(actions)
        if self._input_builder not in _RESUMING:
            return self._input_builder(turn)
        return self._input_builder(turn, map_approval=respond_by_schema(_interrupts(self._actions or {}), map_approval))

    async def _list_actions(self) -> Mapping[str, Any] | None:
        """Return what the reflection server lists; ``None`` if it does not answer.

        Genkit's reflection API lists all actions with their schemas at ``/api/actions``. It is a separate server,
        which a Genkit process starts in development (``GENKIT_ENV=dev``); flow servers do not have that route
        (``@genkit-ai/core`` 1.42.0, ``genkit`` 0.12.0). It takes no token, so none is sent.
        """
        address = self._list_address
        try:
            async with httpx2.AsyncClient(timeout=_SCHEMA_TIMEOUTS, verify=verification()) as client:
                response = await client.get(address)
            return msgspec.json.decode(response.raise_for_status().content, type=dict[str, Any])
        except (httpx2.HTTPError, msgspec.DecodeError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            _logger.warning("%s does not list the actions of Genkit, so the input is #history: %s", address, reason)
            return None

    @property
    def _list_address(self) -> str:
        return f"{(self._reflection or '').rstrip('/')}/api/actions"

    def _find_input(self, actions: Mapping[str, Any]) -> InputBuilder:
        """Return the builder for the flow's schema, or for the agent, which needs to know who keeps its state."""
        name = urlsplit(self._url).path.strip("/").rpartition("/")[2]
        match actions.get(f"/agent/{name}"):
            case {"metadata": {"agent": {"stateManagement": "server"}}}:
                return agent_input
            case {"metadata": {"agent": {"stateManagement": "client"}}}:
                return stateless_agent_input
        action = actions.get(f"/flow/{name}")
        schema = action.get("inputSchema") if isinstance(action, dict) else None
        if not isinstance(schema, dict):
            _logger.warning("%s has no schema of the flow %s, so the input is #history", self._list_address, name)
            return history_input
        try:
            return input_for(name, schema)
        except CannotAnswer as error:
            _logger.warning("%s", error)
            return history_input

    async def run(self, flow_input: FlowInput, turn: Turn) -> AsyncGenerator[FlowEvent, None]:
        """Run the flow and yield its events. Closing the iterator closes the connection."""
        body = {"data": flow_input.data} | ({"init": flow_input.init} if flow_input.init is not None else {})
        headers = {name: value for name, value in turn.headers.items() if name.lower() in self._pass_on}
        # Go, Express and Flask compare the value of `accept` as a whole.
        headers |= self._headers | {"accept": "text/event-stream"}
        request = _StreamRequest(self._url, body, headers, self._idle_timeout, self._show_public)
        async with httpx2.AsyncClient(timeout=_TIMEOUTS, verify=verification()) as client:
            for pause in (0.0, *_PAUSES):
                await asyncio.sleep(pause)
                try:
                    async with aclosing(request.send(client)) as events:
                        async for event in events:
                            self._advise(event, flow_input.data)
                            yield event
                except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                    raise self._unreachable(error) from error
                if request.is_complete or request.stream_id is None:
                    return

    def _advise(self, event: FlowEvent, data: Any) -> None:
        """Log what may be wrong if a flow fails: servers report no more than an internal error."""
        if _is_internal_failure(event):
            _advise_on_restarts(data)
        if isinstance(event, FlowFailure) and event.status in _MAY_BE_INPUT and not self._has_answered:
            _logger.warning(
                "%s has only failed so far. It got %s. If it takes something else, name its input: add #text, #history,"
                " #messages, #agent or #stateless-agent to the address, or give --input or --reflection",
                self._url,
                _described(data),
            )
        self._has_answered = self._has_answered or not isinstance(event, FlowFailure)

    def _unreachable(self, error: httpx2.TransportError) -> PublicError:
        current_context().source_unreachable()
        return unreachable(self._url, error)


class _StreamRequest:
    """A request that can be repeated. The server sends a durable stream from its start, so known chunks are skipped."""

    def __init__(
        self,
        url: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str],
        idle_timeout: float | None,
        show_public: bool,
    ) -> None:
        self.is_complete = False
        self.stream_id: str | None = None
        """The id of a durable stream, if the server has one for this request."""
        self._url = url
        self._body = body
        self._headers = dict(headers)
        self._idle_timeout = idle_timeout
        self._show_public = show_public
        self._received = 0

    async def send(self, client: httpx2.AsyncClient) -> AsyncGenerator[FlowEvent, None]:
        """Send the request; yield the events until the stream ends or the connection breaks."""
        headers = self._headers | ({_STREAM_ID: self.stream_id} if self.stream_id else {})
        # A server may accept the id of a durable stream and then say nothing: Go's in-memory manager does after 100
        # chunks (1.12.0). The first request has no limit here: a flow may be silent as long as the run allows.
        timeouts = (
            httpx2.Timeout(None, connect=_CONNECT_TIMEOUT, read=self._idle_timeout) if self.stream_id else _TIMEOUTS
        )
        try:
            async with client.stream("POST", self._url, json=self._body, headers=headers, timeout=timeouts) as response:
                if await self._has_stream(response):
                    async with aclosing(self._events(response)) as events:
                        async for event in events:
                            yield event
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            if self.stream_id is None:
                raise
        except httpx2.ReadTimeout:
            _logger.warning("the durable stream %s at %s sends nothing", self.stream_id, self._url)
            self.stream_id = None
        except httpx2.DecodingError as error:
            raise unreadable(self._url, error) from error
        except httpx2.TransportError as error:
            _logger.warning("the connection to %s broke: %s", self._url, str(error) or type(error).__name__)

    async def _events(self, response: httpx2.Response) -> AsyncGenerator[FlowEvent, None]:
        reader, received, first_bytes = StreamReader(), 0, b""
        async for data in response.aiter_bytes():
            first_bytes = first_bytes or data[:FIRST_BYTES]
            for event in reader.receive(data):
                received += isinstance(event, FlowChunk)
                is_repeated = isinstance(event, FlowChunk) and received <= self._received
                if not is_repeated and not _is_foreign_end(reader):
                    yield event
            self._received = max(self._received, received)
            if reader.ended:
                break
        for event in reader.close():
            if not _is_foreign_end(reader):
                yield event
        self.is_complete = reader.ended
        if first_bytes and not reader.is_genkit:
            raise not_genkit(self._url, response.status_code, response.headers, first_bytes)

    async def _has_stream(self, response: httpx2.Response) -> bool:
        """Return whether the response is a stream; raise the error that it reports instead."""
        if self.stream_id and response.status_code == 204:
            self.stream_id = None  # the server has deleted the stream
            return False
        if self.stream_id and response.status_code >= 500:
            return False  # the server is not up again yet
        if response.status_code != 200 or "html" in response.headers.get("content-type", ""):
            body = await _beginning(response)
            raise error_page(self._url, response.status_code, response.headers, body, show_public=self._show_public)
        self.stream_id = response.headers.get(_STREAM_ID, self.stream_id)
        return True


def _is_internal_failure(event: FlowEvent) -> bool:
    match event:
        case FlowFailure("INTERNAL") | FlowResult({"finishReason": "failed", "error": {"status": "INTERNAL"}}):
            return True
    return False


def _described(data: Any) -> str:
    match data:
        case str():
            return "a text"
        case Mapping():
            return f"an object with {', '.join(data)}"
    return "a list"


def _advise_on_restarts(data: Any) -> None:
    """Log what may be wrong if tools were restarted."""
    if names := sorted(set(restarted_tools(FlowInput(data)))):
        _logger.warning(
            "Genkit failed after a restart of %s. If JavaScript's defineInterrupt made this tool, it cannot be"
            " restarted: name it with --respond-to (in code: map_approval=respond_to(%r))",
            ", ".join(names),
            names,
        )


def _interrupts(actions: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the tools that are never restarted, each with the schema of its response."""
    schemas: dict[str, Mapping[str, Any]] = {}
    for action in actions.values():
        match action:
            case {"name": str(name), "metadata": {"tool": {"restartable": False}}}:
                schema = action.get("outputSchema")
                schemas[name.rpartition("/")[2]] = schema if isinstance(schema, dict) else {}
    return schemas


def _is_http(url: str) -> bool:
    address = urlsplit(url)
    return address.scheme in ("http", "https") and bool(address.hostname)


def _is_foreign_end(reader: StreamReader) -> bool:
    """Return whether the reader gave up before anything of Genkit's came; :func:`not_genkit` says more than it does."""
    return reader.ended and not reader.is_genkit


async def _beginning(response: httpx2.Response) -> bytes:
    """Return the beginning of an error's body."""
    body = b""
    async for data in response.aiter_bytes():
        body += data
        if len(body) > _MAXIMUM_ERROR_BYTES:
            break
    return body
