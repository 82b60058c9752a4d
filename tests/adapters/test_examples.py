"""The agents of the examples answer as they are, with a scripted model; the code of the pages runs."""

import re
import runpy
from typing import Any

import pytest

from scripts.generate_docs import ROOT
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

EXAMPLES = {"langgraph_agent": "graph", "openai_agents_agent": "agent", "pydantic_ai_agent": "agent"}
WEATHER = ModelAnswer(calls=[ModelCall("weather", {"city": "Paris"})])
DELETE = ModelAnswer(calls=[ModelCall("delete_note", {"name": "todo"})])


@pytest.mark.parametrize(("name", "target"), EXAMPLES.items())
def test_an_example_answers_and_asks_for_an_approval(name: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedModel([WEATHER, "It is 21 °C.", DELETE, "It is deleted."]) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        agent = runpy.run_path(str(ROOT / "examples" / "frameworks" / f"{name}.py"))[target]
        with AgentClient(agent, approve=True, headers={"x-ai-sdk": "7"}) as client:
            answer = client.ask("How is the weather?")
            assert (answer.tools[0].output, answer.text) == ({"city": "Paris", "celsius": 21}, "It is 21 °C.")
            answer.assert_legal(sdk="7")
            answer = client.ask("Delete the note.")
            assert (answer.tools[0].output, answer.text) == ("todo is deleted.", "It is deleted.")
        assert model.refusals == []


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_short(name: str) -> None:
    assert len((ROOT / "examples" / "frameworks" / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 40


@pytest.mark.parametrize("page", ["langgraph", "openai-agents", "pydantic-ai"])
def test_the_code_of_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    text = (ROOT / "docs" / "frameworks" / f"{page}.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": "example"}
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(block, f"docs/frameworks/{page}.md", "exec"), names)
    assert {"app", "source", "parts"} <= names.keys()
