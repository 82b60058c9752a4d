"""The token of a chat's share link."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty for the chats that are there, and its index."""
    op.add_column("usechat_chats", sa.Column("share", sa.Text))
    op.create_index("usechat_chats_by_share", "usechat_chats", ["share"], unique=True)


def downgrade() -> None:
    """Remove both; all share links end."""
    op.drop_index("usechat_chats_by_share", "usechat_chats")
    op.drop_column("usechat_chats", "share")
