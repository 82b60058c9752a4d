"""Chats, messages, growth, claims and blobs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Make the five tables."""
    op.create_table(
        "usechat_chats",
        sa.Column("key", _KEY, primary_key=True),
        sa.Column("id", sa.Text, nullable=False, unique=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("titled_by", sa.Text, nullable=False),
        sa.Column("search", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("updated", sa.Double, nullable=False),
        sa.Column("pinned", sa.Boolean, nullable=False),
        sa.Column("archived", sa.Boolean, nullable=False),
        sa.Column("leaf", sa.Integer),
        sa.Column("version", sa.Integer, nullable=False),
    )
    op.create_index("usechat_chats_by_owner", "usechat_chats", ["owner", "pinned", "updated", "key"])
    op.create_index("usechat_chats_by_update", "usechat_chats", ["updated"])
    op.create_table(
        "usechat_messages",
        sa.Column("chat", _KEY, sa.ForeignKey("usechat_chats.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("parent", sa.Integer),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("alias", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("given", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("feedback", sa.Text),
        sa.Column("search", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.UniqueConstraint("chat", "id", name="usechat_messages_id"),
        sa.CheckConstraint("parent < sequence", name="usechat_messages_parent"),
    )
    op.create_table(
        "usechat_growth",
        sa.Column("chat", _KEY, primary_key=True),
        sa.Column("sequence", sa.Integer, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("growth", sa.Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["chat", "sequence"], ["usechat_messages.chat", "usechat_messages.sequence"], ondelete="CASCADE"
        ),
    )
    op.create_table(
        "usechat_claims",
        sa.Column("chat", _KEY, sa.ForeignKey("usechat_chats.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("claim", sa.Text, nullable=False),
        sa.Column("expires", sa.Double, nullable=False),
    )
    op.create_index("usechat_claims_by_end", "usechat_claims", ["expires"])
    op.create_table(
        "usechat_blobs",
        sa.Column("chat", _KEY, sa.ForeignKey("usechat_chats.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    """Drop them, and all that they hold."""
    for name in ("blobs", "claims", "growth", "messages", "chats"):
        op.drop_table(f"usechat_{name}")
