"""The tables of the session directory. The migrations create them; a test compares both."""

from typing import Final

from usechat.errors import MissingDependency

try:
    from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, ForeignKey, MetaData, String, Table
except ImportError:
    raise MissingDependency("sqlalchemy", "agent-ops") from None

__all__ = ["METADATA", "PARTICIPANTS", "SESSIONS", "TOKENS"]

METADATA: Final = MetaData()

SESSIONS: Final = Table(
    "sessions",
    METADATA,
    Column("id", String(200), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("owner", String(200), nullable=False),
    Column("ai_sdk_enabled", Boolean, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    CheckConstraint("kind IN ('interactive', 'orchestrator', 'workflow')", name="sessions_kind"),
)
"""A session and its owner. Times are seconds since 1970."""

PARTICIPANTS: Final = Table(
    "participants",
    METADATA,
    Column("session_id", String(200), ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("subject", String(200), primary_key=True),
    Column("role", String(32), nullable=False),
    CheckConstraint("role IN ('viewer', 'collaborator')", name="participants_role"),
)
"""The participants of a session other than its owner."""

TOKENS: Final = Table(
    "tokens",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("subject", String(200), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
)
"""The subject of each token. A token is stored as its SHA-256 only."""
