"""What every chat store does: the same tests for memory, an SQLite file and a real PostgreSQL, with two workers."""

import asyncio
import base64
import itertools
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, TypeAlias

import msgspec
import pytest

from tests.chats.talking import REGENERATE, answer, answers, ask, asks, begin, call, ids, text, texts, turn, user
from tests.postgres_server import postgres_server
from usechat.chats import (
    Answered,
    Begun,
    Blob,
    Busy,
    ChatStore,
    Claim,
    FileUrls,
    Joined,
    MemoryChats,
    SqlChats,
    document_json,
)
from usechat.chats.store import LoggedAnswer
from usechat.chats.transaction import write_cursor
from usechat.errors import (
    ChatChanged,
    ChatExists,
    ChatNotFound,
    ChatsUnreachable,
    ClaimLost,
    InvalidRequest,
    Unprocessable,
    UsechatError,
)
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage
from usechat.protocol.validation import validate_messages

PATIENCE = 30

Stores: TypeAlias = tuple[ChatStore, ChatStore]
"""Those of two workers; in memory there is one worker, and both are the same."""
Make: TypeAlias = Callable[..., Awaitable[Stores]]

_files = itertools.count()


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    with postgres_server() as url:
        yield url


async def prepare(url: str) -> None:
    store = SqlChats(url)
    await store.migrate()
    await store.open()
    await store.close()


