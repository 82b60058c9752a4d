"""The other end of the wire: a chat with any AI SDK endpoint, in Python.

:class:`Chat` keeps the state that ``useChat`` has; :class:`SyncChat` is the same without an event loop.
:class:`HttpChatTransport` and :class:`WebSocketChatTransport` ask an endpoint, and can be served in turn.
"""

from usechat.client.chat import (
    Chat,
    Reply,
    Status,
    Update,
    file_part,
    is_complete_with_approval_responses,
    is_complete_with_tool_calls,
)
from usechat.client.recording import StreamPlayer, StreamRecorder, StreamRecording, first_difference
from usechat.client.sync import SyncChat, SyncReply
from usechat.client.transport import HttpChatTransport
from usechat.client.views import MessageView, ToolView
from usechat.client.websocket import WebSocketChatTransport

__all__ = [
    "Chat",
    "HttpChatTransport",
    "MessageView",
    "Reply",
    "Status",
    "StreamPlayer",
    "StreamRecorder",
    "StreamRecording",
    "SyncChat",
    "SyncReply",
    "ToolView",
    "Update",
    "WebSocketChatTransport",
    "file_part",
    "first_difference",
    "is_complete_with_approval_responses",
    "is_complete_with_tool_calls",
]
