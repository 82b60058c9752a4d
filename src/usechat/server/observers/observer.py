"""What a server tells about itself while it works; metrics and traces listen."""

from collections.abc import Callable
from typing import Protocol

from usechat.runs.run import RunInfo

__all__ = ["Observer", "Observers", "Unobserved"]


class Observer(Protocol):
    """Hears what happens. Every method returns at once and never raises."""

    def request_refused(self, status: int) -> None:
        """A request was answered with an HTTP error."""
        ...

    def run_started(self, info: RunInfo) -> None:
        """A run begins. This is called in its context: what is set here, such as a span, is what the agent finds."""
        ...

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        """A run ended as ``info.state`` says; told once, in the worker that ended it, or that found it lost."""
        ...

    def run_lost(self, info: RunInfo) -> None:
        """A run of this worker is not its own any more: the end of it is told elsewhere."""
        ...

    def stream_opened(self) -> None:
        """A reader was let in."""
        ...

    def first_frame(self, seconds: float) -> None:
        """The first ``data:`` frame went out, so long after the request came in."""
        ...

    def bytes_sent(self, count: int, /) -> None:
        """Bytes of a stream were handed to the server."""
        ...

    def stream_closed(self, reason: str) -> None:
        """A reader left: ``ended``, ``client`` (it went away), ``slow``, ``broken-off``."""
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
    """Nobody listens."""

    def request_refused(self, status: int) -> None:
        """Nothing."""

    def run_started(self, info: RunInfo) -> None:
        """Nothing."""

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        """Nothing."""

    def run_lost(self, info: RunInfo) -> None:
        """Nothing."""

    def stream_opened(self) -> None:
        """Nothing."""

    def first_frame(self, seconds: float) -> None:
        """Nothing."""

    def bytes_sent(self, count: int) -> None:
        """Nothing."""

    def stream_closed(self, reason: str) -> None:
        """Nothing."""

    def source_unreachable(self) -> None:
        """Nothing."""

    def source_connected(self) -> None:
        """Nothing."""

    def source_disconnected(self) -> None:
        """Nothing."""

    def event_unknown(self, kind: str) -> None:
        """Nothing."""


class Observers:
    """Several that listen."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        # Called for every write: whoever does nothing with it is not asked, and one alone is asked straight.
        counters = [each.bytes_sent for each in observers if _counts_bytes(each)]
        self._byte_counters = counters
        self.bytes_sent: Callable[[int], None] = counters[0] if len(counters) == 1 else self._tell_bytes

    def request_refused(self, status: int) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.request_refused(status)

    def run_started(self, info: RunInfo) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.run_started(info)

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.run_ended(info, seconds)

    def run_lost(self, info: RunInfo) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.run_lost(info)

    def stream_opened(self) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.stream_opened()

    def first_frame(self, seconds: float) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.first_frame(seconds)

    def _tell_bytes(self, count: int) -> None:
        for count_bytes in self._byte_counters:
            count_bytes(count)

    def stream_closed(self, reason: str) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.stream_closed(reason)

    def source_unreachable(self) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.source_unreachable()

    def source_connected(self) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.source_connected()

    def source_disconnected(self) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.source_disconnected()

    def event_unknown(self, kind: str) -> None:
        """Tell all."""
        for observer in self._observers:
            observer.event_unknown(kind)


def _counts_bytes(observer: Observer) -> bool:
    return getattr(type(observer), "bytes_sent", None) is not Unobserved.bytes_sent
