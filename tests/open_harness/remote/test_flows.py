"""A run in another process, behind the WebSocket contract, over real sockets."""

import asyncio
import logging
import socket
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from tests.conformance.served import unanswered_port
from tests.open_harness.remote.broadcasting import PATIENCE, BroadcastingServer, broadcasting
from tests.open_harness.test_transport import asked, chunks_of, errors
from usechat.errors import InvalidAddress, LocalProtocolError, PublicError
from usechat.open_harness.errors import Unreachable
from usechat.open_harness.remote.flows import LOST, NOT_WAITING, SILENT, RemoteRuntime
from usechat.open_harness.runtime_protocol import Event, Runtime
from usechat.open_harness.transport import OpenHarnessChatTransport

START = {"type": "node:start", "nodeId": "a", "runId": "a-1"}
DELTA = {"type": "agent:text:delta", "nodeId": "a", "runId": "a-1", "content": "Hi"}
DONE = {"type": "node:complete", "nodeId": "a", "runId": "a-1", "output": {"text": "Hi"}}
END = {"type": "flow:complete", "flowName": "f", "status": "complete"}
PAUSED = {"type": "flow:paused"}


def answer_a_resume(server: BroadcastingServer, command: Mapping[str, Any]) -> None:
    """Do what a paused flow does."""
    if command["type"] == "resume":
        server.emit({"type": "flow:resumed"}, START, {**DELTA, "content": command["message"]}, PAUSED)


def events_of(runtime: RemoteRuntime) -> list[Event]:
    events: list[Event] = []
    runtime.on_event(events.append)
    return events


def kinds(events: list[Event]) -> list[Any]:
    return [event["type"] for event in events]


def test_it_has_the_interface_of_a_runtime() -> None:
    assert isinstance(RemoteRuntime("ws://localhost:42069/ws"), Runtime)


@pytest.mark.parametrize("url", ["http://localhost", "ws://", "localhost:42069", "ws://[", ""])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(InvalidAddress, match="begins with ws:// or wss://"):
        RemoteRuntime(url)


async def test_a_paused_run_is_resumed_with_the_message() -> None:
    async with broadcasting(answer_a_resume) as server:
        runtime = RemoteRuntime(server.url, silence=PATIENCE)
        events = events_of(runtime)
        turn = asyncio.create_task(runtime.run({"message": "hello"}))
        await server.until(lambda server: server.clients)
        server.emit(PAUSED)
        snapshot = await turn
        assert server.commands == [{"type": "resume", "message": "hello"}]
        assert kinds(events) == ["command:received", "flow:resumed", "node:start", "agent:text:delta", "flow:paused"]
        assert snapshot["status"] == "paused"


async def test_a_run_that_paused_before_anyone_listened_is_resumed_as_well() -> None:
    async with broadcasting(answer_a_resume) as server:
        runtime = RemoteRuntime(server.url, silence=5)
        assert (await runtime.run({"message": "hello"}))["status"] == "paused"


async def test_a_running_node_is_sent_the_message_under_the_run_id_that_events_told() -> None:
    def answer(server: BroadcastingServer, command: Mapping[str, Any]) -> None:
        if command["type"] == "send":
            server.emit({**DELTA, "content": "You said more"}, DONE, END)

    async with broadcasting(answer) as server:
        runtime = RemoteRuntime(server.url, silence=PATIENCE)
        events = events_of(runtime)
        turn = asyncio.create_task(runtime.run({"message": "more"}))
        await server.until(lambda server: server.clients)
        server.emit(DELTA)
        snapshot = await turn
        assert server.commands == [{"type": "send", "message": "more", "runId": "a-1"}]
        assert kinds(events) == ["command:received", "agent:text:delta", "node:complete", "flow:complete"]
        assert (snapshot["status"], snapshot["outputs"]) == ("complete", {"a": {"text": "Hi"}})
        await server.until(lambda server: server.clients == 1)  # kept, to see whether it is started again


