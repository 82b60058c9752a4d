"""The tables of the session directory. The migrations make them; a test keeps both in step."""

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
"""Who takes part in a session besides its owner."""

TOKENS: Final = Table(
    "tokens",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("subject", String(200), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", BigInteger),
)
"""Whose token it is, by its SHA-256; the token itself is nowhere."""
