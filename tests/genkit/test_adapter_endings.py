"""How a Genkit answer ends: results, reasons, interrupts, failures; by value."""

from typing import Any

import pytest

from tests.genkit.short import PARIS, ROME, adapter, chunk, fed, model_response, request, response, said
from usechat import parts as p
from usechat.genkit.errors import BLOCKED, INCOMPLETE, TOOL_FAILED
from usechat.genkit.tool_requests import ToolRequest
from usechat.genkit.wire import FlowChunk, FlowEvent, FlowFailure, FlowResult


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("Hello", [p.Text("Hello")]),
        ({"text": "Hello", "hasToolOutput": False}, [p.Text("Hello")]),
        ({"sum": 4}, [p.Text('{"sum":4}')]),
        (4, [p.Text("4")]),
        (0, [p.Text("0")]),
        (None, []),
        ("", []),
        ({"text": "Hello", "finishReason": "stop"}, [p.Text("Hello")]),
        ({"message": {"text": "Hello"}}, [p.Text('{"message":{"text":"Hello"}}')]),
        (
            model_response({"text": "Hello"}, {"media": {"url": "data:,a"}}).value,
            [p.Text("Hello"), p.File("data:,a", "text/plain")],
        ),
    ],
)
def test_a_flow_that_streams_nothing_says_its_result(value: Any, parts: list[p.Part]) -> None:
    assert fed(FlowResult(value))[:-1] == parts


@pytest.mark.parametrize("value", ["Hello", {"text": "Hello"}, model_response({"text": "Hello"}).value])
@pytest.mark.parametrize("streamed", ["Hello", chunk({"text": "Hello"})])
def test_what_was_streamed_is_not_said_again(streamed: Any, value: Any) -> None:
    assert [type(part) for part in fed(FlowChunk(streamed), FlowResult(value))] == [p.Text, p.Finish]


def test_a_result_that_is_no_text_is_data_when_asked_for() -> None:
    assert fed(FlowChunk("Hello"), FlowResult({"sum": 4}), send_data=True) == [
        p.Text("Hello"),
        p.Data("genkit-result", {"sum": 4}),
        p.Finish(),
    ]


@pytest.mark.parametrize(
    ("genkit", "ours"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("interrupted", "tool-calls"),
        ("aborted", "other"),
        ("detached", "other"),
        ("other", "other"),
        ("unknown", "other"),
        ("new", "other"),
    ],
)
def test_the_reason_of_the_end_is_told_in_the_words_of_the_sdk(genkit: str, ours: str) -> None:
    assert fed(FlowChunk("a"), model_response(reason=genkit))[-1] == p.Finish(ours)


def test_usage_is_told_in_the_words_of_the_sdk() -> None:
    usage = {"inputTokens": 3.0, "outputTokens": 5, "thoughtsTokens": 2, "cachedContentTokens": 1, "custom": {}}
    tokens = {"inputTokens": 3, "outputTokens": 5, "reasoningTokens": 2, "cachedInputTokens": 1}
    assert fed(model_response({"text": "a"}, usage=usage))[-1] == p.Finish("stop", tokens)


def test_an_agent_s_session_is_told() -> None:
    events: list[FlowEvent] = [
        FlowChunk({"turnEnd": {"snapshotId": "s1"}}),
        model_response({"text": "a"}, sessionId="s"),
    ]
    assert fed(*events)[-1] == p.Finish("stop", None, {"genkit": {"sessionId": "s", "snapshotId": "s1"}})


def test_blocked_is_a_content_filter_and_an_error_when_nothing_was_said() -> None:
    assert fed(FlowChunk("a"), model_response(reason="blocked"))[-1] == p.Finish("content-filter")
    assert fed(model_response(reason="blocked")) == [p.Error(BLOCKED)]


FAILED = {"error": {"status": "INTERNAL", "message": "secret", "details": {"reason": "TOOL_FAILED"}}}


def test_a_failed_tool_is_settled_from_the_result() -> None:
    assert fed(FlowChunk(chunk(request(ROME))), model_response(reason="failed", **FAILED)) == [
        p.ToolCall("genkit-1", "weather", ROME),
        p.ToolError("genkit-1", TOOL_FAILED, tool_name="weather"),
        p.Error("The agent failed while it answered. Try again."),
    ]


def interrupted(*content: dict[str, Any]) -> FlowResult:
    return model_response(*content, reason="interrupted")


INTERRUPT = {**request(ROME, name="delete"), "metadata": {"interrupt": {"reason": "Sure?"}}}
PENDING = {**request(PARIS), "metadata": {"pendingOutput": {"celsius": 5}}}


