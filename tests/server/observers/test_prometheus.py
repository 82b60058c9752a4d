"""`/metrics`: of one process, of several workers, and without prometheus-client."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.external_agents import needs_agents_here
from tests.plain_asgi import PLAIN_ASGI
from tests.server.metrics_page import ask, chat_request, parse_samples, read_samples
from usechat.errors import MissingDependency
from usechat.server import ChatApp
from usechat.server.observers.prometheus import PrometheusObserver
from usechat.server.observers.workers import counted_together, forget_dead_workers, worker_directory
from usechat.turn import Turn

FINISHED = 'adapter_request_count_total{outcome="finished",status="200"}'

WORKER = """
import asyncio, socket, sys, uvicorn
from usechat.server import ChatApp, Settings

async def agent(turn):
    yield "Hel"
    if turn.text == "wait":
        await asyncio.sleep(3600)
    yield "lo"

app = ChatApp(agent, settings=Settings(plain_asgi=sys.argv[2] == "True"))
server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
server.run(sockets=[socket.socket(fileno=int(sys.argv[1]))])
"""


async def say_hi(turn: Turn) -> str:
    if turn.text == "fail":
        raise ValueError("broken")
    return "Hi"


async def test_what_an_app_does_is_on_its_page() -> None:
    app = ChatApp(say_hi)
    before = await read_samples(app)
    chat_response = await ask(app, "POST", "/api/chat", text="Hello")
    failed = await ask(app, "POST", "/api/chat", text="fail")
    refused = await ask(app, "GET", "/api/chat/unknown")
    assert [response.status_code for response in (chat_response, failed, refused)] == [200, 200, 404]
    after = await read_samples(app)
    changes = {name: value - before.get(name, 0) for name, value in after.items() if name.startswith("adapter_")}
    assert {name: change for name, change in changes.items() if change and "_bucket{" not in name} == {
        FINISHED: 1,
        'adapter_request_count_total{outcome="failed",status="200"}': 1,
        'adapter_request_count_total{outcome="refused",status="404"}': 1,
        "adapter_latency_ttfb_seconds_count": 2,
        "adapter_latency_ttfb_seconds_sum": pytest.approx(0, abs=60),
        "adapter_latency_turn_duration_seconds_count": 2,
        "adapter_latency_turn_duration_seconds_sum": pytest.approx(0, abs=60),
        "adapter_stream_count_total": 2,
        "adapter_stream_bytes_total": len(chat_response.content) + len(failed.content),
    }


async def test_the_page_is_given_as_open_metrics_too() -> None:
    page = await ask(ChatApp(say_hi), "GET", "/metrics", accept="application/openmetrics-text; version=1.0.0")
    assert page.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    parsed = text_string_to_metric_families(page.text)  # type: ignore[no-untyped-call]
    families = {family.name: family.type for family in parsed if family.name.startswith("adapter_")}
    families.pop("adapter_agent_tokens", None)  # there since the first turn of a framework in this process
    assert families == {
        "adapter_request_count": "counter",
        "adapter_latency_ttfb_seconds": "histogram",
        "adapter_latency_turn_duration_seconds": "histogram",
        "adapter_stream_count": "counter",
        "adapter_stream_open": "gauge",
        "adapter_stream_bytes": "counter",
        "adapter_stream_aborts_client": "counter",
        "adapter_stream_aborts_server": "counter",
        "adapter_threads_waiting": "gauge",
        "adapter_ws_open_failures": "counter",
        "adapter_ws_open": "gauge",
        "adapter_translation_unknown_events": "counter",
    }


@needs_agents_here("a worker reports the end of a run to its observer after the store, so the page may see it first")
async def test_two_apps_of_a_process_count_together() -> None:
    first, second = ChatApp(say_hi), ChatApp(say_hi)
    before = await read_samples(first)
    for app in (first, second):
        await ask(app, "POST", "/api/chat", text="Hello")
    assert (await read_samples(second))[FINISHED] - before[FINISHED] == 2


def test_a_registry_of_your_own_has_every_foreseeable_series_at_zero() -> None:
    registry = CollectorRegistry()
    PrometheusObserver(registry)
    samples = parse_samples(generate_latest(registry).decode())
    assert set(samples.values()) == {0}
    assert {name for name in samples if name.startswith(("adapter_request", "adapter_stream_aborts"))} == {
        FINISHED,
        'adapter_request_count_total{outcome="failed",status="200"}',
        'adapter_request_count_total{outcome="lost",status="200"}',
        'adapter_request_count_total{outcome="stopped",status="200"}',
        'adapter_request_count_total{outcome="waiting",status="200"}',
        "adapter_stream_aborts_client_total",
        'adapter_stream_aborts_server_total{reason="disconnected"}',
        'adapter_stream_aborts_server_total{reason="slow"}',
    }


async def test_metrics_can_be_switched_off() -> None:
    assert (await ask(ChatApp(say_hi, metrics=False), "GET", "/metrics")).status_code == 404


async def test_without_prometheus_client_the_page_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "usechat.server.observers.prometheus")
    app = ChatApp(say_hi)
    page = await ask(app, "GET", "/metrics")
    assert (page.status_code, page.text) == (501, str(MissingDependency("prometheus-client", "metrics")))
    assert (await ask(app, "POST", "/api/chat", text="Hello")).status_code == 200


def test_a_directory_is_made_for_workers_and_removed() -> None:
    assert worker_directory() is None
    with counted_together():
        directory = worker_directory()
        assert directory is not None
        assert directory.is_dir()
        with counted_together():
            assert worker_directory() == directory
        assert directory.is_dir()
    assert worker_directory() is None
    assert not directory.exists()


def test_only_gauges_of_the_dead_are_dropped(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as dead:
        pass
    living = os.getpid()
    names = [f"gauge_livesum_{living}.db", f"counter_{living}.db", f"counter_{dead.pid}.db", f"histogram_{dead.pid}.db"]
    for name in [*names, f"gauge_livesum_{dead.pid}.db"]:
        (tmp_path / name).touch()
    forget_dead_workers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


@contextmanager
def worker() -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start a server process; connections wait until it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = listening.fileno()
        process = subprocess.Popen([sys.executable, "-c", WORKER, str(number), str(PLAIN_ASGI)], pass_fds=[number])
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        yield process, address
    finally:
        process.kill()
        process.wait(30)


def wait_for(client: httpx2.Client, address: str, expected: dict[str, float]) -> None:
    """Read /metrics until it says what is expected."""
    deadline = time.monotonic() + 60
    while True:
        samples = parse_samples(client.get(f"{address}/metrics").text)
        values = {name: samples.get(name) for name in expected}
        if values == expected or time.monotonic() > deadline:
            assert values == expected
            return
        time.sleep(0.05)


def test_the_page_of_any_worker_sums_all_of_them_and_forgets_the_streams_of_the_dead() -> None:
    with ExitStack() as stack:
        stack.enter_context(counted_together())
        workers = [stack.enter_context(worker()) for _ in range(2)]
        client = stack.enter_context(httpx2.Client(timeout=60, trust_env=False))
        size = 0
        for _, address in workers:
            size += len(client.post(f"{address}/api/chat", json=chat_request("Hello")).raise_for_status().content)
        (_, alive), (doomed, second) = workers
        for _, address in workers:
            wait_for(client, address, {FINISHED: 2, "adapter_stream_bytes_total": size, "adapter_stream_open": 0})
        with client.stream("POST", f"{second}/api/chat", json=chat_request("wait")) as response:
            frames = response.iter_raw()  # closes the response when it is forgotten
            next(frames)
            wait_for(client, alive, {FINISHED: 2, "adapter_stream_open": 1, "adapter_stream_count_total": 3})
            doomed.send_signal(signal.SIGKILL)
            doomed.wait(30)
            wait_for(client, alive, {FINISHED: 2, "adapter_stream_open": 0, "adapter_stream_count_total": 3})
