"""Send messages to an agent as ``useChat`` does, and assert on the answers."""

import asyncio
import contextlib
import functools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import httpx2

from usechat.check.report import check_capture
from usechat.check.response import Capture
from usechat.client.chat import (
    Chat,
    Reply,
    is_complete_with_approval_responses,
    is_complete_with_tool_calls,
)
from usechat.client.in_process import InProcessTransport, asgi_app_of
from usechat.client.sync import LoopThread
from usechat.client.transport import HttpChatTransport, append_path
from usechat.client.views import MessageView, ToolView, printable_failure, with_stable_ids
from usechat.errors import (
    AnswerTimedOut,
    InvalidSetting,
    ProtocolError,
    RequestRefused,
    StreamFailed,
    TransportError,
)
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import ChunkDecoder, EventDecoder
from usechat.protocol.tool_calls import APPROVAL_TOOL
from usechat.protocol.ui_messages import FileUIPart, UIMessage

__all__ = ["AgentClient", "Exchange", "TestedAnswer"]

ToolAnswer: TypeAlias = Any
"""The output of a client-side tool, or a function of its input that returns it."""
Approve: TypeAlias = bool | Callable[[ToolView], bool]

_IN_PROCESS: Final = "http://testserver"
_FAILURES: Final = (TransportError, StreamFailed, ProtocolError)
_NOT_FOUND: Final = 404
_MOMENT: Final = 0.02


class Exchange:
    """One request of a chat and its response, byte for byte.

    ``request`` is the parsed body of the request; ``status`` and ``headers`` are those of the response, and ``pieces``
    what arrived, each with the seconds since the request.

    >>> with AgentClient(lambda turn: "Hello") as client:
    ...     exchange = client.ask("hi").exchanges[0]
    >>> exchange.method, exchange.status, exchange.request["trigger"]
    ('POST', 200, 'submit-message')
    """

    def __init__(self, request: httpx2.Request) -> None:
        self.method = request.method
        self.url = str(request.url)
        self.request: Any = json.loads(request.content) if request.content else None
        """The body of the request."""
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.pieces: list[tuple[float, bytes]] = []
        """What arrived, and after how many seconds."""

    @property
    def body(self) -> bytes:
        """The body of the response, as far as it was read, and decompressed."""
        received = b"".join(piece for _, piece in self.pieces)
        encoding = {"content-encoding": self.headers.get("content-encoding", "identity")}
        try:
            return httpx2.Response(200, headers=encoding, content=received).content
        except httpx2.DecodingError:
            return received


