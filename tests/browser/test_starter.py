"""The projects of `usechat new` as people use them: built, served by `usechat serve`, and used in a real Chromium."""

import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import BrowserContext, Page

from tests.browser.building import EXAMPLES, HERE, install
from tests.browser.chatting import expect
from tests.browser.chromium import NODE, npm
from tests.redis_server import free_port
from tests.server.process import PATIENCE, eventually, serve_process
from usechat.server import new_api_token
from usechat.starter import project
from usechat.testing import ModelAnswer, ModelCall, ScriptedModel

BUILDS = HERE.parents[1] / "build" / "starter"
PACKAGES = {"vite": EXAMPLES / "agent-ops-react", "next": HERE / "starter-next"}
"""Where the npm packages of a page are installed for the tests."""
SCRIPT: list[ModelAnswer | str] = [
    ModelAnswer(calls=[ModelCall("find_order", {"number": "1002"})]),
    "It is on its way.",
    ModelAnswer(calls=[ModelCall("refund", {"number": "1001"})]),
    "All right.",
]
OWN_PAGES: list[tuple[project.Framework, project.Page]] = [
    ("none", "vite"),
    ("langgraph", "next"),
    ("openai-agents", "vite"),
    ("pydantic-ai", "next"),
]
"""Each framework has one of the pages, which are built once for all frameworks."""
MakePage = Callable[[project.Page], Path]


def write_project(directory: Path, framework: project.Framework, page: project.Page) -> Path:
    for path, text in project.Project("my-chat", framework, page, is_vendored=True).files().items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8")
    return directory


def pins(package: Path) -> dict[str, str]:
    content = json.loads(package.read_text(encoding="utf-8"))
    return {**content["dependencies"], **content["devDependencies"]}


@pytest.fixture(scope="module")
def make_page() -> Iterator[MakePage]:
    """Build the page of a project, once for all frameworks; return the directory of the page.

    The packages are linked, not copied. They must be below the page: Next.js follows no link out of its directory.
    """
    made: dict[project.Page, Path] = {}
    root = BUILDS / uuid.uuid4().hex

    def make(page: project.Page) -> Path:
        if page not in made:
            made[page] = web = write_project(root / page, "none", page) / "web"
            assert pins(web / "package.json") == pins(PACKAGES[page] / "package.json")
            install(PACKAGES[page])
            shutil.copytree(PACKAGES[page] / "node_modules", web / "node_modules", symlinks=True, copy_function=os.link)
            npm("run", "build", directory=web)
        return made[page]

    yield make
    shutil.rmtree(root, ignore_errors=True)


@contextmanager
def next_server(web: Path, agent: str, log: Path) -> Iterator[str]:
    """Run the server of a built Next.js page, with the files that its container has; yield its address."""
    shutil.copytree(web / ".next" / "static", web / ".next" / "standalone" / ".next" / "static", dirs_exist_ok=True)
    port = free_port()
    environment = {**os.environ, "PORT": str(port), "HOSTNAME": "127.0.0.1", "AGENT_URL": agent}
    with log.open("w") as output:
        command = [NODE / "node", web / ".next" / "standalone" / "server.js"]
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        address = f"http://127.0.0.1:{port}"
        eventually(lambda: process.poll() is not None or answers(address), "Next.js answers")
        assert process.poll() is None, log.read_text()
        yield address
    finally:
        process.terminate()
        process.wait(PATIENCE)


def answers(address: str) -> bool:
    try:
        return httpx2.get(address, timeout=5).status_code == 200
    except httpx2.TransportError:
        return False


class Desk:
    """A project that runs, with a person who may sign in, and a model that follows a script."""

    def __init__(self, directory: Path, make_page: MakePage) -> None:
        self._directory = directory
        self._make_page = make_page
        self.token, line = new_api_token("ada")
        (directory / "tokens.txt").write_text(line, encoding="utf-8")

    @contextmanager
    def served(
        self, framework: project.Framework, page: project.Page, script: list[ModelAnswer | str]
    ) -> Iterator[str]:
        """Serve the project; yield the address of its page."""
        directory = write_project(self._directory, framework, page)
        web = self._make_page(page) if page != "none" else None
        if page == "vite" and web is not None:
            shutil.copytree(web / "dist", directory / "web" / "dist")
        with ScriptedModel(script) as model:
            environment = {
                "TOKENS": "tokens.txt",
                "OPENAI_API_KEY": "none",
                "OPENAI_BASE_URL": model.openai_url,
                "OPENAI_AGENTS_DISABLE_TRACING": "1",
            }
            with serve_process(directory, "app:app", is_app=True, environment=environment) as agent:
                if page == "next" and web is not None:
                    with next_server(web, agent.url, directory / "next.log") as address:
                        yield address
                else:
                    yield agent.url


