"""Hypothesis profiles: the suite is the same on every run; `make fuzz` looks for what it has not seen yet.

`make mutants`, and `make test-all` on further Pythons, draw few examples (`brief`).

With `USECHAT_TEST_PLAIN_ASGI=1` servers use nothing of uvicorn's internals. With `USECHAT_TEST_AGENTS=external` agents
answer behind a queue in Redis.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.classes import classes_of, is_selected

# Clients load the authorities that they trust: 50 ms of processor time for the public ones, which no test needs.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("authority.pem"))

settings.register_profile("default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile(
    "fuzz", settings.get_profile("default"), derandomize=False, max_examples=1000, print_blob=True
)
settings.register_profile("brief", settings.get_profile("default"), max_examples=20)
settings.load_profile("default")

LONGEST: Final = ("test_shell_blocks.py", "test_site.py")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file of which `-m` selects nothing, nor the conftest of a directory with such files alone."""
    files = collection_path.rglob("test_*.py") if collection_path.is_dir() else [collection_path]
    tests = [path for path in files if path.match("test_*.py")]
    return True if tests and not any(is_selected(path, config.option.markexpr) for path in tests) else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark each test with the classes of its file."""
    for name in classes_of(item.path):
        item.add_marker(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest: at the end, one process would run them while the others have nothing."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """Put the handlers back after a test whose code configures logging: theirs write to a stream that is closed."""
    loggers = [logging.getLogger(name) for name in ("", "usechat", "uvicorn", "uvicorn.error", "uvicorn.access")]
    before = [(logger.handlers[:], logger.level, logger.propagate) for logger in loggers]
    yield
    for logger, (handlers, level, propagate) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


if os.environ.get("USECHAT_TEST_PLAIN_ASGI") == "1":
    from tests.plain_asgi import switch_off_internals

    switch_off_internals()  # before the modules of the tests make their apps


if os.environ.get("USECHAT_TEST_AGENTS") == "external":
    from contextlib import ExitStack

    from tests.external_agents import put_agents_outside

    def pytest_configure(config: pytest.Config) -> None:
        # Many tests never shut their app down, which is nothing to a store in memory; the connections to Redis warn.
        for kind in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
            config.addinivalue_line("filterwarnings", f"ignore::{kind}")

    @pytest.fixture(autouse=True, scope="session")
    def _external_agents() -> Iterator[None]:
        with ExitStack() as stack:
            put_agents_outside(pytest.MonkeyPatch(), stack)
            yield
