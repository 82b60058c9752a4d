"""The metrics of a server: one table of names for OpenTelemetry and Prometheus."""

from collections.abc import Callable
from typing import Final, Literal, Protocol

import msgspec

from usechat.protocol.parts import Abort, Error, Finish
from usechat.runs.run import RunInfo, RunState
from usechat.server.observers.observer import Observer
from usechat.turn import AgentInfo

__all__ = [
    "BYTES",
    "CLIENT_ABORTS",
    "INSTRUMENTS",
    "OPEN_CONNECTIONS",
    "OPEN_FAILURES",
    "OPEN_STREAMS",
    "QUEUE_INSTRUMENTS",
    "REQUESTS",
    "SERVER_ABORTS",
    "STREAMS",
    "THREADS_WAITING",
    "TOKENS",
    "TTFB",
    "TURNS_OLDEST",
    "TURNS_RUNNING",
    "TURNS_WAITING",
    "TURN_DURATION",
    "UNKNOWN_EVENTS",
    "Bind",
    "Instrument",
    "MetricsObserver",
]


class Instrument(msgspec.Struct, frozen=True):
    """One thing that is counted or timed. ``unit`` is in UCUM, as OpenTelemetry wants it."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    unit: str
    description: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def prometheus_name(self) -> str:
        """The name on ``/metrics``, made as OpenTelemetry's "Prometheus and OpenMetrics Compatibility" says."""
        name = self.name.replace(".", "_")
        if self.unit == "s":
            name += "_seconds"
        return f"{name}_total" if self.kind == "counter" else name


class Bind(Protocol):
    """Returns the function that adds to, or records with, an instrument under fixed labels."""

    def __call__(self, instrument: Instrument, **labels: str) -> Callable[[float], None]:
        """Return that function."""
        ...


REQUESTS: Final = Instrument(
    "adapter.request.count",
    "counter",
    "{request}",
    "Requests: answered ones by the state in which the run ended, refused ones by their HTTP status.",
    labels=("outcome", "status"),
)
TTFB: Final = Instrument(
    "adapter.latency.ttfb",
    "histogram",
    "s",
    "From the request to the first data: frame of its stream; comments do not count.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
TURN_DURATION: Final = Instrument(
    "adapter.latency.turn_duration",
    "histogram",
    "s",
    "From the beginning of a run to its end.",
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800),
)
STREAMS: Final = Instrument(
    "adapter.stream.count", "counter", "{stream}", "Streams opened: sent, resumed, and those of a second tab."
)
OPEN_STREAMS: Final = Instrument("adapter.stream.open", "gauge", "{stream}", "Streams that are open now.")
BYTES: Final = Instrument("adapter.stream.bytes", "counter", "By", "Bytes of streams handed to the server.")
CLIENT_ABORTS: Final = Instrument(
    "adapter.stream.aborts.client", "counter", "{stream}", "Streams that the client left before their end."
)
SERVER_ABORTS: Final = Instrument(
    "adapter.stream.aborts.server",
    "counter",
    "{stream}",
    "Streams that the server cut off before their end, by why.",
    labels=("reason",),
)
THREADS_WAITING: Final = Instrument(
    "adapter.threads.waiting", "gauge", "{run}", "Answers of plain functions that wait for a thread now."
)
OPEN_FAILURES: Final = Instrument(
    "adapter.ws.open_failures", "counter", "{connection}", "Upstream connections that could not be opened."
)
OPEN_CONNECTIONS: Final = Instrument(
    "adapter.ws.open", "gauge", "{connection}", "Upstream connections that are open now."
)
UNKNOWN_EVENTS: Final = Instrument(
    "adapter.translation.unknown_events", "counter", "{event}", "Events of a source that its adapter does not know."
)
TOKENS: Final = Instrument(
    "adapter.agent.tokens",
    "counter",
    "{token}",
    "Tokens that agents of frameworks have used, by the adapter and by whether they were read or written.",
    labels=("framework", "type"),
)

INSTRUMENTS: Final = (
    REQUESTS,
    TTFB,
    TURN_DURATION,
    STREAMS,
    OPEN_STREAMS,
    BYTES,
    CLIENT_ABORTS,
    SERVER_ABORTS,
    THREADS_WAITING,
    OPEN_FAILURES,
    OPEN_CONNECTIONS,
    UNKNOWN_EVENTS,
    TOKENS,
)
"""What an observer counts. ``adapter.request.error_rate`` is computed from the labels of the requests."""

TURNS_WAITING: Final = Instrument(
    "adapter.turns.waiting", "gauge", "{turn}", "Turns that wait for an agent process now."
)
TURNS_OLDEST: Final = Instrument(
    "adapter.turns.oldest", "gauge", "s", "How long the oldest of the waiting turns has waited."
)
TURNS_RUNNING: Final = Instrument(
    "adapter.turns.running", "gauge", "{turn}", "Turns that each agent process answers now.", labels=("worker",)
)
QUEUE_INSTRUMENTS: Final = (TURNS_WAITING, TURNS_OLDEST, TURNS_RUNNING)
"""Further metrics of a web process whose agents run in other processes; read from Redis."""


