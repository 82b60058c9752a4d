"""UI messages to model messages, by value; the npm function judges thousands in tests/conformance."""

from typing import Any, Literal

import pytest

import usechat
from usechat.errors import InvalidMessages, UnknownRelease
from usechat.protocol.model_messages import model_messages, repair_messages
from usechat.protocol.validation import ToolSchema, validate_messages

Json = Any
Major = Literal["5", "6", "7"]
MAJORS: tuple[Major, ...] = ("5", "6", "7")

TEXT = {"type": "text", "text": "Hello"}
FILE = {"type": "file", "mediaType": "a/b"}
STEP = {"type": "step-start"}
METADATA = {"openai": {"itemId": "i1"}}
OPTIONS = {"providerOptions": METADATA}
CALL = {"type": "tool-call", "toolCallId": "c1", "toolName": "search", "input": {"q": "x"}}
RESULT = {"type": "tool-result", "toolCallId": "c1", "toolName": "search"}


def tool(state: str, part_type: str = "tool-search", **values: Json) -> Json:
    name = {"toolName": "search"} if part_type == "dynamic-tool" else {}
    return {"type": part_type, **name, "toolCallId": "c1", "state": state, "input": {"q": "x"}, **values}


def said(role: str, *parts: Json) -> Json:
    return {"id": "m", "role": role, "parts": list(parts)}


def converted(*parts: Json, sdk: Major = "7", **options: Any) -> Json:
    """Return the model messages of one assistant message, as `role, *content` each."""
    messages: Json = model_messages([said("assistant", *parts)], sdk=sdk, **options)
    return [[message["role"], *message["content"]] for message in messages]


def test_conversion_and_repair_are_public() -> None:
    assert (usechat.model_messages, usechat.repair_messages) == (model_messages, repair_messages)


@pytest.mark.parametrize("sdk", ["any", "4", "6.0.1", ""])
def test_only_a_major_release_can_be_mirrored(sdk: Any) -> None:
    with pytest.raises(UnknownRelease, match=r"is not a major release of the AI SDK; give 5, 6 or 7$"):
        model_messages([], sdk=sdk)


# System and user messages.


def test_the_texts_of_a_system_message_are_joined_and_their_metadata_merged() -> None:
    parts = [
        {"type": "text", "text": "Be ", "providerMetadata": {"a": {"x": 1}, "b": {}}},
        {"type": "file", "mediaType": "a/b", "url": "data:,x"},
        {"type": "text", "text": "brief.", "providerMetadata": {"a": {"y": 2}}},
    ]
    assert model_messages([said("system", *parts)]) == [
        {"role": "system", "content": "Be brief.", "providerOptions": {"a": {"y": 2}, "b": {}}}
    ]
    assert model_messages([said("system", TEXT | {"providerMetadata": {}})]) == [{"role": "system", "content": "Hello"}]


@pytest.mark.parametrize("part_type", ["reasoning", "video"])
def test_a_system_message_has_no_other_text(part_type: str) -> None:
    assert model_messages([said("system", {"type": part_type, "text": "Hm"}, TEXT)]) == [
        {"role": "system", "content": "Hello"}
    ]


@pytest.mark.parametrize(
    ("sdk", "data"), [("5", "data:,x"), ("6", "data:,x"), ("7", {"type": "url", "url": "data:,x"})]
)
def test_a_user_says_texts_and_files(sdk: Major, data: Json) -> None:
    file = {"type": "file", "mediaType": "image/png", "url": "data:,x", "filename": "f", "providerMetadata": METADATA}
    assert model_messages([said("user", file, TEXT | {"providerMetadata": METADATA}, STEP)], sdk=sdk) == [
        {
            "role": "user",
            "content": [
                {"type": "file", "mediaType": "image/png", "filename": "f", "data": data, **OPTIONS},
                {"type": "text", "text": "Hello", **OPTIONS},
            ],
        }
    ]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_data_is_left_out_without_a_converter(role: str) -> None:
    data = {"type": "data-note", "data": "remember"}
    assert [message["content"] for message in model_messages([said(role, data, TEXT)])] == [[TEXT]]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_data_is_what_the_converter_makes_of_it_or_left_out(role: str) -> None:
    note, secret = {"type": "data-note", "data": "remember"}, {"type": "data-secret", "data": 1}

    def convert(part: Any) -> Any:
        return {"type": "text", "text": part["data"]} if part["type"] == "data-note" else None

    messages = model_messages([said(role, secret, note)], convert_data_part=convert)
    assert messages == [{"role": role, "content": [{"type": "text", "text": "remember"}]}]


