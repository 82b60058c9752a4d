"""Agent Ops: an AI SDK face for agent sessions behind a WebSocket."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from usechat.agent_ops.access.directory import SessionDirectory
    from usechat.agent_ops.access.lookup import HttpLookup
    from usechat.agent_ops.access.roles import AccessRule, Role, Standing
    from usechat.agent_ops.adapter import SessionAdapter
    from usechat.agent_ops.app import SESSION_SETTINGS, AgentOpsApp
    from usechat.agent_ops.transport import AgentOpsChatTransport

__all__ = [
    "SESSION_SETTINGS",
    "AccessRule",
    "AgentOpsApp",
    "AgentOpsChatTransport",
    "HttpLookup",
    "Role",
    "SessionAdapter",
    "SessionDirectory",
    "Standing",
]

# Imported on use: the adapter needs no server, and only the directory needs a database.
_HOMES: Final = {
    "AccessRule": "access.roles",
    "AgentOpsApp": "app",
    "AgentOpsChatTransport": "transport",
    "HttpLookup": "access.lookup",
    "Role": "access.roles",
    "SESSION_SETTINGS": "app",
    "SessionAdapter": "adapter",
    "SessionDirectory": "access.directory",
    "Standing": "access.roles",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
