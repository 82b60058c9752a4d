"""What the agent asks: as data, or as an approval whose answer comes with the next request."""

from typing import Any

import pytest

from tests.agent_ops.frames import (
    ARGS,
    BEGIN,
    CREATE,
    Frame,
    adapter,
    chunk,
    delta,
    fed,
    finalize,
    finish_part,
    status,
    tool,
    tool_part,
    updated,
)
from usechat import parts as p
from usechat.agent_ops.adapter import TOO_LATE, SessionAdapter
from usechat.agent_ops.prompt_tracker import PromptTracker
from usechat.agent_ops.questions import command_from_answer, parts_from_answer
from usechat.agent_ops.wire import answer_command
from usechat.protocol.request import ApprovalAnswer

PAYLOAD = {"questionId": "q1", "text": "Deploy?", "options": ["yes", "no"], "expiresAt": 1764000300}
QUESTION: Frame = {"type": "question", **PAYLOAD}
PROMPT = {"id": "q1", "sessionId": "s1", "type": "approval", "title": "Deploy?", "actions": [{"id": "approve"}]}
INTERACTIVE: Frame = {"type": "interactive_prompt", "prompt": PROMPT}

SHOWN: dict[str, Any] = {
    "id": "t1",
    "role": "assistant",
    "parts": [
        {"type": "text", "text": "One moment. "},
        {"type": "dynamic-tool", "toolCallId": "c0", "toolName": "calculator", "state": "output-available"},
        {"type": "dynamic-tool", "toolCallId": "c1", "toolName": "calculator", "state": "input-available"},
        {"type": "text", "text": "Well:"},
    ],
}


def back(**options: Any) -> SessionAdapter:
    """The adapter of a request that answers."""
    prompt, answer_ids = PromptTracker.attached("t1"), frozenset({"q1"})
    return SessionAdapter(prompt, questions="approval", answered=answer_ids, shown=SHOWN, **options)


@pytest.mark.parametrize(("frame", "payload"), [(QUESTION, PAYLOAD), (INTERACTIVE, {"prompt": PROMPT})])
def test_a_question_as_data_has_the_whole_payload_and_the_turn_goes_on(frame: Frame, payload: Any) -> None:
    to = adapter()
    assert fed([CREATE, frame, frame], to) == [*BEGIN, p.Data("question", payload, id="q1")]
    assert (to.is_asking, to.ended) == (True, False)


@pytest.mark.parametrize(("frame", "payload"), [(QUESTION, PAYLOAD), (INTERACTIVE, {"prompt": PROMPT})])
def test_a_question_as_an_approval_ends_the_stream(frame: Frame, payload: Any) -> None:
    to = adapter(questions="approval")
    assert fed([CREATE, delta("Well:"), tool("pending", args=ARGS), frame], to)[3:] == [
        p.ToolInputStart("c1", "calculator", dynamic=True),
        p.ToolCall("c1", "calculator", ARGS, dynamic=True),
        p.Step(leaves_calls=True),
        p.ToolCall("question-q1", "question", payload, dynamic=True),
        p.ApprovalRequest("q1", "question-q1", "Deploy?"),
        p.Finish(),
    ]
    assert to.ended


@pytest.mark.parametrize(
    "frame",
    [
        status(questionAnswered="q1", answer="yes"),
        status(questionAnswered=True),
        status(questionExpired="q1"),
        {"type": "interactive_prompt_resolved", "promptId": "q1", "promptType": "question", "resolution": {}},
        {"type": "interactive_prompt_expired", "promptId": "q1", "promptType": "question", "context": None},
    ],
)
def test_a_question_is_open_until_it_is_answered_or_expires(frame: Frame) -> None:
    to = adapter()
    fed([CREATE, QUESTION, status(questionAnswered="q7")], to)
    assert to.is_asking
    fed([frame], to)
    assert not to.is_asking


@pytest.mark.parametrize(
    ("answer", "value", "part"),
    [
        (ApprovalAnswer("q1", True), True, p.ToolResult("question-q1", {"answer": True})),
        (ApprovalAnswer("q1", True, "staging"), "staging", p.ToolResult("question-q1", {"answer": "staging"})),
        (ApprovalAnswer("q1", False), False, p.ToolDenied("question-q1")),
        (ApprovalAnswer("q1", False, "never"), False, p.ToolDenied("question-q1", "never")),
    ],
)
def test_what_a_person_answers(answer: ApprovalAnswer, value: object, part: p.Part) -> None:
    assert answer_command(answer) == {"type": "answer", "questionId": "q1", "answer": value}
    assert list(parts_from_answer(answer)) == [part]


