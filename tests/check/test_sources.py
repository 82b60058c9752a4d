"""Files, standard input and URLs."""

import gzip
import io
import itertools
import json
import re
import threading
import tracemalloc
import zlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.certificate import write_certificate
from tests.check.server import CHUNKED, END, OK, Item, piece, serving
from tests.check.streams import text, turn
from tests.client.endpoints import Endpoint, served
from tests.conformance.served import unanswered_port
from usechat.check import Capture, check_capture
from usechat.check.sources import ChatQuestion, is_url, read_file, read_url
from usechat.errors import CannotJudge

BODY = turn(*text())
HELLO = ChatQuestion()


def fetch(url: str, question: ChatQuestion = HELLO, timeout: float = 30, maximum_bytes: int = 10_000) -> Capture:
    return read_url(url, question, timeout=timeout, maximum_bytes=maximum_bytes)


def test_which_inputs_are_urls() -> None:
    names = ["http://a", "https://a", "HTTP://a", "HttpS://a", "a.sse", "-", "ftp://a", "localhost:3000"]
    assert [name for name in names if is_url(name)] == names[:4]


def test_a_file_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "a.sse"
    path.write_bytes(BODY * 10_000)
    pieces = list(read_file(str(path)))
    assert b"".join(pieces) == BODY * 10_000
    assert 1 < len(pieces) < 100


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CannotJudge, match="cannot be read: No such file or directory"):
        list(read_file(str(tmp_path / "a.sse")))


@pytest.mark.parametrize("name", ["localhost:3000/api/chat", "localhost", "example.org:80", "127.0.0.1:8000/?a=b"])
def test_a_url_without_its_scheme(name: str) -> None:
    with pytest.raises(CannotJudge, match=rf"No such file or directory; did you mean http://{re.escape(name)}\?$"):
        list(read_file(name))


@pytest.mark.parametrize("name", ["captures/a.sse", "a:b/c", "example.org/chat"])
def test_a_file_that_is_not_there_is_not_taken_for_a_url(name: str) -> None:
    with pytest.raises(CannotJudge, match=r"No such file or directory$"):
        list(read_file(name))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(BODY)))
    assert list(read_file("-")) == [BODY]


def test_a_url_is_asked_as_use_chat_asks() -> None:
    with serving([OK + b"content-type: text/event-stream\r\n\r\n" + BODY]) as server:
        question = ChatQuestion("Hi!", (("Authorization", "Bearer x"),), {"model": "m", "trigger": "t"})
        capture = fetch(server.url, question)
    assert (capture.name, capture.status, capture.body) == (server.url, 200, BODY)
    assert capture.headers is not None
    assert capture.headers["content-type"] == "text/event-stream"
    assert capture.arrivals[-1][1] == len(BODY)
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /api/chat HTTP/1.1\r\n")
    assert {b"content-type: application/json", b"accept: */*", b"authorization: Bearer x"} <= {
        line[: line.index(b":")].lower() + line[line.index(b":") :] for line in head.split(b"\r\n")[1:]
    }
    request = json.loads(body)
    assert list(request) == ["id", "messages", "trigger", "model"]
    assert (request["trigger"], request["model"]) == ("t", "m")
    [message] = request["messages"]
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


def answer(encoding: str, body: bytes) -> list[Item]:
    return [OK + f"content-encoding: {encoding}\r\n\r\n".encode() + body]


def rules(capture: Capture) -> list[str]:
    return [problem.rule.id for problem in check_capture(capture).problems]


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(BODY, mtime=0)),
        ("X-GZip", gzip.compress(BODY, mtime=0)),
        ("deflate", zlib.compress(BODY)),
    ],
)
def test_compression_is_undone_and_noticed(encoding: str, body: bytes) -> None:
    with serving(answer(encoding, body)) as server:
        capture = fetch(server.url)
    assert capture.body == BODY
    assert "UC014" in rules(capture)
    assert b"accept-encoding: gzip, deflate\r\n" in server.requests[0].lower()


