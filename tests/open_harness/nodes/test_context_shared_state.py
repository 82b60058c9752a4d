"""The state that nodes share: values by path."""

import threading
from typing import Any

import pytest

from usechat.errors import InvalidSetting
from usechat.open_harness.nodes.context import SharedState


def state(values: dict[str, Any]) -> tuple[SharedState, list[dict[str, Any]]]:
    patches: list[dict[str, Any]] = []
    return SharedState(values, patches.append), patches


@pytest.mark.parametrize(
    ("path", "value"),
    [("", {"a": {"b": 1}}), ("a", {"b": 1}), ("a.b", 1), ("a.b.c", None), ("x", None), (".a..b.", 1)],
)
def test_a_value_is_found_by_its_path(path: str, value: Any) -> None:
    assert state({"a": {"b": 1}})[0].get(path) == value


def test_what_is_missing_on_the_way_becomes_an_object() -> None:
    shared, patches = state({"a": 1})
    shared.set("a.b.c", (1, 2))
    assert shared.snapshot() == {"a": {"b": {"c": [1, 2]}}}
    assert patches == [{"op": "set", "path": "a.b.c", "value": [1, 2]}]


def test_merging_adds_keys_and_replaces_what_is_no_object() -> None:
    shared, patches = state({"a": {"x": 1}, "b": 2})
    shared.merge("a", {"y": 2})
    shared.merge("b", {"z": 3})
    assert shared.snapshot() == {"a": {"x": 1, "y": 2}, "b": {"z": 3}}
    assert [patch["op"] for patch in patches] == ["merge", "merge"]


def test_a_value_needs_a_path() -> None:
    with pytest.raises(InvalidSetting, match="name a path"):
        state({})[0].set("", 1)


def test_a_snapshot_does_not_change_any_more() -> None:
    shared, _ = state({"a": [1]})
    snapshot = shared.snapshot()
    shared.get("a").append(2)
    assert snapshot == {"a": [1]}


def test_what_was_got_is_a_copy() -> None:
    shared, patches = state({"a": [1]})
    shared.get("a").append(2)
    assert (shared.values, patches) == ({"a": [1]}, [])


def test_a_change_replaces_the_values_and_nothing_else() -> None:
    shared, _ = state({"a": {"b": {"c": 1}}, "d": [1]})
    before = shared.values
    shared.set("a.b.c", 2)
    shared.merge("a.b", {"e": 3})
    assert before == {"a": {"b": {"c": 1}}, "d": [1]}
    assert shared.values == {"a": {"b": {"c": 2, "e": 3}}, "d": [1]}
    assert shared.values["d"] is before["d"]


def test_threads_lose_no_change_of_each_other() -> None:
    shared, _ = state({})

    def count(name: int) -> None:
        for number in range(500):
            shared.set(f"{name}.{number % 10}", number)

    threads = [threading.Thread(target=count, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    last = {str(digit): 490 + digit for digit in range(10)}
    assert shared.values == {str(name): last for name in range(8)}
