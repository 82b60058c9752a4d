"""A message that goes on: what stood in it already is known."""

from typing import Any

import pytest

from tests.protocol.stream.sending import SUNNY, SUNNY_CHUNK, WEATHER, send
from usechat.parts import Part
from usechat.protocol.chunks import (
    Chunk,
    FinishChunk,
    FinishStepChunk,
    StartChunk,
    StartStepChunk,
    TextDeltaChunk,
    TextStartChunk,
    ToolInputAvailableChunk,
    ToolOutputAvailableChunk,
    ToolOutputDeniedChunk,
    ToolOutputErrorChunk,
)
from usechat.protocol.stream import BROKEN_OFF, MessageStream

# Parts are written `p.Text`, chunks by their bare names.
import usechat.parts as p  # isort: skip

CONTINUED: dict[str, Any] = {
    "id": "assistant-1",
    "role": "assistant",
    "parts": [
        {"type": "step-start"},
        {"type": "text", "text": "Let me see."},
        {"type": "tool-weather", "toolCallId": "c1", "state": "input-available", "input": {"city": "Paris"}},
        {"type": "dynamic-tool", "toolName": "rm", "toolCallId": "c2", "state": "input-available", "input": {}},
        {
            "type": "tool-rm",
            "toolCallId": "c3",
            "state": "approval-responded",
            "input": {},
            "approval": {"id": "a3", "approved": True},
        },
        {
            "type": "tool-rm",
            "toolCallId": "c4",
            "state": "approval-responded",
            "input": {},
            "approval": {"id": "a4", "approved": False},
        },
        {"type": "tool-rm", "toolCallId": "c5", "state": "input-streaming"},
        {"type": "tool-rm", "toolCallId": "c6", "state": "strange"},
        {"type": "tool-t", "toolCallId": "c7", "state": "output-available", "output": 1, "preliminary": True},
        {"type": "tool-t", "toolCallId": "c8", "state": "output-available", "output": 1},
        {
            "type": "tool-approval",
            "toolCallId": "a9",
            "state": "input-available",
            "input": {"approvalId": "a9", "toolCallId": "c5"},
        },
    ],
}


def continue_with(*sent: Part, sdk: str = "7") -> list[Chunk]:
    stream = MessageStream(message_id="ignored", sdk=sdk, continues=CONTINUED)
    out = [chunk for part in sent for chunk in stream.send(part)]
    assert out[0] == StartChunk("assistant-1")
    return out[1:]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param([SUNNY], [SUNNY_CHUNK], id="an-output-needs-no-step"),
        pytest.param(
            [p.ToolResult("c2", 1), p.Text("Done.")],
            [
                ToolOutputAvailableChunk("c2", 1, dynamic=True),
                StartStepChunk(),
                TextStartChunk("1"),
                TextDeltaChunk("1", "Done."),
            ],
            id="text-gets-its-step-and-dynamic-is-remembered",
        ),
        pytest.param([p.ToolResult("c3", 1)], [ToolOutputAvailableChunk("c3", 1)], id="an-approved-tool-answers"),
        pytest.param([p.ToolDenied("c4")], [ToolOutputDeniedChunk("c4")], id="a-refused-tool-is-denied"),
        pytest.param([WEATHER], [], id="a-known-call-is-not-told-again"),
        pytest.param(
            [p.ToolCall("c8", "t", 1)],
            [StartStepChunk(), ToolInputAvailableChunk("c8-2", "t", 1)],
            id="a-finished-id-is-new",
        ),
        pytest.param([p.Start("other")], [], id="the-id-stays"),
        pytest.param(
            [p.ApprovalResponse("a9", True)],
            [ToolOutputAvailableChunk("a9", {"approved": True})],
            id="an-earlier-question",
        ),
        pytest.param(
            [p.Finish()],
            [
                ToolOutputErrorChunk("c3", "The approved tool call gave no result."),
                ToolOutputDeniedChunk("c4"),
                ToolOutputAvailableChunk("c7", 1),
                StartStepChunk(),
                FinishStepChunk(),
                FinishChunk("tool-calls", {}),
            ],
            id="what-was-answered-is-settled-at-the-end",
        ),
    ],
)
def test_continuations(sent: list[Part], expected: list[Chunk]) -> None:
    assert continue_with(*sent) == expected


@pytest.mark.parametrize(
    "message",
    [
        {"id": "", "parts": None},
        {"parts": [5, {"type": None}, {"type": "tool-t"}, {"type": "tool-t", "toolCallId": 5}]},
        {
            "id": 7,
            "parts": [{"type": "tool-approval", "toolCallId": "a", "input": {"approvalId": "a", "toolCallId": "gone"}}],
        },
    ],
)
def test_an_odd_message_can_be_continued(message: dict[str, Any]) -> None:
    out = send([p.Text("a")], continues=message)
    assert out[0] == StartChunk("m1")


def test_the_last_part_of_an_id_is_the_one_that_is_spoken_of() -> None:
    twice: list[dict[str, Any]] = [
        {"type": "tool-t", "toolCallId": "c1", "state": state, "input": {}}
        for state in ("output-available", "input-available")
    ]
    out = send([p.Error("x")], continues={"id": "m1", "parts": twice})
    assert [chunk for chunk in out if isinstance(chunk, ToolOutputErrorChunk)] == [
        ToolOutputErrorChunk("c1", BROKEN_OFF)
    ]


def test_a_refused_call_is_a_tool_error_where_denials_are_unknown() -> None:
    assert ToolOutputErrorChunk("c4", "The tool call was denied.") in continue_with(p.Finish(), sdk="any")
