"""What a server sends instead of a UI message stream is named."""

from typing import Any

import pytest

from tests.check.streams import START, stream, text, turn
from usechat.check import Capture, check_capture
from usechat.check.frames import Body
from usechat.check.other_formats import nothing_read, other_protocol

CHAT_COMPLETIONS = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}],
}
RESPONSES = {"type": "response.output_text.delta", "item_id": "i", "delta": "Hi"}
ANTHROPIC = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}
AG_UI = {"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": "Hi"}
GEMINI = {"candidates": [{"content": {"parts": [{"text": "Hi"}], "role": "model"}}], "modelVersion": "gemini"}
A2A = {"jsonrpc": "2.0", "id": 1, "result": {"kind": "status-update", "taskId": "t", "status": {"state": "working"}}}
LANGGRAPH = [{"type": "AIMessageChunk", "content": "Hi", "id": "run-1"}, {"langgraph_node": "agent"}]
LANGGRAPH_VALUES = {"messages": [{"type": "human", "content": "Hi"}]}
OLLAMA = {"model": "llama", "created_at": "2026", "message": {"role": "assistant", "content": "Hi"}, "done": False}
HEADERS = {"content-type": "text/plain"}


def problems(body: bytes) -> list[tuple[str, str]]:
    report = check_capture(Capture(name="-", body=body, headers=HEADERS), ["7"])
    return [(problem.rule.id, problem.what) for problem in report.problems]


@pytest.mark.parametrize(
    ("body", "rule", "what"),
    [
        (b"", "UC003", "the body is empty"),
        (b"\n\n", "UC003", "the body is empty"),
        (b": keep-alive\n\ndata: [DONE]\n\n", "UC003", "there is not one chunk in the stream"),
        (b'0:"Hello"\n', "UC005", "the body is the data stream of AI SDK 4"),
        (b'f:{"messageId":"m"}\n', "UC005", "the body is the data stream of AI SDK 4"),
        (b"<!DOCTYPE html>\n<HTML>", "UC004", "the body is HTML, not an event stream"),
        (b"<error/>", "UC004", "the body is XML, not an event stream"),
        (b'{\n"detail": 1}', "UC004", "the body is JSON, not an event stream"),
        (b"[1]", "UC004", "the body is JSON, not an event stream"),
        (b'{"type":"start"}\n{"type":"finish"}\n', "UC004", "the body is NDJSON, not an event stream"),
        (b'{"type":"start"}\n' * 10_000, "UC004", "the body is NDJSON, not an event stream"),
        (b"Hello", "UC004", "the body is plain text, not an event stream"),
        (
            b'{"model":"llama","response":"H","done":false}\n{"model":"llama","response":"i","done":true}\n',
            "UC004",
            "the body is NDJSON of Ollama's API, not an event stream",
        ),
    ],
)
def test_bodies_in_which_there_is_nothing_to_read(body: bytes, rule: str, what: str) -> None:
    read = Body([body])
    assert [event.text for event in read.events()] in ([], ["[DONE]"])
    finding = nothing_read(read.head)
    assert (finding.rule, finding.what) == (rule, what)


@pytest.mark.parametrize(
    ("body", "fix"),
    [
        (b"Hello", "TextStreamChatTransport"),
        (b"{}\n{}\n", "Write each line as an event"),
        (b"<html>", "it may be a login, an error page or a wrong address"),
    ],
)
def test_the_advice_fits_the_body(body: bytes, fix: str) -> None:
    [problem, *_] = check_capture(Capture(name="-", body=body)).problems
    assert fix in problem.fix


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (CHAT_COMPLETIONS, "OpenAI's Chat Completions API"),
        ({"choices": [], "prompt_filter_results": []}, "OpenAI's Chat Completions API"),
        ({"type": "response.created", "response": {}}, "OpenAI's Responses API"),
        (RESPONSES, "OpenAI's Responses API"),
        ({"type": "message_start", "message": {}}, "Anthropic's Messages API"),
        (ANTHROPIC, "Anthropic's Messages API"),
        (AG_UI, "AG-UI"),
        ({"type": "part-start", "part": {"type": "text"}, "path": []}, "assistant-transport of assistant-ui"),
        ({"type": "update-state", "operations": []}, "assistant-transport of assistant-ui"),
    ],
)
def test_the_events_of_well_known_protocols(value: Any, name: str) -> None:
    finding = other_protocol(value)
    assert finding is not None
    assert (finding.rule, finding.what) == ("UC009", f"the events are those of {name}")
    assert (finding.fix or "").startswith("Translate each event: ")


@pytest.mark.parametrize("value", [5, None, [CHAT_COMPLETIONS], {}, {"type": "ping"}, {"type": 5, "choices": []}])
def test_other_events_are_not_named(value: Any) -> None:
    assert other_protocol(value) is None


@pytest.mark.parametrize("value", [CHAT_COMPLETIONS, RESPONSES, ANTHROPIC, AG_UI])
def test_the_protocol_is_the_first_problem_and_the_headers_are_the_last(value: Any) -> None:
    rules = [rule for rule, _ in problems(stream(value, value, value))]
    assert rules[0] == "UC009"
    assert rules[1] == ("UC203" if "type" in value else "UC010")
    assert rules[-4:] == ["UC010", "UC011", "UC012", "UC013"]
    assert rules.count("UC009") == 1


@pytest.mark.parametrize("body", [b"Hello", b"{}\n{}\n", b"<html>", b"{}", b'0:"Hi"\n'])
def test_a_body_that_is_no_stream_is_named_before_its_headers(body: bytes) -> None:
    assert [rule for rule, _ in problems(body)][1:] == ["UC010", "UC011", "UC012", "UC013"]


def test_events_of_another_protocol_among_chunks() -> None:
    report = check_capture(Capture(name="-", body=stream(START, *text(), CHAT_COMPLETIONS, CHAT_COMPLETIONS)), ["7"])
    assert [(one.rule.id, one.frame, one.more) for one in report.problems] == [("UC009", 5, 1)]


def test_a_stream_of_chunks_is_no_other_protocol() -> None:
    assert [rule for rule, _ in problems(turn(*text()))] == ["UC010", "UC011", "UC012", "UC013"]


@pytest.mark.parametrize(
    ("event", "name"),
    [
        (GEMINI, "Google's Gemini API"),
        (A2A, "A2A"),
        (LANGGRAPH, "LangGraph's server"),
        (LANGGRAPH_VALUES, "LangGraph's server"),
        ({"run_id": "r", "attempt": 1}, "LangGraph's server"),
        (OLLAMA, "Ollama's API"),
        ([{"type": "AIMessageChunk", "content": "Hi"}], "LangGraph's server"),
        (CHAT_COMPLETIONS, "OpenAI's Chat Completions API"),
    ],
)
def test_an_event_without_a_type_of_ours_is_named_and_its_missing_type_is_not_repeated(event: Any, name: str) -> None:
    rules = problems(stream(event, event))
    assert ("UC009", f"the events are those of {name}") in rules
    assert "UC202" not in [rule for rule, _ in rules]
