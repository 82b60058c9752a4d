"""Genkit's events as parts: the chunks that a flow streams, whatever they are, and what it returns."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from usechat.genkit.content import Content, JsonObject
from usechat.genkit.errors import BLOCKED, BROKEN_OFF, TOOL_FAILED, sentence_of
from usechat.genkit.tool_requests import CallBook, OpenCall
from usechat.genkit.wire import Event, Failure, Message, Result, Unknown, failure_of
from usechat.protocol import parts
from usechat.protocol.values import json_text, json_value

__all__ = [
    "GenkitAdapter",
    "Interrupts",
    "Mapper",
    "Outcome",
    "outcome_of",
    "text_of",
]


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
"""Genkit's reasons (genkit 0.12.0, ``FinishReason`` and ``AgentFinishReason``) in the words of the AI SDK."""

_USAGE: Final = {
    "inputTokens": "inputTokens",
    "outputTokens": "outputTokens",
    "totalTokens": "totalTokens",
    "thoughtsTokens": "reasoningTokens",
    "cachedContentTokens": "cachedInputTokens",
}


class Outcome(msgspec.Struct, frozen=True):
    """The end of a model's or an agent's answer; ``content`` is that of the last message."""

    content: tuple[Mapping[str, Any], ...] = ()
    reason: str | None = None
    blocked: bool = False
    failure: Failure | None = None
    usage: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None


def outcome_of(value: Any) -> Outcome | None:
    """Read the response of a model or an agent; nothing if the flow returned something of its own."""
    if not isinstance(value, Mapping):
        return None
    content, finish_reason = _content_of(value), value.get("finishReason")
    if content is None and finish_reason is None:
        return None
    failed = finish_reason == "failed" or (finish_reason == "aborted" and bool(value.get("error")))
    told = {name: value[name] for name in ("sessionId", "snapshotId") if value.get(name)}
    return Outcome(
        content or (),
        None if finish_reason is None else _REASONS.get(str(finish_reason), "other"),
        finish_reason == "blocked",
        failure_of(value.get("error")) if failed else None,
        _usage_of(value.get("usage")),
        {"genkit": told} if told else None,
    )


def text_of(value: Any) -> str | None:
    """Return the text in what a flow returned, if it is one or names one."""
    text = value.get("text") if isinstance(value, Mapping) else value
    return text if isinstance(text, str) else None


def _content_of(value: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...] | None:
    """Return the content of the message; a flow that tells how it ended may have a text in its place."""
    match value:
        case {"message": {"content": [*content]}}:
            return tuple(part for part in content if isinstance(part, Mapping))
        case {"finishReason": _, "text": str(text)}:
            return ({"text": text},)
    return None


def _usage_of(usage: Any) -> dict[str, int] | None:
    """Return the counts of tokens; Python servers write them as floats."""
    if not isinstance(usage, Mapping):
        return None
    counts = {ours: usage.get(theirs) for theirs, ours in _USAGE.items()}
    return {name: int(count) for name, count in counts.items() if isinstance(count, int | float)} or None


# -- Genkit's events as parts: the chunks that a flow streams, whatever they are, and what it returns.

Mapper: TypeAlias = Callable[[Any], Iterable[parts.Part] | None]
"""Makes parts of a chunk or a result; nothing means: as usual."""
Interrupts: TypeAlias = Literal["tool", "approval"]

_AGENT_CHUNK: Final = ("modelChunk", "customPatch", "artifact", "turnEnd")
_PART: Final = ("text", "reasoning", "toolRequest", "toolResponse", "media", "resource")


