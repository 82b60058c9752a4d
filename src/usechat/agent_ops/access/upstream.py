"""An access rule that asks nobody: the session server decides, because it gets the caller's own token."""

from usechat.agent_ops.access.roles import INTERACTIVE, Membership, Role
from usechat.server import Identity

__all__ = ["UpstreamAccess"]


class UpstreamAccess:
    """Lets everybody with a token through to the session server, which refuses those who may not use the session.

    Use it only where the session server gets the caller's own token: a caller can do no more than with a socket of
    their own. It is laxer than the other rules only where the session server is, which lets viewers send prompts.
    """

    async def role_of(self, identity: Identity, session_id: str) -> Membership:  # noqa: ARG002
        """Return a membership that may prompt."""
        return Membership(Role.OWNER, INTERACTIVE)

    async def check(self) -> None:
        """Do nothing: no one is asked."""

    async def close(self) -> None:
        """Do nothing: nothing is open."""
