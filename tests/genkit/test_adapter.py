"""Genkit's chunks as parts, by value."""

from typing import Any

import pytest

from tests.genkit.short import PARIS, ROME, chunk, fed, request, response, said
from usechat import parts as p
from usechat.genkit.tool_requests import ToolRequest
from usechat.genkit.wire import FlowChunk, FlowEvent, FlowResult, UnknownFrame

pytestmark = pytest.mark.quick

SIGNED = {"signature": "s"}
BY_ORDER = {"genkit": {"matchedBy": "order"}}


# What a flow streams


@pytest.mark.parametrize(
    ("streamed", "parts"),
    [
        ("Hel", [p.Text("Hel")]),
        ({"text": "Hel"}, [p.Text("Hel")]),
        (chunk({"text": "Hel"}), [p.Text("Hel")]),
        ({"content": [{"text": "Hel"}, {"reasoning": "Hm"}]}, [p.Text("Hel"), p.Reasoning("Hm")]),
        (chunk({"text": "Hel", "new": 1}, new={"a": 1}), [p.Text("Hel")]),
        (chunk({"text": ""}, {}, {"metadata": {}}), []),
        (chunk({"reasoning": "Hm", "metadata": SIGNED}), [p.Reasoning("Hm", {"genkit": SIGNED})]),
        (chunk({"reasoning": "", "metadata": SIGNED}), [p.Reasoning("", {"genkit": SIGNED})]),
        (chunk(request(ROME, ref="r")), [p.ToolCall("r", "weather", ROME)]),
        (chunk(request(ROME)), [p.ToolCall("genkit-1", "weather", ROME)]),
        (chunk(request()), [p.ToolCall("genkit-1", "weather", {})]),
        (
            chunk({**request(ROME), "metadata": SIGNED}),
            [p.ToolCall("genkit-1", "weather", ROME, provider_metadata={"genkit": SIGNED})],
        ),
        (chunk({"media": {"url": "a:b", "contentType": "image/png"}}), [p.File("a:b", "image/png")]),
        (chunk({"media": {"url": "https://e.org/a.jpg?x=1"}}), [p.File("https://e.org/a.jpg?x=1", "image/jpeg")]),
        (chunk({"media": {"url": "https://e.org/a"}}), [p.File("https://e.org/a", "application/octet-stream")]),
        (chunk({"media": {"url": "data:image/gif;base64,AA"}}), [p.File("data:image/gif;base64,AA", "image/gif")]),
        (chunk({"media": {"url": "data:,a"}}), [p.File("data:,a", "text/plain")]),
        ({"modelChunk": chunk({"text": "Hel"})}, [p.Text("Hel")]),
        ({"modelChunk": {"content": 4}}, []),
        ({"turnEnd": {"finishReason": "stop"}}, []),
        (None, []),
        ({}, []),
    ],
)
def test_a_chunk_becomes_parts(streamed: Any, parts: list[p.Part]) -> None:
    assert said(streamed) == parts


DATA = [
    (chunk({"data": {"a": 1}}), p.Data("genkit-data", {"a": 1})),
    (chunk({"custom": {"a": 1}}), p.Data("genkit-custom", {"a": 1})),
    (chunk({"resource": {"uri": "a:b"}}), p.Data("genkit-resource", {"uri": "a:b"})),
    (chunk(custom={"raw": 1}), p.Data("genkit-custom", {"raw": 1})),
    ({"customPatch": [{"op": "add"}]}, p.Data("genkit-patch", [{"op": "add"}], transient=True)),
    ({"artifact": {"name": "n", "parts": []}}, p.Data("genkit-artifact", {"name": "n", "parts": []}, id="n")),
    ({"status": "looking"}, p.Data("genkit-chunk", {"status": "looking"})),
    (4, p.Data("genkit-chunk", 4)),
]


@pytest.mark.parametrize(("streamed", "part"), DATA)
def test_data_of_genkit_s_own_is_sent_when_asked_for(streamed: Any, part: p.Part) -> None:
    assert said(streamed, send_data=True) == [part]
    assert said(streamed) == []


def test_what_is_not_known_is_counted() -> None:
    unknown: list[str] = []
    events: list[FlowEvent] = [FlowChunk({"status": 1}), FlowChunk(chunk({"hologram": 1})), UnknownFrame("other")]
    assert fed(*events, unknown=unknown) == []
    assert unknown == ["chunk", "part", "other"]


