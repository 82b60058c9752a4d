"""Metrics for Prometheus: counted with prometheus-client, served at ``/metrics``."""

import asyncio
from collections.abc import Callable
from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from usechat.errors import MissingDependency
from usechat.server.observers.metrics import Instrument, MetricsObserver
from usechat.server.observers.workers import forget_dead_workers, worker_directory

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.multiprocess import MultiProcessCollector
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
        self.publish()
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        # In a thread, because the files of many workers take milliseconds, and streams must not wait for them.
        content = await asyncio.to_thread(lambda: encode(self._collected()))
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
