"""The events of Pydantic AI to parts, and chats to its messages: lists in, lists out."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, ModelRetry
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BinaryContent,
    CustomEvent,
    FinalResultEvent,
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    PartDeltaEvent,
    PartEndEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
    ToolReturnPart,
)
from pydantic_ai.models.test import TestModel
from pydantic_ai.run import AgentRunResultEvent
from pydantic_ai.usage import RunUsage
from pydantic_core import to_jsonable_python

from tests.adapters import pydantic_ai_agent
from tests.adapters.turns import assistant, said_by, text, tool, turn_of, user
from usechat.adapters import conversation
from usechat.adapters.pydantic_ai import _ENGINES, PydanticAIAdapter, source_of, to_pydantic_ai
from usechat.errors import CannotAnswer, UnknownEvent
from usechat.parts import (
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
    ToolError,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
    ToolResult,
)
from usechat.testing import AgentClient, ModelAnswer, ModelCall, ScriptedModel

pytestmark = pytest.mark.quick

USAGE = {"inputTokens": 2, "outputTokens": 3, "totalTokens": 5}


def ended(output: Any, reason: Any = "stop") -> Any:
    result: Any = SimpleNamespace(
        output=output,
        usage=RunUsage(input_tokens=2, output_tokens=3),
        response=ModelResponse([TextPart("Hello")], finish_reason=reason),
    )
    return AgentRunResultEvent(result)


TEXT = [
    PartStartEvent(index=0, part=TextPart("Hel")),
    FinalResultEvent(tool_name=None, tool_call_id=None),
    PartDeltaEvent(index=0, delta=TextPartDelta("lo")),
    PartEndEvent(index=0, part=TextPart("Hello")),
]
CALL = ToolCallPart("weather", '{"city":"Paris"}', "c1")
CALLS = [
    PartStartEvent(index=0, part=ToolCallPart("weather", None, "c1")),
    PartDeltaEvent(index=0, delta=ToolCallPartDelta(args_delta='{"city":')),
    PartDeltaEvent(index=0, delta=ToolCallPartDelta(args_delta='"Paris"}')),
    PartEndEvent(index=0, part=CALL),
    FunctionToolCallEvent(CALL),
]


def returned(content: Any, outcome: Any = "success") -> Any:
    return FunctionToolResultEvent(ToolReturnPart("weather", content, "c1", outcome=outcome))


def test_text_is_streamed_with_the_piece_that_its_start_holds() -> None:
    assert said_by(PydanticAIAdapter(), [*TEXT, ended("Hello")]) == [
        Step(),
        Text("Hel"),
        Text("lo"),
        BlockEnd(),
        Finish("stop", usage=USAGE, metadata={"finishReason": "stop"}),
    ]


def test_reasoning_keeps_the_signature_of_its_provider() -> None:
    signed = ThinkingPart("Hm.", signature="s", provider_name="anthropic")
    events = [
        PartStartEvent(index=0, part=ThinkingPart("H")),
        PartDeltaEvent(index=0, delta=ThinkingPartDelta(content_delta="m.")),
        PartEndEvent(index=0, part=signed),
    ]
    assert said_by(PydanticAIAdapter(), [*events, ended("Hello")])[1:-1] == [
        Reasoning("H"),
        Reasoning("m."),
        BlockEnd({"anthropic": {"signature": "s"}}),
    ]


def test_the_input_of_a_tool_is_streamed_and_its_call_is_sent_once() -> None:
    parts = said_by(PydanticAIAdapter(), [*CALLS, returned({"celsius": 21}), ended("Hello")])
    assert parts[:-1] == [
        Step(),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city":'),
        ToolInputDelta("c1", '"Paris"}'),
        ToolCall("c1", "weather", {"city": "Paris"}),
        ToolResult("c1", {"celsius": 21}),
    ]


@pytest.mark.parametrize("outcome", ["failed", "retried", "interrupted"])
def test_the_text_of_a_failure_stays_here(outcome: str) -> None:
    parts = said_by(PydanticAIAdapter(known_calls={"c1"}), [returned("secret", outcome), ended("Hello")])
    assert parts[0] == ToolError("c1", conversation.TOOL_FAILED)


def test_a_call_that_a_person_denied_is_denied() -> None:
    parts = said_by(PydanticAIAdapter(known_calls={"c1"}), [FunctionToolCallEvent(CALL), returned("No.", "denied")])
    assert parts[0] == ToolDenied("c1", "No.")


def test_an_input_that_is_no_json_is_an_input_error() -> None:
    event = PartEndEvent(index=0, part=ToolCallPart("weather", "{oops", "c1"))
    parts = said_by(PydanticAIAdapter(), [event])
    assert parts[0] == ToolInputError("c1", "weather", "The input is not valid JSON.", "{oops")


def test_a_tool_that_the_provider_runs_is_marked() -> None:
    call = NativeToolCallPart("web_search", {"query": "owls"}, "w1", provider_name="openai")
    tool_return = NativeToolReturnPart("web_search", {"status": "completed"}, "w1", provider_name="openai")
    events = [
        PartStartEvent(index=0, part=call),
        PartEndEvent(index=0, part=call),
        PartStartEvent(index=1, part=tool_return),
        PartEndEvent(index=1, part=tool_return),
    ]
    assert said_by(PydanticAIAdapter(), [*events, ended("Hello")])[1:-1] == [
        ToolInputStart("w1", "web_search", provider_executed=True),
        ToolInputDelta("w1", '{"query":"owls"}'),
        ToolCall("w1", "web_search", {"query": "owls"}, provider_executed=True),
        ToolResult("w1", {"status": "completed"}, provider_executed=True),
    ]


def test_a_result_of_the_provider_whose_call_was_not_told_has_a_call() -> None:
    tool_return = NativeToolReturnPart("web_search", ["found"], "w1", provider_name="anthropic")
    assert said_by(PydanticAIAdapter(), [PartStartEvent(index=0, part=tool_return), ended("Hello")])[1:-1] == [
        ToolCall("w1", "web_search", {}, provider_executed=True),
        ToolResult("w1", ["found"], provider_executed=True),
    ]


@pytest.mark.parametrize(
    ("content", "outcome"),
    [
        ({"error": None, "output": "[2]"}, ToolResult("m1", [2], provider_executed=True)),
        ({"content": [2], "is_error": False}, ToolResult("m1", [2], provider_executed=True)),
        ({"error": "secret", "output": None}, ToolError("m1", conversation.TOOL_FAILED, provider_executed=True)),
    ],
)
def test_a_tool_of_an_mcp_server_has_its_own_name(content: Any, outcome: Any) -> None:
    arguments = '{"action":"call_tool","tool_name":"search","tool_args":{"q": 1}}'
    call = NativeToolCallPart("mcp_server:docs", arguments, "m1", provider_name="openai")
    tool_return = NativeToolReturnPart("mcp_server:docs", content, "m1", provider_name="openai")
    events = [
        PartStartEvent(index=0, part=NativeToolCallPart("mcp_server:docs", None, "m1", provider_name="openai")),
        PartDeltaEvent(index=0, delta=ToolCallPartDelta(args_delta=arguments)),
        PartEndEvent(index=0, part=call),
        PartStartEvent(index=1, part=tool_return),
    ]
    assert said_by(PydanticAIAdapter(), [*events, ended("Hello")])[1:-1] == [
        ToolCall("m1", "search", {"q": 1}, dynamic=True, provider_executed=True, title="docs: search"),
        outcome,
    ]


def test_calls_that_need_an_approval_are_asked_about_at_the_end() -> None:
    parts = said_by(PydanticAIAdapter(), [*CALLS, ended(DeferredToolRequests(approvals=[CALL]))])
    assert parts[-2:] == [ApprovalRequest("approval-c1", "c1"), Finish(usage=USAGE)]


def test_a_structured_output_is_data() -> None:
    parts = said_by(PydanticAIAdapter(), [ended({"city": "Paris"}, "tool_call")])
    assert parts == [
        Data("output", {"city": "Paris"}),
        Finish("tool-calls", usage=USAGE, metadata={"finishReason": "tool-calls"}),
    ]


@dataclass(kw_only=True)
class ProgressEvent(CustomEvent):
    done: int


def test_an_event_of_the_application_is_data() -> None:
    [part] = PydanticAIAdapter().feed(ProgressEvent(done=3))
    assert isinstance(part, Data)
    assert (part.name, part.data["done"]) == ("progress", 3)


def test_a_run_without_a_result_is_incomplete_and_an_odd_event_is_unknown() -> None:
    assert said_by(PydanticAIAdapter(), TEXT[:1])[-1] == Error(conversation.INCOMPLETE)
    with pytest.raises(UnknownEvent, match="telepathy"):
        list(PydanticAIAdapter().feed(SimpleNamespace(event_kind="telepathy")))


def test_agents_answer_and_nothing_else_does() -> None:
    assert source_of(Agent()) is not None
    assert source_of("a text") is None


async def test_a_chat_becomes_messages_of_the_framework() -> None:
    signed = {"type": "reasoning", "text": "Hm.", "providerMetadata": {"anthropic": {"signature": "s"}}}
    unsigned = {"type": "reasoning", "text": "Or."}
    image = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk="}
    weather = tool("weather", "c1", "output-available", output={"celsius": 21})
    failure = tool("dig", "c2", "output-error", errorText="No.")
    turn = turn_of(
        user("Look.", "u1", image),
        assistant({"type": "step-start"}, signed, unsigned, weather, failure, {"type": "step-start"}, text("Sunny.")),
        user("Thanks.", "u2"),
    )
    converted = [part for message in to_pydantic_ai(conversation.history(turn)) for part in message.parts]
    assert converted[0].content == ["Look.", BinaryContent(b"hi", media_type="image/png")]  # type: ignore[union-attr]
    assert converted[1:6] == [
        ThinkingPart("Hm.", signature="s", provider_name="anthropic"),
        ToolCallPart("weather", {}, "c1"),
        ToolCallPart("dig", {}, "c2"),
        ToolReturnPart("weather", {"celsius": 21}, "c1", timestamp=converted[4].timestamp),  # type: ignore[union-attr]
        ToolReturnPart("dig", "No.", "c2", outcome="failed", timestamp=converted[5].timestamp),  # type: ignore[union-attr]
    ]
    assert [part.content for part in converted[6:]] == ["Sunny.", "Thanks."]  # type: ignore[union-attr]


def test_an_agent_with_an_output_validator_answers() -> None:
    agent = Agent(TestModel(custom_output_text="hello"))

    @agent.output_validator
    def capitals(output: str) -> str:
        return output.upper()

    with AgentClient(agent) as client:
        assert client.ask("Hi").text == "hello"


@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize(("approve", "paths"), [(True, ["a"]), (False, [])])
def test_an_agent_with_an_output_validator_asks_for_approvals(
    approve: bool, paths: list[str], is_wrapped: bool
) -> None:
    deleted, validated = [], []
    call = ModelAnswer(calls=[ModelCall("delete", {"path": "a"})])
    with ScriptedModel([call, "Nope.", "Done."]) as model:
        agent = Agent(pydantic_ai_agent.chat_model(model, "chat"))

        @agent.tool_plain(requires_approval=True)
        def delete(path: str) -> str:
            deleted.append(path)
            return "gone"

        @agent.output_validator
        def polite(output: str) -> str:
            validated.append(output)
            if output == "Nope.":
                raise ModelRetry("Be polite.")
            return output

        with AgentClient(WrapperAgent(agent) if is_wrapped else agent, approve=approve) as client:
            assert client.ask("Delete a.").text.endswith("Done.")
    assert (deleted, validated) == (paths, ["Nope.", "Done."])
    assert agent.output_type is str


def test_an_image_of_a_tool_is_an_image_in_later_turns() -> None:
    image = BinaryContent(b"\xff\xfe\xfb", media_type="image/png")
    shown = to_jsonable_python(["A map.", image])
    output: Any = {
        "type": "tool-result",
        "toolCallId": "c1",
        "toolName": "map",
        "output": {"type": "json", "value": shown},
    }
    request: Any = to_pydantic_ai([{"role": "tool", "content": [output]}])[0]
    assert request.parts[0].content == ["A map.", image]


class DBOSAgent(WrapperAgent[Any, Any]):
    """Stands for the one of Pydantic AI, whose import needs DBOS."""


class RestateAgent(WrapperAgent[Any, Any]):
    """Stands for the one of Restate's package."""


class PrefectDurability(AbstractCapability[Any]):
    """Stands for the one of Pydantic AI, whose import needs Prefect."""


@pytest.mark.parametrize(
    ("agent", "engine"),
    [
        (DBOSAgent(Agent(TestModel())), r"DBOS \(DBOSAgent\)"),
        (RestateAgent(Agent(TestModel())), r"Restate \(RestateAgent\)"),
        (Agent(TestModel(), capabilities=[PrefectDurability()]), r"Prefect \(PrefectDurability\)"),
    ],
)
def test_agents_of_other_engines_are_refused_by_name(agent: Any, engine: str) -> None:
    with pytest.raises(CannotAnswer, match=f"this agent runs in workflows of {engine}, .* or run it in Temporal"):
        source_of(agent)


def test_the_refused_classes_of_pydantic_ai_are_there() -> None:
    package = find_spec("pydantic_ai.durable_exec")
    assert package is not None
    assert package.origin is not None
    files = Path(package.origin).parent.rglob("*.py")
    code = "".join(file.read_text(encoding="utf-8") for file in files)
    assert [name for name in _ENGINES if f"class {name}(" not in code] == ["RestateAgent"]