# Steps.


def test_a_step_becomes_an_assistant_message_and_a_tool_message() -> None:
    assert converted(STEP, TEXT, tool("output-available", output=3), STEP, TEXT) == [
        ["assistant", TEXT, CALL],
        ["tool", RESULT | {"output": {"type": "json", "value": 3}}],
        ["assistant", TEXT],
    ]


def test_sources_and_unknown_parts_are_left_out() -> None:
    source = {"type": "source-url", "sourceId": "s", "url": "u"}
    assert converted(source, {"type": "something"}, TEXT) == [["assistant", TEXT]]


@pytest.mark.parametrize(("sdk", "expected"), [("5", [["assistant"], ["tool"]]), ("6", []), ("7", [])])
def test_a_step_of_which_nothing_is_left_is_an_empty_message_in_5_alone(sdk: Major, expected: Json) -> None:
    assert converted(STEP, {"type": "data-x", "data": 1}, tool("input-streaming"), STEP, sdk=sdk) == expected


def test_5_has_no_empty_tool_message_for_what_the_provider_ran() -> None:
    assert converted(tool("input-available", providerExecuted=True), sdk="5") == [
        ["assistant", CALL | {"providerExecuted": True}]
    ]


def test_reasoning_and_text_keep_their_metadata() -> None:
    parts = [{"type": kind, "text": "x", "providerMetadata": METADATA} for kind in ("reasoning", "text")]
    assert converted(*parts) == [["assistant", *({"type": p["type"], "text": "x", **OPTIONS} for p in parts)]]


def test_metadata_that_is_null_stays_null_in_reasoning_and_is_left_out_elsewhere() -> None:
    null = {"providerMetadata": None}
    file = FILE | {"url": "data:,x"}
    ui_parts = [{"type": "reasoning", "text": "x"}, file | {"type": "reasoning-file"}, TEXT, file]
    data = {"data": {"type": "url", "url": "data:,x"}}
    assert converted(*(part | null for part in ui_parts)) == [
        [
            "assistant",
            {"type": "reasoning", "text": "x", "providerOptions": None},
            {"type": "reasoning-file", "mediaType": "a/b", **data, "providerOptions": None},
            TEXT,
            FILE | data,
        ]
    ]


@pytest.mark.parametrize(
    ("sdk", "expected"),
    [
        ("5", {"data": "data:,x"}),
        ("6", {"data": "data:,x", **OPTIONS}),
        ("7", {"data": {"type": "url", "url": "data:,x"}, **OPTIONS}),
    ],
)
def test_a_file_of_the_assistant(sdk: Major, expected: Json) -> None:
    file = {"type": "file", "mediaType": "a/b", "url": "data:,x", "providerMetadata": METADATA}
    assert converted(file, sdk=sdk) == [["assistant", {"type": "file", "mediaType": "a/b", **expected}]]


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_file_at_the_provider_is_a_reference_for_7(role: str) -> None:
    file = {"type": "file", "mediaType": "a/b", "url": "not looked at", "providerReference": {"openai": "file-1"}}
    (message,) = model_messages([said(role, file)])
    data = {"type": "reference", "reference": {"openai": "file-1"}}
    assert message["content"] == [{"type": "file", "mediaType": "a/b", "data": data}]


