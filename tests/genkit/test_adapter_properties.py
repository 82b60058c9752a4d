"""Any chunks and results of a flow, and any bytes of a server, become an answer that a page can read."""

from contextlib import suppress
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from tests.genkit.short import adapter
from usechat import MessageBuilder, MessageStream
from usechat.errors import StreamFailed, UnknownEvent
from usechat.genkit.wire import FlowChunk, FlowEvent, FlowFailure, FlowResult, StreamReader

_PARTS: Final = ("text", "reasoning", "toolRequest", "toolResponse", "media", "data", "resource", "custom")
_KEYS: Final = (
    *_PARTS,
    *("modelChunk", "turnEnd", "customPatch", "artifact", "content", "role", "index", "aggregated", "metadata"),
    *("name", "ref", "input", "partial", "output", "url", "contentType", "interrupt", "pendingOutput", "snapshotId"),
    *("message", "finishReason", "usage", "inputTokens", "error", "status", "new"),
)
_texts = st.sampled_from(["", "a", "tool", "model", "interrupted", "failed", "blocked", "data:,a"])
_values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.floats() | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4),
    max_leaves=12,
)
_contents = st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys((*_PARTS, "metadata"), _values)), max_size=3)
_chunks = st.fixed_dictionaries(
    {"content": _contents},
    optional={"role": _texts, "index": st.integers(0, 2), "aggregated": st.booleans(), "custom": _values},
)
_frames = st.lists(
    st.sampled_from(
        [
            *(b"data: ", b"error: ", b"\n", b"\n\n", b"\r\n", b"END", b": ", b"\xff", b"{", b"}", b"[", b"null"),
            *(b'"a"', b'{"message":', b'{"result":', b'{"error":', b'"status":"X"', b'"\\ud800"'),
        ]
    )
)


@given(
    streamed=st.lists(_chunks | _values | st.builds(lambda chunk: {"modelChunk": chunk}, _chunks), max_size=4),
    result=_values,
    send_data=st.booleans(),
    interrupts=st.sampled_from(["tool", "approval"]),
)
def test_every_answer_can_be_read(streamed: list[Any], result: Any, send_data: bool, interrupts: Any) -> None:
    stream, builder = MessageStream(message_id="m", sdk="7"), MessageBuilder(sdk="7")
    to = adapter(send_data=send_data, interrupts=interrupts)
    events: list[FlowEvent] = [*map(FlowChunk, streamed), FlowResult(result)]
    with suppress(StreamFailed):
        for event in events:
            with suppress(UnknownEvent):
                for part in to.feed(event):
                    for chunk in stream.send(part):
                        builder.receive(chunk)
    assert to.ended
    assert stream.close() == []


@given(_frames)
def test_every_stream_can_be_read(pieces: list[bytes]) -> None:
    reader = StreamReader()
    events = [event for piece in pieces for event in reader.receive(piece)] + list(reader.close())
    assert reader.ended is bool(events and isinstance(events[-1], FlowResult | FlowFailure))
