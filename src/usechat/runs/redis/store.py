"""The run store of many workers, over Redis Streams.

**The data.** A chat is a hash that describes its last run: id, info, state, owner, lease. A run's log is a stream; its
first entry, ``0-1``, holds the start time, the entries ``1-0``, ``2-0``, … hold frames, the last entry has the highest
id a stream can have (the seal). A sorted set names the workers that read a run. Every worker has an inbox, a stream of
requests to it. Keys expire ``remember`` seconds after the end of a run. All keys of a chat share one of a few hash
tags, so that they are in one slot of a cluster.

**The tasks.** A worker has three: the writer sends the frames of all its runs together
(:mod:`~usechat.runs.redis.writer`), the listener blocks on the inbox and on the runs that are read here
(:mod:`~usechat.runs.redis.listener`), and the third renews leases. They start with the first claim or read. In a
cluster there is one more listener for each hash tag of runs that are read.

**Ownership.** The worker that claimed a run owns it while its lease is valid, by the clock of Redis. It renews the
lease every third of the lease time. The first to find an expired lease (a claim, a read, a state request) declares the
run lost, in one script: exactly one worker reports it. An owner that could not renew in time must assume that this will
happen, and fails its run.

**The seal.** An end is the entry with the highest id. After it Redis itself refuses every XADD, so an owner that was
paused cannot write into a run that others have ended, without a check on every write, and a log has exactly one end.

**Invariants.** At most one run per chat has the state ``running``. Every log ends with one seal. Readers see the
entries 1, 2, 3, … without a gap; a gap, left by a server that forgot confirmed writes, makes the run lost. Every loss
is reported once. Scripts and writes can be repeated after a lost reply.

**What fails how.** While Redis is away or refuses commands, runs continue and their frames wait in memory; claims,
states and stops raise :class:`~usechat.errors.StoreUnreachable`, and the log says once why
(:mod:`~usechat.runs.redis.health`). Before a lease time is over, owners fail their runs and readers in other workers
end. A lost stop request is found by the owner's next renewal, as the hash is marked, too. Without persistence a restart
of Redis ends all runs with an error. After a failover that lost writes, readers that had read them continue; all others
see that the run was lost.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec

from usechat.errors import MissingDependency, RunLost, StoreUnreachable
from usechat.pauses.states import STATE_SECONDS
from usechat.runs.redis import scripts
from usechat.runs.run import RunInfo, RunState
from usechat.runs.store import LOST

try:
    from redis import exceptions
except ImportError:
    raise MissingDependency("redis", "redis") from None

from usechat.runs.redis.client import RedisClient
from usechat.runs.redis.health import RedisHealth
from usechat.runs.redis.listener import GIVE_UP, Listener, Member, Notices, longest_block
from usechat.runs.redis.writer import GATHER_BRIEFLY, OwnedRun, Writer

__all__ = ["RedisRuns"]

_logger: Final = logging.getLogger("usechat.runs")

TOO_LARGE: Final = "The answer became too large and was stopped."
_NODE_SECONDS: Final = 1.5
_INBOX_LENGTH: Final = 1000
_CANCEL_AGAIN: Final = 0.1


class RedisRuns:
    """Shares runs among any number of workers through Redis: each can resume and stop every run.

    Needs the extra ``redis`` (``pip install 'usechat[redis]'``) and Redis 6.2, Valkey, or newer: a server
    (``redis://``, ``rediss://``, ``unix://``), a primary with Sentinels (``redis+sentinel://host,host/service``) or a
    cluster (``redis+cluster://host,host``); ``docs/deploy.md`` has the URLs.

    - ``lease``: seconds after which the run of a worker that died counts as lost, and the longest outage of Redis that
      runs survive.
    - ``remember``: seconds that an ended run is known.
    - ``maximum_bytes``: the size limit of a run's log; a run that exceeds it fails.
    - ``prefix``: the start of every key, so that several services can share a server.

    >>> from usechat.server import ChatApp
    >>> chats = ChatApp(lambda turn: "Hello", runs=RedisRuns("redis://localhost:6379", prefix="my-service"))

    Raises :class:`~usechat.errors.MissingDependency` on import without the extra. Connections are opened on first use;
    :class:`~usechat.errors.StoreUnreachable` says that Redis does not answer.
    """

    is_shared = True
    is_concurrent = False

    def __init__(
        self,
        url: str = "redis://localhost:6379",
        *,
        lease: float = 10,
        remember: float = 600,
        maximum_bytes: int = 32 * 1024 * 1024,
        prefix: str = "usechat",
    ) -> None:
        self._lease = lease
        self.remember = remember
        self._maximum_bytes = maximum_bytes
        self._keys = scripts.Keys(prefix)
        self._worker = secrets.token_hex(8)
        self._client = RedisClient(url)
        block = longest_block(lease)
        self._blocked_client = RedisClient(
            url, reply_seconds=lease, node_seconds=block + _NODE_SECONDS, connections=scripts.TAGS + 1
        )
        self._health = RedisHealth(url)
        self._owned: dict[str, OwnedRun] = {}
        self._given_up: list[OwnedRun] = []
        self._stop: Callable[[str, bool], None] = _ignore
        self._fail: Callable[[str, str], None] = _ignore
        self._report: Callable[[RunInfo, float], None] = _ignore
        self._addresses: dict[str, Callable[[bytes], None]] = {}
        self._writer = Writer(self._client, self._health, on_lost=self._lose)
        self._listeners: dict[str, Listener] = {}
        self._tasks: list[asyncio.Task[None]] = []

    # For the owner of a run

    async def claim(
        self, info: RunInfo, *, continues: Mapping[str, Any] | None = None, after: str | None = None
    ) -> RunInfo | None:
        """Make this the active run of its chat. Returns the last run instead, if it is running or is not ``after``.

        ``continues`` is the message that the run continues, for readers in other workers.
        """
        start = _now()
        active = await self._claim(info, self._worker, continues, after)
        if active is None:
            self._own(info, start, self._lease)
        return active

    async def _claim(
        self, info: RunInfo, owner: str, continues: Mapping[str, Any] | None, after: str | None
    ) -> RunInfo | None:
        self._begin()
        arguments = (
            info.run_id,
            msgspec.json.encode(info),
            owner,
            msgspec.json.encode(continues),
            _milliseconds(self._lease),
            self._keep,
            _milliseconds(self.remember),
            scripts.ANY if after is None else after,
        )
        keys = (self._keys.chat(info.chat_id), self._keys.log(info))
        active, lost = await self._run(scripts.CLAIM, keys, *arguments)
        if lost is not None:
            self._report_lost(_info(lost), lost[2] / 1000)
        if active is not None:
            return _info(active)
        self._health.worked()
        return None

    def _own(self, info: RunInfo, renewed: float, lease: float) -> None:
        tag = self._keys.tag(info.chat_id)
        self._owned[info.run_id] = OwnedRun(info, self._keys.log(info), tag, renewed, lease=lease)

    def append(self, run_id: str, frames: bytes) -> None:
        """Queue frames for the writer, which sends those of all runs together."""
        run = self._owned.get(run_id)
        if run is None:
            return
        run.add(frames)
        self._writer.schedule(run)
        if run.size > self._maximum_bytes >= run.size - len(frames):
            self._notify_failure(run_id, TOO_LARGE)

    async def end(self, info: RunInfo) -> bool:
        """Record the end of a run; returns when Redis has it, or when the lease has expired anyway."""
        run = self._owned.get(info.run_id)
        if run is None:
            return False
        keys = (self._keys.chat(info.chat_id), run.log)
        arguments = (info.run_id, self._worker, msgspec.json.encode(info), info.state, _milliseconds(self.remember))
        run.last = ("EVAL", scripts.END, len(keys), *keys, *arguments)
        self._writer.schedule(run)
        await asyncio.wait([run.completion], timeout=self._lease)
        if not run.completion.done():
            self._give_up(run)
        self._owned.pop(info.run_id, None)
        return run.completion.result()

    def on_stop_requested(self, stop: Callable[[str, bool], None]) -> None:
        """Call ``stop`` with the id of a run of this worker that should stop, and with ``unless_read``."""
        self._stop = stop

    def on_failure(self, fail: Callable[[str, str], None]) -> None:
        """Call ``fail`` with the id of a run of this worker that must end at once, and with the error text to show."""
        self._fail = fail

    def on_lost(self, report: Callable[[RunInfo, float], None]) -> None:
        """Call ``report`` with a run that this worker was the first to find lost, and with the seconds it lasted.

        It is also called for a run that this worker gave up although its end had reached Redis; its state is that end.
        """
        self._report = report

    async def is_read(self, info: RunInfo) -> bool:
        """Return whether another worker reads a run of this one."""
        return bool(await self._run(scripts.IS_READ, (self._keys.readers(info),)))

    # For every worker

    async def latest(self, chat_id: str) -> RunInfo | None:
        """Return the chat's last run."""
        reply = await self._run(scripts.LATEST, (self._keys.chat(chat_id),), _milliseconds(self.remember))
        if reply is None:
            return None
        info = _info(reply)
        if reply[2] is not None:
            self._report_lost(info, reply[2] / 1000)
        return info

    async def continued(self, info: RunInfo) -> Mapping[str, Any] | None:
        """Return the message that another worker's run continues."""
        chat = self._keys.chat(info.chat_id)
        run_id, encoded = await self._ask("HMGET", chat, "run", "continued")
        if run_id is None or run_id.decode() != info.run_id:
            return None
        message: Mapping[str, Any] | None = msgspec.json.decode(encoded)
        return message

    async def frames(self, info: RunInfo) -> bytes:
        """Return the frames of a run so far, up to the first gap."""
        entries = await self._ask("XRANGE", self._keys.log(info), "1-0", "+")
        numbered = enumerate(entries, 1)
        return b"".join([fields.get(b"frames", b"") for number, (name, fields) in numbered if name == b"%d-0" % number])

    async def read(self, info: RunInfo) -> AsyncGenerator[bytes, None]:
        """Yield all frames so far at once, perhaps ``b""``, then more until the end. Raises RunLost for a lost run."""
        listener = self._listener(info)
        run = listener.follow(info)
        received: bytes | RunState = b""
        try:
            await self._write_to(listener.inbox, "read", info.run_id)
            while isinstance(received := await run.received.get(), bytes):
                yield received
            if received is RunState.LOST:
                raise RunLost(LOST)
        finally:
            if listener.unfollow(run) and isinstance(received, bytes):  # nobody asks who reads an ended run
                with contextlib.suppress(StoreUnreachable):
                    await self._ask("ZREM", self._keys.readers(info), self._worker)

    async def wait_until_ended(self, info: RunInfo) -> None:
        """Wait until a run of any worker has ended, or may be lost; the end of its log is what wakes up the waiter."""
        if owned_run := self._owned.get(info.run_id):
            await asyncio.wait([owned_run.completion])
            return
        listener = self._listener(info)
        run = listener.follow(info, frames=False)
        try:
            await self._write_to(listener.inbox, "read", info.run_id)
            await run.received.get()
        finally:
            listener.unfollow(run)

    async def request_stop(self, info: RunInfo, *, unless_read: bool = False) -> None:
        """Ask the worker that owns a run to stop it; with ``unless_read`` only if nobody reads it.

        If the request gets lost, the owner's next renewal finds the mark in the hash; with ``unless_read`` there is no
        mark, and the caller may ask again.
        """
        request = "stop-unread" if unless_read else "stop"
        owner = await self._run(scripts.STOP, (self._keys.chat(info.chat_id),), info.run_id, request)
        if owner is not None:
            await self._write_to(self._keys.inbox(owner.decode()), request, info.run_id)

    # For turns that are answered by agent processes, see usechat.runs.redis.turns

    @property
    def worker(self) -> str:
        """The id of this process, as the owner of runs."""
        return self._worker

    @property
    def lease(self) -> float:
        """Seconds after which the run of a worker that died counts as lost."""
        return self._lease

    def write_often(self) -> None:
        """Gather frames for a shorter time: all readers are in other processes, and wait for every write."""
        self._writer.gather = GATHER_BRIEFLY

    def turns_key(self, queue: str) -> str:
        """Return the key of a queue of turns."""
        return self._keys.turns(queue)

    async def claim_waiting(self, info: RunInfo, *, continues: Mapping[str, Any] | None, after: str) -> RunInfo | None:
        """Do what ``claim`` does for a run without an owner; it is lost after one lease time unless it is parked.

        The arguments are those of :meth:`claim`.
        """
        return await self._claim(info, scripts.WAITING, continues, after)

    async def park(self, info: RunInfo, entry: str, patience: float) -> None:
        """Let a claimed run wait for an agent process for ``patience`` seconds; its turn is ``entry`` in the queue."""
        keep = self._keep + _milliseconds(patience)
        await self._run(scripts.PARK, self._run_keys(info), info.run_id, _milliseconds(patience), keep, entry)

    async def end_waiting(self, info: RunInfo) -> None:
        """Record the end of a run whose turn could not be queued."""
        arguments = (info.run_id, scripts.WAITING, msgspec.json.encode(info), info.state, _milliseconds(self.remember))
        await self._run(scripts.END, self._run_keys(info), *arguments, 0)

    async def is_waiting(self, info: RunInfo) -> bool:
        """Return whether a run waits for an agent process."""
        values = await self._ask("HMGET", self._keys.chat(info.chat_id), "run", "state", "owner")
        return bool(values == [info.run_id.encode(), b"running", scripts.WAITING.encode()])

    async def adopt(self, info: RunInfo, *, leases: int = 1) -> tuple[str, str | None] | None:
        """Make this worker the owner of a run that waits; ``None`` if it does not wait any more.

        Returns ``running``, or ``stop`` if the run was asked to stop, and the turn's entry in the queue if that is
        known. With ``leases`` the run counts as lost after so many lease times only: others may restart it before.
        """
        self._begin()
        start, lease = _now(), leases * self._lease
        arguments = (info.run_id, self._worker, _milliseconds(lease), self._keep)
        reply = await self._run(scripts.ADOPT, self._run_keys(info), *arguments)
        if reply is None:
            return None
        self._own(info, start, lease)
        state, entry = reply
        return state.decode(), None if entry is None else entry.decode()

    async def restart(self, lost: RunInfo, info: RunInfo, *, leases: int) -> bool:
        """Replace a run whose owner has not renewed it for one lease time with a new run of the turn, owned here.

        The new run is lost if it is not renewed for ``leases`` lease times.

        Returns False if the owner lives, or the run has ended or was asked to stop.
        """
        self._begin()
        start, lease = _now(), leases * self._lease
        keys = (*self._run_keys(lost), self._keys.log(info))
        arguments = (
            lost.run_id,
            info.run_id,
            msgspec.json.encode(info),
            self._worker,
            _milliseconds(lease),
            self._keep,
            _milliseconds(self.remember),
            _milliseconds(lease - self._lease),
        )
        lasted = await self._run(scripts.RESTART, keys, *arguments)
        if lasted is None:
            return False
        self._own(info, start, lease)
        self._report_lost(lost, lasted / 1000)
        return True

    def _run_keys(self, info: RunInfo) -> tuple[str, str]:
        return self._keys.chat(info.chat_id), self._keys.log(info)

    async def ask(self, *command: Any) -> Any:
        """Send a command to Redis; raise :class:`~usechat.errors.StoreUnreachable` if it is not executed."""
        return await self._ask(*command)

    async def ask_blocking(self, *command: Any) -> Any:
        """Send a command that blocks for a quarter of a lease time at most; raise ``StoreUnreachable`` like ``ask``."""
        try:
            return await self._blocked_client.execute(*command)
        except (exceptions.RedisError, OSError) as error:
            self._health.failed(error)
            raise StoreUnreachable from error

    # For agents that pause, see usechat.pauses.states

    async def keep_state(self, handle: str, state: bytes) -> None:
        """Keep the state of a paused agent for a week."""
        await self._ask("SET", self._keys.state(handle), state, "EX", STATE_SECONDS)

    async def take_state(self, handle: str) -> bytes | None:
        """Return the state of a paused agent and forget it."""
        state: bytes | None = await self._ask("GETDEL", self._keys.state(handle))
        return state

    async def post(self, worker: str, address: str, message: bytes) -> None:
        """Post a message to an address of a worker, through its inbox."""
        inbox = self._keys.inbox(worker)
        command = ("XADD", inbox, "MAXLEN", "~", _INBOX_LENGTH, "*", "to", address, "message", message)
        await self._ask_all([command, ("PEXPIRE", inbox, self._keep)])

    def receive(self, address: str, on_message: Callable[[bytes], None]) -> None:
        """Call ``on_message`` with each message to an address of this worker."""
        self._begin()
        self._addresses[address] = on_message

    # For quotas, see usechat.runs.quotas

    async def count(self, key: str, amount: int, seconds: float) -> tuple[int, float]:
        """Add to a counter that is reset after ``seconds``; return its sum, and the seconds until it is reset."""
        total, left = await self._run(scripts.COUNT, (self._keys.quota(key),), amount, _milliseconds(seconds))
        return total, left / 1000

    async def hold(self, key: str, holder: str, seconds: float) -> int:
        """Add a holder, who is forgotten after ``seconds``; return how many there are."""
        return int(await self._run(scripts.HOLD, (self._keys.quota(key),), holder, _milliseconds(seconds)))

    async def release(self, key: str, holder: str) -> None:
        """Remove a holder."""
        await self._ask("ZREM", self._keys.quota(key), holder)

    async def check(self) -> None:
        """Raise :class:`~usechat.errors.StoreUnreachable` if Redis does not answer, or accepts no scripts or writes."""
        tags = range(scripts.TAGS if self._client.is_cluster else 1)
        commands = [("EVAL", scripts.CHECK, 1, self._keys.check(str(tag))) for tag in tags]
        await self._ask_all(commands)
        self._health.worked()

    async def close(self) -> None:
        """Stop the tasks and close the connections."""
        tasks, self._tasks, self._listeners = set(self._tasks), [], {}
        while tasks:
            for task in tasks:
                task.cancel()
            # Once is not always enough: redis 8.1 takes a cancellation in the middle of a handshake for a failure.
            _, tasks = await asyncio.wait(tasks, timeout=_CANCEL_AGAIN)
        await self._client.close()
        await self._blocked_client.close()

    # Leases

    @property
    def _keep(self) -> int:
        """How many milliseconds the keys of a run outlive its last renewal."""
        return _milliseconds(self.remember + 3 * self._lease)

    def _begin(self) -> None:
        if not self._tasks:
            self._spawn(self._writer.work())
            self._spawn(self._renew_leases())
            self._listen("")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.get_running_loop().create_task(work, name="usechat redis"))

    def _listener(self, info: RunInfo) -> Listener:
        """Return the listener that can read a run: that for its hash tag, or outside of a cluster the only one."""
        self._begin()
        tag = self._keys.tag(info.chat_id) if self._client.is_cluster else ""
        return self._listeners.get(tag) or self._listen(tag)

    def _listen(self, tag: str) -> Listener:
        listener = self._listeners[tag] = Listener(
            self._client,
            self._blocked_client,
            self._health,
            self._keys,
            Member(self._worker, self._keys.inbox(self._worker, tag), self._lease, self.remember),
            Notices(self._notify_stop, self._notify_message, self._report_lost),
        )
        self._spawn(listener.work())
        return listener

    async def _renew_leases(self) -> None:
        pause = self._lease / 4
        while True:
            await asyncio.sleep(pause)
            pause = self._lease / 4
            try:
                await self._renew(list(self._owned.values()))
                await self._declare_given_up()
            except (exceptions.RedisError, OSError) as error:
                self._health.failed(error)
                pause = self._lease / 20
            for run in list(self._owned.values()):
                if _now() - run.renewed > GIVE_UP * self._lease:
                    self._lose(run)

    async def _renew(self, runs: list[OwnedRun]) -> None:
        """Renew leases; gives up early enough to fail the runs before other workers may declare them lost."""
        if not runs:
            return
        start = _now()
        left = min(run.renewed for run in runs) + GIVE_UP * self._lease - start
        within = max(min(left, self._lease / 4), self._lease / 20)
        groups = list(self._client.batches(runs, lambda run: run.tag))
        replies = await self._client.pipeline([self._renewal(group) for group in groups], within=within)
        for group, reply in zip(groups, replies, strict=True):
            if isinstance(reply, list):
                for run, state in zip(group, reply, strict=True):
                    self._take_renewal(run, state, start)
        for error in replies:
            if isinstance(error, Exception):
                raise error
        self._health.worked()

    def _renewal(self, runs: list[OwnedRun]) -> tuple[object, ...]:
        keys = [key for run in runs for key in (self._keys.chat(run.info.chat_id), run.log)]
        leases = [each for run in runs for each in (run.info.run_id, _milliseconds(run.lease))]
        arguments = (self._worker, self._keep, *leases)
        return ("EVAL", scripts.RENEW, len(keys), *keys, *arguments)

    def _take_renewal(self, run: OwnedRun, state: bytes, start: float) -> None:
        run.renewed = start
        if state == b"lost" and run.last is None:
            self._lose(run)
        elif state == b"stop":
            self._notify_stop(run.info.run_id)

    async def _declare_given_up(self) -> None:
        while self._given_up:
            run = self._given_up[0]
            keys = (self._keys.chat(run.info.chat_id), run.log)
            arguments = (run.info.run_id, _milliseconds(self.remember))
            state = await self._client.execute("EVAL", scripts.DECLARE_LOST, len(keys), *keys, *arguments)
            if state is not None:
                self._report_lost(run.info, _now() - run.began, RunState(state.decode()))
            self._given_up.remove(run)

    def _report_lost(self, info: RunInfo, seconds: float, state: RunState = RunState.LOST) -> None:
        ended = msgspec.structs.replace(info, state=state)
        asyncio.get_running_loop().call_soon(self._report, ended, seconds)

    # The manager's callbacks run in a later iteration of the event loop: they can neither disturb a log that is
    # being flushed, nor end the tasks of this store.

    def _notify_stop(self, run_id: str, unless_read: bool = False) -> None:
        asyncio.get_running_loop().call_soon(self._stop, run_id, unless_read)

    def _notify_message(self, address: str, message: bytes) -> None:
        asyncio.get_running_loop().call_soon(self._addresses.get(address, _ignore), message)

    def _notify_failure(self, run_id: str, text: str) -> None:
        asyncio.get_running_loop().call_soon(self._fail, run_id, text)

    def _lose(self, run: OwnedRun) -> None:
        """Fail a run that another worker has ended, or may have ended: it must not write any more."""
        if self._owned.get(run.info.run_id) is run:
            names = {"chat_id": run.info.chat_id, "run_id": run.info.run_id}
            _logger.error(
                "run %s was lost: its lease expired or its log is gone; Redis was unreachable, its data was deleted, or"
                " this worker was blocked for longer than the lease of %g s",
                run.info.run_id,
                self._lease,
                extra=names,
            )
            self._give_up(run)
            self._notify_failure(run.info.run_id, LOST)

    def _give_up(self, run: OwnedRun) -> None:
        """Stop writing a run; it is declared lost as soon as Redis is reachable."""
        del self._owned[run.info.run_id]
        if not run.completion.done():
            run.completion.set_result(False)
        self._given_up.append(run)

    # Commands

    async def _write_to(self, inbox: str, request: str, run_id: str) -> None:
        command = ("XADD", inbox, "MAXLEN", "~", _INBOX_LENGTH, "*", request, run_id)
        await self._ask_all([command, ("PEXPIRE", inbox, self._keep)])

    async def _run(self, script: str, keys: tuple[str, ...], *arguments: object) -> Any:
        return await self._ask("EVAL", script, len(keys), *keys, *arguments)

    async def _ask(self, *command: Any) -> Any:
        try:
            return await self._client.execute(*command)
        except (exceptions.RedisError, OSError) as error:
            self._health.failed(error)
            raise StoreUnreachable from error

    async def _ask_all(self, commands: list[tuple[Any, ...]]) -> None:
        try:
            for reply in await self._client.pipeline(commands):
                if isinstance(reply, Exception):
                    raise reply
        except (exceptions.RedisError, OSError) as error:
            self._health.failed(error)
            raise StoreUnreachable from error


def _info(reply: list[Any]) -> RunInfo:
    info, state, *_ = reply
    return msgspec.structs.replace(msgspec.json.decode(info, type=RunInfo), state=RunState(state.decode()))


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _ignore(*_event: object) -> None:
    """Do nothing: the default of the callbacks, for a store without a manager."""
