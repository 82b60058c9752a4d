"""The input of an agent node with ``provider: claude``: its keys, their problems, and the options of Claude Code.

Claude Code may use what the flow names, and nothing else: no built-in tool without its name in ``tools`` or
``allowedTools``, no settings, hooks or MCP servers of the machine, and no file that a message mentions with ``@``.
Keys that decide what Claude may do take no bindings, so that no message can change them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from usechat.errors import InvalidSetting
from usechat.open_harness.flow.definition import Place
from usechat.open_harness.models.provider import AgentRequest
from usechat.open_harness.models.structured_output import provider_schema

__all__ = ["CLAUDE", "KEYS", "claude_options", "claude_problems"]

CLAUDE: Final = "claude"
"""The name of this provider in a flow."""

_MODES: Final = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions", "auto")
_SOURCES: Final = ("user", "project", "local")
_EFFORT: Final = {"minimal": "low"}
_MCP: Final = "mcp__"


def _is_texts(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(each, str) for each in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_object_of_texts(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values())


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_sources(value: Any) -> bool:
    return _is_texts(value) and all(each in _SOURCES for each in value)


_CHECKS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "tools": (_is_texts, "must be a list of names such as Read"),
    "allowedTools": (_is_texts, "must be a list of names such as Read or mcp__notes__search"),
    "disallowedTools": (_is_texts, "must be a list of names such as Bash"),
    "permissionMode": (lambda value: value in _MODES, f"must be one of {', '.join(_MODES)}"),
    "mcpServers": (_is_object, "must be an object of MCP servers by name"),
    "settingSources": (_is_sources, f"must be a list of {', '.join(_SOURCES)}"),
    "env": (_is_object_of_texts, "must be an object of texts"),
    "additionalDirectories": (_is_texts, "must be a list of directories"),
    "cwd": (_is_text, "must be a directory"),
    "resume": (_is_text, "must be the id of a session of Claude Code"),
    "fallbackModel": (_is_text, "must be the name of a model"),
    "maxBudgetUsd": (_is_amount, "must be a number above 0"),
}
_WITH_BINDINGS: Final = ("cwd", "resume", "fallbackModel", "maxBudgetUsd")
KEYS: Final = frozenset(_CHECKS) - {"tools"}
"""The keys that only this provider knows."""


def claude_problems(merged: Mapping[str, Any]) -> Iterable[tuple[Place, str]]:
    """Yield the problems of an input, which may still hold bindings."""
    options = {key: merged[key] for key in _CHECKS if merged.get(key) is not None}
    for key, value in options.items():
        is_right, problem = _CHECKS[key]
        if _has_binding(value):
            if key not in _WITH_BINDINGS:
                yield (key,), "must not hold bindings: a message could change what Claude may do"
        elif not is_right(value):
            yield (key,), problem
        else:
            yield from _problems_of(key, value)
    if "cwd" not in options and _builtin_tools(options):
        yield ("cwd",), "is missing; it is the directory in which the built-in tools of Claude Code work"


def _problems_of(key: str, value: Any) -> Iterable[tuple[Place, str]]:
    if key == "tools":
        functions = [name for name in value if ":" in name]
        yield from ((("tools",), f"{name} is no built-in tool; offer functions in mcpServers") for name in functions)
    elif key == "cwd" and not Path(value).is_dir():
        yield ("cwd",), f"there is no directory {value}"
    elif key == "mcpServers":
        for name, server in value.items():
            try:
                _mcp_server(server)
            except InvalidSetting as error:
                yield ("mcpServers", name), str(error)


def _has_binding(value: Any) -> bool:
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, Mapping):
        return any(map(_has_binding, value.values()))
    return isinstance(value, Sequence) and any(map(_has_binding, value))


def _builtin_tools(options: Mapping[str, Any]) -> list[str]:
    """Return the names of the built-in tools that a flow names: in ``tools``, or with a rule in ``allowedTools``."""
    lists = [options.get(key) for key in ("tools", "allowedTools")]
    names = [name.partition("(")[0] for rules in lists if rules is not None and _is_texts(rules) for name in rules]
    return list(dict.fromkeys(name for name in names if not name.startswith(_MCP)))


def _mcp_server(described: Any) -> Any:
    """Return an MCP server: a mapping as it is, or the object that ``module:name`` names."""
    if isinstance(described, Mapping):
        return dict(described)
    module, colon, name = described.partition(":") if isinstance(described, str) else ("", "", "")
    if not (module and colon and name):
        raise InvalidSetting(
            "must be an object such as {command, args} or {type: http, url}, or a text my_module:server"
        )
    try:
        return getattr(import_module(module), name)
    except Exception as error:  # the module is foreign code
        raise InvalidSetting(f"{described} cannot be imported: {error}") from error


def claude_options(request: AgentRequest, model: str) -> dict[str, Any]:
    """Return the arguments of ``ClaudeAgentOptions`` for a request, without its session and permissions."""
    options = request.options
    servers: Mapping[str, Any] = options.get("mcpServers") or {}
    arguments: dict[str, Any] = {
        "model": model,
        "system_prompt": options.get("systemPrompt") or request.instructions,
        "tools": _builtin_tools({**options, "tools": list(request.tools)}),
        "allowed_tools": list(options.get("allowedTools") or ()),
        "disallowed_tools": list(options.get("disallowedTools") or ()),
        "permission_mode": options.get("permissionMode"),
        "mcp_servers": {name: _mcp_server(server) for name, server in servers.items()},
        "strict_mcp_config": True,
        "setting_sources": list(options.get("settingSources") or ()),
        "max_turns": request.max_turns,
        "max_budget_usd": options.get("maxBudgetUsd"),
        "fallback_model": options.get("fallbackModel"),
        "cwd": options.get("cwd"),
        "add_dirs": list(options.get("additionalDirectories") or ()),
        "env": {
            "MCP_TOOL_TIMEOUT": str(round(request.tool_timeout_ms)),
            **(options.get("env") or {}),
        },
        **_thinking(request.thinking),
    }
    if request.output_schema is not None:
        arguments["output_format"] = {"type": "json_schema", "schema": provider_schema(request.output_schema)}
    return arguments


def _thinking(thinking: bool | str | None) -> dict[str, Any]:
    if thinking is None:
        return {}
    if thinking is False:
        return {"thinking": {"type": "disabled"}}
    effort = {} if thinking is True else {"effort": _EFFORT.get(str(thinking), thinking)}
    return {"thinking": {"type": "adaptive"}, **effort}
