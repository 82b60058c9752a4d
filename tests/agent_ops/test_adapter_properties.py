"""Any frames in any order: nothing breaks, nothing is yielded twice, and there is one end."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.agent_ops.frames import (
    COMPLETE,
    CREATE,
    IDLE,
    PROMPT,
    Frame,
    adapter,
    chunk,
    chunks_of,
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
from usechat.protocol.chunks import AbortChunk, ErrorChunk, FinishChunk

turns = st.sampled_from(["t1", "t1", "t1", "t2"])
calls = st.sampled_from(["c1", "c2"])
statuses = st.sampled_from(["pending", "running", "completed", "error", "paused"])
args = st.sampled_from([None, {}, {"a": 1}])
texts = st.sampled_from(["", "a", "ab", "\ud83d"])
junk: st.SearchStrategy[Any] = st.one_of(st.none(), st.integers(), texts, st.lists(texts, max_size=1), st.just({}))

tool_parts = st.builds(lambda state, call, value: tool_part(state, call, args=value), statuses, calls, args)
states = st.sampled_from(
    [
        status(runnerBusy=False),
        status(runnerBusy=True),
        status(promptQueued=True, queuePosition=1),
        status(promptDequeued=True, remaining=0),
        status(queueCleared=True),
        status(aborted=True, runnerBusy=False),
        status(questionAnswered="q1"),
        status(status="hibernated"),
    ]
)
frames: st.SearchStrategy[Frame] = st.one_of(
    st.builds(lambda turn: {**CREATE, "turnId": turn}, turns),
    st.builds(delta, texts, turns),
    st.builds(chunk, texts, turns),
    st.builds(lambda state, call, turn, value: tool(state, call, turn, args=value), statuses, calls, turns, args),
    st.builds(lambda reason, turn, text: finalize(reason, turn, finalText=text),
              st.sampled_from(["end_turn", "error", "canceled", "other"]), turns | st.none(), texts | st.none()),
    st.just(COMPLETE),
    st.just(IDLE),
    st.builds(user_says, st.sampled_from([PROMPT, PROMPT, "theirs"]), st.sampled_from(["u1", "u2"])),
    st.builds(message, turns),
    st.builds(lambda text, parts, turn: updated(text, *parts, turn_id=turn), texts,
              st.lists(st.one_of(tool_parts, st.just(finish_part())), max_size=3), turns),
    states,
    st.just({"type": "question", "questionId": "q1", "text": "?"}),
    st.just({"type": "error", "error": "Bad"}),
    st.just({"type": "init", "session": {}, "data": {"runnerBusy": True, "promptsQueued": 1}}),
)  # fmt: skip
keys = st.sampled_from(["type", "data", "turnId"])
mangled = st.builds(lambda frame, key, value: {**frame, key: value}, frames, keys, junk)


@given(st.lists(frames | mangled, max_size=30), st.sampled_from(["data", "approval"]))
def test_any_frames_give_one_message_with_one_end(inputs: list[Frame], questions: Any) -> None:
    to = adapter(questions=questions)
    parts = [*fed(inputs, to), *to.close()]
    endings = [part for part in parts if isinstance(part, p.Finish | p.Error | p.Abort)]
    assert endings == parts[-1:]
    assert sum(isinstance(part, p.Start) for part in parts) <= 1
    outcomes = [part.tool_call_id for part in parts if isinstance(part, p.ToolResult | p.ToolError)]
    assert len(outcomes) == len(set(outcomes))
    assert isinstance(chunks_of(parts)[-1], FinishChunk | ErrorChunk | AbortChunk)


@given(st.lists(frames, max_size=30))
def test_nobody_elses_turn_is_told(inputs: list[Frame]) -> None:
    # A bare stream of the runner, in which nobody's message is told, cannot be told apart.
    ours = ("t1", PROMPT, "message.create")
    others = [frame for frame in inputs if not any(word in str(frame) for word in ours)]
    parts = fed([*others, user_says("theirs", "u3"), message("t2"), chunk("theirs", "t2")])
    assert not any(isinstance(part, p.Text | p.ToolCall | p.Start | p.Data) for part in parts)
