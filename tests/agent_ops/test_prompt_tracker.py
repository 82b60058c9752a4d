"""Whose turn it is: others are on the same socket, and no frame says which prompt it answers."""

import pytest

from tests.agent_ops.frames import (
    BEGIN,
    COMPLETE,
    CREATE,
    IDLE,
    INIT,
    PROMPT,
    Frame,
    adapter,
    chunk,
    delta,
    fed,
    finalize,
    finish_part,
    message,
    status,
    updated,
    user_says,
)
from usechat import parts as p
from usechat.agent_ops.adapter import REMOVED, UNCLEAR, WITHDRAWN
from usechat.agent_ops.prompt_tracker import PromptPhase, PromptTracker

pytestmark = pytest.mark.quick

OTHERS_TURN = [message("t0"), chunk("theirs", "t0"), updated("theirs", finish_part(), turn_id="t0")]
OURS = [message(), chunk("ours")]
SAID = [*BEGIN, p.Text("ours")]
OTHER = user_says("Something else", "u0")
QUEUED = status(promptQueued=True, queuePosition=1)
DEQUEUED = status(promptDequeued=True, remaining=0)


def busy(queued: int = 0, users: object = ()) -> Frame:
    data = {"runnerBusy": True, "promptsQueued": queued, "connectedUsers": users}
    return {"type": "init", "session": {}, "data": data}


def idle(users: object) -> Frame:
    return {"type": "init", "session": {}, "data": {"runnerBusy": False, "connectedUsers": users}}


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([INIT, user_says(), *OURS], id="at-once"),
        pytest.param([INIT, OTHER, *OTHERS_TURN, user_says(), *OURS], id="another-came-first"),
        pytest.param([busy(), *OTHERS_TURN[1:], status(runnerBusy=False), user_says(), *OURS], id="another-was-there"),
        pytest.param([busy(), user_says(), QUEUED, *OTHERS_TURN, DEQUEUED, IDLE, *OURS], id="queued"),
        pytest.param(
            [
                busy(1), user_says(), status(promptQueued=True, queuePosition=2), *OTHERS_TURN, DEQUEUED,
                message("t00"), chunk("theirs", "t00"), DEQUEUED, *OURS,
            ],
            id="queued-behind-another",
        ),
        pytest.param([busy(), status(promptQueued=True), *OTHERS_TURN, DEQUEUED, user_says(), *OURS], id="told-late"),
        pytest.param(
            [INIT, user_says(), OTHER, QUEUED, *OURS, *OTHERS_TURN[1:]], id="another-is-queued-behind-ours"
        ),
        pytest.param(
            [busy(), OTHER, QUEUED, user_says(), status(promptQueued=True, queuePosition=2), message("t9"), DEQUEUED,
             *OTHERS_TURN, DEQUEUED, *OURS], id="another-queued-first",
        ),
        pytest.param([INIT, user_says(), message("t0", channelType="slack", channelId="7"), *OURS], id="channels"),
        pytest.param([INIT, user_says(PROMPT, channelType="slack"), *OTHERS_TURN, user_says(), *OURS], id="elsewhere"),
        pytest.param([INIT, user_says(f" {PROMPT}\n"), *OURS], id="trimmed"),
    ],
)  # fmt: skip
def test_our_turn_is_found_and_no_other_leaks(frames: list[Frame]) -> None:
    assert fed(frames) == SAID


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([CREATE, delta("ours")], id="at-once"),
        pytest.param([busy(), delta("theirs", "t0"), COMPLETE, CREATE, delta("ours")], id="another-was-there"),
        pytest.param([busy(1), COMPLETE, {**CREATE, "turnId": "t0"}, COMPLETE, CREATE, delta("ours")], id="two"),
        pytest.param(
            [INIT, OTHER, {**CREATE, "turnId": "t0"}, COMPLETE, user_says(), CREATE, delta("ours")], id="told"
        ),
    ],
)
def test_a_bare_stream_of_the_runner_is_followed_by_its_order(frames: list[Frame]) -> None:
    assert fed(frames) == SAID


