"""The frames of a WebSocket chat, by value."""

import json
from typing import Any

import pytest

from usechat.errors import InvalidRequest, RequestError, RequestTooLarge, UnreadableFrame
from usechat.protocol.request import ChatRequest, Limits
from usechat.protocol.sse import DONE
from usechat.server.websocket import ClientFrame, Header, ServerFrame, merge_headers

HELLO = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hello"}]}


def sent(**changes: Any) -> str:
    """Return the frame of a `send`, as ai 7.0.170 writes it."""
    frame = {
        "type": "send",
        "requestId": "r1",
        "id": "chat",
        "trigger": "submit-message",
        "messages": [HELLO],
        "headers": {"authorization": "Bearer t"},
        "body": {"model": "m"},
    }
    return json.dumps(frame | changes)


def test_a_send_is_the_chat_request_that_would_have_been_posted() -> None:
    frame = ClientFrame.parse(sent(messageId="u1", metadata={"never": "posted"}))
    posted = {"model": "m", "id": "chat", "messages": [HELLO], "trigger": "submit-message", "messageId": "u1"}
    assert (frame.type, frame.request_id, frame.chat_id) == ("send", "r1", "chat")
    assert frame.request(Limits()) == ChatRequest.parse(posted)


def test_the_body_cannot_replace_what_the_frame_says() -> None:
    body = {"id": "other", "messages": [], "trigger": "regenerate-message"}
    request = ClientFrame.parse(sent(body=body)).request(Limits())
    assert (request.chat_id, request.messages, request.trigger, request.body) == ("chat", [HELLO], "submit-message", {})


