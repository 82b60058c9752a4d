"""Roles, kinds of sessions, and the rule that says who may send prompts."""

import enum
import re
from typing import Final, Protocol

import msgspec

from usechat.server import Identity

__all__ = ["INTERACTIVE", "AccessRule", "Membership", "Role", "is_session_id", "may_prompt"]

INTERACTIVE: Final = "interactive"
"""The kind of session that people share. Sessions of other kinds are for their owner only."""

_SESSION_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:~-]{0,199}")


class Role(enum.IntEnum):
    """A person's role in a session, ordered by permissions.

    Owners and collaborators may chat with an interactive session; a session of another kind is for its owner alone.
    Viewers may not: for them the session does not exist (404).

    >>> Role.OWNER > Role.COLLABORATOR > Role.VIEWER
    True
    """

    VIEWER = 0
    COLLABORATOR = 1
    OWNER = 2


class Membership(msgspec.Struct, frozen=True):
    """A person's membership in a session: the role, the session's kind, and whether AI SDK pages may use the session.

    >>> Membership(Role.COLLABORATOR, kind="workflow")
    Membership(role=<Role.COLLABORATOR: 1>, kind='workflow', enabled=True)
    """

    role: Role
    kind: str = INTERACTIVE
    enabled: bool = True


class AccessRule(Protocol):
    """Looks up the participants of sessions, as :class:`SessionDirectory` and :class:`HttpLookup` do.

    A custom rule needs no base class:

    >>> from usechat.server import Identity
    >>> class EverybodyCollaborates:
    ...     async def role_of(self, identity: Identity, session_id: str) -> Membership | None:
    ...         return Membership(Role.COLLABORATOR)
    ...     async def check(self) -> None: ...
    ...     async def close(self) -> None: ...
    >>> rule: AccessRule = EverybodyCollaborates()
    """

    async def role_of(self, identity: Identity, session_id: str) -> Membership | None:
        """Return somebody's membership in a session; ``None`` if there is no such session, or they are not in it.

        Raise :class:`~usechat.agent_ops.errors.AccessUnknown` if it cannot be found out; the request is refused then.
        """
        ...

    async def check(self) -> None:
        """Raise if memberships cannot be looked up at the moment. Called by readiness checks."""
        ...

    async def close(self) -> None:
        """Close connections. Called at shutdown."""
        ...


def is_session_id(text: str) -> bool:
    """Return whether a text can be the id of a session. Characters with a meaning in URLs are not allowed."""
    return _SESSION_ID.fullmatch(text) is not None


def may_prompt(membership: Membership | None) -> bool:
    """Return whether a participant may send prompts. A session of an unknown kind is for its owner only."""
    if membership is None or not membership.enabled:
        return False
    needed = Role.COLLABORATOR if membership.kind == INTERACTIVE else Role.OWNER
    return membership.role >= needed
