"""The limits of chats in memory."""

from tests.chats.talking import answer, ask, begin, turn, user
from usechat.chats import MemoryChats


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
    begun = await begin(store, ask(user("u1"), chat_id="running"))
    for chat_id in ("a", "b"):
        await turn(store, ask(user("u1"), chat_id=chat_id), "A")
    await store.finish(begun.claim, answer("a1", "A"), "finished")
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