@pytest.fixture(scope="module")
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Returns a database with tables: a new file, or the server. Migrations are slow, so they run once."""
    template = tmp_path_factory.mktemp("chats") / "template.db"
    ready: dict[str, str] = {}

    def database(kind: str) -> str:
        if kind not in ready:
            ready[kind] = str(template) if kind == "sqlite" else request.getfixturevalue("postgres")
            asyncio.run(prepare(ready[kind]))
        if kind == "postgresql":
            return ready[kind]
        return str(shutil.copy(template, template.with_name(f"{next(_files)}.db")))

    return database


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, database: Callable[[str], str]) -> str | None:
    return None if request.param == "memory" else database(request.param)


@pytest.fixture
async def make(url: str | None) -> AsyncIterator[Make]:
    databases: list[SqlChats] = []

    async def make(**options: Any) -> Stores:
        if url is None:
            alone = MemoryChats(**options)
            return alone, alone
        pair = SqlChats(url, **options), SqlChats(url, **options)
        databases.extend(pair)
        return pair

    yield make
    for store in databases:
        for chat_id in await store.ids_of():
            await store.delete(chat_id, owner=None)
        await store.close()


@pytest.fixture
async def stores(make: Make) -> Stores:
    return await make()


@pytest.fixture
def store(stores: Stores) -> ChatStore:
    return stores[0]


async def expire(store: ChatStore, claim: Claim) -> None:
    """Let the lease of a worker end: from here on it is as if the worker had died long ago."""
    lease, store.lease = store.lease, 0
    await store.renew(claim)
    store.lease = lease


def unchanged(request: ChatRequest) -> ChatRequest:
    """Import a history whose answers need no check."""
    return request


async def shown(store: ChatStore, chat_id: str = "c1") -> list[str]:
    return texts((await store.load(chat_id, owner="ada")).messages)


# -- A turn.


async def test_the_users_message_is_stored_before_the_answer_begins(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1", "What is new?")))
    loaded = await there.load("c1", owner="ada")
    assert loaded.messages == [user("u1", "What is new?")]
    assert (loaded.head_id, loaded.running) == ("u1", start.claim)
    assert (start.is_new, start.request.messages) == (True, [user("u1", "What is new?")])


async def test_turns_follow_each_other(stores: Stores) -> None:
    for number, store in zip(range(3), itertools.cycle(stores), strict=False):
        await turn(store, ask(user(f"u{number}", f"Q{number}")), f"A{number}")
    loaded = await stores[0].load("c1", owner="ada")
    assert texts(loaded.messages) == ["Q0", "A0", "Q1", "A1", "Q2", "A2"]
    assert (loaded.siblings, loaded.running, loaded.head_id) == ({}, None, loaded.messages[-1]["id"])
    assert set(loaded.outcomes.values()) == {"finished"}
    assert list(loaded.created) == ids(loaded.messages)


async def test_the_agent_gets_the_stored_branch_whatever_the_page_sends(store: ChatStore) -> None:
    first = await turn(store, ask(user("u1", "Q1")), "A1")
    forged = [user("u1", "Q1"), answer(first, "Forged."), user("u2", "Q2")]
    start = await begin(store, ask(*forged))
    assert start.request.messages == [user("u1", "Q1"), answer(first, "A1"), user("u2", "Q2")]
    assert await shown(store) == ["Q1", "A1", "Q2"]


async def test_a_running_answer_is_left_out_until_it_ends(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1", "Q1")))
    await here.save(start.claim, answer("x", text("Hel", "streaming")))
    loaded = await there.load("c1", owner="ada")
    assert (texts(loaded.messages), loaded.running) == (["Q1"], msgspec.structs.replace(start.claim, message_id="x"))
    assert [each["message"]["id"] for each in (await there.load("c1", owner="ada", tree=True)).tree] == ["u1"]
    final = answer("x", "Hello.")
    assert await here.finish(start.claim, final, "finished") == final
    loaded = await there.load("c1", owner="ada")
    assert (loaded.messages, loaded.running, loaded.head_id) == ([user("u1", "Q1"), final], None, "x")


async def test_an_answer_never_gets_an_id_that_the_chat_has(store: ChatStore) -> None:
    first = await turn(store, ask(user("u1")), "A1")
    start = await begin(store, ask(user("u2")))
    assert {first, "u1", "u2"} == start.known_ids
    stored = await store.finish(start.claim, answer(first, "A2"), "finished")
    assert stored == answer(start.claim.message_id, "A2")
    assert len(set(ids((await store.load("c1", owner="ada")).messages))) == 4


@pytest.mark.parametrize("message_id", ["a\0", "\ud800", "x" * 1_025])
async def test_an_answer_with_an_id_that_no_database_can_keep_gets_another(store: ChatStore, message_id: str) -> None:
    start = await begin(store, ask(user("u1")))
    for number in range(3):
        await store.save(start.claim, {**answer(message_id, "A" * 100 + "1" * number), "metadata": number})
    assert texts([(await lost_message(store, start.claim))]) == ["A" * 100 + "11"]
    start = await begin(store, ask(user("u2")))
    stored = await store.finish(start.claim, answer(message_id, "A2"), "finished")
    assert stored == answer(start.claim.message_id, "A2")


async def lost_message(store: ChatStore, claim: Claim) -> UIMessage:
    """Return the answer of a worker that has died, which is loaded under the id of its claim."""
    await expire(store, claim)
    await store.collect_lost()
    message = (await store.load(claim.chat_id, owner="ada")).messages[-1]
    assert message["id"] == claim.message_id
    return message


async def test_an_answer_without_parts_is_not_stored(store: ChatStore) -> None:
    start = await begin(store, ask(user("u1", "Q1")))
    await store.save(start.claim, answer("a1"))
    assert await store.finish(start.claim, answer("a1"), "failed") is None
    loaded = await store.load("c1", owner="ada")
    assert (texts(loaded.messages), loaded.running) == (["Q1"], None)


async def test_transient_data_is_not_stored(store: ChatStore) -> None:
    start = await begin(store, ask(user("u1")))
    progress = {"type": "data-progress", "data": 1, "transient": True}
    stored = await store.finish(start.claim, answer("a1", progress, "Done."), "finished")
    assert stored == answer("a1", "Done.")


async def test_texts_that_databases_dislike_come_back_as_they_were(store: ChatStore) -> None:
    odd = "NUL \0, half \ud83d, whole \U0001f600, umlaut ä, quote '\" and \\u0000"
    start = await begin(store, ask(user("u1", odd)))
    await store.save(start.claim, answer("a1", text(odd, "streaming")))
    await store.save(start.claim, answer("a1", text(odd + odd, "streaming")))
    await store.finish(start.claim, answer("a1", odd * 2), "finished")
    assert await shown(store) == [odd, odd * 2]


@pytest.mark.parametrize("chat_id", ["\0", "\ud800", "x" * 1_025, "ä" * 513])
async def test_an_id_that_no_database_can_keep_is_refused(store: ChatStore, chat_id: str) -> None:
    with pytest.raises(InvalidRequest):
        await begin(store, ask(user("u1"), chat_id=chat_id))
    with pytest.raises(InvalidRequest):
        await begin(store, ask(user(chat_id)))


async def test_a_message_that_no_client_would_accept_is_refused(store: ChatStore) -> None:
    with pytest.raises(InvalidRequest, match="cannot be stored"):
        await begin(store, ask(user("u1", "Hi", {"type": "unheard-of"})))
    with pytest.raises(ChatNotFound):
        await store.load("c1", owner="ada")


# -- One running answer per chat.


async def test_of_many_requests_at_once_one_begins(stores: Stores) -> None:
    requests = [
        stores[number % 2].begin(ask(user(f"u{number}")), owner="ada", run_id=f"r{number}") for number in range(12)
    ]
    results = await asyncio.gather(*requests)
    starts = [each for each in results if isinstance(each, Begun)]
    busy = [each for each in results if isinstance(each, Busy)]
    assert (len(starts), len(busy)) == (1, 11)
    assert {each.claim.run_id for each in busy} == {starts[0].claim.run_id}
    assert len((await stores[0].load("c1", owner="ada")).messages) == 1, "what is refused is not stored"


async def test_a_new_version_of_the_question_that_is_answered_is_told_from_other_requests(store: ChatStore) -> None:
    start = await begin(store, ask(user("u1", "One")))
    edited = await store.begin(ask(user("u1", "Two"), message_id="u1"), owner="ada", run_id="r2")
    other = await store.begin(ask(user("u2", "Two")), owner="ada", run_id="r3")
    assert [edited, other] == [Busy(start.claim, is_edit=True), Busy(start.claim)]


async def test_a_chat_is_looked_up_without_its_messages(store: ChatStore) -> None:
    start = await begin(store, ask(user("u1", "One")))
    summary = await store.look_up("c1", owner="ada")
    assert (summary.chat.title, summary.running) == ("One", True)
    await store.finish(start.claim, answer("a1", "Fine."), "finished")
    assert not (await store.look_up("c1", owner="ada")).running
    with pytest.raises(ChatNotFound):
        await store.look_up("c1", owner="bob")


async def test_who_lists_chats_looks_at_the_answer_of_a_dead_worker(stores: Stores) -> None:
    here, there = stores
    lost, taken = [await begin(here, ask(user("u1"), chat_id=name), turn="{}") for name in ("c1", "c2")]
    await here.save(lost.claim, answer("a1", text("Half", "streaming")))
    for each in (lost, taken):
        await expire(here, each.claim)

    async def recover(chat_id: str) -> bool:
        return await there.take(chat_id, lambda row, _has_steps: row.claim.chat_id == "c2") is not None

    there.recover = recover
    page = await there.list_chats("ada")
    assert {each.chat.id: each.running for each in page.chats} == {"c1": False, "c2": True}
    assert await there.orphaned() == []


async def test_the_same_message_joins_its_answer(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1")))
    assert await there.begin(ask(user("u1")), owner="ada", run_id="r2") == Joined(start.claim)
    again = await there.begin(ask(user("u1"), trigger=REGENERATE), owner="ada", run_id="r3")
    assert again == Busy(start.claim), "a regenerated answer is wanted anew"


async def test_when_an_answer_has_ended_the_chat_is_free(stores: Stores) -> None:
    here, there = stores
    await turn(here, ask(user("u1", "Q1")), "A1")
    await turn(there, ask(user("u1", "Q1")), "A2")
    assert await shown(here) == ["Q1", "A2"], "the same question again is a regenerate"


async def test_a_dead_workers_chat_is_free_when_its_lease_expires(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1", "Q1")))
    await here.save(start.claim, answer("a1", text("Half an ans", "streaming"), call("t1")))
    await expire(here, start.claim)
    loaded = await there.load("c1", owner="ada")
    error = {"state": "output-error", "errorText": "The run was lost before this tool finished."}
    lost = answer("a1", "Half an ans", {**call("t1"), **error})
    assert (loaded.messages, loaded.outcomes, loaded.running) == ([user("u1", "Q1"), lost], {"a1": "lost"}, None)
    with pytest.raises(ClaimLost):
        await here.save(start.claim, answer("a1", "Half an answer."))
    with pytest.raises(ClaimLost):
        await here.finish(start.claim, answer("a1", "Half an answer."), "finished")
    with pytest.raises(ClaimLost):
        await here.renew(start.claim)
    after = await begin(there, ask(user("u2", "Q2")))
    assert after.request.messages[:2] == [user("u1", "Q1"), lost]
    with pytest.raises(ClaimLost):
        await here.save(start.claim, answer("a1", "Half an answer."))


async def test_an_expired_claim_that_nobody_took_is_still_its_owners(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1", "Q1")))
    for state in ("Half", "Half and more"):
        await expire(here, start.claim)
        await here.save(start.claim, answer("a1", text(state, "streaming")))
    await expire(here, start.claim)
    await here.finish(start.claim, answer("a1", "All"), "finished")
    loaded = await there.load("c1", owner="ada")
    assert (texts(loaded.messages), loaded.outcomes) == (["Q1", "All"], {"a1": "finished"})


async def test_a_process_that_drives_a_run_does_not_give_its_claim_up(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1", "Q1")), turn="{}")
    here.drives = {start.claim.run_id}.__contains__
    await expire(here, start.claim)
    assert await here.orphaned() == []
    assert (await here.look_up("c1", owner="ada")).running
    assert [each.running for each in (await here.list_chats("ada")).chats] == [True]
    assert await here.take("c1", lambda _row, _has_steps: True) is None
    here.drives = lambda _run_id: False
    assert await there.orphaned() == ["c1"]
    assert await there.take("c1", lambda _row, _has_steps: True) is not None
    with pytest.raises(ClaimLost):
        await here.renew(start.claim)


async def test_a_lost_answer_is_reported_once(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1")))
    await here.save(start.claim, answer("a1", text("Half", "streaming")))
    assert await there.collect_lost() == []
    await expire(here, start.claim)
    losses = await there.collect_lost()
    assert [(lost.claim, lost.message) for lost in losses] == [(start.claim, answer("a1", "Half"))]
    assert [*await here.collect_lost(), *await there.collect_lost()] == []


async def test_answers_that_are_declared_lost_at_the_same_time_are_reported_once_each(stores: Stores) -> None:
    here, there = stores
    slow = await begin(here, ask(user("u1"), chat_id="slow"))
    quick = await begin(here, ask(user("u1"), chat_id="quick"))
    is_asked, may_answer = asyncio.Event(), asyncio.Event()

    async def rest(claim: Claim) -> None:
        if claim.chat_id == "slow":
            is_asked.set()
            await may_answer.wait()

    there.rest = rest
    losing = asyncio.create_task(there.lose("slow", slow.claim.run_id))
    await is_asked.wait()
    quick_losses = await there.lose("quick", quick.claim.run_id)
    may_answer.set()
    assert [lost.claim for lost in [*quick_losses, *await losing]] == [quick.claim, slow.claim]


async def test_an_answer_is_handed_to_another_process(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1", "Q1")))
    await here.hand_over(start.claim, 60)
    claim = await there.take_over(start.claim, run_id=start.claim.run_id)
    row = await here.claimed("c1")
    assert row is not None
    assert claim == msgspec.structs.replace(start.claim, attempt=2) == row.claim
    with pytest.raises(ClaimLost):
        await here.save(start.claim, answer(claim.message_id, "Of the first process"))
    await there.save(claim, answer(claim.message_id, "Half"))
    await there.finish(claim, answer(claim.message_id, "All"), "finished")
    assert texts((await here.load("c1", owner="ada")).messages) == ["Q1", "All"]
    assert await here.claimed("c1") is None


async def test_a_run_that_begins_anew_takes_the_chat_from_the_one_that_died(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1", "Q1")))
    first = await here.take_over(start.claim, run_id=start.claim.run_id)
    await here.save(first, answer(first.message_id, "First half"))
    second = await there.take_over(start.claim, run_id="second", instead_of=first.run_id)
    with pytest.raises(ClaimLost):
        await here.save(first, answer(first.message_id, "First half and more"))
    await there.save(second, answer(second.message_id, "Second"))
    await there.finish(second, answer(second.message_id, "Second half"), "finished")
    assert texts((await here.load("c1", owner="ada")).messages) == ["Q1", "Second half"]


async def test_a_run_that_begins_anew_and_says_nothing_keeps_what_was_said(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1", "Q1")))
    await here.save(start.claim, answer(start.claim.message_id, "First half"))
    second = await there.take_over(start.claim, run_id="second", instead_of=start.claim.run_id)
    await there.finish(second, answer(second.message_id), "failed")
    loaded = await here.load("c1", owner="ada")
    assert (texts(loaded.messages), list(loaded.outcomes.values())) == (["Q1", "First half"], ["failed"])


async def test_a_chat_that_was_given_to_another_run_is_not_taken_over(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1", "Q1")))
    await here.finish(start.claim, answer(start.claim.message_id, "A1"), "finished")
    await begin(here, ask(user("u2", "Q2")))
    with pytest.raises(ClaimLost):
        await there.take_over(start.claim, run_id="late")


async def test_an_answer_that_is_known_to_be_lost_is_ended_with_what_is_known_of_it(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1", "Q1")))
    run_id, message_id = start.claim.run_id, start.claim.message_id
    await here.save(start.claim, answer(message_id, "Half"), chunks=2)

    async def rest(claim: Claim) -> LoggedAnswer:
        assert claim == start.claim
        return LoggedAnswer(answer(message_id, "Half of it", call("t1")), chunks=4)

    there.rest = rest
    assert await there.lose("c1", "another run") == []
    [lost] = await there.lose("c1", run_id)
    error = {"state": "output-error", "errorText": "The run was lost before this tool finished."}
    assert lost.message == answer(message_id, "Half of it", {**call("t1"), **error})
    assert (await here.load("c1", owner="ada")).messages[-1] == lost.message
    assert [*await there.lose("c1", run_id), *await here.collect_lost()] == []
    await begin(here, ask(user("u2", "Q2")))


@pytest.mark.parametrize(("chunks", "text"), [(8, "Old and long"), (9, "Old and long"), (10, "New")])
async def test_what_is_known_elsewhere_counts_if_it_is_newer_than_what_was_saved(
    stores: Stores, chunks: int, text: str
) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1", "Q1")))
    await here.save(start.claim, answer(start.claim.message_id, "Old and long"), chunks=9)

    async def rest(claim: Claim) -> LoggedAnswer:
        return LoggedAnswer(answer(claim.message_id, "New"), chunks)

    there.rest = rest
    [lost] = await there.lose("c1", start.claim.run_id)
    assert lost.message == answer(start.claim.message_id, text)


async def test_a_lost_answer_that_the_next_request_finds_is_reported_too(stores: Stores) -> None:
    here, there = stores
    first = await begin(here, ask(user("u1")))
    await expire(here, first.claim)
    await begin(there, ask(user("u2")))
    assert [(lost.claim, lost.message) for lost in await there.collect_lost()] == [(first.claim, None)]


async def test_a_lease_ends_by_itself(make: Make) -> None:
    here, there = await make(lease=0.1)
    await begin(here, ask(user("u1")))
    async with asyncio.timeout(PATIENCE):
        while (await there.load("c1", owner="ada")).running is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_every_write_renews_the_claim(store: ChatStore) -> None:
    start = await begin(store, ask(user("u1")))

    async def expires() -> float:
        async with store.transaction("c1", writes=False) as transaction:
            row = await transaction.claim()
        assert row is not None
        return row.expires

    times = [await expires()]
    for lease in (100, 200, 300, 400):
        store.lease = lease
        await (
            store.renew(start.claim) if lease == 100 else store.save(start.claim, answer("a1", "A" * (lease // 300)))
        )
        times.append(await expires())
    assert times == sorted(set(times))


async def test_the_state_of_a_paused_agent_is_kept_with_its_chat_and_taken_once(stores: Stores) -> None:
    here, there = stores
    await begin(here, ask(user("u1")))
    await begin(here, ask(user("u1"), chat_id="c2"))
    await here.states_of("c1").keep_state("h1", b"first")
    await here.states_of("c1").keep_state("h1", b"second")
    await here.states_of("c2").keep_state("h1", b"of another chat")
    states = [await there.states_of("c1").take_state(handle) for handle in ("h2", "h1", "h1")]
    assert states == [None, b"second", None]
    assert await there.states_of("c2").take_state("h1") == b"of another chat"


async def test_the_state_of_a_paused_agent_is_deleted_with_its_chat(store: ChatStore) -> None:
    await begin(store, ask(user("u1")))
    await store.states_of("c1").keep_state("h1", b"state")
    await store.delete("c1", owner="ada")
    await store.states_of("c1").keep_state("h2", b"too late")
    await begin(store, ask(user("u1")))
    assert [await store.states_of("c1").take_state(handle) for handle in ("h1", "h2")] == [None, None]


async def test_the_state_in_which_an_answer_leaves_its_framework_stays_until_its_chat_is_deleted(
    stores: Stores,
) -> None:
    here, there = stores
    claim = (await begin(here, ask(user("u1")))).claim
    await here.remember(claim, b"first")
    await here.remember(claim, b"second")
    message_id = claim.message_id
    assert [await there.recall("c1", each) for each in (message_id, message_id, "m9")] == [b"second", b"second", None]
    await there.delete("c1", owner="ada")
    assert await here.recall("c1", message_id) is None
    with pytest.raises(ClaimLost):
        await here.remember(claim, b"too late")


async def test_a_deleted_chat_cannot_be_written(store: ChatStore) -> None:
    start = await begin(store, ask(user("u1")))
    await store.delete("c1", owner="ada")
    with pytest.raises(ClaimLost):
        await store.save(start.claim, answer("a1", "Hello."))
    with pytest.raises(ChatNotFound):
        await store.load("c1", owner="ada")


# -- An answer that grows.


async def test_what_was_saved_last_is_what_is_left(stores: Stores) -> None:
    here, there = stores
    start = await begin(here, ask(user("u1")))
    states: list[Any] = [
        answer("a1", text("One", "streaming")),
        answer("a1", text("One two", "streaming")),
        answer("a1", "One two.", call("t1", "input-streaming")),
        answer("a1", "One two.", call("t1", "output-available", output=[1]), {"type": "step-start"}),
        answer("a1", "One two."),
        {**answer("a1", "One two.", text("Three " * 50, "streaming")), "metadata": {"model": "m"}},
        {**answer("a1", "One two.", text("Three " * 51, "streaming")), "metadata": {"model": "m"}},
    ]
    for state in states:
        await here.save(start.claim, state)
    await here.save(start.claim, states[-1])
    await expire(here, start.claim)
    lost = await there.collect_lost()
    assert lost[0].message == {**states[-1], "parts": [text("One two.", "done"), text("Three " * 51, "done")]}
    assert (await here.load("c1", owner="ada")).messages[-1] == lost[0].message


# -- How an answer ends.


@pytest.mark.parametrize("outcome", ["failed", "stopped"])
async def test_a_bad_end_leaves_nothing_open_but_what_can_be_answered(store: ChatStore, outcome: Any) -> None:
    start = await begin(store, ask(user("u1")))
    message = answer(
        "a1",
        text("Let me", "streaming"),
        {"type": "reasoning", "text": "Hm", "state": "streaming"},
        call("own"),
        {key: value for key, value in call("cut", "input-streaming").items() if key != "input"},
        asks("unasked", "p0"),
        asks("open", "p1"),
        answers("yes", "p2", True),
        answers("no", "p3", False),
        call("client"),
        call("done", "output-available", output=1),
    )
    stored = await store.finish(start.claim, message, outcome, answerable={"open", "client"})
    assert stored is not None
    calls = {part["toolCallId"]: part for part in map(dict, stored["parts"]) if "toolCallId" in part}
    assert {call_id: part["state"] for call_id, part in calls.items()} == {
        "own": "output-error",
        "cut": "output-error",
        "unasked": "output-error",
        "open": "approval-requested",
        "yes": "output-error",
        "no": "output-denied",
        "client": "input-available",
        "done": "output-available",
    }
    assert ("approval" in calls["unasked"], calls["yes"]["approval"]) == (False, {"id": "p2", "approved": True})
    assert [dict(part).get("state") for part in stored["parts"][:2]] == ["done", "done"]
    loaded = await store.load("c1", owner="ada")
    assert loaded.outcomes == {"a1": outcome}
    for sdk in ("6", "7"):
        assert validate_messages(loaded.messages, sdk=sdk) == loaded.messages


@pytest.mark.parametrize("sdk", ["5.0.0", "5", "6.0.0", "6", "7.0.0", "7"])
@pytest.mark.parametrize("outcome", ["failed", "stopped", "lost"])
async def test_what_is_stored_after_a_bad_end_is_valid_in_every_release(
    store: ChatStore, outcome: Any, sdk: str
) -> None:
    start = await begin(store, ask(user("u1")))
    cut = {"type": "tool-weather", "toolCallId": "t1", "state": "input-streaming"}
    dynamic = {"type": "dynamic-tool", "toolName": "x", "toolCallId": "t2", "state": "input-available", "input": 1}
    await store.finish(start.claim, answer("a1", text("Hm", "streaming"), cut, dynamic), outcome)
    loaded = await store.load("c1", owner="ada")
    assert validate_messages(loaded.messages, sdk=sdk) == loaded.messages


# -- Approvals and client tools.


async def waiting(store: ChatStore, *parts: dict[str, Any] | str) -> str:
    return await turn(store, ask(user("u1", "Q1")), *parts, outcome="waiting")


async def test_an_approval_is_taken_with_the_start_of_its_run(store: ChatStore) -> None:
    message_id = await waiting(store, asks("t1", "p1"))
    copy = answer(message_id, answers("t1", "p1", True, reason="Fine."))
    start = await begin(store, ask(copy, message_id=message_id))
    assert start.continues == copy
    assert [(each.approval_id, each.approved, each.reason) for each in start.request.approvals] == [
        ("p1", True, "Fine.")
    ]
    assert (start.claim.message_id, start.claim.given, start.claim.answerable) == (message_id, ("t1",), ())


@pytest.mark.parametrize("approved", [True, False])
async def test_the_second_answer_sees_the_first_one(stores: Stores, approved: bool) -> None:
    here, there = stores
    message_id = await waiting(here, asks("t1", "p1"))
    start = await begin(here, ask(answer(message_id, answers("t1", "p1", True)), message_id=message_id))
    second = ask(answer(message_id, answers("t1", "p1", approved)), message_id=message_id)
    assert await there.begin(second, owner="ada", run_id="r2") == Joined(start.claim, has_message=True)
    done = call("t1", "output-available", approval={"id": "p1", "approved": True}, output="21 °C")
    await here.finish(start.claim, answer(message_id, done, "It is warm."), "finished")
    stored = answer(message_id, done, "It is warm.")
    assert await there.begin(second, owner="ada", run_id="r3") == Answered(stored, second.messages[0])
    assert (await there.load("c1", owner="ada")).messages[-1] == stored


async def test_of_many_answers_at_once_one_is_taken(stores: Stores) -> None:
    message_id = await waiting(stores[0], asks("t1", "p1"))
    results = await asyncio.gather(
        *[
            stores[number % 2].begin(
                ask(answer(message_id, answers("t1", "p1", number % 3 == 0)), message_id=message_id),
                owner="ada",
                run_id=f"r{number}",
            )
            for number in range(10)
        ]
    )
    starts = [each for each in results if isinstance(each, Begun)]
    assert len(starts) == 1
    assert [each for each in results if each is not starts[0]] == [Joined(starts[0].claim, has_message=True)] * 9


async def test_an_approval_whose_run_was_lost_is_told_again_as_given(stores: Stores) -> None:
    here, there = stores
    message_id = await waiting(here, asks("t1", "p1"))
    request = ask(answer(message_id, answers("t1", "p1", True)), message_id=message_id)
    await expire(here, (await begin(here, request)).claim)
    again = await begin(there, request)
    assert [each.approval_id for each in again.request.approvals] == ["p1"]
    lost = await there.collect_lost()
    assert [each.message for each in lost] == [answer(message_id, answers("t1", "p1", True))]


async def test_an_output_whose_run_failed_is_given_again(store: ChatStore) -> None:
    message_id = await waiting(store, call("t1"))
    output_part = call("t1", "output-available", output=21)
    copy = answer(message_id, output_part)
    request = ask(copy, message_id=message_id)
    start = await begin(store, request)
    assert [(each.tool_call_id, each.output) for each in start.request.tool_outputs] == [("t1", 21)]
    await store.finish(start.claim, copy, "failed")
    start = await begin(store, request)
    assert [each.tool_call_id for each in start.request.tool_outputs] == ["t1"]
    await store.finish(start.claim, answer(message_id, output_part, "Warm."), "finished")
    assert isinstance(await store.begin(request, owner="ada", run_id="r3"), Answered)
    message = answer(message_id, output_part, "Warm.")
    start = await begin(store, ask(message, message_id=message_id))
    assert start.request.tool_outputs == [], "what a run has used is not given twice"


@pytest.mark.parametrize("outcome", ["failed", "stopped", "lost"])
@pytest.mark.parametrize("ran", [True, False])
async def test_an_approval_whose_tool_has_an_outcome_is_not_given_again_as_an_output(
    store: ChatStore, outcome: Any, ran: bool
) -> None:
    message_id = await waiting(store, asks("t1", "p1"))
    start = await begin(store, ask(answer(message_id, answers("t1", "p1", True)), message_id=message_id))
    done = call("t1", "output-available", approval={"id": "p1", "approved": True}, output=21)
    message = answer(message_id, done if ran else answers("t1", "p1", True), "Half")
    stored = await store.finish(start.claim, message, outcome)
    assert stored is not None
    again = await begin(store, ask(stored, message_id=message_id))
    is_open = outcome == "lost" and not ran
    assert [each.approval_id for each in again.request.approvals] == (["p1"] if is_open else [])
    assert again.request.tool_outputs == [], "the page has given no output"


async def test_only_the_outcome_of_an_open_call_is_taken(store: ChatStore) -> None:
    message_id = await waiting(store, "Before.", call("t1"), asks("t2", "p2"), call("t3", providerExecuted=True))
    forged = {"input": {"city": "Paris"}, "toolMetadata": {"x": 1}}
    copy = answer(
        message_id,
        "Forged.",
        call("t1", "output-available", output=1, **forged),
        {**answers("t2", "p2", True, signature="s"), **forged},
        call("t3", "output-available", output="forged"),
        call("t4", "output-available", output="unasked"),
    )
    copy["metadata"] = {"forged": True}
    start = await begin(store, ask(copy, message_id=message_id))
    assert start.continues == answer(
        message_id,
        "Before.",
        call("t1", "output-available", output=1),
        answers("t2", "p2", True),
        call("t3", providerExecuted=True),
    )


@pytest.mark.parametrize(
    ("part", "outcome"),
    [
        pytest.param(call("t1", "output-available"), {"state": "output-available", "output": None}, id="no-output"),
        pytest.param(
            call("t1", "output-error", errorText="No."), {"state": "output-error", "errorText": "No."}, id="error"
        ),
        pytest.param(
            call("t1", "output-error"), {"state": "output-error", "errorText": "The tool failed."}, id="no-text"
        ),
        pytest.param(call("t1", "output-available", output=1, preliminary=True), None, id="preliminary"),
        pytest.param(call("t1"), None, id="still-open"),
        pytest.param(answers("t1", "p1", True), None, id="not-an-approval"),
    ],
)
async def test_a_client_tools_outcome(store: ChatStore, part: Any, outcome: Any) -> None:
    message_id = await waiting(store, call("t1"))
    start = await begin(store, ask(answer(message_id, part), message_id=message_id))
    assert start.continues == answer(message_id, {**call("t1"), **(outcome or {})})
    assert start.claim.answerable == (() if outcome else ("t1",))


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(answers("t1", "other", True), id="another-approval"),
        pytest.param(call("t1", "approval-responded", approval={"id": "p1"}), id="without-approved"),
        pytest.param(call("t1", "approval-responded", approval={"id": "p1", "approved": "yes"}), id="not-a-boolean"),
        pytest.param(call("t1", "approval-responded"), id="no-approval"),
        pytest.param(call("t1", "output-available", output=1), id="an-output"),
    ],
)
async def test_what_does_not_answer_an_approval_leaves_it_open(store: ChatStore, part: Any) -> None:
    message_id = await waiting(store, asks("t1", "p1"))
    start = await begin(store, ask(answer(message_id, part), message_id=message_id))
    assert start.continues == answer(message_id, asks("t1", "p1"))


async def test_a_late_approval_continues_the_message_that_message_id_names(store: ChatStore) -> None:
    first = await waiting(store, asks("t1", "p1"))
    second = await turn(store, ask(user("u2", "Q2")), "A2")
    start = await begin(store, ask(answer(second, answers("t1", "p1", True)), message_id=first))
    assert (start.claim.message_id, start.continues) == (first, answer(first, asks("t1", "p1")))
    loaded = await store.load("c1", owner="ada")
    assert (texts(loaded.messages), loaded.running) == (["Q1"], start.claim)
    assert [each["message"]["id"] for each in (await store.load("c1", owner="ada", tree=True)).tree] == ["u1"]
    await store.finish(start.claim, answer(first, asks("t1", "p1"), "Still open."), "waiting")
    start = await begin(store, ask(answer(first, answers("t1", "p1", True), "Still open."), message_id=first))
    assert ids(start.request.messages) == ["u1", first]
    assert [each.approval_id for each in start.request.approvals] == ["p1"]
    await store.finish(start.claim, answer(first, "Done."), "finished")
    assert await shown(store) == ["Q1", "Done.", "Q2", "A2"]


async def test_an_open_call_of_the_continued_message_stays_open_after_a_bad_end(store: ChatStore) -> None:
    message_id = await waiting(store, call("t1"), asks("t2", "p2"))
    start = await begin(store, ask(answer(message_id, answers("t2", "p2", True)), message_id=message_id))
    stored = await store.finish(start.claim, answer(message_id, call("t1"), call("t3")), "stopped")
    assert stored is not None
    assert [dict(part)["state"] for part in stored["parts"]] == ["input-available", "output-error"]


# -- Branches.


async def test_an_edit_makes_a_version_with_an_id_of_its_own(store: ChatStore) -> None:
    first = await turn(store, ask(user("u1", "Q1")), "A1")
    second = await turn(store, ask(user("u1", "Q1 edited"), message_id="u1"), "A2")
    loaded = await store.load("c1", owner="ada")
    edited = loaded.messages[0]["id"]
    assert texts(loaded.messages) == ["Q1 edited", "A2"]
    assert loaded.siblings == {edited: ["u1", edited]}
    assert (await store.load("c1", owner="ada", tree=True)).tree == [
        {"parentId": None, "message": user("u1", "Q1")},
        {"parentId": "u1", "message": answer(first, "A1")},
        {"parentId": None, "message": user(edited, "Q1 edited")},
        {"parentId": edited, "message": answer(second, "A2")},
    ]


async def test_an_answer_that_runs_on_another_branch_is_not_running_on_the_one_that_is_shown(store: ChatStore) -> None:
    first = await turn(store, ask(user("u1", "Q1")), "A1")
    start = await begin(store, ask(user("u1", "Q1 edited"), message_id="u1"))
    assert (await store.load("c1", owner="ada")).running == start.claim
    await store.change("c1", owner="ada", head_id=first)
    loaded = await store.load("c1", owner="ada")
    assert (texts(loaded.messages), loaded.running) == (["Q1", "A1"], None)
    assert (await store.look_up("c1", owner="ada")).running
    await store.finish(start.claim, answer("a2", "A2"), "finished")


async def test_after_an_edit_the_clients_id_means_the_version_that_is_shown(store: ChatStore) -> None:
    await turn(store, ask(user("u1", "Q1")), "A1")
    await turn(store, ask(user("u1", "Q1 edited"), message_id="u1"), "A2")
    await turn(store, ask(user("u1", "Q1 edited"), trigger=REGENERATE), "A3")
    assert await shown(store) == ["Q1 edited", "A3"]
    await turn(store, ask(user("u2", "Q2"), parentId="u1"), "A4")
    assert await shown(store) == ["Q1 edited", "Q2", "A4"]


async def test_the_first_version_from_a_stale_tab_is_the_first_version(store: ChatStore) -> None:
    for content in ("one", "two", "three"):
        await turn(store, ask(user("u1", content)), f"to {content}")
    await turn(store, ask(user("u1", "one")), "to one again")
    loaded = await store.load("c1", owner="ada")
    assert texts(loaded.messages) == ["one", "to one again"]
    assert [len(versions) for versions in loaded.siblings.values()] == [3, 2]


async def test_a_regenerated_answer_is_a_version_beside_the_first(store: ChatStore) -> None:
    first = await turn(store, ask(user("u1", "Q1")), "A1")
    await turn(store, ask(user("u2", "Q2")), "A2")
    again = await turn(store, ask(user("u1", "Q1"), trigger=REGENERATE, message_id=first), "A1 again")
    loaded = await store.load("c1", owner="ada")
    assert (texts(loaded.messages), loaded.siblings) == (["Q1", "A1 again"], {again: [first, again]})


async def test_the_shown_branch_is_switched(store: ChatStore) -> None:
    await turn(store, ask(user("u1", "Q1")), "A1")
    second = await turn(store, ask(user("u2", "Q2")), "A2")
    await turn(store, ask(user("u2", "Q2"), trigger=REGENERATE), "A3")
    await store.change("c1", owner="ada", head_id=second)
    assert await shown(store) == ["Q1", "A1", "Q2", "A2"]
    await turn(store, ask(user("u3", "Q3")), "A4")
    assert await shown(store) == ["Q1", "A1", "Q2", "A2", "Q3", "A4"]
    with pytest.raises(Unprocessable):
        await store.change("c1", owner="ada", head_id="unknown")


async def test_the_first_version_of_an_edited_message_is_shown_again(store: ChatStore) -> None:
    """The page's id of the message means the version that is shown; the id that was given out means the first."""
    for content in ("one", "two"):
        await turn(store, ask(user("u1", content)), f"to {content}")
    [versions] = (await store.load("c1", owner="ada")).siblings.values()
    for version, content in zip(versions, ("one", "two"), strict=True):
        await store.change("c1", owner="ada", head_id=version)
        assert await shown(store) == [content]


