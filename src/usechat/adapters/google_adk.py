"""Agents of Google's Agent Development Kit (ADK) as chats.

``usechat serve app:root_agent`` and ``chat_response(request, agent)`` take every agent, ``App`` and ``Runner``;
:class:`GoogleAdkSource` takes the arguments of a run.

**Events** are those of ``runner.run_async(…)`` with ``StreamingMode.SSE``. A model's answer comes in partial events,
then whole in an event with the same id, whose text is read only if no partial one came.

**Memory.** The session service owns the history: an agent gets the new message only, in a session of the caller's own.
What was regenerated or edited is rewound. A session that does not exist is filled with the chat so far. An agent or an
``App`` without a runner gets services for sessions, artifacts and memory in the memory of this process.

**Pauses.** Tools with ``require_confirmation`` ask for an approval, whose id is that of ADK's own request.
A ``LongRunningFunctionTool`` that returns nothing waits for an output of the page. The session has all that is needed
to continue.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from usechat.adapters import conversation, model_files
from usechat.adapters.framework import (
    NO_OPTIONS,
    FrameworkSource,
    Options,
    imported,
    kept_count,
    question_id,
)
from usechat.errors import PublicError, StreamFailed, UnknownEvent
from usechat.protocol.model_messages import ModelMessage
from usechat.protocol.parts import (
    ApprovalRequest,
    Data,
    Error,
    File,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
)
from usechat.sources import parts_of
from usechat.turn import AgentInfo, Turn, thread_id

__all__ = ["GoogleAdkAdapter", "GoogleAdkSource", "parts", "source_of", "to_google_adk"]

_CONFIRMATION: Final = "adk_request_confirmation"
_CODE: Final = "code_execution"
_OURS: Final = "usechat_message"
"""Under which key the metadata of a run's events names the user message that it answers."""
_ANYONE: Final = "user"
_EXTRA: Final = ("google-adk", "google-adk")


def source_of(agent: Any, *, context: Any = None) -> "GoogleAdkSource | None":
    """Return the source of an agent, an ``App`` or a ``Runner``; ``None`` for everything else.

    ``context`` is what the agent needs per request, as the source takes it.

    >>> def answers(agent: object) -> bool:
    ...     return source_of(agent) is not None
    """
    kinds = (_adk("agents").BaseAgent, _adk("apps").App, _adk("runners").Runner)
    return GoogleAdkSource(agent, context=context) if isinstance(agent, kinds) else None


def _adk(module: str) -> Any:
    return imported(f"google.adk.{module}", *_EXTRA)


def _types() -> Any:
    return imported("google.genai.types", *_EXTRA)


