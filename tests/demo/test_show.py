"""The show: each scene plays, shows the Python behind it, and leads on."""

import re
from typing import Any

import pytest

from tests.demo.asking import answered, cited, data, texts, tools, user
from usechat.demo.app import SUGGESTIONS
from usechat.demo.show import SCENES
from usechat.demo.survival import kill_server
from usechat.documentation import documentation
from usechat.errors import PublicError

pytestmark = pytest.mark.quick

WEEKEND, TEAM, FLOW, FORM, FILES, VERSIONS = SCENES


def answer_of(message: dict[str, Any], tool: str, **fields: Any) -> dict[str, Any]:
    """The message, after the page has answered the call of a tool."""
    parts = [{**part, **fields} if part["type"] == tool else part for part in message["parts"]]
    return {**message, "parts": parts}


def code_of(message: dict[str, Any]) -> str:
    """The Python that a message shows at its end; it is Python, and the link beside it leads to a section."""
    ending = texts(message)[-1].rpartition("The Python behind it")[2]
    match = re.fullmatch(r" \(\[documentation\]\(docs/([^)]+)\)\):\n\n```python\n(.+)\n```", ending, re.DOTALL)
    assert match is not None
    page, _, anchor = match[1].partition("#")
    assert page in documentation().pages
    assert not anchor or match[1] in [section.id for section in documentation().sections]
    compile(match[2], "scene", "exec")
    return match[2]


async def weekend(*, approved: bool) -> dict[str, Any]:
    chat = f"weekend {approved}"
    message = await answered(user(WEEKEND), chat=chat)
    [call] = [part for part in message["parts"] if part["type"] == "tool-book_seats"]
    approval = {"id": call["approval"]["id"], "approved": approved}
    return await answered(
        user(WEEKEND), answer_of(message, "tool-book_seats", state="approval-responded", approval=approval), chat=chat
    )


def test_the_page_opens_on_the_first_scene_alone() -> None:
    assert [text.rpartition(" | ")[2] for text in SUGGESTIONS] == [WEEKEND]


async def test_the_first_scene_thinks_calls_two_tools_at_once_and_asks() -> None:
    message = await answered(user(WEEKEND), chat="weekend")
    kinds = [part["type"] for part in message["parts"] if part["type"] != "step-start"]
    assert kinds == ["reasoning", "tool-get_weather", "tool-find_trains", "text", "tool-book_seats"]
    assert tools(message)["tool-book_seats"] == "approval-requested"
    assert data(message) == {}, "it waits: nothing leads on yet"


@pytest.mark.parametrize(
    ("approved", "state", "said"),
    [(True, "output-available", "Two seats are booked."), (False, "output-denied", "Then you take the car.")],
)
async def test_the_first_scene_ends_with_a_chart_sources_and_its_code(approved: bool, state: str, said: str) -> None:
    message = await weekend(approved=approved)
    assert tools(message)["tool-book_seats"] == state
    assert texts(message)[-1].startswith(said)
    assert data(message)["data-forecast"]["series"].keys() == {"Saturday", "Sunday"}
    assert len(cited(message)) == 2
    assert "ApprovalRequest(booking, booking)" in code_of(message)
    assert "turn.approvals" in code_of(message)
    assert "turn.step(" in code_of(message)


async def test_a_scene_leads_to_the_next_one() -> None:
    message = await weekend(approved=True)
    assert data(message)["data-suggestions"] == [f"Next: Several agents | {TEAM}"]


async def test_the_last_scene_leads_to_questions_that_are_answered() -> None:
    message = await answered(user(VERSIONS), chat="last")
    for number, question in enumerate(data(message)["data-suggestions"]):
        assert cited(await answered(user(question), chat=f"last {number}"))


async def test_two_agents_write_at_once() -> None:
    message = await answered(user(TEAM), chat="team")
    assert [part["data"]["name"] for part in message["parts"] if part["type"] == "data-agent"] == ["Scout", "Cook"]
    scout, cook, _ = texts(message)
    assert (scout[:14], scout[-6:], cook[:15]) == ("I look at maps", "fresh.", "I look at menus")
    assert "lane=" in code_of(message)


async def test_two_nodes_of_a_flow_run_side_by_side() -> None:
    message = await answered(user(FLOW), chat="party")
    assert [node["id"] for node in data(message)["data-flow-graph"]["nodes"]] == ["snacks", "drinks", "menu"]
    assert data(message)["data-flow-status"]["status"] == "complete"
    assert "load_flow" in code_of(message)
    assert data(message)["data-suggestions"] == [f"Next: A form | {FORM}"]


@pytest.mark.parametrize(("sea", "place"), [(True, "Cascais"), (False, "Sintra")])
async def test_a_form_is_asked_and_its_answer_used(sea: bool, place: str) -> None:
    message = await answered(user(FORM), chat=f"form {sea}")
    assert tools(message) == {"tool-interrupt": "input-available"}
    output = {"who": "Two of us", "days": 3, "sea": sea}
    message = await answered(
        user(FORM),
        answer_of(message, "tool-interrupt", state="output-available", output=output),
        chat=f"form {sea}",
    )
    assert f"For two of us, 3 days: **{place}**." in texts(message)[-1]
    assert "requestedSchema" in code_of(message)


async def test_a_file_and_an_image_are_made() -> None:
    message = await answered(user(FILES), chat="files")
    kinds = [(part["mediaType"], part["url"].partition(",")[0]) for part in message["parts"] if part["type"] == "file"]
    assert kinds == [("image/png", "data:image/png;base64"), ("text/csv", "data:text/csv;base64")]
    assert "yield File(" in code_of(message)


async def test_another_version_says_something_else() -> None:
    one, other = [texts(await answered(user(VERSIONS), chat=f"version {number}"))[0] for number in range(2)]
    assert one.partition(".")[0] != other.partition(".")[0]


async def test_a_server_that_nobody_starts_again_is_not_killed() -> None:
    assert tools(await weekend(approved=True)).keys() == {"tool-get_weather", "tool-find_trains", "tool-book_seats"}
    with pytest.raises(PublicError, match="this one was not killed"):
        await kill_server()


async def test_a_scene_that_is_played_again_makes_calls_of_its_own() -> None:
    """The hooks take the output of a call for that of the first one in the chat with its id."""
    first = await answered(user(FORM), chat="again")
    second = await answered(user(FORM), first, user(FORM, 2), chat="again")
    calls = [part["toolCallId"] for each in (first, second) for part in each["parts"] if "toolCallId" in part]
    assert len(calls) == len(set(calls)) == 2
