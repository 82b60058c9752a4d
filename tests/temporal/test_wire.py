"""The items of a workflow's stream: parts as JSON and back, and what a retried activity says."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.part_strategies import any_part
from usechat.errors import LocalProtocolError, UnknownEvent
from usechat.parts import Data, Error, Part, ResetStep, Step, Text, ToolCall, ToolResult
from usechat.protocol.chunks import Chunk
from usechat.protocol.stream import MessageStream
from usechat.temporal.wire import END, AnswerReader, StreamItem, item_of, marker

pytestmark = [pytest.mark.unit, pytest.mark.quick]


def read(*items: StreamItem) -> list[Part]:
    """What a turn says of these items."""
    reader = AnswerReader()
    return [*(part for item in items for part in reader.feed(item)), *reader.close()]


def said(text: str, attempt: int, step: str = "1") -> StreamItem:
    return item_of(Text(text), step=step, attempt=attempt)


def began(attempt: int, step: str = "1") -> StreamItem:
    return marker("step", step=step, attempt=attempt)


def test_an_answer_is_read_as_it_was_said() -> None:
    call, result = ToolCall("c1", "weather", {"city": "Oslo"}), ToolResult("c1", {"celsius": 21})
    items = [began(1), said("Well", 1), item_of(call, step="1", attempt=1), item_of(result), END]
    assert read(*items) == [Step(), Text("Well"), call, result]


@pytest.mark.parametrize(
    ("items", "parts"),
    [
        ([began(1), said("Half", 1), began(2), said("Whole", 2)], [Step(), Text("Half"), ResetStep(), Text("Whole")]),
        ([began(2), said("Whole", 2)], [Step(), Text("Whole")]),
        ([began(1), began(2), said("late", 1), began(3), said("x", 2), said("Whole", 3)],
         [Step(), ResetStep(), ResetStep(), Text("Whole")]),
        ([began(1), said("One", 1), began(1, "2"), said("Two", 1, "2")], [Step(), Text("One"), Step(), Text("Two")]),
        ([began(1), began(1, "2"), said("Beside", 1, "2"), began(2)], [Step(), Step(), Text("Beside"), Step()]),
        ([marker("work", step="1", attempt=1), said("10 %", 1), marker("work", step="1", attempt=2), said("late", 1)],
         [Text("10 %")]),
    ],
    ids=["a retry replaces", "a silent attempt", "a slow worker", "two steps", "steps at once", "work"],
)  # fmt: skip
def test_what_a_retried_activity_says(items: list[StreamItem], parts: list[Part]) -> None:
    assert read(*items, END) == parts


def test_a_stream_without_an_end_is_an_error() -> None:
    assert [type(part) for part in read(began(1))] == [Step, Error]


def test_a_failure_is_not_reported_twice() -> None:
    assert AnswerReader().close(RuntimeError()) == []


def sent(parts: list[Part]) -> list[Chunk]:
    stream = MessageStream(message_id="m1", sdk="7")
    return [*(chunk for part in parts for chunk in stream.send(part)), *stream.close()]


@given(st.lists(any_part, max_size=6))
def test_every_part_reaches_the_page_as_if_it_was_said_in_the_web_process(parts: list[Part]) -> None:
    items = [json.loads(json.dumps(item_of(part))) for part in parts]
    assert sent(read(*items, END)) == sent(parts)


def test_values_become_json() -> None:
    item = item_of(Data("when", {"days": (1, 2)}))
    assert (item, read(item, END)) == (
        {"part": ["Data", {"name": "when", "data": {"days": [1, 2]}}]},
        [Data("when", {"days": [1, 2]})],
    )


@pytest.mark.parametrize("item", [{"part": ["Smell", {}]}, {"other": 1}, "text"])
def test_what_is_not_known_is_counted(item: Any) -> None:
    with pytest.raises(UnknownEvent):
        AnswerReader().feed(item)


def test_what_is_no_part_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="published in parts, not as int"):
        item_of(7)  # type: ignore[arg-type]
