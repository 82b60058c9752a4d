"""Strands agents, swarms and graphs as chats.

A Strands ``Agent`` holds one conversation and answers one question at a time, and so do a ``Swarm`` and a ``Graph`` of
agents. So they are never shared: each turn gets a copy, which shares the models, the tools and the hooks.
:class:`StrandsSource` takes a function that makes one of them, and calls it for each turn.

**Events** are those of ``agent.stream_async(…)``. Text, reasoning and tool input are read from their deltas; whole
messages tell the inputs and results of tools. An agent that is a tool has a separate lane, and so has each node of a
swarm or graph.

**History.** An agent gets the whole chat in every turn. Each agent of a swarm or graph gets the texts of the chat,
since it may not have the tools of the others.

**Pauses.** A hook that calls ``event.interrupt`` before a tool asks the page for an approval, and gets ``True`` or
``False``; a tool that calls ``tool_context.interrupt`` waits for an output of the page. The state of what is
paused holds the whole history, so it never goes to the page: the run store keeps it, and it is used once.
"""

import copy
import json
import threading
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
from typing import Any, Final

from usechat.adapters import conversation, model_files, sub_agents
from usechat.adapters.framework import NO_OPTIONS, FrameworkSource, Options, for_turn, imported
from usechat.errors import CannotAnswer, PublicError, StreamFailed, UnknownEvent
from usechat.protocol.model_messages import ModelMessage
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
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
)
from usechat.sources import parts_of
from usechat.turn import AgentInfo, Turn, current_context

__all__ = ["StrandsAdapter", "StrandsSource", "parts", "source_of", "to_strands"]

_FRAMEWORK: Final = "strands"
_ASKED_BY_TOOL: Final = "v1:tool_call:"
"""How Strands begins the id of an interrupt that a tool raised; one of a hook asks for an approval."""
_INTERRUPTS: Final = "usechat_interrupts"
"""Under which key the state of what is paused names the calls that wait."""
_NODE_STREAM: Final = "multiagent_node_stream"
_HANDOFF: Final = "handoff_to_agent"
"""The tool that a swarm gives to its agents."""
_CUT_OFF: Final = "MaxTokensReachedException"
_OFFICE: Final = "application/vnd.openxmlformats-officedocument"
_DOCUMENTS: Final = {
    "application/pdf": "pdf",
    "application/msword": "doc",
    f"{_OFFICE}.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
}
"""The formats of documents that Strands knows, by their media types; texts are sent as texts."""
_IGNORED: Final = frozenset({"init_event_loop", "start", "start_event_loop", "force_stop", "tool_cancel_event",
                             "event_loop_throttled_delay", "citation", "reasoningRedactedContent",
                             "structured_output", "result"})  # fmt: skip
"""Keys of events that tell nothing new; the result of a node that is a function is read when the node stops."""


def source_of(agent: Any, *, context: Any = None) -> "StrandsSource | None":
    """Return the source of an agent, a swarm or a graph, which is copied for each turn; ``None`` for everything else.

    ``context`` is what the agent needs per request, as the source takes it.

    Raises :class:`~usechat.errors.CannotAnswer` for one with a session manager, which stores one conversation.

    >>> def answers(agent: object) -> bool:
    ...     return source_of(agent) is not None
    """
    groups = _groups()
    if not isinstance(agent, (_strands().Agent, *groups)):
        return None
    is_group = isinstance(agent, groups)
    if (agent.session_manager if is_group else agent._session_manager) is not None:  # noqa: SLF001 (nothing else tells)
        kind = type(agent).__name__
        raise CannotAnswer(
            f"a Strands {kind} with a session manager stores one conversation, so chats cannot share it;"
            f" give a function that makes one: def agent(turn): return {kind}(…)"
        )

    async def make(_turn: Turn) -> Any:
        return _copied(agent)

    make.__name__ = agent.id if is_group else agent.name
    return StrandsSource(make, context=context)


