"""What a turn tells: the id of the thread under which frameworks remember its chat."""

import pytest

from tests.adapters.turns import turn_of, user
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
