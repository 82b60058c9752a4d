"""What the sources of several frameworks share."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.adapters.turns import assistant, text, turn_of, user
from usechat.adapters.framework import emitted, for_turn, imported, kept_count, question_id, without_results
from usechat.errors import MissingDependency
from usechat.testing import AgentClient
from usechat.turn import Turn


@pytest.mark.parametrize(
    ("question_ids", "message_ids", "count"),
    [
        ([], ["u1"], 0),
        (["u1", "", "u2"], ["u1", "u2", "u3"], 3),
        (["u1", "", "u2", "u3"], ["u1", "u2"], 2),
        (["u1", "u1", "u2"], ["u1"], 0),
        (["u1", "", "u2", "u3"], ["u1", "other"], 2),
        (["u1", "u2", "u1", ""], ["u1", "u3"], 4),
        (["u1", "u2"], ["u3"], 2),
        (["u1", "u2"], ["u8", "u9"], 2),
    ],
    ids=[
        "no memory",
        "a new message",
        "regenerated",
        "the first one regenerated",
        "another message instead of the second",
        "a message after one that was answered twice",
        "a page that sends the last message alone",
        "messages that are not known",
    ],
)
async def test_what_was_regenerated_or_edited_away_is_not_kept(
    question_ids: list[str], message_ids: list[str], count: int
) -> None:
    assert kept_count(question_ids, turn_of(*(user("Hi.", message_id) for message_id in message_ids))) == count


async def test_a_turn_answers_the_last_message_of_the_user() -> None:
    assert question_id(turn_of(user("Hi.", "u1"), assistant(text("Hello.")))) == "u1"


async def _text_of(turn: Turn) -> dict[str, str]:
    return {"text": turn.text}


@pytest.mark.parametrize("value", [{"text": "Hi."}, lambda turn: {"text": turn.text}, _text_of])
def test_what_a_run_needs_is_a_value_or_made_from_the_turn(value: Any) -> None:
    async def agent(turn: Turn) -> str:
        return str(await for_turn(value, turn))

    with AgentClient(agent) as client:
        assert client.ask("Hi.").text == "{'text': 'Hi.'}"


def test_only_the_results_of_these_calls_are_left_out() -> None:
    def result(call_id: str) -> dict[str, object]:
        return {
            "type": "tool-result",
            "toolCallId": call_id,
            "toolName": "dig",
            "output": {"type": "text", "value": ""},
        }

    messages = [
        {"role": "user", "content": []},
        {"role": "tool", "content": [result("c1"), result("c2")]},
        {"role": "tool", "content": [result("c1")]},
    ]
    assert list(without_results(messages, {"c1"})) == [messages[0], {"role": "tool", "content": [result("c2")]}]  # type: ignore[arg-type]


def test_a_module_that_is_not_installed_is_a_missing_dependency() -> None:
    assert imported("json", "json", "json").loads("1") == 1
    with pytest.raises(MissingDependency, match=r"usechat\[nothing\]"):
        imported("no_such_framework.agents", "nothing", "nothing")


async def test_what_a_function_emits_is_yielded_in_order_from_any_thread() -> None:
    async def run(emit: Callable[[int], None]) -> None:
        emit(1)
        await asyncio.to_thread(emit, 2)
        emit(3)

    assert [event async for event in emitted(run)] == [1, 2, 3]


async def test_what_a_function_raises_is_raised_after_its_events() -> None:
    async def run(emit: Callable[[int], None]) -> None:
        emit(1)
        raise ValueError("broken")

    events = emitted(run)
    assert await anext(events) == 1
    with pytest.raises(ValueError, match="broken"):
        await anext(events)


async def test_a_function_that_emits_is_cancelled_before_the_iterator_is_closed() -> None:
    ended = []

    async def run(emit: Callable[[int], None]) -> None:
        emit(1)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    events = emitted(run)
    assert await anext(events) == 1
    await events.aclose()
    assert ended == [True]