class GoogleAdkSource(FrameworkSource[Any]):
    """Answers turns with an agent, an ``App`` or a ``Runner``.

    ``context`` is written to the session's state before the run (``state_delta``): a mapping, or a function of the
    turn, async or not, that returns one. ``options`` are further arguments of ``run_async``, such as ``run_config``, in
    the same way. The session, the user and the streaming mode are set here.

    >>> from typing import Any
    >>> def source(runner: Any) -> GoogleAdkSource:  # for chat_response or ChatApp
    ...     return GoogleAdkSource(runner, context=lambda turn: {"chat": turn.chat_id})
    """

    context_argument = "state_delta"
    continues = False  # a run takes a question: it cannot begin behind the result of a tool

    def __init__(self, agent: Any, *, options: Options = NO_OPTIONS, context: Any = None) -> None:
        super().__init__(options=options, context=context)
        self._runner = _runner_of(agent)
        self.adapter = partial(
            GoogleAdkAdapter,
            structured=frozenset(_structured(self._runner.agent)),
            author=self._runner.agent.name,
        )
        self.info = AgentInfo("google-adk", self._runner.agent.name)

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Run the agent on the turn, or resume the session that waits for the turn's answers."""
        user, _, chat = thread_id(turn).partition("/")
        place = {"user_id": user or _ANYONE, "session_id": f"{chat}@{user}"}  # without a slash: for artifacts
        session = await self._session(turn, place)
        options = await self.arguments(turn)
        arguments = {**options, **place, "run_config": _run_config(options.get("run_config"), turn)}
        if turn.approvals or turn.tool_outputs:
            message = _answers(turn, session)
        else:
            await self._rewind(turn, session, place)
            content: Any = conversation.history(turn)[-1]["content"]
            message = _types().Content(role="user", parts=[_user_part(part) for part in content])
        async with aclosing(self._runner.run_async(new_message=message, **arguments)) as events:
            async for event in events:
                yield event

    async def _session(self, turn: Turn, place: Mapping[str, str]) -> Any:
        """Return the session of the chat; make one with what was said before if there is none."""
        service, named = self._runner.session_service, {**place, "app_name": self._runner.app_name}
        session = await service.get_session(**named)
        if session is None:
            session = await service.create_session(**named)
            if not turn.approvals and not turn.tool_outputs:
                for content in to_google_adk(_said_before(turn)):
                    author = "user" if content.role == "user" else self._runner.agent.name
                    event = _adk("events").Event(author=author, content=content, invocation_id="before")
                    await service.append_event(session, event)
        return session

    async def _rewind(self, turn: Turn, session: Any, place: Mapping[str, str]) -> None:
        """Rewind what was regenerated or edited away."""
        question_ids = [(event.custom_metadata or {}).get(_OURS, "") for event in session.events]
        for event in session.events[kept_count(question_ids, turn) :][:1]:
            await self._runner.rewind_async(**place, rewind_before_invocation_id=event.invocation_id)


def _runner_of(agent: Any) -> Any:
    runner = _adk("runners").Runner
    if isinstance(agent, runner):
        return agent
    services = {
        "session_service": _adk("sessions").InMemorySessionService(),
        "artifact_service": _adk("artifacts").InMemoryArtifactService(),
        "memory_service": _adk("memory").InMemoryMemoryService(),
    }
    if isinstance(agent, _adk("apps").App):
        return runner(app=agent, **services)
    return runner(app_name=agent.name, agent=agent, **services)


def _structured(agent: Any) -> Iterator[str]:
    """Yield the names of the agents whose answers have a schema: of this one, and of those it hands over to."""
    if getattr(agent, "output_schema", None) is not None:
        yield agent.name
    for other in getattr(agent, "sub_agents", None) or ():
        yield from _structured(other)


def _run_config(config: Any, turn: Turn) -> Any:
    """Return the configuration of a run that streams, and whose events name the message that they answer."""
    module = _adk("agents.run_config")
    config = config or module.RunConfig()
    metadata = {**(config.custom_metadata or {}), _OURS: question_id(turn)}
    return config.model_copy(update={"streaming_mode": module.StreamingMode.SSE, "custom_metadata": metadata})


def _said_before(turn: Turn) -> list[ModelMessage]:
    messages = [message for message in turn.messages if message["role"] != "system"]
    last = next((at for at in reversed(range(len(messages))) if messages[at]["role"] == "user"), 0)
    return conversation.messages_for_model(messages[:last])


def _answers(turn: Turn, session: Any) -> Any:
    """Return the message that resumes a session; raise PublicError if it does not wait for it."""
    types = _types()
    call_names = {call.id: call.name for event in session.events for call in event.get_function_calls()}
    answers: list[Any] = []
    for answer in turn.approvals:
        if call_names.get(answer.approval_id) != _CONFIRMATION:
            raise PublicError(conversation.PAUSE_IS_GONE)
        answers.append(_response(answer.approval_id, _CONFIRMATION, {"confirmed": answer.approved}))
    for output in turn.tool_outputs:
        if output.tool_call_id not in call_names:
            raise PublicError(conversation.PAUSE_IS_GONE)
        response = {"result": output.output} if output.error_text is None else {"error": output.error_text}
        answers.append(_response(output.tool_call_id, call_names[output.tool_call_id], response))
    return types.Content(role="user", parts=answers)


