"""Send requests to an AI SDK endpoint over HTTP, as ``DefaultChatTransport`` of the npm package does.

The endpoint may be written in any language: a Next.js route, another Python server, a usechat server. The requests are
those of the AI SDK's own client: a POST with the history, a GET of ``{url}/{chat id}/stream`` to resume.

Three things are added to what the JavaScript client does. A body that is not an event stream is an error that says what
it was, where JavaScript shows an empty answer. An answer that is closed before its end is stopped on the server with
``POST {url}/{chat id}/stop``, if the server has that route: closing the connection alone lets a resumable run continue.
Before the first files are sent, the server is asked for its limits, at the route ``limits`` beside ``{url}``: a file
that exceeds them is not sent. A server that does not tell them within two seconds gets the files, and is not asked
again.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import httpx2
import msgspec

from usechat.certificates import explain_tls, verification
from usechat.check.other_formats import nothing_read
from usechat.client.relay import Relay
from usechat.errors import (
    AnswerTimedOut,
    ConnectionLost,
    FileTooLarge,
    InvalidAddress,
    InvalidSetting,
    NotAStream,
    RequestRefused,
    TransportError,
)
from usechat.protocol.chunks import AbortChunk, Chunk, ErrorChunk, FinishChunk
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import MAXIMUM_EVENT_BYTES, ChunkDecoder
from usechat.protocol.values import json_text, plain_json

__all__ = [
    "Headers",
    "HttpChatTransport",
    "ServedAgent",
    "ServedLimits",
    "append_path",
    "is_address",
    "require_endpoint",
]

Headers: TypeAlias = Mapping[str, str] | Callable[[], Mapping[str, str]]
"""Headers, or a function that is called before each request, for tokens that expire."""

_Described = TypeVar("_Described")
_Result = TypeVar("_Result")

_MAXIMUM_ERROR: Final = 64 * 1024
"""Bytes of a body that are kept to say what it was."""
_STOP_SECONDS: Final = 5.0
_LIMITS_SECONDS: Final = 2.0
_FIRST_PAUSE: Final = 0.2
"""Seconds before the first retry; each further one waits twice as long."""
_NO_BODY: Final = 204
_ENDINGS: Final = (ErrorChunk, AbortChunk, FinishChunk)
"""The chunks after which nothing of an answer is left to stop."""
_CUT_OFF: Final = "the stream ends without `finish` and without [DONE]; the answer may have more"
_NOT_STREAMS: Final = frozenset({"UC004", "UC005"})
"""Rules of the checker for a body that is something else than an event stream."""


class ServedAgent(msgspec.Struct, frozen=True):
    """An agent that a server offers; name it in a request: ``chat.send("Hi", body={"agent": name})``.

    >>> ServedAgent("coder", "Writes code.").name
    'coder'
    """

    name: str
    description: str = ""


class ServedLimits(msgspec.Struct, frozen=True, rename="camel"):
    """How much one request to a server may hold: its bytes, the bytes of a file as a ``data:`` URL, and its files.

    >>> ServedLimits(maximum_bytes=1000, maximum_file_bytes=500, maximum_files=2).maximum_files
    2
    """

    maximum_bytes: int
    maximum_file_bytes: int
    maximum_files: int


class _AgentList(msgspec.Struct, frozen=True):
    agents: list[ServedAgent]


class HttpChatTransport(Relay):
    """A ``ChatTransport`` over any AI SDK endpoint. It can be served, too (`usechat serve --as ai-sdk URL`).

    Args:
        url: the endpoint, ``http://…`` or ``https://…``.
        headers: sent with every request; a function returns the current ones.
        body: merged into the body of each POST.
        prepare_body: makes the whole body of a POST from the request, for endpoints that want something else than the
            AI SDK's default.
        connect_timeout: how many seconds a connection may take to open.
        idle_timeout: how many seconds may pass without a byte, keep-alive comments included.
        retries: how often a connection that could not be opened is tried again. A request that may have reached the
            server is never repeated.
        verify: ``True``, ``False`` or an ``ssl.SSLContext``, which may hold a client certificate.
        stop_route: whether an answer that is closed before its end is stopped with ``POST {url}/{chat id}/stop``.
        pass_on: the headers of a page's request that are sent to the endpoint when the transport is served.
        maximum_event_bytes: the largest event that is read.
        http: the transport of ``httpx2`` to use, for a server in the same process.

    Raises:
        InvalidAddress: the URL is of another kind.
        InvalidSetting: ``retries`` is negative.

    Use it in one event loop.

    >>> import httpx2
    >>> from usechat import ChatRequest
    >>> import asyncio
    >>> from usechat.server import ChatApp
    >>> server = httpx2.ASGITransport(app=ChatApp(lambda turn: "Hello"))
    >>> question = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    >>> request = ChatRequest.parse({"id": "c1", "messages": [question], "trigger": "submit-message"})
    >>> async def main():
    ...     transport = HttpChatTransport("https://example.org/api/chat", headers={"x-team": "blue"}, http=server)
    ...     async with transport:
    ...         return [type(chunk).__name__ async for chunk in await transport.send_messages(request)]
    >>> asyncio.run(main())[:4]
    ['StartChunk', 'StartStepChunk', 'TextStartChunk', 'TextDeltaChunk']
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Headers = {},  # noqa: B006 (never changed)
        body: Mapping[str, Any] = {},
        prepare_body: Callable[[ChatRequest], Mapping[str, Any]] = ChatRequest.to_json,
        connect_timeout: float = 10,
        idle_timeout: float | None = 300,
        retries: int = 2,
        verify: ssl.SSLContext | bool = True,
        stop_route: bool = True,
        pass_on: Sequence[str] = (),
        maximum_event_bytes: int = MAXIMUM_EVENT_BYTES,
        http: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        require_endpoint(url)
        if retries < 0:
            raise InvalidSetting(f"retries is 0 or more, not {retries}")
        self.url = url
        self._headers = headers
        self._body = dict(body)
        self._prepare_body = prepare_body
        self._timeout = httpx2.Timeout(None, connect=connect_timeout, read=idle_timeout)
        self._idle_timeout = idle_timeout
        self._retries = retries
        self._verify = verify
        self._stop_route = stop_route
        super().__init__(pass_on)
        self._maximum_event_bytes = maximum_event_bytes
        self._http = http
        self._client: httpx2.AsyncClient | None = None
        self._limits: ServedLimits | None = None
        self._has_asked_limits = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections. A later request opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def send_messages(self, request: ChatRequest, *, headers: Mapping[str, str] = {}) -> AsyncIterator[Chunk]:
        """POST a chat request and return the chunks of the answer; ``headers`` are sent with this request alone.

        Raises :class:`~usechat.errors.TransportError` now or while the chunks are read, such as
        :class:`~usechat.errors.NotAStream` for an empty answer, and :class:`~usechat.errors.RemoteProtocolError` for a
        chunk that is not legal.
        """
        await check_files(request, self)
        merged = msgspec.structs.replace(request, body={**self._body, **request.body})
        content = json_text(plain_json(self._prepare_body(merged))).encode()
        request_headers = {"content-type": "application/json", **self._request_headers(), **headers}
        response = await self._open("POST", self.url, request_headers, content)
        if response.status_code == _NO_BODY:
            await response.aclose()
            raise NotAStream("The response body is empty.", url=self.url)
        return self._chunks(response, request.chat_id if self._stop_route else None)

    async def reconnect_to_stream(self, chat_id: str) -> AsyncIterator[Chunk] | None:
        """GET the answer of a chat that is being written, from its start; ``None`` if there is none."""
        url = append_path(self.url, chat_id, "stream")
        response = await self._open("GET", url, self._request_headers(), None)
        if response.status_code == _NO_BODY:
            await response.aclose()
            return None
        return self._chunks(response, None)

    async def agents(self) -> list[ServedAgent]:
        """Return the agents that the server offers; none if it is not a usechat server. The first is the default."""
        listing = await self._described("agents", _AgentList)
        return [] if listing is None else listing.agents

    async def limits(self) -> ServedLimits | None:
        """Return how much one request may hold; ``None`` if the server does not say at once. It is asked once."""
        if not self._has_asked_limits:
            self._has_asked_limits = True
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LIMITS_SECONDS):
                    self._limits = await self._described("limits", ServedLimits, retries=0)
        return self._limits

    async def _described(self, name: str, kind: type[_Described], retries: int | None = None) -> _Described | None:
        """Read a route beside the endpoint; ``None`` if a server that is not ours says something else there."""
        url = _beside(self.url, name)
        try:
            response = await self._open("GET", url, self._request_headers(), None, retries)
        except RequestRefused:
            return None
        with self._translated(url):
            content = await response.aread()
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError:
            return None

    async def stop(self, chat_id: str) -> bool:
        """Stop the answer of a chat on the server; tell whether the server has a route for it and did so."""
        url = append_path(self.url, chat_id, "stop")
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                response = await self._connected().post(url, headers=self._request_headers())
        except (httpx2.HTTPError, TimeoutError):
            return False
        return response.is_success

    def _connected(self) -> httpx2.AsyncClient:
        if self._client is None:
            self._client = httpx2.AsyncClient(
                timeout=self._timeout, verify=verification(self._verify), follow_redirects=True, transport=self._http
            )
        return self._client

    def _request_headers(self) -> dict[str, str]:
        headers = self._headers() if callable(self._headers) else self._headers
        return {name.lower(): value for name, value in headers.items()}

    async def _open(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, retries: int | None = None
    ) -> httpx2.Response:
        """Send a request and return the response as soon as its headers are there; raise if it is no success."""
        client = self._connected()
        request = client.build_request(method, url, headers=headers, content=content)
        response = await self._send(client, request, self._retries if retries is None else retries)
        if response.is_success:
            return response
        try:
            body = await _beginning(response)
        finally:
            await response.aclose()
        raise RequestRefused(status=response.status_code, body=body, url=url)

    async def _send(self, client: httpx2.AsyncClient, request: httpx2.Request, retries: int) -> httpx2.Response:
        async def send() -> httpx2.Response:
            with self._translated(str(request.url)):
                return await client.send(request, stream=True)

        return await retried(send, retries, lambda error: _may_repeat(request, error))

    async def _chunks(self, response: httpx2.Response, stoppable: str | None) -> AsyncIterator[Chunk]:
        """Yield the chunks of a response; stop the answer on the server if the caller closes the iterator early."""
        has_ended = False
        try:
            async for chunk in self._decoded(response):
                has_ended = has_ended or isinstance(chunk, _ENDINGS)
                yield chunk
        except (GeneratorExit, asyncio.CancelledError):
            await response.aclose()
            if stoppable and not has_ended:
                await self.stop(stoppable)
            raise
        finally:
            await response.aclose()

    async def _decoded(self, response: httpx2.Response) -> AsyncIterator[Chunk]:
        decoder = ChunkDecoder(maximum_event_bytes=self._maximum_event_bytes)
        unread = bytearray()
        is_stream = has_ended = False
        url = str(response.request.url)
        with self._translated(url):
            async for data in response.aiter_bytes():
                if self.on_data is not None:
                    self.on_data(data)
                chunks = decoder.receive(data)
                is_stream = is_stream or bool(chunks)
                if not is_stream:
                    unread += data[: _MAXIMUM_ERROR - len(unread)]
                for chunk in chunks:
                    has_ended = has_ended or isinstance(chunk, _ENDINGS)
                    yield chunk
        decoder.close()
        if not is_stream:
            finding = nothing_read(bytes(unread))
            if finding.rule in _NOT_STREAMS:
                raise NotAStream(f"{url} is not a UI message stream: {finding.what}", url=url)
        elif not has_ended and not decoder.is_done:
            # A proxy that gives up may end the body properly.
            raise ConnectionLost(f"lost the connection to {url}: {_CUT_OFF}", url=url)

    @contextlib.contextmanager
    def _translated(self, url: str) -> Any:
        """Raise our own errors instead of those of the HTTP library."""
        try:
            yield
        except httpx2.ReadTimeout as error:
            raise AnswerTimedOut(f"{url} sent nothing for {self._idle_timeout:g} s", url=url) from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise InvalidAddress(f"{url!r} is not an endpoint: {error}") from error
        except httpx2.HTTPError as error:
            raise ConnectionLost(f"{_what_failed(error)} {url}: {_reason(error)}", url=url) from error


