"""The real TypeScript compiler, with the packages of the page."""

import subprocess
from pathlib import Path

from scripts.generate_docs import ROOT
from tests.conformance.judge import node_binary

MODULES = ROOT / "web" / "node_modules"
OPTIONS = "--noEmit --strict --jsx react-jsx --module esnext --moduleResolution bundler --target es2022 --skipLibCheck"


def complaints(directory: Path, *names: str) -> str:
    """Return what the compiler says about files in a directory."""
    (directory / "node_modules").symlink_to(MODULES)
    command = [node_binary(), str(MODULES / "typescript" / "bin" / "tsc"), *OPTIONS.split(), *names]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=280)
    return done.stdout + done.stderr
