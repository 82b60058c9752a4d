"""Claude Code as chats, through the Claude Agent SDK.

``usechat serve app:options`` and ``chat_response(request, options)`` accept every ``ClaudeAgentOptions``. Use
:class:`ClaudeSource` to set how long a permission request waits, and :func:`ask_claude` to read the messages of Claude
Code yourself.

**Messages** are those of ``ClaudeSDKClient.receive_response()`` with partial messages, and ours about permissions.
Whole messages repeat what was streamed and are read only if nothing was. Names of tools are without their MCP server.

**Memory.** Claude Code keeps sessions, one per answer: each turn forks the session of the answer before it, so that
regenerating or editing a message forgets what followed. The id of a session is made of the caller's identity, the chat
and the id of the answer, so nobody opens another's session by naming it. If a session is not on this machine, Claude
gets the chat as text.

**Permissions.** Options without ``can_use_tool`` ask the page. Claude Code cannot save a run that
waits, so its process waits (:mod:`usechat.pauses`). It asks about one call after the other. Calls that are not
run yet are held back meanwhile: a page that has one would wait for its output instead of sending the answer.

**Sub-agents** speak in separate lanes, whole messages at a time. Nothing runs in the background: the process ends
with the answer.
"""

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from usechat.adapters import conversation, sub_agents
from usechat.adapters.anthropic import MessageBlocks, to_anthropic, tool_output
from usechat.adapters.framework import FrameworkSource, for_turn, imported
from usechat.errors import StreamFailed, UnknownEvent
from usechat.ids import new_id
from usechat.protocol.parts import (
    ApprovalRequest,
    Data,
    Error,
    Part,
    Reasoning,
    Start,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
)
from usechat.protocol.request import ApprovalAnswer
from usechat.protocol.ui_messages import text_of
from usechat.sources import parts_of
from usechat.turn import WAIT_SECONDS, AgentInfo, PageQuestion, Turn, current_context, thread_id

__all__ = [
    "ClaudeAdapter",
    "ClaudeResult",
    "ClaudeSource",
    "Permission",
    "ask_claude",
    "parts",
    "readable_name",
    "results_of",
    "source_of",
]

_DENIED: Final = "The user did not allow this call."
_INTERRUPT_SECONDS: Final = 2
_NO_SESSION: Final = "No conversation found"
"""What Claude Code says about a session that is not on this machine."""
_IN_FOREGROUND: Final[Mapping[str, str]] = {"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1"}
"""Lets Claude Code wait for sub-agents. In the background, its default, they would end with the process of the turn."""
_WITH_TEXT: Final[Mapping[str, str]] = {"CLAUDE_CODE_FORWARD_SUBAGENT_TEXT": "1"}
"""Without it only the tool calls of sub-agents are told. Options may set it otherwise."""
_IGNORED: Final = frozenset(
    {"HookEventMessage", "MirrorErrorMessage", "RateLimitEvent", "SystemMessage", "TaskNotificationMessage",
     "TaskProgressMessage", "TaskStartedMessage", "TaskUpdatedMessage"}
)  # fmt: skip


@dataclasses.dataclass
class AnswerStarted:
    """An answer begins; its id names the session."""

    message_id: str


@dataclasses.dataclass
class PermissionAsked:
    """Claude Code waits for a permission."""

    call_id: str
    name: str
    input: dict[str, Any]


@dataclasses.dataclass
class PermissionDenied:
    """A person has denied a call: its result says no more than that."""

    call_id: str
    reason: str | None


def source_of(options: Any) -> "ClaudeSource | None":
    """Return the source of options; ``None`` for everything else.

    >>> def answers(options: object) -> bool:
    ...     return source_of(options) is not None
    """
    options_type = _sdk().ClaudeAgentOptions
    return ClaudeSource(options) if isinstance(options, options_type) else None


def _sdk() -> Any:
    """Import the SDK; raise MissingDependency if it is not installed."""
    return imported("claude_agent_sdk", "claude-agent-sdk", "claude")


