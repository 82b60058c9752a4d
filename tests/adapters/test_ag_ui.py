"""The events of AG-UI to parts, and chats to its input: lists in, lists out."""

from typing import Any

import pytest

from tests.adapters.turns import assistant, said_by, text, tool, turn_of, user
from usechat.adapters import conversation
from usechat.adapters.ag_ui import AgUiAdapter, AgUiEndpoint, AgUiSource, parts, run_input, source_of, to_ag_ui
from usechat.errors import InvalidAddress, StreamFailed, UnknownEvent
from usechat.parts import (
    Abort,
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    Finish,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolResult,
)


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, **fields}


DONE = event("RUN_FINISHED")
END = conversation.finish("stop", None)
TEXT = [
    event("RUN_STARTED", threadId="t", runId="r"),
    event("TEXT_MESSAGE_START", messageId="m1", role="assistant"),
    event("TEXT_MESSAGE_CONTENT", messageId="m1", delta="Hel"),
    event("TEXT_MESSAGE_CONTENT", messageId="m1", delta="lo"),
    event("TEXT_MESSAGE_END", messageId="m1"),
]
CALL = [
    event("TOOL_CALL_START", toolCallId="c1", toolCallName="weather", parentMessageId="m1"),
    event("TOOL_CALL_ARGS", toolCallId="c1", delta='{"city":'),
    event("TOOL_CALL_ARGS", toolCallId="c1", delta='"Paris"}'),
    event("TOOL_CALL_END", toolCallId="c1"),
]


def result(content: Any) -> dict[str, Any]:
    return event("TOOL_CALL_RESULT", messageId="m2", toolCallId="c1", content=content)


def interrupted(*interrupts: Any) -> dict[str, Any]:
    return event("RUN_FINISHED", outcome={"type": "interrupt", "interrupts": list(interrupts)})


def test_text_is_streamed_and_usage_is_summed() -> None:
    usage = [{"inputTokens": 2, "outputTokens": 3}, {"inputTokens": 1}]
    assert said_by(AgUiAdapter(), [*TEXT, event("RUN_FINISHED", usage=usage)]) == [
        Step(),
        Text("Hel", lane="m1"),
        Text("lo", lane="m1"),
        BlockEnd(lane="m1"),
        conversation.finish("stop", {"inputTokens": 3, "outputTokens": 3, "totalTokens": 6}),
    ]