async def test_an_answer_does_not_take_a_page_away_from_the_branch_it_switched_to(store: ChatStore) -> None:
    first = await turn(store, ask(user("u1", "Q1")), "A1")
    start = await begin(store, ask(user("u1", "Q1"), trigger=REGENERATE))
    await store.change("c1", owner="ada", head_id=first)
    await store.save(start.claim, answer("a2", "A2"))
    await store.finish(start.claim, answer("a2", "A2"), "finished")
    loaded = await store.load("c1", owner="ada")
    assert (texts(loaded.messages), loaded.siblings) == (["Q1", "A1"], {first: [first, "a2"]})


async def test_continuing_an_answer_of_another_branch_shows_that_branch(store: ChatStore) -> None:
    first = await waiting(store, call("t1"))
    await turn(store, ask(user("u1", "Q1"), trigger=REGENERATE), "A2")
    copy = answer(first, call("t1", "output-available", output=1))
    await turn(store, ask(copy, message_id=first), "A1")
    assert await shown(store) == ["Q1", "A1"]


# -- Histories that the store does not know.


async def test_a_history_is_imported_only_if_that_is_allowed(store: ChatStore) -> None:
    history = [user("u1", "Q1"), answer("a1", "A1"), user("u2", "Q2")]
    start = await begin(store, ask(*history, chat_id="c1"))
    assert texts(start.request.messages) == ["Q2"]
    start = await begin(store, ask(*history, chat_id="c2"), check_import=unchanged)
    assert start.request.messages == history
    loaded = await store.load("c2", owner="ada")
    assert (loaded.messages, loaded.outcomes, loaded.chat.title) == (history, {"a1": "finished"}, "Q1")


