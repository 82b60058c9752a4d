"""The real npm clients before `usechat serve --as temporal`."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.conformance.http_client import NEWEST, WITH_APPROVALS, Browser, Page, View
from tests.postgres_server import postgres_server
from tests.server.process import PATIENCE, ServeProcess, eventually, serve_process
from tests.temporal.server import TemporalServer, WorkerProcess
from tests.temporal.travel import TEXTS
from usechat.chats.recovery import UNKNOWN_OUTCOME
from usechat.cli import main

pytestmark = pytest.mark.usefixtures("worker")

HALF = "Your journey to"
"""What the last step says before it waits for the gate."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


class Site:
    """Web processes before the same Temporal server, with their chats in one file."""

    def __init__(
        self, directory: Path, address: str, workflow: str, release: str, *, task_queue: str = "travel"
    ) -> None:
        self.task_queue = task_queue
        self._directory = directory
        self._options = ["--as", "temporal", address, "--workflow", workflow, "--task-queue", task_queue]
        self._options += ["--sdk", release.partition(".")[0]]

    @contextmanager
    def serving(self, *options: str, directory: Path | None = None) -> Iterator[ServeProcess]:
        with serve_process(directory or self._directory, *self._options, *options) as served:
            yield served


def calls(message: Any) -> list[Any]:
    return [part for part in message["parts"] if part["type"].startswith("tool-")]


def texts(message: Any) -> list[str]:
    return [part["text"] for part in message["parts"] if part["type"] == "text"]


@pytest.mark.parametrize("release", NEWEST)
def test_text_and_two_tools(release: str, server: TemporalServer, browser: Browser, tmp_path: Path) -> None:
    with Site(tmp_path, server.address, "Travel", release).serving() as served:
        page = browser.open(release, f"{served.url}/api/chat", chat_id="trip")
        page.send("To Oslo")
        message = page.answer()
    assert texts(message) == TEXTS
    assert [call["output"] for call in calls(message)] == [{"celsius": 21}, "booked"]


def decide(page: Page, message: Any, approved: bool) -> None:
    [call] = calls(message)
    assert call["state"] == "approval-requested"
    page.call("addToolApprovalResponse", {"id": call["approval"]["id"], "approved": approved})
    page.until(lambda view: len(view["requests"]) == 2)


@pytest.mark.parametrize("release", WITH_APPROVALS)
@pytest.mark.parametrize(
    ("workflow", "allowed", "said"),
    [
        ("Asking", True, ["I book the journey.", TEXTS[2]]),
        ("Asking", False, ["I book the journey.", TEXTS[2]]),
        ("Ending", True, ["Booked."]),
        ("Ending", False, ["Not booked."]),
    ],
    ids=["a signal allows", "a signal denies", "a new workflow allows", "a new workflow denies"],
)
def test_an_approval(
    workflow: str,
    allowed: bool,
    said: list[str],
    release: str,
    server: TemporalServer,
    browser: Browser,
    tmp_path: Path,
) -> None:
    with Site(tmp_path, server.address, workflow, release).serving() as served:
        page = browser.open(release, f"{served.url}/api/chat", chat_id=f"ask-{release}-{workflow}-{allowed}",
                            automatic=["approvals"])  # fmt: skip
        (tmp_path / "gate").touch()
        page.send(str(tmp_path))
        decide(page, page.answer(), allowed)
        message = page.answer()
        assert texts(message) == said
        assert next(call.get("output") for call in calls(message)) == ("booked" if allowed else None)


@pytest.mark.parametrize("release", NEWEST)
def test_a_question_that_the_page_answers_reaches_the_workflow(
    release: str, server: TemporalServer, browser: Browser, tmp_path: Path
) -> None:
    with Site(tmp_path, server.address, "Located", release).serving() as served:
        page = browser.open(release, f"{served.url}/api/chat", chat_id=f"where-{release}", automatic=["tools"])
        page.send("To Oslo")
        [call] = calls(page.answer())
        output = {"tool": "location", "toolCallId": call["toolCallId"], "output": {"city": "Bergen"}}
        page.call("addToolResult" if release.startswith("5.0.0") else "addToolOutput", output)
        page.until(lambda view: len(view["requests"]) == 2)
        assert texts(page.answer()) == ["Where do you start?", "You start in Bergen."]


