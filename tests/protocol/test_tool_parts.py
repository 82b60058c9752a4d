"""What each tool chunk makes of the parts, in the releases where that differs."""

from typing import Any

import pytest

from usechat.errors import UIMessageStreamError
from usechat.protocol import chunks
from usechat.protocol.chunks import Chunk
from usechat.protocol.releases import release
from usechat.protocol.tool_parts import Part, PartList, ToolParts

Json = Any
FIRST_AND_NEWEST = ["5.0.0", "5", "6.0.0", "6", "7.0.0", "7"]
START = chunks.ToolInputStartChunk("c", "search")
AVAILABLE = chunks.ToolInputAvailableChunk("c", "search", {"q": 1})
DYNAMIC = chunks.ToolInputAvailableChunk("c", "search", {"q": 1}, dynamic=True)
REQUEST = chunks.ToolApprovalRequestChunk("a", "c")
STEP: Part = {"type": "step-start"}
P1, P2 = {"p": {"n": 1}}, {"p": {"n": 2}}
INPUT = {"type": "tool-search", "toolCallId": "c", "state": "input-available", "input": {"q": 1}}
DYNAMIC_INPUT = {"type": "dynamic-tool", "toolName": "search", **{k: v for k, v in INPUT.items() if k != "type"}}


def read(sdk: str, *received: Chunk | Part, continued: list[Part] | None = None) -> list[Part]:
    """Return the parts after these chunks; a dict among them is a part that comes in between."""
    parts = PartList(continued or [])
    tools = ToolParts(release(sdk), parts)
    for item in received:
        if isinstance(item, dict):
            parts.append(dict(item))
        else:
            tools.receive(item)
    tools.catch_up()
    return parts.parts


def delta(text: str) -> Chunk:
    return chunks.ToolInputDeltaChunk("c", text)


@pytest.mark.parametrize("sdk", FIRST_AND_NEWEST)
def test_a_call_lives_from_its_start_to_its_output(sdk: str) -> None:
    life: list[Chunk] = [START, AVAILABLE, chunks.ToolOutputAvailableChunk("c", [1])]
    states = [[part["state"] for part in read(sdk, *life[: length + 1])] for length in range(3)]
    assert states == [["input-streaming"], ["input-available"], ["output-available"]]
    assert read(sdk, *life) == [INPUT | {"state": "output-available", "output": [1]}]


@pytest.mark.parametrize("sdk", FIRST_AND_NEWEST)
def test_an_error_replaces_the_output_and_the_other_way_round(sdk: str) -> None:
    failed = INPUT | {"state": "output-error", "errorText": "e"}
    assert read(sdk, AVAILABLE, chunks.ToolOutputAvailableChunk("c", 1), chunks.ToolOutputErrorChunk("c", "e")) == [
        failed
    ]
    done = INPUT | {"state": "output-available", "output": 1}
    assert read(sdk, AVAILABLE, chunks.ToolOutputErrorChunk("c", "e"), chunks.ToolOutputAvailableChunk("c", 1)) == [
        done
    ]


# Input that streams.


@pytest.mark.parametrize(
    ("sdk", "streamed"),
    [
        ("5.0.269", {"input": {"a": "x"}}),
        ("5.0.270", {"input": {"a": "x"}, "rawInput": '{"a":"x'}),
        ("6.0.296", {"input": {"a": "x"}}),
        ("7.0.122", {"input": {"a": "x"}, "rawInput": '{"a":"x'}),
    ],
)
def test_pieces_of_input_are_shown_as_far_as_they_go(sdk: str, streamed: dict[str, Json]) -> None:
    state = {"toolCallId": "c", "state": "input-streaming"}
    assert read(sdk, START, delta('{"a":'), delta('"x')) == [{"type": "tool-search", **state, **streamed}]
    dynamic = chunks.ToolInputStartChunk("c", "search", dynamic=True)
    expected = {"type": "dynamic-tool", "toolName": "search", **state, **streamed}
    assert read(sdk, dynamic, delta('{"a":'), delta('"x')) == [expected]


def test_input_that_shows_nothing_is_absent() -> None:
    assert read("5", START, delta("-")) == [
        {"type": "tool-search", "toolCallId": "c", "state": "input-streaming", "rawInput": "-"}
    ]


def test_the_complete_input_clears_the_text() -> None:
    assert read("7", START, delta('{"q":'), AVAILABLE) == [INPUT]


