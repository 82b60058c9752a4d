"""The agents of the examples answer as they are, with a scripted model; the code of the pages runs."""

import pytest

from tests.adapters.examples import check_example, check_page


@pytest.mark.parametrize(
    ("name", "target"),
    [("langgraph_agent", "graph"), ("openai_agents_agent", "agent"), ("pydantic_ai_agent", "agent")],
)
def test_a_short_example_answers_and_asks_for_an_approval(
    name: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_example(name, target, monkeypatch)


@pytest.mark.parametrize("page", ["langgraph", "openai-agents", "pydantic-ai"])
def test_the_code_of_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_page(page, monkeypatch)