async def test_between_two_nodes_the_next_one_is_waited_for() -> None:
    async with broadcasting(lambda server, _: server.emit(END)) as server:
        runtime = RemoteRuntime(server.url, silence=PATIENCE)
        turn = asyncio.create_task(runtime.run({"message": "more"}))
        await server.until(lambda server: server.clients)
        server.emit({"type": "flow:start", "flowName": "f"}, START, DONE)
        server.emit({**START, "nodeId": "b", "runId": "b-1"})
        await turn
        assert [command["runId"] for command in server.commands] == ["b-1"]


@pytest.mark.parametrize("ended", [END, {"type": "flow:aborted"}], ids=["complete", "aborted"])
async def test_a_run_that_is_over_takes_no_message_and_the_user_is_told(ended: Event) -> None:
    async with broadcasting() as server:
        turn = asyncio.create_task(RemoteRuntime(server.url, silence=PATIENCE).run({"message": "hello"}))
        await server.until(lambda server: server.clients)
        server.emit(ended)
        with pytest.raises(PublicError, match="it is not running"):
            await turn
        assert server.commands == []
        await server.until(lambda server: server.clients == int(ended is END))


async def test_a_run_that_was_complete_at_the_end_of_a_turn_is_not_resumed_by_the_next() -> None:
    """What a resume of a finished run does depends on the server: some run it anew, others fail."""
    async with broadcasting(lambda server, _: server.emit({"type": "flow:resumed"}, START, DONE, END)) as server:
        await RemoteRuntime(server.url, silence=PATIENCE).run({"message": "one"})
        with pytest.raises(PublicError, match="it is not running"):
            await RemoteRuntime(server.url, silence=1).run({"message": "two"})
        assert [command["message"] for command in server.commands] == ["one"]
        turn = asyncio.create_task(RemoteRuntime(server.url, silence=PATIENCE).run({"message": "three"}))
        server.emit({"type": "flow:start", "flowName": "f"}, START)  # its host has started it again
        await turn
        assert [command["message"] for command in server.commands] == ["one", "three"]
        assert (server.opened, server.clients) == (1, 1)


async def test_a_server_that_came_back_between_two_messages_is_tried_again() -> None:
    """Its run may be another one, which is paused. A run that is known to be complete would not be resumed."""
    answer = lambda server, _: server.emit({"type": "flow:resumed"}, START, DONE, END)  # noqa: E731
    async with broadcasting(answer) as server:
        await RemoteRuntime(server.url, silence=PATIENCE).run({"message": "one"})
        server.cut()
        await server.until(lambda server: not server.clients)
    with socket.create_server(("127.0.0.1", server.port)) as bound:
        async with broadcasting(answer, bound=bound) as again:
            snapshot = await RemoteRuntime(server.url, silence=PATIENCE).run({"message": "two"})
            assert (snapshot["status"], [command["message"] for command in again.commands]) == ("complete", ["two"])


async def test_a_kept_connection_is_not_used_by_a_turn_with_other_headers() -> None:
    async with broadcasting(lambda server, _: server.emit({"type": "flow:resumed"}, START, DONE, END)) as server:
        await RemoteRuntime(server.url, silence=PATIENCE, headers={"authorization": "a"}).run({"message": "one"})
        with pytest.raises(PublicError, match="it is not running"):
            await RemoteRuntime(server.url, silence=1, headers={"authorization": "b"}).run({"message": "two"})
        assert server.opened == 2


async def test_of_a_run_that_does_not_react_the_page_is_told_what_is_known() -> None:
    """A node that waits silently looks like a run that has ended: the wire does not tell its run id."""
    async with broadcasting(lambda server, _: server.emit({"type": "flow:resumed"})) as server:
        transport = OpenHarnessChatTransport(partial(RemoteRuntime, server.url, silence=0.2), send_flow_metadata=True)
        chunks = await chunks_of(transport, asked("hello"))
        assert errors(chunks) == [SILENT]
        assert [chunk for chunk in chunks if chunk["type"].startswith("data-")] == []  # the flow may well be running


