"""The headers that an agent sees: each name once, the first that was sent."""

import pytest

from usechat.server.requests import RequestHeaders

pytestmark = [pytest.mark.external_agents, pytest.mark.quick]

HEADERS = RequestHeaders(
    {
        "headers": [
            (b"authorization", b"Bearer first"),
            (b"x-name", "J\xf6rg".encode("latin-1")),
            (b"authorization", b"Bearer second"),
        ]
    }
)


@pytest.mark.parametrize("name", ["authorization", "Authorization"])
def test_the_first_of_two_counts(name: str) -> None:
    assert HEADERS[name] == "Bearer first"


def test_they_are_a_mapping() -> None:
    assert dict(HEADERS) == {"authorization": "Bearer first", "x-name": "J\xf6rg"} == HEADERS
    assert (len(HEADERS), HEADERS.get("cookie"), "X-Name" in HEADERS) == (2, None, True)
    assert "\N{SNOWMAN}" not in HEADERS


def test_their_values_stay_out_of_logs() -> None:
    assert repr(HEADERS) == "RequestHeaders(authorization, x-name)"
