"""The state of a chat as ``useChat`` keeps it, in Python: messages, status, error, and what a person can do.

:class:`Chat` does what ``AbstractChat`` of the npm package does, for the newest releases of AI SDK 5, 6 and 7: the same
requests, the same messages, the same status. ``tests/conformance/test_client.py`` compares it with the real class.

**Requests run by themselves.** ``send``, ``regenerate``, ``resume``, ``add_tool_output`` and ``add_approval_response``
change the state at once and start a task; they return a :class:`Reply`. Iterate it for the updates, or await it for the
end. A reply continues even if it is not awaited. A failure is raised by the reply, and kept in ``chat.error``.

**What is visible.** JavaScript copies the message into the chat's list after most chunks, not after all: a step that
begins shows with the next content. Copying a message for every delta would take quadratic time, so the copy is made
when somebody looks, or right before a chunk that changes the message without showing it.

Two differences to JavaScript are intended. A body that is not an event stream is an error, see
:mod:`usechat.client.transport`. And a resumed answer is always rebuilt from its ``start``: AI SDK 5 in a browser shows
parts twice when it resumes after a lost connection.
"""

import asyncio
import base64
import inspect
import mimetypes
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias, cast

from usechat.client.transport import HttpChatTransport
from usechat.client.views import MessageView, ToolView
from usechat.errors import InvalidSetting
from usechat.ids import new_id
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.releases import Release, Since, release
from usechat.protocol.request import ChatRequest, Trigger
from usechat.protocol.ui_messages import FileUIPart, UIMessage, is_tool, last_step, tool_parts_of
from usechat.protocol.values import plain_json
from usechat.sources import ChatTransport

__all__ = [
    "Chat",
    "Reply",
    "Status",
    "Update",
    "file_part",
    "is_complete_with_approval_responses",
    "is_complete_with_tool_calls",
    "transport_for",
]

Status: TypeAlias = Literal["ready", "submitted", "streaming", "error"]
SendAutomatically: TypeAlias = Callable[[Sequence[UIMessage]], bool]
OnToolCall: TypeAlias = Callable[[ToolView], Awaitable[None] | None]
_Part: TypeAlias = Mapping[str, Any]

_CLIENT: Final[Mapping[str, Since]] = {
    "approvals": Since(None, 0, 0),
    "regenerates-from-nothing": Since(None, 0, 0),
    "asks-before-resuming": Since(None, 0, 0),
    "rebuilds-resumed-messages": Since(None, 0, 0),
    "sends-for-unknown-approvals": Since(None, 0, None),
    "resumes-every-open-call": Since(None, None, 0),
    "outputs-drop-refused-approvals": Since(None, None, 0),
    "minds-interruptions": Since(None, None, 0),
}
"""In which majors the chat client behaves so, judged with their newest releases."""


def is_complete_with_tool_calls(messages: Sequence[UIMessage]) -> bool:
    """Tell whether every tool call of the last step has its outcome: ``lastAssistantMessageIsCompleteWithToolCalls``.

    Give it as ``send_automatically_when``, and the chat continues as soon as all client-side tools have returned.

    >>> call = {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {}, "output": 21}
    >>> is_complete_with_tool_calls([{"id": "m1", "role": "assistant", "parts": [call]}])
    True
    """
    step = _last_step(messages)
    calls = [index for index, part in enumerate(step) if is_tool(part) and not part.get("providerExecuted")]
    if not calls:
        return False
    unfinished_text = any(part["type"] == "text" and part.get("state") != "done" for part in step[calls[-1] + 1 :])
    return not unfinished_text and all(_has_outcome(step[index]) for index in calls)


def is_complete_with_approval_responses(messages: Sequence[UIMessage]) -> bool:
    """Tell whether every approval of the last step is answered.

    It is ``lastAssistantMessageIsCompleteWithApprovalResponses`` of the npm package. Give it as
    ``send_automatically_when``, and the chat continues as soon as a person has answered all requests.

    >>> call = {"type": "tool-pay", "toolCallId": "c1", "state": "approval-responded", "input": {}}
    >>> call["approval"] = {"id": "a1", "approved": True}
    >>> is_complete_with_approval_responses([{"id": "m1", "role": "assistant", "parts": [call]}])
    True
    """
    states = [_approval_state(part) for part in _last_step(messages) if is_tool(part)]
    return "approval-responded" in states and "" not in states


