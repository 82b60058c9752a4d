"""The command line: what it prints, and its exit codes."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

import usechat
from tests.certificate import write_certificate
from tests.check.server import CHUNKED, OK, piece, serving
from tests.check.streams import START, stream, text, turn
from tests.server.process import eventually
from usechat.cli import main
from usechat.cli.parser import CommandParser

pytestmark = pytest.mark.quick

GOOD = turn(*text())
BAD = stream({"type": "step-start"})


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "good.sse"
    path.write_bytes(GOOD)
    return str(path)


@pytest.fixture
def bad(tmp_path: Path) -> str:
    path = tmp_path / "bad.sse"
    path.write_bytes(BAD)
    return str(path)


def exit_code(*arguments: str) -> int:
    """Return how a command ends, also when its parser ends it."""
    try:
        return main(arguments)
    except SystemExit as error:
        return int(error.code or 0)


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--version") == 0
    assert capsys.readouterr().out == f"usechat {usechat.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["check"], "usechat check: the following arguments are required: INPUT; see usechat check --help"),
        (
            ["check", "-", "--sdk", "4"],
            "usechat: '4' is not an AI SDK release; give 5, 6 or 7 for the newest of that major, or one such as"
            " 6.0.150, or any for all of them\n",
        ),
        (
            ["check", "localhost:1/api/chat"],
            "usechat check: localhost:1/api/chat cannot be read: No such file or directory; did you mean"
            " http://localhost:1/api/chat?\n",
        ),
        (
            ["check", "-", "--timeout", "0"],
            "usechat check: argument --timeout: '0' is not a number of seconds above 0;",
        ),
        (
            ["check", "-", "--timeout", "x"],
            "usechat check: argument --timeout: 'x' is not a number of seconds above 0;",
        ),
        (["check", "-", "--max-bytes", "-1"], "usechat check: argument --max-bytes: "),
        (["check", "-", "--max-bytes", "x"], "usechat check: argument --max-bytes: 'x' is not a whole number above 0;"),
        (["check", "-", "--header", "x"], "usechat check: argument --header: 'x' is not of the form 'Name: value';"),
        (["check", "-", "--body", "{"], "usechat check: argument --body: not JSON: Expecting"),
        (["check", "-", "--body", "[]"], "usechat check: argument --body: not a JSON object;"),
        (["serve"], "usechat serve: the following arguments are required: OBJECT; see usechat serve --help"),
        (
            ["serve", "a:b", "--port", "65536"],
            "usechat serve: argument --port: '65536' is not a port: give a number up to 65535;",
        ),
        (["serve", "a:b", "--path", "chat"], "usechat serve: argument --path: 'chat' is not a path such as /api/chat;"),
        (
            ["serve", "a:b", "--disconnect", "-1"],
            "usechat serve: argument --disconnect: '-1' is not a number of seconds above 0, nor cancel or continue",
        ),
        (
            ["serve", "a:b", "--idle-timeout", "0"],
            "usechat serve: argument --idle-timeout: '0' is not a number of seconds",
        ),
        (
            ["serve", "a:b", "--coalesce-ms", "-1"],
            "usechat serve: argument --coalesce-ms: '-1' is not a whole number of milliseconds;",
        ),
        (["serve", "a:b", "--workers", "0"], "usechat serve: argument --workers: '0' is not a whole number above 0;"),
        (["serve", "a:b", "--conflict", "x"], "usechat serve: argument --conflict: invalid choice: 'x' (choose from "),
        (
            ["serve", "a:b", "--prot", "1"],
            "usechat serve: unrecognized arguments: --prot 1; did you mean --port? See usechat serve --help\n",
        ),
        (
            ["serve", "a:b", "--reddis=url"],
            "usechat serve: unrecognized arguments: --reddis=url; did you mean --redis? See usechat serve --help\n",
        ),
        (
            ["serve", "a:b", "--zzz"],
            "usechat serve: unrecognized arguments: --zzz; see usechat serve --help\n",
        ),
        (["--prot", "serve", "a:b"], "usechat: unrecognized arguments: --prot; see usechat --help\n"),
        (["chats", "list"], "usechat chats list: the following arguments are required: --chats; see usechat chats"),
        (["serve", "nowhere:agent"], "usechat: there is no module 'nowhere' in "),
        (["check", "no-such-file"], "usechat check: no-such-file cannot be read: No such file or directory\n"),
        (["check", "http://"], "usechat check: http:// did not answer: "),
    ],
)
def test_what_cannot_be_judged_is_told_in_one_line(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(complaint)
    assert captured.err.count("\n") == 1


def test_a_stream_that_is_too_deep_is_not_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep.sse"
    path.write_bytes(b"data: " + b"[" * 200 + b"]" * 200 + b"\n\n")
    assert exit_code("check", str(path)) == 2
    assert capsys.readouterr().err.startswith(f"usechat check: {path}: frame 1 is nested in more than 128 levels")


def test_accepted_and_rejected(good: str, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("check", good) == 0
    assert capsys.readouterr().out.startswith(f"{good}: accepted\n")
    assert exit_code("check", bad) == 1
    assert capsys.readouterr().out.startswith(f"{bad}: rejected\n")


def test_several_inputs(good: str, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("check", good, bad) == 1
    assert f"\n\n{bad}: rejected\n" in capsys.readouterr().out
    assert exit_code("check", "no-such-file", bad, good) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{bad}: rejected\n")
    assert captured.err.count("\n") == 1


def test_releases_are_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.sse"
    path.write_bytes(stream(START, *text(), {"type": "finish", "finishReason": "stop"}))
    assert [exit_code("check", str(path), "--sdk", sdk) for sdk in ("5", "5.0.0", "any", "7.0.0")] == [0, 1, 1, 0]
    assert exit_code("check", str(path), "--sdk", "5", "--sdk", "5.0.0") == 1


def test_json_is_a_line_per_input(good: str, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    exit_code("check", good, bad, "--format", "json", "--sdk", "7")
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(report["input"], report["ok"]) for report in reports] == [(good, True), (bad, False)]
    assert [list(report) for report in reports] == [["input", "ok", "verdicts", "problems"]] * 2


def test_sarif_and_junit_are_one_document(good: str, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("check", good, bad, "--format", "sarif") == 1
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert [result["ruleId"] for result in run["results"]] == ["UC203"]
    assert exit_code("check", good, bad, "--format", "junit") == 1
    assert len(ElementTree.fromstring(capsys.readouterr().out)) == 2


def test_machine_formats_tell_of_an_input_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "no-such-file cannot be read: No such file or directory"
    assert exit_code("check", "no-such-file", "--format", "json") == 2
    captured = capsys.readouterr()
    assert (json.loads(captured.out)["error"], captured.err) == (reason, f"usechat check: {reason}\n")
    assert exit_code("check", "no-such-file", "--format", "sarif") == 2
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert run["invocations"][0]["executionSuccessful"] is False
    assert exit_code("check", "no-such-file", "--format", "junit") == 2
    assert [error.get("message") for error in ElementTree.fromstring(capsys.readouterr().out).iter("error")] == [reason]


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(GOOD)))
    assert exit_code("check", "-") == 0
    assert capsys.readouterr().out.startswith("-: accepted\n")


def test_a_url(capsys: pytest.CaptureFixture[str]) -> None:
    with serving([OK + b"\r\n" + GOOD]) as server:
        options = ["--message", "Hi", "--header", "X-Key: a:b", "--body", '{"model":"m"}', "--format", "json"]
        assert exit_code("check", server.url, *options) == 0
    assert b"\r\nX-Key: a:b\r\n" in server.requests[0]
    assert json.loads(server.requests[0].partition(b"\r\n\r\n")[2])["model"] == "m"
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [problem["rule"] for problem in problems] == ["UC010", "UC011", "UC012", "UC013"]


def test_limits_of_a_url(capsys: pytest.CaptureFixture[str]) -> None:
    with serving([OK + b"\r\n" + GOOD]) as server:
        assert exit_code("check", server.url, "--max-bytes", "50") == 2
    assert "UC007: only the first 50 bytes were read" in capsys.readouterr().out


def test_a_stream_without_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    release = threading.Event()
    with serving([CHUNKED + piece(GOOD), release]) as server:
        assert exit_code("check", server.url, "--timeout", "1.5") == 2
        release.set()
    report = " ".join(capsys.readouterr().out.split())
    assert "UC007: the server did not end the stream within 1.5 s" in report
    assert "did not answer" not in report


def test_a_self_signed_certificate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_certificate(tmp_path / "both.pem")
    with serving([b""], [OK + b"\r\n" + GOOD], certificate=tmp_path / "both.pem") as server:
        assert exit_code("check", server.url) == 2
        assert "; --insecure accepts every certificate\n" in capsys.readouterr().err
        assert exit_code("check", server.url, "--insecure") == 0


def test_annotations_for_github(good: str, bad: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("check", good, bad, "no-such-file", "--format", "github") == 2
    lines = capsys.readouterr().out.splitlines()
    commands = [line.partition(" ")[0] for line in lines if line.startswith("::")]
    assert commands == ["::error", "::error"]
    assert lines[0] == f"{good}: accepted. AI SDK 5, 6 and 7 accept this stream."
    assert lines[-1].startswith("::error file=no-such-file,title=usechat check::no-such-file cannot be read")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colour_is_for_terminals(
    good: str, environment: dict[str, str], coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    exit_code("check", good)
    assert ("\x1b[" in terminal.getvalue()) is coloured


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    program = [sys.executable, "-c", "import sys; from usechat.cli import main; sys.exit(main())", *arguments]
    return subprocess.run(program, capture_output=True, check=False, timeout=60, **options)


def test_a_terminal_without_the_characters_shows_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "a.sse"
    path.write_bytes(turn(*text(delta="✓")))
    done = run("check", str(path), env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, b'"\\u2713"' in done.stdout) == (0, True)


def test_a_reader_that_has_seen_enough_hears_no_complaint(tmp_path: Path) -> None:
    path = tmp_path / "a.sse"
    path.write_bytes(BAD)
    reader, writer = os.pipe()
    os.close(reader)
    program = [sys.executable, "-c", "import sys; from usechat.cli import main; sys.exit(main())", "check", str(path)]
    done = subprocess.run(program, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writer)
    assert (done.returncode, done.stderr) == (2, b"")


def test_an_interruption_is_no_traceback() -> None:
    release = threading.Event()
    with serving([release]) as server:
        # A shell starts what runs in the background with interruptions ignored, and its children inherit that.
        listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
        program = [sys.executable, "-c", f"{listening}; import sys; from usechat.cli import main; sys.exit(main())"]
        running = subprocess.Popen([*program, "check", server.url], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not server.requests and running.poll() is None:
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        printed = running.communicate(timeout=60)
        release.set()
    assert (running.returncode, printed) == (130, (b"", b""))


def test_help_imports_no_command() -> None:
    program = "import sys; from usechat.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {"usechat.check", "usechat.server", "asyncio", "httpx2", "uvicorn"} & set(loaded) == set()


@pytest.mark.parametrize(
    "command", ["", "serve", "worker", "check", "chat", "record", "diff", "types", "chats", "docs", "demo", "sessions"]
)
def test_the_help_of_a_command_fits_80_columns(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    exit_code(*command.split(), "--help")
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def options_in(text: str) -> list[str]:
    return re.findall(r"^  (?:-h, )?(--[\w-]+)", text, re.MULTILINE)


def test_the_help_of_serve_shows_twelve_everyday_options_and_leads_to_all_of_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    exit_code("serve", "--help")
    everyday = capsys.readouterr().out
    exit_code("serve", "--help-all")
    every = capsys.readouterr().out
    assert len(options_in(everyday)) == 2 + 12
    assert set(options_in(everyday)) < set(options_in(every))
    hidden = len(set(options_in(every))) - len(options_in(everyday))
    assert f"\n{hidden} more options: usechat serve --help-all\n" in everyday
    assert [line for line in every.splitlines() if len(line) > 80] == []


def test_a_help_text_keeps_its_items_and_examples() -> None:
    text = "One paragraph\nof two lines:\n\n- an item\n  of two lines\n- another\n\nexamples:\n  usechat  x\n"
    parser = CommandParser("x", "x", text)
    assert (
        "One paragraph of two lines:\n\n- an item of two lines\n- another\n\nexamples:\n  usechat  x\n"
        in parser.format_help()
    )


@pytest.mark.parametrize("command", [(), ("chats",), ("sessions",)], ids=["usechat", "chats", "sessions"])
def test_a_command_without_its_own_command_shows_its_help(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    exit_code(*command, "--help")
    text = capsys.readouterr().out
    assert exit_code(*command) == 2
    assert capsys.readouterr() == ("", text)


@pytest.mark.parametrize("module", ["msgspec", "usechat.protocol.parts", "usechat.cli", "starlette.routing"])
def test_an_interrupt_while_modules_are_imported_leaves_no_traceback(module: str, tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text("def agent(turn):\n    return 'Hello'\n")
    # A shell lets what it starts in the background ignore interrupts, and so would this program.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heed}; from usechat_program import main; exit(main())"
    command = [sys.executable, "-X", "importtime", "-c", program, "serve", "interrupted:agent", "--port", "0"]
    log = tmp_path / "output.txt"
    with log.open("wb") as output, subprocess.Popen(command, cwd=tmp_path, stdout=output, stderr=output) as process:
        eventually(lambda: f" {module}\n" in log.read_text(), f"{module} is imported")
        process.send_signal(signal.SIGINT)
        process.wait(60)
    assert "Traceback" not in log.read_text()
    assert process.returncode in (-signal.SIGINT, 130)
