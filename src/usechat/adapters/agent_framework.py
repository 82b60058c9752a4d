"""Agents of the Microsoft Agent Framework as chats.

``usechat serve app:agent`` and ``chat_response(request, agent)`` take every ``Agent``; :class:`AgentFrameworkSource`
takes the arguments of a run.

**Events** are the updates of ``agent.run(…, stream=True)``, as JSON. Contents that repeat what was streamed
(``merge_mode="replace"``) are read only if nothing was streamed.

**History.** An agent gets the whole chat in every turn, in a new session.

**Pauses.** Tools with ``approval_mode="always_require"`` end the run. The session that it needs to continue holds the
whole history, so it never goes to the page: the run store keeps it, and it is used once. Tools without a function
wait for an output of the page.

**Other agents.** An agent that is a tool with ``stream_callback=show_sub_agent`` has a separate lane, which
begins with ``data-agent`` and its name.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Collection, Iterable, Iterator, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from usechat.adapters import conversation, model_files, sub_agents
from usechat.adapters.framework import NO_OPTIONS, FrameworkSource, Options, StreamedCall, imported
from usechat.errors import PublicError, UnknownEvent
from usechat.ids import new_id
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
    ToolResult,
)
from usechat.protocol.values import json_text, json_value
from usechat.sources import parts_of
from usechat.turn import AgentInfo, Turn, current_context

__all__ = [
    "AgentFrameworkAdapter",
    "AgentFrameworkSource",
    "parts",
    "show_sub_agent",
    "source_of",
    "to_agent_framework",
]

_FRAMEWORK: Final = "agent-framework"
_OUTPUT: Final = "usechat_output"
"""The type of the event that holds a structured output."""
_WAITS: Final = "Waits for the other approvals of this answer."
_PROVIDED: Final = frozenset({"search_tool", "mcp_server_tool", "code_interpreter_tool", "image_generation_tool"})
"""What the types of contents begin with that tell of calls which the provider runs itself."""
_lanes: Final[WeakKeyDictionary[Any, str]] = WeakKeyDictionary()
"""The lanes of agents that are tools, by the tasks in which they run."""


def source_of(agent: Any, *, context: Any = None) -> "AgentFrameworkSource | None":
    """Return the source of an agent; ``None`` for everything else.

    ``context`` is what the agent needs per request, as the source takes it.

    >>> def answers(agent: object) -> bool:
    ...     return source_of(agent) is not None
    """
    return AgentFrameworkSource(agent, context=context) if isinstance(agent, _package().BaseAgent) else None


def _package() -> Any:
    return imported("agent_framework", "agent-framework-core", "agent-framework")


class AgentFrameworkSource(FrameworkSource[Any]):
    """Answers turns with an agent.

    ``context`` are the arguments that tools get beside those of the model (``function_invocation_kwargs``): a mapping,
    or a function of the turn, async or not, that returns one. ``options`` are further arguments of ``run``, such as
    ``options`` or ``tools``, in the same way. The session is set here.

    >>> from typing import Any
    >>> def source(agent: Any) -> AgentFrameworkSource:  # for chat_response or ChatApp
    ...     return AgentFrameworkSource(agent, options={"options": {"temperature": 0}})
    """

    context_argument = "function_invocation_kwargs"

    def __init__(self, agent: Any, *, options: Options = NO_OPTIONS, context: Any = None) -> None:
        super().__init__(options=options, context=context)
        self._agent = agent
        self.adapter = AgentFrameworkAdapter
        self.info = AgentInfo(_FRAMEWORK, agent.name)

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Run the agent on the chat, or resume the session that waits for the turn's approvals."""
        states, handle = current_context().states, conversation.state_handle(turn, _FRAMEWORK)
        state = await states.take_state(handle)  # also if another message supersedes it
        if turn.approvals:
            session, messages = _resumed(state, turn)
        else:
            session, messages = self._agent.create_session(), to_agent_framework(conversation.history(turn))
        sub_agents.begin_sub_agents()
        run = self._agent.run(messages, stream=True, session=session, **await self.arguments(turn))
        requests: list[Any] = []
        async for update in run:
            event = update.to_dict()
            requests += (each for each in event["contents"] if each["type"] == "function_approval_request")
            yield event
        response = await run.get_final_response()
        if requests:
            pause = {"session": session.to_dict(), "requests": requests}
            await states.keep_state(handle, json.dumps(pause).encode())
        if (output := response.value) is not None:
            yield {
                "type": _OUTPUT,
                "output": output.model_dump(mode="json") if hasattr(output, "model_dump") else output,
            }


