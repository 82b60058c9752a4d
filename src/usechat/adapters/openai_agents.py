"""Agents of the OpenAI Agents SDK as chats.

``usechat serve app:agent`` and ``chat_response(request, agent)`` take every ``Agent``; :class:`OpenAIAgentsSource`
takes the arguments of a run.

**Events** are those of ``Runner.run_streamed(…).stream_events()``, and at the end the result itself, which says what
waits for an approval. The SDK always gives events of the Responses API, also for models with another API.

**History.** An agent gets the whole chat in every turn; with a ``session`` among the options, which holds the history
itself, only the new message.

**MCP.** Servers of ``mcp_servers`` that nobody has connected are connected when the server starts, and closed with it.
Those of an agent that is made for one turn, and those of ``chat_response``, are connected for the turn. The servers are
asked which of their tools bring a user interface (MCP Apps); tools for apps alone are kept from the model.

**Pauses.** Tools with ``needs_approval`` end the run. What it needs to continue (``RunState``) holds the whole history,
so it never goes to the page: the run store keeps it, under a handle made of the caller's identity and the chat's id,
and it is used once.

**Crashes.** The SDK starts its tools without waiting for the reader of its events. So a hook of the run holds each tool
back until the calls of its response are stored, and an answer whose process died goes on from the chat. A ``session``
may be ahead of the chat then, or behind it: such an answer is lost.

**Other agents.** An agent that takes over (handoff), and one that is a tool with ``on_stream=show_sub_agent``, has a
separate lane, which begins with ``data-agent`` and its name. The next message goes to the agent that took over last.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final, get_args
from weakref import WeakKeyDictionary

from usechat.adapters import conversation, sub_agents
from usechat.adapters.framework import NO_OPTIONS, FrameworkSource, Options, required_fields
from usechat.adapters.openai import ResponseItems, to_responses
from usechat.errors import CannotAnswer, MissingDependency, PublicError, UnknownEvent
from usechat.protocol.mcp_apps import declared_app, is_visible_to
from usechat.protocol.model_messages import ModelMessage
from usechat.protocol.parts import (
    ApprovalRequest,
    Data,
    Error,
    McpApp,
    Part,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolResult,
)
from usechat.sources import Adapter, FactorySource, OpenSession, Source, parts_of
from usechat.threads import contained
from usechat.turn import AgentInfo, Identity, Turn, current_context

try:
    from agents import Agent, AgentToolStreamEvent, RunHooks, Runner, RunResultStreaming, RunState
    from agents.exceptions import ModelRefusalError
    from agents.models.fake_id import FAKE_RESPONSES_ID
    from agents.result import RunResultBase
    from agents.stream_events import AgentUpdatedStreamEvent, RawResponsesStreamEvent, RunItemStreamEvent
except ImportError:
    raise MissingDependency("openai-agents", "openai-agents") from None

__all__ = ["OpenAIAgentsAdapter", "OpenAIAgentsSource", "parts", "show_sub_agent", "source_of", "to_openai_agents"]

LANE: Final = "agent-"
"""How the lane of an agent begins that took over."""
_FAILED: Final = "An error occurred while running the tool."
"""How the SDK begins the result of a tool that raised; it has no other mark."""


def source_of(agent: Any, *, context: Any = None) -> Source | None:
    """Return the source of an agent; ``None`` for everything else.

    ``context`` is what the agent needs per request, as the source takes it.

    >>> source_of("a text") is None
    True
    """
    if not isinstance(agent, Agent):
        return None
    source = OpenAIAgentsSource(agent, context=context)
    servers = dict.fromkeys(server for each in _agents_of(agent) for server in each.mcp_servers)
    ours = [server for server in servers if server in _connections or getattr(server, "session", True) is None]
    return FactorySource(partial(_connected, source, ours)) if ours else source


@asynccontextmanager
async def _connected(source: Source, servers: Iterable[Any]) -> AsyncIterator[Source]:
    """Keep MCP servers connected while the source is used."""
    async with AsyncExitStack() as stack:
        for server in servers:
            await stack.enter_async_context(_connections.setdefault(server, _ServerConnection()).used(server))
        yield source


class _ServerConnection:
    """The connection of an MCP server: opened for its first user, and closed after the last.

    One task opens and closes it, as cancel scopes demand. Turns that overlap share it, whichever ends first.
    """

    def __init__(self) -> None:
        self._users = 0
        self._lock = asyncio.Lock()
        self._left = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def used(self, server: Any) -> AsyncIterator[None]:
        """Keep the server connected; raise what it raises if it cannot be connected."""
        async with self._lock:
            if not self._users and server.session is None:
                await self._open(server)
            self._users += 1
        try:
            yield
        finally:
            async with self._lock:
                self._users -= 1
                if not self._users and self._keeper is not None:
                    self._left.set()
                    await self._keeper
                    self._keeper = None

    async def _open(self, server: Any) -> None:
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        self._left.clear()
        self._keeper = loop.create_task(self._keep(server, opened), name="usechat MCP server")
        await opened

    async def _keep(self, server: Any, opened: "asyncio.Future[None]") -> None:
        try:
            with contained():
                async with server:
                    opened.set_result(None)
                    await self._left.wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)


@asynccontextmanager
async def _session(server: Any, _identity: Identity) -> AsyncIterator[Any]:
    """Keep an MCP server connected, and return its session."""
    async with _connections.setdefault(server, _ServerConnection()).used(server):
        yield server.session


_connections: Final["WeakKeyDictionary[Any, _ServerConnection]"] = WeakKeyDictionary()


def _agents_of(agent: Any) -> "list[Agent[Any]]":
    """Return an agent and all that it can hand over to, directly or not."""
    agents = [agent]
    for each in agents:
        for handoff in each.handoffs:
            reference = getattr(handoff, "_agent_ref", None)  # the SDK tells it in no other way
            other = handoff if isinstance(handoff, Agent) else reference and reference()
            if isinstance(other, Agent) and not any(other is known for known in agents):
                agents.append(other)
    return agents


def agent_for(agent: "Agent[Any]", turn: Turn) -> "Agent[Any]":
    """Return the agent that took over last from the one that is served, as the chat shows it."""
    answers = [message for message in turn.messages if message["role"] == "assistant"]
    labels = [part.get("id") for message in answers for part in message["parts"] if part["type"] == "data-agent"]
    names = [str(label).removeprefix(LANE) for label in labels if str(label).startswith(LANE)]
    return next((each for each in _agents_of(agent) if names[-1:] == [each.name]), agent)


def _require_no_context(agent: Any) -> None:
    """Raise CannotAnswer for an ``Agent[Context]`` whose context cannot be made without fields."""
    for schema in get_args(getattr(agent, "__orig_class__", None)):
        if required := required_fields(schema):
            raise CannotAnswer(
                f"the agent {agent.name!r} needs a context of the type {schema.__name__} with {', '.join(required)};"
                " give OpenAIAgentsSource(agent, context=…), or --context MODULE:NAME: a value, or a function of the"
                " turn that returns it"
            )


class OpenAIAgentsSource(FrameworkSource[Any]):
    """Answers turns with an agent.

    ``context`` is what the SDK gives tools, hooks and instructions: a value, or a function of the turn, async or not,
    that returns it. ``options`` are further arguments of ``Runner.run_streamed``, such as ``max_turns`` or
    ``run_config``: a mapping, or such a function.

    >>> from agents import Agent
    >>> source = OpenAIAgentsSource(Agent(name="assistant"), options={"max_turns": 20})  # for chat_response or ChatApp
    """

    context_argument = "context"

    def __init__(self, agent: "Agent[Any]", *, options: Options = NO_OPTIONS, context: Any = None) -> None:
        if context is None and not callable(options) and "context" not in options:
            _require_no_context(agent)
        super().__init__(options=options, context=context)
        self._agent = agent
        if callable(options):
            self.continues = None  # nobody knows whether they have a session
        else:
            self.continues = options.get("session") is None
        self.adapter = OpenAIAgentsAdapter
        self.info = AgentInfo("openai-agents", agent.name)
        for each in _agents_of(agent):
            for server in each.mcp_servers:
                _note_apps(server)

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Run the agent on the chat, or resume the run that waits for the turn's approvals."""
        states, handle = current_context().states, conversation.state_handle(turn, "openai-agents")
        options = await self.arguments(turn)
        state = await states.take_state(handle)  # also if another message supersedes it
        if turn.approvals:
            run_input = await self._resumed(turn, state)
        else:
            messages = conversation.history(turn)
            run_input = to_openai_agents(messages[-1:] if options.get("session") is not None else messages)
        sub_agents.begin_sub_agents()
        hooks = options["hooks"] = _StoredFirst(options.get("hooks"))
        result = Runner.run_streamed(agent_for(self._agent, turn), run_input, **options)
        async for event in _with_result(result):
            if event is result and result.interruptions:
                await states.keep_state(handle, json.dumps(result.to_state().to_json()).encode())
            yield event
            if (call := _call_with_app(event)) is not None:
                yield call
            await hooks.event_stored(event)

    def mcp_servers(self) -> Mapping[str, OpenSession]:
        """Return the MCP servers of the agent, and of those that it hands over to, by the ids that pages know."""
        servers = [server for each in _agents_of(self._agent) for server in each.mcp_servers]
        return {_server_id(server.name): partial(_session, server) for server in servers if hasattr(server, "session")}

    def adapter_of(self, turn: Turn) -> Adapter[Any]:
        """Return the adapter of one turn, which knows the agent that others take over from."""
        return OpenAIAgentsAdapter(
            known_calls=conversation.calls_of(turn), denied=conversation.denials(turn), agent=self._agent.name
        )

    async def _resumed(self, turn: Turn, state: bytes | None) -> Any:
        if state is None:
            raise PublicError(conversation.PAUSE_IS_GONE)
        resumed = await RunState.from_json(self._agent, json.loads(state))
        answers = {answer.tool_call_id: answer for answer in turn.approvals}
        for item in resumed.get_interruptions():
            answer = answers.get(item.call_id)
            if answer is not None and answer.approved:
                resumed.approve(item)
            else:
                resumed.reject(item, rejection_message=None if answer is None else answer.reason)
        return resumed