@pytest.mark.parametrize(("sdk", "is_known"), [("5", False), ("6", False), ("7", True)])
def test_reasoning_files_and_custom_parts_are_known_to_7(sdk: Major, is_known: bool) -> None:
    file = {"type": "reasoning-file", "mediaType": "a/b", "url": "data:,x", "providerMetadata": METADATA}
    custom = {"type": "custom", "kind": "k", "providerMetadata": METADATA}
    data = {"type": "url", "url": "data:,x"}
    expected = [
        {"type": "reasoning-file", "mediaType": "a/b", "data": data, **OPTIONS},
        {"type": "custom", "kind": "k", **OPTIONS},
    ]
    assert converted(file, custom, TEXT, sdk=sdk) == [["assistant", *(expected if is_known else []), TEXT]]


@pytest.mark.parametrize(("sdk", "is_known"), [("5", False), ("6", False), ("7", True)])
def test_a_steering_message_is_a_user_message_between_two_steps_for_7(sdk: Major, is_known: bool) -> None:
    file = {"type": "file", "mediaType": "a/b", "url": "data:,x"}
    steering = {"type": "steering-message", "id": "u", "parts": [TEXT, file]}
    said_file = {"type": "file", "mediaType": "a/b", "data": {"type": "url", "url": "data:,x"}}
    apart = [["assistant", TEXT], ["user", TEXT, said_file], ["assistant", TEXT]]
    assert converted(TEXT, steering, TEXT, sdk=sdk) == (apart if is_known else [["assistant", TEXT, TEXT]])


@pytest.mark.parametrize("part_type", ["audio", "file", "video"])
def test_everything_but_text_is_a_file_in_a_steering_message(part_type: str) -> None:
    said_part = {"type": part_type, "mediaType": "a/b", "url": "data:,x"}
    file = {"type": "file", "mediaType": "a/b", "data": {"type": "url", "url": "data:,x"}}
    assert converted({"type": "steering-message", "id": "u", "parts": [said_part]}) == [["user", file]]


# Tool calls.


@pytest.mark.parametrize("part_type", ["tool-search", "dynamic-tool"])
@pytest.mark.parametrize(
    ("state", "values", "output"),
    [
        ("output-available", {"output": "found"}, {"type": "text", "value": "found"}),
        ("output-available", {"output": [1]}, {"type": "json", "value": [1]}),
        ("output-available", {}, {"type": "json", "value": None}),
        ("output-error", {"errorText": "broken"}, {"type": "error-text", "value": "broken"}),
    ],
)
def test_what_a_tool_returned(part_type: str, state: str, values: Json, output: Json) -> None:
    assert converted(tool(state, part_type, callProviderMetadata=METADATA, **values)) == [
        ["assistant", CALL | OPTIONS],
        ["tool", RESULT | {"output": output} | OPTIONS],
    ]


def test_a_tool_converts_its_own_output_but_not_its_errors() -> None:
    output = {"type": "content", "value": [{"type": "text", "text": "found x for x"}]}

    def convert(part: Any) -> Any:
        return {
            "type": "content",
            "value": [{"type": "text", "text": f"found {part['output']} for {part['input']['q']}"}],
        }

    parts = [tool("output-available", output="x"), tool("output-error", errorText="broken")]
    (_, (_, *results)) = converted(*parts, tools={"search": convert})
    assert [result["output"] for result in results] == [output, {"type": "error-text", "value": "broken"}]


def test_the_output_of_a_tool_that_is_no_longer_there_is_left_out() -> None:
    schemas: dict[str, ToolSchema] = {}
    (message,) = validate_messages([said("assistant", tool("output-available", output="secret"))], tools=schemas)
    (_, result) = model_messages([message])
    assert result["content"] == [
        RESULT | {"output": {"type": "text", "value": "Tool output omitted because the tool is no longer available."}}
    ]
    (_, result) = model_messages([message], tools={"search": None})
    assert result["content"] == [RESULT | {"output": {"type": "text", "value": "secret"}}]


