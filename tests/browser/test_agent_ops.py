"""The client of the Agent Ops RFC in today's API, and our own page, against the route and a real session."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import BrowserContext, Page
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from examples.agent_ops_demo import gateway_to, make_token
from examples.agent_ops_session.server import Sessions
from tests.agent_ops.directories import sqlite
from tests.agent_ops.gateways import upstream
from tests.browser.building import EXAMPLES, front_end
from tests.browser.chatting import ask, expect, sign_in, wait_until_idle
from tests.browser.conftest import OpenPage
from tests.built_once import built_once
from tests.conformance.served import serving
from usechat.agent_ops.access.directory import SessionDirectory


class Demo(NamedTuple):
    """Where the gateway is, a token for it, and the sessions behind it."""

    url: str
    token: str
    sessions: Sessions


class Both:
    """The example's files, the gateway's routes, and its page below `/page`."""

    def __init__(self, gateway: Any, files: Any) -> None:
        self._gateway = gateway
        self._files = Starlette(routes=[Mount("/", StaticFiles(directory=files, html=True))])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await (self._gateway if "/api/" in scope["path"] else self._files)(scope, receive, send)


async def token_in(url: str) -> str:
    directory = SessionDirectory(url)
    try:
        return await make_token(directory)
    finally:
        await directory.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    files = built_once(
        tmp_path_factory, "agent-ops-react", lambda output: front_end(EXAMPLES / "agent-ops-react", output)
    )
    url = sqlite(tmp_path_factory.mktemp("sessions"))
    with upstream() as behind:
        token = behind.run(token_in(url))
        directory = SessionDirectory(url)
        sessions = behind.start()
        gateway = gateway_to(sessions.url, directory)
        with serving({"page": gateway, "": Both(gateway, files)}) as served:
            yield Demo(f"http://127.0.0.1:{served.port}", token, sessions)
            served.run(directory.close()).result(10)


@pytest.fixture
def panel(context: BrowserContext, demo: Demo) -> Page:
    page = context.new_page()
    page.goto(f"{demo.url}/?session=demo&token={demo.token}")
    return page


def send(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()


def test_the_panel_shows_a_turn_with_a_tool(panel: Page) -> None:
    send(panel, "tool")
    answer = panel.locator("[data-role=assistant]")
    expect(answer.locator("[data-tool=output-available]")).to_contain_text("read_file")
    expect(panel.get_by_role("button", name="Send")).to_be_visible()
    expect(panel.get_by_role("alert")).to_be_hidden()


def test_the_panel_shows_a_failed_tool_and_a_failed_turn(panel: Page) -> None:
    send(panel, "fail tool")
    expect(panel.locator("[data-tool=output-error]")).to_be_visible()
    expect(panel.get_by_role("button", name="Send")).to_be_visible()
    send(panel, "fail")
    expect(panel.get_by_role("alert")).to_be_visible()


def test_the_panel_stops_the_agent(panel: Page) -> None:
    send(panel, "slow")
    expect(panel.locator("[data-role=assistant] span")).to_be_visible()
    panel.get_by_label("Message").fill("a draft")  # a click on Stop that became a click on Send would send it
    panel.get_by_role("button", name="Stop").click()
    expect(panel.get_by_role("button", name="Send")).to_be_visible()
    expect(panel.get_by_label("Message")).to_have_value("a draft")
    send(panel, "hello")
    expect(panel.locator("[data-role=assistant]").last).to_contain_text("You said: hello")
    expect(panel.locator("[data-role=user]")).to_have_text(["slow", "hello"])


def test_the_panel_sends_no_empty_message(panel: Page) -> None:
    send(panel, " ")
    send(panel, "hello")
    expect(panel.locator("[data-role=assistant]")).to_contain_text("You said: hello")
    expect(panel.locator("[data-role=user]")).to_have_text(["hello"])


def test_a_stranger_is_told_so(context: BrowserContext, demo: Demo) -> None:
    page = context.new_page()
    page.goto(f"{demo.url}/?session=demo&token=wrong")
    send(page, "hello")
    expect(page.get_by_role("alert")).to_be_visible()


def test_our_page_asks_for_a_token_and_shows_questions_as_approvals(open_page: OpenPage, demo: Demo) -> None:
    page = open_page(f"{demo.url}/page/?session_id=demo", shows="form")
    sign_in(page, demo.token)
    ask(page, "tool")
    expect(page.get_by_role("button", name="Read file Done")).to_be_visible()
    wait_until_idle(page)
    ask(page, "ask")
    card = page.get_by_role("group", name="Allow: Deploy to production?")
    expect(card.get_by_role("button")).to_have_text(["Decline", "yes", "no"])
    card.get_by_role("button", name="yes", exact=True).click()
    wait_until_idle(page)
    expect(page.get_by_text("You answered: yes").last).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()


@pytest.mark.parametrize(
    ("button", "text", "action"),
    [
        ("Allow", "Approved.", {}),
        ("Allow for Session", "Approved for this session.", {"actionId": "allow_session"}),
        ("Always Allow", "Approved for good.", {"actionId": "allow_always"}),
        ("Cancel", "Denied: none", None),
    ],
)
def test_our_page_offers_the_actions_of_the_session_and_the_plain_yes_is_once(
    open_page: OpenPage, demo: Demo, button: str, text: str, action: dict[str, str] | None
) -> None:
    page = open_page(f"{demo.url}/page/?session_id=demo", shows="form")
    sign_in(page, demo.token)
    ask(page, "approve")
    card = page.get_by_role("group", name="Allow: Action requires approval")
    for shown in ("Read a file of the workspace.", "Read file", "README.md", "This needs your approval."):
        expect(card.get_by_text(shown, exact=True)).to_be_visible()
    expect(card.get_by_role("button")).to_have_text(["Cancel", "Allow for Session", "Always Allow", "Allow"])
    card.get_by_role("button", name=button, exact=True).click()
    wait_until_idle(page)
    expect(page.get_by_text(text).last).to_be_visible()
    command = demo.sessions["demo"].commands[-1][1]
    assert {key: command[key] for key in ("type", "actionId") if key in command} == (
        {"type": "deny-action"} if action is None else {"type": "approve-action", **action}
    )
