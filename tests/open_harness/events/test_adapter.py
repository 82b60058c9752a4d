"""What the events of a run become: lists in, lists out."""

from collections.abc import Iterable
from typing import Any

import pytest

from tests.open_harness.scripted import deltas, event, flow, node
from usechat import MessageBuilder, MessageStream
from usechat import parts as p
from usechat.errors import PublicError, UnknownEvent
from usechat.open_harness.events.adapter import ABORTED, INCOMPLETE, OpenHarnessAdapter
from usechat.open_harness.events.event import REQUIRED
from usechat.open_harness.runtime_protocol import Event


def said(events: Iterable[Event], **options: Any) -> list[p.Part]:
    adapter = OpenHarnessAdapter(**options)
    return [part for each in events for part in adapter.feed(each)]


def by(run_id: str) -> p.ProviderMetadata:
    return {"openHarness": {"nodeId": run_id.rstrip("0123456789"), "runId": run_id}}


def text(words: str, run_id: str = "a1") -> p.Text:
    return p.Text(words, by(run_id), lane=run_id)


def thought(words: str, run_id: str = "a1") -> p.Reasoning:
    return p.Reasoning(words, by(run_id), lane=run_id)


def end(run_id: str = "a1") -> p.BlockEnd:
    return p.BlockEnd(lane=run_id)


def step(run_id: str = "a1") -> p.Step:
    return p.Step(lane=run_id)


# Text and thinking


def test_deltas_are_text_and_the_full_text_only_closes_them() -> None:
    assert said(deltas("a1", "Hel", "lo")) == [text("Hel"), text("lo"), end()]


def test_a_full_text_without_deltas_is_a_whole_block() -> None:
    assert said([event("agent:text", "a1", content="Hello")]) == [text("Hello"), end()]


def test_thinking_is_reasoning_and_the_same_rules_hold_for_it() -> None:
    events = [*deltas("a1", "Hm", kind="thinking"), event("agent:thinking", "a1", content="So.")]
    assert said(events) == [thought("Hm"), end(), thought("So."), end()]


def test_thinking_is_left_out_when_it_is_not_wanted() -> None:
    events = [*deltas("a1", "Hm", kind="thinking"), *deltas("a1", "Hello")]
    assert said(events, send_reasoning=False) == [text("Hello"), end()]


def test_rounds_of_thinking_text_and_tools_stay_in_their_order() -> None:
    tool = event("agent:tool", "a1", toolName="search", toolInput={"q": 1}, toolOutput=2)
    one_round = [*deltas("a1", "Hm", kind="thinking"), *deltas("a1", "Hello"), tool]

    def call(number: int) -> p.ToolCall:
        return p.ToolCall(f"a1-{number}", "search", {"q": 1}, provider_metadata=by("a1"), lane="a1")

    assert said([*one_round, *one_round]) == [
        *(thought("Hm"), end(), text("Hello"), end()),
        *(call(1), p.ToolResult("a1-1", 2, lane="a1")),
        *(thought("Hm"), end(), text("Hello"), end()),
        *(call(2), p.ToolResult("a1-2", 2, lane="a1")),
    ]


def test_a_late_full_text_does_not_close_the_thinking_that_follows() -> None:
    events = [
        event("agent:text:delta", "a1", content="Hello"),
        event("agent:thinking:delta", "a1", content="Hm"),
        event("agent:text", "a1", content="Hello"),
    ]
    assert said(events) == [text("Hello"), thought("Hm")]


def test_empty_texts_say_nothing() -> None:
    assert said([event("agent:text:delta", "a1", content=""), event("agent:text", "a1", content="")]) == []


def test_nodes_speak_in_lanes_of_their_own() -> None:
    events = [event("agent:text:delta", run_id, content=run_id) for run_id in ("a1", "b1", "a1")]
    assert said(events) == [text("a1"), text("b1", "b1"), text("a1")]


# Nodes


