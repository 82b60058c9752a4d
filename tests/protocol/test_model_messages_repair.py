"""`repair_messages` makes a history that no provider rejects; the rules are in tests/provider_rules.py."""

import json
from itertools import islice
from typing import Any, Literal

import pytest
from hypothesis import event, given, settings

from tests.message_histories import Histories
from tests.model_message_strategies import model_histories, model_histories_with_denials
from tests.provider_rules import RULES, broken_rules
from usechat.errors import InvalidMessages
from usechat.protocol.model_messages import model_messages, repair_messages

Json = Any

TEXT = {"type": "text", "text": "Hello"}
USER = {"role": "user", "content": [TEXT]}
UNANSWERED = {"type": "error-text", "value": "The tool call was not completed."}
CUT_OFF = {"role": "user", "content": [{"type": "text", "text": "(Earlier messages are not included.)"}]}


def call(call_id: str = "c1", **more: Json) -> Json:
    return {"type": "tool-call", "toolCallId": call_id, "toolName": "search", "input": {}, **more}


def result(call_id: str = "c1", value: str = "found", kind: str = "text") -> Json:
    output = {"type": kind, "value": value}
    return {"type": "tool-result", "toolCallId": call_id, "toolName": "search", "output": output}


def request(approval_id: str = "a1", call_id: str = "c1") -> Json:
    return {"type": "tool-approval-request", "approvalId": approval_id, "toolCallId": call_id}


def response(approval_id: str = "a1", approved: bool = True, **more: Json) -> Json:
    return {"type": "tool-approval-response", "approvalId": approval_id, "approved": approved, **more}


def assistant(*parts: Json) -> Json:
    return {"role": "assistant", "content": list(parts)}


def tool(*parts: Json) -> Json:
    return {"role": "tool", "content": list(parts)}


def system(text: str) -> Json:
    return {"role": "system", "content": text}


GOOD: list[list[Json]] = [
    [],
    [system("Be brief."), system("Be kind."), USER, USER, assistant(TEXT)],
    [
        USER,
        assistant(TEXT, call("c1"), call("c2")),
        tool(result("c2"), result("c1")),
        assistant(call("c3")),
        tool(result("c3")),
    ],
    [USER, assistant(call("c1", providerExecuted=True), TEXT, result("c1"), call("c2")), tool(result("c2"))],
    [assistant(call("c1", providerExecuted=True), result("c1")), USER],
    [USER, assistant(call(), request()), tool(response(), result()), USER],
    [USER, assistant(call(providerExecuted=True), request()), tool(response(providerExecuted=True))],
    [USER, assistant({"type": "reasoning", "text": "", "providerOptions": {"openai": {"encrypted": "x"}}})],
]


@pytest.mark.parametrize("messages", GOOD)
def test_a_good_history_is_unchanged(messages: Json) -> None:
    assert broken_rules(messages) == set()
    assert repair_messages(messages) == messages


