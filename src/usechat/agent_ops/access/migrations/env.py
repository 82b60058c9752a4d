"""The environment of alembic: runs the migrations over the connection that the caller passes."""

from alembic import context

from usechat.agent_ops.access.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
