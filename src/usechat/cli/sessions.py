"""The command `usechat sessions`: manages the directory, and prints what it holds."""

import asyncio
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Final, TypeAlias

from usechat.agent_ops.access.directory import DirectoryChanges, SessionDirectory, directory_url
from usechat.agent_ops.access.roles import Role

__all__ = ["run"]

Lines: TypeAlias = AsyncIterator[str]


def run(options: Namespace) -> int:
    """Do one command; what does not go is a UsechatError."""
    asyncio.run(_run(options))
    return 0


async def _run(options: Namespace) -> None:
    directory = SessionDirectory(directory_url(options.database))
    try:
        async for line in _COMMANDS[options.command](DirectoryChanges(directory), options):
            sys.stdout.write(f"{line}\n")
    finally:
        await directory.close()


async def _migrate(changes: DirectoryChanges, _options: Namespace) -> Lines:
    await changes.migrate()
    yield "The tables are up to date."


async def _add(changes: DirectoryChanges, options: Namespace) -> Lines:
    await changes.add(options.session, options.owner, options.kind)
    yield f"{options.session} is {options.owner}'s, and switched off; run: usechat sessions enable {options.session}"


async def _remove(changes: DirectoryChanges, options: Namespace) -> Lines:
    await changes.remove(options.session)
    yield f"{options.session} is forgotten."


async def _enable(changes: DirectoryChanges, options: Namespace) -> Lines:
    await changes.switch(options.session, enabled=True)
    yield f"AI SDK pages may use {options.session}."


async def _disable(changes: DirectoryChanges, options: Namespace) -> Lines:
    await changes.switch(options.session, enabled=False)
    yield f"AI SDK pages may not use {options.session}."


async def _grant(changes: DirectoryChanges, options: Namespace) -> Lines:
    await changes.grant(options.session, options.subject, Role[options.role.upper()])
    yield f"{options.subject} is {options.role} of {options.session}."


async def _revoke(changes: DirectoryChanges, options: Namespace) -> Lines:
    await changes.revoke(options.session, options.subject)
    yield f"{options.subject} takes no part in {options.session}."


async def _list(changes: DirectoryChanges, _options: Namespace) -> Lines:
    for session in await changes.sessions():
        state = "on" if session.enabled else "off"
        yield f"{session.session_id}  {session.kind}  {state}  {session.owner} (owner)"
        for subject, role in session.participants.items():
            yield f"  {subject} ({role})"


async def _token(changes: DirectoryChanges, options: Namespace) -> Lines:
    yield await changes.new_token(options.subject, days=options.days)


async def _tokens(changes: DirectoryChanges, _options: Namespace) -> Lines:
    for token in await changes.tokens():
        expires = "for ever" if token.expires_at is None else f"until {_day(token.expires_at)}"
        revoked = "" if token.revoked_at is None else f", revoked {_day(token.revoked_at)}"
        yield f"{token.digest[:12]}  {token.subject}  made {_day(token.created_at)}, {expires}{revoked}"


async def _revoke_token(changes: DirectoryChanges, options: Namespace) -> Lines:
    await changes.revoke_token(options.digest)
    yield f"The token {options.digest}… is useless now."


_COMMANDS: Final[dict[str, Callable[[DirectoryChanges, Namespace], Lines]]] = {
    "migrate": _migrate,
    "add": _add,
    "remove": _remove,
    "enable": _enable,
    "disable": _disable,
    "grant": _grant,
    "revoke": _revoke,
    "list": _list,
    "token": _token,
    "tokens": _tokens,
    "revoke-token": _revoke_token,
}


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
