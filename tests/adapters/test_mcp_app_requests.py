"""What an MCP App may ask of its server, against a real MCP server, and what it and its page may not."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client

from tests.adapters.app_server import MIME_TYPE, server
from tests.adapters.test_mcp_apps import CALL, openai_agents, pydantic_ai
from tests.chats.talking import user
from tests.redis_server import PATIENCE, SERVERS, redis_server
from usechat.chats import ChatStore, MemoryChats, SqlChats
from usechat.errors import InvalidSetting
from usechat.parts import McpApp, ToolCall, ToolResult
from usechat.runs.redis.store import RedisRuns
from usechat.runs.redis.turns import RedisTurns
from usechat.server import AgentWorker, AppRequest, ChatApp, Identity, Observer, Settings, apps, remote_apps
from usechat.testing import ScriptedModel
from usechat.turn import Turn

APP = McpApp("ui://weather/map", server="weather")
UI = {"csp": {"connectDomains": ["https://tiles.example"]}, "prefersBorder": True}
READ = {"method": "mcp-apps/read-resource", "params": {"uri": "ui://weather/map", "serverId": "weather"}}


class Audit(Observer):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.requests: list[AppRequest] = []

    def app_requested(self, request: AppRequest) -> None:
        self.requests.append(request)


async def agent(turn: Turn) -> AsyncIterator[Any]:
    if turn.text == "Weather?":
        yield ToolCall("c1", "forecast", {"city": "Oslo"}, app=APP)
        yield ToolResult("c1", {"celsius": 4})
    yield "Mild."


def named(request: Any, _chat_id: str, _action: str) -> Identity:
    return Identity(request.headers["x-name"], token="upstream-token")


def opening(people: list[Identity]) -> Any:
    def open_session(identity: Identity) -> Client:
        people.append(identity)
        return Client(server)

    return open_session


@asynccontextmanager
async def serving(
    answer: Any = agent, *, observer: Observer | None = None, chats: ChatStore | None = None, **options: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    options.setdefault("mcp_servers", {"weather": opening([]), "payroll": opening([])})
    app = ChatApp(
        answer,
        chats=chats or MemoryChats(),
        authorize=named,
        observer=observer,
        metrics=False,
        **{"settings": Settings(sdk="any"), **options},
    )
    async with httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app), base_url="http://a", timeout=120, headers={"x-name": "ada"}
    ) as client:
        yield client
    await app.shut_down()


async def say(client: httpx2.AsyncClient, text: str = "Weather?", chat_id: str = "c1") -> None:
    response = await client.post("/api/chat", json={"id": chat_id, "message": user(f"u-{text}", text)})
    assert response.status_code == 200, response.text


async def ask(client: httpx2.AsyncClient, method: str, chat_id: str = "c1", **params: Any) -> httpx2.Response:
    body = {"method": method, "params": {"serverId": "weather", **params}}
    return await client.post(f"/api/chat/{chat_id}/apps", json=body)


async def test_an_app_is_read_and_calls_the_tools_that_are_for_apps() -> None:
    async with serving() as client:
        await say(client)
        app = await ask(client, "mcp-apps/read-resource", uri="ui://weather/map")
        content = await ask(client, "resources/read", uri="ui://weather/map")
        listed = await ask(client, "resources/list")
        refreshed = await ask(client, "tools/call", name="refresh", arguments={"city": "Bergen"})
        shared = await ask(client, "tools/call", name="forecast", arguments={"city": "Oslo"})
    html = "<h1>Weather</h1>"
    assert app.json() == {"uri": "ui://weather/map", "mimeType": MIME_TYPE, "html": html, "meta": UI}
    assert content.json()["contents"] == [
        {"uri": "ui://weather/map", "mimeType": MIME_TYPE, "text": html, "_meta": {"ui": UI}}
    ]
    assert {resource["uri"] for resource in listed.json()["resources"]} == {"ui://weather/map", "ui://weather/huge"}
    assert refreshed.json()["structuredContent"] == {"celsius": 7}
    assert shared.json()["structuredContent"] == {"celsius": 4}
    assert app.headers["cache-control"] == "no-store"


async def test_a_server_that_is_not_named_is_the_only_one_of_the_chat() -> None:
    async with serving() as client:
        await say(client)
        response = await client.post("/api/chat/c1/apps", json={**READ, "params": {"uri": "ui://weather/map"}})
        assert response.json()["html"] == "<h1>Weather</h1>"


@pytest.mark.parametrize(
    ("method", "params", "status", "sentence"),
    [
        ("resources/read", {"uri": "notes://secret"}, 422, "begin with ui://"),
        ("mcp-apps/read-resource", {"uri": "https://metadata.internal/token"}, 422, "begin with ui://"),
        ("mcp-apps/read-resource", {"uri": "file:///etc/passwd"}, 422, "begin with ui://"),
        ("mcp-apps/read-resource", {"uri": "ui://weather/page"}, 422, "is no app"),
        ("resources/read", {"uri": "ui://weather/page"}, 422, "is no app"),
        ("mcp-apps/read-resource", {"uri": 7}, 400, "params.uri must be a text"),
        ("mcp-apps/read-resource", {}, 400, "params.uri must be a text"),
        ("tools/call", {"name": "forget"}, 422, "may not call the tool 'forget'"),
        ("tools/call", {"name": "unknown"}, 422, "may not call the tool 'unknown'"),
        ("tools/call", {"name": "refresh", "arguments": "city"}, 400, "params.arguments must be an object"),
        ("tools/list", {}, 400, "not a request of an app"),
        ("prompts/get", {"name": "x"}, 400, "not a request of an app"),
        ("resources/list", {"serverId": "payroll"}, 422, "No app of this MCP server"),
        ("resources/list", {"serverId": ["weather"]}, 400, "params.serverId must be a text"),
    ],
)
async def test_an_app_reaches_nothing_else(method: str, params: Any, status: int, sentence: str) -> None:
    async with serving() as client:
        await say(client)
        response = await ask(client, method, **params)
    assert (response.status_code, sentence in response.text) == (status, True), response.text
    assert "hunter2" not in response.text


async def test_an_app_belongs_to_the_chat_in_which_its_tool_was_called_and_to_its_owner() -> None:
    async with serving() as client:
        await say(client)
        await say(client, "Hi", "c2")
        foreign = await client.post("/api/chat/c1/apps", json=READ, headers={"x-name": "bob"})
        assert foreign.status_code == 404
        assert (await client.post("/api/chat/c2/apps", json=READ)).status_code == 422
        assert (await client.post("/api/chat/c3/apps", json=READ)).status_code == 404
        simple = {"content-type": "text/plain"}  # what a page of another site may send
        assert (await client.post("/api/chat/c1/apps", content=b"{}", headers=simple)).status_code == 400


@pytest.mark.parametrize("import_history", [True, False])
@pytest.mark.parametrize("key", ["callProviderMetadata", "toolMetadata"])
async def test_a_page_names_no_app(import_history: bool, key: str) -> None:
    app = {"app": {"resourceUri": "ui://weather/map", "serverId": "payroll"}}
    call = {"type": "tool-pay", "toolCallId": "c9", "state": "output-available", "input": {}, "output": 1}
    forged = {**call, key: {"mcp": app} if key == "callProviderMetadata" else app}
    history = [user("u1", "Hi"), {"id": "a1", "role": "assistant", "parts": [forged]}, user("u2", "Hello")]
    async with serving(settings=Settings(sdk="7", import_history=import_history)) as client:
        response = await client.post("/api/chat", json={"id": "c1", "messages": history})
        assert response.status_code == 200
        refused = await ask(client, "resources/list", serverId="payroll")
    assert refused.status_code == 422


async def test_an_app_of_an_answer_that_is_still_running_is_answered() -> None:
    was_asked = asyncio.Event()

    async def slow(_turn: Turn) -> AsyncIterator[Any]:
        yield ToolCall("c1", "forecast", {}, app=APP)
        yield ToolResult("c1", 4)
        await was_asked.wait()
        yield "Mild."

    async with serving(slow) as client:
        answering = asyncio.create_task(say(client))
        async with asyncio.timeout(60):
            while (response := await client.post("/api/chat/c1/apps", json=READ)).status_code != 200:
                assert response.status_code in (404, 422)
                await asyncio.sleep(0.01)
        was_asked.set()
        await answering


async def test_answers_are_limited_in_size_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as client:
        await say(client)
        for method, params in (
            ("tools/call", {"name": "flood"}),
            ("mcp-apps/read-resource", {"uri": "ui://weather/huge"}),
        ):
            response = await ask(client, method, **params)
            assert (response.status_code, response.text) == (
                502,
                "The MCP server's answer is larger than 4,194,304 bytes.",
            )
        monkeypatch.setattr(apps, "SECONDS", 0.5)
        response = await ask(client, "tools/call", name="wait")
        assert (response.status_code, response.text) == (502, "The MCP server did not answer within 0.5 seconds.")
        large = await ask(client, "tools/call", name="refresh", arguments={"city": "x" * 70_000})
        assert large.status_code == 413


async def test_a_person_asks_a_few_things_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def held(_identity: Identity) -> AsyncIterator[Client]:
        begun.set()
        await may_end.wait()
        async with Client(server) as client:
            yield client

    monkeypatch.setattr(apps, "_AT_ONCE", 1)
    monkeypatch.setattr(apps, "SECONDS", 300)
    async with serving(mcp_servers={"weather": held}) as client:
        await say(client)
        first = asyncio.create_task(client.post("/api/chat/c1/apps", json=READ))
        await begun.wait()
        assert (await client.post("/api/chat/c1/apps", json=READ)).status_code == 429
        may_end.set()
        assert (await first).status_code == 200
        assert (await client.post("/api/chat/c1/apps", json=READ)).status_code == 200


async def test_what_a_server_says_of_its_failure_is_logged_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    def unreachable(_identity: Identity) -> Any:
        raise OSError("db7.internal refused the password hunter2")

    async with serving() as client:
        await say(client)
        response = await ask(client, "tools/call", name="fail")
    assert response.json() == {"content": [{"type": "text", "text": "The tool failed."}], "isError": True}
    async with serving(mcp_servers={"weather": unreachable}) as client:
        await say(client)
        response = await client.post("/api/chat/c1/apps", json=READ)
    assert response.status_code == 502
    assert response.text.startswith("The MCP server failed; reference ")
    assert "db7.internal" in caplog.text


async def test_every_request_is_reported_with_who_made_it(caplog: pytest.LogCaptureFixture) -> None:
    audit, people = Audit(), list[Identity]()
    caplog.set_level("INFO", "usechat.server")
    async with serving(observer=audit, mcp_servers={"weather": opening(people)}) as client:
        await say(client)
        await ask(client, "tools/call", name="refresh", arguments={"city": "Oslo"})
        await ask(client, "tools/call", name="forget")
    assert [(each.subject, each.server, each.method, each.name, each.outcome) for each in audit.requests] == [
        ("ada", "weather", "tools/call", "refresh", "answered"),
        ("ada", "weather", "tools/call", "forget", "refused"),
    ]
    assert "an app of chat c1 refused for 'ada': tools/call 'forget' of 'weather'" in caplog.text
    assert [person.token for person in people] == ["upstream-token"] * 2


async def test_an_app_of_a_server_that_nobody_gives_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(mcp_servers={}) as client:
        await say(client)
        response = await client.post("/api/chat/c1/apps", json=READ)
    assert (response.status_code, response.text) == (502, "The MCP server of this app cannot be reached.")
    assert "needs the MCP server 'weather'" in caplog.text


@pytest.mark.parametrize("agent_of", [pydantic_ai, openai_agents])
async def test_the_servers_of_an_agent_answer_the_apps_of_its_tools(
    agent_of: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apps, "SECONDS", 300)
    chats = SqlChats(str(tmp_path / "chats.db"))
    with ScriptedModel([CALL, "Mild."]) as model:
        async with serving(agent_of(model), chats=chats, mcp_servers={}) as client:
            await say(client)
            app = await ask(client, "mcp-apps/read-resource", uri="ui://weather/map")
            refreshed = await ask(client, "tools/call", name="refresh", arguments={"city": "Bergen"})
            refused = await ask(client, "tools/call", name="forget")
    assert (app.json()["html"], app.json()["meta"]) == ("<h1>Weather</h1>", UI)
    assert refreshed.json()["structuredContent"]["celsius"] == 7
    assert refused.status_code == 422


async def test_the_servers_of_an_agent_in_another_process_are_asked_through_its_mailbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apps, "SECONDS", 300)
    monkeypatch.setattr(remote_apps, "_PATIENCE", 300)
    chats = str(tmp_path / "chats.db")
    with redis_server(next(iter(SERVERS))) as redis, ScriptedModel([CALL, "Mild."]) as model:
        queue = RedisTurns(RedisRuns(redis.url), "agents")
        worker = AgentWorker(pydantic_ai(model), queue, version="v1", chats=SqlChats(chats))
        working = asyncio.create_task(worker.work(drain=PATIENCE))
        runs = RedisRuns(redis.url)
        async with serving(RedisTurns(runs, "agents"), runs=runs, chats=SqlChats(chats), mcp_servers={}) as client:
            await say(client)
            app = await ask(client, "mcp-apps/read-resource", uri="ui://weather/map")
            refreshed = await ask(client, "tools/call", name="refresh", arguments={"city": "Bergen"})
            refused = await ask(client, "tools/call", name="forget")
            wrong = await ask(client, "resources/read", uri=7)
            foreign = await ask(client, "resources/list", serverId="payroll")
            worker.stop()
            await working
            alone = await ask(client, "resources/list")
    assert (app.json()["html"], app.json()["meta"]) == ("<h1>Weather</h1>", UI)
    assert refreshed.json()["structuredContent"]["celsius"] == 7
    assert (refused.status_code, refused.text) == (422, "The app may not call the tool 'forget'.")
    assert (wrong.status_code, wrong.text) == (400, "params.uri must be a text")
    assert foreign.status_code == 422
    assert (alone.status_code, alone.text) == (
        502,
        "No agent process is running that could reach the MCP server of this app.",
    )


def test_servers_of_apps_need_stored_chats() -> None:
    with pytest.raises(InvalidSetting, match="mcp_servers are for chats that are stored"):
        ChatApp(agent, mcp_servers={"weather": opening([])})


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (["https://a.example", "https://b.example; script-src *", "'unsafe-eval'", 7, "a b"], ["https://a.example"]),
        ("https://a.example", []),
    ],
)
def test_the_policy_of_an_app_has_no_directive_inside_a_source(value: Any, expected: list[str]) -> None:
    content = {"_meta": {"ui": {"csp": {"connectDomains": value}}, "secret": 1}}
    assert apps._ui_meta(content) == {"csp": {"connectDomains": expected}}  # noqa: SLF001
