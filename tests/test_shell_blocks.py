"""The shell blocks of the documentation are run as a reader runs them: page by page, line by line, by a shell.

Servers are started, must become ready, and run until the end of their page; other commands must succeed. What a line
needs from the text around it is there: the module of the page's Python blocks, files of tokens, a Redis, a PostgreSQL.
"""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

import httpx2
import pytest
from joserfc.jwk import KeySet, RSAKey

from scripts.generate_docs import ROOT, pages
from tests.adapters.recorded_frameworks import RECORDED_FRAMEWORKS
from tests.client.test_recording import LINES
from tests.postgres_server import postgres_server
from tests.redis_server import SERVERS, free_port, redis_server
from tests.server.process import PATIENCE, eventually, question
from usechat.server import new_api_token

pytestmark = pytest.mark.once

FENCE: Final = re.compile(r"^(?:<!-- not run: ([^\n]+) -->\n+)?^```(\S*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NAMED: Final = re.compile(r"^`([\w./-]+\.(?:py|yaml))`[^\n]*:\n\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SERVER: Final = re.compile(r"\b(usechat (?:serve|demo)|uvicorn)\b")
ASKS_ANOTHER: Final = re.compile(r"--auth|--as |--agents external|--step|_API_KEY|\.py:|\.yaml|demo")
"""A server that needs a token, a model, an agent process or a key to answer: it is started only."""
REGISTRY: Final = re.compile(r"^(?:uv )?(?:pip|npm) install\b")
"""What another test does with the built wheel: tests need no network."""
OTHER_ENVIRONMENT: Final = {f"docs/frameworks/{framework.page}.md" for framework in RECORDED_FRAMEWORKS} | {
    "docs/frameworks.md",  # it quotes the pages of all frameworks
    "docs/temporal.md",  # tests/temporal/test_target.py runs its command
}
"""Pages of what is not installed here; `make test-frameworks` and `make test-temporal` run their examples."""
AGENT: Final = """
async def agent(turn):
    yield f"You said: {turn.text}"

writer = coder = agent
"""


class Block(NamedTuple):
    """A block of a page: its language, its text, and why it is not run."""

    language: str
    text: str
    not_run: str | None


def blocks_of(page: Path) -> list[Block]:
    return [Block(match[2], match[3], match[1]) for match in FENCE.finditer(page.read_text(encoding="utf-8"))]


BLOCKS: Final = {str(page.relative_to(ROOT)): blocks_of(page) for page in pages()}


def shell_blocks(name: str) -> list[Block]:
    return [block for block in BLOCKS[name] if block.language == "sh"]


def commands_in(text: str) -> list[str]:
    """Return the commands of a block without comments; a backslash continues a line."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [command for line in lines if (command := re.sub(r"(^|\s+)#.*", "", line).strip())]


def commands_to_run(name: str) -> list[str]:
    if name in OTHER_ENVIRONMENT:
        return []
    commands = [command for block in shell_blocks(name) if not block.not_run for command in commands_in(block.text)]
    return [command for command in commands if not REGISTRY.match(command) and not command.startswith("make ")]


def test_every_block_names_its_language() -> None:
    assert [(name, block.text) for name, blocks in BLOCKS.items() for block in blocks if not block.language] == []


def test_no_block_is_indented_where_no_test_would_find_it() -> None:
    assert [str(page) for page in pages() if re.search(r"^ +```", page.read_text(encoding="utf-8"), re.MULTILINE)] == []


def test_the_blocks_that_are_not_run_are_these() -> None:
    not_run = [
        (name, " ".join(commands_in(block.text)[0].split()[:4]), block.not_run)
        for name in BLOCKS
        for block in shell_blocks(name)
        if block.not_run
    ]
    assert not_run == [
        ("docs/adapters.md", "usechat serve my_app:agent", "the adapter is installed in test_foreign_adapter.py"),
        ("docs/platforms.md", "kubectl create secret generic", "no cluster in the tests"),
        ("docs/platforms.md", "gcloud run deploy chat", "no account in the tests"),
        ("docs/starter.md", "cd my-chat", "it downloads packages; `make wheel` runs it"),
        ("docs/starter.md", "uv lock --upgrade-package usechat", "it downloads packages"),
        ("docs/tutorial.md", "npm install && npm", "the tutorial's own test builds the page"),
        ("docs/tutorial.md", "npm run build", "the tutorial's own test builds the page"),
        ("docs/tutorial.md", "docker build -t help-desk", "no Docker in the tests"),
    ]


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_extras_and_targets_that_are_named_are_there(name: str) -> None:
    pyproject = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in (command for block in shell_blocks(name) for command in commands_in(block.text)):
        for extra in re.findall(r"usechat\[([\w,-]+)\]", command):
            assert [each for each in extra.split(",") if not re.search(rf"^{each} = \[", pyproject, re.MULTILINE)] == []
        for target in re.findall(r"^make (\S+)", command):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), command


class Reader:
    """A reader of a page, in a directory with the files that the page and the pages before it talk about."""

    def __init__(self, name: str, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._servers: list[str] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        self._logs = 0
        self._write_files(name)

    def _write_files(self, name: str) -> None:
        text = (ROOT / name).read_text(encoding="utf-8")
        named = dict(NAMED.findall(text))
        others = [content for path, content in named.items() if path != "my_app.py"]
        python = "\n".join(
            block.text for block in BLOCKS[name] if block.language == "python" and block.text not in others
        )
        served = "|".join(re.findall(r"my_app(?:\.py)?:(\w+)", text)) or "agent"
        flow = next((block.text for block in BLOCKS[name] if block.language == "yaml"), "")
        _, line = new_api_token("ada")
        files = {
            **named,
            "my_app.py": python if re.search(rf"^(?:async def |def )?(?:{served})\b", python, re.MULTILINE) else AGENT,
            "app.py": AGENT,
            "tokens.txt": line,
            "upstream.txt": "a token",
            "logo.svg": "<svg/>",
            "keys.json": json.dumps(KeySet([RSAKey.generate_key(2048)]).as_dict(private=False)),
            "capture.sse": 'data: {"type":"start"}\n\ndata: {"type":"finish"}\n\ndata: [DONE]\n\n',
            "tour.usechat.jsonl": "\n".join(LINES),
            **dict.fromkeys(("chat-flow.yaml", "flow.yaml"), flow),
        }
        if "redis://localhost:6379" in files["my_app.py"]:
            files["my_app.py"] = files["my_app.py"].replace("redis://localhost:6379", self._redis())
        for path, content in files.items():
            (self._directory / path).write_text(content, encoding="utf-8")
        (self._directory / "examples").symlink_to(ROOT / "examples")

    def do(self, command: str) -> None:
        """Run a command to its end, or start it if it is a server."""
        if "usechat record" in command:
            self._record(command)
        elif SERVER.search(command):
            self._serve(command)
        elif "usechat worker" in command:
            self._start(self._here(command))
        else:
            if "http://localhost:8000" in command and not self._servers:
                self._serve("usechat serve my_app:agent")
            self._run(self._here(command))

    def _serve(self, command: str) -> None:
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        process, log = self._start(f"{self._here(re.sub(r'--port [0-9]+', '', command))} --port {port}")
        eventually(lambda: process.poll() is not None or _status(f"{address}/healthz") in (200, 404), command)
        assert process.poll() is None, log.read_text()
        if not ASKS_ANOTHER.search(command):
            answer = httpx2.post(f"{address}/api/chat", json=question("hi"), timeout=PATIENCE)
            assert (answer.status_code, "finish" in answer.text) == (200, True), log.read_text()
        self._servers.append(address)

    def _record(self, command: str) -> None:
        """Record an answer of a server, and end the recording."""
        self._serve("usechat serve my_app:agent")
        self._serve(command.replace("http://localhost:3000", self._servers[-1]))
        _end(self._processes[-1])

    def _here(self, command: str) -> str:
        """Return a command for what runs here, instead of what runs at the reader's."""
        if "redis://localhost:6379" in command:
            command = command.replace("redis://localhost:6379", self._redis())
        if "postgresql+asyncpg://user@localhost/chats" in command:
            command = command.replace("postgresql+asyncpg://user@localhost/chats", shlex.quote(self._postgresql()))
        return command.replace("http://localhost:8000", self._servers[-1] if self._servers else "http://localhost:8000")

    def _redis(self) -> str:
        if not hasattr(self, "_redis_url"):
            self._redis_url = self._stack.enter_context(redis_server(next(iter(SERVERS)))).url
        return self._redis_url

    def _postgresql(self) -> str:
        if not hasattr(self, "_postgresql_url"):
            self._postgresql_url = self._stack.enter_context(postgres_server())
        return self._postgresql_url.replace("postgresql://", "postgresql+asyncpg://")

    def _run(self, command: str) -> None:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self._directory,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"

    def _start(self, command: str) -> tuple["subprocess.Popen[bytes]", Path]:
        self._logs += 1
        log = self._directory / f"log-{self._logs}"
        assignments, program = re.fullmatch(r"((?:\w+=\S+ )*)(.*)", command, re.DOTALL).groups()  # type: ignore[union-attr]
        with log.open("w") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"{assignments} exec {program}"],
                cwd=self._directory,
                env=_environment(),
                stdin=self._terminal() if "--step" in command else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._processes.append(process)
        self._stack.callback(_end, process)
        return process, log

    def _terminal(self) -> int:
        """Open a terminal in which nobody presses a key."""
        ours, theirs = pty.openpty()
        self._stack.callback(os.close, theirs)
        self._stack.callback(os.close, ours)
        return theirs


def _environment() -> dict[str, str]:
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": programs, "BROWSER": "true", "OPENAI_API_KEY": "none", "ANTHROPIC_API_KEY": "none"}


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()


def _status(url: str) -> int:
    try:
        return httpx2.get(url, timeout=5).status_code
    except httpx2.TransportError:
        return 0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("name", [name for name in sorted(BLOCKS) if commands_to_run(name)])
def test_the_commands_of_a_page_work(name: str, tmp_path: Path, stack: ExitStack) -> None:
    reader = Reader(name, tmp_path, stack)
    for command in commands_to_run(name):
        reader.do(command)
