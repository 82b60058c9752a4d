"""Objects of frameworks answer through adapters that installed packages bring along as entry points."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from usechat import parts
from usechat.cli.plan import Plan, make_app
from usechat.errors import CannotAnswer, LocalProtocolError
from usechat.parts import Part
from usechat.protocol.request import ChatRequest
from usechat.sources import FunctionSource, as_source
from usechat.turn import Identity, Turn, TurnContext, TurnInput

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
    def __init__(self, agent, context):
        self._agent = agent
        self._context = context

    async def drive(self, context):
        extra = "" if self._context is None else f" with {self._context}"
        context.send(Text(f"{self._agent.name} answers {context.turn.text}{extra}"))

def source_of(agent, *, context=None):
    return AgentSource(agent, context) if isinstance(agent, Agent) else None

def source_without_context(agent):
    return AgentSource(agent, None) if isinstance(agent, Agent) else None
"""
METADATA = """\
Metadata-Version: 2.1
Name: adapter-of-the-test
Version: 1.0
Requires-Dist: adapter-of-the-test>=2,<3; extra == "test"
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
    (installed / "METADATA").write_text(METADATA)
    (installed / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield import_module("framework_of_the_test.agents")
    for name in [name for name in sys.modules if name.endswith("_of_the_test") or "_of_the_test." in name]:
        del sys.modules[name]


async def said_by(agent: Any, context: Any = None) -> list[Part]:
    output: list[Part] = []
    turn = TurnContext(TurnInput(ChatRequest.parse(ASKED), identity=Identity("ada")))
    turn.connect(output.append)
    await as_source(agent, context=context).drive(turn)
    return output


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


def _makers(framework: Any) -> list[Any]:
    """Return functions of one argument that make an agent."""

    async def async_maker(turn: Turn) -> Any:
        return framework.Agent(turn.text)

    @asynccontextmanager
    async def context_manager(turn: Turn) -> AsyncIterator[Any]:
        yield framework.Agent(turn.text)

    return [lambda turn: framework.Agent(turn.text), async_maker, context_manager]


@pytest.mark.parametrize("number", range(3))
async def test_a_function_of_the_turn_may_return_the_agent_that_answers_it(framework: Any, number: int) -> None:
    maker = _makers(framework)[number]
    assert await said_by(maker) == [parts.Text("hi answers hi")]
    assert await said_by(maker, context="tea") == [parts.Text("hi answers hi with tea")]


async def test_a_function_that_takes_a_config_gets_one_of_langgraph(framework: Any) -> None:
    def make_graph(config: Any) -> Any:
        return framework.Agent(f"{config['configurable']}")

    configurable = {"thread_id": "ada/c1", "langgraph_auth_user_id": "ada"}
    assert await said_by(make_graph) == [parts.Text(f"{configurable} answers hi")]


async def test_an_object_that_cannot_answer_is_named_in_the_turn_that_made_it(framework: Any) -> None:
    with pytest.raises(LocalProtocolError, match="or returns another agent, not Tool"):
        await said_by(lambda _turn: framework.Tool())


async def test_the_context_reaches_the_adapter_of_an_object_and_of_what_a_factory_makes(framework: Any) -> None:
    assert await said_by(framework.Agent("Ann"), context="tea") == [parts.Text("Ann answers hi with tea")]
    assert await said_by(lambda: framework.Agent("Ann"), context="tea") == [parts.Text("Ann answers hi with tea")]


async def test_a_context_that_nothing_takes_is_refused(framework: Any) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[str]:
        yield "Hi"

    source = as_source(framework.Agent("Ann"))
    with pytest.raises(CannotAnswer, match="agent gets the turn itself; a context is for an agent of a framework"):
        as_source(agent, context="tea")
    with pytest.raises(CannotAnswer, match="AgentSource takes no context; give it to the source of the agent"):
        as_source(source, context="tea")


async def test_a_release_that_the_adapter_cannot_use_is_named(framework: Any, tmp_path: Path) -> None:
    (tmp_path / "adapter_of_the_test.py").write_text(
        "from usechat.errors import MissingDependency\nraise MissingDependency('adapter-of-the-test', 'test')\n"
    )
    sentence = "adapter-of-the-test 1.0 is installed, and its adapter needs adapter-of-the-test>=2,<3"
    with pytest.raises(CannotAnswer, match=sentence):
        as_source(framework.Agent("Ann"))


async def test_an_adapter_that_takes_no_context_says_so(framework: Any, tmp_path: Path) -> None:
    entries = ENTRY_POINTS.replace("adapter_of_the_test:source_of", "adapter_of_the_test:source_without_context")
    (tmp_path / "adapter_of_the_test-1.0.dist-info" / "entry_points.txt").write_text(entries)
    with pytest.raises(CannotAnswer, match="the adapter for OtherAgent takes no context"):
        as_source(
            type("OtherAgent", (framework.Agent,), {"__module__": "framework_of_the_test.other"})("Ann"), context=1
        )


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
        ("strands.agent.agent", "Strands Agents that cannot answer a chat; give an Agent"),
        ("agent_framework", "Microsoft Agent Framework that cannot answer a chat; give an agent"),
        (
            "openai",
            "the OpenAI client that cannot answer a chat;"
            " give a function that calls it and yields usechat.adapters.openai.parts",
        ),
        (
            "agents.realtime.agent",
            "the OpenAI Agents SDK that cannot answer a chat; it speaks, and does not write; give an Agent",
        ),
        (
            "livekit.agents",
            "LiveKit Agents that cannot answer a chat; it speaks, and does not write; give the agent that it asks",
        ),
        (
            "google.genai.chats",
            "the Google Gen AI client that cannot answer a chat; give a function that calls it and yields texts",
        ),
        ("mirascope.core", "Mirascope that cannot answer a chat; give a function that calls it and yields texts"),
        *(
            (
                module,
                f"{name} that cannot answer a chat; there is no adapter for it;"
                " docs/adapters.md shows how to write one",
            )
            for module, name in [
                ("autogen_agentchat", "AutoGen"),
                ("autogen_core.agents", "AutoGen"),
                ("autogen.agentchat", "AG2"),
                ("semantic_kernel.agents", "Semantic Kernel"),
                ("letta.agent", "Letta"),
                ("burr.core", "Burr"),
                ("pocketflow", "PocketFlow"),
                ("browser_use.agent", "browser-use"),
                ("mcp_agent.agents", "mcp-agent"),
            ]
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
