"""The other end of the wire: a chat with any AI SDK endpoint, in Python.

:class:`Chat` keeps the state that ``useChat`` has; :class:`SyncChat` is the same without an event loop.
:class:`HttpChatTransport` and :class:`WebSocketChatTransport` ask an endpoint, and can be served in turn.
"""

from typing import TYPE_CHECKING, Final

from usechat.lazy import lazy_names

if TYPE_CHECKING:
    from usechat.client.chat import (
        Chat,
        Reply,
        Status,
        Update,
        file_part,
        is_complete_with_approval_responses,
        is_complete_with_tool_calls,
    )
    from usechat.client.recording import (
        RecordedExchange,
        StreamPlayer,
        StreamRecorder,
        StreamRecording,
        first_difference,
    )
    from usechat.client.sync import SyncChat, SyncReply
    from usechat.client.transport import HttpChatTransport, ServedAgent, ServedLimits
    from usechat.client.views import MessageView, ToolView
    from usechat.client.websocket import WebSocketChatTransport

__all__ = [
    "Chat",
    "HttpChatTransport",
    "MessageView",
    "RecordedExchange",
    "Reply",
    "ServedAgent",
    "ServedLimits",
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

# Imported on use: `usechat serve --help` imports the kinds of this package, and nothing that takes time.
_HOMES: Final = {
    "Chat": "usechat.client.chat",
    "HttpChatTransport": "usechat.client.transport",
    "MessageView": "usechat.client.views",
    "RecordedExchange": "usechat.client.recording",
    "Reply": "usechat.client.chat",
    "ServedAgent": "usechat.client.transport",
    "ServedLimits": "usechat.client.transport",
    "Status": "usechat.client.chat",
    "StreamPlayer": "usechat.client.recording",
    "StreamRecorder": "usechat.client.recording",
    "StreamRecording": "usechat.client.recording",
    "SyncChat": "usechat.client.sync",
    "SyncReply": "usechat.client.sync",
    "ToolView": "usechat.client.views",
    "Update": "usechat.client.chat",
    "WebSocketChatTransport": "usechat.client.websocket",
    "file_part": "usechat.client.chat",
    "first_difference": "usechat.client.recording",
    "is_complete_with_approval_responses": "usechat.client.chat",
    "is_complete_with_tool_calls": "usechat.client.chat",
}

__getattr__ = lazy_names(__name__, _HOMES)
