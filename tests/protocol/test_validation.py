from typing import Any

import pytest

from usechat.errors import InvalidMessages, LocalProtocolError
from usechat.protocol.validation import ToolSchema, validate_messages

Json = Any
EVERY_SDK = ["5", "6", "7"]


def takes_query(value: Json) -> Json:
    if not isinstance(value, dict) or not isinstance(value.get("q"), str):
        raise ValueError("q must be a text")
    return {"q": value["q"]}


def takes_number(value: Json) -> Json:
    if not isinstance(value, int):
        raise TypeError("not a number")
    return value + 1


TOOLS = {"t": ToolSchema(takes_query, takes_number), "plain": ToolSchema(takes_query)}


def history(*parts: Json, **keys: Json) -> Json:
    return [{"id": "m", "role": "assistant", "parts": list(parts), **keys}]


def tool(state: str, name: str = "t", **keys: Json) -> Json:
    return {"type": f"tool-{name}", "toolCallId": "c", "state": state, "input": {"q": "x"}, **keys}


def checked(part: Json, sdk: str = "7") -> Json:
    return validate_messages(history(part), sdk=sdk, tools=TOOLS)[0]["parts"][0]


def refusal(messages: Json, **options: Any) -> InvalidMessages:
    with pytest.raises(InvalidMessages) as raised:
        validate_messages(messages, **options)
    return raised.value


def dynamic(part: Json, name: str = "t") -> Json:
    return part | {"type": "dynamic-tool", "toolName": name, "dynamic": False}


GRANTED = {"id": "a", "approved": True}
DENIED = {"id": "a", "approved": False}
EVERY_STATE = [
    tool("input-streaming"),
    tool("input-available"),
    tool("approval-requested", approval={"id": "a"}),
    tool("approval-responded", approval=GRANTED),
    tool("output-available", output=1),
    tool("output-error", errorText="e"),
    tool("output-denied", approval=DENIED),
]


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        (None, "messages must be an array with at least one message, not null"),
        ([], "messages must be an array with at least one message, not an empty array"),
        ({}, "messages must be an array with at least one message, not an object"),
    ],
)
def test_a_history_is_an_array_of_messages(messages: Json, text: str) -> None:
    error = refusal(messages)
    assert (str(error), error.path) == (text, "messages")


