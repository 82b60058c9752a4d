"""Agents behind A2A (Agent2Agent) as chats: at an address, or behind a client of the package ``a2a-sdk``.

``usechat serve --as a2a URL`` and :class:`A2aEndpoint` read the agent card at the address; :class:`A2aSource` takes a
client that was made elsewhere. Both need ``a2a-sdk``, which has versions 0.3 and 1.0 of the protocol.

**Events** are those of ``client.send_message(…)``: objects of ``a2a-sdk``, or the same in JSON. Texts of artifacts are
streamed, each artifact as a block; every message of a status is a separate block. What repeats a whole text that was
shown is left out. A2A has no events for the tools of an agent.

**Memory.** The agent gets the new message only, in a context named by the caller's identity and the chat's id.

**Pauses.** A task that needs input (or a sign-in) becomes a call of a tool named ``interrupt``. Its output is sent to
that task; so is another message of the user. The id of the task stays in the run store, and is used once.
"""

import asyncio
import json
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from usechat.adapters import conversation, model_files
from usechat.adapters.framework import NO_OPTIONS, FrameworkSource, Options, imported
from usechat.certificates import verification
from usechat.errors import InvalidAddress, PublicError, StreamFailed, UnknownEvent
from usechat.ids import new_id
from usechat.protocol.parts import Abort, BlockEnd, Data, Error, File, Part, Text, ToolCall
from usechat.protocol.request import ToolOutput
from usechat.protocol.values import json_value
from usechat.sources import parts_of
from usechat.turn import AgentInfo, Turn, current_context, thread_id

__all__ = ["A2aAdapter", "A2aEndpoint", "A2aSource", "parts", "source_of", "to_a2a"]

_FRAMEWORK: Final = "a2a"
_QUESTION: Final = "interrupt"
"""The name of the tool whose output answers a task that needs input."""
_BINDINGS: Final = ["JSONRPC", "HTTP+JSON"]
"""The ways to call an agent that need no further package; the agent's card says which of them it has."""
_BUSY: Final = frozenset({"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"})
_WAITING: Final = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})
_FAILED: Final = frozenset({"TASK_STATE_FAILED", "TASK_STATE_REJECTED"})
_CONNECT_TIMEOUT: Final = 10.0
_CANCEL_SECONDS: Final = 5.0
"""How long a stopped turn waits for the agent to take note of it."""

_Event: TypeAlias = Mapping[str, Any]


def source_of(client: Any) -> "A2aSource | None":
    """Return the source of a client of an A2A agent; ``None`` for everything else.

    >>> def answers(client: object) -> bool:
    ...     return source_of(client) is not None
    """
    return A2aSource(client) if isinstance(client, _a2a("a2a.client").Client) else None


def _a2a(module: str) -> Any:
    return imported(module, "a2a-sdk", "a2a")


class _A2aTasks(FrameworkSource[_Event]):
    continues = False  # the prompt is never sent twice

    def __init__(self, options: Options) -> None:
        super().__init__(options=options)
        self.adapter = A2aAdapter
        self.info = AgentInfo(_FRAMEWORK)

    @abstractmethod
    def _client(self, turn: Turn) -> AbstractAsyncContextManager[Any]:
        """Return the client for one turn."""

    async def events(self, turn: Turn) -> AsyncGenerator[_Event]:
        """Send the message of the turn, or the answer that a task waits for; yield what the agent sends, in JSON."""
        states, handle = current_context().states, conversation.state_handle(turn, _FRAMEWORK)
        state = await states.take_state(handle)  # also if the user writes instead of answering
        task: dict[str, Any] = {} if state is None else json.loads(state)
        request = {**await self.arguments(turn), "message": _message(turn, task)}
        artifact_ids = set(task.get("artifacts", ()))
        async with self._client(turn) as client, aclosing(_sent(client, request)) as events:
            async for event in events:
                if "task" in event:  # a task that continues repeats the artifacts of earlier turns
                    artifacts = [
                        each for each in event["task"].get("artifacts", ()) if each["artifactId"] not in artifact_ids
                    ]
                    event["task"]["artifacts"] = artifacts
                if _state(event) in _WAITING:
                    await states.keep_state(handle, json.dumps(_waiting_task(event, artifact_ids)).encode())
                elif "artifactUpdate" in event:
                    artifact_ids.add(event["artifactUpdate"]["artifact"]["artifactId"])
                yield event


