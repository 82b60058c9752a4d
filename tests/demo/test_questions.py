"""What the demo answers: the right page for each question, and an honest no."""

import re

import pytest

from tests.demo.asking import answered, cited, texts, tools, user
from tests.demo.questions import UNSEEN
from usechat.demo.app import SUGGESTIONS, Guide
from usechat.demo.library import library
from usechat.demo.models import registry_for
from usechat.demo.script import NOTHING_FOUND, compose
from usechat.runs.transport import RunChatTransport

QUESTIONS = {
    "How does a page resume after a reload?": ("serving.md", "resume.md"),
    "How do I add a stop button?": ("serving.md", "resume.md"),
    "What happens to a second message while the chat is answered?": ("serving.md", "resume.md"),
    "Which routes are there?": ("serving.md",),
    "How are errors shown to people?": ("serving.md", "errors.md"),
    "How do several workers share runs with Redis?": ("serving.md", "deploy.md"),
    "What happens to runs when the server is shutting down?": ("serving.md", "deploy.md"),
    "How do I accept JSON Web Tokens?": ("auth.md",),
    "How are API tokens stored?": ("auth.md",),
    "How can pages of other origins ask?": ("auth.md",),
    "Which metrics are exposed to Prometheus?": ("metrics.md",),
    "Are there alerts?": ("metrics.md",),
    "Does it write OpenTelemetry spans?": ("metrics.md",),
    "Which formats can the check report have?": ("cli.md",),
    "What does UC014 mean, a compressed stream?": ("rules.md",),
    "Which AI SDK release knows which chunk?": ("releases.md",),
    "How are Python values turned into JSON?": ("values.md",),
    "What is a flow file?": ("open-harness.md",),
    "How do I record an agent for replay?": ("open-harness.md",),
    "How do I reach flows behind a WebSocket?": ("open-harness.md",),
}