def _groups() -> tuple[Any, Any]:
    return _strands("strands.multiagent.swarm").Swarm, _strands("strands.multiagent.graph").Graph


def _copied(agent: Any) -> Any:
    """Return a copy that shares models, tools and hooks, and nothing that a conversation changes."""
    swarm, graph = _groups()
    if isinstance(agent, swarm):
        return _copied_swarm(agent)
    if isinstance(agent, graph):
        return _copied_graph(agent)
    if not isinstance(agent, _strands().Agent):
        return agent  # a node of a graph that is a function, or an agent elsewhere
    copied = copy.copy(agent)
    copied.messages = copy.deepcopy(agent.messages)
    copied.state = type(agent.state)(agent.state.get())
    copied.conversation_manager = copy.copy(agent.conversation_manager)
    copied.event_loop_metrics = type(agent.event_loop_metrics)()
    copied.tool_caller = type(agent.tool_caller)(copied)
    copied._interrupt_state = type(agent._interrupt_state)()  # noqa: SLF001 (Strands has no copy of its own)
    copied._cancel_signal = threading.Event()  # noqa: SLF001
    copied._concurrency = type(agent._concurrency)(agent._concurrency.mode)  # noqa: SLF001
    copied._model_state = {}  # noqa: SLF001
    return copied


def _copied_swarm(swarm: Any) -> Any:
    """Return a copy of a swarm, whose agents hand over to each other and not to those of the swarm."""
    status = _strands("strands.multiagent.base").Status.PENDING
    copied = copy.copy(swarm)
    copied.state = type(swarm.state)(current_node=None, task="", completion_status=status)
    copied.shared_context = type(swarm.shared_context)()
    copied._interrupt_state = type(swarm._interrupt_state)()  # noqa: SLF001
    copied.nodes = {}
    for name, node in swarm.nodes.items():
        executor = _copied(node.executor)
        executor.tool_registry = copy.copy(node.executor.tool_registry)
        executor.tool_registry.registry = {**node.executor.tool_registry.registry}
        del executor.tool_registry.registry[_HANDOFF]
        copied.nodes[name] = type(node)(name, executor, swarm=copied)
    copied._inject_swarm_tools()  # noqa: SLF001
    return copied


def _copied_graph(graph: Any) -> Any:
    copied = copy.copy(graph)
    copied.state = type(graph.state)()
    copied._interrupt_state = type(graph._interrupt_state)()  # noqa: SLF001
    copied._resume_next_nodes, copied._current_invocation_state = [], {}  # noqa: SLF001
    copied.nodes = nodes = {name: type(node)(name, _copied(node.executor)) for name, node in graph.nodes.items()}
    for node in graph.nodes.values():
        nodes[node.node_id].dependencies = {nodes[each.node_id] for each in node.dependencies}
    copied.edges = {
        type(edge)(nodes[edge.from_node.node_id], nodes[edge.to_node.node_id], edge.condition) for edge in graph.edges
    }
    copied.entry_points = {nodes[node.node_id] for node in graph.entry_points}
    return copied


