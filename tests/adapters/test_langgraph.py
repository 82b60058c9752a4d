"""The events of LangGraph to parts, and chats to LangChain's messages: lists in, lists out."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langgraph.graph import StateGraph
from typing_extensions import TypedDict

from tests.adapters.turns import assistant, said_by, text, tool, turn_of, user
from usechat.adapters import conversation
from usechat.adapters.langgraph import LangGraphAdapter, LangGraphSource, source_of, to_langchain
from usechat.errors import CannotAnswer, LocalProtocolError, UnknownEvent
from usechat.parts import (
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    File,
    Finish,
    Reasoning,
    SourceUrl,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolResult,
)

LANE = "model:1"


def event(message: Any, lane: str = LANE, ns: tuple[str, ...] = (), **meta: Any) -> Any:
    return {"type": "messages", "ns": ns, "data": (message, {"langgraph_checkpoint_ns": lane, **meta})}


def chunk(content: Any = "", **more: Any) -> Any:
    return event(AIMessageChunk(content=content, **more))


def arguments(text: str | None, index: int = 0, **more: Any) -> Any:
    piece = {"name": None, "id": None, "args": text, "index": index, "type": "tool_call_chunk", **more}
    return chunk(tool_call_chunks=[piece])


def task(**data: Any) -> Any:
    return {"type": "tasks", "ns": (), "data": data}


LAST = chunk(chunk_position="last")
CALL = [arguments("", name="weather", id="c1"), arguments('{"city":'), arguments('"Paris"}'), LAST]
CALLED = [
    Step(lane=LANE),
    ToolInputStart("c1", "weather", lane=LANE),
    ToolInputDelta("c1", '{"city":', lane=LANE),
    ToolInputDelta("c1", '"Paris"}', lane=LANE),
    ToolCall("c1", "weather", {"city": "Paris"}, lane=LANE),
]


def test_text_is_streamed_and_the_message_that_repeats_it_is_not_said_again() -> None:
    events = [chunk("Hel"), chunk("lo"), LAST, event(AIMessage("Hello"))]
    assert said_by(LangGraphAdapter(), events) == [
        Step(lane=LANE),
        Text("Hel", lane=LANE),
        Text("lo", lane=LANE),
        Finish(),
    ]


def test_a_message_that_was_not_streamed_is_said() -> None:
    call = {"name": "weather", "args": {"city": "Paris"}, "id": "c1"}
    assert said_by(LangGraphAdapter(), [event(AIMessage("Hello", tool_calls=[call]))]) == [
        Step(lane=LANE),
        Text("Hello", lane=LANE),
        ToolCall("c1", "weather", {"city": "Paris"}, lane=LANE),
        Finish(),
    ]


def test_reasoning_keeps_the_signature_of_its_provider() -> None:
    blocks = [{"type": "thinking", "thinking": "Hm."}], [{"type": "thinking", "thinking": "", "signature": "s"}]
    assert said_by(LangGraphAdapter(), [*map(chunk, blocks), LAST]) == [
        Step(lane=LANE),
        Reasoning("Hm.", lane=LANE),
        BlockEnd({"anthropic": {"signature": "s"}}, lane=LANE),
        Finish(),
    ]


def test_the_summary_of_reasoning_is_reasoning() -> None:
    block = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "index": 0}
    assert Reasoning("Hm.", lane=LANE) in said_by(LangGraphAdapter(), [chunk([block]), LAST])


def test_the_input_of_a_tool_is_streamed() -> None:
    assert said_by(LangGraphAdapter(), CALL)[:-1] == CALLED


def test_an_input_that_is_no_json_is_an_input_error() -> None:
    events = [arguments("", name="weather", id="c1"), arguments("{oops"), LAST]
    parts = said_by(LangGraphAdapter(), events)
    assert ToolInputError("c1", "weather", "The input is not valid JSON.", "{oops", lane=LANE) in parts


def test_a_tool_that_openai_runs_is_marked() -> None:
    action = {"type": "search", "query": "owls"}
    block = {"type": "web_search_call", "id": "ws_1", "action": action, "status": "completed", "index": 1}
    assert said_by(LangGraphAdapter(), [chunk([block]), LAST])[1:-1] == [
        ToolCall("ws_1", "web_search", action, provider_executed=True, lane=LANE),
        ToolResult("ws_1", {"action": action, "status": "completed"}, provider_executed=True, lane=LANE),
    ]


@pytest.mark.parametrize("is_error", [False, True])
def test_a_tool_that_anthropic_runs_is_marked_and_its_input_is_streamed(is_error: bool) -> None:
    result = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": ["found"], "is_error": is_error}
    blocks: list[Any] = [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}, "index": 0},
        {"type": "input_json_delta", "partial_json": '{"q":1}', "index": 0},
        result,
    ]
    failure = ToolError("s1", conversation.TOOL_FAILED, provider_executed=True, lane=LANE)
    assert said_by(LangGraphAdapter(), [*(chunk([block]) for block in blocks), LAST])[1:-1] == [
        ToolInputStart("s1", "web_search", provider_executed=True, lane=LANE),
        ToolInputDelta("s1", '{"q":1}', lane=LANE),
        ToolCall("s1", "web_search", {"q": 1}, provider_executed=True, lane=LANE),
        failure if is_error else ToolResult("s1", ["found"], provider_executed=True, lane=LANE),
    ]


def test_a_tool_of_a_provider_that_breaks_off_has_failed() -> None:
    block = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"q": 1}, "index": 0}
    parts = said_by(LangGraphAdapter(), [chunk([block]), LAST])
    assert parts[-2] == ToolError("s1", conversation.TOOL_FAILED, provider_executed=True, lane=LANE)


MCP_BLOCKS: dict[str, list[Any]] = {
    "openai": [
        {"type": "mcp_call", "id": "m1", "name": "search", "server_label": "docs", "arguments": "{}", "output": "[2]"}
    ],
    "anthropic": [
        {"type": "mcp_tool_use", "id": "m1", "name": "search", "server_name": "docs", "input": {}, "index": 0},
        {"type": "mcp_tool_result", "tool_use_id": "m1", "content": [2], "index": 1},
    ],
}


@pytest.mark.parametrize("provider", MCP_BLOCKS)
def test_a_tool_of_an_mcp_server_has_its_own_name(provider: str) -> None:
    parts = said_by(LangGraphAdapter(), [*(chunk([block]) for block in MCP_BLOCKS[provider]), LAST])
    marks: Any = {"provider_executed": True, "lane": LANE}
    assert parts[-3:-1] == [
        ToolCall("m1", "search", {}, dynamic=True, title="docs: search", **marks),
        ToolResult("m1", [2], **marks),
    ]


def test_results_are_json_values_matched_by_their_id() -> None:
    events = [*CALL, event(ToolMessage('{"celsius": 21}', tool_call_id="c1"), "tools:1")]
    assert said_by(LangGraphAdapter(), events)[-2:] == [ToolResult("c1", {"celsius": 21}, lane=LANE), Finish()]


def test_the_text_of_a_failure_stays_here() -> None:
    events = [*CALL, event(ToolMessage("secret", tool_call_id="c1", status="error"), "tools:1")]
    assert said_by(LangGraphAdapter(), events)[-2] == ToolError("c1", conversation.TOOL_FAILED, lane=LANE)


def test_a_task_that_fails_fails_its_call() -> None:
    call = {"name": "weather", "args": {"city": "Paris"}, "id": "c1"}
    events = [*CALL, task(id="t1", name="tools", input=[call]), task(id="t1", error=RuntimeError("secret"), result={})]
    assert said_by(LangGraphAdapter(), events)[-2] == ToolError("c1", conversation.TOOL_FAILED)


def test_a_call_that_a_person_denied_is_denied() -> None:
    adapter = LangGraphAdapter(known_calls={"c1"}, denied={"c1": "No."})
    events = [event(ToolMessage("User rejected", tool_call_id="c1", status="error"), "hitl:1")]
    assert said_by(adapter, events) == [ToolDenied("c1", "No."), Finish()]


def test_a_call_that_the_page_knows_is_not_sent_again() -> None:
    call = {"name": "weather", "args": {}, "id": "c1"}
    adapter = LangGraphAdapter(known_calls={"c1"})
    assert said_by(adapter, [task(id="t1", name="tools", input=[call])]) == [Finish()]


def test_usage_is_summed_up_and_the_reason_is_that_of_the_last_message() -> None:
    usage = {"input_tokens": 2, "output_tokens": 3, "total_tokens": 5}
    pieces = [chunk(usage_metadata=usage), chunk(response_metadata={"finish_reason": "length"}), LAST]
    assert said_by(LangGraphAdapter(), [*pieces, *pieces])[-1] == Finish(
        "length",
        usage={"inputTokens": 4, "outputTokens": 6, "totalTokens": 10},
        metadata={"finishReason": "length"},
    )


def test_what_a_node_writes_to_the_stream_is_data() -> None:
    assert said_by(LangGraphAdapter(), [{"type": "custom", "ns": (), "data": {"percent": 40}}]) == [
        Data("custom", {"percent": 40}),
        Finish(),
    ]


def test_a_structured_response_is_data() -> None:
    result = task(id="t1", error=None, result={"structured_response": {"city": "Paris"}}, interrupts=[])
    assert said_by(LangGraphAdapter(), [result]) == [Data("output", {"city": "Paris"}), Finish()]


def test_a_subgraph_has_a_lane_and_a_label() -> None:
    inner = event(AIMessageChunk(content="Owls."), "tools:1|model:2", ("tools:1",), lc_agent_name="researcher")
    end = event(AIMessageChunk(content="", chunk_position="last"), "tools:1|model:2", ("tools:1",))
    assert said_by(LangGraphAdapter(), [inner, end]) == [
        Step(lane="tools:1|model:2"),
        Data("agent", {"name": "researcher"}, id="tools:1", lane="tools:1|model:2"),
        Text("Owls.", lane="tools:1|model:2"),
        Finish(),
    ]


def test_the_calls_of_the_approval_middleware_are_matched_by_name_and_arguments_in_order() -> None:
    calls = [{"name": "delete", "args": {"path": path}, "id": f"c{path}"} for path in "ab"]
    calls.append({"name": "weather", "args": {}, "id": "c3"})
    requests = [{"name": "delete", "args": {"path": path}, "description": f"Delete {path}?"} for path in "ab"]
    value = {"action_requests": requests, "review_configs": []}
    interrupts = [{"id": "i1", "value": value}]
    events = [event(AIMessage("", tool_calls=calls)), task(id="t1", error=None, result={}, interrupts=interrupts)]
    assert said_by(LangGraphAdapter(), events)[4:] == [
        ApprovalRequest("i1-0", "ca", "Delete a?"),
        ApprovalRequest("i1-1", "cb", "Delete b?"),
        ToolError("c3", "The tool has not run yet, because another call waits for an approval.", lane=LANE),
        Finish(),
    ]


def test_an_interrupt_of_a_tool_waits_for_the_output_of_its_call() -> None:
    call = {"name": "weather", "args": {"city": "Paris"}, "id": "c1"}
    paused = task(id="t1", error=None, result={}, interrupts=[{"id": "i1", "value": "Where?"}])
    events = [*CALL, task(id="t1", name="tools", input=[call]), paused]
    data = {"id": "i1", "toolCallId": "c1", "value": "Where?"}
    assert said_by(LangGraphAdapter(), events)[-2:] == [Data("interrupt", data, "i1"), Finish()]


def test_an_interrupt_of_a_tool_whose_call_is_settled_asks_with_another_call_in_a_step_of_its_own() -> None:
    call = {"name": "weather", "args": {"city": "Paris"}, "id": "c1"}
    paused = task(id="t1", error=None, result={}, interrupts=[{"id": "i2", "value": "When?"}])
    adapter = LangGraphAdapter(known_calls={"c1"}, settled_calls={"c1"})
    assert said_by(adapter, [task(id="t1", name="tools", input=[call]), paused]) == [
        Step(),
        Data("interrupt", {"id": "i2", "toolCallId": "i2", "value": "When?"}, "i2"),
        ToolCall("i2", "weather", {"city": "Paris"}),
        Finish(),
    ]


def test_any_other_interrupt_is_a_question_in_a_step_of_its_own() -> None:
    paused = task(id="t1", error=None, result={}, interrupts=[{"id": "i1", "value": "Go on?"}])
    assert said_by(LangGraphAdapter(), [paused]) == [
        Step(),
        Data("interrupt", {"id": "i1", "toolCallId": "i1", "value": "Go on?"}, "i1"),
        ToolCall("i1", "interrupt", "Go on?", dynamic=True),
        Finish(),
    ]


def test_a_message_that_breaks_off_is_an_error() -> None:
    assert said_by(LangGraphAdapter(), [chunk("Hel")])[-1] == Error(conversation.INCOMPLETE)


def test_events_of_another_kind_are_unknown_and_those_of_another_version_are_refused() -> None:
    with pytest.raises(UnknownEvent, match="telepathy"):
        list(LangGraphAdapter().feed({"type": "telepathy", "ns": (), "data": None}))
    with pytest.raises(LocalProtocolError, match="STREAM"):
        list(LangGraphAdapter().feed({"model": {"messages": []}}))


def test_pages_that_a_model_cites_and_images_that_it_makes_are_shown() -> None:
    page = {"type": "url_citation", "url": "https://example.com/owls", "title": "Owls"}
    image = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}
    blocks = [{"type": "text", "text": "Owls.", "annotations": [page, page]}, image]
    assert said_by(LangGraphAdapter(), [chunk(blocks), LAST])[1:-1] == [
        Text("Owls.", lane=LANE),
        SourceUrl("https://example.com/owls", "https://example.com/owls", "Owls", lane=LANE),
        File("data:image/png;base64,aGk=", "image/png", lane=LANE),
    ]


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ([{"type": "text", "text": '{"a": 1}'}], {"a": 1}),
        ([{"type": "text", "text": "one"}, {"type": "text", "text": "two"}], None),
    ],
)
def test_the_one_text_of_an_mcp_tool_is_its_result(content: Any, output: Any) -> None:
    result = event(ToolMessage(content, tool_call_id="c1", name="weather"), lane="tools:1")
    assert said_by(LangGraphAdapter(), [*CALL, result])[-2] == ToolResult("c1", output or content, lane=LANE)


async def test_an_image_of_a_tool_is_one_for_the_model_in_later_turns() -> None:
    blocks = [{"type": "text", "text": "An owl:"}, {"type": "image", "base64": "aGk=", "mime_type": "image/png"}]
    turn = turn_of(
        user("Draw."), assistant(tool("draw", "c1", "output-available", output=blocks)), user("Thanks.", "u2")
    )
    assert to_langchain(conversation.history(turn))[2].content == blocks


class Question(TypedDict):
    question: str


def test_a_graph_is_compiled_and_its_input_has_messages_or_is_made() -> None:
    graph: Any = StateGraph(Question)
    with pytest.raises(CannotAnswer, match="compile"):
        source_of(graph)
    compiled = graph.add_node("answer", lambda state: state).set_entry_point("answer").compile()
    with pytest.raises(CannotAnswer, match="input="):
        source_of(compiled)
    assert LangGraphSource(compiled, input=lambda turn: {"question": turn.text}) is not None
    assert source_of("a text") is None


async def test_a_chat_becomes_langchain_messages() -> None:
    signed = {"type": "reasoning", "text": "Hm.", "providerMetadata": {"anthropic": {"signature": "s"}}}
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk="}
    weather = tool("weather", "c1", "output-available", output={"celsius": 21})
    failure = tool("dig", "c2", "output-error", errorText="No.")
    turn = turn_of(
        user("Look.", "u1", image),
        assistant({"type": "step-start"}, signed, weather, failure, {"type": "step-start"}, text("Sunny.")),
        user("Thanks.", "u2"),
    )
    assert [(type(each), each.content) for each in to_langchain(conversation.history(turn))] == [
        (
            HumanMessage,
            [{"type": "text", "text": "Look."}, {"type": "image", "base64": "aGk=", "mime_type": "image/png"}],
        ),
        (AIMessage, [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]),
        (ToolMessage, '{"celsius":21}'),
        (ToolMessage, "No."),
        (AIMessage, "Sunny."),
        (HumanMessage, "Thanks."),
    ]
