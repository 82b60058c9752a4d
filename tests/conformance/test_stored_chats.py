"""Stored chats and the real clients: what a page shows at the end is what a reload loads, and no tool runs twice."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import httpx2
import pytest

from tests.conformance.http_client import NEWEST, WITH_APPROVALS, Browser, Page, text_of
from tests.conformance.judge import Judge
from tests.conformance.served import Gates, Served, serving
from tests.postgres_server import postgres_server
from tests.redis_server import redis_server
from usechat import parts
from usechat.chats import MemoryChats, SqlChats
from usechat.errors import StoreUnreachable
from usechat.server import AgentWorker, ChatApp, RedisRuns, RedisTurns, Settings
from usechat.turn import Identity, Turn

STORES: Final = ("memory", "sqlite", "postgresql", "workers", "agents")
"""``workers``: two of them with one Redis and one file, in turn; ``agents``: one behind a queue, with such a file."""
GATES: Final = Gates()
RAN: Final[list[str]] = []
"""The chat of each tool that ran, and of each output that was given to the agent."""
REFUSED: Final[set[str]] = set()
"""Chats whose next message is refused with 503."""
_numbers = itertools.count()


async def agent(turn: Turn) -> AsyncIterator[str | parts.Part]:
    for approval in turn.approvals:
        call = str(approval.tool_call_id)
        if approval.approved:
            RAN.append(turn.chat_id)
            yield parts.ToolResult(call, "deleted")
        else:
            yield parts.ToolDenied(call)
        yield "Deleted." if approval.approved else "Kept."
        return
    for output in turn.tool_outputs:
        RAN.append(turn.chat_id)
        yield f"You are in {output.output}."
        return
    number = len(turn.messages)
    match turn.text:
        case "delete":
            yield parts.ToolCall(f"call-{number}", "delete", {"path": "notes"})
            yield parts.ApprovalRequest(f"approval-{number}", f"call-{number}")
        case "where":
            yield parts.ToolCall(f"call-{number}", "locate", {})
        case "where, later":
            yield "Wait"
            await GATES.passed(turn)
            yield parts.ToolCall(f"call-{number}", "locate", {})
        case "wait":
            yield "Wait"
            await GATES.passed(turn)
            yield " over."
        case text:
            yield parts.Reasoning("Hm.")
            yield parts.ToolCall(f"call-{number}", "weather", {"city": "Rome"})
            yield parts.ToolResult(f"call-{number}", {"degrees": 21})
            yield f"{number}: {text}."


def anyone(_request: Any, chat_id: str, action: str) -> Identity:
    if action == "send" and chat_id in REFUSED:
        REFUSED.remove(chat_id)
        raise StoreUnreachable
    return Identity("ada")


class InTurn:
    """Workers that answer one request after the other, as behind a load balancer."""

    def __init__(self, *apps: ChatApp) -> None:
        self._apps = itertools.cycle(apps)

    async def __call__(self, *connection: Any) -> None:
        await next(self._apps)(*connection)


async def prepare(url: str) -> None:
    store = SqlChats(url)
    await store.migrate()
    await store.close()


async def answer_turns(url: str, database: str) -> None:
    turns = RedisTurns(RedisRuns(url, prefix="web"), "agents")
    worker = AgentWorker(agent, turns, version="v1", chats=SqlChats(database), settings=Settings(disconnect="continue"))
    await worker.work(drain=0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("chats")
    options: dict[str, Any] = {
        "authorize": anyone,
        "settings": Settings(disconnect="continue", approval_secret="a secret of all workers"),
        "metrics": False,
    }
    with postgres_server() as url, redis_server("valkey") as redis:
        asyncio.run(prepare(url))
        queue = RedisTurns(RedisRuns(redis.url, prefix="web"), "agents", forwarded_headers=["x-ai-sdk"])
        workers = [
            ChatApp(agent, chats=SqlChats(str(directory / "workers.db")), runs=RedisRuns(redis.url), **options)
            for _ in range(2)
        ]
        apps = {
            "memory": ChatApp(agent, chats=MemoryChats(), **options),
            "sqlite": ChatApp(agent, chats=SqlChats(str(directory / "chats.db")), **options),
            "postgresql": ChatApp(agent, chats=SqlChats(url), **options),
            "first worker": workers[0],
            "second worker": workers[1],
            "workers": InTurn(*workers),
            "agents": ChatApp(queue, chats=SqlChats(str(directory / "agents.db")), runs=queue.runs, **options),
        }
        with serving(apps) as running:
            agents = running.run(answer_turns(redis.url, str(directory / "agents.db")))
            yield running
            agents.cancel()


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, server: Served) -> str:
    return server.url(request.param)


@pytest.fixture
def chat_id() -> str:
    return f"chat-{next(_numbers)}"


def load(url: str, chat_id: str) -> Any:
    response = httpx2.get(f"{url}/{chat_id}/messages", timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def without_ids(messages: Any) -> Any:
    """Leave out what a page may have chosen itself: the ids of user messages, which the store may have replaced."""
    return [{**message, "id": message["role"] == "assistant" and message["id"]} for message in messages]


def compare(page: Page, url: str, chat_id: str, judge: Judge) -> Any:
    """Return what a reload loads, which is what the page shows and what every release accepts."""
    view = page.settled()
    assert (view["status"], view["error"]) == ("ready", None)
    loaded = load(url, chat_id)
    assert without_ids(loaded["messages"]) == without_ids(view["messages"])
    for release in NEWEST:
        [result] = judge.validate(release, [loaded["messages"]])
        assert result["error"] is None, release
    return loaded


@pytest.mark.parametrize("sends", ["all", "one"])
@pytest.mark.parametrize("release", NEWEST)
def test_turns_regenerations_and_edits_are_loaded_as_the_page_shows_them(
    browser: Browser, judge: Judge, url: str, chat_id: str, release: str, sends: str
) -> None:
    page = browser.open(release, url, chat_id=chat_id, sends=sends, headers={"x-ai-sdk": release})
    for number in range(3):
        page.send(f"Question {number}")
        assert text_of(page.settled()) == f"{2 * number + 1}: Question {number}."
    compare(page, url, chat_id, judge)
    page.call("regenerate")
    loaded = compare(page, url, chat_id, judge)
    assert [len(ids) for ids in loaded["siblings"].values()] == [2]
    page.call("regenerate", {"messageId": loaded["messages"][3]["id"]})
    assert len(compare(page, url, chat_id, judge)["messages"]) == 4
    question = page.look()["messages"][2]["id"]
    page.call("regenerate", {"messageId": question})
    loaded = compare(page, url, chat_id, judge)
    assert len(loaded["siblings"][loaded["headId"]]) == 3
    for text in ("Edited", "Edited again"):
        page.call("sendMessage", {"text": text, "messageId": question})
        assert text_of(page.settled()) == f"3: {text}."
        compare(page, url, chat_id, judge)


@pytest.mark.parametrize("sends", ["all", "one"])
@pytest.mark.parametrize("release", NEWEST)
def test_a_stale_tab_answers_its_own_version(
    browser: Browser, judge: Judge, url: str, chat_id: str, release: str, sends: str
) -> None:
    options: Any = {"sends": sends, "headers": {"x-ai-sdk": release}}
    page = browser.open(release, url, chat_id=chat_id, **options)
    page.send("First")
    page.settled()
    stale = browser.open(release, url, chat_id=chat_id, messages=page.look()["messages"], **options)
    question = page.look()["messages"][0]["id"]
    for text in ("Second", "Third"):
        page.call("sendMessage", {"text": text, "messageId": question})
        page.settled()
    stale.call("regenerate")
    assert text_of(stale.settled()) == "1: First."
    loaded = compare(stale, url, chat_id, judge)
    assert len(loaded["siblings"][loaded["messages"][0]["id"]]) == 3


@pytest.mark.parametrize("sends", ["all", "one"])
@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_an_approval_of_two_tabs_runs_the_tool_once(
    browser: Browser, judge: Judge, url: str, chat_id: str, release: str, sends: str
) -> None:
    options: Any = {"sends": sends, "headers": {"x-ai-sdk": release}, "automatic": ["approvals"]}
    page = browser.open(release, url, chat_id=chat_id, **options)
    page.send("delete")
    page.settled()
    second = browser.open(release, url, chat_id=chat_id, messages=load(url, chat_id)["messages"], **options)
    page.call("addToolApprovalResponse", {"id": "approval-1", "approved": True})
    assert text_of(page.until(lambda view: text_of(view) == "Deleted." and view["calls"] == 0)) == "Deleted."
    second.call("addToolApprovalResponse", {"id": "approval-1", "approved": False})
    late = second.until(lambda view: text_of(view) == "Deleted." and view["calls"] == 0)
    assert [part["output"] for part in late["messages"][-1]["parts"] if part["type"] == "tool-delete"] == ["deleted"]
    compare(page, url, chat_id, judge)
    assert RAN.count(chat_id) == 1


@pytest.mark.parametrize("sends", ["all", "one"])
def test_an_approval_of_two_tabs_of_5_runs_the_tool_once(
    browser: Browser, judge: Judge, url: str, chat_id: str, sends: str
) -> None:
    release = NEWEST[0]
    assert release.startswith("5."), "5 asks through a tool of the page"
    options: Any = {"sends": sends, "headers": {"x-ai-sdk": release}, "automatic": ["tools"]}
    page = browser.open(release, url, chat_id=chat_id, **options)
    page.send("delete")
    page.settled()
    loaded = load(url, chat_id)["messages"]
    [question] = [part for part in loaded[-1]["parts"] if part["type"] == "tool-approval"]
    assert (question["state"], question["input"]["approvalId"]) == ("input-available", "approval-1")
    second = browser.open(release, url, chat_id=chat_id, messages=loaded, **options)
    for tab, approved in ((page, True), (second, False)):
        output = {"approved": approved}
        tab.call("addToolOutput", {"tool": "approval", "toolCallId": question["toolCallId"], "output": output})
        tab.until(lambda view: text_of(view) == "Deleted." and view["calls"] == 0)
    compare(page, url, chat_id, judge)
    assert RAN.count(chat_id) == 1


@pytest.mark.parametrize("sends", ["all", "one"])
@pytest.mark.parametrize("release", NEWEST)
def test_the_output_of_a_tool_of_the_page_is_taken_once(
    browser: Browser, judge: Judge, url: str, chat_id: str, release: str, sends: str
) -> None:
    options: Any = {"sends": sends, "headers": {"x-ai-sdk": release}, "automatic": ["tools"]}
    page = browser.open(release, url, chat_id=chat_id, **options)
    page.send("where")
    page.settled()
    second = browser.open(release, url, chat_id=chat_id, messages=load(url, chat_id)["messages"], **options)
    for tab, place in ((page, "Rome"), (second, "Paris")):
        tab.call("addToolResult", {"tool": "locate", "toolCallId": "call-1", "output": place})
        tab.until(lambda view: text_of(view) == "You are in Rome." and view["calls"] == 0)
    compare(page, url, chat_id, judge)


@pytest.mark.parametrize("release", NEWEST)
def test_a_page_that_loads_while_an_answer_runs_resumes_it(
    browser: Browser, judge: Judge, url: str, chat_id: str, release: str
) -> None:
    headers = {"x-ai-sdk": release}
    page = browser.open(release, url, chat_id=chat_id, headers=headers)
    page.send("wait")
    page.until_text("Wait")
    loaded = load(url, chat_id)
    assert ([message["role"] for message in loaded["messages"]], bool(loaded["running"])) == (["user"], True)
    second = browser.open(release, url, chat_id=chat_id, messages=loaded["messages"], headers=headers)
    second.resume()
    second.until_text("Wait")
    GATES.open(chat_id)
    for tab in (page, second):
        assert text_of(tab.settled()) == "Wait over."
        compare(tab, url, chat_id, judge)


@pytest.mark.parametrize("release", NEWEST)
def test_a_stopped_answer_is_loaded_as_far_as_it_came(
    browser: Browser, judge: Judge, url: str, chat_id: str, release: str
) -> None:
    page = browser.open(release, url, chat_id=chat_id, headers={"x-ai-sdk": release})
    page.send("wait")
    page.until_text("Wait")
    assert httpx2.post(f"{url}/{chat_id}/stop", timeout=60).status_code == 204
    page.settled()
    loaded = load(url, chat_id)
    assert [part["text"] for part in loaded["messages"][-1]["parts"] if part["type"] == "text"] == ["Wait"]
    assert list(loaded["outcomes"].values()) == ["stopped"]
    page.send("Next")
    assert text_of(page.settled()) == "3: Next."
    for release_ in NEWEST:
        [result] = judge.validate(release_, [load(url, chat_id)["messages"]])
        assert result["error"] is None


@pytest.mark.parametrize("sends", ["all", "one"])
@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_a_late_approval_runs_the_tool_of_the_earlier_message(
    browser: Browser, judge: Judge, url: str, chat_id: str, release: str, sends: str
) -> None:
    page = browser.open(release, url, chat_id=chat_id, sends=sends, headers={"x-ai-sdk": release})
    for text in ("delete", "Question"):
        page.send(text)
        page.settled()
    page.call("addToolApprovalResponse", {"id": "approval-1", "approved": True})
    page.call("sendMessage")
    page.settled()
    loaded = load(url, chat_id)
    outputs = [part.get("output") for part in loaded["messages"][1]["parts"] if part["type"] == "tool-delete"]
    assert (len(loaded["messages"]), outputs, RAN.count(chat_id)) == (4, ["deleted"], 1)
    assert text_of({"messages": loaded["messages"]}) == "3: Question."  # type: ignore[typeddict-item]
    for each in NEWEST:
        [result] = judge.validate(each, [loaded["messages"]])
        assert result["error"] is None, each


@pytest.mark.parametrize("sends", ["all", "one"])
@pytest.mark.parametrize("release", NEWEST)
def test_a_message_that_was_refused_is_answered_when_it_is_regenerated(
    browser: Browser, judge: Judge, url: str, chat_id: str, release: str, sends: str
) -> None:
    page = browser.open(release, url, chat_id=chat_id, sends=sends, headers={"x-ai-sdk": release})
    page.send("First")
    page.settled()
    REFUSED.add(chat_id)
    page.send("Second")
    assert page.settled()["status"] == "error"
    page.call("regenerate")
    assert text_of(page.settled()) == "3: Second."
    compare(page, url, chat_id, judge)


@pytest.mark.parametrize("release", NEWEST)
def test_a_tool_that_two_resuming_tabs_both_run_gives_its_output_once(
    browser: Browser, judge: Judge, url: str, chat_id: str, release: str
) -> None:
    options: Any = {"headers": {"x-ai-sdk": release}, "automatic": ["tools"]}
    first = browser.open(release, url, chat_id=chat_id, **options)
    first.send("where, later")
    first.until_text("Wait")
    messages = load(url, chat_id)["messages"]
    tabs = [browser.open(release, url, chat_id=chat_id, messages=messages, **options) for _ in range(2)]
    for tab in tabs:
        tab.resume()
        tab.until_text("Wait")
    GATES.open(chat_id)
    for tab in tabs:
        assert [call["toolCallId"] for call in tab.settled()["toolCalls"]] == ["call-1"]
    for tab, place in zip(tabs, ("Rome", "Paris"), strict=True):
        tab.call("addToolResult", {"tool": "locate", "toolCallId": "call-1", "output": place})
    for tab in tabs:
        tab.until(lambda view: text_of(view).startswith("WaitYou are in "))
        tab.settled()
    loaded = load(url, chat_id)["messages"]
    assert RAN.count(chat_id) == 1
    [text] = {text_of(tab.look()) for tab in tabs}
    assert text == text_of({"messages": loaded})  # type: ignore[typeddict-item]
    for each in NEWEST:
        [result] = judge.validate(each, [loaded])
        assert result["error"] is None, each
