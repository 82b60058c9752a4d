"""What a server tells about itself while it works; metrics and traces listen."""

from typing import Protocol

from usechat.runs.run import RunInfo

__all__ = ["Observer", "Unobserved"]


class Observer(Protocol):
    """Hears what happens. Every method returns at once and never raises."""

    def request_refused(self, status: int) -> None:
        """A request was answered with an HTTP error."""
        ...

    def run_started(self, info: RunInfo) -> None:
        """A run began."""
        ...

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        """A run ended as ``info.state`` says."""
        ...

    def stream_opened(self) -> None:
        """A reader was let in."""
        ...

    def first_frame(self, seconds: float) -> None:
        """The first ``data:`` frame went out, so long after the request came in."""
        ...

    def bytes_sent(self, count: int) -> None:
        """Bytes of a stream were handed to the server."""
        ...

    def stream_closed(self, reason: str) -> None:
        """A reader left: ``ended``, ``client`` (it went away), ``slow``, ``broken-off``."""
        ...

    def source_unreachable(self) -> None:
        """An upstream connection could not be opened."""
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

    def event_unknown(self, kind: str) -> None:
        """Nothing."""
