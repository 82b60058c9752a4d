"""The scripted models, read by the real SDKs: what they stream, and which histories they reject."""

import time
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from usechat.testing import ModelAnswer, ModelCall, ScriptedModel

Models = Callable[..., ScriptedModel]

CALLS = [ModelCall("weather", {"city": "Paris"}), ModelCall("time", {}, id="own")]
RICH = ModelAnswer(text=["It ", "is "], reasoning=["Hm", "."], calls=CALLS)


def openai_client(model: ScriptedModel) -> openai.OpenAI:
    return openai.OpenAI(base_url=model.openai_url, api_key="none", max_retries=0)


def anthropic_client(model: ScriptedModel) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=model.anthropic_url, api_key="none", max_retries=0)


USER: Any = {"role": "user", "content": "hi"}


def test_chat_completions_streams_text_reasoning_and_parallel_calls(scripted_model: Models) -> None:
    model = scripted_model([RICH])
    with openai_client(model) as client:
        stream = client.chat.completions.create(
            model="m", messages=[USER], stream=True, stream_options={"include_usage": True}
        )
        chunks = list(stream)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "It is "
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "Hm."
    arguments = {0: "", 1: ""}
    for call in [call for delta in deltas for call in delta.tool_calls or []]:
        arguments[call.index] += (call.function and call.function.arguments) or ""
    assert arguments == {0: '{"city": "Paris"}', 1: "{}"}
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "tool_calls"
    assert chunks[-1].usage is not None
    assert model.requests[0]["messages"] == [USER]


def test_chat_completions_answers_at_once_too(scripted_model: Models) -> None:
    with openai_client(scripted_model([RICH, "Hello"])) as client:
        message = client.chat.completions.create(model="m", messages=[USER]).choices[0].message
        assert message.content == "It is "
        assert [call.id for call in message.tool_calls or []] == ["call_1", "own"]
        assert client.chat.completions.create(model="m", messages=[USER]).choices[0].message.content == "Hello"


def test_responses_streams_text_reasoning_and_parallel_calls(scripted_model: Models) -> None:
    with openai_client(scripted_model([RICH])) as client, client.responses.stream(model="m", input="hi") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert final.output_text == "It is "
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]
    assert [event.sequence_number for event in events] == sorted(event.sequence_number for event in events)
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas == ["It ", "is "]


def test_responses_goes_on_with_a_previous_response(scripted_model: Models) -> None:
    with openai_client(scripted_model([ModelAnswer(calls=CALLS[:1]), "21"])) as client:
        first = client.responses.create(model="m", input="hi")
        output: Any = [{"type": "function_call_output", "call_id": "call_1", "output": "21"}]
        second = client.responses.create(model="m", input=output, previous_response_id=first.id)
        assert second.output_text == "21"
        with pytest.raises(openai.BadRequestError, match="Previous response with id 'no' not found"):
            client.responses.create(model="m", input="hi", previous_response_id="no")


def test_anthropic_streams_text_thinking_and_parallel_calls(scripted_model: Models) -> None:
    with (
        anthropic_client(scripted_model([RICH])) as client,
        client.messages.stream(model="m", max_tokens=9, messages=[USER]) as stream,
    ):
        texts = list(stream.text_stream)
        final = stream.get_final_message()
    assert texts == ["It ", "is "]
    assert [block.type for block in final.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block.input for block in final.content if block.type == "tool_use"] == [{"city": "Paris"}, {}]
    assert final.stop_reason == "tool_use"


def test_anthropic_answers_at_once_too(scripted_model: Models) -> None:
    with anthropic_client(scripted_model(["Hello"])) as client:
        message = client.messages.create(model="m", max_tokens=9, messages=[USER])
    assert message.content[0].type == "text"
    assert (message.content[0].text, message.stop_reason) == ("Hello", "end_turn")


@pytest.mark.parametrize("answer", [ModelAnswer(error="Too many.", status=429)])
def test_failures_are_those_of_the_sdks(scripted_model: Models, answer: ModelAnswer) -> None:
    model = scripted_model([answer, answer, answer])
    with openai_client(model) as client:
        with pytest.raises(openai.RateLimitError, match="Too many"):
            client.chat.completions.create(model="m", messages=[USER])
        with pytest.raises(openai.RateLimitError, match="Too many"):
            client.responses.create(model="m", input="hi")
    with anthropic_client(model) as claude, pytest.raises(anthropic.RateLimitError, match="Too many"):
        claude.messages.create(model="m", max_tokens=9, messages=[USER])


