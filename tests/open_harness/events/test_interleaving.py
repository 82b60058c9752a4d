"""Any interleaving of legal events from several nodes is a legal stream that loses and mixes nothing."""

from collections import defaultdict
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.open_harness.scripted import event
from usechat.open_harness.events.adapter import OpenHarnessAdapter
from usechat.open_harness.runtime_protocol import Event
from usechat.protocol.message import MessageBuilder
from usechat.protocol.stream import MessageStream

Fields = dict[str, Any]

RUNS = ("a1", "a2", "b1", "c1")
words = st.text(min_size=1, max_size=4)


@st.composite
def blocks(draw: st.DrawFn, run_id: str, kind: str) -> list[Event]:
    """A block that is streamed, told in full, or both."""
    texts = draw(st.lists(words, min_size=1, max_size=3))
    full = event(f"agent:{kind}", run_id, content="".join(texts))
    deltas = [event(f"agent:{kind}:delta", run_id, content=text) for text in texts]
    return draw(st.sampled_from([[full], [*deltas, full]]))


@st.composite
def tools(draw: st.DrawFn, run_id: str) -> list[Event]:
    """A tool call in one event or in two; it may fail, lack things, or never complete."""
    name: Fields = draw(st.sampled_from([{"toolName": "search"}, {"toolName": "read"}, {}]))
    started: Fields = draw(st.sampled_from([{"toolInput": {"q": 1}}, {"toolInput": None}, {}]))
    outcome: Fields = draw(st.sampled_from([{"toolOutput": 2}, {"toolOutput": None}, {"error": "oops"}]))
    shapes: list[list[Fields]] = [[{**started, **outcome}], [started, outcome], [started]]
    return [event("agent:tool", run_id, **name, **fields) for fields in draw(st.sampled_from(shapes))]


@st.composite
def invocations(draw: st.DrawFn, run_id: str) -> list[Event]:
    """Everything that one invocation of a node tells."""
    kinds = [blocks(run_id, "text"), blocks(run_id, "thinking"), tools(run_id)]
    rounds = draw(st.lists(st.one_of(kinds), max_size=6))
    events = [each for one in rounds for each in one]
    ended = draw(st.sampled_from([event("node:complete", run_id, output=1), event("node:error", run_id, error="oops")]))
    return [event("node:start", run_id), *events, event("agent:complete", run_id, usage={"inputTokens": 1}), ended]


@st.composite
def interleavings(draw: st.DrawFn) -> list[Event]:
    """The events of several nodes, each in its order, mixed."""
    waiting = [draw(invocations(run_id)) for run_id in RUNS[: draw(st.integers(1, len(RUNS)))]]
    mixed: list[Event] = []
    while any(waiting):
        source = draw(st.sampled_from([events for events in waiting if events]))
        mixed.append(source.pop(0))
    return mixed


ENDINGS = [
    event("flow:complete", status="complete"),
    event("flow:complete", status="failed"),
    event("flow:paused"),
    event("flow:aborted"),
]


def expected(events: list[Event], kind: str) -> dict[str, str]:
    """Return the text of each run: that of the full events, which end every block."""
    texts: dict[str, str] = defaultdict(str)
    for each in events:
        if each["type"] == f"agent:{kind}":
            texts[each["runId"]] += each["content"]
    return dict(texts)


def shown(message: Any, kind: str) -> dict[str, str]:
    texts: dict[str, str] = defaultdict(str)
    for part in message["parts"]:
        if part["type"] == kind:
            texts[part["providerMetadata"]["openHarness"]["runId"]] += part["text"]
    return dict(texts)


@given(interleavings(), st.sampled_from(ENDINGS), st.booleans(), st.sampled_from(["5", "6", "7"]))
def test_every_nodes_text_is_complete_and_in_order(
    events: list[Event], ending: Event, send_step_markers: bool, sdk: str
) -> None:
    adapter = OpenHarnessAdapter(send_step_markers=send_step_markers, send_flow_metadata=True)
    stream, builder = MessageStream(message_id="m", sdk=sdk), MessageBuilder(sdk=sdk)
    for each in [event("flow:start", flowName="f"), *events, ending]:
        for part in adapter.feed(each):
            for chunk in stream.send(part):
                if type(chunk).__name__ != "ErrorChunk":  # the builder raises what the client would show
                    builder.receive(chunk)
    assert stream.ending is not None
    message: Any = builder.message
    assert shown(message, "text") == expected(events, "text")
    assert shown(message, "reasoning") == expected(events, "thinking")
    states = {(part["type"][:5], part["state"]) for part in message["parts"] if "state" in part}
    assert states <= {("text", "done"), ("reaso", "done"), ("tool-", "output-available"), ("tool-", "output-error")}
