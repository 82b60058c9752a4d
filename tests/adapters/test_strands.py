"""The events of Strands to parts, and chats to its messages: lists in, lists out. No Strands is needed."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.adapters.turns import assistant, said_by, text, tool, turn_of, user
from usechat.adapters import conversation
from usechat.adapters.strands import StrandsAdapter, StrandsSource, parts, to_strands
from usechat.errors import PublicError, UnknownEvent
from usechat.parts import (
    Abort,
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    Part,
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
from usechat.protocol.request import ChatRequest
from usechat.turn import TurnContext, TurnInput

USE = {"toolUseId": "c1", "name": "weather", "input": {"city": "Paris"}}
STARTED = {"event": {"messageStart": {"role": "assistant"}}}
USED = {"event": {"metadata": {"usage": {"inputTokens": 11, "outputTokens": 7}}}}


def ended(reason: str = "end_turn") -> Any:
    return {"result": SimpleNamespace(stop_reason=reason)}


def said(*events: Any, **options: Any) -> list[Part]:
    return said_by(StrandsAdapter(**options), events)


def finish(reason: str | None, *tokens: int) -> Part:
    return conversation.finish(reason, conversation.usage(*(tokens or (0, 0))))


def result(status: str, *content: Any) -> Any:
    return {"message": {"role": "user", "content": [{"toolResult": {**USE, "status": status, "content": content}}]}}


def test_text_is_streamed_once_and_tokens_are_summed() -> None:
    whole = {"message": {"role": "assistant", "content": [{"text": "Hello"}]}}
    events = [{"init_event_loop": True}, STARTED, {"data": "Hel"}, {"data": "lo"}, USED, USED, whole, ended()]
    assert said(*events) == [Step(), Text("Hel"), Text("lo"), finish("stop", 22, 14)]


def test_reasoning_ends_with_its_signature() -> None:
    events = [{"reasoningText": "Hm.", "reasoning": True}, {"reasoning_signature": "s", "reasoning": True}, ended()]
    assert said(*events) == [Reasoning("Hm."), BlockEnd({"anthropic": {"signature": "s"}}), finish("stop")]


def test_the_input_of_a_tool_is_streamed_and_then_whole() -> None:
    pieces = [
        {"type": "tool_use_stream", "current_tool_use": USE, "delta": {"toolUse": {"input": piece}}}
        for piece in ('{"city"', ': "Paris"}')
    ]
    call = {"message": {"role": "assistant", "content": [{"toolUse": USE}]}}
    assert said(*pieces, call, result("success", {"text": '{"celsius": 21}'}), ended()) == [
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city"'),
        ToolInputDelta("c1", ': "Paris"}'),
        ToolCall("c1", "weather", {"city": "Paris"}),
        ToolResult("c1", {"celsius": 21}),
        finish("stop"),
    ]
    assert said(call, ended(), known_calls={"c1"}) == [finish("stop")]


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ([{"json": {"a": 1}}], {"a": 1}),
        ([{"text": "sunny"}], "sunny"),
        ([{"text": "a"}, {"text": "b"}], ["a", "b"]),
        ([{"document": {"name": "d"}}], {"document": {"name": "d"}}),
    ],
)
def test_a_result_is_a_value(content: list[Any], output: Any) -> None:
    assert said(result("success", *content), ended())[0] == ToolResult("c1", output)


def test_a_tool_that_raised_has_failed_and_one_that_a_person_denied_is_denied() -> None:
    failed = result("error", {"text": "secret"})
    assert said(failed, ended())[0] == ToolError("c1", conversation.TOOL_FAILED)
    assert said(failed, ended(), denied={"c1": "No."})[0] == ToolDenied("c1", "No.")


@pytest.mark.parametrize(
    ("interrupt", "parts"),
    [
        ("v1:before_tool_call:c1:u", [ApprovalRequest("approval-c1", "c1")]),
        ("v1:agent_as_tool:c1:v1:before_tool_call:c2:u", [ApprovalRequest("approval-c1", "c1")]),
        ("v1:tool_call:c1:u", []),
    ],
)
def test_a_hook_asks_for_an_approval_and_a_tool_for_its_output(interrupt: str, parts: list[Part]) -> None:
    paused = {"tool_interrupt_event": {"tool_use": USE, "interrupts": [SimpleNamespace(id=interrupt)]}}
    assert said(paused, ended("interrupt")) == [*parts, finish(None)]


def test_an_agent_that_a_tool_asks_is_a_lane_with_a_label_in_its_step() -> None:
    events = [
        {"tool_stream_event": {"tool_use": USE, "data": data}}
        for data in ({"init_event_loop": True}, STARTED, {"data": "Owls."}, ended(), "Owls.")
    ]
    assert said(*events, ended()) == [
        Step(lane="c1"),
        Data("agent", {"name": "weather"}, id="c1", lane="c1"),
        Text("Owls.", {"usechat": {"inTool": True}}, lane="c1"),
        finish("stop"),
    ]


def test_what_a_tool_yields_is_a_preliminary_result() -> None:
    event = {"tool_stream_event": {"tool_use": USE, "data": {"percent": 50}}}
    assert said(event, ended())[0] == ToolResult("c1", {"percent": 50}, preliminary=True)


def test_structured_output_is_data() -> None:
    output = SimpleNamespace(model_dump=lambda mode: {"city": "Paris", "mode": mode})
    assert said({"structured_output": output}, ended())[0] == Data("output", {"city": "Paris", "mode": "json"})
    assert said({"structured_output": None}, ended()) == [finish("stop")]


def test_endings_are_told_apart() -> None:
    class MaxTokensReachedException(Exception):
        pass

    assert said(ended("cancelled")) == [Abort()]
    assert said({"data": "Hel"})[-1] == Error(conversation.INCOMPLETE)
    assert list(StrandsAdapter().close(MaxTokensReachedException())) == [finish("length")]
    assert list(StrandsAdapter().close(RuntimeError("secret"))) == []
    assert said({"force_stop": True, "force_stop_reason": "secret"}, ended()) == [finish("stop")]
    with pytest.raises(UnknownEvent, match="telepathy"):
        said({"type": "telepathy"})
    with pytest.raises(UnknownEvent, match="clairvoyance"):
        said({"clairvoyance": 1})


async def test_the_parts_of_an_invocation_are_yielded_in_an_agent_function() -> None:
    async def events() -> Any:
        yield {"data": "Hello"}
        yield ended()

    assert [part async for part in parts(events())] == [Text("Hello"), finish("stop")]


async def test_an_answer_to_an_agent_that_no_longer_waits_is_refused() -> None:
    waiting = tool("delete", "c1", "approval-responded", approval={"id": "approval-c1", "approved": True})
    request = ChatRequest.parse({"id": "c1", "messages": [user("Delete."), assistant(waiting)]})
    context = TurnContext(TurnInput(request))
    context.enter()
    with pytest.raises(PublicError, match="no longer waiting"):
        await anext(StrandsSource(lambda _turn: None).events(context.turn))


async def test_a_chat_becomes_messages_of_strands() -> None:
    signed = {"type": "reasoning", "text": "Hm.", "providerMetadata": {"anthropic": {"signature": "s"}}}
    files = [
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,aGk="},
        {
            "type": "file",
            "mediaType": "application/pdf",
            "url": "data:application/pdf;base64,aGk=",
            "filename": "a.pdf",
        },
        {
            "type": "file",
            "mediaType": "application/zip",
            "url": "data:application/zip;base64,aGk=",
            "filename": "a.zip",
        },
        {"type": "file", "mediaType": "application/pdf", "url": "https://example.org/b.pdf", "filename": "b.pdf"},
        {"type": "file", "mediaType": "text/plain", "url": "data:text/plain,hi", "filename": "a.txt"},
    ]
    chat = turn_of(
        user("Look.", "u1", *files),
        assistant(
            {"type": "step-start"},
            {"type": "reasoning", "text": "Not signed."},
            signed,
            tool("weather", "c1", "output-available", output={"celsius": 21}),
            tool("dig", "c2", "output-error", errorText="No."),
            {"type": "step-start"},
            text("Sunny."),
        ),
        user("Thanks.", "u2"),
    )
    question, call_message, results, reply, thanks = to_strands(conversation.history(chat))
    assert question["content"] == [
        {"text": "Look."},
        {"image": {"format": "png", "source": {"bytes": b"hi"}}},
        {"document": {"name": "a", "format": "pdf", "source": {"bytes": b"hi"}}},
        {"text": "a.zip (application/zip) is attached, and cannot be read."},
        {"text": "b.pdf: https://example.org/b.pdf"},
        {"text": "a.txt:\nhi"},
    ]
    assert call_message == {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "s"}}},
            {"toolUse": {"toolUseId": "c1", "name": "weather", "input": {}}},
            {"toolUse": {"toolUseId": "c2", "name": "dig", "input": {}}},
        ],
    }
    assert results["content"] == [
        {"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": '{"celsius":21}'}]}},
        {"toolResult": {"toolUseId": "c2", "status": "error", "content": [{"text": "No."}]}},
    ]
    assert [reply, thanks] == [
        {"role": "assistant", "content": [{"text": "Sunny."}]},
        {"role": "user", "content": [{"text": "Thanks."}]},
    ]
