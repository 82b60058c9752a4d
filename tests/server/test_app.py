"""What a chat app accepts, for Python and for type checkers: an `ignore` that is not needed fails `make check`."""

import pytest

from usechat.errors import CannotAnswer
from usechat.server import ChatApp
from usechat.turn import Turn


def greet(turn: Turn, name: str) -> str:
    return f"{name}: {turn.text}"


def test_a_number_is_no_agent() -> None:
    with pytest.raises(CannotAnswer, match="int cannot answer a chat"):
        ChatApp(42)  # type: ignore[arg-type]


def test_a_function_of_two_arguments_is_no_agent() -> None:
    with pytest.raises(CannotAnswer, match="greet must take one argument"):
        ChatApp(greet)  # type: ignore[arg-type]


def test_one_of_several_agents_that_cannot_answer_is_refused() -> None:
    with pytest.raises(CannotAnswer, match="greet must take one argument"):
        ChatApp({"other": lambda turn: turn.text, "greeter": greet})  # type: ignore[dict-item]
