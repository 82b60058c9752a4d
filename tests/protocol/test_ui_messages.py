import pytest

from usechat.protocol.ui_messages import is_dynamic_tool, is_static_tool


@pytest.mark.parametrize(
    ("part_type", "static", "dynamic"),
    [
        ("tool-search", True, False),
        ("tool-", True, False),
        ("dynamic-tool", False, True),
        ("text", False, False),
        ("data-tool-search", False, False),
    ],
)
def test_the_kinds_of_tool_parts(part_type: str, static: bool, dynamic: bool) -> None:
    assert (is_static_tool(part_type), is_dynamic_tool(part_type)) == (static, dynamic)
