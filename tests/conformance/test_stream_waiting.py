"""Calls that wait for a person beside other calls: no page posts too early, and none fails to post, in any order."""

from typing import Any

import pytest

from tests.conformance.judge import ALL_RELEASES, RELEASES, Chat, Judge
from tests.conformance.story_properties import USER, answered, check_page, check_turn, frames_of
from tests.turn_strategies import RUN_BY_SOURCE
from usechat import parts
from usechat.parts import Part
from usechat.protocol.reframing import Reframer
from usechat.protocol.sse import FrameStream
from usechat.protocol.stream import MessageStream

SETTINGS = [
    (release, sdk) for release in ALL_RELEASES for sdk in ([release] if release.startswith("5.") else [release, "any"])
]
every_page = pytest.mark.parametrize(("release", "sdk"), SETTINGS)
PROVIDERS_CALL = parts.ToolCall("mcp", "delete", {}, provider_executed=True)
REQUEST = parts.ApprovalRequest("a", "mcp")
CALL = parts.ToolCall("f", "time", {})
BESIDE_A_CALL_OF_THE_PROVIDER: dict[str, list[Part]] = {
    "result": [PROVIDERS_CALL, REQUEST, CALL, parts.ToolResult("f", 1)],
    "failure": [PROVIDERS_CALL, REQUEST, CALL, parts.ToolError("f", "no")],
    "result after the request": [CALL, PROVIDERS_CALL, REQUEST, parts.ToolResult("f", 1)],
    "request after the result": [PROVIDERS_CALL, CALL, parts.ToolResult("f", 1), REQUEST],
    "client tool": [PROVIDERS_CALL, REQUEST, CALL],
    "cut call": [PROVIDERS_CALL, REQUEST, parts.ToolInputStart("f", "time"), parts.ToolInputDelta("f", '{"a')],
    "stop": [PROVIDERS_CALL, REQUEST, CALL, parts.Abort()],
    "stop after the result": [PROVIDERS_CALL, REQUEST, CALL, parts.ToolResult("f", 1), parts.Abort()],
    "two questions": [
        PROVIDERS_CALL,
        REQUEST,
        parts.ToolCall("mcp2", "delete", {}, provider_executed=True, dynamic=True),
        parts.ApprovalRequest("a2", "mcp2", descriptor={"risk": 1}, signature="s"),
        CALL,
        parts.ToolResult("f", 1),
    ],
}


def tool_parts(page: Any) -> list[dict[str, Any]]:
    return [part for part in page["parts"] if "toolCallId" in part]


@pytest.mark.parametrize("items", BESIDE_A_CALL_OF_THE_PROVIDER.values(), ids=BESIDE_A_CALL_OF_THE_PROVIDER)
@every_page
def test_a_page_rests_while_a_call_of_the_provider_waits_for_approval(
    judge: Judge, release: str, sdk: str, items: list[Part]
) -> None:
    page = check_turn(judge, release, sdk, items, None)  # asks both predicates, before and after the answers
    assert [part["toolCallId"] for part in tool_parts(page)].count("mcp") == 1
    if answered(page) != page:
        later: list[Part] = [parts.ToolResult("mcp", "gone", provider_executed=True), parts.Text("Done.")]
        page = check_turn(judge, release, sdk, later, answered(page))
        assert next(part for part in tool_parts(page) if part["toolCallId"] == "mcp")["providerExecuted"] is True


ASKED: list[Part] = [parts.ToolCall("B", "rm", {}), parts.ApprovalRequest("ap", "B")]
QUESTION = parts.ToolCall("q", "question", {}, dynamic=True)
QUESTIONS_BESIDE_APPROVALS: dict[str, list[Part]] = {
    "question": [*ASKED, parts.Step(leaves_calls=True), QUESTION],
    "question before": [QUESTION, *ASKED],
    "client tool": [*ASKED, parts.ToolCall("c", "locate", {})],
    "client tool before": [parts.ToolCall("c", "locate", {}), *ASKED],
    "client tool in between": [ASKED[0], parts.ToolCall("c", "locate", {}), ASKED[1]],
    "two approvals": [
        *ASKED,
        parts.Step(leaves_calls=True),
        parts.ToolCall("C", "rm", {}),
        parts.ApprovalRequest("ap2", "C"),
    ],
}


@pytest.mark.parametrize("items", QUESTIONS_BESIDE_APPROVALS.values(), ids=QUESTIONS_BESIDE_APPROVALS)
@every_page
def test_answers_to_a_question_and_to_an_approval_are_posted_in_any_order(
    judge: Judge, release: str, sdk: str, items: list[Part]
) -> None:
    page = check_turn(judge, release, sdk, items, None)
    later: list[Part] = [parts.ToolResult("B", "gone"), parts.Text("Done.")]
    continued = check_turn(judge, release, sdk, later, answered(page))
    [part] = [part for part in tool_parts(continued) if part["toolCallId"] == "B"]
    assert (part["state"], part.get("providerExecuted") or False) == ("output-available", False)


