"""The queue of AI SDK 7, `experimental_queue`, with every conflict policy and stored chats."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, get_args

import httpx2
import pytest

from tests.conformance.http_client import NEWEST, PATIENCE, Browser, Page, View
from tests.conformance.served import Gates, Served, eventually, serving
from usechat.chats import MemoryChats
from usechat.runs.settings import Conflict
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

GATES = Gates()
LATEST = NEWEST[-1]
POLICIES: tuple[str, ...] = get_args(Conflict)


async def paced(turn: Turn) -> AsyncIterator[str]:
    """Answer a message with its words, once the test lets it."""
    yield f"{turn.text}: "
    await GATES.passed(turn, turn.text)
    yield "done."


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    apps = {
        name: ChatApp(paced, chats=MemoryChats(), settings=Settings(conflict=name))  # type: ignore[arg-type]
        for name in POLICIES
    }
    goes_on = Settings(conflict="reject", disconnect="continue")
    apps["going-on"] = ChatApp(paced, chats=MemoryChats(), settings=goes_on)
    with serving(apps) as running:
        yield running


def told(messages: Any) -> list[str]:
    return ["".join(part.get("text", "") for part in message["parts"]) for message in messages]


def stored(served: Served, policy: str, chat_id: str) -> list[str]:
    response = httpx2.get(f"{served.url(policy)}/{chat_id}/messages", timeout=PATIENCE)
    return told(response.raise_for_status().json()["messages"])


def held(page: Page, *texts: str) -> View:
    """Send messages; the first is being answered, and the others wait."""
    for text in texts:
        page.send(text)
    return page.until(lambda view: told(view["messages"])[1:] == [f"{texts[0]}: "] and len(view["queued"]) == 2)


def posts(view: View) -> list[tuple[str, int | None]]:
    return [(request["method"], request["status"]) for request in view["requests"]]


@pytest.mark.parametrize("policy", POLICIES)
def test_queued_messages_are_answered_one_after_the_other(browser: Browser, served: Served, policy: str) -> None:
    chat_id = f"queue-{policy}"
    page = browser.open(LATEST, served.url(policy), chat_id=chat_id, queues=True)
    assert told(held(page, "one", "two", "three")["queued"]) == ["two", "three"]
    for text in ("one", "two", "three"):
        page.until(lambda view, text=text: told(view["messages"])[-1] == f"{text}: ")  # type: ignore[misc]
        GATES.open(chat_id, text)
    expected = ["one", "one: done.", "two", "two: done.", "three", "three: done."]
    view = page.until(lambda view: view["status"] == "ready" and told(view["messages"]) == expected)
    assert (posts(view), view["queued"]) == ([("POST", 200)] * 3, [])
    eventually(lambda: stored(served, policy, chat_id) == expected, "the chat is stored as the page has it")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_queued_message_that_is_sent_now_gets_an_answer_of_its_own(
    browser: Browser, served: Served, policy: str
) -> None:
    chat_id = f"now-{policy}"
    page = browser.open(LATEST, served.url(policy), chat_id=chat_id, queues=True)
    queued = held(page, "one", "two", "three")["queued"]
    page.call("experimental_sendQueuedMessageNow", queued[1]["id"])
    page.until(lambda view: told(view["messages"])[-1] == "three: ")
    GATES.open(chat_id, "three")
    page.until(lambda view: told(view["messages"])[-1] == "two: ")
    GATES.open(chat_id, "two")
    expected = ["one", "one: ", "three", "three: done.", "two", "two: done."]
    view = page.until(lambda view: view["status"] == "ready" and told(view["messages"]) == expected)
    assert (posts(view)[-2:], view["error"], view["queued"]) == ([("POST", 200)] * 2, None, [])
    eventually(lambda: stored(served, policy, chat_id) == expected, "the chat is stored as the page has it")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_stop_holds_the_queue_until_the_next_message(browser: Browser, served: Served, policy: str) -> None:
    chat_id = f"stop-{policy}"
    page = browser.open(LATEST, served.url(policy), chat_id=chat_id, queues=True)
    held(page, "one", "two", "three")
    page.stop()
    view = page.settled()
    assert (told(view["queued"]), posts(view)) == (["two", "three"], [("POST", 200)])
    for text in ("one", "two", "three", "four"):
        GATES.open(chat_id, text)
    page.send("four")
    view = page.until(lambda view: view["status"] == "ready" and len(view["messages"]) == 8)
    answers = [text for text in told(view["messages"]) if text.endswith("done.")]
    assert sorted(answers) == ["four: done.", "three: done.", "two: done."]
    assert {status for _, status in posts(view)} == {200}
    assert view["queued"] == []


def test_a_message_that_is_sent_now_is_refused_where_a_stop_stops_nothing(browser: Browser, served: Served) -> None:
    page = browser.open(LATEST, served.url("going-on"), chat_id="c1", queues=True)
    queued = held(page, "one", "two", "three")["queued"]
    page.call("experimental_sendQueuedMessageNow", queued[0]["id"])
    view = page.until(lambda view: posts(view) == [("POST", 200), ("POST", 409)] and view["status"] == "error")
    assert told(view["messages"]) == ["one", "one: ", "two"]
    GATES.open("c1", "one")
    eventually(lambda: stored(served, "going-on", "c1") == ["one", "one: done."], "the first answer is stored")
