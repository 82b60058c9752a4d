"""LlamaIndex agents, workflows and chat engines as chats.

``usechat serve app:agent`` and ``chat_response(request, agent)`` take every agent, ``AgentWorkflow``, ``Workflow`` and
chat engine; :class:`LlamaIndexSource` takes the arguments of a run of the first three.

**Events** are those of ``handler.stream_events()``. Text comes in deltas; reasoning and the input of tools are read
from the provider's own event (``AgentStream.raw``), since LlamaIndex gives them incompletely. ``AgentOutput`` repeats
what was streamed and is read only if nothing was. Events of a workflow's own are data parts. The events of another
agent than the first one are in a separate lane: after a handoff, or if a tool writes them to the stream.

**History.** The run gets the whole chat as ``chat_history``, and the last message as ``user_msg``. A chat engine gets
the texts of the chat, in a memory of each turn's own; what it has found is told as sources behind its answer.

**Pauses.** :func:`needs_approval` makes a tool that asks the page before it runs, :func:`client_tool` one that the page
runs. ``InputRequiredEvent`` is a question: it waits for an output of the tool call that asks it, or else of a call
named ``interrupt``; the part ``data-interrupt`` has its fields. The answer is a ``HumanResponseEvent`` with the same
fields and ``response``. The run waits in this process (:mod:`usechat.pauses`), and asks when nothing else runs.
"""

import asyncio
import copy
import dataclasses
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
from typing import Any, Final, TypeAlias

from usechat.adapters import conversation, model_files, sub_agents
from usechat.adapters.framework import NO_OPTIONS, FrameworkSource, Options, imported
from usechat.adapters.openai import ResponseItems
from usechat.errors import StreamFailed, UnknownEvent
from usechat.ids import new_id
from usechat.protocol.model_messages import ModelMessage
from usechat.protocol.parts import (
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    Part,
    Reasoning,
    SourceDocument,
    SourceUrl,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
    data_name,
)
from usechat.protocol.request import ApprovalAnswer, ToolOutput
from usechat.sources import parts_of
from usechat.turn import WAIT_SECONDS, AgentInfo, Answer, PageQuestion, Turn, current_context

__all__ = [
    "LlamaIndexAdapter",
    "LlamaIndexSource",
    "client_tool",
    "needs_approval",
    "parts",
    "source_of",
    "to_llama_index",
]

_FRAMEWORK: Final = "llama-index"
_DENIED: Final = "The user did not allow this call."
_IGNORED: Final = frozenset({"AgentSetup", "StartEvent", "AgentWorkflowStartEvent"})
_VALUES: Final = (Mapping, list, tuple, bool, int, float, type(None))
_Input: TypeAlias = Callable[[Turn], Mapping[str, Any]]


@dataclasses.dataclass
class QuestionAsked:
    """A run waits for a person: for an approval of a call, or for its output."""

    call_id: str
    is_approval: bool = False
    is_own_call: bool = False
    """Whether the call was made for the question, since no tool call asks it."""
    value: Any = None
    """The fields of a question of the workflow's own."""


def source_of(agent: Any, *, context: Any = None) -> "LlamaIndexSource | _EngineSource | None":
    """Return the source of an agent, a workflow or a chat engine; ``None`` for everything else.

    ``context`` is what the agent needs per request, as the source takes it.

    >>> def answers(agent: object) -> bool:
    ...     return source_of(agent) is not None
    """
    workflow_type = getattr(_workflows(), "Workflow", None)  # people's own packages are called `workflows`, too
    if workflow_type is not None and isinstance(agent, workflow_type):
        return LlamaIndexSource(agent, context=context)
    is_engine = any(base.__module__ == "llama_index.core.chat_engine.types" for base in type(agent).__mro__)
    return _EngineSource(agent, context=context) if is_engine else None


def _workflows(module: str = "workflows") -> Any:
    return imported(module, "llama-index-workflows", "llama-index")