@pytest.mark.parametrize("workflow", ["Asking", "Ending"])
@pytest.mark.parametrize("allowed", [True, False])
def test_a_page_of_ai_sdk_5_approves_by_a_tool(
    workflow: str, allowed: bool, server: TemporalServer, browser: Browser, tmp_path: Path
) -> None:
    release = NEWEST[0]
    with Site(tmp_path, server.address, workflow, release).serving() as served:
        page = browser.open(
            release, f"{served.url}/api/chat", chat_id=f"ask-5-{workflow}-{allowed}", automatic=["tools"]
        )
        (tmp_path / "gate").touch()
        page.send(str(tmp_path))
        [_, question] = calls(page.answer())
        assert (question["type"], question["state"]) == ("tool-approval", "input-available")
        output = {"tool": "approval", "toolCallId": question["toolCallId"], "output": {"approved": allowed}}
        page.call("addToolOutput", output)
        page.until(lambda view: len(view["requests"]) == 2)
        message = page.answer()
    last = "Booked." if allowed else "Not booked."
    assert texts(message)[-1] == (TEXTS[2] if workflow == "Asking" else last)
    assert calls(message)[0].get("output") == ("booked" if allowed else None)


def answer_without_its_worker(
    site: Site, address: str, page_of: Callable[[str], Page], text: str, dies: Callable[[View], bool]
) -> Any:
    """The message of a page whose worker is killed when the page looks like this, and then replaced by another."""
    directory, workers = Path(text.partition(" ")[0]), [WorkerProcess(address, site.task_queue)]
    try:
        with site.serving() as served:
            page = page_of(f"{served.url}/api/chat")
            page.send(text)
            page.until(dies)
            workers[0].kill()
            workers.append(WorkerProcess(address, site.task_queue))
            (directory / "gate").touch()
            message = page.answer()
            assert len(page.look()["requests"]) == 1, "the same connection reads on"
            return message
    finally:
        for worker in workers:
            worker.stop()


@pytest.mark.parametrize("release", NEWEST)
def test_the_page_reads_on_after_kill_9_of_the_worker_in_mid_text(
    release: str, server: TemporalServer, browser: Browser, tmp_path: Path
) -> None:
    site = Site(tmp_path, server.address, "Gated", release, task_queue=f"mid-text-{release}")
    message = answer_without_its_worker(
        site,
        server.address,
        lambda url: browser.open(release, url, chat_id=site.task_queue),
        str(tmp_path),
        lambda view: view["messages"][1:] != [] and texts(view["messages"][-1])[2:] == [HALF],
    )
    is_dropped = release.startswith("7")  # no client before 7.0.70 can drop it: it stays apart from what is said again
    assert texts(message) == [*TEXTS[:2], *([] if is_dropped else [HALF]), TEXTS[2]]
    assert [call["output"] for call in calls(message)] == [{"celsius": 21}, "booked"]
    assert (tmp_path / "notes").read_text(encoding="utf-8").splitlines() == [
        "request 0", "weather Oslo", "request 1", "book Oslo", "request 2", "request 2"
    ]  # fmt: skip


@pytest.mark.parametrize("release", NEWEST)
@pytest.mark.parametrize(
    ("tool", "outcomes"),
    [("weather", [{"celsius": 21}, "booked"]), ("book", [{"celsius": 21}, UNKNOWN_OUTCOME])],
    ids=["replayable", "one attempt"],
)
def test_the_page_reads_on_after_kill_9_of_the_worker_in_mid_tool(
    tool: str, outcomes: list[Any], release: str, server: TemporalServer, browser: Browser, tmp_path: Path
) -> None:
    site = Site(tmp_path, server.address, "Gated", release, task_queue=f"mid-{tool}-{release}")
    notes = tmp_path / "notes"
    message = answer_without_its_worker(
        site,
        server.address,
        lambda url: browser.open(release, url, chat_id=site.task_queue),
        f"{tmp_path} {tool}",
        lambda view: f"tool-{tool}" in str(view["messages"]) and tool in notes.read_text(encoding="utf-8"),
    )
    assert texts(message) == TEXTS
    assert [call.get("output", call.get("errorText")) for call in calls(message)] == outcomes
    runs = notes.read_text(encoding="utf-8").splitlines().count(f"{tool} Oslo")
    assert runs == (2 if tool == "weather" else 1)


