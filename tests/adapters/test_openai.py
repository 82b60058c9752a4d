"""The streams of the OpenAI client to parts, and chats to its messages: lists in, lists out."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.adapters.turns import assistant, said_by, text, tool, turn_of, user
from usechat.adapters import conversation, litellm
from usechat.adapters.framework import closing
from usechat.adapters.openai import (
    ChatCompletionsAdapter,
    ResponsesAdapter,
    parts,
    to_chat_completions,
    to_responses,
)
from usechat.errors import PublicError, StreamFailed, UnknownEvent
from usechat.parts import (
    BlockEnd,
    Error,
    Metadata,
    Part,
    Reasoning,
    Step,
    Text,
    ToolCall,
    ToolInputDelta,
    ToolInputError,
    ToolInputStart,
)


def chunk(reason: str | None = None, **delta: Any) -> Any:
    choice = SimpleNamespace(index=0, delta=SimpleNamespace(**delta), finish_reason=reason)
    return SimpleNamespace(choices=[choice], usage=None)


def call(index: int, arguments: str, call_id: str | None = None, name: str | None = None) -> Any:
    function = SimpleNamespace(name=name, arguments=arguments)
    return chunk(tool_calls=[SimpleNamespace(index=index, id=call_id, function=function)])


STEP = {"type": "step-start"}
USED = SimpleNamespace(choices=[], usage=SimpleNamespace(prompt_tokens=2, completion_tokens=3))
USAGE = {"inputTokens": 2, "outputTokens": 3, "totalTokens": 5}


def chat(*events: Any) -> list[Part]:
    return said_by(ChatCompletionsAdapter(), events)


def test_an_answer_ends_with_the_usage_that_arrives_last() -> None:
    assert chat(chunk(content=""), chunk(content="Hel"), chunk(content="lo"), chunk("stop"), USED) == [
        Step(),
        Text("Hel"),
        Text("lo"),
        conversation.finish("stop", USAGE),
    ]


def test_a_refusal_is_shown_as_what_it_is() -> None:
    ending = conversation.finish("content-filter", None)
    assert chat(chunk(refusal="I can't"), chunk(refusal=" do that."), chunk("stop")) == [
        Step(),
        Text("I can't"),
        Text(" do that."),
        ending,
    ]
    response = SimpleNamespace(usage=None, incomplete_details=None)
    events = [
        SimpleNamespace(type="response.refusal.delta", delta="No."),
        SimpleNamespace(type="response.completed", response=response),
    ]
    assert said_by(ResponsesAdapter(), events) == [Text("No."), ending]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_read_under_either_name(field: str) -> None:
    assert chat(chunk(**{field: "Hm."}), chunk("length", content="So.")) == [
        Step(),
        Reasoning("Hm."),
        Text("So."),
        conversation.finish("length", None),
    ]


def test_parallel_calls_are_told_apart_by_their_index_and_leave_the_turn_open() -> None:
    events = [
        call(0, "", "c1", "weather"),
        call(0, '{"city"'),
        call(1, '{"zone":1}', "c2", "clock"),
        call(0, ':"x"}'),
        chunk("tool_calls"),
        USED,
    ]
    assert chat(*events) == [
        Step(),
        ToolInputStart("c1", "weather"),
        ToolInputDelta("c1", '{"city"'),
        ToolInputStart("c2", "clock"),
        ToolInputDelta("c2", '{"zone":1}'),
        ToolInputDelta("c1", ':"x"}'),
        ToolCall("c1", "weather", {"city": "x"}),
        ToolCall("c2", "clock", {"zone": 1}),
        Metadata({"finishReason": "tool-calls", "usage": USAGE}),
    ]


def test_a_call_without_arguments_has_an_empty_input_and_one_that_is_no_json_fails() -> None:
    parts = chat(call(0, "", "c1", "now"), call(1, "{", "c2", "dig"), chunk("tool_calls"))
    assert parts[-3:] == [
        ToolCall("c1", "now", {}),
        ToolInputError("c2", "dig", "The input is not valid JSON.", "{"),
        Metadata({"finishReason": "tool-calls"}),
    ]


def test_thinking_of_anthropic_ends_with_the_signature_that_litellm_passes_on() -> None:
    events = [
        chunk(reasoning_content="Hm.", thinking_blocks=[{"type": "thinking", "thinking": "Hm."}]),
        chunk(thinking_blocks=[{"type": "thinking", "thinking": "", "signature": "s"}]),
        chunk(content="So."),
        chunk("stop"),
    ]
    signed = BlockEnd({"anthropic": {"signature": "s"}})
    assert chat(*events)[1:4] == [Reasoning("Hm."), signed, Text("So.")]


def test_events_of_the_stream_helper_repeat_chunks_and_are_left_out() -> None:
    events = [
        SimpleNamespace(type="chunk", chunk=chunk(content="Hi")),
        SimpleNamespace(type="content.delta", delta="Hi"),
        SimpleNamespace(type="chunk", chunk=chunk("stop")),
        SimpleNamespace(type="content.done", content="Hi"),
    ]
    assert chat(*events) == [Step(), Text("Hi"), conversation.finish("stop", None)]
    with pytest.raises(UnknownEvent, match="telepathy"):
        chat(SimpleNamespace(type="telepathy"))


def test_a_stream_that_breaks_off_is_an_error() -> None:
    assert chat(chunk(content="Hi")) == [Step(), Text("Hi"), Error(conversation.INCOMPLETE)]
    assert said_by(ResponsesAdapter(), []) == [Error(conversation.INCOMPLETE)]


def test_a_failed_response_tells_its_reason_to_the_log_alone() -> None:
    failed = SimpleNamespace(type="response.failed", response=SimpleNamespace(error=SimpleNamespace(message="secret")))
    for event in (failed, SimpleNamespace(type="error", message="secret")):
        with pytest.raises(StreamFailed, match="secret"):
            list(ResponsesAdapter().feed(event))
    with pytest.raises(UnknownEvent, match="telepathy"):
        list(ResponsesAdapter().feed(SimpleNamespace(type="telepathy")))


def test_an_incomplete_response_says_why() -> None:
    why = SimpleNamespace(reason="max_output_tokens")
    event = SimpleNamespace(type="response.incomplete", response=SimpleNamespace(usage=None, incomplete_details=why))
    assert said_by(ResponsesAdapter(), [event]) == [conversation.finish("length", None)]


class Stream:
    """A stream of the client: its iterator does not close the connection, ``close`` does."""

    def __init__(self, *events: Any) -> None:
        self._events = iter(events)
        self.closed = 0

    def __aiter__(self) -> "Stream":
        return self

    async def __anext__(self) -> Any:
        for event in self._events:
            return event
        raise StopAsyncIteration

    async def close(self) -> None:
        self.closed += 1


async def test_a_reader_that_leaves_closes_the_connection() -> None:
    stream = Stream(chunk(content="Hi"), chunk(content=" there"))
    stream_parts: Any = parts(stream)
    assert [await anext(stream_parts), await anext(stream_parts)] == [Step(), Text("Hi")]
    await stream_parts.aclose()
    events: Any = closing(stream)
    await anext(events, None)
    await events.aclose()
    assert stream.closed == 1 + 1


async def test_the_api_is_recognised_by_the_first_event() -> None:
    delta = SimpleNamespace(type="response.output_text.delta", delta="Hi")
    assert [part async for part in parts(Stream(delta))] == [Text("Hi"), Error(conversation.INCOMPLETE)]
    assert [part async for part in litellm.parts(Stream(chunk("stop", content="Hi")))][1] == Text("Hi")
    assert [part async for part in parts(Stream())] == [Error(conversation.INCOMPLETE)]


async def test_a_chat_becomes_messages() -> None:
    image = {"type": "file", "mediaType": "image/png", "url": "https://example.org/a.png"}
    pdf = {"type": "file", "mediaType": "application/pdf", "url": "data:application/pdf;base64,aGk="}
    signed = {"type": "reasoning", "text": "Hm.", "providerMetadata": {"anthropic": {"signature": "s"}}}
    weather = tool("weather", "c1", "output-available", output={"celsius": 21})
    history = conversation.history(
        turn_of(
            user("Look.", "u1", image, pdf),
            assistant(STEP, signed, weather, STEP, text("Sunny.")),
            user("Thanks.", "u2"),
        )
    )
    question, call_message, result, reply, _thanks = to_chat_completions(history)
    file = {"filename": "file", "file_data": "data:application/pdf;base64,aGk="}
    assert question["content"] == [
        {"type": "text", "text": "Look."},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "file", "file": file},
    ]
    function = {"name": "weather", "arguments": "{}"}
    calls = [{"id": "c1", "type": "function", "function": function}]
    assert call_message == {"role": "assistant", "content": None, "tool_calls": calls}
    assert result == {"role": "tool", "tool_call_id": "c1", "content": '{"celsius":21}'}
    assert reply == {"role": "assistant", "content": "Sunny."}
    thinking = [{"type": "thinking", "thinking": "Hm.", "signature": "s"}]
    assert litellm.to_litellm(history)[1] == {**call_message, "thinking_blocks": thinking}
    assert [item.get("type", item.get("role")) for item in to_responses(history)] == [
        "user",
        "function_call",
        "function_call_output",
        "assistant",
        "user",
    ]


def test_a_system_message_stays_and_a_pdf_at_an_address_is_refused() -> None:
    assert to_chat_completions([{"role": "system", "content": "Be brief."}]) == [
        {"role": "system", "content": "Be brief."}
    ]
    pdf: Any = {"type": "file", "mediaType": "application/pdf", "data": "https://example.org/a.pdf"}
    with pytest.raises(PublicError, match="uploaded"):
        to_chat_completions([{"role": "user", "content": [pdf]}])


def test_what_was_said_in_a_loop_becomes_its_history() -> None:
    parts: list[Part] = [Step(), Reasoning("Hm."), BlockEnd({"anthropic": {"signature": "s"}})]
    calls: list[Part] = [ToolCall("c1", "clock", {"zone": 1}), ToolCall("c2", "open", {})]
    [message] = conversation.messages_of([*parts, *calls])[:1]
    content: Any = message["content"]
    assert [part["type"] for part in content] == ["reasoning", "tool-call", "tool-call"]
    assert content[0]["providerOptions"] == {"anthropic": {"signature": "s"}}
