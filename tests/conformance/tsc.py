"""The real TypeScript compiler, with the packages of the page."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from scripts.generate_docs import ROOT
from tests.conformance.judge import node_binary

MODULES = ROOT / "web" / "node_modules"
OPTIONS = (
    "--noEmit --strict --jsx react-jsx --module esnext --moduleResolution bundler --target es2022"
    " --skipLibCheck --preserveSymlinks"
)


def complaints(directory: Path, *names: str, more_packages: Sequence[Path] = ()) -> str:
    """Return what the compiler says about files in a directory.

    ``more_packages`` are folders of those of other pages; all use the types of the same React.
    """
    _link(directory / "node_modules", [MODULES, *more_packages])
    command = [node_binary(), str(MODULES / "typescript" / "bin" / "tsc"), *OPTIONS.split(), *names]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=280)
    return done.stdout + done.stderr


def _link(place: Path, origins: list[Path]) -> None:
    """Link the packages of several directories into one; those of the first win."""
    for origin in origins:
        for package in [*origin.glob("[!@.]*"), *origin.glob("@*/*")]:
            link = place / package.relative_to(origin)
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.exists():
                link.symlink_to(package)
