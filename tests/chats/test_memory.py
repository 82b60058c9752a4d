"""The limits of chats in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.chats.talking import answer, ask, begin, text, turn, user
from usechat.chats import MemoryChats
from usechat.chats.chat import MessageNode, write_text
from usechat.chats.growth import Growth
from usechat.protocol.ui_messages import UIMessage

pytestmark = pytest.mark.quick


async def known(store: MemoryChats) -> list[str]:
    return [each.chat.id for each in (await store.list_chats(None, limit=100)).chats]


async def test_the_chats_that_were_not_changed_for_the_longest_time_are_forgotten() -> None:
    store = MemoryChats(maximum_chats=3)
    for chat_id in ("a", "b", "c"):
        await turn(store, ask(user("u1"), chat_id=chat_id), "A")
    await turn(store, ask(user("u2"), chat_id="a"), "A")
    await turn(store, ask(user("u1"), chat_id="d"), "A")
    assert await known(store) == ["d", "a", "c"]


async def test_a_chat_that_is_being_answered_is_not_forgotten() -> None:
    store = MemoryChats(maximum_chats=1)
    beginning = await begin(store, ask(user("u1"), chat_id="running"))
    for chat_id in ("a", "b"):
        await turn(store, ask(user("u1"), chat_id=chat_id), "A")
    await store.finish(beginning.claim, answer("a1", "A"), "finished")
    assert await known(store) == ["running"]


async def test_bytes_are_limited_too_but_the_newest_chat_stays() -> None:
    store = MemoryChats(maximum_bytes=10_000)
    for chat_id in ("a", "b", "c"):
        await turn(store, ask(user("u1", "x" * 4_000), chat_id=chat_id), "A")
    assert await known(store) == ["c", "b"]
    await turn(store, ask(user("u1", "x" * 40_000), chat_id="large"), "A")
    assert await known(store) == ["large"]
    await store.delete("large", owner="ada")
    await turn(store, ask(user("u1", "x" * 4_000), chat_id="d"), "A")
    await turn(store, ask(user("u1", "x" * 4_000), chat_id="e"), "A")
    assert await known(store) == ["e", "d"], "what was deleted does not count"


async def test_all_writes_of_an_answer_together_are_a_few_times_its_size() -> None:
    """However often it is saved: the test counts what the store is told to write."""
    sizes: list[int] = []

    class Counted(MemoryChats):
        @asynccontextmanager
        async def transaction(self, chat_id: str, *, writes: bool = True) -> AsyncIterator[Any]:
            async with super().transaction(chat_id, writes=writes) as transaction:
                put, grow = transaction.put_message, transaction.grow

                async def put_message(node: MessageNode, message: UIMessage, *, has_grown: bool = True) -> None:
                    sizes.append(len(write_text(message)))
                    await put(node, message, has_grown=has_grown)

                async def grow_message(key: int, number: int, growth: Growth) -> None:
                    sizes.append(len(write_text(growth)))
                    await grow(key, number, growth)

                transaction.put_message, transaction.grow = put_message, grow_message  # type: ignore[method-assign]
                yield transaction

    store = Counted()
    beginning = await begin(store, ask(user("u1")))
    words = "word " * 10_000
    for end in range(25, len(words) + 1, 25):
        await store.save(beginning.claim, answer("a1", text(words[:end], "streaming")))
    final = answer("a1", words)
    await store.finish(beginning.claim, final, "finished")
    assert len(sizes) > 2_000
    assert sum(sizes) < 6 * len(write_text(final))


async def test_others_have_the_event_loop_while_a_long_chat_is_imported_and_read() -> None:
    store, length = MemoryChats(), 1_000
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.get_running_loop().create_task(tick())
    messages = [user(f"u{number}") if number % 2 else answer(f"a{number}", "Hi") for number in range(length)]
    beginning = await begin(store, ask(*messages), check_import=lambda request: request)
    assert len(beginning.request.messages) == length
    imported, ticks = ticks, 0
    assert len((await store.load("c1", owner="ada")).messages) == length
    ticking.cancel()
    assert imported > 2.5 * length / 50, "while messages are checked, stored and read"
    assert ticks >= length / 50
