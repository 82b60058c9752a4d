"""Every project that `usechat new` can write: its files, its types, its format, and its own tests."""

import os
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from usechat.errors import CannotStart, InvalidSetting
from usechat.starter.project import FRAMEWORKS, PAGES, Framework, Page, Project, project_name, write

COMBINATIONS = list(product(FRAMEWORKS, PAGES))
HERE = Path(__file__).parents[2]
PYTEST = ("pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:asyncio")
"""As it runs in an environment of the project, which has no other plugins."""


def run(project: Path, *command: str) -> None:
    """Run a Python program in a project as its author does; it must succeed."""
    environment = {**os.environ, "PYTHONPATH": str(HERE / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", *command], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def made(directory: Path, framework: Framework, page: Page) -> Path:
    """Write the texts of a project, without the wheel of usechat."""
    for path, text in Project("my-chat", framework, page, is_vendored=True).files().items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text, encoding="utf-8")
    return directory


@pytest.mark.timeout(1200)  # without what mypy remembers of the packages the first project of a framework takes long
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_projects_of_a_framework_are_typed(framework: Framework, tmp_path: Path) -> None:
    for page in PAGES:
        cache = HERE / "build" / "mypy" / framework
        run(made(tmp_path / page, framework, page), "mypy", "--cache-dir", str(cache), ".")


@pytest.mark.parametrize(("framework", "page"), COMBINATIONS)
def test_a_project_is_linted_and_formatted(framework: Framework, page: Page, tmp_path: Path) -> None:
    project = made(tmp_path, framework, page)
    run(project, "ruff", "check", "--no-cache")
    run(project, "ruff", "format", "--no-cache", "--check")


@pytest.mark.parametrize(
    ("framework", "page"), [(framework, page) for framework, page in COMBINATIONS if "none" in (framework, page)]
)
def test_the_tests_of_a_project_pass(framework: Framework, page: Page, tmp_path: Path) -> None:
    run(made(tmp_path, framework, page), *PYTEST, "-W", "error")


@pytest.mark.parametrize(("framework", "page"), COMBINATIONS)
@pytest.mark.parametrize("is_vendored", [True, False])
def test_no_mark_of_a_template_is_left(framework: Framework, page: Page, is_vendored: bool) -> None:
    files = Project("my-chat", framework, page, is_vendored).files()
    assert [path for path, text in files.items() if re.search("<%|%>", text)] == []
    assert [path for path, text in files.items() if not text.endswith("\n") or "\n\n\n\n" in text] == []


def test_the_tests_of_a_project_find_an_approval_that_is_missing(tmp_path: Path) -> None:
    project = made(tmp_path, "pydantic-ai", "none")
    agent = project / "agent.py"
    agent.write_text(agent.read_text(encoding="utf-8").replace("requires_approval=True", "requires_approval=False"))
    with pytest.raises(AssertionError, match="1 failed, 3 passed"):
        run(project, *PYTEST)


@pytest.mark.parametrize("framework", [framework for framework in FRAMEWORKS if framework != "none"])
def test_a_key_that_is_missing_is_named_in_one_line(framework: Framework, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    program = "import sys; from usechat.cli import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", program, "serve", "app:app", "--port", "0"],
        cwd=made(tmp_path, framework, "none"),
        env={**environment, "PYTHONPATH": str(HERE / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    [line] = (ran.stdout + ran.stderr).splitlines()
    assert "OPENAI_API_KEY is not set; write it into .env" in line


def test_a_project_asks_an_index_only_if_this_usechat_came_from_one() -> None:
    texts = [Project("my-chat", is_vendored=is_vendored).files()["pyproject.toml"] for is_vendored in (True, False)]
    assert ["find-links" in text for text in texts] == [True, False]


@pytest.mark.parametrize(
    ("name", "expected"), [("my-chat", "my-chat"), ("My Chat", "my-chat"), ("help_desk", "help-desk"), ("a", "a")]
)
def test_a_project_is_named_after_its_directory(name: str, expected: str) -> None:
    assert project_name(Path("work") / name) == expected


@pytest.mark.parametrize("name", ["1st", "-", "été", "a" * 65, "chat!"])
def test_a_directory_that_names_no_package_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(f"{name!r} cannot be the name of a project")):
        project_name(Path(name))


def test_a_project_does_not_hide_a_package_that_it_needs() -> None:
    with pytest.raises(InvalidSetting, match="'langgraph' is a package that the project needs"):
        project_name(Path("langgraph"))


def test_files_that_are_there_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / "my-chat").mkdir()
    (tmp_path / "my-chat" / "agent.py").write_text("mine")
    with pytest.raises(CannotStart, match="my-chat is not empty; name a directory that does not exist yet"):
        write(tmp_path / "my-chat", "none", "none")
    assert [path.name for path in (tmp_path / "my-chat").iterdir()] == ["agent.py"]


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match="file/my-chat cannot be written: Not a directory"):
        write(tmp_path / "file" / "my-chat", "none", "none")
