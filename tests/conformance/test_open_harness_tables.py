"""Every row of the two tables of the Open Harness data model, on pages of the real clients 5, 6 and 7."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.http_client import NEWEST, Browser, View, text_of
from tests.conformance.open_harness import Chat, Stage, gated, good, last, parts_of, shape
from tests.open_harness.scripted import event, recorded
from usechat.open_harness.events.adapter import ABORTED

START = event("flow:start", flowName="flow")
NODE = event("node:start", "a1")
END = event("flow:complete", flowName="flow", status="complete")
DELTA = event("agent:text:delta", "a1", content="Hel")
MORE = event("agent:text:delta", "a1", content="lo")
FULL = event("agent:text", "a1", content="Hello")
THINKING = event("agent:thinking:delta", "a1", content="Hm")
THOUGHT = event("agent:thinking", "a1", content="Hm")
CALL = event("agent:tool", "a1", toolName="search", toolInput={"q": 1})
RESULT = event("agent:tool", "a1", toolName="search", toolOutput={"hits": 2})
USAGE = {"inputTokens": 3, "outputTokens": 2}

STAGE = Stage(
    {
        "delta": gated(START, NODE, DELTA, "go", MORE, "on", FULL, "end", END),
        "full": gated(START, NODE, FULL, "go", END),
        "thinking": gated(START, NODE, THINKING, "go", THINKING, "on", THOUGHT, "end", END),
        "thought": gated(START, NODE, THOUGHT, "go", END),
        "tool": gated(START, NODE, CALL, "go", RESULT, "on", END),
        "whole": recorded(START, NODE, {**CALL, **RESULT}, END),
        "text-then-tool": gated(START, NODE, DELTA, CALL, "go", RESULT, END),
        "thinking-then-text": gated(START, NODE, THINKING, DELTA, "go", END),
        "agent-error": recorded(
            START, event("agent:error", "a1", errorType="auth", message="401"), event("flow:complete", status="failed")
        ),
        "bare-error": recorded(DELTA, event("agent:error", "a1", errorType="auth", message="401")),
        "agent-complete": recorded(FULL, event("agent:complete", "a1", result="Hello", usage=USAGE), MORE),
        "agent-paused": recorded(FULL, event("agent:paused", "a1", sessionId="s"), MORE),
        "agent-aborted": recorded(FULL, event("agent:aborted", "a1", reason="x"), MORE),
        "node-start": gated(
            START, NODE, FULL, event("node:start", "b1"), event("agent:text", "b1", content="Bye"), END
        ),
        "node-complete": recorded(START, NODE, event("node:complete", "a1", output={"n": 1}), END),
        "flow-paused": recorded(START, FULL, event("flow:paused"), MORE),
        "flow-complete": recorded(START, FULL, END, MORE),
    }
)

each_release = pytest.mark.parametrize("release", NEWEST)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with STAGE.serving() as running:
        yield running


def begun(stage: Stage, browser: Browser, release: str, script: str) -> Chat:
    chat = stage.open(browser, release)
    chat.page.send(script)
    return chat


def until_shape(chat: Chat, *parts: Any) -> View:
    """Wait until the answer so far has these parts, behind its first step."""
    return chat.page.until(lambda now: bool(now["messages"][1:]) and shape(last(now))[1:] == list(parts))


def finished(chat: Chat) -> View:
    chat.pass_gates("go", "on", "end")
    view = chat.page.settled()
    assert good(view)
    return view


def text(words: str, state: str) -> Any:
    return {"type": "text", "text": words, "state": state}


def reasoning(words: str, state: str) -> Any:
    return {"type": "reasoning", "text": words, "state": state}


CALLED = {"type": "tool-search", "state": "input-available", "input": {"q": 1}}
DONE = {"type": "tool-search", "state": "output-available", "input": {"q": 1}, "output": {"hits": 2}}


# What events become


@each_release
def test_event_agent_text_delta_begins_and_continues_text(browser: Browser, stage: Stage, release: str) -> None:
    chat = begun(stage, browser, release, "delta")
    until_shape(chat, text("Hel", "streaming"))
    chat.pass_gates("go")
    until_shape(chat, text("Hello", "streaming"))
    finished(chat)


@each_release
def test_event_agent_text_ends_text_and_does_not_repeat_it(browser: Browser, stage: Stage, release: str) -> None:
    chat = begun(stage, browser, release, "delta")
    chat.pass_gates("go", "on")
    assert until_shape(chat, text("Hello", "done"))["status"] == "streaming"
    finished(chat)


@each_release
def test_event_agent_text_without_deltas_is_the_whole_text(browser: Browser, stage: Stage, release: str) -> None:
    chat = begun(stage, browser, release, "full")
    until_shape(chat, text("Hello", "done"))
    finished(chat)


@each_release
def test_event_agent_thinking_delta_begins_and_continues_reasoning(
    browser: Browser, stage: Stage, release: str
) -> None:
    chat = begun(stage, browser, release, "thinking")
    until_shape(chat, reasoning("Hm", "streaming"))
    chat.pass_gates("go")
    until_shape(chat, reasoning("HmHm", "streaming"))
    finished(chat)


@each_release
def test_event_agent_thinking_ends_reasoning(browser: Browser, stage: Stage, release: str) -> None:
    chat = begun(stage, browser, release, "thinking")
    chat.pass_gates("go", "on")
    assert until_shape(chat, reasoning("HmHm", "done"))["status"] == "streaming"
    finished(chat)


@each_release
def test_event_agent_thinking_without_deltas_is_the_whole_reasoning(
    browser: Browser, stage: Stage, release: str
) -> None:
    chat = begun(stage, browser, release, "thought")
    until_shape(chat, reasoning("Hm", "done"))
    finished(chat)


@each_release
def test_event_agent_tool_is_an_input_and_an_output(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "whole")
    assert (good(view), shape(last(view))[1:]) == (True, [DONE])


@each_release
@pytest.mark.parametrize("script", ["agent-error", "bare-error"])
def test_event_agent_error_is_an_error(browser: Browser, stage: Stage, release: str, script: str) -> None:
    view = stage.answer(browser, release, script)
    sentence = "The step “a” was refused by a service that it needs: its credentials are missing or not valid."
    assert (view["status"], view["error"] and view["error"]["message"]) == ("error", sentence)


@each_release
def test_event_agent_complete_closes_the_stream_of_a_bare_agent(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "agent-complete")
    assert (good(view), text_of(view), last(view)["metadata"]["usage"]) == (True, "Hello", USAGE)


@each_release
def test_event_agent_paused_closes_the_stream_of_a_bare_agent(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "agent-paused")
    assert (good(view), text_of(view)) == (True, "Hello")
    assert last(view)["metadata"]["openHarness"] == {"status": "paused"}


@each_release
def test_event_agent_aborted_is_an_error_and_closes_the_stream_of_a_bare_agent(
    browser: Browser, stage: Stage, release: str
) -> None:
    view = stage.answer(browser, release, "agent-aborted")
    assert (view["status"], text_of(view), view["error"] and view["error"]["message"]) == ("error", "Hello", ABORTED)


@each_release
def test_event_node_start_is_a_step(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "node-start")
    assert (good(view), [part["type"] for part in last(view)["parts"]]) == (True, ["step-start", "text"] * 2)


@each_release
def test_event_node_complete_is_an_output_if_it_is_wanted(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "node-complete", "outputs")
    [output] = parts_of(view, "data-")
    assert (good(view), output["type"]) == (True, "data-node-output")
    assert output["data"] == {"nodeId": "a", "runId": "a1", "output": {"n": 1}}
    assert parts_of(stage.answer(browser, release, "node-complete"), "data-") == []


@each_release
@pytest.mark.parametrize(("script", "status"), [("flow-paused", "paused"), ("flow-complete", "complete")])
def test_event_flow_paused_and_flow_complete_are_a_status_if_it_is_wanted_and_close_the_stream(
    browser: Browser, stage: Stage, release: str, script: str, status: str
) -> None:
    view = stage.answer(browser, release, script, "data")
    assert (good(view), text_of(view)) == (True, "Hello")
    assert [part["data"] for part in parts_of(view, "data-flow-status")] == [{"status": status, "flowName": "flow"}]
    assert parts_of(stage.answer(browser, release, script), "data-") == []


# When chunks are sent


@each_release
def test_chunk_text_start_is_sent_with_the_first_delta(browser: Browser, stage: Stage, release: str) -> None:
    chat = begun(stage, browser, release, "delta")
    until_shape(chat, text("Hel", "streaming"))
    finished(chat)


@each_release
def test_chunk_text_delta_is_sent_with_each_delta(browser: Browser, stage: Stage, release: str) -> None:
    chat = begun(stage, browser, release, "delta")
    for gate, words in (("go", "Hel"), ("on", "Hello")):
        chat.page.until_text(words)
        chat.pass_gates(gate)
    assert text_of(finished(chat)) == "Hello"


@each_release
@pytest.mark.parametrize("script", ["delta", "text-then-tool"])
def test_chunk_text_end_is_sent_after_the_last_text_or_before_another_part(
    browser: Browser, stage: Stage, release: str, script: str
) -> None:
    chat = begun(stage, browser, release, script)
    if script == "delta":
        chat.pass_gates("go", "on")
        until_shape(chat, text("Hello", "done"))
    else:
        until_shape(chat, text("Hel", "done"), CALLED)
    finished(chat)


@each_release
def test_chunk_reasoning_start_is_sent_with_the_first_delta(browser: Browser, stage: Stage, release: str) -> None:
    chat = begun(stage, browser, release, "thinking")
    until_shape(chat, reasoning("Hm", "streaming"))
    finished(chat)


@each_release
def test_chunk_reasoning_delta_is_sent_with_each_delta(browser: Browser, stage: Stage, release: str) -> None:
    chat = begun(stage, browser, release, "thinking")
    for gate, words in (("go", "Hm"), ("on", "HmHm")):
        until_shape(chat, reasoning(words, "streaming"))
        chat.pass_gates(gate)
    finished(chat)


@each_release
@pytest.mark.parametrize("script", ["thinking", "thinking-then-text"])
def test_chunk_reasoning_end_is_sent_after_the_last_thinking_or_before_another_part(
    browser: Browser, stage: Stage, release: str, script: str
) -> None:
    chat = begun(stage, browser, release, script)
    if script == "thinking":
        chat.pass_gates("go", "on")
        until_shape(chat, reasoning("HmHm", "done"))
    else:
        until_shape(chat, reasoning("Hm", "done"), text("Hel", "streaming"))
    finished(chat)


@each_release
def test_chunk_tool_input_available_is_sent_with_the_input(browser: Browser, stage: Stage, release: str) -> None:
    chat = begun(stage, browser, release, "tool")
    until_shape(chat, CALLED)
    finished(chat)


@each_release
def test_chunk_tool_output_available_is_sent_with_the_output(browser: Browser, stage: Stage, release: str) -> None:
    chat = begun(stage, browser, release, "tool")
    chat.pass_gates("go")
    assert until_shape(chat, DONE)["status"] == "streaming"
    finished(chat)


@each_release
def test_chunk_start_step_is_sent_when_a_node_starts(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "node-start")
    assert (good(view), len(parts_of(view, "step-start"))) == (True, 2)


@each_release
@pytest.mark.parametrize("script", ["agent-error", "bare-error", "agent-aborted"])
def test_chunk_error_is_sent_when_an_agent_fails_or_is_aborted(
    browser: Browser, stage: Stage, release: str, script: str
) -> None:
    view = stage.answer(browser, release, script)
    assert view["status"] == "error"
    assert view["error"] is not None
    assert view["error"]["message"].startswith("The ")
