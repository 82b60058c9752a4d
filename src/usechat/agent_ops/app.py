"""The route of Agent Ops sessions as one ASGI app, mounted anywhere or served alone."""

import asyncio
import hashlib
import os
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request

from usechat.agent_ops.access.roles import AccessRule, is_session_id, may_prompt
from usechat.agent_ops.transport import AgentOpsChatTransport
from usechat.errors import ChatNotFound, TooManyRequests
from usechat.server import (
    Action,
    Authorize,
    AuthorizedChats,
    Identity,
    MemoryRuns,
    Observer,
    PolicyApp,
    QuotaLimiter,
    Quotas,
    RunInfo,
    RunStore,
    Settings,
    Timeouts,
)

__all__ = [
    "PATH",
    "SESSION_SETTINGS",
    "SWITCH",
    "TOO_BUSY",
    "AgentOpsApp",
    "ConcurrentRuns",
    "SessionPolicy",
    "for_sessions",
    "is_switched_on",
]


SWITCH: Final = "ENABLE_AI_SDK_ADAPTER"
"""The variable of the environment that lets the route answer."""

SESSION_SETTINGS: Final = Settings(event_names=True, conflict="queue", timeouts=Timeouts(first_event=None, idle=None))
"""The settings of the route. How long a session may be silent is limited by the upstream connection, which also sees
the frames of which nothing is shown. To change one: ``msgspec.structs.replace(SESSION_SETTINGS, sdk="7")``."""


def for_sessions(settings: Settings, *, has_store: bool) -> Settings:
    """Return the settings that the route can honour: no 409, and without a store the run ends with its connection."""
    disconnect = settings.disconnect if has_store else "cancel"
    return msgspec.structs.replace(settings, conflict="queue", disconnect=disconnect)


def is_switched_on(environment: Mapping[str, str], *, consent: bool = False) -> bool:
    """Tell whether the route answers: as the environment variable says, or ``consent`` where it is not set."""
    value = environment.get(SWITCH)
    return consent if value is None else value.strip().lower() in ("true", "1")


class ConcurrentRuns(MemoryRuns):
    """A store that allows several runs of one chat at once: a session's prompts are queued upstream, not here.

    No client can read a run again, so of a run that has ended only what the page may answer is remembered.
    """

    is_concurrent = True

    async def claim(
        self,
        info: RunInfo,
        *,
        continues: Mapping[str, Any] | None = None,  # noqa: ARG002
        after: str | None = None,  # noqa: ARG002
    ) -> RunInfo | None:
        """Make this the last run of its chat, whether or not others are running."""
        self._latest[info.chat_id] = info
        return None

    async def end(self, info: RunInfo) -> bool:
        """Remember what the last run of a chat asked, for a while."""
        latest = self._latest.get(info.chat_id)
        if latest is not None and latest.run_id == info.run_id:
            if info.answerable:
                self._latest[info.chat_id] = info
                asyncio.get_running_loop().call_later(self.remember, self._forget, info)
            else:
                del self._latest[info.chat_id]
        self._wake_waiters(info)
        return True


PATH: Final = "/api/sessions/{session_id}/chat"

_UNKNOWN: Final = "No such session."
_ADMITTED: Final = "usechat.admitted"
_SESSION: Final = "\x1fsession\x1f"
"""Prefix of a session's quota key; no subject begins with it."""
TOO_BUSY: Final = "This session gets too many requests at the moment. Please wait."


