"""Plain `uvicorn my_app:app`: when it is told to end, open streams do not hold it up."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from tests.server.process import PATIENCE, eventually, question

APPS = """
import asyncio
from fastapi import FastAPI, Request
from usechat import chat_response
from usechat.server import ChatApp

async def endless(turn):
    try:
        while True:
            yield "word "
            await asyncio.sleep(0.05)
    finally:
        print("the agent was closed", flush=True)

async def silent(turn):
    yield "word "
    await asyncio.sleep(3600)

alone = ChatApp(endless, drain=0.2)
quiet = ChatApp(silent, drain=0.2)

mounted = FastAPI()
mounted.mount("/", ChatApp(endless))

wrapped = FastAPI()
wrapped.mount("/", ChatApp(endless))

@wrapped.middleware("http")
async def stamp(request, call_next):
    return await call_next(request)

bare = FastAPI()

@bare.post("/api/chat")
async def chat(request: Request):
    return await chat_response(request, endless)
"""


_READY = ("running on http://", "Application startup complete")


@contextmanager
def uvicorn_process(directory: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run uvicorn as anyone would; yield the process and its URL."""
    (directory / "stock_apps.py").write_text(APPS, encoding="utf-8")
    log = directory / "output.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", *arguments, "--port", "0"],
            cwd=directory,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        eventually(lambda: all(line in log.read_text() for line in _READY), "it starts")
        [url] = re.findall(r"running on (http://\S+)", log.read_text())
        yield process, url
        assert "Traceback" not in log.read_text()
    finally:
        process.kill()
        process.wait()


def read_until_it_goes(process: subprocess.Popen[bytes], url: str) -> tuple[bytes, bool]:
    """Read a stream, end the server; return what was read, and whether the response came to its end."""
    seen: list[bytes] = []
    complete = False
    with httpx2.stream("POST", f"{url}/api/chat", json=question(), timeout=PATIENCE) as response:
        pieces = response.iter_bytes()
        while b"word" not in b"".join(seen):
            seen.append(next(pieces))
        process.terminate()
        told = time.monotonic()
        with suppress(httpx2.RemoteProtocolError):
            seen.extend(pieces)
            complete = True
    process.wait(PATIENCE)
    assert time.monotonic() - told < 15
    return b"".join(seen), complete


@pytest.mark.parametrize("app", ["alone", "quiet", "mounted", "bare"])
def test_an_open_stream_is_broken_off_at_once(tmp_path: Path, app: str) -> None:
    with uvicorn_process(tmp_path, f"stock_apps:{app}") as (process, url):
        seen, complete = read_until_it_goes(process, url)
        assert not complete, "a clean end would look like success"
        assert b"finish" not in seen
        assert process.returncode == -signal.SIGTERM


def test_workers_break_their_streams_off_too(tmp_path: Path) -> None:
    with uvicorn_process(tmp_path, "stock_apps:mounted", "--workers", "2") as (process, url):
        assert not read_until_it_goes(process, url)[1]


def test_behind_middleware_that_ends_every_response_well_the_last_frame_is_an_error(tmp_path: Path) -> None:
    with uvicorn_process(tmp_path, "stock_apps:wrapped") as (process, url):
        seen, complete = read_until_it_goes(process, url)
        assert complete
        assert seen.endswith(b'reload the page to see the whole answer."}\n\n')
