"""The events of LlamaIndex to parts: lists in, lists out. No LlamaIndex is needed."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.adapters.turns import said_by
from usechat.adapters import conversation
from usechat.adapters.llama_index import LlamaIndexAdapter, QuestionAnswered, QuestionAsked, parts
from usechat.errors import StreamFailed, UnknownEvent
from usechat.parts import (
    ApprovalRequest,
    BlockEnd,
    Data,
    Error,
    Finish,
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
from usechat.protocol.request import ApprovalAnswer


class Event:
    """An event as LlamaIndex has them: fields of its class, and others that it holds as a mapping."""

    def __init__(self, others: dict[str, Any] | None = None, **fields: Any) -> None:
        self.__dict__.update(fields)
        Event._others[id(self)] = others or {}

    _others: dict[int, dict[str, Any]] = {}  # noqa: RUF012

    def keys(self) -> Any:
        return Event._others[id(self)].keys()

    def __getitem__(self, name: str) -> Any:
        return Event._others[id(self)][name]


def made(kind: str, **fields: Any) -> Any:
    return type(kind, (Event,), {})(**fields)


def begun(agent: str = "assistant") -> Any:
    return made("AgentInput", current_agent_name=agent)


def stream(delta: str = "", agent: str = "assistant", **fields: Any) -> Any:
    defaults: dict[str, Any] = {"thinking_delta": None, "tool_calls": [], "raw": None}
    return made("AgentStream", delta=delta, current_agent_name=agent, **defaults | fields)


def output(*blocks: Any, calls: Any = (), raw: Any = None) -> Any:
    response = SimpleNamespace(blocks=blocks)
    return made("AgentOutput", response=response, tool_calls=calls, raw=raw, current_agent_name="assistant")


def selected(call_id: str = "c1", name: str = "weather", **kwargs: Any) -> Any:
    return SimpleNamespace(tool_id=call_id, tool_name=name, tool_kwargs=kwargs)


def called(call_id: str = "c1", name: str = "weather", **kwargs: Any) -> Any:
    return made("ToolCall", tool_id=call_id, tool_name=name, tool_kwargs=kwargs)


def result(value: Any, call_id: str = "c1", *, is_error: bool = False, text: str = "") -> Any:
    tool_output = SimpleNamespace(raw_output=value, is_error=is_error, blocks=[SimpleNamespace(text=text)])
    return made("ToolCallResult", tool_id=call_id, tool_output=tool_output)


def stopped(value: Any = None) -> Any:
    return made("StopEvent", result=value)


def said(*events: Any, **options: Any) -> list[Part]:
    return said_by(LlamaIndexAdapter(**options), events)


DONE = Finish(None)


def test_text_is_streamed_once_and_tokens_are_summed() -> None:
    chat = {"choices": [{"delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 11, "completion_tokens": 7}}
    block = type("TextBlock", (), {"text": "Hello"})()
    events = [begun(), stream("Hel"), stream("lo"), stream(raw=chat), output(block, raw=chat), stopped()]
    assert said(*events) == [
        Step(),
        Text("Hel"),
        Text("lo"),
        conversation.finish("stop", conversation.usage(11, 7)),
    ]


def test_an_answer_that_was_not_streamed_is_read_from_its_blocks() -> None:
    thinking = type("ThinkingBlock", (), {"content": "Hm.", "additional_information": {"signature": "s"}})()
    block = type("TextBlock", (), {"text": "Hello"})()
    raw = {"stop_reason": "end_turn", "usage": {"input_tokens": 11, "output_tokens": 7}}
    assert said(begun(), output(thinking, block, raw=raw), stopped()) == [
        Step(),
        Reasoning("Hm."),
        BlockEnd({"anthropic": {"signature": "s"}}),
        Text("Hello"),
        conversation.finish(None, conversation.usage(11, 7)),
    ]


@pytest.mark.parametrize(
    ("raw", "signature"),
    [
        ([{"delta": {"thinking": "Hm."}}, {"delta": {"signature": "s"}}], {"anthropic": {"signature": "s"}}),
        (
            [
                {"type": "response.reasoning_summary_text.delta", "delta": "Hm."},
                {
                    "type": "response.output_item.done",
                    "item": {"type": "reasoning", "id": "r1", "encrypted_content": "e"},
                },
            ],
            {"openai": {"itemId": "r1", "reasoningEncryptedContent": "e"}},
        ),
    ],
)
def test_reasoning_is_read_from_the_event_of_the_provider_and_ends_with_its_signature(raw: Any, signature: Any) -> None:
    events = [begun(), *(stream(raw=each) for each in raw), stream("Hello"), stopped()]
    assert said(*events) == [Step(), Reasoning("Hm."), BlockEnd(signature), Text("Hello"), DONE]


def test_reasoning_that_llama_index_gives_is_shown() -> None:
    assert said(begun(), stream(thinking_delta="Hm."), stopped()) == [Step(), Reasoning("Hm."), DONE]


@pytest.mark.parametrize(
    "raw",
    [
        lambda text: {"delta": {"partial_json": text}},
        lambda text: {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}}]},
    ],
)
def test_the_input_of_a_tool_is_streamed_and_then_whole(raw: Any) -> None:
    call = selected(city="Paris")
    pieces = [stream(raw=raw(text), tool_calls=[call]) for text in ('{"city"', ': "Paris"}')]
    events = [*pieces, output(calls=[call]), called(city="Paris"), result({"celsius": 21}), stopped()]
    assert said(begun(), *events) == [
        Step(),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city"'),
        ToolInputDelta("c1", ': "Paris"}'),
        ToolCall("c1", "weather", {"city": "Paris"}),
        ToolResult("c1", {"celsius": 21}),
        DONE,
    ]


def test_what_responses_stream_is_shown_once() -> None:
    item = {"type": "function_call", "call_id": "c1", "name": "weather"}
    search = {"type": "web_search_call", "id": "s1", "action": {"query": "owls"}}
    raw = [
        {"type": "response.created", "response": {}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"city": "Paris"}'},
        {"type": "response.output_item.done", "item": {**item, "arguments": '{"city": "Paris"}'}},
        {"type": "response.output_item.done", "item": search},
        {"type": "response.completed", "response": {"usage": {"input_tokens": 11, "output_tokens": 7}}},
    ]
    call = selected(city="Paris")
    events = [*(stream(raw=each) for each in raw), output(calls=[call]), called(city="Paris"), result(21)]
    search_output = {"action": {"query": "owls"}}
    assert said(
        begun(), *events, stream("Hi", raw={"type": "response.output_text.delta", "delta": "Hi"}), stopped()
    ) == [
        Step(),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city": "Paris"}'),
        ToolCall("c1", "weather", {"city": "Paris"}),
        ToolCall("s1", "web_search", {"query": "owls"}, provider_executed=True),
        ToolResult("s1", search_output, provider_executed=True),
        ToolResult("c1", 21),
        Text("Hi"),
        conversation.finish("stop", conversation.usage(11, 7)),
    ]


def test_a_call_that_the_page_has_is_not_shown_again() -> None:
    events = [called(), result("ok", text="ok"), stopped()]
    assert said(*events, known_calls={"c1"}) == [ToolResult("c1", "ok"), DONE]


def test_a_result_is_a_value_or_its_text() -> None:
    assert said(called(), result(object(), text='{"celsius": 21}'), stopped())[1] == ToolResult("c1", {"celsius": 21})


def test_a_tool_that_raises_is_a_tool_error_without_the_text_of_the_exception() -> None:
    assert said(called(), result("hunter2", is_error=True), stopped())[1] == ToolError("c1", conversation.TOOL_FAILED)


def test_a_call_that_was_denied_is_denied_with_the_reason() -> None:
    assert said(result("no"), stopped(), denied={"c1": "I need it."})[0] == ToolDenied("c1", "I need it.")


def test_a_run_asks_for_an_approval_and_goes_on() -> None:
    denied = QuestionAnswered("c1", ApprovalAnswer("a1", approved=False, reason="I need it.", tool_call_id="c1"))
    events = [called("c1", "delete"), QuestionAsked("c1", is_approval=True), denied, result("no"), stopped()]
    assert said(*events) == [
        ToolCall("c1", "delete", {}),
        ApprovalRequest("approval-c1", "c1"),
        ToolDenied("c1", "I need it."),
        DONE,
    ]


def test_a_question_of_a_tool_is_answered_by_its_output() -> None:
    question = {"id": "c1", "toolCallId": "c1", "value": {"prefix": "Where?"}}
    assert said(called(), QuestionAsked("c1", value={"prefix": "Where?"}), stopped()) == [
        ToolCall("c1", "weather", {}),
        Data("interrupt", question, "c1"),
        DONE,
    ]
    assert said(called(), QuestionAsked("c1"), stopped()) == [ToolCall("c1", "weather", {}), DONE]


def test_a_question_of_a_workflow_is_a_call_in_a_step_of_its_own() -> None:
    question = {"id": "q1", "toolCallId": "q1", "value": {"prefix": "Where?"}}
    assert said(QuestionAsked("q1", is_own_call=True, value={"prefix": "Where?"}), stopped()) == [
        Step(leaves_calls=True),
        Data("interrupt", question, "q1"),
        ToolCall("q1", "interrupt", {"prefix": "Where?"}, dynamic=True),
        DONE,
    ]


def test_another_agent_is_a_lane_with_a_label_in_its_first_step() -> None:
    chat = {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}}]}
    handoff = selected("c1", "handoff")
    looks = stream(agent="owls", raw=chat, tool_calls=[selected("c2", "look")])
    events = [begun(), output(calls=[handoff]), result("ok", text="ok"), begun("owls"), looks, stream("Hoo.", "owls")]
    assert said(*events, called("c2", "look"), stopped()) == [
        Step(),
        ToolCall("c1", "handoff", {}),
        ToolResult("c1", "ok"),
        Step(lane="owls"),
        Data("agent", {"name": "owls"}, id="owls", lane="owls"),
        ToolInputStart("c2", "look", lane="owls"),
        ToolInputDelta("c2", "{}", lane="owls"),
        Text("Hoo.", lane="owls"),
        ToolCall("c2", "look", {}, lane="owls"),
        DONE,
    ]


def test_events_of_a_workflow_are_data_parts() -> None:
    progress = made("ProgressEvent", percent=50, others={"note": "half"})
    assert said(made("AgentSetup"), progress, stopped()) == [
        Data("progress-event", {"percent": 50, "note": "half"}),
        DONE,
    ]


def test_structured_output_is_a_data_part() -> None:
    events = [begun(), stream("Hi"), made("AgentStreamStructuredOutput", output={"city": "Paris"}), stopped()]
    assert said(*events) == [Step(), Text("Hi"), Data("output", {"city": "Paris"}), DONE]


def test_the_result_of_a_workflow_is_shown_if_it_has_said_nothing() -> None:
    assert said(stopped("Hello")) == [Text("Hello"), DONE]
    assert said(begun(), stream("Hello"), stopped("Hello")) == [Step(), Text("Hello"), DONE]
    assert said(stopped({"city": "Paris"})) == [Data("output", {"city": "Paris"}), DONE]
    own = type("Found", (type("StopEvent", (Event,), {}),), {})(city="Paris")
    assert said(own) == [Data("output", {"city": "Paris"}), DONE]


def test_a_tool_that_returns_directly_gives_the_answer() -> None:
    last = SimpleNamespace(response=SimpleNamespace(content="21 °C"))
    events = [begun(), stream("Let me look."), called(), result("21 °C", text="21 °C"), stopped(last)]
    assert said(*events)[-2:] == [Text("21 °C"), DONE]


def test_an_answer_that_is_cut_off_has_its_reason() -> None:
    reasons = [
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}},
        {"choices": [{"finish_reason": "length"}]},
        {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}},
    ]
    for raw in reasons:
        assert said(begun(), stream(raw=raw), stopped())[-1] == conversation.finish("length", None)


def test_a_step_that_failed_fails_the_turn() -> None:
    with pytest.raises(StreamFailed, match="the step call failed") as raised:
        said(made("WorkflowFailedEvent", step_name="call", exception=ConnectionError("gone")))
    assert isinstance(raised.value.__cause__, ConnectionError)


@pytest.mark.parametrize(
    "raw",
    [
        {"type": "response.failed", "response": {"error": {"message": "gone"}}},
        {"type": "error", "message": "gone"},
    ],
)
def test_a_response_that_failed_fails_the_turn(raw: Any) -> None:
    with pytest.raises(StreamFailed, match="the response failed: gone"):
        said(begun(), stream(raw=raw))


def test_a_run_without_an_end_is_incomplete_and_one_that_raised_ends_as_it_was_raised() -> None:
    assert said(begun(), stream("Hel"))[-1] == Error(conversation.INCOMPLETE)
    assert list(LlamaIndexAdapter().close(ConnectionError())) == []


def test_an_object_that_is_no_event_is_not_known() -> None:
    with pytest.raises(UnknownEvent):
        said(SimpleNamespace())


async def test_a_loop_of_ones_own_gets_parts() -> None:
    async def events() -> Any:
        for event in (begun(), stream("Hello"), stopped()):
            yield event

    assert [part async for part in parts(events())] == [Step(), Text("Hello"), DONE]
