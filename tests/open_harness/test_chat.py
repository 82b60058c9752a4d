"""What chats keep between their turns, and what is let go."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.open_harness.scripted import ScriptedRuntime, deltas, event, recorded
from tests.open_harness.test_transport import Runtimes, asked, chunks_of, errors, listening, texts, types, until
from usechat.errors import PublicError
from usechat.open_harness import chat
from usechat.open_harness.chat import FlowChats
from usechat.open_harness.runtime_protocol import Command, Event
from usechat.open_harness.transport import TOO_LATE, OpenHarnessChatTransport
from usechat.parts import Part, Text
from usechat.protocol.request import ChatRequest
from usechat.server.observers.observer import Observer
from usechat.turn import Identity, TurnContext, TurnInput


class Listener(Observer):
    """A turn without a run: keeps what is said."""

    def __init__(self, text: str, **options: str) -> None:
        self.parts: list[Part] = []
        self.unknown: list[str] = []
        self.context = TurnContext(TurnInput(asked(text, **options)), observer=self)
        self.context.connect(self.parts.append)
        self.turn = self.context.turn

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    def event_unknown(self, kind: str) -> None:
        self.unknown.append(kind)


async def asks(_runtime: ScriptedRuntime) -> AsyncIterator[Event]:
    yield event("flow:start", flowName="f")
    yield event("agent:text", "a1", content="Which?")
    yield event("flow:paused")


class Connected(ScriptedRuntime):
    """Holds something open while it is paused."""

    is_open = True

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.is_open = False


async def test_chats_of_two_people_with_the_same_id_are_kept_apart() -> None:
    chats = FlowChats()
    mine, theirs = (
        chats.open(TurnContext(TurnInput(asked(), identity=Identity(name))).turn, 0) for name in ("me", "them")
    )
    assert mine is not theirs
    assert chats.find(TurnContext(TurnInput(asked(), identity=Identity("me"))).turn) is mine


async def test_idle_chats_are_forgotten_and_their_number_is_bounded() -> None:
    chats = FlowChats(maximum=3, idle_seconds=10)
    turns = [TurnContext(TurnInput(asked(chat_id=str(number)))).turn for number in range(6)]
    for number, turn in enumerate(turns[:5]):
        chats.forget(number)
        chats.open(turn, number)
    assert (len(chats), chats.find(turns[0]), chats.find(turns[4]) is None) == (3, None, False)
    chats.forget(13.5)
    chats.open(turns[5], 13.5)
    assert [chats.find(turn) is not None for turn in turns] == [False, False, False, False, True, True]


async def test_what_a_forgotten_chat_holds_open_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat.FlowChats.__init__, "__kwdefaults__", {"maximum": 1, "idle_seconds": 10})
    runtimes = [Connected(asks), Connected(asks)]
    transport = OpenHarnessChatTransport(iter(runtimes).__next__)
    for chat_id in ("c1", "c2"):
        await chunks_of(transport, asked(chat_id=chat_id))
    assert [runtime.is_open for runtime in runtimes] == [False, True]


async def test_an_answer_that_is_wanted_anew_does_not_resume_the_paused_flow() -> None:
    runtimes = [Connected(asks), Connected(asks)]
    transport = OpenHarnessChatTransport(iter(runtimes).__next__)
    await chunks_of(transport, asked())
    assert texts(await chunks_of(transport, asked(trigger="regenerate-message"))) == "Which?"
    assert (runtimes[0].commands, runtimes[0].is_open, runtimes[0].resumed_with) == ([{"type": "stop"}], False, [])


async def test_turns_that_nobody_keeps_apart_follow_each_other() -> None:
    runtimes = Runtimes(listening)
    transport = OpenHarnessChatTransport(runtimes)
    first, second = Listener("you"), Listener("end")
    one = asyncio.ensure_future(transport.drive(first.context))
    await until(lambda: first.text)
    await transport.drive(second.context)
    await one
    assert (first.text, second.text) == ("Hello you. ", "Bye.")


async def test_a_flow_that_ends_between_two_turns_is_told_and_the_message_answered_by_another() -> None:
    runtimes = Runtimes(listening)
    transport = OpenHarnessChatTransport(runtimes)
    first, second = Listener("you"), Listener("me")
    one = asyncio.ensure_future(transport.drive(first.context))
    await until(lambda: first.text)
    transport.hand_over(second.turn)
    await one
    runtimes.instances[0].dispatch({"message": "end"})
    await until(lambda: runtimes.instances[0].status == "complete")
    two = asyncio.ensure_future(transport.drive(second.context))
    await until(lambda: len(runtimes.instances) == 2 and runtimes.instances[1].listeners)
    runtimes.instances[1].dispatch({"message": "end"})
    await two
    assert second.text == "Bye.Hello me. Bye."


async def test_a_flow_that_says_too_much_between_two_turns_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAXIMUM_EVENTS_BETWEEN", 3)
    runtimes = Runtimes(listening)
    transport = OpenHarnessChatTransport(runtimes)
    first, second = Listener("you"), Listener("me")
    one = asyncio.ensure_future(transport.drive(first.context))
    await until(lambda: first.text)
    transport.hand_over(second.turn)
    await one
    runtimes.instances[0].tell(*[event("agent:text:delta", "a1", content="x")] * 5)
    await until(lambda: runtimes.instances[0].status == "aborted")
    two = asyncio.ensure_future(transport.drive(second.context))
    await until(two.done)
    assert second.text.startswith("xxx")


async def test_unknown_events_and_nameless_tools_are_counted() -> None:
    script = recorded({"type": "agent:dance"}, event("agent:tool", "a1", toolOutput=1), event("flow:complete"))
    listener = Listener("hi")
    await OpenHarnessChatTransport(Runtimes(script)).drive(listener.context)
    assert listener.unknown == ["agent:dance", "agent:tool"]


async def test_a_runtime_that_cannot_take_a_message_is_stopped_and_the_error_told() -> None:
    class Deaf(ScriptedRuntime):
        def dispatch(self, command: Command) -> None:
            if command["type"] == "send":
                raise PublicError("I take no messages.")

    runtime = Deaf(listening, status="running")
    transport = OpenHarnessChatTransport(runtime)
    answer = asyncio.ensure_future(chunks_of(transport, asked()))
    await until(lambda: runtime.listeners)
    runtime.tell(event("node:start", "a1"))
    assert errors(await answer) == ["I take no messages."]
    assert (runtime.commands, runtime.listeners) == ([{"type": "stop"}], 0)


async def test_a_runtime_that_raises_after_a_failure_tells_the_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        yield event("flow:start", flowName="f")
        yield event("agent:error", "a1", errorType="timeout", message="30 s")
        raise OSError("gone")

    with caplog.at_level(logging.WARNING):
        error_texts = errors(await chunks_of(OpenHarnessChatTransport(Runtimes(broken)), asked()))
    assert error_texts == ["The step “a” took too long and was stopped. Please try again."]
    assert "gone" in caplog.text


@pytest.mark.parametrize("script", ["before", "after"])
async def test_a_runtime_that_raises_a_public_error_has_it_shown(script: str) -> None:
    async def refuses(_runtime: ScriptedRuntime) -> AsyncIterator[Event]:
        if script == "after":
            yield event("agent:text:delta", "a1", content="Hm")
            yield event("flow:start")
            yield event("agent:error", "a1", errorType="timeout", message="30 s")
        raise PublicError("Come back tomorrow.")

    assert errors(await chunks_of(OpenHarnessChatTransport(Runtimes(refuses)), asked())) == ["Come back tomorrow."]


async def test_garbage_in_events_never_breaks_the_stream() -> None:
    garbage: list[Any] = [
        event("flow:start", flowName=5),
        *(None, 7, "text", [], {}, {"type": 1}, {"type": "agent:text", "nodeId": 1, "runId": 2, "content": 3}),
        event("agent:tool", "a1", toolName=7, toolInput=object(), toolOutput={1, 2}, error=None),
        event("agent:tool", "a1", toolName="t", toolInput=1, error={"not": "a text"}),
        event("agent:complete", "a1", usage=[1], totalCostUsd="free"),
        event("node:error", "a1", error=None),
        event("agent:error", "a1", errorType=7, message=["x"]),
        {"name": "tool:called", "payload": None, "timestamp": 1},
        {"name": "tool:call", "payload": {"id": 3, "name": 4}, "timestamp": "never"},
        event("loop:iterate", iteration="x"),
    ]
    script = recorded(*garbage, *deltas("a1", "Still here."), event("flow:complete", status=["?"]))
    transport = OpenHarnessChatTransport(Runtimes(script), send_flow_metadata=True, send_node_outputs=True)
    chunks = await chunks_of(transport, asked())
    assert (texts(chunks), types(chunks)[-1], errors(chunks)) == ("Still here.", "finish", [])


async def test_a_flow_of_others_that_ends_before_it_takes_the_message_says_so() -> None:
    runtime = ScriptedRuntime(listening, status="running")
    answer = asyncio.ensure_future(chunks_of(OpenHarnessChatTransport(runtime), asked()))
    await until(lambda: runtime.listeners)
    runtime.tell(event("flow:complete", status="complete"))
    assert errors(await answer) == [TOO_LATE]


async def test_a_flow_between_two_turns_is_stopped_when_its_answer_is_wanted_anew() -> None:
    runtimes = Runtimes(listening)
    transport = OpenHarnessChatTransport(runtimes)
    first, second = Listener("you"), Listener("you", trigger="regenerate-message")
    one = asyncio.ensure_future(transport.drive(first.context))
    await until(lambda: first.text)
    transport.hand_over(Listener("me").turn)
    await one
    two = asyncio.ensure_future(transport.drive(second.context))
    await until(lambda: len(runtimes.instances) == 2 and runtimes.instances[1].listeners)
    runtimes.instances[1].dispatch({"message": "end"})
    await two
    assert (second.text, runtimes.instances[0].status) == ("Hello you. Bye.", "aborted")


@pytest.mark.parametrize(
    ("part", "answer"),
    [
        ({"type": "tool-choose", "state": "output-available", "output": "tea"}, "tea"),
        ({"type": "tool-choose", "state": "output-available", "output": ["tea", 2]}, '["tea",2]'),
        ({"type": "tool-choose", "state": "output-available", "output": ["half: \ud83d"]}, '["half: \ufffd"]'),
        ({"type": "tool-approve", "state": "approval-responded", "approval": {"id": "q", "approved": True}}, "yes"),
        ({"type": "tool-approve", "state": "approval-responded", "approval": {"id": "q", "approved": False}}, "no"),
        (
            {
                "type": "tool-approve",
                "state": "approval-responded",
                "approval": {"id": "q", "approved": False, "reason": "yet untested"},
            },
            "no: yet untested",
        ),
        ({"type": "text", "text": "Which?"}, "hi"),
    ],
)
async def test_a_paused_flow_is_told_what_the_user_chose(part: Any, answer: str) -> None:
    runtime = ScriptedRuntime(recorded(event("flow:resumed"), event("flow:complete")), status="paused")
    call = {"toolCallId": "q", "input": {}} if part["type"] != "text" else {}
    messages = [
        {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
        {"id": "m", "role": "assistant", "parts": [{**call, **part}]},
    ]
    await chunks_of(OpenHarnessChatTransport(runtime), ChatRequest.parse({"id": "c", "messages": messages}))
    assert runtime.resumed_with == [answer]
