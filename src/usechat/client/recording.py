"""Record what goes over the wire between a page and an endpoint, play it back, and compare two recordings.

**The file** (``*.usechat.jsonl``) has one JSON object per line, in the order of time. The first line says what it is.
Each other line belongs to one exchange, a request and its response, and has the seconds since the recording began:

.. code-block:: text

    {"usechat": "recording", "version": 1, "url": "https://example.org/api/chat"}
    {"exchange": 1, "at": 0.0, "request": {"method": "POST", "path": "", "body": {…}}}
    {"exchange": 1, "at": 0.21, "response": {"status": 200, "headers": {"content-type": "text/event-stream"}}}
    {"exchange": 1, "at": 0.22, "data": "data: {\\"type\\":\\"start\\"}\\n\\n"}
    {"exchange": 1, "at": 0.93, "end": "complete"}

``path`` is what follows the URL of the endpoint. ``data`` is one frame, or what there was of it; bytes that are no
UTF-8 stand under ``bytes`` in base64. ``end`` is ``complete``, ``broken`` (by the endpoint) or ``left`` (by the page).
Of the headers only those are kept that cannot hold a secret; the query of the URL is left out.
"""

import asyncio
import base64
import binascii
import itertools
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import IO, Annotated, Any, Final, Literal, TypeAlias, cast
from urllib.parse import urlsplit, urlunsplit

import httpx2
import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route, Router

from usechat.certificates import verification
from usechat.check.response import Capture
from usechat.client.transport import require_endpoint
from usechat.client.views import with_stable_ids
from usechat.errors import InvalidMessages, InvalidSetting, ProtocolError, StreamFailed, UnusableFile
from usechat.protocol.message import MessageBuilder
from usechat.protocol.releases import release
from usechat.protocol.sse import ChunkDecoder, take_frames
from usechat.protocol.ui_messages import UIMessage
from usechat.protocol.validation import clean_message
from usechat.protocol.values import json_text

__all__ = [
    "RecordedExchange",
    "RecordingProxy",
    "StreamPlayer",
    "StreamRecorder",
    "StreamRecording",
    "first_difference",
]

End: TypeAlias = Literal["complete", "broken", "left"]
Step: TypeAlias = Callable[[bytes], Awaitable[None]]

_VERSION: Final = 1
_KEPT_REQUEST_HEADERS: Final = frozenset({"accept", "content-type", "user-agent", "x-ai-sdk"})
_KEPT_RESPONSE_HEADERS: Final = frozenset(
    {"cache-control", "content-type", "x-accel-buffering", "x-vercel-ai-ui-message-stream"}
)
_HOP_BY_HOP: Final = frozenset(
    {"connection", "content-encoding", "content-length", "host", "keep-alive", "transfer-encoding", "upgrade"}
)
_CHAT_PATH: Final = "/api/chat"
_ENDS: Final = ("complete", "broken", "left")
_UNREAD: Final = {"left": "the page left before the end", None: "the recording ends before the answer does"}


class RecordedExchange(msgspec.Struct):
    """One request and its response: ``pieces`` of its body, each with its time, and ``end``, as it ended.

    ``at`` is when it began; times are in seconds since the recording began. ``method``, ``path``
    (below the recorded URL), ``body`` and ``request_headers`` are those of the request, ``status`` and ``headers``
    those of the response.

    >>> RecordedExchange(0, "POST", "", pieces=[(0.1, b"data: "), (0.2, b"[DONE]")]).content
    b'data: [DONE]'
    """

    at: float
    method: str
    path: str
    body: Any = None
    request_headers: dict[str, str] = {}
    status: int | None = None
    headers: dict[str, str] = {}
    pieces: list[tuple[float, bytes]] = []
    end: End | None = None

    @property
    def is_question(self) -> bool:
        """Whether it posts a chat request, and does not stop or look at one."""
        return self.method == "POST" and self.path == ""

    @property
    def content(self) -> bytes:
        """The body of the response."""
        return b"".join(piece for _, piece in self.pieces)

    @property
    def continues(self) -> UIMessage | None:
        """The last message of the request, if it is legal; an assistant's message is continued by the response."""
        messages = self.body.get("messages") if isinstance(self.body, dict) else None
        if not isinstance(messages, list) or not messages:
            return None
        try:
            clean_message(messages[-1], "message", release("7"))
        except InvalidMessages:
            return None
        return cast("UIMessage", messages[-1])

    def capture(self, name: str) -> Capture:
        """Return the response for the checker."""
        sizes = itertools.accumulate(len(piece) for _, piece in self.pieces)
        return Capture(
            name=name,
            body=self.content,
            status=self.status or 0,
            headers=self.headers,
            arrivals=tuple((at - self.at, size) for (at, _), size in zip(self.pieces, sizes, strict=True)),
            is_broken=self.end == "broken",
            unread=_UNREAD.get(self.end),
            continues=self.continues,
        )

    def message(self, sdk: str = "7") -> tuple[UIMessage | None, str | None]:
        """Return the message that a client makes of the response, and what it would show as an error."""
        if self.status is None or not 200 <= self.status < 300:
            return None, self.content.decode("utf-8", "replace") or f"status {self.status}"
        decoder, builder = ChunkDecoder(), MessageBuilder(sdk=sdk, message_id="answer", message=self.continues)
        try:
            for _, piece in self.pieces:
                for chunk in decoder.receive(piece):
                    builder.receive(chunk)
        except (ProtocolError, StreamFailed) as error:
            return builder.message, str(error)
        return builder.message, None


