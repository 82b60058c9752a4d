"""Part lists in which lanes, approvals and steps meet, each of which once went wrong on a page."""

from typing import Any

import pytest

from tests.conformance.judge import ALL_RELEASES, RELEASES, Chat, Judge
from tests.conformance.story_properties import USER, answered, check_turn, frames_of, read_by_us
from tests.conformance.test_message_builder import same
from usechat import parts
from usechat.check import check_bytes
from usechat.errors import LocalProtocolError
from usechat.parts import Part
from usechat.protocol.chunks import encode_chunk
from usechat.protocol.message import MessageBuilder
from usechat.protocol.sse import ChunkDecoder, FrameStream
from usechat.protocol.stream import MessageStream

SETTINGS = [
    (release, sdk) for release in ALL_RELEASES for sdk in ([release] if release.startswith("5.") else [release, "any"])
]
every_page = pytest.mark.parametrize(("release", "sdk"), SETTINGS)
ASKED = {"type": "tool-t", "toolCallId": "c1", "state": "approval-requested", "input": {}, "approval": {"id": "a0"}}


def message(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "message-1", "role": "assistant", "parts": [{"type": "step-start"}, *items], **more}


def texts(page: Any) -> list[str]:
    return [part["text"] for part in page["parts"] if part["type"] == "text"]


@every_page
def test_each_speaker_has_a_text_of_its_own(judge: Judge, release: str, sdk: str) -> None:
    items: list[Part] = [
        parts.ToolResult("c1", 1, lane="lane1"),
        parts.ToolInputStart("c2", "t", lane="lane1"),
        parts.Text("<lane2.1>", lane="lane2"),
        parts.ToolCall("c2", "t", lane="lane1"),
        parts.Text("<lane1.2>", lane="lane1"),
    ]
    assert texts(check_turn(judge, release, sdk, items, None)) == ["<lane2.1>", "<lane1.2>"]


@every_page
@pytest.mark.parametrize("is_continued", [False, True])
def test_an_answer_to_a_request_that_was_replaced_is_not_sent(
    judge: Judge, release: str, sdk: str, is_continued: bool
) -> None:
    first: list[Part] = [parts.ToolCall("c1", "t"), parts.ApprovalRequest("a0", "c1")]
    again: list[Part] = [parts.ApprovalRequest("a1", "c1"), parts.ApprovalResponse("a0", True)]
    if is_continued and not release.startswith("5."):
        page = check_turn(judge, release, sdk, again, message(ASKED))
    else:
        page = check_turn(judge, release, sdk, first + again, None)
    if not release.startswith("5."):
        assert [part["approval"]["id"] for part in page["parts"] if "approval" in part] == ["a1"]


@every_page
@pytest.mark.parametrize("metadata", ["a text", 5, True, [1]])
def test_a_message_whose_metadata_is_no_object_is_continued(
    judge: Judge, release: str, sdk: str, metadata: Any
) -> None:
    continued = message({"type": "text", "text": "a", "state": "done"}, metadata=metadata)
    items: list[Part] = [parts.Metadata({"a": 1}), parts.Text("<lane1.1>", lane="lane1")]
    body = frames_of(items, sdk, continued)
    [result] = judge.chat(release, [Chat(body, messages=[USER, continued])])
    assert (result["status"], result["message"]["metadata"]) == ("ready", metadata)


@pytest.mark.parametrize("release", RELEASES["5"])
def test_a_streamed_input_is_complete_before_its_approval_is_asked_for(judge: Judge, release: str) -> None:
    items: list[Part] = [
        parts.ToolInputStart("c1", "t", lane="x"),
        parts.ToolInputDelta("c1", '{"a":1}', lane="x"),
        parts.ToolInputStart("c2", "t", lane="y"),
        parts.ApprovalRequest("a1", "c1", lane="x"),
        parts.ToolInputDelta("c2", "{}", lane="y"),
        parts.ToolCall("c2", "t", {}, lane="y"),
        parts.ToolResult("c2", 2, lane="y"),
    ]
    page = check_turn(judge, release, release, items, None)
    states = [(part.get("toolCallId"), part.get("state")) for part in page["parts"]]
    assert states == [
        (None, None),
        ("c1", "input-available"),
        ("c2", "output-available"),
        (None, None),
        ("a1", "input-available"),
    ]


