import os
from collections.abc import Iterator

import pytest

from tests.conformance.http_client import Browser
from tests.conformance.judge import Judge

collect_ignore_glob = [] if "USECHAT_FRAMEWORKS" in os.environ else ["test_live_*.py"]
"""Live frameworks have their own environments, and this variable names one: `make test-frameworks`."""


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