RUNS_ON = parts.ToolCall("s", RUN_BY_SOURCE, {})
BESIDE_A_RUNNING_TOOL: dict[str, list[Part]] = {
    "after the approval": [*ASKED, RUNS_ON, parts.Step(leaves_calls=True), QUESTION],
    "before the approval": [RUNS_ON, *ASKED, parts.Step(leaves_calls=True), QUESTION],
    "with a preliminary result": [
        RUNS_ON,
        *ASKED,
        parts.ToolResult("s", "so far", preliminary=True),
        parts.Step(leaves_calls=True),
        QUESTION,
    ],
    "without a question": [*ASKED, RUNS_ON, parts.Step(leaves_calls=True)],
    "two steps": [*ASKED, RUNS_ON, parts.Step(leaves_calls=True), parts.Step(leaves_calls=True), QUESTION],
}


@pytest.mark.parametrize("items", BESIDE_A_RUNNING_TOOL.values(), ids=BESIDE_A_RUNNING_TOOL)
@every_page
def test_answers_are_posted_in_any_order_while_a_tool_of_the_source_runs(
    judge: Judge, release: str, sdk: str, items: list[Part]
) -> None:
    page = check_turn(judge, release, sdk, items, None)
    later: list[Part] = [parts.ToolResult("s", "found"), parts.ToolResult("B", "gone"), parts.Text("Done.")]
    continued = check_turn(judge, release, sdk, later, answered(page))
    outputs = {part["toolCallId"]: part["output"] for part in tool_parts(continued) if part["toolCallId"] in ("s", "B")}
    assert outputs == {"s": "found", "B": "gone"}


@pytest.mark.parametrize("approved_in", ["the turn", "an earlier turn"])
@every_page
def test_an_approved_call_that_asks_does_not_fail(judge: Judge, release: str, sdk: str, approved_in: str) -> None:
    asked: list[Part] = [parts.ToolCall("B", RUN_BY_SOURCE, {}), parts.ApprovalRequest("ap", "B")]
    question: list[Part] = [parts.Step(leaves_calls=True), QUESTION]
    if approved_in == "the turn":
        page = check_turn(judge, release, sdk, [*asked, parts.ApprovalResponse("ap", True), *question], None)
    else:
        page = check_turn(judge, release, sdk, question, answered(check_turn(judge, release, sdk, asked, None)))
    assert "output-error" not in [part["state"] for part in tool_parts(page)]
    continued = check_turn(judge, release, sdk, [parts.ToolResult("B", "gone"), parts.Text("Done.")], answered(page))
    assert next(part for part in tool_parts(continued) if part["toolCallId"] == "B")["output"] == "gone"


TAKEN_BACK: dict[str, list[Part]] = {
    "in an earlier step": [
        parts.ToolCall("c", "w", {}),
        parts.Step(leaves_calls=True),
        parts.ToolResult("c", 1, preliminary=True),
        parts.ApprovalRequest("a", "c"),
    ],
    "before its step was left": [
        parts.ToolCall("c", "w", {}),
        parts.ToolResult("c", 1, preliminary=True),
        parts.Step(leaves_calls=True),
        parts.ApprovalRequest("a", "c"),
    ],
    "in its step": [
        parts.ToolCall("c", "w", {}),
        parts.ToolResult("c", 1, preliminary=True),
        parts.ApprovalRequest("a", "c"),
    ],
}


@pytest.mark.parametrize("items", TAKEN_BACK.values(), ids=TAKEN_BACK)
@every_page
def test_a_call_is_shown_once_and_without_output_when_an_approval_takes_its_output_back(
    judge: Judge, release: str, sdk: str, items: list[Part]
) -> None:
    page = check_turn(judge, release, sdk, items, None)
    [part] = [part for part in tool_parts(page) if part["toolCallId"] == "c"]
    state = "input-available" if release.startswith("5.") else "approval-requested"
    assert (part["state"], "output" in part) == (state, False)


@every_page
def test_a_call_is_shown_once_when_its_output_is_taken_back_in_the_turn_after_an_approval(
    judge: Judge, release: str, sdk: str
) -> None:
    page = check_turn(judge, release, sdk, [parts.ToolCall("c", "w", {}), parts.ApprovalRequest("a", "c")], None)
    again: list[Part] = [
        parts.ToolResult("c", 1, preliminary=True),
        parts.ToolCall("c", "w", {"again": 1}, retracts_output=True),
        parts.ApprovalRequest("a2", "c"),
    ]
    page = check_turn(judge, release, sdk, again, answered(page))
    assert [part["toolCallId"] for part in tool_parts(page)].count("c") == 1


def stored(*items: dict[str, Any]) -> dict[str, Any]:
    return {"id": "message-1", "role": "assistant", "parts": [{"type": "step-start"}, *items]}


