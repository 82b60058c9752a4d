"""Apps of a real MCP server on pages: what a person does with them, and what a hostile one does not get."""

import json
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
from mcp import Client
from playwright.sync_api import BrowserContext, FrameLocator, Page
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from tests.browser import app_server
from tests.browser.building import HERE, front_end, install
from tests.browser.chatting import ask, expect, wait_until_idle
from tests.browser.chromium import NODE
from tests.browser.conftest import OpenPage, page_served
from tests.browser.test_access import serious_findings
from tests.browser.test_front_ends import FrontEnd
from tests.browser.test_stored_chats import everyone_is_ada
from tests.conformance.served import PATIENCE, Served, eventually, serving
from tests.server.process import serve_process
from usechat.chats import MemoryChats
from usechat.parts import McpApp, ToolCall, ToolResult
from usechat.server.page import PageSettings, WithPage
from usechat.server.requests import allow_all
from usechat.turn import Turn

ASSISTANT_UI: Final = HERE / "assistant-ui"
RESULT: Final = {"content": [{"type": "text", "text": "4 degrees"}], "structuredContent": {"celsius": 4}}
"""What the server answers, as it is: assistant-ui hands an output to the app without a change."""
INITIALIZED: Final = "310px"
"""The height that the map asks for once it knows its host."""


async def agent(turn: Turn) -> AsyncIterator[Any]:
    """Call a tool whose app is the one that the message names; repeat any other message."""
    if not turn.text.startswith("show "):
        yield f"You said: {turn.text}"
        return
    app = McpApp(f"ui://weather/{turn.text.removeprefix('show ')}", server="weather")
    yield ToolCall("c1", "forecast", {"city": "Oslo"}, app=app)
    yield ToolResult("c1", RESULT)
    yield "Mild."


