"""Metrics for Prometheus: counted with prometheus-client, served at ``/metrics``."""

import asyncio
from collections.abc import Callable, Iterable
from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from usechat.errors import MissingDependency, StoreUnreachable
from usechat.runs.turns import TurnQueue, TurnStatistics
from usechat.server.observers.metrics import QUEUE_INSTRUMENTS, Instrument, MetricsObserver
from usechat.server.observers.workers import forget_dead_workers, worker_directory

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram, start_http_server
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.metrics_core import GaugeMetricFamily, Metric
    from prometheus_client.multiprocess import MultiProcessCollector
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingDependency("prometheus-client", "metrics") from error

__all__ = ["PrometheusObserver", "process_metrics"]


class PrometheusObserver(MetricsObserver):
    """Counts in a registry of prometheus-client, once per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(_PrometheusBinding(registry))
        self._registry = registry

    async def page(self, request: Request) -> Response:
        """Answer ``/metrics``: everything in the registry, or the sums of all workers."""
        return await self._page(request, [])

    async def page_with(self, queue: TurnQueue, request: Request) -> Response:
        """Answer ``/metrics`` with what the queue of turns says, too; without that if the queue does not answer."""
        try:
            metrics = _queue_metrics(await queue.statistics())
        except StoreUnreachable:
            metrics = []
        return await self._page(request, metrics)

    def serve(self, host: str, port: int) -> None:
        """Serve the registry at a separate port, from a thread; raise ``OSError`` if the port cannot be used."""
        start_http_server(port, host, self._registry)

    async def _page(self, request: Request, others: list[Metric]) -> Response:
        self.publish()
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        # In a thread, because the files of many workers take milliseconds, and streams must not wait for them.
        content = await asyncio.to_thread(lambda: encode(_Both(self._collected(), others).registry))
        return Response(content, headers={"content-type": content_type})

    def _collected(self) -> CollectorRegistry:
        directory = worker_directory()
        if directory is None:
            return self._registry
        forget_dead_workers(directory)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(directory))  # type: ignore[no-untyped-call]
        return registry


@cache
def process_metrics() -> PrometheusObserver:
    """Return the observer that counts for this process, in prometheus-client's global registry; always the same one.

    >>> from usechat.server import chat_response
    >>> async def chat(request):
    ...     return await chat_response(request, lambda turn: "Hello!", observer=process_metrics())
    """
    return PrometheusObserver(REGISTRY)


class _Both(Collector):
    """Shows what a registry has, and further metrics."""

    def __init__(self, registry: CollectorRegistry, others: list[Metric]) -> None:
        self._base = registry
        self._others = others
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Yield all of them."""
        yield from self._base.collect()
        yield from self._others


def _queue_metrics(statistics: TurnStatistics) -> list[Metric]:
    waiting, oldest, running = (
        GaugeMetricFamily(each.prometheus_name, each.description, labels=each.labels) for each in QUEUE_INSTRUMENTS
    )
    waiting.add_metric((), statistics.waiting)
    oldest.add_metric((), statistics.oldest_seconds)
    for worker, turns in statistics.running.items():
        running.add_metric((worker,), turns)
    return [waiting, oldest, running]


class _PrometheusBinding:
    """Registers each instrument when it is first used."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._metrics: dict[str, Counter | Gauge | Histogram] = {}

    def __call__(self, instrument: Instrument, **labels: str) -> Callable[[float], None]:
        if instrument.name not in self._metrics:
            self._metrics[instrument.name] = self._register(instrument)
        metric = self._metrics[instrument.name]
        bound = metric.labels(**labels) if labels else metric
        return bound.observe if isinstance(bound, Histogram) else bound.inc

    def _register(self, instrument: Instrument) -> Counter | Gauge | Histogram:
        name, text, labels = instrument.prometheus_name, instrument.description, instrument.labels
        registry = self._registry
        match instrument.kind:
            case "counter":
                return Counter(name, text, labels, registry=registry)
            case "gauge":
                return Gauge(name, text, labels, registry=registry, multiprocess_mode="livesum")
            case "histogram":
                return Histogram(name, text, labels, registry=registry, buckets=instrument.buckets)
