"""An agent that calls `sys.exit()`, in a real server: its own answer fails, and everybody else's go on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2

from tests.redis_server import redis_server
from tests.server.process import PATIENCE, ServeProcess, question, serve_process
from usechat import Turn
from usechat.server import ChatApp

AGENT = """
import asyncio
import os
import sys
import threading


async def exits():
    await asyncio.sleep(0)
    sys.exit(3)


def exits_at_once():
    sys.exit(3)


async def agent(turn):
    yield f"process {os.getpid()} "
    match turn.text:
        case "coroutine":
            await exits()
        case "gather":
            await asyncio.gather(exits(), asyncio.sleep(60))
        case "thread":
            await asyncio.to_thread(exits_at_once)
        case "task that nobody awaits":
            turn.body.setdefault("task", asyncio.create_task(exits()))
            await asyncio.sleep(0.1)
        case "interrupt":
            raise KeyboardInterrupt
        case "generator exit":
            raise GeneratorExit
        case "long":
            for _ in range(200):
                await asyncio.sleep(0.02)
                yield "word "
    yield "done"
"""

WAYS = ["coroutine", "gather", "thread", "interrupt", "generator exit"]


def answer_of(served: ServeProcess, text: str) -> str:
    response = httpx2.post(f"{served.url}/api/chat", json=question(text, chat_id=text), timeout=PATIENCE)
    assert response.status_code == 200
    return response.text


def exit_in_every_way(served: ServeProcess) -> set[str]:
    """Let agents exit while another answers; return the processes that answered."""
    with httpx2.stream("POST", f"{served.url}/api/chat", json=question("long", "long"), timeout=PATIENCE) as other:
        pieces = other.iter_text()
        begin = next(pieces)
        answers = [answer_of(served, way) for way in WAYS]
        left_behind = answer_of(served, "task that nobody awaits")
        rest = begin + "".join(pieces)
    assert ["An error occurred. Reference: " in answer for answer in answers] == [True] * len(WAYS)
    assert '"delta":"done"' in left_behind
    assert '"delta":"done"' in rest
    everything = "".join([*answers, left_behind, rest, answer_of(served, "afterwards")])
    return {word.split(" ")[0] for word in everything.split("process ")[1:]}


def test_the_server_goes_on(tmp_path: Path) -> None:
    (tmp_path / "served_exits.py").write_text(AGENT, encoding="utf-8")
    with serve_process(tmp_path, "served_exits.py:agent") as served:
        assert exit_in_every_way(served) == {str(served.process.pid)}
        assert {
            name for name in ("SystemExit: 3", "KeyboardInterrupt", "GeneratorExit") if name not in served.written
        } == set()


def test_its_workers_go_on(tmp_path: Path) -> None:
    (tmp_path / "served_exits.py").write_text(AGENT, encoding="utf-8")
    with (
        redis_server("valkey") as redis,
        serve_process(tmp_path, "served_exits.py:agent", "--workers", "2", "--redis", redis.url) as served,
    ):
        before = exit_in_every_way(served)
        after = exit_in_every_way(served)
        assert len(before | after) <= 2, "no worker was started again"


async def test_an_app_in_the_loop_of_a_host_leaves_its_task_factory_alone() -> None:
    """Only `usechat serve` and `usechat worker` replace the factory: their loop is ours."""
    loop = asyncio.get_running_loop()
    factories: list[object] = []

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        factories.append(await asyncio.create_task(_task_factory()))
        yield "done"

    transport = httpx2.ASGITransport(ChatApp(agent))
    async with httpx2.AsyncClient(transport=transport, base_url="http://a", timeout=PATIENCE) as client:
        answer = await client.post("/api/chat", json=question())
    assert '"delta":"done"' in answer.text
    assert (factories, loop.get_task_factory()) == ([None], None)


async def _task_factory() -> object:
    return asyncio.get_running_loop().get_task_factory()
