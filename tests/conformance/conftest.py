from collections.abc import Iterator

import pytest

from tests.conformance.judge import Judge


@pytest.fixture(scope="session")
def judge() -> Iterator[Judge]:
    """The real npm clients, in one Node process per test worker."""
    with Judge() as running:
        yield running