def test_each_invocation_of_a_node_begins_a_step() -> None:
    events = flow(*node("a1", *deltas("a1", "One")), *node("a2", *deltas("a2", "Two")))
    parts = [step("a1"), text("One"), end(), step("a2"), text("Two", "a2"), end("a2"), p.Finish()]
    assert said(events) == parts
    assert said(events, send_step_markers=False) == [part for part in parts if not isinstance(part, p.Step)]


def test_the_end_of_a_node_ends_the_text_that_it_left_open() -> None:
    events = node("a1", event("agent:text:delta", "a1", content="One"))
    assert said(events) == [step(), text("One"), end()]


def test_outputs_are_sent_when_they_are_wanted() -> None:
    output = p.Data("node-output", {"nodeId": "a", "runId": "a1", "output": {"n": 1}}, "output-a1")
    assert said(node("a1", output={"n": 1}), send_node_outputs=True) == [step(), output]


def test_usage_is_summed_over_nodes() -> None:
    used = {"usage": {"inputTokens": 3, "outputTokens": 2, "cacheReadInputTokens": 1}, "totalCostUsd": 0.5}
    events = flow(event("agent:complete", "a1", **used), event("agent:complete", "b1", usage={"inputTokens": 4}))
    assert said(events) == [
        p.Metadata({"usage": {"inputTokens": 3, "outputTokens": 2, "cacheReadInputTokens": 1}, "totalCostUsd": 0.5}),
        p.Metadata({"usage": {"inputTokens": 7, "outputTokens": 2, "cacheReadInputTokens": 1}, "totalCostUsd": 0.5}),
        p.Finish(),
    ]


# Endings


@pytest.mark.parametrize(
    ("ending", "part"),
    [
        (event("flow:complete", status="complete"), p.Finish()),
        (event("flow:paused"), p.Finish(metadata={"openHarness": {"status": "paused"}})),
        (event("flow:aborted"), p.Error(ABORTED)),
        (event("flow:complete", status="failed"), p.Error("The flow failed.")),
    ],
    ids=["complete", "paused", "aborted", "failed"],
)
def test_the_end_of_the_flow_ends_the_message(ending: Event, part: p.Part) -> None:
    events = [event("flow:start", flowName="f"), event("agent:complete", "a1"), ending, *deltas("a1", "too late")]
    assert said(events) == [part]


@pytest.mark.parametrize(
    ("ending", "part"),
    [
        (event("agent:complete", "a1"), p.Finish()),
        (event("agent:paused", "a1"), p.Finish(metadata={"openHarness": {"status": "paused"}})),
        (event("agent:aborted", "a1", reason="x"), p.Error(ABORTED)),
        (event("agent:error", "a1", errorType="rate_limit", message="429"), p.Error),
    ],
    ids=["complete", "paused", "aborted", "error"],
)
@pytest.mark.parametrize("declared", [None, "agent"])
def test_the_end_of_a_bare_agent_ends_the_message(ending: Event, part: Any, declared: Any) -> None:
    *before, last = said([*deltas("a1", "Hi"), ending, *deltas("a1", "too late")], ends_at=declared)
    assert before == [text("Hi"), end()]
    assert last == part or isinstance(last, part)


def test_a_declared_flow_goes_on_after_its_agents_even_if_its_start_was_missed() -> None:
    events = [event("agent:complete", "a1"), event("agent:text", "b1", content="Hi"), event("flow:complete")]
    assert said(events, ends_at="flow") == [text("Hi", "b1"), end("b1"), p.Finish()]


@pytest.mark.parametrize("order", [1, -1], ids=["after", "before"])
@pytest.mark.parametrize(
    ("flow_end", "agent_end"), [("flow:aborted", "agent:aborted"), ("flow:paused", "agent:paused")]
)
def test_an_agent_may_tell_its_end_before_or_after_the_flow(flow_end: str, agent_end: str, order: int) -> None:
    ends = [event(flow_end), event(agent_end, "a1")][::order]
    assert said([event("flow:start"), *ends]) == said([event("flow:start"), event(flow_end)])


