from typing import Any

from usechat.protocol.tool_parts import Part, PartList
from usechat.protocol.ui_messages import is_tool

STEP: Part = {"type": "step-start"}


def call(tool_call_id: Any, part_type: str = "tool-search") -> Part:
    return {"type": part_type, "toolCallId": tool_call_id}


def test_calls_are_found_in_the_message_and_in_the_step() -> None:
    first, second, dynamic = call("c"), call("c"), call("c", "dynamic-tool")
    parts = PartList([first, dict(STEP), second, call("other"), dynamic])
    assert parts.calls("c") == [first, second, dynamic]
    assert parts.calls_in_step("c") == [second, dynamic]
    assert parts.calls_in_step("none") == parts.calls("none") == []


def test_data_is_found_by_type_and_id_and_the_first_wins() -> None:
    first = {"type": "data-x", "id": "d", "data": 1}
    parts = PartList([first, {"type": "data-x", "id": "d", "data": 2}, {"type": "data-y", "id": "e", "data": 3}])
    assert parts.data("data-x", "d") is first
    assert parts.data("data-x", "e") is None


def test_parts_whose_id_is_no_text_are_kept_and_never_found() -> None:
    malformed: list[Part] = [call(None), call(["c"]), {"type": "tool-x"}, {"type": "data-x", "id": {}, "data": 1}]
    parts = PartList(malformed)
    assert parts.parts == malformed
    assert parts.calls("None") == []
    assert parts.data("data-x", "None") is None


def test_the_tools_are_the_parts_of_both_kinds() -> None:
    static, dynamic = call("c"), call("d", "dynamic-tool")
    parts = PartList([static, {"type": "data-x", "toolCallId": "e", "data": 1}, dynamic, {"type": "text", "text": ""}])
    assert list(parts.tools()) == [static, dynamic]
    assert [is_tool(part) for part in parts.parts] == [True, False, True, False]


def test_a_step_is_reset_to_its_beginning() -> None:
    kept_call, kept_data = call("c"), {"type": "data-x", "id": "d", "data": 1}
    parts = PartList([kept_call, kept_data, dict(STEP)])
    again = {"type": "data-x", "id": "d", "data": 1}  # equal, but not the one that was kept
    for part in (call("c"), again, {"type": "data-x", "id": "e", "data": 3}, {"type": "text", "text": ""}):
        parts.append(part)
    assert parts.reset_step() is True
    assert parts.parts == [kept_call, kept_data, STEP]
    assert parts.calls("c") == [kept_call]
    assert parts.calls_in_step("c") == []
    assert parts.data("data-x", "d") is kept_data
    assert parts.data("data-x", "e") is None


def test_an_empty_step_has_nothing_to_reset() -> None:
    parts = PartList([dict(STEP)])
    assert parts.reset_step() is False
    assert parts.parts == [STEP]


def test_without_a_step_everything_is_reset() -> None:
    parts = PartList([call("c")])
    assert parts.reset_step() is True
    assert parts.parts == []


def test_a_finished_call_that_is_brought_back_stands_in_an_earlier_step() -> None:
    parts = PartList([call("c") | {"state": "output-available"}, dict(STEP)])
    parts.forget()
    assert parts.is_put_aside("c")
    assert [part["toolCallId"] for part in parts.calls("c")] == ["c"]
    assert parts.calls_in_step("c") == []


def test_a_part_is_not_found_by_an_approval_that_it_no_longer_carries() -> None:
    part = call("c") | {"approval": {"id": "a"}}
    parts = PartList([part])
    assert parts.by_approval("a") is part
    part["approval"] = {"id": "b"}
    assert parts.by_approval("a") is None
