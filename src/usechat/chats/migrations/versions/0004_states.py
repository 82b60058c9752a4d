"""The states of paused agents."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "usechat_states",
        sa.Column("chat", _KEY, sa.ForeignKey("usechat_chats.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("handle", sa.Text, primary_key=True),
        sa.Column("state", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    """Drop it, and all that it holds."""
    op.drop_table("usechat_states")
