"""Both dialects, each alone and both at once: what is said is said once."""

import json
from pathlib import Path

import pytest

from tests.agent_ops.frames import (
    ARGS,
    BEGIN,
    CREATE,
    Frame,
    chunk,
    delta,
    fed,
    finalize,
    finish_part,
    message,
    tool,
    tool_part,
    updated,
    user_says,
)
from usechat import parts as p
from usechat.agent_ops.adapter import SessionAdapter
from usechat.agent_ops.prompt_tracker import PromptTracker

FIXTURES = Path(__file__).parent.parent / "fixtures" / "agent_ops"

CLIENT_BEGIN = [user_says(), message()]
CALL = p.ToolCall("c1", "calculator", ARGS, dynamic=True)
START = p.ToolInputStart("c1", "calculator", dynamic=True)


def trace(name: str) -> list[Frame]:
    lines = (FIXTURES / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


TRACED: list[p.Part] = [
    p.Start("turn-7"),
    p.Text("", id="turn-7"),
    p.Data("agent-status", {"status": "thinking"}, transient=True),
    p.Text("I will"),
    p.Text(" look."),
    p.ToolInputStart("prt_1", "bash", dynamic=True),
    p.Data("agent-status", {"status": "tool_calling", "detail": "bash"}, transient=True),
    p.ToolCall("prt_1", "bash", {"command": "ls"}, dynamic=True),
    p.ToolResult("prt_1", "README.md\nsrc\n"),
    p.Text("There are"),
    p.Text(" two entries."),
    p.Finish(),
]


@pytest.mark.parametrize("name", ["runner", "client"])
def test_a_trace_of_each_dialect_gives_the_same_parts(name: str) -> None:
    unknown: list[str] = []
    assert (fed(trace(name), unknown=unknown), unknown) == (TRACED, [])


def test_both_dialects_at_once_give_the_same_parts() -> None:
    frames = [
        *CLIENT_BEGIN,
        CREATE,
        chunk("a"),
        delta("a"),
        chunk("b"),
        delta("b"),
        tool("pending"),
        updated("ab", tool_part("pending")),
        tool("running", args=ARGS),
        updated("ab", tool_part("running", args=ARGS)),
        tool("completed", args=ARGS, result=4),
        updated("ab", tool_part("completed", args=ARGS, result=4)),
        finalize(finalText="ab"),
        updated("ab", tool_part("completed", args=ARGS, result=4), finish_part()),
    ]
    parts = [*BEGIN, p.Text("a"), p.Text("b"), START, CALL, p.ToolResult("c1", 4), p.Finish()]
    assert fed(frames) == parts


@pytest.mark.parametrize("frames", [[delta("a"), chunk("a")], [chunk("a"), delta("a")]], ids=["runner", "client"])
def test_the_dialect_that_writes_first_writes_all(frames: list[Frame]) -> None:
    assert fed([*CLIENT_BEGIN, *frames, *frames]) == [*BEGIN, p.Text("a"), p.Text("a")]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        pytest.param([tool("completed", args=ARGS, result=4)], [CALL, p.ToolResult("c1", 4)], id="first-completed"),
        pytest.param([tool("error")], [p.ToolCall("c1", "calculator", {}, dynamic=True),
                                        p.ToolError("c1", "Tool execution failed")], id="first-seen-failed"),
        pytest.param([tool("running", args=ARGS), tool("running", args=ARGS)], [CALL], id="twice"),
        pytest.param([tool("running"), tool("running", args=ARGS)], [START, CALL], id="args-come-later"),
        pytest.param([tool("pending", args=ARGS), tool("running")], [START, CALL], id="args-come-early"),
        pytest.param([tool("pending", args={}), tool("running", args=ARGS)], [START, CALL], id="args-change"),
        pytest.param([tool("running", args=ARGS), tool("pending")], [CALL], id="a-step-back"),
        pytest.param([tool("running", args=ARGS), tool("completed", result=None), tool("error", error="late")],
                     [CALL, p.ToolResult("c1", None)], id="over-is-over"),
        pytest.param([tool("paused")], [], id="a-state-that-nobody-knows"),
        pytest.param(
            [tool("running", "c2", args=ARGS), tool("running", args=ARGS), tool("completed", result=1),
             tool("completed", "c2", result=2)],
            [p.ToolCall("c2", "calculator", ARGS, dynamic=True), CALL, p.ToolResult("c1", 1), p.ToolResult("c2", 2)],
            id="results-out-of-order",
        ),
    ],
)  # fmt: skip
def test_tools_may_skip_states(frames: list[Frame], expected: list[p.Part]) -> None:
    assert fed([CREATE, *frames])[2:] == expected
    parts = [{key: value for key, value in frame.items() if key not in ("type", "turnId")} for frame in frames]
    rewritten = [updated("", {"type": "tool-call", **part}) for part in parts]
    assert fed([*CLIENT_BEGIN, *rewritten])[2:] == expected