async def test_a_known_chat_imports_nothing(store: ChatStore) -> None:
    await turn(store, ask(user("u1", "Q1")), "A1")
    start = await begin(
        store, ask(user("x", "Forged"), answer("y", "Forged"), user("u2", "Q2")), check_import=unchanged
    )
    assert texts(start.request.messages) == ["Q1", "A1", "Q2"]


async def test_an_imported_answer_goes_on_with_what_the_server_has_checked(store: ChatStore) -> None:
    history = [user("u1", "Q1"), answer("a1", call("t1", "output-available", output=1))]
    request = msgspec.structs.replace(ask(*history, message_id="a1"), pending_calls=frozenset({"t1"}))
    start = await begin(store, request, check_import=unchanged)
    assert (start.continues, start.request.messages) == (history[1], history)
    assert [each.tool_call_id for each in start.request.tool_outputs] == ["t1"]


async def test_what_no_client_would_accept_is_not_imported(store: ChatStore) -> None:
    history = [user("u1", "Q1"), answer("a1", {"type": "unheard-of"}), user("u2", "Q2")]
    start = await begin(store, ask(*history), check_import=unchanged)
    assert texts(start.request.messages) == ["Q1", "Q2"]


# -- Files.

PNG = base64.b64encode(b"\x89PNG" * 1_000).decode()


