"""Reading the body of a POST: nobody makes the server hold one who would not be answered anyway."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from usechat.errors import Unauthenticated
from usechat.protocol.request import Limits
from usechat.server import ChatApp, Settings
from usechat.server.auth.bearer import bearer
from usechat.server.auth.origin import LocalPagesOnly
from usechat.server.auth.tokens import ApiTokens, new_api_token
from usechat.server.requests import Action
from usechat.turn import Identity, Turn

pytestmark = pytest.mark.quick

PIECE = b" " * 1000
LIMIT = 10_000


async def echo(turn: Turn) -> AsyncIterator[str]:
    yield turn.text


async def custom(_request: Request, _chat_id: str, _action: Action) -> Identity | None:
    raise Unauthenticated("Please sign in.")


class Posted:
    """One POST whose body has no end, and what became of it."""

    def __init__(self) -> None:
        self.reads = 0
        self.status = 0
        self.text = b""

    async def receive(self) -> dict[str, Any]:
        self.reads += 1
        return {"type": "http.request", "body": PIECE, "more_body": True}

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)
        self.text += message.get("body", b"")


async def post(authorize: Any, **headers: str) -> Posted:
    posted = Posted()
    app = ChatApp(echo, authorize=authorize, settings=Settings(limits=Limits(maximum_bytes=LIMIT)))
    all_headers = {"host": "localhost", "content-type": "application/json", **headers}
    raw = [(name.encode(), value.encode()) for name, value in all_headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/api/chat", "query_string": b"", "headers": raw}
    await app(scope, posted.receive, posted.send)
    return posted


@pytest.fixture
def rules(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "tokens.txt").write_text(new_api_token("ci")[1])
    return {"bearer": bearer(ApiTokens(tmp_path / "tokens.txt")), "local": LocalPagesOnly(), "custom": custom}


@pytest.mark.parametrize(
    ("rule", "headers", "status", "text"),
    [
        ("bearer", {}, 401, b"The request carries no bearer token."),
        ("bearer", {"authorization": "Bearer wrong"}, 401, b"The token is not valid."),
        (
            "local",
            {"origin": "https://evil.example"},
            403,
            b"Pages of https://evil.example may not use this server. Allow the origin with --cors.",
        ),
    ],
)
async def test_who_is_not_let_in_is_not_listened_to(
    rules: dict[str, Any], rule: str, headers: dict[str, str], status: int, text: bytes
) -> None:
    posted = await post(rules[rule], **headers)
    assert (posted.status, posted.text, posted.reads) == (status, text, 0)


@pytest.mark.parametrize(
    ("token", "refusal"), [("", (401, "Please sign in.")), ("mine", (400, "the body is not JSON"))]
)
async def test_only_who_is_known_is_told_what_is_wrong_with_a_body(token: str, refusal: tuple[int, str]) -> None:
    async def authorize(request: Request, _chat_id: str, _action: Action) -> Identity:
        if request.headers["x-token"] != "mine":
            raise Unauthenticated("Please sign in.")
        return Identity("me")

    transport = httpx2.ASGITransport(ChatApp(echo, authorize=authorize))
    async with httpx2.AsyncClient(transport=transport, base_url="http://a", timeout=60) as client:
        headers = {"content-type": "application/json", "x-token": token}
        response = await client.post("/api/chat", content=b"{", headers=headers)
    assert (response.status_code, response.text.partition(":")[0]) == refusal


async def test_a_body_that_says_it_is_too_large_is_not_taken(rules: dict[str, Any]) -> None:
    posted = await post(rules["custom"], **{"content-length": str(LIMIT + 1)})
    assert (posted.status, posted.reads) == (413, 0)


async def test_a_rule_that_needs_the_chat_holds_a_body_up_to_the_limit(rules: dict[str, Any]) -> None:
    posted = await post(rules["custom"])
    assert (posted.status, posted.reads) == (413, LIMIT // len(PIECE) + 1)


@pytest.mark.parametrize("length", ["nonsense", "-1", ""])
async def test_a_length_that_is_none_is_left_to_the_bytes(rules: dict[str, Any], length: str) -> None:
    assert (await post(rules["custom"], **{"content-length": length})).status == 413