async def retried(
    attempt: Callable[[], Awaitable[_Result]],
    retries: int,
    may_repeat: Callable[[ConnectionLost], bool] = lambda _error: True,
) -> _Result:
    """Attempt something, and up to ``retries`` times more, with growing pauses, while it raises ``ConnectionLost``."""
    pause = _FIRST_PAUSE
    for left in reversed(range(retries + 1)):
        try:
            return await attempt()
        except ConnectionLost as error:
            if not left or not may_repeat(error):
                raise
        await asyncio.sleep(pause)
        pause *= 2
    raise AssertionError("unreachable")


class DescribedServer(Protocol):
    """A server that can be asked how much one request may hold."""

    url: str

    async def limits(self) -> ServedLimits | None:
        """Return how much one request may hold; ``None`` if the server does not say."""


async def check_files(request: ChatRequest, server: DescribedServer) -> None:
    """Raise ``FileTooLarge`` if the server would refuse the files of the user's message."""
    files = [file for file in request.files if str(file.get("url", "")).startswith("data:")]
    if not files:
        return
    try:
        limits = await server.limits()
    except TransportError:  # the request itself reports that
        return
    if limits is None:
        return
    url = server.url
    if len(files) > limits.maximum_files:
        raise FileTooLarge(f"{len(files)} files; {url} takes at most {limits.maximum_files}", url=url)
    for file in files:
        if len(file["url"]) > limits.maximum_file_bytes:
            name = file.get("filename", "the file")
            most = limits.maximum_file_bytes * 3 // 4
            raise FileTooLarge(f"{name} is too large: {url} takes files of {most} bytes", url=url)
    if sum(len(file["url"]) for file in files) > limits.maximum_bytes:
        most = limits.maximum_bytes * 3 // 4
        raise FileTooLarge(f"the files are too large: {url} takes {most} bytes in all", url=url)


