"""On each ASGI server: answers, resume, stop, disconnects, sockets, and an exit with open streams."""

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeAlias

import httpx2
import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.deploy.matrix import SERVERS, WORKS
from tests.deploy.programs import missing
from tests.redis_server import free_port
from tests.server.process import PATIENCE, eventually, question
from tests.server.socket_apps import Client
from tests.test_operate import Reader

Measured: TypeAlias = Callable[[str, str, float], None]

APP: Final = """
import asyncio
from pathlib import Path
from usechat.server import ChatApp, Settings

async def agent(turn):
    try:
        yield "first "
        while turn.text != "hi" and not Path(turn.text).exists():
            await asyncio.sleep(0.02)
        yield "second"
    finally:
        Path(f"left-{turn.chat_id}").touch()

app = ChatApp(agent, settings=Settings(disconnect="DISCONNECT"), drain=DRAIN)
"""
DRAIN: Final = 1.0
AT_ONCE: Final = 10.0
"""Seconds that a loaded machine may take for what happens at once."""
STREAMS: Final = 20


class Running:
    """A server that answers, and the directory in which its agent leaves files."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path, url: str) -> None:
        self.process = process
        self.url = url
        self._directory = directory

    def go_on(self, gate: str) -> None:
        (self._directory / gate).touch()

    def has_left(self, chat_id: str) -> bool:
        return (self._directory / f"left-{chat_id}").exists()

    @contextmanager
    def asking(self, chat_id: str, gate: str = "hi") -> Iterator[Reader]:
        body = question(gate, chat_id)
        with httpx2.stream("POST", f"{self.url}/api/chat", json=body, timeout=PATIENCE) as response:
            yield Reader(response)


@contextmanager
def serving(name: str, directory: Path, disconnect: str = "continue") -> Iterator[Running]:
    if find_spec(name) is None:
        missing(name)
    (directory / "my_app.py").write_text(
        APP.replace("DISCONNECT", disconnect).replace("DRAIN", str(DRAIN)), encoding="utf-8"
    )
    port = free_port()
    command = [sys.executable, "-m", *shlex.split(SERVERS[name].command.replace("8000", str(port)))]
    with (directory / "output.txt").open("wb") as output:
        process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=subprocess.STDOUT)
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: _answers(process, url, directory), f"{name} answers")
        yield Running(process, directory, url)
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _answers(process: subprocess.Popen[bytes], url: str, directory: Path) -> bool:
    assert process.poll() is None, (directory / "output.txt").read_text(encoding="utf-8")
    try:
        return httpx2.get(f"{url}/healthz", timeout=5).status_code == 200
    except httpx2.TransportError:
        return False


def works(check: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", [name for name, server in SERVERS.items() if server.result(check) == WORKS])


@pytest.mark.parametrize("name", SERVERS)
def test_an_answer_is_streamed_resumed_and_stopped_over_http_and_a_socket(name: str, tmp_path: Path) -> None:
    results = dict.fromkeys(("text", "resume", "stop", "WebSocket"), False)
    with serving(name, tmp_path) as server:
        with server.asking("c1", "gate") as page:
            page.read_until("first ")
            with httpx2.stream("GET", f"{server.url}/api/chat/c1/stream", timeout=PATIENCE) as response:
                other = Reader(response)
                other.read_until("first ")
                server.go_on("gate")
                results["text"] = page.read_all() == "first second"
                results["resume"] = other.read_all() == "first second"
        with server.asking("c2", "never") as page:
            page.read_until("first ")
            httpx2.post(f"{server.url}/api/chat/c2/stop", timeout=PATIENCE)
            results["stop"] = page.read_all() == "first " and server.has_left("c2")
        with connect(f"{server.url.replace('http', 'ws', 1)}/api/chat/ws", origin=Origin(server.url)) as connection:
            client = Client(connection)
            client.send("r1", "c3", "hi")
            results["WebSocket"] = client.text("r1") == "first second"
    assert results == {check: SERVERS[name].result(check) == WORKS for check in results}


@works("disconnect")
def test_an_agent_is_cancelled_when_its_client_leaves(name: str, tmp_path: Path, measured: Measured) -> None:
    with serving(name, tmp_path, "cancel") as server:
        with server.asking("c1", "never") as page:
            page.read_until("first ")
        begin = time.monotonic()
        eventually(lambda: server.has_left("c1"), "the agent is cancelled")
        measured(name, "disconnect", time.monotonic() - begin)


@works("SIGTERM")
def test_at_sigterm_pages_are_disconnected_and_agents_run_their_finally(
    name: str, tmp_path: Path, measured: Measured
) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(serving(name, tmp_path))
        pages = [stack.enter_context(server.asking(f"c{number}", "never")) for number in range(STREAMS)]
        for page in pages:
            page.read_until("first ")
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        with ThreadPoolExecutor(STREAMS) as pool:
            ends = list(pool.map(_end_of, pages))
        cut = time.monotonic() - begin
        assert ends == ["cut"] * STREAMS, "an end that looks complete would end the answer on the page"
        server.process.wait(PATIENCE)
        exit_ = time.monotonic() - begin
        measured(name, "pages", cut)
        measured(name, "exit", exit_)
        assert cut < AT_ONCE, "pages resume at another process, so nothing is waited for"
        assert DRAIN < exit_ < DRAIN + AT_ONCE, "agents have as long as `drain`"
        assert [server.has_left(f"c{number}") for number in range(STREAMS)] == [True] * STREAMS


def _end_of(page: Reader) -> str:
    try:
        page.read_all()
    except httpx2.TransportError:
        return "cut"
    return "complete"
