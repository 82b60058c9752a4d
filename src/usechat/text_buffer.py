"""Text that arrives in pieces."""

__all__ = ["TextBuffer"]


class TextBuffer:
    """Collects pieces and joins them when someone looks, so that a long text costs linear time."""

    __slots__ = ("_pieces",)

    def __init__(self, text: str = "") -> None:
        self._pieces = [text]

    def append(self, piece: str) -> None:
        """Add a piece at the end."""
        self._pieces.append(piece)

    def text(self) -> str:
        """Return the text so far."""
        if len(self._pieces) > 1:
            self._pieces = [_with_whole_characters("".join(self._pieces))]
        return self._pieces[0]


def _with_whole_characters(text: str) -> str:
    """Make one character of two halves that came in two pieces, as JavaScript's UTF-16 texts do by themselves."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text
