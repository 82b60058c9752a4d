"""What a server measures: one table of names for OpenTelemetry and Prometheus."""

from collections.abc import Callable
from typing import Final, Literal, Protocol

import msgspec

__all__ = [
    "BYTES",
    "CLIENT_ABORTS",
    "INSTRUMENTS",
    "OPEN_CONNECTIONS",
    "OPEN_FAILURES",
    "OPEN_STREAMS",
    "REQUESTS",
    "SERVER_ABORTS",
    "STREAMS",
    "TTFB",
    "TURN_DURATION",
    "UNKNOWN_EVENTS",
    "Bind",
    "Instrument",
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
    """Gives the function that adds to, or records with, an instrument under fixed labels."""

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
OPEN_FAILURES: Final = Instrument(
    "adapter.ws.open_failures", "counter", "{connection}", "Upstream connections that could not be opened."
)
OPEN_CONNECTIONS: Final = Instrument(
    "adapter.ws.open", "gauge", "{connection}", "Upstream connections that are open now."
)
UNKNOWN_EVENTS: Final = Instrument(
    "adapter.translation.unknown_events", "counter", "{event}", "Events of a source that its adapter does not know."
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
    OPEN_FAILURES,
    OPEN_CONNECTIONS,
    UNKNOWN_EVENTS,
)
"""All of them. ``adapter.request.error_rate`` is none: it follows from the labels of the count (docs/metrics.md)."""
