"""A message that comes while the chat's flow runs goes on with it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.open_harness.scripted import ScriptedRuntime, event, recorded
from tests.open_harness.test_chat import Listener
from tests.open_harness.test_transport import Runtimes, asked, chunks_of, errors, listening, texts, types, until
from usechat.open_harness import chat
from usechat.open_harness.runtime_protocol import Event
from usechat.open_harness.transport import OpenHarnessChatTransport
from usechat.parts import Data, Text
from usechat.protocol.request import ChatRequest
from usechat.turn import Turn, TurnContext, TurnInput, current_turn, emit


async def test_a_message_to_a_running_flow_is_sent_to_its_node_and_answered_from_there() -> None:
    runtimes = Runtimes(listening)
    transport = OpenHarnessChatTransport(runtimes)
    first = asyncio.ensure_future(chunks_of(transport, asked("you")))
    await until(lambda: runtimes.instances and runtimes.instances[0].listeners)
    second = asyncio.ensure_future(chunks_of(transport, asked("one")))
    assert (texts(await first), errors(await first)) == ("Hello you. ", [])
    await until(lambda: runtimes.instances[0].commands)
    third = asyncio.ensure_future(chunks_of(transport, asked("end")))
    assert [texts(await second), texts(await third)] == ["Heard one. ", "Bye."]
    assert len(runtimes.instances) == 1
    assert [command["runId"] for command in runtimes.instances[0].commands] == ["a1", "a1"]


@pytest.mark.parametrize("status", ["running", "paused"])
async def test_a_message_to_a_flow_that_has_begun_brings_its_text_and_the_log_tells_of_files(
    status: str, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = ScriptedRuntime(recorded(event("flow:complete", status="complete")), status=status)
    file = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,x"}
    message = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "look"}, file]}
    asking = asyncio.ensure_future(
        chunks_of(OpenHarnessChatTransport(runtime), ChatRequest.parse({"id": "c", "messages": [message]}))
    )
    if status == "running":
        await until(lambda: runtime.listeners)
        runtime.tell(event("node:start", "a1"))
        runtime.inbox.clear()
        runtime.tell(event("flow:complete", status="complete"))
    await asking
    messages = runtime.resumed_with if status == "paused" else [command["message"] for command in runtime.commands]
    assert messages == ["look"]
    assert "chat c: the files of a message to a flow that has begun are not passed on" in caplog.text


async def test_a_message_that_no_node_reads_is_answered_by_a_new_flow() -> None:
    gate = asyncio.Event()

    async def deaf(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        yield event("flow:start", flowName="f")
        yield event("agent:text", "a1", content=f"On {runtime.input['message']}. ")
        await gate.wait()
        yield event("flow:complete", status="complete")

    runtimes = Runtimes(deaf)
    transport = OpenHarnessChatTransport(runtimes)
    first = asyncio.ensure_future(chunks_of(transport, asked("one")))
    await until(lambda: runtimes.instances and runtimes.instances[0].listeners)
    second = asyncio.ensure_future(chunks_of(transport, asked("two")))
    assert texts(await first) == "On one. "
    await until(lambda: runtimes.instances[0].commands)
    gate.set()
    assert texts(await second) == "On two. "
    assert len(runtimes.instances) == 2


async def test_a_message_that_a_node_did_not_read_goes_to_the_next() -> None:
    gate = asyncio.Event()

    async def deaf_then_listening(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        yield event("flow:start", flowName="f")
        yield event("node:start", "a1")
        yield event("agent:text", "a1", content="First. ")
        await gate.wait()
        yield event("node:complete", "a1", output=None)
        yield event("node:start", "b1")
        runtime.inbox = [command for command in runtime.inbox if command["runId"] == "b1"]
        yield event("agent:text", "b1", content=f"Heard {await runtime.read()}.")
        yield event("flow:complete", status="complete")

    runtimes = Runtimes(deaf_then_listening)
    transport = OpenHarnessChatTransport(runtimes)
    first = asyncio.ensure_future(chunks_of(transport, asked("one")))
    await until(lambda: runtimes.instances and runtimes.instances[0].listeners)
    second = asyncio.ensure_future(chunks_of(transport, asked("two")))
    assert texts(await first) == "First. "
    await until(lambda: runtimes.instances[0].commands)
    gate.set()
    assert texts(await second) == "Heard two."
    assert [command["runId"] for command in runtimes.instances[0].commands] == ["a1", "b1"]


async def test_an_answer_that_is_wanted_anew_stops_the_running_flow() -> None:
    runtimes = Runtimes(listening)
    transport = OpenHarnessChatTransport(runtimes)
    first = asyncio.ensure_future(chunks_of(transport, asked("you")))
    await until(lambda: runtimes.instances and runtimes.instances[0].listeners)
    second = asyncio.ensure_future(chunks_of(transport, asked("you", trigger="regenerate-message")))
    assert types(await first)[-2:] == ["abort", "finish"]
    await until(lambda: len(runtimes.instances) == 2 and runtimes.instances[1].listeners)
    runtimes.instances[1].dispatch({"message": "end"})
    assert texts(await second) == "Hello you. Bye."


async def test_a_flow_that_nobody_takes_over_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "ORPHAN_SECONDS", 0.01)
    runtimes = Runtimes(listening)
    transport = OpenHarnessChatTransport(runtimes)
    first = asyncio.ensure_future(chunks_of(transport, asked("you")))
    await until(lambda: runtimes.instances and runtimes.instances[0].listeners)
    transport.hand_over(TurnContext(TurnInput(asked("never sent"))).turn)
    await first
    await until(lambda: runtimes.instances[0].status == "aborted")
    again = asyncio.ensure_future(chunks_of(transport, asked("me")))
    await until(lambda: len(runtimes.instances) == 2 and runtimes.instances[1].listeners)
    runtimes.instances[1].dispatch({"message": "end"})
    assert texts(await again) == "Hello me. Bye."


async def test_what_the_flows_own_code_emits_reaches_the_turn_of_the_moment() -> None:
    async def emitting(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        yield event("flow:start", flowName="f")
        yield event("node:start", "a1")
        yield event("agent:text", "a1", content="Hello. ")
        emit("seen", await runtime.read())
        yield event("flow:complete", status="complete")

    runtimes = Runtimes(emitting)
    transport = OpenHarnessChatTransport(runtimes)
    first = asyncio.ensure_future(chunks_of(transport, asked("you")))
    await until(lambda: runtimes.instances and runtimes.instances[0].listeners)
    second = asyncio.ensure_future(chunks_of(transport, asked("me")))
    assert (texts(await first), types(await first)[-1], "data-seen" in types(await first)) == (
        "Hello. ",
        "finish",
        False,
    )
    assert [chunk["data"] for chunk in await second if chunk["type"] == "data-seen"] == ["me"]


async def in_turn(transport: OpenHarnessChatTransport, context: TurnContext) -> None:
    context.enter()
    await transport.drive(context)


async def test_what_is_emitted_between_two_turns_is_kept_for_the_second() -> None:
    gate = asyncio.Event()

    async def emitting(_runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        yield event("flow:start", flowName="f")
        yield event("node:start", "a1")
        yield event("agent:text", "a1", content="Hello. ")
        await gate.wait()
        emit("seen", 1)
        yield event("agent:text", "a1", content="More.")
        yield event("flow:complete", status="complete")

    first, second = Listener("you"), Listener("me")
    runtimes = Runtimes(emitting)
    transport = OpenHarnessChatTransport(runtimes)
    one = asyncio.ensure_future(in_turn(transport, first.context))
    await until(lambda: first.text)
    transport.hand_over(second.turn)
    await one
    gate.set()
    await until(lambda: runtimes.instances[0].status == "complete")
    await in_turn(transport, second.context)
    assert (first.text, second.text) == ("Hello. ", "More.Hello. More.")
    assert [part.data for part in second.parts if isinstance(part, Data)] == [1, 1]


async def test_what_the_flows_own_code_emits_keeps_its_place_among_the_events() -> None:
    async def emitting(_runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        yield event("flow:start", flowName="f")
        yield event("agent:text:delta", "a1", content="one")
        emit("mark", 1)
        yield event("agent:text:delta", "a1", content="two")
        emit("mark", 2)
        yield event("flow:complete", status="complete")
        emit("mark", 3)

    listener = Listener("hi")
    await in_turn(OpenHarnessChatTransport(Runtimes(emitting)), listener.context)
    contents = [
        part.text if isinstance(part, Text) else part.data for part in listener.parts if isinstance(part, Text | Data)
    ]
    assert contents == ["one", 1, "two", 2, 3]


async def test_a_message_is_in_the_inbox_when_the_node_that_gets_it_starts() -> None:
    gate = asyncio.Event()

    async def looks_once(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        yield event("flow:start", flowName="f")
        await gate.wait()
        yield event("node:start", "a1")
        messages = [runtime.inbox.pop(0)["message"] for _ in list(runtime.inbox)]
        yield event("agent:text", "a1", content=f"Seen: {messages}")
        yield event("flow:complete", status="complete")

    runtimes = Runtimes(looks_once)
    transport = OpenHarnessChatTransport(runtimes)
    first, second = Listener("one"), Listener("two")
    one = asyncio.ensure_future(transport.drive(first.context))
    await until(lambda: runtimes.instances and runtimes.instances[0].status == "running")
    two = asyncio.ensure_future(transport.drive(second.context))
    await one
    gate.set()
    await two
    assert (first.text, second.text) == ("", "Seen: ['two']")


async def test_code_of_a_flow_that_was_handed_over_sees_that_the_flow_is_stopped() -> None:
    turns: list[Turn] = []

    async def remembers(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        turns.append(current_turn())
        async for each in listening(runtime):
            yield each

    runtimes = Runtimes(remembers)
    transport = OpenHarnessChatTransport(runtimes)
    first, second = Listener("you"), Listener("one")
    one = asyncio.ensure_future(in_turn(transport, first.context))
    await until(lambda: first.text)
    two = asyncio.ensure_future(in_turn(transport, second.context))
    await one
    await until(lambda: second.text)
    assert not turns[0].stopped
    two.cancel()
    await asyncio.wait([two])
    assert (turns[0].stopped, runtimes.instances[0].status) == (True, "aborted")
