"""Who may open a WebSocket, and whom the rule sees in each frame."""

import pytest
from websockets.exceptions import InvalidStatus
from websockets.typing import Origin, Subprotocol

from tests.conformance.served import Served
from tests.server.socket_apps import GATES, SEEN, opened
from usechat.server.requests import is_welcome

pytestmark = pytest.mark.external_agents


def test_the_rule_is_shown_the_headers_of_every_frame(server: Served) -> None:
    SEEN.clear()
    GATES.open("ada shown")
    with opened(server, "owned", additional_headers={"authorization": "Bearer bob"}) as client:
        client.send("r1", "ada shown", headers={"Authorization": "Bearer ada"})
        client.frames("r1")
        client.resume("r2", "bob shown")
        client.frames("r2")
        client.resume("r3", "ada shown", headers={"authorization": "Bearer ada"})
        client.frames("r3")
    assert SEEN == [
        ("send", "POST", "http", "ada shown", "ada"),
        ("resume", "GET", "http", "bob shown", "bob"),
        ("resume", "GET", "http", "ada shown", "ada"),
    ]


@pytest.mark.parametrize(
    ("origin", "host", "welcome"),
    [
        (None, "example.org", True),
        ("https://example.org", "example.org", True),
        ("https://Example.org", "example.ORG:443", True),
        ("https://example.org:443", "example.org", True),
        ("http://example.org", "example.org:80", True),
        ("http://localhost:8000", "localhost:8000", True),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("https://friend.example", "example.org", True),
        ("http://friend.example", "example.org", False),
        ("https://example.org", "example.org:80", False),
        ("http://localhost:3000", "localhost:8000", False),
        ("https://example.org.evil.example", "example.org", False),
        ("https://evil.example", "example.org", False),
        ("null", "example.org", False),
        ("", "", False),
        ("https://", "", False),
    ],
)
def test_pages_of_the_same_host_and_of_allowed_origins_are_welcome(
    origin: str | None, host: str, welcome: bool
) -> None:
    assert is_welcome(origin, host, ("https://friend.example",)) is welcome
    assert is_welcome(origin, host, ("*",))


def test_a_page_of_another_origin_is_turned_away(server: Served) -> None:
    GATES.open("welcome")
    for origin in (f"http://127.0.0.1:{server.port}", "https://friend.example"):
        with opened(server, "small", origin=Origin(origin)) as client:
            client.send("r1", "welcome")
            assert client.text("r1") == "one two"
    for app, origin in (("small", "https://evil.example"), ("open", "https://friend.example"), ("open", "null")):
        with pytest.raises(InvalidStatus) as raised, opened(server, app, origin=Origin(origin)):
            pass
        assert raised.value.response.status_code == 403


@pytest.mark.parametrize(
    ("offered", "subprotocol"),
    [
        (["chat", "token.abc"], "chat"),
        (["bearer.abc", "chat"], "chat"),
        (["bearer.abc"], "bearer.abc"),
        ([], None),
    ],
)
def test_the_first_subprotocol_that_is_no_token_is_chosen(
    server: Served, offered: list[str], subprotocol: str | None
) -> None:
    with opened(server, subprotocols=[Subprotocol(name) for name in offered] or None) as client:
        assert client.connection.subprotocol == subprotocol
