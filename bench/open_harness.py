"""Flows: how soon a page has what a node says, over HTTP; what many tool calls cost, and lists of many items.

`python -m bench.open_harness PORT` is the server that the first part asks, in its own process.
"""

import asyncio
import contextlib
import gc
import os
import re
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import httpx2
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from bench.machine import Circumstances, circumstances
from bench.report import table
from bench.results import FLAT, Goal
from bench.rounds import Figure, measure_in_rounds, say, timed
from usechat.open_harness import (
    FlowRuntime,
    NodeContext,
    OpenHarnessChatTransport,
    RemoteRuntime,
    default_registry,
    runtime_app,
)
from usechat.parts import Part
from usechat.protocol.request import ChatRequest
from usechat.protocol.sse import FrameStream
from usechat.protocol.stream import MessageStream
from usechat.server import ChatApp, listen
from usechat.turn import TurnContext, TurnInput

LIMIT: Final = 100.0
"""Milliseconds within which a page has what was said (SC-002, SC-009)."""
LIST_SECONDS: Final = 3.0
"""Seconds within which the longest list is done."""
BUSY: Final = 0.5
"""Processes that wanted to run when the run began, on average; with more than this the figures are not worth much."""
WAYS: Final = {"here": "in the server's process", "remote": "behind a WebSocket"}
KINDS: Final = ("text", "thinking")
LISTS: Final = {
    "path": "Number {{ item.number }}",
    "function": "Number {{ $string(item.number) }}",
    "root": "Number {{ $string($$.item.number) }}",
    "parallel": "Number {{ $string(item.number + 0 * $count(list.value)) }}",
    "state": "Number {{ $string(item.number + 0 * state.count) }}",
    "changing state": "Number {{ $string(item.number + 0 * state.count) }}",
    "earlier results": "Number {{ $string($count(each.iterations)) }}",
    "clock": "Number {{ $millis() > 0 ? $string(item.number) : '' }}",
}
"""What the node says of each item. A path is evaluated in the server's process, a function in an evaluator process: for
many items at once, or for each item by itself if it reads the clock, the results of the earlier ones, or a state that
each item changes. The flow of `parallel` runs its nodes in parallel, so another node could change what the function
reads."""
_PACKAGES: Final = {name: name for name in ("uvicorn", "starlette", "websockets", "jsonata-python")}
_STAMP: Final = re.compile(rb"<(\d+)>")


class Plan(msgspec.Struct, frozen=True):
    """How much is measured."""

    deltas: int = 100
    pause: float = 0.02
    chats: tuple[int, ...] = (1, 50)
    calls: tuple[int, ...] = (50, 200, 800)
    items: tuple[int, ...] = (100, 1_000, 10_000)
    rounds: int = 15


QUICK: Final = Plan(deltas=3, pause=0.001, chats=(1, 2), calls=(5, 20), items=(2, 5), rounds=1)


class Delay(msgspec.Struct, frozen=True):
    """Milliseconds from the node's word to the client's socket."""

    way: str
    kind: str
    chats: int
    p50: float
    p99: float


class Calls(msgspec.Struct, frozen=True):
    """What one tool call of a long flow costs: nanoseconds, and the bytes that the whole flow takes at most."""

    count: int
    time: Figure
    peak: int


class Items(msgspec.Struct, frozen=True):
    """What one item of a ``forEach`` costs: nanoseconds. ``way`` is one of :data:`LISTS`."""

    way: str
    count: int
    time: Figure


class FlowResults(msgspec.Struct, frozen=True):
    """One run. ``load``: what else the machine did."""

    circumstances: Circumstances
    load: float
    delays: list[Delay]
    calls: list[Calls]
    items: list[Items]


# The flows


async def stamp(inputs: Mapping[str, Any], context: NodeContext) -> None:
    """Say the time, again and again."""
    kind, count, pause = inputs["text"].split()
    for _ in range(int(count)):
        context.emit({"type": f"agent:{kind}:delta", "content": f"<{time.monotonic_ns()}>"})
        await asyncio.sleep(float(pause))


async def use_tools(inputs: Mapping[str, Any], context: NodeContext) -> None:
    """Use a tool, again and again. It is awaited, as tools are: events that nobody had time to read wait in memory."""
    for number in range(int(inputs["text"])):
        context.emit({"type": "agent:tool", "toolName": "search", "toolInput": {"query": number}})
        await asyncio.sleep(0)
        context.emit({"type": "agent:tool", "toolName": "search", "toolOutput": {"hits": number}})


def flow(node_type: str) -> FlowRuntime:
    """Return a flow of one node that is given the message."""
    registry = default_registry()
    registry.add("stamp", stamp)
    registry.add("use_tools", use_tools)
    node = {"id": "node", "type": node_type, "input": {"text": "{{ flow.input.message }}"}}
    return FlowRuntime({"name": node_type, "nodes": [node], "edges": []}, registry=registry)