def _last_step(messages: Sequence[UIMessage]) -> Sequence[_Part]:
    if not messages or messages[-1]["role"] != "assistant":
        return []
    return last_step(cast("list[_Part]", messages[-1]["parts"]))


def _has_outcome(part: Mapping[str, Any]) -> bool:
    return part.get("state") == "output-error" or (
        part.get("state") == "output-available" and part.get("preliminary") is not True
    )


def _approval_state(part: Mapping[str, Any]) -> str:
    """Return the state of a call that waits for no answer, otherwise an empty text."""
    state = str(part.get("state"))
    return state if _has_outcome(part) or state in ("output-denied", "approval-responded") else ""


def file_part(path: str | Path) -> FileUIPart:
    """Read a file into a part that holds it as a data URL, as ``useChat`` sends the files of a form.

    >>> from pathlib import Path
    >>> _ = Path("note.txt").write_text("Hi")
    >>> file_part("note.txt")["url"]
    'data:text/plain;base64,SGk='
    """
    path = Path(path)
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    content = base64.b64encode(path.read_bytes()).decode()
    return {
        "type": "file",
        "mediaType": media_type,
        "filename": path.name,
        "url": f"data:{media_type};base64,{content}",
    }


def transport_for(url: str) -> ChatTransport:
    """Return a transport for an address: ``http``, ``https``, ``ws`` or ``wss``."""
    if url.lower().startswith(("ws://", "wss://")):
        from usechat.client.websocket import WebSocketChatTransport

        return WebSocketChatTransport(url)
    return HttpChatTransport(url)


class Update(NamedTuple):
    """One chunk of an answer that has arrived; ``chat.last`` already holds what it changed.

    >>> from usechat import ChunkDecoder
    >>> [chunk] = ChunkDecoder().receive(b'data: {"type":"text-delta","id":"1","delta":"Hel"}\\n\\n')
    >>> Update(chunk).text_delta
    'Hel'
    """

    chunk: Chunk

    @property
    def text_delta(self) -> str:
        """The text that was added; empty for everything else."""
        return self.chunk.delta if isinstance(self.chunk, chunks.TextDeltaChunk) else ""

    @property
    def reasoning_delta(self) -> str:
        """The reasoning that was added; empty for everything else."""
        return self.chunk.delta if isinstance(self.chunk, chunks.ReasoningDeltaChunk) else ""


class Reply:
    """A request that runs, with the requests that the chat sends by itself after it.

    Iterate it for every :class:`Update`, or await it for the last message of the chat, which is empty if there is none.
    Both wait for the end and raise what went wrong. To leave the loop does not stop the request: call ``chat.stop()``.

    >>> import asyncio
    >>> import httpx2
    >>> from usechat.client import HttpChatTransport
    >>> from usechat.server import ChatApp
    >>> server = httpx2.ASGITransport(app=ChatApp(lambda turn: "It is sunny."))
    >>> async def main():
    ...     transport = HttpChatTransport("http://localhost/api/chat", http=server)
    ...     async with transport, Chat(transport) as chat:
    ...         message = await chat.send("What is the weather in Paris?")
    ...         return message.text
    >>> asyncio.run(main())
    'It is sunny.'
    """

    def __init__(self, chat: "Chat", work: "Callable[[Reply], Coroutine[Any, Any, None]] | None") -> None:
        self._chat = chat
        self._updates: asyncio.Queue[Update | None] = asyncio.Queue()
        self._keeps_updates = True
        self.error: Exception | None = None
        """What went wrong, once it has."""
        self._task = (
            None if work is None else asyncio.get_running_loop().create_task(self._run(work), name="usechat chat")
        )

    @property
    def task(self) -> "asyncio.Task[None] | None":
        """The task of the request; ``None`` if nothing had to be sent."""
        return self._task

    def receive(self, chunk: Chunk) -> None:
        """Keep an update for the iterator."""
        if self._keeps_updates:
            self._updates.put_nowait(Update(chunk))

    def __await__(self) -> Generator[Any, None, MessageView]:
        return self._wait().__await__()

    async def __aiter__(self) -> AsyncIterator[Update]:
        while self._task is not None and (update := await self._updates.get()) is not None:
            yield update
        await self._wait()

    async def _wait(self) -> MessageView:
        self._keeps_updates = False
        if self._task is not None:
            await asyncio.wait({self._task})
            if not self._task.cancelled():
                self._task.result()  # raises what a function of the user raised: send_automatically_when
        if self.error is not None:
            raise self.error
        return self._chat.last or MessageView({"id": "", "role": "assistant", "parts": []})

    async def _run(self, work: "Callable[[Reply], Coroutine[Any, Any, None]]") -> None:
        try:
            await work(self)
        finally:
            self._updates.put_nowait(None)