def asked_with(payload: object) -> dict[str, Any]:
    """The page's message with a question in it."""
    call = {"type": "dynamic-tool", "toolCallId": "question-q1", "toolName": "question", "input": payload}
    return {"id": "t1", "role": "assistant", "parts": [{"type": "text", "text": "Well:"}, call]}


@pytest.mark.parametrize("context", [None, {"invocationId": "i7"}, {"toolId": "deploy"}])
def test_an_approval_of_a_tool_is_approved_or_denied_by_its_invocation(context: dict[str, str] | None) -> None:
    message = asked_with({"prompt": {**PROMPT, "context": context}})
    invocation = {"invocationId": (context or {}).get("invocationId", "q1")}
    assert [
        command_from_answer(message, ApprovalAnswer("q1", True)),
        command_from_answer(message, ApprovalAnswer("q1", True, "go on")),
        command_from_answer(message, ApprovalAnswer("q1", False)),
        command_from_answer(message, ApprovalAnswer("q1", False, "not now")),
    ] == [
        {"type": "approve-action", **invocation},
        {"type": "approve-action", **invocation},
        {"type": "deny-action", **invocation},
        {"type": "deny-action", **invocation, "reason": "not now"},
    ]


ACTIONS = [{"id": each} for each in ("approve", "allow_session", "allow_always", "deny")]


@pytest.mark.parametrize(
    ("reason", "action"),
    [
        ("allow_session", {"actionId": "allow_session"}),
        ("allow_always", {"actionId": "allow_always"}),
        ("approve", {}),
        ("allow_everything", {}),
        (None, {}),
    ],
)
def test_an_action_of_the_upstream_is_chosen_by_its_id_and_the_plain_yes_is_once(
    reason: str | None, action: dict[str, str]
) -> None:
    message = asked_with({"prompt": {**PROMPT, "actions": ACTIONS}})
    command = {"type": "approve-action", "invocationId": "q1", **action}
    assert command_from_answer(message, ApprovalAnswer("q1", True, reason)) == command


@pytest.mark.parametrize("actions", [None, 7, [7], [{"label": "Always"}]])
def test_actions_that_cannot_be_read_are_not_offered(actions: object) -> None:
    message = asked_with({"prompt": {**PROMPT, "actions": actions}})
    command = {"type": "approve-action", "invocationId": "q1"}
    assert command_from_answer(message, ApprovalAnswer("q1", True, "allow_always")) == command


@pytest.mark.parametrize(
    "message", [asked_with(PAYLOAD), asked_with({"prompt": {**PROMPT, "type": "question"}}), asked_with(7), SHOWN]
)
def test_a_question_is_answered_with_an_answer(message: dict[str, Any]) -> None:
    answer = {"type": "answer", "questionId": "q1", "answer": "staging"}
    assert command_from_answer(message, ApprovalAnswer("q1", True, "staging")) == answer


@pytest.mark.parametrize(
    "frames",
    [
        [delta(" done"), tool("completed", "c0", result=0), tool("completed", result=4), finalize(finalText=" done")],
        [
            chunk(" done"),
            updated("One moment. Well: done", tool_part("completed", "c0"), tool_part("completed", result=4)),
            updated("Well: done", finish_part()),
        ],
    ],
    ids=["runner", "client"],
)
def test_an_answered_turn_goes_on_where_the_page_left_it(frames: list[Frame]) -> None:
    assert fed([QUESTION, *frames], back()) == [p.Text(" done"), p.ToolResult("c1", 4), p.Finish()]


def test_what_was_said_while_nobody_listened_is_caught_up() -> None:
    running = updated("One moment. Well: there", tool_part("completed", result=4))["data"]
    init: Frame = {"type": "init", "session": {"messages": [{"id": "u1"}, running]}, "data": {"runnerBusy": True}}
    assert fed([init, chunk(" it is")], back()) == [p.Text(" there"), p.ToolResult("c1", 4), p.Text(" it is")]


def test_a_turn_that_ended_while_nobody_listened() -> None:
    over = updated("One moment. Well: over", tool_part("completed", result=4), finish_part())["data"]
    init: Frame = {"type": "init", "session": {"messages": [over]}, "data": {"runnerBusy": False}}
    assert fed([init], back()) == [p.ToolResult("c1", 4), p.Text(" over"), p.Finish()]


@pytest.mark.parametrize("messages", [None, [{"id": "t1", "parts": [], "content": 7}]])
def test_an_answer_that_comes_too_late(messages: Any) -> None:
    init: Frame = {"type": "init", "session": {"messages": messages}, "data": {"runnerBusy": False}}
    assert fed([init], back()) == [p.Error(TOO_LATE)]


def test_another_question_of_the_same_turn_is_asked() -> None:
    parts = fed([{**QUESTION, "questionId": "q2"}], back())
    assert p.ApprovalRequest("q2", "question-q2", "Deploy?") in parts
