"""Agents, crews and flows of CrewAI as chats.

``usechat serve app:agent`` and ``chat_response(request, agent)`` take every ``Agent`` and ``Crew``, of which each turn
gets a copy, and every class that makes one: one marked with ``@CrewBase``, or its object, and one of a flow, of which
each turn gets an object. :class:`CrewAiSource` takes a function instead that makes an agent, a crew or a flow for each
turn: for those that remember, and for flows that need arguments.

**Events** are the frames of CrewAI's own event stream, as ``flow.astream(…)`` yields them, and at last the result. The
result repeats the text, and is read only as far as it was not streamed. CrewAI runs in a thread.

**History.** An agent gets the whole chat in every turn; a crew gets its texts, in ``crew_chat_messages``.
"""

import json
import threading
import traceback
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
from contextlib import ExitStack, aclosing
from typing import Any, Final

from usechat.adapters import conversation, model_files, sub_agents
from usechat.adapters.framework import (
    NO_OPTIONS,
    FrameworkSource,
    Options,
    StreamedCall,
    emitted,
    imported,
)
from usechat.errors import CannotAnswer, UnknownEvent
from usechat.protocol.model_messages import ModelMessage
from usechat.protocol.parts import (
    Data,
    Error,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolError,
    ToolInputError,
    ToolResult,
)
from usechat.protocol.values import json_value
from usechat.sources import parts_of
from usechat.turn import AgentInfo, Turn, current_context

__all__ = ["CrewAiAdapter", "CrewAiSource", "parts", "source_of", "to_crewai"]

_FRAMEWORK: Final = "crewai"
_READ: Final = frozenset(
    {
        "llm_call_completed",
        "llm_call_started",
        "llm_stream_chunk",
        "llm_thinking_chunk",
        "tool_usage_error",
        "tool_usage_finished",
        "tool_usage_started",
    }
)
_FIELDS: Final = (
    *("agent_id", "agent_role", "call_id", "chunk", "finish_reason", "output", "started_event_id"),
    *("tool_args", "tool_name", "usage"),
)
_NOT_SHOWN: Final = frozenset({"custom", "flow", "lifecycle", "messages"})
"""The channels whose frames a page does not need."""
_MARKS: Final = ("Thought:", "Action:", "Final Answer:")
_ANSWER: Final = "Final Answer:"
_PROOFS: Final = ("Action Input:", _ANSWER)
"""CrewAI reads marks only in an answer that has one of these. Otherwise ``Action: call your bank.`` is a plain text."""


class _StopRun(BaseException):
    """Ends a run whose turn was stopped. It is no ``Exception``, because CrewAI handles every ``Exception``."""


def source_of(target: Any, *, context: Any = None) -> "CrewAiSource | None":
    """Return the source of an agent, a crew, or a class that makes a crew or flow; ``None`` for everything else.

    ``context`` is what the agent needs per request, as the source takes it.

    Raises :class:`~usechat.errors.CannotAnswer` for a flow, an agent or a crew that chats cannot share, and for a class
    that makes no crew.

    >>> def answers(agent: object) -> bool:
    ...     return source_of(agent) is not None
    """
    crewai = _crewai()
    if isinstance(target, type):
        return _source_of_class(target, context)
    if getattr(target, "is_crew_class", False):
        return CrewAiSource(_crew_of(lambda: target, type(target).__name__), context=context)
    if isinstance(target, crewai.Flow):
        raise CannotAnswer(
            f"{type(target).__name__} is a flow of CrewAI, which holds one conversation, so chats cannot share it;"
            f" give its class, {type(target).__name__}, or a function that makes one:"
            f" CrewAiSource(lambda turn: {type(target).__name__}())"
        )
    return CrewAiSource(target, context=context) if isinstance(target, (crewai.Agent, crewai.Crew)) else None


