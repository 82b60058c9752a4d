"""What another process continues of an answer whose process died, by table."""

from typing import Any, Final

import pytest

from usechat.chats.chat import take_answers
from usechat.chats.recovery import (
    MAY_CALL_AGAIN,
    NOT_ALLOWED,
    UNKNOWN_OUTCOME,
    RecoveryPolicy,
    as_continued,
    recover,
)
from usechat.protocol.request import ChatRequest
from usechat.protocol.ui_messages import UIMessage

STEP: Final = {"type": "step-start"}
DONE: Final = {"type": "text", "text": "Let me see.", "state": "done"}
HALF: Final = {"type": "text", "text": "Let", "state": "streaming"}
THINKING: Final = {"type": "reasoning", "text": "Hm", "state": "streaming"}


def call(state: str, call_id: str = "t1", *, name: str = "book", **fields: Any) -> dict[str, Any]:
    return {"type": f"tool-{name}", "toolCallId": call_id, "state": state, "input": {}, **fields}


OPEN: Final = call("input-available")
RESULT: Final = call("output-available", output="booked")
UNKNOWN: Final = call("output-error", errorText=UNKNOWN_OUTCOME)
AGAIN: Final = call("output-error", errorText=MAY_CALL_AGAIN)
CUT: Final = call("input-streaming", "t2")
SEARCHED: Final = call("output-available", "s1", name="web", output=[], providerExecuted=True)
SEARCHING: Final = call("input-available", "s1", name="web", providerExecuted=True)
APPROVED: Final = call("approval-responded", approval={"id": "p1", "approved": True})
DENIED: Final = call("approval-responded", approval={"id": "p1", "approved": False})
ASKED: Final = call("approval-requested", approval={"id": "p1"})
FIRST: Final = [STEP, DONE, RESULT]

TABLE: Final[dict[str, tuple[list[Any], int, str, list[Any]]]] = {
    "nothing was said": ([], 0, "continue", []),
    "mid-text of the first step": ([STEP, HALF], 0, "continue", []),
    "half reasoning": ([STEP, THINKING], 0, "continue", []),
    "text whose step may be half or whole": ([STEP, DONE], 0, "continue", []),
    "a finished step without calls": ([STEP, DONE], 2, "complete", [STEP, DONE]),
    "mid-text of the second step": ([*FIRST, STEP, HALF], 3, "continue", FIRST),
    "a result that was the last": (FIRST, 0, "continue", FIRST),
    "a finished step with a result": (FIRST, 3, "continue", FIRST),
    "mid-tool": ([STEP, DONE, OPEN], 0, "continue", [STEP, DONE, UNKNOWN]),
    "mid-input": ([STEP, DONE, CUT], 0, "continue", []),
    "one call ran while the input of another was cut off": ([STEP, OPEN, CUT], 0, "continue", [STEP, UNKNOWN]),
    "the provider ran": ([*FIRST, STEP, DONE, SEARCHING], 3, "continue", FIRST),
    "the provider's call beside ours": ([STEP, SEARCHING, OPEN], 0, "continue", [STEP, UNKNOWN]),
    "the provider has run, and the step has ended": ([STEP, SEARCHED, DONE], 3, "complete", [STEP, SEARCHED, DONE]),
    "a step that an earlier recovery kept": ([*FIRST, STEP, HALF], 0, "continue", FIRST),
    "an approved call may have run": ([STEP, APPROVED], 2, "continue", [STEP, {**APPROVED, **UNKNOWN}]),
    "a denied call": ([STEP, DENIED], 2, "continue", [STEP, {**DENIED, "state": "output-denied"}]),
    "a person is asked already": ([STEP, ASKED], 0, "waiting", [STEP, ASKED]),
    "text goes on behind a finished step without calls": ([STEP, DONE, STEP, HALF], 2, "stuck", [STEP, DONE]),
}


def message_of(parts: list[Any]) -> UIMessage:
    return {"id": "m1", "role": "assistant", "parts": parts}


@pytest.mark.parametrize(("parts", "finished", "kind", "expected"), TABLE.values(), ids=TABLE)
def test_what_is_continued(parts: list[Any], finished: int, kind: str, expected: list[Any]) -> None:
    recovery = recover(message_of(parts), finished, RecoveryPolicy())
    assert (recovery.kind, recovery.message["parts"]) == (kind, expected)
    assert recovery.dropped == len(parts) - len(expected)
    again = recover(recovery.message, finished if recovery.kind != "stuck" else len(expected), RecoveryPolicy())
    assert again.message == recovery.message, "a second crash changes nothing"


