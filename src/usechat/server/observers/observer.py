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
        self._logged: set[tuple[int, str]] = set()
        # Every turn and every stream is told in several of them: observers that ignore a method are left out.
        self._listening = {method: [each for each in observers if _hears(each, method)] for method in _METHODS}

    def _tell(self, method: str, *event: Any) -> None:
        for observer in self._listening[method]:
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


_METHODS: Final = tuple(name for name in dir(Observer) if not name.startswith("_"))
for _name in _METHODS:
    setattr(Observers, _name, _passing_on(_name))


def _hears(observer: Observer, method: str) -> bool:
    return getattr(type(observer), method, None) is not getattr(Observer, method)
