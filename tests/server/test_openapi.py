"""The description of the routes names all of them, and nothing else; what is sent and answered is as it says."""

import functools
from typing import Any

import httpx2
import jsonschema  # type: ignore[import-untyped]  # it has no types
import pytest
from starlette.routing import Route

from tests.chats.talking import user
from usechat.chats import MemoryChats
from usechat.server import ChatApp, Identity, LocalPagesOnly
from usechat.server.openapi import openapi
from usechat.turn import Turn

DESCRIBED = openapi("1")


def test_every_route_is_described() -> None:
    app = ChatApp(lambda turn: turn.text, path="/chat", chats=MemoryChats(), authorize=LocalPagesOnly(), share=True)
    names = {"{chat_id}": "{id}", "{message_id}": "{messageId}", "{blob_id}": "{fileId}"}
    routes = {
        (functools.reduce(lambda path, name: path.replace(name, names[name]), names, route.path_format), method.lower())
        for route in app.routes
        if isinstance(route, Route) and not route.path.endswith("/")  # the same with a slash
        for method in (route.methods or set()) - {"HEAD"}
    }
    paths = openapi("1", "/chat")["paths"]
    assert {(path, method) for path, item in paths.items() for method in item if method != "parameters"} == routes


def check(value: Any, schema: Any) -> None:
    jsonschema.validate(value, {**schema, "components": DESCRIBED["components"]})


def names_in(schema: Any) -> set[str]:
    """Return the names of the keys that a schema describes."""
    if "$ref" in schema:
        schema = DESCRIBED["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    alternatives = [names_in(each) for each in schema.get("anyOf", ())]
    return set(schema.get("properties", ())).union(*alternatives)


def answer_to(turn: Turn) -> str:
    return turn.text


def anyone(_request: Any, _chat_id: str, _action: str) -> Identity:
    return Identity("ada")


@pytest.fixture
def client() -> httpx2.AsyncClient:
    app = ChatApp(answer_to, chats=MemoryChats(), authorize=anyone, share=True, metrics=False)
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://a", timeout=30)


@pytest.mark.parametrize(
    "body",
    [
        {"id": "c1", "messages": [user("u1")], "trigger": "submit-message"},
        {"id": "c1", "message": user("u2"), "parentId": "u1", "trigger": "submit-message"},
        {"id": "c1", "message": user("u2"), "parentId": None, "messageId": "u2", "trigger": "submit-message"},
        {"id": "c1", "message": user("u2")},
        {"id": "c1", "messages": [], "trigger": "regenerate-message"},
        {"id": "c1"},
    ],
)
async def test_what_clients_send_is_described(client: httpx2.AsyncClient, body: Any) -> None:
    await client.post("/api/chat", json={"id": "c1", "messages": [user("u1")]})
    schema = DESCRIBED["paths"]["/api/chat"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    check(body, schema)
    assert set(body) <= names_in(schema)
    response = await client.post("/api/chat", json=body)
    assert response.status_code == 200, response.text


@pytest.mark.parametrize(
    ("method", "path", "described", "body"),
    [
        ("get", "/api/chats", "/api/chats", None),
        ("get", "/api/chat/c1", "/api/chat/{id}", None),
        ("patch", "/api/chat/c1", "/api/chat/{id}", {"title": "New", "headId": "u1", "archived": True, "pinned": True}),
        ("get", "/api/chat/c1/messages", "/api/chat/{id}/messages", None),
        ("get", "/api/chat/c1/messages?tree=1", "/api/chat/{id}/messages", None),
        ("put", "/api/chat/c1/share", "/api/chat/{id}/share", None),
    ],
)
async def test_what_is_answered_is_described(
    client: httpx2.AsyncClient, method: str, path: str, described: str, body: Any
) -> None:
    await client.post("/api/chat", json={"id": "c1", "messages": [user("u1")]})
    operation = DESCRIBED["paths"][described][method]
    if body is not None:
        check(body, operation["requestBody"]["content"]["application/json"]["schema"])
    response = await client.request(method, path, json=body)
    schema = operation["responses"][str(response.status_code)]["content"]["application/json"]["schema"]
    check(response.json(), schema)
    assert set(response.json()) <= names_in(schema)
    assert set(operation["responses"]["200"].get("headers", ())) <= set(response.headers)