class Thief:
    """A site that keeps what it is asked for."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.paths.append(scope["path"])
        await PlainTextResponse("thanks")(scope, receive, send)


@contextmanager
def apps_served() -> Iterator[Served]:
    """Serve the page, with the sandbox at a port and a host name of its own."""
    sandbox = _Sandbox()
    with serving({"chat": sandbox}) as apps:
        sandbox.origin = f"http://localhost:{apps.port}"
        servers = {"weather": lambda _identity: Client(app_server.server)}
        look = {"apps_origin": sandbox.origin}
        with page_served(
            agent, chats=MemoryChats(), authorize=everyone_is_ada, mcp_servers=servers, look=look
        ) as served:
            yield served


class _Sandbox:
    """The sandbox alone: its origin is known when its port is."""

    origin = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        page = WithPage(None, settings=PageSettings(apps_origin=self.origin), authorize=allow_all)
        await page(scope, receive, send)


@pytest.fixture(scope="module")
def with_apps() -> Iterator[Served]:
    with apps_served() as served:
        yield served


@pytest.fixture
def thief() -> Iterator[Thief]:
    thief = Thief()
    with serving({"thief": thief}) as served:
        app_server.targets["thief"] = f"http://127.0.0.1:{served.port}/thief/"
        yield thief


@pytest.fixture(autouse=True)
def no_calls() -> None:
    app_server.calls.clear()


def open_app(page: Page, name: str) -> FrameLocator:
    """Let the agent show an app, and return its frame."""
    ask(page, f"show {name}")
    expect(page.get_by_text("Mild.")).to_be_visible()
    wait_until_idle(page)
    return page.frame_locator(".tool-app iframe").frame_locator("iframe")


def chat(served: Served) -> str:
    return f"http://127.0.0.1:{served.port}/chat/"


def test_an_app_shows_the_result_of_its_tool_and_calls_its_server(open_page: OpenPage, with_apps: Served) -> None:
    page = open_page(chat(with_apps))
    app = open_app(page, "map")
    expect(app.get_by_text("4 degrees")).to_be_visible()
    expect(page.locator(".tool-app iframe")).to_have_css("height", INITIALIZED)
    app.get_by_role("button", name="Refresh").click()
    expect(app.get_by_text("14 degrees")).to_be_visible()
    assert app_server.calls == ["refresh"]
    page.reload()
    expect(app.get_by_text("4 degrees")).to_be_visible()


def test_a_link_of_an_app_is_opened_by_a_click_of_the_person_alone(
    open_page: OpenPage, with_apps: Served, context: BrowserContext
) -> None:
    context.route("https://maps.example/**", lambda route: route.fulfill(body="A map"))
    page = open_page(chat(with_apps))
    app = open_app(page, "map")
    wish = page.get_by_role("group", name="The app wants to open a page:")
    app.get_by_role("button", name="Open the map").click()
    expect(wish).to_contain_text("https://maps.example/oslo")
    app.get_by_role("button", name="Ask about Bergen").click()
    expect(app.get_by_text("refused: The person is being asked something already.")).to_be_visible()
    assert len(context.pages) == 1
    wish.get_by_role("button", name="Not now").click()
    expect(app.get_by_text("refused: The person did not want this.")).to_be_visible()
    assert len(context.pages) == 1
    app.get_by_role("button", name="Open the map").click()
    with context.expect_page() as opened:
        wish.get_by_role("button", name="Open", exact=True).click()
    expect(app.get_by_text("granted")).to_be_visible()
    assert (opened.value.url, opened.value.evaluate("opener")) == ("https://maps.example/oslo", None)


def test_an_app_and_what_it_asks_the_person_are_accessible(context: BrowserContext, with_apps: Served) -> None:
    page = context.new_page()  # axe writes to every frame, also to one of another origin, which the browser reports
    page.goto(chat(with_apps))
    open_app(page, "map").get_by_role("button", name="Open the map").click()
    expect(page.get_by_role("button", name="Not now")).to_be_visible()
    assert serious_findings(page) == []


def test_a_message_of_an_app_is_sent_by_a_click_of_the_person_alone(open_page: OpenPage, with_apps: Served) -> None:
    page = open_page(chat(with_apps))
    app = open_app(page, "map")
    app.get_by_role("button", name="Ask about Bergen").click()
    wish = page.get_by_role("group", name="The app wants to send a message in your name:")
    expect(wish).to_contain_text("And in Bergen?")
    expect(page.get_by_label("You", exact=True)).to_have_count(1)
    wish.get_by_role("button", name="Send").click()
    expect(page.get_by_text("You said: And in Bergen?")).to_be_visible()
    expect(app.get_by_text("granted")).to_be_visible()


REFUSED: Final = {
    "tool": "may not call the tool 'forget'",
    "unknown": "may not call the tool 'unknown'",
    "server_of_others": "may not call the tool 'pay'",  # of its own server: the page says which one is asked
    "note": "limited to ui:// resources",
    "other_method": "Unsupported MCP App method: tools/list",
    "script_link": "Disallowed ui/open-link scheme",
    "context": "adds nothing to the messages",
}


@pytest.mark.parametrize("name", ["spy", "greedy-spy"])
def test_a_hostile_app_gets_nothing(context: BrowserContext, with_apps: Served, thief: Thief, name: str) -> None:
    app_server.targets["page"] = chat(with_apps)
    page = context.new_page()
    page.goto(chat(with_apps))
    page.evaluate("localStorage.setItem('secret', 'hunter2'); document.cookie = 'secret=hunter2'")
    app = open_app(page, name)
    expect(app.locator("body[data-done]")).to_be_attached()
    loot = json.loads(app.locator("#loot").inner_text())
    refused = {key: text for key, text in loot.items() if text.startswith("got: refused: ")}
    assert {key for key, text in loot.items() if not text.startswith("stopped: ")} == refused.keys(), loot
    assert refused.keys() == REFUSED.keys()
    assert all(sentence in refused[key] for key, sentence in REFUSED.items()), refused
    expect(app.locator("iframe")).to_have_count(1)
    wait_until_idle(page)
    assert page.url.startswith(chat(with_apps))
    assert (thief.paths, app_server.calls) == ([], [])
    assert "hunter2" not in json.dumps(loot)


def test_an_app_cannot_leave_its_frame_and_take_data_along(
    context: BrowserContext, with_apps: Served, thief: Thief
) -> None:
    page = context.new_page()
    page.goto(chat(with_apps))
    open_app(page, "leaver")
    eventually(lambda: app_server.calls, "the app's last message arrives")
    wait_until_idle(page)
    assert thief.paths == []
    assert page.url.startswith(chat(with_apps))


@pytest.mark.parametrize("name", ["flood", "past-the-sandbox"])
def test_an_app_that_floods_the_page_is_stopped(open_page: OpenPage, with_apps: Served, name: str) -> None:
    page = open_page(chat(with_apps))
    open_app(page, name)
    expect(page.get_by_text("This app was stopped: it sent too many messages.")).to_be_visible()
    expect(page.locator(".tool-app iframe")).to_have_count(0)
    ask(page, "hello there")
    expect(page.get_by_text("You said: hello there")).to_be_visible()


AGENT: Final = f"""
import sys
from fastmcp.client.transports import StdioTransport
from pydantic_ai import Agent
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.test import TestModel

