"""What alembic runs: the migrations, over the connection that it is given."""

from alembic import context

from usechat.agent_ops.access.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