def test_both_dialects_do_not_count_the_same_end_twice() -> None:
    second = {**CREATE, "turnId": "t00"}
    frames = [
        *(busy(1), user_says(), status(promptQueued=True, queuePosition=2)),
        *(COMPLETE, DEQUEUED, message("t00"), second, delta("theirs", "t00")),
        *(DEQUEUED, COMPLETE, message(), CREATE, delta("ours"), chunk("ours")),
    ]
    assert fed(frames) == SAID


ABORTED = status(runnerBusy=False, aborted=True)
FREE = status(runnerBusy=False)


def test_a_queued_prompt_that_an_abort_deleted_ends_and_gets_no_other_turn() -> None:
    """Early releases delete the queue when anybody aborts the running turn, and do not say so."""
    queued = [busy(), user_says(), QUEUED, IDLE, IDLE, ABORTED]
    assert fed([*queued, FREE, OTHER, *OTHERS_TURN]) == [p.Error(REMOVED)]


def test_a_prompt_that_is_dispatched_behind_an_abort_may_be_another_than_ours() -> None:
    queued = [busy(), user_says(), QUEUED, IDLE, OTHER, QUEUED, IDLE, ABORTED]
    to = adapter()
    assert fed([*queued, DEQUEUED], to) == []
    assert not to.prompt.is_active
    assert fed(OTHERS_TURN, to) == [p.Error(UNCLEAR)]


def test_a_prompt_that_came_behind_the_abort_gets_its_turn() -> None:
    assert fed([busy(), IDLE, IDLE, ABORTED, FREE, user_says(), *OURS]) == SAID


@pytest.mark.parametrize(
    "end",
    [
        pytest.param([IDLE, IDLE], id="aborted"),
        pytest.param([{"type": "error", "messageId": "u0", "error": "No model"}], id="failed-before-any-output"),
        pytest.param(OTHERS_TURN[1:], id="finished"),
    ],
)
def test_later_releases_report_that_our_prompt_left_the_queue_behind_its_message(end: list[Frame]) -> None:
    queued = [waiting_before("u0", "Something else"), withdrawn("u0", "Something else"), pending("u1", PROMPT), QUEUED]
    assert fed([*queued, *end, user_says(), pending(None), DEQUEUED, *OURS]) == SAID
    failed = [*queued, *end, user_says(), pending(None), DEQUEUED, FREE]
    assert fed(failed) == [p.Error("Turn failed")]


RUNNER_TURN = [{**CREATE, "turnId": "t0"}, delta("theirs", "t0"), finalize(turn_id="t0")]
RUNNER_OURS = [CREATE, delta("ours")]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([busy(), user_says(), QUEUED, *RUNNER_TURN, COMPLETE, *RUNNER_OURS], id="echo-and-queued"),
        pytest.param([busy(), QUEUED, *RUNNER_TURN, COMPLETE, *RUNNER_OURS], id="queued-without-echo"),
        pytest.param([busy(), user_says(), *RUNNER_TURN, COMPLETE, *RUNNER_OURS], id="echo-without-status"),
        pytest.param([INIT, OTHER, user_says(), *RUNNER_TURN, COMPLETE, *RUNNER_OURS], id="echo-behind-an-echo"),
        pytest.param([INIT, OTHER, *RUNNER_TURN, user_says(), COMPLETE, *RUNNER_OURS], id="echo-before-complete"),
        pytest.param(
            [INIT, user_says(), QUEUED, status(promptDequeued=True), *RUNNER_OURS], id="the-runner-had-to-wake-up"
        ),
    ],
)
def test_a_queued_prompt_in_the_runners_dialect_gets_its_turn(frames: list[Frame]) -> None:
    assert fed(frames) == SAID


def test_a_prompt_is_not_active_while_the_runner_may_still_work_on_the_one_before() -> None:
    to = adapter()
    fed([OTHER, *RUNNER_TURN, user_says()], to)  # the other turn has ended, but the runner is not reported free
    assert (to.prompt.phase, to.prompt.is_active) == (PromptPhase.DISPATCHED, False)
    fed(RUNNER_OURS, to)
    assert (to.prompt.phase, to.prompt.is_active) == (PromptPhase.RUNNING, True)


