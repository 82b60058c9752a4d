"""Quotas by value: which request is refused, with which sentence, and for how long."""

from collections.abc import Callable

import pytest

from usechat.errors import TooManyRequests
from usechat.runs import quotas
from usechat.runs.quotas import MemoryCounters, QuotaLimiter, Quotas


class Clock:
    """A clock that the test sets."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    new_clock = Clock()
    monkeypatch.setattr(quotas, "time", new_clock)
    return new_clock


async def refused(keeper: QuotaLimiter, subject: str = "ada", run_id: str = "r1") -> tuple[str, float | None] | None:
    try:
        await keeper.admit(subject, run_id)
    except TooManyRequests as error:
        return str(error), error.retry_after
    return None


async def test_a_counter_adds_up_until_it_is_reset(clock: Clock) -> None:
    counters = MemoryCounters()
    assert await counters.count("a", 3, 60) == (3, 60)
    clock.now += 20
    assert await counters.count("a", 6, 60) == (9, 40)
    assert await counters.count("b", 1, 60) == (1, 60)
    clock.now += 40
    assert await counters.count("a", 5, 60) == (5, 60), "reset at the end of its minute"


@pytest.mark.parametrize(("later", "left"), [(59.0, 10_002), (60.0, 1), (61.0, 1)])
async def test_counters_that_were_reset_are_forgotten_once_there_are_many(
    clock: Clock, later: float, left: int
) -> None:
    counters = MemoryCounters()
    for number in range(10_001):
        await counters.count(str(number), 1, 60)
    clock.now += later
    await counters.count("new", 1, 60)
    assert len(vars(counters)["_sums"]) == left


async def test_the_counters_of_very_many_people_are_not_copied_for_everyone() -> None:
    counters = MemoryCounters()
    for number in range(10_002):
        await counters.count(str(number), 1, 60)
    sums = vars(counters)["_sums"]
    await counters.count("one more", 1, 60)
    assert vars(counters)["_sums"] is sums


async def test_the_counters_of_very_many_people_are_forgotten_some_day(clock: Clock) -> None:
    counters = MemoryCounters()
    for number in range(20_003):
        await counters.count(str(number), 1, 60)
    clock.now += 61
    await counters.count("new", 1, 60)
    assert len(vars(counters)["_sums"]) == 1


async def test_holders_count_until_they_are_released() -> None:
    counters = MemoryCounters()
    assert [await counters.hold("a", name, 60) for name in ("r1", "r2", "r2")] == [1, 2, 2]
    await counters.release("a", "r1")
    await counters.release("a", "unknown")
    await counters.release("unknown", "r1")
    assert await counters.hold("a", "r3", 60) == 2
    for name in ("r2", "r3"):
        await counters.release("a", name)
    assert vars(counters)["_holders"] == {}


async def test_without_quotas_everything_is_admitted() -> None:
    counters = MemoryCounters()
    keeper = QuotaLimiter(Quotas(), counters)
    assert [await refused(keeper) for _ in range(5)] == [None] * 5
    await keeper.release("ada", "r1", 10**9)
    assert await refused(keeper) is None
    assert (vars(counters)["_sums"], vars(counters)["_holders"]) == ({}, {})


async def test_so_many_requests_are_admitted_in_a_minute(clock: Clock) -> None:
    keeper = QuotaLimiter(Quotas(requests_per_minute=2), MemoryCounters())
    assert [await refused(keeper), await refused(keeper)] == [None, None]
    clock.now += 15
    assert await refused(keeper) == ("More than 2 requests in a minute. Please wait.", 45)
    assert await refused(keeper, "bob") is None
    clock.now += 45
    assert await refused(keeper) is None


async def test_so_many_bytes_are_answered_in_a_day(clock: Clock) -> None:
    keeper = QuotaLimiter(Quotas(bytes_per_day=100), MemoryCounters())
    assert await refused(keeper) is None
    await keeper.release("ada", "r1", 99)
    assert await refused(keeper) is None
    await keeper.release("ada", "r1", 2)
    clock.now += 400
    assert await refused(keeper) == ("Your quota for today is used up.", 86_000)
    assert await refused(keeper, "bob") is None
    clock.now += 86_000
    assert await refused(keeper) is None


async def test_so_many_runs_are_admitted_at_once() -> None:
    keeper = QuotaLimiter(Quotas(concurrent_runs=1), MemoryCounters())
    assert [await refused(keeper, run_id="r1"), await refused(keeper, "bob", "r2")] == [None, None]
    for _ in range(2):
        assert await refused(keeper, run_id="r3") == ("More than 1 messages at once. Please wait.", 5)
    await keeper.release("ada", "r1")
    assert await refused(keeper, run_id="r3") is None


async def test_fewer_runs_than_the_limit_are_admitted() -> None:
    keeper = QuotaLimiter(Quotas(concurrent_runs=3), MemoryCounters())
    assert [await refused(keeper, run_id=f"r{number}") for number in range(3)] == [None] * 3
    assert await refused(keeper, run_id="r3") == ("More than 3 messages at once. Please wait.", 5)


async def test_a_request_about_a_chat_that_is_answered_is_not_one_more_run() -> None:
    keeper = QuotaLimiter(Quotas(concurrent_runs=1), MemoryCounters())
    await keeper.admit("ada", "r1")
    await keeper.admit("ada", "r2", is_answered=True)
    with pytest.raises(TooManyRequests):
        await keeper.admit("ada", "r3", is_answered=True)
    assert [QuotaLimiter(limits, MemoryCounters()).limits_runs for limits in (Quotas(), Quotas(concurrent_runs=0))] == [
        False,
        True,
    ]


@pytest.mark.parametrize("limit", [Quotas(requests_per_minute=0), Quotas(bytes_per_day=0), Quotas(concurrent_runs=0)])
async def test_a_limit_of_zero_admits_nothing(limit: Quotas) -> None:
    assert await refused(QuotaLimiter(limit, MemoryCounters())) is not None


def test_quotas_are_given_by_name() -> None:
    make: Callable[..., Quotas] = Quotas
    with pytest.raises(TypeError):
        make(1)


async def test_a_quota_that_is_used_up_exactly_is_used_up() -> None:
    keeper = QuotaLimiter(Quotas(bytes_per_day=100), MemoryCounters())
    await keeper.release("ada", "r1", 100)
    assert await refused(keeper) is not None