def test_a_step_is_asked_again_if_all_its_calls_may_run_again() -> None:
    policy = RecoveryPolicy(replayable=frozenset({"book"}))
    assert recover(message_of([*FIRST, STEP, OPEN]), 3, policy).message["parts"] == FIRST
    beside = call("output-available", "t2", name="pay", output=1)
    recovery = recover(message_of([STEP, OPEN, beside]), 0, policy)
    assert (recovery.message["parts"], recovery.settled) == ([STEP, AGAIN, beside], ("t1",))


def test_a_person_is_asked_about_a_call_that_was_open() -> None:
    recovery = recover(message_of([STEP, OPEN]), 0, RecoveryPolicy(asks=True))
    question = call("approval-requested", approval={"id": "after-crash-t1"})
    assert (recovery.kind, recovery.message["parts"], recovery.settled) == ("waiting", [STEP, question], ("t1",))


@pytest.mark.parametrize(("approved", "text"), [(True, MAY_CALL_AGAIN), (False, NOT_ALLOWED)])
def test_the_model_is_told_what_the_person_has_answered(approved: bool, text: str) -> None:
    stored = recover(message_of([STEP, OPEN]), 0, RecoveryPolicy(asks=True)).message
    [_, question] = stored["parts"]
    answer = {"state": "approval-responded", "approval": {"id": "after-crash-t1", "approved": approved}}
    merged, given = take_answers(stored, message_of([STEP, {**question, **answer}]))
    assert merged["parts"] == [STEP, call("output-error", errorText=text)], "pages refuse a question without its answer"
    assert given == {"t1"}


def test_a_call_that_waits_for_the_page_stays_open() -> None:
    recovery = recover(message_of([STEP, OPEN]), 2, RecoveryPolicy(answerable=frozenset({"t1"})))
    assert (recovery.kind, recovery.message["parts"], recovery.settled) == ("waiting", [STEP, OPEN], ())


def test_a_page_without_approvals_is_asked_by_a_client_tool() -> None:
    parts = [STEP, DONE, OPEN, call("approval-responded", "t2", approval={"id": "p2", "approved": False})]
    policy = RecoveryPolicy(asks=True, has_approvals=False)
    recovery = recover(message_of(parts), 0, policy)
    subject = {"approvalId": "after-crash-t1", "toolCallId": "t1", "toolName": "book", "input": {}}
    question = {"type": "tool-approval", "toolCallId": "after-crash-t1", "state": "input-available", "input": subject}
    denied = {**parts[-1], "state": "output-denied"}
    assert (recovery.kind, recovery.message["parts"]) == ("waiting", [STEP, DONE, OPEN, denied, STEP, question])
    assert (recovery.dropped, recovery.settled) == (0, ("t2",))


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"state": "output-available", "output": {"approved": True}}, MAY_CALL_AGAIN),
        ({"state": "output-available", "output": "yes"}, MAY_CALL_AGAIN),
        ({"state": "output-available", "output": {"approved": False}}, NOT_ALLOWED),
        ({"state": "output-error", "errorText": "No such tool"}, NOT_ALLOWED),
    ],
)
def test_the_model_is_told_what_the_person_has_answered_to_the_client_tool(answer: dict[str, Any], text: str) -> None:
    stored = recover(message_of([STEP, OPEN]), 0, RecoveryPolicy(asks=True, has_approvals=False)).message
    copy = message_of([*stored["parts"][:-1], {**stored["parts"][-1], **answer}])
    merged, given = take_answers(stored, copy)
    assert merged["parts"] == [STEP, call("output-error", errorText=text), STEP, {**stored["parts"][-1], **answer}]
    assert given == {"after-crash-t1"}
    assert ChatRequest(messages=[merged]).approvals == [], "no framework knows this question"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], []),
        ([STEP, DONE], [STEP, DONE]),
        ([STEP, APPROVED], [STEP, call("output-available", output="booked", approval=APPROVED["approval"])]),
        ([STEP, DENIED], [STEP, call("output-denied", approval=DENIED["approval"])]),
        ([STEP, RESULT], [STEP, RESULT]),
        ([STEP, call("input-available", "o1")], [STEP, call("output-error", "o1", errorText="Lost")]),
        ([STEP, OPEN], [STEP, AGAIN]),
        ([STEP, call("input-available", "t2")], [STEP, call("output-error", "t2", errorText=NOT_ALLOWED)]),
    ],
    ids=[
        "a new answer",
        "a text",
        "an approval",
        "a denial",
        "an output of the page",
        "a call that waits for the page",
        "a call that may run again",
        "a call that a client tool has asked about",
    ],
)
def test_a_turn_that_begins_again_gets_the_message_as_it_was(before: list[Any], after: list[Any]) -> None:
    message = message_of([*after, STEP, HALF])
    assert as_continued(message, len(before), answerable=["o1"], given=["t1", "after-crash-t2"]) == message_of(before)
