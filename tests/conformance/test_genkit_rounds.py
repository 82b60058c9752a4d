"""Rounds of tools of Genkit servers: the npm predicates say when a page sends by itself."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.http_client import WITH_APPROVALS
from tests.conformance.judge import Judge
from tests.genkit.rounds import Round
from tests.genkit.test_rounds import answered, rounds

played = st.tuples(rounds, st.randoms(use_true_random=False))


def histories(one: Round, random: Any) -> list[tuple[list[Any], bool]]:
    """Return the history after the first answer and after the page's, each with whether the page sends it."""
    user = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "Do it."}]}
    order = list(range(len(one.runs)))
    random.shuffle(order)
    message = one.first(order)
    decided = answered(message, lambda _index: bool(random.randrange(2)))
    return [([user, message], False), *([([user, decided], True)] if one.is_interrupted else [])]


@settings(max_examples=15)
@given(st.lists(played, min_size=10, max_size=10))
def test_a_page_sends_by_itself_when_all_calls_are_answered_and_only_then(judge: Judge, cases: Any) -> None:
    pairs = [each for one, random in cases for each in histories(one, random)]
    for release in WITH_APPROVALS:
        for (_, sends), result in zip(pairs, judge.complete(release, [history for history, _ in pairs]), strict=True):
            assert (result["toolCalls"] or bool(result["approvals"])) is sends
