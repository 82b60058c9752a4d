"""The agent that made an answer."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty for the messages that are there: the agent of their chat made them."""
    op.add_column("usechat_messages", sa.Column("agent", sa.Text, nullable=False, server_default=""))


def downgrade() -> None:
    """Remove the column."""
    op.drop_column("usechat_messages", "agent")
