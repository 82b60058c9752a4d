"""The tools of the demo's researcher."""

import pytest

from usechat.demo.tools import calculate, search_docs, weather


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


def test_sections_are_found_the_best_first() -> None:
    found = search_docs("stop button")
    assert found["found"][0]["section"] == "Resume and stop: A stop button"
    assert found["nearest"] == []


def test_nothing_is_found_for_words_that_mean_nothing() -> None:
    assert search_docs("what is it about?") == {"found": [], "nearest": []}


def test_the_weather_is_never_known() -> None:
    with pytest.raises(ConnectionError, match="Lisbon"):
        weather("Lisbon")