def _response(call_id: str, name: str, response: Mapping[str, Any]) -> Any:
    types = _types()
    return types.Part(function_response=types.FunctionResponse(id=call_id, name=name, response=dict(response)))


class _Lane:
    """The answer of a model that a lane shows: agents that run in parallel mix their events."""

    __slots__ = ("event_id", "has_partial", "has_partial_code", "is_open")

    def __init__(self, event_id: str) -> None:
        self.event_id = event_id
        self.has_partial = False
        self.has_partial_code = False
        self.is_open = False
        """Whether more of the answer comes."""


class GoogleAdkAdapter:
    """Turns the events of one run into parts.

    ``known_calls`` are the calls that the page has already, when a session is resumed; ``denied`` are those that a
    person has denied, with the reasons. ``structured`` names the agents with an ``output_schema``, whose
    answers are also sent as data. ``author`` is the agent that was asked; without it that is the first one that speaks.

    >>> list(GoogleAdkAdapter().close())
    [Error(error_text='The answer ended before it was complete.', usage=None, metadata=None, lane='')]
    """

    def __init__(
        self,
        *,
        known_calls: Collection[str] = (),
        denied: Mapping[str, str | None] = {},
        structured: Collection[str] = (),
        author: str | None = None,
    ) -> None:
        self._known_calls = set(known_calls)
        self._denied = denied
        self._structured = structured
        self._inputs: dict[str, _StreamedInput] = {}
        self._code_count = 0
        self._open_codes: list[str] = []
        """The pieces of code without a result."""
        self._author = author
        self._lanes: dict[str, _Lane] = {}
        self._is_whole = False
        self._tokens = [0, 0]
        self._reason: str | None = None
        self._waits = False
        self._error: str | None = None

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind.
        """
        if not hasattr(event, "invocation_id"):
            raise UnknownEvent(str(getattr(event, "kind", type(event).__name__)))
        lane = self._lane(event)
        if event.error_code and not event.content:
            self._error = f"{event.error_code}: {event.error_message}"
        parts = (event.content.parts or ()) if event.content is not None else ()
        if any(part.function_response is None and part.code_execution_result is None for part in parts):
            yield from self._begin(event, lane)
        confirmations = (event.actions and event.actions.requested_tool_confirmations) or {}
        for part in parts:
            yield from self._part(part, event, lane, confirmations)
        if event.author in self._structured and not event.partial:
            yield from _output(parts, lane)
        self._note(event, lane)

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of the run; raise StreamFailed if the framework ended it with an error."""
        if error is not None:
            return
        if self._error is not None:
            raise StreamFailed(f"the ADK run failed: {self._error}")
        if not self._is_whole:
            yield Error(conversation.INCOMPLETE)
            return
        usage = conversation.usage(*self._tokens) if any(self._tokens) else None
        yield conversation.finish(None if self._waits else conversation.finish_reason(self._reason), usage)

    def _lane(self, event: Any) -> str:
        """Return the lane of an event: each branch, and each agent that the first one hands over to, has one."""
        self._author = self._author or event.author
        handed_over = "" if event.author == self._author else f"agent-{event.author}"
        return event.branch or handed_over

    def _begin(self, event: Any, lane: str) -> Iterator[Part]:
        """Begin a step with the first event of a model's answer; the first one of a lane has the agent's name."""
        state = self._lanes.get(lane)
        if state is not None and state.event_id == event.id:
            return
        if not any(each.is_open for each in self._lanes.values()):  # a step would cut the texts of the others
            yield Step(lane=lane)
        self._lanes[lane] = _Lane(event.id)
        if state is None and lane:
            yield Data("agent", {"name": event.author}, id=lane, lane=lane)

    def _note(self, event: Any, lane: str) -> None:
        if (state := self._lanes.get(lane)) is not None:
            state.has_partial = state.has_partial or bool(event.partial)
            state.is_open = bool(event.partial)
        self._is_whole = not event.partial
        if (used := event.usage_metadata) is not None and not event.partial:
            self._tokens[0] += used.prompt_token_count or 0
            self._tokens[1] += used.candidates_token_count or 0
        self._reason = getattr(event.finish_reason, "value", event.finish_reason) or self._reason

    def _part(self, part: Any, event: Any, lane: str, confirmations: Collection[str]) -> Iterator[Part]:
        if part.function_call is not None:
            yield from self._call(part.function_call, bool(event.partial), lane)
        elif part.function_response is not None:
            yield from self._result(part.function_response, confirmations)
        elif part.executable_code is not None:
            yield from self._code(part.executable_code, event, lane)
        elif part.code_execution_result is not None:
            yield from self._code_result(part.code_execution_result)
        elif part.text:
            if event.partial or not self._lanes[lane].has_partial:
                yield Reasoning(part.text, lane=lane) if part.thought else Text(part.text, lane=lane)
        elif part.inline_data is not None and not event.partial:
            yield File(_data_url(part.inline_data), part.inline_data.mime_type or "application/octet-stream", lane=lane)

    def _call(self, call: Any, is_partial: bool, lane: str) -> Iterator[Part]:
        if call.name == _CONFIRMATION:
            if not is_partial:
                self._waits = True
                yield ApprovalRequest(call.id, call.args["originalFunctionCall"]["id"])
        elif is_partial:
            yield from self._streamed(call, lane)
        elif call.id not in self._known_calls:
            self._known_calls.add(call.id)
            yield ToolCall(call.id, call.name or "", call.args or {}, lane=lane)

    def _code(self, code: Any, event: Any, lane: str) -> Iterator[Part]:
        """Yield code that runs where the model runs, or in the agent's code executor; the whole event repeats it."""
        state = self._lanes[lane]
        if state.has_partial_code and not event.partial:
            return
        state.has_partial_code = bool(event.partial)
        self._code_count += 1
        call_id = code.id or f"{event.invocation_id}-code-{self._code_count}"
        self._open_codes.append(call_id)
        tool_input = {"language": getattr(code.language, "value", code.language), "code": code.code}
        yield ToolCall(call_id, _CODE, tool_input, provider_executed=True, lane=lane)

    def _code_result(self, result: Any) -> Iterator[Part]:
        if not self._open_codes:
            return  # the whole event repeats it
        call_id = self._open_codes.pop(self._open_codes.index(result.id) if result.id in self._open_codes else 0)
        if getattr(result.outcome, "value", result.outcome) == "OUTCOME_OK":
            yield ToolResult(call_id, result.output or "", provider_executed=True)
        else:
            yield ToolError(call_id, conversation.TOOL_FAILED, provider_executed=True)

    def _streamed(self, call: Any, lane: str) -> Iterator[Part]:
        if not call.id or not call.name or call.id in self._known_calls:
            return
        if call.id not in self._inputs:
            self._inputs[call.id] = _StreamedInput()
            yield ToolInputStart(call.id, call.name, lane=lane)
        for piece in call.partial_args or ():
            if text := self._inputs[call.id].text(piece):
                yield ToolInputDelta(call.id, text, lane=lane)

    def _result(self, response: Any, confirmations: Collection[str]) -> Iterator[Part]:
        call_id, value = response.id, response.response
        if call_id in confirmations:
            return  # the text says that an approval is needed; the result comes with the answer
        if call_id in self._denied:
            yield ToolDenied(call_id, self._denied[call_id])
        else:
            is_wrapped = isinstance(value, Mapping) and value.keys() == {"result"}
            yield ToolResult(call_id, value["result"] if is_wrapped else value)


