"""What the AI SDK's own clients make of the specification documents; docs/specification.md names each test.

Most tests put the document's stream and ours side by side before every release.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conformance.client import Client, look_at_clients
from tests.conformance.judge import ALL_RELEASES, RELEASES, Chat, ChatResult, Judge
from usechat import parts as p
from usechat.protocol.sse import DONE, encode_frame
from usechat.protocol.stream import MessageStream

Wire = dict[str, Any]

every_release = pytest.mark.parametrize("release", ALL_RELEASES)
STRICT = {release for releases in RELEASES.values() for release in releases[:2]}
USER = {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]}

START = {"type": "start", "messageId": "m"}
TOOL_START = {"type": "tool-input-start", "toolCallId": "c", "toolName": "t"}
CALL = {"type": "tool-input-available", "toolCallId": "c", "toolName": "t", "input": {}}
OUTPUT = {"type": "tool-output-available", "toolCallId": "c", "output": 4}
FINISH_STEP = {"type": "finish-step"}
FINISH = {"type": "finish"}
TEXT_START = {"type": "text-start", "id": "t"}
TEXT_DELTA = {"type": "text-delta", "id": "t", "delta": "4"}
TEXT_END = {"type": "text-end", "id": "t"}


def ours(*parts: p.Part, sdk: str = "any", **options: Any) -> bytes:
    """Return the whole body that our stream makes of these parts."""
    stream = MessageStream(message_id="m", sdk=sdk, **options)
    chunks = [chunk for part in parts for chunk in stream.send(part)] + stream.close()
    return b"".join(map(encode_frame, chunks)) + DONE


def theirs(*chunks: Wire) -> bytes:
    """Return a body with exactly the chunks that a document asks for."""
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks)


def turn(judge: Judge, release: str, body: bytes, **options: Any) -> ChatResult:
    return judge.chat(release, [Chat(body, **options)])[0]


def rejected(result: ChatResult) -> str:
    """Return the name of the error that ended the turn."""
    assert result["status"] == "error"
    assert result["error"] is not None
    return result["error"]["name"]


def accepted(result: ChatResult) -> list[Wire]:
    """Return the parts of the message of a turn that ended well, steps left out."""
    assert (result["status"], result["error"]) == ("ready", None)
    return [part for part in result["message"]["parts"] if part["type"] != "step-start"]


# Chunk types and keys


@every_release
@pytest.mark.parametrize("chunk_type", ["step-start", "message-start", "message-finish", "agent-status"])
def test_a_type_that_is_not_recognised_is_not_ignored(judge: Judge, release: str, chunk_type: str) -> None:
    body = theirs(START, {"type": chunk_type}, FINISH)
    assert rejected(turn(judge, release, body)) == "AI_TypeValidationError"


@every_release
def test_start_step_makes_the_step_start_part(judge: Judge, release: str) -> None:
    result = turn(judge, release, ours(p.Step(), p.Text("a"), p.Step(), p.Text("b")))
    kinds = [part["type"] for part in result["message"]["parts"]]
    assert kinds == ["step-start", "text", "step-start", "text"]


@every_release
def test_an_error_needs_error_text(judge: Judge, release: str) -> None:
    assert rejected(turn(judge, release, theirs({"type": "error", "error": "x"}))) == "AI_TypeValidationError"
    result = turn(judge, release, ours(p.Error("x")))
    assert (result["status"], result["error"]) == ("error", {"name": "Error", "message": "x"})


@every_release
@pytest.mark.parametrize(
    "payload",
    [{"status": "thinking", "detail": "reading"}, {"question": {"text": "Proceed?"}}],
    ids=["status", "question"],
)
def test_a_custom_payload_needs_the_key_data(judge: Judge, release: str, payload: Wire) -> None:
    assert rejected(turn(judge, release, theirs({"type": "data-x", **payload}))) == "AI_TypeValidationError"
    assert accepted(turn(judge, release, ours(p.Data("x", payload)))) == [{"type": "data-x", "data": payload}]


@every_release
def test_data_reaches_a_stock_client_as_a_part_and_through_on_data(judge: Judge, release: str) -> None:
    question = {"type": "data-question", "data": {"text": "Proceed?"}}
    status = {"type": "data-agent-status", "data": "thinking", "transient": True}
    body = ours(p.Data("question", question["data"]), p.Data("agent-status", "thinking", transient=True))
    result = turn(judge, release, body)
    assert accepted(result) == [question]
    assert result["data"] == [question, status]


@every_release
def test_tool_input_delta_needs_input_text_delta(judge: Judge, release: str) -> None:
    body = theirs(TOOL_START, {"type": "tool-input-delta", "toolCallId": "c", "delta": "{"})
    assert rejected(turn(judge, release, body)) == "AI_TypeValidationError"
    body = ours(p.ToolInputStart("c", "t"), p.ToolInputDelta("c", '{"a":1}'), p.ToolResult("c", 4))
    assert accepted(turn(judge, release, body))[0].items() >= {"input": {"a": 1}, "output": 4}.items()


@every_release
def test_a_text_delta_has_no_message_id(judge: Judge, release: str) -> None:
    delta = {"type": "text-delta", "id": "t", "delta": "a", "messageId": "m"}
    assert judge.schema(release, [delta])[0]["accepted"] is (release not in STRICT)


@every_release
def test_a_result_needs_the_key_output(judge: Judge, release: str) -> None:
    body = theirs(CALL, {"type": "tool-output-available", "toolCallId": "c"})
    assert rejected(turn(judge, release, body)) == "AI_TypeValidationError"
    assert accepted(turn(judge, release, ours(p.ToolCall("c", "t"), p.ToolResult("c"))))[0]["output"] is None


# Text


@every_release
def test_text_after_a_tool_stands_after_the_tool(judge: Judge, release: str) -> None:
    one_block = theirs(
        *(START, TEXT_START, TEXT_DELTA | {"delta": "It is "}, CALL, OUTPUT, TEXT_DELTA, TEXT_END, FINISH_STEP, FINISH)
    )
    blocks = ours(p.Text("It is "), p.ToolCall("c", "t", {}), p.ToolResult("c", 4), p.Text("4"))
    contents = [
        [(part["type"], part.get("text")) for part in accepted(turn(judge, release, body))]
        for body in (one_block, blocks)
    ]
    assert contents[0] == [("text", "It is 4"), ("tool-t", None)]
    assert contents[1] == [("text", "It is "), ("tool-t", None), ("text", "4")]


@every_release
@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([TEXT_DELTA], id="no start"),
        pytest.param([TEXT_START | {"id": "turn"}, TEXT_DELTA], id="other id"),
        pytest.param([TEXT_START, TEXT_END, TEXT_DELTA], id="after the end"),
        pytest.param([TEXT_END], id="end alone"),
        pytest.param([{"type": "reasoning-end", "id": "t"}], id="reasoning end alone"),
    ],
)
def test_a_delta_or_an_end_without_an_open_block_ends_the_turn(judge: Judge, release: str, chunks: list[Wire]) -> None:
    assert rejected(turn(judge, release, theirs(*chunks))) in {"TypeError", "AI_UIMessageStreamError"}


@every_release
def test_our_blocks_open_and_close_by_themselves(judge: Judge, release: str) -> None:
    body = ours(p.BlockEnd(), p.Text("a"), p.BlockEnd(), p.BlockEnd(), p.Text("b"), p.Reasoning("r"), p.Text("c"))
    result = turn(judge, release, body)
    assert [(part["type"], part["text"], part["state"]) for part in accepted(result)] == [
        ("text", "a", "done"),
        ("text", "b", "done"),
        ("reasoning", "r", "done"),
        ("text", "c", "done"),
    ]


@every_release
def test_data_stands_beside_an_open_text(judge: Judge, release: str) -> None:
    parts = accepted(turn(judge, release, ours(p.Text("4"), p.Data("x", 1), p.Text("2"))))
    assert [(part["type"], part.get("text")) for part in parts] == [("text", "42"), ("data-x", None)]


# Tools


@every_release
def test_a_failed_tool_is_an_output_error_and_the_turn_goes_on(judge: Judge, release: str) -> None:
    result = turn(judge, release, theirs(CALL, {"type": "error", "errorText": "no file"}, TEXT_START, TEXT_DELTA))
    assert rejected(result) == "Error"
    assert [part["state"] for part in result["message"]["parts"]] == ["input-available"]
    body = ours(p.ToolCall("c", "t", {}), p.ToolError("c", "no file"), p.Text("Sorry."))
    failed, text = accepted(turn(judge, release, body))
    assert failed.items() >= {"state": "output-error", "errorText": "no file"}.items()
    assert text["text"] == "Sorry."


@every_release
def test_nothing_is_read_after_an_error(judge: Judge, release: str) -> None:
    result = turn(judge, release, theirs({"type": "error", "errorText": "x"}, TEXT_START, TEXT_DELTA))
    assert (rejected(result), result["message"]) == ("Error", None)


@every_release
def test_a_tool_goes_from_input_streaming_to_output_error(judge: Judge, release: str) -> None:
    bodies = (
        theirs(TOOL_START),
        ours(p.ToolCall("c", "t", {})),
        ours(p.ToolCall("c", "t", {}), p.ToolError("c", "x")),
    )
    states = [accepted(turn(judge, release, body))[0]["state"] for body in bodies]
    assert states == ["input-streaming", "input-available", "output-error"]


@every_release
def test_a_result_before_its_call_ends_the_turn(judge: Judge, release: str) -> None:
    assert rejected(turn(judge, release, theirs(OUTPUT, CALL))) in {"Error", "AI_UIMessageStreamError"}
    assert accepted(turn(judge, release, ours(p.ToolResult("c", 4, tool_name="t"))))[0].items() >= (
        {"type": "tool-t", "state": "output-available", "output": 4}.items()
    )


@every_release
def test_a_result_without_input_makes_a_message_that_does_not_validate(judge: Judge, release: str) -> None:
    bodies = theirs(TOOL_START, OUTPUT), ours(p.ToolInputStart("c", "t"), p.ToolResult("c", 4))
    histories = [[USER, turn(judge, release, body)["message"]] for body in bodies]
    verdicts = [result["ok"] for result in judge.validate(release, histories)]
    assert verdicts == ([None, None] if release == "5.0.0" else [False, True])


@every_release
def test_a_tool_without_a_step_behind_it_is_sent_again_for_ever(judge: Judge, release: str) -> None:
    bodies = (
        theirs(START, CALL, OUTPUT, TEXT_START, TEXT_DELTA, TEXT_END, FINISH_STEP, FINISH),
        ours(p.ToolCall("c", "t", {}), p.ToolResult("c", 4), p.Text("4")),
    )
    histories = [turn(judge, release, body)["messages"] for body in bodies]
    assert [result["toolCalls"] for result in judge.complete(release, histories)] == [True, False]


@every_release
def test_an_approval_is_part_of_the_sdk_from_6_on(judge: Judge, release: str) -> None:
    body = ours(p.ToolCall("c", "delete", {}), p.ApprovalRequest("a", "c"), sdk=release)
    parts = accepted(turn(judge, release, body))
    assert [(part["type"], part["state"]) for part in parts] == (
        [("tool-delete", "input-available"), ("tool-approval", "input-available")]
        if release in RELEASES["5"]
        else [("tool-delete", "approval-requested")]
    )


# Messages


@every_release
def test_a_message_has_parts_and_neither_content_nor_tool_invocations(judge: Judge, release: str) -> None:
    message = turn(judge, release, ours(p.ToolCall("c", "t", {}), p.ToolResult("c", 4), p.Text("4")))["message"]
    assert set(message) == {"id", "role", "parts", "metadata"}
    assert [part["type"] for part in message["parts"]] == ["step-start", "tool-t", "step-start", "text"]
    assert set(message["parts"][1]) == {"type", "toolCallId", "state", "input", "output"}


@every_release
def test_system_messages_and_further_parts_are_legal(judge: Judge, release: str) -> None:
    system = {"id": "s", "role": "system", "parts": [{"type": "text", "text": "Be kind."}]}
    kinds = [
        {"type": "step-start"},
        {"type": "source-url", "sourceId": "s", "url": "https://example.com"},
        {"type": "data-x", "data": 1},
        {"type": "dynamic-tool", "toolName": "t", "toolCallId": "c", "state": "input-available", "input": {}},
    ]
    verdict = judge.validate(release, [[system, {"id": "m", "role": "assistant", "parts": kinds}]])[0]["ok"]
    assert verdict is (None if release == "5.0.0" else True)


@every_release
def test_without_start_the_client_invents_the_message_id(judge: Judge, release: str) -> None:
    assert turn(judge, release, theirs(TEXT_START))["message"]["id"] == "client-1"
    assert turn(judge, release, ours(p.Text("a")))["message"]["id"] == "m"


@every_release
def test_a_continued_message_must_keep_its_id(judge: Judge, release: str) -> None:
    assistant = {"id": "old", "role": "assistant", "parts": [{"type": "text", "text": "a", "state": "done"}]}
    fresh = theirs(START | {"messageId": "new"}, TEXT_START)
    continuation = ours(p.Text("b"), continues=assistant)
    results = judge.chat(release, [Chat(body, messages=[USER, assistant]) for body in (fresh, continuation)])
    ids = [[message["id"] for message in result["messages"]] for result in results]
    assert ids == [["u", "old", "new"], ["u", "old"]]


@every_release
def test_an_empty_turn_is_accepted_with_and_without_text(judge: Judge, release: str) -> None:
    empty = {"type": "text", "text": "", "state": "done"}
    assert [accepted(turn(judge, release, body)) for body in (ours(p.Text("")), ours())] == [[empty], []]


# Endings


@every_release
def test_a_bare_close_looks_like_success_and_leaves_everything_open(judge: Judge, release: str) -> None:
    bare = turn(judge, release, theirs(CALL, TEXT_START))
    assert [part["state"] for part in accepted(bare)] == ["input-available", "streaming"]
    stopped = turn(judge, release, ours(p.ToolCall("c", "t", {}), p.Text("a", lane="other"), p.Abort()))
    assert [part["state"] for part in accepted(stopped)] == ["output-error", "done"]


@every_release
def test_a_stop_is_shown_as_an_ordinary_end(judge: Judge, release: str) -> None:
    result = turn(judge, release, ours(p.Text("a"), p.Abort()))
    assert accepted(result) == [{"type": "text", "text": "a", "state": "done"}]
    assert result["finish"] is not None
    assert result["finish"].get("isAbort") is (None if release == "5.0.0" else False)


@every_release
def test_an_end_shows_in_the_status_and_in_the_parts_not_in_the_message(judge: Judge, release: str) -> None:
    good, bad = judge.chat(release, [Chat(ours(p.Text("a"))), Chat(ours(p.Text("a"), p.Error("x")))])
    assert (good["status"], bad["status"]) == ("ready", "error")
    assert good["message"]["parts"] == bad["message"]["parts"]


@every_release
def test_chunks_are_read_until_the_body_ends(judge: Judge, release: str) -> None:
    late = theirs({"type": "data-x", "data": 1})
    assert accepted(turn(judge, release, theirs(FINISH) + DONE + late)) == [{"type": "data-x", "data": 1}]


# Framing


@every_release
def test_event_names_change_nothing(judge: Judge, release: str) -> None:
    plain = ours(p.Text("a"))
    named = plain.replace(b"data: {", b"event: error\ndata: {")
    assert turn(judge, release, named)["message"] == turn(judge, release, plain)["message"]


@every_release
def test_neither_done_nor_a_header_is_required(judge: Judge, release: str) -> None:
    body = ours(p.Text("a"))
    assert body.endswith(DONE)
    # The judge's responses have no headers at all.
    assert accepted(turn(judge, release, body.removesuffix(DONE))) == accepted(turn(judge, release, body))


@every_release
def test_an_event_ends_with_a_blank_line(judge: Judge, release: str) -> None:
    whole = theirs(START, {"type": "data-x", "data": 1})
    assert turn(judge, release, whole.removesuffix(b"\n"))["message"]["parts"] == []  # lost without a word
    assert rejected(turn(judge, release, whole.replace(b"\n\n", b"\n") + b"\n")) == "AI_JSONParseError"


@every_release
def test_the_data_stream_protocol_of_4_is_not_read(judge: Judge, release: str) -> None:
    result = turn(judge, release, b'0:"Hello"\nd:{"finishReason":"stop"}\n')
    assert (result["status"], result["message"]) == ("ready", None)


# The client's own interface


@pytest.fixture(scope="module")
def clients() -> Mapping[str, Client]:
    return look_at_clients()


@every_release
def test_the_client_has_no_input_submit_reload_or_loading(clients: Mapping[str, Client], release: str) -> None:
    members = set(clients[release]["members"])
    assert members.isdisjoint(
        {"input", "setInput", "handleInputChange", "handleSubmit", "append", "reload", "isLoading"}
    )
    assert members >= {"messages", "status", "error", "sendMessage", "regenerate", "stop", "resumeStream", "clearError"}


@every_release
def test_add_tool_output_came_after_5_0_0(clients: Mapping[str, Client], release: str) -> None:
    assert ("addToolOutput" in clients[release]["members"]) is (release != "5.0.0")
    assert "addToolResult" in clients[release]["members"]


@every_release
def test_chat_transports_are_in_5_as_well(clients: Mapping[str, Client], release: str) -> None:
    assert {"AbstractChat", "HttpChatTransport", "DefaultChatTransport"} <= set(clients[release]["exports"])


@every_release
def test_address_headers_and_body_belong_to_the_transport(clients: Mapping[str, Client], release: str) -> None:
    on_the_chat, on_the_transport = clients[release]["sent"][0], clients[release]["sent_by_transport"][0]
    assert (on_the_chat["url"], on_the_transport["url"]) == ("/api/chat", "/other")
    assert "authorization" not in on_the_chat["headers"]
    assert on_the_transport["headers"]["authorization"] == "Bearer t"
    assert ("extra" in on_the_chat["body"], on_the_transport["body"]["extra"]) == (False, 1)


@every_release
def test_a_request_holds_messages_with_parts(clients: Mapping[str, Client], release: str) -> None:
    body = clients[release]["sent"][0]["body"]
    message_id = body["messages"][0]["id"]
    message = {"id": message_id, "role": "user", "parts": [{"type": "text", "text": "hi"}]}
    assert body == {"id": "chat", "messages": [message], "trigger": "submit-message"}


@every_release
def test_a_cut_connection_is_an_error_and_not_reconnected(clients: Mapping[str, Client], release: str) -> None:
    assert [request["method"] for request in clients[release]["sent_before_cut"]] == ["POST"]
    assert clients[release]["status_after_cut"] == "error"


@every_release
def test_a_resume_is_one_get_that_names_no_last_event(clients: Mapping[str, Client], release: str) -> None:
    (request,) = clients[release]["resumed"]
    assert (request["method"], request["url"]) == ("GET", "/api/chat/chat/stream")
    assert set(request["headers"]) <= {"user-agent"}


@every_release
def test_the_sdk_writes_data_lines_and_the_same_headers_in_every_release(
    clients: Mapping[str, Client], release: str
) -> None:
    assert clients[release]["server_body"] == 'data: {"type":"error","errorText":"from onError"}\n\ndata: [DONE]\n\n'
    assert clients[release]["server_headers"] == {
        "cache-control": "no-cache",
        "connection": "keep-alive",
        "content-type": "text/event-stream",
        "x-accel-buffering": "no",
        "x-vercel-ai-ui-message-stream": "v1",
    }
