"""Behind each proxy, with the configuration of the page: streams, sockets, uploads, addresses and sub paths."""

import base64
import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import httpx2
import pytest
from websockets.sync.client import connect

from tests.deploy.matrix import AT_COMMENT, PROXIES, WORKS
from tests.deploy.programs import program
from tests.deploy.proxies import RunningProxy, proxy
from tests.server.process import ServeProcess, eventually, question, serve_process
from tests.server.socket_apps import Client
from usechat import ChunkDecoder
from usechat.protocol.chunks import TextDeltaChunk
from usechat.server import new_api_token

Measured: TypeAlias = Callable[[str, str, float], None]

SILENCE: Final = 75
PATIENCE: Final = 150.0
NOTICED: Final = 30.0
"""Seconds in which a client that has left is noticed: fewer than the timeouts of the proxies."""
AGENT: Final = f"""
import asyncio
import base64
from pathlib import Path

async def agent(turn):
    match turn.text.split():
        case ["silence"]:
            yield "one "
            await asyncio.sleep({SILENCE})
            yield "two"
        case ["wait", name]:
            try:
                yield "waits "
                await asyncio.sleep(600)
            finally:
                Path(name).touch()
        case ["gate", name]:
            yield "first "
            while not Path(name).exists():
                await asyncio.sleep(0.02)
            yield "second"
        case _:
            yield f"You said: {{turn.text}}"
            for file in turn.files:
                yield f" with {{len(base64.b64decode(file['url'].partition(',')[2]))}} bytes"
"""
FORGED: Final = "203.0.113.9"
VISITOR: Final = "127.0.0.7"


class Site:
    """A server behind a proxy, and a directory that its agent writes to."""

    def __init__(self, server: ServeProcess, running: RunningProxy, directory: Path, token: str) -> None:
        self.server = server
        self.url = running.url
        self.origin = running.origin
        self.certificate = running.certificate
        self.directory = directory
        self.headers = {"authorization": f"Bearer {token}", "origin": running.origin}

    @property
    def tls(self) -> ssl.SSLContext | bool:
        return ssl.create_default_context(cafile=str(self.certificate)) if self.certificate else True

    def client(self, **options: Any) -> httpx2.Client:
        return httpx2.Client(verify=self.tls, base_url=self.url, headers=self.headers, timeout=PATIENCE, **options)


def read(response: httpx2.Response) -> str:
    chunks = ChunkDecoder().receive(response.content)
    return "".join(chunk.delta for chunk in chunks if isinstance(chunk, TextDeltaChunk))


class Sites:
    """Starts each server and each proxy once, when a test needs it."""

    def __init__(self, stack: ExitStack, factory: pytest.TempPathFactory) -> None:
        self._stack = stack
        self._factory = factory
        self._servers: dict[tuple[str, ...], tuple[ServeProcess, Path, str]] = {}
        self._sites: dict[tuple[str, ...], Site] = {}

    def site(self, name: str, *options: str) -> Site:
        if (name, *options) not in self._sites:
            server, directory, token = self._server(options)
            behind = proxy(name, server.url, self._factory.mktemp(name), sub_path="--root-path" in options)
            running = self._stack.enter_context(behind)
            self._sites[name, *options] = Site(server, running, directory, token)
        return self._sites[name, *options]

    def _server(self, options: tuple[str, ...]) -> tuple[ServeProcess, Path, str]:
        if options not in self._servers:
            directory = self._factory.mktemp("server")
            token, line = new_api_token("ada")
            (directory / "tokens.txt").write_text(line, encoding="utf-8")
            (directory / "my_app.py").write_text(AGENT, encoding="utf-8")
            serve = serve_process(directory, "my_app:agent", "--auth", "tokens:tokens.txt", *options)
            self._servers[options] = self._stack.enter_context(serve), directory, token
        return self._servers[options]


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    with ExitStack() as stack:
        yield Sites(stack, tmp_path_factory)


def works(check: str) -> pytest.MarkDecorator:
    """Return the proxies in which a check works."""
    return pytest.mark.parametrize("name", [name for name, entry in PROXIES.items() if entry.result(check) == WORKS])


@works("text")
def test_the_words_of_an_answer_arrive_one_by_one(name: str, sites: Sites, measured: Measured) -> None:
    site = sites.site(name)
    gate = f"gate-{name}"
    begin = time.monotonic()
    with site.client() as client, client.stream("POST", "/api/chat", json=question(f"gate {gate}", name)) as answer:
        decoder, text = ChunkDecoder(), ""
        for piece in answer.iter_bytes():
            for chunk in decoder.receive(piece):
                text += chunk.delta if isinstance(chunk, TextDeltaChunk) else ""
            if text == "first ":  # the agent waits for it: a proxy that buffers would never send it
                measured(name, "first word", time.monotonic() - begin)
                (site.directory / gate).touch()
    assert text == "first second"


@works("HTTP/2")
def test_a_client_of_http_2_gets_the_answer(name: str, sites: Sites) -> None:
    site = sites.site(name)
    command = curl(site, "2", question("two", f"{name}-http2"), "--write-out", "HTTP %{http_version}")
    output = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE).stdout
    assert output.endswith(b"data: [DONE]\n\nHTTP 2")
    assert b"You said: two" in output


