"""Stores that are opened at the same time make their tables one after the other."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from usechat.agent_ops.access.directory import DirectoryChanges, SessionDirectory
from usechat.chats import SqlChats


async def open_and_close(path: Path) -> None:
    store = SqlChats(str(path))
    await store.open()
    assert (await store.list_chats(None)).chats == []
    await store.close()


async def test_stores_of_one_event_loop(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a.db", "b.db", "c.db", "c.db")]
    await asyncio.gather(*map(open_and_close, files))


def test_stores_of_several_threads(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        files = [tmp_path / f"{number % 3}.db" for number in range(4)]
        list(threads.map(lambda path: asyncio.run(open_and_close(path)), files))


async def test_stores_of_different_kinds(tmp_path: Path) -> None:
    directory = SessionDirectory(f"sqlite:///{tmp_path}/sessions.db")
    await asyncio.gather(open_and_close(tmp_path / "chats.db"), DirectoryChanges(directory).migrate())
    await directory.require_migrated()
    await directory.close()