def _resumed(state: bytes | None, turn: Turn) -> tuple[Any, list[Any]]:
    """Return the session that waits, and the message that answers it. An approval without an answer is denied.

    Raise PublicError if no session waits.
    """
    if state is None:
        raise PublicError(conversation.PAUSE_IS_GONE)
    package, pause = _package(), json.loads(state)
    approved = {answer.tool_call_id: answer.approved for answer in turn.approvals}
    answers = [
        request.to_function_approval_response(approved.get(request.function_call.call_id, False))
        for request in map(package.Content.from_dict, pause["requests"])
    ]
    messages = [package.Message("user", answers)]
    for output in turn.tool_outputs:
        value = output.output if output.error_text is None else output.error_text
        messages.append(package.Message("tool", [_function_result(output.tool_call_id, _text(value))]))
    return package.AgentSession.from_dict(pause["session"]), messages


class AgentFrameworkAdapter:
    """Turns the updates of one run into parts.

    ``known_calls`` are the calls that the page has already, when a session is resumed; ``denied`` are those that a
    person has denied, with the reasons.

    >>> adapter = AgentFrameworkAdapter()
    >>> list(adapter.feed({"role": "assistant", "contents": [{"type": "text", "text": "Hello"}]}))
    [Step(leaves_calls=False, lane=''), Text(text='Hello', provider_metadata=None, id=None, lane='')]
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:
        self._known_calls = set(known_calls)
        self._denied = denied
        self._inputs: dict[str, StreamedCall] = {}
        self._open: set[str] = set()
        self._appended: set[str] = set()
        self._author: str | None = None
        self._is_step_open = False
        self._waits = False
        self._usage: Mapping[str, int] | None = None
        self._reason: str | None = None

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an update becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an update of another kind.
        """
        read: Mapping[str, Any] = event if isinstance(event, Mapping) else event.to_dict()
        if read.get("type") == _OUTPUT:
            yield Data("output", read["output"])
        elif "contents" not in read:
            raise UnknownEvent(str(read.get("type")))
        elif read.get("role") == "tool":
            self._is_step_open, self._reason = False, None
            for content in read["contents"]:
                yield from self._content(content)
        else:
            self._note_author(read.get("author_name"))
            for content in read["contents"]:
                if content["type"] not in ("usage", "function_approval_request"):
                    yield from self._begin()
                yield from self._content(content)
            if read.get("finish_reason"):
                self._reason = read["finish_reason"]
                yield from self._end_calls()

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of the run. A run whose last answer has no reason to end is not complete."""
        if error is not None:
            return
        if self._reason is None and not self._waits:
            yield Error(conversation.INCOMPLETE)
            return
        if self._waits:  # calls beside those that wait run later; pages wait until all calls are settled
            yield from (ToolResult(call_id, _WAITS, preliminary=True) for call_id in sorted(self._open))
        reason = None if self._waits else conversation.finish_reason(self._reason)
        yield conversation.finish(reason, self._usage)

    def _note_author(self, name: str | None) -> None:
        """Let a step begin with the first words of another agent: those of a workflow speak in turn."""
        if name is not None and name != self._author:
            self._author, self._is_step_open = name, False

    def _begin(self) -> Iterator[Part]:
        if not self._is_step_open:
            self._is_step_open, self._reason = True, None
            self._appended.clear()
            yield Step()

    def _content(self, content: Mapping[str, Any]) -> Iterator[Part]:
        match content["type"]:
            case "text" if self._is_new(content):
                yield Text(content["text"])
            case "text_reasoning" if self._is_new(content):
                yield Reasoning(content["text"])
            case "function_call":
                yield from self._call(content)
            case "function_result":
                yield from self._result(content)
            case "function_approval_request":
                yield from self._question(content["function_call"])
            case "usage":
                used = content["usage_details"]
                self._usage = conversation.usage(used.get("input_token_count"), used.get("output_token_count"))
            case "data" | "uri":
                yield File(content["uri"], content.get("media_type") or "application/octet-stream")
            case kind if kind.removesuffix("_call").removesuffix("_result") in _PROVIDED:
                yield from self._provided(kind, content)

    def _is_new(self, content: Mapping[str, Any]) -> bool:
        """Return whether a content has text that was not streamed."""
        key = f"{content['type']} {content.get('id')}"
        if not content.get("text") or (content.get("merge_mode") == "replace" and key in self._appended):
            return False
        self._appended.add(key)
        return True

    def _call(self, content: Mapping[str, Any]) -> Iterator[Part]:
        """Yield the input of a call as it is streamed. It is complete when the model's answer ends."""
        call_id, arguments = content["call_id"], content.get("arguments")
        if call_id in self._known_calls:
            return
        if call_id not in self._inputs:
            self._inputs[call_id] = StreamedCall(call_id, content["name"])
        if content.get("merge_mode") == "replace" and self._inputs[call_id].length:
            return
        yield from self._inputs[call_id].feed(arguments if isinstance(arguments, str) else _text(arguments or {}))

    def _end_calls(self) -> Iterator[Part]:
        for call_id, call in self._inputs.items():
            self._known_calls.add(call_id)
            self._open.add(call_id)
            yield call.whole()
        self._inputs = {}

    def _result(self, content: Mapping[str, Any]) -> Iterator[Part]:
        yield from self._end_calls()
        call_id, result = content["call_id"], content.get("result")
        self._open.discard(call_id)
        if call_id in self._denied:
            yield ToolDenied(call_id, self._denied[call_id])
        elif content.get("exception"):
            yield ToolError(call_id, conversation.TOOL_FAILED)
        else:
            yield ToolResult(call_id, conversation.parsed_result(result) if isinstance(result, str) else result)

    def _question(self, call: Mapping[str, Any]) -> Iterator[Part]:
        yield from self._end_calls()
        self._waits = True
        self._open.discard(call["call_id"])
        yield ApprovalRequest(f"approval-{call['call_id']}", call["call_id"])

    def _provided(self, kind: str, content: Mapping[str, Any]) -> Iterator[Part]:
        """Yield a call that the provider runs, or its result; one of an MCP server with the name of the server."""
        call_id = content["call_id"]
        if kind.endswith("_result"):
            yield ToolResult(call_id, _provided_output(content), provider_executed=True)
            return
        arguments = content.get("arguments") or {}
        tool_input = conversation.parsed_result(arguments) if isinstance(arguments, str) else arguments
        name = content.get("tool_name") or kind.removesuffix("_tool_call")
        server = content.get("server_name")
        title = None if server is None else f"{server}: {name}"
        yield ToolCall(call_id, name, tool_input, dynamic=server is not None, provider_executed=True, title=title)


