"""The consent to go on after a crash is refused where no answer could go on."""

import re
from collections.abc import AsyncIterator, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from usechat.chats import MemoryChats, SqlChats
from usechat.errors import InvalidSetting
from usechat.parts import Part
from usechat.server import ChatApp, Settings
from usechat.turn import Turn, TurnContext

pytestmark = pytest.mark.quick


class Relay:
    """Sends the prompt elsewhere."""

    continues = False

    async def drive(self, _context: TurnContext) -> None:
        """Say nothing."""


async def agent(_turn: Turn) -> AsyncIterator[str | Part]:
    yield "Hi"


CONSENT = Settings(after_crash="continue")
ASK = Settings(after_crash="ask")
NO_AGENT = "none of the agents can go on with an answer whose process died: {}; leave after_crash='continue' out"


def test_an_agent_that_cannot_go_on_is_refused_with_consent() -> None:
    with pytest.raises(InvalidSetting, match=re.escape(NO_AGENT.format("Relay"))):
        ChatApp(Relay(), chats=SqlChats("chats.db"), settings=CONSENT)
    ChatApp(Relay(), chats=SqlChats("chats.db"), settings=Settings(after_crash="lose"))


def test_one_agent_of_several_may_be_unable_to_go_on(caplog: pytest.LogCaptureFixture) -> None:
    ChatApp({"far": Relay(), "near": agent}, chats=SqlChats("chats.db"), settings=CONSENT)
    [record] = [each for each in caplog.records if "far" in each.getMessage()]
    assert record.getMessage() == "after_crash='continue' has no effect on these agents: far"


async def test_an_agent_that_is_unable_to_go_on_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = ChatApp({"far": Relay(), "near": agent}, chats=SqlChats(str(tmp_path / "chats.db")), settings=CONSENT)
    events = iter(["startup", "shutdown"])

    async def receive() -> Any:
        return {"type": f"lifespan.{next(events)}"}

    async def send(_message: Any) -> None:
        """Nobody looks."""

    await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    assert len([each for each in caplog.records if "far" in each.getMessage()]) == 1


def make() -> Relay:
    return Relay()


async def test_an_agent_of_a_factory_is_refused_when_the_server_starts() -> None:
    app = ChatApp(make, chats=SqlChats("chats.db"), settings=CONSENT)
    messages: list[Any] = []

    async def receive() -> Any:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        messages.append(message)

    with pytest.raises(InvalidSetting):
        await app({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)
    [failure] = messages
    assert failure["message"] == NO_AGENT.format("make")


@pytest.mark.parametrize(
    "name",
    [
        "agno:AgnoSource",
        "claude:ClaudeSource",
        "crewai:CrewAiSource",
        "dspy:DspySource",
        "google_adk:GoogleAdkSource",
        "haystack:HaystackSource",
        "llama_index:LlamaIndexSource",
        "smolagents:SmolagentsSource",
        "strands:StrandsSource",
    ],
)
def test_frameworks_that_cannot_go_on_say_so(name: str) -> None:
    module, _, source = name.partition(":")
    assert getattr(import_module(f"usechat.adapters.{module}"), source).continues is False


@pytest.mark.parametrize("chats", [lambda: None, MemoryChats])
@pytest.mark.parametrize("settings", [CONSENT, ASK])
def test_consent_is_refused_where_answers_end_with_their_process(chats: Callable[[], Any], settings: Settings) -> None:
    text = f"after_crash={settings.after_crash!r} needs chats in a database; give chats=SqlChats(...), or --chats"
    with pytest.raises(InvalidSetting, match=re.escape(text)):
        ChatApp(agent, chats=chats(), settings=settings)
    ChatApp(agent, chats=chats(), settings=Settings(after_crash="lose"))


def test_consent_is_refused_where_the_runs_are_in_redis() -> None:
    from usechat.runs.redis.store import RedisRuns

    with pytest.raises(InvalidSetting, match=re.escape("after_crash='continue' has no effect with RedisRuns")):
        ChatApp(agent, chats=SqlChats("chats.db"), runs=RedisRuns("redis://localhost:1"), settings=CONSENT)