@pytest.mark.parametrize("frame", ['{"type":"resume","requestId":"r","id":"c"}', '{"type":"abort","requestId":"r"}'])
def test_other_frames_are_read(frame: str) -> None:
    client_frame = ClientFrame.parse(frame)
    assert (client_frame.type, client_frame.request_id, client_frame.headers) == (json.loads(frame)["type"], "r", {})


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        ("", "A frame is not JSON."),
        ("{", "A frame is not JSON."),
        ('{"type":"abort","requestId":NaN}', "A frame is not JSON."),
        ("[" * 100_000, "A frame is not JSON."),
        ("[]", "A frame is not a JSON object."),
        ('"abort"', "A frame is not a JSON object."),
        ("{}", "The type of a frame is send, resume or abort."),
        ('{"type":"stop","requestId":"r"}', "The type of a frame is send, resume or abort."),
        ('{"type":["send"],"requestId":"r"}', "The type of a frame is send, resume or abort."),
        ('{"type":"send"}', "The requestId of a frame is a string of up to 256 characters."),
        ('{"type":"send","requestId":1}', "The requestId of a frame is a string of up to 256 characters."),
        (sent(requestId="r" * 257), "The requestId of a frame is a string of up to 256 characters."),
    ],
)
def test_a_frame_that_names_no_request_is_unreadable(frame: str, text: str) -> None:
    with pytest.raises(UnreadableFrame) as raised:
        ClientFrame.parse(frame)
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"body": 1}, "body must be an object, not a number"),
        ({"messages": []}, "messages has no user message to answer, and does not end with an assistant message"),
        (
            {"messages": None},
            "the body has no messages: send the history under 'messages', or the last message under 'message'",
        ),
        ({"trigger": "other"}, "trigger must be 'submit-message' or 'regenerate-message', not 'other'"),
        ({"id": 1}, "the chat id must be a string, not a number"),
        ({"body": {"x": 10**309}}, "the body holds a number that is not finite; the largest is about 1.8e308"),
    ],
)
def test_a_send_that_is_no_chat_request_is_invalid(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        ClientFrame.parse(sent(**changes)).request(Limits())
    assert str(raised.value) == text


def test_a_resume_needs_the_id_of_a_chat() -> None:
    with pytest.raises(InvalidRequest, match="the chat id must be a string, not null"):
        _ = ClientFrame.parse('{"type":"resume","requestId":"r"}').chat_id


@pytest.mark.parametrize(
    "headers",
    [[], "authorization", {"a": 1}, {"a b": "c"}, {"": "c"}, {"a": "b\r\nc: d"}, {"a": "\0"}, {"a": "€"}, {"ä": "b"}],
)
def test_headers_that_http_could_not_carry_are_invalid(headers: Any) -> None:
    with pytest.raises(InvalidRequest):
        _ = ClientFrame.parse(sent(headers=headers)).headers


def test_names_of_headers_are_read_in_lower_case() -> None:
    assert ClientFrame.parse(sent(headers={"X-Team": "å b"})).headers == {"x-team": "å b"}


def test_the_size_of_a_frame_is_limited_in_bytes() -> None:
    frame = sent(body={"text": "ä"})
    frame = frame.replace("\\u00e4", "ä")
    size = len(frame.encode())
    assert ClientFrame.parse(frame).request(Limits(maximum_bytes=size)).body == {"text": "ä"}
    with pytest.raises(RequestTooLarge) as raised:
        ClientFrame.parse(frame).request(Limits(maximum_bytes=size - 1))
    assert str(raised.value) == f"The request holds more than {size - 1} bytes."


def test_the_depth_of_a_frame_is_limited() -> None:
    with pytest.raises(RequestError, match="nested too deeply"):
        ClientFrame.parse(sent(body={"a": [[[]]]})).request(Limits(maximum_depth=3))


@pytest.mark.parametrize(
    ("frame", "merged"),
    [
        ({}, [(b"host", b"h"), (b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"x-user", b"ada")]),
        (
            {"x-team": "red"},
            [(b"host", b"h"), (b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"x-user", b"ada"), (b"x-team", b"red")],
        ),
        (
            {"host": "evil", "cookie": "a=2", "x-user": "eve", "x-forwarded-for": "::1", "sec-fetch-site": "none"},
            [(b"host", b"h"), (b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"x-user", b"ada")],
        ),
    ],
)
def test_a_frame_adds_headers_and_forges_none(frame: dict[str, str], merged: list[Header]) -> None:
    handshake = [(b"host", b"h"), (b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"x-user", b"ada")]
    assert merge_headers(handshake, frame) == merged


def test_a_frame_replaces_the_authorization_of_the_handshake() -> None:
    handshake = [(b"authorization", b"Bearer old"), (b"host", b"h")]
    assert merge_headers(handshake, {"authorization": "Bearer å"}) == [
        (b"host", b"h"),
        (b"authorization", b"Bearer \xe5"),
    ]
    assert merge_headers(handshake, {}) == handshake


def test_chunks_are_numbered_from_zero_and_taken_over_as_they_were_encoded() -> None:
    frame = ServerFrame("r1")
    assert frame.chunks(
        b': stream-open\n\ndata: {"type":"start"}\n\ndata: { "n": 1.0, "t": "\xc3\xa4\\n\\n" }\n\n'
    ) == [
        '{"type":"chunk","requestId":"r1","sequence":0,"chunk":{"type":"start"}}',
        '{"type":"chunk","requestId":"r1","sequence":1,"chunk":{ "n": 1.0, "t": "ä\\n\\n" }}',
    ]
    assert frame.chunks(b": keep-alive\n\n") == []
    assert frame.chunks(b'data: {"type":"finish"}\n\ndata: [DONE]\n\n') == [
        '{"type":"chunk","requestId":"r1","sequence":2,"chunk":{"type":"finish"}}'
    ]


def test_names_of_events_are_left_out() -> None:
    frames = b'event: message-start\ndata: {"type":"start"}\n\nevent: message-finish\ndata: {"type":"finish"}\n\n'
    assert [json.loads(frame)["chunk"] for frame in ServerFrame("r1").chunks(frames + DONE)] == [
        {"type": "start"},
        {"type": "finish"},
    ]


def test_a_percent_sign_or_brace_in_a_chunk_or_an_id_means_nothing() -> None:
    request_id = 'r%s{0}"\ud800'
    (frame,) = ServerFrame(request_id).chunks(b'data: {"delta":"100 %s {0}"}\n\n')
    assert json.loads(frame) == {
        "type": "chunk",
        "requestId": request_id,
        "sequence": 0,
        "chunk": {"delta": "100 %s {0}"},
    }


def test_everything_else_that_is_told() -> None:
    frame = ServerFrame("r1")
    assert [frame.start(), frame.end(), frame.no_active(), frame.error("No.")] == [
        '{"type":"start","requestId":"r1"}',
        '{"type":"end","requestId":"r1"}',
        '{"type":"no-active","requestId":"r1"}',
        '{"type":"error","requestId":"r1","errorText":"No."}',
    ]