class _Recorder(httpx2.AsyncBaseTransport):
    """Passes requests on, and keeps each of them."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner
        self.exchanges: list[Exchange] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        request.headers["accept-encoding"] = "identity"  # the pieces are kept as they arrive
        exchange = Exchange(request)
        self.exchanges.append(exchange)
        clock = asyncio.get_running_loop().time
        began = clock()
        response = await self._inner.handle_async_request(request)
        exchange.status = response.status_code
        exchange.headers = {name.lower(): value for name, value in response.headers.items()}
        stream = _RecordedStream(response.stream, lambda piece: exchange.pieces.append((clock() - began, piece)))
        return httpx2.Response(
            response.status_code, headers=response.headers, stream=stream, extensions=response.extensions
        )

    async def aclose(self) -> None:
        await self._inner.aclose()


class _RecordedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: Any, note: Callable[[bytes], None]) -> None:
        self._inner = inner
        self._note = note

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            self._note(piece)
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


class TestedAnswer:
    """What an agent answered: the message, how it arrived, and what to assert about it.

    A failure of the turn is in ``error`` and is not raised, so that it can be asserted. ``deltas`` are the pieces of
    text in the order in which they arrived, and ``first_delta_seconds`` is the time from the request to the first of
    them. ``question`` is what the assertions ask once more. ``exchanges`` are the requests and responses of the turn:
    more than one if tools of the client were answered.

    >>> with AgentClient(lambda turn: "Hello") as client:
    ...     answer = client.ask("hi")
    >>> answer.text, answer.error
    ('Hello', None)
    >>> answer.assert_legal(sdk="any")
    """

    __test__ = False
    """pytest takes a class whose name begins with "Test" for tests, wherever it is imported."""

    def __init__(
        self,
        client: "AgentClient",
        *,
        question: str | None,
        message: UIMessage | None,
        error: Exception | None,
        deltas: list[str],
        first_delta_seconds: float | None,
        exchanges: list[Exchange],
    ) -> None:
        self._client = client
        self._question = question
        self._message = message
        self.error = error
        """Why the turn failed, as the page would show it; ``None`` if it did not."""
        self.deltas = deltas
        """The pieces of text in the order in which they arrived."""
        self.first_delta_seconds = first_delta_seconds
        """Seconds from the request to the first piece of text; ``None`` if none came."""
        self.exchanges = exchanges
        """The requests and responses of this turn: more than one if tools of the client were answered."""

    def __repr__(self) -> str:
        return f"<Answer {self._message and MessageView(self._message)!r}, error {self.error!r}>"

    @property
    def message(self) -> MessageView:
        """The assistant's message. Fails the test if there is none."""
        if self._message is None:
            reason = "the stream is empty" if self.error is None else printable_failure(self.error)
            raise AssertionError(f"the agent gave no answer: {reason}")
        return MessageView(self._message)

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.message.text

    @property
    def reasoning(self) -> str:
        """The reasoning of the message."""
        return self.message.reasoning

    @property
    def tools(self) -> list[ToolView]:
        """The tool calls of the message."""
        return self.message.tools

    @property
    def data(self) -> dict[str, list[Any]]:
        """The data parts of the message by name."""
        return self.message.data

    @property
    def files(self) -> list[FileUIPart]:
        """The files of the message."""
        return self.message.files

    @property
    def sources(self) -> list[Mapping[str, Any]]:
        """The sources that the message names."""
        return self.message.sources

    @property
    def chunks(self) -> list[Chunk]:
        """Every chunk of the turn. Raises if one is not legal."""
        return [chunk for exchange in self._streams() for chunk in ChunkDecoder().receive(exchange.body)]

    def assert_legal(self, sdk: str = "any") -> None:
        """Assert that the clients of ``sdk`` accept every response of the turn, as ``usechat check`` judges it.

        ``sdk`` is ``any`` for all releases, a major, or one release. A failure names rule, frame and remedy. A stream
        without `finish` and without [DONE] fails, too: it was cut off, which clients do not notice.
        """
        lines = [line for exchange in self._streams() for line in self._problems(exchange, sdk)]
        if lines:
            raise AssertionError("\n".join(["the stream is not legal:", *lines]))

    def assert_redacted(self, *secrets: str) -> None:
        """Assert that none of these texts reached the client.

        The headers, the bodies, the decoded JSON and the joined deltas of all responses are searched. A secret is also
        found if it is escaped, or cut into several deltas or text parts.

        Fails also if there is no endpoint (404): then no agent had a secret to keep.
        Raises :class:`~usechat.errors.InvalidSetting` without a secret, or for an empty one: every response holds that.
        """
        if not secrets or not all(secrets):
            raise InvalidSetting("assert_redacted needs at least one secret, and no secret may be empty")
        for exchange in self.exchanges:
            # A server of others may have no route for a stop.
            if exchange.status == _NOT_FOUND and not exchange.url.endswith("/stop"):
                request = f"{exchange.method} {exchange.url}"
                raise AssertionError(f"there is no endpoint: {request} answered 404; check the path")
        for place, text in self._received():
            for secret in secrets:
                escaped = {json.dumps(secret, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False)}
                if any(form in text for form in {secret, *escaped}):
                    raise AssertionError(f"{_shortened(secret)} reached the client in {place}")

    def _received(self) -> Iterator[tuple[str, str]]:
        """Yield the texts that reached the client, each with its place."""
        bodies = []
        for exchange in self.exchanges:
            bodies.append(exchange.body.decode("utf-8", "replace"))
            yield f"a header of {exchange.url}", json.dumps(exchange.headers, ensure_ascii=False)
            yield f"the body of {exchange.url}", bodies[-1]
        for read in (_whole, _lines, _events):
            values = [value for body in bodies for value in _json_values(read(body))]
            # Encoded again, because encoders differ in what they escape: Go writes "&" as \u0026, PHP "/" as \/.
            yield "the decoded JSON", json.dumps(values, ensure_ascii=False)
            yield from (("the deltas", text) for text in _joined_deltas(values))

    def assert_resumes(self) -> None:
        """Assert that the same question can be resumed: a second reader gets the whole answer, and the first may go.

        Asks the question once more, in a new chat.
        """
        self._client.run(self._client.within_timeout(self._client.check_resume(self._asked())))

    def assert_stops(self, seconds: float = 5) -> None:
        """Assert that the same question can be stopped: nothing of the answer runs ``seconds`` after the stop.

        Asks the question once more, in a new chat.
        """
        self._client.run(self._client.within_timeout(self._client.check_stop(self._asked(), seconds)))

    def snapshot(self) -> Any:
        """Return the message as JSON values with stable ids, to compare with one that was saved."""
        return with_stable_ids(self.message.message)

    def _asked(self) -> str:
        if self._question is None:
            raise AssertionError("this answer has no question that could be asked again")
        return self._question

    def _streams(self) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if not exchange.url.endswith("/stop")]

    def _problems(self, exchange: Exchange, sdk: str) -> list[str]:
        messages = (exchange.request or {}).get("messages")
        capture = Capture(
            name=exchange.url,
            body=exchange.body,
            status=exchange.status or 0,
            headers=exchange.headers,
            continues=messages[-1] if messages else None,
        )
        report = check_capture(capture, [sdk])
        rules = {problem.rule.id for problem in report.problems}
        cut_off = _CUT_OFF if rules >= _CUT_OFF else frozenset()
        lines = []
        for problem in report.problems:
            if problem.rule.severity == "error" or problem.rule.id in cut_off:
                frame = f"frame {problem.frame}" if problem.frame else "the response"
                lines.append(f"  {problem.rule.id} {problem.rule.title}: {frame}: {problem.text}")
                lines += [] if problem.chunk is None else [f"    {json.dumps(problem.chunk, ensure_ascii=False)}"]
                lines.append(f"    AI SDK {', '.join(problem.sdks)}. To fix it: {problem.fix}")
        return lines


