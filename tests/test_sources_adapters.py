"""Objects of frameworks answer through adapters that installed packages bring along as entry points."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from usechat import parts
from usechat.cli.plan import Plan, make_app
from usechat.errors import CannotAnswer
from usechat.parts import Part
from usechat.protocol.request import ChatRequest
from usechat.sources import FunctionSource, as_source
from usechat.turn import TurnContext

ASKED = {"id": "c1", "messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]}
FRAMEWORK = """
class Agent:
    def __init__(self, name):
        self.name = name

class CallableAgent(Agent):
    def __call__(self, turn):
        return "called"

class App(Agent):
    async def __call__(self, scope, receive, send):
        raise AssertionError("taken for an ASGI app")

class Tool:
    pass
"""
ADAPTER = """
from usechat.parts import Text
from framework_of_the_test.agents import Agent

class AgentSource:
    def __init__(self, agent):
        self._agent = agent

    async def drive(self, context):
        context.send(Text(f"{self._agent.name} answers {context.turn.text}"))

def source_of(found):
    return AgentSource(found) if isinstance(found, Agent) else None
"""
ENTRY_POINTS = """
[usechat.adapters]
framework_of_the_test = adapter_of_the_test:source_of
another_framework = adapter_that_is_missing:source_of
"""


@pytest.fixture
def framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A framework and its adapter, installed as pip does it."""
    package = tmp_path / "framework_of_the_test"
    installed = tmp_path / "adapter_of_the_test-1.0.dist-info"
    for directory in (package, installed):
        directory.mkdir()
    (package / "__init__.py").touch()
    (package / "agents.py").write_text(FRAMEWORK)
    (tmp_path / "adapter_of_the_test.py").write_text(ADAPTER)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: adapter-of-the-test\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield import_module("framework_of_the_test.agents")
    for name in [name for name in sys.modules if name.endswith("_of_the_test") or "_of_the_test." in name]:
        del sys.modules[name]


async def said_by(answer: Any) -> list[Part]:
    said: list[Part] = []
    turn = TurnContext(ChatRequest.parse(ASKED))
    turn.connect(said.append)
    await as_source(answer).drive(turn)
    return said


async def test_an_object_of_a_framework_answers_through_its_adapter(framework: Any) -> None:
    assert await said_by(framework.Agent("Ann")) == [parts.Text("Ann answers hi")]


async def test_the_adapter_is_asked_before_a_callable_object_is_taken_for_a_function(framework: Any) -> None:
    assert await said_by(framework.CallableAgent("Bob")) == [parts.Text("Bob answers hi")]


async def test_an_object_that_looks_like_an_asgi_app_is_served_by_its_adapter(framework: Any) -> None:
    framework.app = framework.App("Zoe")
    served = make_app(Plan(target="framework_of_the_test.agents:app"))
    assert (served.built_here, served.path) == (True, "/api/chat")


async def test_a_subclass_in_the_user_s_own_module_is_found_too(framework: Any) -> None:
    mine = type("Mine", (framework.Agent,), {"__module__": "my_app.agents"})
    assert await said_by(mine("Cid")) == [parts.Text("Cid answers hi")]


async def test_what_an_adapter_does_not_know_is_refused(framework: Any) -> None:
    with pytest.raises(CannotAnswer, match="Tool cannot answer a chat"):
        as_source(framework.Tool())


async def test_a_function_of_a_framework_is_a_function(framework: Any) -> None:
    assert framework
    assert isinstance(as_source(lambda _turn: "Hi"), FunctionSource)


@pytest.mark.parametrize(
    ("module", "text"),
    [
        ("crewai.agent", "CrewAI that cannot answer a chat; give an Agent, a Crew or a CrewAiSource"),
        ("strands.agent.agent", "Strands Agents that cannot answer a chat; give a StrandsSource"),
        ("agent_framework", "Microsoft Agent Framework that cannot answer a chat; give an agent"),
        (
            "openai",
            "the OpenAI client that cannot answer a chat;"
            " give a function that calls it and yields usechat.adapters.openai.parts",
        ),
        (
            "autogen_agentchat",
            "AutoGen that cannot answer a chat; there is no adapter for it; docs/adapters.md shows how to write one",
        ),
    ],
)
def test_an_object_that_no_adapter_takes_is_refused_with_what_to_give_instead(module: str, text: str) -> None:
    base = type("Agent", (), {"__module__": module, "__call__": lambda *_: "called"})
    own = type("MyAgent", (base,), {"__module__": "my_app"})
    with pytest.raises(CannotAnswer) as refused:
        as_source(own())
    assert str(refused.value) == f"this MyAgent is an object of {text}"


def test_a_package_whose_name_only_begins_like_that_of_a_framework_is_not_refused() -> None:
    own = type("Agent", (), {"__module__": "crewai_tools", "__call__": lambda *_: "called"})
    assert isinstance(as_source(own()), FunctionSource)
