"""Build the sdist and the wheel into `dist/`, and refuse what must not be published: `make dist`.

The wheel must hold the chat page, the documentation, the licences of what the page contains, and no file of the
machine that built it. Its size and its size when it is installed, with compiled files, are limited.
"""

import compileall
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from scripts.generate_docs import ROOT
from usechat import __version__

UV: Final = str(ROOT / ".tools" / "bin" / "uv")
MEGABYTE: Final = 1_000_000
LARGEST_WHEEL: Final = 4 * MEGABYTE
LARGEST_INSTALLATION: Final = 15 * MEGABYTE
IN_WHEEL: Final = (
    "usechat/py.typed",
    "usechat/web/built/index.html",
    "usechat/web/built/licenses.md",
    "usechat/docs/README.md",
    "usechat/.agents/skills/usechat/SKILL.md",
    "usechat/docs/start.md",
    f"usechat-{__version__}.dist-info/licenses/LICENSE",
)
IN_SDIST: Final = ("LICENSE", "pyproject.toml", "hatch_build.py", "src/usechat/web/built/index.html")
FOREIGN: Final = ("node_modules/", "__pycache__/", ".venv/", ".tools/")


def build(*options: str, into: Path = ROOT / "dist") -> Path:
    """Build what the options of `uv build` name, with the page, into a directory; return the directory."""
    environment = {name: value for name, value in os.environ.items() if name != "USECHAT_WITHOUT_PAGE"}
    subprocess.run([UV, "build", "--quiet", *options, "--out-dir", str(into), str(ROOT)], check=True, env=environment)
    return into


def problems_of(names: Mapping[str, int], required: tuple[str, ...], largest: int) -> Iterator[str]:
    """Yield what is wrong with the files of an archive, given as names and sizes."""
    yield from (f"{name} is missing" for name in required if name not in names)
    yield from (f"{name} must not be published" for name in names if any(part in name for part in FOREIGN))
    if (size := sum(names.values())) > largest:
        yield f"{size / MEGABYTE:.1f} MB are more than {largest / MEGABYTE:.0f} MB"


def wheel_files(wheel: Path) -> dict[str, int]:
    """Return the files of a wheel and their compressed sizes."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.compress_size for entry in archive.infolist()}


def installed_files(wheel: Path) -> dict[str, int]:
    """Return the files that an installer writes, with those that Python compiles, and their sizes."""
    with tempfile.TemporaryDirectory() as directory:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(directory)
        compileall.compile_dir(directory, quiet=2)
        files = (path for path in Path(directory).rglob("*") if path.is_file() and path.parent.name != "__pycache__")
        compiled = sum(path.stat().st_size for path in Path(directory).rglob("*.pyc"))
        return {str(path.relative_to(directory)): path.stat().st_size for path in files} | {"compiled files": compiled}


def sdist_files(sdist: Path) -> dict[str, int]:
    """Return the files of an sdist, without the directory that holds them, and their sizes."""
    with tarfile.open(sdist) as archive:
        return {entry.name.partition("/")[2]: entry.size for entry in archive if entry.isfile()}


class Check(NamedTuple):
    """The files of an archive with their sizes, the files that it must have, and its largest size."""

    name: str
    files: Mapping[str, int]
    required: tuple[str, ...]
    largest: int

    def __str__(self) -> str:
        return f"{self.name}: {len(self.files)} files, {sum(self.files.values()) / MEGABYTE:.2f} MB"

    @property
    def problems(self) -> list[str]:
        """What must be changed before it is published."""
        return [f"{self.name}: {text}" for text in problems_of(self.files, self.required, self.largest)]


def wheel_checks(wheel: Path) -> tuple[Check, Check]:
    """Return the checks of a wheel: as it is, and installed."""
    return (
        Check(wheel.name, wheel_files(wheel), IN_WHEEL, LARGEST_WHEEL),
        Check(f"{wheel.name}, installed", installed_files(wheel), (), LARGEST_INSTALLATION),
    )


def run_checks(checks: Iterable[Check]) -> bool:
    """Print the sizes and the problems; return whether there are none."""
    problems: list[str] = []
    for check in checks:
        sys.stdout.write(f"{check}\n")
        problems += check.problems
    sys.stdout.write("".join(f"FAILED {problem}\n" for problem in problems))
    return not problems


def main() -> int:
    """Build both files and check them; print their sizes."""
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    dist = build()
    [wheel], [sdist] = dist.glob("*.whl"), dist.glob("*.tar.gz")
    sdist_check = Check(sdist.name, sdist_files(sdist), IN_SDIST, 10 * LARGEST_INSTALLATION)
    return 0 if run_checks((*wheel_checks(wheel), sdist_check)) else 1


if __name__ == "__main__":
    sys.exit(main())
