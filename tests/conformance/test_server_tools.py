"""Tools and approvals that people answer: the newest clients post again by themselves, and the message goes on."""

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request

from tests.conformance.http_client import NEWEST, WITH_APPROVALS, Browser, Page, said, text_of
from tests.conformance.served import Gates, Served, serving
from usechat import parts
from usechat.pauses.questions import ask_page
from usechat.server import ChatApp, Settings, chat_response
from usechat.turn import Turn

GATES = Gates()
RAN: list[str] = []
"""The chats whose dangerous tool really ran."""
FAILED: list[str] = []
"""The chats in which the agent failed once."""


async def asking_the_page(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Use a tool of the page, and go on with what it returned."""
    if turn.tool_outputs:
        if turn.chat_id.startswith("flaky") and turn.chat_id not in FAILED:
            FAILED.append(turn.chat_id)
            raise RuntimeError("the model is down")
        for output in turn.tool_outputs:
            yield f"You are in {output.output}" if output.error_text is None else f"Nowhere: {output.error_text}"
        if turn.chat_id.startswith("slow"):
            await GATES.passed(turn)
        yield "."
        return
    yield "Where are you? "
    yield parts.ToolCall("c1", "location", {"exact": False})


async def asking_a_person(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Delete something, if a person allows it."""
    for answer in turn.approvals:
        if not answer.approved:
            yield parts.ToolDenied("c1", answer.reason)
            yield "Nothing was deleted."
            return
        RAN.append(turn.chat_id)
        yield parts.ToolResult("c1", "gone")
        yield "It is deleted."
        return
    yield "May I? "
    yield parts.ToolCall("c1", "delete", {"path": "/"})
    yield parts.ApprovalRequest("a1", "c1")


BESIDE: dict[str, list[parts.Part]] = {
    "call": [parts.ToolCall("c2", "search", {})],
    "result": [parts.ToolCall("c2", "search", {}), parts.ToolResult("c2", 3)],
    "step": [parts.Step(), parts.Text("Meanwhile. ")],
    "steps": [parts.Step(), parts.ToolCall("c2", "search", {}), parts.ToolResult("c2", 3), parts.Step()],
}
"""What a branch of an agent does after another one has asked the page."""


async def asking_in_a_branch(turn: Turn) -> AsyncIterator[parts.Part]:
    """Ask the page in one branch, and go on in the other."""
    beside = turn.chat_id.partition("-")[0]
    yield parts.ToolCall("c1", "dig", {})
    asking = asyncio.create_task(ask_page({"message": "How deep?"}))
    await asyncio.sleep(0.05)
    for part in BESIDE[beside]:
        yield part
    answer = await asking
    if beside == "call":
        yield parts.ToolResult("c2", 3)
    yield parts.ToolResult("c1", "dug")
    yield parts.Text("Nothing." if answer is None else f"It is {answer.output} deep.")


def fast_api() -> FastAPI:
    app = FastAPI()

    @app.post("/api/chat")
    async def chat(request: Request) -> Any:
        settings = Settings(sdk="any", disconnect="cancel")
        return await chat_response(request, asking_a_person, settings=settings)

    return app


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    apps = {
        "tool": ChatApp(asking_the_page),
        "approval": ChatApp(asking_a_person),
        "branch": ChatApp(asking_in_a_branch),
        "bare": fast_api(),
    }
    with serving(apps) as running:
        yield running


def tool_part(page: Page, kind: str) -> Any:
    return next(part for part in page.look()["messages"][-1]["parts"] if part["type"] == kind)


def posts(page: Page) -> list[int | None]:
    return [request["status"] for request in page.look()["requests"] if request["method"] == "POST"]


def asked(browser: Browser, release: str, url: str, chat_id: str, *automatic: str) -> tuple[Page, Any]:
    """Open a page and send a message; return the page and the message that waits for an answer."""
    page = browser.open(release, url, chat_id=chat_id, automatic=automatic)
    page.send("go")
    return page, page.answer()


OUTCOMES = {
    "You are in Paris.": {"output": "Paris"},
    "Nowhere: no permission.": {"state": "output-error", "errorText": "no permission"},
}


@pytest.mark.parametrize("text", OUTCOMES)
@pytest.mark.parametrize("release", NEWEST)
def test_the_message_goes_on_after_a_tool_of_the_page_with_one_more_post(
    browser: Browser, served: Served, release: str, text: str
) -> None:
    chat_id = f"tool-{release}-{len(text)}"
    page, waiting = asked(browser, release, served.url("tool"), chat_id, "tools")
    assert tool_part(page, "tool-location")["state"] == "input-available"
    page.call("addToolOutput", {"tool": "location", "toolCallId": "c1", **OUTCOMES[text]})
    page.until(lambda view: len(view["requests"]) == 2)
    message = page.answer()
    assert text_of(page.look()) == f"Where are you? {text}"
    assert tool_part(page, "tool-location")["state"] == OUTCOMES[text].get("state", "output-available")
    assert message["id"] == waiting["id"]
    assert len(page.look()["messages"]) == 2
    assert posts(page) == [200, 200]


@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize("release", NEWEST)
def test_a_question_is_answered_whatever_another_branch_does_meanwhile(
    browser: Browser, served: Served, release: str, beside: str
) -> None:
    page, waiting = asked(browser, release, served.url("branch"), f"{beside}-{release}", "tools")
    question = waiting["parts"][-1]
    assert (question["toolName"], question["state"]) == ("interrupt", "input-available")
    page.call("addToolOutput", {"tool": "interrupt", "toolCallId": question["toolCallId"], "output": 3})
    page.until(lambda view: len(view["requests"]) == 2)
    message = page.answer()
    assert text_of(page.look()).endswith("It is 3 deep.")
    assert message["id"] == waiting["id"]
    assert {part["state"] for part in message["parts"] if "toolCallId" in part} == {"output-available"}
    assert posts(page) == [200, 200]


@pytest.mark.parametrize("release", NEWEST)
def test_a_page_that_tries_again_after_a_failure_does_not_lose_what_its_tool_returned(
    browser: Browser, served: Served, release: str
) -> None:
    page, waiting = asked(browser, release, served.url("tool"), f"flaky-{release}", "tools")
    page.call("addToolOutput", {"tool": "location", "toolCallId": "c1", "output": "Paris"})
    page.until(lambda view: view["error"] is not None)
    page.call("sendMessage")
    page.until(lambda view: len(view["requests"]) == 3)
    message = page.answer()
    assert text_of(page.look()) == "Where are you? You are in Paris."
    assert message["id"] == waiting["id"]
    assert posts(page) == [200, 200, 200]


def state_of(served: Served, app: str, chat_id: str) -> Any:
    with urllib.request.urlopen(f"{served.url(app)}/{chat_id}") as response:
        return json.load(response)["state"]


@pytest.mark.parametrize("release", NEWEST)
def test_a_continuation_that_is_resumed_shows_the_whole_message_once(
    browser: Browser, served: Served, release: str
) -> None:
    chat_id = f"slow-{release}"
    page, waiting = asked(browser, release, served.url("tool"), chat_id, "tools")
    assert state_of(served, "tool", chat_id) == "waiting"
    history = page.look()["messages"]
    page.call("addToolOutput", {"tool": "location", "toolCallId": "c1", "output": "Paris"})
    page.until_text("Where are you? You are in Paris")
    pages = [page]
    for messages in (history[:1], history):
        again = browser.open(release, served.url("tool"), chat_id=chat_id, messages=messages, automatic=["tools"])
        again.resume()
        again.until_text("Where are you? You are in Paris")
        pages.append(again)
    GATES.open(chat_id)
    for one in pages:
        message = one.answer()
        assert text_of(one.look()) == "Where are you? You are in Paris."
        assert message["id"] == waiting["id"]
        kinds = [part["type"] for part in message["parts"]]
        assert kinds == ["step-start", "text", "tool-location", "step-start", "text"]
        assert tool_part(one, "tool-location")["output"] == "Paris"
        assert len(one.look()["messages"]) == 2
    assert state_of(served, "tool", chat_id) == "finished"


@pytest.mark.parametrize("message_id", ["", None])
def test_a_message_without_an_id_can_be_continued(served: Served, message_id: str | None) -> None:
    nameless = {"role": "assistant", "parts": []} | ({} if message_id is None else {"id": message_id})
    body = json.dumps({"id": f"nameless-{message_id}", "messages": [said("user", "hi"), nameless]}).encode()
    asking = urllib.request.Request(served.url("tool"), body, {"content-type": "application/json"})
    with urllib.request.urlopen(asking, timeout=30) as response:
        assert response.read().endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("app", ["approval", "bare"])
@pytest.mark.parametrize("sdk", ["own", "any"])
@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_an_approval_is_answered_and_the_message_goes_on(
    browser: Browser, served: Served, release: str, sdk: str, app: str, approved: bool
) -> None:
    chat_id = f"{app}-{approved}-{release}-{sdk}"
    url = served.url(app) if sdk == "any" else f"{served.url(app)}?sdk={release}"
    page, waiting = asked(browser, release, url, chat_id, "approvals", "tools")
    assert tool_part(page, "tool-delete")["state"] == "approval-requested"
    page.call("addToolApprovalResponse", {"id": "a1", "approved": approved, "reason": "because"})
    page.until(lambda view: len(view["requests"]) == 2)
    message = page.answer()
    assert tool_part(page, "tool-delete")["state"] == ("output-available" if approved else "output-denied")
    assert text_of(page.look()) == "May I? " + ("It is deleted." if approved else "Nothing was deleted.")
    assert message["id"] == waiting["id"]
    assert len(page.look()["messages"]) == 2
    assert posts(page) == [200, 200]
    assert (chat_id in RAN) == approved


@pytest.mark.parametrize("approved", [True, False])
@pytest.mark.parametrize("release", NEWEST)
def test_for_5_the_approval_is_a_tool_of_the_page(
    browser: Browser, served: Served, release: str, approved: bool
) -> None:
    chat_id = f"tool-{approved}-{release}"
    page, waiting = asked(browser, release, f"{served.url('approval')}?sdk=5", chat_id, "tools")
    question = tool_part(page, "tool-approval")
    assert question["input"]["approvalId"] == "a1"
    output = {"approved": approved}
    page.call("addToolOutput", {"tool": "approval", "toolCallId": question["toolCallId"], "output": output})
    page.until(lambda view: len(view["requests"]) == 2)
    message = page.answer()
    assert text_of(page.look()) == "May I? " + ("It is deleted." if approved else "Nothing was deleted.")
    assert tool_part(page, "tool-delete")["state"] == ("output-available" if approved else "output-error")
    assert message["id"] == waiting["id"]
    assert posts(page) == [200, 200]
    assert (chat_id in RAN) == approved


@pytest.mark.parametrize("forged", [{"input": {"path": "/etc"}}, {"approval": {"id": "a2", "approved": True}}])
@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_a_forged_approval_is_refused_and_the_tool_does_not_run(
    browser: Browser, served: Served, release: str, forged: Any
) -> None:
    chat_id = f"forged-{release}-{next(iter(forged))}"
    url = f"{served.url('approval')}?sdk={release}"
    page, waiting = asked(browser, release, url, chat_id)
    answer = {"state": "approval-responded", "approval": {"id": "a1", "approved": True}, **forged}
    waiting["parts"] = [part | answer if part["type"] == "tool-delete" else part for part in waiting["parts"]]
    liar = browser.open(release, url, chat_id=chat_id, messages=[page.look()["messages"][0], waiting])
    liar.call("sendMessage")
    view = liar.settled()
    assert view["requests"][0]["status"] == 422
    assert view["error"] is not None
    assert "was not asked for" in view["error"]["message"]
    assert chat_id not in RAN
