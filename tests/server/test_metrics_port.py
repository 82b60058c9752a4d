"""Where a real `usechat serve --auth` serves its metrics, and to whom."""

import hashlib
from pathlib import Path

import httpx2
import pytest

from tests.redis_server import free_port
from tests.server.process import PATIENCE, ServeProcess, serve_process
from usechat.cli import main

AUTH = ("--auth", "tokens:tokens.txt")
TOKEN = {"authorization": "Bearer secret"}


@pytest.fixture(autouse=True)
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text("def agent(turn):\n    return 'Hello.'\n")
    (tmp_path / "tokens.txt").write_text(f"ada:{hashlib.sha256(b'secret').hexdigest()}\n")


def status(url: str, headers: dict[str, str] | None = None) -> int:
    return httpx2.get(url, headers=headers, timeout=PATIENCE).status_code


def statuses(server: ServeProcess) -> dict[str, int]:
    return {path: status(f"{server.url}{path}") for path in ("/metrics", "/healthz", "/readyz")}


def test_with_auth_metrics_need_a_token(tmp_path: Path) -> None:
    with serve_process(tmp_path, "agent.py:agent", *AUTH) as server:
        assert statuses(server) == {"/metrics": 401, "/healthz": 200, "/readyz": 200}
        page = httpx2.get(f"{server.url}/metrics", headers=TOKEN, timeout=PATIENCE)
        assert "adapter_stream_open" in page.text
        assert status(f"{server.url}/metrics", {"authorization": "Bearer wrong"}) == 401


def test_without_auth_metrics_need_none(tmp_path: Path) -> None:
    with serve_process(tmp_path, "agent.py:agent") as server:
        assert statuses(server) == {"/metrics": 200, "/healthz": 200, "/readyz": 200}


def test_metrics_at_their_own_address_need_no_token_and_are_nowhere_else(tmp_path: Path) -> None:
    port = free_port()
    with serve_process(tmp_path, "agent.py:agent", *AUTH, "--metrics-listen", f"127.0.0.1:{port}") as server:
        assert [status(f"{server.url}/metrics", headers) for headers in (None, TOKEN)] == [404, 404]
        own = f"http://127.0.0.1:{port}"
        paths = ("/metrics", "/healthz", "/readyz", "/", "/api/chats", "/api/limits")
        assert [status(f"{own}{path}", TOKEN) for path in paths] == [200, 200, 200, 404, 404, 404]
        assert status(f"{own}/metrics") == 200
        assert f"Metrics are at port {port}: GET /metrics" in server.written


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--metrics-listen", "8000"], "usechat: --metrics-listen needs another port than the chat, which has 8000\n"),
        (["--metrics-listen", ":9464"], "':9464' is not an address such as 127.0.0.1:9464, or a port"),
        (["--metrics-listen", "localhost:x"], "'x' is not a port: give a number up to 65535"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_sentence(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["serve", "agent.py:agent", *arguments])
    except SystemExit as exit_:
        code = exit_.code
    assert code == 2
    assert text in capsys.readouterr().err
