"""Who may listen: a bare route is observed like an app, and what a source tells beside its answer is counted."""

from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.server.metrics_page import ask, parse_samples, read_samples
from usechat.errors import Unauthenticated
from usechat.runs.run import RunInfo
from usechat.server import ChatApp, chat_response
from usechat.server.observers.observer import Observer
from usechat.server.observers.prometheus import PrometheusObserver
from usechat.server.requests import Action
from usechat.turn import Identity, Turn, current_context


class Ear(Observer):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def request_refused(self, status: int) -> None:
        self.events.append(f"refused {status}")

    def run_started(self, info: RunInfo) -> None:
        self.events.append(f"started {info.state}")

    def run_ended(self, info: RunInfo, seconds: float) -> None:
        self.events.append(f"{info.state} {seconds < 60}")

    def stream_closed(self, reason: str) -> None:
        self.events.append(f"stream {reason}")


async def echo(turn: Turn) -> AsyncIterator[str]:
    yield turn.text


async def troubled(_turn: Turn) -> AsyncIterator[str]:
    current_context().event_unknown("telepathy")
    current_context().event_unknown("telepathy")
    current_context().source_unreachable()
    yield "Sorry."


async def nobody(_request: Request, _chat_id: str, _action: Action) -> Identity | None:
    raise Unauthenticated("Please sign in.")


def bare(observer: Observer, **options: object) -> Starlette:
    async def chat(request: Request) -> Response:
        return await chat_response(request, echo, observer=observer, **options)  # type: ignore[arg-type]

    return Starlette(routes=[Route("/api/chat", chat, methods=["POST"])])


async def test_a_bare_route_is_observed() -> None:
    ear = Ear()
    assert (await ask(bare(ear), "POST", "/api/chat", text="Hi")).status_code == 200
    assert sorted(ear.events) == ["finished True", "started running", "stream ended"]


async def test_a_refusal_of_a_bare_route_is_observed() -> None:
    ear = Ear()
    assert (await ask(bare(ear, authorize=nobody), "POST", "/api/chat", text="Hi")).status_code == 401
    assert ear.events == ["refused 401"]


async def test_a_bare_route_is_counted_for_prometheus() -> None:
    counting = PrometheusObserver(CollectorRegistry())
    await ask(bare(counting), "POST", "/api/chat", text="Hi")
    app = Starlette(routes=[Route("/metrics", counting.page)])
    samples = parse_samples((await ask(app, "GET", "/metrics")).text)
    assert samples['adapter_request_count_total{outcome="finished",status="200"}'] == 1
    assert samples["adapter_stream_count_total"] == 1


@pytest.mark.parametrize(
    ("name", "count"), [("adapter_translation_unknown_events_total", 2), ("adapter_ws_open_failures_total", 1)]
)
async def test_what_a_source_tells_reaches_the_metrics_page(name: str, count: int) -> None:
    app = ChatApp(troubled)
    before = (await read_samples(app))[name]
    await ask(app, "POST", "/api/chat", text="Hi")
    assert (await read_samples(app))[name] - before == count
