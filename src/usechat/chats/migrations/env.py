"""What alembic runs: the migrations, over the connection that it is given."""

from alembic import context

from usechat.chats.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    # Others may keep their own alembic_version in the same database.
    version_table="usechat_chats_version",
)
with context.begin_transaction():
    context.run_migrations()
