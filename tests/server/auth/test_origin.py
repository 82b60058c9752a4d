"""The origin check of servers without authentication."""

from collections.abc import Mapping

import pytest
from starlette.requests import Request

from usechat.errors import ForeignOrigin
from usechat.server.auth.origin import LocalPagesOnly
from usechat.turn import Identity


async def ask(headers: Mapping[str, str], *origins: str) -> Identity | None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return await LocalPagesOnly(origins)(Request({"type": "http", "headers": raw}), "c1", "send")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"host": "127.0.0.1:8000"},
        {"host": "[::1]:8000"},
        {"host": "LocalHost:8000", "origin": "http://localhost:3000"},
        {"host": "127.0.0.1:8000", "origin": "http://app.localhost:3000"},
        {"host": "127.0.0.1:8000", "origin": "https://chat.example"},
        {"host": "chat.example", "origin": "https://chat.example"},
    ],
)
async def test_pages_of_this_machine_and_named_ones_may_ask(headers: Mapping[str, str]) -> None:
    assert await ask(headers, "https://chat.example") == Identity("")


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "127.0.0.1:8000", "origin": "https://evil.example"},
        {"host": "127.0.0.1:8000", "origin": "http://127.0.0.1.evil.example"},
        {"host": "127.0.0.1:8000", "origin": "http://chat.example"},
        {"host": "127.0.0.1:8000", "origin": "null"},
        {"host": "127.0.0.1:8000", "origin": "http://[::1"},
        {"host": "evil.example:8000"},
        {"host": "evil.example:8000", "origin": "http://localhost"},
        {"host": "[::1"},
    ],
)
async def test_other_pages_may_not(headers: Mapping[str, str]) -> None:
    with pytest.raises(ForeignOrigin) as caught:
        await ask(headers, "https://chat.example")
    assert caught.value.status == 403


async def test_a_refusal_is_one_line_a_minute_for_each_address_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    policy = LocalPagesOnly()
    for address in ("10.0.0.1", "10.0.0.1", "10.0.0.2"):
        for headers in ([(b"host", b"evil.example")], [(b"origin", b"https://evil.example/" + b"x" * 5000)]):
            with pytest.raises(ForeignOrigin):
                await policy(Request({"type": "http", "headers": headers, "client": (address, 1)}), "c1", "send")
    assert [record.getMessage()[:75] for record in caplog.records] == [
        "a request from 10.0.0.1 was refused (403): This server answers on this mach",
        "a request from 10.0.0.1 was refused (403): Pages of https://evil.example/xx",
        "a request from 10.0.0.2 was refused (403): This server answers on this mach",
        "a request from 10.0.0.2 was refused (403): Pages of https://evil.example/xx",
    ]
    assert max(len(record.getMessage()) for record in caplog.records) < 400