@pytest.mark.parametrize(
    ("sdk", "streamed"),
    [("6.0.307", {"input": {}}), ("6.0.308", {"input": "{", "inputEncoding": "text"})],
)
def test_text_input_is_shown_as_it_is(sdk: str, streamed: dict[str, Json]) -> None:
    encoding = "text" if sdk == "6.0.308" else None  # a reader is not given a field that its release does not know
    start = chunks.ToolInputStartChunk("c", "search", input_encoding=encoding)  # type: ignore[arg-type]
    expected = {"type": "tool-search", "toolCallId": "c", "state": "input-streaming", "rawInput": "{"}
    assert read(sdk, start, delta("{")) == [expected | streamed]
    assert read(sdk, start, delta("{"), AVAILABLE) == [INPUT]


def test_an_output_after_an_unfinished_input_keeps_what_there_is() -> None:
    part = {"type": "tool-search", "toolCallId": "c", "input": {"a": 1}}
    text = {"rawInput": '{"a":1'}
    for chunk, changed in (
        (chunks.ToolOutputAvailableChunk("c", 2), {"state": "output-available", "output": 2}),
        (chunks.ToolOutputErrorChunk("c", "e"), {"state": "output-error", "errorText": "e"} | text),
        (chunks.ToolOutputDeniedChunk("c"), {"state": "output-denied"} | text),
    ):
        assert read("7", START, delta('{"a":1'), chunk) == [part | changed]


def test_a_second_start_begins_the_input_anew() -> None:
    assert read("7", START, delta("[1"), START, delta("[2"))[0]["input"] == [2]


@pytest.mark.parametrize(
    ("sdk", "inputs"),
    [("5.0.217", [{"a": 1}]), ("5.0.218", [{}, {"a": 1}]), ("7.0.32", [{"a": 1}]), ("7.0.33", [{}, {"a": 1}])],
)
def test_input_that_goes_on_in_a_new_step_gets_a_new_part_since_calls_belong_to_steps(
    sdk: str, inputs: list[Json]
) -> None:
    parts = read(sdk, START, delta('{"a":'), STEP, delta("1"))
    assert [part["input"] for part in parts if part != STEP] == inputs


def test_the_new_dynamic_part_of_a_new_step_has_the_text_only_after_its_second_piece() -> None:
    received: list[Chunk | Part] = [
        chunks.ToolInputStartChunk("c", "search", dynamic=True),
        delta("["),
        STEP,
        delta("1"),
    ]
    assert "rawInput" not in read("7", *received)[-1]
    assert read("7", *received, delta("2"))[-1]["rawInput"] == "[12"


def test_forgotten_input_stays_as_it_is_and_takes_no_more_pieces() -> None:
    parts = PartList()
    tools = ToolParts(release("7"), parts)
    tools.receive(START)
    tools.receive(delta("[1"))
    tools.forget_streaming()
    assert parts.parts[0]["input"] == [1]
    with pytest.raises(UIMessageStreamError, match="missing tool call"):
        tools.receive(delta(",2"))


# A message that is continued.


def streaming_part(**keys: Json) -> Part:
    return {"type": "tool-search", "toolCallId": "c", "state": "input-streaming", "rawInput": "[1", **keys}


def test_streaming_input_is_continued_since_5_0_270() -> None:
    with pytest.raises(UIMessageStreamError):
        read("5.0.269", delta(",2"), continued=[streaming_part()])
    assert read("5.0.270", delta(",2"), continued=[streaming_part()]) == [streaming_part(input=[1, 2], rawInput="[1,2")]


def test_only_the_last_step_of_a_continued_message_goes_on() -> None:
    with pytest.raises(UIMessageStreamError):
        read("7", delta(",2"), continued=[streaming_part(), dict(STEP), {"type": "text", "text": ""}, dict(INPUT)])


@pytest.mark.parametrize(
    ("sdk", "repeated"),
    [("5", {}), ("7", {"title": "T", "toolMetadata": {"m": 1}, "inputEncoding": "text"})],
)
def test_a_continued_call_repeats_what_its_release_knows_of_it(sdk: str, repeated: dict[str, Json]) -> None:
    part = streaming_part(title="T", toolMetadata={"m": 1}, inputEncoding="text")
    again = read(sdk, STEP, delta(",2"), continued=[part])[-1]
    value = "[1,2" if "inputEncoding" in repeated else [1, 2]
    assert again == streaming_part(input=value, rawInput="[1,2") | repeated


