"""Quotas: how many requests one user may send, counted in the store that all workers share."""

import time
from typing import Final, Protocol, runtime_checkable

import msgspec

from usechat.errors import TooManyRequests

__all__ = ["Counters", "MemoryCounters", "QuotaLimiter", "Quotas", "release_run"]

_MINUTE: Final = 60.0
_DAY: Final = 86_400.0
_LONGEST_RUN: Final = 3_600.0
"""Seconds after which a run no longer counts whose worker died, if nobody noticed that the run was lost."""
_RETRY_RUNS: Final = 5.0
_MANY_COUNTERS: Final = 10_000


class Quotas(msgspec.Struct, frozen=True, kw_only=True):
    """What one identity may use; ``None`` means no limit. More is refused with 429, a sentence and ``Retry-After``.

    ``bytes_per_day`` counts the bytes of answers; the answer that exceeds it is finished, and the next request is
    refused. Minutes and days begin with the first request in them.

    >>> Quotas(requests_per_minute=30, concurrent_runs=3).bytes_per_day is None
    True
    """

    requests_per_minute: int | None = None
    concurrent_runs: int | None = None
    bytes_per_day: int | None = None


@runtime_checkable
class Counters(Protocol):
    """Counts for all workers of a service."""

    async def count(self, key: str, amount: int, seconds: float) -> tuple[int, float]:
        """Add to a counter that is reset after ``seconds``; return its sum, and the seconds until it is reset."""
        ...

    async def hold(self, key: str, holder: str, seconds: float) -> int:
        """Add a holder, who is forgotten after ``seconds``; return how many there are."""
        ...

    async def release(self, key: str, holder: str) -> None:
        """Remove a holder."""
        ...


class MemoryCounters:
    """Counts for one process."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[int, float]] = {}
        self._holders: dict[str, set[str]] = {}
        self._worth_cleaning = _MANY_COUNTERS

    async def count(self, key: str, amount: int, seconds: float) -> tuple[int, float]:
        """Add to a counter that is reset after ``seconds``; return its sum, and the seconds until it is reset."""
        now = time.monotonic()
        if len(self._sums) > self._worth_cleaning:  # of people who are long gone
            self._sums = {name: counter for name, counter in self._sums.items() if counter[1] > now}
            self._worth_cleaning = max(_MANY_COUNTERS, 2 * len(self._sums))  # not again for every further person
        total, end = self._sums.get(key, (0, 0.0))
        if end <= now:
            total, end = 0, now + seconds
        self._sums[key] = total + amount, end
        return total + amount, end - now

    async def hold(self, key: str, holder: str, seconds: float) -> int:  # noqa: ARG002 (holders die with the process)
        """Add a holder; return how many there are."""
        holders = self._holders.setdefault(key, set())
        holders.add(holder)
        return len(holders)

    async def release(self, key: str, holder: str) -> None:
        """Remove a holder."""
        holders = self._holders.get(key, set())
        holders.discard(holder)
        if not holders:
            self._holders.pop(key, None)


def _runs_of(subject: str) -> str:
    return f"runs:{subject}"


async def release_run(counters: Counters, subject: str, run_id: str) -> None:
    """Count a run no more, whether runs are limited or not."""
    await counters.release(_runs_of(subject), run_id)


class QuotaLimiter:
    """Refuses requests that exceed quotas. Call ``admit`` before a run, and ``release`` when it has ended.

    It counts in ``store`` if that is a run store that several workers share, and in this process otherwise.

    >>> import asyncio
    >>> from usechat.server import MemoryRuns
    >>> limiter = QuotaLimiter(Quotas(requests_per_minute=30), MemoryRuns())
    >>> asyncio.run(limiter.admit("ada", "run-1"))
    """

    def __init__(self, quotas: Quotas, store: object) -> None:
        self._quotas = quotas
        self._counters = store if isinstance(store, Counters) else MemoryCounters()

    @property
    def limits_runs(self) -> bool:
        """Whether runs at once are limited."""
        return self._quotas.concurrent_runs is not None

    async def admit(self, subject: str, run_id: str, *, is_answered: bool = False) -> None:
        """Count a request that may start a run. Raises ``TooManyRequests`` if a quota is exceeded.

        A chat that ``is_answered`` has a run: the request joins it, replaces it or waits for it, and is not one more.
        """
        quotas = self._quotas
        if quotas.requests_per_minute is not None:
            total, left = await self._counters.count(f"requests:{subject}", 1, _MINUTE)
            if total > quotas.requests_per_minute:
                limit = quotas.requests_per_minute
                raise TooManyRequests(f"More than {limit} requests in a minute. Please wait.", retry_after=left)
        if quotas.bytes_per_day is not None:
            total, left = await self._counters.count(f"bytes:{subject}", 0, _DAY)
            if total >= quotas.bytes_per_day:
                raise TooManyRequests("Your quota for today is used up.", retry_after=left)
        if quotas.concurrent_runs is not None:
            runs = await self._counters.hold(_runs_of(subject), run_id, _LONGEST_RUN)
            if runs - is_answered > quotas.concurrent_runs:
                await self.release(subject, run_id)
                limit = quotas.concurrent_runs
                raise TooManyRequests(f"More than {limit} messages at once. Please wait.", retry_after=_RETRY_RUNS)

    async def release(self, subject: str, run_id: str, size: int = 0) -> None:
        """Note that a run has ended, or was not started, and how many bytes its answer has."""
        if self._quotas.concurrent_runs is not None:
            await release_run(self._counters, subject, run_id)
        if self._quotas.bytes_per_day is not None and size:
            await self._counters.count(f"bytes:{subject}", size, _DAY)
