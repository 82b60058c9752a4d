"""Queues of turns over Redis Streams: web processes add turns, agent processes take them through a consumer group.

**The data.** A queue is one stream with one group. An entry is a :class:`~usechat.runs.turns.QueuedTurn`. An entry that
was not delivered waits; a delivered one is pending until its run has ended, and then removed. So the length of the
stream without the pending entries is the number of waiting turns, and Redis knows what every agent process is doing.
Everything about the run itself (owner, lease, log, stop) is in the chat's keys, see :mod:`usechat.runs.redis.store`.

**A turn's way.** The web process claims the chat for the owner ``queue``, adds the entry, and extends the lease to
``patience`` seconds. An agent process that was delivered the entry adopts the run: from here on it owns it as any
worker owns a run. A turn that was stopped or given up meanwhile cannot be adopted, and its entry is removed.

**Consumers** are named ``VERSION:WORKER``: the version of the agent's code, and the process as the owner of runs. A
process claims its own pending entries again every third of a lease time, which resets their idle time.

**After a death** entries are idle for longer than a lease time, and any agent process finds them (``XPENDING``):

- the turn still waits (the process died before it adopted it): any process takes it;
- the run has ended or is lost: the entry is removed;
- the run is still running: a process of the *same version*, whose agent is restartable, may restart it, at most twice.
  For that a restartable run has a lease of three lease times, and counts as lost only after that.

``XCLAIM`` with the idle time decides which process acts, and the scripts decide whether it may: neither a process that
was only paused, nor one that is late, can double anything.
"""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, Final

import msgspec

from usechat.errors import StoreUnreachable, TooManyWaiting
from usechat.ids import new_id
from usechat.runs.redis import scripts
from usechat.runs.redis.store import RedisRuns
from usechat.runs.run import RunInfo, RunState
from usechat.runs.turns import FORWARDED_HEADERS, QueuedTurn, TurnStatistics

__all__ = ["FORWARDED_HEADERS", "RedisTurns", "TakenTurn"]

_logger: Final = logging.getLogger("usechat.runs")
_GROUP: Final = "agents"
_LEASES_TO_RESTART: Final = 3
_DELIVERIES: Final = 3
"""How often a turn is delivered: one that ends its process every time must not end all processes."""
_SWEPT: Final = 100
"""How many entries of processes that died are looked at in one go."""
_RETRY_AFTER: Final = 5.0
_FORGET_CONSUMER: Final = 3600.0
"""Seconds after which a process that has nothing pending, and takes nothing, counts as gone."""


class TakenTurn(msgspec.Struct, frozen=True):
    """A turn whose run this process owns now. ``stop`` says that the run was asked to stop before it began.

    ``instead_of`` is the run that had begun the turn and whose process died, if there was one.
    """

    entry: str
    info: RunInfo
    turn: QueuedTurn
    stop: bool = False
    instead_of: str = ""


