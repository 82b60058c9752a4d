"""Files of messages that are stored beside them.

Pages send a file inline, as a ``data:`` URL. A large one is taken out of its message and stored as a blob, once per
chat; the stored message holds ``usechat-file:ID`` instead. The id is a digest of the content, so that the same file
gives the same message, however often it is sent. :class:`FileUrls` writes such URLs as routes of the server for a page,
and reads them back when the page sends them. An agent gets the content again (:func:`inline_files`): the provider of
its model cannot read routes of this server.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias, cast
from urllib.parse import unquote_to_bytes

import msgspec

from usechat.protocol.ui_messages import UIMessage

__all__ = [
    "BLOB_ID",
    "Blob",
    "BlobStore",
    "FileUrls",
    "extract_files",
    "holds_files",
    "inline_files",
    "stored_file_ids",
]

BLOB_ID: Final = "[0-9a-f]+"
"""The ids of blobs, as a regular expression. Clients send ids, and a store of the application may use them as paths."""
_SCHEME: Final = "usechat-file:"
_URL: Final = re.compile(rf"(?:https?:/)?(/[^?#]*/)({BLOB_ID})")
"""The path of a URL, up to the id of a blob. One for all chats: compiling a pattern costs more than a turn should."""
_FILES: Final = ("file", "reasoning-file")
_HOLDERS: Final = frozenset({*_FILES, "steering-message"})
_TYPE: Final = itemgetter("type")
_Change: TypeAlias = Callable[[dict[str, Any]], dict[str, Any] | None]


class Blob(msgspec.Struct, frozen=True):
    """A file: the id is a digest of its content and type.

    >>> Blob("5feceb66", "image/png", b"...").media_type
    'image/png'
    """

    id: str
    media_type: str
    data: bytes


class BlobStore(Protocol):
    """Where blobs are stored, if not in the database of the chats: such as a directory, or an object store.

    A blob is put before the message that refers to it, and may be put again. Deleting a chat deletes its blobs. A store
    that raises counts as one that is away, like the database: 503, or another attempt while an answer is running. A
    chat whose blobs cannot be deleted stays. The id of a blob has the characters 0 to 9 and a to f. Pages choose the
    ids of chats, so they may be any text: do not use them as paths.

    >>> class Files:
    ...     def __init__(self) -> None:
    ...         self.files: dict[tuple[str, str], Blob] = {}
    ...
    ...     async def put(self, chat_id: str, blob: Blob) -> None:
    ...         self.files[chat_id, blob.id] = blob
    ...
    ...     async def get(self, chat_id: str, blob_id: str) -> Blob | None:
    ...         return self.files.get((chat_id, blob_id))
    ...
    ...     async def delete(self, chat_id: str) -> None:
    ...         self.files = {key: blob for key, blob in self.files.items() if key[0] != chat_id}
    >>> from usechat.chats import MemoryChats
    >>> chats = MemoryChats(blobs=Files())
    """

    async def put(self, chat_id: str, blob: Blob) -> None:
        """Store a blob of a chat."""
        ...

    async def get(self, chat_id: str, blob_id: str) -> Blob | None:
        """Return a blob of a chat."""
        ...

    async def delete(self, chat_id: str) -> None:
        """Delete all blobs of a chat."""
        ...


def extract_files(message: UIMessage, larger_than: int) -> tuple[UIMessage, list[Blob]]:
    """Return a message whose inline files of more than ``larger_than`` characters are replaced, and these files."""
    blobs: dict[str, Blob] = {}

    def replace(part: dict[str, Any]) -> str | None:
        blob = _blob_of(part) if len(part["url"]) > larger_than else None
        if blob is None:
            return None
        blobs[blob.id] = blob
        return _SCHEME + blob.id

    return _with_urls(message, replace), list(blobs.values())


def holds_files(message: UIMessage) -> bool:
    """Tell whether a message may have files: whether it has parts of the types that do."""
    return not _HOLDERS.isdisjoint(map(_TYPE, message["parts"]))


def stored_file_ids(message: UIMessage) -> list[str]:
    """Return the ids of the stored files that a message refers to."""
    ids: list[str] = []

    def note(part: dict[str, Any]) -> None:
        if part["url"].startswith(_SCHEME):
            ids.append(part["url"].removeprefix(_SCHEME))

    _with_urls(message, note)
    return ids


def inline_files(message: UIMessage, blobs: Mapping[str, Blob]) -> UIMessage:
    """Return a message that holds the content of its stored files, as ``data:`` URLs, for an agent.

    In place of a file that is not among the ``blobs`` stands a text that names it: a model cannot read its address, and
    must know that something was there.

    >>> part = {"type": "file", "mediaType": "text/plain", "url": "usechat-file:5feceb66"}
    >>> blobs = {"5feceb66": Blob("5feceb66", "text/plain", b"Hello")}
    >>> inline_files({"id": "u1", "role": "user", "parts": [part]}, blobs)["parts"][0]["url"]
    'data:text/plain;base64,SGVsbG8='
    >>> inline_files({"id": "u1", "role": "user", "parts": [part]}, {})["parts"]
    [{'type': 'text', 'text': '[The file (text/plain) is not included.]'}]
    """

    def load(part: dict[str, Any]) -> dict[str, Any] | None:
        if not part["url"].startswith(_SCHEME):
            return part
        blob = blobs.get(part["url"].removeprefix(_SCHEME))
        if blob is not None:
            return {**part, "url": f"data:{blob.media_type};base64,{base64.b64encode(blob.data).decode()}"}
        return _note(part) if part["type"] == "file" else None

    return _with_files(message, load)


def _note(part: dict[str, Any]) -> dict[str, Any]:
    """Return a text that names a file."""
    name, kind = part.get("filename"), part.get("mediaType")
    described = " ".join(["file", *([str(name)] if name else []), *([f"({kind})"] if kind else [])])
    return {"type": "text", "text": f"[The {described} is not included.]"}


class FileUrls:
    """The URLs of stored files, for one chat: ``prefix`` and the id of the blob.

    Only the end of a path is compared when a URL is read: the same server may have been reached under another name,
    or behind another prefix, when the URL was written.

    >>> urls = FileUrls("https://example.com/api/chat/c1/files/")
    >>> part = {"type": "file", "mediaType": "image/png", "url": "usechat-file:5feceb66"}
    >>> shown = urls.write({"id": "u1", "role": "user", "parts": [part]})
    >>> shown["parts"][0]["url"]
    'https://example.com/api/chat/c1/files/5feceb66'
    >>> FileUrls("http://localhost:8000/api/chat/c1/files/").read(shown)["parts"][0] == part
    True
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._end = "/".join(["", *prefix.split("/")[-3:]])  # the chat, `files`, and nothing behind the last slash

    def write(self, message: UIMessage) -> UIMessage:
        """Return a stored message with URLs that a page or a model can fetch."""
        return _with_urls(message, lambda part: _renamed(part["url"], _SCHEME, self.prefix))

    def read(self, message: UIMessage) -> UIMessage:
        """Return a message that a page sent with the URLs that are stored."""
        return _with_urls(message, lambda part: self._stored(part["url"]))

    def _stored(self, url: str) -> str | None:
        match = _URL.fullmatch(url)
        return _SCHEME + match[2] if match is not None and match[1].endswith(self._end) else None


