"""The WebSocket route: many requests on one socket, for AI SDK 7's ``WebSocketChatTransport``."""

import asyncio
import contextlib
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.websockets import WebSocket, WebSocketDisconnect

from usechat.errors import (
    ForeignOrigin,
    InvalidRequest,
    RequestError,
    RequestTooLarge,
    TooManyRequests,
    Unauthenticated,
    UnreadableFrame,
)
from usechat.protocol.request import DEFAULT_LIMITS, ChatRequest, Limits
from usechat.protocol.sse import chunks_json
from usechat.protocol.values import has_more_values, json_kind, read_json
from usechat.runs.log import Wake
from usechat.runs.manager import Reading
from usechat.server.auth.bearer import TOKEN_SUBPROTOCOL
from usechat.server.connection import all_written
from usechat.server.endpoints import Endpoints
from usechat.server.rare_lines import RareLines
from usechat.server.requests import IN_LOOP, address_of, is_welcome, repeated

__all__ = [
    "ChatSockets",
    "ClientFrame",
    "ServerFrame",
    "merge_headers",
]


Header: TypeAlias = tuple[bytes, bytes]

_LONGEST_REQUEST_ID: Final = 256
"""The id is repeated in every frame of the answer; the client's own has 16 characters."""

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")  # RFC 9110, 5.6.2
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")  # RFC 9110, 5.5

_NOT_OF_A_FRAME: Final = re.compile(
    r"accept-charset|accept-encoding|access-control-.*|connection|content-length|cookie2?|date|dnt|expect|host"
    r"|keep-alive|origin|referer|set-cookie|te|trailer|transfer-encoding|upgrade|via|proxy-.*|sec-.*"
    r"|forwarded|x-forwarded-.*|x-real-ip"
)
"""Headers that no page can set with ``fetch`` (Fetch, forbidden request-header), and that proxies set."""


class ClientFrame(msgspec.Struct, frozen=True):
    """One frame of a client: ``send``, ``resume`` or ``abort``. Its other content is read and checked on use."""

    type: str
    request_id: str
    size: int
    content: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str, limits: Limits = DEFAULT_LIMITS) -> "ClientFrame":
        """Read the type and the request id of a frame; raise ``UnreadableFrame`` if it has none."""
        data = text.encode("utf-8", "surrogatepass")
        if has_more_values(data, limits.maximum_values):
            raise UnreadableFrame(f"A frame holds more than {limits.maximum_values} values.")
        try:
            content = read_json(text)
        except (ValueError, RecursionError):
            raise UnreadableFrame("A frame is not JSON.") from None
        if not isinstance(content, dict):
            raise UnreadableFrame("A frame is not a JSON object.")
        kind, request_id = content.get("type"), content.get("requestId")
        if kind not in ("send", "resume", "abort"):
            raise UnreadableFrame("The type of a frame is send, resume or abort.")
        if not isinstance(request_id, str) or len(request_id) > _LONGEST_REQUEST_ID:
            raise UnreadableFrame(f"The requestId of a frame is a string of up to {_LONGEST_REQUEST_ID} characters.")
        return cls(kind, request_id, len(data), content)

    @property
    def chat_id(self) -> str:
        """The chat's id."""
        chat_id = self.content.get("id")
        if not isinstance(chat_id, str):
            raise InvalidRequest(f"the chat id must be a string, not {json_kind(chat_id)}")
        return chat_id

    @property
    def headers(self) -> dict[str, str]:
        """The headers that an HTTP request would have, with their names in lower case."""
        headers = {}
        for name, value in _read_object(self.content, "headers").items():
            lower = name.lower()
            if not isinstance(value, str) or not _NAME.fullmatch(lower) or not _VALUE.fullmatch(value):
                raise InvalidRequest(f"headers: {name[:80]!r} is not a header that HTTP could carry")
            headers[lower] = value
        return headers

    def request(self, limits: Limits, *, is_history_stored: bool = False) -> ChatRequest:
        """Return the chat request of a ``send``: the one that ``DefaultChatTransport`` would have posted."""
        if self.size > limits.maximum_bytes:
            raise RequestTooLarge(f"The request holds more than {limits.maximum_bytes} bytes.")
        own = {key: self.content[key] for key in ("id", "messages", "trigger", "messageId") if key in self.content}
        body = {**_read_object(self.content, "body"), **own}
        return ChatRequest.parse(body, limits=limits, is_history_stored=is_history_stored)


