"""Change the code of the protocol and of runs in small ways, and count the changes that no unit test notices.

`make mutants` samples 200 mutants of `protocol/` and `runs/` (`MUTANTS=50` takes fewer, `SEED=2` another sample) with
the operators of cosmic-ray. Each is written to a copy of the repository, where the unit tests of its package judge it
until one fails:

1. the tests of its module without generated examples;
2. those with generated examples, a few of them;
3. all other tests of the package without generated examples.

Each round is run once without a change first. It runs in a process that is forked from one with pytest and the
libraries in it, because imports would take most of the time. Survivors are printed as a diff. The exit code is 1 if
fewer than 95 % are killed. Mutants that no test can kill are named in ``EQUIVALENT`` and do not count.

`runs/redis` is left out: its tests start servers, and would take minutes per mutant.
"""

import difflib
import functools
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from cosmic_ray.ast import ast_nodes, get_ast  # type: ignore[import-untyped]
from cosmic_ray.mutating import mutate_code  # type: ignore[import-untyped]
from cosmic_ray.plugins import get_operator, operator_names  # type: ignore[import-untyped]

ROOT: Final = Path(__file__).parent.parent
SOURCES: Final = ("src/usechat/protocol", "src/usechat/runs")
LEAST_SHARE: Final = 0.95
ROUND_SECONDS: Final = 600
"""How long a round may take; a mutant with which it takes longer is killed."""
TEST_SECONDS: Final = 120
"""How long one test may take: a mutant may never end, and a busy machine takes its time."""
MEMORY: Final = 4 << 30
"""How much memory a round may take, in bytes: a mutant may collect without end."""
NOTHING_COLLECTED: Final = 5
"""An exit code of pytest."""
LIBRARIES: Final = ("hypothesis", "msgspec", "pytest_asyncio", "pytest_timeout", "starlette", "httpx", "anyio")
"""What the tests import besides usechat."""
_LEFT_OUT = shutil.ignore_patterns("node_modules", ".*", "dist", "built", "__pycache__")
# Annotations with `|`, numbers that are arbitrary limits, and operators that must be told a variable.
_POINTLESS: Final = ("BinaryOperator_BitOr", "NumberReplacer", "Variable")
_STREAM: Final = ("stream", "tool_calls", "content")
"""The modules of `protocol/` whose tests are in `tests/protocol/stream`."""

EQUIVALENT: Final[Mapping[tuple[str, str], str]] = {}
"""Mutants that behave as the code does: the file and the changed line, stripped, with the reason."""


class Mutant(NamedTuple):
    """One change of one module."""

    path: Path
    code: str
    mutated: str

    def diff(self) -> str:
        """Return the change as a diff."""
        name = str(self.path)
        return "\n".join(difflib.unified_diff(self.code.splitlines(), self.mutated.splitlines(), name, name, "", "", 1))

    @property
    def name(self) -> tuple[str, str]:
        """The file and the changed lines."""
        old, new = self.code.splitlines(), self.mutated.splitlines()
        changed = [line[2:].strip() for line in difflib.ndiff(old, new) if line.startswith("+ ")]
        return self.path.name, " ".join(changed)


def every_mutant() -> Iterator[tuple[Path, str, int]]:
    """Yield the path, operator and number of every change that can be made."""
    operators = {
        name: get_operator(name)() for name in operator_names() if not any(part in name for part in _POINTLESS)
    }
    for source in SOURCES:
        for path in sorted((ROOT / source).glob("*.py")):
            nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
            for name, operator in operators.items():
                count = sum(len(list(operator.mutation_positions(node))) for node in nodes)
                yield from ((path.relative_to(ROOT), name, occurrence) for occurrence in range(count))


def sample(count: int, seed: int) -> list[Mutant]:
    """Return so many mutants, the same ones for the same code and seed."""
    chosen = random.Random(seed).sample(list(every_mutant()), count)
    mutants = []
    for path, name, occurrence in chosen:
        code = (ROOT / path).read_text(encoding="utf-8")
        mutants.append(Mutant(path, code, mutate_code(code, get_operator(name)(), occurrence)))
    return mutants


