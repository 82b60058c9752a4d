"""kill -9 in the middle of an answer, and a process that goes on: real clients show in the end what is stored."""

import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import pytest

from tests.chats.surviving import SurvivingServer
from tests.conformance.http_client import NEWEST, WITH_APPROVALS, Browser, Page, text_of
from usechat.chats.recovery import MAY_CALL_AGAIN, NOT_ALLOWED
from usechat.runs.settings import AfterCrash
from usechat.server import Settings

WHOLE: Final = "First. Second. Third."
STATES: Final = {"text 2": ["output-available", "output-available"], "tool": ["output-available", "output-error"]}
"""How the calls stand in the end, by the place where the process dies."""
NOTES: Final = {
    "text 2": ["model 1", "weather", "model 2", "model 2", "book", "model 3"],
    "tool": ["model 1", "weather", "model 2", "book", "model 3"],
}
PAGES: Final = [("fresh", release) for release in NEWEST] + [("same", release) for release in WITH_APPROVALS]
"""AI SDK 5 doubles every part when one and the same chat resumes; a page that is loaded anew does not."""


class Start(Protocol):
    def __call__(self, *, waits_at: str, after_crash: AfterCrash | None = None) -> SurvivingServer: ...


@pytest.fixture
def start(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Start a process; all use one database and one address."""
    release: str = request.getfixturevalue("release")
    servers: list[SurvivingServer] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def start_one(*, waits_at: str, after_crash: AfterCrash | None = None) -> SurvivingServer:
            database, settings = str(tmp_path / "chats.db"), Settings(sdk=release, after_crash=after_crash)
            servers.append(
                SurvivingServer(
                    database, tmp_path / "notes", "pydantic", waits_at=waits_at, settings=settings, listener=listener
                )
            )
            return servers[-1]

        yield start_one
        for server in servers:
            server.kill()


def killed_under(browser: Browser, server: SurvivingServer, release: str) -> Page:
    """Return a page that asked, and whose answer was cut off by the death of the process."""
    page = browser.open(release, f"{server.url}/api/chat", chat_id="c1")
    page.send("Go")
    page.until(lambda view: any(part["type"] == "data-reached" for part in view["data"]))
    server.kill()
    assert page.settled()["status"] == "error"
    return page


def loaded_anew(browser: Browser, server: SurvivingServer, release: str, *, automatic: Sequence[str] = ()) -> Page:
    """Return a page as it is after a reload."""
    messages = server.load()["messages"]
    return browser.open(release, f"{server.url}/api/chat", chat_id="c1", messages=messages, automatic=automatic)


@pytest.mark.parametrize("place", STATES)
@pytest.mark.parametrize(("kind", "release"), PAGES)
def test_a_page_shows_each_part_once_after_its_server_was_killed(
    browser: Browser, start: Start, kind: Literal["fresh", "same"], release: str, place: str
) -> None:
    page = killed_under(browser, start(waits_at=place), release)
    second = start(waits_at="text 3")
    if kind == "fresh":
        page = loaded_anew(browser, second, release)
    page.resume()
    page.until(lambda view: text_of(view) == WHOLE)
    second.open_gate()
    answer: Any = page.answer()
    assert len(page.look()["messages"]) == 2
    assert [part["state"] for part in answer["parts"] if part["type"].startswith("tool-")] == STATES[place]
    outcome, stored = second.ended()
    assert (outcome, answer["id"], answer["parts"]) == ("finished", stored["id"], stored["parts"])
    assert second.notes == NOTES[place], "each tool has run once"


@pytest.mark.parametrize("release", NEWEST)
def test_a_chat_goes_on_after_its_server_was_killed(browser: Browser, start: Start, release: str) -> None:
    killed_under(browser, start(waits_at="tool"), release)
    second = start(waits_at="")
    second.ended()
    page = loaded_anew(browser, second, release)
    assert text_of(page.look()) == WHOLE
    page.send("Next")
    page.answer()
    assert text_of(page.look()) == "Third."
    assert second.notes == [*NOTES["tool"], "model 3"]


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("release", NEWEST)
def test_a_page_is_shown_at_once_what_its_answer_about_an_interrupted_call_led_to(
    browser: Browser, start: Start, release: str, approved: bool
) -> None:
    killed_under(browser, start(waits_at="tool", after_crash="ask"), release)
    second = start(waits_at="text 3", after_crash="ask")
    assert second.ended()[0] == "waiting"
    page = loaded_anew(browser, second, release, automatic=["approvals" if release in WITH_APPROVALS else "tools"])
    question = page.look()["messages"][-1]["parts"][-1]
    if question["state"] == "approval-requested":
        page.call("addToolApprovalResponse", {"id": question["approval"]["id"], "approved": approved})
    else:
        answer = {"tool": "approval", "toolCallId": question["toolCallId"], "output": {"approved": approved}}
        page.call("addToolOutput", answer)
    view = page.until(lambda view: text_of(view) == WHOLE)
    call = next(part for part in view["messages"][-1]["parts"] if part["type"] == "tool-book")
    assert (call["state"], call["errorText"]) == ("output-error", MAY_CALL_AGAIN if approved else NOT_ALLOWED)
    second.open_gate()
    stored: Any = second.ended()[1]["parts"]
    assert [shown | {"approval": None} for shown in page.answer()["parts"]] == [
        part | {"approval": None} for part in stored
    ]
