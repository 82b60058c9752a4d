"""A free-form ``interrupt(value)`` of a graph is a question that a stock page can answer."""

import pytest

from tests.adapters.agents import Framework
from tests.adapters.scripts import Chat, Script
from tests.conformance.http_client import NEWEST, Browser, text_of

ASKING = Framework(name="a graph that asks", page="langgraph", factory="langgraph_agent:asking", apis=("chat",))


def _answer(chat: Chat) -> None:
    message = chat.ask("Delete something.")
    [question] = [part for part in message["parts"] if part["type"] == "dynamic-tool"]
    assert (question["toolName"], question["state"], question["input"]) == (
        "interrupt",
        "input-available",
        {"question": "Which file?"},
    )
    assert chat.deeds.done == []
    chat.continued("addToolOutput", {"tool": "interrupt", "toolCallId": question["toolCallId"], "output": "a"})
    assert text_of(chat.page.look()) == "a is gone"
    assert chat.deeds.done == ["delete a"]


@pytest.mark.parametrize("release", NEWEST)
def test_a_question_of_a_node_is_answered_by_the_page(release: str, browser: Browser) -> None:
    script = Script("a question", [], _answer)
    with script.chat(ASKING, "chat", release, browser) as chat:
        script.play(chat)