THIRD = user_says("A third thing", "u00")
THIRD_TURN = [{**CREATE, "turnId": "t00"}, delta("theirs", "t00"), finalize(turn_id="t00"), COMPLETE]


def place(position: int) -> Frame:
    return status(promptQueued=True, queuePosition=position)


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([busy(), COMPLETE, user_says(), place(1), DEQUEUED], id="alone"),
        pytest.param([busy(1), COMPLETE, user_says(), place(2), DEQUEUED, *RUNNER_TURN, COMPLETE], id="behind-one"),
        pytest.param([busy(1), COMPLETE, user_says(), place(2), *RUNNER_TURN, COMPLETE], id="without-end-statuses"),
        pytest.param([busy(1), COMPLETE, DEQUEUED, user_says(), place(1), *RUNNER_TURN, COMPLETE], id="behind-it"),
    ],
)
def test_a_place_in_the_queue_right_behind_an_end_counts_the_prompt_that_has_ended(frames: list[Frame]) -> None:
    """The runner reported the end by `complete`, and the status that says so has not come: the place is one too far."""
    behind = [THIRD, place(1), *RUNNER_OURS, finalize(), COMPLETE, *THIRD_TURN]
    assert fed([*frames, *behind]) == [*SAID, p.Finish()]


def test_without_an_init_a_place_in_the_queue_right_behind_an_end_says_nothing() -> None:
    frames = [OTHER, place(1), COMPLETE, user_says(), place(2), DEQUEUED, message("t0"), *RUNNER_TURN[1:], *OURS]
    prompt = PromptTracker(PROMPT, reports_queued=True)
    assert fed(frames, adapter(init=False, prompt=prompt)) == [p.Error(UNCLEAR)]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([{**CREATE, "turnId": "t0"}], id="its-start"),
        pytest.param([delta("theirs", "t0")], id="its-output"),
        pytest.param([COMPLETE], id="the-end-of-the-one-before"),
    ],
)
def test_a_complete_behind_a_turn_that_neither_finished_nor_failed_is_an_abort(frames: list[Frame]) -> None:
    """Without statuses nothing else says so. Which prompts of the queue are left is not known then."""
    queued = [busy(1), *frames, user_says(), IDLE, COMPLETE]
    assert fed([*queued, *THIRD_TURN]) == [p.Error(UNCLEAR)]
    before_ours = [busy(2), *frames, IDLE, COMPLETE, user_says()]
    assert fed([*before_ours, *RUNNER_TURN]) == [p.Error(UNCLEAR)]


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(finalize(turn_id="t0"), id="finished"),
        pytest.param(finalize("error", None, error="No model"), id="failed-before-any-output"),
    ],
)
def test_a_complete_behind_a_turn_that_finished_or_failed_is_no_abort(end: Frame) -> None:
    assert fed([INIT, OTHER, user_says(), end, COMPLETE, *RUNNER_OURS]) == SAID


LOST = status(runnerConnected=False, queuedPrompts=2, runnerDisconnected=True)
WATCHDOG = status(runnerBusy=False, watchdogRecovery=True)
AGAIN = [DEQUEUED, message("t00"), chunk("theirs again", "t00"), updated("theirs again", finish_part(), turn_id="t00")]


@pytest.mark.parametrize("lost", [pytest.param(LOST, id="disconnected"), pytest.param(WATCHDOG, id="watchdog")])
@pytest.mark.parametrize(
    ("before", "behind"),
    [
        pytest.param([busy(), user_says(), QUEUED], [], id="queued-before"),
        pytest.param([busy(), *OTHERS_TURN, user_says()], [], id="when-its-turn-had-ended"),
        pytest.param([busy()], [user_says(), place(2)], id="queued-behind"),
        pytest.param([busy()], [user_says()], id="queued-behind-and-not-reported"),
    ],
)
def test_the_prompt_of_a_runner_that_was_lost_is_dispatched_again_and_is_not_ours(
    before: list[Frame], lost: Frame, behind: list[Frame]
) -> None:
    to = adapter()
    assert fed([*before, lost, *behind, *AGAIN], to) == []
    assert not to.prompt.is_active
    assert fed([DEQUEUED, *OURS], to) == SAID


