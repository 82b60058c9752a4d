"""The tour: each step shows what it says, and says how."""

import re
from typing import Any

import pytest

from tests.demo.asking import answered, cited, guide, texts, tools, user
from usechat.demo.app import SUGGESTIONS
from usechat.demo.tour import STEPS
from usechat.documentation import documentation
from usechat.protocol.chunks import TextDeltaChunk
from usechat.protocol.request import ChatRequest

pytestmark = pytest.mark.quick


def how(message: dict[str, Any]) -> str:
    """The section to which the line of a message that names the code links."""
    return linked(texts(message)[-1])


def linked(text: str) -> str:
    """The section to which the line that names the code links."""
    found = re.search(r"\n\nThe code: `[^`]+` \(\[documentation\]\(docs/([^)]+)\)\)\.(?=\n|$)", text)
    assert found is not None
    assert found[1] in [section.id for section in documentation().sections]
    return found[1]


def test_the_page_offers_every_step_in_its_order() -> None:
    assert [text.removeprefix("Show ") for text in SUGGESTIONS[: len(STEPS)]] == [
        "streaming with reasoning",
        "two tools at once",
        "an approval and its effect",
        "a tool that runs in my browser",
        "a file and an image",
        "progress and a chart",
        "sources",
        "a flow with two parallel nodes",
        "an error that is redacted",
        "a stop and a resume",
    ]


@pytest.mark.parametrize(
    "text", [text for text in STEPS if "approval" not in text and "browser" not in text and "error" not in text]
)
async def test_a_step_says_how_its_code_looks(text: str) -> None:
    assert how(await answered(user(text), chat=text))


async def test_a_step_that_is_stopped_has_said_how_its_code_looks() -> None:
    message = await answered(user("Show a stop and a resume"), chat="stopped")
    before, _, after = texts(message)[-1].partition("The code: ")
    assert "press Stop" in before
    assert after.rstrip().endswith(" 120")


async def test_reasoning_comes_before_the_text() -> None:
    message = await answered(user("Show streaming with reasoning"), chat="streaming")
    assert [part["type"] for part in message["parts"] if part["type"] != "step-start"] == ["reasoning", "text"]


async def test_two_tools_run_at_once() -> None:
    message = await answered(user("Show two tools at once"), chat="tools")
    calls = [part for part in message["parts"] if part["type"] == "tool-weather"]
    assert [(call["input"]["city"], call["output"]["celsius"]) for call in calls] == [("Lisbon", 21), ("Oslo", -3)]


@pytest.mark.parametrize(
    ("approved", "state", "said"),
    [(True, "output-available", "You approved"), (False, "output-denied", "You denied it")],
)
async def test_an_approval_has_an_effect(approved: bool, state: str, said: str) -> None:
    asked = user("Show an approval and its effect")
    message = await answered(asked, chat=f"tour {approved}")
    assert tools(message) == {"tool-delete_notes": "approval-requested"}
    for part in message["parts"]:
        if part["type"] == "tool-delete_notes":
            part |= {"state": "approval-responded", "approval": {"id": part["approval"]["id"], "approved": approved}}
    message = await answered(asked, message, chat=f"tour {approved}")
    assert tools(message) == {"tool-delete_notes": state}
    assert texts(message)[-1].startswith(said)
    assert how(message)


async def test_the_browser_tells_its_time() -> None:
    asked = user("Show a tool that runs in my browser")
    message = await answered(asked, chat="clock")
    assert tools(message) == {"tool-browser_time": "input-available"}
    for part in message["parts"]:
        if part["type"] == "tool-browser_time":
            part |= {"state": "output-available", "output": {"time": "12:34", "timeZone": "Europe/Lisbon"}}
    message = await answered(asked, message, chat="clock")
    assert texts(message)[-1].startswith("Your browser says that it is 12:34 (Europe/Lisbon).")
    assert how(message)


@pytest.mark.parametrize(
    "text", ["Show two tools at once", "Show an approval and its effect", "Show a tool that runs in my browser"]
)
async def test_a_step_that_is_asked_for_again_makes_calls_of_its_own(text: str) -> None:
    """The hooks take the output of a call for that of the first one in the chat with its id."""
    first = await answered(user(text), chat=f"again {text}")
    second = await answered(user(text), first, user(text, 2), chat=f"again {text}")
    calls = [part["toolCallId"] for each in (first, second) for part in each["parts"] if "toolCallId" in part]
    assert len(calls) == len(set(calls)) >= 2


async def test_a_file_and_an_image_are_made() -> None:
    message = await answered(user("Show a file and an image"), chat="files")
    kinds = [(part["mediaType"], part["url"].partition(",")[0]) for part in message["parts"] if part["type"] == "file"]
    assert kinds == [("image/png", "data:image/png;base64"), ("text/csv", "data:text/csv;base64")]


async def test_progress_is_one_part_that_changes() -> None:
    message = await answered(user("Show progress and a chart"), chat="data")
    data = {part["type"]: part["data"] for part in message["parts"] if part["type"].startswith("data-")}
    assert data["data-progress"] == {"percent": 100, "label": "Counting the visitors"}
    assert len(data["data-week"]["series"][0]["values"]) == len(data["data-week"]["labels"]) == 7


async def test_sources_lead_to_pages() -> None:
    message = await answered(user("Show sources"), chat="sources")
    assert cited(message) == ["docs/serving.md", "docs/chats.md"]


async def test_an_error_is_redacted() -> None:
    request = ChatRequest.parse({"id": "failing", "messages": [user("Show an error that is redacted")]})
    chunks = [chunk async for chunk in await guide().send_messages(request)]
    assert "swordfish" not in str(chunks)
    assert "Reference" in str(chunks)
    said = "".join(chunk.delta for chunk in chunks if isinstance(chunk, TextDeltaChunk))
    assert linked(said).startswith("errors.md#")


async def test_two_nodes_run_side_by_side() -> None:
    message = await answered(user("Show a flow with two parallel nodes"), chat="party")
    data = [part for part in message["parts"] if part["type"] == "data-node-status"]
    assert {part["data"]["nodeId"]: part["data"]["status"] for part in data} == dict.fromkeys(
        ("snacks", "drinks", "menu"), "complete"
    )
    assert how(message) == "open-harness-reference.md#the-flow-file"
    assert [part["type"] for part in message["parts"]].count("text") == 3
