"""The acceptance scenarios of the Open Harness specification, on pages of the real clients 5, 6 and 7."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.conformance.http_client import NEWEST, Browser, text_of
from tests.conformance.open_harness import Stage, gated, good, last, parts_of, said_by, shape, streamed, whole_tool
from tests.open_harness.scripted import deltas, event, node

START = event("flow:start", flowName="flow")
END = event("flow:complete", flowName="flow", status="complete")


STAGE = Stage(
    {
        "hello": streamed(*node("agent1", *deltas("agent1", "Hel", "lo"))),
        "slowly": gated(
            *(START, event("node:start", "a1")),
            *(event("agent:text:delta", "a1", content="Hel"), "one"),
            *(event("agent:text:delta", "a1", content="lo"), "two"),
            *(event("agent:text", "a1", content="Hello"), event("agent:complete", "a1", usage={"inputTokens": 1})),
            *(event("node:complete", "a1", output=None), END),
        ),
        "tool": gated(
            *(START, event("node:start", "a1"), event("agent:tool", "a1", toolName="search", toolInput={"q": 1})),
            *("one", event("agent:tool", "a1", toolName="search", toolOutput={"hits": 2}), "two", END),
        ),
        "tools": streamed(
            *node(
                "a1",
                whole_tool("a1", toolInput=1, toolOutput="one"),
                whole_tool("a1", "read", toolInput=2, toolOutput="two"),
                whole_tool("a1", toolInput=3, toolOutput="three"),
                *deltas("a1", "Done."),
            )
        ),
        "failing": streamed(
            *node("a1", event("agent:tool", "a1", toolName="search", toolInput={"q": 1}, error="EPIPE /etc/secret")),
            *node("a1", *deltas("a1", "Sorry.")),
        ),
        "nodes": gated(
            *(START, *node("plan1", *deltas("plan1", "Plan.")), "one"),
            *(*node("work1", *deltas("work1", "Work.")), "two"),
            *(*node("check1", *deltas("check1", "Check.")), END),
        ),
        "thinking": gated(
            *(START, event("node:start", "a1"), event("agent:thinking:delta", "a1", content="Let me"), "one"),
            *(event("agent:thinking:delta", "a1", content=" think."), "two"),
            *(event("agent:thinking", "a1", content="Let me think."), "three", *deltas("a1", "42"), END),
        ),
        "outputs": streamed(*node("plan1", output={"steps": 2}), *node("work1", *deltas("work1", "Ok"), output="Ok")),
        "pause": gated(START, *node("a1", *deltas("a1", "Which?")), event("flow:paused")),
        "diagram": streamed(
            *node("plan1", *deltas("plan1", "Plan.")),
            event("edge:fire", **{"from": "plan", "to": "work"}),
            *node("work1", *deltas("work1", "Work.")),
            event("edge:fire", **{"from": "work", "to": "work"}),
            event("loop:iterate", iteration=1),
            *node("work2", *deltas("work2", "More.")),
            event("node:skipped", nodeId="check", reason="when"),
        ),
    }
)

each_release = pytest.mark.parametrize("release", NEWEST)


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with STAGE.serving() as running:
        yield running


# User story 1: basic chat integration


@each_release
def test_us1_1_the_hook_starts_without_errors(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.open(browser, release).page.look()
    assert (view["status"], view["error"], view["messages"], view["requests"]) == ("ready", None, [], [])


@each_release
def test_us1_2_a_message_appears_and_reaches_the_runtime(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("hello there")
    chat.page.answer()
    user = chat.page.look()["messages"][0]
    assert (user["role"], [part["text"] for part in user["parts"]]) == ("user", ["hello there"])
    assert chat.runtime.input["message"] == "hello there"


@each_release
def test_us1_3_deltas_are_shown_as_they_come(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("slowly")
    view = chat.page.until_text("Hel")
    assert (view["status"], last(view)["role"]) == ("streaming", "assistant")
    chat.pass_gates("one")
    assert chat.page.until_text("Hello")["status"] == "streaming"
    chat.pass_gates("two")
    chat.page.answer()


@each_release
def test_us1_4_a_complete_flow_completes_the_message(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "hello")
    assert good(view)
    assert shape(last(view)) == [{"type": "step-start"}, {"type": "text", "text": "Hello", "state": "done"}]


# User story 2: tool calls


@each_release
def test_us2_1_a_tool_call_shows_its_name_and_input(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("tool")
    view = chat.page.until(lambda now: bool(now["messages"][1:] and parts_of(now, "tool-")))
    assert shape(last(view))[1:] == [{"type": "tool-search", "state": "input-available", "input": {"q": 1}}]
    chat.pass_gates("one", "two")
    chat.page.answer()


@each_release
def test_us2_2_a_tool_call_then_shows_its_output(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("tool")
    chat.pass_gates("one")
    view = chat.page.until(
        lambda now: bool(now["messages"][1:] and any("output" in part for part in last(now)["parts"]))
    )
    done = {"type": "tool-search", "state": "output-available", "input": {"q": 1}, "output": {"hits": 2}}
    assert (view["status"], shape(last(view))[1:]) == ("streaming", [done])
    chat.pass_gates("two")
    chat.page.answer()


@each_release
def test_us2_3_tools_in_sequence_are_separate_parts_in_order(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "tools")
    assert good(view)
    assert [(part["type"], part["input"], part["output"]) for part in parts_of(view, "tool-")] == [
        ("tool-search", 1, "one"),
        ("tool-read", 2, "two"),
        ("tool-search", 3, "three"),
    ]
    assert len({part["toolCallId"] for part in parts_of(view, "tool-")}) == 3


@each_release
def test_us2_4_a_failed_tool_shows_a_friendly_error(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "failing")
    assert good(view)
    [tool] = parts_of(view, "tool-")
    assert (tool["state"], tool["input"]) == ("output-error", {"q": 1})
    assert tool["errorText"].startswith("search failed. Reference: ")
    assert text_of(view) == "Sorry."


# User story 3: multi-step flows


@each_release
def test_us3_1_every_node_adds_a_step(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("nodes")
    chat.pass_gates("one", "two")
    types = [part["type"] for part in chat.page.answer()["parts"]]
    assert types == ["step-start", "text"] * 3


@each_release
def test_us3_1_a_node_that_says_nothing_shares_the_step_of_the_next(
    browser: Browser, stage: Stage, release: str
) -> None:
    assert [part["type"] for part in last(stage.answer(browser, release, "outputs"))["parts"]] == ["step-start", "text"]
    nodes = parts_of(stage.answer(browser, release, "outputs", "data"), "data-node-status")
    assert [(part["data"]["nodeId"], part["data"]["status"]) for part in nodes] == [
        *(("plan", "complete"), ("work", "complete")),
    ]


@each_release
def test_us3_2_a_page_can_draw_and_label_the_steps(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("nodes")
    chat.pass_gates("one", "two")
    parts = chat.page.answer()["parts"]
    labels = [
        following["providerMetadata"]["openHarness"]["nodeId"]
        for part, following in pairwise(parts)
        if part["type"] == "step-start"
    ]
    assert labels == ["plan", "work", "check"]


@each_release
def test_us3_3_progress_through_three_nodes_is_seen_in_order(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("nodes")
    assert said_by(chat.page.until_text("Plan.")) == [("plan", "Plan.")]
    chat.pass_gates("one")
    assert said_by(chat.page.until_text("Plan.Work.")) == [("plan", "Plan."), ("work", "Work.")]
    chat.pass_gates("two")
    chat.page.answer()
    assert said_by(chat.page.look()) == [("plan", "Plan."), ("work", "Work."), ("check", "Check.")]


# User story 4: thinking


@each_release
def test_us4_1_thinking_streams_as_reasoning(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("thinking")
    chat.page.until(
        lambda now: (
            bool(now["messages"][1:])
            and shape(last(now), "type", "text")[-1:] == [{"type": "reasoning", "text": "Let me"}]
        )
    )
    chat.pass_gates("one")
    view = chat.page.until(lambda now: shape(last(now), "text")[-1:] == [{"text": "Let me think."}])
    assert parts_of(view, "reasoning")[0]["state"] == "streaming"
    chat.pass_gates("two", "three")
    chat.page.answer()


@each_release
def test_us4_2_complete_thinking_is_done_while_the_answer_goes_on(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("thinking")
    chat.pass_gates("one", "two")
    view = chat.page.until(
        lambda now: bool(now["messages"][1:]) and [part["state"] for part in parts_of(now, "reasoning")] == ["done"]
    )
    assert (view["status"], text_of(view)) == ("streaming", "")
    chat.pass_gates("three")
    chat.page.answer()


@each_release
def test_us4_3_reasoning_stands_before_the_text(browser: Browser, stage: Stage, release: str) -> None:
    chat = stage.open(browser, release)
    chat.page.send("thinking")
    chat.pass_gates("one", "two", "three")
    assert shape(chat.page.answer())[1:] == [
        {"type": "reasoning", "text": "Let me think.", "state": "done"},
        {"type": "text", "text": "42", "state": "done"},
    ]


# User story 5: flow metadata


@each_release
def test_us5_1_outputs_of_nodes_are_data_parts(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "outputs", "data")
    assert good(view)
    assert [part["data"] for part in parts_of(view, "data-node-output")] == [
        {"nodeId": "plan", "runId": "plan1", "output": {"steps": 2}},
        {"nodeId": "work", "runId": "work1", "output": "Ok"},
    ]


@each_release
def test_us5_2_a_paused_flow_shows_its_status(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "pause", "data")
    assert good(view)
    [status] = parts_of(view, "data-flow-status")
    assert status["data"] == {"status": "paused", "flowName": "flow"}
    assert [part["data"]["status"] for part in view["data"] if part["type"] == "data-flow-status"] == [
        "running",
        "paused",
    ]
    assert last(view)["metadata"]["openHarness"] == {"status": "paused"}


@each_release
def test_us5_3_a_page_can_draw_the_flow_from_the_parts(browser: Browser, stage: Stage, release: str) -> None:
    view = stage.answer(browser, release, "diagram", "data")
    assert good(view)
    statuses = [part["data"] for part in parts_of(view, "data-node-status")]
    assert [(status["nodeId"], status["runId"], status["status"]) for status in statuses] == [
        ("plan", "plan1", "complete"),
        ("work", "work1", "complete"),
        ("work", "work2", "complete"),
        ("check", None, "skipped"),
    ]
    assert all({"startedAt", "durationMs"} <= status.keys() for status in statuses)
    assert [part["data"] for part in parts_of(view, "data-edge")] == [
        {"from": "plan", "to": "work"},
        {"from": "work", "to": "work", "iteration": 1},
    ]
