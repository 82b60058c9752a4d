"""An agent process that dies, and another that starts its turn anew: real clients show the new answer alone."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.conformance.http_client import NEWEST, Browser, text_of
from tests.conformance.served import PATIENCE, Gates, Served, serving
from tests.redis_server import SERVERS, redis_server
from usechat.runs.redis.store import RedisRuns
from usechat.runs.redis.turns import RedisTurns
from usechat.server import AgentWorker, ChatApp, restartable
from usechat.turn import Turn

LEASE = 6.0
GATES = Gates()


class Agents:
    """The agent processes of a queue; they are tasks in the server's event loop."""

    def __init__(self, served: Served, url: str) -> None:
        self._served = served
        self._url = url

    def start(self, word: str) -> "tuple[AgentWorker, asyncio.Task[None]]":
        """Start one that says this word, and ends its answers when the test lets it."""

        @restartable
        async def agent(turn: Turn) -> AsyncIterator[str]:
            yield f"{word}: "
            await GATES.passed(turn, word)
            yield "done"

        async def begin() -> "tuple[AgentWorker, asyncio.Task[None]]":
            worker = AgentWorker(agent, RedisTurns(RedisRuns(self._url, lease=LEASE), "agents"), version="v1")
            return worker, asyncio.create_task(worker.work(drain=0))

        return self._served.run(begin()).result(PATIENCE)

    def kill(self, worker: AgentWorker, task: "asyncio.Task[None]") -> None:
        """End one as kill -9 does: nothing is said to Redis."""

        async def end() -> None:
            await worker._turns.runs.close()  # noqa: SLF001
            task.cancel()
            await asyncio.wait([task])

        self._served.run(end()).result(PATIENCE)


@pytest.mark.parametrize("release", NEWEST)
def test_the_page_shows_the_new_answer_and_not_both(browser: Browser, release: str) -> None:
    chat_id = f"restarted-{release}"
    with redis_server(next(iter(SERVERS))) as redis:
        runs = RedisRuns(redis.url, lease=LEASE)
        app = ChatApp(RedisTurns(runs, "agents"), runs=runs, drain=0)
        with serving({"web": app}) as served:
            agents = Agents(served, redis.url)
            first = agents.start("old")
            page = browser.open(release, served.url("web"), chat_id=chat_id)
            page.send("hi")
            user = page.until_text("old: ")["messages"][0]
            second = agents.start("new")
            agents.kill(*first)
            assert page.settled()["status"] == "error", "it is disconnected, so that it resumes"
            if release == NEWEST[0]:
                # 5 doubles every part when one and the same chat resumes; a page that is loaded anew does not.
                page = browser.open(release, served.url("web"), chat_id=chat_id, messages=[user])
            page.resume()
            page.until_resumed()
            GATES.open(chat_id, "new")
            message = page.answer()
            assert [part["type"] for part in message["parts"]] == ["step-start", "text"]
            assert text_of(page.look()) == "new: done"
            agents.kill(*second)
