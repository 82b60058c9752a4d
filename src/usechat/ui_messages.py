"""Questions about the parts of a ``UIMessage``: what other packages need of :mod:`usechat.protocol`."""

from usechat.protocol.states import ToolState
from usechat.protocol.tool_calls import APPROVAL_TOOL
from usechat.protocol.ui_messages import (
    FileUIPart,
    is_settled,
    is_tool,
    last_step,
    steps_of,
    text_of,
    tool_name,
    tool_parts_of,
)

__all__ = [
    "APPROVAL_TOOL",
    "FileUIPart",
    "ToolState",
    "is_settled",
    "is_tool",
    "last_step",
    "steps_of",
    "text_of",
    "tool_name",
    "tool_parts_of",
]
