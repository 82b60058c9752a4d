"""What a page answers is taken if it was asked: by the last run, or once that is forgotten by signature."""

import logging
from typing import Any

import pytest

from usechat.errors import Unprocessable
from usechat.protocol.request import ChatRequest
from usechat.runs.open_calls import (
    CHANGED,
    FORGOTTEN,
    FORGOTTEN_ON_PAGE,
    UNSIGNED,
    Answers,
    OpenCall,
    approval_signature,
    input_digest,
    pending_metadata,
    secret_of_chat,
)
from usechat.runs.run import RunInfo, RunState

USER = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "hi"}]}
SECRET = secret_of_chat("s3cret", "c1", "")
ASK = OpenCall("t1", "ask", input_digest({"a": 1}))
REMOVE = OpenCall("t2", "remove", input_digest({"path": "notes"}), "a1")
SIGNED = pending_metadata(SECRET, [ASK])
APPROVAL = {"id": "a1", "signature": approval_signature(SECRET, REMOVE)}
FOREIGN = approval_signature(secret_of_chat("s3cret", "c1", "bob"), REMOVE)


def output(**changes: Any) -> dict[str, Any]:
    part = {"type": "tool-ask", "toolCallId": "t1", "state": "output-available", "input": {"a": 1}, "output": 5}
    return {**part, **changes}


def approval(**changes: Any) -> dict[str, Any]:
    part = {"type": "tool-remove", "toolCallId": "t2", "state": "approval-responded", "input": {"path": "notes"}}
    return {**part, "approval": {**APPROVAL, "approved": True}, **changes}


def asked(*parts: Any, metadata: Any = None) -> ChatRequest:
    message = {"id": "m1", "role": "assistant", "parts": list(parts), "metadata": metadata}
    return ChatRequest.parse({"id": "c1", "messages": [USER, message]})


def run(*calls: OpenCall) -> RunInfo:
    return RunInfo("r1", "c1", "m1", "7", state=RunState.WAITING, open_calls=calls)


def answerable(latest: RunInfo | None) -> tuple[OpenCall, ...] | None:
    return None if latest is None else latest.answerable


@pytest.mark.parametrize(
    ("parts", "metadata", "call_ids"),
    [
        pytest.param([output()], SIGNED, ["t1"], id="signed"),
        pytest.param([output(), output(toolCallId="t9")], SIGNED, ["t1"], id="signed, and another made up"),
        pytest.param(
            [output(type="dynamic-tool", toolName="ask", state="output-error", errorText="no")],
            SIGNED,
            ["t1"],
            id="a dynamic tool that failed",
        ),
        pytest.param([output(input={"a": 1.0})], SIGNED, ["t1"], id="the same number"),
        pytest.param([output()], None, [], id="no signature"),
        pytest.param([output()], pending_metadata(secret_of_chat("s3cret", "c2", ""), [ASK]), [], id="of another chat"),
        pytest.param(
            [output()], pending_metadata(secret_of_chat("s3cret", "c1", "bob"), [ASK]), [], id="of another person"
        ),
        pytest.param([output()], pending_metadata("other", [ASK]), [], id="with another secret"),
        pytest.param([output(toolCallId="t9")], SIGNED, [], id="another call"),
        pytest.param(
            [output(toolCallId="t9")],
            {"usechat": {**SIGNED["usechat"], "pending": ["t9"]}},
            [],
            id="another call in the metadata, too",
        ),
        pytest.param([output(input={"a": 2})], SIGNED, [], id="changed input"),
        pytest.param([output(type="tool-tell")], SIGNED, [], id="changed name"),
        pytest.param([output(type="tool-tell", toolName="ask")], SIGNED, [], id="changed name beside the old one"),
        pytest.param([output(input={"a": 2}), output()], SIGNED, [], id="told twice, and differently"),
        pytest.param([output(output=6), output()], SIGNED, [], id="with two outputs"),
        pytest.param([output(state="output-error", errorText="no"), output()], SIGNED, [], id="failed, and did not"),
        pytest.param([output(state="input-available"), output()], SIGNED, ["t1"], id="told twice, with one output"),
        pytest.param([output(state="input-available")], SIGNED, ["t1"], id="not answered yet"),
    ],
)
def test_signed_calls_of_a_forgotten_run_are_taken(parts: list[Any], metadata: Any, call_ids: list[str]) -> None:
    assert sorted(Answers(asked(*parts, metadata=metadata), "c1", None, SECRET).pending()) == call_ids


