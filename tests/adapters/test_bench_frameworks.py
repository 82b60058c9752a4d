"""The benchmark of adapters measures whole answers, and its report adds up. Nothing is timed."""

import asyncio
from typing import Any

import pytest

from bench.frameworks import FRAMEWORKS, FrameworkFigures, FrameworkResults, parts_of, report
from bench.machine import Circumstances
from bench.rounds import Figure
from bench.sample import text_deltas
from usechat.parts import Text

WORDS = text_deltas(20)


async def read(events: Any) -> list[Any]:
    return [event async for event in events]


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_an_adapter_is_fed_every_word_that_the_framework_streams(name: str) -> None:
    events, adapter = FRAMEWORKS[name]

    async def answer() -> list[Any]:
        return await read(events(WORDS))

    words = [part.text for part in parts_of(adapter(), asyncio.run(answer())) if isinstance(part, Text)]
    assert words == WORDS


def test_the_report_judges_the_share_of_the_adapter() -> None:
    figures = {
        "Quick": FrameworkFigures(Figure(10_000, 9_000), Figure(400, 300)),
        "Slow": FrameworkFigures(Figure(10_000, 9_000), Figure(600, 500)),
    }
    text = report(FrameworkResults(Circumstances("2030-01-02", "a machine", "a Python", {"ai": "7.0.0"}), figures))
    assert "- met: Quick: the adapter under 5% of the framework: 4.0%" in text
    assert "- MISSED: Slow: the adapter under 5% of the framework: 6.0%" in text
    assert [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")] == ["Slow", "10.0", "0.60", "6.0%"]
