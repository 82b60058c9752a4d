"""Every kind of turn of a session, as the newest clients show it: what is in the message, and how the page stands."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from tests.agent_ops.gateways import Gateway, Upstream, eventually, gateway, upstream
from tests.conformance.http_client import NEWEST, WITH_APPROVALS, Browser, Page

APPS = ("client", "runner", "both", "later")

ARGS = {"path": "README.md"}


@pytest.fixture(scope="module")
def behind() -> Iterator[Upstream]:
    with upstream() as running:
        yield running


@pytest.fixture(scope="module")
def gate(behind: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("sessions"), behind) as running:
        yield running


def opened(browser: Browser, gate: Gateway, release: str, app: str, name: str, **options: Any) -> Page:
    headers = {**gate.headers(), "x-ai-sdk": release}
    return browser.open(release, gate.url(app), chat_id=f"{name} {release} {app}", headers=headers, **options)


def told(part: Any) -> Any:
    """Return what counts of a part: its text, or the tool with its state and outcome."""
    if part["type"] == "text":
        return part["text"]
    if part["type"] == "dynamic-tool":
        return part["toolName"], part["state"], part["input"], part.get("output", part.get("errorText"))
    return part["type"]


TURNS: dict[str, list[Any]] = {
    "hello": ["You said: hello"],
    "tool": ["Let me look.", ("read_file", "output-available", ARGS, "# Agent Ops"), "It is a title."],
    "two tools": [
        "",
        ("read_file", "output-available", {"path": "1"}, "one"),
        ("read_file", "output-available", {"path": "2"}, "two"),
        "Both read.",
    ],
    "fail tool": ["", ("read_file", "output-error", ARGS, "No such file"), "There is no such file."],
    "empty": [""],
    "cancel": ["I was"],
    "late": ["", ("read_file", "output-available", ARGS, "late"), "Done."],
    "stuck": ["", ("read_file", "output-error", ARGS, "The turn ended before this tool did."), "Done."],
    "final": ["All at once."],
    "strange": ["Still here."],
}


def in_turn(prompts: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return every prompt with every app; the clients take turns, so that each has every prompt and every app."""
    return [
        (prompt, app, NEWEST[(at + number) % len(NEWEST)])
        for at, prompt in enumerate(prompts)
        for number, app in enumerate(APPS)
    ]


@pytest.mark.parametrize(("prompt", "app", "release"), in_turn(TURNS))
def test_a_turn_that_ends_well(browser: Browser, gate: Gateway, release: str, app: str, prompt: str) -> None:
    automatic = ["tools", "approvals"] if release in WITH_APPROVALS else ["tools"]
    page = opened(browser, gate, release, app, prompt, automatic=automatic)
    page.send(prompt)
    message = page.answer()
    view = page.look()
    assert [told(part) for part in message["parts"] if part["type"] != "step-start"] == TURNS[prompt]
    assert message["id"].startswith("turn-")
    assert {part["data"]["status"] for part in view["data"]} == {"thinking"}
    assert (view["status"], len(view["requests"]), len(view["messages"])) == ("ready", 1, 2)
    eventually(lambda: not gate.sessions[app]["interactive"].clients, "the socket is closed")


@pytest.mark.parametrize(("prompt", "app", "release"), in_turn(["fail", "error", "die"]))
def test_a_turn_that_fails_keeps_what_was_said(
    browser: Browser, gate: Gateway, release: str, app: str, prompt: str
) -> None:
    page = opened(browser, gate, release, app, prompt)
    page.send(prompt)
    view = page.settled()
    assert view["status"] == "error"
    assert [told(part) for part in view["messages"][-1]["parts"]][1:] == ["I will be" if prompt == "die" else "I will"]
    page.send("hello")
    assert told(page.answer()["parts"][-1]) == "You said: hello"


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("release", NEWEST)
def test_regenerate_sends_the_last_message_as_a_new_prompt(
    browser: Browser, gate: Gateway, release: str, app: str
) -> None:
    page = opened(browser, gate, release, app, "again")
    page.send("hello")
    first = page.answer()
    page.call("regenerate")
    page.until(lambda view: len(view["requests"]) == 2)
    second = page.answer()
    prompts = [command["content"] for _, command in gate.sessions[app]["interactive"].commands][-2:]
    assert prompts == ["hello", "hello"]
    assert first["id"] != second["id"]
    view = page.look()
    assert (view["status"], len(view["messages"]), told(second["parts"][-1])) == ("ready", 2, "You said: hello")


@pytest.mark.parametrize("release", NEWEST)
def test_an_output_of_a_client_side_tool_is_ignored_and_no_prompt_is_sent_twice(
    browser: Browser, gate: Gateway, release: str
) -> None:
    tool = {"type": "dynamic-tool", "toolCallId": "c1", "toolName": "location", "state": "input-available", "input": {}}
    history = [
        {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Where am I?"}]},
        {"id": "turn-0", "role": "assistant", "parts": [{"type": "step-start"}, tool]},
    ]
    page = opened(browser, gate, release, "client", "tools", messages=history, automatic=["tools"])
    before = gate.sessions["client"].connections
    page.call("addToolOutput", {"tool": "location", "toolCallId": "c1", "output": "Ulm"})
    page.until(lambda view: len(view["requests"]) == 1)
    message = page.answer()
    view = page.look()
    assert (message["id"], len(view["requests"]), len(view["messages"])) == ("turn-0", 1, 2)
    assert told(message["parts"][1]) == ("location", "output-available", {}, "Ulm")
    assert gate.sessions["client"].connections == before