def test_a_dynamic_call_is_continued_by_its_name() -> None:
    part = {"type": "dynamic-tool", "toolName": "n", "toolCallId": "c", "state": "input-streaming"}
    assert read("7", delta("1"), continued=[part]) == [part | {"input": 1, "rawInput": "1"}]


def test_malformed_parts_of_a_continued_message_do_no_harm() -> None:
    malformed: list[Part] = [
        {"type": "tool-search"},
        {"type": "dynamic-tool", "state": "input-streaming", "rawInput": 5},
        {"type": "tool-search", "toolCallId": 7, "state": "input-streaming", "approval": "a"},
    ]
    parts = read("7", AVAILABLE, REQUEST, chunks.ToolApprovalResponseChunk("a", True), continued=malformed)
    assert [part.get("state") for part in parts] == [None, "input-streaming", "input-streaming", "approval-responded"]


# Which part a chunk is about.


@pytest.mark.parametrize(
    ("sdk", "inputs"),
    [("6.0.232", [2]), ("6.0.233", [{"q": 1}, 2]), ("5.0.217", [2]), ("7.0.33", [{"q": 1}, 2])],
)
def test_the_same_id_in_a_later_step_is_another_call_since_calls_belong_to_steps(sdk: str, inputs: list[Json]) -> None:
    again = chunks.ToolInputAvailableChunk("c", "search", 2)
    parts = read(sdk, AVAILABLE, STEP, again)
    assert [part["input"] for part in parts if part != STEP] == inputs


@pytest.mark.parametrize("sdk", FIRST_AND_NEWEST)
def test_an_output_finds_its_call_in_an_earlier_step(sdk: str) -> None:
    assert read(sdk, AVAILABLE, STEP, chunks.ToolOutputAvailableChunk("c", 1))[0]["state"] == "output-available"


@pytest.mark.parametrize(("sdk", "changed"), [("7.0.32", 0), ("7.0.33", 1)])
def test_of_several_calls_the_last_gets_the_output_since_calls_belong_to_steps(sdk: str, changed: int) -> None:
    calls = [dict(INPUT), dict(STEP), INPUT | {"input": 2}, dict(STEP)]
    parts = read(sdk, chunks.ToolOutputAvailableChunk("c", 1), continued=calls)
    assert [part["state"] == "output-available" for part in (parts[0], parts[2])] == [changed == 0, changed == 1]


@pytest.mark.parametrize("output", [chunks.ToolOutputAvailableChunk("c", 1), chunks.ToolOutputErrorChunk("c", "e")])
def test_in_5_an_output_must_say_dynamic_as_its_call_does(output: Chunk) -> None:
    with pytest.raises(UIMessageStreamError, match="must be preceded"):
        read("5", DYNAMIC, output)
    assert read("6", DYNAMIC, output)[0]["state"].startswith("output-")


def test_in_5_a_dynamic_output_finds_a_dynamic_call() -> None:
    parts = read("5", DYNAMIC, AVAILABLE, chunks.ToolOutputAvailableChunk("c", 1, dynamic=True))
    assert parts == [DYNAMIC_INPUT | {"state": "output-available", "output": 1}, INPUT]


@pytest.mark.parametrize("sdk", FIRST_AND_NEWEST)
def test_a_call_that_turns_dynamic_gets_a_second_part(sdk: str) -> None:
    assert [part["type"] for part in read(sdk, START, DYNAMIC)] == ["tool-search", "dynamic-tool"]


@pytest.mark.parametrize(
    "chunk",
    [
        chunks.ToolInputDeltaChunk("x", ""),
        chunks.ToolOutputAvailableChunk("x", 1),
        chunks.ToolOutputErrorChunk("x", "e"),
        chunks.ToolOutputDeniedChunk("x"),
        chunks.ToolApprovalRequestChunk("a", "x"),
        chunks.ToolApprovalResponseChunk("x", True),
    ],
)
def test_what_was_not_called_cannot_go_on(chunk: Chunk) -> None:
    with pytest.raises(UIMessageStreamError) as raised:
        read("7", AVAILABLE, REQUEST, chunk)
    assert raised.value.chunk_id == "x"


# Input errors.


@pytest.mark.parametrize(
    ("sdk", "key"), [("5", "rawInput"), ("6", "rawInput"), ("7.0.118", "rawInput"), ("7.0.119", "input")]
)
def test_a_refused_input_is_the_raw_input_of_a_static_part_until_7_0_119(sdk: str, key: str) -> None:
    error = chunks.ToolInputErrorChunk("c", "search", {"q": 1}, "bad", title="ignored")
    expected = {"type": "tool-search", "toolCallId": "c", "state": "output-error", key: {"q": 1}, "errorText": "bad"}
    assert read(sdk, error) == read(sdk, START, error) == [expected]
    if key == "rawInput":
        assert read(sdk, error, chunks.ToolOutputErrorChunk("c", "worse")) == [expected | {"errorText": "worse"}]


