"""The session directory in a database: sessions with their participants, and the tokens of people.

:class:`SessionDirectory` reads it for every request. :class:`DirectoryChanges`, which ``usechat sessions``
calls, creates the tables and edits them. Nothing is cached, so a change takes effect at the next request.
"""

import contextlib
import hashlib
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.requests import Request

from usechat.agent_ops.access.roles import Membership, Role, is_session_id
from usechat.agent_ops.access.tables import PARTICIPANTS, SESSIONS, TOKENS
from usechat.agent_ops.errors import AccessUnknown, UnusableDirectory
from usechat.errors import MissingDependency, Unauthenticated
from usechat.server import Action, Authorize, Identity, TokenRule, bearer, token_of

try:
    from sqlalchemy import and_, bindparam, delete, insert, select, update
    from sqlalchemy.exc import IntegrityError, SQLAlchemyError
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from usechat.database import Schema
except ImportError as error:
    raise MissingDependency((error.name or "sqlalchemy").partition(".")[0], "agent-ops") from None

__all__ = [
    "DirectoryChanges",
    "ListedSession",
    "ListedToken",
    "SessionDirectory",
    "digest_of",
    "directory_url",
]

_logger: Final = logging.getLogger("usechat.server")
_DEFAULT: Final = "sqlite:///usechat-sessions.db"
_VARIABLE: Final = "USECHAT_SESSIONS"
_SCHEMA: Final = Schema(
    title="the directory",
    addresses="a directory is sqlite:///FILE or postgresql://USER@HOST/DATABASE",
    error=UnusableDirectory,
    extra="agent-ops",
    migrations=Path(__file__).parent / "migrations",
)
_DAY: Final = 24 * 3600
_SHORTEST_PREFIX: Final = 8
_LONGEST_NAME: Final = 200

_MEMBERSHIP: Final = (
    select(SESSIONS.c.kind, SESSIONS.c.owner, SESSIONS.c.ai_sdk_enabled, PARTICIPANTS.c.role)
    .outerjoin_from(
        SESSIONS,
        PARTICIPANTS,
        and_(PARTICIPANTS.c.session_id == SESSIONS.c.id, PARTICIPANTS.c.subject == bindparam("person")),
    )
    .where(SESSIONS.c.id == bindparam("session"))
)
_TOKEN: Final = select(TOKENS).where(TOKENS.c.digest == bindparam("token_digest"))
"""Both are built once: building a query costs more than running it."""


