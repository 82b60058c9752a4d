"""`usechat serve`: what is served, what is refused, and how the process ends."""

import os
import re
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from tests.plain_asgi import PLAIN_ASGI
from tests.redis_server import redis_server
from tests.server.process import PATIENCE, eventually, question, serve_process
from usechat import ChunkDecoder, MessageBuilder
from usechat.cli import main
from usechat.cli.plan import Plan, make_app
from usechat.cli.serve import plan_of
from usechat.errors import CannotServe
from usechat.runs.quotas import Quotas
from usechat.runs.settings import Disconnect, Settings, Timeouts, cancel_after
from usechat.server.auth.tokens import new_api_token

AGENTS = """
import asyncio, functools, time
import framework_of_others
from starlette.applications import Starlette
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from usechat import Text, ToolCall
from usechat.parts import ApprovalRequest
from usechat.protocol.chunks import FinishChunk, StartChunk, TextDeltaChunk, TextEndChunk, TextStartChunk
from usechat.server import ChatApp

async def stream(turn):
    yield "You said: "
    yield Text(turn.text)

def generate(turn):
    yield "You said: "
    yield turn.text

def plain(turn):
    return "You said: " + turn.text

async def coroutine(turn):
    return "You said: " + turn.text

class Transport:
    async def send_messages(self, request):
        return self._chunks(request)

    async def _chunks(self, request):
        yield StartChunk(message_id="m1")
        yield TextStartChunk(id="1")
        yield TextDeltaChunk(id="1", delta="You said: " + request.text)
        yield TextEndChunk(id="1")
        yield FinishChunk()

    async def reconnect_to_stream(self, chat_id):
        return None

transport = Transport()

class Words:
    async def __call__(self, turn):
        yield "You said: "
        yield turn.text

class Sentence:
    async def __call__(self, turn):
        return "You said: " + turn.text

def greet(greeting, turn):
    return greeting + turn.text

async def greet_in_words(greeting, turn):
    yield greeting
    yield turn.text

words, sentence = Words(), Sentence()
partial, partial_words = functools.partial(greet, "You said: "), functools.partial(greet_in_words, "You said: ")
foreign = framework_of_others.Agent("You said: ")
chats = ChatApp(stream)
wrapped = GZipMiddleware(chats)
mounted = Starlette(routes=[Mount("/", wrapped)])
other = Starlette(routes=[Route("/api/chat", lambda request: PlainTextResponse("as it is"), methods=["POST"])])

async def endless(turn):
    try:
        while True:
            yield "word "
            await asyncio.sleep(0.05)
    finally:
        print("the agent was closed", flush=True)

def stubborn(turn):
    yield "word "
    time.sleep(600)

async def asking(turn):
    if turn.approvals:
        yield "Thank you."
    else:
        yield ToolCall("t1", "remove", {})
        yield ApprovalRequest("a1", "t1")

async def failing(turn):
    raise LookupError("the secret is 42")
    yield
"""

FRAMEWORK = """
class Agent:  # neither callable nor a source
    def __init__(self, greeting):
        self.greeting = greeting
"""
ADAPTER = """
from framework_of_others import Agent
from usechat.sources import FunctionSource

def source_of(found):
    return FunctionSource(lambda turn: found.greeting + turn.text) if isinstance(found, Agent) else None
"""
ENTRY_POINTS = "[usechat.adapters]\nframework_of_others = adapter_of_others:source_of\n"

CUT = (httpx2.NetworkError, httpx2.RemoteProtocolError)


@pytest.fixture(autouse=True)
def _directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "served_agents.py").write_text(AGENTS, encoding="utf-8")
    (tmp_path / "framework_of_others.py").write_text(FRAMEWORK, encoding="utf-8")
    (tmp_path / "adapter_of_others.py").write_text(ADAPTER, encoding="utf-8")
    installed = tmp_path / "adapter_of_others-1.0.dist-info"  # as pip installs it
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: adapter-of-others\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(ENTRY_POINTS)
    yield
    for name in ("served_agents", "framework_of_others", "adapter_of_others"):
        sys.modules.pop(name, None)


@pytest.fixture
def token(tmp_path: Path) -> str:
    token, line = new_api_token("alice")
    (tmp_path / "tokens.txt").write_text(line, encoding="utf-8")
    return token


