"""Strangers' agents of the other frameworks: served by the command, and read by the npm clients."""

import os
from collections.abc import Iterator

import pytest

from tests.conformance import served_strangers
from tests.conformance.http_client import Browser
from tests.conformance.strangers_rows import Stranger

pytestmark = [pytest.mark.live, pytest.mark.crewai, pytest.mark.frameworks, pytest.mark.llama_index]

ENVIRONMENT = os.environ["USECHAT_FRAMEWORKS"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[served_strangers.Server]:
    with served_strangers.serving(ENVIRONMENT, tmp_path_factory.mktemp("strangers")) as running:
        yield running


@pytest.mark.parametrize(("row", "name"), served_strangers.rows_of(ENVIRONMENT))
def test_an_agent_of_somebody_else_is_served_as_it_is(
    row: Stranger, name: str, server: served_strangers.Server, browser: Browser
) -> None:
    served_strangers.check(row, name, server, browser)
