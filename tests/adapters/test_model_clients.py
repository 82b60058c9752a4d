"""The example and the page of model clients, with the real clients and a scripted model."""

import re
import runpy
from typing import Any

import pytest

from scripts.generate_docs import ROOT
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

EXAMPLE = ROOT / "examples" / "frameworks" / "model_client.py"
PAGE = ROOT / "docs" / "frameworks" / "model-clients.md"


def test_the_example_runs_its_tool_and_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 40
    weather = ModelAnswer(calls=[ModelCall("weather", {"city": "Paris"})])
    with ScriptedModel([weather, "It is 21 °C."]) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        with AgentClient(runpy.run_path(str(EXAMPLE))["agent"]) as client:
            answer = client.ask("How is the weather?")
        assert (answer.tools[0].output, answer.text) == ({"city": "Paris", "celsius": 21}, "It is 21 °C.")
        assert model.refusals == []


def test_the_code_of_the_page_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedModel(["Hello."]) as model:
        monkeypatch.setenv("OPENAI_BASE_URL", model.openai_url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        names: dict[str, Any] = {"__name__": "example"}
        for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
            exec(compile(block, str(PAGE), "exec"), names)
        with AgentClient(names["agent"]) as client:
            assert client.ask("Hi.").text == "Hello."
        assert model.refusals == []