@pytest.mark.parametrize("lost", [pytest.param(LOST, id="disconnected"), pytest.param(WATCHDOG, id="watchdog")])
def test_a_prompt_that_is_sent_past_the_queue_when_the_runner_is_back_is_not_ours(lost: Frame) -> None:
    """A session that has a runner again may give it a new prompt before those that wait."""
    frames = [busy(), user_says(), QUEUED, lost, THIRD, *THIRD_TURN, *AGAIN]
    assert fed(frames) == [p.Error(UNCLEAR)]
    prompt = PromptTracker(PROMPT, reports_queued=True)
    assert fed([busy(), lost, user_says(), *OURS], adapter(prompt=prompt)) == SAID


def test_a_runner_that_comes_back_ends_its_turn() -> None:
    frames = [busy(), user_says(), QUEUED, chunk("the", "t0"), LOST, chunk("irs", "t0"), DEQUEUED, *OURS]
    assert fed(frames) == SAID


def test_a_turn_that_is_given_up_may_be_dispatched_again_or_not() -> None:
    given_up = status(runnerDisconnected=True, runnerBusy=False)
    assert fed([busy(), user_says(), QUEUED, given_up, *AGAIN]) == [p.Error(UNCLEAR)]
    to = adapter()
    assert fed([busy(), user_says(), QUEUED, given_up, DEQUEUED, *OURS], to) == [p.Error(UNCLEAR)]


SLOT: Frame = {"type": "queue.state", "data": {"pending": None}}


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([OTHER, *RUNNER_TURN, COMPLETE, FREE, user_says(), *RUNNER_OURS], id="the-queue-was-empty-before"),
        pytest.param([user_says(), QUEUED, *RUNNER_TURN, COMPLETE, *RUNNER_OURS], id="its-place-in-the-queue"),
        pytest.param([user_says(), QUEUED, DEQUEUED, *RUNNER_OURS], id="its-place-in-the-queue-of-a-sleeping-runner"),
        pytest.param([SLOT, user_says(), *RUNNER_OURS], id="messages-come-at-dispatch"),
        pytest.param([user_says(), SLOT, *RUNNER_OURS], id="messages-come-at-dispatch-as-is-seen-later"),
        pytest.param([user_says(), OTHER, QUEUED, *OURS], id="another-is-queued-behind-ours"),
    ],
)
def test_without_an_init_a_turn_is_ours_where_something_else_says_so(frames: list[Frame]) -> None:
    assert fed(frames, adapter(init=False)) == SAID


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([user_says(), *OURS], id="at-once"),
        pytest.param([user_says(), CREATE, *OURS], id="both-dialects"),
        pytest.param([{**CREATE, "turnId": "t0"}, user_says(), delta("theirs", "t0"), *OURS], id="it-began-before"),
        pytest.param([delta("theirs", "t0"), user_says(), *OURS], id="it-ran-before"),
    ],
)
def test_without_an_init_a_turn_for_browsers_is_ours_if_the_upstream_is_known_to_report_queued_prompts(
    frames: list[Frame],
) -> None:
    prompt = PromptTracker(PROMPT, reports_queued=True)
    assert fed(frames, adapter(init=False, prompt=prompt)) == SAID
    to = adapter(init=False)
    assert fed(frames, to) == [p.Error(UNCLEAR)]
    assert not to.prompt.is_active


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param(RUNNER_TURN, id="no-echo"),
        pytest.param([user_says(), *RUNNER_TURN], id="echo"),
        pytest.param([delta("theirs", "t0"), user_says(), COMPLETE, *RUNNER_TURN[:2]], id="echo-in-mid-turn"),
        pytest.param([delta("theirs", "t0"), COMPLETE, *RUNNER_TURN[:2]], id="no-echo-in-mid-turn"),
        pytest.param([user_says(), CREATE, finalize()], id="it-ended-without-output"),
        pytest.param([user_says(), COMPLETE], id="it-is-over"),
        pytest.param([user_says(), DEQUEUED], id="the-next-one-began"),
        pytest.param([user_says(), status(promptQueued=True), COMPLETE], id="a-place-that-is-not-told"),
        pytest.param([QUEUED, COMPLETE, *RUNNER_TURN], id="queued-without-echo"),
    ],
)
def test_without_an_init_a_turn_that_may_be_somebody_elses_is_not_shown(frames: list[Frame]) -> None:
    to = adapter(init=False)
    assert fed(frames, to) == [p.Error(UNCLEAR)]
    assert not to.prompt.is_active


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([user_says(), CREATE], id="a-turn-began"),
        pytest.param([finalize("error", None, error="Theirs")], id="a-failure-of-somebody"),
        pytest.param([COMPLETE, FREE], id="the-end-of-somebodys-turn"),
        pytest.param([OTHER, *RUNNER_TURN, COMPLETE], id="before-our-message"),
        pytest.param([user_says(), status(promptQueued=True)], id="a-place-that-is-not-told"),
        pytest.param([OTHER, status(runnerBusy=False, aborted=True), user_says()], id="somebody-aborted"),
    ],
)
def test_without_an_init_a_prompt_waits_and_stops_nobody(frames: list[Frame]) -> None:
    to = adapter(init=False)
    assert fed(frames, to) == []
    assert not to.prompt.is_active


