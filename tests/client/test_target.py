"""`usechat serve --as ai-sdk URL` and `usechat serve FILE.usechat.jsonl`."""

import asyncio
import functools
import os
import pty
import re
import subprocess
import sys
import termios
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route, Router

from tests.certificate import write_certificate
from tests.check.server import OK
from tests.check.server import serving as serving_raw
from tests.cli.common_options import COMMON
from tests.client.endpoints import HELLO, HELLO_BYTES, Endpoint, frame, served
from tests.client.test_recording import LINES
from tests.conformance.served import serving
from tests.server.process import PATIENCE, eventually, question, serve_process
from usechat.cli import main
from usechat.cli.plan import Plan, make_app
from usechat.client import Chat, HttpChatTransport
from usechat.client.in_process import InProcessTransport
from usechat.client.keys import TerminalKeys
from usechat.client.target import AiSdkOptions, AiSdkTarget, RecordingOptions, RecordingTarget
from usechat.errors import CannotServe, InvalidAddress, UnusableFile
from usechat.server import ChatApp, Quotas, Settings
from usechat.server.auth.tokens import new_api_token
from usechat.testing import AgentClient
from usechat.turn import Turn


@pytest.fixture
def tour(tmp_path: Path) -> Path:
    path = tmp_path / "tour.usechat.jsonl"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


def asked(plan: Plan, text: str = "hi", **options: Any) -> Any:
    headers = {"host": "localhost"} | options.pop("headers", {})  # pages of other hosts are refused
    with AgentClient(make_app(plan).app, path=plan.path, headers=headers, **options) as client:
        return client.ask(text)


def test_an_endpoint_gets_stop_and_the_page_in_front_of_it(tmp_path: Path) -> None:
    with (
        served(Endpoint(b"".join(map(frame, HELLO[:4])), holds=True)) as url,
        serve_process(tmp_path, "--as", "ai-sdk", url) as running,
    ):
        with AgentClient(f"{running.url}/api/chat") as client:
            client.run(client.check_stop("hi", 10))
        assert httpx2.get(running.url, timeout=PATIENCE).text.startswith("<!doctype html>")
    with served(Endpoint()) as url:
        answer = asked(Plan(target=url, kind="ai-sdk"))
        answer.assert_legal("any")
        assert answer.text == "Hello"


async def test_an_endpoint_gets_resume_in_front_of_it() -> None:
    is_resumed = threading.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b"".join(map(frame, HELLO[:4]))
        await asyncio.to_thread(is_resumed.wait, PATIENCE)
        yield b"".join(map(frame, HELLO[4:]))

    async def answer(_request: Request) -> StreamingResponse:
        return StreamingResponse(body(), media_type="text/event-stream")

    endpoint = Router(routes=[Route("/api/chat", answer, methods=["POST"])])  # it cannot resume
    with serving({"app": endpoint}) as running:
        front = InProcessTransport(make_app(Plan(target=running.url("app"), kind="ai-sdk")).app)
        async with (
            HttpChatTransport("http://localhost/api/chat", http=front, stop_route=False) as transport,
            Chat(transport, id="c1") as first,
            Chat(transport, id="c1") as second,
        ):
            async for update in first.send("hi"):
                if update.text_delta:
                    break
            async for update in second.resume():
                if update.text_delta:
                    await first.stop()
                    is_resumed.set()
            assert second.last is not None
            assert second.last.text == "Hello"


def count_of_finished(metrics: str) -> float:
    """Return how many requests were answered, which the process counts over all apps."""
    match = re.search(r'^adapter_request_count_total{outcome="finished",status="200"} (\S+)$', metrics, re.MULTILINE)
    return 0 if match is None else float(match[1])


