"""Observers: what a server reports about itself while it works, for metrics, traces and logs."""

from collections.abc import Callable
from typing import Protocol

from usechat.runs.run import RunInfo

__all__ = ["Observer", "Observers", "Unobserved"]


class Observer(Protocol):
    """Receives what happens in a server. Derive yours from :class:`Unobserved` and override what you need.

    Methods are called in the event loop, some for every write: they return at once and never raise.
    """

    def request_refused(self, status: int) -> None:
        """A request was answered with an HTTP error."""
        ...

    def run_started(self, info: RunInfo) -> None:
        """A run begins. Called in its context: context variables that are set here, such as a span, reach the agent."""
        ...

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        """A run ended as ``info.state`` says. Called once, in the worker that ended it or that found it lost."""
        ...

    def run_lost(self, info: RunInfo) -> None:
        """Another worker declared a run of this worker lost, and reports its end."""
        ...

    def stream_opened(self) -> None:
        """A stream to a client was opened."""
        ...

    def first_frame(self, seconds: float) -> None:
        """The first ``data:`` frame was sent, ``seconds`` after the request arrived."""
        ...

    def bytes_sent(self, count: int, /) -> None:
        """Bytes of a stream were handed to the server."""
        ...

    def stream_closed(self, reason: str) -> None:
        """A stream was closed: ``ended``, ``client`` (it left), ``slow`` or ``broken-off`` (by the server)."""
        ...

    def threads_waiting(self, change: int, /) -> None:
        """The number of answers that wait for a thread has changed."""
        ...

    def source_unreachable(self) -> None:
        """An upstream connection could not be opened."""
        ...

    def source_connected(self) -> None:
        """An upstream connection was opened."""
        ...

    def source_disconnected(self) -> None:
        """An upstream connection was closed."""
        ...

    def event_unknown(self, kind: str) -> None:
        """A source sent an event that its adapter does not know."""
        ...


class Unobserved:
    """An observer that does nothing: the base of your own.

    >>> class CountRuns(Unobserved):
    ...     count = 0
    ...     def run_started(self, info):
    ...         self.count += 1
    """

    def request_refused(self, status: int) -> None:
        """Do nothing."""

    def run_started(self, info: RunInfo) -> None:
        """Do nothing."""

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        """Do nothing."""

    def run_lost(self, info: RunInfo) -> None:
        """Do nothing."""

    def stream_opened(self) -> None:
        """Do nothing."""

    def first_frame(self, seconds: float) -> None:
        """Do nothing."""

    def bytes_sent(self, count: int) -> None:
        """Do nothing."""

    def stream_closed(self, reason: str) -> None:
        """Do nothing."""

    def threads_waiting(self, change: int, /) -> None:
        """Do nothing."""

    def source_unreachable(self) -> None:
        """Do nothing."""

    def source_connected(self) -> None:
        """Do nothing."""

    def source_disconnected(self) -> None:
        """Do nothing."""

    def event_unknown(self, kind: str) -> None:
        """Do nothing."""


class Observers:
    """Passes everything on to several observers.

    >>> both = Observers(Unobserved(), Unobserved())
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        # Called for every write: observers that ignore it are left out, and a single one is called directly.
        counters = [each.bytes_sent for each in observers if _counts_bytes(each)]
        self._byte_counters = counters
        self.bytes_sent: Callable[[int], None] = counters[0] if len(counters) == 1 else self._pass_on_bytes

    def request_refused(self, status: int) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.request_refused(status)

    def run_started(self, info: RunInfo) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.run_started(info)

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.run_ended(info, seconds)

    def run_lost(self, info: RunInfo) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.run_lost(info)

    def stream_opened(self) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.stream_opened()

    def first_frame(self, seconds: float) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.first_frame(seconds)

    def _pass_on_bytes(self, count: int) -> None:
        for count_bytes in self._byte_counters:
            count_bytes(count)

    def stream_closed(self, reason: str) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.stream_closed(reason)

    def threads_waiting(self, change: int, /) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.threads_waiting(change)

    def source_unreachable(self) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.source_unreachable()

    def source_connected(self) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.source_connected()

    def source_disconnected(self) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.source_disconnected()

    def event_unknown(self, kind: str) -> None:
        """Pass it on."""
        for observer in self._observers:
            observer.event_unknown(kind)


def _counts_bytes(observer: Observer) -> bool:
    return getattr(type(observer), "bytes_sent", None) is not Unobserved.bytes_sent
