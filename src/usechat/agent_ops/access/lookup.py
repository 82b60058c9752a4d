"""An access rule that asks the upstream's own API, with the caller's token. It fails closed."""

import logging
import ssl
from typing import Any, Final
from urllib.parse import quote

import httpx2
import msgspec

from usechat.agent_ops.access.roles import Membership, Role
from usechat.agent_ops.errors import AccessUnknown
from usechat.errors import InvalidSetting, Unauthenticated
from usechat.server import Identity

__all__ = ["HttpLookup"]

_logger: Final = logging.getLogger("usechat.server")
_TIMEOUT: Final = 10.0
_MAXIMUM_RESPONSE: Final = 1024 * 1024
_REFUSALS: Final = (403, 404)


class HttpLookup:
    """Gets the caller's membership from ``url``, an HTTP API with ``{id}`` in place of the session's id.

    ``role``, ``kind`` and ``owner`` are the paths of these values in the JSON of the response: keys, and numbers as
    indexes of lists, separated by dots. The caller is the owner if the value at ``owner`` is their subject, or if their
    role is ``owner``. A session without a known kind is for its owner only. ``tls`` holds the certificates of the calls
    (:func:`~usechat.agent_ops.upstream_tls`).

    Raises :class:`~usechat.errors.InvalidSetting` if ``url`` has no ``{id}``.

    >>> access = HttpLookup("https://agents.example.com/api/sessions/{id}", role="session.role", owner="session.userId")
    """

    def __init__(
        self,
        url: str,
        *,
        role: str = "role",
        kind: str = "kind",
        owner: str = "owner",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        if "{id}" not in url:
            raise InvalidSetting(
                f"{url!r} has no {{id}} in place of the session's id; give one such as https://HOST/api/sessions/{{id}}"
            )
        self._url = url
        self._role = role
        self._kind = kind
        self._owner = owner
        self._tls = tls
        self._client: httpx2.AsyncClient | None = None

    async def role_of(self, identity: Identity, session_id: str) -> Membership | None:
        """Request the session with the caller's token.

        403 and 404 mean that the caller is not a participant. 401 raises :class:`~usechat.errors.Unauthenticated`; any
        other response raises :class:`~usechat.agent_ops.errors.AccessUnknown`.
        """
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
            return self._membership(msgspec.json.decode(body), identity.subject)
        except (msgspec.DecodeError, RecursionError):
            raise _unknown("the response is not JSON") from None

    async def check(self) -> None:
        """Do nothing: without a caller's token there is nothing to request."""

    async def close(self) -> None:
        """Close connections."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def _membership(self, response: Any, subject: str) -> Membership | None:
        kind = _at(response, self._kind)
        known_kind = kind if isinstance(kind, str) else ""
        owner = _at(response, self._owner)
        if isinstance(owner, str) and owner == subject and subject:
            return Membership(Role.OWNER, known_kind)
        role = _at(response, self._role)
        known_role = Role.__members__.get(role.upper()) if isinstance(role, str) else None
        return None if known_role is None else Membership(known_role, known_kind)

    async def _get(self, url: str, token: str) -> tuple[int, bytes]:
        # Redirects are not followed: they would send the caller's token to another host.
        if self._client is None:
            self._client = httpx2.AsyncClient(
                timeout=_TIMEOUT, follow_redirects=False, trust_env=False, verify=self._tls or True
            )
        headers = {"authorization": f"Bearer {token}", "accept": "application/json"}
        async with self._client.stream("GET", url, headers=headers) as response:
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > _MAXIMUM_RESPONSE:
                    raise _unknown("the response is too large")
            return response.status_code, bytes(body)


def _at(value: Any, path: str) -> Any:
    """Return the value at a path, or ``None``."""
    for name in path.split("."):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def _unknown(why: str) -> AccessUnknown:
    _logger.error("cannot look up a session: %s", why)
    return AccessUnknown("Access cannot be checked at the moment.")
