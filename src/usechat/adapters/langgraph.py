"""LangGraph graphs and LangChain agents as chats.

``usechat serve app:graph`` and ``chat_response(request, graph)`` take every compiled graph whose state has
``messages``, such as that of ``create_agent``. :class:`LangGraphSource` takes options for others.

**Events.** ``astream(…, **STREAM)`` gives dictionaries of ``type``, ``ns`` and ``data``. ``messages`` has what models
write, ``tasks`` tells which call a tool task runs, that it failed or that it waits, ``custom`` is what nodes wrote with
``get_stream_writer``. A message is identified by the task that writes it (``langgraph_checkpoint_ns``) and not by its
id, because the id changes within one message when a model uses the Responses API.

**Memory.** A graph with a checkpointer gets the new message only, in a thread of the caller's own. What a stop or a
waiting approval left open there is closed first, since a model rejects calls without results; what was regenerated or
edited is removed. A graph without one has a thread in the chat database (:mod:`~usechat.adapters.langgraph_memory`);
without such a database it gets the whole chat.

**Pauses.** An interrupt ends the turn, and the answer resumes it. ``HumanInTheLoopMiddleware`` asks for approvals: an
approval's id is the interrupt's id and the position of the call, which is how the middleware wants its decisions back;
if it interrupts each call by itself (``per_call``), it is the interrupt's id alone.
Any other ``interrupt(value)`` waits for an output: of the tool call that interrupts, or else of a call named
``interrupt``. If the page shows an outcome of that call already, because its tool asks again or had to wait for an
approval, a second call of the tool asks. The part ``data-interrupt`` has the value, and names the call.
"""

import inspect
import logging
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, suppress
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard, cast, get_type_hints, is_typeddict

from usechat.adapters import conversation, model_files, sub_agents
from usechat.adapters.framework import NO_OPTIONS, FrameworkSource, Options, for_turn, required_fields
from usechat.adapters.langgraph_memory import AnswerThread, PersonalStore
from usechat.errors import CannotAnswer, LocalProtocolError, MissingDependency, PublicError, UnknownEvent
from usechat.protocol.mcp_apps import declared_app, is_visible_to
from usechat.protocol.model_messages import (
    AssistantModelMessage,
    FilePart,
    ModelMessage,
    ToolModelMessage,
    UserModelMessage,
)
from usechat.protocol.parts import (
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    File,
    McpApp,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolResult,
)
from usechat.protocol.request import ApprovalAnswer, ToolOutput
from usechat.protocol.ui_messages import UIMessage, text_of
from usechat.protocol.values import json_text, json_value
from usechat.sources import Adapter, parts_of
from usechat.turn import AgentInfo, Turn, current_context, thread_id

try:
    from langchain_core.messages import (
        AIMessage,
        AIMessageChunk,
        BaseMessage,
        HumanMessage,
        RemoveMessage,
        SystemMessage,
        ToolMessage,
    )
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.graph import StateGraph
    from langgraph.graph.message import REMOVE_ALL_MESSAGES
    from langgraph.graph.state import CompiledStateGraph
    from langgraph.pregel import Pregel
    from langgraph.types import Command
    from pydantic.errors import PydanticUserError
except ImportError:
    raise MissingDependency("langgraph", "langgraph") from None

__all__ = ["STREAM", "LangGraphAdapter", "LangGraphSource", "parts", "source_of", "to_langchain"]

STREAM: Final[Mapping[str, Any]] = {
    "stream_mode": ["messages", "tasks", "custom"],
    "subgraphs": True,
    "version": "v2",
}
"""How ``astream`` is called for this adapter: ``graph.astream(input, config, **STREAM)``."""

_logger: Final = logging.getLogger("usechat.adapters")
_IGNORED: Final = frozenset({"values", "checkpoints", "debug"})
_OURS: Final = {"usechat": True}
"""Marks the user messages that came from a chat, in ``additional_kwargs``; middleware may add others."""
_HANDED_OVER: Final = "Handed over."
_NOT_ALLOWED: Final = {
    "approve": "This call cannot be approved as it is.",
    "edit": "The input of this call cannot be changed.",
    "reject": "This call cannot be denied.",
}
_NOT_RUN_YET: Final = "The tool has not run yet, because another call waits for an approval."

Event: TypeAlias = Mapping[str, Any]


def source_of(graph: Any, *, context: Any = None) -> "LangGraphSource | None":
    """Return the source of a compiled graph; ``None`` for everything else.

    ``context`` is what the agent needs per request, as the source takes it.

    Raises :class:`~usechat.errors.CannotAnswer` for a graph that is not compiled, whose input has no ``messages``, or
    that needs a context.

    >>> source_of("a text") is None
    True
    """
    if isinstance(graph, StateGraph):
        raise CannotAnswer("a StateGraph cannot run; give what its compile() returns")
    return LangGraphSource(graph, context=context) if isinstance(graph, Pregel) else None


