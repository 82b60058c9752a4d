import pytest

from tests.chats.talking import answer, call, ids, user
from usechat.chats.chat import write_text
from usechat.chats.history import last_bytes, last_messages
from usechat.errors import InvalidSetting
from usechat.protocol.ui_messages import UIMessage

pytestmark = pytest.mark.quick

SYSTEM: UIMessage = {"id": "s", "role": "system", "parts": [{"type": "text", "text": "Be kind."}]}
TURNS = [
    user("u1"),
    answer("a1", "A1"),
    user("u2"),
    answer("a2", call("t1", "output-available", output=1), "A2"),
    user("u3"),
]


@pytest.mark.parametrize(
    ("limit", "message_ids"),
    [
        (1, ["u3"]),
        (2, ["u3"]),
        (3, ["u2", "a2", "u3"]),
        (4, ["u2", "a2", "u3"]),
        (5, ["u1", "a1", "u2", "a2", "u3"]),
        (9, ["u1", "a1", "u2", "a2", "u3"]),
    ],
)
def test_the_last_messages_begin_with_a_question(limit: int, message_ids: list[str]) -> None:
    assert ids(last_messages(limit)(TURNS)) == message_ids
    assert ids(last_messages(limit)([SYSTEM, *TURNS])) == ["s", *message_ids]


def test_the_last_bytes_are_counted_as_json() -> None:
    size = len(write_text(TURNS[4])) + len(write_text(TURNS[3])) + len(write_text(TURNS[2]))
    assert ids(last_bytes(size)(TURNS)) == ["u2", "a2", "u3"]
    assert ids(last_bytes(size - 1)(TURNS)) == ["u3"]


def test_what_is_continued_stays_with_its_question() -> None:
    waiting = [*TURNS, answer("a3", call("t2"))]
    assert ids(last_messages(1)(waiting)) == ["u3", "a3"]
    assert ids(last_bytes(1)(waiting)) == ["u3", "a3"]


def test_a_history_without_questions_stays_as_it_is() -> None:
    assert ids(last_messages(1)([answer("a1"), answer("a2")])) == ["a1", "a2"]
    assert last_messages(1)([]) == []
    assert last_messages(1)([SYSTEM]) == [SYSTEM]


@pytest.mark.parametrize("make", [last_messages, last_bytes])
def test_a_limit_is_at_least_one(make: object) -> None:
    with pytest.raises(InvalidSetting, match="at least 1"):
        make(0)  # type: ignore[operator]
