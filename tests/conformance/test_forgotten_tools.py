"""Tools of the page where no run of the chat is known: the newest clients bring back what vouches for their answers."""

import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request

from tests.conformance.http_client import NEWEST, Browser, said, text_of
from tests.conformance.judge import ALL_RELEASES, Chat, Judge
from tests.conformance.served import Served, eventually, serving
from usechat import parts
from usechat.runs.memory import MemoryRuns
from usechat.server import ChatApp, chat_response
from usechat.turn import Turn

FORGETFUL = MemoryRuns(remember=0)
INPUT = {"exact": False, "zoom": 1.0, "id": 1234567890123456789, "größe": ["😀 \ud83d", None, {}], "7": -0.0}
"""What JavaScript writes in another way than Python, and what it cannot hold."""


async def asking_the_page(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Use a tool of the page, and tell what it returned."""
    if turn.request.continues:
        yield f"You are in {[output.output for output in turn.tool_outputs]}."
        return
    yield "Where are you? "
    yield parts.ToolCall("c1", "location", INPUT)


def bare() -> FastAPI:
    app = FastAPI()

    @app.post("/api/chat")
    async def chat(request: Request) -> Any:
        return await chat_response(request, asking_the_page)

    return app


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving({"bare": bare(), "forgetful": ChatApp(asking_the_page, runs=FORGETFUL)}) as running:
        yield running


def forgotten(served: Served, chat_id: str) -> None:
    eventually(lambda: served.run(FORGETFUL.latest(chat_id)).result(30) is None, "the run is forgotten")


@pytest.mark.parametrize("sdk", ["any", "release"])
@pytest.mark.parametrize("app", ["bare", "forgetful"])
@pytest.mark.parametrize("release", NEWEST)
def test_the_message_goes_on_with_what_the_page_returned(
    browser: Browser, served: Served, release: str, app: str, sdk: str
) -> None:
    chat_id = f"taken-{release}-{sdk}"
    url = f"{served.url(app)}?sdk={release if sdk == 'release' else sdk}"
    page = browser.open(release, url, chat_id=chat_id, automatic=["tools"])
    page.send("go")
    waiting = page.answer()
    assert waiting["metadata"]["usechat"]["pending"] == ["c1"]
    forgotten(served, chat_id)
    page.call("addToolOutput", {"tool": "location", "toolCallId": "c1", "output": "Paris"})
    page.until(lambda view: len(view["requests"]) == 2)
    message = page.answer()
    assert text_of(page.look()) == "Where are you? You are in ['Paris']."
    assert message["id"] == waiting["id"]
    assert message["metadata"]["usechat"]["pending"] == []
    assert [request["status"] for request in page.look()["requests"]] == [200, 200]


FORGERIES: dict[str, dict[str, Any]] = {
    "input": {"input": {"exact": True}},
    "tool": {"type": "tool-balance"},
    "call": {"toolCallId": "c2"},
}


@pytest.mark.parametrize("forged", FORGERIES)
@pytest.mark.parametrize("app", ["bare", "forgetful"])
@pytest.mark.parametrize("release", NEWEST)
def test_a_page_that_changes_its_call_or_makes_one_up_is_not_believed(
    browser: Browser, served: Served, release: str, app: str, forged: str
) -> None:
    chat_id = f"forged-{release}-{forged}"
    page = browser.open(release, served.url(app), chat_id=chat_id)
    page.send("go")
    waiting = page.answer()
    forgotten(served, chat_id)
    outcome = {"state": "output-available", "output": "Paris", **FORGERIES[forged]}
    waiting["parts"] = [part | outcome if "toolCallId" in part else part for part in waiting["parts"]]
    liar = browser.open(release, served.url(app), chat_id=chat_id, messages=[said("user", "go"), waiting])
    liar.call("sendMessage")
    liar.answer()
    assert text_of(liar.look()) == "Where are you? You are in []."


def posted(served: Served, sdk: str, *messages: Any) -> bytes:
    body = json.dumps({"id": f"kept-{sdk}", "messages": messages}).encode()
    asking = urllib.request.Request(f"{served.url('bare')}?sdk={sdk}", body, {"content-type": "application/json"})
    with urllib.request.urlopen(asking, timeout=30) as response:
        return bytes(response.read())


@pytest.mark.parametrize("sdk", ["any", "release"])
@pytest.mark.parametrize("release", ALL_RELEASES)
def test_every_release_brings_back_what_vouches_for_a_call(
    judge: Judge, served: Served, release: str, sdk: str
) -> None:
    sdk = release if sdk == "release" else sdk
    user = said("user", "go")
    [result] = judge.chat(release, [Chat(posted(served, sdk, user), messages=[user])])
    assert (result["status"], result["error"]) == ("ready", None)
    waiting = result["message"]
    outcome = {"state": "output-available", "output": "Paris"}
    waiting["parts"] = [part | outcome if "toolCallId" in part else part for part in waiting["parts"]]
    [after] = judge.chat(release, [Chat(posted(served, sdk, user, waiting), messages=[user, waiting])])
    assert after["message"]["parts"][-1]["text"] == "You are in ['Paris']."
