"""One parser for where the keys of an input come from, on the command line and in code."""

import pytest

from usechat.errors import InvalidSetting
from usechat.input_mapping import mapped_values, read_mapping, require_sources
from usechat.protocol.request import ChatRequest
from usechat.turn import TurnContext, TurnInput


def test_a_mapping_is_read_from_a_text() -> None:
    assert read_mapping("topic=text, depth=body.a.b") == {"topic": "text", "depth": "body.a.b"}


@pytest.mark.parametrize("text", ["", "topic", "=text", "topic=", "a=text,,b=text"])
def test_a_text_that_maps_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="maps nothing; write KEY=text or KEY=body"):
        read_mapping(text)


def test_a_key_that_is_named_twice_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="names a key twice"):
        read_mapping("topic=text,topic=body.topic")


@pytest.mark.parametrize("source", ["messages", "body", "body.", "body..x", "text.x", ""])
def test_a_key_comes_from_the_text_or_from_a_field_of_the_body(source: str) -> None:
    require_sources({"topic": "text", "depth": "body.a.b"})
    with pytest.raises(InvalidSetting, match="'topic' can come from text or from body"):
        require_sources({"topic": source})


async def test_values_that_the_request_does_not_have_are_left_out() -> None:
    message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "bees"}]}
    request = ChatRequest.parse({"id": "c", "messages": [message], "a": {"b": 0}, "d": "text"})
    turn = TurnContext(TurnInput(request)).turn
    mapping = {"topic": "text", "depth": "body.a.b", "missing": "body.a.c", "deeper": "body.d.e"}
    assert mapped_values(mapping, turn) == {"topic": "bees", "depth": 0}