@pytest.mark.parametrize("release", NEWEST)
def test_the_answer_goes_on_after_kill_9_of_the_web_process(
    release: str, server: TemporalServer, browser: Browser, tmp_path: Path
) -> None:
    site, chat_id = Site(tmp_path, server.address, "Gated", release), f"killed-{release}"
    with site.serving("--chats", "chats.db") as first:
        page = browser.open(release, f"{first.url}/api/chat", chat_id=chat_id)
        page.send(str(tmp_path))
        page.until(lambda view: "booked" in str(view["messages"][1:]))
        os.kill(first.process.pid, signal.SIGKILL)
        page.settled()
    with site.serving("--chats", "chats.db") as second:
        reloaded = browser.open(release, f"{second.url}/api/chat", chat_id=chat_id)
        reloaded.resume()
        reloaded.until(lambda view: "booked" in str(view["messages"]))
        (tmp_path / "gate").touch()
        message = reloaded.answer()
        assert texts(message) == TEXTS
        assert [call["output"] for call in calls(message)] == [{"celsius": 21}, "booked"]
    assert (tmp_path / "notes").read_text(encoding="utf-8").splitlines() == [
        "request 0", "weather Oslo", "request 1", "book Oslo", "request 2"
    ]  # fmt: skip


def test_an_approved_turn_goes_on_after_kill_9_of_the_web_process(
    server: TemporalServer, browser: Browser, tmp_path: Path
) -> None:
    release, chat_id = NEWEST[-1], "killed-approved"
    site = Site(tmp_path, server.address, "Asking", release)
    with site.serving("--chats", "chats.db") as first:
        page = browser.open(release, f"{first.url}/api/chat", chat_id=chat_id, automatic=["approvals"])
        page.send(str(tmp_path))
        decide(page, page.answer(), True)
        page.until(lambda view: "booked" in str(view["messages"][1:]))
        os.kill(first.process.pid, signal.SIGKILL)
        page.settled()
    with site.serving("--chats", "chats.db") as second:
        reloaded = browser.open(release, f"{second.url}/api/chat", chat_id=chat_id)
        reloaded.resume()
        reloaded.until(lambda view: "booked" in str(view["messages"]))
        (tmp_path / "gate").touch()
        message = reloaded.answer()
    assert texts(message) == ["I book the journey.", TEXTS[2]]
    assert (tmp_path / "notes").read_text(encoding="utf-8").splitlines() == ["book Oslo", "request 2"]


@pytest.mark.parametrize("release", NEWEST)
def test_another_web_process_takes_over(release: str, server: TemporalServer, browser: Browser, tmp_path: Path) -> None:
    chat_id = f"two-processes-{release}"
    site = Site(tmp_path, server.address, "Gated", release)
    (tmp_path / "second").mkdir()
    with postgres_server() as postgres:
        chats = ("--chats", postgres)
        assert main(["chats", "migrate", *chats]) == 0
        with site.serving(*chats) as first, site.serving(*chats, directory=tmp_path / "second") as second:
            page = browser.open(release, f"{first.url}/api/chat", chat_id=chat_id)
            page.send(str(tmp_path))
            page.until(lambda view: "booked" in str(view["messages"][1:]))
            os.kill(first.process.pid, signal.SIGKILL)
            page.settled()
            (tmp_path / "gate").touch()
            address = f"{second.url}/api/chat/{chat_id}/messages"
            eventually(lambda: TEXTS[2] in httpx2.get(address, timeout=PATIENCE).text, "the second process goes on")
            [_, message] = httpx2.get(address, timeout=PATIENCE).json()["messages"]
    assert texts(message) == TEXTS
    assert [call["output"] for call in calls(message)] == [{"celsius": 21}, "booked"]