def _core(module: str) -> Any:
    return imported(f"llama_index.core.{module}", "llama-index-core", "llama-index")


_Pairs: TypeAlias = list[tuple[QuestionAsked, Any]]
"""Questions with the events of the workflow that ask them."""


@dataclasses.dataclass
class QuestionAnswered:
    """A person has answered a question of the run."""

    call_id: str
    answer: Answer


class LlamaIndexSource(FrameworkSource[Any]):
    """Answers turns with an agent or a workflow; waits up to ``wait_seconds`` for an answer of a person.

    ``input`` makes the arguments of ``run`` from a turn, for workflows that do not take ``user_msg`` and
    ``chat_history``. ``context`` and ``options`` are further arguments, such as ``max_iterations`` or ``memory``: a
    mapping, or a function of the turn, async or not, that returns one.

    >>> def source(agent) -> LlamaIndexSource:  # for chat_response or ChatApp
    ...     return LlamaIndexSource(agent, options={"max_iterations": 50})
    """

    continues = False  # tools do not wait until their calls are stored; a workflow begins again

    def __init__(
        self,
        workflow: Any,
        *,
        input: _Input | None = None,  # noqa: A002
        options: Options = NO_OPTIONS,
        context: Any = None,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        super().__init__(options=options, context=context)
        self._wait_seconds = wait_seconds
        self._workflow = workflow
        self._input = input or _chat_of
        self.adapter = LlamaIndexAdapter
        self.info = AgentInfo(_FRAMEWORK, getattr(workflow, "name", None))

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Run the workflow on the turn; ask the page when it waits for a person and nothing else runs."""
        conversation.refuse_answers(turn)
        events = _workflows("workflows.events")
        questions = _Questions()
        handler = self._workflow.run(**self._input(turn), **await self.arguments(turn))
        try:
            async for event in handler.stream_events(expose_internal=True):
                if isinstance(event, events.InputRequiredEvent):
                    questions.add(event)
                elif isinstance(event, events.WorkflowIdleEvent):
                    pairs = questions.take()
                    for question, _event in pairs:
                        yield question
                    for answered, response in await self._answers(pairs):
                        yield answered
                        handler.ctx.send_event(events.HumanResponseEvent(**response))
                elif not isinstance(event, events.InternalDispatchEvent):
                    questions.note(event)
                    yield event
        finally:
            if not handler.is_done():
                await handler.cancel_run()

    async def _answers(self, pairs: _Pairs) -> list[tuple[QuestionAnswered, dict[str, Any]]]:
        """Ask the page all questions at once; return its answers, and the fields of the events that bring them."""
        ask, seconds = current_context().ask, self._wait_seconds
        questions = (ask(PageQuestion(question.call_id, wait_seconds=seconds)) for question, _event in pairs)
        answers = await asyncio.gather(*questions)
        return [
            (QuestionAnswered(question.call_id, answer), {**_fields(event), **_response(answer)})
            for (question, event), answer in zip(pairs, answers, strict=True)
        ]


class _EngineSource(FrameworkSource[Any]):
    """Answers turns with a chat engine, of which each turn gets a copy with a memory of its own."""

    continues = False  # an engine takes a question: it cannot begin behind another answer

    def __init__(self, engine: Any, *, context: Any = None) -> None:
        super().__init__(context=context)
        self._engine = engine
        self.adapter = _EngineAdapter
        self.info = AgentInfo(_FRAMEWORK, type(engine).__name__)

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Ask the engine; yield its texts, and then the documents that the answer rests on."""
        conversation.refuse_answers(turn)
        messages = conversation.without_tools(conversation.history(turn))
        *before, last = to_llama_index(model_files.without_unreadable(messages, (), "no other files"))
        engine = copy.copy(self._engine)
        if hasattr(engine, "_memory"):
            limit = getattr(engine._memory, "token_limit", None)  # noqa: SLF001 (nothing public replaces it)
            engine._memory = _core("memory").ChatMemoryBuffer.from_defaults(token_limit=limit)  # noqa: SLF001
        response = await engine.astream_chat(last.content, chat_history=before, **await self.arguments(turn))
        task = getattr(response, "awrite_response_to_history_task", None)
        try:
            async for text in response.async_response_gen():
                yield text
        finally:
            if task is not None:
                task.cancel()  # it reads the model, also if nobody reads on
        for document in response.source_nodes:
            yield document


class _EngineAdapter:
    """Turns the texts and documents of one answer of a chat engine into parts."""

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:
        """Take what every adapter takes; an engine has no calls."""

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the part that a text or a document becomes."""
        if isinstance(event, str):
            if event:
                yield Text(event)
            return
        metadata = event.node.metadata
        address = str(metadata.get("url") or metadata.get("source") or "")
        name = metadata.get("file_name") or metadata.get("title")
        if address.startswith(("http://", "https://")):
            yield SourceUrl(event.node.node_id, address, name)
        else:
            media_type = metadata.get("file_type") or "text/plain"
            yield SourceDocument(event.node.node_id, media_type, name or "Document", metadata.get("file_name"))

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of the answer. An engine does not tell why its model ended."""
        if error is None:
            yield conversation.finish("stop", None)


def _chat_of(turn: Turn) -> Mapping[str, Any]:
    *before, last = to_llama_index(conversation.without_questions(conversation.history(turn)))
    return {"user_msg": last, "chat_history": before}


class _Questions:
    """Collects the questions of a run, and finds the tool calls that ask them."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[str, Any]] = {}
        """The calls without a result: name and input by id."""
        self._events: list[Any] = []

    def note(self, event: Any) -> None:
        """Note which calls have no result."""
        match type(event).__name__:
            case "ToolCall":
                self._calls[event.tool_id] = event.tool_name, event.tool_kwargs
            case "ToolCallResult":
                self._calls.pop(event.tool_id, None)

    def add(self, event: Any) -> None:
        """Add an ``InputRequiredEvent``."""
        self._events.append(event)

    def take(self) -> _Pairs:
        """Return what the page is asked, with the events that ask; a question that names no tool is that of the only
        call that is left.
        """
        events, self._events = self._events, []
        left = dict(self._calls)
        named = {id(event): call_id for event in events if (call_id := _take_call(left, event)) is not None}
        return [(self._question(event, named.get(id(event)), left), event) for event in events]

    def _question(self, event: Any, call_id: str | None, left: dict[str, Any]) -> QuestionAsked:
        if call_id is not None:
            return QuestionAsked(call_id, event.get("is_approval", False))
        value = _fields(event)
        if len(left) == 1:
            return QuestionAsked(left.popitem()[0], value=value)
        return QuestionAsked(new_id(), is_own_call=True, value=value)


def _take_call(calls: dict[str, tuple[str, Any]], event: Any) -> str | None:
    """Take the first call whose tool and input the question names out of ``calls``, and return its id."""
    asks = event.get("tool_name"), event.get("tool_kwargs")
    call_id = next((key for key, call in calls.items() if call == asks), None)
    if call_id is not None:
        del calls[call_id]
    return call_id


def _fields(event: Any) -> dict[str, Any]:
    """Return the fields of an event: those of its class, and those that it was made with besides."""
    return {**event.__dict__, **dict(event)}


def _response(answer: Answer) -> dict[str, Any]:
    match answer:
        case ApprovalAnswer():
            return {"response": answer.approved, "reason": answer.reason}
        case ToolOutput():
            return {"response": answer.output, "error": answer.error_text}
    return {"response": None}


# Tools that ask the page.


def needs_approval(tool: Any) -> Any:
    """Return a tool that runs only when the page has approved the call. ``tool`` is a function or a tool.

    If the call is denied, the model gets a message that says so, with the reason.

    >>> def delete(path: str) -> str:
    ...     return f"{path} is gone"
    >>> def agent(llm):
    ...     from llama_index.core.agent.workflow import FunctionAgent
    ...
    ...     return FunctionAgent(llm=llm, tools=[needs_approval(delete)])
    """
    inner = _tool(tool)

    async def call(context: Any, tool_input: dict[str, Any]) -> Any:
        answer = await _ask(context, inner, tool_input, is_approval=True)
        if not answer.response:
            return answer.get("reason") or _DENIED
        arguments = (
            {**tool_input, inner.ctx_param_name: context} if getattr(inner, "requires_context", False) else tool_input
        )
        return (await inner.acall(**arguments)).raw_output

    return _asking(inner, call)


def client_tool(tool: Any) -> Any:
    """Return a tool that the page runs: the output that it sends is the result. ``tool`` gives name and parameters.

    The tool raises :class:`~usechat.errors.StreamFailed` if the page answers with an error.

    >>> def location(exact: bool) -> str:
    ...     '''Say where the user is.'''
    >>> def agent(llm):
    ...     from llama_index.core.agent.workflow import FunctionAgent
    ...
    ...     return FunctionAgent(llm=llm, tools=[client_tool(location)])
    """
    described = _tool(tool)

    async def call(context: Any, tool_input: dict[str, Any]) -> Any:
        answer = await _ask(context, described, tool_input)
        if (error := answer.get("error")) is not None:
            raise StreamFailed(error)
        return answer.response

    return _asking(described, call)


def _tool(function: Any) -> Any:
    tools = _core("tools")
    return function if isinstance(function, tools.BaseTool) else tools.FunctionTool.from_defaults(function)


def _asking(tool: Any, call: Callable[[Any, dict[str, Any]], Any]) -> Any:
    """Return a tool with the name and the parameters of another; it gets the context of the run."""

    async def run(context: Any, **tool_input: Any) -> Any:
        return await call(context, tool_input)

    run.__annotations__["context"] = _workflows().Context  # LlamaIndex finds the parameter by its type
    return _core("tools").FunctionTool(async_fn=run, metadata=tool.metadata)


async def _ask(context: Any, tool: Any, tool_input: dict[str, Any], **fields: Any) -> Any:
    """Wait for the answer to a question about a call. LlamaIndex runs the tool again when it has come."""
    events = _workflows("workflows.events")
    # Parallel calls may be the same; the work item is another one, and stays the same when the tool runs again.
    item = _workflows("workflows.runtime.types.results").StepWorkerStateContextVar.get().state.work_item_id
    name = tool.metadata.get_name()
    question = events.InputRequiredEvent(tool_name=name, tool_kwargs=tool_input, work_item=item, **fields)
    return await context.wait_for_event(
        events.HumanResponseEvent, waiter_event=question, requirements={"work_item": item}, timeout=None
    )


# The adapter.


class LlamaIndexAdapter:
    """Turns the events of one run into parts.

    ``known_calls`` are the calls that the page has already, when a run continues; ``denied`` are those that a person
    has denied, with the reasons.

    >>> list(LlamaIndexAdapter().close())
    [Error(error_text='The answer ended before it was complete.', usage=None, metadata=None, lane='')]
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:
        self._known_calls = set(known_calls)
        self._denied = dict(denied)
        self._items = ResponseItems()
        self._begun_calls: set[str] = set()
        self._lanes: dict[str, str] = {}
        self._first_agent: str | None = None
        self._others: dict[str, sub_agents.SubAgent] = {}
        self._tokens = [0, 0]
        self._reason: str | None = None
        self._was_streamed = False
        self._has_text = False
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind,
        and :class:`~usechat.errors.StreamFailed` if a step or the response failed.
        """
        match type(event).__name__:
            case "AgentInput":
                self._was_streamed = self._has_text = False
                yield from self._spoken(event, [Step()])
            case "AgentStream":
                self._was_streamed = True
                yield from self._spoken(event, self._stream(event))
            case "AgentOutput":
                yield from self._spoken(event, self._whole(event))
            case "ToolCall":
                yield from self._call(event)
            case "ToolCallResult":
                self._has_text = False  # a tool with return_direct gives the answer
                yield self._result(event)
            case "AgentStreamStructuredOutput":
                yield Data("output", event.output)
            case "QuestionAsked":
                yield from self._question(event)
            case "QuestionAnswered":
                self._note_denial(event.answer)
            case "WorkflowFailedEvent":
                raise StreamFailed(f"the step {event.step_name} failed: {event.exception!r}") from event.exception
            case kind if kind not in _IGNORED:
                yield from self._other(event)

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a turn whose run has not ended."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _note_denial(self, answer: Answer) -> None:
        if isinstance(answer, ApprovalAnswer) and answer.tool_call_id is not None and not answer.approved:
            self._denied[answer.tool_call_id] = answer.reason

    def _spoken(self, event: Any, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield what an agent says, in a separate lane unless it is the first agent."""
        name = event.current_agent_name
        if self._first_agent is None:
            self._first_agent = name
        if name == self._first_agent:
            return iter(parts)
        return self._others.setdefault(name, sub_agents.SubAgent(name, name)).parts(parts)

    def _lane(self, event: Any) -> str:
        return "" if event.current_agent_name == self._first_agent else event.current_agent_name

    def _stream(self, event: Any) -> Iterator[Part]:
        raw = event.raw
        self._count(raw)
        kind = str(_get(raw, "type"))
        if kind in ("response.failed", "error"):
            failure = _get(raw, "response", "error", "message") or _get(raw, "message")
            raise StreamFailed(f"the response failed: {failure}")
        if kind.startswith("response."):
            yield from self._response(raw)
            return
        if thinking := event.thinking_delta or _reasoning_text(raw):
            yield Reasoning(thinking)
        if signature := _get(raw, "delta", "signature"):
            yield BlockEnd(conversation.signed(signature))
        if event.delta:
            self._has_text = True
            yield Text(event.delta)
        calls = event.tool_calls or ()
        for position, text in _argument_texts(raw):
            if -len(calls) <= position < len(calls):
                yield from self._input(calls[position], text, self._lane(event))

    def _response(self, raw: Mapping[str, Any]) -> Iterator[Part]:
        """Yield what an event of OpenAI's Responses tells; LlamaIndex passes all of them on."""
        for part in self._items.parts(_Fields(raw)):
            if isinstance(part, ToolCall):
                self._known_calls.add(part.tool_call_id)
            self._has_text = self._has_text or isinstance(part, Text)
            if not isinstance(part, Step):
                yield part

    def _input(self, call: Any, text: str, lane: str) -> Iterator[Part]:
        if call.tool_id not in self._begun_calls:
            self._begun_calls.add(call.tool_id)
            self._lanes[call.tool_id] = lane
            yield ToolInputStart(call.tool_id, call.tool_name)
        yield ToolInputDelta(call.tool_id, text)

    def _whole(self, output: Any) -> Iterator[Part]:
        """Yield an answer that was not streamed, and the calls."""
        if not self._was_streamed:
            self._count(output.raw)
            for block in output.response.blocks:
                yield from self._block(block)
        for call in output.tool_calls or ():
            self._lanes.setdefault(call.tool_id, self._lane(output))
            yield from self._call(call)

    def _block(self, block: Any) -> Iterator[Part]:
        match type(block).__name__:
            case "ThinkingBlock":
                yield Reasoning(block.content or "")
                if signature := (block.additional_information or {}).get("signature"):
                    yield BlockEnd(conversation.signed(signature))
            case "TextBlock" if block.text:
                self._has_text = True
                yield Text(block.text)

    def _call(self, call: Any) -> Iterator[Part]:
        if call.tool_id not in self._known_calls:
            self._known_calls.add(call.tool_id)
            yield ToolCall(call.tool_id, call.tool_name, call.tool_kwargs, lane=self._lanes.get(call.tool_id, ""))

    def _result(self, event: Any) -> Part:
        call_id, output = event.tool_id, event.tool_output
        lane = self._lanes.get(call_id, "")
        if call_id in self._denied:
            return ToolDenied(call_id, self._denied[call_id], lane=lane)
        if output.is_error:
            return ToolError(call_id, conversation.TOOL_FAILED, lane=lane)  # the content is the exception's text
        return ToolResult(call_id, _value(output), lane=lane)

    def _question(self, event: Any) -> Iterator[Part]:
        if event.is_approval:
            yield ApprovalRequest(f"approval-{event.call_id}", event.call_id)
            return
        if event.is_own_call:
            # In a separate step: the page posts again as soon as every call of the last step is answered.
            yield Step(leaves_calls=True)
        if event.value is not None:
            question = {"id": event.call_id, "toolCallId": event.call_id, "value": event.value}
            yield Data(conversation.QUESTION, question, event.call_id)
        if event.is_own_call:
            yield ToolCall(event.call_id, conversation.QUESTION, event.value, dynamic=True)

    def _other(self, event: Any) -> Iterator[Part]:
        """Yield the end of a run, or an event of the workflow's own."""
        bases = {base.__name__ for base in type(event).__mro__}
        if "StopEvent" in bases:
            yield from self._end(event.result if type(event).__name__ == "StopEvent" else _fields(event))
        elif "Event" in bases:
            yield Data(data_name(type(event)), _fields(event))
        else:
            raise UnknownEvent(type(event).__name__)

    def _end(self, result: Any) -> Iterator[Part]:
        self._is_over = True
        response = getattr(result, "response", None)
        text = result if isinstance(result, str) else getattr(response, "content", None)
        if text and not self._has_text:
            yield Text(text)
        elif text is None and response is None and result is not None:
            yield Data("output", result)
        yield conversation.finish(conversation.finish_reason(self._reason), self._usage())

    def _usage(self) -> Mapping[str, int] | None:
        return conversation.usage(*self._tokens) if any(self._tokens) else None

    def _count(self, raw: Any) -> None:
        """Note usage and finish reason, which come with the last event of a model call."""
        used = _get(raw, "usage") or _get(raw, "response", "usage")
        self._tokens[0] += _get(used, "input_tokens") or _get(used, "prompt_tokens") or 0
        self._tokens[1] += _get(used, "output_tokens") or _get(used, "completion_tokens") or 0
        self._reason = _reason(raw) or self._reason


# What LlamaIndex leaves in the events of providers.


class _Fields:
    """The event of a provider as an object; LlamaIndex makes a mapping of it."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def __getattr__(self, name: str) -> Any:
        value = self._fields.get(name)
        return _Fields(value) if isinstance(value, Mapping) else value

    def to_dict(self) -> Mapping[str, Any]:
        """Return the mapping."""
        return self._fields


def _get(value: Any, *names: str) -> Any:
    """Return a field of a field: of objects or of mappings; nothing if one of them is missing."""
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return value


def _choice(raw: Any) -> Any:
    choices = _get(raw, "choices")
    return choices[0] if choices else None


def _reasoning_text(raw: Any) -> Any:
    """Return the reasoning in an event of Anthropic or of Chat Completions."""
    return _get(raw, "delta", "thinking") or _get(_choice(raw), "delta", "reasoning_content")


def _argument_texts(raw: Any) -> Iterator[tuple[int, str]]:
    """Yield pieces of the input of calls, with the positions of the calls; the last one is at -1."""
    if text := _get(raw, "delta", "partial_json"):
        yield -1, text
    for call in _get(_choice(raw), "delta", "tool_calls") or ():
        if text := _get(call, "function", "arguments"):
            yield _get(call, "index"), text


def _reason(raw: Any) -> Any:
    if _get(raw, "type") in ("response.completed", "response.incomplete"):
        return _get(raw, "response", "incomplete_details", "reason") or "completed"
    return _get(raw, "delta", "stop_reason") or _get(_choice(raw), "finish_reason")


def _value(output: Any) -> Any:
    """Return the result of a tool: its value if a page can have it, or else its text."""
    if isinstance(output.raw_output, _VALUES):
        return output.raw_output
    return conversation.parsed_result("\n".join(block.text for block in output.blocks if _get(block, "text")))


def parts(events: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function.

    >>> async def answer(agent, turn):
    ...     async for part in parts(agent.run(user_msg=turn.text).stream_events()):
    ...         yield part
    """
    return parts_of(events, LlamaIndexAdapter())


def tools_of(agent: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the input schema and no output schema of each tool of an agent, for `usechat types`."""
    agents = getattr(agent, "agents", None)
    for each in [agent] if agents is None else agents.values():
        for tool in getattr(each, "tools", None) or ():
            yield tool.metadata.get_name(), tool.metadata.get_parameters_dict(), None


# History.


def to_llama_index(messages: Iterable[ModelMessage]) -> list[Any]:
    """Return model messages as those of LlamaIndex. Call ``repair_messages`` first.

    Reasoning is kept if its provider signed it, since only then may it be sent back. Calls that a provider ran itself,
    and their results, are left out.

    >>> from usechat import model_messages, repair_messages
    >>> def history(turn):
    ...     return to_llama_index(repair_messages(model_messages(turn.messages)))
    """
    return [each for message in conversation.without_provider_calls(messages) for each in _messages(message)]


def _messages(message: ModelMessage) -> Iterator[Any]:
    new, content = _core("llms").ChatMessage, message["content"]
    if message["role"] == "system":
        yield new(role="system", content=content)
    elif message["role"] == "tool":
        for result in conversation.contents_of(message).results:
            yield new(role="tool", content=result.text, additional_kwargs={"tool_call_id": result.call_id})
    elif blocks := [block for part in content for block in _blocks(part)]:
        yield new(role=message["role"], blocks=_separated(blocks))


def _separated(blocks: list[Any]) -> list[Any]:
    """Return the blocks with a blank line between texts that follow each other: LlamaIndex joins them without one."""
    text_block = _core("base.llms.types").TextBlock
    separated = blocks[:1]
    for block in blocks[1:]:
        if isinstance(block, text_block) and isinstance(separated[-1], text_block):
            separated[-1] = text_block(text=f"{separated[-1].text}\n\n{block.text}")
        else:
            separated.append(block)
    return separated


def _blocks(part: Any) -> Iterator[Any]:
    types = _core("base.llms.types")
    match part["type"]:
        case "text" if part["text"].strip():
            yield types.TextBlock(text=part["text"])
        case "reasoning":
            if signature := conversation.signature_of(part):
                yield types.ThinkingBlock(content=part["text"], additional_information={"signature": signature})
        case "tool-call":
            yield types.ToolCallBlock(
                tool_call_id=part["toolCallId"], tool_name=part["toolName"], tool_kwargs=part.get("input") or {}
            )
        case "file":
            yield _file(types, model_files.model_file(part))


def _file(types: Any, file: model_files.ModelFile) -> Any:
    if (text := file.text) is not None:
        return types.TextBlock(text=text)
    content: dict[str, Any] = {"url": file.url} if file.data is None else {}
    if file.media_type.startswith("image/"):
        image = content or {"image": file.data}
        return types.ImageBlock(**image, image_mimetype=file.media_type)
    document = content or {"data": file.data}
    return types.DocumentBlock(**document, title=file.name, document_mimetype=file.media_type)
