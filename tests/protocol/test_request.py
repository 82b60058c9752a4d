import json
import math
from collections import UserDict
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usechat import parts
from usechat.errors import InvalidRequest, RequestError, RequestTooLarge
from usechat.protocol.chunks import ToolInputAvailableChunk
from usechat.protocol.request import ApprovalAnswer, ChatRequest, Limits, ToolOutput
from usechat.protocol.stream import MessageStream
from usechat.protocol.values import MAXIMUM_DEPTH, json_value

Json = dict[str, Any]

HI: Json = {"type": "text", "text": "hi"}
PICTURE: Json = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AA=="}
USER: Json = {"id": "u1", "role": "user", "parts": [HI]}
ASSISTANT: Json = {"id": "a1", "role": "assistant", "parts": [{"type": "text", "text": "hello", "state": "done"}]}
SYSTEM: Json = {"id": "s1", "role": "system", "parts": [HI]}


def parse(*messages: Json, **body: Any) -> ChatRequest:
    return ChatRequest.parse({"messages": list(messages), **body})


def continued(*tool_parts: Json, **body: Json) -> ChatRequest:
    """A request that continues an assistant message with these parts."""
    return parse(USER, {"id": "a1", "role": "assistant", "parts": list(tool_parts)}, messageId="a1", **body)


# Shapes


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_every_kind_are_read(kind: type) -> None:
    assert ChatRequest.parse(kind(json.dumps({"messages": [USER]}).encode())).text == "hi"
    with pytest.raises(RequestTooLarge):
        ChatRequest.parse(kind(b"{}"), limits=Limits(maximum_bytes=1))


def test_the_body_of_the_default_transport_is_read() -> None:
    body = {
        "model": "m",
        "id": "chat-1",
        "messages": [{"parts": [HI], "id": "u1", "role": "user", "metadata": {"n": 1}}],
        "trigger": "submit-message",
    }
    for given_body in (body, json.dumps(body), json.dumps(body).encode(), b"\xef\xbb\xbf" + json.dumps(body).encode()):
        request = ChatRequest.parse(given_body)
        assert request == ChatRequest(
            chat_id="chat-1",
            messages=cast("Any", [{"parts": [HI], "id": "u1", "role": "user", "metadata": {"n": 1}}]),
            body={"model": "m"},
        )
        assert (request.trigger, request.message_id) == ("submit-message", None)


@pytest.mark.parametrize(
    ("body", "messages", "extra"),
    [
        ({"messages": [USER]}, [USER], {}),
        ({"message": USER}, [USER], {}),
        ({"message": USER, "messages": None}, [USER], {}),
        ({"message": "kept", "messages": [USER]}, [USER], {"message": "kept"}),
        ({"messages": [USER, ASSISTANT], "chatId": 7}, [USER, ASSISTANT], {"chatId": 7}),
        ({"messages": [{"role": "user", "content": "hi"}]}, [{"id": "", "role": "user", "parts": [HI]}], {}),
        (
            {"messages": [{"id": None, "role": "user", "content": [HI]}]},
            [{"id": "", "role": "user", "parts": [HI]}],
            {},
        ),
        ({"messages": [USER | {"content": "v4"}]}, [USER | {"content": "v4"}], {}),
        ({"messages": [USER | {"parts": None, "content": "hi"}]}, [USER], {}),
        (
            {"messages": [USER | {"createdAt": "x", "parts": [{"type": "hologram", "x": 1}]}]},
            [USER | {"createdAt": "x", "parts": [{"type": "hologram", "x": 1}]}],
            {},
        ),
        ({"id": None, "trigger": None, "messageId": None, "messages": [USER]}, [USER], {}),
        ({"messages": [{"role": "user", "content": "\ud800"}], "n": 2**60}, None, {"n": 2**60}),
    ],
)
def test_every_real_shape_is_read(body: Json, messages: list[Json] | None, extra: Json) -> None:
    request = ChatRequest.parse(json.dumps(body))
    assert messages is None or request.messages == messages
    assert (request.chat_id, request.trigger, request.message_id) == ("", "submit-message", None)
    assert request.body == extra


def test_a_body_cannot_say_what_the_server_alone_knows() -> None:
    claims = {"pending_calls": ["c1"], "has_whole_history": True}
    request = parse(USER, **claims)
    assert (request.pending_calls, request.has_whole_history, request.body) == (None, False, claims)


