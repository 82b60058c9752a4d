"""Chats that last: the server owns the history. :mod:`usechat.chats.store` explains how.

.. code-block:: python

    chats = SqlChats("chats.db")                      # or postgresql+asyncpg://…; MemoryChats() for development
    begun = await chats.begin(request, owner="ada", run_id="r1")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from usechat.chats.beginning import Answered, Begun, Busy, Joined
from usechat.chats.blobs import Blob, BlobStore, FileUrls
from usechat.chats.documents import ChatDocument, document_json
from usechat.chats.history import HistoryFunction, last_bytes, last_messages
from usechat.chats.memory import MemoryChats
from usechat.chats.store import ChatStore
from usechat.chats.titles import TitleFunction, first_words
from usechat.chats.transaction import ChatPage, ChatRow, Claim, ListedChat, LostAnswer
from usechat.chats.view import LoadedChat

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


def __getattr__(name: str) -> Any:
    if name != "SqlChats":  # imported on use: it needs SQLAlchemy
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("usechat.chats.sql").SqlChats
