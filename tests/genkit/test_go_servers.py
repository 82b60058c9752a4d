"""Agents on Genkit Go servers: a scripted server repeats what they send, because they cannot be installed here."""

from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.conformance.served import Served, serving
from tests.genkit import go_server
from tests.genkit.asking import answer, asked, shown, text_of, user
from usechat import UIMessage
from usechat.genkit import GenkitChatTransport, Respond, agent_input
from usechat.protocol.chunks import ToolOutputAvailableChunk


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving({"go": go_server.app()}) as running:
        yield running


def agent(served: Served, **options: Any) -> GenkitChatTransport:
    return GenkitChatTransport(f"http://127.0.0.1:{served.port}/go/agent", build_input=agent_input, sdk="7", **options)


async def answered(transport: GenkitChatTransport, message: UIMessage, *outcomes: dict[str, Any]) -> UIMessage:
    """Give the tools of a message their outcomes as a page does, and return the message with the rest of the answer."""
    parts = iter(outcomes)
    page_message: Any = {
        **message,
        "parts": [part | next(parts) if "toolCallId" in part else part for part in cast("list[Any]", message["parts"])],
    }
    return await answer(transport, asked(user("delete"), page_message), message=page_message)


async def test_two_calls_of_one_name_without_refs_are_shown_once_and_the_answers_reach_them(served: Served) -> None:
    transport = agent(served)
    waiting = await answer(transport, asked(user("delete")))
    assert shown(waiting)[1:] == [
        ("text", "May I?"),
        ("tool-delete", "input-available"),
        ("tool-delete", "input-available"),
    ]
    outputs = [{"state": "output-available", "output": output} for output in ("first", "second")]
    done = await answered(transport, waiting, *outputs)
    assert [part for part in shown(done) if part[0] == "tool-delete"] == [
        ("tool-delete", "first"),
        ("tool-delete", "second"),
    ]
    assert text_of(done) == "May I?Thanks."


def decision(approved: bool) -> dict[str, Any]:
    return {"state": "approval-responded", "approval": {"id": f"a-{approved}", "approved": approved}}


async def test_a_person_allows_one_call_and_denies_the_other(served: Served) -> None:
    transport = agent(served, interrupts="approval")
    waiting = await answer(transport, asked(user("delete")))
    done = await answered(transport, waiting, decision(True), decision(False))
    first, second, again = (part for part in cast("list[Any]", done["parts"]) if part["type"] == "tool-delete")
    assert first["output"] == "Rome is gone"
    assert (second["input"], second["state"]) == ({"city": "Paris"}, "output-denied")
    assert (again["input"], again["output"]) == ({"city": "Paris"}, "Paris is still there")


async def test_a_mapped_approval_is_a_response(served: Served) -> None:
    transport = agent(
        served, interrupts="approval", map_approval=lambda approval: Respond(f"{approval.input['city']}!")
    )
    waiting = await answer(transport, asked(user("delete")))
    done = await answered(transport, waiting, decision(True), decision(True))
    assert [output for kind, output in shown(done) if kind == "tool-delete"] == ["Rome!", "Paris!"]


async def test_progress_is_replaced_by_the_final_output(served: Served) -> None:
    chunks = [chunk async for chunk in await agent(served).send_messages(asked(user("progress")))]
    outputs = [chunk for chunk in chunks if isinstance(chunk, ToolOutputAvailableChunk)]
    assert [(chunk.output, bool(chunk.preliminary)) for chunk in outputs] == [
        ({"percent": 10}, True),
        ({"percent": 90}, True),
        ({"celsius": 4}, False),
    ]
