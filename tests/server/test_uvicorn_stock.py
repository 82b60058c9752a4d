"""Plain `uvicorn my_app:app`: when it is told to end, open streams do not hold it up."""

import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn

from tests.certificate import write_certificate
from tests.server.process import PATIENCE, eventually, question
from usechat.runs.log import Log
from usechat.runs.reading import LogReading
from usechat.server.connection import ClientWatch
from usechat.server.uvicorn import SteppedClientWatch, UvicornServer

APPS = """
import asyncio
from fastapi import FastAPI, Request
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from usechat import chat_response
from usechat.server import ChatApp, Settings

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
plain = ChatApp(endless, drain=0.2, settings=Settings(plain_asgi=True))
quiet = ChatApp(silent, drain=0.2)

mounted = FastAPI()
mounted.mount("/", ChatApp(endless))

bare = FastAPI()

@bare.post("/api/chat")
async def chat(request: Request):
    return await chat_response(request, endless)

async def pass_on(request, call_next):
    return await call_next(request)

class Copying:  # passes a copy of the scope on, and a `receive` of its own
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        await self.app(dict(scope), lambda: receive(), send)

def behind(*middleware):
    app = FastAPI(middleware=list(middleware))
    app.mount("/mounted", ChatApp(endless))
    app.post("/bare/api/chat")(chat)
    return app

base, gzip, copying = Middleware(BaseHTTPMiddleware, pass_on), Middleware(GZipMiddleware), Middleware(Copying)
wrapped = FastAPI()
wrapped.mount("/base", behind(base))
wrapped.mount("/gzip", behind(gzip))
wrapped.mount("/copying", behind(copying))
wrapped.mount("/all", behind(base, gzip, copying, base))
"""

PROTOCOLS = [name for name in ("h11", "httptools") if find_spec(name)]
LOOPS = [name for name in ("asyncio", "uvloop") if find_spec(name)]

_READY = ("running on http", "Application startup complete")


@contextmanager
def uvicorn_process(
    directory: Path, *arguments: str, is_quiet: bool = True
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
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
        [url] = re.findall(r"running on (https?://\S+)", log.read_text())
        eventually(lambda: accepts(url), "it listens")  # a worker says that it is ready, and listens then
        yield process, url
        assert not is_quiet or not re.search("Traceback|ERROR|WARNING", log.read_text())
    finally:
        process.kill()
        process.wait()


def accepts(url: str) -> bool:
    """Tell whether somebody listens at a URL."""
    address = httpx2.URL(url)
    try:
        socket.create_connection((address.host, address.port or 0), timeout=PATIENCE).close()
    except ConnectionRefusedError:
        return False
    return True


class Stream:
    """An answer that is being read."""

    def __init__(self, response: httpx2.Response) -> None:
        self.content = b""
        self.complete = False
        self._pieces = response.iter_bytes()

    def begin(self) -> None:
        while b"word" not in self.content:
            self.content += next(self._pieces)

    def read_on(self) -> None:
        with suppress(httpx2.RemoteProtocolError, httpx2.ReadError):
            for piece in self._pieces:
                self.content += piece
            self.complete = True


def read_until_it_goes(process: subprocess.Popen[bytes], *urls: str) -> list[Stream]:
    """Read streams, end the server; return what was read."""
    with httpx2.Client(timeout=PATIENCE, verify=False) as client, ExitStack() as stack:
        responses = [client.stream("POST", f"{url}/api/chat", json=question()) for url in urls]
        streams = [Stream(stack.enter_context(response)) for response in responses]
        for stream in streams:
            stream.begin()
        process.terminate()
        for stream in streams:
            stream.read_on()
        process.wait(PATIENCE)
    return streams


@pytest.mark.parametrize("app", ["alone", "quiet", "mounted", "bare"])
def test_an_open_stream_is_disconnected_at_once(tmp_path: Path, app: str) -> None:
    with uvicorn_process(tmp_path, f"stock_apps:{app}") as (process, url):
        [stream] = read_until_it_goes(process, url)
        assert not stream.complete, "a clean end would look like success"
        assert (b"finish" in stream.content, b"error" in stream.content) == (False, False)
        assert process.returncode == -signal.SIGTERM


def test_workers_break_their_streams_off_too(tmp_path: Path) -> None:
    with uvicorn_process(tmp_path, "stock_apps:mounted", "--workers", "2") as (process, url):
        assert not read_until_it_goes(process, url)[0].complete


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("http", PROTOCOLS)
def test_an_open_stream_behind_middleware_is_disconnected_likewise(tmp_path: Path, http: str, loop: str) -> None:
    """Such as `BaseHTTPMiddleware`, which ends every response well."""
    paths = [f"{middleware}/{way}" for middleware in ("base", "gzip", "copying", "all") for way in ("mounted", "bare")]
    with uvicorn_process(tmp_path, "stock_apps:wrapped", "--http", http, "--loop", loop) as (process, url):
        streams = read_until_it_goes(process, *(f"{url}/{path}" for path in paths))
        assert [(path, stream.complete) for path, stream in zip(paths, streams, strict=True)] == [
            (path, False) for path in paths
        ]
        assert [b"error" in stream.content for stream in streams] == [False] * len(paths)


@pytest.mark.parametrize("loop", LOOPS)
def test_an_encrypted_stream_is_disconnected_likewise(tmp_path: Path, loop: str) -> None:
    write_certificate(tmp_path / "both.pem")
    options = ("--loop", loop, "--ssl-certfile", "both.pem", "--ssl-keyfile", "both.pem")
    with uvicorn_process(tmp_path, "stock_apps:alone", *options) as (process, url):
        assert url.startswith("https:")
        [stream] = read_until_it_goes(process, url)
        assert (stream.complete, b"error" in stream.content) == (False, False)


def test_over_plain_asgi_an_open_stream_ends_with_uvicorn_s_grace_period(tmp_path: Path) -> None:
    options = ("stock_apps:plain", "--timeout-graceful-shutdown", "1")
    with uvicorn_process(tmp_path, *options, is_quiet=False) as (process, url):
        began = time.monotonic()
        [stream] = read_until_it_goes(process, url)
        assert not stream.complete, "a clean end would look like success"
        assert time.monotonic() - began >= 1, "uvicorn waits for the stream, of which it knows no end"
        assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("release", ["0.39.0", "0.55.0", "1.0", "nonsense"])
async def test_a_release_that_was_not_tested_is_served_over_plain_asgi_and_the_log_says_so_once(
    release: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(uvicorn, "__version__", release)
    for _ in range(2):
        assert type(watch()) is ClientWatch
    [line] = {record.getMessage() for record in caplog.records}
    assert line.startswith(f"usechat was tested with uvicorn 0.40 to 0.54, not with {release}: ")


@pytest.mark.parametrize("release", ["0.40.0", "0.54.7", "0.47.0rc1"])
async def test_the_internals_of_a_tested_release_are_used(
    release: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(uvicorn, "__version__", release)
    assert type(watch()) is SteppedClientWatch
    assert caplog.records == []


async def test_the_release_in_this_environment_is_a_tested_one() -> None:
    assert type(watch()) is SteppedClientWatch


def watch() -> ClientWatch:
    """Return how the client of a request to uvicorn is watched."""

    class RequestResponseCycle:
        __module__ = "uvicorn.protocols.http.h11_impl"

        async def receive(self) -> Any:
            raise NotImplementedError

    log = Log()
    return UvicornServer().watch_client(
        RequestResponseCycle().receive, LogReading(log.reader(), log, on_close=lambda _log: None)
    )
