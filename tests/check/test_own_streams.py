"""Streams that usechat makes: every release that they are made for accepts them, and no page waits or re-posts."""

import pytest
from hypothesis import given, settings

from tests.turn_strategies import Story, stories
from usechat.check import Capture, check_capture
from usechat.protocol.sse import FrameStream
from usechat.protocol.stream import MessageStream

KEEPS_THE_PAGE_BUSY = {"UC412", "UC424", "UC425", "UC427"}


@pytest.mark.parametrize(("sdk", "judges"), [("5", ["5"]), ("6", ["6"]), ("7", ["7"]), ("any", ["6", "7"])])
@settings(max_examples=60)
@given(story=stories)
def test_no_part_is_left_behind_and_every_answer_is_sent(sdk: str, judges: list[str], story: Story) -> None:
    frames = FrameStream(MessageStream(message_id="m", sdk=sdk))
    body = b"".join([*map(frames.send, story.first), frames.close()])
    report = check_capture(Capture(name="-", body=body), judges)
    assert report.ok
    assert {problem.rule.id for problem in report.problems} & KEEPS_THE_PAGE_BUSY == set()