def rounds_of(path: Path) -> list[list[str]]:
    """Return the arguments of pytest for each round of tests of a module."""
    package = Path("tests", *path.parts[2:-1])
    own = sorted(map(str, package.glob(f"test_{path.stem}*.py")))
    if path.stem in _STREAM:
        own.append("tests/protocol/stream")
    others = ["-m", "not hypothesis", str(package), "--ignore=tests/runs/redis"]
    others += [f"--ignore={name}" for name in own]
    if not own:
        return [others]
    return [
        ["-m", "not hypothesis", *own],
        ["-m", "hypothesis", "--hypothesis-profile=brief", *own],
        others,
    ]


def is_killed(mutant: Mutant) -> bool:
    """Tell whether a test fails, or does not end, with this change. The working directory is the copy."""
    return any(
        passes_unchanged(arguments) and fails_with(mutant, arguments)
        for arguments in map(tuple, rounds_of(mutant.path))
    )


def fails_with(mutant: Mutant, arguments: Sequence[str]) -> bool:
    """Run tests with this change, and take it back."""
    status = mutant.path.stat()
    mutant.path.write_text(mutant.mutated, encoding="utf-8")
    try:
        return fails(arguments)
    finally:
        mutant.path.write_text(mutant.code, encoding="utf-8")
        os.utime(mutant.path, (status.st_atime, status.st_mtime))  # its compiled file is valid again


def fails(arguments: Sequence[str], *, compiles: bool = False) -> bool:
    """Run tests in a process of their own; tell whether one fails, or all of them together take too long."""
    child = os.fork()
    if child == 0:
        run_tests(arguments, compiles=compiles)
    deadline = time.monotonic() + ROUND_SECONDS
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) not in (0, NOTHING_COLLECTED)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def run_tests(arguments: Sequence[str], *, compiles: bool) -> None:
    """Run tests in this process, and end it."""
    code = 1
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        sys.dont_write_bytecode = not compiles  # compiled files are told apart by the second of their source
        log = os.open("mutants.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}"]
        options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are imported already
        code = pytest.main([*options, *arguments])
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def prepare(copy: Path) -> None:
    """Copy the repository and make the copy the one that tests of this process and of its children import."""
    shutil.copytree(ROOT, copy, ignore=_LEFT_OUT)
    os.chdir(copy)
    sys.path[:0] = [str(copy / "src"), str(copy)]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    for name in LIBRARIES:
        __import__(name)


@functools.cache
def passes_unchanged(arguments: tuple[str, ...]) -> bool:
    """Run tests once without any change; if they fail, they judge no mutant."""
    if fails(arguments, compiles=True):
        report = Path("mutants.log").read_text(encoding="utf-8")
        raise SystemExit(f"tests fail without any change, so they judge no mutant:\n{report}")
    return True


def say(text: str) -> None:
    """Print a line at once, also into a file."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(count: int, seed: int) -> int:
    """Try so many mutants, and print the survivors and the share that was killed."""
    mutants = [mutant for mutant in sample(count, seed) if mutant.name not in EQUIVALENT]
    killed = 0
    with tempfile.TemporaryDirectory() as directory:
        prepare(Path(directory) / "usechat")
        for number, mutant in enumerate(mutants, 1):
            if is_killed(mutant):
                killed += 1
            else:
                say(f"survived: {mutant.name}\n{mutant.diff()}\n")
            say(f"{killed} of {number} killed, {len(mutants)} in all")
    share = killed / len(mutants)
    say(f"{killed} of {len(mutants)} mutants killed: {share:.1%}; {count - len(mutants)} equivalent, seed {seed}")
    return 0 if share >= LEAST_SHARE else 1


if __name__ == "__main__":
    sys.exit(main(int(os.environ.get("MUTANTS", "200")), int(os.environ.get("SEED", "1"))))
