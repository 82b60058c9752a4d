"""Turns of chats over runtimes that follow a script."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.open_harness.scripted import ScriptedRuntime, deltas, event, flow, node, recorded
from usechat.errors import PublicError
from usechat.open_harness import FlowRuntimes, MemoryRunStore, chat
from usechat.open_harness.runtime_protocol import Event, Runtime
from usechat.open_harness.transport import BUSY, NOT_READY, USED_UP, OpenHarnessChatTransport
from usechat.protocol.chunks import Chunk, chunk_to_json
from usechat.protocol.request import ChatRequest
from usechat.sources import ChatTransport, HandsOver, Source
from usechat.turn import Turn


def asked(
    text: str = "hi", *, chat_id: str = "c", message_id: str = "", trigger: str = "submit-message"
) -> ChatRequest:
    parts = [{"type": "text", "text": text}]
    message = {"id": message_id or text, "role": "user", "parts": parts}
    return ChatRequest.parse({"id": chat_id, "messages": [message], "trigger": trigger})


async def chunks_of(transport: ChatTransport, request: ChatRequest) -> list[Any]:
    return [chunk_to_json(chunk) async for chunk in await transport.send_messages(request)]


def texts(chunks: list[Any]) -> str:
    return "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta")


def types(chunks: list[Any]) -> list[str]:
    return [chunk["type"] for chunk in chunks]


def errors(chunks: list[Any]) -> list[str]:
    return [chunk["errorText"] for chunk in chunks if chunk["type"] == "error"]


async def echo(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
    """Say what the user said."""
    for each in flow(*node("a1", *deltas("a1", "You said ", f"{runtime.input['message']}."))):
        await asyncio.sleep(0)
        yield each


async def listening(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
    """Greet, then answer messages until one says stop."""
    yield event("flow:start", flowName="f")
    yield event("node:start", "a1")
    yield event("agent:text", "a1", content=f"Hello {runtime.input['message']}. ")
    while (message := await runtime.read()) != "end":
        yield event("agent:text", "a1", content=f"Heard {message}. ")
    yield event("agent:text", "a1", content="Bye.")
    yield event("node:complete", "a1", output=None)
    yield event("flow:complete", status="complete")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (conditions of all kinds)
            await asyncio.sleep(0.001)


class Runtimes:
    """A factory that remembers what it made."""

    def __init__(self, *scripts: Any) -> None:
        self.instances: list[ScriptedRuntime] = []
        self._scripts = scripts

    def __call__(self) -> ScriptedRuntime:
        self.instances.append(ScriptedRuntime(*self._scripts))
        return self.instances[-1]


def test_it_is_a_chat_transport_and_a_source_that_hands_over() -> None:
    transport = OpenHarnessChatTransport(Runtimes(echo))
    assert isinstance(transport, ChatTransport)
    assert isinstance(transport, Source)
    assert isinstance(transport, HandsOver)
    assert isinstance(ScriptedRuntime(echo), Runtime)


# Which runtime answers


async def test_every_turn_has_a_runtime_of_its_own() -> None:
    runtimes = Runtimes(echo)
    transport = OpenHarnessChatTransport(runtimes)
    assert [texts(await chunks_of(transport, asked(text))) for text in ("one", "two")] == [
        "You said one.",
        "You said two.",
    ]
    assert [runtime.listeners for runtime in runtimes.instances] == [0, 0]


async def test_a_factory_may_take_the_turn_and_may_be_asynchronous() -> None:
    chats: list[str] = []

    async def make(turn: Turn) -> ScriptedRuntime:
        chats.append(turn.chat_id)
        await asyncio.sleep(0)
        return ScriptedRuntime(echo)

    assert texts(await chunks_of(OpenHarnessChatTransport(make), asked())) == "You said hi."
    assert chats == ["c"]


async def test_the_flow_is_given_the_message_the_history_the_files_and_the_chat() -> None:
    runtimes = Runtimes(echo)
    file = {"type": "file", "mediaType": "text/plain", "url": "data:,x"}
    parts = [{"type": "text", "text": "look "}, file, {"type": "text", "text": "here"}]
    messages = [
        {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "first"}]},
        {"id": "m1", "role": "assistant", "parts": []},
        {"id": "u2", "role": "user", "parts": parts},
    ]
    await chunks_of(OpenHarnessChatTransport(runtimes), ChatRequest.parse({"id": "c", "messages": messages}))
    flow_input = {"message": "look here", "messages": messages, "files": [file], "chatId": "c"}
    assert runtimes.instances[0].input == flow_input


async def test_a_single_runtime_runs_once_and_then_says_so() -> None:
    transport = OpenHarnessChatTransport(ScriptedRuntime(echo))
    assert texts(await chunks_of(transport, asked())) == "You said hi."
    assert errors(await chunks_of(transport, asked("again"))) == [USED_UP]


async def test_a_paused_runtime_is_resumed_with_the_next_message() -> None:
    async def ask(_runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        yield event("flow:start", flowName="f")
        yield event("agent:text", "a1", content="Which?")
        yield event("flow:paused")

    async def go_on(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        yield event("flow:resumed")
        yield event("agent:text", "a1", content=f"{runtime.resumed_with[-1]} it is.")
        yield event("flow:complete", status="complete")

    runtimes = Runtimes(ask, go_on)
    transport = OpenHarnessChatTransport(runtimes)
    first = await chunks_of(transport, asked())
    assert (texts(first), first[-1]["messageMetadata"]["openHarness"]) == ("Which?", {"status": "paused"})
    assert texts(await chunks_of(transport, asked("Tea"))) == "Tea it is."
    assert texts(await chunks_of(transport, asked("anew"))) == "Which?"
    assert len(runtimes.instances) == 2


async def test_a_runtime_that_comes_paused_is_resumed() -> None:
    runtime = ScriptedRuntime(recorded(event("flow:resumed"), event("flow:complete")), status="paused")
    assert types(await chunks_of(OpenHarnessChatTransport(runtime), asked()))[-1] == "finish"
    assert runtime.resumed_with == ["hi"]


@pytest.mark.parametrize("value", [None, "runtime"])
async def test_a_factory_that_makes_no_runtime_is_not_ready(value: Any) -> None:
    assert errors(await chunks_of(OpenHarnessChatTransport(lambda: value), asked())) == [NOT_READY]


async def test_a_single_runtime_serves_one_chat_at_a_time() -> None:
    runtime = ScriptedRuntime(listening)
    transport = OpenHarnessChatTransport(runtime)
    first = asyncio.ensure_future(chunks_of(transport, asked(chat_id="c1")))
    await until(lambda: runtime.listeners)
    assert errors(await chunks_of(transport, asked(chat_id="c2"))) == [BUSY]
    runtime.dispatch({"message": "end"})
    assert texts(await first) == "Hello hi. Bye."


async def test_a_runtime_that_somebody_else_runs_is_sent_the_message() -> None:
    runtime = ScriptedRuntime(listening)
    running = asyncio.ensure_future(runtime.run({"message": "you"}))
    await until(lambda: runtime.status == "running")
    transport = OpenHarnessChatTransport(runtime)
    answer = asyncio.ensure_future(chunks_of(transport, asked("one")))
    await until(lambda: runtime.listeners)
    runtime.tell(event("agent:start", "a1"))
    await until(lambda: {"type": "send", "message": "one", "runId": "a1"} in runtime.commands)
    await until(lambda: not runtime.inbox)
    runtime.dispatch({"message": "end"})
    assert texts(await answer) == "Heard one. Bye."
    await running


async def test_a_factory_that_fails_is_not_ready_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> ScriptedRuntime:
        raise OSError("/etc/secret")

    [text] = errors(await chunks_of(OpenHarnessChatTransport(fail), asked()))
    assert text.startswith(f"{NOT_READY} Reference: ")
    assert text.rpartition(" ")[2] in caplog.text
    assert "/etc/secret" in caplog.text


async def test_a_factory_may_refuse_in_words_for_people() -> None:
    async def refuse() -> ScriptedRuntime:
        raise PublicError("Not today.")

    assert errors(await chunks_of(OpenHarnessChatTransport(refuse), asked())) == ["Not today."]


# Ids and options


async def test_message_ids_can_be_generated() -> None:
    transport = OpenHarnessChatTransport(Runtimes(echo), generate_message_id=iter(["m1", "m2"]).__next__)
    ids = [(await chunks_of(transport, asked(text)))[0]["messageId"] for text in ("one", "two")]
    assert ids == ["m1", "m2"]


async def test_message_ids_are_unique_without_a_generator() -> None:
    transport = OpenHarnessChatTransport(Runtimes(echo))
    ids = {(await chunks_of(transport, asked(text)))[0]["messageId"] for text in ("one", "two", "three")}
    assert len(ids) == 3


async def test_options_reach_the_adapter() -> None:
    script = recorded(*flow(*node("a1", *deltas("a1", "Hm", kind="thinking"), *deltas("a1", "Hi"), output=1)))
    full = OpenHarnessChatTransport(Runtimes(script), send_flow_metadata=True, send_node_outputs=True)
    bare = OpenHarnessChatTransport(Runtimes(script), send_reasoning=False, send_step_markers=False)
    assert {"reasoning-delta", "data-flow-status", "data-node-output"} <= set(types(await chunks_of(full, asked())))
    assert types(await chunks_of(bare, asked())) == ["start", "text-start", "text-delta", "text-end", "finish"]


# Ends


async def test_closing_the_stream_stops_the_runtime_and_waits_for_it() -> None:
    runtimes = Runtimes(listening)
    stream = await OpenHarnessChatTransport(runtimes).send_messages(asked())
    async for chunk in stream:
        if chunk_to_json(chunk)["type"] == "text-delta":
            break
    await stream.aclose()  # type: ignore[attr-defined]
    assert (runtimes.instances[0].commands, runtimes.instances[0].status) == ([{"type": "stop"}], "aborted")
    assert runtimes.instances[0].listeners == 0


async def test_after_a_stop_the_flow_and_its_nodes_are_aborted() -> None:
    transport = OpenHarnessChatTransport(Runtimes(listening), send_flow_metadata=True)
    stream = await transport.send_messages(asked())
    again = await transport.reconnect_to_stream("c")
    async for chunk in stream:
        if chunk_to_json(chunk)["type"] == "text-delta":
            break
    await stream.aclose()  # type: ignore[attr-defined]
    assert again is not None
    chunks = [chunk_to_json(chunk) async for chunk in again]
    last = {chunk["id"]: chunk["data"]["status"] for chunk in chunks if chunk["type"].startswith("data-")}
    assert last == {"flow-status": "aborted", "node-a1": "aborted"}
    assert types(chunks)[-2:] == ["abort", "finish"]


async def test_a_regenerated_answer_leaves_the_first_one_aborted() -> None:
    runtimes = Runtimes(listening)
    transport = OpenHarnessChatTransport(runtimes, send_flow_metadata=True)
    first = asyncio.ensure_future(chunks_of(transport, asked()))
    await until(lambda: runtimes.instances and runtimes.instances[0].listeners)
    second = asyncio.ensure_future(chunks_of(transport, asked(trigger="regenerate-message")))
    last = {chunk["id"]: chunk["data"]["status"] for chunk in await first if chunk["type"].startswith("data-")}
    assert last == {"flow-status": "aborted", "node-a1": "aborted"}
    await until(lambda: len(runtimes.instances) == 2 and runtimes.instances[1].listeners)
    runtimes.instances[1].dispatch({"message": "end"})
    await second


async def test_a_runtime_that_does_not_stop_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "STOP_SECONDS", 0.01)
    end = asyncio.Event()

    class Deaf(ScriptedRuntime):
        def stop(self) -> None:
            self.commands.append({"type": "stop"})

        async def run(self, input: Any = None) -> Any:  # noqa: A002, ARG002
            try:
                await asyncio.Event().wait()
            finally:
                end.set()

    runtime = Deaf(echo)
    stream = await OpenHarnessChatTransport(runtime).send_messages(asked())
    waiting = asyncio.ensure_future(anext(stream))
    await until(lambda: runtime.listeners)
    waiting.cancel()
    await asyncio.wait([waiting])
    await stream.aclose()  # type: ignore[attr-defined]
    await until(end.is_set)


async def test_a_lost_stream_is_read_again_from_its_start() -> None:
    runtimes = Runtimes(listening)
    transport = OpenHarnessChatTransport(runtimes)
    first: list[Chunk] = []
    stream = await transport.send_messages(asked())
    while not texts([chunk_to_json(chunk) for chunk in first]):
        first.append(await anext(stream))
    again = await transport.reconnect_to_stream("c")
    assert again is not None
    runtimes.instances[0].dispatch({"message": "end"})
    assert texts([chunk_to_json(chunk) async for chunk in again]) == "Hello hi. Bye."
    assert [chunk async for chunk in stream]
    assert await transport.reconnect_to_stream("c") is None


@pytest.mark.parametrize(
    ("status", "ending"),
    [("complete", "finish"), ("paused", "finish"), ("aborted", "error"), ("failed", "error"), ("running", "error")],
)
async def test_a_runtime_that_tells_no_end_ends_as_it_stands(status: str, ending: str) -> None:
    class Silent(ScriptedRuntime):
        async def run(self, input: Any = None) -> Any:  # noqa: A002, ARG002
            self.tell(event("flow:start"))
            return {"status": status}

    chunks = await chunks_of(OpenHarnessChatTransport(Silent(echo)), asked())
    assert ("error" in types(chunks)) is (ending == "error")


async def test_a_runtime_that_raises_is_an_error_with_a_reference(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        yield event("agent:text:delta", "a1", content="Hel")
        raise OSError("/etc/secret")

    [text] = errors(await chunks_of(OpenHarnessChatTransport(Runtimes(broken)), asked()))
    assert text.startswith("An error occurred. Reference: ")
    assert "/etc/secret" in caplog.text


async def test_failures_and_unknown_events_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    script = recorded(*flow({"type": "agent:text"}, event("node:error", "a1", error="/etc/secret"), status="failed"))
    with caplog.at_level(logging.WARNING, "usechat.open_harness"):
        [text] = errors(await chunks_of(OpenHarnessChatTransport(Runtimes(script)), asked()))
    reference = text.removeprefix("The step “a” failed. Reference: ")
    assert [record.getMessage() for record in caplog.records] == [
        "chat c: an event 'agent:text' was skipped: it has no nodeId",
        f"chat c: node 'a' failed in run a1: '/etc/secret'; reference {reference}",
    ]


async def test_a_loop_that_reaches_its_limit_fails_the_turn_and_the_next_turn_begins_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Open Harness raises from `run()` there, and emits no event: the page gets its ending here."""
    described = {
        "name": "polish",
        "nodes": [{"id": "draft", "type": "echo", "input": {"text": "Draft."}}],
        "edges": [{"from": "draft", "to": "draft", "maxIterations": 1}],
    }
    runtimes = FlowRuntimes(described, store=MemoryRunStore())
    transport = OpenHarnessChatTransport(runtimes, send_flow_metadata=True)
    for text in ("one", "two"):
        chunks = await chunks_of(transport, asked(text))
        drawn = [(chunk["type"], chunk["data"].get("status")) for chunk in chunks if chunk["type"].startswith("data-")]
        assert drawn == [
            ("data-flow-graph", None),
            ("data-flow-status", "running"),
            ("data-node-status", "running"),
            ("data-node-status", "complete"),
            ("data-edge", None),
            ("data-edge", None),
            ("data-flow-status", "failed"),
        ]
        [error] = errors(chunks)
        assert error.startswith("An error occurred. Reference: ")
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "Loop edge draft -> draft exceeded 1"
    ] * 2
