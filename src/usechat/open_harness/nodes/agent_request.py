"""What an agent is asked: the input of `agent` and `claude.agent` nodes, read into one form."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec

from usechat.open_harness.flow.flow import Place
from usechat.open_harness.nodes.python import import_function

__all__ = ["AgentRequest", "Said", "model_name", "read_request", "request_problems"]

_logger: Final = logging.getLogger("usechat.open_harness")

TOOL_TIMEOUT_MS: Final = 60_000
MAXIMUM_TURNS: Final = 1_000
"""How often a model is asked for one answer; far more than it takes, so that one that goes in circles ends."""

_LEVELS: Final = ("minimal", "low", "medium", "high", "xhigh", "max")
_NUMBERS: Final = ("toolTimeoutMs", "maxTurns")
_TEXTS: Final = ("model", "instructions", "systemPrompt")
_KNOWN: Final = frozenset({*_NUMBERS, *_TEXTS, "files", "messages", "options", "prompt", "thinking", "tools"})


class Said(msgspec.Struct, frozen=True):
    """One message of a conversation that a node's input tells."""

    role: str
    text: str


class AgentRequest(msgspec.Struct, frozen=True):
    """One question to a model: ``prompt`` is the last thing said, ``conversation`` what was said before it."""

    model: str | None
    prompt: str
    conversation: tuple[Said, ...] = ()
    files: tuple[Mapping[str, Any], ...] = ()
    instructions: str | None = None
    tools: tuple[str, ...] = ()
    thinking: bool | str | None = None
    tool_timeout_ms: float = TOOL_TIMEOUT_MS
    max_turns: int = MAXIMUM_TURNS


def request_problems(fields: Mapping[str, Any], *, has_model: bool) -> Iterable[tuple[Place, str]]:
    """Yield what is wrong with an agent's input, which may still hold bindings."""
    given = [key for key in ("prompt", "messages") if fields.get(key) is not None]
    if len(given) != 1:
        yield ("prompt",), "an agent needs either prompt (a text) or messages (a list)"
    elif not (isinstance(fields[given[0]], str) or (given == ["messages"] and _is_list(fields["messages"]))):
        yield (given[0],), "must be a text" if given == ["prompt"] else "must be a list"
    options = fields.get("options")
    if options is not None and not isinstance(options, Mapping):
        yield ("options",), "must be an object"
    merged = _merged(fields)
    if not has_model and merged.get("model") is None:
        yield ("model",), "is missing; it is the name of a model, such as openai:gpt-5"
    for key in _TEXTS:
        if merged.get(key) is not None and not isinstance(merged[key], str):
            yield (key,), "must be a text"
    for key in _NUMBERS:
        number = merged.get(key)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int | float) or number <= 0):
            yield (key,), "must be a number above 0"
    if merged.get("thinking") not in (None, True, False, *_LEVELS):
        yield ("thinking",), f"must be true, false or one of {', '.join(_LEVELS)}"
    yield from _tool_problems(merged.get("tools"))


def _tool_problems(tools: Any) -> Iterable[tuple[Place, str]]:
    if tools is None:
        return
    if not _is_list(tools):
        yield ("tools",), "must be a list of texts such as my_module:my_function"
        return
    for index, name in enumerate(tools):
        try:
            import_function(name)
        except ValueError as error:
            yield ("tools", index), str(error)


def read_request(fields: Mapping[str, Any], *, claude: bool) -> AgentRequest:
    """Return the request that a resolved input without problems makes."""
    merged = _merged(fields)
    _warn_of_unused(frozenset(map(str, merged.keys() - _KNOWN)))
    *conversation, last = _conversation(fields)
    if last.role != "user":
        raise ValueError("the last of the messages must be the user's")
    return AgentRequest(
        model_name(fields, claude=claude),
        last.text,
        tuple(conversation),
        tuple(file for file in merged.get("files") or () if isinstance(file, Mapping)),
        merged.get("instructions") or merged.get("systemPrompt"),
        tuple(merged.get("tools") or ()),
        merged.get("thinking"),
        merged.get("toolTimeoutMs") or TOOL_TIMEOUT_MS,
        int(merged.get("maxTurns") or MAXIMUM_TURNS),
    )


@cache
def _warn_of_unused(names: frozenset[str]) -> None:
    """Tell once that options of upstream's own agent mean nothing here."""
    if names:
        _logger.warning("agents do not use %s", ", ".join(sorted(names)))


def _merged(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with the options, as upstream flows have them, among them."""
    options = fields.get("options")
    return {**(options if isinstance(options, Mapping) else {}), **fields}


def model_name(fields: Mapping[str, Any], *, claude: bool) -> str | None:
    """Return the name of the model in an input: pydantic-ai's for what upstream flows call claude-sonnet-4-5."""
    name: str | None = _merged(fields).get("model")
    return f"anthropic:{name}" if claude and name and name.startswith("claude") and ":" not in name else name


def _conversation(fields: Mapping[str, Any]) -> list[Said]:
    """Return what was said. Messages without a role are all the user's: they are one."""
    if fields.get("prompt") is not None:
        return [Said("user", str(fields["prompt"]))]
    said: list[Said] = []
    for message in fields["messages"]:
        role, text = _role(message), _text(message)
        if said and said[-1].role == role:
            said[-1] = Said(role, f"{said[-1].text}\n\n{text}")
        elif role in ("user", "assistant"):
            said.append(Said(role, text))
    if not said:
        raise ValueError("messages is empty")
    return said


def _role(message: Any) -> str:
    if not isinstance(message, Mapping):
        return "user"
    inner = message.get("message")
    return str(message.get("role") or (inner.get("role") if isinstance(inner, Mapping) else None) or "user")


def _text(message: Any) -> str:
    """Return the text of a text, of a message with content, of one around another, or of a page's message."""
    if isinstance(message, str):
        return message
    if _is_list(message):
        return "".join(_text(part) for part in message)
    if not isinstance(message, Mapping):
        return ""
    for key in ("text", "content", "parts", "message"):
        if message.get(key) is not None:
            return _text(message[key]) if message.get("type") in (None, "text", "user", "assistant") else ""
    return ""


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