def test_an_error_of_an_agent_and_the_same_one_of_its_node_are_told_once() -> None:
    adapter = OpenHarnessAdapter()
    events = [
        event("flow:start"),
        event("agent:error", "a1", errorType="timeout", message="it took 30 s"),
        event("node:error", "a1", error="it took 30 s"),
        event("flow:complete", status="failed"),
    ]
    parts = [part for each in events for part in adapter.feed(each)]
    assert parts == [p.Error("The step “a” took too long and was stopped. Please try again.")]
    assert [notice.text for notice in adapter.take_notices()] == ["node 'a' failed in run a1: timeout: 'it took 30 s'"]


def test_a_failure_that_the_flow_survives_is_not_its_end() -> None:
    assert said(flow(event("node:error", "a1", error="oops"), *node("b1"))) == [step("b1"), p.Finish()]


def test_the_raw_text_of_a_failure_goes_to_the_log_under_a_reference() -> None:
    adapter = OpenHarnessAdapter(new_reference=lambda: "ref")
    events = flow(event("node:error", "a1", error="KeyError: 'secret'"), status="failed")
    parts = [part for each in events for part in adapter.feed(each)]
    assert parts == [p.Error("The step “a” failed. Reference: ref")]
    assert [(notice.text, notice.reference) for notice in adapter.take_notices()] == [
        ("node 'a' failed in run a1: \"KeyError: 'secret'\"", "ref")
    ]


def test_a_source_that_goes_away_is_an_error() -> None:
    adapter = OpenHarnessAdapter()
    adapter.feed(event("flow:start"))
    assert adapter.close() == [p.Error(INCOMPLETE)]
    assert adapter.close() == []


def test_an_exception_without_a_failure_before_it_is_left_to_the_run() -> None:
    adapter = OpenHarnessAdapter(send_flow_metadata=True)
    for each in (event("flow:start", flowName="f"), event("agent:tool", "a1", toolName="t", toolInput=1)):
        adapter.feed(each)
    assert adapter.close(OSError("secret")) == [
        p.ToolError("a1-1", "t did not finish.", lane="a1"),
        p.Data("flow-status", {"status": "failed", "flowName": "f"}, "flow-status"),
    ]
    assert adapter.close(OSError("secret")) == []


def test_a_public_error_is_shown_instead_of_the_failure_before_it() -> None:
    adapter = OpenHarnessAdapter()
    for each in (event("flow:start"), event("agent:error", "a1", errorType="timeout", message="30 s")):
        adapter.feed(each)
    assert adapter.close(PublicError("Come back tomorrow.")) == []


def test_a_source_that_goes_away_after_a_failure_tells_the_failure() -> None:
    adapter = OpenHarnessAdapter()
    for each in (event("flow:start"), event("agent:error", "a1", errorType="network", message="ECONNRESET")):
        adapter.feed(each)
    assert adapter.close() == [p.Error("The step “a” could not reach a service that it needs. Please try again.")]


# What cannot be read


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({}, "its kind is unknown"),
        ("agent:text", "its kind is unknown"),
        ({"type": None}, "its type is unknown"),
        ({"type": "agent:dance", "nodeId": "a", "runId": "a1"}, "its type is unknown"),
        ({"type": "agent:text", "runId": "a1", "content": "x"}, "it has no nodeId"),
        ({"type": "agent:text:delta", "nodeId": "a", "content": "x"}, "it has no runId"),
        ({"type": "agent:text:delta", "nodeId": "a", "runId": "", "content": "x"}, "it has no runId"),
        ({"type": "agent:text:delta", "nodeId": "a", "runId": "a1", "content": None}, "it has no content"),
        ({"type": "node:start", "nodeId": "a"}, "it has no runId"),
        ({"type": "edge:fire", "from": "a"}, "it has no to"),
        ({"name": "text:dance", "payload": {}}, "its kind is unknown"),
        ({"name": "harness:dance", "payload": {}}, "its kind is unknown"),
    ],
)
def test_an_event_that_lacks_something_is_unknown_and_a_notice_says_why(bad: Any, why: str) -> None:
    adapter = OpenHarnessAdapter()
    with pytest.raises(UnknownEvent):
        adapter.feed(bad)
    notices = adapter.take_notices()
    assert [notice.kind for notice in notices] == ["unknown"]
    assert notices[0].text.endswith(why)
    assert adapter.take_notices() == []
    assert adapter.feed(event("agent:text", "a1", content="x")) == [text("x"), end()]


