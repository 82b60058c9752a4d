"""Agents of smolagents as chats.

A smolagents agent holds one conversation and answers one question at a time, so it is never shared: each turn gets a
copy, which shares the model and the tools. :class:`SmolagentsSource` takes a function that makes an agent, and calls it
for each turn.

**Events** are those of ``agent.run(…, stream=True)``, a generator that runs in a thread. What the model says before it
calls a tool is reasoning; the answer is the argument of the tool ``final_answer``, which is streamed if the agent has
``stream_outputs=True``. The code of a ``CodeAgent`` is a call of the tool ``python_interpreter``.

**History.** The agent gets the whole chat in every turn, as steps of its memory.
"""

import copy
import gc
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
from contextlib import aclosing, suppress
from typing import Any, Final

from usechat.adapters import conversation, model_files
from usechat.adapters.framework import NO_OPTIONS, FrameworkSource, Options, StreamedCall, emitted, for_turn, imported
from usechat.errors import UnknownEvent
from usechat.protocol.model_messages import ModelMessage
from usechat.protocol.partial_json import parse_partial_json
from usechat.protocol.parts import (
    Data,
    Error,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolError,
    ToolResult,
)
from usechat.protocol.releases import NEWEST
from usechat.protocol.values import json_value
from usechat.sources import parts_of
from usechat.turn import AgentInfo, Turn, current_context

__all__ = ["SmolagentsAdapter", "SmolagentsSource", "parts", "source_of", "to_smolagents"]

_FRAMEWORK: Final = "smolagents"
_FINAL: Final = "final_answer"
"""The tool whose argument is the answer."""
_CODE: Final = "python_interpreter"


def source_of(agent: Any, *, context: Any = None) -> "SmolagentsSource | None":
    """Return the source of an agent, which is copied for each turn; ``None`` for everything else.

    ``context`` is what the agent needs per request, as the source takes it.

    >>> def answers(agent: object) -> bool:
    ...     return source_of(agent) is not None
    """
    if not isinstance(agent, _smolagents().MultiStepAgent):
        return None

    async def make(_turn: Turn) -> Any:
        return _copied(agent)

    make.__name__ = agent.name or type(agent).__name__
    return SmolagentsSource(make, context=context)


def _copied(agent: Any) -> Any:
    """Return an agent that shares model and tools with another one, and nothing that a conversation changes."""
    copied = copy.copy(agent)
    copied.state = dict(agent.state)
    copied.memory = type(agent.memory)(agent.system_prompt)
    copied.memory.steps = list(agent.memory.steps)
    copied.managed_agents = {name: _copied(each) for name, each in agent.managed_agents.items()}
    if hasattr(agent, "python_executor"):
        copied.python_executor = copied.create_python_executor()
    return copied


def _smolagents(module: str = "smolagents") -> Any:
    return imported(module, "smolagents", "smolagents")


