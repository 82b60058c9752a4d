"""The workflows of GitHub, here and in projects of `usechat new`, fit their schema, and nobody can misuse them."""

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.generate_docs import ROOT
from usechat.starter.project import PAGES, Page, Project

pytestmark = pytest.mark.once

LINT = (str(Path(sys.executable).with_name("zizmor")), "--offline", "--strict-collection", "--no-progress", "--quiet")
CONFIG = ROOT / ".github" / "zizmor.yml"
GOOD = """
name: CI
on: push
permissions: { contents: read }
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
      - uses: actions/checkout@v5
        with: { persist-credentials: false }
      - run: make check
"""


def problems_of(*files: Path) -> str:
    """Return what the linter says about workflows and actions; nothing if they are good."""
    ran = subprocess.run([*LINT, "--config", CONFIG, *files], capture_output=True, text=True, check=False)
    return ran.stdout + ran.stderr if ran.returncode else ""


def workflow(directory: Path, text: str) -> Path:
    file = directory / ".github" / "workflows" / "ci.yml"
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_the_workflows_and_the_action_of_the_repository_are_good() -> None:
    assert problems_of(*(ROOT / ".github" / "workflows").glob("*.yml"), ROOT / "action.yml") == ""


@pytest.mark.parametrize("page", PAGES)
def test_the_workflow_of_a_project_is_good(page: Page, tmp_path: Path) -> None:
    files = Project("my-chat", "none", page, is_vendored=False).files()
    [text] = [text for path, text in files.items() if path.startswith(".github/workflows/")]
    assert problems_of(workflow(tmp_path, text)) == ""


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("", "", ""),
        ("runs-on", "runs_on", "runs_on"),
        ("- run: make check", '- run: echo "${{ github.event.head_commit.message }}"', "template-injection"),
        ("contents: read", "write-all: true", "write-all"),
    ],
    ids=["good", "misspelt", "a stranger's text in a command", "a permission that does not exist"],
)
def test_a_mistake_is_found(before: str, after: str, problem: str, tmp_path: Path) -> None:
    problems = problems_of(workflow(tmp_path, GOOD.replace(before, after) if before else GOOD))
    assert (problem in problems) if problem else (problems == "")