@pytest.mark.parametrize("kind", ["state:patch", "command:received", "recording:linked", "agent:start", "flow:resumed"])
def test_events_that_a_page_need_not_know_say_nothing(kind: str) -> None:
    adapter = OpenHarnessAdapter()
    assert adapter.feed(event(kind, "a1")) == []
    assert adapter.take_notices() == []


def test_every_type_of_event_is_known() -> None:
    adapter = OpenHarnessAdapter(ends_at="flow")
    fields: dict[str, Any] = {"from": "a", "to": "b", "content": "x", "id": "1"}
    for kind in REQUIRED:
        if kind not in ("flow:complete", "flow:paused", "flow:aborted", "input:requested"):
            adapter.feed(event(kind, "a1", **fields))
    assert [notice for notice in adapter.take_notices() if notice.kind == "unknown"] == []


# Attempts, labels, silent flows


def attempts(*others: Event) -> list[Event]:
    """Return a node that says “Hello”, fails, and says it again."""
    return flow(
        *others,
        event("node:start", "a1"),
        event("agent:text:delta", "a1", content="Hello "),
        event("node:retry", "a1", attempt=1, error="oops"),
        *deltas("a1", "Hello ", "world"),
        event("node:complete", "a1"),
    )


def retried(run_id: str = "a1") -> p.Data:
    return p.Data("node-retry", {"nodeId": "a", "runId": run_id, "attempt": 1}, lane=run_id)


def test_what_a_failed_attempt_said_is_taken_back() -> None:
    again = [text("Hello "), text("world"), end()]
    assert said(attempts()) == [
        step(),
        text("Hello "),
        end(),
        p.ResetStep(lane="a1"),
        retried(),
        *again,
        p.Finish(),
    ]


@pytest.mark.parametrize(("release", "texts"), [("6", ["Hello ", "Hello world"]), ("7", ["Hello world"])])
def test_attempts_are_not_glued_together_on_the_page(release: str, texts: list[str]) -> None:
    stream, builder = MessageStream(sdk=release, message_id="m"), MessageBuilder(sdk=release)
    for part in said(attempts()):
        for chunk in stream.send(part):
            builder.receive(chunk)
    parts: list[Any] = list(builder.message["parts"])
    assert [part["text"] for part in parts if part["type"] == "text"] == texts


def test_the_step_of_an_attempt_is_not_reset_if_another_node_speaks_in_it() -> None:
    parts = said(attempts(event("node:start", "b1"), event("agent:text:delta", "b1", content="me")))
    assert (p.ResetStep(lane="a1") in parts, retried() in parts) == (False, True)


def test_a_retry_that_helps_is_no_failure_and_the_log_names_it() -> None:
    adapter = OpenHarnessAdapter()
    parts = [part for each in attempts() for part in adapter.feed(each)]
    assert (parts[-1], adapter.failure) == (p.Finish(), "")
    assert [notice.text for notice in adapter.notices] == ["node 'a' failed in run a1: 'oops'"]


def test_an_error_that_a_retry_had_too_is_still_the_failure_of_the_node() -> None:
    events = [
        event("flow:start"),
        event("node:start", "a1"),
        event("node:retry", "a1", attempt=1, error="oops"),
        event("node:error", "a1", error="oops"),
        event("flow:complete", status="failed"),
    ]
    assert said(events)[-1] == p.Error("The step “a” failed. Reference: 2")


