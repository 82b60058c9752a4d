"""What everyone is measured on: the deltas of an answer as a model streams it, about one word each."""

import itertools
import re
from typing import Final

BLOCK_ID: Final = "text-1"

_ANSWER: Final = """\
## Why the kettle sings

Long before water boils, the *bottom* of the kettle is hot enough to make steam. Each bubble rises, meets colder \
water and collapses \u2013 with a tiny "click". Thousands of clicks a second are the song; when all of it is at \
100 \u00b0C the bubbles survive, and the kettle falls quiet. See `latent_heat(mass, "J")` in C:\\physics for more:

1. warm-up: a low hum
2. simmering: the loudest part \U0001f3b6
3. a rolling boil: only splashing
"""


def text_deltas(count: int) -> list[str]:
    """Return ``count`` deltas: words with the space before them, line breaks, quotes, here and there not ASCII."""
    return list(itertools.islice(itertools.cycle(re.findall(r"\s*\S+|\s+", _ANSWER)), count))
