"""What happens where a framework is not installed."""

import re
import sys
from importlib import import_module

import pytest

from usechat.errors import MissingDependency
from usechat.sources import FunctionSource, as_source

FRAMEWORKS = [
    ("langgraph", "langgraph.graph", "langgraph"),
    ("openai_agents", "agents", "openai-agents"),
    ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
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


def test_a_package_of_ones_own_may_be_called_like_a_framework_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hide(monkeypatch, "openai_agents", "agents")
    own = type("Echo", (), {"__module__": "agents.echo", "__call__": lambda *_: "called"})
    assert isinstance(as_source(own()), FunctionSource)
