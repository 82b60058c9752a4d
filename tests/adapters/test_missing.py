"""What happens where a framework is not installed."""

import re
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

import pytest

from tests.adapters.turns import turn_of, user
from usechat.adapters.a2a import A2aEndpoint
from usechat.adapters.ag_ui import AgUiSource
from usechat.errors import MissingDependency
from usechat.sources import FunctionSource, as_source

FRAMEWORKS = [
    ("langgraph", "langgraph.graph", "langgraph"),
    ("openai_agents", "agents", "openai-agents"),
    ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
]


ON_USE = [
    ("a2a", "a2a.client", "a2a"),
    ("agent_framework", "agent_framework", "agent-framework"),
    ("agno", "agno.agent", "agno"),
    ("claude", "claude_agent_sdk", "claude"),
    ("crewai", "crewai", "crewai"),
    ("dspy", "dspy", "dspy"),
    ("google_adk", "google.adk.agents", "google-adk"),
    ("llama_index", "workflows", "llama-index"),
    ("haystack", "haystack.components.agents", "haystack"),
    ("smolagents", "smolagents", "smolagents"),
    ("strands", "strands", "strands"),
]


def hide(monkeypatch: pytest.MonkeyPatch, adapter: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"usechat.adapters.{adapter}", raising=False)


@pytest.mark.parametrize(("adapter", "package", "extra"), FRAMEWORKS)
def test_a_missing_framework_is_one_sentence_with_the_line_that_installs_it(
    adapter: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, adapter, package)
    with pytest.raises(MissingDependency, match=re.escape(f"run: pip install 'usechat[{extra}]'")):
        import_module(f"usechat.adapters.{adapter}")


@pytest.mark.parametrize(("adapter", "package", "extra"), ON_USE)
def test_a_framework_that_is_imported_on_use_is_missing_with_the_same_sentence(
    adapter: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, adapter, package)
    with pytest.raises(MissingDependency, match=re.escape(f"run: pip install 'usechat[{extra}]'")):
        import_module(f"usechat.adapters.{adapter}").source_of(object())


async def test_an_ag_ui_agent_of_this_process_needs_the_types_of_ag_ui(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ag_ui.core", None)
    with pytest.raises(MissingDependency, match=re.escape("run: pip install 'usechat[ag-ui]'")):
        await anext(AgUiSource(_run).events(turn_of(user("Hi."))))


def test_an_a2a_agent_at_an_address_needs_its_package_before_the_first_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "a2a.client", None)
    with pytest.raises(MissingDependency, match=re.escape("run: pip install 'usechat[a2a]'")):
        A2aEndpoint("http://127.0.0.1:9999")


async def _run(run_input: Any) -> AsyncIterator[Any]:
    yield run_input


def test_a_package_of_ones_own_may_be_called_like_a_framework_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide(monkeypatch, "openai_agents", "agents")
    own = type("Echo", (), {"__module__": "agents.echo", "__call__": lambda *_: "called"})
    assert isinstance(as_source(own()), FunctionSource)