@every_page
def test_no_page_posts_for_ever_beside_a_call_of_an_earlier_step(judge: Judge, release: str, sdk: str) -> None:
    own: list[Part] = [
        parts.ToolCall("c1", "t", lane="a"),
        parts.Text("<lane1.1>", lane="lane1"),
        parts.ToolResult("c1", 1, lane="a"),
    ]
    check_turn(judge, release, sdk, [parts.ToolCall("loc", "locate"), parts.Step(), *own], None)
    open_call = {"type": "tool-locate", "toolCallId": "loc", "state": "input-available", "input": {}}
    earlier = message(open_call, {"type": "step-start"}, {"type": "text", "text": "a", "state": "done"})
    [result] = judge.chat(release, [Chat(frames_of(own, sdk, earlier), messages=[USER, earlier])])
    [complete] = judge.complete(RELEASES[release[0]][-1], [result["messages"]])
    assert not complete["toolCalls"]


@every_page
@pytest.mark.parametrize("request_", [[parts.ApprovalRequest("a1", "c1", lane="a")], []], ids=["approval", "client"])
@pytest.mark.parametrize("step", [[], [parts.Step(lane="lane1")], [parts.Step()]])
def test_a_page_posts_its_answer_to_a_call_that_others_spoke_behind(
    judge: Judge, release: str, sdk: str, step: list[Part], request_: list[Part]
) -> None:
    items: list[Part] = [
        parts.ToolCall("c1", "t", lane="a"),
        *request_,
        parts.ToolCall("c2", "t", lane="lane1"),
        parts.ToolResult("c2", 1, lane="lane1"),
        *step,
        parts.Text("<lane1.1>", lane="lane1"),
    ]
    page = check_turn(judge, release, sdk, items, None)
    assert answered(page) != page


CONTRADICTIONS: list[list[Part]] = [
    [parts.ToolDenied("c1"), parts.ToolResult("c1", 1)],
    [parts.ToolDenied("c1"), parts.ToolError("c1", "x")],
    [parts.ToolInputError("c1", "t", "bad"), parts.ToolResult("c1", 1)],
    [parts.ToolInputError("c1", "t", "bad"), parts.ToolDenied("c1")],
    [parts.ToolResult("c1", 1), parts.ToolDenied("c1")],
    [parts.ApprovalRequest("a1", "c1"), parts.ApprovalResponse("a1", False), parts.ToolResult("c1", 1)],
    [parts.ApprovalRequest("a1", "c1"), parts.ApprovalResponse("a1", False), parts.ToolError("c1", "x")],
    [parts.ApprovalRequest("a1", "c1"), parts.ApprovalResponse("a1", True), parts.ToolDenied("c1")],
]
ANSWERED_IN_THE_TURN: list[list[Part]] = [
    [parts.ApprovalRequest("a1", "c1"), parts.ToolResult("c1", 1)],
    [parts.ApprovalRequest("a1", "c1"), parts.ToolDenied("c1")],
    [parts.ApprovalRequest("a1", "c1"), parts.ApprovalResponse("a1", True)],
    [parts.ApprovalRequest("a1", "c1"), parts.ApprovalResponse("a1", False)],
]


@pytest.mark.parametrize("items", CONTRADICTIONS + ANSWERED_IN_THE_TURN)
@every_page
def test_contradictions_and_answers_within_the_turn_pass_the_clients_validation(
    judge: Judge, release: str, sdk: str, items: list[Part]
) -> None:
    assert check_turn(judge, release, sdk, items, None)["parts"]  # check_turn validates the message


REFUSED = ASKED | {"state": "approval-responded", "approval": {"id": "a0", "approved": False}}
CONTRADICTED_LATER: list[list[Part]] = [
    [parts.ToolResult("c1", 1)],
    [parts.ToolError("c1", "x")],
    [parts.ToolDenied("c1")],
    [parts.ToolInputError("c1", "t", "bad")],
    [parts.ApprovalResponse("a0", True), parts.ToolResult("c1", 1)],
    [parts.ApprovalResponse("a0", False)],
    [parts.ApprovalRequest("a1", "c1"), parts.ToolDenied("c1")],
    [parts.ApprovalRequest("a1", "c1"), parts.ToolResult("c1", 1)],
    [parts.ApprovalRequest("a1", "c1"), parts.ApprovalResponse("a1", True), parts.ToolResult("c1", 1)],
    [parts.ApprovalRequest("a1", "c1"), parts.Error("It broke.")],
    [parts.ApprovalRequest("a1", "c1"), parts.Abort()],
]