@pytest.mark.parametrize(
    ("sdk", "part_type", "expected"),
    [
        ("5", "tool-search", "raw"),
        ("5", "dynamic-tool", None),
        ("6", "dynamic-tool", "raw"),
        ("7", "tool-search", "raw"),
    ],
)
def test_the_input_of_a_failed_call_may_be_the_raw_one(sdk: Major, part_type: str, expected: Json) -> None:
    failed = tool("output-error", part_type, errorText="e", rawInput="raw")
    ((_, call), _) = converted(failed | {"input": None}, sdk=sdk)
    assert call["input"] == expected
    ((_, call), _) = converted(failed, sdk=sdk)
    assert call["input"] == {"q": "x"}


def test_a_failed_call_without_any_input_has_none() -> None:
    failed = tool("output-error", errorText="e")
    del failed["input"]
    ((_, call), _) = converted(failed)
    assert call == {"type": "tool-call", "toolCallId": "c1", "toolName": "search"}


@pytest.mark.parametrize("part_type", ["tool-search", "dynamic-tool"])
@pytest.mark.parametrize(
    ("state", "values", "output"),
    [
        ("output-available", {"output": "found"}, {"type": "text", "value": "found"}),
        ("output-error", {"errorText": "broken"}, {"type": "error-json", "value": "broken"}),
    ],
)
def test_what_the_provider_ran_is_answered_in_the_assistant_message(
    part_type: str, state: str, values: Json, output: Json
) -> None:
    part = tool(state, part_type, providerExecuted=True, **values)
    call = CALL | {"providerExecuted": True}
    assert converted(part) == [["assistant", call, RESULT | {"output": output}]]
    if part_type == "dynamic-tool":  # which 5 takes for one of ours
        (assistant, (role, result)) = converted(part, sdk="5")
        assert (assistant, role, result["toolCallId"]) == (["assistant", CALL], "tool", "c1")


@pytest.mark.parametrize(("sdk", "result_options"), [("5", {"p": {"of": "call"}}), ("7", {"p": {"of": "result"}})])
def test_the_metadata_of_a_providers_result(sdk: Major, result_options: Json) -> None:
    metadata = {"callProviderMetadata": {"p": {"of": "call"}}, "resultProviderMetadata": {"p": {"of": "result"}}}
    part = tool("output-available", output=1, providerExecuted=True) | metadata
    ((_, call, result),) = converted(part, sdk=sdk)
    assert (call["providerOptions"], result["providerOptions"]) == ({"p": {"of": "call"}}, result_options)


def test_a_call_that_did_not_fail_does_not_take_the_metadata_of_its_result() -> None:
    ((_, call, result),) = converted(
        tool("output-available", output=1, providerExecuted=True, resultProviderMetadata=METADATA)
    )
    assert (call, result["providerOptions"]) == (CALL | {"providerExecuted": True}, METADATA)
    ((_, call),) = converted(tool("pending", resultProviderMetadata=METADATA, rawInput="raw") | {"input": None})
    assert call == CALL | {"input": None}, "in a state that no release knows"


@pytest.mark.parametrize("state", ["input-available", "output-available", "output-denied"])
def test_a_call_that_did_not_fail_does_not_take_the_raw_input(state: str) -> None:
    assert converted(tool(state, rawInput="raw") | {"input": None})[0] == ["assistant", CALL | {"input": None}]


@pytest.mark.parametrize(("sdk", "expected"), [("5", {}), ("6", OPTIONS), ("7", OPTIONS)])
def test_a_failed_call_takes_the_metadata_of_its_result_if_it_has_none(sdk: Major, expected: Json) -> None:
    ((_, call), (_, result)) = converted(tool("output-error", errorText="e", resultProviderMetadata=METADATA), sdk=sdk)
    assert (call, "providerOptions" in result) == (CALL | expected, False)