def merge_headers(handshake: Sequence[Header], frame: Mapping[str, str]) -> list[Header]:
    """Return the headers of a request that came as a frame: those of the handshake, and the frame's.

    Only ``authorization`` replaces a header of the handshake: a page cannot set others there, so they come from the
    browser or a proxy, and a page must not be able to forge them.
    """
    settled = {name for name, _ in handshake} - {b"authorization"}
    frame_headers = [
        (name.encode(), value.encode("latin-1"))
        for name, value in frame.items()
        if name.encode() not in settled and not _NOT_OF_A_FRAME.fullmatch(name)
    ]
    replaced = {name for name, _ in frame_headers}
    return [*(header for header in handshake if header[0] not in replaced), *frame_headers]


class ServerFrame:
    """Writes the frames that answer one request, and numbers its chunks."""

    def __init__(self, request_id: str) -> None:
        self._request_id = request_id
        self._before = json.dumps({"type": "chunk", "requestId": request_id}, separators=(",", ":"))[:-1]
        self._next = 0

    def start(self) -> str:
        """Return the frame that a stream begins with."""
        return self._write("start")

    def chunks(self, frames: bytes) -> list[str]:
        """Return the chunks of server-sent events, as they were encoded there; comments and ``[DONE]`` are left out."""
        chunks = chunks_json(frames)
        first, self._next = self._next, self._next + len(chunks)
        return [
            f'{self._before},"sequence":{number},"chunk":{data.decode()}}}' for number, data in enumerate(chunks, first)
        ]

    def end(self) -> str:
        """Return the frame for the end of a complete stream."""
        return self._write("end")

    def no_active(self) -> str:
        """Return the frame that says that there is nothing to resume."""
        return self._write("no-active")

    def error(self, text: str) -> str:
        """Return the frame that refuses the request; the client shows the text."""
        return self._write("error", errorText=text)

    def _write(self, kind: str, **more: str) -> str:
        return json.dumps({"type": kind, "requestId": self._request_id, **more}, separators=(",", ":"))


