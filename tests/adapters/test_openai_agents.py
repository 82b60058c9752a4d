"""The events of the OpenAI Agents SDK to parts, and chats to its input: lists in, lists out."""

from typing import Any

import pytest
from agents import Agent
from agents.items import ToolCallOutputItem
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.stream_events import AgentUpdatedStreamEvent, RawResponsesStreamEvent, RunItemStreamEvent
from openai.types.responses import ResponseFunctionToolCall, ResponseFunctionWebSearch, ResponseReasoningItem
from openai.types.responses.response_function_web_search import ActionSearch
from openai.types.responses.response_output_item import ImageGenerationCall, McpCall
from openai.types.responses.response_reasoning_item import Summary

from tests.adapters.turns import assistant, said_by, text, tool, turn_of, user
from usechat.adapters import conversation
from usechat.adapters.openai_agents import OpenAIAgentsAdapter, source_of, to_openai_agents
from usechat.errors import UnknownEvent
from usechat.parts import (
    BlockEnd,
    Data,
    Error,
    File,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolInputDelta,
    ToolInputStart,
    ToolResult,
)

AGENT: Agent[Any] = Agent(name="assistant")
INCOMPLETE = Error(conversation.INCOMPLETE)
CALL = ResponseFunctionToolCall(
    type="function_call", id="__fake_id__", call_id="c1", name="weather", arguments='{"city":"Paris"}'
)


class Raw:
    """An event of the Responses API: its type and fields."""

    def __init__(self, kind: str, **fields: Any) -> None:
        self.type = f"response.{kind}"
        self.__dict__ |= fields


def raw(kind: str, **fields: Any) -> Any:
    data: Any = Raw(kind, **fields)
    return RawResponsesStreamEvent(data=data)


def output(value: Any) -> Any:
    item: Any = ToolCallOutputItem(
        agent=AGENT, raw_item={"call_id": "c1", "output": str(value), "type": "function_call_output"}, output=value
    )
    return RunItemStreamEvent(name="tool_output", item=item)


CALLED = [
    raw("created"),
    raw("output_item.added", output_index=0, item=CALL),
    raw("function_call_arguments.delta", output_index=0, delta='{"city":"Paris"}'),
    raw("output_item.done", output_index=0, item=CALL),
]


def test_text_is_streamed() -> None:
    events = [raw("created"), raw("output_text.delta", delta="Hel"), raw("output_text.delta", delta="lo")]
    assert said_by(OpenAIAgentsAdapter(), events) == [Step(), Text("Hel"), Text("lo"), INCOMPLETE]