@pytest.mark.parametrize(
    ("sdk", "types"),
    [
        ("5", ["dynamic-tool", "tool-search"]),
        ("6.0.100", ["dynamic-tool", "tool-search"]),
        ("6.0.101", ["dynamic-tool"]),
    ],
)
def test_an_input_error_keeps_the_kind_of_its_call_since_6_0_101(sdk: str, types: list[str]) -> None:
    parts = read(sdk, DYNAMIC, chunks.ToolInputErrorChunk("c", "search", 1, "bad"))
    assert [part["type"] for part in parts] == types


# Keys that came with some release.


@pytest.mark.parametrize(
    ("sdk", "part_type"),
    [("5", "tool-search"), ("6.0.312", "tool-search"), ("6.0.313", "tool-fetch"), ("7.0.147", "tool-fetch")],
)
def test_another_name_renames_a_static_part_in_the_newest_releases(sdk: str, part_type: str) -> None:
    assert read(sdk, START, chunks.ToolInputAvailableChunk("c", "fetch", 1))[0]["type"] == part_type


@pytest.mark.parametrize("sdk", FIRST_AND_NEWEST)
def test_another_name_renames_a_dynamic_part_in_every_release(sdk: str) -> None:
    renamed = chunks.ToolInputAvailableChunk("c", "fetch", 1, dynamic=True)
    assert read(sdk, DYNAMIC, renamed) == [DYNAMIC_INPUT | {"toolName": "fetch", "input": 1}]


@pytest.mark.parametrize("sdk", ["5.0.11", "5", "6", "7"])
def test_a_final_output_clears_the_preliminary_mark(sdk: str) -> None:
    preliminary = chunks.ToolOutputAvailableChunk("c", 1, preliminary=True)
    assert read(sdk, AVAILABLE, preliminary)[0]["preliminary"] is True
    assert "preliminary" not in read(sdk, AVAILABLE, preliminary, chunks.ToolOutputAvailableChunk("c", 2))[0]


def test_a_release_leaves_alone_what_it_does_not_know() -> None:
    part = INPUT | {"preliminary": True, "inputEncoding": "text", "rawInput": "x"}
    done = part | {"state": "output-available", "output": 1}
    assert read("5.0.0", chunks.ToolOutputAvailableChunk("c", 1), continued=[dict(part)]) == [done]


@pytest.mark.parametrize(
    ("sdk", "from_input", "from_output", "from_error"),
    [
        ("5.0.85", None, None, None),
        ("5.0.86", True, None, False),
        ("6.0.0", True, False, False),
        ("7", True, False, False),
    ],
)
def test_who_executes_a_dynamic_call(sdk: str, from_input: Json, from_output: Json, from_error: Json) -> None:
    call = chunks.ToolInputAvailableChunk("c", "search", 1, dynamic=True, provider_executed=True)
    output = chunks.ToolOutputAvailableChunk("c", 1, dynamic=True, provider_executed=False)
    error = chunks.ToolOutputErrorChunk("c", "e", dynamic=True, provider_executed=False)
    executed = [
        read(sdk, *received)[0].get("providerExecuted") for received in ([call], [DYNAMIC, output], [DYNAMIC, error])
    ]
    assert executed == [from_input, from_output, from_error]


@pytest.mark.parametrize(("sdk", "from_error"), [("5.0.85", True), ("5.0.86", False), ("7", False)])
def test_who_executes_a_static_call(sdk: str, from_error: bool) -> None:
    call = chunks.ToolInputAvailableChunk("c", "search", 1, provider_executed=True)
    assert read(sdk, call, AVAILABLE)[0]["providerExecuted"] is True
    assert (
        read(sdk, call, chunks.ToolOutputAvailableChunk("c", 1, provider_executed=False))[0]["providerExecuted"]
        is False
    )
    error = chunks.ToolOutputErrorChunk("c", "e", provider_executed=False)
    assert read(sdk, call, error)[0]["providerExecuted"] is from_error


