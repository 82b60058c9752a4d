"""Chats that last: the server owns the history. :mod:`usechat.chats.store` explains how.

.. code-block:: python

    chats = SqlChats("chats.db")                      # or postgresql+asyncpg://…; MemoryChats() for development
    result = await chats.begin(request, owner="ada", run_id="r1")
"""

from typing import TYPE_CHECKING

from usechat.chats.beginning import Answered, Begun, Busy, Joined
from usechat.chats.blobs import Blob, BlobStore, FileUrls
from usechat.chats.documents import ChatDocument, document_json
from usechat.chats.history import HistoryFunction, last_bytes, last_messages
from usechat.chats.memory import MemoryChats
from usechat.chats.store import ChatStore
from usechat.chats.titles import TitleFunction, first_words
from usechat.chats.transaction import ChatPage, ChatRow, Claim, ListedChat, LostAnswer
from usechat.chats.view import LoadedChat
from usechat.lazy import lazy_names

if TYPE_CHECKING:
    from usechat.chats.sql import SqlChats

__all__ = [
    "Answered",
    "Begun",
    "Blob",
    "BlobStore",
    "Busy",
    "ChatDocument",
    "ChatPage",
    "ChatRow",
    "ChatStore",
    "Claim",
    "FileUrls",
    "HistoryFunction",
    "Joined",
    "ListedChat",
    "LoadedChat",
    "LostAnswer",
    "MemoryChats",
    "SqlChats",
    "TitleFunction",
    "document_json",
    "first_words",
    "last_bytes",
    "last_messages",
]


__getattr__ = lazy_names(__name__, {"SqlChats": "usechat.chats.sql"})  # it needs SQLAlchemy