class _Request(NamedTuple):
    """What to ask the transport for."""

    trigger: Trigger | Literal["resume-stream"]
    message_id: str | None = None
    body: Mapping[str, Any] = {}


class _Response:
    """One answer that is being received."""

    def __init__(self, request: _Request) -> None:
        self.request = request
        self.payload: ChatRequest | None = None
        """What is posted: the messages as they were when the request was made."""
        self.task: asyncio.Task[None] | None = None
        self.is_aborted = False
        self.is_replaced = False
        """Whether another ``resume`` took its place, so that its end means nothing for the chat."""
        self.builder: MessageBuilder | None = None
        self.message_id = ""
        self.earlier_id: str | None = None
        """The message that it continues, if others follow that."""
        self.index: int | None = None
        """Where its message stands in the chat's list."""
        self.is_shown = True
        """Whether the list holds what the page sees."""
        self.is_live = False
        """Whether the page sees every change at once, as it does of a message that was just added."""
        self.has_started = False

    def abort(self) -> None:
        self.is_aborted = True
        if self.task is not None:
            self.task.cancel()


class Chat:
    """A chat with an AI SDK endpoint: the state that ``useChat`` has, and what a person can do.

    Args:
        transport: a URL, or any :class:`~usechat.sources.ChatTransport`.
        id: the chat's id; by default a new one.
        messages: the messages so far.
        sdk: the release whose client it imitates.
        body: merged into each request.
        send_automatically_when: is asked after each answer, and after each tool output or approval, whether to send the
            messages again: :func:`is_complete_with_tool_calls`, :func:`is_complete_with_approval_responses` or a
            your own function.
        on_tool_call: is called for every tool call that the server does not mark as executed by the provider; it may
            call :meth:`add_tool_output`.
        generate_id: makes the ids of the chat and of its messages.

    Raises:
        UnknownRelease: ``sdk`` names no release.
        InvalidAddress: ``transport`` is a URL of another kind.
        InvalidSetting: ``send_automatically_when`` is a coroutine function.

    A chat belongs to one event loop. A reply raises what went wrong: :class:`~usechat.errors.TransportError`,
    :class:`~usechat.errors.RemoteProtocolError` or :class:`~usechat.errors.StreamFailed`.

    >>> import asyncio
    >>> import httpx2
    >>> from usechat.client import HttpChatTransport
    >>> from usechat.server import ChatApp
    >>> server = httpx2.ASGITransport(app=ChatApp(lambda turn: "It is sunny."))
    >>> async def main():
    ...     transport = HttpChatTransport("http://localhost/api/chat", http=server)
    ...     async with transport, Chat(transport) as chat:
    ...         async for update in chat.send("What is the weather in Paris?"):
    ...             print(update.text_delta, end="")
    >>> asyncio.run(main())
    It is sunny.
    """

    def __init__(
        self,
        transport: ChatTransport | str,
        *,
        id: str | None = None,  # noqa: A002 (as useChat calls it)
        messages: Sequence[UIMessage] = (),
        sdk: str = "7",
        body: Mapping[str, Any] = {},
        send_automatically_when: SendAutomatically | None = None,
        on_tool_call: OnToolCall | None = None,
        generate_id: Callable[[], str] = new_id,
    ) -> None:
        self._owned = transport_for(transport) if isinstance(transport, str) else None
        self._transport = cast("ChatTransport", self._owned or transport)
        self._generate_id = generate_id
        self.id = id or generate_id()
        """The chat's id, which the server knows it by."""
        self._release: Release = release(sdk)
        self._sdk = sdk
        self._body = dict(body)
        if inspect.iscoroutinefunction(send_automatically_when):  # what it returns would always count as true
            raise InvalidSetting("send_automatically_when is a plain function that returns a bool, not a coroutine")
        self._send_automatically_when = send_automatically_when
        self._on_tool_call = on_tool_call
        self._messages = list(messages)
        self._status: Status = "ready"
        self._error: Exception | None = None
        self._active: _Response | None = None
        self._resuming: _Response | None = None
        self._responses: set[_Response] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = 0
        self._answered_message_id: str | None = None
        """The message whose approval was answered, as long as the answer was not sent."""
        self._interrupted: set[str] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop what runs, and close the transport if the chat was given a URL."""
        for response in list(self._responses):
            response.abort()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._owned is not None:
            await cast("Any", self._owned).aclose()

    @property
    def messages(self) -> list[UIMessage]:
        """The messages as the page would show them. Assign a list to replace them."""
        self._show_all()
        return list(self._messages)

    @messages.setter
    def messages(self, messages: Sequence[UIMessage]) -> None:
        for response in self._responses:
            response.index, response.is_shown, response.is_live = None, True, False
        self._messages = list(messages)

    @property
    def last(self) -> MessageView | None:
        """The last message; ``None`` if there is none."""
        messages = self.messages
        return MessageView(messages[-1]) if messages else None

    @property
    def status(self) -> Status:
        """``submitted`` until the first content arrives, ``streaming`` until the end, then ``ready`` or ``error``."""
        return self._status

    @property
    def error(self) -> Exception | None:
        """What went wrong, while the status is ``error``."""
        return self._error

    def clear_error(self) -> None:
        """Set the status from ``error`` to ``ready``."""
        if self._status == "error":
            self._set_status("ready")

    def send(
        self,
        text: str | None = None,
        *,
        files: Sequence[FileUIPart | Path | str] = (),
        metadata: Any = None,
        message_id: str | None = None,
        body: Mapping[str, Any] = {},
    ) -> Reply:
        """Send a message of the user, or the messages as they are if it has neither text nor files.

        A file is a path, which is read, or a part. ``metadata`` belongs to the message. ``message_id`` replaces that
        message of the user and drops what came after it. ``body`` is merged into the request. Raises
        :class:`~usechat.errors.InvalidSetting` for a ``message_id`` that cannot be replaced.
        """
        if text is None and not files:
            return self._continue(body)
        parts: list[Any] = [file_part(file) if isinstance(file, Path | str) else file for file in files]
        parts += [] if text is None else [{"type": "text", "text": text}]
        message: dict[str, Any] = {"parts": parts, "id": message_id or self._generate_id(), "role": "user"}
        if metadata is not None:
            message["metadata"] = plain_json(metadata)
        messages = self.messages
        if message_id is None:
            self._messages.append(cast("UIMessage", message))
        else:
            index = self._find(messages, message_id)
            if messages[index]["role"] != "user":
                raise InvalidSetting(f"message with id {message_id} is not a user message")
            self.messages = [*messages[:index], cast("UIMessage", message)]
        return self._start(_Request("submit-message", message_id, body))

    def regenerate(self, message_id: str | None = None, *, body: Mapping[str, Any] = {}) -> Reply:
        """Ask for the last answer again, or for the one that ``message_id`` names or follows.

        ``body`` is merged into the request. Raises :class:`~usechat.errors.InvalidSetting` if there is no such message.
        """
        messages = self.messages
        if not messages:
            raise InvalidSetting("there is no message to regenerate")
        index = len(messages) - 1 if message_id is None else self._find(messages, message_id)
        self.messages = messages[: index + (messages[index]["role"] != "assistant")]
        return self._start(_Request("regenerate-message", message_id, body))

    def resume(self) -> Reply:
        """Read the answer that is being written, from its start; do nothing if there is none."""
        return self._start(_Request("resume-stream"))

    async def stop(self) -> None:
        """Stop the answer that is being received; what has arrived of it stays.

        The connection is closed. A transport that can also stops the answer on the server.
        """
        self._stopping += 1
        try:
            resumed = self._active is not None and self._active is self._resuming
            stopped = [response for response in {self._resuming, self._active} if response is not None]
            for response in stopped:
                response.abort()
            tasks = {response.task for response in stopped if response.task not in (None, asyncio.current_task())}
            if tasks:
                await asyncio.wait(tasks)
            stop = getattr(self._transport, "stop", None)
            if resumed and stop is not None:
                await stop(self.id)
        finally:
            self._stopping -= 1

    def add_tool_output(self, call_id: str, output: Any = None, *, error_text: str | None = None) -> Reply:
        """Give the output of a client-side tool. The reply is that of what is sent then.

        ``error_text`` says why the tool failed; then ``output`` is not sent.
        """
        outcome = {"output": plain_json(output)} if error_text is None else {"errorText": error_text}

        def answered(part: _Part) -> _Part:
            return self._with_outcome(part, outcome) if part.get("toolCallId") == call_id else part

        message_id = self._change_tools(lambda part: part.get("toolCallId") == call_id, answered)
        if message_id is None or not self._may_send_automatically(message_id):
            return Reply(self, None)
        return self._start(_Request("submit-message", message_id))

    def add_approval_response(self, approval_id: str, approved: bool, reason: str | None = None) -> Reply:
        """Answer an approval request. The reply is that of what is sent then. Not for AI SDK 5, which has none.

        ``reason`` is the person's own; the agent sees it. Raises :class:`~usechat.errors.InvalidSetting` with AI SDK 5.
        """
        if not self._behaves("approvals"):
            raise InvalidSetting("AI SDK 5 has no approvals; its client is asked with a client-side tool")
        answer = {"id": approval_id, "approved": approved} | ({} if reason is None else {"reason": reason})

        def is_asked(part: _Part) -> bool:
            return part.get("state") == "approval-requested" and part["approval"]["id"] == approval_id

        def answered(part: _Part) -> _Part:
            changed = (
                {"state": "approval-responded", "approval": {**part["approval"], **answer}} if is_asked(part) else {}
            )
            return {**part, **changed}

        message_id = self._change_tools(is_asked, answered)
        self._answered_message_id = message_id or self._answered_message_id
        if message_id is None and not self._behaves("sends-for-unknown-approvals"):
            return Reply(self, None)
        if not self._may_send_automatically(message_id):
            return Reply(self, None)
        return self._send_approval(message_id or self._last_id, {})

    # -- What is sent.

    def _continue(self, body: Mapping[str, Any]) -> Reply:
        """Send the messages as they are: a message with an answered approval continues, else the last one."""
        message_id = self._last_id
        if self._behaves("approvals"):
            message_ids = [
                message["id"]
                for message in self.messages
                if message["role"] == "assistant"
                and any(part.get("state") == "approval-responded" for part in tool_parts_of(message))
            ]
            message_id = self._answered_message_id or (message_ids[-1] if message_ids else message_id)
        return self._send_approval(message_id, body)

    def _send_approval(self, message_id: str | None, body: Mapping[str, Any]) -> Reply:
        """Continue a message; if that fails, its approval counts as unsent again."""
        is_approval = message_id is not None and message_id == self._answered_message_id
        if is_approval:
            self._answered_message_id = None
        return self._start(_Request("submit-message", message_id, body), approved=message_id if is_approval else None)

    def _start(self, request: _Request, *, approved: str | None = None) -> Reply:
        """Make a request: the state changes now, the rest is done by the task of the reply."""
        response = self._prepare(request)

        async def work(reply: Reply) -> None:
            await self._run(response, reply)
            if approved is not None and self._status == "error" and self._answered_message_id is None:
                self._answered_message_id = approved

        reply = Reply(self, work)
        task = cast("asyncio.Task[None]", reply.task)
        response.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return reply

    def _prepare(self, request: _Request) -> _Response:
        """Let a request take its place in the chat."""
        response = _Response(request)
        response.task = asyncio.current_task()
        self._responses.add(response)
        if request.trigger == "resume-stream":
            if self._resuming is not None:
                self._resuming.is_replaced = True
                self._resuming.abort()
            self._resuming = response
        else:
            response.payload = ChatRequest(
                chat_id=self.id,
                messages=self.messages,
                trigger=request.trigger,
                message_id=request.message_id,
                body={**self._body, **request.body},
            )
        if not self._asks_first(request):
            self._begin(response)
        return response

    def _asks_first(self, request: _Request) -> bool:
        """Tell whether the status changes only when there is something to resume."""
        return request.trigger == "resume-stream" and self._behaves("asks-before-resuming")

    async def _run(self, response: _Response, reply: Reply) -> None:
        """Receive an answer, and those to the requests that follow from it by themselves."""
        body = response.request.body
        while await self._respond(response, reply) and self._sends_automatically(self._last_id):
            response = self._prepare(_Request("submit-message", self._last_id, body))

    async def _respond(self, response: _Response, reply: Reply) -> bool:
        """Receive the answer to one request; tell whether it came to a good end."""
        has_answer = False
        try:
            has_answer = await self._receive_answer(response, reply)
        except asyncio.CancelledError:
            if not response.is_aborted:
                raise
            cast("asyncio.Task[None]", response.task).uncancel()
        except Exception as error:  # every failure ends the answer and is shown
            if not response.is_aborted:
                reply.error = error
        finally:
            self._forget(response)
        if not response.is_replaced:
            self._set_status("ready" if reply.error is None else "error", reply.error)
        if not has_answer or response.is_aborted:
            return False
        return self._note_interruption(response)

    async def _receive_answer(self, response: _Response, reply: Reply) -> bool:
        """Receive the answer to a request; tell whether there was one."""
        if response.payload is None:
            stream = await self._transport.reconnect_to_stream(self.id)
        else:
            stream = await self._transport.send_messages(response.payload)
        if stream is None:
            return False
        try:
            if self._asks_first(response.request):
                self._begin(response)
            async for chunk in stream:
                self._receive(response, chunk)
                reply.receive(chunk)
                await self._call_tool(chunk, response)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
        return True

    async def _call_tool(self, chunk: Chunk, response: _Response) -> None:
        if self._on_tool_call is None or not isinstance(chunk, chunks.ToolInputAvailableChunk):
            return
        if chunk.provider_executed or response.builder is None:
            return
        part = next(part for part in response.builder.tool_parts() if part["toolCallId"] == chunk.tool_call_id)
        awaitable = self._on_tool_call(ToolView(plain_json(part)))
        if awaitable is not None:
            await awaitable

    # -- What is received.

    def _begin(self, response: _Response) -> None:
        """Find the message that the answer goes into, as ``makeRequest`` of the npm package does."""
        request = response.request
        self._set_status("submitted")
        self._active = response
        messages = self.messages
        index = len(messages) - 1
        if request.trigger == "submit-message" and request.message_id is not None:
            named = [at for at, message in enumerate(messages) if message["id"] == request.message_id]
            index = named[0] if named else index
        addressed = messages[index] if messages else None
        if addressed is not None and addressed["role"] == "assistant" and index < len(messages) - 1:
            response.earlier_id = addressed["id"]
        base = self._base(request, addressed)
        continues = base is not None and base["role"] == "assistant"
        response.message_id = base["id"] if base is not None and continues else self._generate_id()
        response.builder = MessageBuilder(sdk=self._sdk, message_id=response.message_id, message=base)

    def _base(self, request: _Request, addressed: UIMessage | None) -> UIMessage | None:
        """Return the message that the answer continues, if any."""
        if request.trigger == "submit-message" or addressed is None:
            return addressed
        if request.trigger == "regenerate-message":
            return None if self._behaves("regenerates-from-nothing") else addressed
        is_open = addressed["role"] == "assistant" and any(map(self._is_open, tool_parts_of(addressed)))
        return addressed if is_open else None

    def _is_open(self, part: _Part) -> bool:
        """Tell whether a resumed stream may continue this call without its beginning."""
        state = part.get("state")
        if state == "input-streaming" or not self._behaves("resumes-every-open-call"):
            return state == "input-streaming"
        return state == "approval-responded" or (state == "input-available" and bool(part.get("providerExecuted")))

    def _receive(self, response: _Response, chunk: Chunk) -> None:
        """Apply a chunk, and show what it changes."""
        start = chunk if isinstance(chunk, chunks.StartChunk) else None
        if start is not None or (isinstance(chunk, chunks.StartStepChunk) and not response.is_live):
            self._show(response)
        resumes = response.request.trigger == "resume-stream"
        starts_over = start is not None and resumes and self._starts_over(response, start)
        builder = cast("MessageBuilder", response.builder)
        updates = builder.updates
        builder.receive(chunk)
        response.is_shown = response.is_shown and not response.is_live
        if start is not None and start.message_id is not None:
            response.message_id = start.message_id
            self._show(response)
        if builder.updates > updates or starts_over:
            self._write(response, is_content=start is None)

    def _starts_over(self, response: _Response, chunk: chunks.StartChunk) -> bool:
        """Rebuild a resumed message from nothing, since its stream begins with its start."""
        if not self._behaves("rebuilds-resumed-messages"):
            return False
        is_other = chunk.message_id is not None and chunk.message_id != response.message_id
        if response.has_started and not is_other:
            return False
        response.has_started = True
        response.is_live = False
        response.builder = MessageBuilder(sdk=self._sdk, message_id=chunk.message_id or response.message_id)
        return True

    def _write(self, response: _Response, *, is_content: bool) -> None:
        """Let the page see the message: in its old place, or at the end."""
        if is_content:
            self._set_status("streaming")
        index = self._last_index(response.message_id)
        if index is None and response.earlier_id is not None:
            index = self._last_index(response.earlier_id)
        response.is_live = index is None
        if index is None:
            self._messages.append(cast("MessageBuilder", response.builder).message)
            index = len(self._messages) - 1
        response.index = index
        response.is_shown = False

    def _show(self, response: _Response) -> None:
        """Copy the message into the list, if it has changed since."""
        if not response.is_shown and response.index is not None and response.builder is not None:
            self._messages[response.index] = response.builder.message
            response.is_shown = True

    def _show_all(self) -> None:
        for response in self._responses:
            self._show(response)

    def _forget(self, response: _Response) -> None:
        self._show(response)
        self._responses.discard(response)
        if self._active is response:
            self._active = None
        if self._resuming is response:
            self._resuming = None

    def _note_interruption(self, response: _Response) -> bool:
        """Remember whether the server interrupted the message; tell whether it came to a good end."""
        builder = response.builder
        if builder is None or not self._behaves("minds-interruptions"):
            return True
        if builder.finish_reason == "interrupted":
            self._interrupted.add(response.message_id)
            return False
        self._interrupted.discard(response.message_id)
        return True

    # -- What a person answers.

    def _change_tools(self, is_meant: Callable[[_Part], bool], changed: Callable[[_Part], _Part]) -> str | None:
        """Change tool parts in the first message that holds one of them, and in the answer that is being received.

        Returns the id of that message.
        """
        messages = self.messages
        message_id = None
        for index, message in enumerate(messages):
            if any(map(is_meant, tool_parts_of(message))):
                parts = [changed(part) if is_tool(part) else part for part in cast("list[_Part]", message["parts"])]
                self._messages[index] = cast("UIMessage", {**message, "parts": parts})
                message_id = message["id"]
                break
        if self._active is not None and self._active.builder is not None:
            self._active.is_live = False
            for part in self._active.builder.tool_parts():
                new = changed(dict(part))
                part.clear()
                part.update(new)
        return message_id

    def _with_outcome(self, part: _Part, outcome: Mapping[str, Any]) -> _Part:
        state = "output-error" if "errorText" in outcome else "output-available"
        fields = {key: value for key, value in part.items() if key not in ("output", "errorText")}
        if self._behaves("outputs-drop-refused-approvals") and fields.get("approval", {}).get("approved") is not True:
            fields.pop("approval", None)
        return {**fields, "state": state, **outcome}

    def _may_send_automatically(self, message_id: str | None) -> bool:
        return self._status not in ("streaming", "submitted") and self._sends_automatically(message_id)

    def _sends_automatically(self, message_id: str | None) -> bool:
        if self._send_automatically_when is None or self._stopping:
            return False
        if {message_id, self._last_id} & self._interrupted:
            return False
        return self._send_automatically_when(self.messages)

    # -- Small things.

    @property
    def _last_id(self) -> str | None:
        return self._messages[-1]["id"] if self._messages else None

    def _last_index(self, message_id: str) -> int | None:
        for index in range(len(self._messages) - 1, -1, -1):
            if self._messages[index]["id"] == message_id:
                return index
        return None

    @staticmethod
    def _find(messages: Sequence[UIMessage], message_id: str) -> int:
        for index, message in enumerate(messages):
            if message["id"] == message_id:
                return index
        raise InvalidSetting(f"message with id {message_id} not found")

    def _set_status(self, status: Status, error: Exception | None = None) -> None:
        self._status = status
        self._error = error

    def _behaves(self, behaviour: str) -> bool:
        return _CLIENT[behaviour].includes(self._release)