def test_an_agent_that_starts_again_hides_no_failure_of_another_node() -> None:
    events = [
        event("flow:start"),
        event("node:start", "a1"),
        event("node:start", "b1"),
        event("agent:start", "b1"),
        event("node:error", "a1", error="HTTP 429"),
        event("agent:start", "b1"),
        event("flow:complete", status="failed"),
    ]
    sentence = "The step “a” was refused because of too many requests. Please try again in a moment."
    assert said(events)[-1] == p.Error(sentence)


def started_again(*others: Event) -> list[Event]:
    """Return a node whose agent fails twice, as Open Harness tells it: the agent starts again, and nothing says why."""
    attempt = [event("agent:start", "a1"), event("agent:text:delta", "a1", content="Hello ")]
    return flow(
        *others,
        event("node:start", "a1"),
        *attempt,
        event("agent:error", "a1", errorType="exception", message="503"),
        *attempt,
        event("agent:start", "a1"),
        *deltas("a1", "Hello ", "world"),
        event("agent:complete", "a1"),
        event("node:complete", "a1"),
    )


@pytest.mark.parametrize(("release", "texts"), [("6", ["Hello ", "Hello ", "Hello world"]), ("7", ["Hello world"])])
def test_attempts_of_a_remote_runtime_are_not_glued_together_either(release: str, texts: list[str]) -> None:
    stream, builder = MessageStream(sdk=release, message_id="m"), MessageBuilder(sdk=release)
    for part in said(started_again()):
        for chunk in stream.send(part):
            builder.receive(chunk)
    parts: list[Any] = list(builder.message["parts"])
    assert [part["text"] for part in parts if part["type"] == "text"] == texts
    marked = [part["data"]["attempt"] for part in parts if part["type"] == "data-node-retry"]
    assert marked == ([1, 2] if release == "6" else [2])


def test_a_node_that_asks_two_agents_in_turn_does_not_retry() -> None:
    answers = [
        [event("agent:start", "a1"), *deltas("a1", text), event(ending, "a1")]
        for text, ending in (("One", "agent:complete"), ("Two", "agent:paused"), ("Three", "agent:aborted"))
    ]
    parts = said(flow(*node("a1", *(each for answer in answers for each in answer))))
    assert [part.text for part in parts if isinstance(part, p.Text)] == ["One", "Two", "Three"]
    assert not [part for part in parts if isinstance(part, p.ResetStep | p.Data)]


LABELLED: dict[str, Any] = {"nodes": [{"id": "a", "type": "agent", "ui": {"label": "Writer"}}], "edges": []}


@pytest.mark.parametrize("is_remote", [True, False])
def test_the_label_of_a_node_stands_in_its_parts(is_remote: bool) -> None:
    events = [
        event("flow:start", graph=LABELLED if is_remote else None),
        event("node:start", "a1"),
        event("node:retry", "a1", attempt=1, error="oops"),
        *deltas("a1", "Hm", kind="thinking"),
        *deltas("a1", "Hi"),
        event("agent:tool", "a1", toolName="t", toolOutput=1),
        event("agent:complete", "a1", structuredOutput=7),
        event("node:complete", "a1", output={}),
        event("node:skipped", nodeId="a"),
    ]
    graph = None if is_remote else LABELLED
    parts = said(events, graph=graph, send_flow_metadata=True, send_node_outputs=True)
    named = {"openHarness": {"nodeId": "a", "runId": "a1", "label": "Writer"}}
    contents = [part for part in parts if isinstance(part, p.Reasoning | p.Text | p.ToolCall)]
    assert [part.provider_metadata for part in contents] == [named] * 3
    labels = {part.name: part.data.get("label") for part in parts if isinstance(part, p.Data)}
    of_nodes = ("node-status", "node-retry", "structured-output", "node-output")
    assert labels == {"flow-graph": None, "flow-status": None, **dict.fromkeys(of_nodes, "Writer")}


