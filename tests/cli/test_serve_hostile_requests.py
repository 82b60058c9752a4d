"""Requests that no page sends, to a real `usechat serve` with stored chats: each gets its own status."""

import base64
import http.client
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import pytest

from tests.server.process import PATIENCE, ServeProcess, serve_process
from tests.server.signing import SECRET, SHARED, claims, sign
from usechat.cli import main

AGENT = "def agent(turn):\n    return f'You said {turn.text}.'\n"


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class Page:
    """Sends paths exactly as they are written."""

    def __init__(self, server: ServeProcess) -> None:
        self.server = server
        self._address = urlsplit(server.url).netloc

    def send(self, method: str, path: str, body: Any = None, subject: str = "ada") -> Reply:
        token = sign(SHARED, claims(sub=subject))
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        connection = http.client.HTTPConnection(self._address, timeout=PATIENCE)
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        reply = Reply(response.status, {key.lower(): value for key, value in response.getheaders()}, response.read())
        connection.close()
        return reply

    def say(self, chat_id: str, *parts: dict[str, Any]) -> None:
        message = {"id": f"u-{chat_id}", "role": "user", "parts": [{"type": "text", "text": "hi"}, *parts]}
        reply = self.send("POST", "/api/chat", {"id": chat_id, "message": message})
        assert reply.status == 200, reply

    def ids(self) -> list[str]:
        return sorted(chat["id"] for chat in json.loads(self.send("GET", "/api/chats").body)["chats"])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    directory = tmp_path_factory.mktemp("hostile")
    (directory / "agent.py").write_text(AGENT)
    (directory / "secret").write_text(SECRET)
    auth = "jwt:secret=secret,audience=chat,issuer=https://issuer.example"
    with serve_process(directory, "agent.py:agent", "--chats", "chats.db", "--share", "--auth", auth) as server:
        yield Page(server)


@pytest.mark.parametrize(
    ("others", "deleted"),
    [
        (["a"], "a/"),
        (["x"], "x/share"),
        (["y"], "y/stream"),
        (["z"], "z/messages"),
        (["b"], "b%2F"),
        (["f"], "f/files/1"),
    ],
)
def test_a_chat_is_deleted_by_its_id_as_it_was_given(page: Page, others: list[str], deleted: str) -> None:
    before = page.ids()  # of other tests
    for chat_id in [*others, deleted]:
        page.say(chat_id)
    assert page.send("DELETE", f"/api/chat/{quote(deleted, safe='')}").status == 204
    assert page.ids() == sorted([*before, *others])
    for chat_id in others:
        page.send("DELETE", f"/api/chat/{quote(chat_id, safe='')}")


def test_the_routes_of_a_chat_with_slashes_in_its_id_work(page: Page) -> None:
    page.say("n/share")
    token = json.loads(page.send("PUT", "/api/chat/n%2Fshare/share").body)["token"]
    assert page.send("GET", f"/api/shared/{token}").status == 200
    assert page.send("GET", "/api/chat/n%2Fshare/messages").status == 200
    assert page.send("GET", "/api/chat/n%2Fshare/stream").status == 204
    assert page.send("DELETE", "/api/chat/n%2Fshare/share").status == 204
    assert page.send("GET", f"/api/shared/{token}").status == 404
    assert page.send("DELETE", "/api/chat/n%2Fshare").status == 204


@pytest.mark.parametrize(
    ("media_type", "shown", "disposition"),
    [
        ("image/png", "image/png", None),
        ("image/png, text/html", "application/octet-stream", "attachment"),
        ("image/png;a=b, text/html", "application/octet-stream", "attachment"),
        ("image/pngx", "image/pngx", "attachment"),
        ("video/mp4; codecs=avc1", "video/mp4; codecs=avc1", None),
        ("video/mp4 text/html", "application/octet-stream", "attachment"),
    ],
)
def test_only_a_file_of_one_harmless_type_is_shown_inline(
    page: Page, media_type: str, shown: str, disposition: str | None
) -> None:
    content = base64.b64encode(b"x" * 20_000).decode()
    page.say("files", {"type": "file", "mediaType": media_type, "url": f"data:image/png;base64,{content}"})
    messages = json.loads(page.send("GET", "/api/chat/files/messages").body)["messages"]
    [url] = [part["url"] for message in messages for part in message["parts"] if part["type"] == "file"]
    headers = page.send("GET", urlsplit(url).path).headers
    assert (headers["content-type"], headers.get("content-disposition")) == (shown, disposition)
    page.send("DELETE", "/api/chat/files")


@pytest.mark.parametrize(("length", "status"), [(1000, 200), (1001, 400), (60_000, 400)])
def test_a_search_word_is_limited(page: Page, length: int, status: int) -> None:
    assert page.send("GET", f"/api/chats?q={'x' * length}").status == status


def test_a_subject_that_no_database_keeps_is_no_identity(page: Page) -> None:
    assert page.send("GET", "/api/chats", subject="ada\0").status == 401


def test_the_log_tells_neither_tokens_nor_search_words(page: Page) -> None:
    page.say("shared")
    token = json.loads(page.send("PUT", "/api/chat/shared/share").body)["token"]
    for path in (f"/api/shared/{token}", f"/api/shared/{token}/files/x", f"/?shared={token}", "/api/chats?q=privacy"):
        page.send("GET", path)
    log = page.server.written
    assert '"GET /api/shared/*** HTTP/1.1" 200' in log
    assert '"GET /api/chats HTTP/1.1" 200' in log
    assert token not in log
    assert "privacy" not in log


def test_a_database_of_a_newer_usechat_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.py").write_text(AGENT)
    assert main(["chats", "migrate", "--chats", "chats.db"]) == 0
    with sqlite3.connect("chats.db") as connection:
        connection.execute("UPDATE usechat_chats_version SET version_num = '9999'")
    connection.close()
    capsys.readouterr()
    assert main(["serve", "agent.py:agent", "--chats", "chats.db"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "usechat: the chat database was made by a newer usechat: its tables have the revision '9999'"
    )
    assert error.count("\n") == 1