@pytest.mark.parametrize("messages", GOOD)
def test_a_good_history_that_is_long_is_unchanged(messages: Json) -> None:
    systems = [message for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    history: Json = [*systems, *[USER] * 300, *others]
    assert repair_messages(history) == history


def test_a_result_of_a_provider_that_came_early_is_put_behind_its_call() -> None:
    theirs = call(providerExecuted=True)
    messages: list[Json] = [USER, assistant(result(), TEXT, theirs)]
    assert repair_messages(messages) == [USER, assistant(TEXT, theirs, result())]


@pytest.mark.parametrize(
    ("rule", "messages", "repaired"),
    [
        (  # a call that was never answered
            "every_call_is_answered_directly_behind_it",
            [USER, assistant(TEXT, call("c1"), call("c2")), tool(result("c2")), USER],
            [
                USER,
                assistant(TEXT, call("c1"), call("c2")),
                tool(result("c2"), result("c1") | {"output": UNANSWERED}),
                USER,
            ],
        ),
        (  # nor anything behind it
            "every_call_is_answered_directly_behind_it",
            [USER, assistant(call())],
            [USER, assistant(call()), tool(result() | {"output": UNANSWERED})],
        ),
        (  # a result that came late
            "every_call_is_answered_directly_behind_it",
            [USER, assistant(call("c1"), call("c2")), tool(result("c1")), USER, tool(result("c2")), assistant(TEXT)],
            [USER, assistant(call("c1"), call("c2")), tool(result("c1"), result("c2")), USER, assistant(TEXT)],
        ),
        (  # a result that came early
            "every_call_is_answered_directly_behind_it",
            [USER, tool(result()), assistant(call())],
            [USER, assistant(call()), tool(result())],
        ),
        (  # two results: the last one
            "every_call_is_answered_directly_behind_it",
            [USER, assistant(call()), tool(result(value="old"), result(value="new"))],
            [USER, assistant(call()), tool(result(value="new"))],
        ),
        (  # a denied call
            "every_call_is_answered_directly_behind_it",
            [
                USER,
                assistant(call("c1"), request("a1"), call("c2"), request("a2", "c2")),
                tool(response("a1", False, reason="not today"), response("a2", False)),
            ],
            [
                USER,
                assistant(call("c1"), request("a1"), call("c2"), request("a2", "c2")),
                tool(
                    response("a1", False, reason="not today"),
                    response("a2", False),
                    result("c1", "not today", "error-text"),
                    result("c2", "Tool call execution denied.", "error-text"),
                ),
            ],
        ),
        (  # two tool messages
            "every_tool_message_is_behind_an_assistant_message",
            [USER, assistant(call("c1"), call("c2")), tool(result("c1")), tool(result("c2"))],
            [USER, assistant(call("c1"), call("c2")), tool(result("c1"), result("c2"))],
        ),
        (  # a result without a call
            "every_result_in_a_tool_message_is_ours",
            [USER, assistant(call()), tool(result("c0"), result()), USER],
            [USER, assistant(call()), tool(result()), USER],
        ),
        (  # a provider's call without a result
            "every_result_of_a_provider_is_behind_its_call",
            [USER, assistant(call(providerExecuted=True), TEXT)],
            [USER, assistant(call(providerExecuted=True), result() | {"output": UNANSWERED}, TEXT)],
        ),
        (  # an approval that is not sent to the provider is no answer
            "every_result_of_a_provider_is_behind_its_call",
            [USER, assistant(call(providerExecuted=True), request()), tool(response())],
            [
                USER,
                assistant(call(providerExecuted=True), result() | {"output": UNANSWERED}, request()),
                tool(response()),
            ],
        ),
        (  # a provider's result in the next message
            "every_result_of_a_provider_is_behind_its_call",
            [USER, assistant(call(providerExecuted=True), TEXT), USER, assistant(result(), TEXT)],
            [USER, assistant(call(providerExecuted=True), result(), TEXT), USER, assistant(TEXT)],
        ),
        (  # a provider's result in the tool message
            "every_result_in_a_tool_message_is_ours",
            [USER, assistant(call(providerExecuted=True)), tool(result())],
            [USER, assistant(call(providerExecuted=True), result())],
        ),
        (  # one of two calls with one id: the last
            "ids_are_unique",
            [USER, assistant(TEXT, call()), tool(result(value="old")), assistant(call()), tool(result(value="new"))],
            [USER, assistant(TEXT, call()), tool(result(value="new"))],
        ),
        (  # the last with a result
            "ids_are_unique",
            [USER, assistant(call(), TEXT), tool(result(value="old")), assistant(call(), TEXT)],
            [USER, assistant(call(), TEXT), tool(result(value="old")), assistant(TEXT)],
        ),
        (  # one of two requests with one id: the last, and not the answer to the first
            "ids_are_unique",
            [
                USER,
                assistant(call("c1"), request()),
                tool(response(), result("c1")),
                assistant(call("c2"), request("a1", "c2")),
                tool(result("c2")),
            ],
            [
                USER,
                assistant(call("c1")),
                tool(result("c1")),
                assistant(call("c2"), request("a1", "c2")),
                tool(result("c2")),
            ],
        ),
        (  # a request and a response without a call
            "every_approval_belongs_to_a_call",
            [USER, assistant(request("a0", "c0"), call()), tool(response("a0"), response("a9"), result())],
            [USER, assistant(call()), tool(result())],
        ),
        (  # a request that is not in the message of its call
            "every_approval_belongs_to_a_call",
            [USER, assistant(call(), TEXT), tool(result()), assistant(request(), TEXT)],
            [USER, assistant(call(), request(), TEXT), tool(result()), assistant(TEXT)],
        ),
        (
            "every_input_is_an_object",
            [
                USER,
                assistant(call("c1", input="{"), call("c2", input=None), {**call("c3")}),
                tool(*map(result, ("c1", "c2", "c3"))),
            ],
            [
                USER,
                assistant(call("c1", input={"input": "{"}), call("c2"), call("c3")),
                tool(*map(result, ("c1", "c2", "c3"))),
            ],
        ),
        (
            "nothing_is_empty",
            [
                system(" "),
                USER,
                {"role": "user", "content": []},
                assistant(TEXT, TEXT | {"text": "\n"}),
                assistant(),
                {"role": "user", "content": [TEXT | {"text": ""}]},
                tool(),
            ],
            [USER, assistant(TEXT)],
        ),
        (
            "reasoning_has_no_null_options",
            [USER, assistant(*({"type": "reasoning", "text": text, "providerOptions": None} for text in ("", "So")))],
            [USER, assistant({"type": "reasoning", "text": "So"})],
        ),
        (
            "system_messages_come_first",
            [USER, system("Be brief."), assistant(TEXT), system("Be kind.")],
            [system("Be brief."), system("Be kind."), USER, assistant(TEXT)],
        ),
        (
            "assistant_messages_are_not_consecutive",
            [USER, assistant(TEXT), assistant(call()), tool(result())],
            [USER, assistant(TEXT, call()), tool(result())],
        ),
        (
            "a_call_is_behind_a_user_or_tool_message",
            [system("Be brief."), assistant(call()), tool(result()), USER],
            [system("Be brief."), CUT_OFF, assistant(call()), tool(result()), USER],
        ),
    ],
)
def test_what_a_provider_rejects_is_repaired(rule: str, messages: Json, repaired: Json) -> None:
    assert rule in broken_rules(messages)
    assert repair_messages(messages) == repaired
    assert broken_rules(repaired) == set()


def test_every_rule_can_be_broken() -> None:
    """Or the test above would prove nothing: each rule is the reason for one of its cases."""
    (mark,) = [mark for mark in test_what_a_provider_rejects_is_repaired.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    assert {rule for rule, _, _ in mark.args[1]} == set(RULES)


def test_a_number_does_not_say_that_the_provider_ran_a_tool() -> None:
    messages: Json = [USER, assistant(call(providerExecuted=1)), tool(result())]
    assert repair_messages(messages) == messages


def test_a_history_that_was_read_from_json_is_repaired_alike() -> None:
    messages = json.loads(json.dumps([USER, assistant(TEXT), assistant(TEXT, call()), USER]))
    assert repair_messages(messages) == [
        USER,
        assistant(TEXT, TEXT, call()),
        tool(result() | {"output": UNANSWERED}),
        USER,
    ]


def test_a_denial_of_a_providers_call_stays_in_the_tool_message() -> None:
    denied = result() | {"output": {"type": "execution-denied", "reason": "no"}}
    messages: Json = [USER, assistant(call(providerExecuted=True)), tool(denied)]
    assert repair_messages(messages) == messages


@settings(max_examples=400)
@given(messages=model_histories | model_histories_with_denials)
def test_a_repaired_history_keeps_every_rule_and_needs_no_further_repair(messages: Json) -> None:
    for rule in broken_rules(messages):
        event(rule)
    before = repr(messages)
    repaired = repair_messages(messages)
    assert broken_rules(repaired) == set()
    assert repair_messages(repaired) == repaired
    assert repr(messages) == before
    if not broken_rules(messages):
        assert repaired == messages


@pytest.mark.parametrize("major", ["5", "6", "7"])
def test_every_chat_becomes_a_history_that_no_provider_rejects(major: Literal["5", "6", "7"]) -> None:
    repaired = 0
    for messages in islice(Histories(major, seed=2), 400):
        try:
            history = model_messages(messages, sdk=major)
        except InvalidMessages:
            continue
        repaired += bool(broken_rules(history))
        assert broken_rules(repair_messages(history)) == set()
    assert repaired > 100


@settings(max_examples=200)
@given(messages=model_histories)
def test_nothing_that_was_said_is_lost(messages: Json) -> None:
    assert said_in(repair_messages(messages)) == said_in(messages)


def said_in(messages: Json) -> Json:
    """Return all that is not empty and not about a tool, in order, system messages first; and the ids of the calls."""
    text_parts = [
        part
        for message in messages
        if message["role"] in ("user", "assistant")
        for part in message["content"]
        if part["type"] in ("text", "reasoning") and (part["text"].strip() or "providerOptions" in part)
    ]
    calls = {
        part["toolCallId"]
        for message in messages
        if message["role"] == "assistant"
        for part in message["content"]
        if part["type"] == "tool-call"
    }
    systems = [message["content"] for message in messages if message["role"] == "system" and message["content"].strip()]
    return systems, [part for part in text_parts if part["text"] != "(Earlier messages are not included.)"], calls


def test_values_that_are_null_are_kept_and_options_that_are_null_are_not() -> None:
    file: Any = {
        "type": "file",
        "mediaType": "a/b",
        "data": "",
        "filename": None,
        "title": None,
        "providerOptions": None,
    }
    history: Any = [USER, assistant(file)]
    [_, message] = repair_messages(history)
    assert message["content"] == [{key: value for key, value in file.items() if key != "providerOptions"}]