GHOST = {"type": "tool-w", "toolCallId": "c", "state": "input-streaming", "input": {"a": "x"}, "rawInput": '{"a":"x'}
BARE_GHOST = {"type": "dynamic-tool", "toolName": "w", "toolCallId": "c", "state": "input-streaming"}
TEXT = [{"type": "step-start"}, {"type": "text", "text": "a", "state": "done"}]
AFTER_A_GHOST: dict[str, list[Part]] = {
    "nothing": [],
    "text": [parts.Text("Again.")],
    "result": [parts.ToolResult("c", 1)],
    "failure": [parts.ToolError("c", "no")],
    "more input": [parts.ToolInputDelta("c", '"}'), parts.ToolResult("c", 1)],
    "the call": [parts.ToolInputStart("c", "w"), parts.ToolCall("c", "w", {"a": "xy"}), parts.ToolResult("c", 1)],
    "request": [parts.ApprovalRequest("a", "c")],
    "stop": [parts.Abort()],
    "error": [parts.Error("It broke.")],
}


@pytest.mark.parametrize("items", AFTER_A_GHOST.values(), ids=AFTER_A_GHOST)
@pytest.mark.parametrize("is_left", [False, True], ids=["last step", "earlier step"])
@pytest.mark.parametrize("ghost", [GHOST, BARE_GHOST], ids=["input", "no input"])
@every_page
def test_a_stored_call_whose_input_was_cut_off_is_settled(
    judge: Judge, release: str, sdk: str, ghost: dict[str, Any], is_left: bool, items: list[Part]
) -> None:
    message = stored(ghost, *(TEXT if is_left else []))
    page = check_turn(judge, release, sdk, items, message)  # finds ghosts, and validates
    assert [part["toolCallId"] for part in tool_parts(page)].count("c") == 1


def reframed(items: list[Part], run_sdk: str, page_sdk: str, *, steps: bool, continues: Any = None) -> bytes:
    """Return what a page of one release gets of a run that was made for another."""
    stream = MessageStream(message_id="message-1", sdk=run_sdk, send_steps=steps, continues=continues)
    frames = FrameStream(stream)
    reframer = Reframer("message-1", page_sdk, continues=continues)
    return b"".join(map(reframer.receive, [*map(frames.send, items), frames.close()]))


@pytest.mark.parametrize("steps", [True, False], ids=["steps", "no steps"])
@pytest.mark.parametrize("page", [release for release in ALL_RELEASES if not release.startswith("5.")])
def test_the_question_of_a_run_for_5_keeps_its_step_on_other_pages(judge: Judge, page: str, steps: bool) -> None:
    items: list[Part] = [parts.Text("<lane1.1>"), *ASKED]
    [result] = judge.chat(page, [Chat(reframed(items, "5", page, steps=steps))])
    kinds = [part["type"] for part in result["message"]["parts"]]
    assert kinds[-3:] == ["tool-rm", "step-start", "tool-approval"]
    complete = judge.complete(RELEASES[page[0]][-1], [[USER, answered(result["message"])]])
    assert complete[0]["toolCalls"]


@pytest.mark.parametrize("page", RELEASES["6"])
@pytest.mark.parametrize("approved", [True, False])
def test_a_page_of_6_posts_its_answer_although_a_run_for_7_has_answered(
    judge: Judge, page: str, approved: bool
) -> None:
    asked = {"type": "tool-rm", "toolCallId": "B", "state": "approval-requested", "input": {}, "approval": {"id": "ap"}}
    message = stored(asked)
    items: list[Part] = [
        parts.ApprovalResponse("ap", approved),
        *([parts.ToolResult("B", "gone")] if approved else []),
        parts.Step(),
        parts.Text("Done."),
    ]
    body = reframed(items, "7", page, steps=True, continues=message)
    [result] = judge.chat(page, [Chat(body, messages=[USER, message])])
    page_message = result["message"]
    assert result["status"] == "ready"
    if answered(page_message) != page_message:
        [complete] = judge.complete(RELEASES["6"][-1], [[USER, answered(page_message)]])
        assert complete["approvals"]


@pytest.mark.parametrize("run_sdk", ["7", "any"])
@pytest.mark.parametrize("page", RELEASES["5"] + RELEASES["6"])
def test_a_page_that_resumes_posts_its_answer_beside_a_call_that_was_denied(
    judge: Judge, page: str, run_sdk: str
) -> None:
    denied = [
        {
            "type": f"tool-{RUN_BY_SOURCE}",
            "toolCallId": call,
            "state": "approval-responded",
            "input": {},
            "approval": {"id": f"ap-{call}", "approved": False},
        }
        for call in ("B", "C")
    ]
    again: list[Part] = [parts.ApprovalRequest("again", "B")]
    body = frames_of(again, run_sdk, stored(*denied))
    resumed = Reframer("message-1", page, earlier=stored(*denied)).receive(body)
    check_page(judge, page, resumed, again, None, f"made for {run_sdk}, resumed")


@pytest.mark.parametrize("page", RELEASES["5"])
def test_a_page_of_5_that_resumes_posts_its_answer_beside_a_call_that_is_asked_about_again(
    judge: Judge, page: str
) -> None:
    first: list[Part] = [*ASKED, parts.ToolCall("c", "locate", {})]
    again: list[Part] = [parts.ApprovalRequest("ap2", "B"), parts.ToolCall("d", "locate", {})]
    message = answered(check_turn(judge, page, page, first, None), approved=False)
    resumed = Reframer("message-1", page, earlier=message).receive(frames_of(again, page, message))
    check_page(judge, page, resumed, again, None, "resumed")