def test_the_caller_keeps_its_own_messages() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    ChatRequest.parse(body)
    ChatRequest.parse(UserDict(body))
    assert body == {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("message_id", [None, "a1"])
def test_a_regeneration_may_come_without_any_message(message_id: str | None) -> None:
    request = parse(trigger="regenerate-message", messageId=message_id)
    assert (request.trigger, request.message_id, request.messages) == ("regenerate-message", message_id, [])
    assert (request.last_user_message, request.text, request.files, request.continues) == (None, "", [], None)
    assert (request.tool_outputs, request.approvals) == ([], [])


def test_a_request_is_written_in_the_order_of_the_client() -> None:
    body = {"b": 1, "a": 2, "id": "c", "messages": [USER, ASSISTANT], "trigger": "submit-message", "messageId": "a1"}
    request = ChatRequest.parse(dict(reversed(body.items())))
    assert list(request.to_json()) == ["a", "b", "id", "messages", "trigger", "messageId"]
    assert request.to_json() == body
    assert ChatRequest.parse(request.to_json()) == request


def test_a_request_without_ids_is_written_without_them() -> None:
    assert parse(USER).to_json() == {"messages": [USER], "trigger": "submit-message"}


# What it asks


def test_the_last_user_message_has_text_and_files() -> None:
    last = {"id": "u2", "role": "user", "parts": [PICTURE, HI, {"type": "text"}, {"type": "data-x", "data": 1}, HI]}
    request = parse(USER, ASSISTANT, last)
    assert request.last_user_message == last
    assert request.text == "hihi"
    assert request.files == [PICTURE]


@pytest.mark.parametrize(
    ("messages", "body", "expected"),
    [
        ([USER], {}, None),
        ([USER, ASSISTANT], {}, ASSISTANT),
        ([ASSISTANT], {}, ASSISTANT),
        ([USER, ASSISTANT], {"messageId": "a1"}, ASSISTANT),
        ([USER, ASSISTANT], {"messageId": "elsewhere"}, ASSISTANT),
        ([USER, ASSISTANT], {"messageId": "u1"}, None),
        ([USER], {"messageId": "u1"}, None),
        ([USER, ASSISTANT, USER | {"id": "u2"}], {"messageId": "a1"}, ASSISTANT),
        ([USER, ASSISTANT, USER | {"id": "u2"}], {"messageId": ""}, None),
        ([USER, ASSISTANT], {"messageId": "a1", "trigger": "regenerate-message"}, None),
        ([USER, SYSTEM], {}, None),
    ],
)
def test_a_request_continues_the_message_the_client_will_append_to(
    messages: list[Json], body: Json, expected: Json | None
) -> None:
    assert ChatRequest.parse(json.dumps({"messages": messages, **body})).continues == expected


def test_tool_outputs_are_those_of_the_continued_message() -> None:
    request = continued(
        {"type": "step-start"},
        {"type": "tool-get-time", "toolCallId": "c1", "state": "output-available", "input": {}, "output": {"h": 1}},
        {"type": "tool-a", "toolCallId": "c2", "state": "output-error", "input": {}, "errorText": "no"},
        {"type": "tool-a", "toolCallId": "c3", "state": "output-error", "input": {}},
        {"type": "dynamic-tool", "toolName": "d", "toolCallId": "c4", "state": "output-available", "output": None},
        {"type": "tool-a", "toolCallId": "c5", "state": "output-available", "output": 1, "preliminary": True},
        {"type": "tool-a", "toolCallId": "c6", "state": "output-available", "output": 1, "providerExecuted": True},
        {"type": "tool-a", "toolCallId": "c7", "state": "input-available", "input": {}},
        {"type": "tool-a", "toolCallId": 8, "state": "output-available"},
        {"type": "tool-a", "toolCallId": "c9", "state": ["output-available"]},
        {"type": "dynamic-tool", "toolCallId": "c10", "state": "output-available"},
        {"type": "tool-invocation", "toolInvocation": {"state": "result"}},
        {"type": "tool-approval", "toolCallId": "c11", "state": "output-available", "input": {"q": 1}, "output": 2},
        {"type": "tool-approval", "toolCallId": "c12", "state": "output-available", "input": "text", "output": 2},
    )
    assert request.tool_outputs == [
        ToolOutput("c1", "get-time", {"h": 1}),
        ToolOutput("c2", "a", None, "no"),
        ToolOutput("c3", "a", None, "The tool failed."),
        ToolOutput("c4", "d", None),
        ToolOutput("c11", "approval", 2),
        ToolOutput("c12", "approval", 2),
    ]
    assert request.approvals == []


def responded(approval: object, tool_call_id: str = "c1", state: str = "approval-responded") -> Json:
    return {"type": "tool-rm", "toolCallId": tool_call_id, "state": state, "input": {}, "approval": approval}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (responded({"id": "p1", "approved": True, "reason": "fine"}), [ApprovalAnswer("p1", True, "fine", "c1")]),
        (responded({"id": "p1", "approved": False}), [ApprovalAnswer("p1", False, None, "c1")]),
        (responded({"id": "p1", "approved": "true"}), [ApprovalAnswer("p1", False, None, "c1")]),
        (responded({"id": "p1", "approved": 1}), [ApprovalAnswer("p1", False, None, "c1")]),
        (responded({"id": "p1", "approved": True, "reason": 1}), [ApprovalAnswer("p1", True, None, "c1")]),
        (responded({"id": 1, "approved": True}), []),
        (responded("yes"), []),
        (responded({"id": "p1"}, state="approval-requested"), []),
        (responded({"id": "p1", "approved": True}, state="output-available"), []),
    ],
)
def test_an_answered_approval_is_read(part: Json, expected: list[ApprovalAnswer]) -> None:
    assert continued(part).approvals == expected


