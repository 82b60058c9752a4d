"""Metrics and spans for OpenTelemetry; the SDK that the application sets up decides where they go."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from typing import Any, Final

from usechat.errors import MissingDependency
from usechat.protocol.parts import Abort, Error, Finish
from usechat.runs.run import RunInfo, RunState
from usechat.server.observers.metrics import Instrument, MetricsObserver
from usechat.server.observers.observer import Observer, Observers
from usechat.turn import AgentInfo

try:
    from opentelemetry import context, metrics, propagate, trace
except ImportError as error:
    raise MissingDependency("opentelemetry-api", "otel") from error

__all__ = ["OpenTelemetryObserver"]

_SCOPE = "usechat"


class OpenTelemetryObserver(Observers):
    """Records metrics, a span for every run, and one for every turn that an agent of a framework answers.

    ``meter_provider`` and ``tracer_provider`` are by default the global ones. Raises
    :class:`~usechat.errors.MissingDependency` without the extra ``otel``.

    >>> from usechat.server import ChatApp
    >>> app = ChatApp(lambda turn: "Hello!", observer=OpenTelemetryObserver())
    """

    def __init__(
        self,
        *,
        meter_provider: metrics.MeterProvider | None = None,
        tracer_provider: trace.TracerProvider | None = None,
    ) -> None:
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        super().__init__(MetricsObserver(_OpenTelemetryBinding(meter)), _RunSpans(tracer), _AgentSpans(tracer))


class _RunSpans(Observer):
    """One span per run, below the span of the request that asked for it; the spans of the agent are below this one."""

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer
        self._spans: dict[str, trace.Span] = {}

    def run_requested(self, info: RunInfo, headers: Mapping[str, str]) -> None:  # noqa: ARG002
        """Continue the trace of the request, unless an instrumentation of the server does."""
        if not trace.get_current_span().get_span_context().is_valid:
            context.attach(propagate.extract(headers))

    def run_failed(self, info: RunInfo, error: BaseException, reference: str) -> None:
        """Note in the span what the log has, and by which reference."""
        if (span := self._spans.get(info.run_id)) is not None:
            span.set_attribute("adapter.run.reference", reference)
            span.record_exception(error)

    def run_started(self, info: RunInfo) -> None:
        """Start the span, and make it the current one of the run's context."""
        attributes = {"adapter.chat.id": info.chat_id, "adapter.run.id": info.run_id, "adapter.run.sdk": info.sdk}
        span = self._spans[info.run_id] = self._tracer.start_span("adapter.run", attributes=attributes)
        context.attach(trace.set_span_in_context(span))

    def run_ended(self, info: RunInfo, seconds: float) -> None:  # noqa: ARG002
        """End the span with the run's state. A run that was lost by another worker has none here."""
        self._end(info)

    def run_lost(self, info: RunInfo) -> None:
        """End the span as lost."""
        self._end(info)

    def _end(self, info: RunInfo) -> None:
        span = self._spans.pop(info.run_id, None)
        if span is None:
            return
        span.set_attribute("adapter.run.state", str(info.state))
        if info.state in (RunState.FAILED, RunState.LOST):
            span.set_status(trace.StatusCode.ERROR)
        span.end()


_invocation: Final[ContextVar[tuple[trace.Span, Token[Any]]]] = ContextVar("usechat.invocation")


class _AgentSpans(Observer):
    """One span per turn of a framework's agent, named as in OpenTelemetry's conventions for generative AI.

    It is current in the task of the turn, so the framework's own spans are below it.
    """

    def __init__(self, tracer: trace.Tracer) -> None:
        self._tracer = tracer

    def agent_invoked(self, agent: AgentInfo, chat_id: str) -> None:
        """Start the span, and make it the current one."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": agent.framework,
            "gen_ai.conversation.id": chat_id,
        }
        if agent.name is not None:
            attributes["gen_ai.agent.name"] = agent.name
        span = self._tracer.start_span(" ".join(filter(None, ["invoke_agent", agent.name])), attributes=attributes)
        _invocation.set((span, context.attach(trace.set_span_in_context(span))))

    def agent_ended(
        self,
        agent: AgentInfo,  # noqa: ARG002
        ending: Finish | Error | Abort | None,
        error: BaseException | None,
    ) -> None:
        """End the span with the tokens, the finish reason, or the type of the failure."""
        span, token = _invocation.get()
        for kind in ("input", "output"):
            if ending is not None and (amount := (ending.usage or {}).get(f"{kind}Tokens")) is not None:
                span.set_attribute(f"gen_ai.usage.{kind}_tokens", amount)
        if isinstance(ending, Finish) and ending.reason is not None:
            span.set_attribute("gen_ai.response.finish_reasons", [ending.reason])
        if isinstance(error, Exception) or isinstance(ending, Error):
            span.set_attribute("error.type", type(error).__qualname__ if error is not None else "agent_error")
            span.set_status(trace.StatusCode.ERROR)
        span.end()
        context.detach(token)


class _OpenTelemetryBinding:
    """Creates each instrument when it is first used."""

    def __init__(self, meter: metrics.Meter) -> None:
        self._meter = meter
        self._records: dict[str, Callable[[float, dict[str, str]], None]] = {}

    def __call__(self, instrument: Instrument, **labels: str) -> Callable[[float], None]:
        if instrument.name not in self._records:
            self._records[instrument.name] = self._create(instrument)
        record = self._records[instrument.name]
        return lambda amount: record(amount, labels)

    def _create(self, instrument: Instrument) -> Callable[[float, dict[str, str]], None]:
        name, unit, text = instrument.name, instrument.unit, instrument.description
        match instrument.kind:
            case "counter":
                return self._meter.create_counter(name, unit, text).add
            case "gauge":
                return self._meter.create_up_down_counter(name, unit, text).add
            case "histogram":
                return self._meter.create_histogram(
                    name, unit, text, explicit_bucket_boundaries_advisory=instrument.buckets
                ).record