_apps: Final["WeakKeyDictionary[Any, dict[str, McpApp]]"] = WeakKeyDictionary()
"""What MCP servers have told of the apps of their tools."""
_DERIVED_NAME: Final = re.compile(r"(stdio|sse|streamable[-_]http): |.*://")
"""The names of servers that nobody has named; they tell addresses and programs."""


def _note_apps(server: Any) -> None:
    """Let a server note the apps of its tools whenever the SDK lists them, and keep tools for apps from the model."""
    if server in _apps:
        return
    apps = _apps[server] = {}
    list_tools = server.list_tools

    async def list_tools_of_model(*arguments: Any, **options: Any) -> list[Any]:
        tools = await list_tools(*arguments, **options)
        declared = {tool.name: declared_app(tool.meta, _server_id(server.name)) for tool in tools}
        apps.clear()
        apps.update({name: app for name, app in declared.items() if app is not None})
        return [tool for tool in tools if is_visible_to(tool.meta, "model")]

    server.list_tools = list_tools_of_model


def _server_id(name: str) -> str:
    """Return the name of a server as pages may know it."""
    return name if _DERIVED_NAME.match(name) is None else hashlib.sha256(name.encode()).hexdigest()[:12]


def _call_with_app(event: Any) -> ToolCall | None:
    """Return a call of a tool that brings a user interface again, with its app: the model's events do not tell it."""
    origin = getattr(getattr(event, "item", None), "tool_origin", None)
    if getattr(event, "name", "") != "tool_called" or origin is None or origin.mcp_server_name is None:
        return None
    call, servers = event.item.raw_item, event.item.agent.mcp_servers
    for server in [server for server in servers if server.name == origin.mcp_server_name] or servers:
        for name, app in _apps.get(server, {}).items():
            if call.name == name or call.name.endswith(f"__{name}"):  # the SDK may put the server in front
                return ToolCall(call.call_id, call.name, app=app)
    return None


