"""The tutorial, followed to the letter: its files are written, built, served and used."""

import re
import sys
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.browser.building import EXAMPLES, build, install
from tests.browser.chatting import expect
from tests.browser.test_front_ends import FrontEnd
from tests.conformance.served import PATIENCE, serving
from usechat.chats import SqlChats
from usechat.cli.targets import load_object

TUTORIAL = EXAMPLES.parent / "docs" / "tutorial.md"


def write_files(directory: Path, text: str) -> list[str]:
    """Write each file that some chapters show: its name, in code, ends the paragraph before the block."""
    files = re.findall(
        r"^`([\w./]+)`[^`\n]*(?:`[^`\n]*`[^`\n]*)*:\n\n```\w+\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    for name, content in files:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return [name for name, _ in files]


@pytest.fixture
def chapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The chapters up to the page, and that of stored chats. The packages are those of the example."""
    monkeypatch.delitem(sys.modules, "agent", raising=False)  # of an earlier test
    example = EXAMPLES / "react-minimal"
    install(example)
    (tmp_path / "node_modules").symlink_to(example / "node_modules")
    first, second = TUTORIAL.read_text(encoding="utf-8").split("## 5. ")
    return [first, second]


def ask(page: Page, question: str) -> None:
    page.get_by_label("Message").fill(question)
    page.get_by_role("button", name="Send").click()


def test_sc_008_a_chat_page_in_30_minutes(context: BrowserContext, tmp_path: Path, chapters: list[str]) -> None:
    names = write_files(tmp_path, chapters[0])
    assert names == [
        "agent.py",
        "package.json",
        "vite.config.js",
        "index.html",
        "src/main.jsx",
        "src/chat.jsx",
        "src/part.jsx",
    ]
    app = FrontEnd(build(tmp_path, tmp_path / "built"), load_object(f"{tmp_path / 'agent.py'}:agent"))
    with serving({"": app}) as served:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{served.port}/")
        for question, outcome, answer in [
            ("How many people live in Lisbon?", '{"people":567131}', "In Lisbon live 567,131 people."),
            ("And in Atlantis?", "No city is called Atlantis.", "I do not know that city."),
        ]:
            ask(page, question)
            told = page.get_by_label("assistant").last
            expect(told).to_contain_text(outcome)
            expect(told).to_contain_text(answer)
        page.get_by_label("assistant").first.get_by_text("Thoughts").click()
        expect(page.get_by_text("They ask about Lisbon. I look it up.")).to_be_visible()
        served.run(app.chats.shut_down()).result(PATIENCE)


def test_a_reload_shows_everything_once_the_chats_are_stored(
    context: BrowserContext, tmp_path: Path, chapters: list[str]
) -> None:
    write_files(tmp_path, chapters[0])
    assert write_files(tmp_path, chapters[1]) == ["src/main.jsx"]
    built, agent = build(tmp_path, tmp_path / "built"), load_object(f"{tmp_path / 'agent.py'}:agent")
    page = context.new_page()
    said = page.get_by_label("assistant")
    answers = ["In Lisbon live 567,131 people.", "In Paris live 2,048,472 people."]
    with serving({"": (app := FrontEnd(built, agent, chats=SqlChats(str(tmp_path / "chats.db"))))}) as served:
        page.goto(f"http://127.0.0.1:{served.port}/")
        query = page.url.partition("?")[2]
        ask(page, "How many people live in Lisbon?")
        expect(said).to_contain_text([answers[0]])
        ask(page, "And in Paris?")
        expect(said.last).to_contain_text("In Paris")
        page.reload()
        expect(said).to_contain_text(answers)
        page.reload()
        expect(said).to_contain_text(answers)
        expect(page.get_by_label("user")).to_have_count(2)
        served.run(app.chats.shut_down()).result(PATIENCE)
    with serving({"": (app := FrontEnd(built, agent, chats=SqlChats(str(tmp_path / "chats.db"))))}) as served:
        page.goto(f"http://127.0.0.1:{served.port}/?{query}")
        expect(said).to_contain_text(answers)
        served.run(app.chats.shut_down()).result(PATIENCE)


def test_the_example_has_the_packages_of_the_tutorial() -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    pins = dict(re.findall(r'"(@?[\w/-]+)": "(\d[\d.]+)"', text))
    example = (EXAMPLES / "react-minimal" / "package.json").read_text(encoding="utf-8")
    assert pins == {name: pin for name, pin in re.findall(r'"(@?[\w/-]+)": "(\d[\d.]+)"', example) if name in pins}
    assert len(pins) == 7
