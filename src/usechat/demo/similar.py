"""Find which known questions are like a question: ``questions.toml`` lists what users may ask, by section.

A question is a vector of its words' stems, of the meanings that it shares with synonyms, and of its pairs of words. A
word weighs more the fewer questions hold it. Two questions are as similar as the angle between their vectors is small.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

__all__ = ["KnownQuestions", "stem"]

_WORD: Final = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*", re.IGNORECASE)
_FILLERS: Final = frozenset(
    _WORD.findall(
        "a about an and any are as at be been by bye can could did do does for from get has have hello hey hi"
        " how i if in is it its me my of on or our please shall should so that thank thanks the their them"
        " then there these they this to us was we what when which who will with would you your"
    )
)
"""Words that say nothing about what a question is about."""
_MEANING: Final = 0.8
"""What a meaning that two questions express by different words is worth, beside the word itself."""
_PAIR: Final = 0.4
_NEXT: Final = 0.3
"""What the second question of a section adds to the most similar one."""


def stem(word: str) -> str:
    """Return a word without its ending, so that `deletion` has the synonyms of `delete`."""
    return re.sub(r"(ations?|ions?|ings?|ers?|ed|es|s|e)$", "", word) if len(word) > 4 else word


class KnownQuestions:
    """Questions by the section that answers them; ``synonyms`` are groups of words that stand for each other."""

    def __init__(self, questions: Mapping[str, Sequence[str]], synonyms: Sequence[Sequence[str]]) -> None:
        self._meanings = defaultdict[str, list[str]](list)
        for number, group in enumerate(synonyms):
            for word in group:
                self._meanings[" ".join(map(stem, word.split()))].append(f"~{number}")
        listed = [(section, text) for section, texts in questions.items() for text in texts]
        self._sections = [section for section, _ in listed]
        features = [self._features(text) for _, text in listed]
        counts = Counter(feature for each in features for feature in each)
        self._rarities = {feature: math.log(1 + len(listed) / count) for feature, count in counts.items()}
        self._highest = math.log(1 + len(listed))
        self._holders = defaultdict[str, list[tuple[int, float]]](list)
        for number, each in enumerate(features):
            for feature, weight in self._vector(each).items():
                self._holders[feature].append((number, weight))

    def similar_to(self, question: str) -> dict[str, float]:
        """Return how similar the questions of each section are, up to 1."""
        angles = defaultdict[int, float](float)
        for feature, weight in self._vector(self._features(question)).items():
            for number, other in self._holders.get(feature, ()):
                angles[number] += weight * other
        by_section = defaultdict[str, list[float]](list)
        for number, angle in angles.items():
            by_section[self._sections[number]].append(angle)
        return {section: _combined(sorted(found, reverse=True)) for section, found in by_section.items()}

    def _vector(self, features: Mapping[str, float]) -> dict[str, float]:
        weighed = {name: value * self._rarities.get(name, self._highest) for name, value in features.items()}
        length = math.sqrt(sum(value * value for value in weighed.values())) or 1.0
        return {name: value / length for name, value in weighed.items()}

    def _features(self, text: str) -> dict[str, float]:
        """Return the features of a question, with what each is worth."""
        words = [stem(word) for word in _WORD.findall(text.lower().replace("'s ", " ")) if word not in _FILLERS]
        features = dict.fromkeys(words, 1.0)
        for phrase in (*words, *(" ".join(pair) for pair in pairwise(words))):
            features |= dict.fromkeys(self._meanings.get(phrase, ()), _MEANING)
        return features | {" ".join(pair): _PAIR for pair in pairwise(words)}


def _combined(angles: Sequence[float]) -> float:
    return angles[0] + _NEXT * (1 - angles[0]) * (angles[1] if len(angles) > 1 else 0.0)