@pytest.mark.parametrize(
    ("streamed", "final", "missing"),
    [
        pytest.param([], "All at once.", "All at once.", id="the-only-text"),
        pytest.param(["Hel"], "Hello", "lo", id="the-whole-text"),
        pytest.param(["Hello"], "Hello", "", id="the-same"),
        pytest.param(["Hello"], "Hel", "", id="shorter"),
        pytest.param(["Hello"], "Goodbye", "", id="another"),
        pytest.param(["Hello"], None, "", id="none"),
        pytest.param(["\ud83d", "\ude00!"], "😀!", "", id="a-pair-cut-in-two"),
    ],
)
def test_the_final_text_fills_gaps(streamed: list[str], final: str | None, missing: str) -> None:
    texts = [p.Text(text) for text in (*streamed, missing) if text]
    ending = [*texts, p.Finish()]
    assert fed([CREATE, *map(delta, streamed), finalize(finalText=final)])[2:] == ending
    assert fed([*CLIENT_BEGIN, *map(chunk, streamed), updated(final or "", finish_part())])[2:] == ending


@pytest.mark.parametrize(
    ("before", "behind", "final", "missing"),
    [
        ("Look: ", "it is 4", "it is 4", ""),
        ("Look: ", "it is", "it is 4", " 4"),
        ("Look: ", "it is", "Look: it is 4", " 4"),
        ("Look: ", "", "it is 4", "it is 4"),
        ("Look: ", "", "Look: ", ""),
        ("", "", "it is 4", "it is 4"),
        ("Look: ", "it is 4", "something else", ""),
    ],
)
def test_the_final_text_may_be_that_behind_the_last_tool(before: str, behind: str, final: str, missing: str) -> None:
    frames = [CREATE, delta(before), tool("completed", args=ARGS, result=4), delta(behind), finalize(finalText=final)]
    texts = [part.text for part in fed(frames)[2:] if isinstance(part, p.Text)]
    assert texts == [text for text in (before, behind, missing) if text]


def test_a_whole_message_fills_the_gap_before_a_tool() -> None:
    frames = [chunk("Hel"), updated("Hello", tool_part("running", args=ARGS))]
    assert fed([*CLIENT_BEGIN, *frames])[2:] == [p.Text("Hel"), p.Text("lo"), CALL]


def test_text_parts_that_repeat_the_whole_text_are_read_once() -> None:
    texts = [{"type": "text", "text": "Look: "}, tool_part("completed", args=ARGS, result=4)]
    repeated = [*texts, {"type": "text", "text": "Look: it is 4"}, finish_part()]
    segments = [*texts, {"type": "text", "text": "it is 4"}, finish_part()]
    for parts in (repeated, segments):
        output = fed([*CLIENT_BEGIN, updated("", *parts)])[2:]
        assert [part.text for part in output if isinstance(part, p.Text)] == ["Look: it is 4"]


def test_a_failure_in_the_client_dialect_keeps_its_text() -> None:
    failed = updated("", finish_part("error"), {"type": "error", "message": "The model is overloaded."})
    assert fed([*CLIENT_BEGIN, failed])[2:] == [p.Error("The model is overloaded.")]


def test_messages_whose_parts_are_no_list_are_passed_over() -> None:
    screenshot = {"type": "message", "data": {"id": "m3", "role": "assistant", "content": "", "parts": {"type": "x"}}}
    transcript = {"type": "message.updated", "data": {"id": "m3", "parts": [{"type": "audio", "transcript": "Hi"}]}}
    assert fed([user_says(), screenshot, transcript, message(), updated("", {"type": "tool-call"})]) == BEGIN


IMAGE = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


def test_an_image_of_the_assistants_message_is_a_file_once() -> None:
    speech = {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav", "transcript": "Hi"}
    frames = [message(), chunk("Look: "), updated("Look: ", IMAGE), updated("Look: ", IMAGE, speech, finish_part())]
    assert fed([user_says(), *frames])[2:] == [
        p.Text("Look: "),
        p.File("data:image/png;base64,iVBORw0KGgo=", "image/png"),
        p.File("data:audio/wav;base64,UklGRg==", "audio/wav"),
        p.Finish(),
    ]


@pytest.mark.parametrize("part", [{"type": "image"}, {**IMAGE, "data": 7}, {**IMAGE, "type": "screenshot"}])
def test_an_image_that_cannot_be_read_is_left_out(part: dict[str, object]) -> None:
    assert fed([user_says(), message(), updated("", part, finish_part())])[2:] == [p.Finish()]


def test_an_image_that_the_page_has_is_not_sent_again() -> None:
    shown = {"parts": [{"type": "file", "url": "data:image/png;base64,iVBORw0KGgo=", "mediaType": "image/png"}]}
    to = SessionAdapter(PromptTracker.attached("t1"), shown=shown)
    assert fed([updated("", IMAGE, finish_part())], to) == [p.Finish()]
