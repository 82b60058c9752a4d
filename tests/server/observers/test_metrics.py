"""What is counted, under which names, and that the alerts ask for what is really there."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from scripts.generate_docs import ROOT
from tests.server.metrics_page import ask, read_samples
from usechat.protocol.parts import Finish
from usechat.runs.run import RunInfo, RunState
from usechat.server import ChatApp, Settings
from usechat.server.observers.logs import LoggingObserver
from usechat.server.observers.metrics import INSTRUMENTS, Instrument, MetricsObserver
from usechat.server.observers.observer import Observer, Observers
from usechat.turn import AgentInfo, Turn

REQUIRED = [
    "adapter.request.count",
    "adapter.latency.ttfb",
    "adapter.latency.turn_duration",
    "adapter.stream.aborts.client",
    "adapter.stream.aborts.server",
    "adapter.ws.open_failures",
    "adapter.translation.unknown_events",
]
RULES = yaml.safe_load((ROOT / "ops" / "prometheus-rules.yml").read_text(encoding="utf-8"))["groups"][0]["rules"]
SELECTOR = re.compile(r"\b(adapter_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!=|=)"([^"]*)"')

Record = tuple[str, dict[str, str], float]


class Recorder:
    """Binds every instrument to a list of what was recorded."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def __call__(self, instrument: Instrument, **labels: str) -> Callable[[float], None]:
        assert set(labels) == set(instrument.labels)
        return lambda amount: self.records.append((instrument.name, labels, amount))


def recorded(happen: Callable[[MetricsObserver], None]) -> list[Record]:
    recorder = Recorder()
    observer = MetricsObserver(recorder)
    recorder.records.clear()
    happen(observer)
    return recorder.records


def run(state: RunState) -> RunInfo:
    return RunInfo("r1", "c1", "m1", "7", state=state)


@pytest.mark.parametrize("state", [state for state in RunState if state is not RunState.RUNNING])
def test_a_run_is_counted_by_the_state_in_which_it_ended(state: RunState) -> None:
    def happen(observer: MetricsObserver) -> None:
        observer.run_started(run(RunState.RUNNING))
        observer.run_ended(run(state), 1.5)

    assert recorded(happen) == [
        ("adapter.request.count", {"outcome": state.value, "status": "200"}, 1),
        ("adapter.latency.turn_duration", {}, 1.5),
    ]


@pytest.mark.parametrize(
    ("status", "outcome"), [(400, "refused"), (401, "refused"), (409, "refused"), (500, "failed"), (503, "failed")]
)
def test_a_refused_request_is_counted_by_its_status_and_whose_fault_it_was(status: int, outcome: str) -> None:
    assert recorded(lambda observer: observer.request_refused(status)) == [
        ("adapter.request.count", {"outcome": outcome, "status": str(status)}, 1)
    ]


@pytest.mark.parametrize(
    ("reason", "aborts"),
    [
        ("ended", []),
        ("client", [("adapter.stream.aborts.client", {}, 1)]),
        ("slow", [("adapter.stream.aborts.server", {"reason": "slow"}, 1)]),
        ("disconnected", [("adapter.stream.aborts.server", {"reason": "disconnected"}, 1)]),
    ],
)
def test_a_stream_is_counted_and_so_is_who_cut_it_off(reason: str, aborts: list[Record]) -> None:
    def happen(observer: MetricsObserver) -> None:
        observer.stream_opened()
        observer.first_frame(0.25)
        observer.bytes_sent(10)
        observer.bytes_sent(20)
        observer.stream_closed(reason)

    assert recorded(happen) == [
        ("adapter.stream.count", {}, 1),
        ("adapter.stream.open", {}, 1),
        ("adapter.latency.ttfb", {}, 0.25),
        ("adapter.stream.open", {}, -1),
        ("adapter.stream.bytes", {}, 30),
        *aborts,
    ]


def test_bytes_of_a_long_stream_are_published_before_it_ends_and_when_asked_for() -> None:
    def happen(observer: MetricsObserver) -> None:
        for _ in range(3):
            observer.bytes_sent(40_000)
        observer.publish()

    assert recorded(happen) == [("adapter.stream.bytes", {}, 80_000), ("adapter.stream.bytes", {}, 40_000)]


def test_failures_of_a_source_are_counted() -> None:
    assert recorded(lambda observer: observer.source_unreachable()) == [("adapter.ws.open_failures", {}, 1)]
    assert recorded(lambda observer: observer.event_unknown("new")) == [("adapter.translation.unknown_events", {}, 1)]


def test_tokens_are_counted_by_adapter_and_type() -> None:
    agent = AgentInfo("langgraph", "assistant")
    usage = {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}

    def happen(observer: MetricsObserver) -> None:
        observer.agent_invoked(agent, "c1")
        observer.agent_ended(agent, Finish("stop", usage=usage), None)
        observer.agent_ended(agent, None, ValueError("broken"))

    assert [record for record in recorded(happen) if record[2]] == [
        ("adapter.agent.tokens", {"framework": "langgraph", "type": "input"}, 11),
        ("adapter.agent.tokens", {"framework": "langgraph", "type": "output"}, 7),
    ]


def test_connections_of_a_source_are_counted_while_they_are_open() -> None:
    def happen(observer: MetricsObserver) -> None:
        observer.source_connected()
        observer.source_disconnected()

    assert recorded(happen) == [("adapter.ws.open", {}, 1), ("adapter.ws.open", {}, -1)]