def _message(turn: Turn, task: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message of a turn for the task that waits, if one does.

    Raise PublicError for an answer to a question that nobody waits for.
    """
    answers = [output for output in turn.tool_outputs if output.tool_call_id == task.get("question")]
    last = conversation.history(turn)[-1]
    if not answers and last["role"] != "user":
        raise PublicError(conversation.PAUSE_IS_GONE)
    content = [_answer(answers[0])] if answers else to_a2a(last["content"])
    ids = {"contextId": task.get("contextId") or thread_id(turn)}
    if "taskId" in task:
        ids["taskId"] = task["taskId"]
    return {"messageId": new_id(), "role": "ROLE_USER", "parts": content, **ids}


def _answer(output: ToolOutput) -> dict[str, Any]:
    value = output.output if output.error_text is None else output.error_text
    return {"text": value} if isinstance(value, str) else {"data": json_value(value)}


def _waiting_task(event: _Event, artifact_ids: Iterable[str]) -> dict[str, Any]:
    """Return what the next turn needs to answer a task: its ids, that of the question, and what the page has."""
    update = event.get("statusUpdate") or event["task"]
    artifacts = {each["artifactId"] for each in update.get("artifacts", ())}
    return {
        "taskId": update.get("taskId") or update["id"],
        "contextId": update.get("contextId"),
        "question": _question_id(update["status"]),
        "artifacts": sorted(artifacts.union(artifact_ids)),
    }


async def _sent(client: Any, request: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
    """Send a message and yield the events of the answer, in JSON; cancel the task if nobody reads on.

    If nobody reads on before the first event has arrived, it is awaited, because it tells the id of the task.
    """
    types, json_format = _a2a("a2a.types"), _a2a("google.protobuf.json_format")
    stream = client.send_message(json_format.ParseDict(request, types.SendMessageRequest()))
    first = asyncio.ensure_future(anext(stream, None))
    task_id, is_over = None, False
    try:
        response = await asyncio.shield(first)
        while response is not None:
            event = json_format.MessageToDict(response)
            task_id = task_id or _task_id(event)
            is_over = is_over or _state(event) not in _BUSY
            yield event
            response = await anext(stream, None)
    finally:
        with suppress(_a2a("a2a.utils.errors").A2AError, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                if not first.done() and (response := await first) is not None:
                    task_id = _task_id(json_format.MessageToDict(response))
                await stream.aclose()
                if task_id is not None and not is_over:
                    await client.cancel_task(types.CancelTaskRequest(id=task_id))


def _task_id(event: _Event) -> str | None:
    task_id = event.get("task", {}).get("id") or next(iter(event.values())).get("taskId")
    return None if task_id is None else str(task_id)


def _state(event: _Event) -> str:
    """Return the state of the task that an event tells; a message ends the answer, an artifact changes nothing."""
    if "artifactUpdate" in event:
        return "TASK_STATE_WORKING"
    update = event.get("statusUpdate") or event.get("task") or {}
    return str(update.get("status", {}).get("state", ""))


class A2aSource(_A2aTasks):
    """Answers turns with a client of ``a2a-sdk``.

    ``options`` are further fields of the request in JSON, such as ``metadata`` or ``configuration``: as a mapping, or
    as a function of the turn that returns one.

    >>> from typing import Any
    >>> def source(client: Any) -> A2aSource:  # for chat_response or ChatApp
    ...     return A2aSource(client, options=lambda turn: {"metadata": {"chat": turn.chat_id}})
    """

    def __init__(self, client: Any, *, options: Options = NO_OPTIONS) -> None:
        super().__init__(options)
        self._shared_client = client

    def _client(self, turn: Turn) -> AbstractAsyncContextManager[Any]:  # noqa: ARG002 (one client for all)
        return nullcontext(self._shared_client)


class A2aEndpoint(_A2aTasks):
    """Answers turns with an agent at an address: that of its host, or that of its card if it ends with ``.json``.

    ``headers`` are sent with each request; ``pass_on`` names headers of the page's request that are sent, too.
    ``options`` are those of :class:`A2aSource`; ``verify=False`` accepts every TLS certificate. Raises
    :class:`~usechat.errors.InvalidAddress` for an address that is not one of HTTP.

    >>> def source(url: str) -> A2aEndpoint:  # for chat_response or ChatApp
    ...     return A2aEndpoint(url, pass_on=["authorization"])
    """

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] = {},
        pass_on: Iterable[str] = (),
        options: Options = NO_OPTIONS,
        verify: bool = True,
    ) -> None:
        super().__init__(options)
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise InvalidAddress(f"{url!r} is not the address of an A2A agent; give one such as http://127.0.0.1:9999/")
        _a2a("a2a.client")  # a missing package is an error now, not in the first turn
        self._url = url
        self._card_path = "/" if address.path.endswith(".json") else None
        self._headers = dict(headers)
        self._pass_on = frozenset(name.lower() for name in pass_on)
        self._verify = verify
        self._card: Any = None

    @asynccontextmanager
    async def _client(self, turn: Turn) -> AsyncIterator[Any]:
        httpx, clients = _a2a("httpx"), _a2a("a2a.client")
        headers = {name: value for name, value in turn.headers.items() if name.lower() in self._pass_on}
        timeouts = httpx.Timeout(None, connect=_CONNECT_TIMEOUT)  # the run limits how long an answer may take
        async with httpx.AsyncClient(
            headers=headers | self._headers, timeout=timeouts, verify=verification(self._verify)
        ) as http:
            try:
                if self._card is None:
                    resolver = clients.A2ACardResolver(http, self._url)
                    self._card = await resolver.get_agent_card(relative_card_path=self._card_path)
                config = clients.ClientConfig(httpx_client=http, supported_protocol_bindings=_BINDINGS)
                yield clients.ClientFactory(config).create(self._card)
            except clients.A2AClientError as error:
                self._card = None  # it may have moved
                if not isinstance(error.__cause__, (httpx.ConnectError, httpx.ConnectTimeout)):
                    raise
                current_context().source_unreachable()
                raise PublicError("The agent cannot be reached. Please try again later.") from error


class A2aAdapter:
    """Turns the events of one answer into parts.

    ``known_calls`` and ``denied`` are those of every adapter, and not used: A2A has no calls that wait.

    >>> list(A2aAdapter().feed({"message": {"messageId": "m1", "parts": [{"text": "Hello"}]}}))[0]
    Text(text='Hello', provider_metadata=None, id=None, lane='m1')
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:  # noqa: ARG002
        self._texts: dict[str, str] = {}
        """The texts that were shown, by artifact and message."""
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind.
        """
        match _json(event):
            case {"message": message}:
                yield from self._content(message["messageId"], message["parts"])
                yield from self._end("TASK_STATE_COMPLETED", {})
            case {"task": task}:
                for artifact in task.get("artifacts", ()):
                    yield from self._content(artifact["artifactId"], artifact["parts"])
                yield from self._status(task["status"])
            case {"statusUpdate": update}:
                yield from self._status(update["status"])
            case {"artifactUpdate": update}:
                yield from self._artifact(update)
            case other:
                raise UnknownEvent(next(iter(other), ""))

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of an answer that ended without a last state."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _artifact(self, update: _Event) -> Iterator[Part]:
        artifact = update["artifact"]
        lane = artifact["artifactId"]
        if not update.get("append"):
            yield from self._content(lane, artifact["parts"], is_whole=update.get("lastChunk", False))
            return
        for part in artifact["parts"]:
            if "text" in part:
                self._texts[lane] = self._texts.get(lane, "") + part["text"]
                yield Text(part["text"], lane=lane)
            else:
                yield from _other(part)
        if update.get("lastChunk"):
            yield BlockEnd(lane=lane)

    def _content(self, lane: str, content: Iterable[_Event], *, is_whole: bool = True) -> Iterator[Part]:
        """Yield a message or an artifact, without the beginning of its text that was shown."""
        listed = list(content)
        text, before = _text(listed), self._texts.get(lane, "")
        if text and text not in (before, *self._texts.values(), "".join(self._texts.values())):
            rest = text.removeprefix(before)
            if before and rest == text:  # the agent has replaced it
                yield BlockEnd(lane=lane)
            self._texts[lane] = text
            yield Text(rest, lane=lane)
            if is_whole:
                yield BlockEnd(lane=lane)
        for part in listed:
            yield from _other(part)

    def _status(self, status: _Event) -> Iterator[Part]:
        state, message = status.get("state", ""), status.get("message") or {}
        if state in _BUSY:
            yield from self._content(message.get("messageId", ""), message.get("parts", ()))
        else:
            yield from self._end(state, status)

    def _end(self, state: str, status: _Event) -> Iterator[Part]:
        message = status.get("message") or {}
        content = message.get("parts", ())
        if state in _WAITING:
            data = [part["data"] for part in content if "data" in part]
            question = {"message": _text(content), **({"data": data} if data else {})}
            yield ToolCall(_question_id(status), _QUESTION, question, dynamic=True)
            yield conversation.finish(None, None)
        elif state == "TASK_STATE_COMPLETED":
            yield from self._content(message.get("messageId", ""), content)
            yield conversation.finish("stop", None)  # A2A does not tell why a model ended
        elif state == "TASK_STATE_CANCELED":
            yield Abort()
        elif state not in _FAILED:
            raise UnknownEvent(state)
        self._is_over = True
        if state in _FAILED:
            raise StreamFailed(f"the A2A agent failed ({state}): {_text(content)}")


def _json(event: Any) -> _Event:
    """Return an event in JSON."""
    if isinstance(event, Mapping):
        return event
    read: _Event = _a2a("google.protobuf.json_format").MessageToDict(event)
    return read


def _text(content: Iterable[_Event]) -> str:
    return "".join(part.get("text", "") for part in content)


def _other(part: _Event) -> Iterator[Part]:
    """Yield what a part of a message holds besides text."""
    media_type = part.get("mediaType") or "application/octet-stream"
    if "data" in part:
        yield Data("output", part["data"])
    elif "raw" in part:
        yield File(f"data:{media_type};base64,{part['raw']}", media_type)
    elif "url" in part:
        yield File(part["url"], media_type)


def _question_id(status: _Event) -> str:
    return str((status.get("message") or {}).get("messageId") or status.get("timestamp") or _QUESTION)


def parts(events: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of an answer, inside an agent function.

    >>> from usechat.testing import AgentClient
    >>> async def send_message(text):  # instead of client.send_message(…)
    ...     yield {"message": {"messageId": "m1", "parts": [{"text": f"You said {text}."}]}}
    >>> async def answer(turn):
    ...     async for part in parts(send_message(turn.text)):
    ...         yield part
    >>> with AgentClient(answer) as client:
    ...     client.ask("Hello").text
    'You said Hello.'
    """
    return parts_of(events, A2aAdapter())


# History.


def to_a2a(content: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the content of a user message as parts of A2A, in JSON. Text files become text.

    >>> to_a2a([{"type": "text", "text": "Hi"}])
    [{'text': 'Hi'}]
    """
    return [{"text": part["text"]} if part["type"] == "text" else _file(part) for part in content]


def _file(part: Any) -> dict[str, Any]:
    file = model_files.model_file(part)
    if (text := file.text) is not None:
        return {"text": text}
    where = {"url": file.url} if file.data is None else {"raw": file.base64}
    return {**where, "mediaType": file.media_type, **({"filename": file.name} if file.name else {})}
