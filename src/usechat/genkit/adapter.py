"""The events of a Genkit answer as parts: the chunks that a flow streams, and what it returns.

A flow streams what its author chose and returns what its author chose. So a chunk is recognised by its shape, in this
order: the caller's ``map_chunk``, a string, a ``ModelResponseChunk`` (``content``), an agent's chunk (``modelChunk``,
``customPatch``, ``artifact``, ``turnEnd``), a single content part, anything else. A result is recognised likewise: the
caller's ``map_result``, the response of a model or an agent (``message``, ``finishReason``), or a value of the flow.

Most flows say the same thing twice: they stream it and return it. What was streamed counts. The result adds only what
was not streamed: text if there was none, media, tool requests and their outcome, the finish reason, usage.

Invariants:

- An answer ends once: with the result, with a failure, or in ``close``, if the stream was cut. Nothing follows it.
- Every request that was shown gets an outcome, unless the answer ends by waiting for the page or for a person.
- A content part that is not known does not lose the parts beside it: those are yielded first, then ``feed`` raises
  :class:`~usechat.errors.UnknownEvent`.
- Error texts of the server never become parts: ``describe`` returns the sentence that people read.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec

from usechat import parts
from usechat.errors import UnknownEvent
from usechat.genkit.content import ContentReader, JsonObject
from usechat.genkit.errors import BLOCKED, INCOMPLETE, TOOL_FAILED, sentence_of
from usechat.genkit.tool_requests import ToolRequest, ToolRequests
from usechat.genkit.wire import FlowChunk, FlowEvent, FlowFailure, FlowResult, UnknownFrame, failure_of
from usechat.values import json_text, json_value

__all__ = [
    "GenkitAdapter",
    "Interrupts",
    "Mapper",
    "Outcome",
    "outcome_of",
]

Mapper: TypeAlias = Callable[[Any], Iterable[parts.Part] | None]
"""Turns a chunk or a result into parts; ``None`` means that the adapter handles it."""
Interrupts: TypeAlias = Literal["tool", "approval"]
"""How an interrupted call is shown: as a tool that waits for the page's output, or for a person's approval."""

_AGENT_CHUNK: Final = ("modelChunk", "customPatch", "artifact", "turnEnd")
_PART: Final = ("text", "reasoning", "toolRequest", "toolResponse", "media", "resource")
_REASONS: Final = {
    "stop": "stop",
    "length": "length",
    "blocked": "content-filter",
    "interrupted": "tool-calls",
    "failed": "error",
    "aborted": "other",
    "detached": "other",
    "other": "other",
    "unknown": "other",
}
"""The AI SDK's finish reason for each of Genkit's (genkit 0.12.0, ``FinishReason`` and ``AgentFinishReason``)."""

_USAGE: Final = {
    "inputTokens": "inputTokens",
    "outputTokens": "outputTokens",
    "totalTokens": "totalTokens",
    "thoughtsTokens": "reasoningTokens",
    "cachedContentTokens": "cachedInputTokens",
}


class Outcome(msgspec.Struct, frozen=True):
    """The end of a model's or an agent's answer.

    ``content`` is that of the last message, ``session`` holds the ids of an agent's session and snapshot.
    """

    content: tuple[Mapping[str, Any], ...] = ()
    reason: str | None = None
    blocked: bool = False
    failure: FlowFailure | None = None
    usage: Mapping[str, Any] | None = None
    session: Mapping[str, Any] = {}


def outcome_of(value: Any) -> Outcome | None:
    """Read the response of a model or an agent; return ``None`` if the flow returned something else."""
    if not isinstance(value, Mapping):
        return None
    content, finish_reason = _content_of(value), value.get("finishReason")
    if content is None and finish_reason is None:
        return None
    failed = finish_reason == "failed" or (finish_reason == "aborted" and bool(value.get("error")))
    session = {name: value[name] for name in ("sessionId", "snapshotId") if value.get(name)}
    return Outcome(
        content or (),
        None if finish_reason is None else _REASONS.get(str(finish_reason), "other"),
        finish_reason == "blocked",
        failure_of(value.get("error")) if failed else None,
        _usage_of(value.get("usage")),
        session,
    )


def _text_of(value: Any) -> str | None:
    """Return the text of a flow's result, if it is a text or an object with one."""
    text = value.get("text") if isinstance(value, Mapping) else value
    return text if isinstance(text, str) else None