def test_a_stream_may_break_off_with_an_error(scripted_model: Models) -> None:
    answer = ModelAnswer(text="It ", error="Overloaded.", status=200)
    model = scripted_model([answer, answer, answer])
    with openai_client(model) as client:
        with pytest.raises(openai.APIError, match="Overloaded"):
            list(client.chat.completions.create(model="m", messages=[USER], stream=True))
        events = list(client.responses.create(model="m", input="hi", stream=True))
        assert events[-1].type == "response.failed"
    with anthropic_client(model) as claude, pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        list(claude.messages.create(model="m", max_tokens=9, messages=[USER], stream=True))


def test_a_script_that_is_over_fails(scripted_model: Models) -> None:
    with openai_client(scripted_model([])) as client, pytest.raises(openai.InternalServerError, match="script"):
        client.chat.completions.create(model="m", messages=[USER])


def call(*ids: str) -> Any:
    function = {"name": "weather", "arguments": "{}"}
    return {"role": "assistant", "tool_calls": [{"id": one, "type": "function", "function": function} for one in ids]}


def tool(call_id: str) -> Any:
    return {"role": "tool", "tool_call_id": call_id, "content": "21"}


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "too short"),
        ([{"role": "robot", "content": ""}], "Invalid value: 'robot'"),
        ([{"role": "user", "content": None}], "expected a string, got null"),
        ([USER, tool("c1")], "must be a response to a preceeding message"),
        ([USER, call("c1")], "did not have response messages: c1"),
        ([USER, call("c1", "c2"), tool("c1"), USER], "did not have response messages: c2"),
        ([USER, call("c1"), USER, tool("c1")], "did not have response messages: c1"),
        ([USER, call("c1"), tool("c1"), tool("c1")], "must be a response to a preceeding message"),
        ([USER, call(""), tool("")], "Missing required parameter: 'messages.\\[1\\].tool_calls\\[0\\].id'"),
        ([USER, {"role": "assistant", "tool_calls": []}], "empty array"),
    ],
)
def test_chat_completions_rejects_broken_histories(scripted_model: Models, messages: Any, text: str) -> None:
    model = scripted_model(["never"])
    with openai_client(model) as client, pytest.raises(openai.BadRequestError, match=text):
        client.chat.completions.create(model="m", messages=messages)
    assert model.requests == []


def test_chat_completions_accepts_whole_histories(scripted_model: Models) -> None:
    with openai_client(scripted_model(["ok"])) as client:
        messages: Any = [{"role": "system", "content": "s"}, USER, call("c1", "c2"), tool("c2"), tool("c1"), USER]
        assert client.chat.completions.create(model="m", messages=messages).choices[0].message.content == "ok"


def function_call(call_id: str) -> Any:
    return {"type": "function_call", "call_id": call_id, "name": "weather", "arguments": "{}"}


def function_output(call_id: str) -> Any:
    return {"type": "function_call_output", "call_id": call_id, "output": "21"}


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([], "Missing required parameter: 'input'"),
        ([USER, function_call("c1")], "No tool output found for function call c1"),
        ([USER, function_output("c1")], "No tool call found for function call output with call_id c1"),
        ([USER, function_output("c1"), function_call("c1")], "No tool call found"),
        ([USER, function_call("")], r"Missing required parameter: 'input\[1\].call_id'"),
        ([USER, {"type": "reasoning", "id": "rs", "summary": []}], "without its required following item"),
        ([{"role": "robot", "content": "hi"}], "Invalid value: 'robot'"),
    ],
)
def test_responses_rejects_broken_histories(scripted_model: Models, items: Any, text: str) -> None:
    model = scripted_model(["never"])
    with openai_client(model) as client, pytest.raises(openai.BadRequestError, match=text):
        client.responses.create(model="m", input=items)


def use(*ids: str) -> Any:
    return {"role": "assistant", "content": [{"type": "tool_use", "id": one, "name": "w", "input": {}} for one in ids]}