class ClaudeSource(FrameworkSource[Any]):
    """Answers turns with Claude Code. A permission request waits for at most ``wait_seconds``.

    ``options`` are ``ClaudeAgentOptions``, or a function of the turn, async or not, that returns them. The session and
    partial messages are set here.

    >>> def source(options) -> ClaudeSource:  # for chat_response or ChatApp
    ...     return ClaudeSource(options, wait_seconds=600)
    """

    continues = False  # Claude Code is a process of its own: it does not wait until its calls are stored

    def __init__(self, options: Any, *, wait_seconds: float = WAIT_SECONDS) -> None:
        super().__init__()
        self._claude = options
        self._wait_seconds = wait_seconds
        self.adapter = ClaudeAdapter
        self.info = AgentInfo("claude")

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Run Claude Code on the turn."""
        conversation.refuse_answers(turn)
        permissions = _Permissions(turn, self._wait_seconds)
        message_id = new_id()
        yield AnswerStarted(message_id)
        options = await for_turn(self._claude, turn)
        thread = thread_id(turn)
        earlier = next((each["id"] for each in reversed(turn.messages) if each["role"] == "assistant"), None)
        messages = ask_claude(
            dataclasses.replace(options, env={**_WITH_TEXT, **options.env}),
            _prompt(turn),
            session_id=_session(thread, message_id),
            earlier_session=None if earlier is None else _session(thread, earlier),
            earlier_chat=_texts_before(turn),
            ask=permissions.ask,
        )
        async with contextlib.aclosing(messages):
            async for message in messages:
                if type(message).__name__ not in _IGNORED:
                    yield message


class Permission(NamedTuple):
    """Whether Claude Code may make a call; the model is told the reason why not.

    >>> Permission(approved=False, reason="Not on a Friday.").reason
    'Not on a Friday.'
    """

    approved: bool
    reason: str | None = None


AskPermission: TypeAlias = Callable[[str, str, Any], Awaitable[Permission | None]]
"""Asks for the permission to make a call: its id, its name as Claude Code has it, and its input."""


class _SessionMissing(Exception):
    """The session that was to be forked is not on this machine."""


async def ask_claude(
    options: Any,
    content: Sequence[Any],
    *,
    session_id: str,
    earlier_session: str | None = None,
    earlier_chat: Sequence[str] = (),
    ask: AskPermission | None = None,
) -> AsyncGenerator[Any]:
    """Yield the messages of Claude Code about one message of the user. Close it, and Claude Code stops.

    Args:
        options: ``ClaudeAgentOptions``. Partial messages and the session are set here. A file that the text names with
            ``@`` is not read, and nothing runs in the background.
        content: the blocks of the message, as Anthropic's API has them.
        session_id: a new UUID: the session in which Claude Code remembers this answer.
        earlier_session: the session of the answer before, which is forked.
        earlier_chat: the messages before, one text each: Claude gets them as text if that session is not on this
            machine.
        ask: returns the permission for a call. It is called with the id of the call, its name and its input, when the
            message of the model that makes the call is complete. ``None`` if nobody waits for the response any more:
            Claude Code stops. Options with ``can_use_tool`` ask that instead.

    >>> async def messages(options):
    ...     content = [{"type": "text", "text": "Hello"}]
    ...     async for message in ask_claude(options, content, session_id="1c3e2f50-0d2b-4f3a-9a51-6f2f0c3c2a11"):
    ...         yield message
    """
    options = dataclasses.replace(
        options,
        session_id=session_id,
        include_partial_messages=True,
        verbatim_prompts=True,  # otherwise "@/etc/passwd" in a message of the page makes Claude Code read that file
        env={**_IN_FOREGROUND, **options.env},
    )
    if earlier_session is not None:
        fork = dataclasses.replace(options, resume=earlier_session, fork_session=True)
        with contextlib.suppress(_SessionMissing):
            async with contextlib.aclosing(_response(fork, content, ask)) as messages:
                async for message in messages:
                    yield message
            return
    before = [{"type": "text", "text": "The chat so far:\n\n" + "\n\n".join(earlier_chat)}] if earlier_chat else []
    async with contextlib.aclosing(_response(options, [*before, *content], ask)) as messages:
        async for message in messages:
            yield message


async def _response(options: Any, content: Sequence[Any], ask: AskPermission | None) -> AsyncGenerator[Any]:
    streamed = _StreamedMessages()
    if ask is not None and options.can_use_tool is None:
        options = dataclasses.replace(options, can_use_tool=partial(_answer, ask, streamed))
    is_over = False
    try:
        async with _sdk().ClaudeSDKClient(options) as client:
            await client.query(_user_message(content))
            try:
                async for message in client.receive_response():
                    streamed.note(message)
                    is_over = type(message).__name__ == "ResultMessage"
                    if is_over and message.is_error and _NO_SESSION in f"{message.result} {message.errors}":
                        raise _SessionMissing
                    yield message
            except (asyncio.CancelledError, GeneratorExit):
                if not is_over:
                    await _interrupt(client)
                raise
    except _sdk().ClaudeSDKError as error:
        if _NO_SESSION in str(error):
            raise _SessionMissing from error
        raise


async def _answer(
    ask: AskPermission, streamed: "_StreamedMessages", name: str, tool_input: dict[str, Any], context: Any
) -> Any:
    """Answer ``can_use_tool``."""
    await streamed.complete()
    permission = await ask(context.tool_use_id, name, tool_input)
    if permission is None:  # a plain refusal would be told to the model, which is paid for and read by nobody
        return _sdk().PermissionResultDeny(message=_DENIED, interrupt=True)
    if permission.approved:
        return _sdk().PermissionResultAllow()
    return _sdk().PermissionResultDeny(message=permission.reason or _DENIED)


async def _interrupt(client: Any) -> None:
    """Stop the model call and the tools; without it Claude Code completes its turn before it exits."""
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_INTERRUPT_SECONDS):
            await client.interrupt()


def _session(thread: str, message_id: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"usechat:{thread}/{message_id}"))


async def _user_message(content: Sequence[Any]) -> AsyncIterator[Mapping[str, Any]]:
    """Yield a message of the user, for ``ClaudeSDKClient.query``."""
    yield {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None}


def _prompt(turn: Turn) -> list[Any]:
    """Return the content of the last message."""
    content: list[Any] = to_anthropic(conversation.history(turn)[-1:])[-1]["content"]
    return content


def _texts_before(turn: Turn) -> list[str]:
    """Return what was said before the last message, one text per message."""
    messages: list[Any] = list(turn.messages[:-1])
    return [f"{message['role']}: {text}" for message in messages if (text := text_of(message))]


class _StreamedMessages:
    """Follows whether a message of the model is being streamed: Claude Code asks for permissions before its end."""

    def __init__(self) -> None:
        self._is_complete = asyncio.Event()
        self._is_complete.set()

    def note(self, message: Any) -> None:
        """Note the start and the end of a message."""
        if type(message).__name__ == "StreamEvent" and message.parent_tool_use_id is None:
            if message.event["type"] == "message_start":
                self._is_complete.clear()
            elif message.event["type"] == "message_stop":
                self._is_complete.set()

    async def complete(self) -> None:
        """Wait until no message is being streamed."""
        await self._is_complete.wait()


class _Permissions:
    """Asks the page for permissions."""

    def __init__(self, turn: Turn, wait_seconds: float) -> None:
        self._turn = turn
        self._context = current_context()
        self._wait_seconds = wait_seconds

    async def ask(self, call_id: str, name: str, tool_input: Any) -> Permission | None:
        """Return the permission for a call; ``None`` if the turn was stopped meanwhile."""
        show = partial(self._context.feed, PermissionAsked(call_id, name, tool_input))
        answer = await self._context.ask(PageQuestion(call_id, show, wait_seconds=self._wait_seconds))
        if self._turn.stopped:
            return None
        if not isinstance(answer, ApprovalAnswer):
            return Permission(approved=False)
        if not answer.approved:
            self._context.feed(PermissionDenied(call_id, answer.reason))
        return Permission(answer.approved, answer.reason)


class ClaudeAdapter:
    """Turns the messages of one turn into parts.

    ``known_calls`` are the calls that the page has already, when a turn continues; ``denied`` are those that a person
    has denied, with the reasons.

    >>> list(ClaudeAdapter().close())
    [Error(error_text='The answer ended before it was complete.', usage=None, metadata=None, lane='')]
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:
        self._known_calls = set(known_calls)
        self._denied = dict(denied)
        self._blocks: dict[str, MessageBlocks] = {}
        self._calls: dict[str, ToolCall] = {}
        self._open: set[str] = set()
        self._streamed: set[str] = set()
        self._whole_messages: dict[str, str] = {}
        """The last message of each lane that was not streamed; each of its blocks comes alone."""
        self._sub_agents: dict[str, sub_agents.SubAgent] = {}
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that a message becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for a message of another kind,
        and :class:`~usechat.errors.StreamFailed` if Claude Code failed.
        """
        match type(event).__name__:
            case "StreamEvent":
                yield from self._spoken(event, self._stream(event))
            case "AssistantMessage":
                yield from self._spoken(event, self._whole(event))
            case "UserMessage":
                yield from self._results(event)
            case "ResultMessage":
                yield from self._end(event)
            case "AnswerStarted":
                yield Start(event.message_id)
            case "PermissionAsked":
                if self._open - {event.call_id}:  # of the sub-agent that asks: the page would wait for its output
                    yield Step(leaves_calls=True)
                yield from self._call(_tool_call(event.call_id, event.name, event.input))
                yield ApprovalRequest(f"approval-{event.call_id}", event.call_id)
            case "PermissionDenied":
                self._denied[event.call_id] = event.reason
            case kind if kind not in _IGNORED:
                raise UnknownEvent(kind)

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a turn that ended without a result."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _spoken(self, message: Any, parts: Iterator[Part]) -> Iterator[Part]:
        """Yield what a message says; a message of a sub-agent is put into its lane."""
        parent = message.parent_tool_use_id
        if parent is None:
            return parts
        if parent not in self._sub_agents:
            call = self._calls.get(parent)
            tool_input = call.input if call is not None and isinstance(call.input, Mapping) else {}
            self._sub_agents[parent] = sub_agents.SubAgent(tool_input.get("subagent_type", "agent"), parent)
        return self._sub_agents[parent].parts(parts)

    def _stream(self, message: Any) -> Iterator[Part]:
        lane, event = message.parent_tool_use_id or "", message.event
        if event["type"] == "message_start":
            self._streamed.add(event["message"]["id"])
        for part in self._blocks.setdefault(lane, MessageBlocks()).parts(event):
            yield from self._shown(msgspec.structs.replace(part, lane=lane))

    def _shown(self, part: Part) -> Iterator[Part]:
        """Yield a part; hold back calls while another one has no result, see the top of this module."""
        match part:
            case ToolInputStart(tool_call_id=call_id):
                if not self._open:
                    self._open.add(call_id)
                    name, title = readable_name(part.tool_name)
                    yield msgspec.structs.replace(part, tool_name=name, title=title)
            case ToolInputDelta(tool_call_id=call_id):
                if call_id in self._open:
                    yield part
            case ToolCall(tool_call_id=call_id):
                name, title = readable_name(part.tool_name)
                self._calls[call_id] = msgspec.structs.replace(part, tool_name=name, title=title)
                if call_id in self._open:
                    yield from self._call(self._calls[call_id])
            case _:
                yield part

    def _call(self, call: ToolCall) -> Iterator[Part]:
        if call.tool_call_id not in self._known_calls:
            self._known_calls.add(call.tool_call_id)
            yield call

    def _whole(self, message: Any) -> Iterator[Part]:
        """Yield a message that was not streamed; the text of one about a failure is the provider's."""
        if message.error is not None or message.message_id in self._streamed:
            return
        lane = message.parent_tool_use_id or ""
        if message.message_id != self._whole_messages.get(lane):
            self._whole_messages[lane] = message.message_id
            yield Step()
        for block in message.content:
            match type(block).__name__:
                case "TextBlock":
                    yield Text(block.text)
                case "ThinkingBlock":
                    yield Reasoning(block.thinking)
                case "ToolUseBlock":
                    call = _tool_call(block.id, block.name, block.input)
                    self._calls[block.id] = msgspec.structs.replace(call, lane=lane)

    def _results(self, message: Any) -> Iterator[Part]:
        for result in results_of(message):
            self._open.discard(result.call_id)
            if result.call_id in self._calls:
                yield from self._call(self._calls[result.call_id])
            yield self._result(result)

    def _result(self, result: "ClaudeResult") -> Part:
        call_id = result.call_id
        lane = self._calls[call_id].lane if call_id in self._calls else ""
        if call_id in self._denied:
            return ToolDenied(call_id, self._denied[call_id], lane=lane)
        if result.is_error:
            return ToolError(call_id, conversation.TOOL_FAILED, lane=lane)  # the output is the exception's text
        return ToolResult(call_id, result.output, lane=lane)

    def _end(self, message: Any) -> Iterator[Part]:
        self._is_over = True
        if message.is_error:
            raise StreamFailed(f"Claude Code failed: {message.subtype}: {message.result or message.errors}")
        if message.structured_output is not None:
            yield Data("output", message.structured_output)
        used = message.usage or {}
        usage = conversation.usage(used.get("input_tokens"), used.get("output_tokens"))
        yield conversation.finish(conversation.finish_reason(message.stop_reason), usage)