AGAIN = 'Call it again with this input, which a person has edited: {"path":"b"}'


@pytest.mark.parametrize(
    ("approved", "edits", "expected"),
    [
        (True, {"p1": {"path": "b"}}, ApprovalAnswer("p1", False, AGAIN, "c1", {"path": "b"})),
        (False, {"p1": {"path": "b"}}, ApprovalAnswer("p1", False, None, "c1")),
        (True, {"p2": {"path": "b"}}, ApprovalAnswer("p1", True, None, "c1")),
        (True, {"p1": "b"}, ApprovalAnswer("p1", True, None, "c1")),
        (True, ["p1"], ApprovalAnswer("p1", True, None, "c1")),
    ],
)
def test_an_edited_input_is_read_with_its_approval(approved: bool, edits: Json, expected: ApprovalAnswer) -> None:
    parts = [responded({"id": "p1", "approved": approved}), question("output-available", output={"approved": approved})]
    for part in parts:
        request = continued(part, editedInputs=edits)
        assert request.approvals == [expected]


def question(state: str, **outcome: Any) -> Json:
    approval_request = {"approvalId": "p1", "toolCallId": "c1", "toolName": "rm", "input": {}}
    return {"type": "tool-approval", "toolCallId": "p1", "state": state, "input": approval_request, **outcome}


WAITING: Json = {"type": "tool-rm", "toolCallId": "c1", "state": "input-available", "input": {}}


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (question("input-available"), []),
        (question("output-available", output={"approved": True}), [ApprovalAnswer("p1", True, None, "c1")]),
        (question("output-available", output={"approved": 1}), [ApprovalAnswer("p1", False, None, "c1")]),
        (question("output-available", output=" Yes"), [ApprovalAnswer("p1", True, None, "c1")]),
        (question("output-available", output="yes, but"), [ApprovalAnswer("p1", False, None, "c1")]),
        (question("output-available", output="no"), [ApprovalAnswer("p1", False, None, "c1")]),
        (
            question("output-available", output={"approved": False, "reason": "no"}),
            [ApprovalAnswer("p1", False, "no", "c1")],
        ),
        (question("output-available", output=True), [ApprovalAnswer("p1", False, None, "c1")]),
        (
            question("output-error", errorText="closed", output={"approved": True}),
            [ApprovalAnswer("p1", False, "closed", "c1")],
        ),
    ],
)
def test_an_approval_answered_through_a_client_side_tool_is_read(part: Json, expected: list[ApprovalAnswer]) -> None:
    request = continued(WAITING, part)
    assert request.approvals == expected
    assert request.tool_outputs == []