def _renamed(url: str, before: str, after: str) -> str | None:
    return after + url.removeprefix(before) if url.startswith(before) else None


def _with_urls(message: UIMessage, replace: Callable[[dict[str, Any]], str | None]) -> UIMessage:
    """Return a message whose file parts have the URLs that ``replace`` gives; nothing leaves one as it is."""
    if not holds_files(message):  # most messages, and each is looked at several times a turn
        return message

    def change(part: dict[str, Any]) -> dict[str, Any]:
        url = replace(part)
        return part if url is None else {**part, "url": url}

    return _with_files(message, change)


def _with_files(message: UIMessage, change: _Change) -> UIMessage:
    """Return a message whose file parts are what ``change`` makes of them; ``None`` leaves one out."""
    parts = cast("list[dict[str, Any]]", message["parts"])
    changed = _changed(parts, change)
    return cast("UIMessage", {**message, "parts": changed}) if changed != parts else message


def _changed(parts: list[dict[str, Any]], change: _Change) -> list[dict[str, Any]]:
    changed_parts = [_changed_part(part, change) for part in parts]
    return [part for part in changed_parts if part is not None]


def _changed_part(part: dict[str, Any], change: _Change) -> dict[str, Any] | None:
    if part["type"] == "steering-message" and isinstance(part.get("parts"), list):
        return {**part, "parts": _changed(part["parts"], change)}
    is_file = part["type"] in _FILES and isinstance(part.get("url"), str)
    return change(part) if is_file else part


def _blob_of(part: dict[str, Any]) -> Blob | None:
    """Return the file of a ``data:`` URL; nothing if it is another URL, or cannot be read."""
    scheme, _, rest = part["url"].partition(":")
    described, comma, text = rest.partition(",")
    if scheme.lower() != "data" or not comma:
        return None
    try:
        data = base64.b64decode(text, validate=True) if described.endswith(";base64") else unquote_to_bytes(text)
    except (binascii.Error, ValueError):
        return None
    media_type = str(part.get("mediaType") or described.partition(";")[0])
    if not (media_type.isascii() and media_type.isprintable()):
        media_type = "application/octet-stream"
    digest = hashlib.sha256(f"{media_type}\n".encode() + data).hexdigest()
    return Blob(digest[:32], media_type, data)