_PUBLISHED_TOGETHER: Final = 64 * 1024
"""Bytes are counted for every write. A local sum costs 0.1 µs; a counter of prometheus-client 0.4, in files 1.1."""


class MetricsObserver(Observer):
    """Counts and times everything a server does; where the numbers go is decided by ``bind``.

    Every foreseeable series exists from the beginning, at zero: Prometheus does not see the first increase of a series
    that appears with it. Those of a framework exist from the beginning of its first turn.
    """

    def __init__(self, bind: Bind) -> None:
        self._bind = bind
        self._requests: dict[tuple[str, int], Callable[[float], None]] = {}
        for state in RunState:
            if state is not RunState.RUNNING:
                self._count_request(state, 200, 0)
        self._time_to_first_frame = bind(TTFB)
        self._turn_duration = bind(TURN_DURATION)
        self._streams = bind(STREAMS)
        self._open_streams = bind(OPEN_STREAMS)
        self._bytes = bind(BYTES)
        self._aborts = {"client": bind(CLIENT_ABORTS)}
        for reason in ("slow", "disconnected"):
            self._count_abort(reason, 0)
        self._threads_waiting = bind(THREADS_WAITING)
        self._open_failures = bind(OPEN_FAILURES)
        self._open_connections = bind(OPEN_CONNECTIONS)
        self._unknown_events = bind(UNKNOWN_EVENTS)
        self._tokens: dict[tuple[str, str], Callable[[float], None]] = {}
        self._unpublished = 0

    def publish(self) -> None:
        """Publish the bytes that were counted so far."""
        count, self._unpublished = self._unpublished, 0
        self._bytes(count)

    def request_refused(self, status: int) -> None:
        """Count it as refused, or as failed when the fault is the server's."""
        self._count_request("refused" if status < 500 else "failed", status, 1)

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        """Count the request that asked for the run, and time the run."""
        self._count_request(info.state, 200, 1)
        self._turn_duration(seconds)

    def run_lost(self, info: RunInfo) -> None:
        """Do nothing: the worker that declared it lost counts it."""

    def stream_opened(self) -> None:
        """Count an open stream."""
        self._streams(1)
        self._open_streams(1)

    def first_frame(self, seconds: float) -> None:
        """Record the time to the first frame."""
        self._time_to_first_frame(seconds)

    def bytes_sent(self, count: int) -> None:
        """Add them up; they are published in larger amounts."""
        self._unpublished += count
        if self._unpublished >= _PUBLISHED_TOGETHER:
            self.publish()

    def stream_closed(self, reason: str) -> None:
        """Count a closed stream, and the reason if it did not reach its end."""
        self._open_streams(-1)
        self.publish()
        if reason != "ended":
            self._count_abort(reason, 1)

    def threads_waiting(self, change: int, /) -> None:
        """Count those that wait."""
        self._threads_waiting(change)

    def source_unreachable(self) -> None:
        """Count it."""
        self._open_failures(1)

    def source_connected(self) -> None:
        """Count it as open."""
        self._open_connections(1)

    def source_disconnected(self) -> None:
        """Count it as closed."""
        self._open_connections(-1)

    def event_unknown(self, kind: str) -> None:  # noqa: ARG002
        """Count it. Its kind is in the log: a label for every kind would be unbounded."""
        self._unknown_events(1)

    def agent_invoked(self, agent: AgentInfo, chat_id: str) -> None:  # noqa: ARG002
        """Create the series of its adapter, at zero."""
        for kind in ("input", "output"):
            self._count_tokens(agent.framework, kind, 0)

    def agent_ended(
        self,
        agent: AgentInfo,
        ending: Finish | Error | Abort | None,
        error: BaseException | None,  # noqa: ARG002
    ) -> None:
        """Count the tokens that it has used, if it says how many."""
        used = (ending.usage if ending is not None else None) or {}
        for kind in ("input", "output"):
            if amount := used.get(f"{kind}Tokens"):
                self._count_tokens(agent.framework, kind, amount)

    def _count_tokens(self, framework: str, kind: str, amount: float) -> None:
        if (framework, kind) not in self._tokens:
            self._tokens[framework, kind] = self._bind(TOKENS, framework=framework, type=kind)
        self._tokens[framework, kind](amount)

    def _count_request(self, outcome: str, status: int, amount: int) -> None:
        if (outcome, status) not in self._requests:
            self._requests[outcome, status] = self._bind(REQUESTS, outcome=str(outcome), status=str(status))
        self._requests[outcome, status](amount)

    def _count_abort(self, reason: str, amount: int) -> None:
        if reason not in self._aborts:
            self._aborts[reason] = self._bind(SERVER_ABORTS, reason=reason)
        self._aborts[reason](amount)
