"""`usechat demo` as a newcomer types it."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.server.process import PATIENCE, eventually, serve_process
from usechat.cli import main
from usechat.client import SyncChat
from usechat.testing import ModelAnswer, ModelCall, ScriptedModel


def test_it_prints_the_address_the_routes_and_a_curl_line_and_answers(tmp_path: Path) -> None:
    with serve_process(tmp_path, command="demo") as demo:
        assert "usechat serves usechat demo at http://127.0.0.1:" in demo.written
        assert "\n  GET  / (the chat page)\n  POST /api/chat\n" in demo.written
        assert "curl -N " in demo.written
        with urllib.request.urlopen(f"{demo.url}/docs/serving.md", timeout=30) as page:
            assert page.read().startswith(b"# Serving")
        message = {"id": "1", "role": "user", "parts": [{"type": "text", "text": "How do I add a stop button?"}]}
        body = json.dumps({"id": "c1", "messages": [message]}).encode()
        request = urllib.request.Request(f"{demo.url}/api/chat", body, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert b"resume.md#a-stop-button" in answer.read()


def test_open_opens_the_page_in_the_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\necho "$1" > opened.txt\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    with serve_process(tmp_path, "--open", command="demo") as demo:
        opened = tmp_path / "opened.txt"
        eventually(lambda: opened.is_file() and opened.read_text(), "the browser is called")
        assert opened.read_text() == f"{demo.url}\n"


def test_without_a_build_there_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("usechat.demo.command.files", lambda _package: tmp_path)
    assert main(["demo"]) == 2
    assert capsys.readouterr().err == "usechat: the page is not built; in a checkout `make page` builds it\n"


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("openai:gpt-5", "Set the `OPENAI_API_KEY` environment variable"),
        ("gpt-5", "Unknown model: gpt-5. Did you mean 'openai-chat:gpt-5'?"),
        ("nonsense", "Unknown model: nonsense; give a name such as openai:gpt-5"),
    ],
)
def test_what_is_wrong_with_a_model_is_one_sentence(
    model: str, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert main(["demo", "--model", model]) == 2
    assert capsys.readouterr().err == f"usechat: --model {model}: {sentence}\n"


def test_a_package_that_a_model_needs_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)  # as if it were not installed
    for name in [name for name in sys.modules if name.startswith("pydantic_ai.") and "openai" in name]:
        monkeypatch.delitem(sys.modules, name)
    assert main(["demo", "--model", "openai:gpt-5"]) == 2
    assert capsys.readouterr().err.startswith(
        "usechat: --model openai:gpt-5: Please install the `openai` package to use the OpenAI provider"
    )


def test_the_page_says_which_model_answers(tmp_path: Path) -> None:
    with (
        serve_process(tmp_path, "--model", "test", command="demo") as demo,
        urllib.request.urlopen(demo.url, timeout=30) as page,
    ):
        html = page.read().decode()
    assert "its documentation answers, by test." in html
    assert "offline" not in html


def test_a_real_model_answers_with_the_same_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = "How do I add a stop button?"
    search = ModelAnswer(calls=[ModelCall("search_docs", {"query": question})])
    text = "Call the stop route: [Resume and stop: A stop button](docs/resume.md#a-stop-button)."
    with ScriptedModel([search, text]) as model:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", model.openai_url)
        with (
            serve_process(tmp_path, "--model", "openai:gpt-5", command="demo") as demo,
            SyncChat(f"{demo.url}/api/chat") as chat,
        ):
            answer = chat.send(question).wait()
    assert answer is not None
    assert [(tool.name, tool.state) for tool in answer.tools] == [("search_docs", "output-available")]
    assert answer.text == text
    assert answer.sources[0]["url"] == "docs/resume.md#a-stop-button"
    assert [tool["name"] for tool in model.requests[0]["tools"]] == ["search_docs"]


def test_what_is_no_port_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["demo", "--port", "none"])
    assert exited.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("usechat demo: argument --port: 'none' is not a port: give a number up to 65535")
    assert error.count("\n") == 1


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        command = [sys.executable, "-c", "from usechat.cli import main; exit(main())", "demo", "--port", port]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("usechat: ")
    assert port in ended.stderr


def test_a_server_that_was_killed_is_started_again_and_a_signal_ends_both(tmp_path: Path) -> None:
    with serve_process(tmp_path, command="demo") as demo:
        victims = [int(number) for number in re.findall(r"Started server process \[(\d+)\]", demo.written)]
        os.kill(victims[0], signal.SIGKILL)
        eventually(lambda: demo.written.count("Started server process") == 2, "another one is started")
        demo.wait_until_it_answers()
        demo.process.terminate()
        assert demo.process.wait(PATIENCE) == 0
        assert demo.written.count("Finished server process") == 1


def test_a_server_ends_with_its_parent(tmp_path: Path) -> None:
    with serve_process(tmp_path, command="demo") as demo:
        demo.process.kill()
        eventually(lambda: "Finished server process" in demo.written, "the child exits, too")