def test_an_interrupted_call_stays_open_and_the_others_are_settled() -> None:
    streamed = FlowChunk(chunk(request(ROME, name="delete"), request(PARIS)))
    assert fed(streamed, interrupted(INTERRUPT, PENDING))[2:] == [p.ToolResult("genkit-2", {"celsius": 5}), p.Finish()]


def test_an_interrupted_call_can_ask_for_an_approval() -> None:
    streamed = FlowChunk(chunk(request(ROME, name="delete")))
    assert fed(streamed, interrupted(INTERRUPT), interrupts="approval")[1:] == [
        p.ApprovalRequest("2", "genkit-1", "Sure?"),
        p.Finish(),
    ]


def test_an_interrupt_that_was_not_streamed_is_shown() -> None:
    metadata = {"genkit": {"interrupt": {"reason": "Sure?"}}}
    assert fed(interrupted({"text": "May I?"}, INTERRUPT)) == [
        p.Text("May I?"),
        p.ToolCall("genkit-1", "delete", ROME, provider_metadata=metadata),
        p.Finish(),
    ]


def test_two_interrupts_of_one_tool_are_two_approvals() -> None:
    twice = [INTERRUPT, {**INTERRUPT, "toolRequest": {"name": "delete", "input": PARIS}}]
    streamed = FlowChunk(chunk(request(ROME, name="delete"), request(PARIS, name="delete")))
    requests = [
        part
        for part in fed(streamed, interrupted(*twice), interrupts="approval")
        if isinstance(part, p.ApprovalRequest)
    ]
    assert [part.tool_call_id for part in requests] == ["genkit-1", "genkit-2"]


# A ref that the server adds when the answer ends (Go 1.4 and newer)


def late(city: Any, name: str, ref: str, **metadata: Any) -> dict[str, Any]:
    return {**request(city, name, ref=ref), "metadata": metadata}


def test_a_call_that_is_restated_with_a_late_ref_is_shown_once() -> None:
    streamed = FlowChunk(chunk(request(ROME, name="delete"), request(PARIS)))
    restated = [
        late(PARIS, "weather", "uuid-2", pendingOutput={"celsius": 5}),
        late(ROME, "delete", "uuid-1", interrupt=True),
    ]
    assert fed(streamed, interrupted(*restated))[2:] == [
        p.ToolResult("genkit-2", {"celsius": 5}),
        p.Finish(metadata={"genkit": {"refs": {"genkit-1": "uuid-1", "genkit-2": "uuid-2"}}}),
    ]


@pytest.mark.parametrize("cities", [(ROME, PARIS), (ROME, ROME), ({}, None)])
def test_parallel_calls_of_one_name_each_get_their_late_ref(cities: tuple[Any, Any]) -> None:
    streamed = FlowChunk(chunk(*(request(city, name="delete") for city in cities)))
    restated = [late(city, "delete", f"uuid-{index}", interrupt=True) for index, city in enumerate(cities, 1)]
    if cities[0] != cities[1] and cities[1]:
        restated.reverse()
    parts = fed(streamed, interrupted(*restated), interrupts="approval")
    assert [part.tool_call_id for part in parts if isinstance(part, p.ToolCall)] == ["genkit-1", "genkit-2"]
    assert len([part for part in parts if isinstance(part, p.ApprovalRequest)]) == 2
    assert parts[-1] == p.Finish(metadata={"genkit": {"refs": {"genkit-1": "uuid-1", "genkit-2": "uuid-2"}}})


def test_a_late_ref_is_given_to_a_call_whose_input_was_still_being_streamed() -> None:
    events: list[FlowEvent] = [
        FlowChunk(chunk(request({"city": "Ro"}, name="delete", partial=True))),
        interrupted(late(ROME, "delete", "uuid-1", interrupt=True)),
    ]
    parts = fed(*events)
    assert parts[2] == p.ToolCall(
        "genkit-1", "delete", ROME, provider_metadata={"genkit": {"interrupt": True, "ref": "uuid-1"}}
    )
    assert parts[3:] == [p.Finish(metadata={"genkit": {"refs": {"genkit-1": "uuid-1"}}})]


def test_a_late_ref_belongs_to_the_open_call_of_the_same_input() -> None:
    events: list[FlowEvent] = [
        FlowChunk(chunk(request(ROME, name="delete"))),
        FlowChunk(chunk(response(1, "delete"), role="tool")),
        interrupted(late(PARIS, "delete", "uuid-2", interrupt=True)),
    ]
    assert fed(*events)[2:] == [
        p.ToolCall("uuid-2", "delete", PARIS, provider_metadata={"genkit": {"interrupt": True}}),
        p.Finish(),
    ]


