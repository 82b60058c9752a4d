"""`usechat record`, `usechat diff`, and `usechat check` of a recording."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.client.endpoints import HELLO, HELLO_BYTES, Endpoint, frame, served
from tests.client.test_recording import LINES
from tests.server.process import PATIENCE, eventually, question
from usechat.cli import main
from usechat.client import StreamRecording

pytestmark = pytest.mark.every_python


@contextmanager
def record(directory: Path, *arguments: str) -> Iterator[str]:
    """Run `usechat record` as a real process; yield its address."""
    log = directory / "output.txt"
    command = [sys.executable, "-c", "import sys; from usechat.cli import main; sys.exit(main())", "record"]
    with log.open("wb") as output:
        process = subprocess.Popen([*command, *arguments, "--port", "0"], stdout=output, stderr=output)
    try:
        eventually(lambda: " at http://" in log.read_text() or process.poll() is not None, "it listens")
        yield log.read_text().partition(" at ")[2].partition("/api/chat ")[0]
    finally:
        process.terminate()
        process.wait(PATIENCE)


def test_what_goes_through_the_proxy_is_recorded_and_can_be_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tour = tmp_path / "tour.usechat.jsonl"
    endpoint = Endpoint()
    with served(endpoint) as url, record(tmp_path, url, "-o", str(tour), "--header", "x-key: secret") as base:
        address = f"{base}/api/chat"
        answer = httpx2.post(address, json=question(), headers={"cookie": "secret"}, timeout=PATIENCE)
        assert answer.content == HELLO_BYTES
        assert httpx2.get(base, timeout=PATIENCE).text.startswith("<!doctype html>")
        assert httpx2.get(f"{base}/healthz", timeout=PATIENCE).text == "ok"
        evil = {"origin": "https://evil.example"}
        assert httpx2.post(address, json=question(), headers=evil, timeout=PATIENCE).status_code == 403
    assert endpoint.headers[0]["x-key"] == "secret"
    assert "secret" not in tour.read_text()
    [exchange] = StreamRecording.read(tour).exchanges
    assert (exchange.content, exchange.end) == (HELLO_BYTES, "complete")
    assert main(["check", str(tour)]) == 0
    assert capsys.readouterr().out.startswith(f"{tour}, answer 1: accepted\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nowhere", "-o", "a"], "'nowhere' is not an endpoint; give a URL such as http://localhost:8000/api/chat"),
        (
            ["http://[::1", "-o", "a"],
            "'http://[::1' is not an endpoint; give a URL such as http://localhost:8000/api/chat",
        ),
        (["http://h/", "-o", "none/a"], "none/a cannot be written: No such file or directory"),
        (["http://h/", "-o", "a", "--cors", "x"], "--cors: 'x' is not an origin; "),
        (["http://h/", "-o", "a", "--header", "x"], "--header: 'x' and its value are not a header; "),
    ],
)
def test_what_cannot_be_recorded_is_told_in_one_line(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["record", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"usechat: {complaint}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["nowhere"], ["http://h/", "--cors", "x"], ["http://h/", "--port", "0", "--header", "x"]]
)
def test_a_command_that_fails_leaves_the_recording_that_was_there(arguments: list[str], tmp_path: Path) -> None:
    recording = written(tmp_path, "kept", LINES)
    assert main(["record", *arguments, "-o", recording]) == 2
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert main(["record", "http://h/", "--port", str(listener.getsockname()[1]), "-o", recording]) == 2
    assert Path(recording).read_text(encoding="utf-8") == "\n".join(LINES)


def written(directory: Path, name: str, lines: list[str]) -> str:
    path = directory / f"{name}.usechat.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def test_two_recordings_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = written(tmp_path, "before", LINES)
    after = written(tmp_path, "after", [line.replace("Hel", "Hal") for line in LINES])
    assert main(["diff", before, before]) == 0
    assert capsys.readouterr().out == "No difference.\n"
    assert main(["diff", before, after]) == 1
    assert capsys.readouterr().out == 'answer 1: part 2 (text): text was "Hello", now it is "Hallo"\n'
    assert main(["diff", before, "nothing"]) == 2
    assert "nothing cannot be read" in capsys.readouterr().err
    assert main(["diff", before, after, "--sdk", "4"]) == 2
    assert "'4' is not an AI SDK release" in capsys.readouterr().err


def test_every_answer_of_a_recording_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = [line.replace('"exchange":1', '"exchange":2').replace('"exchange": 1', '"exchange": 2') for line in LINES]
    bad = json.dumps({"exchange": 2, "at": 0.5, "data": frame({"type": "ping"}).decode()})
    path = written(tmp_path, "a", [*LINES, *second[1:-1], bad, second[-1]])
    assert main(["check", path, "--format", "json"]) == 1
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(report["input"], report["ok"]) for report in reports] == [
        (f"{path}, answer 1", True),
        (f"{path}, answer 2", False),
    ]
    [problem] = [problem for problem in reports[1]["problems"] if problem["severity"] == "error"]
    assert (problem["rule"], problem["frame"]) == ("UC203", len(HELLO) + 1)


def test_a_page_that_left_is_no_failure_and_an_endpoint_that_was_away_is_not_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = written(tmp_path, "left", [*LINES[:6], '{"exchange":1,"at":2,"end":"left"}'])
    assert main(["check", left]) == 0
    assert "the page left before the end" in capsys.readouterr().out
    away = written(tmp_path, "away", [*LINES[:2], '{"exchange":1,"at":2,"end":"broken"}'])
    assert main(["check", away]) == 2
    assert f"{away}, answer 1: the endpoint could not be reached" in capsys.readouterr().err
    cut = written(tmp_path, "cut", LINES[:2])
    assert main(["check", cut]) == 2
    assert f"{cut}, answer 1: the recording has no response" in capsys.readouterr().err
    short = written(tmp_path, "short", LINES[:6])
    assert main(["check", short]) == 0
    assert "the recording ends before the answer does" in capsys.readouterr().out
    invalid = written(tmp_path, "broken", ["{}"])
    assert main(["check", invalid]) == 2
    assert f"usechat check: {invalid}, line 1: " in capsys.readouterr().err


def test_a_recording_without_an_answer_is_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = written(tmp_path, "empty", LINES[:1])
    assert main(["check", empty]) == 2
    assert capsys.readouterr().err == (
        f"usechat check: {empty} holds no answer to a chat request, so there is nothing to check\n"
    )


def test_an_answer_that_continues_a_message_is_checked_with_its_calls(tmp_path: Path) -> None:
    call = {"type": "tool-weather", "toolCallId": "t1", "state": "input-available", "input": {}}
    message = {"id": "m1", "role": "assistant", "parts": [{"type": "step-start"}, call]}
    request = {"method": "POST", "path": "", "body": {"messages": [message]}}
    chunks = [
        {"type": "start"},
        {"type": "start-step"},
        {"type": "tool-output-available", "toolCallId": "t1", "output": 1},
        {"type": "text-start", "id": "1"},
        {"type": "text-delta", "id": "1", "delta": "Hi"},
        {"type": "text-end", "id": "1"},
        {"type": "finish-step"},
        {"type": "finish"},
    ]
    lines = [
        LINES[0],
        json.dumps({"exchange": 1, "at": 0, "request": request}),
        LINES[2],
        *(json.dumps({"exchange": 1, "at": 1, "data": frame(chunk).decode()}) for chunk in chunks),
        LINES[-1],
    ]
    assert main(["check", written(tmp_path, "a", lines)]) == 0
    alone = lines[1].replace("assistant", "user")
    assert main(["check", written(tmp_path, "b", [lines[0], alone, *lines[2:]])]) == 1
