"""The example of a Genkit flow: it answers, and deletes only what a person allows."""

from pathlib import Path

import pytest

from usechat.cli.targets import load_object
from usechat.genkit import GenkitChatTransport
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
    kept = load_object(f"{EXAMPLE}:NOTES")
    kept["old"] = "Gone?"
    with AgentClient(notes(), approve=approved) as client:
        answer = client.ask("delete old")
        answer.assert_legal(sdk="7")
        assert [tool.name for tool in answer.tools] == ["delete"]
        assert answer.text == f"The note old {text}"
    assert ("old" in kept) is not approved
