"""Bad days of a server: its clock jumps, its disk is full, a process behind the load balancer is killed."""

import os
import resource
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
from tests.test_operate import COMMANDS, Deployment, Pages, Reader

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


class Disk:
    """A place for a database that can be full, and the words in which SQLite says so."""

    reason = "database or disk is full"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._filler = directory / "filler"

    def fill(self, _server: ServeProcess) -> None:
        """Write until there is no more room."""
        handle = os.open(self._filler, os.O_CREAT | os.O_WRONLY)
        try:
            while True:
                os.write(handle, b"x" * 4096)
        except OSError:
            os.close(handle)

    def make_room(self, _server: ServeProcess) -> None:
        self._filler.unlink()


class Quota(Disk):
    """No file of the server can grow beyond a few pages: that needs no file system of one's own."""

    reason = "disk I/O error"

    def fill(self, server: ServeProcess) -> None:
        self._limit(server, 16 * 1024)

    def make_room(self, server: ServeProcess) -> None:
        self._limit(server, resource.RLIM_INFINITY)

    def _limit(self, server: ServeProcess, size: int) -> None:
        _, most = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, most))


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


@pytest.fixture(params=["file system", "quota"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return Quota(tmp_path) if request.param == "quota" else Disk(request.getfixturevalue("small_disk"))


def test_an_answer_is_stored_when_a_full_disk_has_room_again(stack: ExitStack, directory: Path, disk: Disk) -> None:
    chats = str(disk.directory / "chats.db")
    server = stack.enter_context(serve_process(directory, "my_app:agent", "--chats", chats))
    page = Pages(stack, {}).post(server.url, "c1", "large")
    page.read_until("first ")
    disk.fill(server)
    (directory / "large").touch()
    text = page.read_all()  # the stream ends, although nothing can be stored
    assert text == "first " + "second " * 20_000
    assert httpx2.get(f"{server.url}/readyz", timeout=PATIENCE).status_code == 503
    refusal = httpx2.post(f"{server.url}/api/chat", json=question("x", "c2"), timeout=PATIENCE)
    assert (refusal.status_code, refusal.text) == (503, "The chat database cannot be reached.")
    assert server.written.count("the chat database cannot be written: " + disk.reason) == 1
    disk.make_room(server)
    eventually(lambda: stored_texts(server) == ["large", text], "the whole answer is stored")
    assert httpx2.get(f"{server.url}/readyz", timeout=PATIENCE).status_code == 200
    assert "lost" not in server.written


class Balanced:
    """Two web processes behind nginx, whose pages read the beginning of answers; agents wait at a gate."""

    def __init__(self, stack: ExitStack, directory: Path, *, avoids_processes: bool = False) -> None:
        self._serve_first, serve_second, work = COMMANDS
        self._deployed = Deployment(stack, directory, stack.enter_context(redis_server(next(iter(SERVERS)))).url)
        self._first, self._first_url = self._deployed.web(self._serve_first)
        self._second, self._second_url = self._deployed.web(serve_second)
        self._deployed.worker(work)
        (directory / "nginx").mkdir()
        urls = [self._first_url, self._second_url]
        self._url = stack.enter_context(balancer(urls, directory / "nginx", avoids_processes=avoids_processes))
        self.pages = Pages(stack, self._deployed.headers)
        self.readers = {f"c{number}": self.pages.post(self._url, f"c{number}", "gate") for number in range(12)}
        for reader in self.readers.values():
            reader.read_until("begins, ")

    def kill_both(self) -> None:
        """Kill one web process, start it again, and kill the other: at each moment one is alive.

        Pages ask at once when their process is gone, so nginx finds out.
        """
        _kill(self._first)
        for chat_id in self.readers:
            self.pages.resume(self._url, chat_id)
        self._deployed.web(self._serve_first, self._first_url)
        _kill(self._second)

    def let_agents_end(self) -> None:
        """Open the gate; wait until every agent has ended. No page reads meanwhile."""
        self._deployed.go_on("gate")
        for chat_id in self.readers:
            eventually(lambda: self._state(chat_id) == "finished", f"the answer of {chat_id} has ended")  # noqa: B023

    def _state(self, chat_id: str) -> str:
        url = f"{self._first_url}/api/chat/{chat_id}"
        response = httpx2.get(url, headers=self._deployed.headers, timeout=PATIENCE)
        return str(response.json()["state"])

    def go_on(self, reader: Reader) -> tuple[int, str]:
        """Go on behind the chunks that a page has, through nginx; return the status and all of its text."""
        return self.pages.go_on(self._url, reader)


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE)


def test_every_answer_that_ended_without_web_processes_is_read_to_its_end_through_nginx(
    stack: ExitStack, tmp_path: Path
) -> None:
    balanced = Balanced(stack, tmp_path)
    balanced.kill_both()
    balanced.let_agents_end()
    answers = [balanced.go_on(reader) for reader in balanced.readers.values()]
    assert answers == [(200, "v1 begins, v1 ends")] * len(answers)


def test_without_max_fails_nginx_avoids_a_process_that_is_alive(stack: ExitStack, tmp_path: Path) -> None:
    balanced = Balanced(stack, tmp_path, avoids_processes=True)
    balanced.kill_both()
    balanced.let_agents_end()
    assert 502 in [balanced.go_on(reader)[0] for reader in balanced.readers.values()]