# Approvals.

REQUEST = {"type": "tool-approval-request", "approvalId": "a1", "toolCallId": "c1"}
RESPONSE = {"type": "tool-approval-response", "approvalId": "a1"}


def test_5_knows_no_approvals() -> None:
    assert converted(tool("input-available", approval="not looked at"), sdk="5") == [["assistant", CALL], ["tool"]]
    assert converted(tool("output-denied", approval={"id": "a1", "approved": False}), sdk="5") == [
        ["assistant", CALL],
        ["tool"],
    ]


@pytest.mark.parametrize(("sdk", "details"), [("6", {}), ("7", {"isAutomatic": True, "reason": "writes"})])
def test_a_request_for_approval_is_behind_its_call(sdk: Major, details: Json) -> None:
    fields = {"signature": "s", "inputSchemaInput": None}
    approval = {"id": "a1", "isAutomatic": True, "requestReason": "writes", **fields}
    assert converted(tool("approval-requested", approval=approval), sdk=sdk) == [
        ["assistant", CALL, REQUEST | details | fields]
    ]


def test_null_is_left_out_of_a_request_for_approval_where_it_says_nothing() -> None:
    approval = {"id": "a1", "isAutomatic": None, "requestReason": None, "signature": None, "inputSchemaInput": None}
    ((_, _, request),) = converted(tool("approval-requested", approval=approval))
    assert request == REQUEST | {"isAutomatic": None, "inputSchemaInput": None}


def test_an_approved_call_has_a_response_and_no_result_yet() -> None:
    part = tool("approval-responded", approval={"id": "a1", "approved": True, "reason": "fine"}, providerExecuted=False)
    assert converted(part) == [
        ["assistant", CALL | {"providerExecuted": False}, REQUEST],
        ["tool", RESPONSE | {"approved": True, "reason": "fine", "providerExecuted": False}],
    ]


@pytest.mark.parametrize("executed", [{}, {"providerExecuted": True}])
@pytest.mark.parametrize("sdk", ["6", "7"])
def test_a_denial_is_a_result_at_once_for_7(sdk: Major, executed: Json) -> None:
    part = tool("approval-responded", approval={"id": "a1", "approved": False, "reason": "no"}, **executed)
    denied = [RESULT | {"output": {"type": "execution-denied", "reason": "no"}}] if sdk == "7" else []
    assert converted(part, sdk=sdk) == [
        ["assistant", CALL | executed, REQUEST],
        ["tool", RESPONSE | {"approved": False, "reason": "no"} | executed, *denied],
    ]


@pytest.mark.parametrize("state", ["approval-requested", "input-available"])
def test_an_answer_that_the_state_does_not_show_is_no_denial_yet(state: str) -> None:
    assert converted(tool(state, approval={"id": "a1", "approved": False})) == [
        ["assistant", CALL, REQUEST],
        ["tool", RESPONSE | {"approved": False}],
    ]


def test_a_number_is_neither_yes_nor_no() -> None:
    answer = {"id": "a1", "approved": 0}
    assert converted(tool("approval-responded", approval=answer)) == [
        ["assistant", CALL, REQUEST],
        ["tool", RESPONSE | {"approved": 0}],
    ]
    output = {"type": "text", "value": "found"}
    part = tool("output-available", "dynamic-tool", output="found", providerExecuted=1, preliminary=1, dynamic=0)
    for ignored in (False, True):
        assert converted(part, ignore_incomplete_tool_calls=ignored) == [
            ["assistant", CALL | {"providerExecuted": 1}],
            ["tool", RESULT | {"output": output}],
        ]


