"""Times that tests measure are listed at the end; with `USECHAT_RECORD=1` they are written for the documentation."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from tests.deploy.matrix import PROXIES, SERVERS
from tests.deploy.times import PROPERTY, PROXY_TIMES, SERVER_TIMES, merged, record, table


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Callable[[str, str, float], None]:
    """Note how many seconds something took: the name of a proxy or server, the measure, the seconds."""

    def note(name: str, measure: str, seconds: float) -> None:
        record_property(PROPERTY, [name, measure, seconds])

    return note


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """List the times that were measured."""
    reports = terminalreporter.stats.get("passed", [])
    times = merged(value for report in reports for key, value in report.user_properties if key == PROPERTY)
    if not times:
        return
    terminalreporter.section("times measured")
    for names, measures in ((PROXIES, PROXY_TIMES), (SERVERS, SERVER_TIMES)):
        for line in table(names, measures, times):
            terminalreporter.write_line(line)
    if os.environ.get("USECHAT_RECORD") == "1":
        record(times)
