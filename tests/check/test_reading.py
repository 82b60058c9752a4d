"""Files, standard input and URLs."""

import gzip
import io
import itertools
import json
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.check.server import CHUNKED, END, OK, piece, serving
from tests.check.streams import text, turn
from usechat.check import CannotJudge, Capture, check_capture
from usechat.check.reading import ChatQuestion, is_url, read_file, read_url

BODY = turn(*text())
HELLO = ChatQuestion()


def fetch(url: str, question: ChatQuestion = HELLO, timeout: float = 10, maximum_bytes: int = 10_000) -> Capture:
    return read_url(url, question, timeout=timeout, maximum_bytes=maximum_bytes)


def test_which_inputs_are_urls() -> None:
    assert [is_url(name) for name in ("http://a", "https://a", "a.sse", "-", "ftp://a")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.sse"
    path.write_bytes(BODY)
    assert read_file(str(path), maximum_bytes=len(BODY)) == Capture(name=str(path), body=BODY)


def test_a_file_that_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "a.sse"
    path.write_bytes(BODY)
    expected = Capture(name=str(path), body=BODY[:10], unread="only the first 10 bytes were read")
    assert read_file(str(path), maximum_bytes=10) == expected


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CannotJudge, match="cannot be read: No such file or directory"):
        read_file(str(tmp_path / "a.sse"), maximum_bytes=10)


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(BODY)))
    assert read_file("-", maximum_bytes=10_000) == Capture(name="-", body=BODY)


def test_a_url_is_asked_as_use_chat_asks() -> None:
    with serving([OK + b"content-type: text/event-stream\r\n\r\n" + BODY]) as server:
        question = ChatQuestion("Hi!", (("Authorization", "Bearer x"),), {"model": "m", "trigger": "t"})
        capture = fetch(server.url, question)
    assert (capture.name, capture.status, capture.body) == (server.url, 200, BODY)
    assert capture.headers is not None
    assert capture.headers["content-type"] == "text/event-stream"
    assert len(capture.arrivals) >= 1
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /api/chat HTTP/1.1\r\n")
    assert {b"content-type: application/json", b"accept: */*", b"authorization: Bearer x"} <= {
        line[: line.index(b":")].lower() + line[line.index(b":") :] for line in head.split(b"\r\n")[1:]
    }
    sent = json.loads(body)
    assert list(sent) == ["id", "messages", "trigger", "model"]
    assert (sent["trigger"], sent["model"]) == ("t", "m")
    [message] = sent["messages"]
    assert (message["role"], message["parts"]) == ("user", [{"type": "text", "text": "Hi!"}])


def test_a_redirect_is_followed() -> None:
    with serving([OK + b"\r\n" + BODY]) as target:
        redirect = f"HTTP/1.1 307 Temporary Redirect\r\nlocation: {target.url}\r\ncontent-length: 0\r\n\r\n"
        with serving([redirect.encode()]) as server:
            assert fetch(server.url).body == BODY


def test_a_failure_is_an_answer() -> None:
    with serving([b"HTTP/1.1 503 Busy\r\ncontent-length: 4\r\n\r\nbusy"]) as server:
        capture = fetch(server.url)
    assert (capture.status, capture.body) == (503, b"busy")


def test_compression_is_undone_and_noticed() -> None:
    with serving([OK + b"content-encoding: gzip\r\n\r\n" + gzip.compress(BODY)]) as server:
        capture = fetch(server.url)
    assert capture.body == BODY
    assert "UC014" in [problem.rule.id for problem in check_capture(capture).problems]


def test_a_stream_that_does_not_end_is_cut_by_the_clock() -> None:
    with serving([CHUNKED + piece(BODY), 1.0]) as server:
        capture = fetch(server.url, timeout=0.4)
    assert (capture.body, capture.unread) == (BODY, "the stream had not ended after 0.4 s")


def test_a_stream_that_does_not_end_is_cut_by_its_size() -> None:
    endless = itertools.chain([CHUNKED], itertools.repeat(piece(b": x\n\n" * 1_000)))
    with serving(endless) as server:
        capture = fetch(server.url)
    assert (len(capture.body), capture.unread) == (10_000, "only the first 10000 bytes were read")


@pytest.mark.parametrize("rest", [b"", b"nonsense"])
def test_a_connection_that_breaks(rest: bytes) -> None:
    with serving([CHUNKED + piece(BODY), 0.1, rest]) as server:
        capture = fetch(server.url)
    assert (capture.body, capture.is_broken) == (BODY, True)


def test_a_stream_that_comes_all_at_once() -> None:
    body = turn(*[chunk for number in range(5) for chunk in text(str(number))])
    with serving([1.1, CHUNKED + piece(body) + END]) as server:
        capture = fetch(server.url)
    assert "UC015" in [problem.rule.id for problem in check_capture(capture).problems]


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(CannotJudge, match=r"^http://127.0.0.1:\d+ did not answer: .*connect"):
        fetch(f"http://127.0.0.1:{port}")


def test_nobody_answers_in_time() -> None:
    with serving([0.6]) as server, pytest.raises(CannotJudge, match=r"did not answer: .* after 0\.2 s"):
        fetch(server.url, timeout=0.2)


def test_the_answer_is_no_http() -> None:
    with serving([b"SSH-2.0\r\n\r\n"]) as server, pytest.raises(CannotJudge, match="did not answer: "):
        fetch(server.url)


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a:99999/"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(CannotJudge):
        fetch(url)
