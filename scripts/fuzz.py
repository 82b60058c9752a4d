"""Looks for new failures for as long as asked: `make fuzz FUZZ_SECONDS=600`.

Runs the property-based tests with random examples, file by file in random order, round after round. The first failure
ends it; when the time is up, the file under way is interrupted.
"""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
GRACE_SECONDS = 15
INTERRUPTED, NOTHING_COLLECTED = 2, 5
"""Exit codes of pytest."""


def property_files() -> list[Path]:
    """Return the test files that draw examples."""
    files = sorted(ROOT.glob("tests/**/test_*.py"))
    return [path for path in files if "from hypothesis import" in path.read_text(encoding="utf-8")]


def endless_rounds() -> Iterator[Path]:
    """Yield the files again and again, each round in another order."""
    files = property_files()
    while True:
        yield from random.sample(files, len(files))


def run(path: Path, deadline: float) -> int:
    """Run one file to its end or to the deadline and return pytest's exit code; an interruption is no failure."""
    options = ["-q", "-x", "-n", "auto", "-m", "hypothesis", "--hypothesis-profile=fuzz"]
    command = [sys.executable, "-m", "pytest", *options, str(path.relative_to(ROOT))]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        return process.wait(max(0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        code = process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # its workers end with it
        process.wait()
        return 0
    return 0 if code == INTERRUPTED else code


def main(seconds: float) -> int:
    """Fuzz for so many seconds; return the exit code of the first run that failed."""
    deadline = time.monotonic() + seconds
    for path in endless_rounds():
        if time.monotonic() >= deadline:
            break
        code = run(path, deadline)
        if code not in (0, NOTHING_COLLECTED):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))
