"""`usechat demo` as a newcomer types it."""

import json
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.server.process import serve_process
from usechat.cli import main


def test_it_prints_the_address_the_routes_and_a_curl_line_and_answers(tmp_path: Path) -> None:
    with serve_process(tmp_path, command="demo") as demo:
        assert "usechat serves the usechat guide at http://127.0.0.1:" in demo.written
        assert "\n  GET  / (the chat page)\n  POST /api/chat\n" in demo.written
        assert "curl -N " in demo.written
        with urllib.request.urlopen(f"{demo.url}/docs/serving.md", timeout=30) as page:
            assert page.read().startswith(b"# Serving")
        message = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "What is 6 * 7?"}]}
        body = json.dumps({"id": "c1", "messages": [message]}).encode()
        asked = urllib.request.Request(f"{demo.url}/api/chat", body, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            assert b"**42**" in answer.read()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--model", "nonsense"], "usechat: --model nonsense: Unknown model: nonsense; give a name such as"),
        (["--model", "local"], "usechat: --model local needs two packages: pip install xllamacpp && "),
        (["--port", "none"], "usechat demo: argument --port: 'none' is no port: a number up to 65535"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(["demo", *arguments])
    except SystemExit as exited:  # of the parser
        code = int(exited.code or 0)
    assert code == 2
    error = capsys.readouterr().err
    assert error.startswith(sentence)
    assert error.count("\n") == 1


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-c", "from usechat.cli import main; exit(main())", "demo", "--port", port]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("usechat: ")
    assert port in ended.stderr