def test_a_part_that_is_not_known_does_not_lose_those_beside_it() -> None:
    unknown: list[str] = []
    streamed = FlowChunk(chunk({"text": "a"}, {"hologram": 1}, {"text": "b"}, {"hologram": 2}))
    assert fed(streamed, FlowChunk("c"), FlowResult("abc"), unknown=unknown) == [
        p.Text("a"),
        p.Text("b"),
        p.Text("c"),
        p.Finish(),
    ]
    assert unknown == ["part"]


def test_a_mapper_is_asked_first_and_may_leave_a_chunk_to_us() -> None:
    def mapper(streamed: Any) -> list[p.Part] | None:
        return [p.Data("status", streamed["status"])] if isinstance(streamed, dict) else None

    assert said({"status": "looking"}, "Hel", map_chunk=mapper) == [p.Data("status", "looking"), p.Text("Hel")]


# Tools and steps


def test_responses_without_a_ref_belong_to_the_oldest_request_of_their_name() -> None:
    parts = said(
        chunk(request(ROME), request(PARIS), request(ROME, name="time"), index=0),
        chunk(response(5, "time"), response(1), response(2), role="tool", index=1),
        chunk({"text": "Warm."}, index=2),
    )
    assert parts[3:] == [
        p.ToolResult("genkit-3", 5, tool_name="time"),
        p.ToolResult("genkit-1", 1, tool_name="weather", tool_metadata=BY_ORDER),
        p.ToolResult("genkit-2", 2, tool_name="weather", tool_metadata=BY_ORDER),
        p.Step(),
        p.Text("Warm."),
    ]


def test_responses_with_a_ref_belong_to_their_request() -> None:
    parts = said(
        chunk(request(ROME, ref="a"), request(PARIS, ref="b")),
        chunk(response(2, ref="b"), response(1, ref="a"), role="tool"),
    )
    assert parts[2:] == [p.ToolResult("b", 2, tool_name="weather"), p.ToolResult("a", 1, tool_name="weather")]


def test_only_outputs_that_are_matched_by_their_order_are_marked() -> None:
    """JavaScript and Go 1.1 send responses in the order in which the tools end: two of one name may be swapped."""
    parts = said(
        chunk(request(ROME), request(PARIS), request(ROME, ref="a"), request(ROME, name="time")),
        chunk(response(1, ref="a"), response(2), response(3), response(4, "time"), role="tool"),
        chunk(request(ROME)),
        chunk(response(5), role="tool"),
    )
    marked = {part.output: part.tool_metadata for part in parts if isinstance(part, p.ToolResult)}
    assert marked == {1: None, 2: BY_ORDER, 3: BY_ORDER, 4: None, 5: None}


# Progress of tools (Go 1.10 and newer: `tool.SendPartial`)


def progress(output: Any, name: str = "weather", **more: Any) -> dict[str, Any]:
    return {**response(output, name, **more), "metadata": {"partial": True}}


def test_progress_of_a_tool_is_a_preliminary_output() -> None:
    parts = said(
        chunk(request(ROME, ref="a"), request(PARIS, ref="b")),
        chunk(progress("half", ref="b"), role="tool"),
        chunk(progress("most", ref="b"), role="tool"),
        chunk(response(1, ref="a"), response(2, ref="b"), role="tool"),
    )
    assert parts[2:] == [
        p.ToolResult("b", "half", preliminary=True, tool_name="weather"),
        p.ToolResult("b", "most", preliminary=True, tool_name="weather"),
        p.ToolResult("a", 1, tool_name="weather"),
        p.ToolResult("b", 2, tool_name="weather"),
    ]


@pytest.mark.parametrize("ref", [{}, {"ref": "late"}])
def test_progress_without_a_known_ref_belongs_to_the_open_call_of_its_name(ref: dict[str, str]) -> None:
    parts = said(
        chunk(request(ROME)),
        chunk(progress("half", **ref), role="tool"),
        chunk(response(1), role="tool"),
        chunk(progress("too late", **ref), role="tool"),
    )
    assert parts[1:] == [
        p.ToolResult("genkit-1", "half", preliminary=True, tool_name="weather"),
        p.ToolResult("genkit-1", 1, tool_name="weather"),
    ]


def test_progress_gives_no_ref_to_a_call() -> None:
    """The progress of the second call is shown with the first, because no ref is known; the final outputs are right."""
    parts = said(
        chunk(request(ROME), request(PARIS)),
        chunk(progress("half of Paris", ref="second"), role="tool"),
        chunk(response(1, ref="first"), response(2, ref="second"), role="tool"),
    )
    final = [(part.tool_call_id, part.output) for part in parts if isinstance(part, p.ToolResult)][1:]
    assert final == [("genkit-1", 1), ("genkit-2", 2)]


