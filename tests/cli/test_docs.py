"""`usechat docs`: passages of the guides in a terminal, and an honest no."""

import subprocess
import sys
from pathlib import Path

import pytest

from usechat.cli import main


def test_the_best_passages_are_printed_with_their_places(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "stop", "button"]) == 0
    name, place, empty, *passage = capsys.readouterr().out.splitlines()
    path, _, anchor = place.partition("#")
    assert (name, anchor, empty) == ("Resume and stop: A stop button", "a-stop-button", "")
    assert passage[0].strip() in Path(path).read_text(encoding="utf-8")


def test_a_question_in_quotes_is_the_same_as_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    main(["docs", "How do I add a stop button?"])
    as_one = capsys.readouterr().out
    main(["docs", "How", "do", "I", "add", "a", "stop", "button?"])
    assert capsys.readouterr().out == as_one != ""


def test_nothing_found_is_said_and_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "capital", "of", "Mongolia"]) == 1
    assert capsys.readouterr() == (
        "",
        "usechat: nothing in the documentation has most of the words: capital, mongolia; try other words\n",
    )


def test_words_that_mean_nothing_are_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "what is it?"]) == 1
    assert (
        capsys.readouterr().err == "usechat: 'what is it?' has no word to search for; give some, such as: stop button\n"
    )


def test_it_imports_nothing_of_a_server_or_an_extra() -> None:
    program = (
        "import sys; from usechat.cli import main; main(['docs', 'resume']);"
        "print([name for name in ('starlette', 'uvicorn', 'httpx2', 'yaml', 'pydantic_ai') if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert process.stdout.splitlines()[-1] == "[]"
