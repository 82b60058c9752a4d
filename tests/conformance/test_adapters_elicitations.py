"""A stock page answers what a real MCP server asks while an agent's tool runs."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.agents import Framework
from tests.adapters.scripts import Chat, Script, calls, shown
from tests.conformance.http_client import NEWEST, PATIENCE, Browser, text_of
from tests.conformance.served import serving
from usechat.pauses.questions import PAUSE_IS_GONE
from usechat.server import ChatApp, Settings
from usechat.testing import ModelCall

Json = Any
EXAMPLE = Path(__file__).parents[2] / "examples" / "mcp" / "agent.py"
PYDANTIC_AI, LANGGRAPH = (
    Framework(name=name, page=page, factory=f"eliciting_agents:{name}", apis=("chat",))
    for name, page in [("pydantic_ai", "pydantic-ai"), ("langgraph", "langgraph")]
)
FRIDAY, SUNDAY = (ModelCall("book", {"day": day}, id=f"call_{day}") for day in ("Friday", "Sunday"))


def questions(chat: Chat) -> list[Json]:
    parts = chat.page.look()["messages"][-1]["parts"]
    return [part for part in parts if part["type"] == "dynamic-tool" and part["state"] == "input-available"]


def output(question: Json, action: str, **content: Json) -> Json:
    answer = {"action": action, **({"content": content} if content else {})}
    return {"tool": "interrupt", "toolCallId": question["toolCallId"], "output": answer}


def booked(chat: Chat) -> dict[str, Json]:
    return {tool["toolCallId"]: tool.get("output") for tool in chat.tools()}


def _accepted(chat: Chat) -> None:
    chat.ask("Book a table on Friday.")
    [question] = questions(chat)
    assert (question["toolName"], question["input"]["message"]) == ("interrupt", "Which table on Friday?")
    assert question["input"]["requestedSchema"]["required"] == ["guests"]
    assert booked(chat) == {"call_Friday": None}
    chat.continued("addToolOutput", output(question, "accept", guests=9))
    [again] = questions(chat)
    assert again["input"]["error"] == "guests must be a whole number, at most 8."
    chat.continued("addToolOutput", output(again, "accept", guests=3, terrace=True))
    assert booked(chat) == {"call_Friday": "3 people on Friday, on the terrace."}
    assert text_of(chat.page.look()) == "Enjoy!"
    chat.ask("Thanks.")
    assert "interrupt" not in chat.asked()


def _declined(chat: Chat) -> None:
    chat.ask("Book a table on Friday.")
    chat.continued("addToolOutput", output(questions(chat)[0], "decline"))
    assert booked(chat) == {"call_Friday": "Nothing is booked on Friday (decline)."}
    assert text_of(chat.page.look()) == "As you like."


def _in_reverse_order(chat: Chat) -> None:
    chat.ask("Book a table on Friday and one on Sunday.")
    by_message = {question["input"]["message"]: question for question in questions(chat)}
    friday, sunday = by_message["Which table on Friday?"], by_message["Which table on Sunday?"]
    chat.continued("addToolOutput", output(sunday, "accept", guests=2), output(friday, "decline"))
    assert booked(chat) == {
        "call_Friday": "Nothing is booked on Friday (decline).",
        "call_Sunday": "2 people on Sunday, inside.",
    }
    assert text_of(chat.page.look()) == "Done."


def _another_message(chat: Chat) -> None:
    chat.ask("Book a table on Friday.")
    [question] = questions(chat)
    assert shown(chat.ask("Never mind.")) == ["As you like."]
    chat.page.call("addToolOutput", output(question, "accept", guests=2))
    assert shown(chat.ask("Are you there?")) == ["Yes."]


def _stopped(chat: Chat) -> None:
    chat.page.send("Book a table on Friday.")
    chat.page.until(lambda view: any(part["type"] == "dynamic-tool" for part in view["messages"][-1]["parts"]))
    chat.stop(lambda: True, "the turn ends", seconds=PATIENCE)  # clients of MCP wait for the server's process to end
    assert shown(chat.ask("Are you there?")) == ["Yes."]


SCRIPTS = [
    Script("accepted", [calls(FRIDAY), "Enjoy!", "You are welcome."], _accepted),
    Script("declined", [calls(FRIDAY), "As you like."], _declined),
    Script("in reverse order", [calls(FRIDAY, SUNDAY), "Done."], _in_reverse_order),
    Script("another message", [calls(FRIDAY), "As you like.", "Yes."], _another_message),
    Script("stopped", [calls(FRIDAY), "Yes."], _stopped),
]


@pytest.mark.parametrize("release", NEWEST)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_page_answers_what_an_mcp_server_asks(script: Script, release: str, browser: Browser) -> None:
    with script.chat(PYDANTIC_AI, "chat", release, browser) as chat:
        script.play(chat)


def test_a_tool_with_a_client_of_its_own_asks_in_a_graph(browser: Browser) -> None:
    with SCRIPTS[0].chat(LANGGRAPH, "chat", NEWEST[-1], browser) as chat:
        SCRIPTS[0].play(chat)


@pytest.mark.parametrize("release", NEWEST)
def test_the_page_hears_that_the_process_that_asked_is_gone(release: str, browser: Browser) -> None:
    settings = Settings(approval_secret="the same in both processes, so that both know what was asked")
    apps = {name: ChatApp(runpy.run_path(str(EXAMPLE))["agent"], settings=settings) for name in ("old", "new")}
    with serving(apps) as served:
        page = browser.open(release, f"{served.url('old')}?sdk={release}", chat_id="chat-1", automatic=["tools"])
        page.send("Friday")
        message = page.answer()
        [question] = [part for part in message["parts"] if part["type"] == "dynamic-tool"]
        messages = page.look()["messages"]
        reloaded = browser.open(
            release, f"{served.url('new')}?sdk={release}", chat_id="chat-1", messages=messages, automatic=["tools"]
        )
        reloaded.call("addToolOutput", output(question, "accept", guests=2))
        view = reloaded.until(lambda view: view["status"] == "error")
    assert view["error"] is not None
    assert PAUSE_IS_GONE in view["error"]["message"]