class ClaudeResult(NamedTuple):
    """The result of a tool call in a message of Claude Code.

    >>> ClaudeResult("call-1", {"celsius": 21}, is_error=False).output
    {'celsius': 21}
    """

    call_id: str
    output: Any
    is_error: bool


def results_of(message: Any) -> list[ClaudeResult]:
    """Return the results in a ``UserMessage``. A single text that is JSON is parsed.

    The report of a sub-agent comes without what Claude Code adds to it.

    >>> from types import SimpleNamespace
    >>> results_of(SimpleNamespace(content="no blocks"))
    []
    """
    blocks = message.content if isinstance(message.content, list) else ()
    return [
        ClaudeResult(block.tool_use_id, tool_output(_content(message, block)), bool(block.is_error))
        for block in blocks
        if type(block).__name__ == "ToolResultBlock"
    ]


def _content(message: Any, block: Any) -> Any:
    report = getattr(message, "tool_use_result", None)
    if not isinstance(report, Mapping) or not {"agentId", "content"} <= report.keys():
        return block.content
    content = report["content"]
    return content[report.get("harnessNoteCount", 0) : len(content) - report.get("harnessTailCount", 0)]


def readable_name(name: str) -> tuple[str, str | None]:
    """Return the name of a tool, and a title with the name of its MCP server.

    >>> readable_name("mcp__notes__search")
    ('search', 'notes: search')
    """
    if not name.startswith("mcp__"):
        return name, None
    server, _, tool = name.removeprefix("mcp__").partition("__")
    return tool, f"{server}: {tool}"