@pytest.mark.parametrize(
    ("parts", "metadata", "latest", "call_ids"),
    [
        pytest.param([output()], None, run(ASK), ["t1"], id="open"),
        pytest.param([output()], SIGNED, run(), [], id="signed, but answered already"),
        pytest.param([output()], {"usechat": "nonsense"}, run(ASK), ["t1"], id="open, whatever the metadata says"),
        pytest.param([output(input={"a": 2})], SIGNED, run(ASK), [], id="changed input"),
        pytest.param([output(type="tool-tell")], SIGNED, run(ASK), [], id="changed name"),
        pytest.param([output(output=6), output()], SIGNED, run(ASK), [], id="with two outputs"),
        pytest.param(
            [approval(state="output-available", output="removed")], None, run(REMOVE), [], id="an approval is pending"
        ),
    ],
)
def test_a_run_that_is_known_decides(parts: list[Any], metadata: Any, latest: RunInfo, call_ids: list[str]) -> None:
    assert sorted(Answers(asked(*parts, metadata=metadata), "c1", answerable(latest), SECRET).pending()) == call_ids


DEEP: Any = "end"
for _ in range(55):
    DEEP = {"usechat": [DEEP]}


@pytest.mark.parametrize(
    "metadata",
    [
        "text",
        7,
        [],
        ["usechat"],
        {"usechat": "text"},
        {"usechat": {"pending": "t1", "signature": "x"}},
        {"usechat": {"pending": [["t1"]], "signature": "x"}},
        {"usechat": {"pending": ["t1"], "signature": ["x"]}},
        {"usechat": {"pending": ["t1"], "signature": "\ud800 ö"}},
        {"usechat": {"pending": ["t1"] * 5000, "signature": "x"}},
        {"usechat": {"pending": ["\ud800"], "signature": "x"}},
        DEEP,
    ],
)
def test_metadata_of_any_shape_is_borne(metadata: Any) -> None:
    parts = [output(), output(toolCallId="\ud800", input={"\ud800": DEEP}), approval(state="approval-requested")]
    assert Answers(asked(*parts, metadata=metadata), "c1", None, SECRET).pending() == frozenset()


@pytest.mark.parametrize(
    ("part", "latest", "accepted"),
    [
        pytest.param(approval(), run(REMOVE), True, id="open"),
        pytest.param(approval(), None, True, id="signed"),
        pytest.param(approval(type="dynamic-tool", toolName="remove"), None, True, id="signed, of a dynamic tool"),
        pytest.param(approval(), run(), False, id="signed, but answered already"),
        pytest.param(approval(approval={"id": "a1", "approved": True}), None, False, id="not signed"),
        pytest.param(
            approval(approval={"id": "a1", "approved": True, "signature": "\ud800"}), None, False, id="signed by nobody"
        ),
        pytest.param(approval(approval={**APPROVAL, "id": "a9", "approved": True}), None, False, id="another approval"),
        pytest.param(
            approval(approval={**APPROVAL, "approved": True, "signature": FOREIGN}), None, False, id="of another person"
        ),
        pytest.param(approval(input={"path": "/"}), None, False, id="changed input"),
        pytest.param(approval(type="tool-format"), None, False, id="changed name"),
        pytest.param(approval(type="tool-format", toolName="remove"), run(REMOVE), False, id="the old name beside it"),
    ],
)
def test_an_approval_was_asked_for_and_its_call_is_the_same(
    part: dict[str, Any], latest: RunInfo | None, accepted: bool
) -> None:
    answers = Answers(asked(part), "c1", answerable(latest), SECRET)
    if accepted:
        answers.check_approvals()
        return
    sentence = "was not asked for, or its tool call has changed" if latest else FORGOTTEN_ON_PAGE
    with pytest.raises(Unprocessable, match=sentence):
        answers.check_approvals()


def test_an_approval_that_nobody_can_check_is_logged_with_what_keeps_it(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "usechat"), pytest.raises(Unprocessable):
        Answers(asked(approval()), "c1", None, "the secret of a new process").check_approvals()
    [line] = [record.getMessage() for record in caplog.records]
    assert line == f"chat c1: {FORGOTTEN}"


@pytest.mark.parametrize(("signature", "allowed"), [(APPROVAL["signature"], True), (FOREIGN, False)])
def test_an_approval_through_the_tool_is_taken_if_its_request_is_signed(signature: str, allowed: bool) -> None:
    request = {"approvalId": "a1", "toolCallId": "t2", "signature": signature}
    parts = [
        approval(state="input-available", approval=None),
        output(type="tool-approval", toolCallId="a1", input=request, output={"approved": True}),
    ]
    answers = Answers(asked(*parts), "c1", None, SECRET)
    if allowed:
        answers.check_approvals()
        assert answers.unanswered() == ()
    else:
        with pytest.raises(Unprocessable, match=FORGOTTEN_ON_PAGE):
            answers.check_approvals()