@pytest.mark.parametrize("first", [{"type": "agent:start", "nodeId": "a", "runId": "a-1", "prompt": "Go"}, DELTA])
async def test_a_node_that_was_running_silently_gets_the_message_when_it_goes_on(first: Event) -> None:
    """Also one whose agent starts only now: a run that is really resumed starts its node again."""

    def answer(server: BroadcastingServer, command: Mapping[str, Any]) -> None:
        # Its node is running, so the resume has no effect; later it goes on with what it was doing.
        server.emit(
            *([first] if command["type"] == "resume" else [{**DELTA, "content": command["message"]}, DONE, END])
        )

    async with broadcasting(answer) as server:
        runtime = RemoteRuntime(server.url, silence=5)
        events = events_of(runtime)
        await runtime.run({"message": "hello"})
        assert [command["type"] for command in server.commands] == ["resume", "send"]
        assert server.commands[1] == {"type": "send", "message": "hello", "runId": "a-1"}
        assert kinds(events)[0] == first["type"]
        assert [event["content"] for event in events if event["type"] == DELTA["type"]][-1] == "hello"


async def test_a_node_that_was_running_silently_and_ends_leaves_the_message_to_the_next() -> None:
    def answer(server: BroadcastingServer, command: Mapping[str, Any]) -> None:
        following = {**START, "nodeId": "b", "runId": "b-1"}
        server.emit(*([DONE, following] if command["type"] == "resume" else [END]))

    async with broadcasting(answer) as server:
        await RemoteRuntime(server.url, silence=5).run({"message": "hello"})
        assert server.commands[1] == {"type": "send", "message": "hello", "runId": "b-1"}


async def test_a_run_that_ends_before_the_message_reached_a_node_is_told() -> None:
    async with broadcasting(lambda server, _: server.emit(DONE, END)) as server:
        with pytest.raises(PublicError, match=NOT_WAITING):
            await RemoteRuntime(server.url, silence=5).run({"message": "hello"})


async def test_after_a_message_without_reaction_the_next_is_sent_to_the_node_that_spoke_meanwhile() -> None:
    def answer(server: BroadcastingServer, command: Mapping[str, Any]) -> None:
        if command["type"] == "send":
            server.emit(DONE, END)

    async with broadcasting(answer) as server:
        with pytest.raises(PublicError, match="did not react"):
            await RemoteRuntime(server.url, silence=0.2).run({"message": "one"})
        server.emit(DELTA)
        await RemoteRuntime(server.url, silence=PATIENCE).run({"message": "two"})
        assert server.commands[-1] == {"type": "send", "message": "two", "runId": "a-1"}
        assert server.opened == 1


async def test_turns_at_one_url_wait_for_each_other_and_never_mix() -> None:
    async with broadcasting(answer_a_resume) as server:
        runtimes = [RemoteRuntime(server.url, silence=5) for _ in range(5)]
        logs = [events_of(runtime) for runtime in runtimes]
        await asyncio.gather(*[runtime.run({"message": str(number)}) for number, runtime in enumerate(runtimes)])
        contents = [[event["content"] for event in events if event["type"] == DELTA["type"]] for events in logs]
        assert contents == [["0"], ["1"], ["2"], ["3"], ["4"]]


async def test_a_link_that_is_lost_during_a_turn_is_an_error_that_the_user_sees() -> None:
    def answer(server: BroadcastingServer, _command: Mapping[str, Any]) -> None:
        server.emit(START, DELTA)

    async with broadcasting(answer) as server:
        runtime = RemoteRuntime(server.url, silence=5)
        events = events_of(runtime)
        turn = asyncio.create_task(runtime.run({"message": "hello"}))
        await server.until(lambda _: DELTA["type"] in kinds(events))
        server.cut()
        with pytest.raises(PublicError, match=LOST):
            await turn


async def test_a_paused_run_that_is_everybodys_needs_no_connection_until_it_is_resumed() -> None:
    async with broadcasting(answer_a_resume) as server:
        runtime = RemoteRuntime(server.url, silence=5)
        await runtime.run({"message": "one"})
        await server.until(lambda server: not server.clients)
        events = events_of(runtime)
        assert (await runtime.resume("two"))["status"] == "paused"
        assert server.opened == 2
        assert [event["content"] for event in events if event["type"] == DELTA["type"]] == ["two"]


