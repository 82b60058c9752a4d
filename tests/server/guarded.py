"""A chat app that asks for tokens, and tokens that it must refuse."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from tests.server import signing
from tests.server.signing import AUDIENCE, EC, ISSUER, OTHER_RSA, RSA, claims, key_set, sign
from usechat.server import ChatApp
from usechat.server.auth.bearer import bearer
from usechat.server.auth.jwt import JsonWebTokens
from usechat.server.auth.tokens import ApiTokens, new_api_token
from usechat.server.observers.observer import Observer
from usechat.turn import Turn

NO_TOKEN = "The request carries no bearer token."
NOT_VALID = "The token is not valid."
EXPIRED = "The token has expired."


class Server:
    """A chat app that knows two rules, its files, and the turns that its agent was asked to answer."""

    def __init__(self, directory: Path) -> None:
        self.key_file = directory / "keys.json"
        self.token_file = directory / "tokens.txt"
        self.key_file.write_text(key_set(RSA, EC))
        self.api_token, line = new_api_token("ci")
        self.token_file.write_text(line)
        self.turns: list[Turn] = []
        self.streams = Streams()
        self.release = asyncio.Event()
        self.release.set()
        rules = JsonWebTokens(jwks=self.key_file, audience=AUDIENCE, issuer=ISSUER), ApiTokens(self.token_file)
        self.app = ChatApp(self._answer, authorize=bearer(*rules), observer=self.streams)

    async def _answer(self, turn: Turn) -> AsyncIterator[str]:
        self.turns.append(turn)
        yield "Hello, "
        await self.release.wait()
        yield "you."

    async def ask(self, route: str, headers: Mapping[str, str], chat_id: str = "c1") -> httpx2.Response:
        method, path, body = ROUTES[route]
        transport = httpx2.ASGITransport(app=self.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://example", timeout=60) as client:
            url = path.format(chat_id=chat_id)
            content = {"id": chat_id, **body} if body else None
            encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            return await client.request(method, url, headers=encoded, json=content)

    async def tell(
        self, kind: str, headers: Mapping[str, str], *, handshake: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Send one frame over a WebSocket; return the frames that answer it."""
        frame = {"type": kind, "requestId": "r1", "id": "c1", "headers": headers, "body": {}, "messages": MESSAGES}
        coming = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": json.dumps(frame)}]
        end = asyncio.Event()
        frames: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if not coming:
                await end.wait()
                return {"type": "websocket.disconnect", "code": 1000}
            return coming.pop(0)

        async def send(message: Any) -> None:
            if message["type"] == "websocket.send":
                frames.append(json.loads(message["text"]))
                if frames[-1]["type"] in ("end", "error", "no-active"):
                    end.set()

        raw = [(name.encode(), value.encode()) for name, value in {"host": "example", **(handshake or {})}.items()]
        scope = {"type": "websocket", "path": "/api/chat/ws", "query_string": b"", "headers": raw, "scheme": "ws"}
        async with asyncio.timeout(60):
            await self.app(scope, receive, send)
        return frames

    async def readers(self, count: int) -> None:
        """Wait until so many streams have been opened."""
        async with asyncio.timeout(60):
            for _ in range(count):
                await self.streams.opened.acquire()


class Streams(Observer):
    """Counts streams as they are opened."""

    def __init__(self) -> None:
        self.opened = asyncio.Semaphore(0)

    def stream_opened(self) -> None:
        self.opened.release()


class Route(NamedTuple):
    method: str
    path: str
    body: Mapping[str, Any] | None = None


MESSAGES = [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]
ROUTES = {
    "send": Route("POST", "/api/chat", {"messages": MESSAGES, "trigger": "submit-message"}),
    "resume": Route("GET", "/api/chat/{chat_id}/stream"),
    "stop": Route("POST", "/api/chat/{chat_id}/stop"),
    "state": Route("GET", "/api/chat/{chat_id}"),
}


def with_token(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


ALICE = with_token(sign(RSA))
BOB = with_token(sign(EC, claims(sub="bob")))

FLAWED: dict[str, tuple[dict[str, str], str]] = {
    "none": ({}, NO_TOKEN),
    "empty": ({"authorization": ""}, NO_TOKEN),
    "scheme alone": ({"authorization": "Bearer"}, NO_TOKEN),
    "wrong scheme": ({"authorization": f"Basic {sign(RSA)}"}, NO_TOKEN),
    "no scheme": ({"authorization": sign(RSA)}, NO_TOKEN),
    "malformed": (with_token("a.b.c"), NOT_VALID),
    "opaque": (with_token("unheard-of"), NOT_VALID),
    "not ASCII": ({"authorization": "Bearer \u00e9.\u00e9.\u00e9"}, NOT_VALID),
    "expired": (with_token(sign(RSA, claims(exp=1_000_000_000))), EXPIRED),
    "not yet valid": (with_token(sign(RSA, claims(nbf=9_000_000_000))), NOT_VALID),
    "wrong audience": (with_token(sign(RSA, claims(aud="another"))), NOT_VALID),
    "wrong issuer": (with_token(sign(RSA, claims(iss="https://evil.example"))), NOT_VALID),
    "wrong key": (with_token(sign(OTHER_RSA)), NOT_VALID),
    "alg none": (with_token(signing.unsigned("none")), NOT_VALID),
    "HS256 with the public key": (with_token(signing.sign_as_secret(RSA.as_pem(), kid="rsa")), NOT_VALID),
    "missing sub": (with_token(sign(RSA, claims(sub=None))), NOT_VALID),
    "huge": (with_token(sign(RSA, claims(padding="x" * 20_000))), NOT_VALID),
    "unknown kid": (with_token(sign(RSA, kid="unknown")), NOT_VALID),
    "its own key": (with_token(sign(OTHER_RSA, jwk=OTHER_RSA.as_dict())), NOT_VALID),
}
