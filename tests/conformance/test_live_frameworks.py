"""Every script with every framework of the second column, live: `make test-frameworks` runs this file.

With ``USECHAT_RECORD=1`` the newest client's turns are written to tests/adapters/recordings (`make record-frameworks`).
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.adapters.agents import Api, Framework
from tests.adapters.recorded_frameworks import RECORDED_FRAMEWORKS
from tests.adapters.recording import key_of, recorded_chat, recordings_of, write_recordings
from tests.adapters.scripts import Script
from tests.conformance.http_client import NEWEST, Browser
from tests.conformance.script_rows import Row, name_of, rows_of

pytestmark = [
    pytest.mark.live,
    pytest.mark.crewai,
    pytest.mark.frameworks,
    pytest.mark.llama_index,
    # ADK's own AgentTool uses an argument that ADK has deprecated.
    pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning"),  # Agno, for images
    pytest.mark.filterwarnings("ignore:Exception ignored in. <function MemoryObject"),  # left by Claude's SDK
    pytest.mark.filterwarnings("ignore:can_use_tool will not be invoked for"),  # Claude: tools that need no permission
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),  # LlamaIndex
    pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai"),  # CrewAI reads fields that it has deprecated
]

RECORDING = os.environ.get("USECHAT_RECORD") == "1"
_recorded: dict[str, dict[str, Any]] = {}


def _rows() -> list[Row]:
    """Return what is run: each script through every model API. The clients take turns; the newest records."""
    environment = os.environ["USECHAT_FRAMEWORKS"]
    rows = rows_of(RECORDED_FRAMEWORKS)
    return [(*row[:3], NEWEST[-1] if RECORDING else row[3]) for row in rows if row[0].environment == environment]


@pytest.fixture(scope="module", autouse=True)
def _written() -> Iterator[None]:
    """Write the recordings of the scripts that were played; those of others stay."""
    yield
    for framework in RECORDED_FRAMEWORKS:
        keys = [key_of(script, api) for each, script, api, _ in _rows() if each == framework]
        if RECORDING and framework.name in _recorded:
            recordings = {**recordings_of(framework), **_recorded[framework.name]}
            write_recordings(framework, {key: recordings[key] for key in keys if key in recordings})


@pytest.mark.parametrize(
    ("framework", "script", "api", "release"),
    [pytest.param(*row, id=name_of(row)) for row in _rows()],
)
def test_the_script_plays_live(framework: Framework, script: Script, api: Api, release: str, browser: Browser) -> None:
    with recorded_chat(script, framework, api, release, browser) as (chat, recorder):
        script.play(chat)  # a script that fails is not recorded
    _recorded.setdefault(framework.name, {})[key_of(script, api)] = recorder.turns
