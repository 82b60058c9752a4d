"""The Python side of ``useChat``: connect any agent to a Vercel AI SDK front end."""

from typing import TYPE_CHECKING

from usechat.errors import PublicError, UnknownEvent, UsechatError
from usechat.lazy import lazy_names
from usechat.protocol.message import MessageBuilder
from usechat.protocol.model_messages import model_messages, repair_messages
from usechat.protocol.parts import (
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
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import ChunkDecoder, FrameStream, encode_frame
from usechat.protocol.stream import MessageStream
from usechat.protocol.ui_messages import UIMessage
from usechat.protocol.validation import ToolSchema, validate_messages

if TYPE_CHECKING:
    from usechat.pauses.questions import ask_page
    from usechat.server.endpoints import chat_response
    from usechat.sources import Adapter, AdapterSource, ChatTransport, parts_of
    from usechat.turn import AgentInfo, Turn, current_turn, emit, replayable

__version__ = "0.1.0"

__all__ = [
    "Adapter",
    "AdapterSource",
    "AgentInfo",
    "ChatRequest",
    "ChatTransport",
    "ChunkDecoder",
    "Data",
    "File",
    "Finish",
    "FrameStream",
    "MessageBuilder",
    "MessageStream",
    "Metadata",
    "PublicError",
    "Reasoning",
    "SourceUrl",
    "Step",
    "Text",
    "ToolCall",
    "ToolError",
    "ToolResult",
    "ToolSchema",
    "Turn",
    "UIMessage",
    "UnknownEvent",
    "UsechatError",
    "__version__",
    "ask_page",
    "chat_response",
    "current_turn",
    "emit",
    "encode_frame",
    "model_messages",
    "parts_of",
    "repair_messages",
    "replayable",
    "validate_messages",
]

# Imported on use, because they need asyncio and Starlette; the core needs neither.
_HOMES = {
    "Adapter": "usechat.sources",
    "AdapterSource": "usechat.sources",
    "AgentInfo": "usechat.turn",
    "ChatTransport": "usechat.sources",
    "Turn": "usechat.turn",
    "ask_page": "usechat.pauses.questions",
    "chat_response": "usechat.server.endpoints",
    "current_turn": "usechat.turn",
    "emit": "usechat.turn",
    "parts_of": "usechat.sources",
    "replayable": "usechat.turn",
}

__getattr__ = lazy_names(__name__, _HOMES)
