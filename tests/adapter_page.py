"""The code of docs/adapters.md as files, as its reader writes them down: a framework, its adapter and an app."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "adapters.md"
_NAMED: Final = re.compile(r"```\w+ (\S+)\n(.*?)```", re.DOTALL)


def files() -> dict[str, str]:
    """Return the blocks of the page that have a file name."""
    return dict(_NAMED.findall(PAGE.read_text(encoding="utf-8")))


def install(directory: Path) -> Path:
    """Build a wheel of the framework and its adapter, and install it; return the directory for the Python path."""
    project, site = directory / "project", directory / "site"
    project.mkdir()
    for name, text in files().items():
        (project / name).write_text(text, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel"], cwd=project, check=True)
    [wheel] = (project / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)  # what an installer does with a wheel of plain Python
    return site
