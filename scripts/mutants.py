"""Change the code of the stream and of runs in small ways, and count the changes that no unit test notices.

`make mutants` samples 200 mutants of `protocol/` and `runs/` (`MUTANTS=50` takes fewer, `MUTANTS_SEED=…` another
sample). Each is written to a copy of the repository. There run the unit tests of its module, those without generated
examples first because they are fast, and then those of its package, until one fails. Survivors are printed as a diff.
The exit code is 1 if fewer than 95 % are killed.
"""

import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast  # type: ignore[import-untyped]
from cosmic_ray.mutating import mutate_code  # type: ignore[import-untyped]
from cosmic_ray.plugins import get_operator, operator_names  # type: ignore[import-untyped]

ROOT = Path(__file__).parent.parent
SOURCES = ("src/usechat/protocol", "src/usechat/runs")
LEAST_SHARE = 0.95
SECONDS = 600
"""How long the tests of a package may take; a mutant with which they take longer is killed."""
TEST_SECONDS = 60
"""How long one test may take: a mutant may never end."""
NOTHING_COLLECTED = 5
"""An exit code of pytest."""
_LEFT_OUT = shutil.ignore_patterns("node_modules", ".*", "dist", "built", "__pycache__")
# Annotations with `|`, numbers that are arbitrary limits, and operators that must be told a variable.
_POINTLESS = ("BinaryOperator_BitOr", "NumberReplacer", "Variable")


class Mutant(NamedTuple):
    """One change of one module."""

    path: Path
    code: str
    mutated: str

    def diff(self) -> str:
        """Return the change as a diff."""
        name = str(self.path)
        return "\n".join(difflib.unified_diff(self.code.splitlines(), self.mutated.splitlines(), name, name, "", "", 1))


def every_mutant() -> Iterator[tuple[Path, str, int]]:
    """Yield the path, operator and number of every change that can be made."""
    operators = {
        name: get_operator(name)() for name in operator_names() if not any(part in name for part in _POINTLESS)
    }
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
            for name, operator in operators.items():
                count = sum(len(list(operator.mutation_positions(node))) for node in nodes)
                yield from ((path.relative_to(ROOT), name, occurrence) for occurrence in range(count))


def sample(count: int, seed: int) -> list[Mutant]:
    """Return so many mutants, the same ones for the same seed."""
    chosen = random.Random(seed).sample(list(every_mutant()), count)
    mutants = []
    for path, name, occurrence in chosen:
        code = (ROOT / path).read_text(encoding="utf-8")
        mutants.append(Mutant(path, code, mutate_code(code, get_operator(name)(), occurrence)))
    return mutants


def rounds_of(path: Path) -> list[list[str]]:
    """Return the arguments of pytest for each round of tests of a module, the fastest round first."""
    package = Path("tests", *path.parts[2:-1])
    own = sorted(str(found.relative_to(ROOT)) for found in (ROOT / package).glob(f"test_{path.stem}*.py"))
    if path.stem in ("stream", "tool_calls", "content"):
        own += ["tests/protocol/stream"]
    everything = str(Path(*package.parts[:2]))
    return [["-m", "not hypothesis", *own], own, [everything]] if own else [[everything]]


def is_killed(mutant: Mutant, copy: Path) -> bool:
    """Tell whether a test fails, or does not end, with this change."""
    target = copy / mutant.path
    target.write_text(mutant.mutated, encoding="utf-8")
    try:
        return any(fails(arguments, copy) for arguments in rounds_of(mutant.path))
    finally:
        target.write_text(mutant.code, encoding="utf-8")


def fails(arguments: Sequence[str], copy: Path) -> bool:
    """Run tests in the copy; tell whether one of them fails, or all of them together take too long."""
    environment = os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-q", "-x", "-n", "0", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}"]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    try:
        run = subprocess.run(command, cwd=copy, env=environment, capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True
    return run.returncode not in (0, NOTHING_COLLECTED)


def main(count: int, seed: int) -> int:
    """Try so many mutants, and print the survivors and the share that was killed."""
    killed = 0
    with tempfile.TemporaryDirectory() as directory:
        copy = Path(directory) / "usechat"
        shutil.copytree(ROOT, copy, ignore=_LEFT_OUT)
        if any(fails([f"tests/{Path(source).name}"], copy) for source in SOURCES):
            raise SystemExit("the unit tests fail without any change, so they can tell nothing about mutants")
        for number, mutant in enumerate(sample(count, seed), 1):
            if is_killed(mutant, copy):
                killed += 1
            else:
                sys.stdout.write(f"survived:\n{mutant.diff()}\n\n")
            sys.stdout.write(f"{killed} of {number} killed\n")
            sys.stdout.flush()
    return 0 if killed >= LEAST_SHARE * count else 1


if __name__ == "__main__":
    sys.exit(main(int(os.environ.get("MUTANTS", "200")), int(os.environ.get("MUTANTS_SEED", "1"))))
