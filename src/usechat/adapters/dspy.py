"""Programs of DSPy as chats.

``usechat serve app:program`` and ``chat_response(request, program)`` take every ``Module`` with one signature, such as
``ReAct``, ``ChainOfThought`` and ``Predict``; :class:`DspySource` takes the names of the fields of any other.

**Fields.** The first input field that is a text gets the message of the user, and one of the type ``dspy.History`` the
chat so far. The last output field is the answer; ``reasoning`` and ``next_thought`` are reasoning.

**Events** are those of ``dspy.streamify``: pieces of fields, and at last the prediction, which is read only if nothing
was streamed. A callback reports tool calls, since DSPy streams only sentences about them.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Collection, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Final

from usechat.adapters import conversation, model_files
from usechat.adapters.framework import NO_OPTIONS, FrameworkSource, Options, imported
from usechat.errors import CannotAnswer, UnknownEvent
from usechat.protocol.model_messages import ModelMessage
from usechat.protocol.parts import Data, Error, Part, Reasoning, Step, Text, ToolCall, ToolError, ToolResult
from usechat.protocol.values import json_value
from usechat.sources import parts_of
from usechat.turn import AgentInfo, Turn

__all__ = ["DspyAdapter", "DspySource", "parts", "source_of", "to_dspy"]

_FRAMEWORK: Final = "dspy"
_THOUGHTS: Final = frozenset({"reasoning", "next_thought"})
_NOT_SHOWN: Final = _THOUGHTS | {"trajectory"}
_FINISH: Final = "finish"
"""The tool with which ``ReAct`` ends its loop."""


def source_of(program: Any, *, context: Any = None) -> "DspySource | None":
    """Return the source of a program; ``None`` for everything else.

    ``context`` is what the agent needs per request, as the source takes it.

    >>> def answers(program: object) -> bool:
    ...     return source_of(program) is not None
    """
    return DspySource(program, context=context) if isinstance(program, _dspy().Module) else None


def _dspy(module: str = "dspy") -> Any:
    return imported(module, "dspy", "dspy")


class DspySource(FrameworkSource[Any]):
    """Answers turns with a program.

    ``question`` and ``answer`` name the fields of a program that has no signature. ``context`` and ``options`` are
    further inputs of the program: a mapping, or a function of the turn, async or not, that returns one. Raises
    :class:`~usechat.errors.CannotAnswer` if the fields cannot be found.

    >>> from typing import Any
    >>> def source(program: Any) -> DspySource:  # for chat_response or ChatApp
    ...     return DspySource(program, context=lambda turn: {"language": "French"})
    """

    continues = False  # a program begins again, and does not wait until its calls are stored

    def __init__(
        self,
        program: Any,
        *,
        question: str | None = None,
        answer: str | None = None,
        options: Options = NO_OPTIONS,
        context: Any = None,
    ) -> None:
        super().__init__(options=options, context=context)
        signature = _signature(program)
        inputs = {} if signature is None else signature.input_fields
        outputs = {} if signature is None else signature.output_fields
        self._program = program
        self._history = next((name for name, field in inputs.items() if field.annotation is _dspy().History), None)
        self._question = question or next((name for name, field in inputs.items() if field.annotation is str), None)
        self._answer = answer or next(reversed(outputs), None)
        if self._question is None or self._answer is None:
            raise CannotAnswer(
                f"{type(program).__name__} has no signature with a text as input and an output;"
                " name its fields: DspySource(program, question='…', answer='…')"
            )
        given = {self._question, self._history, *(() if callable(options) else options)}
        others = [name for name, field in inputs.items() if name not in given and field.is_required()]
        if others and question is None and context is None and not callable(options):
            raise CannotAnswer(
                f"{type(program).__name__} has the inputs {', '.join([self._question, *others])}; name the one that the"
                " user writes, and give the others: DspySource(program, question='…', context={…})"
            )
        self.adapter = DspyAdapter
        self.info = AgentInfo(_FRAMEWORK, type(program).__name__)

    async def events(self, turn: Turn) -> AsyncGenerator[Any]:
        """Run the program on the chat. Closing it cancels the run if the program is async, as those of DSPy are."""
        dspy = _dspy()
        *before, last = to_dspy(conversation.history(turn), str(self._question), str(self._answer))
        inputs = {str(self._question): last[str(self._question)], **await self.arguments(turn)}
        if self._history is not None:
            inputs.setdefault(self._history, dspy.History(messages=before))
        late: deque[Mapping[str, Any]] = deque()
        with dspy.context(callbacks=[*dspy.settings.callbacks, _callback(late)], track_usage=True):
            stream = dspy.streamify(
                self._program,
                status_message_provider=_quiet(),
                stream_listeners=self._listeners(),
                is_async_program=hasattr(self._program, "aforward"),
            )
            async with aclosing(stream(**inputs)) as events:
                async for event in events:
                    while late:
                        yield late.popleft()
                    yield _prediction(event) if isinstance(event, dspy.Prediction) else event

    def _listeners(self) -> list[Any]:
        """Return listeners for the answer and for thoughts, in all predictors that have them."""
        listener = _dspy("dspy.streaming").StreamListener
        return [
            listener(name, predict=predictor, predict_name=where, allow_reuse=True)
            for where, predictor in self._program.named_predictors()
            for name, field in predictor.signature.output_fields.items()
            if name in {*_THOUGHTS, self._answer} and field.annotation is str
        ]


def _signature(program: Any) -> Any:
    """Return the signature of a program, or that of its only predictor."""
    signature = getattr(program, "signature", None)
    predictors = program.predictors()
    return signature if signature is not None or len(predictors) != 1 else predictors[0].signature


def _prediction(prediction: Any) -> dict[str, Any]:
    used = (prediction.get_lm_usage() or {}).values()
    tokens = {name: sum(one.get(name) or 0 for one in used) for name in ("prompt_tokens", "completion_tokens")}
    return {"prediction": dict(prediction.items()), "usage": tokens if used else None}


def _quiet() -> Any:
    """Return what says nothing about tools: their calls are shown themselves."""

    class Quiet(_dspy("dspy.streaming").StatusMessageProvider):  # type: ignore[misc]
        def tool_start_status_message(self, instance: Any, inputs: Any) -> None:
            """Say nothing."""

        def tool_end_status_message(self, outputs: Any) -> None:
            """Say nothing."""

    return Quiet()


def _callback(late: deque[Mapping[str, Any]]) -> Any:
    """Return a callback that puts model calls and tool calls into the stream of a program; into ``late`` if it is full.

    The stream has room for a few events, which pieces of a text may fill.
    """

    class Calls(_dspy("dspy.utils.callback").BaseCallback):  # type: ignore[misc]
        def on_lm_start(self, call_id: str, instance: Any, inputs: Any) -> None:  # noqa: ARG002
            _send({"lm": call_id}, late)

        def on_tool_start(self, call_id: str, instance: Any, inputs: Mapping[str, Any]) -> None:
            if instance.name != _FINISH:
                call = {"call": call_id, "tool": instance.name, "input": json_value(inputs.get("kwargs", inputs))}
                _send(call, late)

        def on_tool_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
            _send({"result": call_id, "output": json_value(outputs), "failed": exception is not None}, late)

    return Calls()


def _send(event: Mapping[str, Any], late: deque[Mapping[str, Any]]) -> None:
    """Put an event into the stream of the program that runs here: in the event loop, or in a thread of anyio."""
    stream, anyio = _dspy().settings.send_stream, _dspy("anyio")
    if stream is None:
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        anyio.from_thread.run(stream.send, event)
        return
    try:
        stream.send_nowait(event)
    except anyio.WouldBlock:
        late.append(event)


class DspyAdapter:
    """Turns the events of one run into parts.

    ``known_calls`` and ``denied`` are those of every adapter, and not used: no calls wait.

    >>> list(DspyAdapter().feed({"prediction": {"answer": "Hello"}}))[0]
    Text(text='Hello', provider_metadata=None, id=None, lane='')
    """

    def __init__(self, *, known_calls: Collection[str] = (), denied: Mapping[str, str | None] = {}) -> None:  # noqa: ARG002
        self._open: set[str] = set()
        self._has_text = False
        self._is_over = False

    def feed(self, event: Any) -> Iterator[Part]:
        """Yield the parts that an event becomes.

        Raises :class:`~usechat.errors.UnknownEvent` for an event of another kind.
        """
        kind = type(event).__name__
        if kind == "StreamResponse":
            if event.chunk:
                yield from self._piece(event.signature_field_name, event.chunk)
        elif kind == "Prediction":
            yield from self._end(_prediction(event))
        elif isinstance(event, Mapping):
            yield from self._told(event)
        elif kind == "StatusMessage":
            yield Data("status", {"message": event.message})
        else:
            raise UnknownEvent(str(getattr(event, "type", None) or kind))

    def close(self, error: BaseException | None = None) -> Iterator[Part]:
        """Yield the end of a run that ended without a prediction."""
        if error is None and not self._is_over:
            yield Error(conversation.INCOMPLETE)

    def _piece(self, field: str, text: str) -> Iterator[Part]:
        if field in _THOUGHTS:
            yield Reasoning(text)
        else:
            self._has_text = True
            yield Text(text)

    def _told(self, event: Mapping[str, Any]) -> Iterator[Part]:
        match event:
            case {"lm": _}:
                yield Step()
            case {"call": call_id, "tool": name, "input": tool_input}:
                self._open.add(call_id)
                yield ToolCall(call_id, name, tool_input)
            case {"result": call_id, "output": output, "failed": failed}:
                if call_id in self._open:
                    self._open.discard(call_id)
                    yield ToolError(call_id, conversation.TOOL_FAILED) if failed else ToolResult(call_id, output)
            case {"prediction": _}:
                yield from self._end(event)
            case _:
                raise UnknownEvent(next(iter(event), ""))

    def _end(self, event: Mapping[str, Any]) -> Iterator[Part]:
        """Yield the fields of a prediction that were not streamed: a text as text, all others as data."""
        self._is_over = True
        fields = {name: value for name, value in event["prediction"].items() if name not in _NOT_SHOWN}
        texts = [value for value in fields.values() if isinstance(value, str)]
        if texts and not self._has_text:
            yield Text(texts[-1])
        if len(texts) < len(fields):
            yield Data("output", json_value(fields))
        used = event.get("usage")
        usage = None if used is None else conversation.usage(used["prompt_tokens"], used["completion_tokens"])
        yield conversation.finish("stop", usage)  # DSPy does not tell why a model ended


def parts(events: AsyncIterable[Any]) -> AsyncIterator[Part]:
    """Yield the parts of a run, inside an agent function: of ``streamify(program)(…)``, or of a source's events.

    >>> from usechat.testing import AgentClient
    >>> async def run(text):  # instead of dspy.streamify(program)(question=text)
    ...     yield {"prediction": {"answer": f"You said {text}."}}
    >>> async def answer(turn):
    ...     async for part in parts(run(turn.text)):
    ...         yield part
    >>> with AgentClient(answer) as client:
    ...     client.ask("Hello").text
    'You said Hello.'
    """
    return parts_of(events, DspyAdapter())


# History.


def to_dspy(messages: Iterable[ModelMessage], question: str, answer: str) -> list[dict[str, str]]:
    """Return model messages as those of ``dspy.History``, with these names of fields; the last one has no answer yet.

    Only texts are kept, and text files of the user.

    >>> to_dspy([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "question", "answer")
    [{'question': 'Hi'}]
    """
    turns: list[dict[str, str]] = []
    for message in messages:
        content: Any = message["content"]
        if message["role"] == "user":
            turns.append({question: "\n\n".join(_user_text(part) for part in content)})
        elif message["role"] == "assistant" and turns:
            turns[-1][answer] = turns[-1].get(answer, "") + conversation.contents_of(message).text
    return [{answer: "", **turn} if number < len(turns) - 1 else turn for number, turn in enumerate(turns)]


def _user_text(part: Any) -> str:
    if part["type"] == "text":
        return str(part["text"])
    file = model_files.model_file(part)
    return file.text or f"{file.name or 'file'} ({file.media_type})"
