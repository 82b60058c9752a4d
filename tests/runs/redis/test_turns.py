"""The queue of turns: who may take a turn, and what becomes of it when a process dies."""

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from tests.redis_server import RedisServer
from tests.runs.redis_stores import LEASE, RUN, SHORT, StoreEvents, Workers, read_all, until
from usechat.errors import RunLost, StoreUnreachable, TooManyWaiting
from usechat.protocol.request import ChatRequest
from usechat.runs.redis.store import RedisRuns
from usechat.runs.redis.turns import RedisTurns, TakenTurn
from usechat.runs.remote_runs import RemoteRuns
from usechat.runs.run import RunState
from usechat.runs.turns import QueuedTurn, TurnStatistics
from usechat.turn import TurnInput

REQUEST = ChatRequest.parse({"messages": [{"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}]})
TURN = QueuedTurn(RUN, TurnInput(REQUEST))
QUEUE = "my_app:agent"


def turn_of(number: int) -> QueuedTurn:
    return QueuedTurn(msgspec.structs.replace(RUN, run_id=f"r{number}", chat_id=f"c{number}"), TurnInput(REQUEST))


class Tier:
    """A web process and agent processes on one Redis."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self.web = self.turns()

    def turns(self, **options: Any) -> RedisTurns:
        return RedisTurns(self.workers.store(), QUEUE, **options)

    @property
    def key(self) -> str:
        return f"{self.workers.prefix}:turns:{{{QUEUE}}}"

    def age(self) -> None:
        """Do as if nobody had claimed the pending entries, or renewed the run, for a little more than a lease time."""
        for entry in self.pending():
            aged = (entry["consumer"], 0, entry["message_id"], "IDLE", (LEASE + 1) * 1000, "JUSTID")
            self.workers.client.eval("redis.call('XCLAIM', KEYS[1], 'agents', unpack(ARGV))", 1, self.key, *aged)
        left = self.lease_left()
        self.set_lease_left(left - LEASE - 1)

    def pending(self) -> list[dict[str, Any]]:
        return list(self.workers.client.xpending_range(self.key, "agents", "-", "+", 9))

    def lease_left(self) -> float:
        """Return how many seconds the run's lease lasts."""
        seconds, _ = self.workers.client.time()
        return int(self.workers.client.hget(self.workers.chat, "lease") or 0) / 1000 - seconds

    def set_lease_left(self, left: float) -> None:
        seconds, _ = self.workers.client.time()
        self.workers.client.hset(self.workers.chat, "lease", str(int((seconds + left) * 1000)))


@pytest.fixture
def tier(workers: Workers) -> Tier:
    return Tier(workers)


async def take(turns: RedisTurns, version: str = "v1", *, restartable: bool = False, count: int = 9) -> list[TakenTurn]:
    return [taken_turn async for taken_turn in turns.take(version, count=count, restartable=restartable, block=0.01)]


async def sweep(
    turns: RedisTurns, version: str = "v1", *, restartable: bool = False, mine: tuple[str, ...] = (), count: int = 9
) -> list[TakenTurn]:
    dead_turns = turns.take_over_dead(version, mine=mine, count=count, restartable=restartable)
    return [taken_turn async for taken_turn in dead_turns]


async def die(turns: RedisTurns, tier: Tier) -> None:
    """End a process as kill -9 does, and let so much time pass that it shows."""
    await turns.runs.close()
    tier.age()


async def state(turns: RedisTurns) -> RunState | None:
    latest = await turns.runs.latest("c1")
    return None if latest is None else latest.state


async def test_a_turn_is_taken_by_one_process(tier: Tier) -> None:
    agents = [tier.turns() for _ in range(5)]
    for turns in agents:
        assert await take(turns) == []
    assert await tier.web.offer(TURN, after="") is None
    groups = await asyncio.gather(*map(take, agents))
    [one] = [each for group in groups for each in group]
    assert (one.info, one.turn, one.stop) == (RUN, TURN, False)


async def test_a_turn_waits_for_the_first_process(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    assert await state(tier.web) is RunState.RUNNING
    [taken_turn] = await take(tier.turns())
    assert taken_turn.turn == TURN


async def test_a_process_takes_no_more_than_it_has_room_for(tier: Tier) -> None:
    for number in range(3):
        await tier.web.offer(turn_of(number), after="")
    agent = tier.turns()
    assert [taken_turn.info.run_id for taken_turn in await take(agent, count=2)] == ["r0", "r1"]
    assert [taken_turn.info.run_id for taken_turn in await take(agent, count=2)] == ["r2"]


async def test_a_chat_that_is_busy_queues_nothing(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    second = QueuedTurn(msgspec.structs.replace(RUN, run_id="r2"), TurnInput(REQUEST))
    assert await tier.web.offer(second, after="") == RUN
    assert (await tier.web.statistics()).waiting == 1


async def test_what_an_agent_process_writes_is_read_in_the_web_process(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    agent = tier.turns()
    [taken_turn] = await take(agent)
    agent.runs.append("r1", b"data: 1\n\n")
    assert await agent.runs.end(msgspec.structs.replace(RUN, state=RunState.FINISHED))
    await agent.done(taken_turn.entry)
    assert await read_all(tier.web.runs) == b"data: 1\n\n"
    assert await tier.web.statistics() == TurnStatistics(0, 0, {f"v1:{agent.runs.worker}": 0})


async def test_a_waiting_turn_can_be_withdrawn_and_is_then_given_to_nobody(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    other_web = tier.turns()
    assert await other_web.withdraw(RUN)
    assert (await tier.web.statistics()).waiting == 0
    assert await take(tier.turns()) == []
    assert await other_web.runs.end(msgspec.structs.replace(RUN, state=RunState.STOPPED))
    assert await state(tier.web) is RunState.STOPPED


async def test_a_turn_that_was_taken_cannot_be_withdrawn(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    [_] = await take(tier.turns())
    assert not await tier.web.withdraw(RUN)


async def test_a_stop_between_the_claim_and_the_queue_reaches_the_agent_process(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    await tier.web.runs.request_stop(RUN)
    [taken_turn] = await take(tier.turns())
    assert taken_turn.stop


async def test_a_turn_that_nobody_takes_is_lost_after_a_while(tier: Tier) -> None:
    web = tier.turns(patience=0.3)
    lost = StoreEvents(web.runs)
    await web.offer(TURN, after="")
    with pytest.raises(RunLost):
        await read_all(web.runs)
    assert await take(tier.turns()) == []
    assert [info.state for info in lost.losses] == [RunState.LOST]
    assert (await web.statistics()).waiting == 0, "the process that was given the entry has removed it"


async def test_a_turn_waits_for_longer_than_a_lease(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    assert tier.lease_left() > 100


async def test_more_turns_than_may_wait_are_refused(tier: Tier) -> None:
    web = tier.turns(maximum_waiting=2)
    await take(tier.turns())  # there is a process, but it takes nothing more
    for number in range(2):
        await web.admit()
        await web.offer(turn_of(number), after="")
    with pytest.raises(TooManyWaiting) as refused:
        await web.admit()
    assert (refused.value.status, refused.value.retry_after > 0) == (503, True)
    await take(tier.turns(), count=1)
    await web.admit()


async def test_running_turns_do_not_count_as_waiting(tier: Tier) -> None:
    agent = tier.turns()
    for number in range(3):
        await tier.web.offer(turn_of(number), after="")
    await take(agent, count=2)
    statistics = await tier.web.statistics()
    assert (statistics.waiting, statistics.running) == (1, {f"v1:{agent.runs.worker}": 2})


async def test_the_oldest_waiting_turn_is_timed(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    first = (await tier.web.statistics()).oldest_seconds
    await asyncio.sleep(0.1)
    assert (await tier.web.statistics()).oldest_seconds > first + 0.09


async def test_a_queue_that_was_never_used_is_empty(tier: Tier) -> None:
    assert await tier.web.statistics() == TurnStatistics()
    await tier.web.admit()
    assert await sweep(tier.web) == []
    await tier.web.leave("v1")


async def test_the_turn_of_a_process_that_died_is_lost(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    first, second = tier.turns(), tier.turns()
    [taken_turn] = await take(first)
    await die(first, tier)
    assert await sweep(second) == []
    assert await state(tier.web) is RunState.LOST
    assert (await tier.web.statistics()).running[f"v1:{first.runs.worker}"] == 0
    assert tier.workers.client.xlen(tier.key) == 0, f"{taken_turn.entry} was removed"


@pytest.mark.parametrize("restartable", [False, True])
async def test_a_reader_that_came_while_the_turn_waited_notices_that_its_process_died(
    workers: Workers, restartable: bool
) -> None:
    web, agent = (RedisTurns(workers.store(lease=SHORT), QUEUE, patience=3600) for _ in range(2))
    await web.offer(TURN, after="")
    reading = asyncio.create_task(read_all(web.runs))
    readers = f"{workers.chat}:readers:r1"
    await until(lambda: workers.client.zcard(readers), "it is read")
    [_] = await take(agent, restartable=restartable)
    await agent.runs.close()
    with pytest.raises(RunLost):
        await reading


async def test_a_reader_of_a_restartable_turn_stays_known(workers: Workers) -> None:
    web, agent = (RedisTurns(workers.store(lease=5), QUEUE) for _ in range(2))
    await web.offer(TURN, after="")
    [_] = await take(agent, restartable=True)
    reading = asyncio.create_task(read_all(web.runs))
    for _ in range(6):
        await asyncio.sleep(1)
    assert await agent.runs.is_read(RUN)
    reading.cancel()


async def test_a_turn_that_was_delivered_but_not_begun_goes_to_any_version(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    tier.workers.client.xgroup_create(tier.key, "agents", "0")
    tier.workers.client.xreadgroup("agents", "v1:gone", {tier.key: ">"})
    tier.age()
    [taken_turn] = await sweep(tier.turns(), "v2")
    assert (taken_turn.info, taken_turn.turn) == (RUN, TURN)


@pytest.fixture
async def died(tier: Tier, request: pytest.FixtureRequest) -> None:
    """A restartable turn whose process, of this version, has died after it said something."""
    await tier.web.offer(TURN, after="")
    first = tier.turns()
    [_] = await take(first, getattr(request, "param", "v1"), restartable=True)
    first.runs.append("r1", b"data: old\n\n")
    await until(lambda: tier.workers.client.xlen(tier.workers.log) == 2, "it has said something")
    await die(first, tier)


@pytest.mark.usefixtures("died")
async def test_a_restartable_turn_is_started_anew_as_another_run(tier: Tier) -> None:
    second = tier.turns()
    lost = StoreEvents(second.runs)
    [taken_turn] = await sweep(second, restartable=True)
    assert taken_turn.info == msgspec.structs.replace(RUN, run_id=taken_turn.info.run_id, origin="r1")
    assert taken_turn.info.run_id != "r1"
    assert await tier.web.runs.latest("c1") == taken_turn.info
    with pytest.raises(RunLost):
        await read_all(tier.web.runs, RUN)
    second.runs.append(taken_turn.info.run_id, b"data: new\n\n")
    await second.runs.end(msgspec.structs.replace(taken_turn.info, state=RunState.FINISHED))
    assert await read_all(tier.web.runs, taken_turn.info) == b"data: new\n\n"
    assert [info.run_id for info in lost.losses] == ["r1"]


async def test_a_client_that_has_seen_nothing_goes_on_with_the_restarted_run(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    first, second = tier.turns(), tier.turns()
    copies = RemoteRuns(tier.web.runs)
    copy = copies.follow(RUN)
    [_] = await take(first, restartable=True)
    await die(first, tier)
    [taken_turn] = await sweep(second, restartable=True)
    second.runs.append(taken_turn.info.run_id, b"data: new\n\n")
    await second.runs.end(msgspec.structs.replace(taken_turn.info, state=RunState.FINISHED))
    await until(lambda: copy.log.ended, "the copy ends")
    assert copy.log.so_far() == b"data: new\n\n"
    copies.release(copy)
    await copies.close()


@pytest.mark.usefixtures("died")
async def test_only_one_process_restarts_a_turn(tier: Tier) -> None:
    agents = [tier.turns() for _ in range(4)]
    groups = await asyncio.gather(*(sweep(turns, restartable=True) for turns in agents))
    assert len([each for group in groups for each in group]) == 1


@pytest.mark.usefixtures("died")
@pytest.mark.parametrize(
    ("version", "restartable", "count"), [("v2", True, 9), ("v", True, 9), ("v1", False, 9), ("v1", True, 0)]
)
async def test_no_turn_is_restarted_by_another_version_or_without_room_or_consent(
    tier: Tier, version: str, restartable: bool, count: int
) -> None:
    assert await sweep(tier.turns(), version, restartable=restartable, count=count) == []
    assert await tier.web.runs.latest("c1") == RUN, "another process may still restart it"


@pytest.mark.parametrize("died", ["app:v1"], indirect=True)
@pytest.mark.parametrize(("version", "restarts"), [("app", 0), ("v1", 0), ("app:v1", 1)])
@pytest.mark.usefixtures("died")
async def test_a_version_may_hold_colons(tier: Tier, version: str, restarts: int) -> None:
    assert len(await sweep(tier.turns(), version, restartable=True)) == restarts


@pytest.mark.usefixtures("died")
async def test_a_turn_that_was_asked_to_stop_is_not_restarted(tier: Tier) -> None:
    await tier.web.runs.request_stop(RUN)
    assert await sweep(tier.turns(), restartable=True) == []


async def test_a_paused_process_cannot_write_into_a_turn_that_was_restarted(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    paused = tier.turns()
    events = StoreEvents(paused.runs)
    [_] = await take(paused, restartable=True)
    tier.age()
    [taken_turn] = await sweep(tier.turns(), restartable=True)
    paused.runs.append("r1", b"data: late\n\n")
    await until(lambda: events.failures, "the paused process finds out")
    assert tier.workers.client.xlen(f"{tier.workers.chat}:log:{taken_turn.info.run_id}") == 1


async def test_a_process_that_lives_keeps_its_turns(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    first = tier.turns()
    [taken_turn] = await take(first, restartable=True)
    tier.age()
    tier.set_lease_left(3 * LEASE)  # the run was renewed all the same: its process is late, not dead
    assert await sweep(tier.turns(), restartable=True) == []
    await first.keep("v1", [taken_turn.entry])
    [entry] = tier.pending()
    assert entry["time_since_delivered"] < LEASE * 1000
    assert (await tier.web.statistics()).running[f"v1:{first.runs.worker}"] == 1
    assert await state(tier.web) is RunState.RUNNING


async def test_own_turns_are_left_alone(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    first = tier.turns()
    [taken_turn] = await take(first, restartable=True)
    tier.age()
    assert await sweep(first, restartable=True, mine=(taken_turn.entry,)) == []


@pytest.mark.usefixtures("died")
async def test_a_turn_that_ends_every_process_is_given_up(tier: Tier) -> None:
    for _ in range(2):
        agent = tier.turns()
        [_taken_turn] = await sweep(agent, restartable=True)
        await die(agent, tier)
    assert await sweep(tier.turns(), restartable=True) == []


async def test_an_entry_whose_run_has_ended_is_removed(tier: Tier) -> None:
    await tier.web.offer(TURN, after="")
    first = tier.turns()
    [_] = await take(first)
    await first.runs.end(msgspec.structs.replace(RUN, state=RunState.FINISHED))
    await die(first, tier)
    assert await sweep(tier.turns(), restartable=True) == []
    assert tier.workers.client.xlen(tier.key) == 0


async def test_a_process_leaves_without_a_trace(tier: Tier) -> None:
    first, second = tier.turns(), tier.turns()
    await take(first)
    await take(second, "v2")
    await first.leave("v1")
    assert (await tier.web.statistics()).running == {f"v2:{second.runs.worker}": 0}


async def test_an_entry_that_cannot_be_read_is_logged_and_dropped(tier: Tier, caplog: pytest.LogCaptureFixture) -> None:
    tier.workers.client.xadd(tier.key, {"turn": "nonsense"})
    with caplog.at_level(logging.ERROR, "usechat.runs"):
        assert await take(tier.turns()) == []
    assert "cannot be read, and is dropped" in caplog.text
    assert tier.workers.client.xlen(tier.key) == 0


async def test_a_redis_that_lost_its_data_gets_a_new_group(tier: Tier) -> None:
    agent = tier.turns()
    await take(agent)
    tier.workers.client.delete(tier.key)
    assert await take(agent) == []
    assert await sweep(agent) == []
    await agent.keep("v1", ["1-1"])
    await agent.done("1-1")
    await tier.web.offer(TURN, after="")
    [taken_turn] = await take(agent)
    assert taken_turn.turn == TURN


async def test_a_turn_that_cannot_be_queued_leaves_no_busy_chat(tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = RedisRuns.ask

    async def refuse(self: RedisRuns, *command: object) -> object:
        if command[0] == "XADD":
            raise StoreUnreachable
        return await ask(self, *command)

    with monkeypatch.context() as patched:
        patched.setattr(RedisRuns, "ask", refuse)
        with pytest.raises(StoreUnreachable):
            await tier.web.offer(TURN, after="")
    assert await state(tier.web) is RunState.FAILED
    again = QueuedTurn(msgspec.structs.replace(RUN, run_id="r2"), TurnInput(REQUEST))
    assert await tier.web.offer(again, after="r1") is None


async def test_without_redis_every_step_says_so(own_server: RedisServer) -> None:
    workers = Workers(own_server)
    turns = RedisTurns(workers.store(), QUEUE)
    await take(turns)
    own_server.stop()
    for step in (turns.admit(), turns.statistics(), turns.done("1-1"), turns.withdraw(RUN), take(turns), sweep(turns)):
        with pytest.raises(StoreUnreachable):
            await step
    await workers.close()
