"""What a flow returned: how the answer ended, and what the stream left unsaid."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from usechat.genkit.wire import Failure, failure_of

__all__ = ["Outcome", "outcome_of", "text_of"]

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
