"""Send requests to an AI SDK endpoint over a WebSocket, as ``WebSocketChatTransport`` of AI SDK 7.0.135 and later does.

One socket carries any number of answers. A client sends ``send``, ``resume`` and ``abort`` frames; the server answers
with ``start``, numbered ``chunk`` frames and ``end``, or with ``no-active`` or ``error``. One task reads the socket and
gives each frame to the answer that it belongs to.

What a usechat server says about itself it says over HTTP: its agents, and the limits that files are compared with
before they are sent. A socket at ``…/api/chat/ws`` belongs to the endpoint ``…/api/chat``.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from usechat.certificates import explain_tls, verification
from usechat.client.relay import Relay
from usechat.client.transport import (
    Headers,
    HttpChatTransport,
    ServedAgent,
    ServedLimits,
    check_files,
    is_address,
    retried,
)
from usechat.errors import (
    AnswerTimedOut,
    ConnectionLost,
    InvalidAddress,
    InvalidSetting,
    RemoteProtocolError,
    RequestRefused,
    StreamFailed,
    UsechatError,
)
from usechat.ids import new_id
from usechat.protocol.chunks import Chunk, chunk_from_json
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import MAXIMUM_EVENT_BYTES
from usechat.protocol.values import json_text, plain_json, read_json

__all__ = ["WebSocketChatTransport"]

_Frame: TypeAlias = dict[str, Any]
_HTTP: Final = {"ws": "http", "wss": "https"}


class WebSocketChatTransport(Relay):
    """A ``ChatTransport`` over one WebSocket, which is opened for the first request and after it was lost.

    It can be served, too (`usechat serve --as ai-sdk URL`).

    Args:
        url: the endpoint, ``ws://…``, ``wss://…`` or the same with ``http``.
        headers: go into every frame, where a usechat server reads them as those of a request.
        body: merged into each request.
        handshake_headers: go into the HTTP request that opens the socket.
        connect_timeout: how many seconds the socket may take to open.
        idle_timeout: how many seconds an answer may take for its next chunk.
        retries: how often a socket that could not be opened is tried again. A request that may have reached the server
            is never repeated.
        ssl_context: for ``wss`` with private certificates.
        pass_on: the headers of a page that go into the frame of its request when the transport is served.
        maximum_frame_bytes: the largest frame that is read.

    Raises:
        InvalidAddress: the URL is of another kind.
        InvalidSetting: ``retries`` is negative.

    Use it in one event loop.

    >>> from usechat.client import Chat
    >>> transport = WebSocketChatTransport("https://example.org/api/chat", headers={"x-team": "blue"})
    >>> transport.url  # the socket is opened by the first request
    'wss://example.org/api/chat'
    >>> chat = Chat(transport)
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Headers = {},  # noqa: B006 (never changed)
        body: Mapping[str, Any] = {},
        handshake_headers: Mapping[str, str] = {},
        connect_timeout: float = 10,
        idle_timeout: float | None = 300,
        retries: int = 2,
        ssl_context: ssl.SSLContext | None = None,
        pass_on: Sequence[str] = (),
        maximum_frame_bytes: int = MAXIMUM_EVENT_BYTES,
    ) -> None:
        scheme, _, rest = url.partition("://")
        scheme = {"http": "ws", "https": "wss"}.get(scheme.lower(), scheme.lower())
        if not is_address(f"{scheme}://{rest}", list(_HTTP)) or "#" in rest:
            raise InvalidAddress(
                f"{url!r} is not the URL of a WebSocket; give a URL such as ws://localhost:8000/api/chat"
            )
        if retries < 0:
            raise InvalidSetting(f"retries is 0 or more, not {retries}")
        self.url = f"{scheme}://{rest}"
        self._headers = headers
        self._body = dict(body)
        self._handshake_headers = dict(handshake_headers)
        self._connect_timeout = connect_timeout
        self._idle_timeout = idle_timeout
        self._retries = retries
        verify = True if ssl_context is None else ssl_context
        self._ssl = verification(verify) if scheme == "wss" else None
        super().__init__(pass_on)
        self._maximum = maximum_frame_bytes
        self._http = HttpChatTransport(
            f"{_HTTP[scheme]}://{_endpoint(rest)}",
            headers=lambda: {**self._handshake_headers, **self._frame_headers()},
            connect_timeout=connect_timeout,
            idle_timeout=idle_timeout,
            retries=retries,
            verify=verify,
        )
        self._connection: _Connection | None = None
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the socket; the answers on it fail. A later request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()
        await self._http.aclose()

    async def agents(self) -> list[ServedAgent]:
        """Return the agents that the server offers; none if it is not a usechat server. The first is the default."""
        return await self._http.agents()

    async def limits(self) -> ServedLimits | None:
        """Return how much one request may hold; ``None`` if the server does not say. It is asked once."""
        return await self._http.limits()

    async def send_messages(self, request: ChatRequest, *, headers: Mapping[str, str] = {}) -> AsyncIterator[Chunk]:
        """Send a chat request and return the chunks of the answer; ``headers`` are sent with this request alone."""
        await check_files(request, self)
        frame = {
            "type": "send",
            "id": request.chat_id,
            "trigger": request.trigger,
            "messages": request.messages,
            "headers": {**self._frame_headers(), **headers},
            "body": {**self._body, **request.body},
        }
        if request.message_id is not None:
            frame["messageId"] = request.message_id
        connection = await self._connected()
        answer = await connection.ask(frame)
        return self._chunks(connection, answer)

    async def reconnect_to_stream(self, chat_id: str) -> AsyncIterator[Chunk] | None:
        """Ask for the answer of a chat that is being written, from its start; ``None`` if there is none."""
        frame = {"type": "resume", "id": chat_id, "headers": self._frame_headers(), "body": self._body}
        connection = await self._connected()
        answer = await connection.ask(frame)
        chunks = self._chunks(connection, answer)
        first = await self._next(connection, answer)
        if first["type"] == "no-active":
            connection.forget(answer)
            return None
        answer.put_back(first)
        return chunks

    def _frame_headers(self) -> dict[str, str]:
        headers = self._headers() if callable(self._headers) else self._headers
        return {name.lower(): value for name, value in headers.items()}

    async def _connected(self) -> "_Connection":
        async with self._opening:
            if self._connection is None or self._connection.is_closed:
                self._connection = await retried(self._connect, self._retries)
            return self._connection

    async def _connect(self) -> "_Connection":
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidHandshake, InvalidStatus, InvalidURI

        try:
            socket = await connect(
                self.url,
                additional_headers=self._handshake_headers,
                ssl=self._ssl,
                open_timeout=self._connect_timeout,
                max_size=self._maximum,
            )
        except InvalidURI as error:
            raise InvalidAddress(f"{self.url!r} is not the URL of a WebSocket: {error}") from error
        except InvalidStatus as error:
            body = (error.response.body or b"").decode("utf-8", "replace")
            raise RequestRefused(status=error.response.status_code, body=body, url=self.url) from error
        except (OSError, InvalidHandshake, TimeoutError) as error:
            raise ConnectionLost(
                f"cannot connect to {self.url}: {explain_tls(str(error) or type(error).__name__)}", url=self.url
            ) from error
        return _Connection(socket, self.url, self._note)

    def _note(self, message: bytes) -> None:
        if self.on_data is not None:
            self.on_data(message + b"\n")

    async def _next(self, connection: "_Connection", answer: "_SocketAnswer") -> _Frame:
        """Return the next frame of an answer; raise if it is a refusal, or if there is none in time."""
        try:
            async with asyncio.timeout(self._idle_timeout):
                frame = await answer.next()
        except TimeoutError as error:
            await connection.abort(answer)
            raise AnswerTimedOut(f"{self.url} sent nothing for {self._idle_timeout:g} s", url=self.url) from error
        if frame["type"] == "error":
            connection.forget(answer)
            raise StreamFailed(frame.get("errorText") or "WebSocket chat server returned an error.")
        return frame

    async def _chunks(self, connection: "_Connection", answer: "_SocketAnswer") -> AsyncIterator[Chunk]:
        try:
            while (frame := await self._next(connection, answer))["type"] not in ("end", "no-active"):
                if frame["type"] == "chunk" and answer.is_new(frame.get("sequence")):
                    yield chunk_from_json(frame.get("chunk"))
            connection.forget(answer)
        except RemoteProtocolError as error:
            await connection.aclose(error)  # as the JavaScript client does: nothing on this socket can be trusted
            raise
        finally:
            await connection.abort(answer)