def result(*ids: str) -> Any:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one, "content": "21"} for one in ids]}


LATE_RESULT = {"role": "user", "content": [{"type": "text", "text": "hi"}, *result("t1")["content"]]}
ASSISTANT = {"role": "assistant", "content": "hi"}


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], "at least one message"),
        ([ASSISTANT], 'first message must use the "user" role'),
        ([USER, {"role": "system", "content": "hi"}], "Input should be 'user' or 'assistant'"),
        ([USER, use("t1")], "without `tool_result` blocks immediately after: t1"),
        ([USER, use("t1", "t2"), result("t1")], "without `tool_result` blocks immediately after: t2"),
        ([USER, use("t1"), USER, result("t1")], "without `tool_result` blocks immediately after: t1"),
        ([USER, use("t1"), LATE_RESULT], "without `tool_result` blocks immediately after: t1"),
        ([USER, result("t1")], "unexpected `tool_use_id`"),
        ([USER, use(""), result("")], "must have an `id`"),
        ([use("t1") | {"role": "user"}], "can only be in `assistant` messages"),
        ([{"role": "user", "content": " "}], "non-whitespace text"),
        ([{"role": "user", "content": []}], "non-empty content"),
        (
            [USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}],
            "signature: Field required",
        ),
        (
            [USER, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "own"}]}],
            "Invalid `signature` in `thinking` block",
        ),
    ],
)
def test_anthropic_rejects_broken_histories(scripted_model: Models, messages: Any, text: str) -> None:
    model = scripted_model(["never"])
    with anthropic_client(model) as client, pytest.raises(anthropic.BadRequestError, match=text):
        client.messages.create(model="m", max_tokens=9, messages=messages)


def test_anthropic_accepts_whole_histories(scripted_model: Models) -> None:
    with anthropic_client(scripted_model(["ok"])) as client:
        messages = [USER, use("t1", "t2"), result("t2", "t1"), ASSISTANT, USER]
        assert client.messages.create(model="m", max_tokens=9, messages=messages).stop_reason == "end_turn"


def test_anthropic_wants_the_thinking_back_with_the_results_of_its_step(scripted_model: Models) -> None:
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    model = scripted_model([ModelAnswer(reasoning="Hm.", calls=[ModelCall("w", id="t1")]), "ok"])
    with anthropic_client(model) as client:
        step: Any = client.messages.create(model="m", max_tokens=9, messages=[USER], thinking=thinking).content
        messages = [USER, use("t1"), result("t1")]
        with pytest.raises(anthropic.BadRequestError, match="Expected `thinking` or `redacted_thinking`"):
            client.messages.create(model="m", max_tokens=9, messages=messages, thinking=thinking)
        messages = [USER, {"role": "assistant", "content": step}, result("t1")]
        client.messages.create(model="m", max_tokens=9, messages=messages, thinking=thinking)
    assert len(model.refusals) == 1


def test_responses_wants_the_reasoning_of_an_item_that_is_sent_by_its_id(scripted_model: Models) -> None:
    model = scripted_model([ModelAnswer(reasoning="Hm.", calls=[ModelCall("w", id="c1")]), "ok"])
    with openai_client(model) as client:
        reasoning, call = (item.to_dict() for item in client.responses.create(model="m", input="hi").output)
        history: list[Any] = [USER, call, function_output("c1")]
        with pytest.raises(openai.BadRequestError, match="without its required 'reasoning' item: 'rs_1'"):
            client.responses.create(model="m", input=history)
        client.responses.create(model="m", input=[USER, reasoning, call, function_output("c1")])  # type: ignore[list-item]
    assert len(model.refusals) == 1


def test_a_client_that_leaves_a_stream_is_counted(scripted_model: Models) -> None:
    model = scripted_model([ModelAnswer(text=["One ", "two "] * 50, pause=0.05)])
    with openai_client(model) as client:
        stream = client.chat.completions.create(model="m", messages=[USER], stream=True)
        next(iter(stream))
        stream.close()
        deadline = time.monotonic() + 30
        while not model.disconnects and time.monotonic() < deadline:
            time.sleep(0.01)
    assert model.disconnects == 1
