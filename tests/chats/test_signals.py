"""Signals between the instances of a database, and the readers that an answer has in other processes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final

import pytest
from sqlalchemy import text

from usechat.chats import SqlChats
from usechat.chats.remote_readers import RemoteReaders
from usechat.chats.signals import Signals

PATIENCE: Final = 60


class Network:
    """Passes the signals of instances on in order, and notes the payloads."""

    def __init__(self) -> None:
        self.instances: dict[str, Signals] = {}
        self.payloads: list[str] = []

    def join(self, name: str) -> Signals:
        self.instances[name] = Signals(name, self._notify)
        return self.instances[name]

    async def _notify(self, instance: str, payloads: Sequence[str]) -> None:
        for payload in payloads:
            self.payloads.append(payload)
            asyncio.get_running_loop().call_soon(self.instances[instance].take, payload)


@pytest.fixture
def network() -> Network:
    return Network()


async def turns(number: int = 5) -> None:
    """Let everything happen that is due in the event loop."""
    for _ in range(number):
        await asyncio.sleep(0)


async def test_a_message_arrives_whole_however_long_it_is(network: Network) -> None:
    here, there = network.join("here"), network.join("there")
    received: list[bytes] = []
    there.receive("post", received.append)
    messages = [b"", b"short", bytes(range(256)) * 200]
    for message in messages:
        await here.send("there", "post", message)
        await here.send("there", "nobody", message)
    await turns()
    assert received == messages
    assert max(map(len, network.payloads)) < 8000
    assert len(set(network.payloads)) == len(network.payloads), "PostgreSQL leaves one of two that are alike out"


async def test_pieces_of_a_session_that_has_ended_are_forgotten(network: Network) -> None:
    received: list[bytes] = []
    signals = network.join("here")
    signals.receive("post", received.append)
    signals.take("post m1 2 0 aGFs")
    signals.forget_pieces()
    signals.take("post m1 2 1 ZiE=")
    assert received == []


async def test_who_begins_to_read_makes_the_owner_save_and_is_told(network: Network) -> None:
    owner, reader = (RemoteReaders(network.join(name), lease=30) for name in ("owner", "reader"))
    saves: list[str] = []
    with owner.saving("r1", lambda: saves.append("saved")):
        assert not owner.is_read("r1")
        async with reader.watch("r1", reads=True) as watch:
            await watch.tell("owner")
            await watch.tell("owner")
            await turns()
            assert (saves, owner.is_read("r1"), watch.news.is_set()) == (["saved"], True, False)
            await owner.tell("r1")
            await turns()
            assert watch.news.is_set()
        await turns()
        assert not owner.is_read("r1")
    before = len(network.payloads)
    await owner.tell("r1")
    assert len(network.payloads) == before, "nobody waits"


async def test_who_waits_for_the_end_alone_makes_nobody_save(network: Network) -> None:
    owner, waiter = (RemoteReaders(network.join(name), lease=30) for name in ("owner", "waiter"))
    saves: list[str] = []
    with owner.saving("r1", lambda: saves.append("saved")):
        async with waiter.watch("r1", reads=False) as watch:
            await watch.tell("owner")
            await turns()
            assert (saves, owner.is_read("r1")) == ([], False)
            await owner.tell("r1")
            await turns()
            assert watch.news.is_set()


async def test_who_waits_for_an_answer_that_has_just_ended_is_told_at_once(network: Network) -> None:
    _owner, reader = (RemoteReaders(network.join(name), lease=30) for name in ("owner", "reader"))
    async with reader.watch("r1", reads=True) as watch:
        await watch.tell("owner")
        await asyncio.wait_for(watch.wait(), PATIENCE)


async def test_a_reader_that_is_silent_for_a_lease_is_forgotten(network: Network) -> None:
    owner, reader = RemoteReaders(network.join("owner"), lease=0.05), RemoteReaders(network.join("reader"), lease=30)
    saves: list[str] = []
    with owner.saving("r1", lambda: saves.append("saved")):
        async with reader.watch("r1", reads=True) as watch:
            await watch.tell("owner")
            await turns()
            assert saves == ["saved"]
            async with asyncio.timeout(PATIENCE):
                while owner.is_read("r1"):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)


@pytest.fixture
async def stores(postgres: str) -> AsyncIterator[tuple[SqlChats, SqlChats]]:
    pair = SqlChats(postgres), SqlChats(postgres)
    for store in pair:
        await store.open()
    yield pair
    for store in pair:
        await store.close()


async def test_postgresql_passes_signals_on(stores: tuple[SqlChats, SqlChats]) -> None:
    here, there = stores
    assert here.readers is not None
    assert there.readers is not None
    received: asyncio.Queue[bytes] = asyncio.Queue()
    there.readers.signals.receive("post", received.put_nowait)
    messages = [b"hello", b"x" * 100_000, b"hello"]
    for message in messages:
        await here.readers.signals.send(there.instance, "post", message)
    assert [await asyncio.wait_for(received.get(), PATIENCE) for _ in messages] == messages


async def test_an_instance_whose_session_was_ended_hears_again(stores: tuple[SqlChats, SqlChats]) -> None:
    here, there = stores
    assert here.readers is not None
    assert there.readers is not None
    received: asyncio.Queue[bytes] = asyncio.Queue()
    there.readers.signals.receive("post", received.put_nowait)
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = "
    async with here.engine.connect() as connection:
        await connection.execute(text(f"{others}'client backend'"))
    async with asyncio.timeout(PATIENCE):
        while received.empty():
            try:
                await there.orphaned()  # as the upkeep does
                await here.readers.signals.send(there.instance, "post", b"hello")
            except Exception:  # connections of the pool have ended, too
                continue
            await asyncio.sleep(0.05)
    assert await received.get() == b"hello"