def directory_url(url: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the directory's URL: ``url``, that in ``USECHAT_SESSIONS``, or a SQLite file of the default name."""
    return url or environment.get(_VARIABLE) or _DEFAULT


def digest_of(token: str) -> str:
    """Return the digest under which the directory stores a token."""
    return hashlib.sha256(token.encode()).hexdigest()


class SessionDirectory:
    """An access rule and a token rule backed by a database: ``sqlite:///FILE`` or ``postgresql://…``.

    ``usechat sessions``, or :class:`DirectoryChanges`, edits it; a change takes effect at the next request. Use it in
    one event loop. Raises :class:`~usechat.agent_ops.errors.UnusableDirectory` for a URL of another kind.

    >>> from usechat.agent_ops import AgentOpsApp
    >>> directory = SessionDirectory("sqlite:///usechat-sessions.db")
    >>> address = "wss://agents.example.com/api/sessions/{id}/ws"
    >>> app = AgentOpsApp(address, access=directory, authorize=directory.bearer(), enabled=True)
    """

    def __init__(self, url: str = _DEFAULT) -> None:
        self.engine: AsyncEngine = _SCHEMA.engine(url, skip_autocommit_rollback=True)
        # A single query needs no transaction; starting one and rolling it back would cost more than the query.
        self._reader = self.engine.execution_options(isolation_level="AUTOCOMMIT")

    async def role_of(self, identity: Identity, session_id: str) -> Membership | None:
        """Return somebody's membership in a session of the directory."""
        parameters = {"session": session_id, "person": identity.subject}
        async with self._reading() as connection:
            row = (await connection.execute(_MEMBERSHIP, parameters)).one_or_none()
        if row is None:
            return None
        if identity.subject and row.owner == identity.subject:
            return Membership(Role.OWNER, row.kind, row.ai_sdk_enabled)
        return None if row.role is None else Membership(Role[row.role.upper()], row.kind, row.ai_sdk_enabled)

    async def identify(self, token: str) -> Identity | None:
        """Return the owner of a token, or ``None`` if the token is unknown or revoked.

        Raises :class:`~usechat.errors.Unauthenticated` if it has expired.
        """
        async with self._reading() as connection:
            row = (await connection.execute(_TOKEN, {"token_digest": digest_of(token)})).one_or_none()
        if row is None or row.revoked_at is not None:
            return None
        if row.expires_at is not None and row.expires_at <= time.time():
            raise Unauthenticated("The token has expired.")
        return Identity(row.subject, token=token)

    def bearer(self, *rules: TokenRule) -> Authorize:
        """Return an ``authorize`` function that requires a bearer token of the directory or of another rule."""

        authorize_others = bearer(*rules)

        async def authorize(request: Request, session_id: str, action: Action) -> Identity | None:
            token = token_of(request.headers)
            if token is not None and token.isascii() and (identity := await self.identify(token)) is not None:
                return identity
            return await authorize_others(request, session_id, action)

        return authorize

    async def check(self) -> None:
        """Raise :class:`~usechat.agent_ops.errors.AccessUnknown` if the database cannot be read."""
        async with self._reading() as connection:
            await connection.execute(select(SESSIONS.c.id).limit(1))

    async def require_migrated(self) -> None:
        """Raise :class:`~usechat.agent_ops.errors.UnusableDirectory` if the tables are missing or old.

        A database that cannot be reached raises nothing.
        """
        with contextlib.suppress(SQLAlchemyError, OSError):  # a database that starts later is no reason to give up
            async with self._reader.connect() as connection:
                await _require_newest(connection)

    async def close(self) -> None:
        """Close connections."""
        await self.engine.dispose()

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with self._reader.connect() as connection:
                yield connection
        except (SQLAlchemyError, OSError) as error:
            # Only the type: the text of the error may hold values of the query, or the URL with its password.
            _logger.error("cannot read the session directory: %s", type(error).__name__)
            raise AccessUnknown("Access cannot be checked at the moment.") from None


class ListedSession(msgspec.Struct, frozen=True):
    """A session as :class:`SessionDirectory` lists it and :meth:`DirectoryChanges.import_sessions` takes it.

    ``kind`` is ``interactive``, or another word for a session that only its owner may use. ``enabled`` says whether AI
    SDK pages may use it, and ``participants`` maps subjects to roles, without the owner.

    >>> ListedSession("s1", "interactive", owner="ada", enabled=True, participants={"bob": "viewer"}).owner
    'ada'
    """

    session_id: str
    kind: str
    owner: str
    enabled: bool
    participants: dict[str, str]


class ListedToken(msgspec.Struct, frozen=True):
    """A token in a listing; times are seconds since 1970."""

    digest: str
    subject: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None


class DirectoryChanges:
    """Edits a session directory: tables, sessions, participants and tokens.

    Every method raises :class:`~usechat.agent_ops.errors.UnusableDirectory` if the change is not possible; the text
    says why. ``record`` is called before each change is committed: if it raises, nothing is changed.

    >>> import asyncio
    >>> async def make_directory():
    ...     directory = SessionDirectory("sqlite:///:memory:")
    ...     changes = DirectoryChanges(directory)
    ...     await changes.migrate()
    ...     await changes.add("s1", "alice", "interactive")
    ...     await changes.switch("s1", enabled=True)
    ...     token = await changes.new_token("alice")  # for alice's page; it cannot be read again
    ...     try:
    ...         return await changes.sessions()
    ...     finally:
    ...         await directory.close()
    >>> asyncio.run(make_directory())
    [ListedSession(session_id='s1', kind='interactive', owner='alice', enabled=True, participants={})]
    """

    def __init__(self, directory: SessionDirectory, *, record: Callable[[], None] | None = None) -> None:
        self._directory = directory
        self._record = record or _record_nothing

    async def migrate(self, revision: str = "head") -> None:
        """Migrate the tables to a revision: ``head`` is the newest, ``base`` drops them."""
        async with self._connection() as connection:
            self._record()  # first, because SQLite commits changes of tables at once
            await _SCHEMA.migrate(connection, revision)

    async def add(self, session_id: str, owner: str, kind: str) -> None:
        """Add a session. It is disabled until :meth:`switch` enables it."""
        async with self._changing() as connection:
            await _insert(connection, ListedSession(session_id, kind, owner, False, {}))

    async def import_sessions(self, sessions: Iterable[ListedSession]) -> None:
        """Add sessions with their participants, all or none."""
        async with self._changing() as connection:
            for session in sessions:
                await _insert(connection, session)

    async def remove(self, session_id: str) -> None:
        """Remove a session and its participants."""
        async with self._changing() as connection:
            # SQLite cascades only if a pragma is set on every connection.
            await connection.execute(delete(PARTICIPANTS).where(PARTICIPANTS.c.session_id == session_id))
            result = await connection.execute(delete(SESSIONS).where(SESSIONS.c.id == session_id))
            _require(result.rowcount, f"no session {session_id} is in the directory")

    async def switch(self, session_id: str, *, enabled: bool) -> None:
        """Enable or disable a session for AI SDK pages."""
        await self._update_session(session_id, ai_sdk_enabled=enabled)

    async def grant(self, session_id: str, subject: str, role: Role) -> None:
        """Give somebody a role. A session has one owner, so granting that role transfers it."""
        _require_name(subject)
        if role is Role.OWNER:
            await self._update_session(session_id, owner=subject)
            return
        async with self._changing() as connection:
            await _require_not_owner(connection, session_id, subject)
            await connection.execute(delete(PARTICIPANTS).where(*_participant(session_id, subject)))
            values = {"session_id": session_id, "subject": subject, "role": role.name.lower()}
            await connection.execute(insert(PARTICIPANTS).values(values))

    async def revoke(self, session_id: str, subject: str) -> None:
        """Remove somebody's role."""
        async with self._changing() as connection:
            await _require_not_owner(connection, session_id, subject)
            result = await connection.execute(delete(PARTICIPANTS).where(*_participant(session_id, subject)))
            _require(result.rowcount, f"{subject} takes no part in the session {session_id}")

    async def sessions(self) -> list[ListedSession]:
        """Return all sessions, sorted by id."""
        async with self._reading() as connection:
            rows = (await connection.execute(select(SESSIONS).order_by(SESSIONS.c.id))).all()
            order = (PARTICIPANTS.c.session_id, PARTICIPANTS.c.subject)
            people = (await connection.execute(select(PARTICIPANTS).order_by(*order))).all()
        roles: dict[str, dict[str, str]] = {}
        for person in people:
            roles.setdefault(person.session_id, {})[person.subject] = person.role
        return [ListedSession(row.id, row.kind, row.owner, row.ai_sdk_enabled, roles.get(row.id, {})) for row in rows]

    async def new_token(self, subject: str, *, days: int | None = None) -> str:
        """Create a token that expires after ``days``, or never, and return it. Only its digest is stored."""
        _require_name(subject)
        token = f"usechat-{secrets.token_urlsafe(32)}"
        expires_at = None if days is None else _now() + days * _DAY
        values = {"digest": digest_of(token), "subject": subject, "created_at": _now(), "expires_at": expires_at}
        async with self._changing() as connection:
            await connection.execute(insert(TOKENS).values(values))
        return token

    async def tokens(self) -> list[ListedToken]:
        """Return all tokens, sorted by subject and age."""
        order = (TOKENS.c.subject, TOKENS.c.created_at, TOKENS.c.digest)
        async with self._reading() as connection:
            rows = (await connection.execute(select(TOKENS).order_by(*order))).all()
        return [ListedToken(row.digest, row.subject, row.created_at, row.expires_at, row.revoked_at) for row in rows]

    async def revoke_token(self, prefix: str) -> None:
        """Revoke the token whose digest starts with a prefix."""
        if len(prefix) < _SHORTEST_PREFIX or not set(prefix) <= set("0123456789abcdef"):
            raise UnusableDirectory(f"{prefix} are not {_SHORTEST_PREFIX} or more digits of a SHA-256")
        async with self._changing() as connection:
            query = select(TOKENS.c.digest).where(TOKENS.c.digest.startswith(prefix))
            digests = (await connection.execute(query)).scalars().all()
            _require(len(digests) == 1, f"{len(digests) or 'no'} tokens begin with {prefix}")
            statement = update(TOKENS).where(TOKENS.c.digest == digests[0], TOKENS.c.revoked_at.is_(None))
            await connection.execute(statement.values(revoked_at=_now()))

    async def _update_session(self, session_id: str, **values: Any) -> None:
        async with self._changing() as connection:
            result = await connection.execute(update(SESSIONS).where(SESSIONS.c.id == session_id).values(values))
            _require(result.rowcount, f"no session {session_id} is in the directory")
            if "owner" in values:  # the owner has no second role
                await connection.execute(delete(PARTICIPANTS).where(*_participant(session_id, values["owner"])))

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[AsyncConnection]:
        """Start a transaction, and record the change at its end."""
        async with self._reading() as connection:
            yield connection
            self._record()

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[AsyncConnection]:
        """Start a transaction, after checking that the tables are up to date."""
        async with self._connection() as connection:
            await _require_newest(connection)
            yield connection

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[AsyncConnection]:
        try:
            async with self._directory.engine.begin() as connection:
                yield connection
        except (SQLAlchemyError, OSError) as error:
            raise _SCHEMA.unusable(error) from None


def _record_nothing() -> None:
    pass


async def _insert(connection: AsyncConnection, session: ListedSession) -> None:
    session_id, owner = session.session_id, session.owner
    if not is_session_id(session_id):
        raise UnusableDirectory(f"{session_id!r} cannot be the id of a session: letters, digits and _ - . : ~")
    for name in (owner, *session.participants):
        _require_name(name)
    _require(owner not in session.participants, f"{owner} owns the session {session_id} and has no second role")
    values = {"id": session_id, "owner": owner, "kind": session.kind, "ai_sdk_enabled": session.enabled}
    try:
        await connection.execute(insert(SESSIONS).values({**values, "created_at": _now()}))
    except IntegrityError:
        raise UnusableDirectory(f"the session {session_id} is in the directory already") from None
    for subject, role in session.participants.items():
        participant = {"session_id": session_id, "subject": subject, "role": role}
        await connection.execute(insert(PARTICIPANTS).values(participant))


def _participant(session_id: str, subject: str) -> tuple[Any, Any]:
    return PARTICIPANTS.c.session_id == session_id, PARTICIPANTS.c.subject == subject


async def _require_not_owner(connection: AsyncConnection, session_id: str, subject: str) -> None:
    owner = (await connection.execute(select(SESSIONS.c.owner).where(SESSIONS.c.id == session_id))).scalar()
    _require(owner is not None, f"no session {session_id} is in the directory")
    _require(owner != subject, f"{subject} owns the session {session_id}; grant owner to somebody else first")


async def _require_newest(connection: AsyncConnection) -> None:
    if not await _SCHEMA.is_newest(connection):
        raise UnusableDirectory("the directory's tables are missing or old; run: usechat sessions migrate")


def _require(condition: object, otherwise: str) -> None:
    if not condition:
        raise UnusableDirectory(otherwise)


def _require_name(subject: str) -> None:
    if not 0 < len(subject) <= _LONGEST_NAME or not subject.isprintable():
        raise UnusableDirectory(f"{subject!r} cannot be a name: up to {_LONGEST_NAME} characters that can be printed")


def _now() -> int:
    return int(time.time())
