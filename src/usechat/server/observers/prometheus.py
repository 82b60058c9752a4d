"""Metrics for Prometheus: counted with prometheus-client, told at ``/metrics``."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from usechat.errors import MissingDependency
from usechat.server.observers.metrics import Instrument, MetricsObserver

__all__ = [
    "PrometheusObserver",
    "counted_together",
    "forget_dead_workers",
    "process_metrics",
    "worker_directory",
]


_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"


@contextmanager
def counted_together() -> Iterator[None]:
    """Make all processes that are started inside count together; a directory named by the environment is kept."""
    if worker_directory() is not None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="usechat-metrics-") as directory:
        os.environ[_VARIABLE] = directory
        try:
            yield
        finally:
            del os.environ[_VARIABLE]


def worker_directory() -> Path | None:
    """Return where the workers keep their counts; nothing when this process counts alone."""
    directory = os.environ.get(_VARIABLE)
    return Path(directory) if directory else None


def forget_dead_workers(directory: Path) -> None:
    """Drop the gauges of processes that are gone: their streams are not open any more. What they counted stays."""
    for file in directory.glob("gauge_live*_*.db"):
        if not _lives(int(file.stem.rpartition("_")[2])):
            file.unlink(missing_ok=True)


def _lives(process_id: int) -> bool:
    if sys.platform == "win32":
        return True  # signal 0 would end it there
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        return True
    return True


# -- Metrics for Prometheus: counted with prometheus-client, told at ``/metrics``.

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.multiprocess import MultiProcessCollector
except ImportError as error:
    raise MissingDependency("prometheus-client", "metrics") from error


class PrometheusObserver(MetricsObserver):
    """Counts in a registry of prometheus-client, once per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(_Binding(registry))
        self._registry = registry

    async def page(self, request: Request) -> Response:
        """Tell everything in the registry, or the sums of all workers."""
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
    """Return the metrics of this process: all its apps count together, beside the metrics of the user's own code."""
    return PrometheusObserver(REGISTRY)


class _Binding:
    """Registers each instrument when it is first asked for."""

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
