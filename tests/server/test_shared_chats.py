"""Chats that are shared by a link: what anyone can read, and what stays with the owner."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chats.talking import user
from tests.server.test_chat_routes import agent, get, named, say
from usechat import parts
from usechat.chats import ChatStore, MemoryChats, SqlChats
from usechat.cli import main
from usechat.errors import InvalidSetting
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

pytestmark = pytest.mark.external_agents

PICTURE = b"\x89PNG" + b"x" * 30_000


@pytest.fixture(params=["memory", "sqlite"])
def chats(request: pytest.FixtureRequest, tmp_path: Path) -> ChatStore:
    return MemoryChats() if request.param == "memory" else SqlChats(str(tmp_path / "chats.db"))


@pytest.fixture
async def transport(chats: ChatStore) -> AsyncIterator[httpx2.ASGITransport]:
    app = ChatApp(agent, chats=chats, authorize=named, settings=Settings(sdk="7"), metrics=False, share=True)
    yield httpx2.ASGITransport(app)
    await app.shut_down()


@pytest.fixture
async def client(transport: httpx2.ASGITransport) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=transport, base_url="http://a", headers={"x-name": "ada"}) as client:
        yield client


@pytest.fixture
async def anyone(transport: httpx2.ASGITransport) -> AsyncIterator[httpx2.AsyncClient]:
    """A client without credentials: the access rule of the app would raise."""
    async with httpx2.AsyncClient(transport=transport, base_url="http://a") as client:
        yield client


async def token_of(client: httpx2.AsyncClient) -> str:
    response = await client.put("/api/chat/c1/share")
    assert response.status_code == 200, response.text
    return str(response.json()["token"])


def with_picture() -> Any:
    url = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    return {"parts": user("u1", "Hi", {"type": "file", "mediaType": "image/png", "url": url})["parts"]}


async def test_anyone_with_the_token_reads_title_and_messages_and_nothing_else(
    client: httpx2.AsyncClient, anyone: httpx2.AsyncClient
) -> None:
    await say(client, "Hi")
    token = await token_of(client)
    shared = await get(anyone, f"/api/shared/{token}")
    assert sorted(shared) == ["messages", "title"]
    assert shared["title"] == "Hi"
    assert [message["role"] for message in shared["messages"]] == ["user", "assistant"]
    assert [chat["shared"] for chat in (await get(client, "/api/chats"))["chats"]] == [True]


@pytest.mark.parametrize("sdk", ["any", "7", "5"])
async def test_the_signatures_of_open_calls_stay_with_the_owner(chats: ChatStore, sdk: str) -> None:
    async def asking(_turn: Turn) -> AsyncIterator[parts.Part]:
        yield parts.Metadata({"model": "small"})
        yield parts.ToolCall("call-1", "delete_file", {"file": "a.txt"})
        yield parts.ToolCall("call-2", "location", {})
        yield parts.ApprovalRequest("approval-1", "call-1")

    app = ChatApp(asking, chats=chats, authorize=named, settings=Settings(sdk=sdk), metrics=False, share=True)
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://a", headers={"x-name": "ada"}
    ) as client:
        await say(client, "Hi")
        own = (await get(client, "/api/chat/c1/messages"))["messages"][1]
        shared = (await get(client, f"/api/shared/{await token_of(client)}"))["messages"][1]
    await app.shut_down()
    assert "signature" in json.dumps(own)
    assert "signature" not in json.dumps(shared)
    assert "usechat" not in shared["metadata"]
    assert shared["metadata"]["model"] == "small"
    assert [part.get("state") for part in shared["parts"]] == [part.get("state") for part in own["parts"]]
    assert "approval-1" in json.dumps(shared["parts"])


async def test_a_revoked_token_leads_nowhere(client: httpx2.AsyncClient, anyone: httpx2.AsyncClient) -> None:
    await say(client, "Hi")
    token = await token_of(client)
    assert (await client.delete("/api/chat/c1/share")).status_code == 204
    assert (await anyone.get(f"/api/shared/{token}")).status_code == 404
    assert (await anyone.get("/api/shared/None")).status_code == 404, "a chat that is not shared has no token"


async def test_a_token_is_worthless_after_its_chat_was_deleted(
    client: httpx2.AsyncClient, anyone: httpx2.AsyncClient
) -> None:
    await say(client, "Hi")
    token = await token_of(client)
    await client.delete("/api/chat/c1")
    assert (await anyone.get(f"/api/shared/{token}")).status_code == 404


async def test_only_the_owner_shares_and_revokes(client: httpx2.AsyncClient) -> None:
    await say(client, "Hi")
    for method in ("PUT", "DELETE"):
        response = await client.request(method, "/api/chat/c1/share", headers={"x-name": "bob"})
        assert response.status_code == 404


async def test_the_files_of_the_shown_branch_can_be_read_and_no_others(
    client: httpx2.AsyncClient, anyone: httpx2.AsyncClient
) -> None:
    await say(client, "Hi", message=with_picture())
    token = await token_of(client)
    url = (await get(anyone, f"/api/shared/{token}"))["messages"][0]["parts"][0]["url"]
    assert url.startswith(f"http://a/api/shared/{token}/files/")
    response = await anyone.get(url)
    assert (response.content, response.headers["content-type"]) == (PICTURE, "image/png")
    assert "sandbox" in response.headers["content-security-policy"]
    edited = {"id": "u-Hi", "parts": [{"type": "text", "text": "Without"}]}
    await say(client, "Hi", message=edited, messageId="u-Hi")
    assert len((await get(anyone, f"/api/shared/{token}"))["messages"]) == 2
    assert (await anyone.get(url)).status_code == 404, "the earlier version is not shown, so neither is its file"


async def test_later_messages_are_shown_and_the_link_stays_the_same_until_it_is_revoked(
    client: httpx2.AsyncClient, anyone: httpx2.AsyncClient
) -> None:
    await say(client, "Hi")
    token = await token_of(client)
    await say(client, "And more")
    assert await token_of(client) == token
    assert len((await get(anyone, f"/api/shared/{token}"))["messages"]) == 4
    await client.delete("/api/chat/c1/share")
    other = await token_of(client)
    assert other != token
    assert (await anyone.get(f"/api/shared/{token}")).status_code == 404
    assert (await anyone.get(f"/api/shared/{other}")).status_code == 200


async def test_a_link_is_no_key_to_anything_else(client: httpx2.AsyncClient, anyone: httpx2.AsyncClient) -> None:
    await say(client, "Hi")
    token = await token_of(client)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert (await anyone.request(method, f"/api/shared/{token}", json={})).status_code == 405
    bob = {"x-name": "bob"}
    assert (await anyone.get(f"/api/chat/{token}/messages", headers=bob)).status_code == 404
    assert "c1" not in (await anyone.get(f"/api/shared/{token}")).text, "not even the id of the chat is told"


async def test_a_chat_that_is_made_anew_is_not_behind_the_link_of_the_deleted_one(
    client: httpx2.AsyncClient, anyone: httpx2.AsyncClient
) -> None:
    await say(client, "Hi")
    token = await token_of(client)
    await client.delete("/api/chat/c1")
    await say(client, "Secret")
    assert (await anyone.get(f"/api/shared/{token}")).status_code == 404


def test_sharing_needs_chats_that_are_stored(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidSetting, match="share"):
        ChatApp(agent, share=True)
    target = f"{__file__}:agent"
    assert main(["serve", target, "--share", "--redis", "redis://localhost:1"]) == 2
    assert "--share is for chats that are stored; give --chats DATABASE" in capsys.readouterr().err


async def test_without_the_option_there_is_no_route() -> None:
    app = ChatApp(agent, chats=MemoryChats(), authorize=named, metrics=False)
    assert not any("share" in getattr(route, "path", "") for route in app.routes)
