"""The updates of the Agent Framework to parts: lists in, lists out. The framework is not needed."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.adapters.turns import assistant, said_by, tool, user
from usechat.adapters import conversation
from usechat.adapters.agent_framework import AgentFrameworkAdapter, AgentFrameworkSource, parts, show_sub_agent
from usechat.errors import PublicError, UnknownEvent
from usechat.parts import (
    ApprovalRequest,
    Data,
    Error,
    File,
    Part,
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
from usechat.protocol.request import ChatRequest
from usechat.testing import AgentClient
from usechat.turn import Turn, TurnContext, TurnInput


def update(*contents: Any, role: str = "assistant", reason: str | None = None) -> Any:
    return {"type": "agent_response_update", "role": role, "contents": list(contents), "finish_reason": reason}


def text(content: str, mode: str = "append", **more: Any) -> Any:
    return {"type": "text", "text": content, "merge_mode": mode, **more}


def call(arguments: Any, mode: str = "append", call_id: str = "c1", name: str = "weather") -> Any:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments, "merge_mode": mode}


def result(**fields: Any) -> Any:
    return update({"type": "function_result", "call_id": "c1", **fields}, role="tool")


def said(*events: Any, **options: Any) -> list[Part]:
    return said_by(AgentFrameworkAdapter(**options), events)


USED = {"type": "usage", "usage_details": {"input_token_count": 11, "output_token_count": 7}}
STOP = update(reason="stop")
END = conversation.finish("stop", None)
CALLED = update(call('{"city": "Paris"}'), reason="tool_calls")


def test_text_is_streamed_and_its_repetition_left_out() -> None:
    events = [update(text("")), update(text("Hel")), update(text("lo")), update(text("Hello", "replace")), STOP]
    assert said(*events, update(USED)) == [
        Step(),
        Text("Hel"),
        Text("lo"),
        conversation.finish("stop", conversation.usage(11, 7)),
    ]


def test_a_text_that_was_not_streamed_is_read_whole() -> None:
    assert said(update(text("Hello", "replace")), STOP) == [Step(), Text("Hello"), END]


def test_reasoning_is_streamed_once_per_item() -> None:
    reasoning = {"type": "text_reasoning", "id": "r1", "text": "Hm."}
    other = {**reasoning, "id": "r2", "text": "Or."}
    events = [update({**reasoning, "merge_mode": mode}) for mode in ("append", "replace")]
    assert said(*events, update({**other, "merge_mode": "replace"}), STOP) == [
        Step(),
        Reasoning("Hm."),
        Reasoning("Or."),
        END,
    ]


def test_the_input_of_a_tool_is_streamed_and_each_answer_is_a_step() -> None:
    pieces = [
        update(call('{"city"')),
        update(call(': "Paris"}', name="")),
        update(call('{"city": "Paris"}', "replace")),
    ]
    events = [*pieces, update(reason="tool_calls"), result(result='{"celsius": 21}'), update(text("Warm.")), STOP]
    assert said(*events) == [
        Step(),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city"'),
        ToolInputDelta("c1", ': "Paris"}'),
        ToolCall("c1", "weather", {"city": "Paris"}),
        ToolResult("c1", {"celsius": 21}),
        Step(),
        Text("Warm."),
        END,
    ]


@pytest.mark.parametrize("arguments", ['{"city": "Paris"}', {"city": "Paris"}])
def test_an_input_that_was_not_streamed_is_read_whole(arguments: Any) -> None:
    parts = said(update(call(arguments, "replace"), reason="tool_calls"))
    assert [part for part in parts if isinstance(part, ToolCall)] == [ToolCall("c1", "weather", {"city": "Paris"})]


def test_inputs_may_be_empty_or_broken_and_a_known_call_is_not_repeated() -> None:
    assert said(update(call(""), reason="tool_calls"))[2] == ToolCall("c1", "weather", {})
    error = said(update(call("{"), reason="tool_calls"))[3]
    assert error == ToolInputError("c1", "weather", "The input is not valid JSON.", "{")
    assert said(CALLED, known_calls={"c1"}) == [Step(), conversation.finish("tool-calls", None)]


def test_a_tool_that_raised_has_failed_and_one_that_a_person_denied_is_denied() -> None:
    failed = result(exception="FunctionInvocationError", result="secret")
    assert said(failed, update(text("Oh.")), STOP)[0] == ToolError("c1", conversation.TOOL_FAILED)
    assert said(failed, update(text("Oh.")), STOP, denied={"c1": "No."})[0] == ToolDenied("c1", "No.")
    assert said(result(result={"a": 1}), update(text("Oh.")), STOP)[0] == ToolResult("c1", {"a": 1})


def test_calls_that_wait_are_asked_about_and_those_beside_them_wait_too() -> None:
    request = update({"type": "function_approval_request", "function_call": {"call_id": "c1"}})
    calls = update(call('{"city": "Paris"}'), call("{}", call_id="c2", name="clock"), reason="tool_calls")
    assert said(calls, request)[-3:] == [
        ApprovalRequest("approval-c1", "c1"),
        ToolResult("c2", "Waits for the other approvals of this answer.", preliminary=True),
        conversation.finish(None, None),
    ]


def test_calls_that_the_provider_runs_are_marked_and_those_of_mcp_servers_have_titles() -> None:
    contents = [
        {"type": "search_tool_call", "call_id": "s1", "tool_name": "web_search", "arguments": {"query": "owls"}},
        {"type": "search_tool_result", "call_id": "s1", "result": {"found": 1}},
        {
            "type": "mcp_server_tool_call",
            "call_id": "m1",
            "tool_name": "lookup",
            "server_name": "docs",
            "arguments": "",
        },
        {"type": "mcp_server_tool_result", "call_id": "m1", "output": [{"type": "text", "text": '{"found": true}'}]},
        {"type": "code_interpreter_tool_call", "call_id": "i1", "arguments": '{"code": "1"}'},
    ]
    assert said(update(*contents), STOP) == [
        Step(),
        ToolCall("s1", "web_search", {"query": "owls"}, provider_executed=True),
        ToolResult("s1", {"found": 1}, provider_executed=True),
        ToolCall("m1", "lookup", {}, dynamic=True, provider_executed=True, title="docs: lookup"),
        ToolResult("m1", {"found": True}, provider_executed=True),
        ToolCall("i1", "code_interpreter", {"code": "1"}, provider_executed=True),
        END,
    ]


def test_files_and_structured_output_are_shown_and_other_contents_are_not() -> None:
    file = {"type": "data", "uri": "data:image/png;base64,aGk=", "media_type": "image/png"}
    events = [update(file, {"type": "hosted_file", "file_id": "f"}), STOP, {"type": "usechat_output", "output": [1]}]
    assert said(*events) == [Step(), File(file["uri"], "image/png"), Data("output", [1]), END]


def test_an_answer_without_a_reason_to_end_is_incomplete() -> None:
    assert said(update(text("Hel"))) == [Step(), Text("Hel"), Error(conversation.INCOMPLETE)]
    assert said(CALLED, result(result="21"))[-1] == Error(conversation.INCOMPLETE)
    assert list(AgentFrameworkAdapter().close(RuntimeError("secret"))) == []


def test_an_odd_event_is_unknown() -> None:
    with pytest.raises(UnknownEvent, match="telepathy"):
        said({"type": "telepathy"})


async def test_the_parts_of_a_run_are_yielded_in_an_agent_function() -> None:
    async def updates() -> Any:
        yield SimpleNamespace(to_dict=lambda: update(text("Hello"), reason="stop"))

    assert [part async for part in parts(updates())] == [Step(), Text("Hello"), END]


async def test_an_answer_to_a_session_that_no_longer_waits_is_refused() -> None:
    waiting = tool("delete", "c1", "approval-responded", approval={"id": "approval-c1", "approved": True})
    context = TurnContext(TurnInput(ChatRequest.parse({"id": "c1", "messages": [user("Delete."), assistant(waiting)]})))
    context.enter()
    with pytest.raises(PublicError, match="no longer waiting"):
        await anext(AgentFrameworkSource(SimpleNamespace(name="assistant")).events(context.turn))


def test_each_call_of_an_agent_that_is_a_tool_is_a_lane() -> None:
    async def research(*pieces: str) -> None:
        for piece in pieces:
            show_sub_agent(SimpleNamespace(author_name="researcher", to_dict=lambda: update(text(piece))))  # noqa: B023
            await asyncio.sleep(0)

    async def agent(_turn: Turn) -> AsyncIterator[Part]:
        for call_id in ("c1", "c2"):
            yield ToolCall(call_id, "research", {})
        await asyncio.gather(research("Owls ", "see."), research("Cats ", "do."))
        for call_id in ("c1", "c2"):
            yield ToolResult(call_id, "They see.")

    with AgentClient(agent, headers={"x-ai-sdk": "7"}) as client:
        answer = client.ask("Who sees?")
    answer.assert_legal(sdk="7")
    assert answer.data["agent"] == [{"name": "researcher"}] * 2
    texts = [part["text"] for part in answer.message.parts if part["type"] == "text"]
    assert texts == ["Owls see.", "Cats do."]