class _StoredFirst(RunHooks[Any]):
    """Hooks that let a tool start when the response that calls it is stored, and then do what other ``hooks`` do.

    The reader of the events has stored an event when it asks for the next one. The SDK puts the last event of a
    response into its queue before it calls ``on_llm_end``, and starts the tools after that.
    """

    def __init__(self, hooks: Any) -> None:
        self._hooks: Any = RunHooks() if hooks is None else hooks
        self._responses = 0
        self._stored = 0
        self._growth = asyncio.Condition()
        for name in dir(RunHooks):
            if name.startswith("on_") and name not in ("on_llm_end", "on_tool_start"):
                setattr(self, name, getattr(self._hooks, name))

    async def event_stored(self, event: Any) -> None:
        """Note that the reader has stored an event."""
        if getattr(getattr(event, "data", None), "type", None) == "response.completed":
            async with self._growth:
                self._stored += 1
                self._growth.notify_all()

    async def on_llm_end(self, *arguments: Any) -> None:
        self._responses += 1
        await self._hooks.on_llm_end(*arguments)

    async def on_tool_start(self, *arguments: Any) -> None:
        async with self._growth:
            await self._growth.wait_for(lambda: self._stored >= self._responses)
        await self._hooks.on_tool_start(*arguments)


async def _with_result(result: RunResultStreaming) -> AsyncIterator[Any]:
    """Yield the events of a run and then its result; cancel the run if nobody reads on."""
    try:
        async for event in result.stream_events():
            yield event
        yield result
    finally:
        if not result.is_complete:
            result.cancel(mode="immediate")