def test_a_turn_is_not_taken_by_its_order_once_browser_frames_were_seen() -> None:
    frames = [busy(1), chunk("theirs", "t0"), COMPLETE, DEQUEUED, COMPLETE, DEQUEUED, {**CREATE, "turnId": "t00"}]
    assert fed([*frames, delta("theirs", "t00")]) == []


def test_a_prompt_in_the_queue_stops_nobody_elses_turn_when_its_page_leaves() -> None:
    to = adapter()
    fed([busy(), user_says(), *RUNNER_TURN], to)
    assert (to.prompt.phase, to.prompt.is_active) == (PromptPhase.QUEUED, False)


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([INIT, QUEUED, *RUNNER_TURN, COMPLETE, CREATE], id="ours-or-another-was-queued"),
        pytest.param([busy(), QUEUED, QUEUED, *RUNNER_TURN, COMPLETE, CREATE], id="two-were-queued"),
        pytest.param([INIT, user_says(), QUEUED, CREATE], id="queued-though-the-runner-was-free"),
    ],
)
def test_a_turn_that_may_be_somebody_elses_is_not_shown(frames: list[Frame]) -> None:
    assert fed(frames) == [p.Error(UNCLEAR)]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([finalize("error", None, error="No model")], id="bare"),
        pytest.param([INIT, finalize("error", None, error="No model"), COMPLETE], id="idle"),
        pytest.param([busy(), QUEUED, COMPLETE, finalize("error", None, error="No model")], id="queued-without-echo"),
        pytest.param([busy(), user_says(), COMPLETE, finalize("error", None, error="No model")], id="echo"),
    ],
)
def test_a_failure_before_any_output_is_shown(frames: list[Frame]) -> None:
    assert fed(frames) == [p.Error("No model")]


def test_a_failure_of_another_prompt_is_not_shown() -> None:
    assert fed([busy(), user_says(), finalize("error", None, error="Theirs"), COMPLETE, *RUNNER_OURS]) == SAID


def test_a_complete_without_output_is_a_failure_of_ours() -> None:
    assert fed([INIT, COMPLETE]) == [p.Error("Turn failed")]


def withdrawn(message_id: str, content: str) -> Frame:
    return {"type": "queue.withdrawn", "data": {"messageId": message_id, "content": content}}


def pending(message_id: str | None, content: str = "") -> Frame:
    waiting = None if message_id is None else {"messageId": message_id, "content": content}
    return {"type": "queue.state", "data": {"pending": waiting}}


def waiting_before(message_id: str, content: str) -> Frame:
    data = {"runnerBusy": True, "pendingPrompt": {"messageId": message_id, "content": content}}
    return {"type": "init", "session": {}, "data": data}