class StrandsSource(FrameworkSource[Any]):
    """Answers each turn with an agent, a swarm or a graph that a function makes for it, from the turn.

    The function may be async.
    ``context`` is the ``invocation_state`` of a run: a mapping, or a function of the turn, async or not, that returns
    one. ``options`` are further arguments of ``stream_async``, such as ``limits``, in the same way.
    Messages that the agent was made with stand before the chat.

    >>> @StrandsSource
    ... def agent(turn):  # `usechat serve app:agent`, chat_response and ChatApp take it
    ...     from strands import Agent
    ...
    ...     return Agent(system_prompt="Be brief.", callback_handler=None)
    """

    context_argument = "invocation_state"
    continues = False  # a run takes a question: it cannot begin behind the result of a tool

    def __init__(self, make: Callable[[Turn], Any], *, options: Options = NO_OPTIONS, context: Any = None) -> None:
        super().__init__(options=options, context=context)
        self._make = make
        self.adapter = StrandsAdapter
        self.info = AgentInfo(_FRAMEWORK, getattr(make, "__name__", None))

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Run the agent on the chat, or resume the one that waits for the turn's answers."""
        states, handle = current_context().states, conversation.state_handle(turn, _FRAMEWORK)
        state = await states.take_state(handle)  # also if another message supersedes it
        agent = await for_turn(self._make, turn)
        if turn.approvals or turn.tool_outputs:
            prompt = _resumed(agent, state, turn)
        else:
            prompt = _begun(agent, conversation.history(turn))
        interrupts: dict[str, str] = {}
        async with aclosing(agent.stream_async(prompt, **await self.arguments(turn))) as events:
            async for event in events:
                if (paused := _innermost(event)[1].get("tool_interrupt_event")) is not None:
                    interrupts |= {each.id: paused["tool_use"]["toolUseId"] for each in paused["interrupts"]}
                elif "result" in event and interrupts:
                    paused_state = _state_of(agent, interrupts)
                    await states.keep_state(handle, _encoded(paused_state))
                    for result in _results_so_far(paused_state):
                        yield result
                yield event


def _strands(module: str = "strands") -> Any:
    return imported(module, "strands-agents", "strands")


def _begun(agent: Any, history: list[ModelMessage]) -> Any:
    """Let an agent, or each agent of a group, read the messages before the question; return the question."""
    if not isinstance(agent, _groups()):
        *before, last = to_strands(history)
        agent.messages = [*agent.messages, *before]
        return last["content"]
    *before, last = to_strands(conversation.without_tools(history))
    _remember(agent, before)
    content = last["content"]
    # A swarm tells its agents the words of a task only if it is a text.
    return content[0]["text"] if len(content) == 1 and "text" in content[0] else content


def _remember(group: Any, messages: list[Any]) -> None:
    for node in group.nodes.values():
        if isinstance(node.executor, _groups()):
            _remember(node.executor, messages)
        elif hasattr(node.executor, "messages"):
            node.executor.messages = [*node.executor.messages, *copy.deepcopy(messages)]
            node.__post_init__()  # notes what its agent begins with


def _state_of(agent: Any, interrupts: Mapping[str, str]) -> dict[str, Any]:
    """Return the state of what is paused, with the calls that wait by the interrupts that answer them."""
    if isinstance(agent, _groups()):
        return {_INTERRUPTS: interrupts, **agent.serialize_state()}
    return {_INTERRUPTS: interrupts, **agent.take_snapshot(preset="session").to_dict()}


def _encoded(state: dict[str, Any]) -> bytes:
    return json.dumps(_strands("strands.types.session").encode_bytes_values(state)).encode()


