"""A chat app that is mounted in another app: paths with a slash, and a shutdown that it is not told of."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from litestar import Litestar, asgi
from litestar.testing import TestClient
from litestar.types import Receive, Scope, Send
from starlette.requests import Request

from tests.redis_server import free_port
from tests.server.process import eventually, question
from usechat.server import ChatApp

pytestmark = pytest.mark.external_agents

PROGRAM = """
import asyncio, pathlib, sys, time
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from usechat.server import ChatApp

async def coroutine(turn):
    try:
        yield "one"
        pathlib.Path("begun").touch()
        await asyncio.Event().wait()
    finally:
        pathlib.Path("saved").touch()

def thread(turn):
    try:
        yield "one"
        pathlib.Path("begun").touch()
        while not turn.stopped:
            time.sleep(0.01)
    finally:
        time.sleep(0.3)
        pathlib.Path("saved").touch()

app = Starlette(routes=[Mount("/", ChatApp(globals()[sys.argv[1]]))])
uvicorn.run(app, port=int(sys.argv[2]), log_level="error", timeout_graceful_shutdown=5)
"""


@pytest.mark.parametrize("agent", ["coroutine", "thread"])
def test_agents_run_their_finally_although_a_mounted_app_is_not_told_of_the_shutdown(
    agent: str, tmp_path: Path
) -> None:
    port = free_port()
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, agent, str(port)], cwd=tmp_path)
    try:
        url = f"http://127.0.0.1:{port}"

        def is_answering() -> bool:
            assert process.poll() is None
            try:
                return httpx2.get(f"{url}/healthz").status_code == 200
            except httpx2.TransportError:
                return False

        eventually(is_answering, "the server answers")
        with httpx2.stream("POST", f"{url}/api/chat", json=question()):
            eventually((tmp_path / "begun").exists, "the agent begins")
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    finally:
        process.kill()
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    ("path", "raw_path", "chat_id"),
    [
        ("/api/chat/c1", b"/api/chat/c1", "c1"),
        ("/api/chat/c1/", b"/api/chat/c1", "c1"),
        ("/api/chat/c1/", b"/api/chat/c1/", "c1/"),
        ("api/chat/c1/", b"/api/chat/c1", "c1"),
        ("/api/chat/c1/", b"/mounted/api/chat/c1", "c1"),
    ],
)
async def test_a_framework_may_change_slashes_of_the_path(path: str, raw_path: bytes, chat_id: str) -> None:
    chat_ids: list[str] = []

    async def authorize(_request: Request, chat_id: str, _action: str) -> None:
        chat_ids.append(chat_id)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(_event: Any) -> None:
        pass

    scope = {"type": "http", "method": "GET", "path": path, "raw_path": raw_path, "query_string": b"", "headers": []}
    await ChatApp(lambda _turn: "Hello!", authorize=authorize)(scope, receive, send)
    assert chat_ids == [chat_id]


@pytest.mark.parametrize("place", ["", "/nested"])
def test_an_app_in_litestar_answers_on_every_route(place: str) -> None:
    """Litestar gives a mounted app paths with a slash at the end, and at "/" without the one at the beginning."""
    chats = ChatApp(lambda _turn: "Hello!")

    @asgi(place or "/", is_mount=True, copy_scope=True)
    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await chats(scope, receive, send)

    with TestClient(Litestar([mounted], on_shutdown=[chats.shut_down], logging_config=None)) as client:
        for path in ("/api/chat", "/api/chat/"):
            answer = client.post(f"{place}{path}", json=question())
            assert (answer.status_code, "Hello!" in answer.text) == (200, True)
        assert client.get(f"{place}/api/chat/c1").json()["state"] == "finished"
        assert client.get(f"{place}/api/chat/c1/stream").status_code == 204
        assert client.post(f"{place}/api/chat/c1/stop").status_code == 204
        assert client.get(f"{place}/healthz").text == "ok"


async def test_a_path_with_a_slash_at_its_end_is_the_same() -> None:
    app = ChatApp(lambda _turn: "Hello!", also=["/other"])
    transport = httpx2.ASGITransport(app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://a", timeout=60) as client:
        posted = [await client.post(path, json=question()) for path in ("/api/chat/", "/other/")]
        assert [(each.status_code, b"Hello!" in each.content) for each in posted] == [(200, True)] * 2
        assert (await client.post("/api/chat/c1/stop/")).status_code == 204
        assert (await client.get("/api/chat/c1/stream/")).status_code == 204
    await app.shut_down()
