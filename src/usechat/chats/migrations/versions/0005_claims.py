"""Which process holds a claim, in which attempt, and how much of the answer was sent when it was saved."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; the lease decides about the claims that are there."""
    op.add_column("usechat_claims", sa.Column("attempt", sa.Integer, nullable=False, server_default="1"))
    op.add_column("usechat_claims", sa.Column("owner", sa.Text, nullable=False, server_default=""))
    op.add_column("usechat_claims", sa.Column("chunks", sa.Integer, nullable=False, server_default="0"))


def downgrade() -> None:
    """Remove them."""
    for name in ("chunks", "owner", "attempt"):
        op.drop_column("usechat_claims", name)
