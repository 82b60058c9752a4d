"""Name what a server sends instead of a UI message stream: events of a model's own API, plain text, NDJSON, HTML."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from usechat.check.problems import Finding

__all__ = ["nothing_read", "other_protocol"]


class _Protocol(NamedTuple):
    name: str
    fix: str


_CHAT_COMPLETIONS: Final = _Protocol(
    "OpenAI's Chat Completions API",
    "Translate each event: `choices[0].delta.content` becomes the `delta` of a `text-delta`, a tool call becomes"
    " `tool-input-available`, `finish_reason` becomes `finish`.",
)
_RESPONSES: Final = _Protocol(
    "OpenAI's Responses API",
    "Translate each event: `response.output_text.delta` becomes `text-delta`, a function call becomes"
    " `tool-input-available`, `response.completed` becomes `finish`.",
)
_ANTHROPIC: Final = _Protocol(
    "Anthropic's Messages API",
    "Translate each event: a `text_delta` becomes `text-delta`, a `thinking_delta` becomes `reasoning-delta`, a"
    " `tool_use` block becomes `tool-input-available`, `message_stop` becomes `finish`.",
)
_AG_UI: Final = _Protocol(
    "AG-UI",
    "Translate each event: TEXT_MESSAGE_CONTENT becomes `text-delta`, TOOL_CALL_ARGS becomes `tool-input-delta`,"
    " RUN_FINISHED becomes `finish`.",
)
_ASSISTANT_TRANSPORT: Final = _Protocol(
    "assistant-transport of assistant-ui",
    "Translate each event: a `part-start` of text becomes `text-start`, a `text-delta` gets the keys `id` and `delta`,"
    " a `result` becomes `tool-output-available`. Or let the page use assistant-ui's own runtime for it.",
)
_GEMINI: Final = _Protocol(
    "Google's Gemini API",
    "Translate each event: the `text` of `candidates[0].content.parts` becomes `text-delta`, a `functionCall` becomes"
    " `tool-input-available`, `finishReason` becomes `finish`.",
)
_A2A: Final = _Protocol(
    "A2A",
    "Translate each event: a text part of an artifact or of a message becomes `text-delta`, a final status becomes"
    " `finish`. `usechat serve --as a2a URL` does so.",
)
_LANGGRAPH: Final = _Protocol(
    "LangGraph's server",
    "Translate each event: the `content` of an AIMessageChunk becomes `text-delta`, its tool calls become"
    " `tool-input-available`, a tool message becomes `tool-output-available`.",
)
_OLLAMA: Final = _Protocol(
    "Ollama's API",
    "Translate each line: `message.content` (or `response`) becomes `text-delta`, `message.thinking` becomes"
    " `reasoning-delta`, `done` becomes `finish`.",
)
_TYPES: Final[Mapping[str, _Protocol]] = {
    **dict.fromkeys(
        ("message_start", "message_delta", "message_stop", "content_block_start", "content_block_delta",
         "content_block_stop"),
        _ANTHROPIC,
    ),
    **dict.fromkeys(
        ("RUN_STARTED", "RUN_FINISHED", "RUN_ERROR", "STEP_STARTED", "STEP_FINISHED", "TEXT_MESSAGE_START",
         "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_CHUNK", "TEXT_MESSAGE_END", "TOOL_CALL_START", "TOOL_CALL_ARGS",
         "TOOL_CALL_END", "TOOL_CALL_RESULT", "STATE_SNAPSHOT", "STATE_DELTA", "MESSAGES_SNAPSHOT"),
        _AG_UI,
    ),
    **dict.fromkeys(("part-start", "part-finish", "update-state", "tool-call-args-text-finish"), _ASSISTANT_TRANSPORT),
}  # fmt: skip


def other_protocol(value: Any) -> Finding | None:
    """Return which other protocol an event that is no chunk belongs to, if it is a well-known one."""
    protocol = _protocol_of(value)
    return protocol and Finding("UC009", protocol.name, f"the events are those of {protocol.name}", protocol.fix)


def _protocol_of(value: Any) -> _Protocol | None:
    match value:
        case {"type": str(chunk_type)}:
            return _RESPONSES if chunk_type.startswith("response.") else _TYPES.get(chunk_type)
        case {"type": _}:
            return None
        case {"object": "chat.completion.chunk"} | {"choices": [*_]}:
            return _CHAT_COMPLETIONS
        case {"candidates": [*_]} | {"usageMetadata": {}, "modelVersion": str()}:
            return _GEMINI
        case {"jsonrpc": "2.0", "result": {}} | {"jsonrpc": "2.0", "error": {}}:
            return _A2A
        case {"model": str(), "done": bool()}:
            return _OLLAMA
        case [{"type": str()}, {"langgraph_node": str()}] | {"run_id": str(), "attempt": int()}:
            return _LANGGRAPH
        case [{"type": "AIMessageChunk" | "ai" | "human" | "tool", "content": _}, *_]:
            return _LANGGRAPH
        case {"messages": [{"type": "ai" | "human" | "system" | "tool", "content": _}, *_]}:
            return _LANGGRAPH
        case _:
            return None


# Bodies without one event

_DATA_STREAM_OF_4: Final = re.compile(rb'\s*([0-9a-k]|aui-[a-z-]+):["\[{]')
"""Its lines, and those that assistant-stream adds to them."""
_FIXES: Final = {
    "NDJSON": "Write each line as an event: `data: `, its JSON, and a blank line.",
    "plain text": "Send the text as `text-delta` chunks of an event stream; or use TextStreamChatTransport on the page,"
    " which takes plain text.",
    "HTML": "Look at the page that came: it may be a login, an error page or a wrong address.",
}


def nothing_read(beginning: bytes) -> Finding:
    """Return the problem of a body in which clients find no chunk; its beginning shows what it is."""
    lines = [line for line in beginning.removeprefix(b"\xef\xbb\xbf").splitlines() if line.strip()]
    if all(line.startswith(b":") or line.replace(b" ", b"") == b"data:[DONE]" for line in lines):
        return Finding("UC003", "", "there is not one chunk in the stream" if lines else "the body is empty")
    if _DATA_STREAM_OF_4.match(lines[0]):
        return Finding("UC005", "", "the body is the data stream of AI SDK 4")
    name = _looks_like(lines)
    protocol = _protocol_of_line(lines[0])
    if protocol is not None:
        return Finding("UC004", "", f"the body is {name} of {protocol.name}, not an event stream", protocol.fix)
    return Finding("UC004", "", f"the body is {name}, not an event stream", _FIXES.get(name))


def _protocol_of_line(line: bytes) -> _Protocol | None:
    try:
        return _protocol_of(json.loads(line))
    except (ValueError, RecursionError):
        return None


def _looks_like(lines: list[bytes]) -> str:
    start = lines[0].lstrip()
    if start.startswith(b"<"):
        return "HTML" if b"<html" in b"\n".join(lines).lower() else "XML"
    if start.startswith((b"{", b"[")):
        is_every_line_json = len(lines) > 1 and all(line.startswith((b"{", b"[")) for line in lines)
        return "NDJSON" if is_every_line_json else "JSON"
    return "plain text"
