"""Agent Ops: an AI SDK face for agent sessions behind a WebSocket."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from usechat.agent_ops.access import AccessRule, Role, Standing
    from usechat.agent_ops.adapter import SessionAdapter
    from usechat.agent_ops.app import AgentOpsApp
    from usechat.agent_ops.directory import SessionDirectory
    from usechat.agent_ops.lookup import HttpLookup
    from usechat.agent_ops.settings import SESSION_SETTINGS
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
    "AccessRule": "access",
    "AgentOpsApp": "app",
    "AgentOpsChatTransport": "transport",
    "HttpLookup": "lookup",
    "Role": "access",
    "SESSION_SETTINGS": "settings",
    "SessionAdapter": "adapter",
    "SessionDirectory": "directory",
    "Standing": "access",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
