"""The example of a Genkit flow: it answers, and deletes only what a person allows."""

from pathlib import Path

import pytest

from usechat.genkit import GenkitChatTransport
from usechat.targets import load_object
from usechat.testing import AgentClient

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "genkit" / "notes.py"


def notes() -> GenkitChatTransport:
    return GenkitChatTransport(load_object(f"{EXAMPLE}:notes"), interrupts="approval", sdk="7")


def test_the_example_answers() -> None:
    with AgentClient(notes()) as client:
        answer = client.ask("hello")
        answer.assert_legal(sdk="7")
        assert answer.text.startswith("Your notes: ")


@pytest.mark.parametrize(("approved", "text"), [(False, "was kept."), (True, "was deleted.")])
def test_the_example_deletes_what_a_person_allows(approved: bool, text: str) -> None:
    store = load_object(f"{EXAMPLE}:NOTES")
    store["old"] = "Gone?"
    with AgentClient(notes(), approve=approved) as client:
        answer = client.ask("delete old")
        answer.assert_legal(sdk="7")
        # What a denied tool returned is shown, too, as a second call.
        assert [tool.name for tool in answer.tools] == ["delete"] * (1 if approved else 2)
        assert answer.text == f"The note old {text}"
    assert ("old" in store) is not approved
