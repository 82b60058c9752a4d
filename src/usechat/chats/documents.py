"""A chat as a document: JSON that holds everything, and Markdown for people."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec

from usechat.chats.blobs import BLOB_ID
from usechat.chats.chat import MessageNode, Outcome, check_id, digest_of, storable
from usechat.errors import InvalidMessages, InvalidRequest
from usechat.protocol.ui_messages import UIMessage, is_tool, tool_name
from usechat.protocol.validation import validate_messages
from usechat.protocol.values import has_finite_numbers, read_json

__all__ = [
    "ChatDocument",
    "DocumentFile",
    "DocumentMessage",
    "TitledBy",
    "document_json",
    "markdown_of",
    "nodes_of",
    "read_document",
]

TitledBy: TypeAlias = Literal["words", "function", "person"]

_LATEST: Final = 253_402_300_799
"""The last second that a date can have: the end of the year 9999."""
_Time: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=_LATEST)]


class DocumentMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A message of a document.

    ``client_id`` is the id by which the page knew a user message, ``agent`` names what made an answer.
    """

    parent_id: str | None
    message: Any
    client_id: str = ""
    outcome: Outcome | None = None
    agent: str = ""
    created_at: _Time = 0
    feedback: Any = None


class DocumentFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A file of a document; its data is base64 in JSON."""

    id: Annotated[str, msgspec.Meta(pattern=f"^{BLOB_ID}$")]
    media_type: str
    data: bytes


class ChatDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A whole chat: all branches, parents first, and the files.

    ``version`` is that of the format. ``created_at`` and ``updated_at`` are seconds since 1970; ``pinned`` and
    ``archived`` are for the list. ``titled_by`` says who made the title, ``agent`` names the agent, ``head_id``
    is the last message of the branch that is shown, and ``owner`` is the subject that owns the chat.

    >>> document = ChatDocument(id="c1", title="Hello", messages=[])
    >>> document.title, document.version
    ('Hello', 1)
    """

    version: Literal[1] = 1
    id: str
    owner: str = ""
    title: str = ""
    titled_by: TitledBy = "person"
    agent: str = ""
    created_at: _Time = 0
    updated_at: _Time = 0
    pinned: bool = False
    archived: bool = False
    head_id: str | None = None
    messages: list[DocumentMessage]
    files: list[DocumentFile] = []


def document_json(document: ChatDocument) -> bytes:
    """Write a document as JSON; unpaired surrogates are escaped.

    >>> document_json(ChatDocument(id="c1", title="Hello", messages=[]))[:40]
    b'{"version":1,"id":"c1","owner":"","title'
    """
    return json.dumps(msgspec.to_builtins(document), separators=(",", ":")).encode()


def read_document(document: "ChatDocument | Mapping[str, Any] | bytes") -> ChatDocument:
    """Read a document, or raise :class:`~usechat.errors.InvalidRequest` with what is wrong."""
    try:
        if isinstance(document, bytes):
            document = read_json(document.decode("utf-8-sig"))
        if not isinstance(document, ChatDocument) and not has_finite_numbers(document):
            raise ValueError("a number is not finite; the largest is about 1.8e308")
        chat = document if isinstance(document, ChatDocument) else msgspec.convert(document, ChatDocument)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise InvalidRequest(f"not an exported chat: {error}") from None
    try:
        cleaned = validate_messages([listed.message for listed in chat.messages]) if chat.messages else []
    except InvalidMessages as error:
        raise InvalidRequest(f"not an exported chat: {error}") from None
    messages = [
        msgspec.structs.replace(listed, message=message) for listed, message in zip(chat.messages, cleaned, strict=True)
    ]
    return msgspec.structs.replace(chat, messages=messages)


def nodes_of(document: ChatDocument) -> list[MessageNode]:
    """Return the tree of a document, or raise :class:`~usechat.errors.InvalidRequest`."""
    keys: dict[str, int] = {}
    nodes = []
    for place, listed in enumerate(document.messages):
        message: UIMessage = listed.message
        if message["id"] in keys or not message["id"]:
            raise InvalidRequest(f"messages[{place}]: the id {message['id']!r} is empty, or not the only one")
        if listed.parent_id is not None and listed.parent_id not in keys:
            raise InvalidRequest(f"messages[{place}]: its parent {listed.parent_id!r} is not listed before it")
        keys[check_id(message["id"], f"messages[{place}].id")] = place + 1
        nodes.append(
            MessageNode(
                key=place + 1,
                parent=None if listed.parent_id is None else keys[listed.parent_id],
                id=message["id"],
                role=message["role"],
                alias=check_id(listed.client_id, f"messages[{place}].clientId"),
                digest="" if message["role"] == "assistant" else digest_of(message),
                outcome="lost" if listed.outcome == "running" else listed.outcome,
                agent=listed.agent,
                created=listed.created_at,
                feedback=listed.feedback,
            )
        )
    if document.head_id is not None and document.head_id not in keys:
        raise InvalidRequest(f"headId {document.head_id!r} is not a message of the chat")
    return nodes


# Markdown.

_ROLES = {"user": "User", "assistant": "Assistant", "system": "System"}


def markdown_of(title: str, messages: Iterable[UIMessage]) -> str:
    """Return messages as Markdown: texts as they are, tool calls and data as JSON, files by name.

    A half character, which no file can hold, becomes a question mark; NUL is left out.
    """
    blocks = [f"# {title or 'Chat'}"]
    for message in messages:
        blocks.append(f"## {_ROLES[message['role']]}")
        blocks += filter(None, (_block(part) for part in cast("list[dict[str, Any]]", message["parts"])))
    return storable("\n\n".join(blocks)) + "\n"


def _block(part: dict[str, Any]) -> str:
    match part["type"]:
        case "text":
            return str(part["text"])
        case "reasoning":
            return "\n".join(f"> {line}".rstrip() for line in str(part["text"]).splitlines())
        case "file" | "reasoning-file":
            return f"File: {part.get('filename') or part.get('mediaType', '')}"
        case "source-url":
            return f"Source: [{part.get('title') or part['url']}]({part['url']})"
        case "source-document":
            return f"Source: {part['title']}"
    if is_tool(part):
        return _call(part)
    return _fenced(f"Data: {part['type']}", part["data"]) if part["type"].startswith("data-") else ""


def _call(part: dict[str, Any]) -> str:
    blocks = [_fenced(f"Tool: {tool_name(part)} ({part['state']})", part.get("input"))]
    if "output" in part:
        blocks.append(_fenced("Output:", part["output"]))
    if "errorText" in part:
        blocks.append(f"Error: {part['errorText']}")
    return "\n\n".join(blocks)


def _fenced(label: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    fence = max(["``", *re.findall("`+", text)], key=len) + "`"
    return f"{label}\n\n{fence}json\n{text}\n{fence}"
