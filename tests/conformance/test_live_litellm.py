"""Every script that model clients play with LiteLLM, live: the newest npm client, a strict model."""

import pytest

from tests.adapters.agents import Framework
from tests.adapters.frameworks import LITELLM
from tests.adapters.scripts import SCRIPTS, Script
from tests.conformance.http_client import NEWEST, Browser

pytestmark = [pytest.mark.live, pytest.mark.llama_index]

ROWS = [
    pytest.param(framework, script, id=f"{framework.name}: {script.name}")
    for framework in LITELLM
    for script in SCRIPTS
    if script.name not in framework.not_played and framework.apis[0] in script.apis
]


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
@pytest.mark.parametrize(("framework", "script"), ROWS)
def test_the_script_plays_live(framework: Framework, script: Script, browser: Browser) -> None:
    with script.chat(framework, framework.apis[0], NEWEST[-1], browser) as chat:
        script.play(chat)