class StreamRecording:
    """A recording in memory: the endpoint's URL and the exchanges in the order in which they began.

    >>> lines = [
    ...     '{"usechat": "recording", "version": 1, "url": "http://localhost:8000/api/chat"}',
    ...     '{"exchange": 1, "at": 0, "request": {"method": "POST", "path": "", "body": {"messages": []}}}',
    ...     '{"exchange": 1, "at": 0.2, "response": {"status": 404, "headers": {}}}',
    ...     '{"exchange": 1, "at": 0.2, "data": "No such chat."}',
    ... ]
    >>> StreamRecording.parse(lines).questions[0].message()
    (None, 'No such chat.')
    """

    def __init__(self, url: str, exchanges: list[RecordedExchange]) -> None:
        self.url = url
        self.exchanges = exchanges

    @classmethod
    def read(cls, path: str | Path) -> "StreamRecording":
        """Read a file. Raises :class:`~usechat.errors.UnusableFile`, which names the line that is wrong."""
        try:
            # Not splitlines(): JSON may hold U+0085, U+2028 and U+2029, which it takes for ends of lines.
            lines = Path(path).read_text(encoding="utf-8").split("\n")
        except OSError as error:
            raise UnusableFile(f"{path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError as error:
            raise UnusableFile(f"{path} is not UTF-8 text: byte {error.start}") from None
        return cls.parse(lines, name=str(path))

    @classmethod
    def parse(cls, lines: list[str], *, name: str = "the recording") -> "StreamRecording":
        """Read the lines of a file; ``name`` is what errors call it.

        Raises :class:`~usechat.errors.UnusableFile` for a line that is not one of a recording, and if there is none.
        """
        recording: StreamRecording | None = None
        exchanges: dict[int, RecordedExchange] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
                if recording is None:
                    recording = cls(_read_head(value), [])
                else:
                    _read_event(value, exchanges)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise UnusableFile(f"{name}, line {number}: {_what_is_wrong(error)}") from None
        if recording is None:
            raise UnusableFile(f"{name} is empty; a recording begins with a line that says what it is")
        recording.exchanges = list(exchanges.values())
        return recording

    @property
    def questions(self) -> list[RecordedExchange]:
        """The exchanges that post a chat request."""
        return [exchange for exchange in self.exchanges if exchange.is_question]


def _read_head(value: Any) -> str:
    if not isinstance(value, dict):
        raise TypeError(f"a recording of version {_VERSION} is expected, not {json.dumps(value)[:80]}")
    if value["usechat"] != "recording" or value["version"] != _VERSION:
        raise ValueError(f"a recording of version {_VERSION} is expected, not {json.dumps(value)[:80]}")
    return str(value["url"])


class _RequestLine(msgspec.Struct):
    method: str
    path: str
    body: Any = None
    headers: dict[str, str] = {}


class _ResponseLine(msgspec.Struct):
    status: Annotated[int, msgspec.Meta(ge=100, le=599)]
    headers: dict[str, str]


class _Event(msgspec.Struct):
    """One line after the first; one of its optional keys is there."""

    exchange: int
    at: float
    request: _RequestLine | None = None
    response: _ResponseLine | None = None
    data: str | None = None
    bytes: str | None = None
    end: str | None = None


def _read_event(value: Any, exchanges: dict[int, RecordedExchange]) -> None:
    event = msgspec.convert(value, _Event)
    if not math.isfinite(event.at):
        raise ValueError(f"at is a number of seconds, not {event.at}")
    if event.request is not None:
        request = event.request
        exchanges[event.exchange] = RecordedExchange(
            event.at, request.method, request.path, request.body, request.headers
        )
        return
    exchange = exchanges[event.exchange]
    if event.response is not None:
        exchange.status, exchange.headers = event.response.status, event.response.headers
    elif event.data is not None:
        exchange.pieces.append((event.at, event.data.encode()))
    elif event.bytes is not None:
        exchange.pieces.append((event.at, base64.b64decode(event.bytes, validate=True)))
    elif event.end in _ENDS:
        exchange.end = cast("End", event.end)
    else:
        raise ValueError(f"end is one of {', '.join(_ENDS)}, not {event.end!r}")


def _what_is_wrong(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"this is not JSON, or it is cut off ({error.msg}, column {error.colno})"
    if isinstance(error, binascii.Error):
        return "bytes is not base64"
    return f"the key {error} is missing" if isinstance(error, KeyError) else str(error)


class StreamRecorder:
    """Writes a recording as it happens; every line is complete when the program dies.

    ``file`` is a text file open for writing, ``url`` the endpoint, and ``clock`` the time in seconds. Of headers only
    those that explain a stream are written, never credentials. Paths are relative to the endpoint.

    >>> with open("chat.jsonl", "w", encoding="utf-8") as file:
    ...     recorder = StreamRecorder(file, "http://localhost:8000/api/chat")
    ...     exchange = recorder.begin("POST", "", {}, {"id": "c1", "messages": []})
    ...     recorder.respond(exchange, 200, {"content-type": "text/event-stream"})
    ...     recorder.data(exchange, b"data: [DONE]\\n\\n")
    ...     recorder.end(exchange, "complete")
    >>> len(StreamRecording.read("chat.jsonl").exchanges)
    1
    """

    def __init__(self, file: IO[str], url: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._began = clock()
        self._count = 0
        self._write({"usechat": "recording", "version": _VERSION, "url": without_query(url)})

    def begin(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> int:
        """Write a request; return the number of its exchange."""
        self._count += 1
        recorded_headers = {
            name.lower(): value for name, value in headers.items() if name.lower() in _KEPT_REQUEST_HEADERS
        }
        self._event(self._count, request={"method": method, "path": path, "headers": recorded_headers, "body": body})
        return self._count

    def respond(self, exchange: int, status: int, headers: Mapping[str, str]) -> None:
        """Write the beginning of a response."""
        recorded_headers = {
            name.lower(): value for name, value in headers.items() if name.lower() in _KEPT_RESPONSE_HEADERS
        }
        self._event(exchange, response={"status": status, "headers": recorded_headers})

    def data(self, exchange: int, frame: bytes) -> None:
        """Write a piece of a response."""
        try:
            self._event(exchange, data=frame.decode())
        except UnicodeDecodeError:
            self._event(exchange, bytes=base64.b64encode(frame).decode())

    def end(self, exchange: int, end: End) -> None:
        """Write how a response ended."""
        self._event(exchange, end=end)

    def _event(self, exchange: int, **event: Any) -> None:
        self._write({"exchange": exchange, "at": round(self._clock() - self._began, 4), **event})

    def _write(self, value: dict[str, Any]) -> None:
        self._file.write(json_text(value) + "\n")
        self._file.flush()


def without_query(url: str) -> str:
    """Return a URL without its query and its user, which may hold a key."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class RecordingProxy:
    """An ASGI app that passes the requests of a page on to an endpoint, and records them.

    ``path`` is where the page posts. Further paths below it (``/{chat id}/stream``, ``/{chat id}/stop``) are passed on
    too. ``headers`` are sent to the endpoint besides those of the page, and not recorded. ``verify`` says whether its
    certificate is checked. ``http`` is the transport of ``httpx2`` to use.
    """

    def __init__(
        self,
        url: str,
        recorder: StreamRecorder,
        *,
        path: str = _CHAT_PATH,
        headers: Mapping[str, str] = {},
        verify: bool = True,
        http: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        require_endpoint(url)
        self._url = urlsplit(url)
        self._recorder = recorder
        self._headers = dict(headers)
        self._client = httpx2.AsyncClient(
            timeout=None, verify=verification(verify), follow_redirects=True, transport=http
        )
        self._app = Router(routes=[Route(f"{path}{{rest:path}}", self._pass_on, methods=["GET", "POST"])])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one ASGI connection."""
        await self._app(scope, receive, send)

    async def aclose(self) -> None:
        """Close the connections to the endpoint."""
        await self._client.aclose()

    async def _pass_on(self, request: Request) -> Response:
        rest, body = request.path_params["rest"], await request.body()
        exchange = self._recorder.begin(request.method, rest, request.headers, _json_of(body))
        path = self._url.path.removesuffix("/") + rest if rest else self._url.path
        query = "&".join(filter(None, [self._url.query, request.url.query]))
        upstream = self._client.build_request(
            request.method,
            urlunsplit(self._url._replace(path=path, query=query)),
            content=body,
            headers=[(name, value) for name, value in request.headers.items() if name not in _HOP_BY_HOP],
        )
        upstream.headers.update({**self._headers, "accept-encoding": "identity"})
        try:
            response = await self._client.send(upstream, stream=True)
        except httpx2.HTTPError as error:
            self._recorder.end(exchange, "broken")
            return PlainTextResponse(f"The endpoint cannot be reached: {error}", 502)
        self._recorder.respond(exchange, response.status_code, response.headers)
        page_response = StreamingResponse(self._recorded(exchange, response), response.status_code)
        # One by one: several cookies cannot be written as one header.
        page_response.raw_headers = [
            (name.lower(), value)
            for name, value in response.headers.raw
            if name.lower().decode("latin-1") not in _HOP_BY_HOP
        ]
        return page_response

    async def _recorded(self, exchange: int, response: httpx2.Response) -> AsyncIterator[bytes]:
        data = bytearray()
        end: End = "left"
        try:
            async for piece in response.aiter_bytes():
                data += piece
                for frame in take_frames(data):
                    self._recorder.data(exchange, frame)
                yield piece
            end = "complete"
        except httpx2.HTTPError:
            end = "broken"
            raise
        finally:
            if data:
                self._recorder.data(exchange, bytes(data))
            self._recorder.end(exchange, end)
            await response.aclose()


def _json_of(body: bytes) -> Any:
    try:
        return json.loads(body) if body else None
    except ValueError:
        return body.decode("utf-8", "replace")


class StreamPlayer:
    """An ASGI app that answers a page with a recording: the first message with the first answer, and so on.

    Each chat begins at the beginning. ``speed`` is 1 for the times of the recording, 4 for a quarter of them, and
    ``math.inf`` for no waiting. ``step`` is awaited with each frame before it is sent, instead of waiting. ``path`` is
    where the page posts. A stop ends what is being played, and there is never anything to resume.

    Raises :class:`~usechat.errors.InvalidSetting` for a ``speed`` that is not positive, and
    :class:`~usechat.errors.UnusableFile` for a recording without an answer.

    >>> from usechat.testing import AgentClient
    >>> answer = RecordedExchange(0, "POST", "", status=200, headers={"content-type": "text/event-stream"})
    >>> answer.pieces = [(0.1, b'data: {"type":"text-start","id":"1"}\\n\\n')]
    >>> answer.pieces += [(0.2, b'data: {"type":"text-delta","id":"1","delta":"Hi"}\\n\\n')]
    >>> with AgentClient(StreamPlayer(StreamRecording("http://localhost:8000", [answer]), speed=100)) as client:
    ...     client.ask("Hello").text
    'Hi'
    """

    def __init__(
        self, recording: StreamRecording, *, speed: float = 1, step: Step | None = None, path: str = _CHAT_PATH
    ) -> None:
        if not speed > 0:
            raise InvalidSetting(f"speed is greater than 0, not {speed:g}; math.inf plays without waiting")
        if not recording.questions:
            raise UnusableFile("the recording holds no answer to a chat request, so there is nothing to play")
        self._answers = recording.questions
        self._speed = speed
        self._step = step
        self._played: dict[str, int] = {}
        self._stops: dict[str, asyncio.Event] = {}
        self.routes: list[BaseRoute] = [
            Route(path, self._answer, methods=["POST"]),
            Route(f"{path}/{{chat_id}}/stream", self._resume, methods=["GET"]),
            Route(f"{path}/{{chat_id}}/stop", self._stop, methods=["POST"]),
        ]
        """The routes that it answers."""
        self._app = Router(routes=self.routes)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one ASGI connection."""
        await self._app(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        body = _json_of(await request.body())
        chat_id = str(body.get("id", "")) if isinstance(body, dict) else ""
        number = self._played.get(chat_id, 0)
        if number >= len(self._answers):
            return PlainTextResponse(f"All answers of the recording ({len(self._answers)}) were played.", 410)
        self._played[chat_id] = number + 1
        answer = self._answers[number]
        stop = self._stops[chat_id] = asyncio.Event()
        if answer.status is None:
            return PlainTextResponse("The endpoint could not be reached when this was recorded.", 502)
        return StreamingResponse(self._frames(answer, stop), answer.status, answer.headers)

    async def _frames(self, answer: RecordedExchange, stop: asyncio.Event) -> AsyncIterator[bytes]:
        before = answer.at
        for at, frame in answer.pieces:
            if self._step is not None:
                await _unless(stop, self._step(frame))
            elif not math.isinf(self._speed):
                await _unless(stop, asyncio.sleep((at - before) / self._speed))
            before = at
            if stop.is_set():
                return
            yield frame

    async def _resume(self, _request: Request) -> Response:
        return Response(status_code=204)

    async def _stop(self, request: Request) -> Response:
        stop = self._stops.get(request.path_params["chat_id"])
        if stop is not None:
            stop.set()
        return Response(status_code=204)


async def _unless(stop: asyncio.Event, waiting: Awaitable[None]) -> None:
    """Wait for something, or until the answer is stopped."""
    tasks = {asyncio.ensure_future(waiting), asyncio.ensure_future(stop.wait())}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


# -- Comparing two recordings.


def first_difference(before: StreamRecording, after: StreamRecording, *, sdk: str = "7") -> str | None:
    """Compare the answers of two recordings part for part; return the first difference in words, or ``None``.

    Ids of messages, parts, calls, approvals, sources and a provider's items may differ, as they do in every run; times
    are not compared. ``sdk`` is the release whose client reads the answers.

    >>> def recording(answer: str) -> StreamRecording:
    ...     exchange = RecordedExchange(0, "POST", "", status=404, pieces=[(0, answer.encode())])
    ...     return StreamRecording("http://localhost:8000/api/chat", [exchange])
    >>> first_difference(recording("Not found"), recording("Not found")) is None
    True
    """
    for number, (old, new) in enumerate(zip(before.questions, after.questions, strict=False), 1):
        difference = _difference_of_answers(old, new, sdk)
        if difference is not None:
            return f"answer {number}: {difference}"
    counts = len(before.questions), len(after.questions)
    if counts[0] != counts[1]:
        return f"the number of answers was {counts[0]}, now it is {counts[1]}"
    return None


def _difference_of_answers(old: RecordedExchange, new: RecordedExchange, sdk: str) -> str | None:
    if old.status != new.status:
        return f"{_response(old, 'was')}, now {_response(new, 'is')}"
    (old_message, old_error), (new_message, new_error) = old.message(sdk), new.message(sdk)
    difference = None
    if old_message is not None and new_message is not None:
        difference = _difference_of_messages(with_stable_ids(old_message), with_stable_ids(new_message))
    if difference is None and old_error != new_error:
        difference = f"the error was {json_text(old_error)}, now it is {json_text(new_error)}"
    if difference is None and (old.end == "broken") != (new.end == "broken"):
        difference = f"the connection was {_outcome(old)}, now it is {_outcome(new)}"
    return difference


def _response(exchange: RecordedExchange, verb: str) -> str:
    return f"there {verb} no response" if exchange.status is None else f"the status {verb} {exchange.status}"


def _outcome(exchange: RecordedExchange) -> str:
    return "broken" if exchange.end == "broken" else "not broken"


def _difference_of_messages(old: Any, new: Any) -> str | None:
    for number, (old_part, new_part) in enumerate(zip(old["parts"], new["parts"], strict=False), 1):
        difference = _difference(old_part, new_part, "")
        if difference is not None:
            return f"part {number} ({old_part['type']}): {difference}"
    counts = len(old["parts"]), len(new["parts"])
    if counts[0] != counts[1]:
        longer, which = (old, "missing now") if counts[0] > counts[1] else (new, "new")
        return f"part {min(counts) + 1} ({longer['parts'][min(counts)]['type']}) is {which}"
    difference = _difference(old.get("metadata"), new.get("metadata"), "metadata")
    return None if difference is None else f"the message: {difference}"


def _difference(old: Any, new: Any, place: str) -> str | None:
    """Return the first place where two JSON values differ, in words."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{place}.{key}" if place else key
            if key not in new:
                return f"{inner} was {_shown(old[key])}, now it is missing"
            if key not in old:
                return f"{inner} is new: {_shown(new[key])}"
            difference = _difference(old[key], new[key], inner)
            if difference is not None:
                return difference
        return None
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        differences = (_difference(*pair, f"{place}[{index}]") for index, pair in enumerate(zip(old, new, strict=True)))
        return next((difference for difference in differences if difference is not None), None)
    return None if json_text(old) == json_text(new) else f"{place} was {_shown(old)}, now it is {_shown(new)}"


def _shown(value: Any) -> str:
    text = json_text(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"
