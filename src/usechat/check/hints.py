"""What the sender probably meant: names that are well known and wrong, with the right ones."""

import difflib
import re
from typing import Any, Final

from usechat.chunks import CHUNK_TYPES

__all__ = ["fix_for_missing_key", "fix_for_type", "fix_for_unknown_key", "fix_for_unreadable"]

_TYPES: Final = {
    # Names of parts, of AI SDK 4, of the model's own stream, and plain guesses.
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
"""For each key, what is sent in its place."""


def fix_for_type(chunk_type: str) -> str | None:
    """Return how to mend a chunk type that no release knows, if it is clear what was meant."""
    kebab = _kebab(chunk_type)
    if kebab in _KEEP_ALIVES:
        return "To keep the connection alive send a comment instead of a chunk: `: keep-alive` and a blank line."
    meant = _TYPES.get(kebab) or (kebab if kebab in CHUNK_TYPES else None)
    if meant is None:
        close = difflib.get_close_matches(kebab[:60], CHUNK_TYPES, n=1, cutoff=0.8)
        meant = close[0] if close else None
    return f'Send "{meant}" instead.' if meant else None


def fix_for_missing_key(chunk: dict[str, Any], key: str) -> str | None:
    """Return how to mend a missing key, if another key seems to hold its value."""
    if key == "data" and len(chunk) > 1:
        return "Put the payload under the key 'data'."
    candidates = (_snake(key), *_KEYS.get(key, ()))
    given = next((name for name in candidates if name in chunk), None)
    return f"Rename the key '{given}' to '{key}'." if given else None


def fix_for_unknown_key(key: str, known: frozenset[str], chunk: dict[str, Any]) -> str | None:
    """Return how to mend a key that no release knows, if it seems to stand for a known one."""
    if str(chunk.get("type")).startswith("data-"):
        return f"Put '{key}' under the key 'data'."
    for meant in known:
        if meant not in chunk and (key == _snake(meant) or key in _KEYS.get(meant, ())):
            return f"Rename the key '{key}' to '{meant}'."
    return None


def fix_for_unreadable(text: str) -> str | None:
    """Return how to mend data that is not JSON, if it is clear how it was made."""
    if text.lstrip().startswith(("{'", "[{'")):
        return "This is how Python prints a dict: write it with json.dumps instead."
    if re.match(r"[0-9a-f]:", text):
        return 'This is the data stream of AI SDK 4: send chunks such as {"type":"text-delta",…} instead.'
    if "{" not in text:
        return 'Plain text is no chunk: send it as the `delta` of {"type":"text-delta","id":…,"delta":…}.'
    return None


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).replace("_", "-").replace(".", "-").lower()


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
