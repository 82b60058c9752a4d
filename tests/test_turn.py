"""What a turn tells: the id of the thread under which frameworks remember its chat, and keys for what it does once."""

import asyncio

import pytest

from tests.adapters.turns import turn_of, user
from usechat import Turn
from usechat.errors import LocalProtocolError
from usechat.testing import AgentClient
from usechat.turn import thread_id

pytestmark = pytest.mark.quick


async def test_callers_who_name_the_same_chat_have_threads_of_their_own() -> None:
    ids = {thread_id(turn_of(user("hi"), identity=name, chat_id="c1")) for name in ("ada", "bob", None)}
    assert len(ids) == 3


async def test_a_caller_cannot_name_the_thread_of_another() -> None:
    mine = thread_id(turn_of(user("hi"), identity="ada", chat_id="b/c"))
    theirs = thread_id(turn_of(user("hi"), identity="ada/b", chat_id="c"))
    assert mine != theirs


async def test_chats_without_an_id_share_no_thread() -> None:
    first, second = (thread_id(turn_of(user("hi"), chat_id="")) for _ in range(2))
    assert first != second


async def test_an_id_of_any_text_is_one_of_plain_characters() -> None:
    turn = turn_of(user("hi"), identity="ada | Å", chat_id="\ud800/..\0")
    assert thread_id(turn) == "ada%20%7C%20%C3%85/%ED%A0%80%2F..%00"


def test_a_key_is_of_one_answer_one_step_and_its_values() -> None:
    keys: list[str] = []

    async def agent(turn: Turn) -> str:
        keys.extend((turn.key(), turn.key(), turn.key("pay", {"a": 1, "b": 2}), turn.key("pay", {"b": 2, "a": 1})))
        keys.extend(await asyncio.gather(turn.step("pay", turn.key), turn.step("pay", turn.key)))
        keys.append(turn.key())
        return "Paid."

    with AgentClient(agent) as client:
        client.ask("hi")
        client.ask("hi")
    names = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    assert [names[key] for key in keys] == [0, 0, 1, 1, 2, 3, 0, 4, 4, 5, 5, 6, 7, 4]


@pytest.mark.parametrize(("value", "kind"), [(object(), "object"), (float("nan"), "float")])
def test_a_key_is_made_of_json(value: object, kind: str) -> None:
    def agent(turn: Turn) -> str:
        with pytest.raises(LocalProtocolError) as error:
            turn.key("pay", value)
        return str(error.value)

    with AgentClient(agent) as client:
        assert client.ask("hi").text == f"a key is made of JSON values, not of these: str, {kind}"


async def test_a_turn_that_nobody_answers_has_no_key() -> None:
    with pytest.raises(LocalProtocolError, match="has not begun"):
        turn_of(user("hi")).key()
