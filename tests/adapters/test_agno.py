"""The events of Agno to parts: lists in, lists out. The objects are those of recordings; no Agno is needed."""

from typing import Any

import pytest

from tests.adapters.recorded_events import decoded
from tests.adapters.turns import said_by
from usechat.adapters import conversation
from usechat.adapters.agno import AgnoAdapter, parts
from usechat.errors import StreamFailed, UnknownEvent
from usechat.parts import (
    Abort,
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    File,
    Finish,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolDenied,
    ToolError,
    ToolResult,
)


def event(kind: str, **fields: Any) -> Any:
    return decoded({"$type": f"{kind}Event", "event": kind, "run_id": "r1", **fields})


def execution(**fields: Any) -> dict[str, Any]:
    return {"$type": "ToolExecution", "tool_call_id": "c1", "tool_name": "weather", "tool_args": {"a": 1}, **fields}


def tool(kind: str, **fields: Any) -> Any:
    return event(f"ToolCall{kind}", tool=execution(**fields))


END = conversation.finish("stop", None)
DONE = event("RunCompleted", content="Hello")
USED = {"$type": "RunMetrics", "input_tokens": 2, "output_tokens": 3}
CALL = ToolCall("c1", "weather", {"a": 1})


def said(*events: Any, **options: Any) -> list[Part]:
    return said_by(AgnoAdapter(**options), events)


def test_text_is_streamed_and_its_repetition_left_out() -> None:
    events = [
        event("RunStarted"),
        event("ModelRequestStarted"),
        event("RunContent"),
        event("RunContent", content="Hel"),
        event("RunContent", content="lo"),
        event("ModelRequestCompleted"),
        event("RunContentCompleted"),
        event("RunCompleted", content="Hello", metrics=USED),
    ]
    usage = {"inputTokens": 2, "outputTokens": 3, "totalTokens": 5}
    assert said(*events) == [Step(), Text("Hel"), Text("lo"), conversation.finish("stop", usage)]


def test_a_text_that_was_not_streamed_is_sent_at_the_end() -> None:
    assert said(DONE) == [Text("Hello"), END]


def test_reasoning_ends_with_its_signature() -> None:
    events = [
        event("RunContent", reasoning_content="Hm."),
        event("RunContent", content="", model_provider_data={"signature": "s"}),
        event("RunContent", content="Hello"),
        event("ReasoningContentDelta", reasoning_content="Or."),
        event("RunContent", model_provider_data={"signature": "t"}),
        event("ModelRequestCompleted"),
        DONE,
    ]
    assert said(*events) == [
        Reasoning("Hm."),
        BlockEnd({"anthropic": {"signature": "s"}}),
        Text("Hello"),
        Reasoning("Or."),
        BlockEnd({"anthropic": {"signature": "t"}}),
        END,
    ]


@pytest.mark.parametrize(
    ("result", "output"),
    [
        ('{"celsius": 21}', {"celsius": 21}),
        ("{'celsius': 21, 'rain': None}", {"celsius": 21, "rain": None}),
        ("[print]", "[print]"),
        ("sunny", "sunny"),
        (None, None),
    ],
)
def test_a_result_is_a_value_where_its_text_is_one(result: str | None, output: Any) -> None:
    assert said(tool("Started"), tool("Completed", result=result), DONE)[:2] == [CALL, ToolResult("c1", output)]


def test_a_tool_that_raised_has_failed_and_its_text_stays_here() -> None:
    failed = {"tool_call_error": True, "result": "secret"}
    assert said(tool("Completed", **failed), tool("Error", **failed), DONE)[:-2] == [
        CALL,
        ToolError("c1", conversation.TOOL_FAILED),
    ]


def test_calls_that_wait_are_asked_about_and_those_of_the_page_are_calls_alone() -> None:
    requirements = [
        {"$type": "RunRequirement", "tool_execution": execution(requires_confirmation=True)},
        {"$type": "RunRequirement", "tool_execution": execution(tool_call_id="c2", external_execution_required=True)},
    ]
    assert said(event("RunPaused", content="I have tools to execute.", requirements=requirements)) == [
        CALL,
        ApprovalRequest("approval-c1", "c1"),
        ToolCall("c2", "weather", {"a": 1}),
        Finish(),
    ]


def test_a_call_that_a_person_denied_is_denied_when_the_run_goes_on() -> None:
    events = [event("RunContinued"), event("RunContent", content="Fine."), DONE]
    assert said(*events, known_calls={"c1"}, denied={"c1": "No."})[0] == ToolDenied("c1", "No.")


def test_a_member_of_a_team_is_a_lane_with_a_name_and_does_not_end_the_turn() -> None:
    member = {"run_id": "r2", "agent_name": "researcher"}
    events = [
        event("TeamRunStarted"),
        event("RunStarted", **member),
        event("ModelRequestStarted", **member),
        event("RunContent", content="Owls.", **member),
        event("RunCompleted", content="Owls.", **member),
        event("TeamRunContent", content="They see."),
        event("TeamRunCompleted", content="They see."),
    ]
    assert said(*events) == [
        Step(lane="r2"),
        Data("agent", {"name": "researcher"}, id="r2", lane="r2"),
        Text("Owls.", lane="r2"),
        Text("They see."),
        END,
    ]


def test_structured_output_images_and_events_of_the_application_are_shown() -> None:
    image = {"$type": "Image", "url": "https://example.org/a.png"}
    events = [
        event("RunContent", content={"city": "Paris"}),
        event("RunContent", image=image),
        event("RunContent", image={"$type": "Image"}),
        event("FollowupsCompleted", followups=["More?"]),
        event("CustomEvent", done=3),
        event("RunCompleted", content={"city": "Paris"}),
    ]
    parts = said(*events)
    assert parts[:3] == [
        Data("output", {"city": "Paris"}),
        File("https://example.org/a.png", "image/png"),
        Data("followups", ["More?"]),
    ]
    assert isinstance(parts[3], Data)
    assert (parts[3].name, parts[3].data["done"]) == ("custom", 3)
    assert parts[4:] == [END]  # it repeats the output
    assert said(event("RunCompleted", content={"city": "Oslo"})) == [Data("output", {"city": "Oslo"}), END]


def test_a_cancelled_run_is_stopped_a_failed_one_raises_and_an_odd_event_is_unknown() -> None:
    assert said(event("RunCancelled")) == [Abort()]
    with pytest.raises(StreamFailed, match="overloaded"):
        said(event("RunError", content="overloaded"))
    with pytest.raises(UnknownEvent, match="telepathy"):
        said(event("telepathy"))


def test_a_run_without_an_end_is_incomplete() -> None:
    assert said(event("RunContent", content="Hel")) == [Text("Hel"), Error(conversation.INCOMPLETE)]


async def test_the_parts_of_a_run_can_be_read_in_a_loop_of_ones_own() -> None:
    async def run() -> Any:
        yield DONE

    assert [part async for part in parts(run())] == [Text("Hello"), END]
