"""Runs beside each other: none is refused, and only what the page may answer is remembered."""

import asyncio

import msgspec

from usechat.agent_ops.app import ConcurrentRuns
from usechat.runs.open_calls import OpenCall
from usechat.runs.run import RunInfo, RunState

CALL = OpenCall("c1", "question", "digest", "a1")


def run(number: int) -> RunInfo:
    return RunInfo(f"run {number}", "chat", f"message {number}", "any")


def ended(info: RunInfo, *calls: OpenCall) -> RunInfo:
    state = RunState.WAITING if calls else RunState.FINISHED
    return msgspec.structs.replace(info, state=state, open_calls=calls)


async def test_a_run_is_never_refused_and_the_last_one_is_known() -> None:
    runs = ConcurrentRuns()
    assert [await runs.claim(run(number)) for number in (1, 2)] == [None, None]
    assert await runs.latest("chat") == run(2)


async def test_what_a_run_asked_is_remembered_for_a_while() -> None:
    runs = ConcurrentRuns(remember=0)
    await runs.claim(run(1))
    assert await runs.end(ended(run(1), CALL))
    assert await runs.latest("chat") == ended(run(1), CALL)
    await asyncio.sleep(0.01)
    assert await runs.latest("chat") is None


async def test_a_run_that_asked_nothing_is_forgotten_at_once() -> None:
    runs = ConcurrentRuns()
    await runs.claim(run(1))
    assert await runs.end(ended(run(1)))
    assert await runs.latest("chat") is None


async def test_a_failed_run_that_was_given_an_answer_is_remembered() -> None:
    runs = ConcurrentRuns()
    await runs.claim(run(1))
    failed = msgspec.structs.replace(run(1), state=RunState.FAILED, given_calls=(CALL,))
    assert await runs.end(failed)
    assert await runs.latest("chat") == failed


async def test_the_end_of_an_earlier_run_changes_nothing() -> None:
    runs = ConcurrentRuns()
    await runs.claim(run(1))
    await runs.claim(run(2))
    await runs.end(ended(run(1), CALL))
    assert await runs.latest("chat") == run(2)
    await runs.end(ended(run(2)))
    assert await runs.end(ended(run(1), CALL))
    assert await runs.latest("chat") is None
