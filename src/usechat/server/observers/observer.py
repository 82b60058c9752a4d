"""Observers: what a server reports about itself while it works, for metrics, traces and logs."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from usechat.runs.run import RunInfo
from usechat.threads import contained
from usechat.turn import SourceObserver

__all__ = ["AppRequest", "Observer", "Observers", "report_start"]

_logger: Final = logging.getLogger("usechat.server")


class AppRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the user interface of an MCP tool has asked of its server, for audits.

    ``subject`` names the person whose page sent it. ``name`` is the tool or the resource, and ``outcome`` is
    ``answered``, ``refused`` or ``failed``. The arguments and the answer are not told.

    >>> request = AppRequest(
    ...     chat_id="c1", subject="ada", method="tools/call", server="weather", name="refresh", outcome="answered"
    ... )
    """

    chat_id: str
    subject: str
    method: str
    server: str
    name: str
    outcome: str


class Observer(SourceObserver):
    """Receives the events of a server. Derive your observer from it, and override what you need.

    Methods are called in the event loop, so they must return quickly. Exceptions that they raise are logged.

    >>> from usechat.server import ChatApp, Observer
    >>> class Refusals(Observer):
    ...     def request_refused(self, status):
    ...         print("refused with", status)
    >>> app = ChatApp(lambda turn: "Hello", observer=Refusals())
    """

    def request_refused(self, status: int) -> None:
        """Called when a request was answered with an HTTP error."""

    def run_started(self, info: RunInfo) -> None:
        """Called when a run starts, in its context: the agent sees context variables set here, such as a span."""

    def run_requested(self, info: RunInfo, headers: Mapping[str, str]) -> None:
        """Called before ``run_started``, in the same context, with the headers of the request."""

    def run_failed(self, info: RunInfo, error: BaseException, reference: str) -> None:
        """Called when an agent has raised ``error``, which the log has with this reference, before the run ends."""

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        """Called once when a run has ended as ``info.state`` says, in the worker that ended it or found it lost."""

    def run_lost(self, info: RunInfo) -> None:
        """Called when another worker declared a run of this worker lost, and reports its end."""

    def app_requested(self, request: AppRequest) -> None:
        """Called when the user interface of an MCP tool has asked something of its server, or was refused."""

    def stream_opened(self) -> None:
        """Called when a stream to a client was opened."""

    def first_frame(self, seconds: float) -> None:
        """Called when the first ``data:`` frame was sent, ``seconds`` after the request arrived."""

    def bytes_sent(self, count: int, /) -> None:
        """Called about once per second, and when a stream closes, with the number of bytes sent."""

    def stream_closed(self, reason: str) -> None:
        """Called when a stream was closed: ``ended``, ``client`` (left), ``slow``, ``disconnected`` (by the server)."""

    def threads_waiting(self, change: int, /) -> None:
        """Called when the number of answers that wait for a thread has changed by ``change``."""


def report_start(observer: Observer, info: RunInfo, headers: Mapping[str, str]) -> None:
    """Tell an observer of a run that starts, and of the request that it answers."""
    observer.run_requested(info, headers)
    observer.run_started(info)


class Observers(Observer):
    """Passes everything on to several observers. One that raises is logged, once per method, and the others continue.

    >>> both = Observers(Observer(), Observer())
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


def _passing_on(method: str) -> Callable[..., None]:
    def pass_on(self: Observers, *event: Any) -> None:
        self._tell(method, *event)

    return pass_on


for _name in dir(Observer):
    if not _name.startswith("_") and _name not in vars(Observers):
        setattr(Observers, _name, _passing_on(_name))


def _counts_bytes(observer: Observer) -> bool:
    return getattr(type(observer), "bytes_sent", None) is not Observer.bytes_sent
