"""How much one request may hold: more is refused with the limit it exceeds."""

import json
from typing import Any

import pytest

from usechat.errors import InvalidRequest, RequestTooLarge
from usechat.protocol.request import LONGEST_ID, ChatRequest, Limits

Json = dict[str, Any]

HI: Json = {"type": "text", "text": "hi"}
FILE: Json = {"type": "file", "mediaType": "text/plain", "url": "data:,x"}
USER: Json = {"id": "u1", "role": "user", "parts": [HI]}
FILES: Json = {"id": "u2", "role": "user", "parts": [FILE, FILE]}


@pytest.mark.parametrize(
    ("body", "limits", "text"),
    [
        (b"12345", Limits(maximum_bytes=4), "the body has 5 bytes; the limit maximum_bytes is 4"),
        ('"é\ud800"', Limits(maximum_bytes=6), "the body has 7 bytes; the limit maximum_bytes is 6"),
        ({"messages": [USER, USER]}, Limits(maximum_messages=1), "2 messages; the limit maximum_messages is 1"),
        (
            {"messages": [FILES, FILES]},
            Limits(maximum_files=3),
            "4 files in all messages; the limit maximum_files is 3",
        ),
        (
            {"messages": [FILES]},
            Limits(maximum_file_bytes=6),
            "a file of 7 bytes in its URL; the limit maximum_file_bytes is 6",
        ),
        (
            {"messages": [USER, USER | {"parts": [HI, HI]}]},
            Limits(maximum_parts=2),
            "3 parts in all messages; the limit maximum_parts is 2",
        ),
        (
            {"messages": [USER]},
            Limits(maximum_depth=4),
            "the body is nested too deeply; the limit maximum_depth is 4 levels",
        ),
        (
            "[" * 100_000,
            Limits(),
            "the body is nested too deeply; the limit maximum_depth is 128 levels",
        ),
        (
            '{"messages":' + "[" * 500 + "]" * 500 + "}",
            Limits(),
            "the body is nested too deeply; the limit maximum_depth is 128 levels",
        ),
    ],
)
def test_what_is_too_large_is_refused_with_the_limit(body: Any, limits: Limits, text: str) -> None:
    with pytest.raises(RequestTooLarge) as caught:
        ChatRequest.parse(body, limits=limits)
    assert (str(caught.value), caught.value.status) == (text, 413)


LONG = "x" * LONGEST_ID


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"messages": [USER], "id": f"{LONG}x"}, "the chat id"),
        ({"messages": [USER], "messageId": f"{LONG}x"}, "messageId"),
        ({"messages": [USER, USER | {"id": f"{LONG}x"}]}, "messages[1].id"),
        ({"messages": [USER, {"id": f"{LONG}x", "role": "assistant", "parts": []}]}, "messages[1].id"),
        ({"message": USER | {"id": f"{LONG}x"}}, "message.id"),
    ],
)
def test_an_id_that_is_too_long_is_refused(body: Json, place: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ChatRequest.parse(body)
    assert (str(caught.value), caught.value.status) == (f"{place} has 1025 characters; an id has at most 1024", 400)


def test_ids_of_the_longest_kind_are_read() -> None:
    request = ChatRequest.parse({"id": LONG, "messageId": LONG, "messages": [USER | {"id": LONG}]})
    assert (request.chat_id, request.message_id, request.messages[0]["id"]) == (LONG, LONG, LONG)


def test_what_is_just_within_the_limits_is_read() -> None:
    body = {"messages": [FILES, USER]}
    limits = Limits(
        maximum_bytes=len(json.dumps(body)),
        maximum_messages=2,
        maximum_parts=3,
        maximum_files=2,
        maximum_file_bytes=7,
        maximum_depth=5,
    )
    assert ChatRequest.parse(json.dumps(body), limits=limits).text == "hi"


def test_a_body_of_too_many_values_is_refused_before_it_is_read() -> None:
    limits = Limits(maximum_values=3)
    limits.check_values(b"[1, 2]")
    with pytest.raises(RequestTooLarge, match="too many values; the limit maximum_values is 3"):
        limits.check_values(b"[1, 2, 3]")