def message_of(body: bytes) -> Any:
    decoder, builder = ChunkDecoder(), MessageBuilder(sdk="7")
    for chunk in decoder.receive(body):
        builder.receive(chunk)
    return builder.message


def text_of(body: bytes) -> str:
    return "".join(part["text"] for part in message_of(body)["parts"] if part["type"] == "text")


async def ask(plan: Plan, **options: Any) -> httpx2.Response:
    transport = httpx2.ASGITransport(app=make_app(plan).app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.post(options.pop("path", "/api/chat"), json=question(), **options)


@pytest.mark.parametrize(
    "name",
    [
        "stream",
        "generate",
        "plain",
        "coroutine",
        "transport",
        "words",
        "sentence",
        "partial",
        "partial_words",
        "chats",
        "wrapped",
        "mounted",
    ],
)
async def test_whatever_can_answer_is_served(name: str) -> None:
    assert text_of((await ask(Plan(target=f"served_agents:{name}"))).content) == "You said: Hi"


@pytest.mark.parametrize("name", ["words", "partial_words", "foreign"])
def test_what_is_accepted_at_the_start_answers_at_the_request(tmp_path: Path, name: str) -> None:
    with serve_process(tmp_path, f"served_agents:{name}") as served:
        answer = httpx2.post(f"{served.url}/api/chat", json=question(), timeout=PATIENCE)
        assert text_of(answer.content) == "You said: Hi"


async def test_another_asgi_app_is_served_as_it_is() -> None:
    assert (await ask(Plan(target="served_agents.py:other"))).text == "as it is"


async def test_the_path_is_chosen() -> None:
    plan = Plan(target="served_agents:plain", path="/chat")
    assert text_of((await ask(plan, path="/chat")).content) == "You said: Hi"
    assert (await ask(plan)).status_code == 404


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("accent", "teal", "write it as #rrggbb"),
        ("logo", "missing.svg", "cannot be read: No such file"),
        ("login_url", "https://login.example", "give --auth, too"),
    ],
)
def test_what_the_page_cannot_show_is_refused(field: str, value: str, sentence: str) -> None:
    with pytest.raises(CannotServe, match=sentence):
        make_app(msgspec.structs.replace(Plan(target="served_agents:plain"), **{field: value}))


async def test_origins_are_let_in_by_name() -> None:
    headers = {"origin": "https://chat.example"}
    assert (await ask(Plan(target="served_agents:plain"), headers=headers)).status_code == 403
    answer = await ask(Plan(target="served_agents:plain", cors=("https://chat.example",)), headers=headers)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://chat.example")


async def test_a_token_is_asked_for(token: str) -> None:
    plan = Plan(target="served_agents:plain", auth=("tokens:tokens.txt",))
    assert (await ask(plan)).status_code == 401
    assert (await ask(plan, headers={"authorization": f"Bearer {token}"})).status_code == 200


async def test_errors_are_hidden_unless_someone_debugs() -> None:
    hidden = (await ask(Plan(target="served_agents:failing"))).text
    assert ("An error occurred. Reference: " in hidden, "secret" in hidden) == (True, False)
    assert "LookupError: the secret is 42" in (await ask(Plan(target="served_agents:failing", debug=True))).text