def test_reasoning_keeps_what_its_provider_encrypted() -> None:
    item = ResponseReasoningItem(
        type="reasoning", id="rs_1", summary=[Summary(type="summary_text", text="Hm.")], encrypted_content="e"
    )
    events = [raw("reasoning_summary_text.delta", delta="Hm."), raw("output_item.done", output_index=0, item=item)]
    assert said_by(OpenAIAgentsAdapter(), events)[:-1] == [
        Reasoning("Hm."),
        BlockEnd({"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "e"}}),
    ]


def test_the_input_of_a_tool_is_streamed_by_its_index_and_its_result_is_a_value() -> None:
    assert said_by(OpenAIAgentsAdapter(), [*CALLED, output({"celsius": 21})])[:-1] == [
        Step(),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city":"Paris"}'),
        ToolCall("c1", "weather", {"city": "Paris"}),
        ToolResult("c1", {"celsius": 21}),
    ]


def test_the_sentence_of_the_sdk_about_a_tool_that_raised_is_a_failure() -> None:
    failed = output("An error occurred while running the tool. Please try again.")
    parts = said_by(OpenAIAgentsAdapter(known_calls={"c1"}), [failed])
    assert parts[0] == ToolError("c1", conversation.TOOL_FAILED)


def test_a_call_that_a_person_denied_is_denied() -> None:
    adapter = OpenAIAgentsAdapter(known_calls={"c1"}, denied={"c1": "No."})
    assert said_by(adapter, [output("No.")])[0] == ToolDenied("c1", "No.")


def test_an_agent_that_takes_over_has_a_lane_a_step_and_a_label() -> None:
    other: Agent[Any] = Agent(name="researcher")
    answer = [raw("created"), raw("output_text.delta", delta="Owls.")]
    events = [AgentUpdatedStreamEvent(AGENT), *answer, AgentUpdatedStreamEvent(other), *answer]
    lane = "agent-researcher"
    assert said_by(OpenAIAgentsAdapter(), events) == [
        Step(),
        Text("Owls."),
        Step(lane=lane),
        Data("agent", {"name": "researcher"}, id=lane, lane=lane),
        Text("Owls.", lane=lane),
        INCOMPLETE,
    ]


def test_a_tool_that_openai_runs_is_marked() -> None:
    action = ActionSearch(type="search", query="owls")
    item = ResponseFunctionWebSearch(id="ws_1", type="web_search_call", status="completed", action=action)
    search_output = {"status": "completed", "action": {"type": "search", "query": "owls"}}
    assert said_by(OpenAIAgentsAdapter(), [raw("output_item.done", output_index=0, item=item)])[:-1] == [
        ToolCall("ws_1", "web_search", search_output["action"], provider_executed=True),
        ToolResult("ws_1", search_output, provider_executed=True),
    ]


@pytest.mark.parametrize("error", [None, "secret"])
def test_a_tool_of_an_mcp_server_has_its_own_name(error: str | None) -> None:
    item = McpCall.construct(
        id="mcp_1", type="mcp_call", name="search", server_label="docs", arguments='{"q":1}', output="[2]", error=error
    )
    call, outcome, _ = said_by(OpenAIAgentsAdapter(), [raw("output_item.done", output_index=0, item=item)])
    assert call == ToolCall("mcp_1", "search", {"q": 1}, provider_executed=True, dynamic=True, title="docs: search")
    failure = ToolError("mcp_1", conversation.TOOL_FAILED, provider_executed=True)
    assert outcome == (ToolResult("mcp_1", [2], provider_executed=True) if error is None else failure)


def test_an_image_that_openai_made_is_a_file() -> None:
    item = ImageGenerationCall(id="ig_1", type="image_generation_call", status="completed", result="aGk=")
    parts = said_by(OpenAIAgentsAdapter(), [raw("output_item.done", output_index=0, item=item)])
    assert parts[1:-1] == [
        ToolResult("ig_1", {"status": "completed"}, provider_executed=True),
        File("data:image/png;base64,aGk=", "image/png"),
    ]


def test_other_events_are_unknown() -> None:
    with pytest.raises(UnknownEvent, match="telepathy"):
        list(OpenAIAgentsAdapter().feed(type("Odd", (), {"type": "telepathy"})()))


def test_agents_answer_and_nothing_else_does() -> None:
    assert source_of(AGENT) is not None
    assert source_of("a text") is None


async def test_a_chat_becomes_input_items() -> None:
    encrypted = {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "e"}}
    reasoning = {"type": "reasoning", "text": "Hm.", "providerMetadata": encrypted}
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk="}
    weather = tool("weather", "c1", "output-available", output={"celsius": 21})
    turn = turn_of(
        user("Look.", "u1", image),
        assistant({"type": "step-start"}, reasoning, weather, {"type": "step-start"}, text("Sunny.")),
    )
    summary = [{"type": "summary_text", "text": "Hm."}]
    assert to_openai_agents(conversation.history(turn)) == [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look."},
                {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
            ],
        },
        {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": "e"},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": '{"celsius":21}'},
        {
            "type": "message",
            "id": FAKE_RESPONSES_ID,
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Sunny.", "annotations": []}],
        },
    ]