def picture(url: str = f"data:image/png;base64,{PNG}") -> dict[str, Any]:
    return {"type": "file", "mediaType": "image/png", "url": url}


async def test_a_large_inline_file_becomes_a_stored_one(make: Make) -> None:
    here, there = await make(inline_limit=1_000)
    await turn(here, ask(user("u1", "Look", picture())), picture(), picture("data:,small"))
    loaded = await there.load("c1", owner="ada")
    url = str(dict(loaded.messages[0]["parts"][0])["url"])
    assert url.startswith("usechat-file:")
    assert loaded.messages[0] == user("u1", "Look", picture(url))
    assert loaded.messages[1]["parts"] == [picture(url), picture("data:,small")]
    blob = await there.file("c1", url.removeprefix("usechat-file:"), owner="ada")
    assert (blob.media_type, blob.data) == ("image/png", b"\x89PNG" * 1_000)
    await there.delete("c1", owner="ada")
    with pytest.raises(ChatNotFound):
        await here.file("c1", blob.id, owner="ada")


async def test_a_message_with_a_stored_file_is_known_again(make: Make) -> None:
    store, _ = await make(inline_limit=1_000)
    await turn(store, ask(user("u1", "Look", picture())), "A1")
    urls = FileUrls("https://example.com/files/")
    reloaded = urls.write((await store.load("c1", owner="ada")).messages[0])
    for message in (user("u1", "Look", picture()), reloaded):
        start = await begin(store, ask(message), files=urls)
        assert len(start.request.messages) == 1
        await store.finish(start.claim, answer("", "Again"), "finished")
    assert len((await store.load("c1", owner="ada")).siblings) == 1, "the answer has versions, the question has none"