def question(text: str, chat_id: str) -> dict[str, Any]:
    """Return what a page posts."""
    return {"id": chat_id, "messages": [{"id": chat_id, "role": "user", "parts": [{"type": "text", "text": text}]}]}


# How soon a page has it


def serve(port: int) -> None:
    """Serve the flow, and itself once more behind a WebSocket."""
    remote = partial(RemoteRuntime, f"ws://127.0.0.1:{port}/flows/ws")
    apps: dict[str, Any] = {
        "here": ChatApp(OpenHarnessChatTransport(partial(flow, "stamp"))),
        "remote": ChatApp(OpenHarnessChatTransport(remote)),
        "flows": runtime_app(partial(flow, "stamp")),
    }
    app = Starlette(routes=[Mount(f"/{name}", mounted) for name, mounted in apps.items()])
    config = uvicorn.Config(app, log_level="error", lifespan="off")
    uvicorn.Server(config).run(listen("127.0.0.1", port))


@contextlib.contextmanager
def server() -> Iterator[int]:
    """Run the server in its own process; yield its port."""
    (free,) = listen("127.0.0.1", 0)
    port = free.getsockname()[1]
    free.close()
    process = subprocess.Popen([sys.executable, "-m", "bench.open_harness", str(port)])
    try:
        for _ in range(300):
            with contextlib.suppress(httpx2.TransportError):
                httpx2.get(f"http://127.0.0.1:{port}/here/healthz")
                break
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait()


async def ask(client: httpx2.AsyncClient, url: str, text: str, chat_id: str) -> list[float]:
    """Return the milliseconds that each delta took."""
    delays: list[float] = []
    rest = b""
    async with client.stream("POST", url, json=question(text, chat_id), timeout=60) as response:
        async for piece in response.aiter_raw():
            now = time.monotonic_ns()
            rest += piece
            delays += [(now - int(digits)) / 1e6 for digits in _STAMP.findall(rest)]
            rest = rest[rest.rfind(b"\n\n") + 1 :]
    return delays


async def ask_all(url: str, kind: str, chats: int, plan: Plan) -> list[float]:
    """Ask in several chats at once; return the milliseconds that each delta took."""
    text = f"{kind} {plan.deltas} {plan.pause}"
    async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=chats)) as client:
        requests = [ask(client, url, text, f"{kind}-{chats}-{number}") for number in range(chats)]
        delays = [delay for answer in await asyncio.gather(*requests) for delay in answer]
    assert len(delays) == chats * plan.deltas
    return delays


