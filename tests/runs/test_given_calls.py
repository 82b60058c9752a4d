"""What a run was answered: kept for another try when it breaks off, without the approvals whose tools did run."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from usechat import parts
from usechat.requests import ChatRequest
from usechat.runs.log import Log
from usechat.runs.open_calls import OpenCall, input_digest
from usechat.runs.run import Run, RunInfo, RunState, Timeouts
from usechat.stream import MessageStream
from usechat.transport import as_source
from usechat.turn import Turn

ASK = OpenCall("t1", "ask", input_digest({}))
REMOVE = OpenCall("t2", "remove", input_digest({}), "a1")
MESSAGE: dict[str, Any] = {
    "id": "m1",
    "role": "assistant",
    "parts": [
        {"type": "tool-ask", "toolCallId": "t1", "state": "output-available", "input": {}, "output": 5},
        {
            "type": "tool-remove",
            "toolCallId": "t2",
            "state": "approval-responded",
            "input": {},
            "approval": {"id": "a1", "approved": True},
        },
    ],
}


def made() -> Run:
    return Run(
        RunInfo("r1", "c1", "m1", "7", given_calls=(ASK, REMOVE)),
        Turn(ChatRequest.parse({"id": "c1", "messages": [MESSAGE]})),
        MessageStream(message_id="m1", sdk="7", continues=MESSAGE),
        Log(),
        timeouts=Timeouts(),
        describe=lambda _error, _info: "Broken.",
        on_end=lambda _run: None,
    )


@pytest.mark.parametrize(
    ("said", "state", "given"),
    [
        pytest.param([], RunState.FINISHED, (), id="a good end"),
        pytest.param([parts.ToolCall("t3", "ask", {})], RunState.WAITING, (), id="another question"),
        pytest.param([LookupError()], RunState.FAILED, (ASK, REMOVE), id="a failure at once"),
        pytest.param([parts.Text("Well, "), parts.Error("No.")], RunState.FAILED, (ASK, REMOVE), id="an error"),
        pytest.param([parts.Abort()], RunState.STOPPED, (ASK, REMOVE), id="stopped by the source"),
        pytest.param([parts.ToolResult("t2", 1), LookupError()], RunState.FAILED, (ASK,), id="the tool ran"),
        pytest.param(
            [parts.ToolResult("t2", 1, preliminary=True), LookupError()], RunState.FAILED, (ASK,), id="the tool began"
        ),
        pytest.param([parts.ToolError("t2", "No."), LookupError()], RunState.FAILED, (ASK,), id="the tool failed"),
        pytest.param([parts.ToolDenied("t2"), LookupError()], RunState.FAILED, (ASK,), id="the tool was denied"),
        pytest.param([parts.ToolResult("t1", 5), LookupError()], RunState.FAILED, (ASK, REMOVE), id="an echo"),
        pytest.param(
            [parts.ApprovalResponse("a1", True), LookupError()], RunState.FAILED, (ASK, REMOVE), id="no more than heard"
        ),
    ],
)
async def test_what_is_left_of_the_answers(said: list[Any], state: RunState, given: tuple[OpenCall, ...]) -> None:
    async def agent(_turn: Turn) -> AsyncIterator[Any]:
        for each in said:
            if isinstance(each, Exception):
                raise each
            yield each

    run = made()
    run.start(as_source(agent))
    await run.wait(10)
    assert (run.info.state, run.info.given_calls) == (state, given)


async def test_a_run_that_is_stopped_keeps_what_it_was_given() -> None:
    async def agent(_turn: Turn) -> None:
        await asyncio.Event().wait()

    run = made()
    run.start(as_source(agent))
    run.stop()
    await run.wait(10)
    assert (run.info.state, run.info.given_calls) == (RunState.STOPPED, (ASK, REMOVE))


def test_other_workers_know_it_too() -> None:
    info = RunInfo("r1", "c1", "m1", "7", open_calls=(REMOVE,), given_calls=(ASK, REMOVE))
    assert msgspec.json.decode(msgspec.json.encode(info), type=RunInfo) == info
