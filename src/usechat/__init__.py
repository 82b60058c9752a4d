"""The Python side of ``useChat``: any agent answers a stock Vercel AI SDK front end."""

from usechat.errors import UsechatError
from usechat.frames import FrameStream
from usechat.message import MessageBuilder
from usechat.parts import (
    Data,
    File,
    Finish,
    Metadata,
    Reasoning,
    SourceUrl,
    Step,
    Text,
    ToolCall,
    ToolError,
    ToolResult,
)
from usechat.requests import ChatRequest
from usechat.sse import ChunkDecoder, encode_frame
from usechat.stream import MessageStream
from usechat.ui_messages import UIMessage
from usechat.validation import validate_messages

__version__ = "0.1.0"

__all__ = [
    "ChatRequest",
    "ChunkDecoder",
    "Data",
    "File",
    "Finish",
    "FrameStream",
    "MessageBuilder",
    "MessageStream",
    "Metadata",
    "Reasoning",
    "SourceUrl",
    "Step",
    "Text",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "UIMessage",
    "UsechatError",
    "__version__",
    "encode_frame",
    "validate_messages",
]
