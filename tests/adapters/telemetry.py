"""What OpenTelemetry must see of a framework's turn, whichever environment its packages are in."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.adapters.agents import Deeds, Framework
from usechat.errors import StreamFailed
from usechat.server import ChatApp
from usechat.server.observers.opentelemetry import OpenTelemetryObserver
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

NAMES = {"langgraph": "LangGraph", "ag-ui": None, "claude": None, "haystack": None, "dspy": "Assistant"}
"""Names of agents that are not called assistant."""


class Traced:
    """An SDK of OpenTelemetry that keeps what it gets, and tools that trace what they do."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.observer = OpenTelemetryObserver(
            meter_provider=MeterProvider([self._reader]), tracer_provider=self.provider
        )

    def span(self, name: str) -> Any:
        [match] = [span for span in self._exporter.get_finished_spans() if span.name.startswith(name)]
        return match

    def ancestors(self, name: str) -> list[str]:
        spans: dict[Any, Any] = {span.context.span_id: span for span in self._exporter.get_finished_spans()}
        node, names = self.span(name), []
        while node.parent is not None:
            node = spans[node.parent.span_id]
            names.append(node.name)
        return names

    def tokens(self) -> dict[tuple[str, str], float]:
        data: Any = self._reader.get_metrics_data()
        metrics = {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}
        points = metrics["adapter.agent.tokens"].data.data_points
        counts = {(point.attributes["framework"], point.attributes["type"]): point.value for point in points}
        return {labels: value for labels, value in counts.items() if value}


class TracedDeeds(Deeds):
    def __init__(self, traced: Traced) -> None:
        super().__init__()
        self._tracer = traced.provider.get_tracer("tools")

    def weather(self, city: str) -> dict[str, Any]:
        with self._tracer.start_as_current_span("look at the sky"):
            return super().weather(city)


@contextmanager
def _made(framework: Framework, model: ScriptedModel, deeds: Deeds) -> Iterator[Any]:
    resource = framework.make(model, framework.apis[0], deeds)
    with resource if isinstance(resource, AbstractContextManager) else nullcontext(resource) as agent:
        yield agent


def check_turn(framework: Framework) -> None:
    traced = Traced()
    adapter, name = framework.page, NAMES.get(framework.page, "assistant")
    shown_name = "invoke_agent" if name is None else f"invoke_agent {name}"
    weather = ModelCall("weather", {"city": "Paris"})
    with (
        ScriptedModel(framework.answers([ModelAnswer(calls=[weather]), "It is 21 °C."])) as model,
        _made(framework, model, TracedDeeds(traced)) as agent,
        AgentClient(ChatApp(agent, observer=traced.observer)) as client,
    ):
        answer = client.ask("How is the weather?")
    request_count = len(model.requests)
    assert model.refusals == []
    assert answer.text == "It is 21 °C."
    [exchange] = answer.exchanges
    span = traced.span("invoke_agent")
    assert span.name == shown_name
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": adapter,
        **({} if name is None else {"gen_ai.agent.name": name}),
        "gen_ai.conversation.id": exchange.request["id"],
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 11 * request_count,
        "gen_ai.usage.output_tokens": 7 * request_count,
    }
    assert traced.ancestors("invoke_agent") == ["adapter.run"]
    assert shown_name in traced.ancestors("look at the sky")
    assert traced.tokens() == {(adapter, "input"): 11 * request_count, (adapter, "output"): 7 * request_count}


def check_failed_turn(framework: Framework) -> None:
    traced = Traced()
    with (
        ScriptedModel([ModelAnswer(error="secret", status=500)]) as model,
        _made(framework, model, Deeds()) as agent,
        AgentClient(ChatApp(agent, observer=traced.observer)) as client,
    ):
        assert isinstance(client.ask("Hi.").error, StreamFailed)
    assert model.refusals == []
    span = traced.span("invoke_agent")
    assert span.attributes["error.type"]
    assert (span.status.status_code.name, "secret" in str(span.to_json())) == ("ERROR", False)