@pytest.mark.parametrize(("reason", "text"), [({"reason": "no"}, "no"), ({}, "Tool call execution denied.")])
def test_a_denied_call_has_an_error_for_its_result(reason: Json, text: str) -> None:
    assert converted(tool("output-denied", approval={"id": "a1", "approved": False, **reason})) == [
        ["assistant", CALL, REQUEST],
        ["tool", RESPONSE | {"approved": False, **reason}, RESULT | {"output": {"type": "error-text", "value": text}}],
    ]


def test_a_denied_call_needs_no_approval_to_have_a_result() -> None:
    assert converted(tool("output-denied"))[1][1]["output"]["value"] == "Tool call execution denied."


@pytest.mark.parametrize(("sdk", "is_kept"), [("5", True), ("6", True), ("7", False)])
def test_a_later_user_message_supersedes_an_unanswered_approval_for_7(sdk: Major, is_kept: bool) -> None:
    question = said("assistant", TEXT, tool("approval-requested", approval={"id": "a1"}))
    first, *_ = model_messages([question, said("user", TEXT), question], sdk=sdk)
    *_, last = [
        message
        for message in model_messages([question, said("user", TEXT), question], sdk=sdk)
        if message["role"] != "tool"
    ]
    assert (CALL in first["content"], CALL in last["content"]) == (is_kept, True)


def test_a_later_user_message_supersedes_no_other_call() -> None:
    first, *_ = model_messages([said("assistant", tool("output-available", output=1)), said("user", TEXT)])
    assert first["content"] == [CALL]


def test_a_later_assistant_message_supersedes_no_approval() -> None:
    question = said("assistant", TEXT, tool("approval-requested", approval={"id": "a1"}))
    first, *_ = model_messages([said("user", TEXT), question, said("assistant", TEXT)], sdk="7")[1:]
    assert CALL in first["content"]


# Unfinished calls.


@pytest.mark.parametrize(
    ("part", "majors"),
    [
        (tool("input-streaming"), ""),
        (tool("input-available"), ""),
        (tool("approval-requested", approval={"id": "a1"}), "5"),
        (tool("approval-responded", approval={"id": "a1", "approved": True}), "567"),
        (tool("output-available", output=1), "567"),
        (tool("output-available", output=1, preliminary=True), ""),
        (tool("output-error", errorText="e"), "567"),
        (tool("output-denied", approval={"id": "a1", "approved": False}), "567"),
    ],
)
def test_unfinished_calls_can_be_ignored(part: Json, majors: str) -> None:
    majors_that_keep_it = [
        sdk
        for sdk in ("5", "6", "7")
        if "tool-call" in str(model_messages([said("assistant", part)], sdk=sdk, ignore_incomplete_tool_calls=True))
    ]
    assert "".join(majors_that_keep_it) == majors


def test_a_state_of_another_type_counts_as_unfinished() -> None:
    states: list[Any] = [None, {}, ["output-error"], 1]
    calls = [tool("x") | {"state": state} for state in states]
    conversions = [model_messages([said("user", *calls)], sdk=sdk, ignore_incomplete_tool_calls=True) for sdk in MAJORS]
    assert conversions == [[{"role": "user", "content": []}]] * 3


# What cannot be converted.


@pytest.mark.parametrize("message", [{"id": "m", "parts": []}, {"id": "m", "role": None, "parts": []}, 1])
def test_a_message_without_a_role_is_refused(message: Json) -> None:
    with pytest.raises(InvalidMessages, match=r"^messages\[0\]\.role must be a string, not nothing$"):
        model_messages([message])


def test_an_unknown_role_is_refused() -> None:
    with pytest.raises(InvalidMessages, match=r"must be 'system', 'user' or 'assistant', not 'tool'$") as refused:
        model_messages([said("user"), said("tool")])
    assert refused.value.path == "messages[1].role"


