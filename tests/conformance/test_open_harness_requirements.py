"""The functional requirements of the Open Harness specification, on pages of the real clients 5, 6 and 7."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.conformance.http_client import NEWEST, Browser, said, text_of
from tests.conformance.judge import ALL_RELEASES
from tests.conformance.open_harness import (
    Stage,
    gate,
    gated,
    good,
    last,
    parts_of,
    said_by,
    shape,
    streamed,
    whole_tool,
)
from tests.conformance.served import eventually
from tests.open_harness.scripted import ScriptedRuntime, deltas, event, flow, node, recorded
from usechat.open_harness.runtime_protocol import Event
from usechat.open_harness.transport import OpenHarnessChatTransport
from usechat.server import ChatApp
from usechat.sources import ChatTransport

START = event("flow:start", flowName="flow")
END = event("flow:complete", flowName="flow", status="complete")


async def listening(runtime: ScriptedRuntime) -> AsyncIterator[Event]:
    """Greet, answer one further message, and end."""
    yield START
    yield event("node:start", "a1")
    yield event("agent:text", "a1", content="Hello. ")
    yield event("agent:text", "a1", content=f"Heard {await runtime.read()}. ")
    await gate(runtime, "end")
    yield event("node:complete", "a1", output=None)
    yield END


FULL = [
    *deltas("a1", "Hm", ".", kind="thinking"),
    *deltas("a1", "Look", "ing."),
    whole_tool("a1"),
    *deltas("a1", "Found."),
]
STAGE = Stage(
    {
        "full": streamed(*node("a1", *FULL)),
        "streaming": gated(
            *(START, event("node:start", "a1"), event("agent:thinking:delta", "a1", content="Hm"), "one"),
            *(event("agent:thinking", "a1", content="Hm"), event("agent:text:delta", "a1", content="Hel"), "two"),
            *(event("agent:text:delta", "a1", content="lo"), event("agent:text", "a1", content="Hello"), "three", END),
        ),
        "endless": gated(START, event("node:start", "a1"), *deltas("a1", "Work"), "never", END),
        "error": recorded(
            *flow(
                event("node:start", "a1"),
                event("agent:error", "a1", errorType="rate_limit", message="429 at 10.0.0.1"),
                event("node:error", "a1", error="429 at 10.0.0.1"),
                status="failed",
            )
        ),
        "bare-complete": recorded(*deltas("a1", "Hi"), event("agent:complete", "a1", result="Hi")),
        "bare-paused": recorded(*deltas("a1", "Hi"), event("agent:paused", "a1")),
        "two": streamed(
            *node("a1", *deltas("a1", "One."), event("agent:complete", "a1", usage={"inputTokens": 1})),
            *node("b1", *deltas("b1", "Two."), event("agent:complete", "b1", usage={"inputTokens": 2})),
        ),
        "listen": listening,
        "mixed": streamed(
            *(event("node:start", "a1"), event("node:start", "b1")),
            *(
                event("agent:text:delta", run, content=word)
                for word in ("One ", "two ", "three")
                for run in ("a1", "b1")
            ),
            *(event("node:complete", "a1", output=None), event("node:complete", "b1", output=None)),
        ),
        "no-output": gated(
            START,
            *node("a1", event("agent:tool", "a1", toolName="search", toolInput={"q": 1}), *deltas("a1", "Well.")),
            "end",
            END,
        ),
        "nameless": streamed(*node("a1", event("agent:tool", "a1", toolOutput={"hits": 2}))),
    }
)

each_release = pytest.mark.parametrize("release", NEWEST)


class OnlyTransport:
    """The two methods of the AI SDK's interface and nothing else."""

    def __init__(self, transport: ChatTransport) -> None:
        self.send_messages = transport.send_messages
        self.reconnect_to_stream = transport.reconnect_to_stream


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    transport = OpenHarnessChatTransport(STAGE.make)
    with STAGE.serving(interface=ChatApp(OnlyTransport(transport))) as running:
        yield running


@each_release
def test_fr_001_the_two_methods_of_the_chat_transport_are_enough(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "full", "interface")
    assert good(view)
    assert text_of(view) == "Looking.Found."


@each_release
def test_fr_002_text_deltas_are_the_text_of_the_message_with_the_id_of_the_stream(
    browser: Browser, stage: Stage, release: str
) -> None:
    view = stage.answer(browser, release, "full", "named")
    assert (good(view), text_of(view)) == (True, "Looking.Found.")
    assert last(view)["id"].startswith("named-")


@each_release
def test_fr_003_thinking_deltas_are_reasoning(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "full")
    assert (good(view), [part["text"] for part in parts_of(view, "reasoning")]) == (True, ["Hm."])


