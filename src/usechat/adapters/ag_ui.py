"""Agents behind AG-UI as chats: in this process, or at an address.

``usechat serve --as ag-ui URL`` and :class:`AgUiEndpoint` talk to an endpoint over HTTP and need no further package.
:class:`AgUiSource` takes a function of this process that is called with a ``RunAgentInput`` and returns events, as the
AG-UI packages of agent frameworks have it.

**Events** are those of AG-UI 1.0: objects of ``ag_ui.core``, or the JSON objects that an endpoint sends. A result is
followed by another step. Tool calls that end without a result wait for the page. The events of a sub-agent are a lane.

**History.** An agent gets the whole chat in every turn, in a thread named by the caller's identity and the chat's id.
Ids of messages are made from that of the user's message before, so they are the same in each turn.

**Pauses.** A run that ends with interrupts waits for answers, and ``resume`` of the next run has them. An interrupt of
a tool call becomes an approval, whose id is the interrupt's; its answer is ``{"approved": …, "reason": …}``. Any other
interrupt becomes a call of a tool named ``interrupt``, whose output is the answer. So does the custom event by which
``ag-ui-langgraph`` reports an interrupt; it takes the answer from ``forwardedProps``.
"""

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import aclosing
from itertools import count
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from usechat.adapters import conversation, model_files, sub_agents
from usechat.adapters.framework import NO_OPTIONS, FrameworkSource, Options, imported, without_results
from usechat.certificates import verification
from usechat.errors import InvalidAddress, InvalidJSON, PublicError, RequestRefused, StreamFailed, UnknownEvent
from usechat.ids import new_id
from usechat.protocol.model_messages import FilePart, ModelMessage
from usechat.protocol.parts import (
    Abort,
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolResult,
)
from usechat.protocol.sse import EventDecoder
from usechat.protocol.values import json_text, json_value
from usechat.sources import parts_of
from usechat.turn import AgentInfo, Turn, current_context, thread_id

__all__ = ["AgUiAdapter", "AgUiEndpoint", "AgUiSource", "parts", "run_input", "source_of", "to_ag_ui"]

_VERSION: Final = "1.0"
_PROVIDED: Final = "pyd_ai_builtin|"
"""How Pydantic AI begins the ids of calls that the model's provider runs."""
_PROVIDER: Final = "agUi"
"""Under which name a message keeps the encrypted values that an agent wants back."""
_ENCRYPTED: Final = "encryptedValue"
_ASKED: Final = ("message", "responseSchema", "metadata")
"""The fields of an interrupt that the page gets."""
_LANGGRAPH_INTERRUPT: Final = "on_interrupt"
"""The custom event of ``ag-ui-langgraph``, and how the id of its question begins."""
_IGNORED: Final = frozenset(
    {"RUN_STARTED", "MESSAGES_SNAPSHOT", "RAW", "REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_END",
     "SUBAGENT_FINISHED", "SUBAGENT_ERROR"}
)  # fmt: skip
_CONNECT_TIMEOUT: Final = 10.0
_MAXIMUM_ERROR_BYTES: Final = 2_000

_Event: TypeAlias = Mapping[str, Any]
_Run: TypeAlias = Callable[[Any], AsyncIterable[Any]]


def source_of(agent: Any) -> "AgUiSource | None":
    """Return the source of an agent of an AG-UI package, whose ``run`` takes a ``RunAgentInput``; ``None`` for others.

    >>> source_of("a text") is None
    True
    """
    run = getattr(agent, "run", None)
    return AgUiSource(run) if callable(run) and not isinstance(agent, type) else None


class _AgUiRuns(FrameworkSource[Any]):
    continues = False  # the prompt is never sent twice

    def __init__(self, options: Options) -> None:
        super().__init__(options=options)
        self.adapter = AgUiAdapter
        self.info = AgentInfo("ag-ui")

    async def _input(self, turn: Turn) -> dict[str, Any]:
        return {**run_input(turn), **await self.arguments(turn)}


