"""The route of Agent Ops sessions as one ASGI app, mounted anywhere or served alone."""

import os
from typing import Any

from starlette.routing import Route

from usechat.agent_ops.access import AccessRule
from usechat.agent_ops.concurrent_runs import ConcurrentRuns
from usechat.agent_ops.route import PATH, SessionEndpoints
from usechat.agent_ops.settings import SESSION_SETTINGS, for_sessions, is_switched_on
from usechat.agent_ops.transport import AgentOpsChatTransport
from usechat.runs.store import RunStore
from usechat.server.app import EndpointsApp, run_routes, watching
from usechat.server.asking import Authorize
from usechat.server.observer import Observer
from usechat.server.settings import Settings

__all__ = ["AgentOpsApp"]


class AgentOpsApp(EndpointsApp):
    """Puts an AI SDK face on sessions: ``POST /api/sessions/{session_id}/chat``.

    ``upstream`` is the address of a session's WebSocket with ``{id}`` in it, or an ``AgentOpsChatTransport``. With
    ``runs`` there are resume, stop and state, and a run outlives its page as ``settings.disconnect`` says; without,
    it ends with the connection. ``enabled`` counts while ``ENABLE_AI_SDK_ADAPTER`` is not set.
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
    ) -> None:
        counting, page = watching(observer, metrics=metrics)
        self.enabled = is_switched_on(os.environ, consent=enabled)
        """Whether the route answers; it is not there otherwise."""
        self._access = access
        endpoints = SessionEndpoints(
            AgentOpsChatTransport(upstream) if isinstance(upstream, str) else upstream,
            access=access,
            authorize=authorize,
            store=runs or ConcurrentRuns(),
            settings=for_sessions(settings, kept=runs is not None),
            observer=counting,
            keep_log=runs is not None,
        )
        resume, *others = run_routes(PATH, endpoints)
        # A page that resumes when it loads is told that there is nothing: a 404 would be an error to it.
        routes = [Route(PATH, endpoints.send, methods=["POST"]), resume, *(others if runs is not None else [])]
        super().__init__(endpoints, routes if self.enabled else [], drain=drain, metrics=page)

    async def shut_down(self) -> None:
        """Break readers off, let runs come to an end; an app that is mounted elsewhere calls it by itself."""
        await super().shut_down()
        await self._access.close()

    async def check(self) -> None:
        """Raise if it cannot answer at the moment."""
        await super().check()
        await self._access.check()
