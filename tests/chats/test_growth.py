"""How a stored answer grows: any two states, and what a whole stream costs."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.chats.talking import answer, text
from usechat.chats.chat import write_text
from usechat.chats.growth import difference, grown
from usechat.protocol.ui_messages import UIMessage

TEXTS = st.text("ab\ud800", max_size=4)
PARTS = st.one_of(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "reasoning"]), "text": TEXTS},
        optional={"state": st.sampled_from(["streaming", "done"])},
    ),
    st.fixed_dictionaries({"type": st.just("data-x"), "data": st.one_of(st.none(), TEXTS)}),
    st.fixed_dictionaries({"type": st.just("step-start")}),
)
MESSAGES = st.builds(
    lambda parts, metadata: {"id": "m", "role": "assistant", "parts": parts, **metadata},
    st.lists(PARTS, max_size=4),
    st.fixed_dictionaries({}, optional={"metadata": st.dictionaries(TEXTS, st.integers(), max_size=1)}),
)


@given(MESSAGES, MESSAGES)
def test_what_has_grown_is_the_later_state(before: UIMessage, after: UIMessage) -> None:
    growth = difference(before, after)
    assert grown(before, growth) == after
    assert (growth == {}) is (before == after)


def test_a_text_that_gets_longer_is_told_by_its_end() -> None:
    before: Any = answer("m", "Done.", text("One", "streaming"))
    after: Any = answer("m", "Done.", text("One two", "streaming"))
    assert difference(before, after) == {"texts": {"1": " two"}}


def test_the_states_of_a_long_answer_together_cost_as_much_as_the_last() -> None:
    states = [answer("m", text("word " * count, "streaming")) for count in range(0, 20_001, 20)]
    size = sum(len(write_text(difference(*pair))) for pair in pairwise(states))
    assert size < 1.5 * len(write_text(states[-1]))