def _endpoint(address: str) -> str:
    """Return the address of the endpoint that a socket belongs to."""
    path, mark, query = address.partition("?")
    return path.removesuffix("/").removesuffix("/ws") + mark + query


class _SocketAnswer:
    """The frames of one answer that were not read yet."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self._frames: asyncio.Queue[_Frame | UsechatError] = asyncio.Queue()
        self._unread_frames: list[_Frame] = []
        self._sequence = -1

    def put(self, frame: "_Frame | UsechatError") -> None:
        self._frames.put_nowait(frame)

    def put_back(self, frame: _Frame) -> None:
        self._unread_frames.append(frame)

    async def next(self) -> _Frame:
        if self._unread_frames:
            return self._unread_frames.pop()
        frame = await self._frames.get()
        if isinstance(frame, UsechatError):
            raise frame
        return frame

    def is_new(self, sequence: Any) -> bool:
        """Tell whether a chunk was not seen yet; raise if one before it is missing."""
        if not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 0:
            raise RemoteProtocolError("Invalid WebSocket chat chunk sequence.")
        if sequence > self._sequence + 1:
            raise RemoteProtocolError("Out-of-order WebSocket chat chunk sequence.")
        is_new = sequence > self._sequence
        self._sequence = max(self._sequence, sequence)
        return is_new


class _Connection:
    """An open socket, the task that reads it, and the answers on it."""

    def __init__(self, socket: Any, url: str, note: Callable[[bytes], None]) -> None:
        self._socket = socket
        self._url = url
        self._note = note
        self._answers: dict[str, _SocketAnswer] = {}
        self.is_closed = False
        self._reader = asyncio.get_running_loop().create_task(self._read(), name="usechat client socket")

    async def ask(self, frame: _Frame) -> _SocketAnswer:
        """Send a request and return its answer, which has no frames yet."""
        answer = _SocketAnswer(new_id())
        self._answers[answer.request_id] = answer
        try:
            await self._send({"requestId": answer.request_id, **frame})
        except BaseException:
            self.forget(answer)
            raise
        return answer

    def forget(self, answer: _SocketAnswer) -> None:
        self._answers.pop(answer.request_id, None)

    async def abort(self, answer: _SocketAnswer) -> None:
        """Tell the server that the answer is no longer read, unless it has ended."""
        if self._answers.pop(answer.request_id, None) is not None and not self.is_closed:
            with contextlib.suppress(ConnectionLost):
                await self._send({"type": "abort", "requestId": answer.request_id})

    async def aclose(self, error: UsechatError | None = None) -> None:
        """Close the socket; answers that have not ended fail."""
        self._fail(error or ConnectionLost("WebSocket chat transport was closed.", url=self._url))
        await self._socket.close()
        if self._reader is not asyncio.current_task():
            await self._reader

    async def _send(self, frame: _Frame) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            await self._socket.send(json_text(plain_json(frame)))
        except ConnectionClosed as error:
            raise self._lost(error) from error

    async def _read(self) -> None:
        from websockets.exceptions import ConnectionClosed

        try:
            while True:
                message = await self._socket.recv()
                self._note(message.encode() if isinstance(message, str) else message)
                self._dispatch(message)
        except ConnectionClosed as error:
            self._fail(self._lost(error))
        except RemoteProtocolError as error:
            self._fail(error)
            await self._socket.close(1011, "WebSocket chat transport error")

    def _dispatch(self, data: str | bytes) -> None:
        try:
            frame = read_json(data if isinstance(data, str) else data.decode())
        except (ValueError, RecursionError) as error:
            raise RemoteProtocolError("Invalid WebSocket chat response frame.") from error
        if not isinstance(frame, dict) or not isinstance(frame.get("requestId"), str):
            raise RemoteProtocolError("Invalid WebSocket chat response frame.")
        if frame.get("type") not in ("start", "chunk", "end", "no-active", "error"):
            raise RemoteProtocolError(f"Unknown WebSocket chat response type: {frame.get('type')}.")
        answer = self._answers.get(frame["requestId"])
        if answer is not None:
            answer.put(frame)

    def _fail(self, error: UsechatError) -> None:
        self.is_closed = True
        for answer in self._answers.values():
            answer.put(error)

    def _lost(self, error: Any) -> ConnectionLost:
        return ConnectionLost(f"lost the connection to {self._url}: {error}", url=self._url)
