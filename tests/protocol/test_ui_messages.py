import ast
from pathlib import Path
from typing import Any

import pytest

import usechat
from tests.syntax_trees import nodes_of
from usechat.protocol.ui_messages import (
    is_dynamic_tool,
    is_settled,
    is_static_tool,
    is_tool,
    last_step,
    steps_of,
    text_of,
    tool_name,
    tool_parts_of,
)

PACKAGE = Path(usechat.__file__).parent
BOUNDARY: dict[str, Any] = {"type": "step-start"}
HELLO: dict[str, Any] = {"type": "text", "text": "Hello"}
SEARCH: dict[str, Any] = {"type": "tool-search", "toolCallId": "c1", "state": "output-available"}


@pytest.mark.parametrize(
    ("part_type", "static", "dynamic"),
    [
        ("tool-search", True, False),
        ("tool-", True, False),
        ("dynamic-tool", False, True),
        ("text", False, False),
        ("data-tool-search", False, False),
        (None, False, False),
    ],
)
def test_the_kinds_of_tool_parts(part_type: str | None, static: bool, dynamic: bool) -> None:
    part = {"type": part_type}
    assert (is_static_tool(part), is_dynamic_tool(part), is_tool(part)) == (static, dynamic, static or dynamic)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (SEARCH, "search"),
        ({"type": "tool-tool-a"}, "tool-a"),
        ({"type": "dynamic-tool", "toolName": "search"}, "search"),
        ({"type": "dynamic-tool", "toolName": None}, "unknown"),
        ({"type": "dynamic-tool"}, "unknown"),
    ],
)
def test_the_name_of_a_tool(part: dict[str, Any], name: str) -> None:
    assert tool_name(part) == name


@pytest.mark.parametrize(
    "parts", [None, 5, ["text", None], [{"type": 5, "toolCallId": "c1"}], [{"type": "tool-a"}], [{"toolCallId": "c1"}]]
)
def test_what_is_not_a_tool_part_is_left_out(parts: Any) -> None:
    assert tool_parts_of({"parts": parts}) == []


def test_the_tool_parts_of_a_message_in_order() -> None:
    other = {"type": "dynamic-tool", "toolName": "read", "toolCallId": "c2"}
    assert tool_parts_of({"parts": [HELLO, SEARCH, BOUNDARY, other]}) == [SEARCH, other]


@pytest.mark.parametrize(("state", "settled"), [("output-denied", True), ("input-available", False), ([], False)])
def test_a_call_with_an_outcome_is_settled(state: Any, settled: bool) -> None:
    assert is_settled({**SEARCH, "state": state}) is settled


@pytest.mark.parametrize(
    ("parts", "steps"),
    [
        ([], [[]]),
        ([HELLO], [[HELLO]]),
        ([BOUNDARY], [[], []]),
        ([BOUNDARY, SEARCH, BOUNDARY, HELLO, HELLO], [[], [SEARCH], [HELLO, HELLO]]),
    ],
)
def test_steps_are_cut_at_their_boundaries(parts: list[dict[str, Any]], steps: list[list[dict[str, Any]]]) -> None:
    assert (steps_of(parts), last_step(parts)) == (steps, steps[-1])


def test_the_text_of_a_message_leaves_out_what_is_not_text() -> None:
    message = {"parts": [HELLO, {"type": "reasoning", "text": "Hm"}, {"type": "text", "text": 5}, HELLO]}
    assert (text_of(message), text_of(message, "\n")) == ("HelloHello", "Hello\nHello")


def _looks_at_a_type(node: ast.AST) -> bool:
    """Tell whether code compares with a type of tool part or of step boundary, or cuts the name out of one."""
    match node:
        case ast.Call(func=ast.Attribute(attr="startswith" | "removeprefix"), args=[ast.Constant(value="tool-")]):
            return True
        case ast.Compare(comparators=[ast.Constant(value="dynamic-tool")]):
            return True
        case ast.MatchValue(value=ast.Constant(value="dynamic-tool")):
            return True
    return False


def test_no_other_module_tells_tool_parts_by_their_type() -> None:
    modules = {
        str(module.relative_to(PACKAGE))
        for module in PACKAGE.rglob("*.py")
        if any(map(_looks_at_a_type, nodes_of(module)))
    }
    assert modules == {"protocol/ui_messages.py"}
