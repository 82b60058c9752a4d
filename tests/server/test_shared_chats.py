"""Chats that are shared by a link: what anyone can read, and what stays with the owner."""

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.chats.talking import user
from tests.server.test_chat_routes import agent, get, named, say
from usechat.chats import ChatStore, MemoryChats, SqlChats
from usechat.cli import main
from usechat.errors import InvalidSetting
from usechat.server import ChatApp, Settings

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


def test_sharing_needs_chats_that_are_stored(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidSetting, match="share"):
        ChatApp(agent, share=True)
    target = f"{__file__}:agent"
    assert main(["serve", target, "--share", "--redis", "redis://localhost:1"]) == 2
    assert "--share is for chats that are stored; give --chats DATABASE" in capsys.readouterr().err


async def test_without_the_option_there_is_no_route() -> None:
    app = ChatApp(agent, chats=MemoryChats(), authorize=named, metrics=False)
    assert not any("share" in getattr(route, "path", "") for route in app.routes)
