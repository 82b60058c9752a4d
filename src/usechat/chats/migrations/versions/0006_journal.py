"""What a process needs to continue the answer of one that died, and the results of the steps of agent functions."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add the columns and the table; an answer that is running has no turn, so that it cannot be continued."""
    op.add_column("usechat_claims", sa.Column("turn", sa.Text, nullable=False, server_default=""))
    op.add_column("usechat_claims", sa.Column("finished", sa.Integer, nullable=False, server_default="0"))
    op.add_column("usechat_claims", sa.Column("stalled", sa.Integer, nullable=False, server_default="0"))
    op.add_column("usechat_claims", sa.Column("stop", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_table(
        "usechat_steps",
        sa.Column("chat", _KEY, sa.ForeignKey("usechat_chats.key", ondelete="CASCADE"), primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("result", sa.Text),
    )


def downgrade() -> None:
    """Remove them."""
    op.drop_table("usechat_steps")
    for name in ("stop", "stalled", "finished", "turn"):
        op.drop_column("usechat_claims", name)
