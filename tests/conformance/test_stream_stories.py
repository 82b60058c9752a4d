"""Where lanes, approvals, client tools, streamed inputs, steps and continuations meet, judged by the real clients."""

from collections import Counter
from itertools import combinations

import pytest
from hypothesis import HealthCheck, given, settings

from tests.conformance.judge import RELEASES, Judge
from tests.conformance.story_properties import check_story
from tests.turn_strategies import FEATURES, Story, stories

EXAMPLES = 250
LEAST_SHARE = 0.05
"""Of the streams, for each pair of features."""


@pytest.mark.parametrize("major", RELEASES)
def test_every_story_is_whole_on_every_page_and_neither_stalls_nor_repeats(judge: Judge, major: str) -> None:
    pairs: Counter[tuple[str, str]] = Counter()
    count = 0

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(stories)
    def check(story: Story) -> None:
        nonlocal count
        count += 1
        pairs.update(combinations([feature for feature in FEATURES if feature in story.features], 2))
        for release in RELEASES[major]:
            check_story(judge, release, release, story)
        check_story(judge, RELEASES[major][-1], major, story)
        if major != "5":
            check_story(judge, RELEASES[major][0], "any", story)
            check_story(judge, RELEASES[major][-1], "any", story)

    check()
    shares = {pair: pairs[pair] / count for pair in combinations(FEATURES, 2)}
    assert {pair: share for pair, share in shares.items() if share < LEAST_SHARE} == {}