class SmolagentsSource(FrameworkSource[Any]):
    """Answers each turn with an agent that a function makes for it, from the turn; it may be async.

    ``context`` are the ``additional_args`` of a run: a mapping, or a function of the turn, async or not, that returns
    one. ``options`` are further arguments of ``run``, such as ``max_steps``, in the same way.
    Steps that the agent's memory was made with stand before the chat.

    >>> @SmolagentsSource
    ... def agent(turn):  # `usechat serve app:agent`, chat_response and ChatApp take it
    ...     from smolagents import OpenAIModel, ToolCallingAgent
    ...
    ...     return ToolCallingAgent(tools=[], model=OpenAIModel("gpt-5-mini"), stream_outputs=True, verbosity_level=0)
    """

    context_argument = "additional_args"
    continues = False  # a run takes a question: it cannot begin behind the result of a tool

    def __init__(self, make: Callable[[Turn], Any], *, options: Options = NO_OPTIONS, context: Any = None) -> None:
        super().__init__(options=options, context=context)
        self._make = make
        self.adapter = SmolagentsAdapter
        self.info = AgentInfo(_FRAMEWORK, getattr(make, "__name__", None))

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Run the agent on the chat, in a thread. Closing it interrupts the agent after the event that it works on."""
        arguments = await self.arguments(turn)
        *before, last = to_smolagents(conversation.history(turn))
        stopped = threading.Event()
        agent = await for_turn(self._make, turn)
        agent.memory.steps += before

        def iterate(emit: Callable[[Any], None]) -> None:
            run_arguments = {"images": last.task_images, **arguments, "stream": True, "reset": False}
            events = agent.run(last.task, **run_arguments)
            try:
                for event in events:
                    if stopped.is_set():
                        return
                    emit(event)
            finally:
                _close(events)
                if stopped.is_set():
                    _collect()

        async def run(emit: Callable[[Any], None]) -> None:
            try:
                await current_context().threads.run(iterate, emit)
            finally:
                stopped.set()
                agent.interrupt()

        async with aclosing(emitted(run)) as events:
            async for event in events:
                yield event


def _collect() -> None:
    """Close the stream of the model. OpenAI's client has it in a reference cycle, so it is open until it is collected.

    The stream is young as a rule, and young objects are collected in milliseconds.
    """
    for generation in range(3):
        gc.collect(generation)


def _close(events: Any) -> None:
    """Close the generator of a run. It yields a last event when it is closed, so it is closed twice."""
    with suppress(RuntimeError):
        events.close()
    events.close()


class SmolagentsAdapter:
    """Turns the events of one run into parts.

    ``known_calls`` and ``denied`` are those of every adapter, and not used: smolagents has no calls that wait.

    >>> from types import SimpleNamespace
    >>> class FinalAnswerStep(SimpleNamespace): ...
    >>> list(SmolagentsAdapter().feed(FinalAnswerStep(output="Hello")))[0]
    Text(text='Hello', provider_metadata=None, id=None, lane='')
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:  # noqa: ARG002
        self._inputs: dict[int, StreamedCall] = {}
        self._open: dict[str, str] = {}
        """The calls without a result, with the names of their tools."""
        self._answer_text = ""
        self._tokens = [0, 0]
        self._has_step = False
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind.
        """
        match type(event).__name__:
            case "ChatMessageStreamDelta":
                yield from self._delta(event)
            case "ToolCall":
                yield from self._call(event)
            case "ToolOutput":
                if self._open.pop(event.id, _FINAL) != _FINAL:
                    yield ToolResult(event.id, _value(event.output))
            case "ActionStep":
                yield from self._step(event)
            case "PlanningStep":
                self._count(event)
            case "FinalAnswerStep":
                yield from self._answer(event.output)
            case "ActionOutput":
                pass  # the step and the final answer say it again
            case other:
                raise UnknownEvent(other)

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a run that ended without a final answer."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _begin(self) -> Iterator[Part]:
        if not self._has_step:
            self._has_step = True
            yield Step()

    def _delta(self, delta: Any) -> Iterator[Part]:
        if delta.content:
            yield from self._begin()
            yield Reasoning(delta.content)
        for call in delta.tool_calls or ():
            yield from self._begin()
            tool_input = self._inputs.setdefault(call.index or 0, StreamedCall())
            tool_input.id = tool_input.id or call.id or ""
            tool_input.name = tool_input.name or (call.function and call.function.name) or ""
            arguments = call.function and call.function.arguments
            text = arguments if isinstance(arguments, str) else ""
            if tool_input.name == _FINAL:
                tool_input.add(text)
                yield from self._final_text(tool_input.text)
            else:
                yield from tool_input.feed(text)

    def _final_text(self, arguments: str) -> Iterator[Part]:
        """Yield what is new of the answer, whose JSON is not complete yet."""
        read = parse_partial_json(arguments, NEWEST[7])
        answer = read.get("answer") if isinstance(read, dict) else None
        if isinstance(answer, str) and answer.startswith(self._answer_text) and len(answer) > len(self._answer_text):
            yield Text(answer[len(self._answer_text) :])
            self._answer_text = answer

    def _call(self, call: Any) -> Iterator[Part]:
        if call.name == _FINAL:
            return
        yield from self._begin()
        self._open[call.id] = call.name
        arguments = call.arguments
        tool_input = {"code": arguments} if call.name == _CODE and isinstance(arguments, str) else arguments
        yield ToolCall(call.id, call.name, json_value({} if tool_input is None else tool_input))

    def _step(self, step: Any) -> Iterator[Part]:
        """Yield how the calls of a step ended that have no result: with the step's error, or with what code printed."""
        self._count(step)
        for call_id, name in self._open.items():
            if step.error is not None:
                yield ToolError(call_id, conversation.TOOL_FAILED)  # the error has the exception's text
            elif name == _CODE and not step.is_final_answer:
                yield ToolResult(call_id, step.observations)
            else:
                yield ToolResult(call_id, None)
        self._open.clear()
        self._inputs.clear()
        self._has_step = False

    def _count(self, step: Any) -> None:
        if step.token_usage is not None:
            self._tokens[0] += step.token_usage.input_tokens
            self._tokens[1] += step.token_usage.output_tokens

    def _answer(self, output: Any) -> Iterator[Part]:
        self._is_over = True
        if isinstance(output, (str, int, float)):
            if str(output) != self._answer_text:
                yield Text(str(output).removeprefix(self._answer_text))
        elif output is not None:
            yield Data("output", _value(output))
        yield conversation.finish("stop", conversation.usage(*self._tokens))  # it does not tell why a model ended