def test_an_answer_that_ends_in_tools_gets_a_step_behind_them() -> None:
    events: list[FlowEvent] = [
        FlowChunk(chunk(request(ROME))),
        FlowChunk(chunk(response(1), role="tool")),
        model_response(),
    ]
    assert fed(*events)[-2:] == [p.Step(), p.Finish("stop")]


def test_after_an_answer_of_the_page_genkit_s_echo_of_it_says_nothing() -> None:
    calls = [
        ToolRequest("c1", "ask", None, complete=True, has_response=True, echo=True),
        ToolRequest("c2", "delete", None, complete=True),
        ToolRequest("c3", "delete", None, complete=True),
    ]
    tools = chunk(
        response("blue", "ask"), response("gone", "delete"), response({"denied": True}, "delete"), role="tool"
    )
    assert said(tools, "Thanks.", known=calls, denied={"c3"}) == [
        p.ToolResult("c2", "gone", tool_name="delete", tool_metadata={"genkit": {"matchedBy": "order"}}),
        p.ToolDenied("c3", tool_name="delete"),
        p.Step(),
        p.Text("Thanks."),
    ]


def test_after_an_approval_a_ref_tells_which_call_was_answered() -> None:
    calls = [ToolRequest(call_id, "delete", ref, complete=True) for call_id, ref in (("c1", "0"), ("c2", "1"))]
    tools = chunk(response("second", "delete", ref="1"), response("first", "delete", ref="0"), role="tool")
    assert said(tools, known=calls) == [
        p.ToolResult("c2", "second", tool_name="delete"),
        p.ToolResult("c1", "first", tool_name="delete"),
    ]


def test_an_output_that_was_pending_is_not_that_of_the_call_that_was_restarted() -> None:
    calls = [
        ToolRequest("c1", "delete", complete=True, has_response=True, echo=True, input=ROME),
        ToolRequest("c2", "delete", complete=True, input=PARIS),
    ]
    pending = {**response("Rome is gone", "delete"), "metadata": {"source": "pending"}}
    tools = chunk(pending, response("Paris is gone", "delete"), role="tool")
    assert said(tools, known=calls) == [p.ToolResult("c2", "Paris is gone", tool_name="delete")]


@pytest.mark.parametrize("ref", [{}, {"ref": "0"}])
def test_a_restarted_tool_that_is_interrupted_again_asks_again_and_nothing_is_said_twice(ref: dict[str, str]) -> None:
    calls = [
        ToolRequest("c1", "delete", ref.get("ref"), complete=True, input=ROME),
        ToolRequest("c2", "weather", complete=True, has_response=True, echo=True, input=PARIS),
    ]
    again = {**request(ROME, name="delete", **ref), "metadata": {"interrupt": {"reason": "Really?"}}}
    result = interrupted({"text": "May I?"}, again, PENDING)
    assert fed(result, known=calls, interrupts="approval") == [p.ApprovalRequest("1", "c1", "Really?"), p.Finish()]


def test_a_ref_that_is_used_again_after_an_answer_is_another_call() -> None:
    calls = [ToolRequest("0", "delete", "0", complete=True, input=ROME)]
    result = interrupted({**request(PARIS, name="delete", ref="0"), "metadata": {"interrupt": True}})
    assert [part.input for part in fed(result, known=calls) if isinstance(part, p.ToolCall)] == [PARIS]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        ("INTERNAL", "The agent failed while it answered. Try again."),
        ("RESOURCE_EXHAUSTED", "The agent gets too many requests right now. Wait a minute and try again."),
    ],
)
def test_a_failure_is_a_sentence(status: str, text: str) -> None:
    assert fed(FlowChunk("Hel"), FlowFailure(status, "a secret")) == [p.Text("Hel"), p.Error(text)]


def test_an_end_without_a_result_is_an_error() -> None:
    cut = adapter()
    assert list(cut.feed(FlowChunk("Hel"))) == [p.Text("Hel")]
    assert list(cut.close()) == [p.Error(INCOMPLETE)]
    assert list(cut.close()) == []


def test_nothing_is_said_after_the_end() -> None:
    ended = adapter()
    list(ended.feed(FlowResult("a")))
    assert list(ended.feed(FlowChunk("b"))) == list(ended.close(ValueError("oops"))) == []


def test_a_result_can_be_mapped_as_well() -> None:
    def workout(value: Any) -> list[p.Part]:
        call = p.ToolCall("w", value["toolName"], {})
        return [call, p.ToolResult("w", value["toolOutputData"]), p.Text(value["text"])]

    result = {"text": "Done.", "toolName": "generateWorkout", "toolOutputData": {"exercises": []}}
    assert fed(FlowResult(result), map_result=workout) == [
        p.ToolCall("w", "generateWorkout", {}),
        p.ToolResult("w", {"exercises": []}),
        p.Text("Done."),
        p.Finish(),
    ]
