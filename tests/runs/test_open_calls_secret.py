"""The secret that nobody chose: one per process, or one for all workers of `usechat serve`."""

import os
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.server.process import PATIENCE, eventually, question, serve_process
from usechat.protocol.message import MessageBuilder
from usechat.protocol.sse import ChunkDecoder
from usechat.runs.open_calls import own_secret, share_secret

pytestmark = pytest.mark.slow

APP = """
import os
import subprocess
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from usechat import ToolCall
from usechat.server import Settings, chat_response

async def asking(turn):
    inherited = subprocess.run(["env"], stdout=subprocess.PIPE, check=True).stdout
    yield f"{os.getpid()} {len(turn.tool_outputs)} {b'USECHAT_SERVE' in inherited}"
    if not turn.request.continues:
        yield ToolCall("t1", "ask", {})

async def chat(request):
    plain = os.environ.get("USECHAT_TEST_PLAIN_ASGI") == "1"
    return await chat_response(request, asking, settings=Settings(plain_asgi=plain))

async def healthy(request):
    return PlainTextResponse("ok")

app = Starlette(routes=[Route("/api/chat", chat, methods=["POST"]), Route("/healthz", healthy)])
"""


def test_a_process_has_one_secret_until_it_is_given_another() -> None:
    before = own_secret()
    assert own_secret() == before
    assert len(before) >= 32
    try:
        share_secret("of all workers")
        assert own_secret() == "of all workers"
    finally:
        share_secret(before)


def posted(url: str, *messages: Any) -> Any:
    """Post messages; return the message that comes back, which goes on with the last one."""
    answer = httpx2.post(f"{url}/api/chat", json={**question(), "messages": messages}, timeout=PATIENCE)
    builder = MessageBuilder(sdk="7", message=messages[-1] if messages[-1]["role"] == "assistant" else None)
    for chunk in ChunkDecoder().receive(answer.content):
        builder.receive(chunk)
    return builder.message


def test_workers_take_what_another_asked_for_and_what_they_start_does_not_know_their_secret(tmp_path: Path) -> None:
    (tmp_path / "bare.py").write_text(APP)
    [user] = question()["messages"]
    with serve_process(tmp_path, "bare:app", "--workers", "2", is_app=True) as served:
        message = posted(served.url, user)
        output = {"state": "output-available", "output": 1}
        message["parts"] = [part | output if "toolCallId" in part else part for part in message["parts"]]
        replies: dict[int, tuple[str, str]] = {}

        def answer_of(number: int) -> bool:
            try:
                worker, outputs, inherited = posted(served.url, user, message)["parts"][-1]["text"].split()
            except httpx2.TransportError:  # the worker that is killed
                return False
            replies[int(worker)] = (outputs, inherited)
            return len(replies) == number

        eventually(lambda: answer_of(2), "both workers answer")
        os.kill(min(replies), signal.SIGKILL)
        eventually(lambda: answer_of(3), "the worker that takes its place answers")
    assert set(replies.values()) == {("1", "False")}