def test_progress_before_an_interrupt_is_taken_back() -> None:
    """Left as it is, it would become the output of a tool that waits for the page."""
    events = (
        chunk(request(ROME, name="delete", ref="a")),
        chunk(progress("half", "delete", ref="a"), role="tool"),
        chunk({**request(ROME, name="delete", ref="a"), "metadata": {"interrupt": True}}, role="tool"),
    )
    taken_back = p.ToolCall("a", "delete", ROME, retracts_output=True)
    assert said(*events)[2:] == [taken_back]
    assert said(*events, interrupts="approval")[2:] == [taken_back, p.ApprovalRequest("1", "a", None)]


def test_progress_of_a_denied_call_is_not_shown() -> None:
    calls = [ToolRequest("c1", "delete", complete=True)]
    tools = (chunk(progress("half", "delete"), role="tool"), chunk(response("no", "delete"), role="tool"))
    assert said(*tools, known=calls, denied={"c1"}) == [p.ToolDenied("c1", tool_name="delete")]


def test_what_a_denied_tool_returned_is_shown_as_a_call_apart() -> None:
    """The model is told that output, and no release of the AI SDK allows an output beside a denial."""
    calls = [ToolRequest("c1", "delete", complete=True, input=ROME)]
    mark = {"genkit": {"outputAfterDenial": True}}
    ran = chunk(response("Rome is gone", "delete"), role="tool")
    assert said(ran, known=calls, denied={"c1"}, restarted={"delete"}) == [
        p.ToolDenied("c1", tool_name="delete"),
        p.ToolCall("1", "delete", ROME, tool_metadata=mark),
        p.ToolResult("1", "Rome is gone", tool_metadata=mark),
    ]


def test_a_ref_that_is_used_again_is_another_call_and_keeps_its_ref() -> None:
    parts = said(
        chunk(request(ROME, ref="0"), index=0),
        chunk(response(1, ref="0"), role="tool", index=1),
        chunk(request(PARIS, ref="0"), index=2),
        chunk(response(2, ref="0"), role="tool", index=3),
    )
    assert parts == [
        p.ToolCall("0", "weather", ROME),
        p.ToolResult("0", 1, tool_name="weather"),
        p.Step(),
        p.ToolCall("genkit-1", "weather", PARIS, provider_metadata={"genkit": {"ref": "0"}}),
        p.ToolResult("genkit-1", 2, tool_name="weather"),
    ]


def test_a_response_that_nobody_asked_for_is_shown() -> None:
    assert said(chunk(response(1, ref="x"), role="tool")) == [p.ToolResult("x", 1, tool_name="weather")]


def test_the_media_of_a_response_are_files() -> None:
    media = {"media": {"url": "data:image/png;base64,AA"}}
    several = {"toolResponse": {"name": "draw", "content": [{"text": "a"}, media]}}
    assert said(chunk(several, role="tool")) == [
        p.ToolResult("genkit-1", [{"text": "a"}, media], tool_name="draw"),
        p.File("data:image/png;base64,AA", "image/png"),
    ]


@pytest.mark.parametrize(
    ("chunks", "steps"),
    [
        ([chunk({"text": "a"}, index=0), chunk({"text": "b"}, index=0.0)], 0),
        ([chunk({"text": "a"}, index=0), chunk({"text": "b"}, index=1)], 1),
        ([chunk({"text": "a"}), chunk({"text": "b"})], 0),
        ([chunk({"text": "a"}), chunk(response(1), role="tool"), chunk(response(1), role="tool"), "b"], 1),
        ([chunk({"text": "a"}, index=0), "b", chunk({"text": "c"}, index=1)], 1),
        ([{"content": [response(1)]}, {"content": [request(ROME)]}], 1),
    ],
)
def test_a_step_begins_where_the_model_speaks_anew(chunks: list[Any], steps: int) -> None:
    assert said(*chunks).count(p.Step()) == steps


def partial(value: Any, **more: Any) -> dict[str, Any]:
    return chunk(request(value, partial=True, **more))


@pytest.mark.parametrize(
    ("inputs", "deltas"),
    [
        (['{"city"', '{"city":"Ro', '{"city":"Rome"}'], ['{"city"', ':"Ro', 'me"}']),
        (['{"city"', '{"place"'], ['{"city"']),
        ([{"city": "R"}, {"city": "Ro"}, {"city": "Rome", "unit": ["C"]}], ['{"city":"R', "o", 'me","unit":["C']),
        ([{"city": "R"}, {"town": "R"}], ['{"city":"R']),
        ([{}, {"city": "R"}], ['{"city":"R']),
        ([None, {"city": "R"}], ['{"city":"R']),
    ],
)
def test_a_partial_input_is_sent_in_pieces_only_while_it_grows(inputs: list[Any], deltas: list[str]) -> None:
    start = p.ToolInputStart("genkit-1", "weather")
    pieces = [p.ToolInputDelta("genkit-1", delta) for delta in deltas]
    assert said(*map(partial, inputs), chunk(request(ROME))) == [
        start,
        *pieces,
        p.ToolCall("genkit-1", "weather", ROME),
    ]