@each_release
def test_fr_004_a_tool_event_is_a_tool_part_with_input_and_output(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "full")
    [tool] = parts_of(view, "tool-")
    assert good(view)
    assert (tool["type"], tool["state"], tool["input"], tool["output"]) == (
        *("tool-search", "output-available"),
        *({"q": 1}, {"hits": 2}),
    )
    assert [call["toolName"] for call in view["toolCalls"]] == ["search"]
    [nameless] = parts_of(stage.answer(browser, release, "nameless"), "tool-")
    assert (nameless["type"], nameless["input"], nameless["output"]) == ("tool-unknown", {}, {"hits": 2})


@each_release
def test_fr_005_a_node_that_starts_is_a_step(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "two")
    assert (good(view), [part["type"] for part in last(view)["parts"]]) == (True, ["step-start", "text"] * 2)


@each_release
def test_fr_006_all_events_of_a_turn_are_one_assistant_message(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "full")
    assert (good(view), [message["role"] for message in view["messages"]]) == (True, ["user", "assistant"])
    assert [part["type"] for part in last(view)["parts"]] == [
        *("step-start", "reasoning", "text", "tool-search"),
        *("step-start", "text"),
    ]


@each_release
def test_fr_007_the_last_user_message_is_given_to_the_runtime(browser: Browser, stage: Stage, release: str) -> None:
    history = [said("user", "full", "u1"), said("assistant", "earlier", "m1")]
    chat = stage.open(browser, release, messages=history)
    parts = [{"type": "text", "text": "full "}, {"type": "text", "text": "and last"}]
    chat.page.call("sendMessage", {"parts": parts})
    chat.page.answer()
    assert chat.runtime.input["message"] == "full and last"
    assert [message["role"] for message in chat.runtime.input["messages"]] == ["user", "assistant", "user"]