def _results_so_far(state: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the results of calls that ran beside those that wait. Strands tells them only when it continues."""
    if "data" in state:
        yield _message_of_results(state["data"]["interrupt_state"])
        return
    for name, paused in state["_internal_state"]["interrupt_state"]["context"].items():
        if isinstance(paused, Mapping) and "interrupt_state" in paused:
            event = _message_of_results(paused["interrupt_state"])
            yield {"type": _NODE_STREAM, "node_id": name, "event": event}


def _message_of_results(interrupt_state: Mapping[str, Any]) -> dict[str, Any]:
    pending = interrupt_state.get("pending_tool_execution") or {}
    results = [{"toolResult": result} for result in pending.get("completed_tool_results", ())]
    return {"message": {"role": "user", "content": results}}


def _resumed(agent: Any, stored: bytes | None, turn: Turn) -> list[Any]:
    """Load the state of what is paused, and return the answers to its interrupts.

    An approval that was not answered is denied. Raise PublicError if there is no state.
    """
    if stored is None:
        raise PublicError(conversation.PAUSE_IS_GONE)
    state = _strands("strands.types.session").decode_bytes_values(json.loads(stored))
    interrupts = state.pop(_INTERRUPTS)
    if isinstance(agent, _groups()):
        agent.deserialize_state(state)
    else:
        agent.load_snapshot(_strands().Snapshot.from_dict(state))
    approvals = {answer.tool_call_id: answer.approved for answer in turn.approvals}
    outputs = {
        output.tool_call_id: output.output if output.error_text is None else output.error_text
        for output in turn.tool_outputs
    }
    answers: list[Any] = []
    for interrupt_id, call_id in interrupts.items():
        if not interrupt_id.startswith(_ASKED_BY_TOOL):
            answers.append((interrupt_id, approvals.get(call_id, False)))
        elif call_id in outputs:
            output = outputs[call_id]
            answers.append((interrupt_id, "" if output is None else output))  # None would be no answer
    return [{"interruptResponse": {"interruptId": each, "response": answer}} for each, answer in answers]


def _is_of_group(event: Mapping[str, Any]) -> bool:
    """Tell whether an event is one of a swarm or graph, and not one of an agent."""
    return str(event.get("type", "")).startswith("multiagent_")


def _innermost(event: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Return the path of nodes below which an event of a swarm or graph stands, and the event of the last one."""
    path = []
    while event.get("type") == _NODE_STREAM:
        path.append(str(event["node_id"]))
        event = event["event"]
    return "/".join(path), event


class StrandsAdapter:
    """Turns the events of one invocation of an agent, a swarm or a graph into parts.

    ``known_calls`` are the calls that the page has already, when an agent is resumed; ``denied`` are those that a
    person has denied, with the reasons.

    >>> list(StrandsAdapter().feed({"data": "Hello"}))
    [Text(text='Hello', provider_metadata=None, id=None, lane='')]
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:
        self._known_calls = set(known_calls)
        self._denied = denied
        self._begun_calls: set[str] = set()
        self._sub_agents: dict[str, tuple[StrandsAdapter, sub_agents.SubAgent]] = {}
        self._nodes: dict[str, tuple[StrandsAdapter, sub_agents.SubAgent]] = {}
        """Those of the nodes of a swarm or graph, by their paths."""
        self._talkers: set[str] = set()
        """The nodes that have streamed a text."""
        self._is_asking = False
        self._tokens = [0, 0]
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind.
        """
        if _is_of_group(event):
            yield from self._group(event)
        else:
            yield from self._agent(event)

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of an invocation that ended without a result: also of an answer that is cut off."""
        if type(error).__name__ == _CUT_OFF:
            yield conversation.finish("length", conversation.usage(*self._tokens))
        elif error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _agent(self, event: Any) -> Iterator[Part]:
        match event:
            case {"data": str(text)}:
                yield Text(text)
            case {"reasoningText": str(text)}:
                yield Reasoning(text)
            case {"reasoning_signature": str(signature)}:
                yield BlockEnd(conversation.signed(signature))
            case {"event": raw}:
                yield from self._raw(raw)
            case {"current_tool_use": use, "delta": {"toolUse": {"input": str(text)}}}:
                yield from self._input(use, text)
            case {"message": message}:
                yield from self._message(message)
            case {"tool_stream_event": {"tool_use": use, "data": data}}:
                yield from self._streamed(use, data)
            case {"tool_interrupt_event": {"tool_use": use, "interrupts": interrupts}}:
                yield from _questions(use["toolUseId"], interrupts)
            case {"structured_output": output} if output is not None:
                yield Data("output", output.model_dump(mode="json"))
            case {"result": result} if hasattr(result, "stop_reason"):
                yield from self._end(result)
            case _ if not _IGNORED.intersection(event):
                raise UnknownEvent(str(event.get("type", next(iter(event), ""))))

    def _group(self, event: Any) -> Iterator[Part]:
        """Yield what the nodes of a swarm or graph say, and its end."""
        path, inner = _innermost(event)
        if path and not _is_of_group(inner):
            self._is_asking = self._is_asking or "tool_interrupt_event" in inner
            if "data" in inner:
                self._talkers.add(path.partition("/")[0])
            yield from self._in_lane(path, lambda adapter: adapter.feed(inner))
        elif event["type"] == "multiagent_node_stop" and event["node_result"].status.value == "completed":
            yield from self._unstreamed(event["node_id"], event["node_result"])
        elif event["type"] == "multiagent_result":
            yield from self._end_group(event["result"])

    def _in_lane(self, path: str, say: Callable[["StrandsAdapter"], Iterable[Part]]) -> Iterator[Part]:
        if path not in self._nodes:
            adapter = StrandsAdapter(known_calls=self._known_calls, denied=self._denied)
            self._nodes[path] = adapter, sub_agents.SubAgent(path.rpartition("/")[2], path)
        adapter, speaker = self._nodes[path]
        return speaker.parts(say(adapter))

    def _unstreamed(self, name: str, node_result: Any) -> Iterator[Part]:
        """Yield the result of a node that streams nothing, such as a function."""
        text = "\n".join(str(result).strip() for result in node_result.get_agent_results())
        if text and name not in self._talkers:
            yield from self._in_lane(name, lambda _adapter: (Step(), Text(text)))

    def _end_group(self, result: Any) -> Iterator[Part]:
        self._is_over = True
        status = result.status.value
        if status == "failed":
            raise StreamFailed("the swarm or graph of Strands ended before it was complete; its log has the reason")
        if status == "interrupted" and not self._is_asking:
            raise StreamFailed("a hook asks before a node runs, which no page can answer; ask before a tool runs")
        used = result.accumulated_usage
        reason = None if status == "interrupted" else "stop"
        yield conversation.finish(reason, conversation.usage(used["inputTokens"], used["outputTokens"]))

    def _raw(self, raw: Mapping[str, Any]) -> Iterator[Part]:
        match raw:
            case {"messageStart": _}:
                yield Step()
            case {"metadata": {"usage": used}}:
                self._tokens[0] += used["inputTokens"]
                self._tokens[1] += used["outputTokens"]

    def _input(self, use: Mapping[str, Any], text: str) -> Iterator[Part]:
        if use["toolUseId"] not in self._begun_calls:
            self._begun_calls.add(use["toolUseId"])
            yield ToolInputStart(use["toolUseId"], use["name"])
        yield ToolInputDelta(use["toolUseId"], text)

    def _message(self, message: Mapping[str, Any]) -> Iterator[Part]:
        """Yield the calls of the model's message, or the results of a message of tools."""
        for block in message["content"]:
            if (use := block.get("toolUse")) is not None and use["toolUseId"] not in self._known_calls:
                self._known_calls.add(use["toolUseId"])
                yield ToolCall(use["toolUseId"], use["name"], use["input"])
            elif (result := block.get("toolResult")) is not None:
                yield self._result(result)

    def _result(self, result: Mapping[str, Any]) -> Part:
        call_id = result["toolUseId"]
        if call_id in self._denied:
            return ToolDenied(call_id, self._denied[call_id])
        if result["status"] == "error":
            return ToolError(call_id, conversation.TOOL_FAILED)  # the content is the exception's text
        contents = [_value(block) for block in result["content"]]
        return ToolResult(call_id, contents[0] if len(contents) == 1 else contents)

    def _streamed(self, use: Mapping[str, Any], data: Any) -> Iterator[Part]:
        """Yield what a tool streams: an agent's events in a separate lane, all else as a preliminary result."""
        call_id = use["toolUseId"]
        if isinstance(data, Mapping) and "init_event_loop" in data:
            speaker = sub_agents.SubAgent(use["name"], call_id, is_in_tool=True)
            self._sub_agents[call_id] = StrandsAdapter(), speaker
        if call_id in self._sub_agents:
            adapter, speaker = self._sub_agents[call_id]
            if isinstance(data, Mapping):
                yield from speaker.parts(adapter.feed(data))
        else:
            yield ToolResult(call_id, data, preliminary=True)

    def _end(self, result: Any) -> Iterator[Part]:
        self._is_over = True
        if result.stop_reason == "cancelled":
            yield Abort()
            return
        reason = None if result.stop_reason == "interrupt" else conversation.finish_reason(result.stop_reason)
        yield conversation.finish(reason, conversation.usage(*self._tokens))


def _questions(call_id: str, interrupts: Iterable[Any]) -> Iterator[Part]:
    """Yield an approval request if a hook asks; a tool that asks waits for an output."""
    if not all(interrupt.id.startswith(_ASKED_BY_TOOL) for interrupt in interrupts):
        yield ApprovalRequest(f"approval-{call_id}", call_id)


def _value(block: Mapping[str, Any]) -> Any:
    if "text" in block:
        return conversation.parsed_result(block["text"])
    return block.get("json", block)


def parts(events: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of an invocation, inside an agent function.

    >>> async def answer(turn):
    ...     from strands import Agent
    ...
    ...     async for part in parts(Agent(callback_handler=None).stream_async(turn.text)):
    ...         yield part
    """
    return parts_of(events, StrandsAdapter())


def tools_of(agent: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the input schema and the output schema of each tool of an agent, for `usechat types`."""
    for spec in agent.tool_registry.get_all_tool_specs():
        yield spec["name"], spec["inputSchema"]["json"], spec.get("outputSchema", {}).get("json")


# History.


def to_strands(messages: Iterable[ModelMessage]) -> list[dict[str, Any]]:
    """Return model messages as those of Strands. Call ``repair_messages`` first.

    Reasoning is kept if Anthropic signed it, since only then may it be sent back. Calls that a provider ran itself, and
    their results, are left out. A file at an address is its address: Strands takes bytes alone.

    >>> to_strands([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    [{'role': 'user', 'content': [{'text': 'Hi'}]}]
    """
    converted: list[dict[str, Any]] = []
    for message in conversation.without_provider_calls(messages):
        role = "assistant" if message["role"] == "assistant" else "user"
        content = [block for part in message["content"] for block in _blocks(part)]
        if content:
            converted.append({"role": role, "content": content})
    return converted


def _blocks(part: Any) -> Iterator[dict[str, Any]]:
    match part["type"]:
        case "text" if part["text"].strip():
            yield {"text": part["text"]}
        case "reasoning":
            if signature := conversation.signature_of(part):
                yield {"reasoningContent": {"reasoningText": {"text": part["text"], "signature": signature}}}
        case "tool-call":
            yield {
                "toolUse": {
                    "toolUseId": part["toolCallId"],
                    "name": part["toolName"],
                    "input": part.get("input") or {},
                }
            }
        case "tool-result":
            status = "error" if conversation.is_failure(part["output"]) else "success"
            content = [{"text": conversation.result_text(part["output"])}]
            yield {"toolResult": {"toolUseId": part["toolCallId"], "status": status, "content": content}}
        case "file":
            yield _file(model_files.model_file(part))


def _file(file: model_files.ModelFile) -> dict[str, Any]:
    if (text := file.text) is not None:
        return {"text": text}
    kind, _, subtype = file.media_type.partition("/")
    if file.data is None:
        return {"text": f"{file.name or 'file'}: {file.url}"}
    if kind == "image":
        return {"image": {"format": subtype, "source": {"bytes": file.data}}}
    if file.media_type not in _DOCUMENTS:
        return {"text": f"{file.name or 'file'} ({file.media_type}) is attached, and cannot be read."}
    name = (file.name or "file").rpartition(".")[0] or "file"
    return {"document": {"name": name, "format": _DOCUMENTS[file.media_type], "source": {"bytes": file.data}}}