class GenkitAdapter:
    """Turns the events of one Genkit answer into parts.

    ``map_chunk`` and ``map_result`` are asked first. ``send_data`` sends Genkit's data, custom and resource parts,
    state patches, artifacts and chunks of unknown shape as ``data-genkit-*``. ``interrupts`` says how an interrupted
    call is shown: as a tool that waits for the page's output, or as one that waits for a person's approval.
    ``known`` are the calls of the message that the answer goes on with; ``denied`` names those that may not run.
    """

    def __init__(
        self,
        *,
        new_id: Callable[[], str],
        map_chunk: Mapper | None = None,
        map_result: Mapper | None = None,
        send_data: bool = False,
        interrupts: Interrupts = "tool",
        known: Iterable[OpenCall] = (),
        denied: Container[str] = (),
        describe: Callable[[Failure], str] = sentence_of,
        on_unknown: Callable[[str], None] = lambda _kind: None,
    ) -> None:
        self.ended = False
        self._map_chunk = map_chunk
        self._map_result = map_result
        self._send_data = send_data
        self._describe = describe
        self._on_unknown = on_unknown
        self._denied = denied
        self._calls = CallBook(new_id, known)
        self._content = Content(
            self._calls,
            send_data=send_data,
            approvals=interrupts == "approval",
            denied=denied,
            on_unknown=on_unknown,
        )
        self._spoke = False
        self._snapshot: str | None = None

    def feed(self, event: Event) -> Iterator[parts.Part]:
        """Yield the parts that the event says; nothing once the answer has ended."""
        if self.ended:
            return
        for part in self._read(event):
            self._spoke = self._spoke or (isinstance(part, parts.Text) and bool(part.text))
            yield part

    def close(self, error: BaseException | None = None) -> Iterator[parts.Part]:
        """Yield the ending, if none came: a stream that ends without a result was cut. An error is not told here."""
        if not self.ended:
            self.ended = True
            if error is None:
                yield parts.Error(BROKEN_OFF)

    def _read(self, event: Event) -> Iterator[parts.Part]:
        match event:
            case Message(chunk):
                mapped = self._map_chunk(chunk) if self._map_chunk else None
                yield from self._chunk(chunk) if mapped is None else mapped
            case Result(value):
                self.ended = True
                yield from self._result(value)
            case Failure():
                self.ended = True
                yield parts.Error(self._describe(event))
            case Unknown(kind):
                self._on_unknown(kind)

    # Chunks

    def _chunk(self, chunk: Any) -> Iterator[parts.Part]:
        if isinstance(chunk, str):
            yield from self._content.chunk({"content": [{"text": chunk}]})
        elif not isinstance(chunk, Mapping):
            yield from self._unusual(chunk)
        elif isinstance(chunk.get("content"), list):
            yield from self._content.chunk(chunk)
        elif any(name in chunk for name in _AGENT_CHUNK):
            yield from self._agent_chunk(chunk)
        elif any(chunk.get(name) is not None for name in _PART):
            yield from self._content.chunk({"content": [chunk]})
        else:
            yield from self._unusual(chunk)

    def _agent_chunk(self, chunk: JsonObject) -> Iterator[parts.Part]:
        if isinstance(model_chunk := chunk.get("modelChunk"), Mapping):
            yield from self._content.chunk(model_chunk)
        if isinstance(turn_end := chunk.get("turnEnd"), Mapping):
            self._snapshot = turn_end.get("snapshotId", self._snapshot)
        if self._send_data:
            if (patch := chunk.get("customPatch")) is not None:
                yield parts.Data("genkit-patch", patch, transient=True)
            if isinstance(artifact := chunk.get("artifact"), Mapping):
                name = artifact.get("name")
                yield parts.Data("genkit-artifact", artifact, id=name if isinstance(name, str) else None)

    def _unusual(self, chunk: Any) -> Iterator[parts.Part]:
        if chunk is None or chunk == {}:
            return
        if self._send_data:
            yield parts.Data("genkit-chunk", chunk)
        else:
            self._on_unknown("chunk")

    # The end

    def _result(self, value: Any) -> Iterator[parts.Part]:
        mapped = self._map_result(value) if self._map_result else None
        outcome = outcome_of(value) if mapped is None else None
        if outcome is not None:
            yield from self._outcome(outcome)
            return
        yield from self._own_result(value) if mapped is None else mapped
        yield from self._finish(Outcome())

    def _own_result(self, value: Any) -> Iterator[parts.Part]:
        """Say what a flow returned, unless it was streamed: its text, or else its JSON."""
        text = text_of(value)
        if text is None and value is not None and self._send_data:
            yield parts.Data("genkit-result", value)
        elif not self._spoke and value not in (None, ""):
            yield parts.Text(json_text(json_value(value)) if text is None else text)

    def _outcome(self, outcome: Outcome) -> Iterator[parts.Part]:
        yield from self._last_message(outcome)
        if outcome.failure is not None:
            for call in self._calls.open:
                if call.id not in self._denied:
                    yield parts.ToolError(call.id, TOOL_FAILED, tool_name=call.name)
            yield parts.Error(self._describe(outcome.failure), outcome.usage, self._metadata(outcome))
        elif outcome.blocked and not self._spoke:
            yield parts.Error(BLOCKED, outcome.usage, self._metadata(outcome))
        else:
            yield from self._finish(outcome)

    def _last_message(self, outcome: Outcome) -> Iterator[parts.Part]:
        """Say what was not streamed of the last message, and settle the calls in which it ends."""
        spoke = self._spoke
        requests = [part for part in outcome.content if isinstance(part.get("toolRequest"), Mapping)]
        for part in self._content.unsaid(part for part in outcome.content if part not in requests):
            if not spoke or not part.keys() & {"text", "reasoning"}:
                yield from self._content.part(part)
        yield from self._content.restate(requests)

    def _finish(self, outcome: Outcome) -> Iterator[parts.Part]:
        if self._content.ends_in_tools and not self._calls.open:
            # A last step of answered tools alone would make the page post again by itself, for ever.
            yield parts.Step()
        reason = None if self._calls.open else outcome.reason
        yield parts.Finish(reason, outcome.usage, self._metadata(outcome))

    def _metadata(self, outcome: Outcome) -> Mapping[str, Any] | None:
        told = dict(outcome.metadata["genkit"]) if outcome.metadata else {}
        if self._snapshot is not None:
            told.setdefault("snapshotId", self._snapshot)
        return {"genkit": told} if told else None
