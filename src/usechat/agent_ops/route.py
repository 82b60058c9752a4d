"""The endpoints of a session: first who asks, then whether they may, then the chat; no upstream before that."""

import contextlib
import hashlib
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from usechat.agent_ops.access import AccessRule, is_session_id, may_prompt
from usechat.runs.keeper import Reading
from usechat.server.asking import Action, NotTheirs, ask
from usechat.server.chat_ids import chat_key
from usechat.server.endpoint import Endpoints
from usechat.turn import Identity

__all__ = ["PATH", "SessionEndpoints"]

PATH: Final = "/api/sessions/{session_id}/chat"

_ADMITTED: Final = "usechat.admitted"


class SessionEndpoints(Endpoints):
    """Endpoints behind an access rule. Runs are named by session, person and chat: people share a session, not runs."""

    def __init__(self, answer: Any, *, access: AccessRule, **options: Any) -> None:
        super().__init__(answer, **options)
        self._access = access

    async def _send(self, request: Request) -> Response:
        await self._identify(request, "", "send")  # before the body is read: a stranger is told nothing about it
        return await super()._send(request)

    async def find(self, request: Request, chat_id: str, sdk: str) -> Reading | None:
        """Read the run that goes on, from its start; nothing if there is none, or no log of it."""
        if self.keep_log:
            return await super().find(request, chat_id, sdk)
        with contextlib.suppress(NotTheirs):
            await self._identify(request, chat_id, "resume")
        return None

    async def _identify(self, request: Request, chat_id: str, action: Action) -> Identity:  # noqa: ARG002 (a session is asked for)
        """Return who asks, if they may; asked once per request."""
        # Not in `request.state`: whether that is one request's own depends on the server.
        known: Identity | None = request.scope.get(_ADMITTED)
        if known is None:
            known = request.scope[_ADMITTED] = await self._admit(request, action)
        return known

    async def _admit(self, request: Request, action: Action) -> Identity:
        session_id = str(request.path_params["session_id"])
        identity = await ask(self._authorize, request, session_id, action)
        if identity is None or not is_session_id(session_id):
            raise NotTheirs("No such session.")
        if not may_prompt(await self._access.role_of(identity, session_id)):
            raise NotTheirs("No such session.")
        return identity

    def _key(self, request: Request, identity: Identity, chat_id: str) -> str:
        # A digest, because the name stands in logs, and a subject is often an address.
        person = hashlib.sha256(identity.subject.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return chat_key({"session": request.path_params["session_id"], "person": person}, chat_id)
