"""One timer for many: everybody looks, until they look no more."""

import asyncio
from contextvars import ContextVar

from usechat.runs.timers import SharedTimer, timer_for


class Watch:
    def __init__(self, timer: SharedTimer, looks: int = 1) -> None:
        self.times: list[float] = []
        self.done = asyncio.Event()
        self._timer = timer
        self._looks = looks

    def tick(self, now: float) -> None:
        self.times.append(now)
        if len(self.times) == self._looks:
            self._timer.discard(self)
            self.done.set()


async def test_everybody_looks_as_often_as_they_want() -> None:
    timer = SharedTimer(0.01)
    watches = [Watch(timer, looks) for looks in (1, 2, 3)]
    began = asyncio.get_running_loop().time()
    for watch in watches:
        timer.add(watch)
    for watch in watches:
        await asyncio.wait_for(watch.done.wait(), 10)
    assert [len(watch.times) for watch in watches] == [1, 2, 3]
    assert watches[2].times == sorted(watches[2].times)
    assert watches[2].times[0] >= began + 0.01


async def test_somebody_who_comes_when_all_have_gone_looks_too() -> None:
    timer = SharedTimer(0.001)
    for _ in range(2):
        watch = Watch(timer)
        timer.add(watch)
        await asyncio.wait_for(watch.done.wait(), 10)
        timer.discard(watch)


async def test_nobody_looks_with_the_variables_of_another() -> None:
    asked = ContextVar("asked", default="nobody")
    found: list[str] = []
    timer = SharedTimer(0.001)

    class Asking(Watch):
        def tick(self, now: float) -> None:
            found.append(asked.get())
            super().tick(now)

    asked.set("Ada")
    watch = Asking(timer)
    timer.add(watch)
    await asyncio.wait_for(watch.done.wait(), 10)
    assert found == ["nobody"]


async def test_limits_that_are_alike_share_a_timer() -> None:
    assert timer_for(120) is timer_for(60)
    assert timer_for(0.1) is not timer_for(60)
    assert timer_for(0) is timer_for(0.001)


def test_each_loop_has_its_own() -> None:
    async def one() -> SharedTimer:
        return timer_for(60)

    assert asyncio.run(one()) is not asyncio.run(one())
