"""Agent Ops: agent sessions behind a WebSocket as AI SDK chats.

:class:`AgentOpsApp` serves sessions, :class:`AgentOpsChatTransport` answers one chat, :class:`SessionDirectory` and
:class:`HttpLookup` say who may use which session. ``docs/agent-ops.md`` has the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from usechat.agent_ops.access.directory import DirectoryChanges, ListedSession, SessionDirectory
    from usechat.agent_ops.access.lookup import HttpLookup
    from usechat.agent_ops.access.roles import AccessRule, Membership, Role
    from usechat.agent_ops.adapter import SessionAdapter
    from usechat.agent_ops.app import SESSION_SETTINGS, AgentOpsApp
    from usechat.agent_ops.audit import AuditLog
    from usechat.agent_ops.prompt_tracker import PromptTracker
    from usechat.agent_ops.tls import upstream_tls
    from usechat.agent_ops.transport import AgentOpsChatTransport

__all__ = [
    "SESSION_SETTINGS",
    "AccessRule",
    "AgentOpsApp",
    "AgentOpsChatTransport",
    "AuditLog",
    "DirectoryChanges",
    "HttpLookup",
    "ListedSession",
    "Membership",
    "PromptTracker",
    "Role",
    "SessionAdapter",
    "SessionDirectory",
    "upstream_tls",
]

# Imported on use: the adapter needs no server library, and only the directory needs a database library.
_HOMES: Final = {
    "AccessRule": "access.roles",
    "AgentOpsApp": "app",
    "AgentOpsChatTransport": "transport",
    "AuditLog": "audit",
    "DirectoryChanges": "access.directory",
    "HttpLookup": "access.lookup",
    "ListedSession": "access.directory",
    "Membership": "access.roles",
    "PromptTracker": "prompt_tracker",
    "Role": "access.roles",
    "SESSION_SETTINGS": "app",
    "SessionAdapter": "adapter",
    "SessionDirectory": "access.directory",
    "upstream_tls": "tls",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
