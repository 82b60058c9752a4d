"""`make release`: what it refuses, and what it writes."""

import datetime
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from scripts.generate_docs import ROOT
from scripts.release import Tree, problems_of, released, restoring

pytestmark = pytest.mark.once

READY = Tree(
    pyproject='[project]\nversion = "0.0.9"\n\n[project.urls]\nRepository = "https://example.org/usechat"\n',
    package='__version__: Final = "0.0.9"\n',
    changelog="# Changelog\n\n## [0.1.0] - unreleased\n\nText.\n",
    readme="[Start](https://example.org/docs/start.md#top), [here](#below)\n",
)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"changes": " M README.md\n"}, "the checkout has changes; commit or remove them"),
        ({"tags": "v0.0.9\nv0.1.0\n"}, "the tag v0.1.0 exists"),
        ({"changelog": "## [0.1.0] - 2026-01-01\n"}, "CHANGELOG.md has no section '## [0.1.0] - unreleased'"),
        (
            {"pyproject": '[project]\nversion = "0.0.9"\n'},
            "pyproject.toml has no [project.urls] with the address of the repository",
        ),
        (
            {"readme": "[Start](docs/start.md) ![Page](docs/page.gif)\n"},
            "README.md has 2 relative links, which PyPI does not resolve; the first is docs/start.md",
        ),
    ],
)
def test_a_missing_step_is_named(changes: dict[str, Any], problem: str) -> None:
    assert [*problems_of(msgspec.structs.replace(READY, **changes), "0.1.0")] == [problem]


def test_a_version_is_three_numbers() -> None:
    assert [*problems_of(READY, "0.1.0")] == []
    assert next(problems_of(READY, "")) == "'' is not a version such as 0.1.0 or 0.1.0rc1"


def test_the_version_and_the_date_are_written() -> None:
    new = released(READY, "0.1.0", datetime.date(2027, 1, 31))
    assert (new.package, new.changelog.splitlines()[2]) == ('__version__: Final = "0.1.0"\n', "## [0.1.0] - 2027-01-31")
    assert new.pyproject == READY.pyproject.replace("0.0.9", "0.1.0")


@pytest.mark.parametrize("failure", [subprocess.CalledProcessError(1, "make dist"), KeyboardInterrupt()])
def test_a_step_that_fails_leaves_no_changes_behind(failure: BaseException, tmp_path: Path) -> None:
    def git(*arguments: str) -> str:
        author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
        return subprocess.run(
            ["git", *author, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    git("init", "--quiet")
    changelog, readme = tmp_path / "CHANGELOG.md", tmp_path / "README.md"
    changelog.write_text("unreleased")
    readme.write_text("pip install .")
    git("add", ".")
    git("commit", "--quiet", "--message", "First")

    def fail() -> None:
        changelog.write_text("2027-01-31")
        readme.write_text("pip install usechat")
        git("add", "README.md")
        raise failure

    with pytest.raises(type(failure)), restoring(tmp_path):
        fail()
    assert (changelog.read_text(), readme.read_text()) == ("unreleased", "pip install .")
    assert git("status", "--porcelain") == ""


def test_the_workflows_run_what_the_repository_has_and_only_one_job_may_publish() -> None:
    workflows = {
        path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
        for path in (ROOT / ".github" / "workflows").glob("*.yml")
    }
    jobs = {name: job for workflow in workflows.values() for name, job in workflow["jobs"].items()}
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert (commands["test"], commands["build"][0], commands["publish"]) == ([".ci/run"], "make dist", [])
    assert {name for name, job in jobs.items() if "id-token" in job.get("permissions", {})} == {"publish"}
    assert [workflow["permissions"] for workflow in workflows.values()] == [{"contents": "read"}] * 2