def test_none_of_many_calls_that_come_back_in_two_versions_is_taken() -> None:
    calls = [OpenCall(f"t{number}", "ask", input_digest({"a": 1})) for number in range(30)]
    parts = [output(toolCallId=call.tool_call_id, input={"a": a}) for call in calls for a in (1, 2)]
    signed = pending_metadata(SECRET, calls)
    assert Answers(asked(*parts, metadata=signed), "c1", None, SECRET).unanswered() == ()
    parts = [part if part["input"] == {"a": 1} else part | {"state": "input-available"} for part in parts]
    assert Answers(asked(*parts), "c1", calls, SECRET).pending() == frozenset()


def test_hundreds_of_signed_calls_are_taken() -> None:
    calls = [OpenCall(f"t{number}", "ask", ASK.input_digest) for number in range(300)]
    parts = [output(toolCallId=call.tool_call_id) for call in calls]
    answers = Answers(asked(*parts, metadata=pending_metadata(SECRET, calls)), "c1", None, SECRET)
    assert answers.pending() == {call.tool_call_id for call in calls}


def test_an_approval_of_a_call_that_comes_back_in_two_versions_is_refused() -> None:
    with pytest.raises(Unprocessable):
        Answers(
            asked(approval(), approval(input={"path": "/"})), "c1", answerable(run(REMOVE)), SECRET
        ).check_approvals()


@pytest.mark.parametrize("latest", [run(ASK, REMOVE), None])
def test_what_is_not_answered_stays_open(latest: RunInfo | None) -> None:
    still = approval(state="approval-requested", approval=APPROVAL)
    answers = Answers(asked(output(), still, metadata=SIGNED), "c1", answerable(latest), SECRET)
    assert (answers.unanswered(), answers.given()) == ((REMOVE,), (ASK,))
    waiting = output(state="input-available")
    answers = Answers(asked(waiting, approval(), metadata=SIGNED), "c1", answerable(latest), SECRET)
    assert (answers.unanswered(), answers.given()) == ((ASK,), ()), "an approval counts once"


@pytest.mark.parametrize(
    ("state", "retried"),
    [
        (RunState.RUNNING, []),
        (RunState.WAITING, []),
        (RunState.FINISHED, []),
        (RunState.FAILED, ["t1"]),
        (RunState.STOPPED, ["t1"]),
        (RunState.LOST, ["t1"]),
    ],
)
def test_what_came_to_nothing_may_be_answered_again(state: RunState, retried: list[str]) -> None:
    latest = RunInfo("r1", "c1", "m1", "7", state=state, given_calls=(ASK,))
    answers = Answers(asked(output(), approval()), "c1", answerable(latest), SECRET)
    assert answers.pending() == frozenset({"t1"} & set(retried))
    assert [call.tool_call_id for call in answers.given()] == retried
    if "t2" in retried:
        answers.check_approvals()
    else:
        with pytest.raises(Unprocessable):
            answers.check_approvals()


@pytest.mark.parametrize(
    ("parts", "latest", "lines"),
    [
        pytest.param([output()], None, [f"chat c1: {UNSIGNED}"], id="unsigned"),
        pytest.param([output(input=2)], run(ASK), [f"chat c1: {CHANGED}"], id="the call has changed"),
        pytest.param([output(), output()], run(ASK), [f"chat c1: {CHANGED}"], id="there are two outputs"),
        pytest.param([output()], run(), [], id="it was answered before"),
        pytest.param([output(toolCallId="own"), approval()], None, [], id="an outcome of the server beside an answer"),
        pytest.param([output(state="input-available")], None, [], id="no output"),
    ],
)
def test_an_ignored_output_is_logged_without_its_content(
    caplog: pytest.LogCaptureFixture, parts: list[Any], latest: RunInfo | None, lines: list[str]
) -> None:
    with caplog.at_level(logging.WARNING, "usechat"):
        Answers(asked(*parts), "c1", answerable(latest), SECRET).pending()
    assert [record.getMessage() for record in caplog.records] == lines


@pytest.mark.parametrize("call", [REMOVE, OpenCall("t2", "remove", input_digest({"path": "other"}), "a1")])
def test_an_approval_may_be_signed_in_the_metadata(call: OpenCall) -> None:
    answers = Answers(
        asked(approval(approval={"id": "a1", "approved": True}), metadata=pending_metadata(SECRET, [call])),
        "c1",
        None,
        SECRET,
    )
    if call is REMOVE:
        answers.check_approvals()
    else:
        with pytest.raises(Unprocessable, match=FORGOTTEN_ON_PAGE):
            answers.check_approvals()
