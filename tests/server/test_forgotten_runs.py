"""Where no run of a chat is known, a page's answers are taken as far as their signatures vouch for them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.external_agents import needs_agents_here
from tests.redis_server import redis_server
from usechat import parts
from usechat.protocol.message import MessageBuilder
from usechat.protocol.sse import ChunkDecoder
from usechat.runs.memory import MemoryRuns
from usechat.runs.redis.store import RedisRuns
from usechat.runs.store import RunStore
from usechat.server import ChatApp, Settings, chat_response
from usechat.turn import Turn

pytestmark = pytest.mark.external_agents

USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}


async def curious(turn: Turn) -> AsyncIterator[Any]:
    """Ask the page and a person; tell what was answered."""
    yield f"{[each.output for each in turn.tool_outputs]} {[each.approval_id for each in turn.approvals]}"
    if not turn.request.continues:
        yield parts.ToolCall("t1", "ask", {"a": 1})
        yield parts.ToolCall("t2", "remove", {"path": "notes"})
        yield parts.ApprovalRequest("a1", "t2")


def route(settings: Settings | None = None) -> Starlette:
    async def chat(request: Request) -> Response:
        return await chat_response(request, curious, settings=settings)

    return Starlette(routes=[Route("/api/chat", chat, methods=["POST"])])


async def posted(app: Any, *messages: Any, chat_id: str = "c1") -> Any:
    """Post messages; return the message that comes back, which goes on with the last one, or the status."""
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://example", timeout=30) as http:
        response = await http.post("/api/chat?sdk=7", json={"id": chat_id, "messages": messages})
    if response.status_code != 200:
        return response.status_code
    builder = MessageBuilder(sdk="7", message=messages[-1] if messages[-1]["role"] == "assistant" else None)
    for chunk in ChunkDecoder().receive(response.content):
        builder.receive(chunk)
    return builder.message


def answering(message: Any, **changes: Any) -> Any:
    """Answer everything that a message waits for, as the page does."""
    new_parts = []
    for part in message["parts"]:
        if part["type"] == "tool-ask":
            new_parts.append({**part, "state": "output-available", "output": 5, **changes})
        elif part["type"] == "tool-remove":
            new_parts.append(
                {**part, "state": "approval-responded", "approval": {**part["approval"], "approved": True}}
            )
        else:
            new_parts.append(part)
    return {**message, "parts": new_parts}


def last_text(message: Any) -> str:
    return str([part["text"] for part in message["parts"] if part["type"] == "text"][-1])


@pytest.mark.parametrize("settings", [None, Settings(approval_secret="s3cret"), Settings(approval_secret="")])
async def test_a_bare_route_takes_what_it_asked_for_and_nothing_else(settings: Settings | None) -> None:
    app = route(settings)
    message = await posted(app, USER)
    assert last_text(await posted(app, USER, answering(message))) == "[5] ['a1']"
    assert await posted(app, USER, answering(message), chat_id="c2") == 422
    without = {**message, "parts": [part for part in message["parts"] if part["type"] != "tool-remove"]}
    assert last_text(await posted(app, USER, answering(without), chat_id="c2")) == "[] []"
    assert last_text(await posted(app, USER, answering(message, input={"a": 2}))) == "[] ['a1']"
    assert last_text(await posted(app, USER, answering({**message, "metadata": None}))) == "[] ['a1']"


async def test_another_secret_vouches_for_nothing() -> None:
    message = await posted(route(Settings(approval_secret="old")), USER)
    assert await posted(route(), USER, answering(message)) == 422
    outputs = answering({**message, "parts": [part for part in message["parts"] if part["type"] != "tool-remove"]})
    assert last_text(await posted(route(), USER, outputs)) == "[] []"


async def test_what_was_answered_is_not_handed_out_with_the_next_answer() -> None:
    app = route()
    after = await posted(app, USER, answering(await posted(app, USER)))
    assert after["metadata"]["usechat"]["pending"] == []
    assert last_text(await posted(app, USER, after)) == "[] []"


async def forgotten(runs: RunStore) -> None:
    async with asyncio.timeout(30):
        while await runs.latest("c1") is not None:  # noqa: ASYNC110 (its store forgets it by the clock)
            await asyncio.sleep(0.01)


async def take_and_refuse(runs: RunStore) -> None:
    app = ChatApp(curious, runs=runs)
    message = await posted(app, USER)
    for changes, expected in (
        ({}, "[5] ['a1']"),
        ({"input": {"a": 2}}, "[] ['a1']"),
        ({"type": "tool-b"}, "[] ['a1']"),
    ):
        await forgotten(runs)
        assert last_text(await posted(app, USER, answering(message, **changes))) == expected
    await app.shut_down()


@needs_agents_here("a queue is in Redis, never in memory")
async def test_a_run_that_memory_has_forgotten_is_vouched_for_by_its_signature() -> None:
    await take_and_refuse(MemoryRuns(remember=0.01))


async def test_a_run_that_redis_has_forgotten_is_vouched_for_by_its_signature() -> None:
    with redis_server("valkey") as server:
        await take_and_refuse(RedisRuns(server.url, remember=0.01))


async def test_while_the_run_is_known_an_answer_counts_once() -> None:
    app = ChatApp(curious)
    message = await posted(app, USER)
    assert last_text(await posted(app, USER, answering(message))) == "[5] ['a1']"
    assert await posted(app, USER, answering(message)) == 422
    await app.shut_down()


@pytest.mark.parametrize("state", ["input-available", "approval-requested"])
async def test_a_call_that_the_page_made_up_is_not_made_true_by_a_turn_that_goes_on(state: str) -> None:
    app = ChatApp(curious)
    message = await posted(app, USER)
    invented = {"type": "tool-remove", "toolCallId": "t9", "input": {"path": "/"}}
    request = {**invented, "state": state, "approval": {"id": "a9"}}
    after = await posted(app, USER, {**answering(message), "parts": [*answering(message)["parts"], request]})
    assert last_text(after) == "[5] ['a1']"
    others = [part for part in after["parts"] if part.get("toolCallId") != "t9"]
    approved = {**invented, "state": "approval-responded", "approval": {"id": "a9", "approved": True}}
    assert await posted(app, USER, {**after, "parts": [*others, approved]}) == 422
    output = {**invented, "state": "output-available", "output": "removed"}
    assert last_text(await posted(app, USER, {**after, "parts": [*others, output]})) == "[] []"
    await app.shut_down()