@each_release
def test_fr_008_the_stream_is_read_while_it_is_written(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("streaming")
    chat.pass_gates("one")
    assert chat.page.until_text("Hel")["status"] == "streaming"
    chat.pass_gates("two")
    assert chat.page.until_text("Hello")["status"] == "streaming"
    chat.pass_gates("three")
    assert good(chat.page.settled())


@each_release
@pytest.mark.parametrize("how", ["page", "server"])
def test_fr_009_an_abort_stops_the_runtime_too(browser: Browser, stage: Stage, release: str, how: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("endless")
    chat.page.until_text("Work")
    if how == "page":
        chat.page.stop()
    else:
        chat.stop()
    view = chat.page.settled()
    assert (good(view), text_of(view)) == (True, "Work")
    eventually(lambda: chat.runtime.status == "aborted", "the runtime stops")
    assert (chat.runtime.commands, chat.runtime.listeners) == ([{"type": "stop"}], 0)


@each_release
@pytest.mark.parametrize("app", ["plain", "named"])
def test_fr_010_every_answer_has_an_id_of_its_own(browser: Browser, stage: Stage, release: str, app: str) -> None:
    chat = stage.open(browser, release, app)
    for _ in range(3):
        chat.page.send("full")
        chat.page.answer()
    messages = chat.page.look()["messages"]
    assert len({message["id"] for message in messages}) == len(messages) == 6


@each_release
def test_fr_011_text_is_streaming_from_its_first_delta_and_then_done(
    browser: Browser, stage: Stage, release: str
) -> None:
    chat = stage.open(browser, release)
    chat.page.send("streaming")
    chat.pass_gates("one")
    assert [part["state"] for part in parts_of(chat.page.until_text("Hel"), "text")] == ["streaming"]
    chat.pass_gates("two")
    done = chat.page.until(lambda now: [part["state"] for part in parts_of(now, "text")] == ["done"])
    assert (done["status"], text_of(done)) == ("streaming", "Hello")
    chat.pass_gates("three")
    chat.page.answer()


@each_release
def test_fr_012_reasoning_is_streaming_from_its_first_delta_and_then_done(
    browser: Browser, stage: Stage, release: str
) -> None:
    def states(view: Any) -> list[str]:
        return [part["state"] for part in parts_of(view, "reasoning")] if view["messages"][1:] else []

    chat = stage.open(browser, release)
    chat.page.send("streaming")
    chat.page.until(lambda now: states(now) == ["streaming"])
    chat.pass_gates("one")
    assert chat.page.until(lambda now: states(now) == ["done"])["status"] == "streaming"
    chat.pass_gates("two", "three")
    chat.page.answer()


@each_release
def test_fr_013_an_agents_error_is_told_once_in_a_friendly_sentence(
    browser: Browser, stage: Stage, release: str
) -> None:
    view = stage.answer(browser, release, "error")
    assert view["status"] == "error"
    assert view["error"] is not None
    sentence = "The step “a” was refused because of too many requests. Please try again in a moment."
    assert view["error"]["message"] == sentence


@each_release
@pytest.mark.parametrize("script", ["bare-complete", "bare-paused"])
def test_fr_014_a_bare_agent_that_completes_or_pauses_completes_the_stream(
    browser: Browser, stage: Stage, release: str, script: str
) -> None:
    view = stage.answer(browser, release, script)
    assert (good(view), text_of(view)) == (True, "Hi")


@each_release
def test_fr_014_in_a_flow_the_stream_goes_on_after_the_first_agent(
    browser: Browser, stage: Stage, release: str
) -> None:
    view = stage.answer(browser, release, "two")
    assert (good(view), said_by(view)) == (True, [("a", "One."), ("b", "Two.")])
    assert last(view)["metadata"]["usage"] == {"inputTokens": 3}


@each_release
def test_fr_015_data_parts_about_the_flow_and_its_nodes_can_be_had(
    browser: Browser, stage: Stage, release: str
) -> None:
    view = stage.answer(browser, release, "two", "data")
    assert good(view)
    assert [part["data"] for part in parts_of(view, "data-flow-status")] == [{"status": "complete", "flowName": "flow"}]
    assert [part["data"]["nodeId"] for part in parts_of(view, "data-node-output")] == ["a", "b"]
    plain = stage.answer(browser, release, "two")
    assert parts_of(plain, "data-") == []


@each_release
def test_fr_016_a_message_to_a_running_flow_is_taken_by_its_node(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("listen")
    chat.page.until_text("Hello. ")
    other = browser.open(release, stage.url("plain"), chat_id=chat.chat_id)
    other.send("you")
    first = chat.page.settled()
    assert (good(first), text_of(first)) == (True, "Hello. ")
    other.until_text("Heard you. ")
    chat.pass_gates("end")
    other.answer()
    assert [request["status"] for request in other.look()["requests"]] == [200]
    assert len(chat.runtimes) == 1
    assert chat.runtime.commands == [{"type": "send", "message": "you", "runId": "a1"}]


@pytest.mark.parametrize("release", ALL_RELEASES)
def test_fr_017_stock_clients_of_every_release_show_the_whole_turn(
    browser: Browser, stage: Stage, release: str
) -> None:
    view = stage.answer(browser, release, "full")
    assert good(view)
    tool = {"type": "tool-search", "state": "output-available", "input": {"q": 1}, "output": {"hits": 2}}
    assert shape(last(view)) == [
        {"type": "step-start"},
        {"type": "reasoning", "text": "Hm.", "state": "done"},
        {"type": "text", "text": "Looking.", "state": "done"},
        tool,
        {"type": "step-start"},
        {"type": "text", "text": "Found.", "state": "done"},
    ]


@each_release
def test_fr_018_the_order_of_events_is_the_order_of_parts(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "mixed")
    assert (good(view), said_by(view)) == (True, [("a", "One two three"), ("b", "One two three")])
    in_turn = stage.answer(browser, release, "full")
    assert [part["type"] for part in last(in_turn)["parts"] if part["type"] != "step-start"] == [
        *("reasoning", "text", "tool-search", "text")
    ]


@each_release
def test_fr_019_a_tool_without_an_output_ends_in_an_error(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("no-output")
    chat.page.until(lambda now: text_of(now) == "Well." and parts_of(now, "tool-")[0]["state"] == "output-error")
    chat.pass_gates("end")
    view = chat.page.settled()
    [tool] = parts_of(view, "tool-")
    assert (good(view), tool["state"], tool["errorText"]) == (True, "output-error", "search did not finish.")


@each_release
def test_fr_020_reasoning_steps_and_data_can_be_turned_on_and_off(browser: Browser, stage: Stage, release: str) -> None:
    kinds = {
        app: {part["type"] for part in last(stage.answer(browser, release, "two", app))["parts"]}
        for app in ("plain", "quiet", "outputs", "data")
    }
    assert kinds == {
        "plain": {"step-start", "text"},
        "quiet": {"text"},
        "outputs": {"step-start", "text", "data-node-output"},
        "data": {"step-start", "text", "data-node-output", "data-flow-status", "data-node-status"},
    }
    quiet = stage.answer(browser, release, "two", "quiet")
    assert (good(quiet), [part["type"] for part in last(quiet)["parts"]]) == (True, ["text", "text"])
    assert parts_of(stage.answer(browser, release, "full", "quiet"), "reasoning") == []