async def test_an_endpoint_gets_auth_limits_and_metrics_in_front_of_it(tmp_path: Path) -> None:
    token, line = new_api_token("ada")
    (tmp_path / "tokens.txt").write_text(line)
    endpoint = Endpoint()
    with served(endpoint) as url:
        limited = Settings(quotas=Quotas(requests_per_minute=1))
        auth = (f"tokens:{tmp_path / 'tokens.txt'}",)
        target = make_app(Plan(target=url, kind="ai-sdk", auth=auth, settings=limited))
        transport = httpx2.ASGITransport(app=target.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            headers = {"authorization": f"Bearer {token}"}
            before = (await client.get("/metrics", headers=headers)).text
            answers = [await client.post("/api/chat", json=question(), headers=each) for each in ({}, headers, headers)]
            after = (await client.get("/metrics", headers=headers)).text
    assert [answer.status_code for answer in answers] == [401, 200, 429]
    assert len(endpoint.requests) == 1
    assert count_of_finished(after) == count_of_finished(before) + 1


def test_the_endpoint_is_called_with_a_token_headers_and_what_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    endpoint = Endpoint()
    options = {"upstream_token": str(tmp_path / "token"), "header": ["x-team: blue"], "pass_on": ["X-Person"]}
    with served(endpoint) as url:
        asked(Plan(target=url, kind="ai-sdk", options=options), headers={"x-person": "ada"})
    headers = endpoint.headers[0]
    assert (headers["authorization"], headers["x-team"], headers["x-person"]) == ("Bearer abc", "blue", "ada")


def test_a_socket_is_an_endpoint_too() -> None:
    def parrot(turn: Turn) -> str:
        return f"{turn.text}, {turn.headers['x-person']}!"

    with serving({"app": ChatApp(parrot)}) as running:
        url = f"{running.url('app')}/ws".replace("http:", "ws:")
        plan = Plan(target=url, kind="ai-sdk", options={"pass_on": ["x-person"]})
        assert asked(plan, "Hello", headers={"x-person": "Ada"}).text == "Hello, Ada!"


def test_a_self_signed_certificate_is_accepted_if_that_is_wanted(tmp_path: Path) -> None:
    write_certificate(tmp_path / "both.pem")
    answer = [OK + b"content-type: text/event-stream\r\n\r\n" + HELLO_BYTES]
    with serving_raw(answer, certificate=tmp_path / "both.pem") as server:
        assert asked(Plan(target=server.url, kind="ai-sdk", options={"insecure": True})).text == "Hello"


@pytest.mark.parametrize("url", ["localhost:8000/api/chat", "ftp://h/"])
def test_an_address_that_is_none_is_named(url: str) -> None:
    with pytest.raises(InvalidAddress, match="is not an endpoint; give a URL such as"):
        AiSdkTarget().open(url, AiSdkOptions(), COMMON)


@pytest.mark.parametrize("header", ["x", "a b: 1", "x-key: é"])
def test_headers_that_are_none_are_named(header: str) -> None:
    with pytest.raises(CannotServe, match="write 'NAME: VALUE'"):
        AiSdkTarget().open("http://h/", AiSdkOptions(header=(header,)), COMMON)


def test_a_recording_is_played_byte_for_byte(tour: Path, tmp_path: Path) -> None:
    with serve_process(tmp_path, str(tour), "--speed", "max", "--path", "/api/ai") as running:
        first = httpx2.post(f"{running.url}/api/ai", json=question(), timeout=PATIENCE)
        assert first.content == b"".join(map(frame, HELLO))
        second = httpx2.post(f"{running.url}/api/ai", json=question(), timeout=PATIENCE)
        assert (second.status_code, second.text) == (410, "All answers of the recording (1) were played.")
        other = httpx2.post(f"{running.url}/api/ai", json=question(chat_id="c2"), timeout=PATIENCE)
        assert other.content == first.content
        assert httpx2.get(running.url, timeout=PATIENCE).text.startswith("<!doctype html>")
        foreign = httpx2.post(f"{running.url}/api/ai", json=question(), headers={"origin": "https://evil.example"})
        assert foreign.status_code == 403
    assert "  POST /api/ai\n" in running.written


async def test_the_default_speed_is_that_of_the_recording(tour: Path) -> None:
    opened = RecordingTarget().open(str(tour), RecordingOptions(speed=40), COMMON)
    transport = httpx2.ASGITransport(app=opened.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.post("/api/chat", json=question())
    assert answer.content == b"".join(map(frame, HELLO))
    assert RecordingOptions().speed == 1


async def test_a_recording_is_for_those_with_a_token(tour: Path, tmp_path: Path) -> None:
    token, line = new_api_token("ada")
    (tmp_path / "tokens.txt").write_text(line)
    target = make_app(Plan(target=str(tour), auth=(f"tokens:{tmp_path / 'tokens.txt'}",), options={"speed": "max"}))
    assert target.requires_auth
    transport = httpx2.ASGITransport(app=target.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.post("/api/chat", json=question())).status_code == 401
        headers = {"authorization": f"Bearer {token}"}
        assert (await client.post("/api/chat", json=question(), headers=headers)).status_code == 200
        assert (await client.get("/healthz")).text == "ok"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--sdk", "5"], "--sdk has no effect on "),
        (["--workers", "2"], "--workers is 1 for "),
        (["--step"], "--step needs a terminal: each key that is pressed in it sends a frame"),
        (["--host", "0.0.0.0"], "--host 0.0.0.0 accepts other machines; set --auth to say who is allowed"),
    ],
)
def test_options_that_make_no_sense_with_a_recording_are_named(
    tour: Path, options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tour), *options]) == 2
    assert capsys.readouterr().err.startswith(f"usechat: {complaint}")


