"""Files of messages as models take them: their bytes, and notes in the place of those that a model cannot read."""

import base64
import copy
from collections.abc import Collection, Iterable
from typing import Any, Final
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec

from usechat.errors import PublicError
from usechat.protocol.model_messages import FilePart, ModelMessage
from usechat.protocol.ui_messages import UIMessage
from usechat.turn import Turn

__all__ = [
    "ModelFile",
    "doubtful_files",
    "model_file",
    "without_doubtful_files",
    "without_unreadable",
]


_READ_EVERYWHERE: Final = ("text/", "image/", "application/pdf")
_FILE_SCHEMES: Final = frozenset({"data", "https"})
"""Which URLs of files reach a model's provider. Some frameworks fetch URLs in this process, so `http` is left out."""


class ModelFile(msgspec.Struct, frozen=True):
    """A file of a message: its URL, and its bytes if the URL holds them (``data:``)."""

    media_type: str
    url: str
    name: str | None = None
    data: bytes | None = None

    @property
    def base64(self) -> str:
        """The bytes as Base64."""
        return base64.b64encode(self.data or b"").decode()

    @property
    def text(self) -> str | None:
        """The content of a text file, with its name; ``None`` for other files."""
        if self.data is None or not self.media_type.startswith("text/"):
            return None
        return f"{self.name or 'file'}:\n{self.data.decode('utf-8', 'replace')}"


def without_unreadable(messages: Iterable[ModelMessage], kinds: Collection[str], words: str) -> list[ModelMessage]:
    """Return the messages with a note in the place of each file that a model cannot take.

    ``kinds`` are the beginnings of the media types that it takes, besides texts, and ``words`` names them. Raises
    ``PublicError``, which names the file, if it came with the last message of the person.
    """
    listed: list[Any] = list(messages)
    last = max((at for at, message in enumerate(listed) if message["role"] == "user"), default=-1)
    for at, message in enumerate(listed):
        if message["role"] == "user":
            content = [_readable(part, ("text/", *kinds), words, is_new=at == last) for part in message["content"]]
            listed[at] = {**message, "content": content}
    return listed


def _readable(part: Any, kinds: tuple[str, ...], words: str, *, is_new: bool) -> Any:
    if part["type"] != "file" or part["mediaType"].startswith(kinds):
        return part
    name = _file_name(part)
    if is_new:
        raise PublicError(f"The model cannot read {name}. It reads texts, {words}.")
    return {"type": "text", "text": _left_out(name)}


def doubtful_files(message: UIMessage | None) -> list[str]:
    """Return the names of the files of a message that not every model reads: all but texts, images and PDF files."""
    files: list[Any] = [] if message is None else [part for part in message["parts"] if part["type"] == "file"]
    return [_file_name(file) for file in files if not str(file.get("mediaType")).startswith(_READ_EVERYWHERE)]


def without_doubtful_files(turn: Turn) -> Turn:
    """Return a turn with a note in the place of each file of earlier messages that not every model reads."""
    copied, new = copy.copy(turn), turn.request.last_user_message
    messages = [message if message is new else _with_notes(message) for message in turn.messages]
    request = msgspec.structs.replace(turn.request, messages=messages)
    copied.input = msgspec.structs.replace(turn.input, request=request)
    return copied


def _with_notes(message: UIMessage) -> UIMessage:
    if not doubtful_files(message):
        return message
    return {**message, "parts": [_noted(part) for part in message["parts"]]}


def _noted(part: Any) -> Any:
    if part["type"] != "file" or str(part.get("mediaType")).startswith(_READ_EVERYWHERE):
        return part
    return {"type": "text", "text": _left_out(_file_name(part))}


def _file_name(part: Any) -> str:
    return f"{part.get('filename') or 'a file'} ({part.get('mediaType')})"


def _left_out(name: str) -> str:
    return f"[{name} was left out: it cannot be read.]"


def model_file(part: FilePart) -> ModelFile:
    """Read the file part of a user message; raise ``PublicError`` if the scheme of its URL is not allowed."""
    location: Any = part["data"]
    url = location if isinstance(location, str) else str(location.get("url", ""))
    scheme = urlsplit(url).scheme.lower()
    if scheme not in _FILE_SCHEMES:
        raise PublicError("Files must be uploaded with the message, or be at an https address.")
    name = part.get("filename")
    if scheme != "data":
        return ModelFile(part["mediaType"], url, name)
    head, _, body = url.partition(",")
    try:
        data = base64.b64decode(unquote_to_bytes(body)) if head.endswith(";base64") else unquote_to_bytes(body)
    except ValueError:
        raise PublicError("A file of this message cannot be read.") from None
    return ModelFile(part["mediaType"], url, name, data)
