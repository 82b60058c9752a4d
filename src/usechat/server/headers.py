"""The headers of a request, as the agent sees them."""

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["RequestHeaders"]


class RequestHeaders(Mapping[str, str]):
    """Names in small letters, each once: of a header that was sent twice the first counts, as it does for access rules.

    Names are found whatever their letters. Nothing is copied from the request, of which every open stream keeps this.
    """

    __slots__ = ("_sent",)

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._sent: list[tuple[bytes, bytes]] = scope["headers"]

    def __getitem__(self, name: str) -> str:
        wanted = name.lower().encode("latin-1", "replace")
        for sent, value in self._sent:
            if sent == wanted:
                return value.decode("latin-1")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name.decode("latin-1") for name, _ in self._sent))

    def __len__(self) -> int:
        return len({name for name, _ in self._sent})

    def __repr__(self) -> str:
        """Tell the names alone: a log is no place for tokens and cookies."""
        return f"RequestHeaders({', '.join(self)})"