async def test_a_server_that_starts_late_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and nobody listens yet
        url = f"ws://127.0.0.1:{bound.getsockname()[1]}/ws"
        runtime = RemoteRuntime(url, connect_seconds=PATIENCE, silence=5)
        turn = asyncio.create_task(runtime.run({"message": "hello"}))
        while "cannot be reached" not in caplog.text:  # noqa: ASYNC110 (the first attempt fails in the loop's own time)
            await asyncio.sleep(0.005)
        async with broadcasting(answer_a_resume, bound=bound):
            assert (await turn)["status"] == "paused"


async def test_a_server_that_is_not_there_is_told_and_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with (
        unanswered_port() as port,
        caplog.at_level(logging.WARNING),
        pytest.raises(Unreachable, match="cannot be reached"),
    ):
        await RemoteRuntime(f"ws://127.0.0.1:{port}/ws", connect_seconds=0.2).run({"message": "hello"})
    assert f"127.0.0.1:{port}" in caplog.text


async def test_a_stop_pauses_a_run_that_could_not_be_started_again() -> None:
    def answer(server: BroadcastingServer, command: Mapping[str, Any]) -> None:
        server.emit(*([START] if command["type"] == "resume" else [PAUSED]))

    async with broadcasting(answer) as server:
        runtime = RemoteRuntime(server.url, silence=5)
        turn = asyncio.create_task(runtime.run({"message": "hello"}))
        await server.until(lambda server: server.commands)
        runtime.stop()
        assert (await turn)["status"] == "paused"
        assert server.commands[1] == {"type": "abort", "resumable": True}


async def test_a_stop_of_a_turn_that_waits_leaves_the_turn_of_the_other_alone() -> None:
    async with broadcasting(lambda server, _: server.emit(START)) as server:
        first, second = RemoteRuntime(server.url, silence=5), RemoteRuntime(server.url, silence=5)
        running = asyncio.create_task(first.run({"message": "first"}))
        await server.until(lambda server: server.commands)
        waiting = asyncio.create_task(second.run({"message": "second"}))
        await server.until(lambda server: server.clients == 2)
        second.stop()
        assert (await waiting)["status"] == "aborted"
        assert [command["message"] for command in server.commands] == ["first"]
        server.emit(END)
        assert (await running)["status"] == "complete"


async def test_one_runtime_serves_one_turn_after_another() -> None:
    async with broadcasting(lambda server, _: server.emit(START, {"type": "flow:aborted"})) as server:
        runtime = RemoteRuntime(server.url, silence=5)
        for message in ("one", "two"):
            assert runtime.get_snapshot()["status"] == "idle"
            assert (await runtime.run({"message": message}))["status"] == "aborted"
        assert [command["message"] for command in server.commands] == ["one", "two"]


async def test_a_cancelled_turn_has_stopped_the_run_before_it_is_over() -> None:
    async with broadcasting(lambda server, _: server.emit(START)) as server:
        turn = asyncio.create_task(RemoteRuntime(server.url, silence=5).run({"message": "hello"}))
        await server.until(lambda server: server.commands)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        await server.until(lambda server: not server.clients)
        assert [command["type"] for command in server.commands] == ["resume", "abort", "pause"]


async def test_frames_that_hold_no_event_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    def answer(server: BroadcastingServer, _command: Mapping[str, Any]) -> None:
        for frame in ["{", "[]", '{"type":"hello"}', '{"type":"event","event":1}']:
            server.say(frame)
        server.emit(START, END)

    async with broadcasting(answer) as server:
        runtime = RemoteRuntime(server.url, silence=5)
        events = events_of(runtime)
        await runtime.run({"message": "hello"})
        assert kinds(events) == ["command:received", "node:start", "flow:complete"]
    assert caplog.text.count("it has no event") == 4


async def test_a_listener_that_fails_does_not_disturb_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_event: Event) -> None:
        raise ValueError("broken listener")

    async with broadcasting(answer_a_resume) as server:
        runtime = RemoteRuntime(server.url, silence=5)
        leave = runtime.on_event(broken)
        events = events_of(runtime)
        await runtime.run({"message": "hello"})
        assert kinds(events)[-1] == "flow:paused"
        leave()
        leave()
    assert "broken listener" in caplog.text


def test_a_command_before_the_run_is_a_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="has not begun"):
        RemoteRuntime("ws://localhost:42069/ws").dispatch({"type": "send", "message": "x", "runId": "r"})
