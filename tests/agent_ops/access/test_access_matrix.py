"""Every role in every kind of session with every state of a token: the status, and no upstream for any refusal."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from sqlalchemy import update

from examples.agent_ops_session.server import Sessions
from examples.agent_ops_session.server import serving as serving_sessions
from tests.agent_ops.directories import KINDS, directory_at, fill, sqlite
from tests.agent_ops.upstream_api import upstream_api
from tests.server import signing
from tests.server.process import question
from tests.server.signing import AUDIENCE, ISSUER, RSA, claims, key_set, sign
from usechat.agent_ops.access.directory import DirectoryChanges, SessionDirectory, digest_of
from usechat.agent_ops.access.tables import TOKENS
from usechat.agent_ops.app import AgentOpsApp
from usechat.agent_ops.target import admission_by
from usechat.runs.memory import MemoryRuns
from usechat.server.auth.jwt import JsonWebTokens

pytestmark = pytest.mark.unit

ROLES: Final = {"olivia": "owner", "carl": "collaborator", "vera": "viewer", "stranger": "none"}
GOOD: Final = ("JSON Web Token", "token of the directory")
FLAWED: Final = {
    "none": "The request carries no bearer token.",
    "malformed": "The token is not valid.",
    "unheard-of": "The token is not valid.",
    "expired": "The token has expired.",
    "expired, of the directory": "The token has expired.",
    "revoked": "The token is not valid.",
    "wrong audience": "The token is not valid.",
    "alg none": "The token is not valid.",
}
ALLOWED: Final = {
    ("owner", "interactive"),
    ("owner", "orchestrator"),
    ("owner", "workflow"),
    ("collaborator", "interactive"),
}


class Gateway:
    """The route in front of a real session server, over a real directory."""

    def __init__(self, app: AgentOpsApp, directory: SessionDirectory, sessions: Sessions) -> None:
        self.app = app
        self.sessions = sessions
        self.changes = DirectoryChanges(directory)
        self._directory = directory

    @property
    def upstream_connections(self) -> int:
        return self.sessions.connections + self.sessions.refused

    async def token(self, state: str, subject: str) -> str | None:
        """Return a token of this person in this state."""
        match state:
            case "none":
                return None
            case "JSON Web Token":
                return sign(RSA, claims(sub=subject))
            case "malformed":
                return "a.b.c"
            case "unheard-of":
                return "usechat-unheard-of"
            case "expired":
                return sign(RSA, claims(sub=subject, exp=1_000_000_000))
            case "wrong audience":
                return sign(RSA, claims(sub=subject, aud="another"))
            case "alg none":
                return signing.unsigned("none")
        token = await self.changes.new_token(subject)
        if state == "revoked":
            await self.changes.revoke_token(digest_of(token))
        if state == "expired, of the directory":
            async with self._directory.engine.begin() as connection:
                expired = update(TOKENS).where(TOKENS.c.digest == digest_of(token))
                await connection.execute(expired.values(expires_at=int(time.time()) - 1))
        return token

    async def ask(
        self, state: str, subject: str, session_id: str, method: str = "POST", path: str = ""
    ) -> httpx2.Response:
        token = await self.token(state, subject)
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        body: Any = question() if (method, path) == ("POST", "") else None
        transport = httpx2.ASGITransport(app=self.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://example", timeout=60) as client:
            url = f"/api/sessions/{session_id}/chat{path}"
            return await client.request(method, url, headers=headers, json=body)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    (tmp_path / "keys.json").write_text(key_set(RSA), encoding="utf-8")
    tokens = JsonWebTokens(jwks=tmp_path / "keys.json", audience=AUDIENCE, issuer=ISSUER)
    async with directory_at(sqlite(tmp_path)) as directory, serving_sessions() as sessions:
        await fill(directory)
        app = AgentOpsApp(
            sessions.url,
            access=directory,
            authorize=directory.bearer(tokens),
            runs=MemoryRuns(),
            enabled=True,
        )
        yield Gateway(app, directory, sessions)
        await app.shut_down()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("subject", "role"), ROLES.items(), ids=ROLES.values())
async def test_with_a_good_token_the_role_and_the_kind_decide(
    gateway: Gateway, subject: str, role: str, kind: str
) -> None:
    for state in GOOD:
        before = gateway.upstream_connections
        answer = await gateway.ask(state, subject, kind)
        if (role, kind) in ALLOWED:
            assert (answer.status_code, '"delta":" Hi"' in answer.text) == (200, True)
            assert gateway.upstream_connections == before + 1
        else:
            assert (answer.status_code, answer.text) == (404, "No such session.")
            assert gateway.upstream_connections == before


@pytest.mark.parametrize(("state", "sentence"), FLAWED.items(), ids=FLAWED)
@pytest.mark.parametrize(("subject", "role"), ROLES.items(), ids=ROLES.values())
async def test_without_a_good_token_nobody_gets_anywhere(
    gateway: Gateway, subject: str, role: str, state: str, sentence: str
) -> None:
    assert role
    for session_id in (*KINDS, "unknown"):
        answer = await gateway.ask(state, subject, session_id)
        assert (answer.status_code, answer.text) == (401, sentence)
        assert answer.headers["www-authenticate"] == "Bearer"
    assert gateway.upstream_connections == 0


@pytest.mark.parametrize(("subject", "role"), ROLES.items(), ids=ROLES.values())
async def test_a_session_that_is_unknown_or_switched_off_is_nobodys(gateway: Gateway, subject: str, role: str) -> None:
    assert role
    for kind in KINDS:
        await gateway.changes.switch(kind, enabled=False)
    for session_id in (*KINDS, "unknown", "..", "interactive%20"):
        for state in GOOD:
            answer = await gateway.ask(state, subject, session_id)
            assert (answer.status_code, answer.text) in [(404, "No such session."), (404, "Not Found")]
    assert gateway.upstream_connections == 0


@pytest.mark.parametrize(("method", "path", "allowed", "refused"), [
    ("GET", "/c1/stream", 204, 204),
    ("POST", "/c1/stop", 204, 404),
    ("GET", "/c1", 200, 404),
])  # fmt: skip
async def test_runs_are_seen_by_those_who_may_prompt_and_started_them(
    gateway: Gateway, method: str, path: str, allowed: int, refused: int
) -> None:
    assert (await gateway.ask("JSON Web Token", "carl", "interactive")).status_code == 200
    before = gateway.upstream_connections
    assert (await gateway.ask("JSON Web Token", "carl", "interactive", method, path)).status_code == allowed
    for subject in ("olivia", "vera", "stranger"):
        assert (await gateway.ask("JSON Web Token", subject, "interactive", method, path)).status_code == refused
    for state in FLAWED:
        assert (await gateway.ask(state, "carl", "interactive", method, path)).status_code == 401
    assert gateway.upstream_connections == before


LOOKED_UP: Final[dict[str, tuple[int, Any, int]]] = {
    "collaborator": (200, {"role": "collaborator", "kind": "interactive"}, 200),
    "owner of a workflow": (200, {"role": "owner", "kind": "workflow"}, 200),
    "collaborator of a workflow": (200, {"role": "collaborator", "kind": "workflow"}, 404),
    "collaborator of an orchestrator": (200, {"role": "collaborator", "kind": "orchestrator"}, 404),
    "collaborator of what nobody knows": (200, {"role": "collaborator"}, 404),
    "viewer": (200, {"role": "viewer", "kind": "interactive"}, 404),
    "unknown role": (200, {"role": "king", "kind": "interactive"}, 404),
    "stranger": (404, {"code": "NOT_FOUND"}, 404),
    "bad token": (401, {"code": "UNAUTHORIZED"}, 401),
    "broken": (500, {}, 503),
    "nonsense": (200, b"<html>", 503),
}


@pytest.mark.parametrize(("status", "answer", "expected"), LOOKED_UP.values(), ids=LOOKED_UP)
async def test_the_look_up_decides_alike_and_before_the_upstream(status: int, answer: Any, expected: int) -> None:
    async with upstream_api({"/api/sessions/s1": (status, answer)}) as api, serving_sessions() as sessions:
        admission = admission_by(f"lookup:{api.url}", [])
        app = AgentOpsApp(sessions.url, access=admission.access, authorize=admission.authorize, enabled=True)
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://example", timeout=60) as client:
            headers = {"authorization": "Bearer theirs"}
            response = await client.post("/api/sessions/s1/chat", headers=headers, json=question())
            nobody = await client.post("/api/sessions/s1/chat", json=question())
        await app.shut_down()
        assert (response.status_code, nobody.status_code) == (expected, 401)
        assert [request.authorization for request in api.requests] == ["Bearer theirs"]
        assert sessions.connections + sessions.refused == (1 if expected == 200 else 0)