class AgUiSource(_AgUiRuns):
    """Answers turns with a function that takes a ``RunAgentInput`` and returns events.

    ``options`` are further fields of the input by their names in JSON, such as ``state``, ``tools``, ``context`` or
    ``forwardedProps``: as a mapping, or as a function of the turn that returns one.

    >>> async def run(run_input):
    ...     yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m1", "delta": "Hello"}
    ...     yield {"type": "RUN_FINISHED"}
    >>> source = AgUiSource(run, options=lambda turn: {"state": {"locale": "en"}})  # for chat_response or ChatApp
    """

    def __init__(self, run: _Run, *, options: Options = NO_OPTIONS) -> None:
        super().__init__(options)
        self._run = run

    async def events(self, turn: Turn) -> AsyncGenerator[_Event]:
        """Call the function with the input of the turn, and yield its events as JSON."""
        core = imported("ag_ui.core", "ag-ui-protocol", "ag-ui")
        run_input = core.RunAgentInput.model_validate(await self._input(turn))
        async with aclosing(_as_json(self._run(run_input))) as events:
            async for event in events:
                yield event


class AgUiEndpoint(_AgUiRuns):
    """Answers turns with an AG-UI endpoint, over HTTP.

    ``headers`` are sent with each request; ``pass_on`` names headers of the page's request that are sent, too.
    ``options`` are those of :class:`AgUiSource`; ``verify=False`` accepts every TLS certificate. Raises
    :class:`~usechat.errors.InvalidAddress` for an address that is not one of HTTP.

    >>> source = AgUiEndpoint("http://127.0.0.1:8000/agent", pass_on=["authorization"])  # for chat_response or ChatApp
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
            raise InvalidAddress(
                f"{url!r} is not the address of an AG-UI agent; give one such as http://127.0.0.1:8000/"
            )
        self._url = url
        self._headers = dict(headers)
        self._pass_on = frozenset(name.lower() for name in pass_on)
        self._verify = verify

    async def events(self, turn: Turn) -> AsyncGenerator[_Event]:
        """Post the input of the turn, and yield the events of the answer. Closing it closes the connection.

        Raises :class:`~usechat.errors.RequestRefused` if the status is not 200, and
        :class:`~usechat.errors.PublicError` if the endpoint cannot be reached.
        """
        import httpx2

        headers = {name: value for name, value in turn.headers.items() if name.lower() in self._pass_on}
        headers |= self._headers | {"accept": "text/event-stream"}
        timeouts = httpx2.Timeout(None, connect=_CONNECT_TIMEOUT)  # the run limits how long an answer may take
        try:
            async with (
                httpx2.AsyncClient(timeout=timeouts, verify=verification(self._verify)) as client,
                client.stream("POST", self._url, json=await self._input(turn), headers=headers) as response,
            ):
                if response.status_code != 200:
                    body = (await response.aread())[:_MAXIMUM_ERROR_BYTES].decode("utf-8", "replace")
                    raise RequestRefused(status=response.status_code, body=body, url=self._url)
                async with aclosing(_decoded(response.aiter_bytes())) as events:
                    async for event in events:
                        yield event
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            current_context().source_unreachable()
            raise PublicError("The agent cannot be reached. Please try again later.") from error


async def _as_json(events: AsyncIterable[Any]) -> AsyncGenerator[_Event]:
    iterator: Any = aiter(events)
    try:
        async for event in iterator:
            yield _json(event)
    finally:
        if hasattr(iterator, "aclose"):
            await iterator.aclose()


def _json(event: Any) -> _Event:
    """Return an event as the JSON object that an endpoint would send."""
    if isinstance(event, Mapping):
        return event
    read: _Event = event.model_dump(by_alias=True, mode="json", exclude_none=True)
    return read


async def _decoded(received: AsyncIterable[bytes]) -> AsyncGenerator[_Event]:
    decoder = EventDecoder()
    async for data in received:
        for event in decoder.receive(data):
            try:
                payload = msgspec.json.decode(event.data)
            except msgspec.DecodeError as error:
                raise InvalidJSON(f"event {event.number} of the AG-UI endpoint is not JSON: {error}") from None
            if not isinstance(payload, dict):
                raise InvalidJSON(f"event {event.number} of the AG-UI endpoint is not a JSON object")
            yield payload


# The input of a run.


def run_input(turn: Turn) -> dict[str, Any]:
    """Return the input of a run on a turn, in JSON: the whole chat, and the answers to interrupts.

    >>> from usechat.testing import AgentClient
    >>> async def answer(turn):
    ...     return run_input(turn)["messages"][-1]["content"]
    >>> with AgentClient(answer) as client:
    ...     client.ask("Hello").text
    'Hello'
    """
    call_ids = {answer.tool_call_id for answer in turn.approvals}
    call_ids |= {output.tool_call_id for output in turn.tool_outputs if output.tool_name == conversation.QUESTION}
    users = [message["id"] for message in turn.messages if message["role"] == "user"]
    history = without_results(conversation.history(turn), call_ids)
    return {
        "threadId": thread_id(turn),
        "runId": new_id(),
        "protocolVersion": _VERSION,
        "state": {},
        "messages": to_ag_ui(conversation.without_questions(history), users),
        "tools": [],
        "context": [],
        "forwardedProps": _langgraph_command(turn),
        **({"resume": resume} if (resume := list(_resume(turn))) else {}),
    }


def _resume(turn: Turn) -> Iterator[Mapping[str, Any]]:
    """Yield the answers to interrupts."""
    for answer in turn.approvals:
        payload = {"approved": answer.approved, **({"reason": answer.reason} if answer.reason else {})}
        yield {"interruptId": answer.approval_id, "status": "resolved", "payload": payload}
    for output in turn.tool_outputs:
        if output.tool_name == conversation.QUESTION and not output.tool_call_id.startswith(_LANGGRAPH_INTERRUPT):
            status = "resolved" if output.error_text is None else "cancelled"
            yield {"interruptId": output.tool_call_id, "status": status, "payload": output.output}


def _langgraph_command(turn: Turn) -> dict[str, Any]:
    """Return the answer to the interrupt of a graph, where ``ag-ui-langgraph`` looks for it."""
    for output in turn.tool_outputs:
        if output.tool_call_id.startswith(_LANGGRAPH_INTERRUPT):
            value = output.output if output.error_text is None else {"error": output.error_text}
            return {"command": {"resume": value}}
    return {}


# The adapter.

_METHODS: Final[Mapping[str, str]] = {
    "TEXT_MESSAGE_START": "_text_start",
    "TEXT_MESSAGE_CONTENT": "_text",
    "TEXT_MESSAGE_CHUNK": "_text",
    "TEXT_MESSAGE_END": "_text_end",
    "REASONING_MESSAGE_CONTENT": "_reasoning_text",
    "REASONING_MESSAGE_CHUNK": "_reasoning_text",
    "REASONING_END": "_reasoning_end",
    "REASONING_ENCRYPTED_VALUE": "_encrypted",
    "TOOL_CALL_START": "_call_start",
    "TOOL_CALL_ARGS": "_call_input",
    "TOOL_CALL_CHUNK": "_call_chunk",
    "TOOL_CALL_END": "_call_end",
    "TOOL_CALL_RESULT": "_result",
    "STEP_STARTED": "_step_started",
    "STEP_FINISHED": "_step_finished",
    "STATE_SNAPSHOT": "_state",
    "STATE_DELTA": "_state_delta",
    "ACTIVITY_SNAPSHOT": "_activity",
    "ACTIVITY_DELTA": "_activity_delta",
    "CUSTOM": "_custom",
    "RUN_FINISHED": "_finished",
    "RUN_ERROR": "_failed",
}
"""Which method of the adapter reads which event."""


class AgUiAdapter:
    """Turns the events of one run into parts.

    ``known_calls`` are the calls that the page has already, when a run is resumed; ``denied`` are those that a person
    has denied, with the reasons.

    >>> adapter = AgUiAdapter()
    >>> list(adapter.feed({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Hello"}))
    [Step(leaves_calls=False, lane=''), Text(text='Hello', provider_metadata=None, id=None, lane='m1')]
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:
        self._known_calls = set(known_calls)
        self._denied = denied
        self._inputs: dict[str, list[str]] = {}
        self._names: dict[str, str] = {}
        self._waiting: set[str] = set()
        self._metadata: dict[str, Mapping[str, Mapping[str, Any]]] = {}
        self._not_ours: set[str] = set()
        self._message = ""
        self._chunked_call: str | None = None
        self._reasoning: set[str] = set()
        self._is_step_open = False
        self._is_over = False
        self._interrupts: list[Any] = []
        """The values of interrupts of ``ag-ui-langgraph``."""
        self._sub_agents: dict[str, tuple[AgUiAdapter, sub_agents.SubAgent]] = {}

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind.
        """
        read = _json(event)
        kind, run_id = read.get("type"), read.get("subagentRunId")
        if kind == "SUBAGENT_STARTED":
            self._begin_sub_agent(read["subagentRunId"], read["name"])
            return
        if run_id is not None:
            adapter, speaker = self._sub_agents.get(run_id) or self._begin_sub_agent(run_id, "agent")
            yield from speaker.parts(adapter.feed({**read, "subagentRunId": None}))
            return
        if self._chunked_call is not None and kind != "TOOL_CALL_CHUNK":
            yield from self._end_call(self._chunked_call)
        method = _METHODS.get(str(kind))
        if method is not None:
            yield from getattr(self, method)(read)
        elif kind not in _IGNORED:
            raise UnknownEvent(str(kind))

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a run that ended without a last event."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _begin_sub_agent(self, run_id: str, name: str) -> "tuple[AgUiAdapter, sub_agents.SubAgent]":
        """Return the adapter of a sub-agent, and what puts it into its lane; what follows it is another step."""
        self._is_step_open = False
        adapter = AgUiAdapter(denied=self._denied)
        adapter._known_calls, adapter._waiting = self._known_calls, self._waiting  # the end of the run names them
        adapter._interrupts = self._interrupts
        self._sub_agents[run_id] = adapter, sub_agents.SubAgent(name, run_id)
        return self._sub_agents[run_id]

    def _begin(self) -> Iterator[Part]:
        """Begin a step with the first thing that is said, and with the first one behind results."""
        if not self._is_step_open:
            self._is_step_open = True
            yield Step()

    # -- Text and reasoning.

    def _text_start(self, event: _Event) -> Iterator[Part]:
        self._message = event["messageId"]
        if event.get("role") not in (None, "assistant"):
            self._not_ours.add(self._message)
        return iter(())

    def _text(self, event: _Event) -> Iterator[Part]:
        message, delta = event.get("messageId") or self._message, event.get("delta")
        if event.get("role") not in (None, "assistant"):
            self._not_ours.add(message)
        self._message = message
        if delta and message not in self._not_ours:
            yield from self._begin()
            yield Text(delta, lane=message)

    def _text_end(self, event: _Event) -> Iterator[Part]:
        if event["messageId"] not in self._not_ours:
            yield BlockEnd(lane=event["messageId"])

    def _reasoning_text(self, event: _Event) -> Iterator[Part]:
        message = event.get("messageId") or self._message
        self._message = message
        if delta := event.get("delta"):
            yield from self._begin()
            self._reasoning.add(message)
            yield Reasoning(delta, lane=message)

    def _reasoning_end(self, event: _Event) -> Iterator[Part]:
        if event["messageId"] in self._reasoning:
            self._reasoning.discard(event["messageId"])
            yield BlockEnd(lane=event["messageId"])

    def _encrypted(self, event: _Event) -> Iterator[Part]:
        """Keep what an agent wants back with its reasoning or its call; that of other messages cannot be kept."""
        entity, metadata = event["entityId"], {_PROVIDER: {_ENCRYPTED: event[_ENCRYPTED]}}
        if event.get("subtype") == "tool-call":
            self._metadata[entity] = metadata
        elif entity in self._reasoning:
            self._reasoning.discard(entity)
            yield BlockEnd(metadata, lane=entity)

    # -- Tools.

    def _call_start(self, event: _Event) -> Iterator[Part]:
        call_id, name = event["toolCallId"], event["toolCallName"]
        if call_id not in self._known_calls:
            self._names[call_id], self._inputs[call_id] = name, []
            yield from self._begin()
            yield ToolInputStart(call_id, name, provider_executed=_is_provided(call_id))

    def _call_input(self, event: _Event) -> Iterator[Part]:
        if event["toolCallId"] in self._inputs:
            self._inputs[event["toolCallId"]].append(event["delta"])
            yield ToolInputDelta(event["toolCallId"], event["delta"])

    def _call_chunk(self, event: _Event) -> Iterator[Part]:
        call_id = event.get("toolCallId") or self._chunked_call
        if call_id is None:
            return
        if call_id != self._chunked_call:
            if self._chunked_call is not None:
                yield from self._end_call(self._chunked_call)
            self._chunked_call = call_id
            yield from self._call_start({**event, "toolCallId": call_id, "toolCallName": event.get("toolCallName", "")})
        if event.get("delta"):
            yield from self._call_input({"toolCallId": call_id, "delta": event["delta"]})

    def _call_end(self, event: _Event) -> Iterator[Part]:
        yield from self._end_call(event["toolCallId"])

    def _end_call(self, call_id: str) -> Iterator[Part]:
        self._chunked_call = None
        if call_id not in self._inputs:
            return
        name, text = self._names[call_id], "".join(self._inputs.pop(call_id))
        self._known_calls.add(call_id)
        self._waiting.add(call_id)
        tool_input = conversation.parsed_result(text) if text else {}
        if isinstance(tool_input, str):
            yield ToolInputError(
                call_id, name, conversation.INVALID_INPUT, tool_input, provider_executed=_is_provided(call_id)
            )
        else:
            metadata, is_provided = self._metadata.get(call_id), _is_provided(call_id)
            yield ToolCall(call_id, name, tool_input, provider_metadata=metadata, provider_executed=is_provided)

    def _result(self, event: _Event) -> Iterator[Part]:
        call_id, content = event["toolCallId"], event["content"]
        self._waiting.discard(call_id)
        is_provided = _is_provided(call_id)
        self._is_step_open = self._is_step_open and bool(is_provided)  # a provider continues in the same answer
        if call_id in self._denied:
            yield ToolDenied(call_id, self._denied[call_id])
            return
        if not isinstance(content, str) and all(part.get("type") == "text" for part in content):
            content = "".join(part["text"] for part in content)
        output = conversation.parsed_result(content) if isinstance(content, str) else content
        yield ToolResult(call_id, output, provider_executed=is_provided)

    # -- Everything else.

    def _step_started(self, event: _Event) -> Iterator[Part]:
        self._is_step_open = True
        yield Step()
        yield Data("step", {"name": event["stepName"], "state": "started"}, id=event["stepName"])

    def _step_finished(self, event: _Event) -> Iterator[Part]:
        yield Data("step", {"name": event["stepName"], "state": "finished"}, id=event["stepName"])

    def _state(self, event: _Event) -> Iterator[Part]:
        yield Data("state", event["snapshot"], id="state")

    def _state_delta(self, event: _Event) -> Iterator[Part]:
        yield Data("state-delta", event["delta"])

    def _activity(self, event: _Event) -> Iterator[Part]:
        yield Data("activity", {"type": event["activityType"], "content": event["content"]}, id=event["messageId"])

    def _activity_delta(self, event: _Event) -> Iterator[Part]:
        yield Data("activity-delta", {"id": event["messageId"], "patch": event["patch"]})

    def _custom(self, event: _Event) -> Iterator[Part]:
        value = event.get("value")
        if event["name"] != _LANGGRAPH_INTERRUPT:
            yield Data(event["name"], value)
        else:
            self._interrupts.append(conversation.parsed_result(value) if isinstance(value, str) else value)

    def _finished(self, event: _Event) -> Iterator[Part]:
        self._is_over = True
        outcome: _Event = event.get("outcome") or {}
        interrupts = outcome.get("interrupts") or ()
        for interrupt in interrupts:
            yield from self._interrupt(interrupt)
        if self._interrupts and not interrupts:  # both may come
            # In a separate step: the page posts again as soon as every call of the last step is answered.
            yield Step(leaves_calls=True)
            # One question: an answer cannot name the interrupt that it is for.
            yield ToolCall(
                f"{_LANGGRAPH_INTERRUPT}-{new_id()}", conversation.QUESTION, self._interrupts[0], dynamic=True
            )
        if event.get("result") is not None:
            yield Data("output", event["result"])
        reported = event.get("usage") or ()
        usage = conversation.usage(
            *(sum(one.get(name) or 0 for one in reported) for name in ("inputTokens", "outputTokens"))
        )
        if outcome.get("type") == "cancelled":
            yield Abort(usage=usage if reported else None)
        else:
            waits = bool(interrupts or self._interrupts or self._waiting)
            yield conversation.finish(None if waits else "stop", usage if reported else None)

    def _interrupt(self, interrupt: _Event) -> Iterator[Part]:
        if (call_id := interrupt.get("toolCallId")) in self._known_calls and call_id is not None:
            yield ApprovalRequest(interrupt["id"], call_id)
            return
        question = {name: interrupt[name] for name in _ASKED if interrupt.get(name) is not None}
        yield ToolCall(interrupt["id"], conversation.QUESTION, question)

    def _failed(self, event: _Event) -> Iterator[Part]:
        self._is_over = True
        raise StreamFailed(f"the AG-UI agent failed: {event.get('message')}")


def _is_provided(call_id: str) -> bool | None:
    """Return whether a model's provider runs this call. AG-UI has no mark for it; Pydantic AI marks the id."""
    return call_id.startswith(_PROVIDED) or None


def parts(events: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function.

    >>> from usechat.testing import AgentClient
    >>> async def run(text):
    ...     yield {"type": "TEXT_MESSAGE_CHUNK", "messageId": "m1", "delta": f"You said {text}."}
    ...     yield {"type": "RUN_FINISHED"}
    >>> async def answer(turn):
    ...     async for part in parts(run(turn.text)):
    ...         yield part
    >>> with AgentClient(answer) as client:
    ...     client.ask("Hello").text
    'You said Hello.'
    """
    return parts_of(events, AgUiAdapter())


# History.


def to_ag_ui(messages: Iterable[ModelMessage], user_ids: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return model messages as those of AG-UI, in JSON. Call ``repair_messages`` first.

    ``user_ids`` are the ids of the user messages in order; the other messages have ids that are made from them.
    Reasoning is kept if the agent sent an encrypted value with it. Calls that a provider ran itself, and their results,
    are left out.

    >>> to_ag_ui([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], ["u1"])
    [{'id': 'u1', 'role': 'user', 'content': 'Hi'}]
    """
    ids, user_id, numbers = iter(user_ids), "", count(1)
    converted: list[dict[str, Any]] = []
    for message in conversation.without_provider_calls(messages):
        if message["role"] == "user":
            user_id, numbers = next(ids, None) or new_id(), count(1)
            converted.append({"id": user_id, "role": "user", "content": _user_content(message["content"])})
        else:
            converted += ({"id": f"{user_id}-{next(numbers)}", **each} for each in _converted(message))
    return converted


def _user_content(content: Any) -> Any:
    read = [{"type": "text", "text": part["text"]} if part["type"] == "text" else _file(part) for part in content]
    return read[0]["text"] if len(read) == 1 and read[0]["type"] == "text" else read


def _file(part: FilePart) -> dict[str, Any]:
    file = model_files.model_file(part)
    if (text := file.text) is not None:
        return {"type": "text", "text": text}
    kind = file.media_type.partition("/")[0]
    source = {"type": "url", "value": file.url} if file.data is None else {"type": "data", "value": file.base64}
    return {
        "type": kind if kind in ("image", "audio", "video") else "document",
        "source": {**source, "mimeType": file.media_type},
    }


def _converted(message: ModelMessage) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        yield from map(_tool_message, conversation.contents_of(message).results)
    elif message["role"] == "assistant":
        content: Any = message["content"]
        for part in content:
            encrypted = part.get("providerOptions", {}).get(_PROVIDER, {}).get(_ENCRYPTED)
            if part["type"] == "reasoning" and encrypted:
                yield {"role": "reasoning", "content": part["text"], _ENCRYPTED: encrypted}
        text = conversation.contents_of(message).text
        calls = [_call(part) for part in content if part["type"] == "tool-call"]
        fields = {"content": text} if text.strip() else {}
        if fields or calls:
            yield {"role": "assistant", **fields, **({"toolCalls": calls} if calls else {})}


def _call(part: Any) -> dict[str, Any]:
    encrypted = part.get("providerOptions", {}).get(_PROVIDER, {}).get(_ENCRYPTED)
    function = {"name": part["toolName"], "arguments": json_text(json_value(part.get("input") or {}))}
    call = {"id": part["toolCallId"], "type": "function", "function": function}
    return {**call, **({_ENCRYPTED: encrypted} if encrypted else {})}


def _tool_message(result: conversation.HistoryResult) -> dict[str, Any]:
    failure = {"error": result.text} if result.is_failure else {}
    return {"role": "tool", "toolCallId": result.call_id, "content": result.text, **failure}
