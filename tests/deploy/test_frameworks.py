"""usechat inside of web frameworks that are installed apart (`frameworks.txt`), as `docs/apps.md` shows it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx2
import pytest

from tests.deploy.programs import missing
from tests.redis_server import free_port
from tests.server.process import PATIENCE, eventually, question
from tests.test_operate import Reader

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ROOT / "build" / "web_frameworks"
PAGE: Final = (ROOT / "docs" / "apps.md").read_text(encoding="utf-8")
AGENT: Final = """
import asyncio
from pathlib import Path
from usechat.server import ChatApp

async def agent(turn):
    try:
        yield f"You said: {turn.text}"
        if turn.text == "wait":
            await asyncio.sleep(600)
    finally:
        Path(f"left-{turn.chat_id}").touch()

chats = ChatApp(agent, drain=1)
"""
PAGES: Final[Mapping[str, str]] = {
    "sanic": """
from sanic import Sanic, response

framework = Sanic("pages")

@framework.get("/hello")
async def hello(request):
    return response.text("Hello")
""",
    "blacksheep": """
from blacksheep import Application

framework = Application()

@framework.router.get("/hello")
async def hello():
    return "Hello"
""",
}
STOPS: Final[Mapping[str, str]] = {
    "sanic": "framework.after_server_stop(lambda app: chats.shut_down())",
    "blacksheep": "framework.on_stop += lambda app: chats.shut_down()",
}
every_framework = pytest.mark.parametrize("name", PAGES)


def write_app(name: str, directory: Path) -> None:
    """Write an app with the agent, the pages of a framework, and what the guide says about both."""
    if not (PACKAGES / name).is_dir():
        missing(name)
    match = re.search(r"^```python\n(def with_chats.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    assert match is not None
    assert f"`{STOPS[name]}`" in PAGE
    text = f"{AGENT}{PAGES[name]}\n{STOPS[name]}\n\n{match[1]}\napp = with_chats(framework)\n"
    (directory / "my_app.py").write_text(text, encoding="utf-8")


def start(directory: Path, *command: str) -> subprocess.Popen[bytes]:
    """Start a module of Python that finds the frameworks."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    with (directory / "output.txt").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", *command], cwd=directory, env=environment, stdout=output, stderr=subprocess.STDOUT
        )


@contextmanager
def serving(directory: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    port = free_port()
    process = start(directory, "uvicorn", "my_app:app", "--port", str(port))
    try:
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: _answers(process, url, directory), "uvicorn answers")
        yield process, url
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _answers(process: subprocess.Popen[bytes], url: str, directory: Path) -> bool:
    assert process.poll() is None, (directory / "output.txt").read_text(encoding="utf-8")
    try:
        return httpx2.get(f"{url}/hello", timeout=5).status_code == 200
    except httpx2.TransportError:
        return False


@every_framework
def test_a_framework_serves_the_chat_beside_its_own_pages(name: str, tmp_path: Path) -> None:
    write_app(name, tmp_path)
    with serving(tmp_path) as (_, url):
        assert httpx2.get(f"{url}/hello", timeout=PATIENCE).text == "Hello"
        assert httpx2.get(f"{url}/nothing", timeout=PATIENCE).status_code == 404
        with httpx2.stream("POST", f"{url}/api/chat", json=question("hi"), timeout=PATIENCE) as response:
            assert Reader(response).read_all() == "You said: hi"


@every_framework
def test_agents_run_their_finally_when_the_framework_stops(name: str, tmp_path: Path) -> None:
    write_app(name, tmp_path)
    body = question("wait", "c1")
    with (
        serving(tmp_path) as (process, url),
        httpx2.stream("POST", f"{url}/api/chat", json=body, timeout=PATIENCE) as response,
    ):
        page = Reader(response)
        page.read_until("You said: wait")
        process.send_signal(signal.SIGTERM)
        with pytest.raises(httpx2.TransportError):
            page.read_all()
        process.wait(PATIENCE)
    assert (tmp_path / "left-c1").exists()
    assert "Application shutdown complete" in (tmp_path / "output.txt").read_text(encoding="utf-8")


def test_the_own_server_of_sanic_refuses_the_app(tmp_path: Path) -> None:
    write_app("sanic", tmp_path)
    process = start(tmp_path, "sanic", "my_app:app", "--single-process", "--port", str(free_port()))
    assert process.wait(PATIENCE) != 0
    output = (tmp_path / "output.txt").read_text(encoding="utf-8")
    assert "with_chats" in output, "it calls the app without arguments, as a function that makes a Sanic app"
