"""Pages that are built for the tests alone."""

import fcntl
import subprocess
from pathlib import Path
from typing import Final

from tests.browser.chromium import NODE, npm

HERE: Final = Path(__file__).parent
EXAMPLES: Final = HERE.parent.parent / "examples"


def install(directory: Path) -> None:
    """Install the npm packages of a directory, unless they are there; test workers wait for each other."""
    with (directory / ".npmrc").open(encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / "node_modules" / ".package-lock.json").is_file():
            npm("ci", directory=directory)


def page_with_hook(major: int, output: Path) -> Path:
    """Build the page with the hook of another major of the AI SDK."""
    hook = HERE / f"hook-{major}"
    install(hook)
    subprocess.run([NODE / "node", HERE / "build-page.mjs", hook, output], check=True, capture_output=True, text=True)
    return output


def front_end(directory: Path, output: Path) -> Path:
    """Build a separate front end with Vite."""
    install(directory)
    return build(directory, output)


def build(directory: Path, output: Path) -> Path:
    """Build a front end whose packages are installed."""
    vite = directory / "node_modules" / "vite" / "bin" / "vite.js"
    subprocess.run(
        [NODE / "node", vite, "build", "--outDir", output], cwd=directory, check=True, capture_output=True, text=True
    )
    return output
