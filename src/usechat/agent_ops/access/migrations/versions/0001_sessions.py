"""Create sessions, participants and tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the three tables."""
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(200), primary_key=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("owner", sa.String(200), nullable=False),
        sa.Column("ai_sdk_enabled", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.CheckConstraint("kind IN ('interactive', 'orchestrator', 'workflow')", name="sessions_kind"),
    )
    op.create_table(
        "participants",
        sa.Column("session_id", sa.String(200), sa.ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("subject", sa.String(200), primary_key=True),
        sa.Column("role", sa.String(32), nullable=False),
        sa.CheckConstraint("role IN ('viewer', 'collaborator')", name="participants_role"),
    )
    op.create_table(
        "tokens",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("subject", sa.String(200), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("revoked_at", sa.BigInteger),
    )


def downgrade() -> None:
    """Drop the three tables."""
    op.drop_table("tokens")
    op.drop_table("participants")
    op.drop_table("sessions")
