"""Observers: what a server reports about itself while it works, for metrics, traces and logs."""

import logging
from typing import Any, Final, Protocol

from usechat.protocol.parts import Abort, Error, Finish
from usechat.runs.run import RunInfo
from usechat.turn import AgentInfo

__all__ = ["Observer", "Observers", "Unobserved"]

_logger: Final = logging.getLogger("usechat.server")


class Observer(Protocol):
    """Receives what happens in a server. Derive yours from :class:`Unobserved` and override what you need.

    Methods are called in the event loop: they return at once. What they raise is logged.

    >>> from usechat.server import ChatApp, Unobserved
    >>> class Refusals(Unobserved):
    ...     def request_refused(self, status):
    ...         print("refused with", status)
    >>> app = ChatApp(lambda turn: "Hello", observer=Refusals())
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
        """Bytes of a stream were handed to the server; counted over about a second, and when the stream closes."""
        ...

    def stream_closed(self, reason: str) -> None:
        """A stream was closed: ``ended``, ``client`` (it left), ``slow`` or ``disconnected`` (by the server)."""
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

    def agent_invoked(self, agent: AgentInfo, chat_id: str) -> None:
        """An agent of a framework begins to answer. Called in the task of the turn, as ``run_started`` is."""
        ...

    def agent_ended(self, agent: AgentInfo, ending: Finish | Error | Abort | None, error: BaseException | None) -> None:
        """An agent of a framework has ended: with the last part that it said, or with an exception."""
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
                observer.bytes_sent(count)
            except Exception as error:
                self._log(observer, "bytes_sent", error)

    def _tell(self, method: str, *event: Any) -> None:
        for observer in self._observers:
            try:
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