def _output(parts: Collection[Any], lane: str) -> Iterator[Part]:
    """Yield the value of a final answer that is JSON."""
    if any(part.function_call is not None for part in parts):
        return
    text = "".join(part.text for part in parts if part.text and not part.thought)
    try:
        yield Data("output", json.loads(text), lane=lane)
    except ValueError:
        return  # the model did not keep to the schema; the text is shown


class _StreamedInput:
    """Writes the pieces of a call's arguments as JSON text. Only arguments that are plain values are streamed."""

    def __init__(self) -> None:
        self._path: str | None = None

    def text(self, piece: Any) -> str:
        """Return the JSON text that a piece adds."""
        name = str(piece.json_path or "").removeprefix("$.")
        if not name.isidentifier():
            return ""
        prefix = "" if self._path == name else f"{'{' if self._path is None else ', '}{json.dumps(name)}: "
        self._path = name
        if piece.string_value is not None:
            quoted = json.dumps(piece.string_value)
            return prefix + quoted[0 if prefix else 1 : -1 if piece.will_continue else None]
        value = piece.number_value if piece.number_value is not None else piece.bool_value
        return prefix + json.dumps(value)


def _data_url(blob: Any) -> str:
    return f"data:{blob.mime_type};base64,{model_files.ModelFile(blob.mime_type, '', data=blob.data).base64}"


