import pytest

from usechat.protocol.tool_parts import TextBuffer


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        pytest.param([], "", id="nothing"),
        pytest.param(["Hel", "", "lo"], "Hello", id="joined"),
        pytest.param(["\ud83d", "\ude00!"], "😀!", id="halves-of-a-character-meet"),
        pytest.param(["a\ud83d", "b"], "a\ud83db", id="a-half-alone-stays"),
    ],
)
def test_text(pieces: list[str], expected: str) -> None:
    buffer = TextBuffer()
    for piece in pieces:
        buffer.append(piece)
    assert buffer.text() == expected


def test_looking_between_the_pieces_changes_nothing() -> None:
    buffer = TextBuffer("a\ud83d")
    assert buffer.text() == "a\ud83d"
    buffer.append("\ude00")
    assert buffer.text() == buffer.text() == "a😀"