toolset = MCPToolset(StdioTransport(sys.executable, [{str(app_server.__file__)!r}]), id="weather", init_timeout=120)
agent = Agent(TestModel(call_tools=["forecast"]), toolsets=[toolset])
"""


def test_a_server_for_this_machine_shows_apps_from_a_second_port(open_page: OpenPage, tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    with serve_process(tmp_path, "agent.py:agent") as served:
        match = re.search(r"The page shows the apps of MCP servers from (http://localhost:\d+)\n", served.written)
        assert match is not None, served.written
        assert httpx2.get(f"{match[1]}/mcp-sandbox.html").status_code == 200
        assert httpx2.get(f"{match[1]}/api/chats").status_code == 404
        assert f" frame-src {match[1]};" in httpx2.get(served.url).headers["content-security-policy"]
        page = open_page(served.url)
        ask(page, "Weather?")
        app = page.frame_locator(".tool-app iframe").frame_locator("iframe")
        expect(app.get_by_text("1 degrees")).to_be_visible()
        app.get_by_role("button", name="Refresh").click()
        expect(app.get_by_text("11 degrees")).to_be_visible()


def test_a_server_for_other_machines_shows_apps_from_an_origin_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "agent.py").write_text("def agent(turn): return 'Hello!'")
    (tmp_path / "tokens.txt").write_text(f"ada:{'0' * 64}\n")
    with serve_process(tmp_path, "agent.py:agent", "--auth", "tokens:tokens.txt") as served:
        assert "apps of MCP servers" not in served.written
        assert "frame-src" not in httpx2.get(served.url).headers["content-security-policy"]
    options = ["--auth", "tokens:tokens.txt", "--apps-origin", "https://apps.example"]
    with serve_process(tmp_path, "agent.py:agent", *options) as served:
        assert "The page shows the apps of MCP servers from https://apps.example\n" in served.written
        host = {"host": "apps.example"}
        assert httpx2.get(f"{served.url}/mcp-sandbox.html", headers=host).status_code == 200
        assert httpx2.get(served.url, headers=host).status_code == 404


def test_the_remote_host_of_assistant_ui_uses_the_route_as_it_is(with_apps: Served) -> None:
    install(ASSISTANT_UI)
    question = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "show map"}]}
    httpx2.post(with_apps.url("chat"), json={"id": "aui", "messages": [question]}, timeout=PATIENCE).raise_for_status()
    of_server = {"serverId": "weather"}
    requests = [
        ("loadResource", {"uri": "ui://weather/map", **of_server}),
        ("callTool", {"name": "refresh", "arguments": {"city": "Oslo"}, **of_server}),
        ("readResource", {"uri": "ui://weather/map", **of_server}),
        ("listResources", of_server),
        ("callTool", {"name": "forget", **of_server}),
        ("loadResource", {"uri": "file:///etc/passwd", **of_server}),
    ]
    url = f"{with_apps.url('chat')}/aui/apps"
    script = [str(NODE / "node"), str(ASSISTANT_UI / "host.mjs"), url, json.dumps(requests)]
    printed = subprocess.run(script, check=True, capture_output=True, text=True, timeout=PATIENCE)
    app, refreshed, content, listed, *refused = json.loads(printed.stdout)
    assert (app["uri"], app["mimeType"], "<h1>Weather</h1>" in app["html"]) == (
        "ui://weather/map",
        app_server.MIME_TYPE,
        True,
    )
    assert refreshed["structuredContent"] == {"celsius": 14}
    assert content["contents"][0]["text"] == app["html"]
    assert "ui://weather/map" in {resource["uri"] for resource in listed["resources"]}
    assert [sentence.partition(": ")[2] for sentence in refused] == [
        "The app may not call the tool 'forget'.",
        "An app reads only resources that begin with ui://, not 'file:///etc/passwd'.",
    ]


SANDBOX_OF_ASSISTANT_UI: Final = "https://*.scf.auiusercontent.com/**"
"""Where `safe-content-frame` shows what it is given: a page of the makers of assistant-ui, which no package ships."""


def test_assistant_ui_shows_an_app_that_calls_its_server(context: BrowserContext, tmp_path: Path) -> None:
    shim = (app_server.APPS / "assistant-ui-shim.html").read_text()
    context.route(SANDBOX_OF_ASSISTANT_UI, lambda route: route.fulfill(body=shim, content_type="text/html"))
    servers = {"weather": lambda _identity: Client(app_server.server)}
    files = front_end(ASSISTANT_UI, tmp_path / "built")
    front = FrontEnd(files, agent, chats=MemoryChats(), authorize=everyone_is_ada, mcp_servers=servers)
    with serving({"": front}) as served:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{served.port}/?chat=aui")
        page.get_by_label("Message").fill("show map")
        page.get_by_label("Message").press("Enter")
        place = page.locator("[data-mcp-app-resource='ui://weather/map']")
        app = place.frame_locator("iframe")
        expect(app.get_by_text("4 degrees")).to_be_visible()
        expect(place).to_have_css("height", INITIALIZED)
        app.get_by_role("button", name="Refresh").click()
        expect(app.get_by_text("14 degrees")).to_be_visible()
        assert app_server.calls == ["refresh"]
        served.run(front.chats.shut_down()).result(PATIENCE)


def test_a_page_without_a_sandbox_shows_the_call_alone(open_page: OpenPage) -> None:
    servers = {"weather": lambda _identity: Client(app_server.server)}
    with page_served(agent, chats=MemoryChats(), authorize=everyone_is_ada, mcp_servers=servers) as served:
        page = open_page(chat(served))
        ask(page, "show map")
        expect(page.get_by_text("Mild.")).to_be_visible()
        expect(page.get_by_role("button", name="Forecast Done City: Oslo")).to_be_visible()
        assert page.locator("iframe").count() == 0