def _source_of_class(target: type, context: Any) -> "CrewAiSource | None":
    """Return the source of a class marked with ``@CrewBase``, or of a class of a flow, which is made for each turn."""
    is_crew = getattr(target, "is_crew_class", False)
    if not is_crew and not issubclass(target, _crewai().Flow):
        return None
    if is_crew:
        return CrewAiSource(_crew_of(target, target.__name__), context=context)

    def make(_turn: Turn) -> Any:
        return target()

    make.__name__ = target.__name__
    return CrewAiSource(make, context=context)


def _crew_of(make: Callable[[], Any], name: str) -> Any:
    """Return the crew of an object that a class marked with ``@CrewBase`` makes."""
    try:
        return make().crew()
    except Exception as error:  # the code of the user may raise anything
        raise CannotAnswer(f"{name} made no crew: {type(error).__name__}: {error}") from error


def _crewai(module: str = "crewai") -> Any:
    return imported(module, "crewai", "crewai")


class CrewAiSource(FrameworkSource[Any]):
    """Answers each turn with a copy of an agent or crew, or with what a function makes of the turn.

    ``message`` names the input of a crew or flow that gets the text of the user; without it this is the only input that
    the texts of a crew have, and ``message`` in a flow. ``context`` and ``options`` are further inputs of a crew or
    flow, and further arguments of ``kickoff`` of an agent: a mapping, or a function of the turn, async or not, that
    returns one. Raises
    :class:`~usechat.errors.CannotAnswer` for an object that chats cannot share.

    >>> @CrewAiSource
    ... def agent(turn):  # `usechat serve app:agent`, chat_response and ChatApp take it
    ...     from crewai import Agent
    ...
    ...     return Agent(role="assistant", goal="Help.", backstory="Be brief.", llm="gpt-5-mini")
    """

    continues = False  # tools do not wait until their calls are stored; a crew or a flow begins again

    def __init__(
        self, agent: Any, *, message: str | None = None, options: Options = NO_OPTIONS, context: Any = None
    ) -> None:
        super().__init__(options=options, context=context)
        self._message = message
        self.adapter = CrewAiAdapter
        if callable(agent):
            self._make: Callable[[Turn], Any] = agent
            name = getattr(agent, "__name__", None)
        else:
            _check_shared(agent)
            if message is None and not options and context is None:
                _check_inputs(agent)
            self._make = lambda _turn: agent.copy()
            name = getattr(agent, "role", None) or getattr(agent, "name", None)
        self.info = AgentInfo(_FRAMEWORK, name)

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Run on the chat, in a thread. Closing it ends the run with the next event, such as a piece of text."""
        messages = to_crewai(conversation.history(turn))
        arguments = await self.arguments(turn)
        stopped = threading.Event()

        def run_in_thread(emit: Callable[[Any], None]) -> None:
            def sink(_source: Any, event: Any) -> None:
                if stopped.is_set():
                    raise _StopRun
                if event.type in _READ:
                    emit(_frame(event))

            try:
                emit({"result": self._run(self._make(turn), messages, arguments, sink)})
            except _StopRun as stop:
                _close_streams(stop)

        async def run(emit: Callable[[Any], None]) -> None:
            try:
                await current_context().threads.run(run_in_thread, emit)
            finally:
                stopped.set()

        async with aclosing(emitted(run)) as events:
            async for event in events:
                yield event

    def _run(self, target: Any, messages: list[Any], arguments: Mapping[str, Any], sink: Callable[..., None]) -> Any:
        """Run an agent, a crew or a flow; return its result. Call it in a copied context."""
        crewai = _crewai()
        _crewai("crewai.events.stream_context").add_stream_sink(sink)
        # Otherwise a terminal is asked whether traces may be shown, and the turn waits for the answer.
        _crewai("crewai.events.listeners.tracing.utils").set_suppress_tracing_messages(True)
        with ExitStack() as stack:
            for llm in _models(target):
                stack.enter_context(_crewai("crewai.llms.base_llm").call_stream_override(llm, True))
            if isinstance(target, crewai.Agent):
                return _result(target.kickoff(messages, **arguments))
            target.stream = False  # it would return an iterator
            text = str(messages[-1]["content"])
            if isinstance(target, crewai.Crew):
                names = {self._message} if self._message is not None else target.fetch_inputs() - {*arguments}
                inputs = {**dict.fromkeys(names, text), "crew_chat_messages": _chat(messages), **arguments}
            else:
                inputs = {self._message or "message": text, **arguments}
            return _result(target.kickoff(inputs=inputs))


def _close_streams(stop: BaseException) -> None:
    """Close the streams of models in the frames that an exception has left. CrewAI leaves those of OpenAI open."""
    for frame, _line in traceback.walk_tb(stop.__traceback__):
        for value in list(frame.f_locals.values()):
            if type(value).__name__ == "Stream":
                value.close()


def _check_shared(target: Any) -> None:
    """Raise ``CannotAnswer`` if chats cannot share copies of an agent or crew."""
    agents = getattr(target, "agents", None) or [target]
    if getattr(target, "memory", None) or any(getattr(agent, "memory", None) for agent in agents):
        problem = "has a memory, which would tell each chat what was said in the others"
    elif any(getattr(agent, "mcps", None) or getattr(agent, "apps", None) for agent in agents):
        problem = "has MCP servers or apps, which a copy of it has not"
    else:
        return
    raise CannotAnswer(
        f"this {type(target).__name__} of CrewAI {problem};"
        f" give a function that makes one for each turn: CrewAiSource(lambda turn: {type(target).__name__}(…))"
    )


def _check_inputs(target: Any) -> None:
    """Raise ``CannotAnswer`` for a crew with several inputs, of which any may be the message."""
    names = sorted(target.fetch_inputs()) if hasattr(target, "fetch_inputs") else []
    if len(names) > 1:
        raise CannotAnswer(
            f"this crew has the inputs {', '.join(names)}; name the one that gets the message of the user, and give"
            " the others: CrewAiSource(crew, message='…', options={…})"
        )


def _models(target: Any) -> Iterator[Any]:
    """Yield the models that stream. CrewAI drops the calls of tools when it streams OpenAI Responses."""
    base = _crewai().BaseLLM
    agents = [target, getattr(target, "manager_agent", None), *(getattr(target, "agents", None) or ())]
    for llm in [getattr(target, "manager_llm", None), *(getattr(agent, "llm", None) for agent in agents)]:
        if isinstance(llm, base) and getattr(llm, "api", None) != "responses":
            yield llm


def _chat(messages: Iterable[Mapping[str, Any]]) -> str:
    """Return the texts of a chat in the form in which CrewAI passes ``crew_chat_messages`` to a crew."""
    texts = [{"role": each["role"], "content": each["content"]} for each in messages if each["role"] != "tool"]
    return json.dumps([each for each in texts if each["content"]])


def _frame(event: Any) -> Any:
    """Return an event as a public frame of CrewAI, with what the adapter reads."""
    data = {name: value for name in _FIELDS if (value := getattr(event, name, None)) is not None}
    if (call := getattr(event, "tool_call", None)) is not None:
        data["tool_call"] = call.model_dump()
    if isinstance(response := getattr(event, "response", None), str):
        data["response"] = response
    if getattr(event, "failure", None) is not None:
        data["failure"] = True
    channel = "llm" if event.type.startswith("llm_") else "tools"
    frame = _crewai("crewai.types.streaming").StreamFrame
    return frame(id=event.event_id, type=event.type, channel=channel, timestamp=event.timestamp, data=data)


def _result(output: Any) -> dict[str, Any]:
    """Return what a run gave: a text, and a value if it is structured."""
    text = output if isinstance(output, str) else getattr(output, "raw", None)
    model = getattr(output, "pydantic", None)
    value = getattr(output, "json_dict", None) if model is None else model.model_dump(mode="json")
    return {"text": text, "value": json_value(output) if text is None else value}


class CrewAiAdapter:
    """Turns the frames and the result of one run into parts. Each further agent that speaks is a lane.

    ``known_calls`` and ``denied`` are those of every adapter, and not used: no calls wait.

    >>> list(CrewAiAdapter().feed({"result": {"text": "Hello", "value": None}}))
    [Text(text='Hello', provider_metadata=None, id=None, lane='')]
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:  # noqa: ARG002
        self._agents: dict[str, _Speaker] = {}
        self._open: dict[str, str] = {}
        """The calls without a result, by the event with which they began."""
        self._last_text = ""
        self._tokens = [0, 0]
        self._has_usage = False
        self._reason: str | None = None
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that a frame, or the result, becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for a frame of another kind.
        """
        kind = str(getattr(event, "type", None) or type(event).__name__)
        if isinstance(event, Mapping) and "result" in event:
            self._is_over = True
            yield from self._result(event["result"])
        elif kind in _READ:
            self._is_over = False
            if kind == "llm_call_completed":
                self._count(event.data)
            speaker = self._speaker(kind, event.data)
            if speaker is not None:
                yield from speaker.in_lane(self._spoken(speaker, kind, event))
        elif kind == "flow_finished":  # an agent is a flow, too, and more may follow
            self._is_over = True
        elif getattr(event, "channel", None) not in _NOT_SHOWN and not kind.startswith(("llm_", "tool_")):
            raise UnknownEvent(kind)

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a run."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)
        elif error is None:
            reason = conversation.finish_reason(self._reason)
            used = conversation.usage(*self._tokens) if self._has_usage else None
            yield conversation.finish("stop" if reason in (None, "tool-calls") else reason, used)

    def _count(self, data: Mapping[str, Any]) -> None:
        self._reason = data.get("finish_reason") or self._reason
        used = data.get("usage")
        if used:
            self._has_usage = True
            self._tokens[0] += used.get("prompt_tokens") or used.get("input_tokens") or 0
            self._tokens[1] += used.get("completion_tokens") or used.get("output_tokens") or 0

    def _speaker(self, kind: str, data: Mapping[str, Any]) -> "_Speaker | None":
        """Return who speaks: the first agent is the chat's own, each other one has a lane.

        Calls of the model without an agent summarize, or look for memories. Tools without one are those of the last.
        """
        if data.get("agent_id") is None:
            return next(reversed(self._agents.values()), None) if kind.startswith("tool_") else None
        agent = str(data["agent_id"])
        if agent not in self._agents:
            label = sub_agents.SubAgent(str(data.get("agent_role") or "agent"), agent) if self._agents else None
            self._agents[agent] = _Speaker(label)
        return self._agents[agent]

    def _spoken(self, speaker: "_Speaker", kind: str, event: Any) -> Iterator[Part]:
        data = event.data
        match kind:
            case "llm_call_started":
                yield from speaker.begin_call()
                self._last_text = ""
            case "llm_stream_chunk" if data.get("tool_call") is not None:
                yield from speaker.input_delta(data["tool_call"])
            case "llm_stream_chunk":
                yield from speaker.text(str(data.get("chunk") or ""))
            case "llm_thinking_chunk":
                yield from speaker.thought(str(data.get("chunk") or ""))
            case "llm_call_completed":
                yield from speaker.end_call(data.get("response"))
            case "tool_usage_started":
                call = speaker.called(event.id, data)
                self._open[event.id] = call.tool_call_id
                yield from speaker.begin_step()
                yield call
            case _:
                yield from self._ended(data, failed=kind == "tool_usage_error" or bool(data.get("failure")))
        self._last_text = speaker.full_text

    def _ended(self, data: Mapping[str, Any], *, failed: bool) -> Iterator[Part]:
        call_id = self._open.pop(str(data.get("started_event_id")), None)
        if call_id is not None:
            text = conversation.TOOL_FAILED  # the error is the exception's text
            yield (
                ToolError(call_id, text)
                if failed
                else ToolResult(call_id, conversation.printed_result(data.get("output")))
            )

    def _result(self, result: Mapping[str, Any]) -> Iterator[Part]:
        """Yield what was not streamed of a result: a text that a guardrail has changed, or the result of a tool."""
        text, value = result["text"], result["value"]
        if text and not self._last_text.rstrip().endswith(text.strip()):
            if self._agents:
                yield Step()
            yield Text(text)
        if value is not None:
            yield Data("output", value)


class _Speaker:
    """One agent of a run: its lane, its step, what it says, and the calls that its model writes."""

    def __init__(self, label: sub_agents.SubAgent | None) -> None:
        self._label = label
        self._has_step = False
        self._speech = _Speech()
        self._inputs: dict[int, StreamedCall] = {}
        """The calls that the model has made and that have not begun, by their numbers."""

    @property
    def full_text(self) -> str:
        return self._speech.full_text

    def in_lane(self, parts: Iterable[Part]) -> Iterator[Part]:
        return self._label.parts(parts) if self._label is not None else iter(parts)

    def begin_step(self) -> Iterator[Part]:
        if not self._has_step:
            self._has_step = True
            yield Step()

    def begin_call(self) -> Iterator[Part]:
        """Begin a call of the model. Calls of tools that did not begin until then had an input that cannot be read."""
        for tool_input in self._inputs.values():
            yield ToolInputError(tool_input.id, tool_input.name, conversation.INVALID_INPUT, tool_input.text)
        self._inputs.clear()
        self._speech = _Speech()
        self._has_step = False

    def text(self, piece: str) -> Iterator[Part]:
        yield from self._in_step(self._speech.feed(piece))

    def thought(self, piece: str) -> Iterator[Part]:
        yield from self._in_step([Reasoning(piece)] if piece else ())

    def end_call(self, response: Any) -> Iterator[Part]:
        """End a call of the model, whose text is whole if it was not streamed."""
        if isinstance(response, str) and not self._speech.has_begun:
            yield from self.text(response)
        yield from self._in_step(self._speech.end())

    def input_delta(self, call: Mapping[str, Any]) -> Iterator[Part]:
        """Yield what is new of the input of a call: each event has all of it so far."""
        tool_input, function = self._inputs.setdefault(call["index"], StreamedCall()), call["function"]
        tool_input.id = tool_input.id or call.get("id") or ""
        tool_input.name = tool_input.name or function.get("name") or ""
        yield from self._in_step(tool_input.feed((function.get("arguments") or "")[tool_input.length :]))

    def called(self, event_id: str, data: Mapping[str, Any]) -> ToolCall:
        """Return the call that has begun: the one that the model has written, as far as it was streamed."""
        name, arguments = str(data["tool_name"]), data.get("tool_args")
        tool_input = json_value(
            conversation.parsed_result(arguments) if isinstance(arguments, str) else arguments or {}
        )
        named = [index for index, candidate in self._inputs.items() if candidate.name == name]
        same = [index for index in named if conversation.parsed_result(self._inputs[index].text or "{}") == tool_input]
        index = next(iter(same or named), None)
        return ToolCall(event_id if index is None else self._inputs.pop(index).id, name, tool_input)

    def _in_step(self, parts: Iterable[Part]) -> Iterator[Part]:
        for part in parts:
            yield from self.begin_step()
            yield part


class _Speech:
    """Tells the thoughts of an answer from its text: a model without function calling is asked to mark them.

    It writes ``Thought: …``, ``Action: …`` and ``Action Input: …``, or ``Final Answer: …``. Until one of the last two
    comes, a text that begins like this may be a plain answer, so it is held back.
    """

    def __init__(self) -> None:
        self.full_text = ""
        self.has_begun = False
        self._buffer = ""
        self._is_marked: bool | None = None
        self._is_proved = False
        self._is_answer = False

    def feed(self, piece: str) -> Iterator[Part]:
        """Yield what is known to be thought or text; the beginning of a mark is held back."""
        self.has_begun = self.has_begun or bool(piece)
        self._buffer += piece
        if self._is_marked is None:
            start = self._buffer.lstrip()
            if any(mark.startswith(start) for mark in _MARKS):
                return
            self._is_marked = start.startswith(_MARKS)
        if self._is_marked and not self._is_proved:
            self._is_proved = any(proof in self._buffer for proof in _PROOFS)
            if not self._is_proved:
                return
        if self._is_marked and not self._is_answer:
            yield from self._thought()
        else:
            yield from self._text()

    def end(self) -> Iterator[Part]:
        """Yield what was held back."""
        rest, self._buffer = self._buffer, ""
        if rest:
            self.full_text += "" if self._is_proved else rest
            yield Reasoning(rest) if self._is_proved else Text(rest)

    def _thought(self) -> Iterator[Part]:
        thought, mark, rest = self._buffer.partition(_ANSWER)
        lengths = range(min(len(_ANSWER), len(thought)), 0, -1)
        overlap = 0 if mark else next((length for length in lengths if thought.endswith(_ANSWER[:length])), 0)
        self._buffer = rest if mark else thought[len(thought) - overlap :]
        if text := thought[: len(thought) - overlap]:
            yield Reasoning(text)
        if mark:
            self._is_answer = True
            yield from self._text()

    def _text(self) -> Iterator[Part]:
        text = self._buffer.lstrip() if self._is_answer and not self.full_text else self._buffer
        self._buffer = ""
        if text:
            self.full_text += text
            yield Text(text)


def parts(events: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function: of ``flow.astream(…)``, or of a source's events.

    >>> from types import SimpleNamespace
    >>> from usechat.testing import AgentClient
    >>> async def run(text):  # instead of MyFlow().astream(inputs={"message": text})
    ...     yield SimpleNamespace(type="llm_stream_chunk", data={"agent_id": "a", "chunk": text})
    ...     yield SimpleNamespace(type="flow_finished", data={})
    >>> async def answer(turn):
    ...     async for part in parts(run(turn.text)):
    ...         yield part
    >>> with AgentClient(answer) as client:
    ...     client.ask("Hello").text
    'Hello'
    """
    return parts_of(events, CrewAiAdapter())