@pytest.mark.parametrize("part_type", ["dynamic-tool", "tool-approva", "tool-approvals"])
def test_a_call_of_another_tool_is_no_question(part_type: str) -> None:
    other = question("output-available", output={"approved": True}) | {"type": part_type, "toolName": "approval"}
    request = continued(WAITING, other)
    assert request.approvals == []
    assert [output.tool_call_id for output in request.tool_outputs] == ["p1"]


def test_an_answer_that_was_acted_upon_is_not_given_again() -> None:
    answer = question("output-available", output={"approved": True})
    assert continued(WAITING | {"state": "output-available", "output": 1}, answer).approvals == []
    assert continued(answer).approvals == [ApprovalAnswer("p1", True, None, "c1")]


def test_the_answer_to_what_our_stream_asks_is_understood() -> None:
    stream = MessageStream(message_id="a1", sdk="5")
    stream_chunks = [
        *stream.send(parts.ToolCall("c1", "rm", {"path": "/"})),
        *stream.send(parts.ApprovalRequest("p1", "c1")),
        *stream.close(),
    ]
    inputs = [chunk for chunk in stream_chunks if isinstance(chunk, ToolInputAvailableChunk)]
    states: list[Json] = [{"state": "input-available"}, {"state": "output-available", "output": {"approved": True}}]
    tool_parts: list[Json] = [
        {"type": f"tool-{chunk.tool_name}", "toolCallId": chunk.tool_call_id, "input": chunk.input, **state}
        for chunk, state in zip(inputs, states, strict=True)
    ]
    assert continued(*tool_parts).approvals == [ApprovalAnswer("p1", True, None, "c1")]


# Faults


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "the body is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b'{"messages": [\xff]}', "the body is not UTF-8: byte 0xff at 14"),
        ('{"messages": NaN}', "the body is not JSON: NaN is not a JSON value; write null"),
        (
            '{"messages": [{"role": "user", "parts": [{"type": "data-x", "data": 1e999}]}]}',
            "the body holds a number that is not finite; the largest is about 1.8e308",
        ),
        (
            {"messages": [USER | {"metadata": {"x": math.nan}}]},
            "the body holds a number that is not finite; the largest is about 1.8e308",
        ),
        ("[]", "the body must be a JSON object with the key 'messages', not an array"),
        ("null", "the body must be a JSON object with the key 'messages', not null"),
        (
            {},
            "the body has no messages: send the history under 'messages', or the last message under 'message'",
        ),
        ({"messages": {}}, "messages must be a list of messages, not an object"),
        ({"messages": ["hi"]}, "messages[0] must be an object with the keys 'id', 'role' and 'parts', not a string"),
        ({"message": "hi"}, "message must be an object with the keys 'id', 'role' and 'parts', not a string"),
        ({"messages": [USER, {}]}, "messages[1].role must be 'system', 'user' or 'assistant', not null"),
        (
            {"messages": [USER | {"role": "tool"}]},
            "messages[0].role must be 'system', 'user' or 'assistant', not 'tool'",
        ),
        ({"messages": [USER | {"role": []}]}, "messages[0].role must be 'system', 'user' or 'assistant', not an array"),
        ({"messages": [USER | {"id": 1}]}, "messages[0].id must be a string, not a number"),
        (
            {"messages": [{"role": "user"}]},
            "messages[0].parts must be a list of parts (or text under 'content'), not null",
        ),
        (
            {"messages": [{"role": "user", "content": 1}]},
            "messages[0].parts must be a list of parts (or text under 'content'), not a number",
        ),
        ({"messages": [USER | {"parts": "hi"}]}, "messages[0].parts must be a list of parts, not a string"),
        (
            {"messages": [USER | {"parts": [HI, 1]}]},
            "messages[0].parts[1] must be an object with the key 'type', not a number",
        ),
        (
            {"messages": [USER | {"parts": [{}]}]},
            "messages[0].parts[0].type must be a string such as 'text' or 'file', not null",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": 1}]}]},
            "messages[0].content[0].type must be a string such as 'text' or 'file', not a number",
        ),
        ({"messages": [USER], "id": 1}, "the chat id must be a string, not a number"),
        ({"messages": [USER], "messageId": []}, "messageId must be a string, not an array"),
        ({"messages": [USER], "trigger": "go"}, "trigger must be 'submit-message' or 'regenerate-message', not 'go'"),
        (
            {"messages": [USER], "trigger": {}},
            "trigger must be 'submit-message' or 'regenerate-message', not an object",
        ),
        ({"messages": []}, "messages has no user message to answer, and does not end with an assistant message"),
        ({"messages": [SYSTEM]}, "messages has no user message to answer, and does not end with an assistant message"),
    ],
)
def test_what_is_no_chat_request_is_refused(body: Any, text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        ChatRequest.parse(body)
    assert (str(caught.value), caught.value.status) == (text, 400)


def test_the_deepest_value_that_is_streamed_can_come_back() -> None:
    deep: Any = 1
    for _ in range(2 * MAXIMUM_DEPTH):
        deep = [deep]
    output = {"type": "tool-a", "toolCallId": "c", "state": "output-available", "input": {}, "output": json_value(deep)}
    body = json.dumps({"messages": [USER, ASSISTANT | {"parts": [output]}]})
    assert ChatRequest.parse(body).tool_outputs[0].output == json_value(deep)


# Anything

STATES: list[Any] = ["output-available", "output-error", "approval-responded", "input-available", [], None]
scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
keys = st.sampled_from(
    ["id", "role", "parts", "content", "type", "text", "state", "toolCallId", "approval", "input", "output"]
)
values: st.SearchStrategy[Any] = st.recursive(
    scalars | st.sampled_from(["user", "assistant", "text", "file", "tool-approval", "dynamic-tool"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=10,
)
odd_parts = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["text", "file", "tool-approval", "tool-a", "dynamic-tool"]),
        "toolCallId": st.sampled_from(["c1", "c2", "c3", 1]),
        "toolName": st.just("a") | values,
        "state": st.sampled_from(STATES),
        "approval": st.builds(lambda approved: {"id": "p1", "approved": approved}, scalars) | values,
        "input": st.just({"approvalId": "p1", "toolCallId": "c1"}) | values,
    },
    optional={"output": values, "errorText": values, "text": values, "preliminary": values},
)
odd_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant"]), "parts": st.lists(odd_parts, max_size=4)},
    optional={"id": st.sampled_from(["a1", "u1"]), "metadata": values},
)
odd_bodies = st.fixed_dictionaries(
    {"messages": st.lists(odd_messages, min_size=1, max_size=3)},
    optional={"id": st.just("c"), "messageId": st.just("a1"), "x": values},
)
wild_bodies = st.fixed_dictionaries(
    {"messages": st.lists(odd_messages | values, max_size=3) | values},
    optional={"message": values, "id": scalars, "trigger": values, "messageId": values},
)