async def test_the_files_of_the_last_messages_are_loaded_up_to_a_limit(make: Make) -> None:
    store, _ = await make(inline_limit=100)
    urls = ["data:image/png;base64," + base64.b64encode(bytes([number]) * 100).decode() for number in range(3)]
    for number, url in enumerate(urls):
        await turn(store, ask(user(f"u{number}", "Look", picture(url))), "A")
    messages = (await store.load("c1", owner="ada")).messages
    missing_file = {**picture("usechat-file:00"), "filename": "gone.png"}
    loaded = await store.load_files("c1", [*messages, user("u9", "Gone", missing_file)], limit=250)
    first = [message["parts"][0] for message in loaded if message["role"] == "user"]
    assert first == [
        text("[The file (image/png) is not included.]"),
        picture(urls[1]),
        picture(urls[2]),
        text("[The file gone.png (image/png) is not included.]"),
    ]


class Shelf:
    """A store of files; while it is away, it fails with an error that is not one of usechat."""

    def __init__(self) -> None:
        self.blobs: dict[tuple[str, str], Blob] = {}
        self.is_away = False

    async def put(self, chat_id: str, blob: Blob) -> None:
        self._answer()
        self.blobs[chat_id, blob.id] = blob

    async def get(self, chat_id: str, blob_id: str) -> Blob | None:
        self._answer()
        return self.blobs.get((chat_id, blob_id))

    async def delete(self, chat_id: str) -> None:
        self._answer()
        self.blobs = {key: blob for key, blob in self.blobs.items() if key[0] != chat_id}

    def _answer(self) -> None:
        if self.is_away:
            raise RuntimeError("the bucket is away")


async def test_a_store_of_files_that_is_away_is_like_a_database_that_is(make: Make) -> None:
    shelf = Shelf()
    store, _ = await make(inline_limit=1_000, blobs=shelf)
    start = await begin(store, ask(user("u1")))
    message = answer(start.claim.message_id, picture())
    shelf.is_away = True
    doings: list[Callable[[], Awaitable[Any]]] = [
        lambda: begin(store, ask(user("u2", "Look", picture()), chat_id="c2")),
        lambda: store.save(start.claim, message),
        lambda: store.finish(start.claim, message, "finished"),
        lambda: store.file("c1", "0", owner="ada"),
        lambda: store.delete("c1", owner="ada"),
        lambda: store.delete_owner("ada"),
    ]
    for do in doings:
        with pytest.raises(ChatsUnreachable):
            await do()
    assert await store.ids_of(owner="ada") == ["c1"], "what could not be done was not done"
    shelf.is_away = False
    await store.finish(start.claim, message, "finished")
    assert len(shelf.blobs) == 1
    await asyncio.sleep(0.01)  # nothing was said for longer than no time
    shelf.is_away = True
    with pytest.raises(ChatsUnreachable):
        await store.delete_unchanged(0)
    shelf.is_away = False
    assert (await store.delete_unchanged(0), shelf.blobs) == (1, {})


