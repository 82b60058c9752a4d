"""The names of `usechat.server`: they are explained, and need no extra but their own."""

import inspect
import subprocess
import sys
from typing import Any

import pytest

import usechat.server

NAMES: dict[str, Any] = {name: getattr(usechat.server, name) for name in usechat.server.__all__}
OURS = {name: value for name, value in NAMES.items() if inspect.isclass(value) or inspect.isroutine(value)}


def test_the_names_are_sorted_and_explained() -> None:
    assert usechat.server.__all__ == sorted(usechat.server.__all__)
    assert [name for name, value in OURS.items() if not value.__doc__] == []


@pytest.mark.parametrize(
    ("package", "names", "extra"),
    [
        ("redis", ["RedisRuns", "RedisTurns"], "redis"),
        ("joserfc", ["JsonWebTokens"], "jwt"),
        ("opentelemetry", ["OpenTelemetryObserver"], "otel"),
        ("prometheus_client", ["process_metrics"], "metrics"),
    ],
)
def test_without_an_extra_all_other_names_and_the_command_can_be_used(
    package: str, names: list[str], extra: str
) -> None:
    program = f"""
import sys
sys.modules[{package!r}] = None
import usechat.cli.plan, usechat.server
for name in usechat.server.__all__:
    try:
        getattr(usechat.server, name)
    except ImportError as error:
        print(name, error)
"""
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    lines = printed.splitlines()
    assert [line.partition(" ")[0] for line in lines] == names
    assert [line for line in lines if not line.endswith(f"pip install 'usechat[{extra}]'")] == []
