"""Workflows behind the session API, over real HTTP."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from tests.conformance.served import unanswered_port
from tests.open_harness.remote.session_server import SessionServer
from tests.open_harness.serving import PATIENCE, Serving, serving, until
from tests.open_harness.test_transport import asked
from usechat.errors import InvalidAddress, LocalProtocolError, PublicError
from usechat.open_harness.chat import STOP_SECONDS
from usechat.open_harness.errors import Unreachable
from usechat.open_harness.remote import sessions
from usechat.open_harness.remote.sessions import RemoteSession, RemoteSessions
from usechat.open_harness.runtime_protocol import Event, Runtime, Snapshot
from usechat.open_harness.transport import OpenHarnessChatTransport
from usechat.protocol.chunks import chunk_to_json


class Running(NamedTuple):
    """A server, and a session of it that nobody has started."""

    server: SessionServer
    serving: Serving
    session: RemoteSession
    events: list[Event]

    @property
    def text(self) -> str:
        return "".join(event["payload"]["delta"] for event in self.events if event["name"] == "text:delta")

    def run(self, message: str) -> Awaitable[Snapshot]:
        return self.session.run({"message": message})


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[Running]:
    server = SessionServer()
    async with serving(server.app) as served:
        sessions = RemoteSessions(f"http://127.0.0.1:{served.port}", **({"connect_seconds": PATIENCE} | options))
        session = sessions()
        events: list[Event] = []
        session.on_event(events.append)
        yield Running(server, served, session, events)
        for other in server.sessions.values():
            if other.task is not None:
                other.task.cancel()


def test_a_session_has_the_interface_of_a_runtime() -> None:
    assert isinstance(RemoteSessions("http://localhost:42069")(), Runtime)


@pytest.mark.parametrize("url", ["ws://localhost", "localhost:42069", "http://"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(InvalidAddress, match="begins with http:// or https://"):
        RemoteSessions(url)


async def test_a_session_is_started_and_followed_to_its_end() -> None:
    async with running() as here:
        snapshot = await here.run("one two tool")
        assert [event["name"] for event in here.events] == [
            "workflow:started",
            "agent:started",
            "text:delta",
            "text:delta",
            "tool:called",
            "tool:result",
            "agent:completed",
            "workflow:completed",
        ]
        assert (snapshot["status"], snapshot["runId"]) == ("complete", "s1")
        assert here.server.requests == ["GET events history=true&fromPosition=0"]


async def test_half_a_character_does_no_harm() -> None:
    async with running() as here:
        assert (await here.run("one\ud800"))["status"] == "complete"


async def test_a_session_that_requests_input_pauses_and_goes_on_with_the_answer() -> None:
    async with running() as here:
        assert (await here.run("one ask two"))["status"] == "paused"
        assert here.events[-1]["name"] == "input:requested"
        assert (await here.session.resume("yes"))["status"] == "complete"
        assert here.server.sessions["s1"].inputs == ["yes"]
        assert here.text == "one two "
        assert [event["id"] for event in here.events] == [f"e{number}" for number in range(8)]
        assert here.server.requests[-1] == "GET events history=true&fromPosition=4"


@pytest.mark.parametrize(("answer", "approved"), [("Yes, do it", True), ("no", False), ("approved", False)])
async def test_an_answer_without_an_id_belongs_to_the_question_that_was_asked(answer: str, approved: bool) -> None:
    """The newest server says so; what begins with "y" is an approval there, and nothing else."""
    async with running() as here:
        here.server.says_response = True
        await here.run("approve")
        await here.session.resume(answer)
        [received] = [event["payload"] for event in here.events if event["name"] == "input:received"]
        assert received == {"id": "q1", "value": answer, "approved": approved, "response": answer}


@pytest.mark.parametrize(
    ("script", "text", "posted"),
    [
        ("approve", "You must not do that!", "no: You must not do that!"),
        ("approve", "yesterday", "no: yesterday"),
        ("approve", "Yes, do it", "Yes, do it"),
        ("approve", "y", "y"),
        ("approve", "Never", "Never"),
        ("ask", "Yellow", "Yellow"),
    ],
)
async def test_a_message_approves_only_if_its_first_word_does(script: str, text: str, posted: str) -> None:
    """The engine takes everything that begins with "y" as an approval."""
    async with running() as here:
        await here.run(script)
        await here.session.resume(text)
        assert here.server.sessions["s1"].inputs == [posted]


async def test_a_choice_without_an_id_is_no_approval() -> None:
    async with running() as here:
        here.server.says_response = True
        await here.run("ask")
        await here.session.resume("no")
        [received] = [event["payload"] for event in here.events if event["name"] == "input:received"]
        assert received == {"id": "q1", "value": "no", "response": "no"}


async def test_a_broken_connection_is_opened_again_at_the_last_position_and_nothing_comes_twice() -> None:
    async with running() as here:
        here.server.break_after = 3
        assert (await here.run("one two three four"))["status"] == "complete"
        assert here.text == "one two three four "
        assert here.server.requests == [
            "GET events history=true&fromPosition=0",
            "GET events history=true&fromPosition=4",
        ]


async def test_a_connection_that_cannot_be_opened_again_is_an_error_that_the_user_sees() -> None:
    async with running(connect_seconds=1) as here:
        turn = asyncio.ensure_future(here.run("one hang"))
        await until(lambda: here.text)
        here.server.status = 500
        here.serving.cut()
        with pytest.raises(PublicError, match=sessions.LOST):
            await turn
        assert here.session.get_snapshot()["status"] == "aborted"


async def test_a_session_that_was_deleted_is_an_error_that_the_user_sees() -> None:
    async with running() as here:
        turn = asyncio.ensure_future(here.run("one hang"))
        await until(lambda: here.text)
        here.server.status = 404
        here.serving.cut()
        with pytest.raises(PublicError, match=sessions.NO_SESSION):
            await turn


async def test_a_workflow_that_dies_without_a_word_is_noticed() -> None:
    async with running(silence=0.2) as here:
        with pytest.raises(PublicError, match=sessions.GONE):
            await here.run("one die")
        assert here.text == "one "
        assert "GET s1" in here.server.requests


async def test_a_silent_workflow_that_runs_is_waited_for() -> None:
    async with running(silence=0.1) as here:
        turn = asyncio.ensure_future(here.run("one hang"))
        await until(lambda: here.server.requests.count("GET s1") >= 2)
        assert not turn.done()
        await here.server.sessions["s1"].emit("workflow:completed")
        assert (await turn)["status"] == "complete"


async def test_an_end_that_the_server_lost_between_history_and_live_events_is_found() -> None:
    async with running(silence=0.2) as here:
        here.server.miss = {"e4"}
        assert (await here.run("one"))["status"] == "complete"
        assert here.events[-1]["name"] == "workflow:completed"


async def test_a_phase_that_ends_in_an_error_ends_the_turn() -> None:
    async with running() as here:
        await here.run("one error")
        assert here.events[-1]["payload"] == {"phase": "writing", "reason": "error"}


async def test_a_cancelled_turn_has_paused_the_session_before_it_is_over() -> None:
    async with running() as here:
        turn = asyncio.ensure_future(here.run("one hang"))
        await until(lambda: here.text)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert here.server.requests[-1] == "POST pause"
        await until(lambda: not here.server.sessions["s1"].running)


async def test_a_turn_that_is_cancelled_while_its_session_is_being_made_pauses_that_session() -> None:
    async with running() as here:
        here.server.let_create.clear()
        turn = asyncio.ensure_future(here.run("one hang"))
        await until(lambda: here.server.sessions)
        turn.cancel()
        await asyncio.sleep(0)
        here.server.let_create.set()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert here.server.requests == ["POST pause"]


async def test_frames_that_hold_no_event_are_ignored(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as here:
        here.server.noise = [": comment\n\n", "data: nonsense\n\n", "data: []\n\n", 'data: {"id":"x"}\n\n']
        assert (await here.run("one"))["status"] == "complete"
        assert here.text == "one "
    assert caplog.text.count("it has no event") == 3


async def test_a_listener_that_fails_does_not_disturb_the_others(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_event: Event) -> None:
        raise ValueError("broken listener")

    async with running() as here:
        leave = here.session.on_event(broken)
        await here.run("one")
        leave()
        leave()
        assert here.text == "one "
    assert "broken listener" in caplog.text


async def test_a_session_without_an_id_is_an_error_that_the_user_sees() -> None:
    async with running() as here:
        here.server.nameless = True
        with pytest.raises(PublicError, match=sessions.REFUSED):
            await here.run("one")


async def test_a_request_that_breaks_off_is_not_made_twice() -> None:
    async with running() as here:
        here.server.let_create.clear()
        turn = asyncio.ensure_future(here.run("one"))
        await until(lambda: here.server.sessions)
        here.serving.cut()
        with pytest.raises(PublicError, match=sessions.LOST):
            await turn
        assert len(here.server.sessions) == 1
        here.server.let_create.set()


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ({"type": "stop"}, "aborted"),
        ({"type": "abort"}, "aborted"),
        ({"type": "pause"}, "paused"),
        ({"type": "abort", "resumable": True}, "paused"),
    ],
)
async def test_an_interrupted_turn_ends_with_the_servers_answer_because_no_event_follows(
    command: dict[str, Any], status: str
) -> None:
    async with running() as here:
        turn = asyncio.ensure_future(here.run("one hang"))
        await until(lambda: here.text)
        here.session.dispatch(command)
        async with asyncio.timeout(PATIENCE):
            snapshot = await turn
        assert (snapshot["status"], here.server.requests[-1]) == (status, "POST pause")


async def statuses_after_a_stop(here: Running) -> dict[str, str]:
    """Stop a workflow that hangs; return the last status of the flow and of each node."""
    transport = OpenHarnessChatTransport(lambda: here.session, send_flow_metadata=True)
    stream = await transport.send_messages(asked("one hang"))
    again = await transport.reconnect_to_stream("c")
    async for chunk in stream:
        if chunk_to_json(chunk)["type"] == "text-delta":
            break
    async with asyncio.timeout(STOP_SECONDS / 2):
        await stream.aclose()  # type: ignore[attr-defined]
    assert again is not None
    chunks = [chunk_to_json(chunk) async for chunk in again]
    return {chunk["id"]: chunk["data"]["status"] for chunk in chunks if chunk["type"].startswith("data-")}


ABORTED = {"flow-status": "aborted", "node-writer-1": "aborted"}


async def test_after_a_stop_the_workflow_and_its_agents_are_aborted(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as here:
        assert await statuses_after_a_stop(here) == ABORTED
        assert "did not end in time" not in caplog.text


@pytest.mark.parametrize("status", [404, 409, 500])
async def test_a_stop_ends_at_once_although_the_server_refuses_to_pause(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as here:
        here.server.pause_status = status
        assert await statuses_after_a_stop(here) == ABORTED
        assert here.server.requests.count("POST pause") == 1
        assert "did not accept a command" in caplog.text
        assert "did not end in time" not in caplog.text


async def test_a_stop_ends_soon_although_the_server_does_not_answer(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as here:
        here.server.let_pause.clear()
        assert await statuses_after_a_stop(here) == ABORTED
        assert "did not answer a command in time" in caplog.text
        here.server.let_pause.set()


async def test_a_refused_pause_leaves_the_workflow_running() -> None:
    async with running() as here:
        here.server.pause_status = 409
        turn = asyncio.ensure_future(here.run("one hang"))
        await until(lambda: here.text)
        here.session.pause()
        await until(lambda: "POST pause" in here.server.requests)
        await here.server.sessions["s1"].emit("workflow:completed")
        assert (await turn)["status"] == "complete"


async def test_a_message_while_it_runs_is_posted_as_input() -> None:
    async with running() as here:
        turn = asyncio.ensure_future(here.run("one hang"))
        await until(lambda: here.text)
        here.session.dispatch({"type": "send", "message": "more", "runId": "writer-1"})
        await until(lambda: here.server.sessions["s1"].inputs == ["more"])
        here.session.dispatch({"type": "stop"})
        await turn


async def test_a_command_that_no_session_knows_is_a_mistake() -> None:
    with pytest.raises(LocalProtocolError, match="knows no command 'dance'"):
        RemoteSessions("http://localhost:42069")().dispatch({"type": "dance"})


@pytest.mark.parametrize("status", [400, 500, 503])
async def test_a_server_that_refuses_is_an_error_that_the_user_sees(status: int) -> None:
    async with running() as here:
        here.server.status = status
        with pytest.raises(PublicError, match=sessions.REFUSED):
            await here.run("one")


async def test_a_message_without_text_is_an_error_that_the_user_sees() -> None:
    async with running() as here:
        with pytest.raises(PublicError, match="needs text"):
            await here.run("")
        assert here.server.sessions == {}
        with pytest.raises(PublicError, match="needs text"):
            await here.session.resume("")


async def test_a_command_that_cannot_be_posted_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as here:
        turn = asyncio.ensure_future(here.run("one hang"))
        await until(lambda: here.text)
        here.server.sessions.clear()
        here.session.pause()
        await until(lambda: "did not accept a command" in caplog.text)
        turn.cancel()
        await asyncio.wait([turn])


async def test_what_is_not_running_needs_no_pause() -> None:
    RemoteSessions("http://localhost:42069")().pause()


async def test_a_server_that_is_not_there_is_an_error_that_the_user_sees() -> None:
    with unanswered_port() as port, pytest.raises(Unreachable, match="cannot be reached"):
        await RemoteSessions(f"http://127.0.0.1:{port}", connect_seconds=0.2)().run({"message": "one"})
