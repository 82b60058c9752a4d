"""How a turn ends: with a finish, without one, too late, in failure; and what is no end."""

from typing import Any

import pytest

from tests.agent_ops.frames import (
    ARGS,
    BEGIN,
    COMPLETE,
    CREATE,
    IDLE,
    Frame,
    adapter,
    chunk,
    delta,
    fed,
    finalize,
    finish_part,
    message,
    status,
    tool,
    tool_part,
    updated,
    user_says,
)
from usechat import parts as p
from usechat.agent_ops.adapter import INTERRUPTED, REMOVED, RUNNER_LOST, SessionAdapter
from usechat.agent_ops.prompt_tracker import PromptTracker
from usechat.agent_ops.turn_parts import TURN_FAILED, UNSETTLED

BEGUN = [user_says(), message()]
OUTPUT = [*BEGUN, chunk("Hel")]
QUESTION: Frame = {"type": "question", "questionId": "q1", "text": "Deploy?"}
TOLD_IDLE = p.Data("agent-status", {"status": "idle"}, transient=True)
CALL = p.ToolCall("c1", "calculator", ARGS, dynamic=True)
UNSETTLED_CALL = p.ToolError("c1", UNSETTLED)
LOST = status(runnerConnected=False, queuedPrompts=0, runnerDisconnected=True)
"""What Valet sends when a runner disconnects; it does not say that the runner is free."""


