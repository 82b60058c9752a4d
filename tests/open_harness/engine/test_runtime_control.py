"""Commands: send, reply, pause, resume, stop, abort; and what a cancelled run leaves behind."""

import asyncio
from typing import Any, Final

import pytest

from tests.open_harness.flow_runs import EventLog, constant, edge, flow, python, run
from usechat.errors import InvalidSetting
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.errors import NotResumable

PATIENCE: Final = 30.0


class Running:
    """A flow that runs in a task of its own."""

    def __init__(self, *nodes: dict[str, Any], edges: tuple[dict[str, Any], ...] = (), **options: Any) -> None:
        self.runtime = FlowRuntime(flow(*nodes, edges=edges, **options))
        self.log = EventLog(self.runtime)
        self.task = asyncio.create_task(self.runtime.run({"message": "hi"}))

    async def until(self, line: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while line not in self.log.brief():  # noqa: ASYNC110 (the flow runs in this loop)
                await asyncio.sleep(0)

    def run_id(self, node: str) -> str:
        return next(str(event["runId"]) for event in self.log.of("node:start") if event["nodeId"] == node)


async def test_what_is_sent_to_a_running_node_is_in_its_inbox() -> None:
    running = Running(python("a", "waits_for_a_message"))
    await running.until("agent:text:delta a.1")
    running.runtime.dispatch({"type": "send", "message": "Ann", "runId": running.run_id("a")})
    snapshot = await running.task
    assert snapshot["outputs"]["a"] == {"text": "What is your name? Hello Ann"}
    assert snapshot["inbox"] == []


async def test_what_is_sent_to_nobody_stays_in_the_snapshot() -> None:
    running = Running(python("a", "waits_for_a_message"))
    await running.until("agent:text:delta a.1")
    lost = {"type": "send", "message": "Bob", "runId": "a run id of my own"}
    running.runtime.dispatch(lost)
    running.runtime.dispatch({"type": "reply", "promptId": "p", "message": "x", "runId": running.run_id("a")})
    assert (await running.task)["inbox"] == [lost]


@pytest.mark.parametrize("kind", ["send", "reply"])
async def test_a_send_without_a_run_id_is_told_and_then_refused(kind: str) -> None:
    runtime = FlowRuntime(flow(constant("a")))
    log = EventLog(runtime)
    with pytest.raises(InvalidSetting, match=r"^Runtime command missing runId$"):
        runtime.dispatch({"type": kind, "message": "hi"})
    assert log.named() == [{"type": "command:received", "command": {"type": kind, "message": "hi"}}]


async def test_an_unknown_command_is_told_and_does_nothing() -> None:
    runtime = FlowRuntime(flow(constant("a")))
    log = EventLog(runtime)
    runtime.dispatch({"type": "dance"})
    assert (log.brief(), runtime.get_snapshot()["status"]) == (["command:received dance"], "idle")


@pytest.mark.parametrize(
    ("command", "event", "status"),
    [
        ({"type": "pause"}, "flow:paused", "paused"),
        ({"type": "abort", "resumable": True}, "flow:paused", "paused"),
        ({"type": "stop"}, "flow:aborted", "aborted"),
        ({"type": "abort"}, "flow:aborted", "aborted"),
        ({"type": "abort", "resumable": False, "reason": "enough"}, "flow:aborted", "aborted"),
    ],
)
async def test_both_generations_of_commands_end_the_run(command: dict[str, Any], event: str, status: str) -> None:
    running = Running(python("a", "never_ends"), constant("b"), edges=(edge("a->b"),))
    await running.until("node:start a.1")
    running.runtime.dispatch(command)
    snapshot = await running.task
    assert running.log.brief()[2:] == [f"command:received {command['type']}", event]
    assert (snapshot["status"], snapshot["nodeStatus"]) == (status, {"a": "running", "b": "pending"})


async def test_a_node_that_ends_well_although_it_was_stopped_was_stopped() -> None:
    running = Running(python("a", "ignores_its_stop"))
    await running.until("node:start a.1")
    running.runtime.stop()
    assert (await running.task)["nodeStatus"] == {"a": "running"}
    assert running.log.brief()[-1] == "flow:aborted"


async def test_a_stopped_run_is_not_resumable() -> None:
    running = Running(python("a", "never_ends"))
    await running.until("node:start a.1")
    running.runtime.stop()
    await running.task
    for again in (running.runtime.run, running.runtime.resume):
        with pytest.raises(NotResumable):
            await again()


async def test_resume_runs_the_interrupted_node_anew_with_the_message() -> None:
    running = Running(constant("first"), python("ask", "asks_and_pauses"), edges=(edge("first->ask"),))
    assert (await running.task)["status"] == "paused"
    snapshot = await running.runtime.resume("blue")
    assert snapshot["outputs"]["ask"] == {"answer": "blue", "inbox": ["blue"]}
    assert running.log.brief()[-8:] == [
        "node:start ask.1",
        "command:received pause",
        "flow:paused",
        "command:received resume",
        "flow:resumed",
        "node:start ask.2",
        "node:complete ask.2",
        "flow:complete complete",
    ]


async def test_a_paused_run_goes_on_with_the_word_continue_if_nothing_else_is_said() -> None:
    running = Running(python("ask", "asks_and_pauses"))
    await running.task
    assert (await running.runtime.run())["outputs"]["ask"]["answer"] == "continue"


async def test_what_was_sent_before_the_pause_is_not_lost() -> None:
    running = Running(python("ask", "asks_and_pauses"))
    await running.until("node:start ask.1")
    running.runtime.dispatch({"type": "send", "message": "first", "runId": running.run_id("ask")})
    await running.task
    snapshot = await running.runtime.resume("second")
    assert snapshot["outputs"]["ask"] == {"answer": "second", "inbox": ["first", "second"]}


async def test_the_command_resume_goes_on_in_the_background() -> None:
    running = Running(python("ask", "asks_and_pauses"))
    await running.task
    running.runtime.dispatch({"type": "resume", "message": "green"})
    await running.until("flow:complete complete")
    assert running.runtime.get_snapshot()["outputs"]["ask"]["answer"] == "green"


async def test_a_resume_that_comes_before_the_nodes_are_gone_waits_for_them() -> None:
    running = Running(python("a", "ignores_its_stop"), python("ask", "asks_and_pauses"))
    await running.until("node:start a.1")
    running.runtime.pause()
    resumed = asyncio.create_task(running.runtime.resume("now"))
    await running.until("node:start a.2")
    running.runtime.stop()
    assert (await resumed)["status"] == "aborted"


async def test_items_of_a_list_that_were_done_before_the_pause_are_not_run_again() -> None:
    running = Running(
        constant("list", [1, 2, 3]),
        python("item", "pauses_at", input={"item": "{{ it }}", "last": 2}),
        edges=(edge("list->item", forEach={"in": "{{ list.value }}", "as": "it"}),),
    )
    assert (await running.task)["status"] == "paused"
    snapshot = await running.runtime.resume("go")
    assert [each["output"] for each in snapshot["outputs"]["item"]["iterations"]] == [1, 2, 3]
    assert snapshot["state"] == {"count": 3}


async def test_a_node_may_talk_as_long_as_it_likes() -> None:
    running = Running(python("a", "talks_until_bye"))
    await running.until("agent:text:delta a.1")
    for message in ("one", "two", "bye"):
        running.runtime.dispatch({"type": "send", "message": message, "runId": running.run_id("a")})
    assert (await running.task)["outputs"]["a"] == {"text": "Go on. one! two! "}


async def test_a_paused_run_can_be_stopped() -> None:
    running = Running(python("ask", "asks_and_pauses"))
    await running.task
    running.runtime.stop()
    assert (running.log.brief()[-1], running.runtime.get_snapshot()["status"]) == ("flow:aborted", "aborted")


async def test_nothing_happens_to_a_run_that_has_ended() -> None:
    log, _ = await run(flow(constant("a")))
    runtime = FlowRuntime(flow(constant("a")))
    await runtime.run()
    late = EventLog(runtime)
    runtime.stop()
    runtime.pause()
    runtime.dispatch({"type": "resume"})
    assert late.brief() == ["command:received stop", "command:received pause", "command:received resume"]
    assert log.brief()[-1] == "flow:complete complete"


async def test_a_cancelled_run_stops_its_nodes_first() -> None:
    running = Running(python("a", "never_ends"), python("b", "never_ends"), parallel=True)
    await running.until("node:start b.1")
    running.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running.task
    assert running.log.brief()[-1] == "flow:aborted"
    assert running.runtime.get_snapshot()["status"] == "aborted"
