"""The tools of the demo's agent."""

import pytest

from usechat.demo.tools import calculate, search_docs, weather

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("expression", "value"),
    [("1 + 2 * 3", 7), ("(1 + 2) * 3", 9), ("-4 / 2", -2), ("7 // 2 + 7 % 2", 4), ("+1.5 - 1", 0.5)],
)
def test_arithmetic(expression: str, value: float) -> None:
    assert calculate(expression) == value


@pytest.mark.parametrize("expression", ["2 ** 99", "__import__('os')", "1 +", "'a' * 3", "True + 1", "1" * 201])
def test_nothing_else_is_calculated(expression: str) -> None:
    with pytest.raises(ValueError, match=r"arithmetic|too long"):
        calculate(expression)


def test_the_best_passage_is_the_first_with_its_link() -> None:
    passage = search_docs("stop button")[0]
    assert passage["section"] == "Resume and stop: A stop button"
    assert passage["link"] == "docs/resume.md#a-stop-button"
    assert passage["text"].startswith("Call the stop route, then `stop()`:\n\n```tsx\n")


def test_nothing_is_found_for_words_that_mean_nothing() -> None:
    assert search_docs("what is it about?") == []


def test_the_weather_is_never_known() -> None:
    with pytest.raises(ConnectionError, match="Lisbon"):
        weather("Lisbon")
