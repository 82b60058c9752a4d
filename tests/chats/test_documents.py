import math
from typing import Any

import pytest

from tests.chats.talking import answer, call, user
from usechat.chats.documents import ChatDocument, markdown_of, nodes_of, read_document
from usechat.errors import InvalidRequest

pytestmark = pytest.mark.quick


def told(message: Any, parent_id: str | None = None) -> dict[str, Any]:
    return {"parentId": parent_id, "message": message}


def document(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "c1", "messages": list(messages), **fields}


def test_the_least_document_is_a_chat() -> None:
    assert read_document(document()) == ChatDocument(id="c1", messages=[])
    chat = read_document(document(told(user("u1")), told(answer("a1", "Hi"), "u1"), headId="a1"))
    assert [(node.key, node.parent, node.id, node.role) for node in nodes_of(chat)] == [
        (1, None, "u1", "user"),
        (2, 1, "a1", "assistant"),
    ]


@pytest.mark.parametrize(
    ("invalid", "why"),
    [
        (b"{", "not an exported chat"),
        (b"[" * 100_000, "not an exported chat"),
        (b"[]", "not an exported chat"),
        (b'{"id":"c1","messages":[],"createdAt":NaN}', "NaN is not a JSON value"),
        (b'{"id":"c1","messages":[],"createdAt":1e999}', "a number is not finite"),
        (document(told(user("u1")) | {"feedback": math.inf}), "a number is not finite"),
        (document(version=2), "version"),
        (document(told({"id": "u1"})), "role"),
        (document(told(user("u1")), told(user("u1"))), "not the only one"),
        (document(told(user(""))), "empty"),
        (document(told(user("u1"), "u0")), "is not listed before it"),
        (document(told(user("u1")), headId="u2"), "not a message of the chat"),
        (document(told(user("u\0"))), "NUL"),
        (document(told(user("u1")) | {"clientId": "\0"}), "NUL"),
        (document(updatedAt=1e300), "updatedAt"),
        (document(createdAt=-1), "createdAt"),
        (document(told(user("u1")) | {"createdAt": 253_402_300_800}), "createdAt"),
        (document(files=[{"id": "../notes", "mediaType": "text/plain", "data": ""}]), "files"),
    ],
)
def test_a_document_that_is_no_chat_is_refused(invalid: Any, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        nodes_of(read_document(invalid))


def test_markdown_tells_of_every_kind_of_part() -> None:
    message = answer(
        "a1",
        {"type": "step-start"},
        {"type": "reasoning", "text": "Hm.\n\nWell."},
        {"type": "file", "mediaType": "image/png", "url": "x", "filename": "cat.png"},
        {"type": "reasoning-file", "mediaType": "image/png", "url": "x"},
        {"type": "source-url", "sourceId": "s", "url": "https://example.com", "title": "Example"},
        {"type": "source-document", "sourceId": "s", "mediaType": "text/plain", "title": "A book"},
        {"type": "data-note", "data": "```"},
        call("t1", "output-error", errorText="No luck."),
        {"type": "dynamic-tool", "toolName": "search", "toolCallId": "t2", "state": "input-streaming"},
    )
    assert markdown_of("", [message]) == (
        "# Chat\n\n## Assistant\n\n> Hm.\n>\n> Well.\n\nFile: cat.png\n\nFile: image/png\n\n"
        "Source: [Example](https://example.com)\n\nSource: A book\n\n"
        'Data: data-note\n\n````json\n"```"\n````\n\n'
        'Tool: weather (output-error)\n\n```json\n{\n  "city": "Rome"\n}\n```\n\nError: No luck.\n\n'
        "Tool: search (input-streaming)\n\n```json\nnull\n```\n"
    )