def silent(*types: str) -> dict[str, Any]:
    return {"nodes": [{"id": name, "type": kind} for name, kind in zip("ab", types, strict=False)], "edges": []}


@pytest.mark.parametrize(
    ("types", "output", "text"),
    [
        (("echo", "echo"), {"text": "Hi"}, "Hi"),
        (("echo", "constant"), {"value": "Hi"}, "Hi"),
        (("constant", "constant"), {"value": [1, 2]}, "[1,2]"),
        (("constant", "constant"), {"value": None}, ""),
        (("constant", "echo"), {"text": ""}, ""),
        (("echo", "python"), {"text": "Hi"}, ""),
    ],
)
def test_a_flow_of_nodes_that_say_nothing_shows_the_output_of_the_last(
    types: tuple[str, ...], output: Any, text: str
) -> None:
    events = flow(*node("a1", output={"text": "first"}), *node("b1", output=output))
    assert "".join(part.text for part in said(events, graph=silent(*types)) if isinstance(part, p.Text)) == text
    events[0] = {**events[0], "graph": silent(*types)}  # as a remote runtime tells it
    assert "".join(part.text for part in said(events) if isinstance(part, p.Text)) == text


def test_the_graph_of_a_remote_flow_is_shown_if_its_runtime_tells_it() -> None:
    start = event("flow:start", flowName="f", graph=LABELLED)
    assert said([start], send_flow_metadata=True)[0] == p.Data("flow-graph", LABELLED, "flow-graph")
    mine: dict[str, Any] = {"nodes": [], "edges": []}
    assert said([start], send_flow_metadata=True, graph=mine)[0] == p.Data("flow-graph", mine, "flow-graph")
    graphs: list[Any] = ["x", {"nodes": []}, {"nodes": 1, "edges": []}]
    for wrong in graphs:
        assert len(said([event("flow:resumed", graph=wrong)], send_flow_metadata=True)) == 1


@pytest.mark.parametrize(
    "nodes",
    [["a"], [None, 7], [{"id": 7}], [{"id": "a", "ui": "left"}], [{"id": "a", "ui": {"label": 7}}], [{"type": []}]],
)
@pytest.mark.parametrize("edges", [[], ["a"], [{"from": 1, "to": "a"}]])
def test_a_graph_that_cannot_be_read_does_not_break_the_turn(nodes: list[Any], edges: list[Any]) -> None:
    graph = {"nodes": nodes, "edges": edges}
    events = flow(*node("a1", *deltas("a1", "Hi")))
    events[0] = {**events[0], "graph": graph}
    parts = said(events, send_flow_metadata=True)
    assert [part.text for part in parts if isinstance(part, p.Text)] == ["Hi"]
    readable = [each for each in nodes if isinstance(each, dict) and each.get("id") == "a"]
    assert parts[0] == p.Data("flow-graph", {"nodes": readable, "edges": []}, "flow-graph")


def test_a_structured_output_is_a_data_part() -> None:
    parts = said([event("flow:start"), event("agent:complete", "a1", structuredOutput={"n": 7})])
    assert parts == [
        p.Data("structured-output", {"nodeId": "a", "runId": "a1", "value": {"n": 7}}, "structured-a1"),
    ]


@pytest.mark.parametrize("texts", [['{"n": 7}'], ["Let me see.", '{"n":7}']])
def test_a_structured_output_that_was_said_as_text_is_shown_once(texts: list[str]) -> None:
    spoken = [event("agent:text", "a1", content=text) for text in texts]
    parts = said([event("flow:start"), *spoken, event("agent:complete", "a1", structuredOutput={"n": 7})])
    assert [part for part in parts if isinstance(part, p.Data)] == []
    assert [part.text for part in parts if isinstance(part, p.Text)] == texts