def test_a_running_prompt_that_is_withdrawn_was_not_the_running_one() -> None:
    assert fed([INIT, user_says(), *OURS, withdrawn("u1", PROMPT)]) == [*SAID, p.Error(WITHDRAWN)]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([busy(), QUEUED, withdrawn("u1", PROMPT)], id="before-its-message"),
        pytest.param([busy(), user_says(), QUEUED, withdrawn("u1", PROMPT)], id="behind-its-message"),
        pytest.param([busy(), pending("u1", PROMPT), withdrawn("u1", PROMPT)], id="in-the-slot"),
        pytest.param([busy(), pending("u1", PROMPT), QUEUED, withdrawn("u1", PROMPT)], id="in-the-slot-and-queued"),
        pytest.param([pending(None), user_says(), withdrawn("u1", PROMPT)], id="dispatched"),
    ],
)
def test_a_prompt_that_is_withdrawn_ends_at_once(frames: list[Frame]) -> None:
    assert fed(frames) == [p.Error(WITHDRAWN)]


@pytest.mark.parametrize(
    "frames",
    [
        pytest.param([busy(), QUEUED, withdrawn("u0", "Something else")], id="another"),
        pytest.param([busy(), user_says(), QUEUED, withdrawn("u0", PROMPT)], id="the-same-words"),
        pytest.param([busy(), withdrawn("u0", PROMPT)], id="the-same-words-before-ours-was-queued"),
        pytest.param([busy(), pending("u1", PROMPT), withdrawn("u0", PROMPT)], id="the-same-words-by-id"),
        pytest.param([busy(), pending("u0", "Else"), QUEUED, withdrawn("u0", PROMPT)], id="it-was-never-in-the-slot"),
        pytest.param(
            [waiting_before("u0", PROMPT), pending("u0", PROMPT), withdrawn("u0", PROMPT)], id="it-waited-before-ours"
        ),
    ],
)
def test_a_prompt_of_somebody_else_that_is_withdrawn_does_not_concern_us(frames: list[Frame]) -> None:
    assert fed(frames) == []


@pytest.mark.parametrize("users", [["ada", "bob"], [{"id": "ada"}, {"userId": "bob"}, {}, 7]])
def test_the_author_counts_where_the_upstream_knows_the_caller(users: object) -> None:
    frames = [idle(users), user_says(PROMPT, "u0", authorId="bob"), *OTHERS_TURN]
    frames += [user_says(authorId="ada"), *OURS]
    assert fed(frames, adapter(prompt=PromptTracker(PROMPT, author="ada"))) == SAID


def test_the_author_does_not_count_where_the_upstream_has_other_names() -> None:
    frames = [idle(["user-1"]), user_says(authorId="user-1"), *OURS]
    assert fed(frames, adapter(prompt=PromptTracker(PROMPT, author="ada@example.org"))) == SAID


def test_two_streams_never_follow_the_same_turn() -> None:
    claims: set[str] = set()

    def claim(name: str) -> bool:
        return name not in claims and not claims.add(name)  # type: ignore[func-returns-value]

    ada, bob = (adapter(prompt=PromptTracker(PROMPT, claim=claim)) for _ in range(2))
    frames = [user_says(), user_says(PROMPT, "u2"), QUEUED, *OURS, updated("ours", finish_part()), DEQUEUED]
    frames += [message("t2"), chunk("bob's", "t2")]
    parts: dict[str, list[p.Part]] = {"ada": [], "bob": []}
    for frame in frames:
        parts["ada"] += ada.feed(frame)
        parts["bob"] += bob.feed(frame)
    assert parts == {"ada": [*SAID, p.Finish()], "bob": [p.Start("t2"), p.Text("", id="t2"), p.Text("bob's")]}


def test_a_turn_of_the_bare_runner_that_another_stream_follows_is_left_to_it() -> None:
    to = adapter(prompt=PromptTracker(PROMPT, claim=lambda turn_id: turn_id != "t0"))
    assert fed([{**CREATE, "turnId": "t0"}, delta("theirs", "t0"), COMPLETE, CREATE, delta("ours")], to) == SAID


def test_a_channel_of_its_own() -> None:
    to = adapter(prompt=PromptTracker(PROMPT, "web:42"))
    channel = {"channelType": "web", "channelId": "42"}
    assert fed([user_says(**channel), *OTHERS_TURN, message(**channel), chunk("ours")], to) == SAID


