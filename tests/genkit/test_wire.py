"""The tolerant reader: what every generation of Genkit servers sends."""

from pathlib import Path
from typing import Any

import pytest

from usechat.genkit.wire import (
    MAXIMUM_FRAME,
    FlowChunk,
    FlowEvent,
    FlowFailure,
    FlowResult,
    StreamReader,
    UnknownFrame,
    failure_of,
)

pytestmark = pytest.mark.quick

FIXTURES = Path(__file__).parent.parent / "fixtures" / "genkit"
HEL = FlowChunk({"role": "model", "index": 0, "content": [{"text": "Hel"}]})


def read(*pieces: bytes) -> list[FlowEvent]:
    reader = StreamReader()
    return [event for piece in pieces for event in reader.receive(piece)] + list(reader.close())


BODIES: dict[str, list[FlowEvent]] = {
    "go-1.1.0-error": [
        HEL,
        FlowFailure("INTERNAL", "stream flow error", 'model "gemini" failed:\n\tquota {exceeded}'),
    ],
    "go-1.3.0-error": [HEL, FlowFailure("RESOURCE_EXHAUSTED", "stream flow error", 'model "gemini" failed:\n\tquota')],
    "go-1.12.0-error": [HEL, FlowFailure("INTERNAL", "internal error")],
    "express-error": [HEL, FlowFailure("INTERNAL", "Internal Error")],
    "next-error": [HEL, FlowFailure("INVALID_ARGUMENT", "Name a city.")],
    "fastapi-0.9-error": [HEL, FlowFailure("INTERNAL", "boom", {"stack": ""})],
    "fastapi-0.12-error": [HEL, FlowFailure("INTERNAL", "boom", {"stack": ""})],
    "next-result": [HEL, FlowResult("Hello")],
    "go-1.1.0-result": [FlowResult({"text": "Hello", "hasToolOutput": False})],
}


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize("name", BODIES)
def test_a_server_s_stream_is_read_however_it_is_cut_into_pieces(name: str, size: int) -> None:
    body = (FIXTURES / f"{name}.txt").read_bytes()
    assert read(*(body[start : start + size] for start in range(0, len(body), size))) == BODIES[name]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'data: {"message":"a"}\ndata: {"message":"b"}\n\n', [FlowChunk("a"), FlowChunk("b")]),
        (b'data:{"message":"a"}\r\n\r\ndata: {"result":1}\r\n\r\n', [FlowChunk("a"), FlowResult(1)]),
        (
            b'data: {"message":"a"}\nerror: {"error":{"status":"ABORTED","message":"m"}}',
            [FlowChunk("a"), FlowFailure("ABORTED", "m")],
        ),
        (b'{"result":{"text":"Hello"}}\n', [FlowResult({"text": "Hello"})]),
        (b'{\n  "result": 4\n}\n', [FlowResult(4)]),
        (b"data: {}\n\n", [FlowResult(None)]),
        (b'data: {"result":null}\n\n', [FlowResult(None)]),
        (b'data: {"error":"boom"}\n\n', [FlowFailure("UNKNOWN", "boom")]),
        (b': keep-alive\n\nevent: message\nid: 4\nretry: 10\ndata: {"message":1}\n\n', [FlowChunk(1)]),
        (b'data: {"result":1}\n\ndata: {"message":"late"}\n\ndata: {"error":"late"}\n\nEND', [FlowResult(1)]),
        (b'data: {"other":1,"more":2}\n\n', [UnknownFrame("other,more")]),
        (b'data: {"message":"a"}\n\nEND\n', [FlowChunk("a")]),
        (b"data: [1]\n\n", [UnknownFrame("list")]),
        (b"hello\n\n", [UnknownFrame("text")]),
        ('data: {"message":"h\u00e9"}\n\n'.encode(), [FlowChunk("hé")]),
        (b'data: {"message":NaN}\n\n', None),
        (b'data: {"message":"\\ud83d"}\n\n', [FlowChunk("\ud83d")]),
        (b"", []),
        (b'data: {"message":"a"}\n\ndata: {"mess', [FlowChunk("a")]),
        (b'data: {"mess\n\ndata: {"message":"a"}\n\n', [FlowFailure("DATA_LOSS", 'a frame is not JSON: {"mess')]),
        (b'data: {"error": oops}\n\n', [FlowFailure("INTERNAL", "", '{"error": oops}')]),
    ],
)
def test_frames_are_read_with_tolerance(body: bytes, expected: list[FlowEvent] | None) -> None:
    events = read(body)
    if expected is None:  # not a number is not equal to itself
        assert len(events) == 1
        assert isinstance(events[0], FlowChunk)
    else:
        assert events == expected


def test_a_frame_has_a_limit() -> None:
    too_large = FlowFailure("DATA_LOSS", "a frame of the stream is too large")
    assert read(b"data: " + b"x" * MAXIMUM_FRAME + b"x") == [too_large]
    line = b"x" * 1_000_000 + b"\n"
    assert read(b"data: {", *[line] * 17) == [too_large]


@pytest.mark.parametrize(
    ("value", "failure"),
    [
        ({"message": "m", "status": "NOT_FOUND", "details": 1}, FlowFailure("NOT_FOUND", "m", 1)),
        ({"error": {"message": "m", "status": "NOT_FOUND"}}, FlowFailure("NOT_FOUND", "m")),
        ({"error": {"error": {"message": "m"}}}, FlowFailure("UNKNOWN", "m")),
        ({"message": "m", "status": "INVALID ARGUMENT"}, FlowFailure("INVALID_ARGUMENT", "m")),
        ({"error": "rate limit exceeded"}, FlowFailure("UNKNOWN", "rate limit exceeded")),
        ({"error": None}, FlowFailure()),
        ("text", FlowFailure("UNKNOWN", "text")),
        ({"message": 4, "status": 400}, FlowFailure()),
    ],
)
def test_an_error_has_many_shapes(value: Any, failure: FlowFailure) -> None:
    assert failure_of(value) == failure
