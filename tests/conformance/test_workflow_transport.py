"""`WorkflowChatTransport` of AI SDK 6 and 7 against a real uvicorn: it goes on by itself after each cut."""

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.conformance.http_client import WITH_APPROVALS, Browser, Page, View, said, text_of
from tests.conformance.served import PATIENCE, Gates, Served, eventually, serving
from tests.redis_server import SERVERS, redis_server
from usechat import parts
from usechat.runs.redis.store import RedisRuns
from usechat.runs.redis.turns import RedisTurns
from usechat.server import AgentWorker, ChatApp
from usechat.turn import Turn

GATES = Gates()


async def paced(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Say three things, waiting behind each until the test lets it go on."""
    yield parts.Reasoning("Hm.")
    yield parts.ToolCall("c1", "look", {"at": "it"})
    yield parts.ToolResult("c1", "seen")
    for name in ("one", "two"):
        for letter in f"{name} ":
            yield letter
        await GATES.passed(turn, name)
    yield "three"


async def asking(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Ask before it deletes something, and speak slowly about what was decided."""
    if not turn.request.continues:
        yield "May I? "
        yield parts.ToolCall("c1", "delete", {"path": "/"})
        yield parts.ApprovalRequest("a1", "c1")
        return
    yield parts.ToolResult("c1", "gone")
    for letter in "one ":
        yield letter
    await GATES.passed(turn, "one")
    yield "two"


async def agent(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Ask before it deletes something, and say three things otherwise."""
    async for part in (asking if turn.text == "delete it" else paced)(turn):
        yield part


class Alternating:
    """Web processes behind a balancer, which gives each request to the next one."""

    def __init__(self, *apps: ChatApp) -> None:
        self.apps = apps
        self._turns = itertools.cycle(apps)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await next(self._turns)(scope, receive, send)


async def answer_turns(url: str) -> None:
    """Be an agent process until this is cancelled."""
    await AgentWorker(agent, RedisTurns(RedisRuns(url, prefix="tier"), "agents"), version="v1").work(drain=0)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with redis_server(next(iter(SERVERS))) as redis:
        stores = [RedisRuns(redis.url, prefix="tier") for _ in range(2)]
        tiers = {
            "one": Alternating(ChatApp(agent)),
            "workers": Alternating(*(ChatApp(agent, runs=RedisRuns(redis.url)) for _ in range(2))),
            "agents": Alternating(*(ChatApp(RedisTurns(runs, "agents"), runs=runs) for runs in stores)),
        }
        with serving(tiers) as running:
            agents = running.run(answer_turns(redis.url))
            yield running
            agents.cancel()
            for app in itertools.chain(*(tier.apps for tier in tiers.values())):
                running.run(app.shut_down()).result(PATIENCE)


TIERS = ["one", "workers", "agents"]
"""One process; two web processes with Redis; two web processes with an agent process."""


def gets(view: View) -> list[Any]:
    return [request for request in view["requests"] if request["method"] == "GET"]


def until_it_went_on(page: Page, times: int) -> None:
    page.until(lambda view: [request["status"] for request in gets(view)] == [200] * times)


@pytest.mark.parametrize("name", TIERS)
@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_an_answer_that_is_cut_twice_is_the_same(browser: Browser, served: Served, release: str, name: str) -> None:
    chat_id = f"cuts/{name}/{release}"
    page = browser.open(release, served.url(name), chat_id=chat_id, workflow=True)
    page.send("hi")
    for times, (so_far, gate) in enumerate([("one ", "one"), ("one two ", "two")], 1):
        page.until_text(so_far)
        served.cut()
        until_it_went_on(page, times)
        GATES.open(chat_id, gate)
    message = page.answer()
    assert text_of(page.look()) == "one two three"
    assert [part["type"] for part in message["parts"]] == ["step-start", "reasoning", "tool-look", "step-start", "text"]
    assert len(page.look()["messages"]) == 2
    assert page.look()["requests"][0]["body"]["id"] == chat_id


@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_an_answer_that_ended_while_nobody_was_connected_is_read_to_its_end(
    browser: Browser, served: Served, release: str
) -> None:
    chat_id = f"ended-{release}"
    page = browser.open(release, served.url("one"), chat_id=chat_id, workflow=True, reads=False)
    page.send("hi")
    page.until(lambda view: [request["status"] for request in view["requests"]] == [200])
    for name in ("one", "two"):
        GATES.open(chat_id, name)
    ended = browser.open(release, served.url("one"), chat_id=chat_id, messages=[said("user", "hi")])
    eventually(lambda: _is_idle(ended), "the run has ended")
    served.cut()
    page.read()
    page.answer()
    assert text_of(page.look()) == "one two three"


def _is_idle(page: Page) -> bool:
    page.resume()
    view = page.settled()
    return [request["status"] for request in view["requests"]][-1] == 204


@pytest.mark.parametrize("name", TIERS)
@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_an_answer_that_goes_on_after_an_approval_is_cut(
    browser: Browser, served: Served, release: str, name: str
) -> None:
    chat_id = f"approval-{name}-{release}"
    page = browser.open(release, served.url(name), chat_id=chat_id, workflow=True, automatic=["approvals"])
    page.send("delete it")
    tool = next(part for part in page.answer()["parts"] if part["type"] == "tool-delete")
    page.call("addToolApprovalResponse", {"id": tool["approval"]["id"], "approved": True})
    page.until(lambda view: text_of(view).endswith("one "))
    served.cut()
    until_it_went_on(page, 1)
    GATES.open(chat_id, "one")
    message = page.answer()
    assert text_of(page.look()) == "May I? one two"
    assert [part["state"] for part in message["parts"] if part["type"] == "tool-delete"] == ["output-available"]


@pytest.mark.parametrize("name", TIERS)
@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_a_page_that_is_reloaded_resumes_and_is_cut(browser: Browser, served: Served, release: str, name: str) -> None:
    chat_id = f"reload-{name}-{release}"
    first = browser.open(release, served.url(name), chat_id=chat_id, workflow=True)
    first.send("hi")
    user = first.until_text("one ")["messages"][0]
    first.stop()
    assert [request["status"] for request in gets(first.settled())] == [None]  # aborted before it left
    page = browser.open(release, served.url(name), chat_id=chat_id, messages=[user], workflow=True)
    page.resume()
    page.until_text("one ")
    served.cut()
    until_it_went_on(page, 2)
    for gate in ("one", "two"):
        GATES.open(chat_id, gate)
    page.answer()
    assert text_of(page.look()) == "one two three"


@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_an_idle_chat_leaves_the_page_ready_and_asks_once(browser: Browser, served: Served, release: str) -> None:
    user = said("user", "hi")
    page = browser.open(release, served.url("one"), chat_id=f"idle-{release}", messages=[user], workflow=True)
    page.resume()
    page.until(lambda view: len(gets(view)) == 1)
    view = page.settled()
    assert (view["status"], view["error"], [part["type"] for part in view["messages"][-1]["parts"]]) == (
        "ready",
        None,
        ["text"],
    )
    assert len(gets(view)) == 1


@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_a_run_that_is_lost_is_an_error_that_says_so(browser: Browser, served: Served, release: str) -> None:
    page = browser.open(
        release, served.url("one"), chat_id="run~lost~~~c1", messages=[said("user", "hi")], workflow=True
    )
    page.resume()
    view = page.until(lambda view: view["status"] == "error")
    assert view["error"] is not None
    assert view["error"]["message"].startswith("The server does not have this answer any more.")
    served.later(0.5).result()
    assert len(gets(page.look())) <= 2  # the transport asks once more before the page tells it of the error


@pytest.mark.parametrize("name", TIERS)
@pytest.mark.parametrize("release", WITH_APPROVALS)
def test_an_answer_that_is_stopped_by_the_route_ends_on_the_page(
    browser: Browser, served: Served, release: str, name: str
) -> None:
    chat_id = f"stopped-{name}-{release}"
    page = browser.open(release, served.url(name), chat_id=chat_id, workflow=True)
    page.send("hi")
    page.until_text("one ")
    assert served.post(f"/{name}/api/chat/{chat_id}/stop") == 204
    page.answer()
    assert text_of(page.look()) == "one "