class SessionPolicy(AuthorizedChats):
    """The policy of the route: authenticate first, then check the session's access rule; no upstream before that.

    Runs are keyed by session, person and chat: people share a session, not runs. ``limit`` counts the requests of each
    session, by anyone, that the quotas of their sender allow.
    """

    def __init__(self, authorize: Authorize, access: AccessRule, limit: QuotaLimiter) -> None:
        super().__init__(authorize, unknown=_UNKNOWN)
        self._access = access
        self._limit = limit

    async def authenticate(self, request: Request) -> bool:
        """Check the session before the body is read, so that an unauthorized caller learns nothing about it."""
        await self.identify(request, "", "send")
        return True

    async def identify(self, request: Request, chat_id: str, action: Action) -> Identity:  # noqa: ARG002 (the session counts)
        """Return who sent the request, if they may use the session; decided once per request."""
        # Not in `request.state`: whether that is one request's own depends on the server.
        identity: Identity | None = request.scope.get(_ADMITTED)
        if identity is None:
            identity = request.scope[_ADMITTED] = await self._admit(request, action)
        return identity

    async def _admit(self, request: Request, action: Action) -> Identity:
        session_id = str(request.path_params["session_id"])
        identity = await super().identify(request, session_id, action)
        if not is_session_id(session_id) or not may_prompt(await self._access.role_of(identity, session_id)):
            raise ChatNotFound(_UNKNOWN)
        return identity

    async def admit(self, request: Request) -> None:
        """Count a request of its session; raise ``TooManyRequests`` if the session got too many."""
        try:
            await self._limit.admit(f"{_SESSION}{request.path_params['session_id']}", "")
        except TooManyRequests as error:
            raise TooManyRequests(TOO_BUSY, retry_after=error.retry_after) from None

    def key(self, request: Request, identity: Identity, chat_id: str) -> str:
        """Return the key of the chat's runs; a digest names the person, because a subject is often an address."""
        person = hashlib.sha256(identity.subject.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return f"person={person}/{super().key(request, identity, chat_id)}"


class AgentOpsApp(PolicyApp):
    """An ASGI app that makes agent sessions usable by AI SDK pages: ``POST /api/sessions/{session_id}/chat``.

    Args:
        upstream: the address of a session's WebSocket with ``{id}`` in it, or an ``AgentOpsChatTransport``.
        access: which role a person has in a session.
        authorize: returns who sent a request.
        runs: with a run store there are resume, stop and state, and a run outlives its page as
            ``settings.disconnect`` says; without one, a run ends with the connection.
        settings: see :class:`~usechat.server.Settings`; ``settings.quotas`` limits the requests of each person.
        enabled: whether the route answers, as long as ``ENABLE_AI_SDK_ADAPTER`` is not set.
        drain: how many seconds runs get to finish when the server shuts down.
        observer: receives what happens.
        metrics: count for Prometheus, and serve the counts at ``/metrics``.
        session_requests_per_minute: limits the requests of each session. More are refused with 429.

    One app belongs to one event loop.

    >>> from usechat.agent_ops import SessionDirectory
    >>> directory = SessionDirectory("sqlite:///usechat-sessions.db")
    >>> address = "wss://agents.example.com/api/sessions/{id}/ws"
    >>> app = AgentOpsApp(address, access=directory, authorize=directory.bearer(), enabled=True)
    """

    def __init__(
        self,
        upstream: Any,
        *,
        access: AccessRule,
        authorize: Authorize,
        runs: RunStore | None = None,
        settings: Settings = SESSION_SETTINGS,
        enabled: bool = False,
        drain: float = 10,
        observer: Observer | None = None,
        metrics: bool = True,
        session_requests_per_minute: int | None = None,
    ) -> None:
        self.enabled = is_switched_on(os.environ, consent=enabled)
        """Whether the route answers; it is not there otherwise."""
        self._access = access
        store = runs or ConcurrentRuns()
        limit = QuotaLimiter(Quotas(requests_per_minute=session_requests_per_minute), store)
        super().__init__(
            AgentOpsChatTransport(upstream) if isinstance(upstream, str) else upstream,
            policy=SessionPolicy(authorize, access, limit),
            authorize=authorize,
            paths=[PATH] if self.enabled else [],
            runs=store,
            resumable=runs is not None,
            settings=for_sessions(settings, has_store=runs is not None),
            drain=drain,
            observer=observer,
            metrics=metrics,
        )

    async def shut_down(self) -> None:
        """Disconnect readers, let runs finish for ``drain`` seconds, and close the access rule."""
        await super().shut_down()
        await self._access.close()

    async def check(self) -> None:
        """Raise if the run store or the access rule cannot be reached."""
        await super().check()
        await self._access.check()
