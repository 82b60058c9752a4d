"""Bad days of a server: its clock jumps, its disk is full, a process behind the load balancer is killed."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

import httpx2
import pytest

from tests.deploy.programs import missing
from tests.deploy.proxies import balancer
from tests.redis_server import SERVERS, redis_server
from tests.server.process import PATIENCE, ServeProcess, eventually, question, serve_process
from tests.test_operate import COMMANDS, Deployment, Pages

AGENT: Final = """
import asyncio
from pathlib import Path

async def agent(turn):
    yield "first "
    while not Path(turn.text).exists():
        await asyncio.sleep(0.02)
    yield "second " * (20_000 if turn.text == "large" else 1)
"""
FAKETIME: Final = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "my_app.py").write_text(AGENT, encoding="utf-8")
    return tmp_path


def stored_texts(server: ServeProcess) -> list[str]:
    messages = httpx2.get(f"{server.url}/api/chat/c1/messages", timeout=PATIENCE).json()["messages"]
    return ["".join(part.get("text", "") for part in message["parts"]) for message in messages]


@pytest.mark.parametrize("chats", [["--chats", "chats.db"], []], ids=["SQLite", "memory"])
def test_a_running_answer_survives_a_jump_of_the_clock(stack: ExitStack, directory: Path, chats: list[str]) -> None:
    if not FAKETIME.exists():
        missing("libfaketime")
    clock = directory / "clock"
    clock.write_text("+0\n")
    environment = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    server = stack.enter_context(serve_process(directory, "my_app:agent", *chats, environment=environment))
    page = Pages(stack, {}).post(server.url, "c1", "gate")
    page.read_until("first ")
    clock.write_text("+60\n")
    eventually(lambda: _date(server) > 30, "the clock of the server has jumped")
    # The recorder renews its claim every three seconds, and the collector looks for lost answers every ten.
    time.sleep(12)
    (directory / "gate").touch()
    assert page.read_all() == "first second "
    assert stored_texts(server) == ["gate", "first second "]
    assert "lost" not in server.written


def _date(server: ServeProcess) -> float:
    """Return how many seconds the clock of a server is ahead."""
    response = httpx2.get(f"{server.url}/healthz", timeout=PATIENCE)
    return parsedate_to_datetime(response.headers["date"]).timestamp() - time.time()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], check=False)
    if mount.returncode:
        pytest.skip("a file system cannot be mounted here: that needs root")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_an_answer_is_stored_when_a_full_disk_has_room_again(
    stack: ExitStack, directory: Path, small_disk: Path
) -> None:
    server = stack.enter_context(serve_process(directory, "my_app:agent", "--chats", str(small_disk / "chats.db")))
    page = Pages(stack, {}).post(server.url, "c1", "large")
    page.read_until("first ")
    filler = small_disk / "filler"
    _fill(filler)
    (directory / "large").touch()
    text = page.read_all()  # the stream ends, although nothing can be stored
    assert text == "first " + "second " * 20_000
    assert httpx2.get(f"{server.url}/readyz", timeout=PATIENCE).status_code == 503
    refusal = httpx2.post(f"{server.url}/api/chat", json=question("x", "c2"), timeout=PATIENCE)
    assert (refusal.status_code, refusal.text) == (503, "The chat database cannot be reached.")
    assert server.written.count("the chat database cannot be written: database or disk is full") == 1
    filler.unlink()
    eventually(lambda: stored_texts(server) == ["large", text], "the whole answer is stored")
    assert httpx2.get(f"{server.url}/readyz", timeout=PATIENCE).status_code == 200
    assert "lost" not in server.written


def test_no_answer_is_lost_when_a_web_process_behind_nginx_is_killed(stack: ExitStack, tmp_path: Path) -> None:
    serve_first, serve_second, work = COMMANDS
    deployed = Deployment(stack, tmp_path, stack.enter_context(redis_server(next(iter(SERVERS)))).url)
    (first, first_url), (_, second_url) = deployed.web(serve_first), deployed.web(serve_second)
    deployed.worker(work)
    (tmp_path / "nginx").mkdir()
    url = stack.enter_context(balancer([first_url, second_url], tmp_path / "nginx"))
    pages = Pages(stack, deployed.headers)
    readers = {f"c{number}": pages.post(url, f"c{number}", "gate") for number in range(12)}
    for reader in readers.values():
        reader.read_until("begins, ")
    first.send_signal(signal.SIGKILL)
    first.wait(PATIENCE)
    resumed = [pages.resume(url, chat_id) for chat_id in readers]  # each through nginx, which avoids no process
    deployed.go_on("gate")
    assert [reader.read_all() for reader in resumed] == ["v1 begins, v1 ends"] * len(readers)


def _fill(file: Path) -> None:
    """Write until there is no more room."""
    handle = os.open(file, os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(handle, b"x" * 4096)
    except OSError:
        os.close(handle)
