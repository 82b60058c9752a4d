"""Asking the upstream's own API who somebody is in a session; an unclear answer is a no."""

from typing import Any

import pytest

from tests.agent_ops.upstream_api import ApiRequest, upstream_api
from usechat.agent_ops.access.lookup import HttpLookup
from usechat.agent_ops.access.roles import Membership, Role
from usechat.agent_ops.errors import AccessUnknown
from usechat.errors import InvalidSetting, Unauthenticated
from usechat.turn import Identity

CARL = Identity("carl", token="secret-of-carl")
PLACES: dict[str, Any] = {"role": "session.me.role", "kind": "session.purpose", "owner": "session.userId"}


def session(role: object = "collaborator", kind: object = "interactive", owner: object = "olivia") -> dict[str, Any]:
    return {"session": {"me": {"role": role}, "purpose": kind, "userId": owner}}


async def standing(status: int, body: object, identity: Identity = CARL) -> Membership | None:
    async with upstream_api({"/api/sessions/s1": (status, body)}) as api:
        lookup = HttpLookup(api.url, **PLACES)
        try:
            return await lookup.role_of(identity, "s1")
        finally:
            await lookup.close()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (session(), Membership(Role.COLLABORATOR)),
        (session("viewer"), Membership(Role.VIEWER)),
        (session("Owner"), Membership(Role.OWNER)),
        (session(None, owner="carl"), Membership(Role.OWNER)),
        (session("viewer", "workflow", "carl"), Membership(Role.OWNER, "workflow")),
        (session(kind="orchestrator"), Membership(Role.COLLABORATOR, "orchestrator")),
        (session(kind=None), Membership(Role.COLLABORATOR, "")),
        (session(kind=7), Membership(Role.COLLABORATOR, "")),
        (session("admin"), None),
        (session(2), None),
        (session(None), None),
        ({"session": {"me": "collaborator"}}, None),
        ({}, None),
        ([], None),
        (None, None),
    ],
)
async def test_role_kind_and_owner_are_read_where_they_stand(body: object, expected: Membership | None) -> None:
    assert await standing(200, body) == expected


async def test_nobody_owns_what_has_no_owner() -> None:
    assert await standing(200, session(None, owner=""), Identity("", token="theirs")) is None


async def test_a_path_leads_through_lists() -> None:
    async with upstream_api({"/api/sessions/s1": (200, {"people": [{"role": "viewer"}, {"role": "owner"}]})}) as api:
        for path, expected in [("people.1.role", Role.OWNER), ("people.2.role", None), ("people.x.role", None)]:
            lookup = HttpLookup(api.url, role=path)
            membership = await lookup.role_of(CARL, "s1")
            await lookup.close()
            assert (membership and membership.role) == expected


@pytest.mark.parametrize("status", [403, 404])
async def test_a_refusal_means_that_there_is_no_such_session(status: int) -> None:
    assert await standing(status, {"code": "NOT_FOUND"}) is None


async def test_a_token_that_the_upstream_does_not_know_is_none() -> None:
    with pytest.raises(Unauthenticated, match=r"^The token is not valid\.$"):
        await standing(401, {"code": "UNAUTHORIZED"})


async def test_without_a_token_the_upstream_is_not_asked() -> None:
    async with upstream_api({}) as api:
        with pytest.raises(Unauthenticated, match=r"^The request carries no bearer token\.$"):
            await HttpLookup(api.url).role_of(Identity("carl"), "s1")
        assert api.requests == []


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>"),
        (200, b"\xff"),
        (200, b"[" * 10_000),
        (500, {}),
        (302, session()),
        (204, b""),
        (200, b" " * 2**21),
    ],
)
async def test_it_fails_closed(status: int, body: object) -> None:
    with pytest.raises(AccessUnknown, match=r"^Access cannot be checked at the moment\.$"):
        await standing(status, body)


async def test_an_upstream_that_is_not_there_lets_nobody_in() -> None:
    lookup = HttpLookup("http://127.0.0.1:9/api/sessions/{id}")
    with pytest.raises(AccessUnknown):
        await lookup.role_of(CARL, "s1")
    await lookup.close()


async def test_the_callers_own_token_goes_to_the_session_that_they_named() -> None:
    async with upstream_api({}) as api:
        lookup = HttpLookup(api.url)
        assert await lookup.role_of(CARL, "../users?admin=1#") is None
        await lookup.close()
        assert api.requests == [ApiRequest("/api/sessions/..%2Fusers%3Fadmin%3D1%23", "Bearer secret-of-carl")]


def test_a_url_without_a_place_for_the_id_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"has no \{id\} in place of the session's id; give one such as https"):
        HttpLookup("https://example.org/api/sessions")
