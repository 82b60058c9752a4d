"""The directory of sessions in a database: who takes part in which, and whose token it is."""

import hashlib
import logging
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from starlette.requests import HTTPConnection

from usechat.agent_ops.access import AccessUnknown, Role, Standing
from usechat.agent_ops.tables import PARTICIPANTS, SESSIONS, TOKENS
from usechat.errors import MissingDependency, UsechatError
from usechat.server.asking import Action, Authorize, Unauthenticated
from usechat.server.auth import TokenRule, identify, token_of
from usechat.turn import Identity

try:
    from sqlalchemy import URL, and_, bindparam, make_url, select
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
except ImportError:
    raise MissingDependency("sqlalchemy", "agent-ops") from None

__all__ = ["SessionDirectory", "UnusableDirectory", "digest_of", "directory_url"]

_logger: Final = logging.getLogger("usechat.server")
_DEFAULT: Final = "sqlite:///usechat-sessions.db"
_VARIABLE: Final = "USECHAT_SESSIONS"
_DRIVERS: Final = {
    "sqlite": ("sqlite+aiosqlite", "agent-ops"),
    "postgresql": ("postgresql+asyncpg", "postgresql"),
    "postgres": ("postgresql+asyncpg", "postgresql"),
}
"""The driver behind the scheme of a URL, and the extra that brings it."""

_STANDING: Final = (
    select(SESSIONS.c.kind, SESSIONS.c.owner, SESSIONS.c.ai_sdk_enabled, PARTICIPANTS.c.role)
    .outerjoin_from(
        SESSIONS,
        PARTICIPANTS,
        and_(PARTICIPANTS.c.session_id == SESSIONS.c.id, PARTICIPANTS.c.subject == bindparam("person")),
    )
    .where(SESSIONS.c.id == bindparam("session"))
)
_TOKEN: Final = select(TOKENS).where(TOKENS.c.digest == bindparam("token_digest"))
"""Both are built once: a query costs more to build than to ask."""


class UnusableDirectory(UsechatError):
    """The database cannot be used; the text says why, and never repeats a password."""


def directory_url(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return where the directory is: as given, as ``USECHAT_SESSIONS`` says, or in a file beside."""
    return given or environment.get(_VARIABLE) or _DEFAULT


def digest_of(token: str) -> str:
    """Return what the directory keeps of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


class SessionDirectory:
    """An access rule, and a rule for tokens, over a database: ``sqlite:///FILE`` or ``postgresql://…``.

    What is changed in it counts at the next request. ``usechat sessions`` manages it.
    """

    def __init__(self, url: str = _DEFAULT) -> None:
        self.engine: AsyncEngine = _engine(url)
        # A single query needs no transaction; to begin one and roll it back would cost more than the query.
        self._reader = self.engine.execution_options(isolation_level="AUTOCOMMIT")

    async def role_of(self, identity: Identity, session_id: str) -> Standing | None:
        """Return how somebody stands to a session of the directory."""
        asked = {"session": session_id, "person": identity.subject}
        async with self._reading() as connection:
            found = (await connection.execute(_STANDING, asked)).one_or_none()
        if found is None:
            return None
        if identity.subject and found.owner == identity.subject:
            return Standing(Role.OWNER, found.kind, found.ai_sdk_enabled)
        return None if found.role is None else Standing(Role[found.role.upper()], found.kind, found.ai_sdk_enabled)

    async def identify(self, token: str) -> Identity | None:
        """Return whose token it is, if the directory has it and it was not revoked."""
        async with self._reading() as connection:
            found = (await connection.execute(_TOKEN, {"token_digest": digest_of(token)})).one_or_none()
        if found is None or found.revoked_at is not None:
            return None
        if found.expires_at is not None and found.expires_at <= time.time():
            raise Unauthenticated("The token has expired.")
        return Identity(found.subject, token=token)

    def bearer(self, *rules: TokenRule) -> Authorize:
        """Return an ``authorize`` that asks for a bearer token of the directory, or one that another rule knows."""

        async def authorize(request: HTTPConnection, _session_id: str, _action: Action) -> Identity | None:
            token = token_of(request.headers)
            if token is not None and token.isascii() and (identity := await self.identify(token)) is not None:
                return identity
            return identify(request.headers, rules)

        return authorize

    async def check(self) -> None:
        """Raise if the database cannot be asked."""
        async with self._reading() as connection:
            await connection.execute(select(SESSIONS.c.id).limit(1))

    async def close(self) -> None:
        """Let go of connections."""
        await self.engine.dispose()

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with self._reader.connect() as connection:
                yield connection
        except (SQLAlchemyError, OSError) as error:
            # The error's own text may hold values of the query, or the address with its password.
            _logger.error("the session directory cannot be read: %s", type(error).__name__)
            raise AccessUnknown("Access cannot be checked at the moment.") from None


def _engine(url: str) -> AsyncEngine:
    try:
        parsed: URL = make_url(url)
        driver, extra = _DRIVERS[parsed.drivername]
    except (ArgumentError, KeyError):
        raise UnusableDirectory("a directory is sqlite:///FILE or postgresql://USER@HOST/DATABASE") from None
    try:
        return create_async_engine(
            parsed.set(drivername=driver), pool_pre_ping=extra == "postgresql", skip_autocommit_rollback=True
        )
    except ModuleNotFoundError as error:
        raise MissingDependency(error.name or driver, extra) from None
