"""An agent process that dies, and another that starts its turn anew: real clients show the new answer alone."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.http_client import NEWEST, Browser, text_of
from tests.conformance.served import PATIENCE, eventually, serving
from tests.redis_server import SERVERS, redis_server
from usechat.runs.redis.store import RedisRuns
from usechat.runs.redis.turns import RedisTurns
from usechat.server import ChatApp

LEASE = 6.0
AGENT_PROCESS = f"""
import asyncio, pathlib, sys
from usechat.server import AgentWorker, RedisRuns, RedisTurns, restartable

word, url = sys.argv[1:]

@restartable
async def agent(turn):
    yield word + ": "
    while not pathlib.Path(word).exists():
        await asyncio.sleep(0.02)
    yield "done"

async def work():
    worker = AgentWorker(agent, RedisTurns(RedisRuns(url, lease={LEASE}), "agents"), version="v1")
    pathlib.Path(word + " has started").touch()
    await worker.work(drain=0)

asyncio.run(work())
"""


@contextmanager
def agent_process(directory: Path, word: str, url: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Run one that says this word, and ends its answers when there is a file of this name."""
    process = subprocess.Popen([sys.executable, "-c", AGENT_PROCESS, word, url], cwd=directory)
    try:
        eventually((directory / f"{word} has started").exists, "the agent process starts")
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)


@pytest.mark.parametrize("release", NEWEST)
def test_the_page_shows_the_new_answer_and_not_both(browser: Browser, release: str, tmp_path: Path) -> None:
    with redis_server(next(iter(SERVERS))) as redis, agent_process(tmp_path, "old", redis.url) as first:
        runs = RedisRuns(redis.url, lease=LEASE)
        app = ChatApp(RedisTurns(runs, "agents"), runs=runs, drain=0)
        with serving({"web": app}) as served:
            page = browser.open(release, served.url("web"), chat_id="c1")
            page.send("hi")
            user = page.until_text("old: ")["messages"][0]
            with agent_process(tmp_path, "new", redis.url):
                first.kill()
                assert page.settled()["status"] == "error", "it is disconnected, so that it resumes"
                if release == NEWEST[0]:
                    # 5 doubles every part when one and the same chat resumes; a page that is loaded anew does not.
                    page = browser.open(release, served.url("web"), chat_id="c1", messages=[user])
                page.resume()
                page.until_resumed()
                (tmp_path / "new").touch()
                message = page.answer()
                assert [part["type"] for part in message["parts"]] == ["step-start", "text"]
                assert text_of(page.look()) == "new: done"