@pytest.mark.parametrize("sdk", EVERY_SDK)
def test_messages_come_back_without_unknown_keys(sdk: str) -> None:
    messages = [
        {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi", "x": 1}], "createdAt": 1},
        *history({"type": "step-start"}),
    ]
    assert validate_messages(messages, sdk=sdk) == [
        {"id": "u", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
        {"id": "m", "role": "assistant", "parts": [{"type": "step-start"}]},
    ]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"tools": {"t": takes_query}},
            "tools['t'] must be a ToolSchema, not function; give ToolSchema(input=takes_query)",
        ),
        ({"tools": {"t": {"type": "object"}}}, "tools['t'] must be a ToolSchema, not dict; give ToolSchema(input=…)"),
        (
            {"tools": {"t": ToolSchema({"type": "object"})}},  # type: ignore[arg-type]
            "tools['t'].input must be a function that checks and returns a value, not dict",
        ),
        (
            {"tools": {"t": ToolSchema(takes_query, 1)}},  # type: ignore[arg-type]
            "tools['t'].output must be a function that checks and returns a value, not int",
        ),
        ({"data_schemas": {"x": 1}}, "data_schemas['x'] must be a function that checks and returns a value, not int"),
        ({"metadata_schema": 1}, "metadata_schema must be a function that checks and returns a value, not int"),
    ],
)
def test_schemas_that_are_none_are_the_callers_mistake(options: Any, text: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        validate_messages(history(), **options)
    assert str(caught.value) == text


def test_the_path_names_the_message_and_the_part() -> None:
    messages = [*history(), *history({"type": "step-start"}, {"type": "text"})]
    assert refusal(messages).path == "messages[1].parts[1].text"


def test_metadata_is_what_its_schema_makes_of_it() -> None:
    messages = [*history(metadata=1), *history(metadata=5)]
    validated = validate_messages(messages, metadata_schema=takes_number)
    assert [message["metadata"] for message in validated] == [2, 6]
    error = refusal([*history(metadata=1), *history(metadata="x")], metadata_schema=takes_number)
    assert error.path == "messages[1].metadata"
    assert str(error) == "messages[1].metadata does not fit its schema: not a number"


def test_a_metadata_schema_decides_about_absent_metadata() -> None:
    assert validate_messages(history(), metadata_schema=lambda value: value) == history()
    assert validate_messages(history(), metadata_schema=lambda _: 0) == history(metadata=0)
    assert validate_messages(history(metadata=None), metadata_schema=lambda value: value) == history(metadata=None)


def test_data_is_what_its_schema_makes_of_it() -> None:
    part = {"type": "data-x", "data": 1}
    assert validate_messages(history(part), data_schemas={"x": takes_number}) == history(part | {"data": 2})
    assert refusal(history(part | {"data": "x"}), data_schemas={"x": takes_number}).path == "messages[0].parts[0].data"
    error = refusal(history({"type": "text", "text": ""}, part), data_schemas={})
    assert error.path == "messages[0].parts[1].data"
    assert "no data schema found for data part x" in str(error)


@pytest.mark.parametrize("sdk", EVERY_SDK)
@pytest.mark.parametrize("part", EVERY_STATE, ids=lambda part: part["state"])
def test_calls_that_fit_their_tool_are_left_as_they_are(part: Json, sdk: str) -> None:
    assert checked(part, sdk) == part


@pytest.mark.parametrize(
    ("sdk", "states"),
    [
        ("5", {"input-available", "output-available"}),
        ("6", {"input-available", "approval-requested", "approval-responded", "output-available", "output-denied"}),
        ("7", {"input-available", "approval-requested", "approval-responded", "output-available", "output-denied"}),
    ],
)
def test_input_that_does_not_fit_is_refused(sdk: str, states: set[str]) -> None:
    for part in EVERY_STATE:
        misfit = part | {"input": {"q": 1}}
        if part["state"] in states:
            assert refusal(history(misfit), sdk=sdk, tools=TOOLS).path == "messages[0].parts[0].input"
        else:
            assert checked(misfit, sdk)["state"] == part["state"]


@pytest.mark.parametrize("sdk", EVERY_SDK)
def test_finished_calls_whose_input_no_longer_fits_become_dynamic(sdk: str) -> None:
    failed = tool("output-error", errorText="e") | {"input": {"q": 1}}
    empty = tool("output-available", output=1) | {"input": {}}
    assert checked(failed, sdk) == dynamic(failed)
    assert checked(empty, sdk) == dynamic(empty)


@pytest.mark.parametrize("state", ["approval-requested", "approval-responded", "output-denied"])
def test_a_call_that_did_not_fail_needs_an_input_that_fits(state: str) -> None:
    [part] = [part for part in EVERY_STATE if part["state"] == state]
    without = {key: value for key, value in part.items() if key != "input"}
    for misfit in (part | {"input": {}}, without):
        assert refusal(history(misfit), tools=TOOLS).path == "messages[0].parts[0].input"


def test_a_failed_call_without_input_has_nothing_to_check() -> None:
    part = {key: value for key, value in tool("output-error", errorText="e").items() if key != "input"}
    assert checked(part) == part


@pytest.mark.parametrize("sdk", ["5.0.216", "5.0.277", "7"])
def test_an_input_that_is_still_streamed_may_be_absent(sdk: str) -> None:
    part = {"type": "tool-search", "toolCallId": "c1", "state": "input-streaming"}
    messages = [{"id": "m1", "role": "assistant", "parts": [part]}]
    assert validate_messages(messages, sdk=sdk) == messages


def test_a_number_is_no_boolean() -> None:
    part = {"type": "tool-search", "toolCallId": "c1", "state": "output-available", "input": {}, "output": 1}
    for approved in (1, 1.0, "true"):
        approval = {"id": "a1", "approved": approved}
        with pytest.raises(InvalidMessages, match="approved"):
            validate_messages([{"id": "m1", "role": "assistant", "parts": [part | {"approval": approval}]}], sdk="7")


def test_output_that_does_not_fit_is_refused() -> None:
    assert refusal(history(tool("output-available", output="x")), tools=TOOLS).path == "messages[0].parts[0].output"
    unchecked = tool("output-available", "plain", output="x")
    assert checked(unchecked) == unchecked


@pytest.mark.parametrize(
    ("sdk", "finished"),
    [
        ("5", {"output-available", "output-error"}),
        ("6", {"output-available", "output-error", "output-denied"}),
        ("7", {"output-available", "output-error", "output-denied"}),
    ],
)
def test_finished_calls_of_unknown_tools_become_dynamic_and_others_are_refused(sdk: str, finished: set[str]) -> None:
    for part in (part | {"type": "tool-gone"} for part in EVERY_STATE):
        if part["state"] in finished:
            assert checked(part, sdk) == dynamic(part, "gone")
        else:
            error = refusal(history(part), sdk=sdk, tools=TOOLS)
            assert str(error) == "messages[0].parts[0].input: no tool schema found for tool part gone"


@pytest.mark.parametrize(
    ("sdk", "keys"), [("5", set()), ("6", {"approval", "rawInput"}), ("7", {"approval", "rawInput"})]
)
def test_5_loses_the_approval_of_a_call_that_becomes_dynamic(sdk: str, keys: set[str]) -> None:
    part = tool("output-error", "gone", errorText="e", rawInput=1, approval=GRANTED)
    assert set(checked(part, sdk)) & {"approval", "rawInput"} == keys


def test_dynamic_calls_are_not_checked() -> None:
    part = {"type": "dynamic-tool", "toolName": "t", "toolCallId": "c", "state": "input-available", "input": 5}
    assert checked(part) == part


def test_the_input_must_be_what_the_approved_input_gives() -> None:
    approval = {"id": "a", "inputSchemaInput": {"q": "x", "more": 1}}
    part = tool("approval-requested", approval=approval)
    assert checked(part) == part
    error = refusal(history(part | {"input": {"q": "y"}}), tools=TOOLS)
    assert str(error) == "messages[0].parts[0].input is not what inputSchemaInput gives"