def tools_of(agent: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name and the input schema of each tool of an agent or crew, for `usechat types`."""
    sanitized = _crewai("crewai.utilities.string_utils").sanitize_tool_name
    for owner in (agent, *(getattr(agent, "agents", None) or ()), *(getattr(agent, "tasks", None) or ())):
        for tool in getattr(owner, "tools", None) or ():
            yield sanitized(tool.name), tool.args_schema.model_json_schema(), None


# History.


def to_crewai(messages: Iterable[ModelMessage]) -> list[dict[str, Any]]:
    """Return model messages as those of ``agent.kickoff``. Call ``repair_messages`` first.

    Text files of the user are added to the text, other files are named in it. Reasoning, calls that a provider ran
    itself and their results are left out.

    >>> to_crewai([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    [{'role': 'user', 'content': 'Hi'}]
    """
    return [each for message in conversation.without_provider_calls(messages) for each in _converted(message)]


def _converted(message: ModelMessage) -> Iterator[dict[str, Any]]:
    content: Any = message["content"]
    if message["role"] == "user":
        yield {"role": "user", "content": "\n\n".join(_user_text(part) for part in content)}
    elif message["role"] == "assistant":
        text, model_calls, _ = conversation.contents_of(message)
        calls = [_call(call) for call in model_calls]
        yield {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
    elif message["role"] == "tool":
        for result in conversation.contents_of(message).results:
            yield {"role": "tool", "tool_call_id": result.call_id, "name": result.name, "content": result.text}


def _call(call: conversation.HistoryCall) -> dict[str, Any]:
    arguments = json.dumps(json_value(call.input))
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _user_text(part: Any) -> str:
    if part["type"] == "text":
        return str(part["text"])
    file = model_files.model_file(part)
    return file.text or f"{file.name or 'file'} ({file.media_type})"
