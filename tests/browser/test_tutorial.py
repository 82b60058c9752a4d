"""The tutorial, followed to the letter: its files are written, its tests run, its page is built, served and used."""

import asyncio
import functools
import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import BrowserContext, Page

from tests.browser.building import EXAMPLES, build, install
from tests.browser.chatting import expect
from tests.browser.test_front_ends import FrontEnd
from tests.conformance.served import PATIENCE, serving
from usechat.chats import SqlChats
from usechat.targets import load_object
from usechat.testing import ModelAnswer, ModelCall, ScriptedModel

TUTORIAL = EXAMPLES.parent / "docs" / "tutorial.md"
FILES = re.compile(r"^`([\w./]+)`[^`\n]*(?:`[^`\n]*`[^`\n]*)*:\n\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
LOOKS_UP = ModelAnswer(calls=[ModelCall("find_order", {"number": "1002"})])
REFUNDS = ModelAnswer(calls=[ModelCall("refund", {"number": "1001"})])


class Tutorial:
    """The chapters, followed in a directory; the npm packages are those of the example."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._chapters = re.split(r"^## (?=\d)", TUTORIAL.read_text(encoding="utf-8"), flags=re.MULTILINE)
        install(EXAMPLES / "react-minimal")
        (directory / "node_modules").symlink_to(EXAMPLES / "react-minimal" / "node_modules")

    def follow(self, *chapters: int) -> list[str]:
        """Write the files that chapters show; return their names."""
        files = [file for chapter in chapters for file in FILES.findall(self._chapters[chapter])]
        for name, content in files:
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        return [name for name, _ in files]

    def build(self) -> Path:
        return build(self.directory, self.directory / "dist")

    def make_agent(self) -> Any:
        return load_object(f"{self.directory / 'shop.py'}:make_agent")


@pytest.fixture
def tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tutorial]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    for module in ("shop", "app"):
        monkeypatch.delitem(sys.modules, module, raising=False)  # of an earlier test
    yield Tutorial(tmp_path)
    for module in ("shop", "app"):
        sys.modules.pop(module, None)


@pytest.fixture
def model(
    scripted_model: Callable[..., ScriptedModel], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Sequence[Any]], None]:
    def follow(script: Sequence[Any]) -> None:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", scripted_model(script).anthropic_url)

    return follow


def ask(page: Page, question: str) -> None:
    page.get_by_label("Message").fill(question)
    page.get_by_role("button", name="Send").click()


def test_the_chapters_have_these_files(tutorial: Tutorial) -> None:
    page = ["package.json", "vite.config.js", "index.html", *(f"src/{name}" for name in ("main.jsx", "chat.jsx"))]
    assert [tutorial.follow(chapter) for chapter in range(1, 7)] == [
        ["shop.py"],
        ["shop.py"],
        ["test_shop.py"],
        [*page, "src/part.jsx", "src/style.css"],
        ["src/main.jsx"],
        ["app.py", "Dockerfile"],
    ]


def test_its_tests_pass_and_find_an_approval_that_is_missing(tutorial: Tutorial) -> None:
    def run_tests() -> int:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        return subprocess.run(command, cwd=tutorial.directory, capture_output=True, check=False).returncode

    tutorial.follow(1, 2, 3)
    assert run_tests() == 0
    shop = tutorial.directory / "shop.py"
    shop.write_text(shop.read_text(encoding="utf-8").replace("requires_approval=True", "requires_approval=False"))
    assert run_tests() == 1


def test_sc_008_orders_are_looked_up_and_refunded_on_the_page(
    context: BrowserContext, tutorial: Tutorial, model: Callable[[Sequence[Any]], None]
) -> None:
    tutorial.follow(1, 2, 4)
    model([LOOKS_UP, "It is on its way.", REFUNDS, "The kettle is refunded."])
    app = FrontEnd(tutorial.build(), tutorial.make_agent())
    with serving({"": app}) as served:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{served.port}/")
        messages = page.get_by_label("assistant")
        ask(page, "Where is order 1002?")
        expect(messages).to_contain_text(["Look up order 1002 ✓"])
        expect(messages).to_contain_text(["It is on its way."])
        ask(page, "Please refund order 1001.")
        expect(messages.last).to_contain_text("Refund order 1001 …")
        page.get_by_role("button", name="Approve").click()
        expect(messages.last).to_contain_text("Refund order 1001 ✓")
        expect(messages.last).to_contain_text("The kettle is refunded.")
        expect(messages).to_have_count(2)
        served.run(app.chats.shut_down()).result(PATIENCE)


def test_a_reload_in_the_middle_of_an_answer_resumes_it_and_shows_what_was_said_before(
    context: BrowserContext,
    tutorial: Tutorial,
    model: Callable[[Sequence[Any]], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    tutorial.follow(1, 2, 4, 5)
    model(["Hello, how can I help?", LOOKS_UP, "It is on its way."])
    make_agent, gate = tutorial.make_agent(), threading.Event()
    shop = sys.modules["shop"]

    @functools.wraps(shop.find_order)
    def find_order(number: str) -> Any:
        assert gate.wait(PATIENCE)
        return shop.ORDERS[number]

    monkeypatch.setattr(shop, "find_order", find_order)
    directory, page = tutorial.build(), context.new_page()
    messages = page.get_by_label("assistant")
    answers = ["Hello, how can I help?", "It is on its way."]
    with serving({"": (app := FrontEnd(directory, make_agent, chats=SqlChats(str(tmp_path / "chats.db"))))}) as served:
        page.goto(f"http://127.0.0.1:{served.port}/")
        query = page.url.partition("?")[2]
        ask(page, "Hi!")
        expect(messages).to_contain_text(answers[:1])
        ask(page, "Where is order 1002?")
        expect(messages.last).to_contain_text("Look up order 1002 …")
        with page.expect_response(lambda response: response.url.endswith("/stream")) as resumed:
            page.reload()
        assert resumed.value.status == 200
        expect(messages.last).to_contain_text("Look up order 1002 …")
        gate.set()
        expect(messages).to_contain_text(answers)
        page.reload()
        expect(messages).to_contain_text(answers)
        expect(page.get_by_label("user")).to_have_count(2)
        served.run(app.chats.shut_down()).result(PATIENCE)
    with serving({"": (app := FrontEnd(directory, make_agent, chats=SqlChats(str(tmp_path / "chats.db"))))}) as served:
        page.goto(f"http://127.0.0.1:{served.port}/?{query}")
        expect(messages).to_contain_text(answers)
        served.run(app.chats.shut_down()).result(PATIENCE)


def test_the_app_of_the_image_serves_the_page_and_keeps_chats_apart(
    context: BrowserContext,
    tutorial: Tutorial,
    model: Callable[[Sequence[Any]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tutorial.follow(1, 2, 4, 5, 6)
    model(["Hello!"])
    tutorial.build()
    monkeypatch.chdir(tutorial.directory)
    monkeypatch.syspath_prepend(str(tutorial.directory))
    app = load_object(f"{tutorial.directory / 'app.py'}:app")
    with serving({"": app}) as served:
        address = f"http://127.0.0.1:{served.port}/"
        page = context.new_page()
        page.set_extra_http_headers({"x-forwarded-user": "ada"})
        page.goto(address)
        ask(page, "Hi!")
        expect(page.get_by_label("assistant")).to_contain_text("Hello!")
        page.reload()
        expect(page.get_by_label("assistant")).to_contain_text("Hello!")
        stranger = context.new_page()
        stranger.goto(address)
        ask(stranger, "Hi!")
        expect(stranger.get_by_role("alert")).to_contain_text("Please sign in.")
        served.run(sys.modules["app"].chats.shut_down()).result(PATIENCE)


def test_the_app_of_the_image_believes_only_the_proxy_and_a_missing_file_is_a_404(
    tutorial: Tutorial, model: Callable[[Sequence[Any]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    tutorial.follow(1, 2, 6)
    model([])
    (tutorial.directory / "dist").mkdir()
    (tutorial.directory / "dist" / "index.html").write_text("the page")
    monkeypatch.chdir(tutorial.directory)
    monkeypatch.syspath_prepend(str(tutorial.directory))
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "172.17.0.1")
    app = load_object(f"{tutorial.directory / 'app.py'}:app")

    async def statuses(path: str) -> list[int]:
        codes = []
        for address in ("172.17.0.1", "203.0.113.5"):
            transport = httpx2.ASGITransport(app=app, client=(address, 1))
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
                codes.append((await client.get(path, headers={"x-forwarded-user": "ada"})).status_code)
        return codes

    async def all_statuses() -> list[list[int]]:
        codes = [await statuses(path) for path in ("/api/chats", "/", "/favicon.ico")]
        await sys.modules["app"].chats.shut_down()
        return codes

    with ThreadPoolExecutor(1) as thread:  # Playwright's own loop runs in this one
        codes = thread.submit(lambda: asyncio.run(all_statuses())).result(PATIENCE)
    assert codes == [[200, 401], [200, 200], [404, 404]]
    assert "--no-proxy-headers" in (tutorial.directory / "Dockerfile").read_text(encoding="utf-8")


def test_the_image_gets_files_that_are_there(tutorial: Tutorial) -> None:
    names = {*tutorial.follow(1, 2, 3, 4, 5, 6), "src"}
    lines = (tutorial.directory / "Dockerfile").read_text(encoding="utf-8").splitlines()
    copied = [
        name for line in lines if line.startswith("COPY ") and "--from" not in line for name in line.split()[1:-1]
    ]
    assert copied == ["package.json", "vite.config.js", "index.html", "src", "shop.py", "app.py"]
    assert set(copied) <= names
    assert json.loads(lines[-1].removeprefix("CMD "))[:2] == ["uvicorn", "app:app"]


def test_the_example_has_the_packages_of_the_tutorial() -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    pins = dict(re.findall(r'"(@?[\w/-]+)": "(\d+\.[\d.]+)"', text))
    example = (EXAMPLES / "react-minimal" / "package.json").read_text(encoding="utf-8")
    assert pins == {name: pin for name, pin in re.findall(r'"(@?[\w/-]+)": "(\d+\.[\d.]+)"', example) if name in pins}
    assert len(pins) == 7
