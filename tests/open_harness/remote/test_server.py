"""Both ends of the WebSocket contract are ours: a server with one runtime per connection, and whoever talks to it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.open_harness.remote.obedient_runtime import ObedientRuntime
from tests.open_harness.serving import PATIENCE, Serving, serving, until
from usechat.errors import PublicError
from usechat.open_harness import NodeContext, OpenHarnessChatTransport, default_registry
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.remote import flows
from usechat.open_harness.remote.flows import RemoteRuntime
from usechat.open_harness.remote.server import runtime_app
from usechat.open_harness.runtime_protocol import Event
from usechat.protocol.chunks import ErrorChunk, TextDeltaChunk
from usechat.protocol.request import ChatRequest


class Factory(list[ObedientRuntime]):
    """A factory that remembers what it made."""

    def __call__(self) -> ObedientRuntime:
        self.append(ObedientRuntime())
        return self[-1]


@asynccontextmanager
async def served(factory: Any, **options: Any) -> AsyncIterator[tuple[Serving, str]]:
    async with serving(runtime_app(factory, **options)) as server:
        yield server, f"ws://127.0.0.1:{server.port}/ws"


def events_of(runtime: RemoteRuntime) -> list[Event]:
    events: list[Event] = []
    runtime.on_event(events.append)
    return events


def texts(events: list[Event]) -> list[Any]:
    return [event["content"] for event in events if event["type"] == "agent:text:delta"]


@pytest.mark.parametrize(("fields", "text"), [({}, "bees"), ({"topic": "cats"}, "cats")])
async def test_the_only_key_that_a_flow_reads_gets_the_message(fields: dict[str, str], text: str) -> None:
    flow = {"name": "research", "nodes": [{"id": "a", "type": "echo", "input": {"text": "{{ flow.input.topic }}"}}]}
    async with served(lambda: FlowRuntime(flow)) as (_, url):
        snapshot = await RemoteRuntime(url).run({"message": "bees", **fields})
    assert snapshot["outputs"] == {"a": {"text": text}}


async def test_keys_that_a_flow_reads_and_nobody_supplies_fail_the_turn_and_are_named() -> None:
    text = "{{ flow.input.topic }} at {{ flow.input.depth }}"
    flow = {"name": "research", "nodes": [{"id": "a", "type": "echo", "input": {"text": text}}]}
    async with served(lambda: FlowRuntime(flow)) as (server, url):
        transport = OpenHarnessChatTransport(lambda: RemoteRuntime(url))
        missing = "The flow needs “depth”, “topic”, and the request does not have it."
        refused = [chunk async for chunk in await transport.send_messages(request("bees"))]
        assert [chunk for chunk in refused if isinstance(chunk, ErrorChunk)] == [ErrorChunk(missing)]
        supplied = await transport.send_messages(request("bees", topic="cats", depth=3))
        assert "".join([chunk.delta async for chunk in supplied if isinstance(chunk, TextDeltaChunk)]) == "cats at 3"
        await until(lambda: not server.connections)


def request(text: str, message_id: str = "m1", **body: Any) -> ChatRequest:
    message = {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}
    return ChatRequest.parse({"id": "c1", "messages": [message], **body})


@pytest.mark.parametrize("is_paused", [False, True])
async def test_a_message_to_a_flow_that_has_begun_keeps_its_id(is_paused: bool) -> None:
    """So that an agent there forgets it when it is edited."""

    async def wait(_fields: Any, context: NodeContext) -> None:
        context.emit({"type": "agent:text:delta", "content": "Go on."})
        if is_paused and context.resume_message is None:
            context.pause()
            await asyncio.Event().wait()
        context.emit({"type": "agent:text:delta", "content": (await context.inbox.receive())["messageId"]})

    registry = default_registry()
    registry.add("wait", wait)
    flow = {"name": "waiting", "nodes": [{"id": "a", "type": "wait", "input": {}}]}
    async with served(lambda: FlowRuntime(flow, registry=registry)) as (_, url):
        transport = OpenHarnessChatTransport(lambda: RemoteRuntime(url))
        first = await transport.send_messages(request("one"))
        async for chunk in first:
            if isinstance(chunk, TextDeltaChunk) and not is_paused:
                break
        second = [chunk async for chunk in await transport.send_messages(request("two", "m2"))]
        assert [chunk.delta for chunk in second if isinstance(chunk, TextDeltaChunk)][-1:] == ["m2"]


async def test_a_run_is_started_followed_and_ended_over_the_wire() -> None:
    async with served(Factory()) as (server, url):
        runtime = RemoteRuntime(url)
        events = events_of(runtime)
        snapshot = await runtime.run({"message": "one two"})
        assert [event["type"] for event in events] == [
            "flow:start",
            "node:start",
            "agent:text:delta",
            "agent:text:delta",
            "node:complete",
            "flow:complete",
        ]
        assert snapshot == {"status": "complete", "outputs": {"a": [1, 2]}, "nodeStatus": {"a": "done"}}
        await until(lambda: not server.connections)


async def test_the_graph_of_the_flow_is_told_when_a_run_starts() -> None:
    node = {"id": "a", "type": "echo", "input": {"text": "a secret"}, "ui": {"label": "A"}}
    async with served(lambda: FlowRuntime({"name": "f", "nodes": [node], "edges": []})) as (_, url):
        runtime = RemoteRuntime(url)
        events = events_of(runtime)
        await runtime.run({"message": "hi"})
        nodes = [{"id": "a", "type": "echo", "ui": {"label": "A"}}]
        assert events[0]["graph"] == {"name": "f", "nodes": nodes, "edges": []}
        assert [event["type"] for event in events if "graph" in event] == ["flow:start"]


async def test_half_a_character_does_no_harm() -> None:
    async with served(Factory()) as (_, url):
        assert (await RemoteRuntime(url).run({"message": "one\ud800"}))["status"] == "complete"


async def test_turns_at_one_url_run_at_the_same_time_and_never_mix() -> None:
    factory = Factory()
    async with served(factory) as (_, url):
        runtimes = [RemoteRuntime(url, connect_seconds=PATIENCE) for _ in range(20)]
        logs = [events_of(runtime) for runtime in runtimes]
        turns = [
            asyncio.create_task(runtime.run({"message": f"{number} wait after-{number}"}))
            for number, runtime in enumerate(runtimes)
        ]
        await until(lambda: all(texts(events) for events in logs))
        for runtime in reversed(runtimes):
            runtime.dispatch({"type": "send", "message": "more", "runId": "a-1"})
        await asyncio.gather(*turns)
        assert [texts(events) for events in logs] == [[str(number), "more", f"after-{number}"] for number in range(20)]
        assert len(factory) == 20


async def test_a_paused_run_keeps_its_connection_and_goes_on_with_the_answer() -> None:
    factory = Factory()
    async with served(factory) as (server, url):
        runtime = RemoteRuntime(url)
        events = events_of(runtime)
        assert (await runtime.run({"message": "one pause"}))["status"] == "paused"
        assert server.connections == 1
        assert (await runtime.resume("two"))["status"] == "complete"
        assert texts(events) == ["one", "two"]
        assert len(factory) == 1
        await until(lambda: not server.connections)


async def test_a_paused_run_whose_connection_was_lost_is_told_to_be_gone() -> None:
    async with served(Factory()) as (server, url):
        runtime = RemoteRuntime(url)
        await runtime.run({"message": "one pause"})
        server.cut()
        await until(lambda: not server.connections)
        with pytest.raises(PublicError, match=flows.LOST_WHILE_PAUSED):
            await runtime.resume("two")


@pytest.mark.parametrize(("order", "status"), [("stop", "aborted"), ("pause", "paused")])
async def test_orders_reach_the_run(order: str, status: str) -> None:
    factory = Factory()
    async with served(factory) as (_, url):
        runtime = RemoteRuntime(url)
        events = events_of(runtime)
        turn = asyncio.create_task(runtime.run({"message": "one wait two"}))
        await until(lambda: texts(events))
        getattr(runtime, order)()
        assert (await turn)["status"] == factory[0].status == status
        await runtime.close()


async def test_whoever_goes_stops_the_run() -> None:
    factory = Factory()
    async with served(factory) as (server, url):
        runtime = RemoteRuntime(url)
        events = events_of(runtime)
        turn = asyncio.create_task(runtime.run({"message": "one wait two"}))
        await until(lambda: texts(events))
        server.cut()
        with pytest.raises(PublicError, match=flows.LOST):
            await turn
        await until(lambda: factory[0].status == "aborted")


async def test_a_cancelled_turn_stops_the_run() -> None:
    factory = Factory()
    async with served(factory) as (_, url):
        runtime = RemoteRuntime(url)
        events = events_of(runtime)
        turn = asyncio.create_task(runtime.run({"message": "one wait two"}))
        await until(lambda: texts(events))
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        await until(lambda: factory[0].status == "aborted")


async def test_a_run_that_raises_breaks_off_after_all_it_said(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Factory()) as (_, url):
        runtime = RemoteRuntime(url)
        events = events_of(runtime)
        with pytest.raises(PublicError, match=flows.LOST):
            await runtime.run({"message": "one raise"})
        assert texts(events) == ["one"]
    assert "the script says so" in caplog.text


async def test_more_than_a_client_reads_breaks_the_connection_off_and_stops_the_run() -> None:
    factory = Factory()
    async with served(factory) as (_, url):
        with pytest.raises(PublicError, match=flows.LOST):
            await RemoteRuntime(url).run({"message": "one flood wait"})
        await until(lambda: factory[0].status == "aborted")


async def test_a_factory_that_raises_breaks_the_connection_off(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> ObedientRuntime:
        raise ValueError("no flow today")

    async with served(broken) as (_, url):
        with pytest.raises(PublicError, match=flows.LOST):
            await RemoteRuntime(url).run({"message": "one"})
    assert "no flow today" in caplog.text


async def everything(client: ClientConnection) -> None:
    """Read until the connection is closed."""
    while True:
        await client.recv()


async def until_event(client: ClientConnection, kind: str) -> None:
    while json.loads(await client.recv())["event"]["type"] != kind:
        pass


async def say(client: ClientConnection, *commands: Any) -> None:
    for command in commands:
        await client.send(json.dumps({"type": "command", "command": command}))


async def test_frames_and_commands_that_mean_nothing_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    factory = Factory()
    async with served(factory) as (_, url), connect(url) as client:
        for frame in ["{", "[]", '{"type":"hello"}', '{"type":"command","command":1}']:
            await client.send(frame)
        await client.send(b"\x00")
        await say(client, {"type": "send", "message": "too soon"})
        await say(client, {"type": "run", "input": {"message": "wait"}})
        await until_event(client, "node:start")
        await say(client, {"type": "reply", "content": "nothing was asked"})
        await say(client, {"type": "send", "message": "go on", "runId": "a-1"})
        await until_event(client, "flow:complete")
        await say(client, {"type": "resume", "message": "it is over"})
        await until(lambda: "the run is not paused" in caplog.text)
    assert [command["type"] for command in factory[0].commands] == ["reply", "send"]
    assert caplog.text.count("it has no command") == 5
    assert "has not begun" in caplog.text
    assert "nothing was asked" in caplog.text


async def test_a_second_run_on_one_connection_is_refused() -> None:
    async with served(Factory()) as (_, url), connect(url) as client:
        await say(client, {"type": "run", "input": {"message": "wait"}}, {"type": "run"})
        with pytest.raises(ConnectionClosed, match="open another for another run"):
            await everything(client)
        assert client.close_code == 1008


@pytest.mark.parametrize(
    ("origin", "options", "welcome"),
    [
        (None, {}, True),
        ("http://evil.example", {}, False),
        ("http://evil.example", {"origins": ["http://good.example"]}, False),
        ("http://good.example", {"origins": ["http://good.example"]}, True),
    ],
)
async def test_pages_of_other_sites_may_not_connect(origin: Any, options: dict[str, Any], welcome: bool) -> None:
    async with served(Factory(), **options) as (_, url):
        if welcome:
            async with connect(url, origin=origin):
                pass
        else:
            with pytest.raises(InvalidStatus, match="403"):
                await connect(url, origin=origin)