@pytest.mark.parametrize("speed", ["0", "fast", "inf"])
def test_a_speed_is_a_number_or_max(tour: Path, speed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["serve", str(tour), "--speed", speed])
    assert f"argument --speed: '{speed}' is not a number above 0, nor max;" in capsys.readouterr().err


def test_a_file_that_is_no_recording_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.usechat.jsonl").write_text("{}")
    with pytest.raises(UnusableFile, match="line 1: the key 'usechat' is missing"):
        make_app(Plan(target=str(tmp_path / "a.usechat.jsonl")))


def _is_in(log: Path, text: str) -> bool:
    return text in log.read_text(encoding="utf-8")


async def test_a_frame_is_shown_without_control_characters(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    waiting = asyncio.ensure_future(TerminalKeys().release("data: \x1b[2J\x9b2J\n\n".encode()))
    await asyncio.sleep(0)
    waiting.cancel()
    assert capsys.readouterr().out == "next: data: \ufffd[2J\ufffd2J\n"


def test_each_key_in_the_terminal_sends_one_frame(tour: Path) -> None:
    terminal, inner = pty.openpty()
    before = termios.tcgetattr(inner)
    command = [sys.executable, "-c", "import sys; from usechat.cli import main; sys.exit(main())", "serve", str(tour)]
    log = tour.with_name("output.txt")
    with log.open("wb") as output:
        process = subprocess.Popen([*command, "--step", "--port", "0"], stdin=inner, stdout=output, stderr=output)
    try:
        eventually(lambda: re.search(r"at (http://\S+)\n", log.read_text()), "the server listens")
        url = re.findall(r"at (http://\S+)\n", log.read_text())[0]
        eventually(lambda: "Application startup complete" in log.read_text(), "the server has started")
        received: list[str] = []

        def read() -> None:
            with httpx2.stream("POST", f"{url}/api/chat", json=question(), timeout=PATIENCE) as response:
                received.extend(line for line in response.iter_lines() if line)

        reader = threading.Thread(target=read)
        reader.start()
        for number, chunk in enumerate(HELLO):
            text = f"next: {frame(chunk).decode().strip()}"
            eventually(functools.partial(_is_in, log, text), f"frame {number} is shown")
            os.write(terminal, b" ")
        reader.join(PATIENCE)
        assert received == [frame(chunk).decode().strip() for chunk in HELLO]
    finally:
        process.terminate()
        process.wait(PATIENCE)
        after = termios.tcgetattr(inner)
        os.close(terminal)
        os.close(inner)
    assert after == before