def test_a_tool_may_be_silent_for_longer_than_any_timeout_of_a_proxy(sites: Sites) -> None:
    texts: dict[str, str] = {}

    def ask(name: str, site: Site) -> None:
        with site.client() as client:
            texts[name] = read(client.post("/api/chat", json=question("silence", f"{name}-silence")))

    names = [name for name, entry in PROXIES.items() if entry.result("silent tool") == WORKS]
    threads = [threading.Thread(target=ask, args=(name, sites.site(name))) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert texts == dict.fromkeys(names, "one two")


@pytest.mark.parametrize(
    ("name", "version"),
    [
        *((name, "1.1") for name in PROXIES),
        *((name, "2") for name, entry in PROXIES.items() if entry.result("HTTP/2") == WORKS),
    ],
)
def test_an_agent_is_cancelled_when_its_client_leaves(
    name: str, version: str, sites: Sites, measured: Measured
) -> None:
    """Without comments, only a proxy that watches its client closes the connection to the server.

    curl sends the head and the body of a request in one piece: a proxy that has read all of it may stop to watch.
    """
    keep_alive = "1" if PROXIES[name].result("disconnect") == AT_COMMENT else "3600"
    site = sites.site(name, "--disconnect", "cancel", "--keep-alive", keep_alive)
    left = f"left-{name}-{version}"
    with leaving(site, version, question(f"wait {left}", left)):
        pass
    begin = time.monotonic()
    eventually((site.directory / left).exists, f"{name} tells the server that the client has left", seconds=NOTICED)
    measured(name, "disconnect", time.monotonic() - begin)


@contextmanager
def leaving(site: Site, version: str, body: dict[str, Any]) -> Iterator[None]:
    """Ask with curl until the answer has begun; end curl with the block."""
    process = subprocess.Popen(curl(site, version, body), stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert any(b"waits" in line for line in process.stdout)
        yield
    finally:
        process.kill()
        process.communicate()


def curl(site: Site, version: str, body: dict[str, Any], *options: str) -> list[str]:
    """Return the command that asks with curl in a version of HTTP."""
    headers = [f"{key}: {value}" for key, value in (*site.headers.items(), ("content-type", "application/json"))]
    arguments = ["--silent", "--no-buffer", f"--http{version}", "--insecure", *options]
    for header in headers:
        arguments += ["-H", header]
    return [program("curl"), *arguments, "-d", json.dumps(body), f"{site.url}/api/chat"]


@works("WebSocket")
def test_a_browser_opens_a_websocket(name: str, sites: Sites) -> None:
    site = sites.site(name)
    url = f"{site.url.replace('http', 'ws', 1)}/api/chat/ws"
    tls = site.tls if site.certificate else None
    with connect(url, origin=site.origin, ssl=tls) as connection:  # type: ignore[arg-type]
        client = Client(connection)
        client.send("r1", f"{name}-socket", "hello", headers=site.headers)
        assert client.text("r1") == "You said: hello"


@works("upload")
def test_an_upload_of_10_mb_reaches_the_agent(name: str, sites: Sites, measured: Measured) -> None:
    site = sites.site(name)
    body = question("look", f"{name}-upload")
    data = base64.b64encode(b"x" * 10_000_000).decode()
    body["messages"][0]["parts"].append(
        {"type": "file", "mediaType": "application/octet-stream", "url": f"data:application/octet-stream;base64,{data}"}
    )
    with site.client() as client:
        begin = time.monotonic()
        answer = client.post("/api/chat", json=body)
        measured(name, "upload", time.monotonic() - begin)
        assert answer.status_code == 200, answer.text
        assert read(answer) == "You said: look with 10000000 bytes"
        too_large = client.post("/api/chat", json=body | {"more": "x" * 5_000_000})
        assert (too_large.status_code, "<html" in too_large.text) == (413, False), "the server says it, not the proxy"


@works("address")
def test_the_server_knows_the_address_of_the_visitor_and_believes_no_forged_one(name: str, sites: Sites) -> None:
    site = sites.site(name)
    transport = httpx2.HTTPTransport(local_address=VISITOR, verify=site.tls)
    with site.client(transport=transport) as client:
        client.post("/api/chat", json=question("who", f"{name}-address"), headers={"x-forwarded-for": FORGED})
        client.get(f"/api/chat/{name}-address", headers={"x-forwarded-for": FORGED})
    eventually(lambda: f'"GET /api/chat/{name}-address' in site.server.written, "the request is in the log")
    [line] = [line for line in site.server.written.splitlines() if f"GET /api/chat/{name}-address" in line]
    assert line.removeprefix("INFO:").strip().startswith(f"{VISITOR}:")


@works("sub path")
def test_the_server_is_below_a_path(name: str, sites: Sites) -> None:
    site = sites.site(name, "--root-path", "/assistant")
    with site.client() as client:
        answer = client.post("/api/chat", json=question("below", f"{name}-below"))
        assert read(answer) == "You said: below"
        assert "usechat" in client.get("/").text
