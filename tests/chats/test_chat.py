"""The tree of a chat."""

import pytest

from usechat.chats.chat import MessageNode, Tree, read_text, write_text

pytestmark = pytest.mark.quick


def node(key: int, parent: int | None, message_id: str, alias: str = "", digest: str = "") -> MessageNode:
    return MessageNode(key=key, parent=parent, id=message_id, role="user", alias=alias, digest=digest)


FORKED = [
    node(1, None, "a"),
    node(2, 1, "x", "x", "one"),
    node(3, 2, "b"),
    node(4, 1, "y", "x", "two"),
    node(5, 4, "c"),
]


def test_a_branch_goes_from_the_root_to_its_end() -> None:
    tree = Tree(FORKED, leaf=5)
    assert [each.id for each in tree.branch()] == ["a", "y", "c"]
    assert [each.id for each in tree.branch(3)] == ["a", "x", "b"]
    assert Tree().branch() == []


@pytest.mark.parametrize(
    ("leaf", "message_id", "digest", "node_id"),
    [
        pytest.param(5, "x", None, "y", id="an-alias-on-the-current-branch"),
        pytest.param(3, "x", None, "x", id="an-alias-on-the-other-branch"),
        pytest.param(5, "y", None, "y", id="an-id"),
        pytest.param(5, "x", "one", "x", id="the-version-with-these-parts"),
        pytest.param(5, "x", "three", "y", id="no-version-has-these-parts"),
        pytest.param(1, "x", None, "x", id="neither-is-shown"),
        pytest.param(5, "b", None, "b", id="elsewhere"),
    ],
)
def test_an_id_is_resolved_on_the_current_branch_first(
    leaf: int, message_id: str, digest: str | None, node_id: str
) -> None:
    result = Tree(FORKED, leaf).find(message_id, digest)
    assert result is not None
    assert result.id == node_id


@pytest.mark.parametrize("message_id", ["", None, "unknown"])
def test_what_no_message_is_called_is_not_found(message_id: str | None) -> None:
    assert Tree(FORKED, 5).find(message_id) is None


def test_an_id_that_is_taken_is_replaced() -> None:
    fresh = iter(["b", "new"])
    assert Tree(FORKED).free_id("a", lambda: next(fresh)) == "new"
    assert Tree(FORKED).free_id("free", lambda: "never") == "free"


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"text": "21 °C\0"}, id="text"),
        pytest.param({"text": "half a pair: \ud83d"}, id="an-unpaired-surrogate"),
        pytest.param([2**64, -(2**63) - 1, 0.1, -0.0, 1e300], id="numbers"),
        pytest.param([float("inf"), float("-inf")], id="numbers-that-json-does-not-have"),
    ],
)
def test_json_is_read_as_it_was_written(value: object) -> None:
    assert read_text(write_text(value)) == value
