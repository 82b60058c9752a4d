"""`model_messages` gives, part for part, what `convertToModelMessages` of the newest 5, 6 and 7 gives."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.judge import RELEASES, Conversion, Judge
from tests.conformance.test_message_builder import same
from tests.message_histories import STATES, Histories
from tests.model_message_strategies import model_histories
from usechat.errors import InvalidMessages
from usechat.protocol.model_messages import _is_absolute_url, model_messages, repair_messages
from usechat.protocol.releases import holds, release
from usechat.protocol.validation import validate_messages

Json = Any
Major = Literal["5", "6", "7"]

HISTORIES: Final = 3_000
every_major = pytest.mark.parametrize("major", ["5", "6", "7"])


def convert_data_part(part: Json) -> Json:
    if part["type"] == "data-note":
        return {"type": "text", "text": part["data"]}
    return {"type": "file", "mediaType": "text/plain", "data": part["data"]} if part["type"] == "data-file" else None


def to_model_output(part: Json) -> Json:
    return {"type": "content", "value": [part.get("output")]}


def by_us(case: Conversion, major: Major) -> tuple[Json, InvalidMessages | None]:
    try:
        converted = model_messages(
            case.messages,
            sdk=major,
            ignore_incomplete_tool_calls=case.ignore_incomplete_tool_calls,
            convert_data_part=convert_data_part if case.converts_data else None,
            tools={"plain": None, "converted": to_model_output} if case.has_tools else None,
        )
    except InvalidMessages as error:
        return None, error
    return converted, None


def urls_in(value: Json) -> Iterator[dict[str, Json]]:
    """Yield the objects that say `{type: "url", url}`: 7 makes a URL object of the text, which may spell it anew."""
    if isinstance(value, dict):
        if value.get("type") == "url":
            yield value
        value = list(value.values())
    for item in value if isinstance(value, list) else []:
        yield from urls_in(item)


def generated(major: Major) -> list[Conversion]:
    histories = Histories(major, seed=1)
    return [
        Conversion(messages, histories.flag(0.3), histories.flag(), histories.flag())
        for messages in islice(histories, HISTORIES)
    ]


def features_of(case: Conversion, error: InvalidMessages | None) -> Iterator[str]:
    if error is not None:
        yield "refused: url" if error.path.endswith("url") else "refused: role"
    if case.ignore_incomplete_tool_calls:
        yield "incomplete calls ignored"
    users = [number for number, message in enumerate(case.messages) if message["role"] == "user"]
    for number, message in enumerate(case.messages):
        yield f"role {message['role']}"
        if not message["parts"]:
            yield f"empty {message['role']} message"
        if message["role"] == "assistant" and [part["type"] for part in message["parts"]].count("step-start") > 1:
            yield "several steps"
        for part in message["parts"]:
            superseded = part.get("state") == "approval-requested" and users and number < users[-1]
            yield from features_of_part(part, message["role"], case)
            yield from ["superseded approval"] if superseded else []


def features_of_part(part: Json, role: str, case: Conversion) -> Iterator[str]:
    kind = part["type"]
    if kind.startswith("data-"):
        yield f"{kind} of {role}, {'with' if case.converts_data else 'without'} converter"
    elif "state" not in part or "toolCallId" not in part:
        yield f"{kind} of {role}"
    else:
        tool = "dynamic" if kind == "dynamic-tool" else "static"
        executed = ", provider-executed" if part.get("providerExecuted") else ""
        yield f"{tool} {part['state']}{executed}"
        if "approval" in part and "approved" in part["approval"]:
            yield f"{part['state']}, approved {part['approval']['approved']}{executed}"
        yield from (f"tool with {key}" for key in part)
        if part.get("dynamic") is False and part["state"] == "output-available":
            yield f"unavailable tool, {'with' if case.has_tools else 'without'} tools"
    if part.get("providerMetadata"):
        yield f"metadata of {kind}, {role}"


def expected_features(major: Major) -> set[str]:
    newest = release(major)
    kinds = {kind for kind in ("reasoning-file", "custom", "steering-message") if holds(newest, kind)}
    kinds |= {"text", "reasoning", "file", "step-start", "source-url", "source-document"}
    states = {f"static {state}" for state in STATES} | {f"static {state}, provider-executed" for state in STATES}
    approvals = ("approval-requested", "approval-responded", "output-denied")
    dynamic = [state for state in STATES if holds(newest, "dynamic-tool.approval") or state not in approvals]
    states |= {f"dynamic {state}{executed}" for state in dynamic for executed in ("", ", provider-executed")}
    return states | {
        "incomplete calls ignored", "several steps", "superseded approval", "role system", "role user",
        "role assistant", "empty user message", "empty assistant message", "empty system message",
        *(f"{kind} of {role}" for kind in kinds for role in ("user", "assistant")),
        *(f"metadata of {kind}, {role}" for kind in ("text", "file", "reasoning") for role in ("user", "assistant")),
        *(
            f"{kind} of {role}, {having} converter"
            for kind in ("data-note", "data-file", "data-ignored")
            for role in ("user", "assistant")
            for having in ("with", "without")
        ),
        "metadata of text, system", "tool with preliminary", "tool with callProviderMetadata", "tool with rawInput",
        "approval-responded, approved True", "approval-responded, approved False", "output-denied, approved False",
        "approval-responded, approved False, provider-executed", "output-available, approved True",
        "unavailable tool, with tools", "unavailable tool, without tools",
        *(("refused: url", "tool with resultProviderMetadata") if major == "7" else ()),
    }  # fmt: skip


@every_major
def test_thousands_of_histories_are_converted_as_the_npm_function_does(judge: Judge, major: Major) -> None:
    cases = generated(major)
    features: Counter[str] = Counter()
    texts: list[str] = []
    theirs_by_text: list[str] = []
    for case, theirs in zip(cases, judge.model_messages(RELEASES[major][-1], cases), strict=True):
        ours, error = by_us(case, major)
        features.update(set(features_of(case, error)))
        assert (error is None) is (theirs["error"] is None), (major, case, error, theirs["error"])
        for our_url, their_url in zip(urls_in(ours), urls_in(theirs["messages"]), strict=True):
            texts.append(our_url["url"])
            theirs_by_text.append(their_url["url"])
            their_url["url"] = our_url["url"]  # compared below, once JavaScript has spelled ours
        assert same(ours, theirs["messages"]), (major, case, ours, theirs["messages"])
    assert [result["href"] for result in judge.href(texts)] == theirs_by_text
    assert {feature: features[feature] for feature in expected_features(major) if features[feature] < 20} == {}
    assert sum(is_valid(case.messages, major) for case in cases) >= 2_000


def is_valid(messages: Sequence[Json], major: Major) -> bool:
    """Tell whether every message could be loaded into a page of this release; messages without parts apart."""
    try:
        for message in messages:
            if message["parts"]:
                validate_messages([message], sdk=major)
    except InvalidMessages:
        return False
    return True


@every_major
def test_a_damaged_history_is_converted_as_the_npm_function_does_or_refused_where_a_page_refuses_it(
    judge: Judge, major: Major
) -> None:
    histories = Histories(major, seed=2)
    cases = [
        Conversion(messages, histories.flag(0.3), has_tools=histories.flag())
        for messages in islice(histories.damaged(), HISTORIES)
    ]
    counts: Counter[str] = Counter()
    refused: list[tuple[Json, InvalidMessages]] = []
    for case, theirs in zip(cases, judge.model_messages(RELEASES[major][-1], cases), strict=True):
        ours, error = by_us(case, major)
        if theirs["error"] is not None:
            counts["refused by both"] += 1
            assert error is not None, (major, case, theirs["error"])
        elif error is not None:
            refused.append((message_at(case.messages, error.path), error))
        else:
            counts["converted"] += not is_valid(case.messages, major)
            for our_url, their_url in zip(urls_in(ours), urls_in(theirs["messages"]), strict=True):
                their_url["url"] = our_url["url"]
            assert same(ours, theirs["messages"]), (major, case, ours, theirs["messages"])
    validated = judge.validate(RELEASES[major][-1], [[message] for message, _ in refused])
    accepted = [refusal for refusal, result in zip(refused, validated, strict=True) if result["ok"]]
    assert accepted == [], "refused by us alone, although a page would show it"
    assert min(counts["refused by both"], counts["converted"], len(refused)) > 100, (counts, len(refused))


def message_at(messages: Sequence[Json], path: str) -> Json:
    """Return the message that a path such as `messages[2].parts[0].text` is in."""
    return messages[int(path.partition("[")[2].partition("]")[0])]


@every_major
def test_an_unknown_role_is_refused(judge: Judge, major: Major) -> None:
    case = Conversion([{"id": "m", "role": "tool", "parts": []}])
    (theirs,) = judge.model_messages(RELEASES[major][-1], [case])
    assert theirs["error"] == {"name": "AI_MessageConversionError", "message": "Unsupported role: tool"}
    _, error = by_us(case, major)
    assert error is not None
    assert (str(error), error.path) == (
        "messages[0].role must be 'system', 'user' or 'assistant', not 'tool'",
        "messages[0].role",
    )


# Absolute URLs.

URL_PIECES: Final = (
    "http", "https", "HTTP", "ftp", "file", "ws", "data", "x-y.z+1", "1a", ":", ":", "://", "://", "//", "/", "\\",
    "?", "#", "@", "u:p@", "[", "]", "[::1]", "[::1.2.3.4]", "[1:2]", "[fe80::1%25a]", ":80", ":", ":65536", ":8a",
    "example.com", "a b", "a<b", "a%20b", "a%41b", "a^b", "a|b", "é", "%C3%A9", "%ff", "１", "。", "\xad",
    "127.0.0.1", "1.2.3", "256", ".", "0x7f", "0x", "08", "1.2.3.4.5", "4294967295", "4294967296", "99999999999",
    "0xg", "C:", "C|", "localhost", " ", "\t", "\n", "\x01", "\x7f", "😀",
)  # fmt: skip


@settings(max_examples=60)
@given(texts=st.lists(st.lists(st.sampled_from(URL_PIECES), max_size=6).map("".join), min_size=50, max_size=50))
def test_a_url_is_absolute_where_javascript_can_parse_it(judge: Judge, texts: list[str]) -> None:
    schemes = ("http://", "file://", "x://")
    texts = [*texts, *(scheme + text for text in texts for scheme in schemes)]
    accepted = [result["href"] is not None for result in judge.href(texts)]
    ours = [_is_absolute_url(text) for text in texts]
    assert [text for text, we, they in zip(texts, ours, accepted, strict=True) if we is not they] == []


# What is repaired reaches the model.


def without_approvals(messages: Sequence[Json]) -> list[Json]:
    """Return the messages as AI SDK 5 knows them."""
    return [
        message
        if message["role"] == "system"
        else {**message, "content": [part for part in message["content"] if "approval" not in part["type"]]}
        for message in messages
    ]


def spoken(messages: Sequence[Json]) -> list[str]:
    """Return the roles; a tool message without results, which the AI SDK leaves out, does not count."""
    results = [message["role"] != "tool" or "tool-result" in str(message["content"]) for message in messages]
    return [message["role"] for message, counts in zip(messages, results, strict=True) if counts]


@every_major
@settings(max_examples=10)
@given(batch=st.lists(model_histories, min_size=20, max_size=20))
def test_the_ai_sdk_sends_every_repaired_history_to_the_model(judge: Judge, major: Major, batch: list[Json]) -> None:
    histories = [without_approvals(messages) for messages in batch] if major == "5" else batch
    repaired = [messages for messages in map(repair_messages, histories) if messages]
    for messages, result in zip(repaired, judge.prompt(RELEASES[major][-1], repaired), strict=True):
        assert result["error"] is None, (messages, result["error"])
        assert result["prompt"] is not None
        assert spoken(result["prompt"]) == spoken(messages)


@every_major
def test_the_ai_sdk_sends_every_converted_and_repaired_chat_to_the_model(judge: Judge, major: Major) -> None:
    histories = map(without_plain_data_urls, islice(Histories(major, seed=3), 500))
    converted = [by_us(Conversion(messages), major)[0] for messages in histories]
    repaired = [messages for messages in map(repair_messages, filter(None, converted)) if messages]
    results = judge.prompt(RELEASES[major][-1], repaired)
    assert [result["error"] for result in results] == [None] * len(repaired)
    assert len(repaired) > 300


def without_plain_data_urls(messages: Json) -> Json:
    """Return the messages with base64 in every data URL: 7 decodes no other kind."""
    return json.loads(json.dumps(messages).replace("data:,x", "data:text/plain;base64,eA=="))


def test_the_ai_sdk_refuses_what_was_not_repaired(judge: Judge) -> None:
    call = {"type": "tool-call", "toolCallId": "c1", "toolName": "t", "input": {}}
    messages = [{"role": "assistant", "content": [call]}, {"role": "user", "content": [{"type": "text", "text": "x"}]}]
    (refused,) = judge.prompt(RELEASES["7"][-1], [messages])
    assert refused["error"] is not None
    assert refused["error"]["name"] == "AI_MissingToolResultsError"


@every_major
def test_null_options_of_reasoning_are_refused_by_5_and_6_unless_they_are_repaired(judge: Judge, major: Major) -> None:
    reasoning = {"type": "reasoning", "text": "So", "providerMetadata": None}
    converted, _ = by_us(Conversion([{"id": "m", "role": "assistant", "parts": [reasoning]}]), major)
    refused, accepted = judge.prompt(RELEASES[major][-1], [converted, repair_messages(converted)])
    assert (refused["error"] is None) is (major == "7")
    assert accepted["error"] is None