class LangGraphSource(FrameworkSource[Event]):
    """Answers turns with a graph.

    ``context`` is the graph's run-time context: a value, or a function of the turn, async or not, that returns it.
    Without it a graph with a ``context_schema`` gets the defaults. ``config`` is added to the configuration of each
    run: a mapping, or such a function; the thread is set here. ``input`` makes the graph's input from a turn, for
    graphs whose state has no ``messages``; the history is then up to it.

    Raises :class:`~usechat.errors.CannotAnswer` for a graph whose input has no ``messages``, without ``input``, and for
    one whose ``context_schema`` has fields without defaults, without ``context``.

    >>> from langgraph.graph import START, MessagesState, StateGraph
    >>> builder = StateGraph(MessagesState).add_node("answer", lambda state: {"messages": []})
    >>> graph = builder.add_edge(START, "answer").compile()
    >>> source = LangGraphSource(graph, config={"recursion_limit": 50})  # give it to chat_response or ChatApp
    """

    context_argument = "context"
    retries_without_files = True

    def __init__(
        self,
        graph: "Pregel[Any, Any, Any, Any]",
        *,
        config: Options = NO_OPTIONS,
        input: Callable[[Turn], Any] | None = None,  # noqa: A002
        context: Any = None,
    ) -> None:
        super().__init__(context=_default_context(graph) if context is None else context)
        self._graph = graph if graph.store is not None else graph.copy({"store": PersonalStore(str(graph.name))})
        self._config = config
        self._input = input
        self._apps = _apps_of(graph)
        self._has_no_memory = isinstance(graph, CompiledStateGraph) and graph.checkpointer is None
        forgotten = sorted(_lasting_fields(graph)) if self._has_no_memory else []
        if forgotten:
            self.forgets = (
                f"the graph {graph.name!r} has no checkpointer, so it forgets {', '.join(forgotten)} after each answer;"
                " store chats in a database (--chats FILE), or compile it with a checkpointer"
            )
        self.info = AgentInfo("langgraph", graph.name)
        if isinstance(graph.checkpointer, InMemorySaver):
            self.process_memory = (
                f"the graph {graph.name!r} remembers chats in the memory of this process (InMemorySaver), so other"
                " processes cannot continue them; compile it with a checkpointer in a database"
            )
        if input is None and "messages" not in _input_fields(graph):
            raise CannotAnswer(
                f"the input of the graph {graph.name!r} has no `messages`; give LangGraphSource(graph, input=…), which"
                " makes the input from the turn"
            )

    def adapter_of(self, turn: Turn) -> Adapter[Event]:
        """Return the adapter of one turn, which knows the calls of the page that have an outcome, too."""
        edited = {answer.tool_call_id for answer in turn.approvals if answer.edited_input is not None}
        denials = conversation.denials(turn).items()
        return LangGraphAdapter(
            known_calls=conversation.calls_of(turn),
            settled_calls=conversation.settled_calls_of(turn),
            denied={call_id: reason for call_id, reason in denials if call_id not in edited},
            apps=self._apps,
        )

    def says(self, event: Event) -> bool:
        """Tell whether an event shows that the model has taken the chat."""
        return bool(event["type"] != "tasks")

    async def events(self, turn: Turn) -> AsyncGenerator[Event]:
        """Run the graph on the turn, or resume it with the answers that the turn holds."""
        config = await self._config_of(turn)
        memory = current_context().memory if self._has_no_memory else None
        if memory is None:
            run = self._run(self._graph, turn, config)
        else:
            run = self._remembered_run(AnswerThread(memory, self._graph, config), turn, config)
        async with aclosing(run) as events:
            async for event in events:
                yield event

    async def _remembered_run(self, thread: AnswerThread, turn: Turn, config: Any) -> AsyncGenerator[Event]:
        """Run the graph in a thread of the chat database."""
        await thread.begin(turn)
        graph = self._graph.copy({"checkpointer": thread.checkpointer})
        try:
            async with aclosing(self._run(graph, turn, config, is_behind=thread.is_behind)) as events:
                async for event in events:
                    yield event
        finally:
            await thread.keep()

    async def _run(self, graph: Any, turn: Turn, config: Any, *, is_behind: bool = False) -> AsyncGenerator[Event]:
        graph_input = await self._input_of(turn, graph, config, is_behind)
        stream = graph.astream(graph_input, config, **await self.arguments(turn), **STREAM)
        async with aclosing(cast("AsyncGenerator[Any]", stream)) as events:
            async for event in events:
                yield event

    async def _config_of(self, turn: Turn) -> Any:
        config = await for_turn(self._config, turn)
        thread = {"thread_id": thread_id(turn)}
        return {**config, "configurable": {**config.get("configurable", {}), **thread}}

    async def _input_of(self, turn: Turn, graph: Any, config: Any, is_behind: bool) -> Any:
        if not graph.checkpointer:
            return (
                await for_turn(self._input, turn)
                if self._input
                else {"messages": to_langchain(conversation.history(turn))}
            )
        state = await graph.aget_state(config)
        if turn.approvals or turn.tool_outputs:
            answers = dict(_answers(turn, state.interrupts))
            if answers:
                return Command(resume=answers)
            if turn.approvals:
                raise PublicError(conversation.PAUSE_IS_GONE)
        if self._input:
            return await for_turn(self._input, turn)
        # The snapshot has results of a step that waits or was stopped; the thread does not keep them with a new input.
        is_saved = all(task.result is None for task in state.tasks)
        messages = state.values.get("messages", [])
        return {"messages": next_messages(messages, turn, is_saved=is_saved, is_behind=is_behind)}


def _input_fields(graph: Any) -> Collection[str]:
    """Return the fields of a graph's input.

    Its JSON schema is asked only where nothing else tells them: pydantic makes none of ``typing.TypedDict`` before
    Python 3.12, and none of an annotation that is a text.
    """
    builder = getattr(graph, "builder", None)
    if builder is not None:
        fields: Collection[str] = builder.schemas[builder.input_schema]
        return fields
    input_type = graph.InputType
    if isinstance(input_type, str):
        input_type = next((each for node in graph.nodes.values() for each in _first_types(node.bound)), None)
    if is_typeddict(input_type):
        return frozenset(input_type.__annotations__)
    try:
        return frozenset(graph.get_input_jsonschema().get("properties", ()))
    except PydanticUserError:
        return ()


def _first_types(node: Any) -> Iterator[Any]:
    """Yield the type of the first parameter of an entrypoint, of which a text was its annotation."""
    function = inspect.unwrap(node.func or node.afunc)
    with suppress(NameError):  # it is defined in another function
        yield from list(get_type_hints(function).values())[:1]