@pytest.mark.parametrize(
    ("sdk", "of_input", "of_error", "of_new_error"),
    [
        ("5", {"callProviderMetadata": P1}, {}, {"callProviderMetadata": P2}),
        ("6.0.38", {"callProviderMetadata": P1}, {}, {"callProviderMetadata": P2}),
        ("6.0.39", {"callProviderMetadata": P1}, {"callProviderMetadata": P2}, {"callProviderMetadata": P2}),
        ("6.0.120", {"callProviderMetadata": P1}, {"resultProviderMetadata": P2}, {"resultProviderMetadata": P2}),
        ("7", {"callProviderMetadata": P1}, {"resultProviderMetadata": P2}, {"resultProviderMetadata": P2}),
    ],
)
def test_where_provider_metadata_goes(sdk: str, of_input: Json, of_error: Json, of_new_error: Json) -> None:
    available = chunks.ToolInputAvailableChunk("c", "search", 1, provider_metadata=P1)
    error = chunks.ToolInputErrorChunk("c", "search", 1, "bad", provider_metadata=P2)
    metadata = [
        {key: value for key, value in read(sdk, *received)[0].items() if key.endswith("ProviderMetadata")}
        for received in ([START, available], [START, error], [error])
    ]
    assert metadata == [of_input, of_error, of_new_error]


@pytest.mark.parametrize(("sdk", "client"), [("6.0.295", "old"), ("6.0.296", "new"), ("7.0.120", "new")])
def test_tool_metadata_and_title_stay_unless_replaced(sdk: str, client: str) -> None:
    call = chunks.ToolInputAvailableChunk("c", "search", 1, title="T", tool_metadata={"client": "old"})
    output = chunks.ToolOutputAvailableChunk("c", 1, tool_metadata={"client": "new"})
    assert read(sdk, call, AVAILABLE) == [INPUT | {"title": "T", "toolMetadata": {"client": "old"}}]
    assert read(sdk, call, output)[0]["toolMetadata"] == {"client": client}


# Approvals.


@pytest.mark.parametrize("sdk", ["6.0.0", "6", "7.0.0", "7"])
def test_an_approval_is_requested_and_denied(sdk: str) -> None:
    requested = INPUT | {"state": "approval-requested", "approval": {"id": "a"}}
    assert read(sdk, AVAILABLE, REQUEST) == [requested]
    assert read(sdk, AVAILABLE, REQUEST, chunks.ToolOutputDeniedChunk("c")) == [requested | {"state": "output-denied"}]


def test_a_request_tells_all_it_has() -> None:
    request = chunks.ToolApprovalRequestChunk("a", "c", {"d": 1}, None, "why", is_automatic=True, signature="s")
    approval = {
        "id": "a",
        "descriptor": {"d": 1},
        "inputSchemaInput": None,
        "requestReason": "why",
        "isAutomatic": True,
    }
    assert read("7", AVAILABLE, request)[0]["approval"] == approval | {"signature": "s"}
    bare = chunks.ToolApprovalRequestChunk("a", "c", is_automatic=False)
    assert read("7", AVAILABLE, bare)[0]["approval"] == {"id": "a"}


@pytest.mark.parametrize(
    ("sdk", "fields"),
    [
        ("7.0.0", {"isAutomatic"}),
        ("7.0.19", {"isAutomatic", "signature"}),
        ("7.0.82", {"isAutomatic", "signature", "requestReason"}),
        ("7.0.87", {"isAutomatic", "signature", "requestReason", "descriptor"}),
    ],
)
def test_an_answer_keeps_more_and_more_of_its_request(sdk: str, fields: set[str]) -> None:
    request = {"id": "a", "isAutomatic": True, "signature": "s", "requestReason": "why", "descriptor": 1}
    question = INPUT | {"state": "approval-requested", "approval": request}
    answer = chunks.ToolApprovalResponseChunk("a", False, "no", provider_executed=True, provider_metadata=P1)
    assert read(sdk, answer, continued=[{"type": "text", "text": ""}, question])[1] == INPUT | {
        "state": "approval-responded",
        "approval": {"id": "a", "approved": False, "reason": "no"} | {key: request[key] for key in fields},
        "providerExecuted": True,
        "callProviderMetadata": P1,
    }


@pytest.mark.parametrize("automatic", [False, 1, "true"])
def test_an_answer_to_a_bare_request_has_nothing_to_keep(automatic: object) -> None:
    question = INPUT | {"state": "approval-requested", "approval": {"id": "a", "isAutomatic": automatic}}
    answer = read("7.0.31", chunks.ToolApprovalResponseChunk("a", True), continued=[question])
    assert answer[0]["approval"] == {"id": "a", "approved": True}