_CUT_OFF: Final = frozenset({"UC407", "UC109"})
"""The rules of a stream that was cut off."""


def _whole(body: str) -> list[str]:
    """Return the body, which is JSON if the request was refused."""
    return [body]


def _lines(body: str) -> list[str]:
    """Return the lines of a body without ``data:``, also of frames without the empty line at their end."""
    # Not splitlines(): JSON may hold U+0085, U+2028 and U+2029.
    return [line.removeprefix("data:") for line in re.split(r"[\r\n]", body)]


def _events(body: str) -> list[str]:
    """Return the data of the events of a body; one event may have several lines."""
    data = body.encode() + b"\n\n"
    return [event.data for event in EventDecoder(maximum_event_bytes=len(data)).receive(data)]


def _json_values(texts: Iterable[str]) -> list[Any]:
    """Return the values of those texts that are JSON."""
    values = []
    for text in texts:
        with contextlib.suppress(ValueError, RecursionError):
            values.append(json.loads(text))
    return values


def _joined_deltas(values: Iterable[Any]) -> Iterator[str]:
    """Yield the deltas of each type as one text: in the order of arrival, and part by part.

    The two differ if the deltas of several parts are interleaved.
    """
    by_type: dict[str, list[str]] = {}
    by_part: dict[str, dict[str, list[str]]] = {}
    for chunk in values:
        text = chunk.get("delta", chunk.get("inputTextDelta")) if isinstance(chunk, dict) else None
        if isinstance(text, str):
            kind, part = str(chunk.get("type")), str(chunk.get("id", chunk.get("toolCallId")))
            by_type.setdefault(kind, []).append(text)
            by_part.setdefault(kind, {}).setdefault(part, []).append(text)
    yield from map("".join, by_type.values())
    for parts in by_part.values():
        yield "".join(text for texts in parts.values() for text in texts)


def _shortened(secret: str) -> str:
    """Name a secret without writing it into a report."""
    return f"the secret {secret[:3]}… of {len(secret)} characters"


