"""Observers: what a server reports about itself while it works, for metrics, traces and logs."""

import logging
from typing import Any, Final, Protocol

from usechat.protocol.parts import Abort, Error, Finish
from usechat.runs.run import RunInfo
from usechat.threads import contained
from usechat.turn import AgentInfo

__all__ = ["Observer", "Observers", "Unobserved"]

_logger: Final = logging.getLogger("usechat.server")


class Observer(Protocol):
    """Receives the events of a server. Derive your observer from :class:`Unobserved` and override what you need.

    Methods are called in the event loop, so they must return quickly. Exceptions that they raise are logged.

    >>> from usechat.server import ChatApp, Unobserved
    >>> class Refusals(Unobserved):
    ...     def request_refused(self, status):
    ...         print("refused with", status)
    >>> app = ChatApp(lambda turn: "Hello", observer=Refusals())
    """

    def request_refused(self, status: int) -> None:
        """Called when a request was answered with an HTTP error."""
        ...

    def run_started(self, info: RunInfo) -> None:
        """Called when a run starts, in its context: the agent sees context variables set here, such as a span."""
        ...

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        """Called once when a run has ended as ``info.state`` says, in the worker that ended it or found it lost."""
        ...

    def run_lost(self, info: RunInfo) -> None:
        """Called when another worker declared a run of this worker lost, and reports its end."""
        ...

    def stream_opened(self) -> None:
        """Called when a stream to a client was opened."""
        ...

    def first_frame(self, seconds: float) -> None:
        """Called when the first ``data:`` frame was sent, ``seconds`` after the request arrived."""
        ...

    def bytes_sent(self, count: int, /) -> None:
        """Called about once per second, and when a stream closes, with the number of bytes sent."""
        ...

    def stream_closed(self, reason: str) -> None:
        """Called when a stream was closed: ``ended``, ``client`` (left), ``slow``, ``disconnected`` (by the server)."""
        ...

    def threads_waiting(self, change: int, /) -> None:
        """Called when the number of answers that wait for a thread has changed by ``change``."""
        ...

    def source_unreachable(self) -> None:
        """Called when an upstream connection could not be opened."""
        ...

    def source_connected(self) -> None:
        """Called when an upstream connection was opened."""
        ...

    def source_disconnected(self) -> None:
        """Called when an upstream connection was closed."""
        ...

    def event_unknown(self, kind: str) -> None:
        """Called when a source sent an event that its adapter does not know."""
        ...

    def agent_invoked(self, agent: AgentInfo, chat_id: str) -> None:
        """Called when an agent of a framework starts to answer, in the task of the turn, as ``run_started`` is."""
        ...

    def agent_ended(self, agent: AgentInfo, ending: Finish | Error | Abort | None, error: BaseException | None) -> None:
        """Called when an agent of a framework has ended: with its last part, or with an exception."""
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

    def agent_invoked(self, agent: AgentInfo, chat_id: str) -> None:
        """Do nothing."""

    def agent_ended(self, agent: AgentInfo, ending: Finish | Error | Abort | None, error: BaseException | None) -> None:
        """Do nothing."""


class Observers:
    """Passes everything on to several observers. One that raises is logged, once per method, and the others continue.

    >>> both = Observers(Unobserved(), Unobserved())
    """

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self._logged: set[tuple[int, str]] = set()
        # Called for every stream each second: observers that ignore it are left out.
        self._byte_counters = [each for each in observers if _counts_bytes(each)]

    def bytes_sent(self, count: int, /) -> None:
        """Pass it on."""
        for observer in self._byte_counters:
            try:
                with contained():
                    observer.bytes_sent(count)
            except Exception as error:
                self._log(observer, "bytes_sent", error)

    def _tell(self, method: str, *event: Any) -> None:
        for observer in self._observers:
            try:
                with contained():
                    getattr(observer, method)(*event)
            except Exception as error:
                self._log(observer, method, error)

    def _log(self, observer: Observer, method: str, error: Exception) -> None:
        if (id(observer), method) not in self._logged:
            self._logged.add((id(observer), method))
            name = type(observer).__name__
            _logger.error("the observer %s raised in %s; this is logged once", name, method, exc_info=error)

    def request_refused(self, status: int) -> None:
        """Pass it on."""
        self._tell("request_refused", status)

    def run_started(self, info: RunInfo) -> None:
        """Pass it on."""
        self._tell("run_started", info)

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        """Pass it on."""
        self._tell("run_ended", info, seconds)

    def run_lost(self, info: RunInfo) -> None:
        """Pass it on."""
        self._tell("run_lost", info)

    def stream_opened(self) -> None:
        """Pass it on."""
        self._tell("stream_opened")

    def first_frame(self, seconds: float) -> None:
        """Pass it on."""
        self._tell("first_frame", seconds)

    def stream_closed(self, reason: str) -> None:
        """Pass it on."""
        self._tell("stream_closed", reason)

    def threads_waiting(self, change: int, /) -> None:
        """Pass it on."""
        self._tell("threads_waiting", change)

    def source_unreachable(self) -> None:
        """Pass it on."""
        self._tell("source_unreachable")

    def source_connected(self) -> None:
        """Pass it on."""
        self._tell("source_connected")

    def source_disconnected(self) -> None:
        """Pass it on."""
        self._tell("source_disconnected")

    def event_unknown(self, kind: str) -> None:
        """Pass it on."""
        self._tell("event_unknown", kind)

    def agent_invoked(self, agent: AgentInfo, chat_id: str) -> None:
        """Pass it on."""
        self._tell("agent_invoked", agent, chat_id)

    def agent_ended(self, agent: AgentInfo, ending: Finish | Error | Abort | None, error: BaseException | None) -> None:
        """Pass it on."""
        self._tell("agent_ended", agent, ending, error)


def _counts_bytes(observer: Observer) -> bool:
    return getattr(type(observer), "bytes_sent", None) is not Unobserved.bytes_sent
