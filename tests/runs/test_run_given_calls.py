"""What a run found open and what outputs it was given: kept for another try when it comes to nothing."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from usechat import parts
from usechat.protocol.request import ChatRequest
from usechat.runs.log import Log
from usechat.runs.open_calls import OpenCall, input_digest
from usechat.runs.run import PreparedRun, Run, RunInfo, RunState
from usechat.runs.settings import Settings
from usechat.sources import as_source
from usechat.turn import Turn, TurnContext, TurnInput

ASK = OpenCall("t1", "ask", input_digest({}))
LOOK = OpenCall("t2", "look", input_digest({}))
REMOVE = OpenCall("t3", "remove", input_digest({}), "a1")
MESSAGE: dict[str, Any] = {
    "id": "m1",
    "role": "assistant",
    "parts": [
        {"type": "tool-ask", "toolCallId": "t1", "state": "output-available", "input": {}, "output": 5},
        {"type": "tool-look", "toolCallId": "t2", "state": "input-available", "input": {}},
        {
            "type": "tool-remove",
            "toolCallId": "t3",
            "state": "approval-requested",
            "input": {},
            "approval": {"id": "a1"},
        },
    ],
}


def made() -> Run:
    return Run(
        PreparedRun(
            RunInfo("r1", "c1", "m1", "7", open_calls=(LOOK, REMOVE), given_calls=(ASK,)),
            TurnContext(TurnInput(ChatRequest.parse({"id": "c1", "messages": [MESSAGE]}))),
            MESSAGE,
        ),
        Log(),
        Settings(),
        on_end=lambda _run: None,
    )


FAILED, STOPPED = RunState.FAILED, RunState.STOPPED


@pytest.mark.parametrize(
    ("items", "state", "answerable"),
    [
        pytest.param([], RunState.WAITING, {LOOK, REMOVE}, id="a good end"),
        pytest.param(
            [parts.ToolResult("t2", 1), parts.ToolDenied("t3")], RunState.FINISHED, set(), id="it did all itself"
        ),
        pytest.param([LookupError()], FAILED, {ASK, LOOK, REMOVE}, id="a failure at once"),
        pytest.param([parts.Text("Well, "), parts.Error("No.")], FAILED, {ASK, LOOK, REMOVE}, id="an error"),
        pytest.param([parts.Abort()], STOPPED, {ASK, LOOK, REMOVE}, id="stopped by the source"),
        pytest.param([parts.ToolResult("t2", 1), LookupError()], FAILED, {ASK, REMOVE}, id="one has a result"),
        pytest.param([parts.ToolError("t2", "No."), LookupError()], FAILED, {ASK, REMOVE}, id="one has failed"),
        pytest.param([parts.ToolDenied("t3"), LookupError()], FAILED, {ASK, LOOK}, id="one was denied"),
        pytest.param([parts.ToolCall("t4", "ask", {}), LookupError()], FAILED, {ASK, LOOK, REMOVE}, id="its own call"),
    ],
)
async def test_what_may_be_answered_afterwards(items: list[Any], state: RunState, answerable: set[OpenCall]) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[Any]:
        for each in items:
            if isinstance(each, Exception):
                raise each
            yield each

    run = made()
    run.start(as_source(agent))
    await run.wait(10)
    assert (run.info.state, set(run.info.answerable)) == (state, answerable)
    assert len(run.info.answerable) == len(answerable), "each once"


async def test_after_a_stop_everything_may_be_answered_again() -> None:
    async def agent(_turn: Turn) -> None:
        await asyncio.Event().wait()

    run = made()
    run.start(as_source(agent))
    run.stop()
    await run.wait(10)
    assert (run.info.state, set(run.info.answerable)) == (STOPPED, {ASK, LOOK, REMOVE})


@pytest.mark.parametrize(
    ("state", "answerable"), [(RunState.RUNNING, (REMOVE,)), (RunState.LOST, (REMOVE, ASK))], ids=["runs", "lost"]
)
def test_other_workers_know_it_too(state: RunState, answerable: tuple[OpenCall, ...]) -> None:
    info = RunInfo("r1", "c1", "m1", "7", state=state, open_calls=(REMOVE,), given_calls=(ASK,))
    assert msgspec.json.decode(msgspec.json.encode(info), type=RunInfo) == info
    assert info.answerable == answerable
