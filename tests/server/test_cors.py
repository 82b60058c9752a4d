"""Pages of other origins: off unless asked for, and then what `useChat` needs."""

from collections.abc import Mapping
from typing import Any

import httpx2
import pytest
from starlette.types import ASGIApp

from usechat.errors import Unauthenticated
from usechat.server import ChatApp
from usechat.server.cors import with_cors
from usechat.server.requests import Action

PAGE = "https://page.example"
BODY = {"id": "c1", "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}


async def ask(app: ASGIApp, method: str, headers: Mapping[str, str], **options: Any) -> httpx2.Response:
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://example") as client:
        return await client.request(method, "/api/chat", headers=dict(headers), **options)


async def preflight(app: ASGIApp, origin: str, headers: str) -> httpx2.Response:
    request_headers = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": headers,
    }
    return await ask(app, "OPTIONS", request_headers)


def agent(_turn: object) -> str:
    return "Hello!"


def test_without_origins_the_app_stays_as_it_is() -> None:
    app = ChatApp(agent)
    assert with_cors(app, []) is app


async def test_without_origins_a_page_elsewhere_is_not_let_in() -> None:
    response = await preflight(ChatApp(agent), PAGE, "content-type")
    assert response.status_code == 405
    assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize(
    "headers",
    ["content-type", "authorization,content-type,x-ai-sdk", "content-type,user-agent", "content-type,if-match"],
)
async def test_a_named_page_may_send_what_the_ai_sdk_sends(headers: str) -> None:
    response = await preflight(with_cors(ChatApp(agent), [PAGE]), PAGE, headers)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == PAGE
    assert response.headers["access-control-allow-methods"] == "GET, POST, PUT, PATCH, DELETE"
    assert "access-control-allow-credentials" not in response.headers


@pytest.mark.parametrize("origin", ["https://evil.example", "http://page.example", "https://page.example.evil", "null"])
async def test_other_pages_may_not(origin: str) -> None:
    app = with_cors(ChatApp(agent), [PAGE])
    assert (await preflight(app, origin, "content-type")).status_code == 400
    response = await ask(app, "POST", {"origin": origin}, json=BODY)
    assert "access-control-allow-origin" not in response.headers


async def test_a_stream_keeps_its_headers_and_can_be_read_by_the_page() -> None:
    response = await ask(with_cors(ChatApp(agent), [PAGE]), "POST", {"origin": PAGE}, json=BODY)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == PAGE
    exposed = "etag, x-vercel-ai-ui-message-stream, x-workflow-run-id, x-workflow-stream-tail-index"
    assert response.headers["access-control-expose-headers"] == exposed
    assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert response.headers["content-type"] == "text/event-stream"


async def test_headers_of_one_answer_do_not_stay_for_the_next() -> None:
    app = with_cors(ChatApp(agent), [PAGE])
    await ask(app, "POST", {"origin": PAGE}, json=BODY)
    assert "access-control-allow-origin" not in (await ask(app, "POST", {}, json=BODY)).headers


async def test_a_refusal_can_be_read_by_the_page() -> None:
    async def refuse(_request: object, _chat_id: str, _action: Action) -> None:
        raise Unauthenticated("Who are you?")

    app = with_cors(ChatApp(agent, authorize=refuse), [PAGE])
    response = await ask(app, "POST", {"origin": PAGE}, json=BODY)
    assert (response.status_code, response.text) == (401, "Who are you?")
    assert response.headers["access-control-allow-origin"] == PAGE


async def test_a_star_lets_every_page_ask_without_cookies() -> None:
    response = await preflight(with_cors(ChatApp(agent), ["*"]), PAGE, "authorization,content-type")
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in response.headers


@pytest.mark.parametrize(
    "origin", ["page.example", "https://page.example/", "https://Page.example", "https://", "", "*.x"]
)
def test_what_no_browser_would_send_is_refused(origin: str) -> None:
    with pytest.raises(ValueError, match="is not an origin"):
        with_cors(ChatApp(agent), [origin])
