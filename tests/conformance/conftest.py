from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.conformance.http_client import Browser
from tests.conformance.judge import Judge

collect_ignore_glob = [] if find_spec("agno") else ["test_live_*.py"]
"""Live frameworks are in an environment of their own: `make test-frameworks`."""


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """The real npm clients, in one Node process per test worker."""
    with Judge() as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The real npm clients as pages that talk to a URL, in one Node process per test worker."""
    with Browser() as running:
        yield running
