"""Chunks that repeat everything: what in them is new."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["Said"]


class Said:
    """What one message of Genkit has said so far."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {"text": [], "reasoning": []}
        self._others: list[Mapping[str, Any]] = []

    def add(self, part: Mapping[str, Any]) -> None:
        """Remember a content part."""
        for kind in self._texts:
            if isinstance(part.get(kind), str):
                self._texts[kind].append(part[kind])
                return
        self._others.append(part)

    def news(self, content: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
        """Yield what an ``aggregated`` chunk holds beyond what was said; a text that was changed is said anew."""
        texts = {kind: "".join(pieces) for kind, pieces in self._texts.items()}
        others = list(self._others)
        for part in content:
            kind = next((kind for kind in texts if isinstance(part.get(kind), str)), None)
            if kind is None:
                if part in others:
                    others.remove(part)
                else:
                    yield part
                continue
            text, said = part[kind], texts[kind]
            if said.startswith(text):
                texts[kind] = said[len(text) :]
            else:
                texts[kind] = ""
                yield {**part, kind: text.removeprefix(said)}
