"""kill -9 in the middle of an answer: no effect happens twice, and a new process goes on at once."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.chats.crashing import CrashingServer
from tests.chats.talking import texts, user
from tests.server.process import eventually
from tests.server.sockets import Body
from usechat.protocol.ui_messages import UIMessage, tool_parts_of

pytestmark = pytest.mark.stores

Start = Callable[..., CrashingServer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process; all use one database."""
    servers: list[CrashingServer] = []

    def start_one(**options: Any) -> CrashingServer:
        servers.append(CrashingServer(tmp_path / "chats.db", **options))
        return servers[-1]

    yield start_one
    for server in servers:
        server.kill()


def said(text: str) -> Callable[[bytes], bool]:
    return lambda data: text.encode() in data


def post(*messages: Any) -> dict[str, Any]:
    return {"id": "c1", "messages": list(messages)}


def with_part(message: UIMessage, **fields: Any) -> UIMessage:
    """The page's copy of an answer whose only call it has answered."""
    parts: list[Any] = [{**part, **fields} if part["type"].startswith("tool-") else part for part in message["parts"]]
    return {**message, "parts": parts}


def approved(message: UIMessage) -> UIMessage:
    approval = next(part["approval"] for part in tool_parts_of(message))
    return with_part(message, state="approval-responded", approval={**approval, "approved": True})


def states(message: UIMessage) -> dict[str, str]:
    return {part["toolCallId"]: part["state"] for part in tool_parts_of(message)}


def test_an_approved_tool_runs_once_although_its_process_dies_after_the_result(start: Start) -> None:
    first = start()
    first.ask(post(user("u1", "pay")))
    approval = post(user("u1", "pay"), approved(first.answer_of()))
    first.ask(approval, until=said("Paid."))
    second = start()
    second.ask(approval)
    assert second.effects == ["pay"]
    assert states(second.answer_of()) == {"t1": "output-available"}


def test_a_tool_that_followed_the_output_of_a_client_tool_runs_once(start: Start) -> None:
    first = start()
    first.ask(post(user("u1", "book")))
    output = post(user("u1", "book"), with_part(first.answer_of(), state="output-available", output="Rome"))
    first.ask(output, until=said("Booked."))
    second = start()
    second.ask(output)
    assert second.effects == ["book"]
    assert states(second.answer_of()) == {"t1": "output-available", "t2": "output-available"}


def test_a_call_is_stored_before_its_tool_starts(start: Start) -> None:
    first = start()
    first.ask(post(user("u1", "search")), until=said("searching"))
    second = start()
    answer = second.answer_of()
    assert (texts([answer]), states(answer)) == (["Let me see."], {"t1": "output-error"})


def test_a_restarted_process_shows_the_partial_answer_and_goes_on_at_once(start: Start) -> None:
    first = start()
    first.ask(post(user("u1", "search")), until=said("searching"))
    second = start()
    loaded = second.load()
    assert (texts(loaded["messages"]), loaded["running"]) == (["search", "Let me see."], None)
    assert list(loaded["outcomes"].values()) == ["lost"]
    assert second.ask(post(user("u2", "Next"))).text == "3: Next"


def test_another_process_takes_the_chat_of_one_that_dies(start: Start) -> None:
    first, second = start(), start()
    assert second.ask(post(user("u1", "Hello"))).text == "1: Hello", "it runs already"
    first.ask(post(user("u2", "search")), until=said("searching"))
    assert second.ask(post(user("u3", "Next"))).text == "5: Next"


@contextmanager
def answering(server: CrashingServer, text: str) -> Iterator["Future[Body]"]:
    """Ask in another thread; a test that fails ends the server, and so the request."""
    with ThreadPoolExecutor() as threads:
        future = threads.submit(server.ask, post(user("u1", text)))
        try:
            eventually(server.has_saved, "the answer has begun")
            yield future
        except BaseException:
            server.kill()
            raise


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_process_that_was_paused_for_too_long_starts_no_tool(start: Start, in_thread: bool) -> None:
    first, second = start(lease=1, in_thread=in_thread), start(lease=1)
    with answering(first, "gate") as answer:
        first.pause()
        assert second.ask(post(user("u2", "Next"))).text == "3: Next", "it waits until the lease has expired"
        first.open_gate()
        first.signal(signal.SIGCONT)
        assert b"The run was lost." in answer.result().data
    assert first.effects == []
    assert texts(second.load()["messages"]) == ["gate", "Half", "Next", "3: Next"]


@pytest.mark.parametrize("in_thread", [False, True])
def test_a_process_that_was_paused_for_longer_than_its_lease_goes_on_if_nobody_took_its_chat(
    start: Start, in_thread: bool
) -> None:
    server = start(lease=1, in_thread=in_thread)
    with answering(server, "gate") as answer:
        server.pause()
        eventually(lambda: server.claimed_for() < 0, "the lease has expired")
        server.open_gate()
        server.signal(signal.SIGCONT)
        assert (answer.result().text, answer.result().complete) == ("Half", True)
    assert server.effects == ["open"]
    assert list(server.load()["outcomes"].values()) == ["waiting"], "its call has no result"


def test_a_process_that_lives_keeps_its_chat(start: Start) -> None:
    first, second = start(lease=6), start(lease=6)
    with answering(first, "gate") as answer:
        assert second.ask(post(user("u2", "Next"))).data == b"This chat is being answered already."
        first.open_gate()
        assert answer.result().text == "Half"
    assert second.ask(post(user("u2", "Next"))).text == "3: Next"
