"""Agent Ops: agent sessions behind a WebSocket as AI SDK chats.

:class:`AgentOpsApp` serves sessions, :class:`AgentOpsChatTransport` answers one chat, :class:`SessionDirectory` and
:class:`HttpLookup` say who may use which session. ``docs/agent-ops.md`` has the rest.
"""

from typing import TYPE_CHECKING, Final

from usechat.lazy import lazy_names

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
    "AccessRule": "usechat.agent_ops.access.roles",
    "AgentOpsApp": "usechat.agent_ops.app",
    "AgentOpsChatTransport": "usechat.agent_ops.transport",
    "AuditLog": "usechat.agent_ops.audit",
    "DirectoryChanges": "usechat.agent_ops.access.directory",
    "HttpLookup": "usechat.agent_ops.access.lookup",
    "ListedSession": "usechat.agent_ops.access.directory",
    "Membership": "usechat.agent_ops.access.roles",
    "PromptTracker": "usechat.agent_ops.prompt_tracker",
    "Role": "usechat.agent_ops.access.roles",
    "SESSION_SETTINGS": "usechat.agent_ops.app",
    "SessionAdapter": "usechat.agent_ops.adapter",
    "SessionDirectory": "usechat.agent_ops.access.directory",
    "upstream_tls": "usechat.agent_ops.tls",
}

__getattr__ = lazy_names(__name__, _HOMES)
