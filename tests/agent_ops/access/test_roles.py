"""Who may send a prompt, by role, kind of session and switch."""

import pytest

from usechat.agent_ops.access.roles import Membership, Role, may_prompt


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [
        ("interactive", {Role.COLLABORATOR, Role.OWNER}),
        ("orchestrator", {Role.OWNER}),
        ("workflow", {Role.OWNER}),
        ("a kind of tomorrow", {Role.OWNER}),
        ("", {Role.OWNER}),
    ],
)
@pytest.mark.parametrize("role", Role)
def test_collaborators_share_interactive_sessions_and_owners_have_the_others_alone(
    kind: str, allowed: set[Role], role: Role
) -> None:
    assert may_prompt(Membership(role, kind)) is (role in allowed)


@pytest.mark.parametrize("role", Role)
def test_a_session_that_is_switched_off_is_nobodys(role: Role) -> None:
    assert may_prompt(Membership(role, enabled=False)) is False


def test_who_takes_no_part_may_nothing() -> None:
    assert may_prompt(None) is False