def measure_delays(plan: Plan) -> list[Delay]:
    """Measure both kinds both ways, with few and with many chats."""
    measurements = []
    with server() as port:
        for way in WAYS:
            for kind in KINDS:
                for chats in plan.chats:
                    url = f"http://127.0.0.1:{port}/{way}/api/chat"
                    delays = sorted(asyncio.run(ask_all(url, kind, chats, plan)))
                    p99 = delays[min(len(delays) - 1, len(delays) * 99 // 100)]
                    measurements.append(Delay(way, kind, chats, statistics.median(delays), p99))
                    say(f"{kind} {WAYS[way]}, {chats} chats: {measurements[-1].p50:.1f} ms")
    return measurements


# What many tool calls cost


async def drive(count: int) -> None:
    """Run a flow of ``count`` calls: runtime, adapter and frames, which nobody keeps."""
    turn = TurnContext(TurnInput(ChatRequest.parse(question(str(count), "c1"))))
    frames = FrameStream(MessageStream(message_id="m1"))

    def hear(part: Part) -> None:
        frames.send(part)

    turn.connect(hear)
    await OpenHarnessChatTransport(partial(flow, "use_tools")).drive(turn)


def run_flow(count: int) -> None:
    asyncio.run(drive(count))


def peak(count: int) -> int:
    """Return how many bytes a flow of ``count`` calls takes at most."""
    run_flow(count)
    gc.collect()
    tracemalloc.start()
    try:
        run_flow(count)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measure_calls(plan: Plan) -> list[Calls]:
    """Measure flows of all lengths in the same rounds."""
    ways = {str(count): timed(partial(run_flow, count), count) for count in plan.calls}
    times = measure_in_rounds(ways, rounds=plan.rounds, warm_up=1, title="tool calls")
    return [Calls(count, times[str(count)], peak(count)) for count in plan.calls]


# What the items of a list cost


async def count_items(inputs: Mapping[str, Any], context: NodeContext) -> dict[str, Any]:
    """Do what `echo` does, and change the state."""
    context.state.set("count", context.state.get("count") + 1)
    return {"text": inputs["text"]}


def list_flow(way: str, count: int) -> FlowRuntime:
    """Return a flow whose second node runs once for each item of a list."""
    registry = default_registry()
    registry.add("count", count_items)
    kind = "count" if way == "changing state" else "echo"
    nodes = [
        {"id": "list", "type": "constant", "input": {"value": [{"number": number} for number in range(count)]}},
        {"id": "each", "type": kind, "input": {"text": LISTS[way]}},
    ]
    edge = {"from": "list", "to": "each", "forEach": {"in": "{{ list.value }}", "as": "item"}}
    described = {"name": "list", "parallel": way == "parallel", "state": {"initial": {"count": 0}}}
    return FlowRuntime({**described, "nodes": nodes, "edges": [edge]}, registry=registry)


def run_list(way: str, count: int) -> None:
    """Run the flow to its end."""
    output = asyncio.run(list_flow(way, count).run())["outputs"]["each"]
    assert [each["output"]["text"] for each in output["iterations"][-1:]] == [f"Number {count - 1}"]


def measure_items(plan: Plan) -> list[Items]:
    """Measure lists of all lengths in the same rounds, by the clock: evaluators are separate processes."""
    lists = [(way, count) for way in LISTS for count in plan.items]
    ways = {
        f"{way} {count}": timed(partial(run_list, way, count), count, clock=time.perf_counter_ns)
        for way, count in lists
    }
    times = measure_in_rounds(ways, rounds=plan.rounds, warm_up=1, title="items of a list")
    return [Items(way, count, times[f"{way} {count}"]) for way, count in lists]


# The report


def measure(plan: Plan) -> FlowResults:
    """Measure everything."""
    conditions = circumstances(_PACKAGES), os.getloadavg()[0]
    return FlowResults(*conditions, measure_delays(plan), measure_calls(plan), measure_items(plan))


def goals(results: FlowResults) -> list[Goal]:
    """Judge the run."""
    few, *_, many = results.calls
    growth = many.time.median / few.time.median
    growth_bytes = (many.peak - few.peak) / (many.count - few.count)
    return [
        *(
            Goal(
                f"{kind} is at the client within {LIMIT:.0f} ms, median",
                f"{max(delay.p50 for delay in results.delays if delay.kind == kind):.1f} ms at worst",
                all(delay.p50 < LIMIT for delay in results.delays if delay.kind == kind),
            )
            for kind in KINDS
        ),
        Goal(
            f"time per tool call flat (within {FLAT}x) from {few.count} to {many.count} calls",
            f"{growth:.2f}x",
            growth < FLAT,
        ),
        Goal("less than 1 KiB kept of a tool call", f"{growth_bytes:,.0f} bytes", growth_bytes < 1024),
        *(goal for way in LISTS for goal in list_goals(way, [each for each in results.items if each.way == way])),
    ]


def list_goals(way: str, items: Sequence[Items]) -> list[Goal]:
    """Judge the growth and the longest list of one way."""
    short, *_, long = items
    seconds = long.time.median * long.count / 1e9
    return [
        Goal(
            f"time per item of a list ({way}) not growing (within {FLAT}x) from {short.count} to {long.count} items",
            f"{long.time.median / short.time.median:.2f}x",
            long.time.median < FLAT * short.time.median,
        ),
        Goal(f"{long.count} items ({way}) in less than {LIST_SECONDS:g} s", f"{seconds:.2f} s", seconds < LIST_SECONDS),
    ]


def summary(results: FlowResults) -> str:
    """Return what the README shows of it."""
    run = results.circumstances
    versions = ", ".join(f"{name} {version}" for name, version in run.versions.items())
    noise = f" The machine was busy (load {results.load:.1f}): run it again." if results.load > BUSY else ""
    judged = [f"- {'met' if goal.met else 'MISSED'}: {goal.text}: {goal.measured}" for goal in goals(results)]
    return "\n\n".join([f"{run.date}, {run.machine}, {run.python}; {versions}.{noise}", "\n".join(judged)])


def report(results: FlowResults) -> str:
    """Return the whole report."""
    delays = [
        [f"{delay.kind}, {WAYS[delay.way]}", str(delay.chats), f"{delay.p50:.1f}", f"{delay.p99:.1f}"]
        for delay in results.delays
    ]
    calls = [
        [f"{calls.count} calls", f"{calls.time.median / 1000:.1f}", f"{calls.peak / 1024:,.0f}"]
        for calls in results.calls
    ]
    items = [[f"{items.count} items, {items.way}", f"{items.time.median / 1000:.1f}"] for items in results.items]
    return "\n\n".join(
        [
            "# Flows",
            summary(results),
            "## From the node's word to the client's socket, over HTTP",
            table(["what", "chats", "median ms", "p99 ms"], delays),
            "## A flow of many tool calls: runtime, adapter and frames",
            table(["flow", "median µs per call", "peak KiB"], calls),
            "## A node that runs for each item of a list",
            table(["list", "median µs per item"], items),
        ]
    )


def chart(results: FlowResults) -> dict[str, float]:
    """Return the bars of the chart: the medians."""
    return {f"{delay.kind}, {delay.way}, {delay.chats} chats": delay.p50 for delay in results.delays}


if __name__ == "__main__":
    serve(int(sys.argv[1]))
