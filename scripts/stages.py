"""Run targets of the Makefile one after the other, all of them, and say at the end which failed: `make test`.

Arguments are the targets. A stage that fails does not hide what the later ones would say. The exit code is 1 if one
failed. Any Python runs this file, since the first stage installs the environment.
"""

import subprocess
import sys
import time
from collections.abc import Sequence


def main(targets: Sequence[str]) -> int:
    """Run the targets; print when each begins, how long it took, and the summary."""
    lines: list[str] = []
    failures: list[str] = []
    for target in targets:
        _print(f"== {target}")
        begin = time.monotonic()
        status = subprocess.run(["make", "--no-print-directory", target], check=False).returncode
        if status:
            failures.append(target)
        lines.append(f"== {target}: {time.monotonic() - begin:.0f} s{', FAILED' if status else ''}")
        _print(lines[-1])
    _print("== Summary", *lines, f"== FAILED: {', '.join(failures)}" if failures else "== All passed.")
    return 1 if failures else 0


def _print(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