async def test_files_can_be_stored_elsewhere(make: Make) -> None:
    shelf = Shelf()
    store, _ = await make(inline_limit=1_000, blobs=shelf)
    await turn(store, ask(user("u1", "Look", picture())), "A1")
    ((_, blob_id),) = shelf.blobs
    assert (await store.file("c1", blob_id, owner="ada")).data == b"\x89PNG" * 1_000
    assert [file.id for file in (await store.export("c1", owner="ada")).files] == [blob_id]
    with pytest.raises(ChatNotFound):
        await store.file("c1", "0", owner="ada")
    shelf.is_away = True
    with pytest.raises(ChatNotFound):
        await store.file("c1", "../notes", owner="ada")  # no id of a file, so the store is not asked
    shelf.is_away = False
    await store.delete("c1", owner="ada")
    assert shelf.blobs == {}


# -- The list.


async def listed(store: ChatStore, owner: str | None = "ada", **options: Any) -> list[str]:
    return [each.chat.id for each in (await store.list_chats(owner, **options)).chats]


async def fill(store: ChatStore, *chat_ids: str) -> None:
    for chat_id in chat_ids:
        await turn(store, ask(user("u1", f"About {chat_id}"), chat_id=chat_id), f"Answer to {chat_id}")


async def test_the_list_has_the_last_updated_first(store: ChatStore) -> None:
    await fill(store, "one", "two", "three")
    assert await listed(store) == ["three", "two", "one"]
    start = await begin(store, ask(user("u2"), chat_id="one"))
    page = await store.list_chats("ada")
    assert [(each.chat.id, each.chat.title, each.running) for each in page.chats] == [
        ("one", "About one", True),
        ("three", "About three", False),
        ("two", "About two", False),
    ]
    assert (page.next_cursor, start.is_new) == (None, False)


async def test_a_page_of_the_list_does_not_shift_when_chats_are_added(store: ChatStore) -> None:
    await fill(store, "a", "b", "c", "d", "e")
    first = await store.list_chats("ada", limit=2)
    await fill(store, "f")
    second = await store.list_chats("ada", limit=2, cursor=first.next_cursor)
    third = await store.list_chats("ada", limit=2, cursor=second.next_cursor)
    pages = [[each.chat.id for each in page.chats] for page in (first, second, third)]
    assert pages == [["e", "d"], ["c", "b"], ["a"]]
    assert third.next_cursor is None
    assert await listed(store, limit=2, starting_after="d") == ["c", "b"]


@pytest.mark.parametrize(
    "cursor",
    ["", "x", "ä", "e30", "W10", write_cursor((True, 1.0, 2**63)), write_cursor((True, 1.0, -1))],
    ids=["empty", "letter", "not-ascii", "object", "list", "large-key", "negative-key"],
)
async def test_a_cursor_that_nobody_gave_out_is_refused(store: ChatStore, cursor: str) -> None:
    with pytest.raises(InvalidRequest, match="cursor"):
        await store.list_chats("ada", cursor=cursor)


async def test_pinned_chats_come_first_and_archived_ones_can_be_left_out(store: ChatStore) -> None:
    await fill(store, "a", "b", "c")
    await store.change("a", owner="ada", pinned=True)
    await store.change("b", owner="ada", archived=True)
    assert await listed(store) == ["a", "c", "b"]
    assert (await listed(store, archived=False), await listed(store, archived=True)) == (["a", "c"], ["b"])
    page = await store.list_chats("ada", limit=1)
    assert await listed(store, cursor=page.next_cursor) == ["c", "b"]


@pytest.mark.parametrize(
    ("query", "chat_ids"),
    [
        ("ANSWER TO b", ["b"]),
        ("about", ["c", "b", "a"]),
        ("größe", ["size"]),
        ("GRÖSSE", ["size"]),
        ("100%", ["size"]),
        ("%", ["size"]),
        ("_", []),
        ("nowhere", []),
        ("\0", ["size", "c", "b", "a"]),
    ],
)
async def test_chats_are_found_by_title_and_text(store: ChatStore, query: str, chat_ids: list[str]) -> None:
    await fill(store, "a", "b", "c")
    await turn(store, ask(user("u1", "Welche Größe? 100%"), chat_id="size"), "Antwort")
    assert await listed(store, query=query) == chat_ids


async def test_people_see_their_own_chats_only(store: ChatStore) -> None:
    await fill(store, "hers")
    await begin(store, ask(user("u1"), chat_id="his"), owner="bob")
    assert (await listed(store), await listed(store, "bob")) == (["hers"], ["his"])
    assert set(await listed(store, None)) == {"hers", "his"}
    with pytest.raises(ChatNotFound):
        await store.list_chats("bob", starting_after="hers")


async def test_a_foreign_chat_is_not_found(store: ChatStore) -> None:
    await turn(store, ask(user("u1", "Secret")), "A1")
    attempts: list[Awaitable[object]] = [
        store.begin(ask(user("u2")), owner="eve", run_id="r"),
        store.load("c1", owner="eve"),
        store.load("c1", owner="eve", tree=True),
        store.change("c1", owner="eve", title="Mine"),
        store.rate("c1", "u1", 1, owner="eve"),
        store.delete("c1", owner="eve"),
        store.export("c1", owner="eve"),
        store.export_markdown("c1", owner="eve"),
        store.file("c1", "x", owner="eve"),
        store.load("unknown", owner="eve"),
    ]
    for attempt in attempts:
        with pytest.raises(ChatNotFound):
            await attempt
    assert await shown(store) == ["Secret", "A1"]


# -- Changes.


async def test_a_change_names_the_version_it_is_made_to(stores: Stores) -> None:
    here, there = stores
    await turn(here, ask(user("u1")), "A1")
    version = (await here.load("c1", owner="ada")).version
    changed = await here.change("c1", owner="ada", title="  A better\n title ", version=version)
    assert (changed.title, changed.version) == ("A better title", version + 1)
    with pytest.raises(ChatChanged):
        await there.change("c1", owner="ada", title="Another", version=version)
    assert (await there.load("c1", owner="ada")).chat == changed


async def test_every_turn_is_a_new_version(store: ChatStore) -> None:
    versions = []
    for number in range(3):
        await turn(store, ask(user(f"u{number}")), "A")
        versions.append((await store.load("c1", owner="ada")).version)
    assert versions == sorted(set(versions))


async def test_a_title_is_the_first_words_then_a_functions_then_a_persons(store: ChatStore) -> None:
    start = await begin(store, ask(user("u1", "How long does it take to fly from Rome to Tokyo with a stop in Doha?")))
    assert start.chat.title == "How long does it take to fly from Rome to Tokyo with a stop…"
    suggested = await store.suggest_title("c1", "Rome to Tokyo")
    assert suggested is not None
    assert suggested.title == "Rome to Tokyo"
    await store.change("c1", owner="ada", title="My trip")
    assert await store.suggest_title("c1", "Rome to Tokyo") is None
    assert (await store.load("c1", owner="ada")).chat.title == "My trip"
    assert await store.suggest_title("unknown", "Title") is None


