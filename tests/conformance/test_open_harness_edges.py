"""The edge cases of the Open Harness specification, on pages of the real clients 5, 6 and 7."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.conformance.http_client import NEWEST, Browser, text_of
from tests.conformance.open_harness import Stage, gate, gated, good, parts_of, said_by, streamed
from tests.conformance.served import eventually
from tests.open_harness.scripted import ScriptedRuntime, deltas, event, node, recorded
from usechat.open_harness.events.adapter import ABORTED
from usechat.open_harness.runtime_protocol import Event
from usechat.open_harness.transport import BUSY, NOT_READY, USED_UP, OpenHarnessChatTransport
from usechat.server import ChatApp

START = event("flow:start", flowName="flow")
END = event("flow:complete", flowName="flow", status="complete")
PIECE = "x" * 1000
PIECES = 200


async def long(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
    """Answer at length, with a stop half way."""
    yield START
    for number in range(PIECES):
        if number == PIECES // 2:
            await gate(runtime, "half")
        yield event("agent:text:delta", "a1", content=PIECE)
    yield END


async def answering(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
    yield START
    yield event("node:start", "a1")
    yield event("agent:text", "a1", content="Hello. ")
    while (message := await runtime.read()) != "end":
        yield event("agent:text", "a1", content=f"Heard {message}. ")
    yield event("node:complete", "a1", output=None)
    yield END


STAGE = Stage(
    {
        "aborted": gated(START, event("node:start", "a1"), *deltas("a1", "Hi"), "abort", event("flow:aborted")),
        "answering": answering,
        "long": long,
        "tool-timeout": streamed(
            *node(
                "a1",
                event("agent:tool", "a1", toolName="search", toolInput={"q": 1}),
                event("agent:tool", "a1", toolName="search", error="search timed out after 30 s"),
                *deltas("a1", "It took too long."),
            )
        ),
        "reload": gated(START, event("node:start", "a1"), *deltas("a1", "One. "), "on", *deltas("a1", "Two."), END),
        "simultaneous": streamed(
            *(event("node:start", "a1"), event("node:start", "b1")),
            *(
                event("agent:text:delta", run, content=f"{run}.{number} ")
                for number in range(3)
                for run in ("a1", "b1")
            ),
            *(event("agent:tool", run, toolName="search", toolInput=run, toolOutput=run) for run in ("b1", "a1")),
            *(event("agent:text:delta", run, content="end") for run in ("a1", "b1")),
            *(event("node:complete", "b1", output=None), event("node:complete", "a1", output=None)),
        ),
    }
)
ONE = ScriptedRuntime(recorded(START, *deltas("a1", "Hi"), END))
SHARED = ScriptedRuntime(answering)

each_release = pytest.mark.parametrize("release", NEWEST)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    never: Any = lambda: None  # noqa: E731
    apps = {
        "never": ChatApp(OpenHarnessChatTransport(never)),
        "one": ChatApp(OpenHarnessChatTransport(ONE)),
        "shared": ChatApp(OpenHarnessChatTransport(SHARED)),
        "kept": ChatApp(OpenHarnessChatTransport(STAGE.make)),
    }
    with STAGE.serving(**apps) as running:
        yield running


@each_release
def test_edge_a_flow_that_is_aborted_by_others_ends_in_an_error(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("aborted")
    chat.page.until_text("Hi")
    chat.pass_gates("abort")
    view = chat.page.settled()
    assert (view["status"], text_of(view)) == ("error", "Hi")
    assert view["error"] is not None
    assert view["error"]["message"] == ABORTED
    eventually(lambda: chat.runtime.listeners == 0, "nobody listens")


@each_release
def test_edge_concurrent_messages_to_a_flow_are_all_taken_by_it(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("answering")
    chat.page.until_text("Hello. ")
    others = [browser.open(release, stage.url("plain"), chat_id=chat.chat_id) for _ in range(3)]
    for number, page in enumerate(others):
        page.send(str(number))
    eventually(lambda: len(chat.runtime.commands) == 3, "all messages are sent")
    assert all({"type": "send", "message": str(number), "runId": "a1"} in chat.runtime.commands for number in range(3))
    last = browser.open(release, stage.url("plain"), chat_id=chat.chat_id)
    last.send("end")
    pages = [chat.page, *others, last]
    views = [page.settled() for page in pages]
    assert all(good(view) for view in views)
    assert {request["status"] for view in views for request in view["requests"]} == {200}
    assert len(chat.runtimes) == 1


def test_edge_concurrent_messages_to_a_runtime_of_another_chat_are_refused(browser: Browser, stage: Stage) -> None:
    first, second = (stage.open(browser, release, "shared") for release in NEWEST[-2:])
    first.page.send("hi")
    first.page.until_text("Hello. ")
    second.page.send("hi")
    view = second.page.settled()
    assert (view["status"], view["error"] and view["error"]["message"]) == ("error", BUSY)
    assert stage.served is not None
    assert stage.served.loop is not None
    stage.served.loop.call_soon_threadsafe(SHARED.dispatch, {"type": "send", "message": "end", "runId": "a1"})
    assert good(first.page.settled())


@each_release
def test_edge_a_runtime_that_was_not_started_says_so(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "hi", "never")
    assert (view["status"], view["error"] and view["error"]["message"]) == ("error", NOT_READY)


def test_edge_a_runtime_that_has_run_already_says_so(browser: Browser, stage: Stage) -> None:
    assert good(stage.answer(browser, NEWEST[-1], "hi", "one"))
    view = stage.answer(browser, NEWEST[-1], "hi", "one")
    assert (view["status"], view["error"] and view["error"]["message"]) == ("error", USED_UP)


@each_release
def test_edge_a_long_answer_comes_piece_by_piece(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("long")
    half = chat.page.until_text(PIECE * (PIECES // 2))
    assert half["status"] == "streaming"
    chat.pass_gates("half")
    chat.page.answer()
    assert text_of(chat.page.look()) == PIECE * PIECES


@each_release
def test_edge_a_tool_that_times_out_ends_in_an_error_and_the_turn_goes_on(
    browser: Browser, stage: Stage, release: str
) -> None:
    view = stage.answer(browser, release, "tool-timeout")
    [tool] = parts_of(view, "tool-")
    assert (good(view), tool["state"], tool["errorText"]) == (True, "output-error", "search timed out after 30 s")
    assert text_of(view) == "It took too long."


@each_release
def test_edge_a_page_that_was_disconnected_reads_the_answer_again(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release, "kept")
    chat.page.send("reload")
    chat.page.until_text("One. ")
    again = browser.open(release, stage.url("kept"), chat_id=chat.chat_id)
    again.resume()
    again.until_text("One. ")
    chat.pass_gates("on")
    again.answer()
    assert text_of(again.look()) == "One. Two."
    chat.page.answer()


@each_release
def test_edge_nodes_that_speak_at_the_same_time_are_kept_in_order(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "simultaneous")
    assert good(view)
    assert [tool["output"] for tool in parts_of(view, "tool-")] == ["b1", "a1"]
    for node_id in ("a", "b"):
        speech = "".join(text for speaker, text in said_by(view) if speaker == node_id)
        assert speech == f"{node_id}1.0 {node_id}1.1 {node_id}1.2 end"