def _tool_call(call_id: str, name: str, input: Any) -> ToolCall:  # noqa: A002 (the SDK's name)
    readable, title = readable_name(name)
    return ToolCall(call_id, readable, input, title=title)


def parts(messages: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of a response, inside an agent function.

    >>> async def answer(turn):
    ...     from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient
    ...
    ...     async with ClaudeSDKClient(ClaudeAgentOptions(include_partial_messages=True)) as client:
    ...         await client.query(turn.text)
    ...         async for part in parts(client.receive_response()):
    ...             yield part
    """
    return parts_of(messages, ClaudeAdapter())


def tools_of(options: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the input schema and the output schema of each tool of the options, for `usechat types`.

    Those are the tools of MCP servers in this process, and the built-in tools that the options name, whose schemas only
    Claude Code knows.
    """
    named = [*(options.tools if isinstance(options.tools, list) else ()), *options.allowed_tools]
    names = (name.partition("(")[0] for name in named)
    yield from ((name, None, None) for name in dict.fromkeys(names) if not name.startswith("mcp__"))
    servers = options.mcp_servers if isinstance(options.mcp_servers, Mapping) else {}
    for server in servers.values():
        if server.get("type") == "sdk":
            with ThreadPoolExecutor(1) as thread:  # an event loop may run in this one
                yield from thread.submit(asyncio.run, _listed_tools(server["instance"])).result()


async def _listed_tools(server: Any) -> list[tuple[str, Any, Any]]:
    async with imported("mcp", "mcp", "claude").Client(server) as client:
        tools = [tool.model_dump(by_alias=True, mode="json") for tool in (await client.list_tools()).tools]
    return [(tool["name"], tool["inputSchema"], tool.get("outputSchema")) for tool in tools]