class OpenAIAgentsAdapter:
    """Turns the events of one run, and its result, into parts.

    ``known_calls`` are the calls that the page has already, when a run is resumed; ``denied`` are those that a person
    has denied, with the reasons; ``agent`` is the name of the agent that was asked, by default the first one.

    >>> from agents import Agent
    >>> from agents.stream_events import AgentUpdatedStreamEvent
    >>> adapter = OpenAIAgentsAdapter()
    >>> list(adapter.feed(AgentUpdatedStreamEvent(Agent(name="clerk"))))
    []
    """

    def __init__(
        self,
        *,
        known_calls: Collection[str] = (),
        denied: Mapping[str, str | None] = {},
        agent: str | None = None,
    ) -> None:
        self._items = ResponseItems(known_calls)
        self._denied = denied
        self._agent = agent
        self._speaker: sub_agents.SubAgent | None = None
        self._reason: str | None = None
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind.
        """
        if isinstance(event, RawResponsesStreamEvent):
            parts = self._raw(event.data)
            yield from parts if self._speaker is None else self._speaker.parts(parts)
        elif isinstance(event, RunItemStreamEvent):
            yield from self._item(event.name, event.item.raw_item, event.item)
        elif isinstance(event, AgentUpdatedStreamEvent):
            name = event.new_agent.name
            if self._agent not in (None, name):
                self._speaker = sub_agents.SubAgent(name, f"{LANE}{name}")
            self._agent = name
        elif isinstance(event, RunResultStreaming):
            yield from self._result(event)
        elif isinstance(event, ToolCall):
            yield event  # the source names the app of a call
        else:
            raise UnknownEvent(str(getattr(event, "type", type(event).__name__)))

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a run that ended without a result, such as a refusal, which the page has read."""
        if isinstance(error, ModelRefusalError):
            yield conversation.finish(conversation.finish_reason("refusal"), None)
        elif error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _raw(self, data: Any) -> Iterator[Part]:
        if data.type == "response.completed":
            self._reason = conversation.finish_reason("refusal" if self._items.is_refusal else "stop")
        return self._items.parts(data)

    def _item(self, name: str, raw: Any, item: Any) -> Iterator[Part]:
        if name in ("tool_called", "handoff_requested") and getattr(raw, "type", "") == "function_call":
            yield from self._items.call(raw)
        elif name in ("tool_output", "handoff_occured"):
            call_id: Any = raw.get("call_id") if isinstance(raw, Mapping) else getattr(raw, "call_id", None)
            output = item.output if name == "tool_output" else raw.get("output")
            if call_id in self._denied:
                yield ToolDenied(call_id, self._denied[call_id])
            elif call_id is not None:
                yield outcome_of(call_id, output)

    def _result(self, result: RunResultStreaming) -> Iterator[Part]:
        self._is_over = True
        for item in result.interruptions:
            if item.call_id is not None:
                yield ApprovalRequest(f"approval-{item.call_id}", item.call_id)
        yield from result_parts(result, None if result.interruptions else self._reason)


