"""The routes of stored chats: what they answer, and to whom."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.chats.talking import REGENERATE, user
from tests.external_agents import needs_agents_here
from usechat import parts
from usechat.chats import ChatStore, MemoryChats, SqlChats
from usechat.errors import InvalidSetting
from usechat.server import ChatApp, Feedback, Identity, Settings
from usechat.turn import Turn

pytestmark = pytest.mark.external_agents


async def agent(turn: Turn) -> AsyncIterator[str]:
    yield f"You said {turn.text}."


def named(request: Any, _chat_id: str, _action: str) -> Identity:
    return Identity(request.headers["x-name"])


@pytest.fixture(params=["memory", "sqlite"])
def chats(request: pytest.FixtureRequest, tmp_path: Path) -> ChatStore:
    return MemoryChats() if request.param == "memory" else SqlChats(str(tmp_path / "chats.db"))


@pytest.fixture
async def client(chats: ChatStore) -> AsyncIterator[httpx2.AsyncClient]:
    app = ChatApp(agent, chats=chats, authorize=named, settings=Settings(sdk="7"), metrics=False)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://a", timeout=30, headers={"x-name": "ada"}
    ) as client:
        yield client
    await app.shut_down()


async def say(client: httpx2.AsyncClient, text: str, chat_id: str = "c1", **body: Any) -> None:
    message = {**user(f"u-{text}", text), **body.pop("message", {})}
    response = await client.post("/api/chat", json={"id": chat_id, "message": message, **body})
    assert response.status_code == 200, response.text


async def get(client: httpx2.AsyncClient, path: str) -> Any:
    response = await client.get(path)
    assert response.status_code == 200, response.text
    return response.json()


async def test_the_list_has_the_last_changed_chats_first_in_pages(client: httpx2.AsyncClient) -> None:
    for number in range(3):
        await say(client, f"Question {number}", f"c{number}")
    first = await get(client, "/api/chats?limit=2")
    assert [(chat["id"], chat["title"], chat["running"], chat["archived"]) for chat in first["chats"]] == [
        ("c2", "Question 2", False, False),
        ("c1", "Question 1", False, False),
    ]
    assert first["hasMore"]
    for way in (f"cursor={first['nextCursor']}", "starting_after=c1"):
        second = await get(client, f"/api/chats?limit=2&{way}")
        assert ([chat["id"] for chat in second["chats"]], second["nextCursor"], second["hasMore"]) == (
            ["c0"],
            None,
            False,
        )
    page = await get(client, "/api/chats?q=said%20QUESTION%201")
    assert [chat["id"] for chat in page["chats"]] == ["c1"]


async def test_a_chat_is_loaded_with_what_stands_beside_its_messages(client: httpx2.AsyncClient) -> None:
    await say(client, "Hi")
    await client.post("/api/chat", json={"id": "c1", "trigger": REGENERATE})
    response = await client.get("/api/chat/c1/messages")
    loaded = response.json()
    question, answer = loaded["messages"]
    assert (question["id"], answer["parts"][-1]["text"], loaded["headId"]) == ("u-Hi", "You said Hi.", answer["id"])
    assert (list(loaded["siblings"]), len(loaded["siblings"][answer["id"]])) == ([answer["id"]], 2)
    assert (loaded["running"], loaded["outcomes"]) == (None, {answer["id"]: "finished"})
    assert response.headers["etag"] == f'"{loaded["version"]}"'
    tree = (await get(client, "/api/chat/c1/messages?tree=1"))["messages"]
    assert [row["parentId"] for row in tree] == [None, "u-Hi", "u-Hi"]


async def test_the_state_of_a_chat_stands_beside_what_the_list_says(client: httpx2.AsyncClient) -> None:
    await say(client, "Hi")
    state = await get(client, "/api/chat/c1")
    assert (state["id"], state["title"], state["running"], state["state"]) == ("c1", "Hi", False, "finished")


async def test_a_chat_is_renamed_archived_and_shown_on_another_branch(client: httpx2.AsyncClient) -> None:
    await say(client, "Hi")
    first = (await get(client, "/api/chat/c1/messages"))["headId"]
    await client.post("/api/chat", json={"id": "c1", "trigger": REGENERATE})
    response = await client.patch("/api/chat/c1", json={"title": "Greetings", "archived": True, "headId": first})
    assert (response.status_code, response.json()["title"], response.json()["archived"]) == (200, "Greetings", True)
    assert (await get(client, "/api/chat/c1/messages"))["headId"] == first
    assert (await get(client, "/api/chats?archived=0"))["chats"] == []


@pytest.mark.parametrize("way", ["body", "header"])
async def test_two_tabs_do_not_overwrite_each_other(client: httpx2.AsyncClient, way: str) -> None:
    await say(client, "Hi")
    version = (await get(client, "/api/chat/c1/messages"))["version"]
    body, headers = ({"version": version}, {}) if way == "body" else ({}, {"if-match": f'"{version}"'})
    statuses = [
        (await client.patch("/api/chat/c1", json={"title": title, **body}, headers=headers)).status_code
        for title in ("One", "Two")
    ]
    assert statuses == [200, 409]
    assert (await get(client, "/api/chat/c1"))["title"] == "One"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/api/chats?limit=0", None),
        ("GET", "/api/chats?limit=x", None),
        ("GET", "/api/chats?cursor=x", None),
        ("GET", "/api/chats?archived=x", None),
        ("GET", "/api/chat/c1/export?format=x", None),
        ("PATCH", "/api/chat/c1", b'{"owner": "bob"}'),
        ("PATCH", "/api/chat/c1", b"{"),
        ("PATCH", "/api/chat/c1", b'{"title": 1}'),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(
    client: httpx2.AsyncClient, method: str, path: str, body: bytes | None
) -> None:
    await say(client, "Hi")
    response = await client.request(method, path, content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400, response.text


async def test_a_change_needs_its_content_type_and_a_version_that_is_one(client: httpx2.AsyncClient) -> None:
    await say(client, "Hi")
    assert (await client.patch("/api/chat/c1", content=b"{}")).status_code == 400
    assert (await client.patch("/api/chat/c1", json={}, headers={"if-match": "x"})).status_code == 400


async def test_a_message_is_rated(client: httpx2.AsyncClient) -> None:
    await say(client, "Hi")
    head = (await get(client, "/api/chat/c1/messages"))["headId"]
    assert (await client.put(f"/api/chat/c1/messages/{head}/feedback", json={"vote": "up"})).status_code == 204
    assert (await get(client, "/api/chat/c1/messages"))["feedback"] == {head: {"vote": "up"}}
    assert (await client.put("/api/chat/c1/messages/none/feedback", json=1)).status_code == 422


async def test_feedback_is_changed_and_withdrawn(client: httpx2.AsyncClient) -> None:
    await say(client, "Hi")
    head = (await get(client, "/api/chat/c1/messages"))["headId"]
    values = []
    for value in ({"rating": "good"}, {"rating": "bad"}, None):
        headers = {"content-type": "application/json"}
        address = f"/api/chat/c1/messages/{head}/feedback"
        assert (await client.put(address, content=json.dumps(value), headers=headers)).status_code == 204
        values.append((await get(client, "/api/chat/c1/messages"))["feedback"])
    assert values == [{head: {"rating": "good"}}, {head: {"rating": "bad"}}, {}]


async def test_each_version_of_an_answer_keeps_its_feedback(client: httpx2.AsyncClient) -> None:
    await say(client, "Hi")
    first = (await get(client, "/api/chat/c1/messages"))["headId"]
    again = {"id": "c1", "trigger": REGENERATE, "messageId": first}
    assert (await client.post("/api/chat", json=again)).status_code == 200
    second = (await get(client, "/api/chat/c1/messages"))["headId"]
    for message_id, rating in ((first, "bad"), (second, "good")):
        address = f"/api/chat/c1/messages/{message_id}/feedback"
        assert (await client.put(address, json={"rating": rating})).status_code == 204
    assert (await get(client, "/api/chat/c1/messages"))["feedback"] == {second: {"rating": "good"}}
    response = await client.patch("/api/chat/c1", json={"headId": first})
    assert response.status_code == 200
    assert (await get(client, "/api/chat/c1/messages"))["feedback"] == {first: {"rating": "bad"}}


async def test_an_answer_with_half_a_character_is_exported(client: httpx2.AsyncClient) -> None:
    text = "Half \ud83d of it \0 \U0001f642"
    body = json.dumps({"id": "c1", "message": user("u1", text)})
    await client.post("/api/chat", content=body, headers={"content-type": "application/json"})
    markdown = await client.get("/api/chat/c1/export?format=markdown")
    assert markdown.status_code == 200
    assert "You said Half ? of it  \U0001f642." in markdown.text
    document = await get(client, "/api/chat/c1/export")
    assert document["messages"][0]["message"]["parts"][0]["text"] == text


async def test_a_chat_is_exported_and_deleted(client: httpx2.AsyncClient) -> None:
    await say(client, "Hi")
    document = await get(client, "/api/chat/c1/export")
    assert (document["id"], len(document["messages"])) == ("c1", 2)
    markdown = await client.get("/api/chat/c1/export?format=markdown")
    assert markdown.text.startswith("# Hi\n")
    assert "You said Hi." in markdown.text
    assert (await client.delete("/api/chat/c1")).status_code == 204
    assert (await client.get("/api/chat/c1/messages")).status_code == 404


async def test_a_large_file_has_an_address_of_its_own(client: httpx2.AsyncClient, chats: ChatStore) -> None:
    data = b"\x89PNG" + b"x" * 30_000
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    part = {"type": "file", "mediaType": "image/png", "url": url}
    await say(client, "Hi", message={"parts": [part, {"type": "text", "text": "Hi"}]})
    address = (await get(client, "/api/chat/c1/messages"))["messages"][0]["parts"][0]["url"]
    assert address.startswith("http://a/api/chat/c1/files/")
    response = await client.get(address)
    assert (response.content, response.headers["content-type"]) == (data, "image/png")
    assert "sandbox" in response.headers["content-security-policy"]
    again = {"parts": [{**part, "url": address}, {"type": "text", "text": "Hi"}]}
    await say(client, "Hi", message=again, trigger=REGENERATE)
    assert len((await chats.load("c1", owner="ada")).messages) == 2, "the same file is the same message"
    assert (await client.get(address, headers={"x-name": "bob"})).status_code == 404


async def test_a_chat_of_somebody_else_is_not_found_on_any_route(client: httpx2.AsyncClient) -> None:
    await say(client, "Hi")
    head = (await get(client, "/api/chat/c1/messages"))["headId"]
    requests: list[tuple[str, str, Any]] = [
        ("POST", "/api/chat", {"id": "c1", "message": user("u2")}),
        ("GET", "/api/chat/c1", None),
        ("POST", "/api/chat/c1/stop", None),
        ("GET", "/api/chat/c1/messages", None),
        ("GET", "/api/chat/c1/messages?tree=1", None),
        ("GET", "/api/chat/c1/export", None),
        ("GET", "/api/chat/c1/export?format=markdown", None),
        ("GET", "/api/chats?starting_after=c1", None),
        ("PATCH", "/api/chat/c1", {"title": "Mine"}),
        ("PUT", f"/api/chat/c1/messages/{head}/feedback", 1),
        ("GET", "/api/chat/c1/files/x", None),
        ("DELETE", "/api/chat/c1", None),
    ]
    statuses = {
        (method, path): (await client.request(method, path, json=body, headers={"x-name": "bob"})).status_code
        for method, path, body in requests
    }
    assert statuses == {(method, path): 404 for method, path, _ in requests}
    assert (await client.get("/api/chat/c1/stream", headers={"x-name": "bob"})).status_code == 204
    listed = await client.get("/api/chats?q=Hi", headers={"x-name": "bob"})
    assert listed.json() == {"chats": [], "nextCursor": None, "hasMore": False}
    assert (await get(client, "/api/chat/c1"))["title"] == "Hi"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("NaN", "the body is not JSON"),
        ('{"a":[NaN]}', "the body is not JSON"),
        ("1e999", "the body holds a number that is not finite; the largest is about 1.8e308"),
        ('{"a":-1e999}', "the body holds a number that is not finite; the largest is about 1.8e308"),
        ("9" * 400, "the body holds a number that is not finite; the largest is about 1.8e308"),
        ("[" * 200 + "]" * 200, "the body is nested too deeply: more than 128 levels"),
        (b'"\xff"', "the body is not JSON"),
    ],
)
async def test_feedback_or_a_change_that_no_page_could_load_is_refused(
    client: httpx2.AsyncClient, body: str | bytes, text: str
) -> None:
    await say(client, "Hi")
    loaded = await get(client, "/api/chat/c1/messages")
    for method, path in (("PUT", f"/api/chat/c1/messages/{loaded['headId']}/feedback"), ("PATCH", "/api/chat/c1")):
        refused = await client.request(method, path, content=body, headers={"content-type": "application/json"})
        assert (refused.status_code, refused.text) == (400, text)
    assert await get(client, "/api/chat/c1/messages") == loaded


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400])
async def test_a_message_that_no_page_could_load_is_refused(client: httpx2.AsyncClient, number: str) -> None:
    message = '{"id":"u1","role":"user","metadata":{"x":NUMBER},"parts":[{"type":"text","text":"Hi"}]}'
    body = f'{{"id":"c1","messages":[{message.replace("NUMBER", number)}]}}'
    refused = await client.post("/api/chat", content=body, headers={"content-type": "application/json"})
    assert (refused.status_code, (await client.get("/api/chat/c1/messages")).status_code) == (400, 404)


async def test_the_tree_is_of_the_same_moment_as_what_stands_beside_it(
    client: httpx2.AsyncClient, chats: ChatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await say(client, "Hi")
    load = chats.load

    async def load_and_delete(chat_id: str, **options: Any) -> Any:
        loaded = await load(chat_id, **options)
        await chats.delete(chat_id, owner="ada")
        return loaded

    monkeypatch.setattr(chats, "load", load_and_delete)
    loaded = await get(client, "/api/chat/c1/messages?tree=1")
    assert [each["parentId"] for each in loaded["messages"]] == [None, "u-Hi"]
    assert loaded["messages"][-1]["message"]["id"] == loaded["headId"]


@needs_agents_here("the claim of the web process names the answer until it ends")
async def test_a_running_answer_is_named_as_its_agent_names_it(chats: ChatStore) -> None:
    named_it, goes_on = asyncio.Event(), asyncio.Event()

    async def agent(_turn: Turn) -> AsyncIterator[str | parts.Part]:
        yield parts.Start("mine")
        yield "Half"
        named_it.set()
        await goes_on.wait()

    app = ChatApp(agent, chats=chats, settings=Settings(sdk="7"), metrics=False)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://a", timeout=30) as client:
        task = asyncio.ensure_future(say(client, "Hi"))
        await asyncio.wait_for(named_it.wait(), 30)
        assert (await get(client, "/api/chat/c1/messages"))["running"] == {"messageId": "mine", "attempt": 1}
        goes_on.set()
        await task
        assert (await get(client, "/api/chat/c1/messages"))["headId"] == "mine"
    await app.shut_down()


async def test_without_authentication_there_is_neither_list_nor_export() -> None:
    app = ChatApp(agent, chats=MemoryChats(), settings=Settings(sdk="7"), metrics=False)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://a", timeout=30) as client:
        await say(client, "Hi")
        statuses = [(await client.get(path)).status_code for path in ("/api/chats", "/api/chat/c1/export")]
        assert statuses == [404, 404]
        assert (await client.get("/api/chat/c1/messages")).status_code == 200
    await app.shut_down()


async def test_a_file_of_a_mounted_app_has_an_address_below_the_mount(chats: ChatStore) -> None:
    app = ChatApp(agent, chats=chats, authorize=named, metrics=False)
    outer = Starlette(routes=[Mount("/under/a/prefix", app)])
    transport = httpx2.ASGITransport(outer)
    async with httpx2.AsyncClient(transport=transport, base_url="http://a", headers={"x-name": "ada"}) as client:
        url = f"data:image/png;base64,{base64.b64encode(b'x' * 30_000).decode()}"
        message = {**user("u1", "Hi", {"type": "file", "mediaType": "image/png", "url": url})}
        await client.post("/under/a/prefix/api/chat", json={"id": "c1", "message": message})
        address = (await get(client, "/under/a/prefix/api/chat/c1/messages"))["messages"][0]["parts"][0]["url"]
        assert address.startswith("http://a/under/a/prefix/api/chat/c1/files/")
        assert (await client.get(address)).content == b"x" * 30_000
    await app.shut_down()


async def test_feedback_is_given_to_the_application_once_it_is_stored(chats: ChatStore) -> None:
    calls: list[tuple[Feedback, Any]] = []

    async def on_feedback(feedback: Feedback) -> None:
        stored = (await chats.load(feedback.chat_id, owner="ada")).feedback
        calls.append((feedback, stored.get(feedback.message_id)))

    async with feedback_client(chats, on_feedback) as (client, address):
        for value in ({"rating": "good", "why": ["short"]}, None):
            assert (
                await client.put(address, content=json.dumps(value), headers={"content-type": "application/json"})
            ).status_code == 204
    assert [(feedback.chat_id, feedback.value, feedback.identity.subject) for feedback, _ in calls] == [
        ("c1", {"rating": "good", "why": ["short"]}, "ada"),
        ("c1", None, "ada"),
    ]
    assert [stored for _, stored in calls] == [{"rating": "good", "why": ["short"]}, None]


async def test_a_feedback_hook_that_fails_is_logged_and_the_feedback_stays(
    chats: ChatStore, caplog: pytest.LogCaptureFixture
) -> None:
    def on_feedback(_feedback: Feedback) -> None:
        raise ValueError("secret")

    async with feedback_client(chats, on_feedback) as (client, address):
        response = await client.put(address, json={"rating": "bad"})
        assert (response.status_code, response.text) == (204, "")
        assert list((await get(client, "/api/chat/c1/messages"))["feedback"].values()) == [{"rating": "bad"}]
    assert "on_feedback failed for the message" in caplog.text


def test_a_feedback_hook_needs_chats_that_are_stored() -> None:
    with pytest.raises(InvalidSetting, match="on_feedback"):
        ChatApp(agent, on_feedback=print)


@asynccontextmanager
async def feedback_client(chats: ChatStore, on_feedback: Any) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    """Yield a client of a chat with one answer, and the address of that answer's feedback."""
    app = ChatApp(agent, chats=chats, authorize=named, on_feedback=on_feedback, metrics=False)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://a", headers={"x-name": "ada"}) as client:
        await say(client, "Hi")
        message = (await get(client, "/api/chat/c1/messages"))["messages"][-1]["id"]
        yield client, f"/api/chat/c1/messages/{message}/feedback"
    await app.shut_down()