@pytest.mark.parametrize(
    ("frames", "phase"),
    [
        ([INIT], PromptPhase.SENT),
        ([busy(), user_says(), QUEUED], PromptPhase.QUEUED),
        ([INIT, user_says()], PromptPhase.DISPATCHED),
        ([busy(), user_says(), QUEUED, DEQUEUED], PromptPhase.DISPATCHED),
        ([INIT, user_says(), message()], PromptPhase.RUNNING),
    ],
)
def test_how_far_a_prompt_has_come(frames: list[Frame], phase: PromptPhase) -> None:
    to = adapter()
    fed(frames, to)
    assert (to.prompt.phase, to.prompt.is_active) == (phase, phase in (PromptPhase.DISPATCHED, PromptPhase.RUNNING))


def test_what_the_agent_does_for_others_is_not_told() -> None:
    thinking = {"type": "agentStatus", "status": "thinking"}
    question = {"type": "question", "questionId": "q0", "text": "Theirs?"}
    assert fed([busy(), thinking, user_says(), QUEUED, question, thinking, IDLE]) == []


def test_what_the_agent_does_in_another_channel_is_not_told() -> None:
    elsewhere = {"channelType": "slack", "channelId": "7"}
    question = {"type": "question", "questionId": "q0", "text": "Theirs?", **elsewhere}
    failed = {"type": "error", "error": "Theirs", **elsewhere}
    assert fed([CREATE, question, failed, {**IDLE, **elsewhere}]) == BEGIN
    assert len(fed([CREATE, {**IDLE, "channelType": "web", "channelId": "default"}])) == 3


def test_what_the_agent_does_for_us_before_it_speaks_is_told_when_the_message_has_its_id() -> None:
    thinking = {"type": "agentStatus", "status": "thinking"}
    state = p.Data("agent-status", {"status": "thinking"}, transient=True)
    assert fed([INIT, user_says(), thinking, message()]) == [*BEGIN, state]


def test_a_prompt_alone_in_the_queue_can_be_withdrawn() -> None:
    to = adapter()
    fed([{"type": "queue.state", "data": {"pending": {"messageId": "u1", "content": PROMPT}}}], to)
    assert to.withdrawable
    fed([{"type": "queue.state", "data": {"pending": {"messageId": "u2", "content": "theirs"}}}], to)
    assert not to.withdrawable


def test_chosen_events_become_data_and_nothing_is_unknown_then() -> None:
    unknown: list[str] = []
    to = adapter(events=["git-state", "status", "later-event"])
    state = {"type": "git-state", "data": {"branch": "main"}}
    frames: list[Frame] = [state, CREATE, state, status(sandboxRunning=True), {"type": "later-event", "n": 1}]
    assert fed([*frames, {"type": "toast", "title": "Hi"}], to, unknown) == [
        *BEGIN,
        p.Data("git-state", {"data": {"branch": "main"}}),
        p.Data("status", {"data": {"sandboxRunning": True}}),
        p.Data("later-event", {"n": 1}),
    ]
    assert unknown == []


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "message.part.text-delta", "turnId": 7, "delta": "x"},
        {"type": "chunk", "messageId": "t1"},
        {"type": "message", "data": []},
        {"type": "message.updated", "data": {"id": None}},
        {"type": "status", "data": "busy"},
        {"type": "question"},
        {"type": "message.create", "turnId": ""},
        {"type": "message", "data": {"id": "", "role": "assistant", "content": "", "parts": []}},
        {"type": ["chunk"]},
        {"type": None},
    ],
)
def test_frames_of_the_wrong_shape_are_counted_and_do_no_harm(frame: Frame) -> None:
    unknown: list[str] = []
    assert fed([CREATE, frame, delta("ours"), finalize()], unknown=unknown) == [*SAID, p.Finish()]
    assert len(unknown) == 1


def test_a_turn_without_an_id_is_none() -> None:
    assert fed([user_says(), message(""), {**CREATE, "turnId": ""}, COMPLETE]) == [p.Error("Turn failed")]