def complaint_about(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["serve", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, "one sentence"
    return captured.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["served_agents:nothing"], "served_agents has no 'nothing'"),
        (["served_agents:Transport"], "served_agents:Transport cannot be served: Transport is a class; "),
        (["served_agents:plain", "--sdk", "4"], "'4' is not an AI SDK release; "),
        (
            ["served_agents:plain", "--host", "0.0.0.0"],
            "--host 0.0.0.0 accepts other machines; set --auth to say who is allowed",
        ),
        (["served_agents:plain", "--host", "::"], "--host :: accepts other machines; set --auth to say who is allowed"),
        (["served_agents:plain", "--workers", "2"], "--workers 2 needs a store that they share: a run lives in one "),
        (["served_agents:chats", "--workers", "2"], "--workers 2 needs a store that they share: a run lives in one "),
        (["served_agents:mounted", "--workers", "2"], "--workers 2 needs a store that they share: a run lives in one "),
        (
            ["served_agents:plain", "--no-page", "--apps-origin", "https://apps.example"],
            "--apps-origin has no effect on served_agents:plain: it is for the page of chats that are stored",
        ),
        (["served_agents:plain", "--auth", "everyone"], "--auth 'everyone' is not a rule; give tokens:FILE or jwt:"),
        (["served_agents:plain", "--auth", "tokens:none.txt"], "none.txt cannot be read: No such file or directory"),
        (["served_agents:plain", "--workers", "2", "--reload"], "--reload is for one worker, so leave --workers out"),
        (
            ["served_agents:plain", "--uds", "no/such/directory/chat.sock"],
            "the socket no/such/directory/chat.sock cannot be used: No such file or directory",
        ),
        (["served_agents:plain", "--cors", "example.com"], "--cors: 'example.com' is not an origin; "),
        (["served_agents:plain", "--cors", "*"], "--cors '*' would allow every page on the web to use the agent; "),
        (["served_agents:plain", "--redis", "localhost"], "--redis takes a URL such as redis://localhost:6379"),
        (["served_agents:plain", "--approval-secret", "no.txt"], "--approval-secret: no.txt cannot be read: No such "),
        (
            ["served_agents:plain", "--approval-secret", "short.txt"],
            "--approval-secret: short.txt holds fewer than 32 characters",
        ),
        (
            ["served_agents:plain", "--approval-secret", "binary.txt"],
            "--approval-secret: binary.txt is not a text file",
        ),
        (
            ["served_agents:chats", "--sdk", "6"],
            "served_agents:chats is an ASGI app and served as it is: set --sdk in ",
        ),
        (
            ["served_agents:other", "--idle-timeout", "9"],
            "served_agents:other is an ASGI app and served as it is: set -",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short.txt").write_text("s3cret\n")
    (tmp_path / "binary.txt").write_bytes(b"\xff" * 40)
    assert complaint_about(arguments, capsys).startswith(f"usechat: {complaint}")


def test_a_traceback_for_those_who_ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "served_broken.py").write_text("raise KeyError('no key')", encoding="utf-8")
    assert complaint_about(["served_broken.py:agent"], capsys).startswith(
        "usechat: served_broken.py cannot be imported"
    )
    assert main(["serve", "served_broken.py:agent", "--debug"]) == 2
    assert capsys.readouterr().err.startswith("Traceback (most recent call last):\n")


def test_a_server_from_beginning_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serve_process(tmp_path, "served_agents:endless", "--drain", "3") as served:
        port = served.url.rpartition(":")[2]
        assert "\n  POST /api/chat\n" in served.written
        assert "Only this machine can reach it" in served.written
        assert f"curl -N {served.url}/api/chat -H" in served.written
        complaint = complaint_about(["served_agents:plain", "--port", port], capsys)
        assert complaint.startswith(f"usechat: port {port} of 127.0.0.1 cannot be used: Address already in use; ")
        with httpx2.stream("POST", f"{served.url}/api/chat", json=question(), timeout=PATIENCE) as answer:
            pieces = answer.iter_bytes()
            while b"word" not in next(pieces):
                pass
            began = time.monotonic()
            os.kill(served.process.pid, signal.SIGTERM)
            with pytest.raises(CUT):  # a clean end would look like success
                for _ in pieces:
                    pass
            assert served.process.poll() is None, "readers are disconnected before the run has its time"
        served.process.wait(PATIENCE)
        assert time.monotonic() - began >= 3
        assert served.process.returncode == -signal.SIGTERM
        assert "\nthe agent was closed\n" in served.written
        assert " stopped after " in served.written
        assert PLAIN_ASGI or "Traceback" not in served.written  # uvicorn logs what it cancels


def test_a_json_log_has_one_object_per_line_from_the_first_line(tmp_path: Path) -> None:
    with serve_process(tmp_path, "served_agents:plain", "--log-format", "json") as served:
        httpx2.post(f"{served.url}/api/chat", json=question(), timeout=PATIENCE)
    lines = [msgspec.json.decode(line) for line in served.written.splitlines()]
    assert f"usechat serves served_agents:plain at {served.url}" in [line["text"] for line in lines]
    assert {line["state"] for line in lines if "state" in line} == {"finished"}


def test_a_unix_socket_is_served_to_a_proxy_that_tells_the_address(tmp_path: Path) -> None:
    path = tmp_path / "chat.sock"
    for _ in range(2):  # the second server finds the socket of the first
        with serve_process(tmp_path, "served_agents:plain", "--uds", str(path), "--keep-alive", "5") as served:
            transport = httpx2.HTTPTransport(uds=str(path))
            with httpx2.Client(transport=transport, base_url="http://localhost", timeout=PATIENCE) as client:
                answer = client.post("/api/chat", json=question(), headers={"x-forwarded-for": "203.0.113.9"})
            assert text_of(answer.content) == "You said: Hi"
            assert "203.0.113.9:0 - " in served.written
            assert f"curl -N --unix-socket {path} http://localhost/api/chat" in served.written


def test_a_socket_that_is_used_is_not_taken_from_its_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chat.sock"
    with serve_process(tmp_path, "served_agents:plain", "--uds", str(path)):
        complaint = complaint_about(["served_agents:plain", "--uds", str(path)], capsys)
    assert complaint == (
        f"usechat: the socket {path} cannot be used: Address already in use; stop the program that uses it, or choose"
        " another path\n"
    )
    path.unlink()
    path.write_text("precious")
    assert complaint_about(["served_agents:plain", "--uds", str(path)], capsys).startswith(
        f"usechat: the socket {path}"
    )
    assert path.read_text() == "precious"


def test_a_forwarded_address_counts_only_from_a_named_proxy(tmp_path: Path) -> None:
    for proxies, address in (("192.0.2.7", "127.0.0.1:"), ("127.0.0.0/8, 192.0.2.7", "203.0.113.9:0")):
        with serve_process(tmp_path, "served_agents:plain", "--forwarded-allow-ips", proxies) as served:
            headers = {"x-forwarded-for": "203.0.113.9"}
            httpx2.post(f"{served.url}/api/chat", json=question(), headers=headers, timeout=PATIENCE)
            assert re.search(rf'{address}\d* - "POST /api/chat', served.written)


def test_below_a_root_path_addresses_of_files_begin_with_it(tmp_path: Path) -> None:
    with serve_process(tmp_path, "served_agents:plain", "--root-path", "/assistant") as served:
        body = question()
        url = "data:text/plain;base64," + "aGVsbG8h" * 5000
        body["messages"][0]["parts"].append({"type": "file", "mediaType": "text/plain", "url": url})
        answer = httpx2.post(f"{served.url}/api/chat", json=body, timeout=PATIENCE)
        assert text_of(answer.content) == "You said: Hi"
        [message, _] = httpx2.get(f"{served.url}/api/chat/c1/messages", timeout=PATIENCE).json()["messages"]
        assert message["parts"][1]["url"].startswith(f"{served.url}/assistant/api/chat/c1/files/")


def test_an_approval_outlives_the_server_that_asked(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("a secret of more than thirty-two characters\n")
    (tmp_path / "other.txt").write_text("another secret of more than thirty-two characters")
    body = question()
    with serve_process(tmp_path, "served_agents:asking", "--sdk", "7", "--approval-secret", "secret.txt") as served:
        message = message_of(httpx2.post(f"{served.url}/api/chat", json=body, timeout=PATIENCE).content)
    [part] = [part for part in message["parts"] if part["type"] == "tool-remove"]
    part |= {"state": "approval-responded", "approval": {**part["approval"], "approved": True}}
    reply = {**body, "messages": [*body["messages"], message], "messageId": message["id"]}
    for file, status in (("secret.txt", 200), ("other.txt", 422)):
        with serve_process(tmp_path, "served_agents:asking", "--sdk", "7", "--approval-secret", file) as served:
            assert httpx2.post(f"{served.url}/api/chat", json=reply, timeout=PATIENCE).status_code == status


def test_an_agent_that_cannot_be_stopped_does_not_keep_the_process(tmp_path: Path) -> None:
    with serve_process(tmp_path, "served_agents:stubborn", "--drain", "0.2") as served:
        with httpx2.stream("POST", f"{served.url}/api/chat", json=question(), timeout=PATIENCE) as answer:
            pieces = answer.iter_bytes()
            while b"word" not in next(pieces):
                pass
            served.process.terminate()
            with pytest.raises(CUT):
                for _ in pieces:
                    pass
        assert served.process.wait(PATIENCE) == -signal.SIGTERM


def test_workers_share_runs_and_end_together(tmp_path: Path) -> None:
    drain = ("--drain", "0.5")
    with (
        redis_server("valkey") as redis,
        serve_process(tmp_path, "served_agents:endless", "--workers", "2", "--redis", redis.url, *drain) as served,
    ):
        chat = f"{served.url}/api/chat"
        with httpx2.stream("POST", chat, json=question(), timeout=PATIENCE) as answer:
            pieces = answer.iter_bytes()
            while b"word" not in next(pieces):
                pass
            states = {httpx2.get(f"{chat}/c1", timeout=PATIENCE).json()["state"] for _ in range(8)}
            assert states == {"running"}, "every worker knows of the run"
            assert httpx2.post(f"{chat}/c1/stop", timeout=PATIENCE).status_code == 204
            assert b'"type":"abort"' in b"".join(pieces)
        with httpx2.stream("POST", chat, json=question(chat_id="c2"), timeout=PATIENCE) as answer:
            pieces = answer.iter_bytes()
            while b"word" not in next(pieces):
                pass
            served.process.terminate()
            with pytest.raises(CUT):
                for _ in pieces:
                    pass
        assert served.process.wait(PATIENCE) == 0
        assert PLAIN_ASGI or "Traceback" not in served.written  # uvicorn logs what it cancels


def test_changes_are_served_under_reload(tmp_path: Path) -> None:
    agent = tmp_path / "served_changing.py"
    agent.write_text("def agent(turn):\n    return 'before'\n", encoding="utf-8")

    def said(url: str, word: str) -> bool:
        try:
            return word in httpx2.post(f"{url}/api/chat", json=question(), timeout=PATIENCE).text
        except httpx2.TransportError:
            return False

    def is_noticed_once_saved(reloads: int) -> bool:
        # Again if need be: for a moment after a restart, uvicorn's StatReload does not notice changes.
        agent.write_text("def agent(turn):\n    return 'after'\n", encoding="utf-8")
        return served.written.count("Reloading") > reloads

    with serve_process(tmp_path, "served_changing.py:agent", "--reload", "--drain", "0.2") as served:
        assert said(served.url, "before")
        agent.write_text("def agent(turn):\n    return 'after' +\n", encoding="utf-8")
        eventually(lambda: "served_changing.py cannot be imported: SyntaxError" in served.written, "the flaw is told")
        reloads = served.written.count("Reloading")
        eventually(lambda: is_noticed_once_saved(reloads), "the change is noticed")
        eventually(lambda: said(served.url, "after"), "the change is served")


@pytest.mark.parametrize(
    ("value", "policy"),
    [("cancel", "cancel"), ("continue", "continue"), (5, cancel_after(5)), (0.5, cancel_after(0.5))],
)
def test_the_disconnect_policy_reaches_the_settings(value: Any, policy: Disconnect) -> None:
    assert settings_of(Plan(target="served_agents:plain", settings=Settings(disconnect=policy))).disconnect == policy
    assert plan_with(disconnect=value).settings.disconnect == policy


@pytest.mark.parametrize("plain", [False, True])
def test_uvicorn_s_internals_can_be_switched_off(plain: bool) -> None:
    settings = Settings(plain_asgi=plain)
    assert settings_of(Plan(target="served_agents:plain", settings=settings)).plain_asgi is (plain or PLAIN_ASGI)


def test_the_options_become_settings() -> None:
    plan = plan_with(sdk="5", idle_timeout="never", rate=4, keep=60.0, conflict="queue", coalesce_ms=2.0, recover=3)
    assert plan.settings == Settings(
        sdk="5",
        disconnect=cancel_after(15),
        timeouts=Timeouts(first_event=None, idle=None),
        quotas=Quotas(requests_per_minute=4),
        keep_chats=60,
        conflict="queue",
        coalesce_ms=2,
        recover=3,
        approval_secret=plan.settings.approval_secret,
    )


def plan_with(**options: Any) -> Plan:
    """Return the plan of options that were given on the command line."""
    given: dict[str, Any] = {
        "target": "served_agents:plain",
        "kind": None,
        "redis": None,
        "workers": 1,
        "kind_flags": {},
    }
    return plan_of(Namespace(**given, **options))


def settings_of(plan: Plan) -> Settings:
    [chats] = make_app(plan).chats
    return chats.settings


def test_the_plan_reaches_workers_as_it_is() -> None:
    settings = Settings(disconnect=cancel_after(3), conflict="queue", quotas=Quotas(requests_per_minute=4))
    plan = Plan(target="a:b", settings=settings, cors=("http://localhost:3000",))
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan
