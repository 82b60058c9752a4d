"""A client over WebSocket is nobody until it has shown credentials: small frames, few sockets, little time."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.conformance.served import Served, eventually, serving
from tests.server.socket_apps import agent, body_of, by_name, opened
from usechat.server import ChatApp, LocalPagesOnly, bearer, websocket
from usechat.turn import Identity

pytestmark = pytest.mark.external_agents

UNKNOWN = (1008, "Authenticate at the handshake, or with a small first frame.")


class Names:
    """A token is a name; Eve is nobody."""

    def identify(self, token: str) -> Identity | None:
        return None if token == "eve" else Identity(token)


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    apps = {
        "tokens": ChatApp(agent, authorize=bearer(Names()), drain=0),
        "owned": ChatApp(agent, authorize=by_name, drain=0),
        "lines": ChatApp(agent, authorize=by_name, drain=0),
        "long": ChatApp(agent, authorize=by_name, drain=0),
        "local": ChatApp(agent, authorize=LocalPagesOnly(), drain=0),
    }
    with serving(apps) as running:
        yield running


def large(**more: Any) -> str:
    frame = {"type": "send", "requestId": "r1", "body": {"x": ["x"] * 100_000}, **body_of("c"), **more}
    return json.dumps(frame)


@pytest.mark.parametrize("app", ["tokens", "owned"])
def test_a_large_frame_of_somebody_unknown_is_not_read(server: Served, app: str) -> None:
    with opened(server, app) as client:
        client.connection.send(large(headers={"authorization": "Bearer ada"}))
        assert client.closed() == UNKNOWN


@pytest.mark.parametrize("first", ["handshake", "frame"])
def test_a_client_that_is_known_may_send_large_frames(server: Served, first: str) -> None:
    headers = {"authorization": "Bearer ada"}
    with opened(server, "tokens", additional_headers=headers if first == "handshake" else {}) as client:
        if first == "frame":
            client.resume("r0", "nothing", headers=headers)
            client.frames("r0")
        client.connection.send(large(headers=headers, messages=[]))
        assert "messages" in client.frames("r1")[-1]["errorText"]


@pytest.mark.parametrize(
    ("app", "frame", "text"),
    [
        ("tokens", {"messages": 1}, "The request carries no bearer token."),
        ("tokens", {"messages": 1, "headers": {"authorization": "Bearer eve"}}, "The token is not valid."),
        ("tokens", {"headers": {"a b": ""}}, "The request carries no valid credentials."),
        ("owned", {"messages": 1}, "Who are you?"),
        ("owned", {"messages": 1, "id": 7}, "Who are you?"),
        ("owned", {"type": "resume", "id": 7}, "The request carries no valid credentials."),
    ],
)
def test_nobody_unknown_is_told_what_is_wrong_with_a_frame(
    server: Served, app: str, frame: dict[str, Any], text: str
) -> None:
    with opened(server, app) as client:
        client.ask({"type": "send", "requestId": "r1", **body_of("c")} | frame)
        assert client.frames("r1")[-1]["errorText"] == text
        client.connection.send("[]")
        assert client.closed() == UNKNOWN


def test_a_socket_of_somebody_unknown_is_closed_after_a_while(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "_UNKNOWN_SECONDS", 0.05)
    with opened(server, "tokens") as client:
        assert client.closed() == UNKNOWN
    with opened(server, "tokens", additional_headers={"authorization": "Bearer ada"}) as client:
        with opened(server, "tokens") as other:
            other.closed()
        client.resume("r1", "nothing")
        assert client.frames("r1")[-1]["type"] == "no-active"


def test_an_address_has_few_sockets_of_which_nobody_is_known(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "_UNKNOWN_SOCKETS", 1)
    eventually(lambda: server.connections() == 0, "the sockets of other tests are closed")
    with opened(server, "owned") as first:
        assert refused(server, "owned") == 403
        first.resume("r1", "ada", headers={"authorization": "Bearer ada"})
        first.frames("r1")
        with opened(server, "owned"):
            assert refused(server, "owned") == 403
    eventually(lambda: server.connections() == 0, "the sockets are closed")
    with opened(server, "owned"):
        pass


def test_a_handshake_with_a_host_that_was_rebound_is_refused(server: Served) -> None:
    connection = socket.create_connection(("127.0.0.1", server.port))
    with pytest.raises(InvalidStatus) as raised:
        connect("ws://evil.example/local/api/chat/ws", sock=connection)
    assert raised.value.response.status_code == 403
    with opened(server, "local") as client:
        client.resume("r1", "nothing")
        assert client.frames("r1")[-1]["type"] == "no-active"


def test_the_log_says_once_a_minute_why_an_origin_and_an_address_are_refused(
    server: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(websocket, "_UNKNOWN_SOCKETS", 1)
    eventually(lambda: server.connections() == 0, "the sockets of other tests are closed")
    address = f"127.0.0.1:{server.port}"
    for _ in range(3):
        assert refused(server, "lines", origin=Origin("https://evil.example")) == 403
    with opened(server, "lines"):
        assert [refused(server, "lines") for _ in range(3)] == [403] * 3
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"a WebSocket from 127.0.0.1 was refused (403): the page is at https://evil.example, the server at {address}."
        " Let your proxy pass the Host header on, or allow the origin (--cors, Settings.websocket_origins)",
        "a WebSocket from 127.0.0.1 was refused (429): 1 WebSockets of this address have no credentials. If it is your"
        " proxy, let it send X-Forwarded-For, and name it with --forwarded-allow-ips",
    ]


def test_a_long_origin_does_not_fill_the_log(server: Served, caplog: pytest.LogCaptureFixture) -> None:
    assert refused(server, "long", origin=Origin(f"https://{'x' * 5000}.example")) == 403
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert f"the page is at https://{'x' * 192}, the server" in record.getMessage()


def refused(server: Served, app: str, **options: Any) -> int:
    with pytest.raises(InvalidStatus) as raised, opened(server, app, **options):
        pass
    return raised.value.response.status_code