def test_chunks_without_an_id_belong_to_the_message_and_the_call_before() -> None:
    events = [
        event("TEXT_MESSAGE_CHUNK", messageId="m1", role="assistant", delta="Hel"),
        event("TEXT_MESSAGE_CHUNK", delta="lo"),
        event("TOOL_CALL_CHUNK", delta="lost"),
        event("TOOL_CALL_CHUNK", toolCallId="c1", toolCallName="weather", delta="{"),
        event("TOOL_CALL_CHUNK", delta="}"),
        event("TOOL_CALL_CHUNK", toolCallId="c2", toolCallName="clock"),
        DONE,
    ]
    assert said_by(AgUiAdapter(), events) == [
        Step(),
        Text("Hel", lane="m1"),
        Text("lo", lane="m1"),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", "{"),
        ToolInputDelta("c1", "}"),
        ToolCall("c1", "weather", {}),
        ToolInputStart("c2", "clock"),
        ToolCall("c2", "clock", {}),
        Finish(),
    ]


def test_messages_of_other_roles_are_not_shown() -> None:
    events = [
        event("TEXT_MESSAGE_START", messageId="u", role="user"),
        event("TEXT_MESSAGE_CONTENT", messageId="u", delta="Hi"),
        event("TEXT_MESSAGE_END", messageId="u"),
        event("TEXT_MESSAGE_CHUNK", messageId="s", role="system", delta="Be brief."),
        event("MESSAGES_SNAPSHOT", messages=[]),
        event("RAW", event={}),
        DONE,
    ]
    assert said_by(AgUiAdapter(), events) == [END]


def test_reasoning_keeps_the_value_that_the_agent_wants_back() -> None:
    events = [
        event("REASONING_START", messageId="r1"),
        event("REASONING_MESSAGE_CONTENT", messageId="r1", delta="Hm."),
        event("REASONING_MESSAGE_END", messageId="r1"),
        event("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="r1", encryptedValue="e"),
        event("REASONING_END", messageId="r1"),
        event("REASONING_MESSAGE_CHUNK", messageId="r2", delta="Or."),
        event("REASONING_END", messageId="r2"),
        event("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="another", encryptedValue="e"),
        DONE,
    ]
    assert said_by(AgUiAdapter(), events) == [
        Step(),
        Reasoning("Hm.", lane="r1"),
        BlockEnd({"agUi": {"encryptedValue": "e"}}, lane="r1"),
        Reasoning("Or.", lane="r2"),
        BlockEnd(lane="r2"),
        END,
    ]


def test_a_call_is_streamed_and_what_follows_its_result_is_another_step() -> None:
    encrypted = event("REASONING_ENCRYPTED_VALUE", subtype="tool-call", entityId="c1", encryptedValue="e")
    events = [CALL[0], encrypted, *CALL[1:], result('{"celsius":21}'), *TEXT, DONE]
    assert said_by(AgUiAdapter(), events)[:7] == [
        Step(),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city":'),
        ToolInputDelta("c1", '"Paris"}'),
        ToolCall("c1", "weather", {"city": "Paris"}, provider_metadata={"agUi": {"encryptedValue": "e"}}),
        ToolResult("c1", {"celsius": 21}),
        Step(),
    ]


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ("sunny", "sunny"),
        ([{"type": "text", "text": "[1]"}], [1]),
        ([{"type": "image", "source": {}}], [{"type": "image", "source": {}}]),
    ],
)
def test_a_result_is_a_value(content: Any, output: Any) -> None:
    assert list(AgUiAdapter().feed(result(content))) == [ToolResult("c1", output)]


def test_an_input_that_is_no_json_is_an_input_error() -> None:
    parts = said_by(AgUiAdapter(), [CALL[0], event("TOOL_CALL_ARGS", toolCallId="c1", delta="{oops"), CALL[3], DONE])
    assert parts[-2] == ToolInputError("c1", "weather", "The input is not valid JSON.", "{oops")


def test_a_call_that_the_page_has_is_not_sent_again_and_one_that_was_denied_is_denied() -> None:
    parts = said_by(AgUiAdapter(known_calls={"c1"}, denied={"c1": "No."}), [*CALL, result("Denied."), DONE])
    assert parts == [ToolDenied("c1", "No."), END]


def test_an_interrupt_of_a_call_is_an_approval_and_any_other_one_a_question() -> None:
    fields = {"message": "Which city?", "responseSchema": {"type": "string"}, "metadata": {"langgraph": {"raw": "?"}}}
    question = {"id": "i2", "reason": "input", **fields}
    parts = said_by(AgUiAdapter(), [*CALL, interrupted({"id": "i1", "toolCallId": "c1"}, question)])
    assert parts[-3:] == [
        ApprovalRequest("i1", "c1"),
        ToolCall("i2", "interrupt", fields),
        Finish(),
    ]


ON_INTERRUPT = event("CUSTOM", name="on_interrupt", value='{"question":"Which file?"}')


def test_an_interrupt_of_a_graph_is_a_question_of_its_own_step() -> None:
    step, call, end = said_by(AgUiAdapter(), [*CALL, {**ON_INTERRUPT, "subagentRunId": "s1"}, ON_INTERRUPT, DONE])[-3:]
    assert (step, end) == (Step(leaves_calls=True), Finish())
    assert isinstance(call, ToolCall)
    assert (call.tool_name, call.input, call.dynamic) == ("interrupt", {"question": "Which file?"}, True)
    assert call.tool_call_id.startswith("on_interrupt-")


def test_an_interrupt_that_is_told_twice_is_asked_once() -> None:
    parts = said_by(AgUiAdapter(), [ON_INTERRUPT, interrupted({"id": "i1", "message": "Which file?"})])
    assert parts == [ToolCall("i1", "interrupt", {"message": "Which file?"}), Finish()]


@pytest.mark.parametrize(
    ("state", "resume"),
    [({"output": "a"}, "a"), ({"errorText": "No."}, {"error": "No."})],
    ids=["answered", "refused"],
)
async def test_the_answer_to_an_interrupt_of_a_graph_is_where_it_looks_for_it(state: Any, resume: Any) -> None:
    kind = "output-error" if "errorText" in state else "output-available"
    body = run_input(turn_of(user("Go."), assistant(tool("interrupt", "on_interrupt-1", kind, **state))))
    assert (body["forwardedProps"], "resume" in body) == ({"command": {"resume": resume}}, False)


def test_state_activities_steps_results_and_custom_events_are_data() -> None:
    events = [
        event("STEP_STARTED", stepName="plan"),
        event("STEP_FINISHED", stepName="plan"),
        event("STATE_SNAPSHOT", snapshot={"a": 1}),
        event("STATE_DELTA", delta=[{"op": "remove", "path": "/a"}]),
        event("ACTIVITY_SNAPSHOT", messageId="a1", activityType="search", content={"q": "owls"}),
        event("ACTIVITY_DELTA", messageId="a1", activityType="search", patch=[]),
        event("CUSTOM", name="progress", value=3),
        event("RUN_FINISHED", result={"city": "Paris"}, outcome={"type": "success"}),
    ]
    assert said_by(AgUiAdapter(), events) == [
        Step(),
        Data("step", {"name": "plan", "state": "started"}, id="plan"),
        Data("step", {"name": "plan", "state": "finished"}, id="plan"),
        Data("state", {"a": 1}, id="state"),
        Data("state-delta", [{"op": "remove", "path": "/a"}]),
        Data("activity", {"type": "search", "content": {"q": "owls"}}, id="a1"),
        Data("activity-delta", {"id": "a1", "patch": []}),
        Data("progress", 3),
        Data("output", {"city": "Paris"}),
        END,
    ]


def test_each_sub_agent_speaks_in_a_lane_of_its_own_behind_its_name() -> None:
    def of(run_id: str, kind: str, **fields: Any) -> dict[str, Any]:
        return event(kind, subagentRunId=run_id, **fields)

    events = [
        *CALL,
        of("s1", "SUBAGENT_STARTED", name="researcher", parentToolCallId="c1"),
        of("s2", "SUBAGENT_STARTED", name="critic", parentToolCallId="c1"),
        of("s1", "TEXT_MESSAGE_CHUNK", messageId="m1", delta="Owls "),
        of("s2", "TOOL_CALL_CHUNK", toolCallId="c2", toolCallName="look"),
        of("s1", "TEXT_MESSAGE_CHUNK", delta="see."),
        of("s2", "SUBAGENT_FINISHED"),
        of("s1", "SUBAGENT_FINISHED"),
        of("s3", "TEXT_MESSAGE_CHUNK", messageId="m3", delta="Late."),
        result("They see."),
        interrupted({"id": "i1", "toolCallId": "c2"}),
    ]
    assert said_by(AgUiAdapter(), events)[5:] == [
        Step(lane="s1"),
        Data("agent", {"name": "researcher"}, id="s1", lane="s1"),
        Text("Owls ", lane="s1"),
        Step(lane="s2"),
        Data("agent", {"name": "critic"}, id="s2", lane="s2"),
        ToolInputStart("c2", "look", lane="s2"),
        Text("see.", lane="s1"),
        ToolCall("c2", "look", {}, lane="s2"),
        Step(lane="s3"),
        Data("agent", {"name": "agent"}, id="s3", lane="s3"),
        Text("Late.", lane="s3"),
        ToolResult("c1", "They see."),
        ApprovalRequest("i1", "c2"),
        Finish(),
    ]


def test_a_cancelled_run_is_stopped_a_failed_one_raises_and_an_odd_event_is_unknown() -> None:
    assert said_by(AgUiAdapter(), [event("RUN_FINISHED", outcome={"type": "cancelled"})]) == [Abort()]
    with pytest.raises(StreamFailed, match="overloaded"):
        list(AgUiAdapter().feed(event("RUN_ERROR", message="overloaded")))
    with pytest.raises(UnknownEvent, match="telepathy"):
        list(AgUiAdapter().feed(event("telepathy")))


def test_a_run_without_an_end_is_incomplete() -> None:
    assert said_by(AgUiAdapter(), TEXT)[-1] == Error(conversation.INCOMPLETE)


def test_agents_of_ag_ui_packages_answer_and_nothing_else_does() -> None:
    agent = type("Agent", (), {"run": lambda *_: None})
    assert isinstance(source_of(agent()), AgUiSource)
    assert source_of(agent) is None
    assert source_of("a text") is None


def test_an_address_is_one_of_http() -> None:
    with pytest.raises(InvalidAddress, match="'ws://host/' is not the address of an AG-UI agent"):
        AgUiEndpoint("ws://host/")


async def test_the_parts_of_a_run_can_be_read_in_a_loop_of_ones_own() -> None:
    async def run() -> Any:
        for each in [*TEXT, DONE]:
            yield each

    assert [part async for part in parts(run())][1:3] == [Text("Hel", lane="m1"), Text("lo", lane="m1")]


async def test_a_chat_becomes_messages_with_ids_that_stay_the_same() -> None:
    reasoned = {"type": "reasoning", "text": "Hm.", "providerMetadata": {"agUi": {"encryptedValue": "e"}}}
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk="}
    pdf = {"type": "file", "mediaType": "application/pdf", "url": "https://example.org/a.pdf"}
    note = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,hi", "filename": "a.txt"}
    weather = tool("weather", "c1", "output-available", output={"celsius": 21})
    failure = tool("dig", "c2", "output-error", errorText="No.")
    turn = turn_of(
        user("Look.", "u1", image, pdf, note),
        assistant({"type": "step-start"}, reasoned, weather, failure, {"type": "step-start"}, text("Sunny.")),
        user("Thanks.", "u2"),
    )
    assert run_input(turn)["messages"] == [
        {
            "id": "u1",
            "role": "user",
            "content": [
                {"type": "text", "text": "Look."},
                {"type": "image", "source": {"type": "data", "value": "aGk=", "mimeType": "image/png"}},
                {"type": "document", "source": {"type": "url", "value": pdf["url"], "mimeType": "application/pdf"}},
                {"type": "text", "text": "a.txt:\nhi"},
            ],
        },
        {"id": "u1-1", "role": "reasoning", "content": "Hm.", "encryptedValue": "e"},
        {
            "id": "u1-2",
            "role": "assistant",
            "toolCalls": [
                {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}},
                {"id": "c2", "type": "function", "function": {"name": "dig", "arguments": "{}"}},
            ],
        },
        {"id": "u1-3", "role": "tool", "toolCallId": "c1", "content": '{"celsius":21}'},
        {"id": "u1-4", "role": "tool", "toolCallId": "c2", "content": "No.", "error": "No."},
        {"id": "u1-5", "role": "assistant", "content": "Sunny."},
        {"id": "u2", "role": "user", "content": "Thanks."},
    ]


