"""An access rule that asks the upstream's own API, with the caller's token."""

import logging
from typing import Any, Final
from urllib.parse import quote

import httpx2
import msgspec

from usechat.agent_ops.access.roles import Role, Standing
from usechat.errors import AccessUnknown, Unauthenticated
from usechat.turn import Identity

__all__ = ["HttpLookup"]

_logger: Final = logging.getLogger("usechat.server")
_TIMEOUT: Final = 10.0
_LARGEST_ANSWER: Final = 1024 * 1024
_REFUSALS: Final = (403, 404)


class HttpLookup:
    """Asks ``url``, with ``{id}`` for the session, who the caller is there. It fails closed.

    ``role``, ``kind`` and ``owner`` say where the answer's JSON has them: keys, and numbers for places in lists, with
    dots between them. The owner is the one whose ``subject`` stands there, or whose role is ``owner``. Without a kind
    that it knows, a session is its owner's alone.
    """

    def __init__(
        self,
        url: str,
        *,
        role: str = "role",
        kind: str = "kind",
        owner: str = "owner",
    ) -> None:
        if "{id}" not in url:
            raise ValueError("the URL needs {id} where the session's id goes")
        self._url = url
        self._role = role
        self._kind = kind
        self._owner = owner
        self._client: httpx2.AsyncClient | None = None

    async def role_of(self, identity: Identity, session_id: str) -> Standing | None:
        """Ask for the session; 403 and 404 mean no, 401 that the token is none, and anything else that nobody knows."""
        if identity.token is None:
            raise Unauthenticated("The request carries no bearer token.")
        try:
            status, body = await self._get(self._url.replace("{id}", quote(session_id, safe="")), identity.token)
        except httpx2.HTTPError as error:
            raise _unknown(type(error).__name__) from None
        if status == 401:
            raise Unauthenticated("The token is not valid.")
        if status in _REFUSALS:
            return None
        if status != 200:
            raise _unknown(f"status {status}")
        try:
            return self._standing(msgspec.json.decode(body), identity.subject)
        except (msgspec.DecodeError, RecursionError):
            raise _unknown("the answer is not JSON") from None

    async def check(self) -> None:
        """Nothing: without a caller there is nothing to ask."""

    async def close(self) -> None:
        """Let go of connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _standing(self, answer: Any, subject: str) -> Standing | None:
        kind = _at(answer, self._kind)
        known_kind = kind if isinstance(kind, str) else ""
        owner = _at(answer, self._owner)
        if isinstance(owner, str) and owner == subject and subject:
            return Standing(Role.OWNER, known_kind)
        role = _at(answer, self._role)
        known_role = Role.__members__.get(role.upper()) if isinstance(role, str) else None
        return None if known_role is None else Standing(known_role, known_kind)

    async def _get(self, url: str, token: str) -> tuple[int, bytes]:
        # A redirect is no answer: it would take the caller's token to another place.
        if self._client is None:
            self._client = httpx2.AsyncClient(timeout=_TIMEOUT, follow_redirects=False, trust_env=False)
        headers = {"authorization": f"Bearer {token}", "accept": "application/json"}
        async with self._client.stream("GET", url, headers=headers) as response:
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _LARGEST_ANSWER:
                    raise _unknown("the answer is too large")
            return response.status_code, bytes(body)


def _at(value: Any, path: str) -> Any:
    """Return what stands at a path, or nothing."""
    for name in path.split("."):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _unknown(why: str) -> AccessUnknown:
    _logger.error("the look-up of a session failed: %s", why)
    return AccessUnknown("Access cannot be checked at the moment.")
