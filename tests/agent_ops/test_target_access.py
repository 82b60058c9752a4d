"""What `--access` and `--auth` say together."""

from pathlib import Path

import pytest
from starlette.requests import Request

from tests.agent_ops.directories import directory_at, fill, sqlite
from usechat.agent_ops.access.directory import SessionDirectory
from usechat.agent_ops.access.lookup import HttpLookup
from usechat.agent_ops.access.roles import AccessRule
from usechat.agent_ops.errors import UnknownAccess
from usechat.agent_ops.target import admission_by
from usechat.errors import Unauthenticated
from usechat.server.auth.tokens import ApiTokens, new_api_token
from usechat.server.requests import Authorize


def asking(token: str | None) -> Request:
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    return Request({"type": "http", "headers": headers})


async def subject(authorize: Authorize, token: str | None) -> str:
    identity = await authorize(asking(token), "s1", "send")
    assert identity is not None
    assert identity.token == token
    return identity.subject


async def test_a_directory_knows_its_own_tokens_besides_those_of_the_other_rules(tmp_path: Path) -> None:
    async with directory_at(sqlite(tmp_path)) as directory:
        own = await (await fill(directory)).new_token("carl")
    token, line = new_api_token("nightly")
    (tmp_path / "tokens.txt").write_text(line, encoding="utf-8")
    authorize, access = admission_by(f"directory:{sqlite(tmp_path)}", [ApiTokens(tmp_path / "tokens.txt")])
    assert [await subject(authorize, bearer) for bearer in (own, token)] == ["carl", "nightly"]
    for unknown in (None, "unheard-of", "é"):
        with pytest.raises(Unauthenticated):
            await subject(authorize, unknown)
    await access.close()


async def test_without_auth_a_lookup_leaves_tokens_to_the_upstream() -> None:
    authorize, access = admission_by("lookup:https://example.org/api/sessions/{id},role=me.role", [])
    one, two = await subject(authorize, "one"), await subject(authorize, "two")
    assert one != two
    assert await authorize(asking("one"), "", "check") is None
    assert "one" not in one
    with pytest.raises(Unauthenticated):
        await subject(authorize, None)
    await access.close()


async def test_with_auth_a_lookup_is_only_asked_about_tokens_that_are_known(tmp_path: Path) -> None:
    token, line = new_api_token("nightly")
    (tmp_path / "tokens.txt").write_text(line, encoding="utf-8")
    authorize, _ = admission_by("lookup:https://example.org/{id}", [ApiTokens(tmp_path / "tokens.txt")])
    assert await subject(authorize, token) == "nightly"
    with pytest.raises(Unauthenticated):
        await subject(authorize, "unheard-of")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("directory", SessionDirectory),
        ("directory:sqlite:///sessions.db", SessionDirectory),
        ("directory:postgresql://user@localhost/sessions", SessionDirectory),
        ("lookup:https://example.org/{id},role=a,kind=b.c,owner=d.0", HttpLookup),
    ],
)
async def test_a_text_names_a_rule(text: str, rule: type[AccessRule]) -> None:
    access = admission_by(text, []).access
    assert isinstance(access, rule)
    await access.close()


@pytest.mark.parametrize(
    "text",
    [
        "everybody",
        "lookup:",
        "lookup:example.org/{id}",
        "lookup:https://example.org/api",
        "lookup:https://example.org/{id},rank=a",
        "lookup:https://example.org/{id},role=",
    ],
)
def test_a_text_that_names_none_is_told(text: str) -> None:
    with pytest.raises(UnknownAccess, match=r"^--access .* is not a rule"):
        admission_by(text, [])
