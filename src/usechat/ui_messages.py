"""Questions about the parts of a ``UIMessage``: the public names of :mod:`usechat.protocol.ui_messages`."""

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
    "FileUIPart",
    "is_settled",
    "is_tool",
    "last_step",
    "steps_of",
    "text_of",
    "tool_name",
    "tool_parts_of",
]
