"""Runs that all workers know together, over Redis Streams."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Final

import msgspec

from usechat.errors import MissingDependency, RunLost, StoreUnreachable
from usechat.runs.redis import scripts
from usechat.runs.run import RunInfo, RunState
from usechat.runs.store import LOST

try:
    from redis import exceptions
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import ExponentialWithJitterBackoff
except ImportError:
    raise MissingDependency("redis", "redis") from None

from usechat.runs.redis.listener import Listener
from usechat.runs.redis.writer import OwnedRun, Writer

__all__ = ["RedisRuns"]

_logger: Final = logging.getLogger("usechat.runs")

TOO_LARGE: Final = "The answer became too large and was stopped."
_CONNECTIONS: Final = 32
_REPLY_SECONDS: Final = 5.0
_INBOX_LENGTH: Final = 1000
_CANCEL_AGAIN: Final = 0.1


class RedisRuns:
    """Runs of any number of workers. Any of them resumes, stops and tells the state of any run.

    ``lease`` is how many seconds after its owner died a run counts as lost; ``remember`` how many seconds an ended run
    is known; ``maximum_bytes`` how large its log may become; ``prefix`` begins every key.
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
        self._remember = remember
        self._maximum_bytes = maximum_bytes
        self._keys = scripts.Keys(prefix)
        self._worker = secrets.token_hex(8)
        retry = Retry(ExponentialWithJitterBackoff(base=0.02, cap=0.5), 3)
        self._client = _client(url, _REPLY_SECONDS, retry, connections=_CONNECTIONS)
        # A blocked connection is silent for a lease time at most; one that is silent for longer is dead.
        self._blocked_client = _client(
            url, lease + _REPLY_SECONDS, Retry(ExponentialWithJitterBackoff(), 0), connections=2
        )
        self._owned: dict[str, OwnedRun] = {}
        self._given_up: list[OwnedRun] = []
        self._stop: Callable[[str, bool], None] = _nobody_listens
        self._fail: Callable[[str, str], None] = _nobody_listens
        self._tell_lost: Callable[[RunInfo, float], None] = _nobody_listens
        self._writer = Writer(self._client, on_lost=self._lose)
        self._listener = Listener(
            self._blocked_client,
            self._keys,
            worker=self._worker,
            lease=lease,
            remember=remember,
            on_stop_ordered=self._tell_stop,
            on_lost=self._declared,
        )
        self._tasks: list[asyncio.Task[None]] = []

    # What the owner does

    async def claim(
        self, info: RunInfo, *, continues: Mapping[str, Any] | None = None, after: str | None = None
    ) -> RunInfo | None:
        """Make this the active run of its chat. Returns the last run instead, if it goes on or is not ``after``."""
        self._begin()
        asked = _now()
        arguments = (
            info.run_id,
            msgspec.json.encode(info),
            self._worker,
            msgspec.json.encode(continues),
            _milliseconds(self._lease),
            self._keep,
            _milliseconds(self._remember),
            scripts.ANY if after is None else after,
        )
        keys = (self._keys.chat(info.chat_id), self._keys.log(info))
        active, lost = await self._run(scripts.CLAIM, keys, *arguments)
        if lost is not None:
            self._declared(_info(lost), lost[2] / 1000)
        if active is not None:
            return _info(active)
        self._owned[info.run_id] = OwnedRun(info, self._keys.log(info), asked)
        return None

    def append(self, run_id: str, frames: bytes) -> None:
        """Keep frames for readers in other workers; they are written soon, together with those of other runs."""
        run = self._owned.get(run_id)
        if run is None:
            return
        had_room = run.size <= self._maximum_bytes
        run.add(frames)
        self._writer.notice(run)
        if had_room and run.size > self._maximum_bytes:
            self._tell_failure(run_id, TOO_LARGE)

    async def end(self, info: RunInfo) -> bool:
        """The run has ended as ``info.state`` says; returns when Redis knows, or when its lease is over anyway."""
        run = self._owned.get(info.run_id)
        if run is None:
            return False
        keys = (self._keys.chat(info.chat_id), run.log)
        arguments = (info.run_id, self._worker, msgspec.json.encode(info), info.state, _milliseconds(self._remember))
        run.last = ("EVAL", scripts.END, len(keys), *keys, *arguments)
        self._writer.notice(run)
        await asyncio.wait([run.written], timeout=self._lease)
        if not run.written.done():
            self._give_up(run)
        self._owned.pop(info.run_id, None)
        return run.written.result()

    def on_stop_ordered(self, stop: Callable[[str, bool], None]) -> None:
        """Call ``stop`` with the id of a run of this worker that someone wants stopped, and with ``unless_read``."""
        self._stop = stop

    def on_failure(self, fail: Callable[[str, str], None]) -> None:
        """Call ``fail`` with the id of a run of this worker that must end, and with the error to show."""
        self._fail = fail

    def on_lost(self, tell: Callable[[RunInfo, float], None]) -> None:
        """Call ``tell`` with a run that this worker, the first of all, found to be lost, and how long it went on.

        A run that it gave up may have ended well, when Redis heard of its end at last.
        """
        self._tell_lost = tell

    async def is_read(self, info: RunInfo) -> bool:
        """Tell whether another worker reads a run of this one."""
        return bool(await self._run(scripts.IS_READ, (self._keys.readers(info),)))

    # What anyone does

    async def latest(self, chat_id: str) -> RunInfo | None:
        """Return the chat's last run."""
        found = await self._run(scripts.LATEST, (self._keys.chat(chat_id),), _milliseconds(self._remember))
        if found is None:
            return None
        info = _info(found)
        if found[2] is not None:
            self._declared(info, found[2] / 1000)
        return info

    async def continued(self, info: RunInfo) -> Mapping[str, Any] | None:
        """Return the message that a run goes on with."""
        chat = self._keys.chat(info.chat_id)
        run_id, message = await self._ask("HMGET", chat, "run", "continued")
        if run_id is None or run_id.decode() != info.run_id:
            return None
        found: Mapping[str, Any] | None = msgspec.json.decode(message)
        return found

    async def read(self, info: RunInfo) -> AsyncGenerator[bytes, None]:
        """Yield all frames so far at once, perhaps none, then more until the end; a lost run is a ``RunLost``."""
        self._begin()
        followed = self._listener.follow(info)
        try:
            await self._write_to(self._worker, "read", info.run_id)
            while isinstance(news := await followed.news.get(), bytes):
                yield news
            if news is RunState.LOST:
                raise RunLost(LOST)
        finally:
            if self._listener.leave(followed):
                with contextlib.suppress(StoreUnreachable):
                    await self._ask("ZREM", self._keys.readers(info), self._worker)

    async def order_stop(self, info: RunInfo, *, unless_read: bool = False) -> None:
        """Tell the worker that owns the run to stop it: in any case, or only if nobody reads it.

        If the word gets lost, the owner's next heartbeat finds the mark; whoever only asked may ask again.
        """
        order = "stop-unread" if unless_read else "stop"
        owner = await self._run(scripts.STOP, (self._keys.chat(info.chat_id),), info.run_id, order)
        if owner is not None:
            await self._write_to(owner.decode(), order, info.run_id)

    async def check(self) -> None:
        """Raise if Redis cannot be reached."""
        await self._ask("PING")

    async def close(self) -> None:
        """Let go of connections."""
        tasks, self._tasks = set(self._tasks), []
        while tasks:
            for task in tasks:
                task.cancel()
            # Once is not always enough: redis 8.1 takes a cancellation in the middle of a handshake for a failure.
            _, tasks = await asyncio.wait(tasks, timeout=_CANCEL_AGAIN)
        await self._client.aclose()
        await self._blocked_client.aclose()

    # Leases

    @property
    def _keep(self) -> int:
        """How many milliseconds the keys of a run outlive its last heartbeat."""
        return _milliseconds(self._remember + 3 * self._lease)

    def _begin(self) -> None:
        if not self._tasks:
            loop = asyncio.get_running_loop()
            work = (self._writer.work(), self._listener.work(), self._hold_leases())
            self._tasks = [loop.create_task(job, name="usechat redis") for job in work]

    async def _hold_leases(self) -> None:
        pause = self._lease / 3
        while True:
            await asyncio.sleep(pause)
            pause = self._lease / 3
            try:
                async with asyncio.timeout(self._lease / 3):
                    await self._beat(list(self._owned.values()))
                    await self._declare_given_up()
            except (exceptions.RedisError, OSError) as error:
                _logger.warning("leases could not be renewed: %r", error)
                pause = self._lease / 10
            for run in list(self._owned.values()):
                if _now() - run.renewed > self._lease:
                    self._lose(run)

    async def _beat(self, runs: list[OwnedRun]) -> None:
        asked = _now()
        pipeline = self._client.pipeline(transaction=False)
        for run in runs:
            keys = (self._keys.chat(run.info.chat_id), run.log)
            arguments = (run.info.run_id, self._worker, _milliseconds(self._lease), self._keep)
            pipeline.execute_command("EVAL", scripts.BEAT, len(keys), *keys, *arguments)
        replies = await pipeline.execute(raise_on_error=False)
        for run, reply in zip(runs, replies, strict=True):
            if isinstance(reply, bytes):
                run.renewed = asked
            if reply == b"lost" and run.last is None:
                self._lose(run)
            elif reply == b"stop":
                self._tell_stop(run.info.run_id)
        for error in replies:
            if isinstance(error, Exception):
                raise error

    async def _declare_given_up(self) -> None:
        while self._given_up:
            run = self._given_up[0]
            keys = (self._keys.chat(run.info.chat_id), run.log)
            arguments = (run.info.run_id, _milliseconds(self._remember))
            state = await self._client.execute_command("EVAL", scripts.LOSE, len(keys), *keys, *arguments)
            if state is not None:
                self._declared(run.info, _now() - run.began, RunState(state.decode()))
            self._given_up.remove(run)

    def _declared(self, info: RunInfo, seconds: float, state: RunState = RunState.LOST) -> None:
        ended = msgspec.structs.replace(info, state=state)
        asyncio.get_running_loop().call_soon(self._tell_lost, ended, seconds)

    # The manager is told in a turn of its own: what it does can neither get in the way of a log that hands out frames,
    # nor end the tasks of this store.

    def _tell_stop(self, run_id: str, unless_read: bool = False) -> None:
        asyncio.get_running_loop().call_soon(self._stop, run_id, unless_read)

    def _tell_failure(self, run_id: str, text: str) -> None:
        asyncio.get_running_loop().call_soon(self._fail, run_id, text)

    def _lose(self, run: OwnedRun) -> None:
        """Others have ended the run, or must believe that it is over: it may not write any more."""
        if self._owned.get(run.info.run_id) is run:
            names = {"chat_id": run.info.chat_id, "run_id": run.info.run_id}
            _logger.error("run %s was lost: its lease is over, or its log is gone", run.info.run_id, extra=names)
            self._give_up(run)
            self._tell_failure(run.info.run_id, LOST)

    def _give_up(self, run: OwnedRun) -> None:
        """Write no more of a run; it is declared lost as soon as Redis can be told."""
        del self._owned[run.info.run_id]
        if not run.written.done():
            run.written.set_result(False)
        self._given_up.append(run)

    # Talking to Redis

    async def _write_to(self, worker: str, order: str, run_id: str) -> None:
        inbox = self._keys.inbox(worker)
        await self._ask("XADD", inbox, "MAXLEN", "~", _INBOX_LENGTH, "*", order, run_id)
        await self._ask("PEXPIRE", inbox, self._keep)

    async def _run(self, script: str, keys: tuple[str, ...], *arguments: object) -> Any:
        return await self._ask("EVAL", script, len(keys), *keys, *arguments)

    async def _ask(self, *command: Any) -> Any:
        try:
            return await self._client.execute_command(*command)
        except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
            raise StoreUnreachable from error


def _client(url: str, reply_seconds: float, retry: Retry, *, connections: int) -> Redis:
    pool = BlockingConnectionPool.from_url(
        url,
        max_connections=connections,
        timeout=_REPLY_SECONDS,
        retry=retry,
        socket_timeout=reply_seconds,
        socket_connect_timeout=_REPLY_SECONDS,
    )
    return Redis.from_pool(pool)


def _info(found: list[Any]) -> RunInfo:
    info, state, *_ = found
    return msgspec.structs.replace(msgspec.json.decode(info, type=RunInfo), state=RunState(state.decode()))


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _nobody_listens(*_what: object) -> None:
    """A store without a manager."""