def _read_object(content: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise InvalidRequest(f"{key} must be an object, not {json_kind(value)}")
    return value


_logger: Final = logging.getLogger("usechat.server")

_SDK: Final = "7.0.135"
"""The first release that has this transport, so a request that names none is of this one or later."""

_SMALL: Final = 256 * 1024
"""Characters of a frame of somebody unknown: enough for a first message with its credentials, and soon parsed."""

_UNKNOWN_SECONDS: Final = 10.0
"""Seconds after which a socket is closed whose client is still unknown."""

_UNKNOWN_SOCKETS: Final = 16
"""How many sockets one address may have open whose clients are unknown."""

_GOODBYE: Final = 5.0
"""Seconds that a client which is disconnected gets to take the last frame."""


class _Close(NamedTuple):
    """The code and reason with which a socket is closed (RFC 6455, 7.4)."""

    code: int
    reason: str


# A clean close would do, too: the client takes every one for a network error as long as it waits for frames.
_UNKNOWN: Final = _Close(1008, "Authenticate at the handshake, or with a small first frame.")
_TOO_SLOW: Final = _Close(1013, "The connection is too slow; resume.")
_SHUTTING_DOWN: Final = _Close(1012, "The server is shutting down; resume.")


class ChatSockets:
    """Answers requests over WebSockets with the same runs, rules and error texts as the HTTP routes."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints = endpoints
        self._refusals = RareLines(_logger)
        self._unknown = Counter[str]()
        """How many sockets of each address are open whose clients are unknown."""

    async def serve(self, websocket: WebSocket) -> None:
        """Accept a socket, and serve it until it is closed.

        A client is known if its handshake carries valid credentials, or one of its first frames. Until then its frames
        must be small, its time is limited, and so are the sockets of its address.
        """
        headers = websocket.headers
        origin, host = headers.get("origin"), headers.get("host", "")
        if not is_welcome(origin, host, self._endpoints.settings.websocket_origins):
            await self._refuse(
                websocket,
                403,
                f"the page is at {repeated(str(origin))}, the server at {repeated(host)}. Let your proxy pass the"
                " Host header on, or allow the origin (--cors, Settings.websocket_origins)",
            )
            return
        try:
            is_known = await self._endpoints.authenticate(_as_request(websocket.scope, "GET", {}))
        except Unauthenticated:
            is_known = False
        except RequestError as error:
            reason = "" if isinstance(error, ForeignOrigin) else str(error)  # the origin check has logged its own
            await self._refuse(websocket, error.status, reason)
            return
        address = address_of(websocket)
        if not is_known and self._unknown[address] >= _UNKNOWN_SOCKETS:
            await self._refuse(
                websocket,
                429,
                f"{_UNKNOWN_SOCKETS} WebSockets of this address have no credentials. If it is your proxy, let it send"
                " X-Forwarded-For, and name it with --forwarded-allow-ips",
            )
            return
        self._unknown[address] += not is_known
        socket = _Socket(self._endpoints, websocket, on_known=None if is_known else partial(self._release, address))
        try:
            await websocket.accept(subprotocol=_choose(websocket.scope.get("subprotocols", [])))
            await socket.serve()
        finally:
            socket.recognise()

    async def _refuse(self, websocket: WebSocket, status: int, reason: str) -> None:
        if reason:
            address = address_of(websocket)
            text = "a WebSocket from %s was refused (%d): %s"
            self._refusals.warning((address, status), text, address, status, reason)
        self._endpoints.observer.request_refused(status)
        await websocket.close()  # before it is accepted: the server answers 403 (ASGI, websocket.close)

    def _release(self, address: str) -> None:
        self._unknown[address] -= 1
        if not self._unknown[address]:
            del self._unknown[address]


def _as_request(scope: MutableMapping[str, Any], method: str, headers: Mapping[str, str]) -> Request:
    """Return the HTTP request that a handshake, or a frame with these headers, stands for."""
    return Request(
        {
            **scope,
            "type": "http",
            "scheme": "https" if scope.get("scheme") == "wss" else "http",
            "method": method,
            "headers": merge_headers(scope["headers"], headers),
            "extensions": {},
        }
    )


def _choose(offered: Sequence[str]) -> str | None:
    """Choose a subprotocol: a browser that offered some fails unless it gets one (WHATWG WebSockets).

    The token is chosen only if there is no other: the response to a handshake may be logged.
    """
    names = [name for name in offered if not name.startswith(TOKEN_SUBPROTOCOL)] or offered
    return names[0] if names else None


class _Socket:
    """One client's socket, and the answers on it."""

    def __init__(self, endpoints: Endpoints, websocket: WebSocket, on_known: Callable[[], None] | None) -> None:
        self.endpoints = endpoints
        self._on_known = on_known
        """Called once, when the client of this socket is known; ``None`` from then on."""
        self._websocket = websocket
        self._answers: dict[str, _Answer] = {}
        self._disconnected: asyncio.Future[_Close | None] = asyncio.get_running_loop().create_future()
        self._reason = "disconnected"
        """Why its streams end early, for observers: unless the client leaves, it is the server."""

    async def serve(self) -> None:
        """Take frames until the client leaves, breaks the protocol or is disconnected; then close all readings."""
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(_UNKNOWN_SECONDS, self._close_unknown)
        listener = loop.create_task(self._listen())
        ends: list[asyncio.Future[_Close | None]] = [listener, self._disconnected]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            close = (listener if listener.done() else self._disconnected).result()
        finally:
            deadline.cancel()
            listener.cancel()
            for answer in self._answers.values():
                answer.leave(self._reason)
            await asyncio.gather(listener, *[answer.task for answer in self._answers.values()], return_exceptions=True)
        await self._close(close)

    async def _close(self, close: _Close | None) -> None:
        """Close the socket; reset that of a client which takes nothing, because servers wait longer than this."""
        transport = self.endpoints.server.transport_of(self._websocket.scope)
        try:
            async with asyncio.timeout(_GOODBYE):
                if close is not None:
                    with contextlib.suppress(WebSocketDisconnect):
                        await self._websocket.close(close.code, close.reason)
                if transport is not None:
                    await all_written(transport, polls=1)
        except TimeoutError:
            if transport is not None:
                transport.abort()

    async def send(self, frame: str) -> None:
        """Send a frame, as soon as the socket takes it."""
        try:
            await self._websocket.send_text(frame)
        except RuntimeError:
            # uvicorn closes a socket whose client does not answer pings, and only `send` reports it.
            self._reason = "client"
            self.disconnect(None)
            raise WebSocketDisconnect(1006) from None

    def as_request(self, frame: ClientFrame) -> Request:
        """Return a frame as the HTTP request that it stands for: access rules see no difference."""
        return _as_request(self._websocket.scope, "POST" if frame.type == "send" else "GET", frame.headers)

    @property
    def is_known(self) -> bool:
        """Whether the client has shown valid credentials."""
        return self._on_known is None

    def recognise(self) -> None:
        """Note that the client has shown valid credentials."""
        on_known, self._on_known = self._on_known, None
        if on_known is not None:
            on_known()

    def _close_unknown(self) -> None:
        if not self.is_known:
            self.endpoints.observer.request_refused(Unauthenticated.status)
            self.disconnect(_UNKNOWN)

    def disconnect(self, close: _Close | None) -> None:
        """Close the socket without ending its streams: the client sees a network error, and may resume."""
        if not self._disconnected.done():
            self._disconnected.set_result(close)

    async def _listen(self) -> _Close | None:
        try:
            while (message := await self._websocket.receive())["type"] != "websocket.disconnect":
                await self._take(message.get("text") or "")
        except UnreadableFrame as error:
            self._reason = "client"
            return _Close(1008, str(error)) if self.is_known else _UNKNOWN
        if message.get("code") != _SHUTTING_DOWN.code:  # uvicorn closes sockets with it at a shutdown
            self._reason = "client"
        return None

    async def _take(self, text: str) -> None:
        """Act on a frame, without waiting for its answer, so that a client which leaves is always noticed."""
        if len(text) > _SMALL and not self.is_known:
            raise UnreadableFrame(_UNKNOWN.reason)
        limits = self.endpoints.settings.limits
        if len(text) <= IN_LOOP:
            frame = ClientFrame.parse(text, limits)
        else:
            frame = await asyncio.to_thread(ClientFrame.parse, text, limits)
        current = self._answers.get(frame.request_id)
        if frame.type == "abort":
            if current is not None:
                current.leave("client")
            return
        if current is not None:
            raise UnreadableFrame("The requestId is in use.")
        maximum = self.endpoints.settings.websocket_requests
        if len(self._answers) >= 2 * maximum:
            raise UnreadableFrame("The client sends too many requests without waiting for answers.")
        answer = self._answers[frame.request_id] = _Answer(self, frame, crowded=len(self._answers) >= maximum)
        answer.task.add_done_callback(lambda _: self._answers.pop(frame.request_id))


class _Answer:
    """The answer to one request: finds or starts its run, and passes its frames on."""

    def __init__(self, socket: _Socket, frame: ClientFrame, *, crowded: bool) -> None:
        loop = asyncio.get_running_loop()
        self._socket = socket
        self._endpoints = socket.endpoints
        self._client_frame = frame
        self._crowded = crowded
        self._frames = ServerFrame(frame.request_id)
        self._received = loop.time()
        self._beginning = True
        self._left: str | None = None
        self._cut: Wake | None = None
        self.task = loop.create_task(self._answer(), name=f"usechat socket request {frame.request_id}")

    def leave(self, reason: str) -> None:
        """Stop answering. If the run is just being started, this waits until it has started."""
        self._left = reason
        if not self._beginning:
            self.task.cancel()

    async def _answer(self) -> None:
        with contextlib.suppress(WebSocketDisconnect):
            try:
                reading = await self._begin()
                await (self._send(self._frames.no_active()) if reading is None else self._pass_on(reading))
            except RequestError as error:
                self._endpoints.observer.request_refused(error.status)
                await self._send(self._frames.error(str(error)))
            except WebSocketDisconnect:
                raise
            except Exception:  # as in the HTTP routes: the log has the details, the client gets only this
                _logger.exception("a request on a socket failed")
                self._endpoints.observer.request_refused(500)
                await self._send(self._frames.error("Internal Server Error"))

    async def _begin(self) -> Reading | None:
        try:
            if self._crowded:
                maximum = self._endpoints.settings.websocket_requests
                raise TooManyRequests(f"More than {maximum} requests at once on one connection.")
            request = self._socket.as_request(self._client_frame)
            if self._client_frame.type == "resume":
                recognise = self._socket.recognise
                return await self._endpoints.find(request, self._client_frame.chat_id, _SDK, on_identified=recognise)
            # Before the content is looked at: an unknown client does not learn what is wrong with it.
            chat_id = self._client_frame.content.get("id")
            identity = await self._endpoints.identify(request, chat_id if isinstance(chat_id, str) else "")
            self._socket.recognise()
            limits = self._endpoints.settings.limits
            read = partial(self._client_frame.request, limits, is_history_stored=self._endpoints.is_history_stored)
            chat_request = read() if self._client_frame.size <= IN_LOOP else await asyncio.to_thread(read)
            return await self._endpoints.begin(
                request,
                chat_request,
                _SDK,
                identity=identity if chat_request.chat_id else None,
                has_left=self._has_left,
            )
        except InvalidRequest:
            if self._socket.is_known:
                raise
            raise Unauthenticated("The request carries no valid credentials.") from None
        finally:
            self._beginning = False

    async def _has_left(self) -> bool:
        return self._left is not None

    async def _send(self, frame: str) -> None:
        if not self._left:
            await self._socket.send(frame)

    async def _pass_on(self, reading: Reading) -> None:
        """Send a stream until it ends or the client is disconnected."""
        observer = self._endpoints.observer
        observer.stream_opened()
        reading.on_cut(self._interrupt)
        reason = "client"
        try:
            await self._send(self._frames.start())
            reason = await self._copy(reading)
            if reason == "ended":
                await self._send(self._frames.end())
        except asyncio.CancelledError:
            if self._cut is None:
                reason = self._left or "disconnected"
                raise
            self.task.uncancel()
            reason = _reason(self._cut)
        finally:
            if reason == "slow":
                reading.give_up()
            reading.close()
            observer.stream_closed(reason)
        if reason == "slow":
            self._socket.disconnect(_TOO_SLOW)
        elif reason == "disconnected":
            self._socket.disconnect(_SHUTTING_DOWN)

    async def _copy(self, reading: Reading) -> str:
        """Send chunks; return why there are no more."""
        observer = self._endpoints.observer
        first = True
        while not self._left:
            match await reading.read():
                case None:
                    return "ended"
                case Wake() as why:
                    return _reason(why)
                case frames:
                    if first:
                        first = False
                        observer.first_frame(asyncio.get_running_loop().time() - self._received)
                    for frame in self._frames.chunks(frames):
                        await self._socket.send(frame)
                    observer.bytes_sent(len(frames))
        return self._left

    def _interrupt(self, why: Wake) -> None:
        if self._cut is None and not self._left:
            self._cut = why
            self.task.cancel()


def _reason(why: Wake) -> str:
    return "slow" if why is Wake.TOO_SLOW else "disconnected"
