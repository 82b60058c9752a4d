"""The names of `usechat.server`: they are there, `help()` explains them, and its examples run."""

import doctest
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import usechat.server

NAMES: dict[str, Any] = {name: getattr(usechat.server, name) for name in usechat.server.__all__}
OURS = {name: found for name, found in NAMES.items() if inspect.isclass(found) or inspect.isroutine(found)}
WITH_EXAMPLE = [name for name, found in OURS.items() if ">>>" in (inspect.unwrap(found).__doc__ or "")]


def test_the_names_are_sorted_and_explained() -> None:
    assert usechat.server.__all__ == sorted(usechat.server.__all__)
    assert [name for name, found in OURS.items() if not found.__doc__] == []


def test_what_people_build_with_has_an_example() -> None:
    assert set(WITH_EXAMPLE) >= {
        "ApiTokens",
        "ChatApp",
        "JsonFormatter",
        "JsonWebTokens",
        "LocalPagesOnly",
        "Observers",
        "OpenTelemetryObserver",
        "PageSettings",
        "Settings",
        "Unobserved",
        "WithPage",
        "bearer",
        "cancel_after",
        "chat_response",
        "counted_together",
        "new_api_token",
        "openapi",
        "with_cors",
    }


@pytest.mark.parametrize("name", WITH_EXAMPLE)
def test_the_examples_of_help_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = inspect.unwrap(OURS[name])
    module = sys.modules[found.__module__]
    examples = doctest.DocTestFinder(recurse=False).find(found, name, module, dict(vars(module)))
    results = [doctest.DocTestRunner().run(example) for example in examples]
    assert [(result.failed, result.attempted > 0) for result in results] == [(0, True)]


def test_a_name_that_is_not_there_is_told() -> None:
    with pytest.raises(AttributeError, match=r"module 'usechat\.server' has no attribute 'nothing'"):
        _ = usechat.server.nothing


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [
        ("redis", "RedisRuns", "redis"),
        ("joserfc", "JsonWebTokens", "jwt"),
        ("opentelemetry", "OpenTelemetryObserver", "otel"),
        ("prometheus_client", "process_metrics", "metrics"),
    ],
)
def test_without_an_extra_all_other_names_and_the_command_can_be_used(package: str, name: str, extra: str) -> None:
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
    [line] = printed.splitlines()
    assert line.startswith(f"{name} ")
    assert line.endswith(f"pip install 'usechat[{extra}]'")
