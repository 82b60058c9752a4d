"""A scripted session server: sessions at ``/api/sessions/{id}/ws?role=client``.

It sends the same frames as the real servers and replaces them in tests and demos. It accepts every token as the name of
the user.
"""

import http
import re
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from examples.agent_ops_session.session import Dialect, Release, Session

_PATH = re.compile(r"/api/sessions/([^/?]+)/ws(?:\?.*)?")


class Sessions:
    """All sessions of a server. A session is created when it is first used."""

    def __init__(self, dialect: Dialect, release: Release) -> None:
        self.refused = 0
        self.strangers: set[str] = set()
        """Tokens that are refused."""
        self.connections = 0
        """How many sockets were ever opened."""
        self.port = 0
        self._dialect: Dialect = dialect
        self._release: Release = release
        self._sessions: dict[str, Session] = {}

    @property
    def url(self) -> str:
        """The address of a session's socket, with ``{id}`` in place of its id."""
        return f"ws://127.0.0.1:{self.port}/api/sessions/{{id}}/ws?role=client"

    def __getitem__(self, session_id: str) -> Session:
        return self._sessions.setdefault(session_id, Session(session_id, self._dialect, self._release))

    async def serve(self, client: ServerConnection) -> None:
        """Serve one socket."""
        assert client.request is not None
        match = _PATH.fullmatch(client.request.path)
        assert match is not None
        self.connections += 1
        await self[match[1]].serve(client, token_of(client.request) or "")

    def admit(self, client: ServerConnection, request: Request) -> Response | None:
        """Reject requests without a token, those of strangers, and other paths."""
        if _PATH.fullmatch(request.path) is None:
            return client.respond(http.HTTPStatus.NOT_FOUND, "No such session.\n")
        if token_of(request) in (None, *self.strangers):
            self.refused += 1
            return client.respond(http.HTTPStatus.UNAUTHORIZED, "Missing or invalid authentication\n")
        return None

    async def close(self) -> None:
        """Stop all agents."""
        for session in self._sessions.values():
            await session.close()


def token_of(request: Request) -> str | None:
    """Return the token, from the header or from a subprotocol."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token
    offered = ",".join(request.headers.get_all("Sec-WebSocket-Protocol")).split(",")
    bearers = [name.strip() for name in offered if name.strip().startswith("bearer.")]
    return bearers[0].removeprefix("bearer.") if bearers else None


def choose(_client: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Select the subprotocol that is not a token."""
    return next((name for name in offered if not name.startswith("bearer.")), None)


@asynccontextmanager
async def serving(
    *, port: int = 0, dialect: Dialect = "client", release: Release = "early", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Sessions]:
    """Serve sessions on a port of this machine."""
    sessions = Sessions(dialect, release)
    async with serve(
        sessions.serve,
        "127.0.0.1",
        port,
        process_request=sessions.admit,
        select_subprotocol=choose,
        max_size=32 * 1024 * 1024,
        compression=None,
        ssl=tls,
    ) as server:
        sessions.port = next(iter(server.sockets)).getsockname()[1]
        try:
            yield sessions
        finally:
            await sessions.close()