@given(odd_bodies)
def test_a_request_with_odd_parts_answers_every_question(body: Json) -> None:
    request = ChatRequest.parse(json.dumps(body))
    assert isinstance(request.text, str)
    assert all(part["type"] == "file" for part in request.files)
    assert all(isinstance(output.tool_call_id, str) for output in request.tool_outputs)
    assert all(isinstance(answer.approval_id, str) for answer in request.approvals)
    assert ChatRequest.parse(request.to_json()) == request


@given(wild_bodies | values)
def test_any_json_is_a_request_or_a_typed_error(body: Any) -> None:
    try:
        request = ChatRequest.parse(json.dumps(body))
    except InvalidRequest as error:
        text = str(error)
    else:
        text = f"messages: {len(request.messages)}"
    assert text.startswith(("the body", "the chat id", "message", "trigger"))


@given(st.binary(max_size=40))
def test_any_bytes_are_no_request_but_a_typed_error(body: bytes) -> None:
    with pytest.raises(RequestError):
        ChatRequest.parse(body)


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"messages": None}, {"message": None}])
@pytest.mark.parametrize("trigger", ["submit-message", "regenerate-message"])
def test_a_body_may_bring_no_message_where_the_server_has_the_history(body: dict[str, Any], trigger: str) -> None:
    request = ChatRequest.parse({"id": "c1", "trigger": trigger, **body}, is_history_stored=True)
    assert (request.chat_id, request.messages, request.trigger) == ("c1", [], trigger)


def test_a_message_that_is_none_is_refused_where_the_page_has_the_history() -> None:
    with pytest.raises(InvalidRequest, match=r"^message must be an object"):
        ChatRequest.parse({"message": None})