def _lasting_fields(graph: Any) -> Collection[str]:
    """Return the fields of a graph's state, besides its messages, that people see in its output and may set again."""
    builder = graph.builder
    given, output = builder.schemas[builder.input_schema], builder.schemas[builder.output_schema]
    return {name for name in given if name in output and name != "messages"}


def _default_context(graph: Any) -> Any:
    """Return the context for a graph of which only the defaults are known; raise CannotAnswer if it needs more."""
    schema = graph.context_schema
    if schema is None:
        return None
    if required := required_fields(schema):
        raise CannotAnswer(
            f"the graph {graph.name!r} needs a context with {', '.join(required)}; give LangGraphSource(graph,"
            " context=…), or --context MODULE:NAME: a value, or a function of the turn that returns it"
        )
    return {}  # LangGraph makes an object of the schema


def _answers(turn: Turn, interrupts: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Yield what each interrupt is resumed with, as far as the turn answers it."""
    approvals = {answer.approval_id: answer for answer in turn.approvals}
    outputs = {output.tool_call_id: output for output in turn.tool_outputs}
    waiting_calls = _calls_by_interrupt(turn)
    for interrupt in interrupts:
        if (requests := _action_requests(interrupt.value)) is not None:
            answers = [approvals.get(_approval_id(interrupt.id, at)) for at in range(len(requests))]
            if any(answers):
                decisions = [_decision(*each) for each in zip(answers, requests, strict=True)]
                _require_allowed(decisions, requests, interrupt.value["review_configs"])
                yield interrupt.id, {"decisions": decisions}
        elif (request := _tool_approval(interrupt.value)) is not None:
            if (answer := approvals.get(interrupt.id)) is not None:
                yield interrupt.id, _decision(answer, request)
        elif (output := outputs.get(waiting_calls.get(interrupt.id, interrupt.id))) is not None:
            yield interrupt.id, _resume_value(output)


def _require_allowed(decisions: Iterable[Any], requests: Iterable[Any], configs: Iterable[Any]) -> None:
    """Raise PublicError for a decision that the middleware does not allow for a tool."""
    allowed = {config["action_name"]: config["allowed_decisions"] for config in configs}
    for decision, request in zip(decisions, requests, strict=True):
        if decision["type"] not in allowed[request["name"]]:
            raise PublicError(_NOT_ALLOWED[decision["type"]])


def _decision(answer: ApprovalAnswer | None, request: Mapping[str, Any]) -> dict[str, Any]:
    if answer is not None and answer.edited_input is not None:
        return {"type": "edit", "edited_action": {"name": request["name"], "args": answer.edited_input}}
    if answer is not None and answer.approved:
        return {"type": "approve"}
    message = None if answer is None else answer.reason
    return {"type": "reject", **({"message": message} if message else {})}


def _resume_value(output: ToolOutput) -> Any:
    return output.output if output.error_text is None else {"error": output.error_text}


def _calls_by_interrupt(turn: Turn) -> dict[str, str]:
    """Return which tool call waits for which interrupt, as the message of the page tells.

    A page can lie about it, and would only swap answers that it gives itself.
    """
    continued = turn.request.continues
    parts: list[Any] = [] if continued is None else list(continued["parts"])
    questions = [part.get("data") for part in parts if part["type"] == f"data-{conversation.QUESTION}"]
    return {
        data["id"]: data["toolCallId"]
        for data in questions
        if isinstance(data, Mapping) and isinstance(data.get("id"), str) and isinstance(data.get("toolCallId"), str)
    }


def _action_requests(value: Any) -> list[Mapping[str, Any]] | None:
    """Return the calls that HumanInTheLoopMiddleware asks about; ``None`` for any other interrupt."""
    requests = value.get("action_requests") if isinstance(value, Mapping) else None
    return requests if isinstance(requests, list) and "review_configs" in value else None


def _tool_approval(value: Any) -> Mapping[str, Any] | None:
    """Return the one call that HumanInTheLoopMiddleware asks about where it runs; ``None`` for any other interrupt."""
    return value if isinstance(value, Mapping) and value.get("type") == "tool_approval" else None


def _approval_id(interrupt_id: str, position: int) -> str:
    return f"{interrupt_id}-{position}"


# The adapter.


class _Call:
    """A tool call of a model: its arguments as they arrive."""

    __slots__ = ("arguments", "id", "input", "lane", "name", "title")

    def __init__(self, call_id: str, name: str, lane: str, title: str | None = None) -> None:
        self.id = call_id
        self.name = name
        self.lane = lane
        self.title = title
        self.arguments: list[str] = []
        self.input: Any = None


class _ToolTask(NamedTuple):
    """A task that runs a tool: the call, and the graph in which it runs."""

    call: Mapping[str, Any]
    ns: Sequence[str]


class _Message:
    """A message that a model is writing."""

    __slots__ = ("calls", "provided", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls: dict[Any, _Call] = {}
        self.provided: dict[Any, _Call] = {}
        """Calls that the provider runs, whose result has not come."""


class LangGraphAdapter:
    """Turns the events of one run, as ``STREAM`` asks for them, into parts.

    ``known_calls`` are the calls that the page has already, when a run is resumed; ``settled_calls`` are those of them
    that have an outcome there; ``denied`` are those that a person has denied, with the reasons. ``apps`` are the user
    interfaces of tools, by name.

    >>> from langchain_core.messages import AIMessageChunk
    >>> chunk = AIMessageChunk("Hello", chunk_position="last")
    >>> event = {"type": "messages", "ns": (), "data": (chunk, {"langgraph_checkpoint_ns": "model:1"})}
    >>> list(LangGraphAdapter().feed(event))
    [Step(leaves_calls=False, lane='model:1'), Text(text='Hello', provider_metadata=None, id=None, lane='model:1')]
    """

    def __init__(
        self,
        *,
        known_calls: Collection[str] = (),
        settled_calls: Collection[str] = (),
        denied: Mapping[str, str | None] = {},
        apps: Mapping[str, McpApp] = {},
    ) -> None:
        self._known_calls = set(known_calls)
        self._apps = apps
        self._settled_before = settled_calls
        self._denied = denied
        self._open: dict[str, _Message] = {}
        self._last_texts: dict[str, str] = {}
        self._calls: dict[str, _Call] = {}
        self._step_calls: list[_Call] = []
        self._named: set[str] = set()
        self._settled: set[str] = set()
        self._task_calls: dict[str, _ToolTask] = {}
        self._interrupts: dict[str, Any] = {}
        self._calls_of_interrupts: dict[str, Mapping[str, Any]] = {}
        self._cited: set[str] = set()
        self._tokens = [0, 0]
        self._reason: str | None = None
        self._is_refused = False

    def feed(self, event: Event) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind,
        and :class:`~usechat.errors.LocalProtocolError` for one that ``astream`` gives without :data:`STREAM`.
        """
        if "type" not in event:  # a tuple, or the dictionary of another version
            raise LocalProtocolError("LangGraphAdapter reads the events of graph.astream(input, config, **STREAM)")
        kind, data = event["type"], event["data"]
        if kind in ("messages", "tasks"):
            ns = event["ns"]
            parts = self._message(data[0], data[1], ns) if kind == "messages" else self._task(data, ns)
            yield from map(sub_agents.in_tool, parts) if ns and self._is_in_tool(ns) else parts
        elif kind == "custom":
            yield Data("custom", data)
        elif kind == "updates":
            for interrupt in data.get("__interrupt__", ()):
                self._interrupts.setdefault(interrupt.id, interrupt.value)
        elif kind not in _IGNORED:
            raise UnknownEvent(str(kind))

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield what is left: what the graph waits for, and the end.

        An error behind a refusal is its consequence: it has not the form that was asked for.
        """
        if isinstance(error, Exception) and self._is_refused:
            yield conversation.finish(self._reason, None)
        if error is not None:
            return
        if self._open:
            yield Error(conversation.INCOMPLETE)
            return
        for interrupt_id, value in self._interrupts.items():
            yield from self._pause(interrupt_id, value)
        usage = conversation.usage(*self._tokens) if any(self._tokens) else None
        yield conversation.finish(None if self._interrupts else self._reason, usage)

    def _is_in_tool(self, ns: Sequence[str]) -> bool:
        """Tell whether a graph works for a tool of another one."""
        return any(name.rpartition(":")[2] in self._task_calls for name in ns)

    # -- What models and tools say.

    def _message(self, message: Any, meta: Mapping[str, Any], ns: Sequence[str]) -> Iterator[Part]:
        lane = meta.get("langgraph_checkpoint_ns") or ""
        if isinstance(message, AIMessageChunk):
            if lane not in self._open:
                yield from self._begin(lane, meta, ns)
            content = message.content
            if content.__class__ is not str:
                yield from self._content(content, lane)
            elif content:  # most chunks: written out, since it costs a fifth less
                self._open[lane].texts.append(content)
                yield Text(content, lane=lane)
            for chunk in message.tool_call_chunks:
                yield from self._arguments(chunk, lane)
            yield from self._refusal(message.additional_kwargs.get("refusal"), lane)
            self._note(message)
            if message.chunk_position == "last":
                yield from self._end(lane)
        elif isinstance(message, AIMessage):
            if message.text != self._last_texts.get(lane):  # else it repeats what was streamed
                yield from self._whole(message, lane, meta, ns)
        elif isinstance(message, ToolMessage):
            yield from self._result(message)

    def _begin(self, lane: str, meta: Mapping[str, Any], ns: Sequence[str]) -> Iterator[Part]:
        self._open[lane] = _Message()
        self._step_calls = []
        self._is_refused = False
        yield Step(lane=lane)
        speaker = "|".join(ns)
        if ns and speaker not in self._named:
            self._named.add(speaker)
            name = meta.get("lc_agent_name") or ns[-1].partition(":")[0]
            yield Data("agent", {"name": name}, id=speaker, lane=lane)

    def _content(self, content: str | Sequence[Any], lane: str) -> Iterator[Part]:
        if isinstance(content, str):
            if content:
                self._open[lane].texts.append(content)
                yield Text(content, lane=lane)
            return
        for block in content:
            match block:
                case str() | {"type": "text"}:
                    yield from self._content(block if isinstance(block, str) else block.get("text", ""), lane)
                    if not isinstance(block, str):
                        citations = [*(block.get("annotations") or ()), *(block.get("citations") or ())]
                        yield from conversation.cited(citations, self._cited, lane)
                case {"type": "refusal"}:
                    yield from self._refusal(block.get("refusal"), lane)
                case {"type": "image", "base64": data, "mime_type": media_type}:
                    yield File(f"data:{media_type};base64,{data}", media_type, lane=lane)
                case {"type": "thinking"}:
                    if block.get("thinking"):
                        yield Reasoning(block["thinking"], lane=lane)
                    if signature := block.get("signature"):
                        yield BlockEnd({"anthropic": {"signature": signature}}, lane=lane)
                case {"type": "reasoning"}:
                    pieces = [block.get("reasoning"), *(each.get("text") for each in block.get("summary", ()))]
                    yield from (Reasoning(piece, lane=lane) for piece in pieces if piece)
                case _:
                    yield from self._provider_block(block, lane)

    def _refusal(self, text: str | None, lane: str) -> Iterator[Part]:
        if text:
            self._is_refused = True
            yield Text(text, lane=lane)

    def _provider_block(self, block: Mapping[str, Any], lane: str) -> Iterator[Part]:
        """Yield what a provider tells of a tool that it runs itself: OpenAI at once, Anthropic in pieces."""
        provided = self._open[lane].provided
        match block:
            case {"type": "web_search_call" | "file_search_call" | "code_interpreter_call" as kind, "id": call_id}:
                output = {key: value for key, value in block.items() if key not in ("id", "type", "index")}
                name = kind.removesuffix("_call")
                yield ToolCall(call_id, name, output.get("action", {}), provider_executed=True, lane=lane)
                yield ToolResult(call_id, output, provider_executed=True, lane=lane)
            case {"type": "image_generation_call", "id": call_id, "result": str(image)}:
                media_type = f"image/{block.get('output_format') or 'png'}"
                yield ToolCall(call_id, "image_generation", {}, provider_executed=True, lane=lane)
                yield ToolResult(call_id, {"status": block.get("status")}, provider_executed=True, lane=lane)
                yield File(f"data:{media_type};base64,{image}", media_type, lane=lane)
            case {"type": "mcp_call", "id": call_id, "name": name, "server_label": server}:
                call = _Call(call_id, name, lane, f"{server}: {name}")
                call.arguments.append(block.get("arguments", ""))
                outcome = None if block.get("error") else conversation.parsed_result(block.get("output") or "")
                yield from _provider_outcome(call, outcome)
            case {"type": "server_tool_use" | "mcp_tool_use", "id": call_id, "name": name}:
                server = block.get("server_name")
                call = provided[block.get("index")] = _Call(call_id, name, lane, server and f"{server}: {name}")
                call.input = block.get("input")
                yield ToolInputStart(
                    call_id, name, provider_executed=True, dynamic=server is not None, title=call.title, lane=lane
                )
            case {"type": "input_json_delta", "index": index} if index in provided:
                if text := block.get("partial_json"):
                    provided[index].arguments.append(text)
                    yield ToolInputDelta(provided[index].id, text, lane=lane)
            case {"tool_use_id": call_id, "content": content}:
                for index in [index for index, call in provided.items() if call.id == call_id]:
                    yield from _provider_outcome(provided.pop(index), None if _is_failure(block) else content)

    def _arguments(self, chunk: Mapping[str, Any], lane: str) -> Iterator[Part]:
        calls, index = self._open[lane].calls, chunk.get("index")
        if chunk.get("id") and (index not in calls or calls[index].id != chunk["id"]):
            calls[index] = call = _Call(chunk["id"], chunk.get("name") or "", lane)
            self._calls[call.id] = call
            yield ToolInputStart(call.id, call.name, lane=lane)
        if (open_call := calls.get(index)) is not None and (text := chunk.get("args")):
            open_call.arguments.append(text)
            yield ToolInputDelta(open_call.id, text, lane=lane)

    def _note(self, message: AIMessage) -> None:
        """Note usage and finish reason, which come with the last pieces of a message."""
        if (tokens := message.usage_metadata) is not None:
            self._tokens[0] += tokens["input_tokens"]
            self._tokens[1] += tokens["output_tokens"]
        if metadata := message.response_metadata:
            cut_off = (metadata.get("incomplete_details") or {}).get("reason")
            reasons = (metadata.get(key) for key in ("finish_reason", "stop_reason", "status"))
            reason = next(filter(None, [cut_off, *reasons]), None)
            self._reason = conversation.finish_reason("refusal" if self._is_refused else reason) or self._reason

    def _end(self, lane: str) -> Iterator[Part]:
        message = self._open.pop(lane)
        self._last_texts[lane] = "".join(message.texts)
        for call in message.provided.values():
            yield from _provider_outcome(call, None)
        for call in message.calls.values():
            text = "".join(call.arguments)
            call.input = conversation.parsed_result(text) if text else {}
            self._step_calls.append(call)
            self._known_calls.add(call.id)
            if isinstance(call.input, str):
                self._settled.add(call.id)
                yield ToolInputError(call.id, call.name, conversation.INVALID_INPUT, call.input, lane=lane)
            else:
                yield ToolCall(call.id, call.name, call.input, app=self._apps.get(call.name), lane=lane)

    def _whole(self, message: AIMessage, lane: str, meta: Mapping[str, Any], ns: Sequence[str]) -> Iterator[Part]:
        """Yield the parts of a message that no model streamed."""
        yield from self._begin(lane, meta, ns)
        yield from self._content(message.content, lane)
        yield from self._refusal(message.additional_kwargs.get("refusal"), lane)
        self._note(message)
        self._last_texts[lane] = message.text
        del self._open[lane]
        for tool_call in message.tool_calls:
            yield from self._call(tool_call, lane)

    def _call(self, tool_call: Mapping[str, Any], lane: str) -> Iterator[Part]:
        """Yield a call that is complete, unless it is known."""
        if tool_call["id"] in self._known_calls:
            return
        call = _Call(tool_call["id"], tool_call["name"], lane)
        call.input = tool_call["args"]
        self._known_calls.add(call.id)
        self._calls[call.id] = call
        self._step_calls.append(call)
        yield ToolCall(call.id, call.name, call.input, app=self._apps.get(call.name), lane=lane)

    def _result(self, message: ToolMessage) -> Iterator[Part]:
        call_id = message.tool_call_id
        if call_id in self._settled:
            return
        self._settled.add(call_id)
        lane = self._calls[call_id].lane if call_id in self._calls else ""
        content = message.content
        if call_id in self._denied:
            yield ToolDenied(call_id, self._denied[call_id], lane=lane)
        elif message.status == "error":  # its text may hold that of an exception
            yield ToolError(call_id, conversation.TOOL_FAILED, lane=lane)
        else:
            yield ToolResult(call_id, _output(content), lane=lane)

    # -- Tasks and pauses.

    def _task(self, task: Mapping[str, Any], ns: Sequence[str]) -> Iterator[Part]:
        if "input" in task:
            for tool_call in _tool_calls_in(task["input"]):
                self._task_calls[task["id"]] = _ToolTask(tool_call, ns)
                yield from self._call(tool_call, "")
            return
        tool_task = self._task_calls.pop(task["id"], None)
        call = None if tool_task is None else tool_task.call
        for lane in [lane for lane in self._open if lane.endswith(task["id"])]:
            yield from self._end(lane)
        if task.get("error") is not None and call is not None and call["id"] not in self._settled:
            self._settled.add(call["id"])
            yield ToolError(call["id"], conversation.TOOL_FAILED)
        for interrupt in task.get("interrupts", ()):
            self._interrupts.setdefault(interrupt["id"], interrupt["value"])
            if call is not None:
                self._calls_of_interrupts[interrupt["id"]] = call
        result = task.get("result")
        yield from self._results_in(result)
        if not task.get("error") and not task.get("interrupts"):
            yield from self._handed_over(task["id"])
        if isinstance(result, Mapping) and result.get("structured_response") is not None:
            yield Data("output", _plain(result["structured_response"]))

    def _results_in(self, result: Any) -> Iterator[Part]:
        """Yield the results that only the state has: a tool that hands over to an agent of the parent graph ends so."""
        messages = result.get("messages") if isinstance(result, Mapping) else None
        for message in messages if isinstance(messages, list) else ():
            if isinstance(message, ToolMessage) and message.tool_call_id in self._calls:
                yield from self._result(message)

    def _handed_over(self, task_id: str) -> Iterator[Part]:
        """End the calls that left the graph which a task ran: they handed over, and said nothing."""
        gone = [each for each, tool in self._task_calls.items() if any(name.endswith(task_id) for name in tool.ns)]
        for call_id in [self._task_calls.pop(each).call["id"] for each in gone]:
            if call_id not in self._settled:
                self._settled.add(call_id)
                yield ToolResult(call_id, _HANDED_OVER, lane=self._calls[call_id].lane)

    def _pause(self, interrupt_id: str, value: Any) -> Iterator[Part]:
        requests = _action_requests(value)
        if requests is not None:
            yield from self._approvals(interrupt_id, requests)
            return
        if (request := _tool_approval(value)) is not None:
            yield ApprovalRequest(interrupt_id, request["tool_call_id"], request.get("description"))
            return
        asking = self._calls_of_interrupts.get(interrupt_id, {"id": interrupt_id, "name": conversation.QUESTION})
        is_open = asking["id"] in self._known_calls and asking["id"] not in self._settled_before
        call_id = asking["id"] if is_open else interrupt_id
        if not is_open:
            # In a separate step: the page posts again as soon as every call of the last step is answered.
            yield Step()
        yield Data(conversation.QUESTION, {"id": interrupt_id, "toolCallId": call_id, "value": value}, interrupt_id)
        if not is_open:
            yield ToolCall(call_id, asking["name"], asking.get("args", value), dynamic="args" not in asking)

    def _approvals(self, interrupt_id: str, requests: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
        """Yield a request for each call that the middleware asks about.

        It names no ids, so calls are matched by name and arguments, in order. The other calls of the step have not run
        either. They get an outcome for the time being, because the page posts only when no call of the step is open.
        """
        open_calls = [call for call in self._step_calls if call.id not in self._settled]
        for position, request in enumerate(requests):
            approval_id = _approval_id(interrupt_id, position)
            matches = (call for call in open_calls if (call.name, call.input) == (request["name"], request["args"]))
            call = next(matches, None)
            if call is None:
                yield ToolCall(approval_id, request["name"], request["args"])
            else:
                open_calls.remove(call)
            yield ApprovalRequest(approval_id, approval_id if call is None else call.id, request.get("description"))
        for call in open_calls:
            yield ToolError(call.id, _NOT_RUN_YET, lane=call.lane)


def _output(content: Any) -> Any:
    """Return the result of a tool as a value. A tool of an MCP server gives a list, of one text as a rule."""
    match content:
        case str() as text:
            return conversation.parsed_result(text)
        case [{"type": "text", "text": str(text)}]:
            return conversation.parsed_result(text)
    return content


def _provider_outcome(call: _Call, output: Any) -> Iterator[Part]:
    """Yield a call that a provider has run, with its whole input, and its result; it has failed without one."""
    text = "".join(call.arguments)
    call_input = conversation.parsed_result(text) if text else call.input or {}
    is_mcp = call.title is not None
    yield ToolCall(
        call.id, call.name, call_input, provider_executed=True, dynamic=is_mcp, title=call.title, lane=call.lane
    )
    if output is None:
        yield ToolError(call.id, conversation.TOOL_FAILED, provider_executed=True, lane=call.lane)
    else:
        yield ToolResult(call.id, output, provider_executed=True, lane=call.lane)


def _is_failure(result: Mapping[str, Any]) -> bool:
    """Tell whether Anthropic reports that its tool failed."""
    content = result["content"]
    return bool(result.get("is_error")) or (isinstance(content, Mapping) and "error_code" in content)


def _tool_calls_in(task_input: Any) -> list[Mapping[str, Any]]:
    """Return the tool calls that a task of a ToolNode runs: its input is a list of them, or has them under a key."""
    value = task_input.get("tool_call") if isinstance(task_input, Mapping) else task_input
    listed = [value] if isinstance(value, Mapping) else value
    if not isinstance(listed, list):
        return []
    return [call for call in listed if isinstance(call, Mapping) and {"id", "name", "args"} <= call.keys()]


def _plain(value: Any) -> Any:
    """Return a structured output as JSON values."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else value


def parts(events: AsyncIterable[Event]) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function.

    >>> from langchain_core.messages import AIMessage
    >>> from langgraph.graph import START, MessagesState, StateGraph
    >>> from usechat.testing import AgentClient
    >>> builder = StateGraph(MessagesState).add_node("answer", lambda state: {"messages": [AIMessage("Hello")]})
    >>> graph = builder.add_edge(START, "answer").compile()
    >>> async def agent(turn):
    ...     async for part in parts(graph.astream({"messages": [("user", turn.text)]}, **STREAM)):
    ...         yield part
    >>> with AgentClient(agent) as client:
    ...     client.ask("Hi").text
    'Hello'
    """
    return parts_of(events, LangGraphAdapter())


# History.


def next_messages(
    state: Sequence[BaseMessage], turn: Turn, *, is_saved: bool = True, is_behind: bool = False
) -> list[BaseMessage]:
    """Return what is sent to a graph whose thread has the messages ``state``.

    ``is_saved`` says whether the thread keeps them, ``is_behind`` whether it ends before the answer that the turn
    continues. What is sent is the new message alone if nothing has to be changed, else the whole list after the removal
    of the old one.
    """
    if not state:
        return _whole_chat(turn)
    outputs = {output.tool_call_id: output for output in turn.tool_outputs}
    questions = {message["id"]: message for message in turn.messages if message["role"] == "user"}
    earlier = [_in_turn(message, questions.get(message.id or "")) for message in _kept(state, turn, is_behind)]
    messages = [*_closed(earlier, outputs), *_new_message(turn)]
    if is_saved and messages[: len(state)] == list(state):
        return messages[len(state) :]
    return [RemoveMessage(REMOVE_ALL_MESSAGES), *messages]


def _kept(state: Sequence[BaseMessage], turn: Turn, is_behind: bool) -> Sequence[BaseMessage]:
    """Return the messages before the one that is asked now; what was regenerated or edited away is left out."""
    if turn.request.continues is not None and not is_behind:
        return state
    if turn.request.has_whole_history:
        return _in_step(state, turn)
    users = [message["id"] for message in turn.messages if message["role"] == "user"]
    positions = {message.id: at for at, message in enumerate(state) if isinstance(message, HumanMessage)}
    if users and users[-1] in positions:
        return state[: positions[users[-1]]]
    if len(users) > 1 and users[-2] in positions:
        later = (at for at in positions.values() if at > positions[users[-2]] and _is_ours(state[at]))
        return state[: next(later, len(state))]
    return state


def _in_turn(message: BaseMessage, question: UIMessage | None) -> BaseMessage:
    """Return a message of the thread, without its files if the turn has a note in their place."""
    if question is None or isinstance(message.content, str) or not isinstance(message, HumanMessage):
        return message
    if any(part["type"] == "file" for part in question["parts"]):
        return message
    [converted] = to_langchain(conversation.messages_for_model([question]))
    _mark(converted, question)
    return converted


def _whole_chat(turn: Turn) -> list[BaseMessage]:
    """Return the whole chat for an empty thread; its questions are marked, so that they are known later."""
    converted = to_langchain(conversation.history(turn))
    questions = [message for message in turn.messages if message["role"] == "user"]
    humans = [message for message in converted if isinstance(message, HumanMessage)]
    if len(questions) == len(humans):
        for human, question in zip(humans, questions, strict=True):
            _mark(human, question)
    return converted


def _in_step(state: Sequence[BaseMessage], turn: Turn) -> list[BaseMessage]:
    """Return the messages of the thread that belong to the stored chat before the question that is asked now.

    What the thread has of a question is kept, unless its answer is not the one that people see: then, and if the thread
    has nothing of it, because it belongs to a branch that was left, the chat's own messages are converted. Middleware
    may have shortened the beginning, which stays so.
    """
    head, questions = _by_question(state)
    if not questions:
        return list(state)
    exchanges = _exchanges(turn.messages)
    if turn.request.continues is None:
        exchanges.pop()
    first = next((at for at, exchange in enumerate(exchanges) if exchange[0]["id"] in questions), 0)
    messages = head
    for exchange in exchanges[first:]:
        remembered = questions.get(exchange[0]["id"])
        is_shown = remembered is not None and _text_of(exchange).endswith(_last_text(remembered))
        messages += remembered if remembered is not None and is_shown else _remembered(exchange)
    return messages


def _by_question(state: Sequence[BaseMessage]) -> tuple[list[BaseMessage], dict[str, list[BaseMessage]]]:
    """Return what stands before the first question of the chat, and what belongs to each question, by its id."""
    head: list[BaseMessage] = []
    questions: dict[str, list[BaseMessage]] = {}
    current = head
    for message in state:
        if isinstance(message, HumanMessage) and _is_ours(message):
            current = questions[message.id or ""] = []
        current.append(message)
    return head, questions


def _exchanges(messages: Iterable[UIMessage]) -> list[list[UIMessage]]:
    """Return each user message of a chat with the answers to it."""
    exchanges: list[list[UIMessage]] = []
    for message in messages:
        if message["role"] == "user":
            exchanges.append([message])
        elif exchanges:
            exchanges[-1].append(message)
    return exchanges


def _last_text(remembered: Iterable[BaseMessage]) -> str:
    """Return the last text of a model; a stopped answer may have none."""
    texts = [message.text for message in remembered if isinstance(message, AIMessage)]
    return texts[-1] if texts else ""


def _text_of(exchange: Sequence[UIMessage]) -> str:
    return "".join(map(text_of, exchange[1:]))


def _remembered(exchange: Sequence[UIMessage]) -> list[BaseMessage]:
    """Return an exchange of the chat as a thread remembers it."""
    converted = to_langchain(conversation.messages_for_model(exchange))
    if converted and isinstance(converted[0], HumanMessage):
        _mark(converted[0], exchange[0])
    return converted


def _mark(message: BaseMessage, ui_message: UIMessage) -> None:
    message.id = ui_message["id"] or None
    message.additional_kwargs |= _OURS


def _is_ours(message: BaseMessage) -> bool:
    return message.additional_kwargs.items() >= _OURS.items()


def _closed(messages: Sequence[BaseMessage], outputs: Mapping[str, ToolOutput]) -> Iterator[BaseMessage]:
    """Yield messages in which every call has a result: that of the page, or an error."""
    waiting: dict[str, str] = {}
    for message in [*messages, None]:
        if isinstance(message, ToolMessage):
            waiting.pop(message.tool_call_id, None)
        else:
            yield from (_late_result(call_id, name, outputs.get(call_id)) for call_id, name in waiting.items())
            calls = message.tool_calls if isinstance(message, AIMessage) else []
            waiting = {call["id"] or "": call["name"] for call in calls}
        if message is not None:
            yield message


def _late_result(call_id: str, name: str, output: ToolOutput | None) -> ToolMessage:
    failure = conversation.NOT_COMPLETED if output is None else output.error_text
    if output is None or failure is not None:
        return ToolMessage(failure, tool_call_id=call_id, name=name, status="error")
    value = output.output
    return ToolMessage(
        value if isinstance(value, str) else json_text(json_value(value)), tool_call_id=call_id, name=name
    )


def _new_message(turn: Turn) -> list[BaseMessage]:
    message = turn.request.last_user_message
    if turn.request.continues is not None or message is None:
        return []
    converted = to_langchain(conversation.messages_for_model([message]))
    for each in converted:
        _mark(each, message)
    return converted


def to_langchain(messages: Iterable[ModelMessage]) -> list[BaseMessage]:
    """Return model messages as LangChain's. Call ``repair_messages`` first: a model rejects calls without results.

    Reasoning is kept if a provider signed it, since only then may it be sent back. Calls that a provider ran itself,
    and their results, are left out.

    >>> to_langchain([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    [HumanMessage(content='Hi', additional_kwargs={}, response_metadata={})]
    """
    return [converted for message in conversation.without_provider_calls(messages) for converted in _converted(message)]


def _converted(message: ModelMessage) -> Iterator[BaseMessage]:
    if message["role"] == "system":
        yield SystemMessage(message["content"])
    elif message["role"] == "user":
        yield HumanMessage(_user_content(message))
    elif message["role"] == "assistant":
        yield from _assistant(message)
    else:
        yield from _results(message)


def _user_content(message: UserModelMessage) -> Any:
    blocks = [
        {"type": "text", "text": part["text"]} if part["type"] == "text" else _file_block(part)
        for part in message["content"]
    ]
    return _text_or_blocks(blocks)


def _text_or_blocks(blocks: list[dict[str, Any]]) -> Any:
    """Return one text as a string, which every model takes; anything else as blocks."""
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0]["type"] == "text" else blocks


def _file_block(part: FilePart) -> dict[str, Any]:
    file = model_files.model_file(part)
    if (text := file.text) is not None:
        return {"type": "text", "text": text}
    kind = file.media_type.partition("/")[0]
    place = {"url": file.url} if file.data is None else {"base64": file.base64}
    block = {"type": kind if kind in ("image", "audio", "video") else "file", **place, "mime_type": file.media_type}
    return block | ({"filename": file.name} if file.name and block["type"] == "file" else {})


def _assistant(message: AssistantModelMessage) -> Iterator[BaseMessage]:
    blocks: list[dict[str, Any]] = []
    calls = []
    for part in message["content"]:
        if part["type"] == "text":
            blocks += [{"type": "text", "text": part["text"]}] if part["text"].strip() else []
        elif part["type"] == "reasoning":
            if signature := conversation.signature_of(part):
                blocks.append({"type": "thinking", "thinking": part["text"], "signature": signature})
        elif part["type"] == "tool-call":
            calls.append({"id": part["toolCallId"], "name": part["toolName"], "args": part.get("input") or {}})
    if blocks or calls:
        yield AIMessage(_text_or_blocks(blocks) if blocks else "", tool_calls=calls)


def _results(message: ToolModelMessage) -> Iterator[BaseMessage]:
    for result in conversation.contents_of(message).results:
        value = result.output.get("value")
        yield ToolMessage(
            value if _are_blocks(value) else result.text,
            tool_call_id=result.call_id,
            name=result.name,
            status="error" if result.is_failure else "success",
        )


def _are_blocks(value: Any) -> TypeGuard[list[str | dict[Any, Any]]]:
    """Tell whether a result is content for a model, such as an image, and not a list of values."""
    kinds = ("text", "image", "image_url", "file", "audio")
    return (
        bool(value)
        and isinstance(value, list)
        and all(isinstance(each, dict) and each.get("type") in kinds for each in value)
    )


def _apps_of(graph: Any) -> dict[str, McpApp]:
    """Return the apps of a graph's tools by their names, as ``langchain-mcp-adapters`` notes them with a tool."""
    apps = {}
    for node in graph.nodes.values():
        for name, tool in getattr(node.bound, "tools_by_name", {}).items():
            meta = (getattr(tool, "metadata", None) or {}).get("_meta")
            if (app := declared_app(meta)) is not None:
                apps[name] = app
            if not is_visible_to(meta, "model"):
                _logger.warning(
                    "the tool %s is for MCP apps alone, but the model of the graph %r has it; leave it out",
                    name,
                    graph.name,
                )
    return apps


def tools_of(graph: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name and the input schema of each tool of a graph, for `usechat types`; the output is not described."""
    for node in graph.nodes.values():
        for name, tool in getattr(node.bound, "tools_by_name", {}).items():
            yield name, tool.tool_call_schema, None