async def test_feedback_stands_beside_the_message(store: ChatStore) -> None:
    message_id = await waiting(store, call("t1"))
    await store.rate("c1", message_id, {"thumbs": "up"}, owner="ada")
    copy = answer(message_id, call("t1", "output-available", output=1))
    await turn(store, ask(copy, message_id=message_id), "A1")
    assert (await store.load("c1", owner="ada")).feedback == {message_id: {"thumbs": "up"}}
    await store.rate("c1", message_id, None, owner="ada")
    assert (await store.load("c1", owner="ada")).feedback == {}
    with pytest.raises(Unprocessable):
        await store.rate("c1", "unknown", 1, owner="ada")


async def test_with_the_tree_what_stands_beside_messages_is_about_all_branches(store: ChatStore) -> None:
    first = await turn(store, ask(user("u1", "Q1")), "A1", outcome="stopped")
    await store.rate("c1", first, {"thumbs": "down"}, owner="ada")
    second = await turn(store, ask(user("u1", "Q1"), trigger=REGENERATE), "A1 again")
    branch = await store.load("c1", owner="ada")
    assert (branch.outcomes, branch.feedback, branch.siblings) == ({second: "finished"}, {}, {second: [first, second]})
    tree = await store.load("c1", owner="ada", tree=True)
    assert tree.outcomes == {first: "stopped", second: "finished"}
    assert tree.feedback == {first: {"thumbs": "down"}}
    assert tree.siblings == {first: [first, second], second: [first, second]}
    assert list(tree.created) == ["u1", first, second]


async def test_a_chat_remembers_which_agent_answers(store: ChatStore) -> None:
    start = await begin(store, ask(user("u1")), agent="travel")
    await store.finish(start.claim, answer("a1", "A1"), "finished")
    start = await begin(store, ask(user("u2")))
    assert start.chat.agent == "travel"


async def test_an_answer_remembers_which_agent_made_it(store: ChatStore) -> None:
    for agent in ("travel", "weather"):
        start = await begin(store, ask(user("u1"), trigger=REGENERATE), agent=agent)
        await store.save(start.claim, answer(f"a-{agent}", "Shall I?"))
        await store.finish(start.claim, answer(f"a-{agent}", "Shall I?", asks("t1", "p1")), "waiting")
    approved = ask(answer("a-travel", answers("t1", "p1", True)), message_id="a-travel")
    assert await store.agents_of(approved, owner="ada") == ("weather", "travel")
    assert await store.agents_of(ask(user("u2")), owner="ada") == ("weather", "")
    document = await store.export("c1", owner="ada")
    await store.delete("c1", owner="ada")
    await store.restore(document)
    assert await store.agents_of(approved, owner="ada") == ("weather", "travel")
    with pytest.raises(ChatNotFound):
        await store.agents_of(approved, owner="bob")


# -- Deleting.


async def test_all_chats_of_an_owner_are_deleted(store: ChatStore) -> None:
    await fill(store, "a", "b")
    await begin(store, ask(user("u1"), chat_id="his"), owner="bob")
    assert await store.delete_owner("ada") == 2
    assert await listed(store, None) == ["his"]


async def test_chats_that_nobody_changed_for_long_are_deleted(store: ChatStore) -> None:
    await fill(store, "new")
    document = await store.export("new", owner="ada")
    old = msgspec.structs.replace(document, id="old", updated_at=document.updated_at - 100)
    await store.restore(old)
    assert await store.delete_unchanged(50) == 1
    assert await listed(store) == ["new"]


async def test_an_old_chat_that_is_being_answered_is_not_deleted(store: ChatStore) -> None:
    start = await begin(store, ask(user("u1", "A question whose answer takes very long")))
    assert await store.delete_unchanged(-1) == 0
    await store.finish(start.claim, answer("a1", "A1"), "finished")
    assert await shown(store) == ["A question whose answer takes very long", "A1"]
    assert await store.delete_unchanged(-1) == 1


# -- Export and import.


async def grown_chat(store: ChatStore) -> None:
    await turn(store, ask(user("u1", "Look \ud83d", picture())), "A1", call("t1"), outcome="waiting")
    await turn(store, ask(user("u1", "Q1 edited"), message_id="u1"), "A2", outcome="stopped")
    await store.change("c1", owner="ada", title="My chat", pinned=True)
    await store.rate("c1", "u1", {"thumbs": "down"}, owner="ada")


async def test_an_exported_chat_is_restored_without_loss(make: Make) -> None:
    store, _ = await make(inline_limit=1_000)
    await grown_chat(store)
    document = await store.export("c1", owner="ada")
    loaded = await store.load("c1", owner="ada", tree=True)
    with pytest.raises(ChatExists):
        await store.restore(document)
    await store.delete("c1", owner="ada")
    await store.restore(document_json(document))
    assert await store.export("c1", owner="ada") == document
    again = await store.load("c1", owner="ada", tree=True)
    assert msgspec.structs.replace(again, chat=loaded.chat) == loaded
    await turn(store, ask(user("u1", "Q1 edited"), trigger=REGENERATE), "A3")
    assert await shown(store) == ["Q1 edited", "A3"]


async def test_a_chat_that_is_exported_while_it_is_answered_shows_its_question(store: ChatStore) -> None:
    await turn(store, ask(user("u1", "Q1")), "A1")
    start = await begin(store, ask(user("u2", "Q2")))
    await store.save(start.claim, answer(start.claim.message_id, "A"))
    document = await store.export("c1", owner="ada")
    await store.delete("c1", owner="ada")
    await store.restore(document)
    assert await shown(store) == ["Q1", "A1", "Q2"]


async def test_a_chat_is_restored_for_somebody_else(store: ChatStore) -> None:
    await fill(store, "a")
    document = await store.export("a", owner="ada")
    row = await store.restore(msgspec.structs.replace(document, id="b"), owner="bob")
    assert (row.owner, await listed(store, "bob")) == ("bob", ["b"])


async def test_markdown_shows_the_current_branch(store: ChatStore) -> None:
    await turn(store, ask(user("u1", "What is the weather?")), call("t1", "output-available", output="21 °C"), "Warm.")
    assert await store.export_markdown("c1", owner="ada") == (
        "# What is the weather?\n\n## User\n\nWhat is the weather?\n\n## Assistant\n\n"
        'Tool: weather (output-available)\n\n```json\n{\n  "city": "Rome"\n}\n```\n\n'
        'Output:\n\n```json\n"21 °C"\n```\n\nWarm.\n'
    )


async def test_a_request_that_fails_changes_nothing(store: ChatStore) -> None:
    await turn(store, ask(user("u1", "Q1")), "A1")
    before = await store.load("c1", owner="ada")
    for request in (
        ask(answer("unknown", "x"), message_id="unknown"),
        ask(user("u2", "Hi", {"type": "unheard-of"})),
        ask(user("u" * 2_000)),
    ):
        with pytest.raises(UsechatError):
            await store.begin(request, owner="ada", run_id="r")
    assert await store.load("c1", owner="ada") == before


async def test_a_share_token_leads_to_its_chat_until_it_is_revoked(stores: Stores) -> None:
    chats, other = stores
    await turn(chats, ask(user("u1", "Hello")), "Hi")
    token = await chats.share("c1", owner="ada")
    assert await chats.share("c1", owner="ada") == token, "a second click makes no second link"
    assert len((await other.load_shared(token)).messages) == 2
    await chats.unshare("c1", owner="ada")
    with pytest.raises(ChatNotFound):
        await chats.load_shared(token)
    assert await chats.share("c1", owner="ada") != token


async def test_a_chat_of_somebody_else_cannot_be_shared(store: ChatStore) -> None:
    await turn(store, ask(user("u1", "Hello")), "Hi")
    for change in (store.share, store.unshare):
        with pytest.raises(ChatNotFound):
            await change("c1", owner="bob")
