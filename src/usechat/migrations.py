"""Database migrations, one at a time in a process.

alembic keeps the migration that runs in variables of its modules, and a migration over an asynchronous connection lets
other tasks run in between. Without a lock, stores that are opened at the same time would take each other's variables.
"""

import asyncio
import threading
from collections.abc import Callable
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

__all__ = ["migrate"]

_running: Final = threading.Lock()
"""Stores may be opened in several event loops, and a lock of asyncio belongs to one."""
_PAUSE: Final = 0.01


async def migrate(connection: AsyncConnection, config: Callable[[Connection], Config], revision: str) -> None:
    """Bring the tables to a revision: ``head`` is the newest, ``base`` is none at all."""
    change = command.downgrade if revision == "base" else command.upgrade
    while not _running.acquire(blocking=False):  # noqa: ASYNC110 - events belong to one loop, too
        await asyncio.sleep(_PAUSE)
    try:
        await connection.run_sync(lambda sync: change(config(sync), revision))
    finally:
        _running.release()
