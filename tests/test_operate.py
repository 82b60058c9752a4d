"""The page for operators: its commands are run, and answers survive the deployments that it describes."""

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from tests.redis_server import SERVERS, free_port, redis_server
from tests.server.metrics_page import parse_samples
from tests.server.process import PATIENCE, eventually, question
from usechat import ChunkDecoder
from usechat.protocol.chunks import TextDeltaChunk
from usechat.server import new_api_token

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^usechat (?:serve|worker) .*", PAGE, re.MULTILINE)
AGENT = """
import asyncio
from pathlib import Path

async def agent(turn):
    yield "{version} begins, "
    while not Path(turn.text).exists():
        await asyncio.sleep(0.02)
    yield "{version} ends"
"""


class Deployment:
    """The processes that the page names, in a directory with an agent."""

    def __init__(self, stack: ExitStack, directory: Path, url: str) -> None:
        self._stack = stack
        self._directory = directory
        self._url = url
        token, line = new_api_token("ada")
        (directory / "tokens.txt").write_text(line, encoding="utf-8")
        self.headers = {"authorization": f"Bearer {token}"}
        self.deploy_code("v1")

    def deploy_code(self, version: str) -> None:
        (self._directory / "my_app.py").write_text(AGENT.format(version=version))

    def go_on(self, gate: str) -> None:
        (self._directory / gate).touch()

    def web(self, command: str, url: str | None = None) -> tuple[subprocess.Popen[bytes], str]:
        """Start a web process, again at the URL of one that has ended; wait until it is ready."""
        port = free_port() if url is None else int(url.rpartition(":")[2])
        process = self._start(re.sub(r"--port \d+", f"--port {port}", command))
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: _status(f"{url}/readyz") == 200, "the web process is ready")
        return process, url

    def worker(self, command: str) -> subprocess.Popen[bytes]:
        """Start an agent process; wait until it takes messages."""
        process = self._start(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert b"usechat worker answers for my_app:agent" in process.stdout.readline()
        return process

    def _start(self, command: str, **options: Any) -> subprocess.Popen[bytes]:
        program, *arguments = shlex.split(command.replace("redis://localhost:6379", self._url))
        assert program == "usechat"
        run = [sys.executable, "-c", "import sys; from usechat.cli import main; sys.exit(main())", *arguments]
        return self._stack.enter_context(_ending(subprocess.Popen(run, cwd=self._directory, **options)))


@contextmanager
def _ending(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _status(url: str) -> int:
    try:
        return httpx2.get(url, timeout=5).status_code
    except httpx2.TransportError:
        return 0


class Reader:
    """What a page reads of one answer; the connection may break off."""

    def __init__(self, response: Any) -> None:
        self._pieces = response.iter_bytes()
        self._decoder = ChunkDecoder()
        self.run_id = response.headers.get("x-workflow-run-id", "")
        self.chunks = 0
        self.text = ""

    def read_until(self, text: str) -> None:
        while text not in self.text:
            self._read(next(self._pieces))

    def read_all(self) -> str:
        for piece in self._pieces:
            self._read(piece)
        return self.text

    def _read(self, piece: bytes) -> None:
        for chunk in self._decoder.receive(piece):
            self.chunks += 1
            self.text += chunk.delta if isinstance(chunk, TextDeltaChunk) else ""


class Pages:
    """Pages that read answers at any of the web processes."""

    def __init__(self, stack: ExitStack, headers: Mapping[str, str]) -> None:
        self._stack = stack
        self._client = stack.enter_context(httpx2.Client(headers=headers, timeout=PATIENCE))

    def post(self, url: str, chat_id: str, gate: str) -> Reader:
        return self._read("POST", f"{url}/api/chat", json=question(gate, chat_id))

    def resume(self, url: str, chat_id: str) -> Reader:
        return self._read("GET", f"{url}/api/chat/{chat_id}/stream")

    def go_on(self, url: str, reader: Reader) -> tuple[int, str]:
        """Go on behind the chunks of a page, as ``WorkflowChatTransport`` does; return the status and all text."""
        place = f"{url}/api/chat/{reader.run_id}/stream?startIndex={reader.chunks}"
        response = self._client.get(place)
        chunks = ChunkDecoder().receive(response.content) if response.status_code == 200 else []
        rest = "".join(chunk.delta for chunk in chunks if isinstance(chunk, TextDeltaChunk))
        return response.status_code, reader.text + rest

    def _read(self, method: str, url: str, **options: Any) -> Reader:
        response = self._stack.enter_context(self._client.stream(method, url, **options))
        assert response.status_code == 200, response.read()
        return Reader(response)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_answers_survive_a_rolling_deployment_of_web_and_agent_processes(stack: ExitStack, tmp_path: Path) -> None:
    url = stack.enter_context(redis_server(next(iter(SERVERS)))).url
    serve_first, serve_second, work = COMMANDS
    deployed = Deployment(stack, tmp_path, url)
    (first, first_url), (_, second_url) = deployed.web(serve_first), deployed.web(serve_second)
    old = deployed.worker(work)
    pages = Pages(stack, deployed.headers)

    page = pages.post(first_url, "chat", "gate")
    page.read_until("v1 begins, ")
    first.send_signal(signal.SIGTERM)  # a deployment of the web processes
    with pytest.raises((httpx2.TransportError, StopIteration)):
        page.read_until("never")
    assert first.wait(PATIENCE) in (0, -signal.SIGTERM)
    page = pages.resume(second_url, "chat")
    page.read_until("v1 begins, ")

    deployed.deploy_code("v2")  # a deployment of the agents
    deployed.worker(work)
    old.send_signal(signal.SIGTERM)
    other = pages.post(second_url, "other", "other-gate")
    other.read_until("begins, ")
    deployed.go_on("gate")
    deployed.go_on("other-gate")
    page.read_until("ends")
    other.read_until("ends")
    assert page.text == "v1 begins, v1 ends"
    assert other.text in ("v1 begins, v1 ends", "v2 begins, v2 ends"), "the old process may have taken it just before"
    assert old.wait(PATIENCE) == 0
    last = pages.post(second_url, "last", "gate")
    last.read_until("ends")
    assert last.text == "v2 begins, v2 ends"


def test_the_alerts_of_the_page_are_those_of_the_rules_file() -> None:
    groups = yaml.safe_load((ROOT / "ops" / "prometheus-rules.yml").read_text(encoding="utf-8"))["groups"]
    alerts = [rule["alert"] for group in groups for rule in group["rules"] if "alert" in rule]
    assert re.findall(r"^\| `(Usechat\w+)` \|", PAGE, re.MULTILINE) == alerts


def test_the_page_of_a_web_process_has_what_the_alert_about_waiting_messages_reads(
    stack: ExitStack, tmp_path: Path
) -> None:
    groups = yaml.safe_load((ROOT / "ops" / "prometheus-rules.yml").read_text(encoding="utf-8"))["groups"]
    (rule,) = groups[1]["rules"]
    assert (groups[1]["name"], rule["expr"]) == ("usechat-agents", "max(adapter_turns_oldest_seconds) > 30")
    deployed = Deployment(stack, tmp_path, stack.enter_context(redis_server(next(iter(SERVERS)))).url)
    _, url = deployed.web(COMMANDS[0])
    samples = parse_samples(httpx2.get(f"{url}/metrics", headers=deployed.headers, timeout=PATIENCE).text)
    assert samples["adapter_turns_oldest_seconds"] == 0


def test_the_commands_are_the_three_processes() -> None:
    assert [shlex.split(command)[1] for command in COMMANDS] == ["serve", "serve", "worker"]
