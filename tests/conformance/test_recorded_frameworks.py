"""Every script with every framework of the second column, from recordings: real adapters, servers and npm clients."""

import pytest

from tests.adapters.agents import Api, Framework
from tests.adapters.recorded_frameworks import RECORDED_FRAMEWORKS
from tests.adapters.recording import key_of, recordings_of, replayed_chat
from tests.adapters.scripts import Script
from tests.conformance.http_client import Browser
from tests.conformance.script_rows import name_of, rows_of

ROWS = [pytest.param(*row, id=name_of(row)) for row in rows_of(RECORDED_FRAMEWORKS)]


@pytest.mark.parametrize(("framework", "script", "api", "release"), ROWS)
def test_the_script_plays_from_its_recording(
    framework: Framework, script: Script, api: Api, release: str, browser: Browser
) -> None:
    turns = recordings_of(framework)[key_of(script, api)]
    with replayed_chat(script, framework, turns, release, browser) as chat:
        script.play(chat)
