"""Every script with every framework of the first column: its agent live, the newest npm clients, a strict model."""

import pytest

from tests.adapters.agents import Api, Framework
from tests.adapters.frameworks import FRAMEWORKS, MODEL_CLIENTS
from tests.adapters.scripts import SCRIPTS, Script
from tests.conformance.http_client import NEWEST, WITH_APPROVALS, Browser


def _rows() -> list[tuple[Framework, Script, Api, str]]:
    """Return what is run: each script with every client, and with the newest one through every model API."""
    return [
        (framework, script, api, release)
        for framework in (*FRAMEWORKS, *MODEL_CLIENTS)
        for script in SCRIPTS
        if script.name not in framework.not_played
        for number, api in enumerate(api for api in framework.apis if api in script.apis)
        for release in (WITH_APPROVALS if script.approvals else NEWEST)
        if number == 0 or release == NEWEST[-1]
    ]


@pytest.mark.parametrize(
    ("framework", "script", "api", "release"),
    [pytest.param(*row, id=f"{row[0].name}: {row[1].name}, {row[2]}, {row[3]}") for row in _rows()],
)
def test_the_script_plays(framework: Framework, script: Script, api: Api, release: str, browser: Browser) -> None:
    with script.chat(framework, api, release, browser) as chat:
        script.play(chat)