def prose(text: str) -> str:
    """A page without its code."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


@pytest.mark.parametrize(("question", "pages"), QUESTIONS.items(), ids=QUESTIONS)
async def test_the_right_page_is_cited(question: str, pages: tuple[str, ...]) -> None:
    message = await answered(user(question), chat=question)
    assert cited(message)[0].startswith(tuple(f"docs/{page}#" for page in pages))
    assert f"({cited(message)[0]})" in texts(message)[-1]


async def test_what_the_documentation_does_not_say_is_said_so() -> None:
    message = await answered(user("What is the capital of Mongolia?"), chat="mongolia")
    assert texts(message)[-1].startswith(NOTHING_FOUND)
    assert cited(message) == []


async def test_the_nearest_headings_are_named_when_nothing_was_found() -> None:
    message = await answered(user("Do the giraffes, zebras, hippos and okapis of a zoo need Redis?"), chat="giraffes")
    said = texts(message)[-1]
    assert said.startswith(f"{NOTHING_FOUND} The nearest headings: [")
    assert "#several-workers-share-runs-with-redis)" in said
    assert cited(message) == []


async def test_no_text_names_files_or_tools() -> None:
    asked = ["How do I add a stop button?", "What is (17 + 4) * 2?", "What is the weather in Lisbon?", *[*UNSEEN][::8]]
    for question in asked:
        message = await answered(user(question), chat=f"plumbing {question}")
        shown = re.sub(r"\]\([^)]*\)", "]", "\n".join(texts(message)))
        assert not re.search(r"\.md\b|search_docs|calculate said|Error:", shown)


def test_each_link_of_a_page_leads_to_a_section_or_to_the_web() -> None:
    pages = library().pages
    links = [
        (name, link) for name, text in pages.items() for link in re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(text))
    ]
    known = {section.link for section in library().sections} | {f"docs/{name}" for name in pages}
    lost = [(name, link) for name, link in links if "://" not in link and link not in known]
    assert [each for each in lost if each[1].partition("#")[0] not in known] == []
    assert links


@pytest.mark.parametrize(
    ("question", "begins", "page"),
    [
        ("What is usechat?", "The Python side of `useChat`", "README.md"),
        ("What is Agent Ops?", "An agent session runs behind a WebSocket", "agent-ops.md"),
        ("What does the demo do?", "Try usechat in your browser. The demo needs no API key", "page.md"),
        ("inspector", "It shows every frame as it arrived", "page.md"),
        ("What is 7 * 6 and what does the inspector show?", "The result is **42**.\n\nIt shows every frame", "page.md"),
    ],
)
async def test_an_answer_reads_like_one(question: str, begins: str, page: str) -> None:
    message = await answered(user(question), chat=question)
    answer = texts(message)[-1]
    assert answer.startswith(begins)
    assert cited(message)[0].startswith(f"docs/{page}#")
    assert answer.count("```") % 2 == 0
    assert not re.search(r"\]\((?!docs/|https?:)", answer), "each link leads somewhere"


@pytest.mark.parametrize(
    ("question", "begins", "section"),
    [
        ("How does a page resume after a reload?", "A page that uses `resume: true`", "resume.md#resume"),
        ("How do I store chats in a database?", "Store chats in a file with one option:", "chats.md#store-your-chats"),
    ],
)
async def test_a_question_that_the_page_suggests_is_answered_from_its_section(
    question: str, begins: str, section: str
) -> None:
    assert question in SUGGESTIONS
    message = await answered(user(question), chat=f"suggested {question}")
    assert texts(message)[-1].startswith(begins)
    assert cited(message)[0] == f"docs/{section}"


async def test_of_a_long_list_the_lines_are_quoted_that_are_asked_for() -> None:
    answer = texts(await answered(user("how do I change the port?"), chat="port"))[-1]
    assert "--port PORT" in answer
    assert answer.count("```") == 2
    assert answer.splitlines().count("…") == 2, "lines before and after them are left out"


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 40])
@pytest.mark.parametrize(("above", "row", "below"), [("```python\n", "zebra({})", "\n```"), ("|a|\n|-|\n", "|{}|", "")])
def test_code_and_tables_of_any_length_are_quoted(rows: int, above: str, row: str, below: str) -> None:
    listed = [row.format(number) for number in range(rows)]
    section = "### [Zoo](docs/zoo.md#zoo)\n\n" + above + "\n".join(listed) + below
    prompt = f"Question: zebra\n\nWhat the researcher said: -\n\nSections:\n\n{section}\n\nNearest headings: none"
    answer = compose(prompt)
    assert [line for line in answer.splitlines() if line in listed] == listed[:16]
    assert ("…" in answer) is (rows > 16)


async def test_everyday_words_do_not_choose_what_is_quoted() -> None:
    answer = texts(await answered(user("list of all chunk types on the wire"), chat="chunk types"))[-1]
    assert answer.startswith("A chunk is a JSON object with a `type`.")


@pytest.mark.parametrize(
    "question",
    ["help", "Who are you?", "are you an AI", "What can I ask you?", "which model do you use?", "what can you do"],
)
async def test_a_question_about_the_one_who_answers(question: str) -> None:
    message = await answered(user(question), chat=f"itself {question}")
    assert texts(message)[-1].startswith("I answer questions about usechat from its own documentation, with a script")
    assert cited(message) == []


@pytest.mark.parametrize(("said", "answer"), [("hello", "Hello! I answer"), ("thanks!", "You are welcome. I answer")])
async def test_a_greeting_is_returned(said: str, answer: str) -> None:
    message = await answered(user(said), chat=said)
    assert texts(message)[-1].startswith(answer)
    assert cited(message) == []


async def test_a_model_that_is_named_answers_with_the_same_tools() -> None:
    """The model `test` of pydantic-ai calls each tool that it is given, and then says what they returned."""
    guide = RunChatTransport(Guide(registry_for("test"), pace=0), sdk="7")
    message = await answered(user("How do I add a stop button?"), chat="model", by=guide)
    assert sorted(tools(message)) == ["tool-calculate", "tool-search_docs", "tool-weather"]
    assert "From [" not in texts(message)[-1], "the script would quote"


async def test_the_calculator() -> None:
    message = await answered(user("What is (17 + 4) * 2?"), chat="sum")
    assert tools(message) == {"tool-calculate": "output-available"}
    assert texts(message) == ["- Result: 42", "The result is **42**."]


async def test_the_tool_that_fails() -> None:
    message = await answered(user("What is the weather in Lisbon?"), chat="weather")
    assert tools(message) == {"tool-weather": "output-error"}
    reason = "The weather service for Lisbon cannot be reached."
    assert texts(message) == [f"- No result: {reason}", f"That did not work: {reason}"]


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
        "researcher",
        "reader",
        "writer",
        "sources",
    ]
    assert data["data-flow-status"] == {"status": "complete", "flowName": "usechat-guide"}