@pytest.mark.parametrize(
    ("frames", "ending"),
    [
        pytest.param([*OUTPUT, updated("Hel", finish_part())], p.Finish(), id="finish"),
        pytest.param([*OUTPUT, status(runnerBusy=False)], p.Finish(), id="the-runner-is-done"),
        pytest.param([*OUTPUT, status(promptDequeued=True, remaining=0)], p.Finish(), id="the-next-one-begins"),
        pytest.param([*OUTPUT, COMPLETE], p.Finish(), id="complete"),
        pytest.param([*BEGUN, status(runnerBusy=False)], p.Error(TURN_FAILED), id="nothing-was-said"),
        pytest.param([user_says(), status(runnerBusy=False)], p.Error(TURN_FAILED), id="no-turn-began"),
        pytest.param([user_says(), COMPLETE], p.Error(TURN_FAILED), id="no-turn-began-and-complete"),
        pytest.param([user_says(), finalize("error", None, error="No model")], p.Error("No model"), id="no-turn-id"),
        pytest.param([*OUTPUT, status(runnerBusy=False, aborted=True)], p.Abort("aborted"), id="aborted"),
        pytest.param([*OUTPUT, IDLE, status(runnerBusy=False, aborted=True)], p.Abort("aborted"), id="idle-aborted"),
        pytest.param([user_says(), status(aborted=True)], p.Abort("aborted"), id="aborted-before-it-began"),
        pytest.param(
            [user_says(), status(promptQueued=True), status(queueCleared=True)], p.Abort(REMOVED), id="removed"
        ),
        pytest.param([*OUTPUT, status(status="terminated")], p.Error(TURN_FAILED), id="the-session-is-gone"),
        pytest.param([status(status="archived")], p.Error(TURN_FAILED), id="the-session-is-put-away"),
        pytest.param([*OUTPUT, status(status="hibernated")], p.Error(TURN_FAILED), id="the-session-sleeps"),
        pytest.param([*OUTPUT, {"type": "error", "error": "Out of disk", "messageId": "t1"}],
                     p.Error("Out of disk"), id="the-agent-failed"),
        pytest.param([{"type": "error", "message": "content or attachments required"}],
                     p.Error("content or attachments required"), id="the-prompt-was-refused"),
        pytest.param([user_says(), status(promptQueued=True), {"type": "error", "error": "Bad", "messageId": "u1"}],
                     p.Error("Bad"), id="it-failed-in-the-queue"),
        pytest.param([*BEGUN, {"type": "error"}], p.Error(TURN_FAILED), id="no-reason"),
        pytest.param([*OUTPUT, status(runnerDisconnected=True, runnerBusy=False)], p.Error(RUNNER_LOST), id="cut"),
        pytest.param([*OUTPUT, status(runnerDisconnected=True), status(runnerBusy=False)],
                     p.Error(RUNNER_LOST), id="the-runner-did-not-come-back"),
        pytest.param([*OUTPUT, LOST, COMPLETE], p.Error(RUNNER_LOST), id="the-runner-came-back-without-the-turn"),
        pytest.param([user_says(), LOST, COMPLETE], p.Error(RUNNER_LOST), id="the-runner-was-lost-before-output"),
        pytest.param([*OUTPUT, LOST, message("t9")], p.Error(RUNNER_LOST), id="the-runner-came-back-for-another-turn"),
        pytest.param([user_says(), LOST, message("t9")], p.Error(RUNNER_LOST),
                     id="the-runner-was-lost-before-output-and-came-back-for-another-turn"),
    ],
)  # fmt: skip
def test_endings(frames: list[Frame], ending: p.Part) -> None:
    to = adapter()
    assert (fed(frames, to)[-1], to.ended) == (ending, True)
    assert fed([chunk("late"), status(runnerBusy=False), updated("late", finish_part("error"))], to) == []


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([status(runnerBusy=False)], id="another-turn-is-over"),
        pytest.param([status(status="hibernated")], id="a-session-that-sleeps-is-woken"),
        pytest.param([status(aborted=True, runnerBusy=False)], id="another-was-aborted"),
        pytest.param([{"type": "error", "error": "Theirs", "messageId": "u0"}], id="another-failed"),
        pytest.param([user_says(), status(promptQueued=True), IDLE], id="idle-while-ours-waits"),
        pytest.param([user_says(), IDLE], id="idle-of-the-turn-before"),
        pytest.param([*OUTPUT, QUESTION, IDLE], id="idle-while-a-question-waits"),
        pytest.param([*OUTPUT, IDLE, QUESTION], id="idle-before-a-question"),
        pytest.param([*OUTPUT, IDLE, chunk("lo")], id="idle-and-on-it-goes"),
        pytest.param([*OUTPUT, IDLE, {"type": "agentStatus", "status": "thinking"}], id="idle-and-thinking"),
        pytest.param([*OUTPUT, {"type": "init", "data": {"runnerBusy": False}}], id="told-anew-how-things-stand"),
        pytest.param([*OUTPUT, status(runnerDisconnected=True), chunk("lo")], id="the-runner-came-back"),
        pytest.param([status(runnerDisconnected=True, runnerBusy=False)], id="the-runner-of-another-turn-is-gone"),
    ],
)
def test_what_is_no_end(frames: list[Frame]) -> None:
    to = adapter()
    fed(frames, to)
    assert (to.ended, to.settling) == (False, False)


def test_an_idle_agent_is_given_time_to_say_why() -> None:
    to = adapter()
    fed([*OUTPUT, IDLE], to)
    assert (to.settling, list(to.close()), to.ended) == (True, [p.Finish()], True)


@pytest.mark.parametrize(
    ("frames", "ending"),
    [
        pytest.param([LOST, IDLE], p.Error(RUNNER_LOST), id="idle-when-it-is-back"),
        pytest.param([IDLE, LOST], p.Error(RUNNER_LOST), id="idle-before"),
        pytest.param([LOST], p.Error(INTERRUPTED), id="nothing-more"),
        pytest.param([LOST, chunk("lo"), IDLE], p.Finish(), id="the-turn-went-on"),
        pytest.param([LOST, updated("Hello"), IDLE], p.Finish(), id="a-message-has-more-text"),
        pytest.param([LOST, updated("Hel"), IDLE], p.Error(RUNNER_LOST), id="a-message-repeats-what-is-known"),
    ],
)
def test_a_runner_that_disconnects_in_mid_turn_is_no_good_end(frames: list[Frame], ending: p.Part) -> None:
    to = adapter()
    fed([*OUTPUT, *frames], to)
    assert (to.ended, list(to.close())) == (False, [ending])


