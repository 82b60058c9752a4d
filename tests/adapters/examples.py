"""What every example and page of a framework must do, whichever environment its packages are in."""

import re
import runpy
from typing import Any

import pytest

from scripts.generate_docs import ROOT
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

FILES = ROOT / "examples" / "frameworks"


def check_example(name: str, target: str, monkeypatch: pytest.MonkeyPatch, *, prefix: str = "") -> None:
    """The agent of an example answers with its tool, and asks before it deletes."""
    weather = ModelAnswer(calls=[ModelCall(f"{prefix}weather", {"city": "Paris"})])
    delete = ModelAnswer(calls=[ModelCall(f"{prefix}delete_note", {"name": "todo"})])
    assert len((FILES / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 40
    with ScriptedModel([weather, "It is 21 °C.", delete, "It is deleted."]) as model:
        for provider, url in (("OPENAI", model.openai_url), ("ANTHROPIC", model.anthropic_url)):
            monkeypatch.setenv(f"{provider}_BASE_URL", url)
            monkeypatch.setenv(f"{provider}_API_BASE", url)  # LlamaIndex
            monkeypatch.setenv(f"{provider}_API_KEY", "none")
        monkeypatch.setenv("AGNO_TELEMETRY", "false")
        agent = runpy.run_path(str(FILES / f"{name}.py"))[target]
        with AgentClient(agent, approve=True, headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("How is the weather?")
            assert (answer.tools[0].output, answer.text) == ({"city": "Paris", "celsius": 21}, "It is 21 °C.")
            answer.assert_legal(sdk="7")
            answer = client.ask("Delete the note.")
            assert (answer.tools[0].output, answer.text) == ("todo is deleted.", "It is deleted.")
        assert model.refusals == []


def check_page(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python code of a framework's page runs, and shows all ways to serve its agents."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    text = (ROOT / "docs" / "frameworks" / f"{page}.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "example"}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, f"docs/frameworks/{page}.md", "exec"), names)
    assert {"app", "source", "parts"} <= names.keys()
