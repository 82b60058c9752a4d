"""Who may use a session: roles, kinds of sessions, and the rule over both."""

import enum
import re
from typing import Final, Protocol

import msgspec

from usechat.turn import Identity

__all__ = ["INTERACTIVE", "AccessRule", "Role", "Standing", "is_session_id", "may_prompt"]

INTERACTIVE: Final = "interactive"
"""The one kind of session that people share; ``orchestrator`` and ``workflow`` are their owner's alone."""

_SESSION_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:~-]{0,199}")


class Role(enum.IntEnum):
    """What somebody is in a session; who may do more has the higher number."""

    VIEWER = 0
    COLLABORATOR = 1
    OWNER = 2


class Standing(msgspec.Struct, frozen=True):
    """How somebody stands to a session: their role, the session's kind, and whether AI SDK pages may use it."""

    role: Role
    kind: str = INTERACTIVE
    enabled: bool = True


class AccessRule(Protocol):
    """Knows who takes part in which session."""

    async def role_of(self, identity: Identity, session_id: str) -> Standing | None:
        """Return how somebody stands to a session; nothing if there is none, or they have no part in it."""
        ...

    async def check(self) -> None:
        """Raise if the rule cannot be asked at the moment."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


def is_session_id(text: str) -> bool:
    """Tell whether this can be the id of a session: nothing that means something in a URL, where it will stand."""
    return _SESSION_ID.fullmatch(text) is not None


def may_prompt(standing: Standing | None) -> bool:
    """Tell whether somebody may send a prompt. A kind that nobody knows is its owner's alone."""
    if standing is None or not standing.enabled:
        return False
    needed = Role.COLLABORATOR if standing.kind == INTERACTIVE else Role.OWNER
    return standing.role >= needed
