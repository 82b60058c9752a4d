"""Run unit tests on the Pythons of this machine besides that of the environment: `make test-pythons`.

Arguments are the versions of Python; one that is not on this machine is named and left out. The first runs the tests
that serve HTTP, over plain ASGI; the others run those for which the Python matters. One alone runs both. Without
another Python, that of the environment runs the tests over plain ASGI.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
UV: Final = str(ROOT / ".tools" / "bin" / "uv")
PLAIN_ASGI: Final = "plain_asgi and not once or every_python"
EVERY_PYTHON: Final = "quick and not slow or every_python"
"""Classes of tests, as for `pytest -m`."""
WAITING: Final = ("-n", str(2 * (os.cpu_count() or 1) + 1))
"""As in the Makefile."""


def main(versions: Sequence[str]) -> int:
    """Run the tests; return 1 if any of them failed."""
    others = [version for version in versions if version != ".".join(map(str, sys.version_info[:2]))]
    present = [version for version in others if _is_present(version)]
    statuses = [_run("", PLAIN_ASGI, plain=True)] if not present else []
    for number, version in enumerate(present, 1):
        statuses.append(_run(version, _classes(number, len(present)), plain=number == 1))
    _print(f"== Tested with Python {' '.join(present) or 'of the environment alone'}.")
    if absent := [version for version in others if version not in present]:
        _print(f"== NOT TESTED with Python {' '.join(absent)}: not installed on this machine.")
    return 1 if any(statuses) else 0


def _is_present(version: str) -> bool:
    command = [UV, "python", "find", "--system", version]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _classes(number: int, count: int) -> str:
    if count == 1:
        return f"{PLAIN_ASGI} or {EVERY_PYTHON}"
    return PLAIN_ASGI if number == 1 else EVERY_PYTHON


def _run(version: str, classes: str, *, plain: bool) -> int:
    _print(f"== Python {version}{', over plain ASGI' if plain else ''}")
    environment = {**os.environ, "USECHAT_TEST_PLAIN_ASGI": str(int(plain))}
    command = [UV, "run", "--quiet"]
    if version:
        environment["UV_PROJECT_ENVIRONMENT"] = f".venv-{version}"
        command += ["--python", version, "--no-default-groups", "--group", "test"]
    command += ["pytest", "-q", *WAITING, "--hypothesis-profile=brief", "-m", classes]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
