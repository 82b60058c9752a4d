"""OpenTelemetry hears the same as Prometheus, and has a span of every run."""

import contextvars
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.external_agents import needs_agents_here
from tests.server.metrics_page import ask
from usechat.errors import MissingDependency
from usechat.runs.run import RunInfo, RunState
from usechat.server import ChatApp
from usechat.server.observers.metrics import INSTRUMENTS
from usechat.server.observers.observer import report_start
from usechat.server.observers.opentelemetry import OpenTelemetryObserver
from usechat.turn import AgentInfo, Turn


class Collected:
    """An SDK that keeps what it was told."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self._exporter = InMemorySpanExporter()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observer = OpenTelemetryObserver(
            meter_provider=MeterProvider([self._reader]), tracer_provider=self.tracer_provider
        )

    def metrics(self) -> dict[str, Any]:
        data = self._reader.get_metrics_data()
        assert data is not None
        [resource] = data.resource_metrics
        [scope] = resource.scope_metrics
        assert scope.scope.name == "usechat"
        return {metric.name: metric for metric in scope.metrics}

    def points(self) -> dict[str, list[tuple[dict[str, str], float]]]:
        """Return the points that are not zero: a sum's value, a histogram's count."""
        points_by_name = {
            name: [
                (dict(point.attributes), getattr(point, "count", 0) or getattr(point, "value", 0)) for point in points
            ]
            for name, points in ((name, metric.data.data_points) for name, metric in self.metrics().items())
        }
        return {
            name: nonzero
            for name, points in points_by_name.items()
            if (nonzero := [point for point in points if point[1]])
        }

    def begin_run(self) -> None:
        """Tell that a run begins, in a context of its own, as the manager does."""
        contextvars.copy_context().run(self.observer.run_started, run())

    def finished(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def spans(self) -> list[tuple[str, dict[str, Any], str]]:
        return [(span.name, dict(span.attributes or {}), span.status.status_code.name) for span in self.finished()]


def run(state: RunState = RunState.RUNNING, run_id: str = "r1") -> RunInfo:
    return RunInfo(run_id, "c1", "m1", "7", subject="someone", state=state)


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (RunState.FINISHED, "UNSET"),
        (RunState.WAITING, "UNSET"),
        (RunState.STOPPED, "UNSET"),
        (RunState.FAILED, "ERROR"),
        (RunState.LOST, "ERROR"),
    ],
)
def test_a_run_is_a_span_that_ends_with_its_state(state: RunState, status: str) -> None:
    collected = Collected()
    collected.begin_run()
    assert collected.spans() == []
    collected.observer.run_ended(run(state), 1)
    attributes = {
        "adapter.chat.id": "c1",
        "adapter.run.id": "r1",
        "adapter.run.sdk": "7",
        "adapter.run.state": state.value,
    }
    assert collected.spans() == [("adapter.run", attributes, status)]


def test_a_run_that_this_worker_has_lost_ends_its_span_and_is_counted_elsewhere() -> None:
    collected = Collected()
    collected.begin_run()
    collected.observer.run_lost(run(RunState.LOST))
    assert [(attributes["adapter.run.state"], status) for _, attributes, status in collected.spans()] == [
        ("lost", "ERROR")
    ]
    assert collected.points() == {}


def test_the_end_of_a_run_of_another_worker_has_no_span_here() -> None:
    collected = Collected()
    collected.observer.run_ended(run(RunState.LOST), 1)
    assert collected.spans() == []


def test_the_span_of_a_run_is_below_that_of_the_request() -> None:
    collected = Collected()
    with collected.tracer_provider.get_tracer("web").start_as_current_span("POST /api/chat") as request:
        collected.begin_run()
    collected.observer.run_ended(run(RunState.FINISHED), 1)
    [_, span] = collected.finished()
    assert span.parent == request.get_span_context()


def test_without_a_span_of_the_request_its_trace_is_continued() -> None:
    collected = Collected()
    headers = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    contextvars.copy_context().run(report_start, collected.observer, run(), headers)
    with collected.tracer_provider.get_tracer("web").start_as_current_span("POST /api/chat") as request:
        contextvars.copy_context().run(report_start, collected.observer, run(run_id="r2"), headers)
    for run_id in ("r1", "r2"):
        collected.observer.run_ended(run(RunState.FINISHED, run_id), 1)
    [_, first, second] = collected.finished()
    assert first.parent is not None
    assert (first.parent.trace_id, first.parent.span_id) == (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)
    assert second.parent == request.get_span_context(), "an instrumentation of the server comes first"


@needs_agents_here("the reference is in the span of the agent process")
async def test_the_span_of_a_run_that_failed_has_the_exception_and_the_reference_that_the_page_shows() -> None:
    collected = Collected()

    async def agent(_turn: Turn) -> str:
        raise LookupError("no such city")

    page = await ask(ChatApp(agent, observer=collected.observer), "POST", "/api/chat", text="hi")
    [span] = collected.finished()
    attributes = dict(span.attributes or {})
    assert f"Reference: {attributes['adapter.run.reference']}" in page.text
    [event] = span.events
    assert event.attributes is not None
    assert (event.name, event.attributes["exception.message"]) == ("exception", "no such city")


@needs_agents_here("the span of a run begins a trace in the worker")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_the_spans_of_an_agent_are_below_that_of_its_run(kind: str) -> None:
    collected = Collected()
    tracer = collected.tracer_provider.get_tracer("agent")

    async def agent(_turn: Turn) -> AsyncIterator[str]:
        with tracer.start_as_current_span("agent"):
            yield "Hi"

    def answer_in_a_thread(_turn: Turn) -> str:
        with tracer.start_as_current_span("agent"):
            return "Hi"

    app = ChatApp(agent if kind == "async" else answer_in_a_thread, observer=collected.observer)
    with collected.tracer_provider.get_tracer("web").start_as_current_span("POST /api/chat") as request:
        await ask(app, "POST", "/api/chat", text="Hello")
        assert trace.get_current_span() is request, "the run's span is current in the run alone"
    parents = {span.name: span.parent and span.parent.span_id for span in collected.finished()}
    ids = {span.name: span.context and span.context.span_id for span in collected.finished()}
    assert parents == {"agent": ids["adapter.run"], "adapter.run": ids["POST /api/chat"], "POST /api/chat": None}


def test_instruments_have_their_names_units_and_buckets() -> None:
    collected = Collected()
    collected.observer.stream_opened()
    collected.observer.first_frame(0.1)
    collected.observer.run_ended(run(RunState.FINISHED), 1)
    collected.observer.bytes_sent(5)
    collected.observer.stream_closed("client")
    collected.observer.threads_waiting(1)
    collected.observer.source_unreachable()
    collected.observer.source_connected()
    collected.observer.event_unknown("new")
    collected.observer.agent_invoked(AgentInfo("langgraph"), "c1")
    collected.observer.agent_ended(AgentInfo("langgraph"), None, None)
    metrics = collected.metrics()
    assert {name: metric.unit for name, metric in metrics.items()} == {each.name: each.unit for each in INSTRUMENTS}
    for instrument in INSTRUMENTS:
        for point in metrics[instrument.name].data.data_points:
            assert tuple(getattr(point, "explicit_bounds", ())) == instrument.buckets


async def test_an_app_tells_it_everything() -> None:
    async def agent(turn: Turn) -> str:
        if turn.text == "fail":
            raise ValueError("broken")
        return "Hi"

    collected = Collected()
    app = ChatApp(agent, observer=collected.observer)
    responses = [await ask(app, "POST", "/api/chat", text=text) for text in ("Hello", "fail")]
    await ask(app, "GET", "/api/chat/unknown")
    assert [(attributes["adapter.run.state"], status) for _, attributes, status in collected.spans()] == [
        ("finished", "UNSET"),
        ("failed", "ERROR"),
    ]
    assert collected.points() == {
        "adapter.request.count": [
            ({"outcome": "finished", "status": "200"}, 1),
            ({"outcome": "failed", "status": "200"}, 1),
            ({"outcome": "refused", "status": "404"}, 1),
        ],
        "adapter.latency.ttfb": [({}, 2)],
        "adapter.latency.turn_duration": [({}, 2)],
        "adapter.stream.count": [({}, 2)],
        "adapter.stream.bytes": [({}, sum(len(response.content) for response in responses))],
    }


def test_without_the_api_the_import_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "usechat.server.observers.opentelemetry")
    with pytest.raises(MissingDependency, match=r"usechat\[otel\]"):
        __import__("usechat.server.observers.opentelemetry")
