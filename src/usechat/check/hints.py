"""Suggest what the sender probably meant: common wrong names, with the right ones."""

import difflib
import functools
import re
from typing import Any, Final

from usechat.protocol.chunks import CHUNK_TYPES
from usechat.protocol.schema import Flaw, FlawKind

__all__ = ["fix_for", "fix_for_unknown_key", "fix_for_unreadable"]

_TYPES: Final = {
    # Names of message parts, of AI SDK 4, of model streams, and guesses.
    "step-start": "start-step",
    "step-finish": "finish-step",
    "step-end": "finish-step",
    "end-step": "finish-step",
    "message-start": "start",
    "message-finish": "finish",
    "message-end": "finish",
    "message-stop": "finish",
    "message": "text-delta",
    "done": "finish",
    "end": "finish",
    "text": "text-delta",
    "content": "text-delta",
    "delta": "text-delta",
    "token": "text-delta",
    "reasoning": "reasoning-delta",
    "thinking": "reasoning-delta",
    "tool-call": "tool-input-available",
    "tool-call-start": "tool-input-start",
    "tool-call-streaming-start": "tool-input-start",
    "tool-call-delta": "tool-input-delta",
    "tool-input": "tool-input-available",
    "tool-input-end": "tool-input-available",
    "tool-call-end": "tool-input-available",
    "tool-result": "tool-output-available",
    "tool-output": "tool-output-available",
    "tool-error": "tool-output-error",
    "tool-approval": "tool-approval-request",
    "source": "source-url",
    "image": "file",
    "data": "data-<name>",
    "metadata": "message-metadata",
    "usage": "message-metadata",
    # AG-UI.
    "run-started": "start",
    "run-finished": "finish",
    "run-error": "error",
    "step-started": "start-step",
    "step-finished": "finish-step",
    "text-message-start": "text-start",
    "text-message-content": "text-delta",
    "text-message-chunk": "text-delta",
    "text-message-end": "text-end",
    "tool-call-args": "tool-input-delta",
    "tool-call-result": "tool-output-available",
}

_KEEP_ALIVES: Final = frozenset({"ping", "keep-alive", "keepalive", "heartbeat"})

_KEYS: Final = {
    "errorText": ("error", "message", "errorMessage", "text"),
    "delta": ("text", "content", "textDelta", "value"),
    "inputTextDelta": ("delta", "inputDelta", "argsTextDelta", "argumentsDelta", "text"),
    "toolCallId": ("id", "callId", "toolId"),
    "toolName": ("name", "tool"),
    "input": ("args", "arguments", "parameters", "toolInput"),
    "output": ("result", "content", "toolOutput"),
    "messageId": ("id",),
    "messageMetadata": ("metadata",),
    "finishReason": ("reason",),
    "sourceId": ("id",),
    "mediaType": ("mimeType", "contentType"),
    "url": ("href", "data", "uri"),
    "approvalId": ("id",),
}
"""For each key, the names that are sent in its place by mistake."""


_INSTEAD: Final = {
    "tool-input-error": "Send `tool-input-available` and `tool-output-error` instead.",
    "tool-approval-request": "Ask with a tool that the page runs, as `--sdk 5` does: AI SDK 5 has no approvals.",
    "tool-approval-response": "Leave it out: just run the tool, or send `tool-output-error` for a denial.",
    "tool-output-denied": "Send `tool-output-error` instead.",
    "custom": "Send a data-* chunk instead.",
    "reasoning-file": "Send a `file` chunk instead.",
    "reset-step": "Leave it out: what was sent cannot be taken back in these releases.",
    "steering-message": "Send a data-* chunk instead.",
}
"""What to send instead to releases that do not know a chunk type."""

_FINISH_REASONS: Final = {
    "end-turn": "stop",
    "end": "stop",
    "stop-sequence": "stop",
    "completed": "stop",
    "max-tokens": "length",
    "safety": "content-filter",
    "refusal": "content-filter",
    "tool-use": "tool-calls",
    "tool-call": "tool-calls",
    "function-call": "tool-calls",
    "failed": "error",
    **{reason: reason for reason in ("stop", "length", "content-filter", "tool-calls", "error", "other")},
}


def fix_for(flaw: Flaw, chunk: Any) -> str | None:
    """Return how to fix a flaw of a chunk, if that can be more specific than the rule's own advice."""
    name = flaw.path.rpartition(".")[2]
    match flaw.kind:
        case FlawKind.UNKNOWN_TYPE:
            return _fix_for_type(chunk["type"])
        case FlawKind.UNSUPPORTED_TYPE:
            return _INSTEAD.get(chunk["type"])
        case FlawKind.MISSING_KEY if flaw.path.count(".") == 1:
            return _fix_for_missing_key(chunk, name)
        case FlawKind.UNKNOWN_KEY:
            return fix_for_unknown_key(chunk, flaw.path.removeprefix("$."))
        case FlawKind.WRONG_TYPE if flaw.expected:
            return f"Send '{name}' as {flaw.expected}."
        case FlawKind.FINISH_REASON:
            reason = _FINISH_REASONS.get(_kebab(chunk["finishReason"]))
            return f'Send "{reason}" instead.' if reason else None
        case _:
            return None


@functools.lru_cache(maxsize=256)  # a stream of another protocol has the same few types in every frame
def _fix_for_type(chunk_type: str) -> str | None:
    kebab = _kebab(chunk_type)
    if kebab in _KEEP_ALIVES:
        return "To keep the connection alive send a comment instead of a chunk: `: keep-alive` and a blank line."
    name = _TYPES.get(kebab) or (kebab if kebab in CHUNK_TYPES else None)
    if name is None:
        close = difflib.get_close_matches(kebab[:60], CHUNK_TYPES, n=1, cutoff=0.8)
        name = close[0] if close else None
    return f'Send "{name}" instead.' if name else None


def _fix_for_missing_key(chunk: dict[str, Any], key: str) -> str | None:
    if key == "data" and len(chunk) > 1:
        return "Put the payload under the key 'data'."
    candidates = (_snake(key), *_KEYS.get(key, ()))
    alias = next((name for name in candidates if name in chunk), None)
    return f"Rename the key '{alias}' to '{key}'." if alias else None


def fix_for_unknown_key(chunk: dict[str, Any], key: str) -> str | None:
    """Return how to fix a key that no release knows, if it seems to stand for a known one."""
    struct = CHUNK_TYPES.get(chunk["type"])
    if struct is None:
        return f"Put '{key}' under the key 'data'."
    for field in struct.__struct_encode_fields__:
        if field not in chunk and (key == _snake(field) or key in _KEYS.get(field, ())):
            return f"Rename the key '{key}' to '{field}'."
    return None


def fix_for_unreadable(text: str) -> str | None:
    """Return how to fix data that is not JSON, if it is clear how it was produced."""
    if text.lstrip().startswith(("{'", "[{'")):
        return "This is how Python prints a dict: write it with json.dumps instead."
    if re.match(r"[0-9a-f]:", text):
        return 'This is the data stream of AI SDK 4: send chunks such as {"type":"text-delta",…} instead.'
    if "{" not in text:
        return 'Plain text is not a chunk: send it as the `delta` of {"type":"text-delta","id":…,"delta":…}.'
    return None


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).replace("_", "-").replace(".", "-").lower()


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
