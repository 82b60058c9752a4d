"""A bot of the Chat SDK in front of usechat, `examples/chat-sdk-bot`, asked by the real client."""

import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.browser.building import EXAMPLES, install
from tests.conformance.http_client import NEWEST, Browser, text_of
from tests.conformance.judge import node_binary
from tests.conformance.served import serving
from usechat import parts
from usechat.chats import MemoryChats
from usechat.server import ChatApp
from usechat.turn import Turn

BOT = EXAMPLES / "chat-sdk-bot"


async def agent(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Say what was said, and how many messages there are by then; call a tool, which a bot does not pass on."""
    yield f"You said: {turn.text} "
    yield parts.ToolCall("c1", "look", {})
    yield parts.ToolResult("c1", "seen")
    yield f"({len(turn.messages)})"


@pytest.fixture(scope="module")
def bot() -> Iterator[str]:
    install(BOT)
    with serving({"agent": ChatApp(agent, chats=MemoryChats())}) as served:
        environment = {**os.environ, "USECHAT": served.url("agent"), "PORT": "0"}
        process = subprocess.Popen(
            [node_binary(), "server.mjs"], cwd=BOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        match = re.search(r"port (\d+)", process.stdout.readline())
        assert match is not None
        yield f"http://127.0.0.1:{match[1]}/api/chat"
        process.kill()
        process.communicate()


@pytest.mark.parametrize("release", NEWEST)
def test_a_page_gets_the_text_of_the_agent_through_the_bot_and_the_chat_goes_on(
    browser: Browser, bot: str, release: str
) -> None:
    page = browser.open(release, bot, chat_id=f"chat-{release}")
    for text, count in (("Hello", 1), ("Again", 3)):
        page.send(text)
        message = page.answer()
        assert re.sub(r"\s+", " ", text_of(page.look())) == f"You said: {text} ({count})"
        assert {part["type"] for part in message["parts"]} <= {"step-start", "text"}