def test_partial_inputs_of_two_calls_do_not_mix() -> None:
    assert said(partial("{", ref="a"), partial("[", ref="b"), partial("{}", ref="a")) == [
        p.ToolInputStart("a", "weather"),
        p.ToolInputDelta("a", "{"),
        p.ToolInputStart("b", "weather"),
        p.ToolInputDelta("b", "["),
        p.ToolInputDelta("a", "}"),
    ]


# Chunks that repeat


def test_of_an_aggregated_chunk_only_the_news_is_said() -> None:
    media = {"media": {"url": "data:,a"}}
    parts = said(
        chunk({"reasoning": "Hm"}),
        chunk({"text": "Hel"}),
        chunk({"reasoning": "Hmm"}, {"text": "Hello"}, media, request(ROME), aggregated=True),
        chunk({"reasoning": "Hmm"}, {"text": "Hello"}, media, request(ROME), request(PARIS), aggregated=True),
    )
    assert parts == [
        p.Reasoning("Hm"),
        p.Text("Hel"),
        p.Reasoning("m"),
        p.Text("lo"),
        p.File("data:,a", "text/plain"),
        p.ToolCall("genkit-1", "weather", ROME),
        p.ToolCall("genkit-2", "weather", PARIS),
    ]


def test_an_aggregated_text_may_come_in_other_pieces() -> None:
    assert said(chunk({"text": "Hello"}), chunk({"text": "He"}, {"text": "llo you"}, aggregated=True)) == [
        p.Text("Hello"),
        p.Text(" you"),
    ]


def test_an_aggregated_chunk_repeats_its_own_message_only() -> None:
    parts = said(chunk({"text": "a"}, index=0), chunk({"text": "a"}, index=1, aggregated=True))
    assert parts == [p.Text("a"), p.Step(), p.Text("a")]


# What became of requests


def test_requests_that_are_told_again_with_their_outcome_are_the_same_calls() -> None:
    """The agents of JavaScript stream a tool message with the requests themselves when one is interrupted."""
    outcome = chunk(
        {**request(ROME, name="delete"), "metadata": {"interrupt": {"reason": "Sure?"}}},
        {**request(PARIS), "metadata": {"pendingOutput": {"celsius": 5}}},
        role="tool",
    )
    chunks = [chunk(request(ROME, name="delete"), request(PARIS)), outcome, outcome]
    assert said(*chunks)[2:] == [p.ToolResult("genkit-2", {"celsius": 5})]
    assert said(*chunks, interrupts="approval")[2:] == [
        p.ApprovalRequest("3", "genkit-1", "Sure?"),
        p.ToolResult("genkit-2", {"celsius": 5}),
    ]


def test_a_tool_that_returned_nothing_beside_an_interrupt_has_run() -> None:
    """JavaScript leaves out `pendingOutput` if a tool returned undefined."""
    outcome = chunk(
        {**request(ROME, name="delete"), "metadata": {"interrupt": True}},
        {**request(PARIS), "metadata": {}},
        role="tool",
    )
    assert said(chunk(request(ROME, name="delete"), request(PARIS)), outcome)[2:] == [p.ToolResult("genkit-2", None)]


@pytest.mark.parametrize(("first", "second"), [(ROME, PARIS), (PARIS, ROME)])
def test_a_call_without_a_ref_that_is_told_again_alone_is_found_by_its_input(first: Any, second: Any) -> None:
    interrupt = chunk({**request(PARIS), "metadata": {"interrupt": {"reason": "Sure?"}}}, role="tool")
    parts = said(chunk(request(first), request(second)), interrupt, interrupts="approval")[2:]
    assert parts == [p.ApprovalRequest("3", f"genkit-{[first, second].index(PARIS) + 1}", "Sure?")]


def test_a_call_whose_input_differs_is_another_one() -> None:
    """Otherwise a person would approve one thing, and another would be done."""
    interrupt = chunk({**request(PARIS, name="delete"), "metadata": {"interrupt": True}}, role="tool")
    calls = [part for part in said(chunk(request(ROME, name="delete")), interrupt) if isinstance(part, p.ToolCall)]
    assert [(call.tool_call_id, call.input) for call in calls] == [("genkit-1", ROME), ("genkit-2", PARIS)]
