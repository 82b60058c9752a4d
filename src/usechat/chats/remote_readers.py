"""Readers of an answer in other processes than the one that owns it.

Whoever reads an answer of another process, or waits for its end, tells the owner by a signal
(:mod:`usechat.chats.signals`). As long as it is read, the owner saves it at most 250 ms after it has grown, and tells
those who wait: they look at the database. Nothing else is sent, and without such readers nothing at all.

A reader tells the owner again after a third of the lease, and looks then in any case: the owner may have died, so that
another process has the answer by now. One that has not told it for a lease is forgotten.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import msgspec

from usechat.chats.signals import Signals
from usechat.errors import ChatsUnreachable
from usechat.ids import new_id

__all__ = ["RemoteReaders", "Watch"]

_ADDRESS: Final = "answers"


class _Waiter(msgspec.Struct, frozen=True):
    """Somebody in another process who waits for news of an answer; ``reads`` says that a page is shown it."""

    instance: str
    reads: bool
    until: float


class _Signal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A signal about an answer: ``kind`` is ``wait``, ``leave``, ``news`` or ``stop``."""

    kind: str
    run_id: str
    waiter: str = ""
    instance: str = ""
    reads: bool = False
    unless_read: bool = False


class Watch:
    """One who waits here for news of an answer of another process."""

    def __init__(self, readers: "RemoteReaders", run_id: str, *, reads: bool) -> None:
        self._readers = readers
        self._run_id = run_id
        self._reads = reads
        self._id = new_id()
        self._owner = ""
        self._told = 0.0
        self.news = asyncio.Event()

    async def tell(self, owner: str) -> None:
        """Tell the owner of the answer that somebody waits, unless it knows."""
        now = asyncio.get_running_loop().time()
        if owner != self._owner or now >= self._told + self._readers.interval:
            self._owner, self._told = owner, now
            await self._send("wait")

    async def wait(self) -> None:
        """Wait for news, or until it is time to look again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._readers.interval):
                await self.news.wait()
        self.news.clear()

    async def leave(self) -> None:
        """Tell the owner that nobody waits any more."""
        if self._owner:
            with contextlib.suppress(ChatsUnreachable):  # it forgets us by itself
                await self._send("leave")

    async def _send(self, kind: str) -> None:
        instance = self._readers.signals.instance
        message = _Signal(kind, self._run_id, self._id, instance, self._reads)
        await self._readers.send(self._owner, message)


class RemoteReaders:
    """The readers that the answers of this process have elsewhere, and those that read here what others say."""

    def __init__(self, signals: Signals, lease: float) -> None:
        self.signals = signals
        self.interval = lease / 3
        """Seconds after which a reader tells the owner again that it is there, and looks again."""
        self.on_stop: Callable[[str, bool], None] = _ignore
        """Called with the id of an answer that another process asks to stop, perhaps only if nobody reads it."""
        self._lease = lease
        self._waiters: dict[str, dict[str, _Waiter]] = {}
        self._watches: dict[str, set[Watch]] = {}
        self._savers: dict[str, Callable[[], object]] = {}
        self._replies: set[asyncio.Task[None]] = set()
        signals.receive(_ADDRESS, self._receive)

    # -- For the owner of an answer.

    @contextmanager
    def saving(self, run_id: str, save: Callable[[], object]) -> Iterator[None]:
        """Call ``save`` within the block whenever somebody begins to read an answer."""
        self._savers[run_id] = save
        if self.is_read(run_id):
            save()
        try:
            yield
        finally:
            del self._savers[run_id]

    def is_read(self, run_id: str) -> bool:
        """Tell whether another process reads an answer of this one."""
        return run_id in self._waiters and any(waiter.reads for waiter in self._present(run_id))

    async def tell(self, run_id: str) -> None:
        """Tell those who wait for news of an answer that there are some."""
        for instance in {waiter.instance for waiter in self._present(run_id)} if run_id in self._waiters else ():
            await self._send_news(instance, run_id)

    def stop_soon(self, run_id: str) -> None:
        """Stop an answer of this process in the next iteration of the event loop."""
        asyncio.get_running_loop().call_soon(self.on_stop, run_id, False)

    def forget(self, run_id: str) -> None:
        """Forget who waits for news of an answer: it has ended."""
        self._waiters.pop(run_id, None)

    # -- For those who read it.

    @asynccontextmanager
    async def watch(self, run_id: str, *, reads: bool) -> AsyncIterator[Watch]:
        """Wait for news of an answer within the block; ``reads`` says that somebody is shown it."""
        watch = Watch(self, run_id, reads=reads)
        self._watches.setdefault(run_id, set()).add(watch)
        try:
            yield watch
        finally:
            others = self._watches[run_id]
            others.discard(watch)
            if not others:
                del self._watches[run_id]
            await watch.leave()

    async def order_stop(self, instance: str, run_id: str, *, unless_read: bool) -> None:
        """Ask the owner of an answer to stop it. Raises :class:`~usechat.errors.ChatsUnreachable`."""
        await self.send(instance, _Signal("stop", run_id, unless_read=unless_read))

    # -- Signals.

    async def send(self, instance: str, message: _Signal) -> None:
        """Send a signal to another process, or to this one."""
        await self.signals.send(instance, _ADDRESS, msgspec.json.encode(message))

    def _receive(self, data: bytes) -> None:
        message = msgspec.json.decode(data, type=_Signal)
        run_id = message.run_id
        match message.kind:
            case "wait":
                self._add(message)
                if run_id not in self._savers:  # it has ended, or has not begun: the waiter may have looked before
                    self._reply(message)
            case "leave":
                self._waiters.get(run_id, {}).pop(message.waiter, None)
            case "news":
                for watch in self._watches.get(run_id, ()):
                    watch.news.set()
            case "stop":
                self.on_stop(run_id, message.unless_read)

    def _add(self, message: _Signal) -> None:
        for run_id in [run_id for run_id in self._waiters if not self._present(run_id)]:
            del self._waiters[run_id]
        waiters = self._waiters.setdefault(message.run_id, {})
        is_new = message.waiter not in waiters
        until = asyncio.get_running_loop().time() + self._lease
        waiters[message.waiter] = _Waiter(message.instance, message.reads, until)
        if is_new and message.reads and (save := self._savers.get(message.run_id)) is not None:
            save()

    def _reply(self, message: _Signal) -> None:
        task = asyncio.get_running_loop().create_task(self._send_news(message.instance, message.run_id))
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    async def _send_news(self, instance: str, run_id: str) -> None:
        with contextlib.suppress(ChatsUnreachable):  # they look by themselves
            await self.send(instance, _Signal("news", run_id))

    def _present(self, run_id: str) -> list[_Waiter]:
        now = asyncio.get_running_loop().time()
        waiters = {name: waiter for name, waiter in self._waiters[run_id].items() if waiter.until > now}
        self._waiters[run_id] = waiters
        return list(waiters.values())


def _ignore(_run_id: str, _unless_read: bool) -> None:
    """Do nothing: nobody runs answers here."""