def test_a_small_body_that_unpacks_to_a_huge_one_is_cut() -> None:
    tracemalloc.start()
    with serving(answer("gzip", gzip.compress(bytes(100_000_000), 1))) as server:
        tracemalloc.reset_peak()
        capture = fetch(server.url)
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (capture.body, capture.unread) == (bytes(10_000), "only the first 10000 bytes were read")
    assert peak < 20_000_000


@pytest.mark.parametrize(
    ("encoding", "body", "read"),
    [
        ("gzip", BODY, b""),
        ("deflate", BODY, b""),
        ("gzip", gzip.compress(b": hello\n\n", mtime=0)[:-8] + b"x" * 8, b": hello\n\n"),
    ],
)
def test_a_body_that_is_not_what_its_encoding_says(encoding: str, body: bytes, read: bytes) -> None:
    with serving(answer(encoding, body)) as server:
        capture = fetch(server.url)
    assert (capture.is_broken, capture.has_false_encoding) == (False, True)
    assert capture.body in (b"", read)
    assert "UC008" in rules(capture)
    assert "UC006" not in rules(capture)


def test_an_encoding_that_nobody_asked_for() -> None:
    with serving(answer("br", b"x")) as server, pytest.raises(CannotJudge, match="compresses its answer with br, tho"):
        fetch(server.url)


def test_a_stream_that_does_not_end_is_cut_by_the_clock() -> None:
    end = threading.Event()
    with serving([CHUNKED + piece(BODY), end]) as server:
        capture = fetch(server.url, timeout=1)
        end.set()
    assert (capture.body, capture.unread) == (BODY, "the server did not end the stream within 1 s")


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


def test_a_comment_at_once_and_the_stream_all_at_once_later() -> None:
    body = turn(*[chunk for number in range(5) for chunk in text(str(number))])
    with serving([CHUNKED + piece(b": stream-open\n\n"), 1.1, piece(body) + END]) as server:
        assert "UC015" in rules(fetch(server.url))


def test_pieces_that_come_together_are_noted_once() -> None:
    pieces = [piece(BODY[index : index + 1]) for index in range(len(BODY))]
    with serving([CHUNKED + b"".join(pieces), 0.1, END]) as server:
        capture = fetch(server.url)
    assert capture.body == BODY
    assert len(capture.arrivals) < 20


def test_nobody_answers() -> None:
    with (
        unanswered_port() as port,
        pytest.raises(CannotJudge, match=r"^http://127.0.0.1:\d+ did not answer: .*connect"),
    ):
        fetch(f"http://127.0.0.1:{port}")


def test_nobody_answers_in_time() -> None:
    end = threading.Event()
    with serving([end]) as server:
        with pytest.raises(CannotJudge, match=r"/api/chat did not answer within 0\.2 s$"):
            fetch(server.url, timeout=0.2)
        end.set()


def test_the_answer_is_no_http() -> None:
    with serving([b"SSH-2.0\r\n\r\n"]) as server, pytest.raises(CannotJudge, match="did not answer: "):
        fetch(server.url)


@pytest.mark.parametrize("url", ["http://", "http://[::1", "http://a:99999/"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(CannotJudge):
        fetch(url)


def test_a_server_without_tls() -> None:
    with served(Endpoint()) as url, pytest.raises(CannotJudge, match=r"did not answer: the server does not use TLS; "):
        fetch(url.replace("http:", "https:"))


def test_a_self_signed_certificate_is_accepted_on_request(tmp_path: Path) -> None:
    write_certificate(tmp_path / "both.pem")
    with serving([OK + b"\r\n" + BODY], [OK + b"\r\n" + BODY], certificate=tmp_path / "both.pem") as server:
        with pytest.raises(
            CannotJudge, match=r"did not answer: .*CERTIFICATE.*; --insecure accepts every certificate$"
        ):
            fetch(server.url)
        assert read_url(server.url, HELLO, timeout=30, maximum_bytes=10_000, insecure=True).body == BODY
