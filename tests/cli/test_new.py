"""`usechat new`: what it asks, what it writes, and what it refuses in one sentence."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from usechat.cli import main

COMMAND = [sys.executable, "-c", "import sys; from usechat.cli import main; sys.exit(main())", "new"]


def test_it_writes_a_project_and_says_how_to_run_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = tmp_path / "my-chat"
    assert main(["new", str(project), "--framework", "langgraph", "--page", "none"]) == 0
    printed = capsys.readouterr().out
    count = sum(path.is_file() for path in project.rglob("*"))
    assert printed.splitlines() == [
        f"{project}: {count} files. README.md says how to run them:",
        "",
        f"  cd {project}",
        "  uv sync",
        "  cp .env.example .env  # write your key into it",
        "  uv run --env-file .env usechat serve app:app --reload",
    ]
    assert "create_agent" in (project / "agent.py").read_text(encoding="utf-8")


def test_it_asks_what_no_option_says_until_it_has_an_answer(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"5\n3\n\n")  # no such number, LangGraph, the default
    with subprocess.Popen([*COMMAND, str(tmp_path / "my-chat")], stdin=theirs, stdout=subprocess.PIPE) as process:
        printed = process.communicate(timeout=60)[0].decode()
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0
    assert printed.count("Number or name [1]: ") == 3
    assert "  3  langgraph      LangChain on LangGraph\n" in printed
    assert "create_agent" in (tmp_path / "my-chat" / "agent.py").read_text(encoding="utf-8")


def test_the_end_of_the_input_ends_it_without_a_project(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"\x04")  # Ctrl-D
    ran = subprocess.run(
        [*COMMAND, str(tmp_path / "my-chat")], stdin=theirs, capture_output=True, text=True, check=False, timeout=60
    )
    os.close(ours)
    os.close(theirs)
    assert (ran.returncode, ran.stderr) == (2, "usechat: no framework was chosen, so nothing is written\n")
    assert list(tmp_path.iterdir()) == []


def test_without_a_terminal_it_names_the_option(tmp_path: Path) -> None:
    command = [*COMMAND, str(tmp_path / "my-chat"), "--page", "none"]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (
        2,
        "usechat: nobody can be asked here; choose with --framework: none, pydantic-ai, langgraph, openai-agents\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_framework_is_refused_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["new", "my-chat", "--framework", "crewai"])
    error = capsys.readouterr().err
    assert "invalid choice: 'crewai'" in error
    assert "openai-agents" in error
