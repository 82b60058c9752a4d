"""The tutorial, followed to the letter: its files are written, built, served and used."""

import re
from pathlib import Path

from playwright.sync_api import BrowserContext

from tests.browser.building import EXAMPLES, build, install
from tests.browser.chatting import expect
from tests.browser.test_front_ends import FrontEnd
from tests.conformance.served import PATIENCE, serving
from usechat.cli.targets import load_object

TUTORIAL = EXAMPLES.parent / "docs" / "tutorial.md"


def write_files(directory: Path) -> list[str]:
    """Write each file that the tutorial shows: its name, in code, ends the paragraph before the block."""
    text = TUTORIAL.read_text(encoding="utf-8")
    files = re.findall(
        r"^`([\w./]+)`[^`\n]*(?:`[^`\n]*`[^`\n]*)*:\n\n```\w+\n(.*?)^```", text, re.DOTALL | re.MULTILINE
    )
    for name, content in files:
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return [name for name, _ in files]


def test_sc_008_a_chat_page_in_30_minutes(context: BrowserContext, tmp_path: Path) -> None:
    names = write_files(tmp_path)
    assert names == [
        "agent.py",
        "package.json",
        "vite.config.js",
        "index.html",
        "src/main.jsx",
        "src/chat.jsx",
        "src/part.jsx",
    ]
    # The same packages as those of the example, which are installed already.
    example = EXAMPLES / "react-minimal"
    install(example)
    (tmp_path / "node_modules").symlink_to(example / "node_modules")
    app = FrontEnd(build(tmp_path, tmp_path / "built"), load_object(f"{tmp_path / 'agent.py'}:agent"))
    with serving({"": app}) as served:
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{served.port}/")
        for question, outcome, answer in [
            ("How many people live in Lisbon?", '{"people":567131}', "In Lisbon live 567,131 people."),
            ("And in Atlantis?", "No city is called Atlantis.", "I do not know that city."),
        ]:
            page.get_by_label("Message").fill(question)
            page.get_by_role("button", name="Send").click()
            told = page.get_by_label("assistant").last
            expect(told).to_contain_text(outcome)
            expect(told).to_contain_text(answer)
        page.get_by_label("assistant").first.get_by_text("Thoughts").click()
        expect(page.get_by_text("They ask about Lisbon. I look it up.")).to_be_visible()
        served.run(app.chats.shut_down()).result(PATIENCE)


def test_the_example_has_the_packages_of_the_tutorial() -> None:
    text = TUTORIAL.read_text(encoding="utf-8")
    pins = dict(re.findall(r'"(@?[\w/-]+)": "(\d[\d.]+)"', text))
    example = (EXAMPLES / "react-minimal" / "package.json").read_text(encoding="utf-8")
    assert pins == {name: pin for name, pin in re.findall(r'"(@?[\w/-]+)": "(\d[\d.]+)"', example) if name in pins}
    assert len(pins) == 7