def is_address(url: str, schemes: Sequence[str]) -> bool:
    """Tell whether a URL has one of these schemes, a host name that can be looked up, and a possible port.

    >>> is_address("http://localhost:8000/api/chat", ["http"]), is_address("http://localhost:99999/", ["http"])
    (True, False)
    """
    try:
        parts = urlsplit(url)
        name = (parts.hostname or "").encode("idna")  # as the look-up does
        return parts.scheme in schemes and bool(name) and parts.port != 0
    except ValueError:
        return False


def require_endpoint(url: str) -> None:
    """Raise ``InvalidAddress`` if this cannot be the address of an endpoint."""
    if not is_address(url, ("http", "https")):
        raise InvalidAddress(f"{url!r} is not an endpoint; give a URL such as http://localhost:8000/api/chat")


def append_path(url: str, *names: str) -> str:
    """Return the URL with further path segments; its query stays at the end.

    >>> append_path("https://example.org/api/chat/?key=1", "my chat", "stream")
    'https://example.org/api/chat/my%20chat/stream?key=1'
    """
    if any(name in (".", "..") for name in names):
        raise InvalidSetting('a chat id must not be "." or "..": both mean another place in a URL')
    parts = urlsplit(url)
    path = "/".join([parts.path.removesuffix("/"), *(quote(name, safe="!'()*") for name in names)])
    return urlunsplit(parts._replace(path=path))


def _beside(url: str, name: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.removesuffix('/').rpartition('/')[0]}/{name}"))


def _may_repeat(request: httpx2.Request, error: ConnectionLost) -> bool:
    """Tell whether a request had no effect: it did not leave this machine, or it only reads."""
    not_sent = isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout)
    return not_sent or request.method == "GET"


def _what_failed(error: httpx2.HTTPError) -> str:
    is_open = not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout)
    return "lost the connection to" if is_open else "cannot connect to"


def _reason(error: httpx2.HTTPError) -> str:
    return explain_tls(str(error) or type(error).__name__)


async def _beginning(response: httpx2.Response) -> str:
    """Return as much of the body of a refusal as anybody wants to read."""
    body = bytearray()
    with contextlib.suppress(httpx2.HTTPError):  # the status says enough
        async for data in response.aiter_bytes():
            body += data
            if len(body) > _MAXIMUM_ERROR:
                break
    return bytes(body[:_MAXIMUM_ERROR]).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
