"""What was written so far, without keeping it: enough to tell whether a longer text goes on with it."""

import hashlib

__all__ = ["TextTrace"]


class TextTrace:
    """The length and the digest of a text that grows."""

    def __init__(self, text: str = "") -> None:
        self.length = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self.add(text)

    def add(self, text: str) -> None:
        """Note that more was written."""
        self.length += len(text)
        self._digest.update(_bytes(text))

    def rest_of(self, whole: str) -> str | None:
        """Return what ``whole`` has behind the traced text, or nothing if it does not begin with it."""
        if len(whole) < self.length:
            return None
        beginning = hashlib.blake2b(_bytes(whole[: self.length]), digest_size=16)
        return whole[self.length :] if beginning.digest() == self._digest.digest() else None

    def is_trace_of(self, text: str) -> bool:
        """Tell whether exactly this was written."""
        return self.rest_of(text) == ""


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
