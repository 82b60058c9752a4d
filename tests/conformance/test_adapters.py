"""Every script with every framework of the first column: its agent live, the newest npm clients, a strict model."""

import itertools

import pytest

from tests.adapters.agents import Api, Framework
from tests.adapters.frameworks import FRAMEWORKS, MODEL_CLIENTS
from tests.adapters.recorded_frameworks import RECORDED_FRAMEWORKS
from tests.adapters.scripts import SCRIPTS, Script
from tests.conformance.http_client import NEWEST, WITH_APPROVALS, Browser
from tests.conformance.script_rows import name_of, rows_of

ROWS = rows_of([*FRAMEWORKS, *MODEL_CLIENTS])


@pytest.mark.parametrize(
    ("framework", "script", "api", "release"), [pytest.param(*row, id=name_of(row)) for row in ROWS]
)
def test_the_script_plays(framework: Framework, script: Script, api: Api, release: str, browser: Browser) -> None:
    with script.chat(framework, api, release, browser) as chat:
        script.play(chat)


def test_every_client_plays_every_script() -> None:
    played = {(script.name, release) for _, script, _, release in ROWS}
    assert played == {
        (script.name, release) for script in SCRIPTS for release in (WITH_APPROVALS if script.approvals else NEWEST)
    }


def test_every_client_plays_with_every_framework() -> None:
    rows = [*ROWS, *rows_of(RECORDED_FRAMEWORKS)]
    names = {framework.name for framework, *_ in rows}
    assert {(framework.name, release) for framework, _, _, release in rows} == set(itertools.product(names, NEWEST))
