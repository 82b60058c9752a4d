"""Corrects words that are misspelt: an unknown word becomes the known one that differs from it by one letter."""

import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from string import ascii_lowercase
from typing import Final

from usechat.demo.similar import stem

__all__ = ["Spelling"]

_SHORTEST: Final = 5
"""Letters of a word that may be misspelt: shorter ones are too like each other."""
_LONGEST: Final = 25
"""Letters of a word that is looked at: of a longer one there are too many misspellings to try."""
_REPLACEABLE: Final = 7
"""Letters of a word in which one may be the wrong one: of the shorter words, such as `spring`, too many are others."""
_COMMON: Final = 3
"""How often a word must be there to be what was meant."""
_MISSPELT: Final = re.compile(rf"(?<![\w.'-])[a-z]{{{_SHORTEST},{_LONGEST}}}(?![\w'-]|[.]\w)")


class Spelling:
    """Knows the words of texts, and how common each is."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._known = Counter(word for text in texts for word in re.findall("[a-z]+", text.lower()))
        self._stems = {stem(word) for word in self._known}

    def corrected(self, question: str) -> str:
        """Return a question in small letters, with known words for those that are misspelt."""
        return _MISSPELT.sub(lambda found: self._meant(found[0]), question.lower())

    def _meant(self, word: str) -> str:
        if stem(word) in self._stems:
            return word
        common = [each for each in _changed(word) if self._known[each] >= _COMMON]
        return max(common, key=lambda each: (self._known[each], each), default=word)


def _changed(word: str) -> set[str]:
    """Return what becomes of a word by one change behind its first letter."""
    cuts = [(word[:at], word[at:]) for at in range(1, len(word) + 1)]
    changed = {start + rest[1:] for start, rest in cuts}
    changed |= {start + letter + rest for start, rest in cuts for letter in ascii_lowercase}
    changed |= {start + second + first + rest[2:] for start, rest in cuts for first, second in pairwise(rest[:2])}
    if len(word) >= _REPLACEABLE:
        changed |= {start + letter + rest[1:] for start, rest in cuts for letter in ascii_lowercase}
    return {each for each in changed if len(each) >= _SHORTEST}
