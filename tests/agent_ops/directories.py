"""A session directory to test with: every role in every kind of session."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from usechat.agent_ops.access.directory import DirectoryChanges, SessionDirectory
from usechat.agent_ops.access.roles import Role

KINDS = ("interactive", "orchestrator", "workflow")
PEOPLE = {"olivia": Role.OWNER, "carl": Role.COLLABORATOR, "vera": Role.VIEWER}
"""Who takes part; a stranger does not."""


@asynccontextmanager
async def directory_at(url: str) -> AsyncIterator[SessionDirectory]:
    directory = SessionDirectory(url)
    try:
        yield directory
    finally:
        await directory.close()


async def fill(directory: SessionDirectory) -> DirectoryChanges:
    """Make one session of each kind, named after it and switched on, in which everybody takes part."""
    changes = DirectoryChanges(directory)
    await changes.migrate()
    for kind in KINDS:
        await changes.add(kind, "olivia", kind)
        await changes.switch(kind, enabled=True)
        await changes.grant(kind, "carl", Role.COLLABORATOR)
        await changes.grant(kind, "vera", Role.VIEWER)
    return changes


def sqlite(directory: Path) -> str:
    return f"sqlite:///{directory / 'sessions.db'}"