class RedisTurns:
    """A queue of turns in the Redis of a run store. Web processes give it to a ``ChatApp`` in the place of an agent.

    - ``name``: names the queue; web and agent processes of one agent give the same name.
    - ``maximum_waiting``: with so many waiting turns further ones are refused (503, with ``Retry-After``).
    - ``patience``: seconds that a turn waits for an agent process before it counts as lost.
    - ``forwarded_headers``: the request headers that agents see.

    >>> runs = RedisRuns("redis://localhost:6379")
    >>> turns = RedisTurns(runs, "my_app:agent", maximum_waiting=100)  # ChatApp(turns, runs=runs)
    >>> turns.forwarded_headers
    ('accept-language', 'traceparent', 'tracestate', 'x-request-id')

    Agent processes use ``take``, ``take_over_dead``, ``keep`` and ``done``; see :class:`~usechat.server.AgentWorker`.
    """

    def __init__(
        self,
        runs: RedisRuns,
        name: str,
        *,
        maximum_waiting: int = 1000,
        patience: float = 120,
        forwarded_headers: Iterable[str] = FORWARDED_HEADERS,
    ) -> None:
        self.runs = runs
        self._key = runs.turns_key(name)
        self.address = f"agent {name}"
        self._maximum_waiting = maximum_waiting
        self.patience = patience
        self.forwarded_headers = tuple(name.lower() for name in forwarded_headers)

    # For web processes

    async def admit(self) -> None:
        """Raise ``TooManyWaiting`` if as many turns wait as may."""
        if await self._run(scripts.WAITING_TURNS, _GROUP) >= self._maximum_waiting:
            raise TooManyWaiting(retry_after=_RETRY_AFTER)

    async def offer(self, turn: QueuedTurn, *, after: str) -> RunInfo | None:
        """Claim the turn's chat and queue the turn; return the run that prevents it.

        ``after`` is the id of the run that the caller knows as the chat's last one (``""`` for none).
        """
        encoded = turn.encode()
        active = await self.runs.claim_waiting(turn.info, continues=turn.input.request.continues, after=after)
        if active is not None:
            return active
        try:
            entry = await self.runs.ask("XADD", self._key, "*", "turn", encoded)
            await self.runs.park(turn.info, entry.decode(), self.patience)
        except StoreUnreachable:
            # It may have been queued all the same: a run that has ended is not adopted.
            await self.runs.end_waiting(msgspec.structs.replace(turn.info, state=RunState.FAILED))
            raise
        return None

    async def withdraw(self, info: RunInfo) -> bool:
        """Make this process the owner of a run whose turn still waits, and remove the turn from the queue."""
        if not await self.runs.is_waiting(info):
            return False
        adopted = await self.runs.adopt(info)
        if adopted is None:
            return False
        entry = adopted[1]
        if entry is not None:  # otherwise the agent process that finds it removes it
            await self.runs.ask("XDEL", self._key, entry)
        return True

    async def statistics(self) -> TurnStatistics:
        """Return how many turns wait and for how long the oldest does, and how many run in each agent process."""
        waiting, oldest, consumers = await self._run(scripts.TURN_STATISTICS, _GROUP)
        running = {name.decode(): turns for name, turns, _ in consumers}
        return TurnStatistics(waiting, oldest / 1000, running)

    async def agent_process(self) -> str | None:
        """Return the agent process that has asked for turns last, if that is not longer ago than a lease time."""
        _, _, consumers = await self._run(scripts.TURN_STATISTICS, _GROUP)
        living = [(idle, name.decode()) for name, _, idle in consumers if idle < self._idle]
        return min(living)[1].rpartition(":")[2] if living else None

    # For agent processes

    async def take(self, version: str, *, count: int, restartable: bool, block: float) -> AsyncIterator[TakenTurn]:
        """Wait ``block`` seconds for turns; yield each, ``count`` at most, as soon as this process owns its run.

        ``version`` is that of this process's code; ``restartable`` says whether its agent may start a turn again.
        """
        consumer = self._consumer(version)
        await self._run(scripts.JOIN_GROUP, _GROUP, consumer)  # Redis may have lost its data, and the group with it
        read = ("XREADGROUP", "GROUP", _GROUP, consumer, "COUNT", count)
        streams = await self.runs.ask_blocking(*read, "BLOCK", int(block * 1000), "STREAMS", self._key, ">")
        for entry_id, fields in [entry for _, delivered in streams or () for entry in delivered]:
            name = entry_id.decode()
            taken_turn = await self._adopt(name, _decode(name, fields), restartable)
            if taken_turn is not None:
                yield taken_turn

    async def take_over_dead(
        self, version: str, *, mine: Iterable[str], count: int, restartable: bool
    ) -> AsyncIterator[TakenTurn]:
        """Yield turns of agent processes that died, if they may be started here; remove those that have ended.

        ``mine`` are the entries that this process answers, ``count`` is how many more it can. ``restartable`` says
        whether its agent may start a turn again.
        """
        own = set(mine)
        idle = await self._run(scripts.IDLE_TURNS, _GROUP, self._idle, _SWEPT)
        for entry_id, consumer, deliveries in [(each[0].decode(), each[1].decode(), each[3]) for each in idle]:
            if entry_id in own:
                continue
            entries = await self.runs.ask("XRANGE", self._key, entry_id, entry_id)
            turn = _decode(entry_id, entries[0][1]) if entries else None
            latest = None if turn is None else await self.runs.latest(turn.info.chat_id)
            if turn is None or latest is None or not latest.is_same_turn(turn.info) or _has_ended(latest):
                await self.done(entry_id)
                continue
            its_version = consumer.rpartition(":")[0]  # which may hold colons; the name of a process holds none
            may_restart = restartable and its_version == version and deliveries < _DELIVERIES
            is_waiting = await self.runs.is_waiting(latest)
            if count > 0 and (is_waiting or may_restart) and await self._claim_entry(version, entry_id):
                if is_waiting:
                    taken_turn = await self._adopt(entry_id, turn, restartable)
                else:
                    taken_turn = await self._restart(entry_id, turn, latest)
                if taken_turn is not None:
                    count -= 1
                    yield taken_turn

    async def keep(self, version: str, entries: Iterable[str]) -> None:
        """Show that this process lives and answers these entries."""
        ids = list(entries)
        if ids:
            await self._run(scripts.KEEP_TURNS, _GROUP, self._consumer(version), *ids)

    async def done(self, *entries: str) -> None:
        """Remove entries: their runs have ended."""
        if entries:
            await self.runs.ask("XACK", self._key, _GROUP, *entries)
            await self.runs.ask("XDEL", self._key, *entries)

    async def leave(self, version: str) -> None:
        """Remove this process from the group if nothing of it is pending, and those that exited without doing so."""
        _, _, consumers = await self._run(scripts.TURN_STATISTICS, _GROUP)
        for name, pending, idle in consumers:
            is_gone = name.decode() == self._consumer(version) or idle / 1000 > _FORGET_CONSUMER
            if not pending and is_gone:
                await self.runs.ask("XGROUP", "DELCONSUMER", self._key, _GROUP, name)

    @property
    def _idle(self) -> int:
        """Milliseconds after which an entry that was not claimed again is that of a dead process."""
        return int(self.runs.lease * 1000)

    def _consumer(self, version: str) -> str:
        return f"{version}:{self.runs.worker}"

    async def _adopt(self, entry_id: str, turn: QueuedTurn | None, restartable: bool) -> TakenTurn | None:
        leases = _LEASES_TO_RESTART if restartable else 1
        adopted = None if turn is None else await self.runs.adopt(turn.info, leases=leases)
        if turn is None or adopted is None:  # it was stopped, or it has waited for too long
            await self.done(entry_id)
            return None
        return TakenTurn(entry_id, turn.info, turn, stop=adopted[0] == "stop")

    async def _restart(self, entry_id: str, turn: QueuedTurn, lost: RunInfo) -> TakenTurn | None:
        info = msgspec.structs.replace(lost, run_id=new_id(), origin=lost.origin or lost.run_id)
        if not await self.runs.restart(lost, info, leases=_LEASES_TO_RESTART):
            return None
        return TakenTurn(entry_id, info, turn, instead_of=lost.run_id)

    async def _claim_entry(self, version: str, entry_id: str) -> bool:
        """Make a dead process's entry ours; return False if another process was faster."""
        command = ("XCLAIM", self._key, _GROUP, self._consumer(version), self._idle, entry_id)
        return bool(await self.runs.ask(*command))

    async def _run(self, script: str, *arguments: object) -> Any:
        return await self.runs.ask("EVAL", script, 1, self._key, *arguments)


def _decode(entry_id: str, fields: Mapping[bytes, bytes]) -> QueuedTurn | None:
    """Return the turn of an entry; log one that cannot be read, whose run will be lost."""
    try:
        return QueuedTurn.decode(fields[b"turn"])
    except (ValueError, KeyError) as error:
        _logger.error(
            "the turn %s in the queue cannot be read, and is dropped; use one release of usechat for web and agent"
            " processes: %r",
            entry_id,
            error,
        )
        return None


def _has_ended(info: RunInfo) -> bool:
    return info.state is not RunState.RUNNING
