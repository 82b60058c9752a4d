"""The GitHub Action and the pre-commit hook run `usechat check` as their files say."""

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.generate_docs import ROOT
from scripts.try_wheel import run_step
from tests.check.streams import stream, text, turn

pytestmark = pytest.mark.every_python

SCRIPTS = Path(sys.executable).parent


@pytest.fixture
def captures(tmp_path: Path) -> Path:
    (tmp_path / "good.sse").write_bytes(turn(*text()))
    (tmp_path / "bad.sse").write_bytes(stream({"type": "step-start"}))
    return tmp_path


def read(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def act(directory: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the step of the action that checks."""
    return run_step("Check", directory, SCRIPTS, **inputs)


@pytest.mark.parametrize(
    ("inputs", "installed"),
    [({}, str(ROOT)), ({"version": "usechat==0.1.0"}, "usechat==0.1.0")],
    ids=["revision", "release"],
)
def test_the_action_installs_its_own_revision_or_the_given_release(
    tmp_path: Path, inputs: dict[str, str], installed: str
) -> None:
    (tmp_path / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$USECHAT_WITHOUT_PAGE" "$@"\n')
    (tmp_path / "python").chmod(0o755)
    done = run_step("Install usechat", tmp_path, tmp_path, **inputs)
    without_page, *arguments = done.stdout.splitlines()
    assert (without_page, arguments[:3], arguments[-1]) == ("1", ["-m", "pip", "install"], installed)
    assert [step["name"] for step in read("action.yml")["runs"]["steps"] if "if" not in step] == [
        "Install usechat",
        "Check",
    ]


def test_the_action_annotates_what_is_rejected(captures: Path) -> None:
    done = act(captures, inputs="*.sse", sdk="6 7")
    assert done.returncode == 1
    assert "::error file=bad.sse" in done.stdout
    assert "good.sse: accepted. AI SDK 6 and 7 accept this stream." in done.stdout


def test_the_action_accepts_what_is_legal_and_takes_further_arguments(captures: Path) -> None:
    done = act(captures, inputs="good.sse\ngood.sse", arguments="--timeout 5")
    assert (done.returncode, done.stdout.count("accepted")) == (0, 2)


@pytest.mark.parametrize("inputs", ["$(touch injected)", "`touch injected`", "a;touch injected", "--version"])
def test_the_action_takes_its_inputs_for_files_and_runs_none(captures: Path, inputs: str) -> None:
    done = act(captures, inputs=inputs)
    assert done.returncode == 2
    assert "cannot be read: No such file or directory" in done.stdout
    assert not (captures / "injected").exists()


def test_the_action_names_a_pattern_without_files(captures: Path) -> None:
    done = act(captures, inputs="none/*.sse")
    assert (done.returncode, done.stdout) == (2, "::error title=usechat check::no file matches none/*.sse\n")


def test_the_hook_checks_the_files_that_it_names(captures: Path) -> None:
    [hook] = read(".pre-commit-hooks.yaml")
    names = [name for name in ("bad.sse", "good.sse", "notes.md", "a.jsonl") if re.search(hook["files"], name)]
    assert names == ["bad.sse", "good.sse"]
    assert re.search(hook["files"], "tours/a.usechat.jsonl")
    command = [str(SCRIPTS / "usechat"), *shlex.split(hook["entry"])[1:]]
    assert shlex.split(hook["entry"])[0] == "usechat"
    codes = [
        subprocess.run([*command, name], cwd=captures, capture_output=True, check=False).returncode for name in names
    ]
    assert codes == [1, 0]