def test_the_first_message_that_cannot_be_converted_is_named() -> None:
    question = said("assistant", tool("approval-requested", approval={}))
    with pytest.raises(InvalidMessages) as refused:
        model_messages([question, said("visitor", TEXT)])
    assert refused.value.path == "messages[0].parts[0].approval.id"


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        (FILE | {"url": "a.png"}, "url must be an absolute URL or a data URL, not 'a.png'"),
        (FILE | {"type": "reasoning-file", "url": ""}, "url must be an absolute URL or a data URL, not ''"),
        (FILE, "url must be a string, not nothing"),
        ({"type": "text"}, "text must be a string, not nothing"),
        ({"type": "text", "text": "", "providerMetadata": 1}, "providerMetadata must be an object, not a number"),
        ({"type": "tool-x", "toolCallId": "c1"}, "state must be a string, not nothing"),
        (tool("input-available", approval="a1"), "approval must be an object, not a string"),
        (tool("input-available", approval={}), "approval.id must be a string, not nothing"),
        ({"type": "steering-message", "id": "u"}, "parts must be a list of parts, not nothing"),
        ({"type": "steering-message", "id": "u", "parts": [1]}, "parts[0].type must be a string, not nothing"),
        ({"type": "steering-message", "parts": [STEP]}, "parts[0].mediaType must be a string, not nothing"),
    ],
)  # fmt: skip
def test_a_part_that_cannot_be_converted_is_named(part: Json, problem: str) -> None:
    with pytest.raises(InvalidMessages) as refused:
        converted(TEXT, part)
    path = f"messages[0].parts[1].{problem.partition(' ')[0]}"
    assert (str(refused.value), refused.value.path) == (f"messages[0].parts[1].{problem}", path)


@pytest.mark.parametrize("sdk", ["5", "6"])
def test_a_relative_url_is_fine_for_5_and_6(sdk: Major) -> None:
    ((_, file),) = converted({"type": "file", "mediaType": "a/b", "url": "a.png"}, sdk=sdk)
    assert file["data"] == "a.png"


ABSOLUTE = (
    "data:,x", "DATA:image/png;base64,AA==", "blob:https://a/b", "https://a", " https://example.com:8080/a b?c#d ",
    "http:a", "https:\\\\a\\b", "ht\ntp://a", "http://u:p@a", "http://é.example", "http://%41", "http://[::1]:80/",
    "http://127.0.0.1", "http://0x7f.1", "http://0x", "http://010", "http://1.2.3.", "ws://a:", "file:", "file:a",
    "file:///a", "file://host/a", "file://C:/a", "file://[::1]/a", "x:", "x:a b", "x://", "x:///a", "x://host:1",
    "x://[::1]", "http://0377.1", "http://1.65536", "http://1.16777215", "http://1.2.65535", "http://4294967295",
    "http://a:65535", "a://host:1", f"http://a:{'0' * 5000}80",
)  # fmt: skip
RELATIVE = (
    "", "a", "/a", "//a", "1a:b", "http:", "http://", "http://:80", "http://a b", "http://a:65536", "http://a:b",
    "http://u@", "http://a<b", "http://%00", "http://%ff", "http://\xad", "http://[::1", "http://[1]",
    "http://[fe80::1%25a]", "http://[::1]a", "http://256.0.0.1", "http://257.1", "http://1.2.3.4.5", "http://a.08", "http://a.1",
    "http://4294967296", "http://1.16777216", "http://1.2.65536",
    f"http://a:{'9' * 5000}", f"http://{'9' * 5000}", "file://a b/", "file://a:80/", "x://a b", "x://:1", "x://u@", "x://[1]",
)  # fmt: skip


@pytest.mark.parametrize(("urls", "accepted"), [(ABSOLUTE, True), (RELATIVE, False)])
def test_urls_are_accepted_as_javascript_does(urls: tuple[str, ...], accepted: bool) -> None:
    def is_accepted(url: str) -> bool:
        try:
            converted({"type": "file", "mediaType": "a/b", "url": url})
        except InvalidMessages:
            return False
        return True

    assert [url for url in urls if is_accepted(url) is not accepted] == []
