"""Several agents in one app: which one answers, what is kept with the chat, and what clients are told."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest

from tests.chats.talking import user
from tests.server.sockets import Body
from usechat import parts
from usechat.chats import MemoryChats, SqlChats
from usechat.errors import CannotAnswer, InvalidSetting
from usechat.server import ChatApp, Identity, Limits, Settings
from usechat.server.agents import Agents
from usechat.turn import Turn


async def writer(turn: Turn) -> AsyncIterator[str]:
    """Write texts.

    The rest is for programmers.
    """
    yield f"writer: {turn.text}"


async def coder(turn: Turn) -> AsyncIterator[str | parts.Part]:
    if turn.approvals:
        yield "coder: approved"
    elif turn.text == "delete":
        yield parts.ToolCall("t1", "delete", {})
        yield parts.ApprovalRequest("a1", "t1")
    else:
        yield f"coder: {turn.text}"


class Described:
    description = "A framework's own\nwords."

    async def __call__(self, turn: Turn) -> str:
        return turn.text


def named(_request: Any, _chat_id: str, _action: str) -> Identity:
    return Identity("ada")


@asynccontextmanager
async def client_of(agent: Any, **options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    app = ChatApp(agent, metrics=False, settings=options.pop("settings", Settings(sdk="7")), **options)
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://a", timeout=30) as client:
        yield client
    await app.shut_down()


async def say(client: httpx2.AsyncClient, *messages: Any, chat_id: str = "c1", **body: Any) -> str:
    response = await client.post("/api/chat", json={"id": chat_id, "messages": list(messages), **body})
    assert response.status_code == 200, response.text
    return Body(response.content, complete=True).text


async def test_the_agents_are_listed_with_what_they_say_about_themselves() -> None:
    async with client_of({"writer": writer, "coder": coder, "other": Described()}) as client:
        assert (await client.get("/api/agents")).json() == {
            "agents": [
                {"name": "writer", "description": "Write texts."},
                {"name": "coder", "description": ""},
                {"name": "other", "description": "A framework's own words."},
            ]
        }


async def test_the_body_chooses_and_the_first_agent_is_the_default() -> None:
    async with client_of({"writer": writer, "coder": coder}) as client:
        assert await say(client, user("u1", "Hi")) == "writer: Hi"
        assert await say(client, user("u2", "Hi"), agent="coder") == "coder: Hi"
        assert await say(client, user("u3", "Hi")) == "writer: Hi", "nothing is kept without a store"


async def test_an_unknown_agent_is_refused_with_the_names_that_exist() -> None:
    async with client_of({"writer": writer, "coder": coder}) as client:
        body = {"id": "c1", "messages": [user("u1", "Hi")], "agent": ["painter"]}
        response = await client.post("/api/chat", json=body)
        assert (response.status_code, response.text.endswith("names none of the agents: writer, coder")) == (400, True)


async def test_a_stored_chat_with_an_id_that_no_database_can_keep_is_refused(tmp_path: Path) -> None:
    body = json.dumps({"id": "half \ud83d", "message": user("u1", "Hi")})
    stored = SqlChats(str(tmp_path / "chats.db"))
    async with client_of({"writer": writer, "coder": coder}, chats=stored, authorize=named) as client:
        response = await client.post("/api/chat", content=body, headers={"content-type": "application/json"})
    assert response.status_code == 400
    assert response.text == "the chat id holds an unpaired surrogate; an id must be valid text"


async def test_the_field_is_the_applications_own_where_one_agent_is_served() -> None:
    async def agent(turn: Turn) -> str:
        return str(turn.body["agent"])

    async with client_of(agent) as client:
        assert await say(client, user("u1", "Hi"), agent=7) == "7"
        assert (await client.get("/api/agents")).json() == {"agents": [{"name": "agent", "description": ""}]}


async def test_a_stored_chat_keeps_its_agent() -> None:
    async with client_of({"writer": writer, "coder": coder}, chats=MemoryChats(), authorize=named) as client:
        assert await say(client, user("u1", "Hi"), agent="coder") == "coder: Hi"
        assert await say(client, user("u2", "Again")) == "coder: Again"
        assert (await client.get("/api/chat/c1/messages")).json()["agent"] == "coder"
        assert await say(client, user("u3", "Now you"), agent="writer") == "writer: Now you"
        assert [chat["agent"] for chat in (await client.get("/api/chats")).json()["chats"]] == ["writer"]


async def ask_to_delete(client: httpx2.AsyncClient) -> dict[str, Any]:
    """Let the coder ask for an approval; return its answer as a page sends it that approves."""
    await say(client, user("u1", "delete"), agent="coder")
    *_, message = (await client.get("/api/chat/c1/messages")).json()["messages"]
    part = next(part for part in message["parts"] if part.get("state") == "approval-requested")
    part |= {"state": "approval-responded", "approval": {**part["approval"], "approved": True}}
    return cast("dict[str, Any]", message)


async def test_an_approval_goes_to_the_agent_that_asked_whatever_the_body_says() -> None:
    async with client_of({"writer": writer, "coder": coder}, chats=MemoryChats(), authorize=named) as client:
        approved = await ask_to_delete(client)
        assert await say(client, approved, agent="writer") == "coder: approved"


@pytest.mark.parametrize("body", [{}, {"agent": "writer"}])
async def test_an_approval_of_another_branch_goes_to_the_agent_that_asked(body: Any) -> None:
    async with client_of({"writer": writer, "coder": coder}, chats=MemoryChats(), authorize=named) as client:
        approved = await ask_to_delete(client)
        assert await say(client, user("u1", "Rather write"), agent="writer") == "writer: Rather write"
        assert await say(client, approved, messageId=approved["id"], **body) == "coder: approved"
        assert (await client.get("/api/chat/c1/messages")).json()["agent"] == "coder", "its branch is shown"


async def test_a_late_approval_goes_to_the_agent_that_asked_and_the_next_question_does_not() -> None:
    async with client_of({"writer": writer, "coder": coder}, chats=MemoryChats(), authorize=named) as client:
        approved = await ask_to_delete(client)
        await say(client, user("u2", "Go on"), agent="writer")
        assert await say(client, approved, messageId=approved["id"]) == "coder: approved"
        assert await say(client, user("u3", "And now?")) == "writer: And now?"


async def test_each_factory_is_called_once_and_its_context_is_left() -> None:
    events: list[str] = []

    def factory(name: str) -> Any:
        @asynccontextmanager
        async def make() -> AsyncIterator[Any]:
            events.append(f"open {name}")
            yield writer
            events.append(f"close {name}")

        return make

    async with client_of({"one": factory("one"), "two": factory("two")}) as client:
        for number, agent in enumerate(("one", "two", "one")):
            await say(client, user(f"u{number}", "Hi"), agent=agent)
        assert events == ["open one", "open two"]
    assert events == ["open one", "open two", "close one", "close two"]


def test_no_agent_and_no_agents_of_the_wrong_kind_are_accepted() -> None:
    with pytest.raises(InvalidSetting, match="is empty"):
        Agents({})
    with pytest.raises(CannotAnswer):
        Agents({"writer": writer, "number": 7})


async def test_clients_are_told_the_limits() -> None:
    settings = Settings(limits=Limits(maximum_bytes=3, maximum_file_bytes=2, maximum_files=1))
    async with client_of(writer, settings=settings) as client:
        assert (await client.get("/api/limits")).json() == {
            "maximumBytes": 3,
            "maximumFileBytes": 2,
            "maximumFiles": 1,
        }


async def test_agents_and_limits_are_told_to_those_who_may_use_the_server() -> None:
    async with client_of(writer, authorize=lambda _request, _chat_id, _action: None) as client:
        assert [(await client.get(f"/api/{name}")).status_code for name in ("agents", "limits")] == [404, 404]