def test_all_who_listen_are_told_everything() -> None:
    def happen(observer: Observer) -> None:
        observer.request_refused(400)
        observer.run_started(run(RunState.RUNNING))
        observer.run_ended(run(RunState.FINISHED), 2)
        observer.run_lost(run(RunState.LOST))
        observer.stream_opened()
        observer.first_frame(1)
        observer.bytes_sent(7)
        observer.stream_closed("client")
        observer.source_unreachable()
        observer.source_connected()
        observer.source_disconnected()
        observer.event_unknown("new")
        observer.agent_invoked(AgentInfo("langgraph"), "c1")
        observer.agent_ended(AgentInfo("langgraph"), Finish(usage={"inputTokens": 1}), None)

    recorders = [Recorder(), Recorder()]
    observers = Observers(LoggingObserver(), *[MetricsObserver(recorder) for recorder in recorders], Observer())
    for recorder in recorders:
        recorder.records.clear()
    happen(observers)
    alone = recorded(happen)
    assert len(alone) == 16
    assert [recorder.records for recorder in recorders] == [alone, alone]


def test_the_names_are_the_promised_ones() -> None:
    assert set(REQUIRED) < {instrument.name for instrument in INSTRUMENTS}
    assert [instrument.prometheus_name for instrument in INSTRUMENTS] == [
        "adapter_request_count_total",
        "adapter_latency_ttfb_seconds",
        "adapter_latency_turn_duration_seconds",
        "adapter_stream_count_total",
        "adapter_stream_open",
        "adapter_stream_bytes_total",
        "adapter_stream_aborts_client_total",
        "adapter_stream_aborts_server_total",
        "adapter_threads_waiting",
        "adapter_ws_open_failures_total",
        "adapter_ws_open",
        "adapter_translation_unknown_events_total",
        "adapter_agent_tokens_total",
    ]


@pytest.mark.parametrize("instrument", INSTRUMENTS, ids=lambda instrument: instrument.name)
def test_the_documentation_has_every_metric(instrument: Instrument) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    labels = ", ".join(f"`{label}`" for label in instrument.labels)
    assert f"| `{instrument.name}` | `{instrument.prometheus_name}` | {labels} |" in page


async def test_the_time_to_the_first_frame_ignores_comments() -> None:
    counts: list[int] = []
    silent: list[float] = []

    class Sent(Observer):
        def bytes_sent(self, count: int) -> None:
            counts.append(count)

    async def agent(turn: Turn) -> str:
        assert turn.text == "Hello"
        began = asyncio.get_running_loop().time()
        while len(counts) < 4:  # noqa: ASYNC110 (comments)
            await asyncio.sleep(0.01)
        silent.append(asyncio.get_running_loop().time() - began)
        return "Hi"

    recorder = Recorder()
    observer = Observers(MetricsObserver(recorder), Sent())
    app = ChatApp(agent, settings=Settings(keep_alive=0.02), observer=observer, metrics=False)
    body = (await ask(app, "POST", "/api/chat", text="Hello")).content
    assert body.count(b"\n: ") + body.startswith(b": ") > 2, "there were comments before the first frame"
    [seconds] = [amount for name, _, amount in recorder.records if name == "adapter.latency.ttfb"]
    assert seconds >= silent[0] > 0


def matches(selector: tuple[str, str], sample: str) -> bool:
    """Tell whether a line of /metrics is what a selector of a rule asks for."""
    name, _, rest = sample.partition("{")
    labels = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    matchers = MATCHER.findall(selector[1])
    assert bool(matchers) == bool(selector[1]), "a matcher that this test cannot read"
    return name == selector[0] and all(
        label in labels
        and {"=": labels[label] == value, "!=": labels[label] != value, "=~": bool(re.fullmatch(value, labels[label]))}[
            operator
        ]
        for label, operator, value in matchers
    )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.get("alert") or rule.get("record"))
async def test_every_rule_finds_what_it_asks_for_on_a_fresh_metrics_page(rule: dict[str, Any]) -> None:
    samples = await read_samples(ChatApp(lambda _turn: "Hi"))
    recorded_names = {rule["record"] for rule in RULES if "record" in rule}
    used = set(re.findall(r"\badapter:[\w:]+", rule["expr"]))
    selectors = SELECTOR.findall(re.sub(r"\badapter:[\w:]+", "", rule["expr"]))
    assert used <= recorded_names
    assert used or selectors
    for selector in selectors:
        assert [sample for sample in samples if matches(selector, sample)], selector


def test_the_alerts_are_the_promised_ones() -> None:
    limits = {rule["record"]: rule["expr"] for rule in RULES if "record" in rule}
    alerts = {rule["alert"]: rule["expr"] for rule in RULES if "alert" in rule}
    assert alerts == {
        "UsechatErrorRate": "adapter:request_error_rate:ratio5m > 0.05",
        "UsechatSlowFirstFrame": "adapter:latency_ttfb:p99_5m > 0.5",
        "UsechatUpstreamUnreachable": "sum(increase(adapter_ws_open_failures_total[5m])) > 0",
        "UsechatServerAborts": "adapter:stream_aborts_server:ratio5m > 0.01",
        "UsechatUnknownEvents": "sum(increase(adapter_translation_unknown_events_total[5m])) > 0",
        "UsechatThreadsWaiting": "sum(adapter_threads_waiting) > 0",
    }
    assert set(limits) == {name for alert in alerts.values() for name in re.findall(r"adapter:[\w:]+", alert)}


def test_the_limit_of_the_first_frame_is_the_edge_of_a_bucket() -> None:
    ttfb = next(instrument for instrument in INSTRUMENTS if instrument.name == "adapter.latency.ttfb")
    assert 0.5 in ttfb.buckets, "a quantile between two edges is a guess"