def parts(events: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function.

    >>> def agent(runner, content):
    ...     async def answer(turn):
    ...         async for part in parts(runner.run_async(user_id="ann", session_id="1", new_message=content)):
    ...             yield part
    ...
    ...     return answer
    """
    return parts_of(events, GoogleAdkAdapter())


def tools_of(agent: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name and the input schema of each tool of an agent, for `usechat types`; toolsets have none here."""
    base, function = _adk("tools.base_tool").BaseTool, _adk("tools.function_tool").FunctionTool
    for tool in getattr(agent, "tools", None) or ():
        base_tool = tool if isinstance(tool, base) else function(tool) if callable(tool) else None
        declared = None if base_tool is None else base_tool._get_declaration()  # noqa: SLF001 (nothing public tells it)
        if declared is not None:
            schema = declared.parameters_json_schema
            if schema is None and declared.parameters is not None:
                schema = declared.parameters.json_schema.model_dump(mode="json", exclude_none=True)
            yield declared.name, schema, None


# History.


def to_google_adk(messages: Iterable[ModelMessage]) -> list[Any]:
    """Return model messages as ``Content`` of Gemini. Call ``repair_messages`` first.

    Reasoning, system messages, calls that a provider ran itself and their results are left out.

    >>> from usechat import model_messages, repair_messages
    >>> def history(turn):
    ...     return to_google_adk(repair_messages(model_messages(turn.messages)))
    """
    contents = (_content(message) for message in conversation.without_provider_calls(messages))
    return [content for content in contents if content is not None and content.parts]


def _content(message: ModelMessage) -> Any:
    types = _types()
    content: Any = message["content"]
    if message["role"] == "user":
        return types.Content(role="user", parts=[_user_part(part) for part in content])
    if message["role"] == "tool":
        results = conversation.contents_of(message).results
        return types.Content(role="user", parts=[_tool_response(result) for result in results])
    if message["role"] == "assistant":
        return types.Content(role="model", parts=[each for part in content for each in _model_part(part)])
    return None


def _user_part(part: Any) -> Any:
    types = _types()
    if part["type"] == "text":
        return types.Part(text=part["text"])
    file = model_files.model_file(part)
    if (text := file.text) is not None:
        return types.Part(text=text)
    if file.data is not None:
        return types.Part(inline_data=types.Blob(data=file.data, mime_type=file.media_type))
    return types.Part(file_data=types.FileData(file_uri=file.url, mime_type=file.media_type))


def _model_part(part: Any) -> Iterator[Any]:
    types = _types()
    if part["type"] == "text" and part["text"].strip():
        yield types.Part(text=part["text"])
    elif part["type"] == "tool-call":
        call = types.FunctionCall(id=part["toolCallId"], name=part["toolName"], args=part.get("input") or {})
        yield types.Part(function_call=call)


def _tool_response(result: conversation.HistoryResult) -> Any:
    if result.is_failure:
        return _response(result.call_id, result.name, {"error": result.text})
    value = result.output.get("value")
    return _response(result.call_id, result.name, value if isinstance(value, dict) else {"result": value})