def _content_of(value: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...] | None:
    """Return the content of the message; if there is only a finish reason with a ``text``, that text as content."""
    match value:
        case {"message": {"content": [*content]}}:
            return tuple(part for part in content if isinstance(part, Mapping))
        case {"finishReason": _, "text": str(text)}:
            return ({"text": text},)
    return None


def _usage_of(usage: Any) -> dict[str, int] | None:
    """Return the token counts. Python servers write them as floats."""
    if not isinstance(usage, Mapping):
        return None
    counts = {name: usage.get(genkit_name) for genkit_name, name in _USAGE.items()}
    return {name: int(count) for name, count in counts.items() if isinstance(count, int | float)} or None


class GenkitAdapter:
    """Turns the events of one Genkit answer into parts. It does no I/O.

    ``map_chunk`` and ``map_result`` are called first; they return parts, or ``None`` to leave the value to the adapter.
    ``send_data`` sends Genkit's data, custom and resource parts, state patches, artifacts and chunks of unknown shape
    as ``data-genkit-*``. ``interrupts`` says how an interrupted call is shown: as a tool that waits for the page's
    output, or as one that waits for a person's approval. ``known`` are the calls of the message that the answer
    continues; ``denied`` are the ids of those that a person denied, ``restarted`` the names of the tools that were run
    again after a person's answer. ``describe`` returns the text that people read of a
    failure.

    ``feed`` raises :class:`~usechat.errors.UnknownEvent` for what it does not know.

    >>> from usechat.genkit import FlowChunk, FlowResult
    >>> adapter = GenkitAdapter(new_id=iter("abc").__next__)
    >>> events = [FlowChunk("Hello"), FlowResult("Hello")]
    >>> [type(part).__name__ for event in events for part in adapter.feed(event)]
    ['Text', 'Finish']
    """

    def __init__(
        self,
        *,
        new_id: Callable[[], str],
        map_chunk: Mapper | None = None,
        map_result: Mapper | None = None,
        send_data: bool = False,
        interrupts: Interrupts = "tool",
        known: Iterable[ToolRequest] = (),
        denied: Container[str] = (),
        restarted: Container[str] = (),
        describe: Callable[[FlowFailure], str] = sentence_of,
    ) -> None:
        self.ended = False
        self._map_chunk = map_chunk
        self._map_result = map_result
        self._send_data = send_data
        self._describe = describe
        self._denied = denied
        self._calls = ToolRequests(new_id, known)
        self._content = ContentReader(
            self._calls, send_data=send_data, approvals=interrupts == "approval", denied=denied, restarted=restarted
        )
        self._has_text = False
        self._snapshot_id: str | None = None

    @property
    def answered_denials(self) -> Sequence[str]:
        """The names of tools that returned an output after they were denied."""
        return self._content.answered_denials

    def feed(self, event: FlowEvent) -> Iterator[parts.Part]:
        """Yield the parts of an event; nothing after the ending."""
        if self.ended:
            return
        for part in self._parts_of(event):
            self._has_text = self._has_text or (isinstance(part, parts.Text) and bool(part.text))
            yield part
        if self._content.has_unknown:
            self._content.has_unknown = False
            raise UnknownEvent("part")

    def close(self, error: BaseException | None = None) -> Iterator[parts.Part]:
        """Yield the ending of a stream that was cut, which has no result; an ``error`` ends the answer by itself."""
        if not self.ended:
            self.ended = True
            if error is None:
                yield parts.Error(INCOMPLETE)

    def _parts_of(self, event: FlowEvent) -> Iterator[parts.Part]:
        match event:
            case FlowChunk(chunk):
                mapped = self._map_chunk(chunk) if self._map_chunk else None
                yield from self._chunk(chunk) if mapped is None else mapped
            case FlowResult(value):
                self.ended = True
                yield from self._result(value)
            case FlowFailure():
                self.ended = True
                yield parts.Error(self._describe(event))
            case UnknownFrame(kind):
                raise UnknownEvent(kind)

    # Chunks

    def _chunk(self, chunk: Any) -> Iterator[parts.Part]:
        if isinstance(chunk, str):
            yield from self._content.chunk({"content": [{"text": chunk}]})
        elif not isinstance(chunk, Mapping):
            yield from self._other_chunk(chunk)
        elif isinstance(chunk.get("content"), list):
            yield from self._content.chunk(chunk)
        elif any(name in chunk for name in _AGENT_CHUNK):
            yield from self._agent_chunk(chunk)
        elif any(chunk.get(name) is not None for name in _PART):
            yield from self._content.chunk({"content": [chunk]})
        else:
            yield from self._other_chunk(chunk)

    def _agent_chunk(self, chunk: JsonObject) -> Iterator[parts.Part]:
        if isinstance(model_chunk := chunk.get("modelChunk"), Mapping):
            yield from self._content.chunk(model_chunk)
        if isinstance(turn_end := chunk.get("turnEnd"), Mapping):
            self._snapshot_id = turn_end.get("snapshotId", self._snapshot_id)
        if self._send_data:
            if (patch := chunk.get("customPatch")) is not None:
                yield parts.Data("genkit-patch", patch, transient=True)
            if isinstance(artifact := chunk.get("artifact"), Mapping):
                name = artifact.get("name")
                yield parts.Data("genkit-artifact", artifact, id=name if isinstance(name, str) else None)

    def _other_chunk(self, chunk: Any) -> Iterator[parts.Part]:
        if chunk is None or chunk == {}:
            return
        if self._send_data:
            yield parts.Data("genkit-chunk", chunk)
        else:
            raise UnknownEvent("chunk")

    # The end

    def _result(self, value: Any) -> Iterator[parts.Part]:
        mapped = self._map_result(value) if self._map_result else None
        outcome = outcome_of(value) if mapped is None else None
        if outcome is not None:
            yield from self._outcome(outcome)
            return
        yield from self._flow_value(value) if mapped is None else mapped
        yield from self._finish(Outcome())

    def _flow_value(self, value: Any) -> Iterator[parts.Part]:
        """Yield the value that a flow returned, unless text was streamed: its text, or else its JSON."""
        text = _text_of(value)
        if text is None and value is not None and self._send_data:
            yield parts.Data("genkit-result", value)
        elif not self._has_text and value not in (None, ""):
            yield parts.Text(json_text(json_value(value)) if text is None else text)

    def _outcome(self, outcome: Outcome) -> Iterator[parts.Part]:
        yield from self._last_message(outcome)
        if outcome.failure is not None:
            for call in self._calls.open:
                if call.id not in self._denied:
                    yield parts.ToolError(call.id, TOOL_FAILED, tool_name=call.name)
            yield parts.Error(self._describe(outcome.failure), outcome.usage, self._metadata(outcome))
        elif outcome.blocked and not self._has_text:
            yield parts.Error(BLOCKED, outcome.usage, self._metadata(outcome))
        else:
            yield from self._finish(outcome)

    def _last_message(self, outcome: Outcome) -> Iterator[parts.Part]:
        """Yield what was not streamed of the last message, and the outcome of the requests at its end."""
        requests = [part for part in outcome.content if isinstance(part.get("toolRequest"), Mapping)]
        had_text = self._has_text or self._calls.is_interrupted_again(requests)
        for part in self._content.not_streamed(part for part in outcome.content if part not in requests):
            if not had_text or not part.keys() & {"text", "reasoning"}:
                yield from self._content.part(part)
        yield from self._content.restate(requests)

    def _finish(self, outcome: Outcome) -> Iterator[parts.Part]:
        if self._content.ends_in_tools and not self._calls.open:
            # A page with `sendAutomaticallyWhen` would post again and again after a last step of answered tools alone.
            yield parts.Step()
        reason = None if self._calls.open else outcome.reason
        yield parts.Finish(reason, outcome.usage, self._metadata(outcome))

    def _metadata(self, outcome: Outcome) -> Mapping[str, Any] | None:
        session = dict(outcome.session)
        if self._snapshot_id is not None:
            session.setdefault("snapshotId", self._snapshot_id)
        if refs := self._calls.late_refs:
            session["refs"] = refs
        return {"genkit": session} if session else None
