"""Look for known vulnerabilities of the pinned packages, Python and npm: `make audit`.

pip-audit asks PyPI about the versions that uv resolves from the pins, and `npm audit` asks the registry about each
package-lock.json. Both need a service that knows vulnerabilities; a mirror of the registry has none. A package that
could not be looked up counts as not audited, never as harmless.

The exit code is 1 if a vulnerability is known, 2 if something could not be audited, and 0 otherwise.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
UV: Final = str(ROOT / ".tools" / "bin" / "uv")
PIP_AUDIT: Final = "pip-audit==2.10.1"
_EXPORT: Final = (UV, "export", "--quiet", "--no-hashes", "--no-annotate", "--no-emit-project", "--no-default-groups")
_APART: Final = ("tests/deploy/frameworks.txt",)
_PIN: Final = re.compile(r"[\w.-]+(\[.*\])?==")


class Audit(NamedTuple):
    """What an audit says: a line for each vulnerability, and a sentence if something was not audited."""

    vulnerabilities: list[str]
    not_audited: str = ""


def main() -> int:
    """Audit everything and print a line for each finding; return the exit code."""
    rows = without_repeats(pins(environments()))
    audits = {f"Python, {len(row)} packages": audit_python(row) for row in rows}
    for lock_file in _lock_files():
        audits[f"npm, {lock_file.parent}"] = audit_npm(lock_file.parent)
    for name, audit in audits.items():
        lines = [*audit.vulnerabilities, *([f"NOT AUDITED: {audit.not_audited}"] if audit.not_audited else [])]
        _print(*(f"{name}: {line}" for line in lines or ["no known vulnerabilities"]))
    if any(audit.vulnerabilities for audit in audits.values()):
        return 1
    return 2 if any(audit.not_audited for audit in audits.values()) else 0


def environments() -> list[tuple[str, str]]:
    """Return the groups and extras of the project, as options of uv."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = [("--group", name) for name in project["dependency-groups"]]
    return groups + [("--extra", name) for name in project["project"]["optional-dependencies"]]


def pins(environments: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the requirements of environments, and those of what is installed apart."""
    for option, name in environments:
        yield from _run(*_EXPORT, option, name).splitlines()
    for path in _APART:
        yield from (ROOT / path).read_text().splitlines()


def without_repeats(lines: Iterable[str]) -> list[list[str]]:
    """Return the pins among lines as lists in which no package comes twice, as pip-audit wants them."""
    versions: dict[str, list[str]] = {}
    for pin in sorted({line.partition(";")[0].strip() for line in lines if _PIN.match(line)}):
        versions.setdefault(pin.partition("==")[0], []).append(pin)
    return [[pin for pin in row if pin] for row in zip_longest(*versions.values(), fillvalue="")]


def audit_python(pins: list[str]) -> Audit:
    """Audit pinned versions, in which no package comes twice."""
    options = ("--disable-pip", "--no-deps", "--progress-spinner", "off", "--format", "json")
    with TemporaryDirectory() as directory:
        requirements = Path(directory, "requirements.txt")
        requirements.write_text("\n".join(pins))
        return read_pip_audit(_run(UV, "tool", "run", "--quiet", PIP_AUDIT, *options, "-r", str(requirements)))


def audit_npm(folder: Path) -> Audit:
    """Audit the versions in the lock file of a folder; npm is that of the environment."""
    npm = str(Path(sys.executable).parent / "npm")
    return read_npm_audit(_run(npm, "audit", "--json", "--package-lock-only", folder=folder))


def read_pip_audit(report: str) -> Audit:
    """Return what the JSON of pip-audit says."""
    content = _read(report)
    if "dependencies" not in content:
        return Audit([], "pip-audit got no answer from its service")
    packages: list[dict[str, Any]] = content["dependencies"]
    lines = [
        f"{package['name']} {package['version']}: {entry['id']}, fixed in {', '.join(entry['fix_versions']) or 'none'}"
        for package in packages
        for entry in package.get("vulns", ())
    ]
    reasons = [package["skip_reason"] for package in packages if "skip_reason" in package]
    return Audit(lines, f"{len(reasons)} of {len(packages)} packages, such as: {reasons[0]}" if reasons else "")


def read_npm_audit(report: str) -> Audit:
    """Return what the JSON of npm says."""
    content = _read(report)
    if "vulnerabilities" not in content:
        return Audit([], str(content.get("message") or "npm printed no report"))
    return Audit(list(_npm_lines(content["vulnerabilities"])))


def _read(report: str) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(report)
    except ValueError:
        return {}
    return content


def _npm_lines(vulnerabilities: dict[str, Any]) -> Iterator[str]:
    for name, entry in vulnerabilities.items():
        # Of a package that only depends on a vulnerable one, npm gives the name of that one.
        advisories = [advisory for advisory in entry["via"] if isinstance(advisory, dict)]
        for advisory in advisories:
            yield f"{name} {entry['range']}: {advisory['severity']}, {advisory['title']} ({advisory['url']})"


def _lock_files() -> list[Path]:
    listing = _run("git", "ls-files", "*package-lock.json")
    return [Path(line) for line in listing.splitlines()]


def _run(*command: str, folder: Path = Path()) -> str:
    """Return what a command prints. Its messages are dropped: pip-audit calls it clean if it could audit nothing."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        command, cwd=ROOT / folder, env=environment, capture_output=True, text=True, check=False
    ).stdout


def _print(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
