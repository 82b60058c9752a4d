"""Who asks: every flaw of a token on every route, whose chat it is, and where a token may stand."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from joserfc.jwk import ECKey, RSAKey
from starlette.datastructures import Headers

from tests.server.guarded import ALICE, BOB, FLAWED, NOT_VALID, ROUTES, Server, with_token
from tests.server.signing import AUDIENCE, EC, OTHER_RSA, RSA, SECRET, claims, key_set, sign
from usechat.errors import CannotCheckTokens, Unauthenticated
from usechat.server import ChatApp
from usechat.server.auth.bearer import TokenRule, identify, token_of
from usechat.server.auth.jwt import JsonWebTokens
from usechat.server.auth.tokens import ApiTokens, new_api_token
from usechat.turn import Identity

PAGE_DOCUMENTATION = Path(__file__).parents[3] / "docs" / "auth.md"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    server = Server(tmp_path)
    yield server
    server.release.set()
    await server.app.shut_down()


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("flaw", FLAWED)
async def test_a_flawed_token_is_401_on_every_route_and_starts_nothing(server: Server, route: str, flaw: str) -> None:
    headers, sentence = FLAWED[flaw]
    response = await server.ask(route, headers)
    assert (response.status_code, response.text) == (401, sentence)
    assert response.headers["www-authenticate"] == "Bearer"
    assert server.turns == []


@pytest.mark.parametrize("route", ROUTES)
async def test_a_revoked_api_token_is_401_on_every_route_and_starts_nothing(server: Server, route: str) -> None:
    server.token_file.write_text("")
    response = await server.ask(route, with_token(server.api_token))
    assert (response.status_code, response.text) == (401, NOT_VALID)
    assert server.turns == []


@pytest.mark.parametrize("kind", ["send", "resume"])
@pytest.mark.parametrize("flaw", FLAWED)
async def test_a_flawed_token_in_a_frame_is_refused_in_the_same_words(server: Server, kind: str, flaw: str) -> None:
    headers, sentence = FLAWED[flaw]
    assert await server.tell(kind, headers) == [{"type": "error", "requestId": "r1", "errorText": sentence}]
    assert server.turns == []


@pytest.mark.parametrize(
    ("frame", "handshake"),
    [
        (ALICE, {}),
        ({}, ALICE),
        (ALICE, BOB),
        ({}, {"sec-websocket-protocol": f"usechat, bearer.{sign(RSA)}"}),
        (ALICE, {"sec-websocket-protocol": f"usechat, bearer.{sign(OTHER_RSA)}"}),
    ],
    ids=["frame", "handshake", "frame over handshake", "subprotocol", "frame over subprotocol"],
)
async def test_a_token_stands_in_the_frame_or_in_the_handshake(
    server: Server, frame: dict[str, str], handshake: dict[str, str]
) -> None:
    assert (await server.tell("send", frame, handshake=handshake))[-1]["type"] == "end"
    assert [turn.identity and turn.identity.subject for turn in server.turns] == ["alice"]


@pytest.mark.parametrize("subject", ["a\0b", "a\ud800"])
async def test_a_person_whom_no_database_can_keep_is_401_whatever_rule_names_them(subject: str) -> None:
    app = ChatApp(lambda _turn: "Hello", authorize=lambda _request, _chat, _action: Identity(subject))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://test") as client:
        response = await client.get("/api/chat/c1/stream")
    assert (response.status_code, response.text) == (401, "The token is not valid.")


async def test_a_foreign_chat_looks_over_a_websocket_as_if_it_were_not_there(server: Server) -> None:
    await server.tell("send", ALICE)
    send_frames, resumed = await server.tell("send", BOB), await server.tell("resume", BOB)
    assert send_frames == [{"type": "error", "requestId": "r1", "errorText": "No such chat."}]
    assert resumed == [{"type": "no-active", "requestId": "r1"}]
    assert len(server.turns) == 1


@pytest.mark.parametrize("route", ROUTES)
async def test_refusals_do_not_disturb_a_run_that_goes_on(server: Server, route: str) -> None:
    server.release.clear()
    task = asyncio.create_task(server.ask("send", ALICE))
    await server.readers(1)
    assert (await server.ask(route, FLAWED["wrong key"][0])).status_code == 401
    assert (await server.ask("state", ALICE)).json()["state"] == "running"
    server.release.set()
    assert "you." in (await task).text
    assert len(server.turns) == 1


@pytest.mark.parametrize(("route", "status"), [("send", 200), ("resume", 204), ("stop", 404), ("state", 404)])
async def test_a_chat_that_is_not_there_yet(server: Server, route: str, status: int) -> None:
    assert (await server.ask(route, ALICE)).status_code == status


@pytest.mark.parametrize(("route", "status"), [("send", 200), ("resume", 204), ("stop", 204), ("state", 200)])
async def test_the_owner_of_an_idle_chat(server: Server, route: str, status: int) -> None:
    await server.ask("send", ALICE)
    assert (await server.ask(route, ALICE)).status_code == status


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "idle"])
@pytest.mark.parametrize(("route", "status"), [("send", 404), ("resume", 204), ("stop", 404), ("state", 404)])
async def test_a_foreign_chat_looks_as_if_it_were_not_there(
    server: Server, route: str, status: int, is_running: bool
) -> None:
    if is_running:
        server.release.clear()
    task = asyncio.create_task(server.ask("send", ALICE))
    await (server.readers(1) if is_running else task)
    foreign = await server.ask(route, BOB)
    assert (foreign.status_code, foreign.text) == (status, "" if status == 204 else "No such chat.")
    assert [turn.identity and turn.identity.subject for turn in server.turns] == ["alice"]
    server.release.set()
    assert "you." in (await task).text


async def test_the_owner_resumes_and_stops_with_another_token_of_the_same_subject(server: Server) -> None:
    server.release.clear()
    task = asyncio.create_task(server.ask("send", ALICE))
    await server.readers(1)
    resumed = asyncio.create_task(server.ask("resume", with_token(sign(EC))))
    await server.readers(1)
    assert (await server.ask("stop", with_token(sign(EC)))).status_code == 204
    assert ["Hello, " in (await stream).text for stream in (task, resumed)] == [True, True]
    assert (await server.ask("state", ALICE)).json()["state"] == "stopped"


async def test_the_agent_learns_who_asks(server: Server) -> None:
    content = claims(role="admin")
    await server.ask("send", with_token(sign(RSA, content)), "c1")
    await server.ask("send", with_token(server.api_token), "c2")
    jwt, api = (turn.identity for turn in server.turns)
    assert jwt is not None
    assert (jwt.subject, jwt.claims) == ("alice", content)
    assert api == Identity("ci", token=server.api_token)


async def test_a_rule_that_answers_nothing_hides_the_chat() -> None:
    async def nobody(_request: object, _chat_id: str, _action: str) -> None:
        return None

    app = ChatApp(lambda _turn: "Hello!", authorize=nobody)
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://example") as client:
        statuses = {
            name: (
                await client.request(method, path.format(chat_id="c1"), json=body and {"id": "c1", **body})
            ).status_code
            for name, (method, path, body) in ROUTES.items()
        }
    assert statuses == {"send": 404, "resume": 204, "stop": 404, "state": 404}


@pytest.mark.parametrize("route", ROUTES)
async def test_while_a_file_is_broken_nobody_is_let_in(server: Server, route: str) -> None:
    server.key_file.write_text("{")
    response = await server.ask(route, ALICE)
    assert (response.status_code, response.text) == (503, "Tokens cannot be checked at the moment.")
    server.key_file.write_text(key_set(RSA))
    assert (await server.ask("send", ALICE)).status_code == 200


def test_a_broken_file_does_not_concern_tokens_that_an_earlier_rule_knows(tmp_path: Path) -> None:
    key_file, token_file = tmp_path / "keys.json", tmp_path / "tokens.txt"
    key_file.write_text(key_set(RSA))
    token, line = new_api_token("ci")
    token_file.write_text(line)
    rules: list[TokenRule] = [JsonWebTokens(jwks=key_file, audience=AUDIENCE), ApiTokens(token_file)]
    key_file.unlink()
    assert identify(with_token(token), rules).subject == "ci"
    with pytest.raises(CannotCheckTokens):
        identify(ALICE, rules)


class Knows:
    """A rule that knows one token."""

    def __init__(self, token: str, subject: str) -> None:
        self._token = token
        self._subject = subject

    def identify(self, token: str) -> Identity | None:
        return Identity(self._subject) if token == self._token else None


@pytest.mark.parametrize(("token", "subject"), [("one", "first"), ("two", "second")])
def test_the_first_rule_that_knows_a_token_says_whose_it_is(token: str, subject: str) -> None:
    rules = [Knows("one", "first"), Knows("two", "second"), Knows("one", "third")]
    assert identify(with_token(token), rules).subject == subject


@pytest.mark.parametrize(("key", "issuer"), [(RSA, "https://one.example"), (EC, "https://two.example")])
def test_many_issuers_are_many_rules(key: RSAKey | ECKey, issuer: str) -> None:
    token = sign(key, claims(iss=issuer))
    rules = [
        JsonWebTokens(public_key=RSA.as_pem(), issuer="https://one.example", audience=AUDIENCE),
        JsonWebTokens(public_key=EC.as_pem(), issuer="https://two.example", audience=AUDIENCE),
    ]
    assert identify(with_token(token), rules).claims["iss"] == issuer
    with pytest.raises(Unauthenticated, match=NOT_VALID):
        identify(with_token(token), [rule for rule in rules if rule.identify(token) is None])


@pytest.mark.parametrize("rules", [[], [Knows("one", "first")]], ids=["no rule", "one rule"])
def test_a_token_that_no_rule_knows_is_refused(rules: list[Knows]) -> None:
    with pytest.raises(Unauthenticated, match=NOT_VALID):
        identify(with_token("other"), rules)


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        ({"authorization": "Bearer abc"}, "abc"),
        ({"Authorization": "bearer abc"}, "abc"),
        ({"AUTHORIZATION": "BEARER   abc  "}, "abc"),
        ({"authorization": " Bearer abc"}, "abc"),
        ({"authorization": "Bearer"}, None),
        ({"authorization": "Bearer  "}, None),
        ({"authorization": "Bearerabc"}, None),
        ({"authorization": "Basic abc"}, None),
        ({"authorization": ""}, None),
        ({}, None),
        ({"sec-websocket-protocol": "usechat, bearer.a.b.c"}, "a.b.c"),
        ({"Sec-WebSocket-Protocol": "bearer.abc"}, "abc"),
        ({"sec-websocket-protocol": "usechat"}, None),
        ({"sec-websocket-protocol": "bearer."}, None),
        ({"authorization": "Bearer abc", "sec-websocket-protocol": "bearer.def"}, "abc"),
        ({"authorization": "Basic abc", "sec-websocket-protocol": "bearer.def"}, None),
        ({"authorization": 7}, None),
        ({"authorization": ["Bearer abc"]}, None),
        ({"authorization": "Bearer abc", "Authorization": "Bearer def"}, None),
    ],
)
def test_where_a_token_may_stand(headers: Any, token: str | None) -> None:
    assert token_of(headers) == token


@pytest.mark.parametrize(
    ("raw", "token"),
    [
        ([(b"authorization", b"Bearer abc")], "abc"),
        ([(b"authorization", b"Bearer abc"), (b"authorization", b"Bearer def")], None),
        ([(b"sec-websocket-protocol", b"usechat"), (b"sec-websocket-protocol", b"bearer.abc")], "abc"),
    ],
)
def test_headers_that_come_more_than_once(raw: list[tuple[bytes, bytes]], token: str | None) -> None:
    assert token_of(Headers(raw=raw)) == token


def test_the_examples_of_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public_key = RSAKey.import_key(RSA.raw_value).as_pem()
    (tmp_path / "public.pem").write_bytes(public_key)
    (tmp_path / "keys.json").write_text(key_set(RSA))
    (tmp_path / "tokens.txt").write_text(new_api_token("ci")[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CHAT_SECRET", SECRET)
    examples: list[str] = PAGE_DOCUMENTATION.read_text(encoding="utf-8").split("```python\n")[1:]
    assert len(examples) >= 3
    names: dict[str, Any] = {"__name__": "example"}
    for example in examples:
        exec(compile(example.partition("```")[0], "docs/auth.md", "exec"), names)