@pytest.mark.parametrize(
    ("frames", "ending"),
    [
        pytest.param([IDLE], p.Error(RUNNER_LOST), id="idle-when-it-is-back"),
        pytest.param([chunk("lo"), IDLE], p.Finish(), id="the-turn-went-on"),
    ],
)
@pytest.mark.parametrize("text", ["Hel", "Hell"])
def test_a_continued_turn_whose_runner_is_gone_has_no_good_end(frames: list[Frame], ending: p.Part, text: str) -> None:
    """Valet keeps ``runnerBusy`` true while it waits for the runner. ``text`` is the text when the socket opens."""
    message = {"id": "t1", "role": "assistant", "parts": [{"type": "text", "text": "Hel"}]}
    to = SessionAdapter(PromptTracker.attached("t1"), shown=message)
    state = {"runnerConnected": False, "runnerBusy": True}
    init = {"type": "init", "session": {"messages": [updated(text)["data"]]}, "data": state}
    fed([init, status(runnerConnected=True), *frames], to)
    assert (to.ended, list(to.close())) == (False, [ending])


def test_a_turn_that_had_ended_is_complete_though_its_runner_disconnects() -> None:
    to = adapter()
    fed([CREATE, tool("running", args=ARGS), finalize(), LOST], to)
    assert list(to.close()) == [UNSETTLED_CALL, p.Finish()]


@pytest.mark.parametrize(
    ("late", "parts"),
    [
        pytest.param([tool("completed", result=4)], [p.ToolResult("c1", 4), p.Finish()], id="the-tool-ends"),
        pytest.param([updated("", tool_part("completed", result=4), finish_part())],
                     [p.ToolResult("c1", 4), p.Finish()], id="the-tool-ends-in-the-client-dialect"),
        pytest.param([tool("error", error="lost"), COMPLETE], [p.ToolError("c1", "lost"), p.Finish()], id="it-fails"),
        pytest.param([COMPLETE], [UNSETTLED_CALL, p.Finish()], id="complete"),
        pytest.param([IDLE, status(runnerBusy=False)], [TOLD_IDLE, UNSETTLED_CALL, p.Finish()], id="the-runner-rests"),
        pytest.param([delta("x"), finalize("error")], [p.Text("x")], id="nothing-else-ends-it"),
    ],
)  # fmt: skip
def test_late_updates_behind_the_finish_are_waited_for(late: list[Frame], parts: list[p.Part]) -> None:
    to = adapter()
    assert fed([CREATE, tool("running", args=ARGS), finalize()], to) == [*BEGIN, CALL]
    assert to.settling
    assert fed(late, to) == parts


def test_tools_that_stay_open_are_settled() -> None:
    to = adapter()
    fed([CREATE, tool("running", args=ARGS), finalize("error", error="Bad")], to)
    assert list(to.close()) == [UNSETTLED_CALL, p.Error("Bad")]
    assert (to.settling, list(to.close())) == (False, [])


@pytest.mark.parametrize(
    ("frames", "error", "parts"),
    [
        pytest.param([], None, [p.Error(INTERRUPTED)], id="before-anything"),
        pytest.param(OUTPUT, None, [p.Error(INTERRUPTED)], id="in-the-middle"),
        pytest.param(OUTPUT, TimeoutError(), [], id="because-of-an-error-which-the-run-reports"),
        pytest.param([*OUTPUT, updated("", finish_part())], None, [], id="behind-the-end"),
        pytest.param([CREATE, tool("running", args=ARGS), finalize()], None, [UNSETTLED_CALL, p.Finish()], id="late"),
    ],
)
def test_a_socket_that_closes(frames: list[Frame], error: Exception | None, parts: list[p.Part]) -> None:
    to = adapter()
    fed(frames, to)
    assert list(to.close(error)) == parts


@pytest.mark.parametrize("text", ["Deploy?", "", None])
def test_an_error_text_is_passed_on_unchanged(text: Any) -> None:
    assert fed([CREATE, finalize("error", error=text)])[-1] == p.Error(text or "Turn failed")