@pytest.fixture
def desk(tmp_path: Path, make_page: MakePage) -> Desk:
    return Desk(tmp_path, make_page)


def sign_in(page: Page, token: str) -> None:
    page.get_by_label("Your token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def ask(page: Page, text: str) -> None:
    page.get_by_label("Message").fill(text)
    page.get_by_role("button", name="Send").click()


@pytest.mark.parametrize(("framework", "kind"), OWN_PAGES)
def test_a_person_signs_in_and_gets_a_refund_on_a_page_of_ones_own(
    context: BrowserContext, desk: Desk, framework: project.Framework, kind: project.Page
) -> None:
    with desk.served(framework, kind, SCRIPT) as address:
        page = context.new_page()
        page.goto(address)
        sign_in(page, "usechat_forged")
        expect(page.locator("main [role=alert]")).to_contain_text("The token is not valid.")
        sign_in(page, desk.token)
        answers = page.get_by_label("assistant")
        ask(page, "Where is order 1002?")
        expect(answers.last).to_contain_text("Look up order 1002: done")
        expect(answers.last).to_contain_text("is on its way.")
        expect(page.get_by_label("Chats").get_by_role("button", name="Where is order 1002?")).to_be_visible()
        ask(page, "Please refund order 1001.")
        expect(answers.last).to_contain_text("Refund order 1001: may it?")
        page.reload()
        expect(answers).to_have_count(2)
        page.get_by_role("button", name="Approve").click()
        expect(answers.last).to_contain_text("Refund order 1001: done")
        expect(answers.last).to_contain_text("All right.")
        page.get_by_role("button", name="New chat").click()
        expect(answers).to_have_count(0)
        page.get_by_role("button", name="Where is order 1002?").click()
        expect(answers).to_have_count(2)
        expect(page.locator("main [role=alert]")).to_have_count(0)


@pytest.mark.parametrize("framework", project.FRAMEWORKS)
def test_a_person_signs_in_and_gets_a_refund_on_the_page_of_usechat(
    context: BrowserContext, desk: Desk, framework: project.Framework
) -> None:
    with desk.served(framework, "none", SCRIPT) as address:
        page = context.new_page()
        page.goto(address)
        page.get_by_label("Token").fill(desk.token)
        page.keyboard.press("Enter")
        page.fill("#prompt", "Where is order 1002?")
        page.press("#prompt", "Enter")
        expect(page.get_by_text("is on its way.")).to_be_visible()
        page.fill("#prompt", "Please refund order 1001.")
        page.press("#prompt", "Enter")
        page.get_by_role("button", name="Approve", exact=True).click()
        expect(page.get_by_text("All right.")).to_be_visible()


@pytest.mark.parametrize("kind", ["vite", "next"])
def test_an_answer_goes_on_after_a_reload_and_ends_with_a_stop(
    context: BrowserContext, desk: Desk, kind: project.Page
) -> None:
    words = ModelAnswer(text=[f"word{number} " for number in range(200)], pause=0.2)
    with desk.served("pydantic-ai", kind, [words]) as address:
        page = context.new_page()
        page.goto(address)
        sign_in(page, desk.token)
        ask(page, "Tell me a long story.")
        answer = page.get_by_label("assistant")
        expect(answer).to_contain_text("word3 ")
        with page.expect_response(lambda response: response.url.endswith("/stream")) as resumed:
            page.reload()
        assert resumed.value.status == 200
        expect(answer).to_contain_text("word0 word1 word2 word3 word4 ")
        with page.expect_response("**/stop") as stopped:
            page.get_by_role("button", name="Stop").click()
        assert stopped.value.status == 204
        expect(page.get_by_role("button", name="Send")).to_be_visible()
        assert "word199" not in answer.inner_text()
