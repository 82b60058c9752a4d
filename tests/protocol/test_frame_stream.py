"""Parts to bytes: the same frames as stream and encoder give, whichever way they take."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.part_strategies import any_part, endings
from usechat import parts
from usechat.parts import Part
from usechat.protocol.sse import DONE, FrameStream, encode_frame
from usechat.protocol.stream import MessageStream

ids = st.sampled_from(["1", '%"}', "%b", "\ud83d"])


def test_a_turn_in_bytes() -> None:
    frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
    assert frames.send(parts.Text("Hel")) == (
        b'data: {"type":"start","messageId":"m1"}\n\n'
        b'data: {"type":"start-step"}\n\n'
        b'data: {"type":"text-start","id":"1"}\n\n'
        b'data: {"type":"text-delta","id":"1","delta":"Hel"}\n\n'
    )
    assert frames.send(parts.Text("lo\n")) == b'data: {"type":"text-delta","id":"1","delta":"lo\\n"}\n\n'
    assert frames.send(parts.Text("\ud83d")) == b'data: {"type":"text-delta","id":"1","delta":"\\ud83d"}\n\n'
    assert frames.close() == (
        b'data: {"type":"text-end","id":"1"}\n\n'
        b'data: {"type":"finish-step"}\n\n'
        b'data: {"type":"finish","finishReason":"stop"}\n\n'
        b"data: [DONE]\n\n"
    )
    assert (frames.close(), frames.fail("late"), frames.send(parts.Text("late"))) == (b"", b"", b"")


def test_a_failure_ends_the_bytes_too() -> None:
    frames = FrameStream(MessageStream(message_id="m1", sdk="7"))
    assert frames.fail("No luck.").endswith(
        b'data: {"type":"error","errorText":"No luck."}\n\n'
        b'data: {"type":"finish","finishReason":"error"}\n\n'
        b"data: [DONE]\n\n"
    )


@settings(max_examples=300)
@given(
    st.lists(any_part | st.builds(parts.Text, st.text(max_size=3)), max_size=12), st.lists(endings), ids, st.booleans()
)
def test_the_short_way_writes_what_the_long_way_writes(
    sent: list[Part], ended: list[Part], block_id: str, event_names: bool
) -> None:
    def new_stream() -> MessageStream:
        numbers = iter(range(100))
        return MessageStream(message_id="m1", new_id=lambda: f"{block_id}{next(numbers)}")

    frames = FrameStream(new_stream(), event_names=event_names)
    written = b"".join([frames.send(part) for part in [*sent, *ended]]) + frames.close()
    stream = new_stream()
    chunks = [chunk for part in [*sent, *ended] for chunk in stream.send(part)] + stream.close()
    assert written == b"".join([encode_frame(chunk, event_names=event_names) for chunk in chunks]) + DONE