def _value(output: Any) -> Any:
    """Return an output as a JSON value; images and the like, which have none, as the name of their type."""
    if isinstance(output, str):
        return conversation.parsed_result(str(output))
    if isinstance(output, (dict, list, tuple, int, float, type(None))):
        return json_value(output)
    return {"type": type(output).__name__}


def parts(events: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function. ``SmolagentsSource(make).events(turn)`` gives the events.

    >>> async def answer(turn):
    ...     from smolagents import OpenAIModel, ToolCallingAgent
    ...
    ...     source = SmolagentsSource(lambda turn: ToolCallingAgent(tools=[], model=OpenAIModel("gpt-5-mini")))
    ...     async for part in parts(source.events(turn)):
    ...         yield part
    """
    return parts_of(events, SmolagentsAdapter())


# History.


def to_smolagents(messages: Iterable[ModelMessage]) -> list[Any]:
    """Return model messages as steps of an agent's memory. Call ``repair_messages`` first.

    The last message of the user becomes a ``TaskStep`` like all others. Images of the user are kept; other files are
    named in the text. Reasoning, calls that a provider ran itself and their results are left out.

    >>> from usechat import model_messages, repair_messages
    >>> def history(turn):
    ...     return to_smolagents(repair_messages(model_messages(turn.messages)))
    """
    memory = _smolagents("smolagents.memory")
    steps: list[Any] = []
    for message in conversation.without_provider_calls(messages):
        if message["role"] == "user":
            steps.append(_task(memory, message["content"]))
        elif message["role"] == "assistant":
            steps.append(_action(memory, len(steps), message))
        elif message["role"] == "tool" and steps and hasattr(steps[-1], "observations"):
            steps[-1].observations = "\n".join(result.text for result in conversation.contents_of(message).results)
    return steps


def _task(memory: Any, content: Iterable[Any]) -> Any:
    texts, images = [], []
    for part in content:
        if part["type"] == "text":
            texts.append(part["text"])
            continue
        file = model_files.model_file(part)
        if file.data is not None and file.media_type.startswith("image/"):
            images.append(_image(file.data))
        else:
            texts.append(file.text or f"{file.name or 'file'} ({file.media_type})")
    return memory.TaskStep(task="\n\n".join(texts), task_images=images or None)


def _image(data: bytes) -> Any:
    from io import BytesIO

    return imported("PIL.Image", "smolagents", "smolagents").open(BytesIO(data))


def _action(memory: Any, number: int, message: ModelMessage) -> Any:
    text, model_calls, _ = conversation.contents_of(message)
    calls = [memory.ToolCall(name=call.name, arguments=json_value(call.input), id=call.id) for call in model_calls]
    timing = _smolagents("smolagents.monitoring").Timing(start_time=0.0)
    return memory.ActionStep(step_number=number, timing=timing, model_output=text or None, tool_calls=calls or None)