class AgentClient:
    """Asks an agent: an ASGI app, a WSGI app, a URL, or an object that can answer a chat.

    Each :meth:`ask` continues the same chat.

    Args:
        target: what is asked.
        path: where an app takes posts.
        headers: sent with each request.
        body: merged into each request.
        messages: the messages that the chat begins with.
        tools: answers the client-side tools by name, with outputs or with functions of their input.
        approve: answers approval requests, with ``True``, ``False`` or a function of the call.
        sdk: the release whose client asks.
        timeout: how many seconds one answer may take.

    Raises:
        CannotAnswer: ``target`` is nothing that can answer a chat.
        CannotStart: the app does not start.

    The app runs in its own thread. Call the methods from one thread.

    >>> with AgentClient(lambda turn: f"You said: {turn.text}") as client:
    ...     client.ask("hi").text
    'You said: hi'
    """

    def __init__(
        self,
        target: Any,
        *,
        path: str = "/api/chat",
        headers: Mapping[str, str] = {},
        body: Mapping[str, Any] = {},
        messages: Sequence[UIMessage] = (),
        tools: Mapping[str, ToolAnswer] = {},
        approve: Approve | None = None,
        sdk: str = "7",
        timeout: float = 60,
    ) -> None:
        self._timeout = timeout
        self._tools = dict(tools)
        self._approve = approve
        self._is_answering = False
        self._answered_calls: set[tuple[str, str]] = set()
        """The calls that were answered in this turn, with their states: what is asked again is not answered again."""
        self._thread = LoopThread()
        self._in_process: InProcessTransport | None = None
        try:
            self._thread.call(self._open, target, path, headers, body, messages, sdk)
        except BaseException:
            self._thread.close()
            raise

    def _open(
        self,
        target: Any,
        path: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any],
        messages: Sequence[UIMessage],
        sdk: str,
    ) -> None:
        if isinstance(target, str):
            url, inner = target, httpx2.AsyncHTTPTransport()
        else:
            self._in_process = inner = InProcessTransport(asgi_app_of(target))  # type: ignore[assignment]
            url = _IN_PROCESS + path
        self._recorder = _Recorder(inner)
        self._new_transport = functools.partial(
            HttpChatTransport,
            url,
            headers=headers,
            body=body,
            http=self._recorder,
            idle_timeout=self._timeout,
            retries=0,
        )
        self._transport = self._new_transport()
        self._sdk = sdk
        self._chat = self._new_chat(messages)

    def _new_chat(self, messages: Sequence[UIMessage] = ()) -> Chat:
        return Chat(self._transport, messages=messages, sdk=self._sdk, send_automatically_when=self._has_all_answers)

    def _has_all_answers(self, messages: Sequence[UIMessage]) -> bool:
        """Tell whether to post again: only after a scripted answer, or a server that repeats itself would loop."""
        is_complete = is_complete_with_tool_calls(messages) or is_complete_with_approval_responses(messages)
        return self._is_answering and is_complete

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop what runs, and shut the app down."""
        if not self._thread.is_closed:
            self._thread.wait_for(self._close())
            self._thread.close()

    async def _close(self) -> None:
        await self._chat.aclose()
        await self._transport.aclose()

    @property
    def messages(self) -> list[UIMessage]:
        """The chat so far."""
        return self._thread.call(lambda: self._chat.messages)

    def run(self, work: Any) -> Any:
        """Run a coroutine in the client's event loop, and wait for it."""
        return self._thread.wait_for(work)

    def ask(self, text: str | None = None, *, files: Sequence[FileUIPart | Path | str] = ()) -> TestedAnswer:
        """Send a message and wait for the whole answer, with the tools and approvals that were scripted.

        Without text and files, the messages are sent as they are.
        """
        answer: TestedAnswer = self.run(self._answer(text, lambda: self._chat.send(text, files=files)))
        return answer

    def regenerate(self) -> TestedAnswer:
        """Ask for the last answer again."""
        answer: TestedAnswer = self.run(self._answer(None, self._chat.regenerate))
        return answer

    async def _answer(self, question: str | None, start: Callable[[], Reply]) -> TestedAnswer:
        self._recorder.exchanges = []
        loop = asyncio.get_running_loop()
        began = loop.time()
        deltas: list[str] = []
        first: float | None = None
        error: Exception | None = None
        reply: Reply | None = start()
        self._answered_calls = set()
        try:
            async with asyncio.timeout(self._timeout):
                while reply is not None:
                    async for update in reply:
                        if update.text_delta:
                            first = loop.time() - began if first is None else first
                            deltas.append(update.text_delta)
                    reply = self._answer_next()
        except _FAILURES as failure:
            error = failure
        except TimeoutError:
            error = AnswerTimedOut(f"the answer took longer than {self._timeout:g} s", url=self._transport.url)
            await self._chat.stop()
        last = self._chat.messages[-1] if self._chat.messages else None
        return TestedAnswer(
            self,
            question=question,
            message=last if last is not None and last["role"] == "assistant" else None,
            error=error,
            deltas=deltas,
            first_delta_seconds=first,
            exchanges=list(self._recorder.exchanges),  # the checks of this answer keep recording
        )

    def _answer_next(self) -> Reply | None:
        """Answer the calls that wait for this client; return the reply to the last answer."""
        self._is_answering = True
        try:
            return self._answer_calls()
        finally:
            self._is_answering = False

    def _answer_calls(self) -> Reply | None:
        last = self._chat.last
        reply = None
        for tool in [] if last is None or last.role != "assistant" else last.tools:
            question = (tool.call_id, tool.state)
            if question in self._answered_calls:
                continue
            self._answered_calls.add(question)
            if tool.waits_for_output and tool.name == APPROVAL_TOOL and self._approve is not None:
                # How a usechat server asks clients of AI SDK 5, which have no approvals.
                reply = self._chat.add_tool_output(tool.call_id, {"approved": self._approves(tool)})
            elif tool.waits_for_output and tool.name in self._tools:
                output = self._tools[tool.name]
                reply = self._chat.add_tool_output(tool.call_id, output(tool.input) if callable(output) else output)
            elif tool.waits_for_approval and self._approve is not None:
                reply = self._chat.add_approval_response(str(tool.approval_id), self._approves(tool))
        return reply

    def _approves(self, tool: ToolView) -> bool:
        return self._approve(tool) if callable(self._approve) else bool(self._approve)

    async def within_timeout(self, check: Awaitable[None]) -> None:
        """Await a check; raise AssertionError if it takes longer than an answer may."""
        try:
            async with asyncio.timeout(self._timeout):
                await check
        except TimeoutError:
            raise AssertionError(f"the answer took longer than {self._timeout:g} s") from None

    async def check_resume(self, question: str) -> None:
        """Ask with two readers, disconnect the first; raise AssertionError unless the second gets the whole answer."""
        chat = self._new_chat()
        request = ChatRequest(chat_id=chat.id, messages=[_user_message(question)])
        transport = self._new_transport(stop_route=False)
        url = append_path(transport.url, chat.id, "stream")
        first = await transport.send_messages(request)
        first_chunk = await anext(aiter(first), None)
        try:
            resumed = await transport.reconnect_to_stream(chat.id)
        except RequestRefused as error:
            raise AssertionError(f"the server cannot resume: GET {url} answered {error.status}, {error}") from error
        if resumed is None:
            raise AssertionError(
                f"there is nothing to resume: GET {url} answered 204."
                " Either the server keeps no streams, or the answer had ended: ask something that takes longer"
            )
        await first.aclose()  # type: ignore[attr-defined]
        received = [chunk async for chunk in resumed]
        if not received or not isinstance(received[0], chunks.StartChunk):
            raise AssertionError(f"a resumed stream begins with the start of its message, not with {received[:1]}")
        if isinstance(first_chunk, chunks.StartChunk) and first_chunk.message_id != received[0].message_id:
            raise AssertionError(
                f"another message was resumed: {first_chunk.message_id} became {received[0].message_id}"
            )
        if not isinstance(received[-1], chunks.FinishChunk):
            raise AssertionError(f"the answer did not come to its end after its first reader had gone: {received[-1:]}")

    async def check_stop(self, question: str, seconds: float) -> None:
        """Ask, stop at the first content; raise AssertionError if something still runs ``seconds`` later."""
        chat = self._new_chat()
        reply = chat.send(question)
        async for update in reply:
            if not isinstance(update.chunk, chunks.StartChunk | chunks.StartStepChunk):
                break
        if chat.status not in ("submitted", "streaming"):
            raise AssertionError("the answer ended before it could be stopped: ask something that takes longer")
        await chat.stop()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while await self._still_runs(chat.id):
            if loop.time() > deadline:
                raise AssertionError(f"the answer still runs {seconds:g} s after it was stopped")
            await asyncio.sleep(_MOMENT)

    async def _still_runs(self, chat_id: str) -> bool:
        """Tell whether the server still streams an answer, or the app has not returned since its client left."""
        if self._in_process is not None and self._in_process.calls:
            return True
        try:
            stream = await self._transport.reconnect_to_stream(chat_id)
        except TransportError:
            stream = None  # the server has no resume
        if stream is not None:
            await stream.aclose()  # type: ignore[attr-defined]
        return stream is not None


def _user_message(text: str) -> UIMessage:
    return {"id": "question", "role": "user", "parts": [{"type": "text", "text": text}]}
