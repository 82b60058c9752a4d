"""The page about Genkit: its code runs, and its sentences are the ones that are said."""

import doctest
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import usechat.genkit
from usechat.genkit import errors
from usechat.genkit.inputs import INPUTS
from usechat.genkit.wire import FlowFailure

PAGE = (Path(__file__).parent.parent.parent / "docs" / "genkit.md").read_text(encoding="utf-8")


def test_the_code_runs() -> None:
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        names: dict[str, Any] = {"__name__": "example"}
        exec(compile(block, "docs/genkit.md", "exec"), names)


@pytest.mark.parametrize("name", [name for name in usechat.genkit.__all__ if name[0].isupper()])
def test_the_examples_of_help_run(name: str) -> None:
    found = getattr(usechat.genkit, name)
    module = sys.modules[found.__module__]
    (example,) = doctest.DocTestFinder(recurse=False).find(found, name, module, vars(module))
    assert example.examples
    assert doctest.DocTestRunner().run(example).failed == 0


def test_the_inputs_are_all_there() -> None:
    table = dict(re.findall(r"^\| `#([\w-]+)`[^|]*\| `(\w+)`", PAGE, re.MULTILINE))
    assert {name: builder.__name__ for name, builder in INPUTS.items()} == table


def test_the_sentences_are_the_ones_that_are_said() -> None:
    rows = re.findall(r"^\| ([^|]*) \| (The agent [^|]*|The connection [^|]*|An error [^|]*) \|$", PAGE, re.MULTILINE)
    told = {said for _, said in rows}
    statuses = [status for happened, _ in rows for status in re.findall(r"`([A-Z_]+)`", happened)]
    expected = {errors.sentence_of(FlowFailure(status)) for status in statuses}
    assert told == expected | {errors.UNREACHABLE, errors.BROKEN_OFF, errors.ERROR_PAGE}