def outcome_of(call_id: str, output: Any) -> ToolResult | ToolError:
    """Return what became of a call, given the output of its tool."""
    if isinstance(output, str) and output.startswith(_FAILED):
        return ToolError(call_id, conversation.TOOL_FAILED)
    return ToolResult(call_id, _value(output))


def result_parts(result: RunResultBase, reason: str | None) -> Iterator[Part]:
    """Yield the end of a run: an output that is no text, and the usage."""
    output = result.final_output
    if output is not None and not isinstance(output, str):
        dump = getattr(output, "model_dump", None)
        yield Data("output", dump(mode="json") if callable(dump) else output)
    used = result.context_wrapper.usage
    yield conversation.finish(reason, conversation.usage(used.input_tokens, used.output_tokens))


def _value(output: Any) -> Any:
    """Return the output of a tool; that of an MCP server is its text, or what the text holds as JSON."""
    if isinstance(output, str):
        return conversation.parsed_result(output)
    if isinstance(output, Mapping) and output.keys() == {"type", "text"} and output["type"] == "text":
        return conversation.parsed_result(output["text"])
    return [_value(each) for each in output] if isinstance(output, list) else output


async def show_sub_agent(event: AgentToolStreamEvent) -> None:
    """Show what an agent that is a tool says while it works, in a separate lane.

    >>> from agents import Agent
    >>> tool = Agent(name="researcher").as_tool("research", "Asks a researcher.", on_stream=show_sub_agent)
    """
    call, name = event["tool_call"], event["agent"].name
    lane = f"{name}-{'' if call is None else call.call_id}"
    adapter, speaker = sub_agents.sub_agent(name, lane, OpenAIAgentsAdapter)
    sub_agents.show(speaker, adapter, event["event"])


def parts(result: RunResultStreaming) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function.

    >>> from agents import Agent, Runner
    >>> agent = Agent(name="assistant")
    >>> async def answer(turn):
    ...     async for part in parts(Runner.run_streamed(agent, turn.text)):
    ...         yield part
    """
    return parts_of(_with_result(result), OpenAIAgentsAdapter())


# History.


def to_openai_agents(messages: Iterable[ModelMessage]) -> list[Any]:
    """Return model messages as input items of the Responses API. Call ``repair_messages`` first.

    Reasoning is kept if it is encrypted, since only then may it be sent back. Calls that a provider ran itself, and
    their results, are left out.

    >>> to_openai_agents([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    [{'role': 'user', 'content': [{'type': 'input_text', 'text': 'Hi'}]}]
    """
    return [_whole(item) for item in to_responses(messages)]


def _whole(item: Any) -> Any:
    """Return an item of a model's text as the SDK makes it itself.

    A run that was paused gives its history back in this form, which is refused for Chat Completions without type and
    id. The SDK sends an id that it made up to no model.
    """
    if item.get("role") != "assistant":
        return item
    content = [{"type": "output_text", "text": item["content"], "annotations": []}]
    return {"type": "message", "id": FAKE_RESPONSES_ID, "role": "assistant", "status": "completed", "content": content}


def tools_of(agent: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the input schema and the output schema of each function tool of an agent, for `usechat types`."""
    from agents import FunctionTool

    for tool in agent.tools:
        if isinstance(tool, FunctionTool):
            yield tool.name, tool.params_json_schema, tool.output_json_schema
