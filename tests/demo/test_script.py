"""What the demo answers: quotes of the guides with their links, and an honest no."""

import re

import pytest

from tests.demo.asking import answered, cited, texts, tools, user
from usechat.demo.app import SUGGESTIONS, Guide
from usechat.demo.models import registry_for
from usechat.demo.script import NOTHING_FOUND
from usechat.demo.tour import STEPS
from usechat.documentation import documentation
from usechat.runs.settings import Settings
from usechat.runs.transport import RunChatTransport


@pytest.mark.parametrize(
    ("question", "section"),
    [
        ("How do I add a stop button?", "resume.md#a-stop-button"),
        ("Does it write OpenTelemetry spans?", "metrics.md#"),
        ("How do I accept JSON Web Tokens?", "auth.md#"),
    ],
)
async def test_the_best_passages_are_quoted_with_their_links(question: str, section: str) -> None:
    message = await answered(user(question), chat=question)
    answer = texts(message)[-1]
    passages = documentation().search(question)
    assert cited(message) == [f"docs/{passage.section.id}" for passage in passages]
    assert cited(message)[0].startswith(f"docs/{section}")
    assert re.findall(r"^From \[.*\]\((.*)\)\.$", answer, re.MULTILINE) == cited(message)
    assert answer.count("```") % 2 == 0
    assert not re.search(r"\]\((?!docs/|https?:)", answer), "each link leads somewhere"


@pytest.mark.parametrize("question", [each for each in SUGGESTIONS if each not in STEPS])
async def test_a_question_that_the_page_suggests_is_answered(question: str) -> None:
    assert cited(await answered(user(question), chat=f"suggested {question}"))


async def test_what_the_documentation_does_not_say_is_said_so() -> None:
    message = await answered(user("What is the capital of Mongolia?"), chat="mongolia")
    assert texts(message) == [NOTHING_FOUND]
    assert cited(message) == []


async def test_a_sum_and_a_question_are_answered_together() -> None:
    message = await answered(user("What is 7 * 6 and how do I add a stop button?"), chat="both")
    assert texts(message)[-1].startswith("The result is **42**.\n\n")
    assert cited(message)[0] == "docs/resume.md#a-stop-button"


@pytest.mark.parametrize("text", ["hello", "thanks!", "help", "Hi there", "Who are you?", "What can I ask you?"])
async def test_small_talk_is_answered_without_a_search(text: str) -> None:
    message = await answered(user(text), chat=text)
    assert texts(message)[-1].startswith("I answer questions about usechat with quotes from its documentation")
    assert (tools(message), cited(message)) == ({}, [])


async def test_a_model_that_is_named_answers_with_the_same_tools() -> None:
    """The model `test` of pydantic-ai calls each tool that it is given, and then says what they returned."""
    guide = RunChatTransport(Guide(registry_for("test"), pace=0), settings=Settings(sdk="7"))
    message = await answered(user("How do I add a stop button?"), chat="model", by=guide)
    assert sorted(tools(message)) == ["tool-calculate", "tool-search_docs", "tool-weather"]
    assert "From [" not in texts(message)[-1], "the script would quote"


async def test_the_calculator() -> None:
    message = await answered(user("What is (17 + 4) * 2?"), chat="sum")
    assert tools(message) == {"tool-calculate": "output-available"}
    assert texts(message) == ["The result is **42**."]


async def test_the_tool_that_fails() -> None:
    message = await answered(user("What is the weather in Lisbon?"), chat="weather")
    assert tools(message) == {"tool-weather": "output-error"}
    assert texts(message) == ["That did not work: The weather service for Lisbon cannot be reached."]


@pytest.mark.parametrize(
    ("approved", "state", "said"),
    [(True, "output-available", "The notes are gone."), (False, "output-denied", "Then the notes stay.")],
)
async def test_the_tool_that_asks(approved: bool, state: str, said: str) -> None:
    chat = f"notes {approved}"
    message = await answered(user("Please delete my notes"), chat=chat)
    assert tools(message) == {"tool-approve": "approval-requested"}
    for part in message["parts"]:
        if part["type"] == "tool-approve":
            part |= {"state": "approval-responded", "approval": {"id": part["approval"]["id"], "approved": approved}}
    message = await answered(user("Please delete my notes"), message, chat=chat)
    assert tools(message) == {"tool-approve": state}
    assert texts(message)[-1].startswith(said)


async def test_the_flow_can_be_drawn_from_the_message_alone() -> None:
    message = await answered(user("Which routes are there?"), chat="drawn")
    data = {part["type"]: part["data"] for part in message["parts"] if part["type"].startswith("data-")}
    assert [node["id"] for node in data["data-flow-graph"]["nodes"]] == [
        "desk",
        "clerk",
        "guide",
        "sources",
    ]
    assert data["data-flow-status"] == {"status": "complete", "flowName": "usechat-guide"}