@pytest.mark.parametrize("items", CONTRADICTED_LATER)
@pytest.mark.parametrize("earlier", [ASKED, REFUSED], ids=["unanswered", "denied"])
@pytest.mark.parametrize(("release", "sdk"), [setting for setting in SETTINGS if not setting[0].startswith("5.")])
def test_what_contradicts_an_earlier_turn_leaves_parts_that_pass_the_clients_validation(
    judge: Judge, release: str, sdk: str, earlier: dict[str, Any], items: list[Part]
) -> None:
    assert check_turn(judge, release, sdk, items, message(earlier))["parts"]


@every_page
@pytest.mark.parametrize("step", [[parts.Step()], [parts.Step(), parts.ResetStep()]], ids=["step", "reset"])
def test_a_failed_turn_leaves_no_step_that_the_page_does_not_see(
    judge: Judge, release: str, sdk: str, step: list[Part]
) -> None:
    items: list[Part] = [parts.Text("<lane1.1>", lane="lane1"), *step, parts.Error("It broke.")]
    page = check_turn(judge, release, sdk, items, None)
    assert [part["type"] for part in page["parts"]] == ["step-start", "text"]


def test_keys_of_a_citation_that_a_client_does_not_know_are_stripped(judge: Judge) -> None:
    source = {"type": "source", "sourceType": "url", "id": "s1", "url": "https://example.com", "page": 2}
    items: list[Part] = [parts.Text("a"), parts.BlockEnd(citations=({"source": source, "score": 1},))]
    body = frames_of(items, "7")
    [result] = judge.chat(RELEASES["7"][-1], [Chat(body)])
    builder = MessageBuilder(sdk="7")
    for chunk in ChunkDecoder().receive(body):
        builder.receive(chunk)
    assert builder.message == result["message"]
    assert b"score" in b"".join(map(encode_chunk, ChunkDecoder().receive(body)))


@every_page
def test_ids_that_repeat_and_empty_ids_do_no_harm(judge: Judge, release: str, sdk: str) -> None:
    ids = iter("xxyxyz")
    frames = FrameStream(MessageStream(message_id="message-1", sdk=sdk, new_id=lambda: next(ids)))
    items: list[Part] = [parts.Start(""), *(parts.Text(lane, lane=lane) for lane in "abcab")]
    body = b"".join(map(frames.send, items)) + frames.close()
    [result] = judge.chat(release, [Chat(body)])
    assert (result["status"], texts(result["message"])) == ("ready", ["aa", "bb", "c"])


PROVIDERS_CALL = parts.ToolCall("p1", "search", {}, provider_executed=True, lane="lane2")
OF_THE_PROVIDER: list[list[Part]] = [
    [parts.ToolResult("c1", 1), PROVIDERS_CALL, parts.Text("<lane1.1>", lane="lane1")],
    [parts.ToolCall("c1", "t"), PROVIDERS_CALL, parts.Text("<lane1.1>", lane="lane1")],
    [parts.ApprovalRequest("a1", "c1"), PROVIDERS_CALL],
    [
        parts.ApprovalRequest("a1", "c1"),
        parts.ApprovalResponse("a1", False),
        parts.ToolCall("c2", "t"),
        PROVIDERS_CALL,
    ],
    [PROVIDERS_CALL, parts.ApprovalRequest("a1", "p1", lane="lane2"), parts.Text("<lane1.1>", lane="lane1")],
    [parts.ToolResult("c1", 1), PROVIDERS_CALL, parts.ApprovalRequest("a1", "p1")],
]


@pytest.mark.parametrize("items", OF_THE_PROVIDER)
@every_page
def test_a_call_of_the_provider_without_a_result_keeps_no_page_busy(
    judge: Judge, release: str, sdk: str, items: list[Part]
) -> None:
    page = check_turn(judge, release, sdk, items, None)
    [complete] = judge.complete(RELEASES[release[0]][-1], [[USER, page]])
    assert not any(complete.values())


@pytest.mark.parametrize("release", [release for release in ALL_RELEASES if not release.startswith("5.")])
@pytest.mark.parametrize("is_automatic", [False, True])
def test_a_preliminary_result_is_taken_back_when_an_approval_is_asked_for(
    judge: Judge, release: str, is_automatic: bool
) -> None:
    items: list[Part] = [
        parts.ToolResult("c1", "so far", preliminary=True),
        parts.ApprovalRequest("a1", "c1", is_automatic=is_automatic),
    ]
    [part] = check_turn(judge, release, release, items, None)["parts"][1:]
    assert is_automatic or (part["state"], "output" in part) == ("approval-requested", False)