async def test_answers_resume_the_interrupts_and_stay_out_of_the_history() -> None:
    approved = tool("delete", "c1", "approval-responded", approval={"id": "i1", "approved": False, "reason": "No."})
    answer = tool("interrupt", "i2", "output-available", output="Paris")
    refused = tool("interrupt", "i3", "output-error", errorText="Closed.")
    resumed = run_input(turn_of(user("Go."), assistant(approved, answer, refused), identity="ann"))
    assert resumed["threadId"] == "ann/c1"
    assert [message["role"] for message in resumed["messages"]] == ["user", "assistant"]
    assert [call["id"] for call in resumed["messages"][1]["toolCalls"]] == ["c1"]
    assert resumed["resume"] == [
        {"interruptId": "i1", "status": "resolved", "payload": {"approved": False, "reason": "No."}},
        {"interruptId": "i2", "status": "resolved", "payload": "Paris"},
        {"interruptId": "i3", "status": "cancelled", "payload": None},
    ]


def test_an_encrypted_value_of_a_call_goes_back_with_it() -> None:
    options = {"agUi": {"encryptedValue": "e"}}
    call: Any = {"type": "tool-call", "toolCallId": "c1", "toolName": "dig", "input": {}, "providerOptions": options}
    [message] = to_ag_ui([{"role": "assistant", "content": [call]}])
    assert message["toolCalls"][0]["encryptedValue"] == "e"
