import pytest

from tests.chats.talking import answer, user
from usechat.chats.titles import LONGEST_TITLE, ask_title, clean_title, first_words
from usechat.protocol.ui_messages import UIMessage
from usechat.threads import AgentThreads


@pytest.mark.parametrize(
    ("content", "title"),
    [
        ("Hello", "Hello"),
        ("  One\n\ttwo  ", "One two"),
        ("One two three", "One two…"),
        ("Exactly 10", "Exactly 10"),
        ("Incomprehensibilities", "Incomprehe…"),
        ("half \ud83d\0", "half ?"),
        ("", ""),
    ],
)
def test_a_title_is_cut_at_a_word(content: str, title: str) -> None:
    assert first_words([user("u1", content)], 10) == title


def test_the_title_is_of_the_first_user_message_that_has_text() -> None:
    file = {"type": "file", "mediaType": "image/png", "url": "data:,"}
    silent: UIMessage = {"id": "u0", "role": "user", "parts": [file]}  # type: ignore[list-item]
    assert first_words([answer("a0", "Welcome"), silent, user("u1", "Hello"), user("u2", "Bye")]) == "Hello"
    assert first_words([]) == ""


def test_a_title_is_one_line_that_is_not_too_long() -> None:
    assert clean_title(" a\nb ") == "a b"
    assert len(clean_title("x" * 1_000)) == LONGEST_TITLE


async def test_a_function_makes_a_title_at_once_or_later() -> None:
    threads = AgentThreads()

    async def later(messages: list[UIMessage]) -> str:
        return f" {len(messages)}\nmessages "

    assert await ask_title(later, [user("u1")], threads) == "1 messages"
    assert await ask_title(lambda _messages: "Now", [], threads) == "Now"
    assert await ask_title(lambda _messages: None, [], threads) is None
    assert await ask_title(lambda _messages: " ", [], threads) is None
