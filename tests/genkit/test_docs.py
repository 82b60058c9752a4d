"""The page about Genkit: its code runs, and its sentences are the ones that are said."""

import re
from pathlib import Path
from typing import Any

from usechat.genkit import errors
from usechat.genkit.inputs import INPUTS
from usechat.genkit.wire import FlowFailure

PAGE = (Path(__file__).parent.parent.parent / "docs" / "genkit.md").read_text(encoding="utf-8")


def test_the_code_runs() -> None:
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        names: dict[str, Any] = {"__name__": "example"}
        exec(compile(block, "docs/genkit.md", "exec"), names)


def test_the_inputs_are_all_there() -> None:
    table = dict(re.findall(r"^\| `#([\w-]+)`[^|]*\| `(\w+)`", PAGE, re.MULTILINE))
    assert {name: builder.__name__ for name, builder in INPUTS.items()} == table


def test_the_sentences_are_the_ones_that_are_said() -> None:
    rows = re.findall(r"^\| ([^|]*) \| (The agent [^|]*|The connection [^|]*|An error [^|]*) \|$", PAGE, re.MULTILINE)
    told = {said for _, said in rows}
    statuses = [status for happened, _ in rows for status in re.findall(r"`([A-Z_]+)`", happened)]
    expected = {errors.sentence_of(FlowFailure(status)) for status in statuses}
    assert told == expected | {errors.UNREACHABLE, errors.INCOMPLETE, errors.ERROR_PAGE}
