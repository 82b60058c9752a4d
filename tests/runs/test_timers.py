"""The shared timer calls each listener until it is discarded."""

import asyncio
from contextvars import ContextVar

import pytest

from usechat.runs.timers import SharedTimer, timer_for


class Listener:
    def __init__(self, timer: SharedTimer, ticks: int = 1) -> None:
        self.times: list[float] = []
        self.done = asyncio.Event()
        self._timer = timer
        self._ticks = ticks

    def tick(self, now: float) -> None:
        self.times.append(now)
        if len(self.times) == self._ticks:
            self._timer.discard(self)
            self.done.set()


async def test_listeners_are_called_at_their_intervals() -> None:
    timer = SharedTimer(0.01)
    listeners = [Listener(timer, ticks) for ticks in (1, 2, 3)]
    began = asyncio.get_running_loop().time()
    for listener in listeners:
        timer.add(listener)
    for listener in listeners:
        await asyncio.wait_for(listener.done.wait(), 10)
    assert [len(listener.times) for listener in listeners] == [1, 2, 3]
    assert listeners[2].times == sorted(listeners[2].times)
    assert listeners[2].times[0] >= began + 0.01


async def test_a_listener_that_is_added_after_all_were_discarded_is_called() -> None:
    timer = SharedTimer(0.001)
    for _ in range(2):
        listener = Listener(timer)
        timer.add(listener)
        await asyncio.wait_for(listener.done.wait(), 10)
        timer.discard(listener)


async def test_listeners_are_not_called_in_the_context_of_another() -> None:
    person = ContextVar("person", default="nobody")
    people: list[str] = []
    timer = SharedTimer(0.001)

    class Asking(Listener):
        def tick(self, now: float) -> None:
            people.append(person.get())
            super().tick(now)

    person.set("Ada")
    listener = Asking(timer)
    timer.add(listener)
    await asyncio.wait_for(listener.done.wait(), 10)
    assert people == ["nobody"]


async def test_limits_that_are_alike_share_a_timer() -> None:
    assert timer_for(120) is timer_for(60)
    assert timer_for(0.1) is not timer_for(60)
    assert timer_for(0) is timer_for(0.001)


@pytest.mark.parametrize(
    ("limit", "interval"), [(0, 0.001), (0.01, 0.001), (0.1, 0.005), (10, 0.5), (20, 1.0), (30, 1.0), (3600, 1.0)]
)
async def test_a_timer_ticks_every_twentieth_of_its_limit_and_at_least_every_second(
    limit: float, interval: float
) -> None:
    assert timer_for(limit).interval == interval


def test_each_loop_has_its_own() -> None:
    async def one() -> SharedTimer:
        return timer_for(60)

    assert asyncio.run(one()) is not asyncio.run(one())
