"""Do the mechanical steps of a release: `make release VERSION=0.1.0`.

It refuses to begin while a step of CONTRIBUTING.md that it can check is missing. Then it writes the version and the
date, writes the generated documentation again, builds and checks `dist/`, commits, and tags. It pushes nothing.
"""

import datetime
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from scripts.generate_docs import ROOT

VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")


class Tree(msgspec.Struct, frozen=True):
    """What a release is made of: the texts that it changes, and the state of the repository."""

    pyproject: str
    package: str
    changelog: str
    readme: str
    changes: str = ""
    """What `git status --porcelain` prints."""
    tags: str = ""


def problems_of(tree: Tree, version: str) -> Iterator[str]:
    """Yield the steps that are missing, each as a sentence."""
    if not VERSION.fullmatch(version):
        yield f"{version!r} is not a version such as 0.1.0 or 0.1.0rc1"
    if tree.changes:
        yield "the checkout has changes; commit or remove them"
    if f"v{version}" in tree.tags.split():
        yield f"the tag v{version} exists"
    if f"## [{version}] - unreleased\n" not in tree.changelog:
        yield f"CHANGELOG.md has no section '## [{version}] - unreleased'"
    if not re.search(r"^\[project\.urls\]", tree.pyproject, re.MULTILINE):
        yield "pyproject.toml has no [project.urls] with the address of the repository"
    if links := re.findall(r"\]\((?!https?:)([^)#]+)", tree.readme):
        yield f"README.md has {len(links)} relative links, which PyPI does not resolve; the first is {links[0]}"


def released(tree: Tree, version: str, today: datetime.date) -> Tree:
    """Return the texts of the release."""
    return msgspec.structs.replace(
        tree,
        pyproject=re.sub(r'^version = ".*"', f'version = "{version}"', tree.pyproject, count=1, flags=re.MULTILINE),
        package=re.sub(r'^(__version__.*= )".*"', rf'\1"{version}"', tree.package, count=1, flags=re.MULTILINE),
        changelog=tree.changelog.replace(f"## [{version}] - unreleased", f"## [{version}] - {today}", 1),
    )


@contextmanager
def restoring(root: Path) -> Iterator[None]:
    """Undo what was changed in a checkout that was clean if a step fails, or is interrupted."""
    try:
        yield
    except BaseException:
        _git("restore", "--staged", "--worktree", ".", root=root)
        raise


def main(version: str) -> int:
    """Make the release in this checkout. If a step fails, the files are as before."""
    files = {
        "pyproject": ROOT / "pyproject.toml",
        "package": ROOT / "src" / "usechat" / "__init__.py",
        "changelog": ROOT / "CHANGELOG.md",
        "readme": ROOT / "README.md",
    }
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    tree = Tree(**texts, changes=_git("status", "--porcelain"), tags=_git("tag"))
    if problems := [*problems_of(tree, version)]:
        sys.stderr.write("".join(f"make release: {problem}\n" for problem in problems))
        return 2
    new = released(tree, version, datetime.datetime.now(datetime.UTC).date())
    with restoring(ROOT):
        for name, path in files.items():
            path.write_text(getattr(new, name), encoding="utf-8")
        _run(sys.executable, "-m", "scripts.generate_docs")
        _run(sys.executable, "-m", "scripts.dist")
        _run("git", "commit", "--all", "--message", f"Release {version}")
    _run("git", "tag", "--annotate", f"v{version}", "--message", f"usechat {version}")
    sys.stdout.write(f"v{version} is tagged; push the commit and the tag, and the workflow publishes it\n")
    return 0


def _git(*arguments: str, root: Path = ROOT) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