@pytest.mark.parametrize("release", RELEASES["7"])
def test_an_automatic_request_without_an_answer_is_denied_when_the_turn_ends(judge: Judge, release: str) -> None:
    items: list[Part] = [parts.ApprovalRequest("a1", "c1", is_automatic=True)]
    for ending in ([], [parts.Error("It broke.")], [parts.Abort()]):
        page = check_turn(judge, release, release, [*items, *ending], None)
        assert page["parts"][1]["state"] == "output-denied"


@pytest.mark.parametrize("release", RELEASES["7"])
def test_an_answer_does_not_change_an_earlier_call_with_the_same_approval_id(judge: Judge, release: str) -> None:
    earlier = ASKED | {"state": "output-available", "output": 1, "approval": {"id": "a0", "approved": True}}
    items: list[Part] = [parts.ApprovalRequest("a0", "c2"), parts.ApprovalResponse("a0", False)]
    page = check_turn(judge, release, release, items, message(earlier))
    states = [(part["toolCallId"], part["state"]) for part in page["parts"] if "toolCallId" in part]
    assert states == [("c1", "output-available"), ("c2", "output-denied")]


@every_page
def test_a_call_whose_input_was_refused_takes_no_result_in_a_later_turn(judge: Judge, release: str, sdk: str) -> None:
    page = check_turn(judge, release, sdk, [parts.ToolInputError("c1", "t", "bad", {})], None)
    state = page["parts"][1]["state"]
    later = check_turn(judge, release, sdk, [parts.ToolResult("c1", 1), parts.Text("<lane1.1>", lane="lane1")], page)
    assert state == "output-error"
    assert "input" in page["parts"][1] or later["parts"][1] == page["parts"][1]


@every_page
def test_a_streamed_input_ends_in_the_step_where_it_began(judge: Judge, release: str, sdk: str) -> None:
    open_call = {"type": "tool-t", "toolCallId": "c1", "state": "input-available", "input": {}}
    items: list[Part] = [parts.ToolInputStart("c2", "t"), parts.ToolError("c1", "no")]
    page = check_turn(judge, release, sdk, items, message(open_call))
    assert [part["toolCallId"] for part in page["parts"] if "toolCallId" in part] == ["c1", "c2"]


class Incomparable(dict[str, Any]):
    """Like a mapping with a numpy array in it."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value of an array with more than one element is ambiguous")


@every_page
def test_metadata_that_cannot_be_compared_is_sent_with_each_delta(judge: Judge, release: str, sdk: str) -> None:
    items: list[Part] = [
        parts.Text(f"<lane1.{number}>", {"provider": Incomparable(number=number)}, lane="lane1") for number in (1, 2)
    ]
    page = check_turn(judge, release, sdk, items, None)
    assert page["parts"][-1]["providerMetadata"] == {"provider": {"number": 2}}


@every_page
def test_a_stream_goes_on_after_a_lane_that_is_no_text(judge: Judge, release: str, sdk: str) -> None:
    frames = FrameStream(MessageStream(message_id="message-1", sdk=sdk))
    body = frames.send(parts.Text("a"))
    with pytest.raises(LocalProtocolError, match="lane"):
        frames.send(parts.Text("b", lane=[]))  # type: ignore[arg-type]
    [result] = judge.chat(release, [Chat(body + frames.send(parts.Text("c")) + frames.close())])
    assert (result["status"], texts(result["message"])) == ("ready", ["ac"])


@every_page
def test_a_value_of_a_hundred_levels_is_read_by_the_client_and_by_our_checker(
    judge: Judge, release: str, sdk: str
) -> None:
    value: Any = 1
    for _ in range(100):
        value = [value]
    body = frames_of([parts.Data("deep", value, "d1"), parts.ToolResult("c1", value), parts.Text("a")], sdk)
    [result] = judge.chat(release, [Chat(body)])
    assert result["status"] == "ready"
    assert same(read_by_us(body, release, None), result["message"])
    assert check_bytes(body, sdks=[release])["verdicts"][release]["ok"]


@pytest.mark.parametrize("release", RELEASES["7"][-1:] + RELEASES["6"][-1:])
def test_a_thousand_approvals_wait_for_a_page(judge: Judge, release: str) -> None:
    items: list[Part] = [
        part
        for number in range(1000)
        for part in (parts.ToolCall(f"c{number}", "t", {}), parts.ApprovalRequest(f"a{number}", f"c{number}"))
    ]
    page = check_turn(judge, release, "any", items, None)
    assert [part["state"] for part in page["parts"][1:]] == ["approval-requested"] * 1000
