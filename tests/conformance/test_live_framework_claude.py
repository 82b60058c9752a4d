"""Claude Code, live: what only its own process can get wrong."""

import asyncio
from typing import Any

import pytest
from claude_agent_sdk import ClaudeSDKClient

from tests.adapters.recorded_frameworks import RECORDED_FRAMEWORKS
from tests.adapters.recording import recorded_chat
from tests.adapters.scripts import SCRIPTS
from tests.conformance.http_client import NEWEST, Browser

pytestmark = [
    pytest.mark.live,
    pytest.mark.frameworks,
    pytest.mark.filterwarnings("ignore:Exception ignored in. <function MemoryObject"),  # left by Claude's SDK
    pytest.mark.filterwarnings("ignore:can_use_tool will not be invoked for"),  # tools that need no permission
]


def test_the_model_is_not_told_of_a_permission_that_another_message_supersedes(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt = ClaudeSDKClient.interrupt

    async def interrupt_late(client: Any) -> None:
        await asyncio.sleep(1)  # as on a machine that is busy: Claude Code could go on meanwhile
        await interrupt(client)

    monkeypatch.setattr(ClaudeSDKClient, "interrupt", interrupt_late)
    [framework] = [each for each in RECORDED_FRAMEWORKS if each.name == "Claude Agent SDK"]
    [script] = [each for each in SCRIPTS if each.name == "a new message while an approval waits"]
    with recorded_chat(script, framework, "anthropic", NEWEST[-1], browser) as (chat, _recorder):
        script.play(chat)
