"""What the demo answers: quotes of the guides with their links, and an honest no."""

import re

import pytest

from tests.demo.asking import answered, cited, texts, tools, user
from usechat.demo.app import Guide
from usechat.demo.models import model_for
from usechat.demo.script import NOTHING_FOUND
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


async def test_what_the_documentation_does_not_say_is_said_so() -> None:
    message = await answered(user("What is the capital of Mongolia?"), chat="mongolia")
    assert texts(message) == [NOTHING_FOUND]
    assert cited(message) == []


@pytest.mark.parametrize("text", ["hello", "thanks!", "help", "Hi there", "Who are you?", "What can I ask you?"])
async def test_small_talk_is_answered_without_a_search(text: str) -> None:
    message = await answered(user(text), chat=text)
    assert texts(message)[-1].startswith("I answer questions about usechat with quotes from its documentation")
    assert (tools(message), cited(message)) == ({}, [])


async def test_a_model_that_is_named_answers_with_the_same_tool() -> None:
    """The model `test` of pydantic-ai calls each tool that it is given, and then says what they returned."""
    guide = RunChatTransport(Guide(model_for("test"), pace=0), settings=Settings(sdk="7"))
    message = await answered(user("How do I add a stop button?"), chat="model", by=guide)
    assert tools(message) == {"tool-search_docs": "output-available"}
    assert "From [" not in texts(message)[-1], "the script would quote"
