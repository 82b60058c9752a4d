"""The example of a Genkit flow: it answers, and deletes only what a person allows."""

from pathlib import Path
from typing import Any, cast

import pytest

from tests.genkit.asking import answer, asked, text_of, user
from usechat.cli.targets import load_object
from usechat.genkit import GenkitChatTransport

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "genkit" / "notes.py"


def notes() -> GenkitChatTransport:
    return GenkitChatTransport(load_object(f"{EXAMPLE}:notes"), interrupts="approval", sdk="7")


async def test_the_example_answers() -> None:
    assert text_of(await answer(notes(), asked(user("hello")))).startswith("Your notes: ")


@pytest.mark.parametrize(("approved", "text"), [(False, "was kept."), (True, "was deleted.")])
async def test_the_example_deletes_what_a_person_allows(approved: bool, text: str) -> None:
    kept = load_object(f"{EXAMPLE}:NOTES")
    kept["old"] = "Gone?"
    waiting: Any = await answer(notes(), asked(user("delete old")))
    call = cast("list[Any]", waiting["parts"])[-1]
    assert (call["type"], call["state"]) == ("tool-delete", "approval-requested")
    call |= {"state": "approval-responded", "approval": {"id": call["approval"]["id"], "approved": approved}}
    done = await answer(notes(), asked(user("delete old"), waiting), message=waiting)
    assert text_of(done) == f"The note old {text}"
    assert ("old" in kept) is not approved
