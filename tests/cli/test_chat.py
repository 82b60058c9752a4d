"""`usechat chat` through pipes: the text alone, the messages, frames, and exit codes."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.endpoints import HELLO_BYTES, Endpoint, served
from tests.conformance.served import serving
from usechat.cli import main
from usechat.server import ChatApp

pytestmark = pytest.mark.every_python

AGENTS = """
from usechat import parts

def parrot(turn):
    yield "You said: "
    yield f"{turn.text}, with {len(turn.files)} files, {turn.body.get('lang')}"

def failing(turn):
    yield "Well"
    raise ValueError("secret")

def asking(turn):
    yield parts.ToolCall("t1", "remove", {})
    yield parts.ApprovalRequest("a1", "t1")

def twofold(turn):
    yield "One."
    yield parts.ToolCall("t1", "search", {})
    yield parts.ToolResult("t1", 1)
    yield "Two"
    yield ", still two."

def evil(turn):
    return "a\\x1b[2Jb"

number = 5
"""


@pytest.fixture(autouse=True)
def _agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "piped_agents.py").write_text(AGENTS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("piped_agents", None)


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> "Chat":
    return Chat(monkeypatch, capsys)


class Chat:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, text: str, *arguments: str) -> tuple[int, str, str]:
        self._monkeypatch.setattr("sys.stdin", io.StringIO(text))
        code = main(["chat", *arguments])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err


def test_texts_around_a_tool_are_paragraphs(chat: Chat) -> None:
    assert chat("hi", "piped_agents:twofold") == (0, "One.\n\nTwo, still two.\n", "")


def test_a_pipe_gets_the_text_alone(chat: Chat) -> None:
    assert chat("hi\n", "piped_agents:parrot") == (0, "You said: hi, with 0 files, None\n", "")


def test_files_and_the_body_are_sent(chat: Chat, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    options = ["--file", "a.txt", "--body", '{"lang":"fr"}']
    assert chat("hi", "piped_agents:parrot", *options)[1] == "You said: hi, with 1 files, fr\n"


def test_json_is_the_messages(chat: Chat) -> None:
    code, out, _ = chat("hi", "piped_agents:parrot", "--json")
    assert code == 0
    assert [(message["role"], message["parts"][-1]["text"]) for message in json.loads(out)] == [
        ("user", "hi"),
        ("assistant", "You said: hi, with 0 files, None"),
    ]


def test_an_endpoint_is_asked_with_headers_and_its_frames_are_shown_raw(chat: Chat) -> None:
    endpoint = Endpoint()
    with served(endpoint) as url:
        assert chat("hi", url, "--header", "X-Key: abc", "--id", "c7") == (0, "Hello\n", "")
        code, out, _ = chat("hi", url, "--raw")
    assert (code, out) == (0, HELLO_BYTES.decode())
    assert endpoint.headers[0]["x-key"] == "abc"
    assert endpoint.requests[0][2]["id"] == "c7"


@pytest.mark.parametrize(
    "frames",
    [
        'data: {"type":"start","unknown":"é"}\n\n: comment\n\ndata: {"type":"error","errorText":"No."}\n\n',
        'data: {"type":"start"}\r\n\r\ndata: {"type":"nonsense"}\r\n\r\ndata: {"ty',
    ],
)
def test_raw_shows_what_arrives_even_if_it_is_an_error_or_not_legal(chat: Chat, frames: str) -> None:
    body = frames.encode()
    with served(Endpoint([body[at : at + 1] for at in range(len(body))])) as url:
        code, out, err = chat("hi", url, "--raw")
    assert (code, out) == (1, frames[: len(out)])
    assert "nonsense" in out or "No." in out
    assert err


def test_raw_shows_the_messages_of_a_socket_as_lines(chat: Chat) -> None:
    with serving({"app": ChatApp(lambda turn: f"You said {turn.text}")}) as running:
        code, out, _ = chat("hi", f"{running.url('app')}/ws".replace("http://", "ws://"), "--raw")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, lines[0]["type"], lines[-1]["type"]) == (0, "start", "end")
    assert {"type": "finish", "finishReason": "stop"} in [line.get("chunk") for line in lines]


@pytest.mark.parametrize("options", [[], ["--raw"]])
def test_a_reader_that_has_seen_enough_is_no_failure_to_speak_of(
    options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Closed(io.StringIO):
        def write(self, _text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

        def fileno(self) -> int:
            return file.fileno()

    with (tmp_path / "out").open("w") as file:
        monkeypatch.setattr("sys.stdout", Closed())
        monkeypatch.setattr("sys.stdin", io.StringIO("hi"))
        assert main(["chat", "piped_agents:parrot", *options]) == 2
    assert capsys.readouterr().err == ""


def test_a_failure_is_exit_code_1_and_what_came_is_kept(chat: Chat) -> None:
    code, out, err = chat("hi", "piped_agents:failing")
    assert (code, out) == (1, "Well\n")
    assert "usechat chat: An error occurred. Reference: " in err
    code, out, _ = chat("hi", "piped_agents:failing", "--json")
    assert (code, json.loads(out)[-1]["parts"][-1]["text"]) == (1, "Well")
    code, out, err = chat("hi", "http://127.0.0.1:9/api/chat")
    assert (code, out) == (1, "")
    assert err.startswith("usechat chat: cannot connect to http://127.0.0.1:9/api/chat: ")


@pytest.mark.parametrize(
    ("end", "code"),
    [(b"", 1), (b"data: [DONE]\n\n", 0), (b'data: {"type":"finish"}\n\n', 0), (b'data: {"type":"abort"}\n\n', 0)],
)
def test_an_answer_that_was_cut_off_is_exit_code_1(chat: Chat, end: bytes, code: int) -> None:
    begin = b'data: {"type":"start","messageId":"m"}\n\ndata: {"type":"text-start","id":"1"}\n\n'
    text = b'data: {"type":"text-delta","id":"1","delta":"Well"}\n\ndata: {"type":"text-end","id":"1"}\n\n'
    with served(Endpoint(begin + text + end)) as url:
        result, out, err = chat("hi", url)
    assert (result, out) == (code, "Well\n")
    assert ("the stream ends without `finish` and without [DONE]" in err) is bool(code)


def test_a_refusal_is_told_with_its_address_and_status(chat: Chat) -> None:
    def shown(status: int, body: str) -> str:
        with served(Endpoint(body.encode(), status=status, content_type="text/html")) as url:
            code, out, err = chat("hi", url)
            assert (code, out) == (1, "")
            return err.removeprefix(f"usechat chat: {url} ")

    assert shown(404, "Not Found\n") == "answered with status 404: Not Found\n"
    assert shown(503, "") == "answered with status 503\n"
    assert shown(500, "x" * 600) == f"answered with status 500: {'x' * 500}… (600 characters)\n"


def test_closed_standard_input_is_an_empty_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)  # what Python makes of `<&-`
    assert main(["chat", "piped_agents:parrot"]) == 2
    assert capsys.readouterr().err.startswith("usechat: standard input is empty; ")


def test_an_answer_that_waits_for_a_person_is_exit_code_1(chat: Chat) -> None:
    code, out, err = chat("hi", "piped_agents:asking")
    assert (code, out) == (1, "")
    assert err == "usechat chat: the answer waits for a person: remove; run the command in a terminal\n"


@pytest.mark.parametrize(
    ("text", "arguments", "complaint"),
    [
        ("", ["piped_agents:parrot"], "standard input is empty; write the message to it, or run the command in"),
        ("hi", ["piped_agents:number"], "piped_agents:number cannot answer: int cannot answer a chat; "),
        ("hi", ["piped_agents:none"], "piped_agents has no 'none'"),
        ("hi", ["piped_agents:parrot", "--sdk", "4"], "'4' is not an AI SDK release"),
        ("hi", ["ftp://h/"], "'ftp://h/' is not an endpoint; "),
        ("hi", ["piped_agents:parrot", "--file", "none"], "--file none cannot be read: No such file or directory"),
        ("hi", ["piped_agents:parrot", "--file", "."], "--file . cannot be read: Is a directory"),
    ],
)
def test_what_cannot_be_asked_is_exit_code_2(chat: Chat, text: str, arguments: list[str], complaint: str) -> None:
    code, out, err = chat(text, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"usechat: {complaint}")


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])  # what Python chooses by the locale
def test_input_that_is_not_utf8_is_exit_code_2(
    errors: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9"), "utf-8", errors))
    code, captured = main(["chat", "piped_agents:parrot"]), capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert captured.err.startswith("usechat: standard input is not UTF-8; convert it ")


def test_a_terminal_gets_no_control_characters_and_a_file_gets_the_text_as_it_is(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert chat("hi", "piped_agents:evil")[1] == "a\x1b[2Jb\n"

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    monkeypatch.setattr("sys.stdin", io.StringIO("hi"))
    main(["chat", "piped_agents:evil"])
    assert terminal.getvalue() == "a\N{REPLACEMENT CHARACTER}[2Jb\n"