def show_sub_agent(update: Any) -> None:
    """Show what an agent that is a tool says while it works, in a separate lane.

    >>> def tool(researcher):
    ...     return researcher.as_tool(stream_callback=show_sub_agent)
    """
    # The framework does not say which call an update belongs to, but each call runs in a separate task.
    lane = _lanes.setdefault(asyncio.current_task(), new_id())
    adapter, speaker = sub_agents.sub_agent(update.author_name or "agent", lane, AgentFrameworkAdapter)
    sub_agents.show(speaker, adapter, update)


def _provided_output(content: Mapping[str, Any]) -> Any:
    output = content.get("result", content.get("output", content.get("outputs")))
    if isinstance(output, list) and len(output) == 1 and output[0].get("type") == "text":
        return conversation.parsed_result(output[0]["text"])
    return output


def parts(updates: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function.

    >>> from usechat.testing import AgentClient
    >>> async def run(text):  # instead of agent.run(text, stream=True)
    ...     said = [{"type": "text", "text": f"You said {text}."}]
    ...     yield {"role": "assistant", "contents": said, "finish_reason": "stop"}
    >>> async def answer(turn):
    ...     async for part in parts(run(turn.text)):
    ...         yield part
    >>> with AgentClient(answer) as client:
    ...     client.ask("Hello").text
    'You said Hello.'
    """
    return parts_of(updates, AgentFrameworkAdapter())


def tools_of(agent: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name and the input schema of each function tool of an agent, for `usechat types`."""
    for tool in agent.default_options.get("tools") or ():
        if isinstance(tool, _package().FunctionTool):
            yield tool.name, tool.parameters(), None


# History.


def to_agent_framework(messages: Iterable[ModelMessage]) -> list[Any]:
    """Return model messages as those of the Agent Framework. Call ``repair_messages`` first.

    Reasoning, system messages, calls that a provider ran itself and their results are left out.

    >>> from usechat import model_messages, repair_messages
    >>> def history(turn):
    ...     return to_agent_framework(repair_messages(model_messages(turn.messages)))
    """
    new = _package().Message
    converted = []
    for message in conversation.without_provider_calls(messages):
        contents = [content for part in message["content"] for content in _contents(part)]
        if contents:
            converted.append(new(message["role"], contents))
    return converted


def _contents(part: Any) -> Iterator[Any]:
    content = _package().Content
    match part["type"]:
        case "text" if part["text"].strip():
            yield content.from_text(part["text"])
        case "tool-call":
            call_id = part["toolCallId"]
            # With the id that OpenAI gave to the item, it would want the reasoning back that came with it.
            item = {"openai": {"item_id": f"fc_usechat_{call_id}"}}
            arguments = _text(part.get("input") or {})
            yield content.from_function_call(call_id, part["toolName"], arguments=arguments, additional_properties=item)
        case "tool-result":
            yield _function_result(part["toolCallId"], conversation.result_text(part["output"]))
        case "file":
            file = model_files.model_file(part)
            if (text := file.text) is not None:
                yield content.from_text(text)
            elif file.data is None:
                yield content.from_uri(file.url, media_type=file.media_type, name=file.name)
            else:
                yield content.from_data(file.data, file.media_type, name=file.name)


def _function_result(call_id: str, text: str) -> Any:
    return _package().Content.from_function_result(call_id, result=text)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json_text(json_value(value))
