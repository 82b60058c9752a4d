"""What agents remember: per chat, per owner, over turns, pauses and restarts."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.open_harness.flow_runs import EventLog, constant, edge, flow, run
from tests.open_harness.scripted_models import Script, call
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.engine.sqlite_store import SqliteRunStore
from usechat.open_harness.engine.store import MemoryRunStore
from usechat.protocol.request import ChatRequest
from usechat.turn import Identity, TurnContext, TurnInput

CHAT: Final = flow({"id": "a", "type": "agent", "input": {"prompt": "{{ flow.input.message }}"}})
PATIENCE: Final = 30.0


def turn(text: str, chat_id: str = "c1", *, message_ids: str = "") -> Mapping[str, Any]:
    """Return a flow's input; `message_ids` are the ids of the user's messages that the page sends."""
    flow_input: dict[str, Any] = {"message": text, "chatId": chat_id}
    if message_ids:
        flow_input["messages"] = [{"id": message_id, "role": "user", "parts": []} for message_id in message_ids.split()]
    return flow_input


async def test_the_second_turn_of_a_chat_knows_the_first() -> None:
    store, script = MemoryRunStore(), Script(["Hello Ann."], ["You are Ann."])
    first, _ = await run(CHAT, turn("I am Ann."), store=store, registry=script.registry)
    second, _ = await run(CHAT, turn("Who am I?"), store=store, registry=script.registry)
    assert script.requests[1] == [("user-prompt", "I am Ann."), ("text", "Hello Ann."), ("user-prompt", "Who am I?")]
    assert first.of("agent:start")[0]["sessionId"] == second.of("agent:start")[0]["sessionId"]


async def test_a_chat_has_a_memory_without_any_store() -> None:
    script = Script(["one"], ["two"])
    for text in ("first", "second"):
        await run(CHAT, turn(text, "a chat of its own"), registry=script.registry)
    assert script.requests[1][0] == ("user-prompt", "first")


async def test_chats_and_owners_and_nodes_do_not_know_each_other() -> None:
    store, script = MemoryRunStore(), Script()
    for chat_id, owner in (("c1", "ann"), ("c2", "ann"), ("c1", "bob")):
        await run(CHAT, turn("hi", chat_id), store=store, registry=script.registry, owner=owner)
    assert script.requests == [[("user-prompt", "hi")]] * 3
    both = flow(*({"id": name, "type": "agent", "input": {"prompt": name}} for name in "xy"))
    await run(both, turn("hi"), store=store, registry=script.registry)
    assert script.requests[3:] == [[("user-prompt", "x")], [("user-prompt", "y")]]


async def test_who_asks_in_the_turn_that_runs_is_the_owner() -> None:
    store, script = MemoryRunStore(), Script()
    request = ChatRequest(chat_id="c1", messages=[{"id": "1", "role": "user", "parts": []}])

    async def ask(subject: str) -> Any:
        TurnContext(TurnInput(request, identity=Identity(subject))).enter()
        _, snapshot = await run(CHAT, turn("hi"), store=store, registry=script.registry)
        return snapshot["owner"]

    assert [await asyncio.create_task(ask(subject)) for subject in ("ann", "bob")] == ["ann", "bob"]
    assert script.requests[1] == [("user-prompt", "hi")]


FIRST: Final = [("user-prompt", "first"), ("text", "one")]
SECOND: Final = [("user-prompt", "second"), ("text", "two")]


@pytest.mark.parametrize(
    ("message_ids", "remembered"),
    [
        ("m1 m2 m3", [*FIRST, *SECOND]),
        ("m3", [*FIRST, *SECOND]),
        ("m1 m2", FIRST),
        ("m2", FIRST),
        ("m1 edited", FIRST),
        ("m1", []),
    ],
    ids=["a new one", "a new one alone", "regenerated", "regenerated alone", "edited under a new id", "the first anew"],
)
async def test_an_agent_forgets_only_what_was_regenerated_or_edited(message_ids: str, remembered: list[Any]) -> None:
    """A page that sends its last message alone must not make the agent forget the others."""
    store, script = MemoryRunStore(), Script(["one"], ["two"], ["three"])
    for text, messages in (("first", "m1"), ("second", "m1 m2"), ("third", message_ids)):
        await run(CHAT, turn(text, message_ids=messages), store=store, registry=script.registry)
    assert script.requests[2] == [*remembered, ("user-prompt", "third")]


async def test_what_was_forgotten_stays_forgotten_in_later_turns() -> None:
    store, script = MemoryRunStore(), Script(["one"], ["two"], ["two again"], ["three"])
    for text, message_ids in (("first", "m1"), ("second", "m2"), ("second, better", "m2"), ("third", "m3")):
        await run(CHAT, turn(text, message_ids=message_ids), store=store, registry=script.registry)
    better = [("user-prompt", "second, better"), ("text", "two again")]
    assert script.requests[3] == [*FIRST, *better, ("user-prompt", "third")]


async def test_an_agent_in_a_loop_remembers_its_rounds_and_items_of_a_list_are_strangers() -> None:
    loop = flow(
        {"id": "a", "type": "agent", "input": {"prompt": "round"}},
        edges=(edge("a->a", when="a.text != 'good'", maxIterations=5),),
    )
    script = Script(["bad"], ["good"])
    await run(loop, turn("x"), store=MemoryRunStore(), registry=script.registry)
    assert script.requests[1] == [("user-prompt", "round"), ("text", "bad"), ("user-prompt", "round")]
    items = flow(
        constant("list", ["x", "y"]),
        {"id": "a", "type": "agent", "input": {"prompt": "{{ it }}"}},
        edges=(edge("list->a", forEach={"in": "{{ list.value }}", "as": "it"}),),
    )
    script = Script()
    await run(items, turn("x"), store=MemoryRunStore(), registry=script.registry)
    assert script.requests == [[("user-prompt", "x")], [("user-prompt", "y")]]


async def paused_after(runtime: FlowRuntime, log: EventLog, events: str, flow_input: Mapping[str, Any]) -> None:
    task = asyncio.create_task(runtime.run(flow_input))
    async with asyncio.timeout(PATIENCE):
        while events not in log.types:  # noqa: ASYNC110 (the flow runs in this loop)
            await asyncio.sleep(0)
    runtime.pause()
    assert (await task)["status"] == "paused"


async def test_a_paused_agent_goes_on_knowing_what_it_had_said() -> None:
    script = Script(["I think", asyncio.Event()], ["the end"])
    runtime = FlowRuntime(CHAT, registry=script.registry, store=MemoryRunStore())
    log = EventLog(runtime)
    await paused_after(runtime, log, "agent:text:delta", turn("Tell me."))
    assert log.types[-3:] == ["command:received", "flow:paused", "agent:paused"]
    snapshot = await runtime.resume("go on")
    assert script.requests[1] == [("user-prompt", "Tell me."), ("text", "I think"), ("user-prompt", "go on")]
    assert snapshot["outputs"]["a"]["text"] == "the end"


async def test_a_stopped_agent_says_so_after_the_flow_has() -> None:
    script = Script(["I think", asyncio.Event()])
    runtime = FlowRuntime(CHAT, registry=script.registry, store=MemoryRunStore())
    log = EventLog(runtime)
    task = asyncio.create_task(runtime.run(turn("Tell me.")))
    async with asyncio.timeout(PATIENCE):
        while "agent:text:delta" not in log.types:  # noqa: ASYNC110 (the flow runs in this loop)
            await asyncio.sleep(0)
    runtime.stop()
    await task
    assert log.types[-3:] == ["command:received", "flow:aborted", "agent:aborted"]


async def test_a_paused_agent_remembers_after_a_restart(tmp_path: Path) -> None:
    with SqliteRunStore(tmp_path / "runs.db") as store:
        runtime = FlowRuntime(CHAT, registry=Script(["I think", asyncio.Event()]).registry, store=store)
        await paused_after(runtime, EventLog(runtime), "agent:text:delta", turn("Tell me."))
    script = Script(["the end"])
    with SqliteRunStore(tmp_path / "runs.db") as store:
        run_id = store.unfinished_run("c1")
        again = FlowRuntime(CHAT, registry=script.registry, store=store, resume={"runId": run_id})
        snapshot = await again.resume("go on")
    assert script.requests == [[("user-prompt", "Tell me."), ("text", "I think"), ("user-prompt", "go on")]]
    assert (snapshot["runId"], snapshot["status"]) == (runtime.run_id, "complete")


async def test_an_agent_whose_process_ended_is_asked_its_question_again_with_the_next_message() -> None:
    """Nothing of the turn was stored, so that is what it has to be asked, whatever was said before."""
    store, script = MemoryRunStore(), Script(["Hello."], [asyncio.Event()], ["the end"])
    await run(CHAT, turn("I am Ann.", message_ids="m1"), store=store, registry=script.registry)
    runtime = FlowRuntime(CHAT, registry=script.registry, store=store)
    crashed = asyncio.create_task(runtime.run(turn("Tell me.", message_ids="m1 m2")))
    async with asyncio.timeout(PATIENCE):
        while len(script.requests) < 2:  # noqa: ASYNC110 (the flow runs in this loop)
            await asyncio.sleep(0)
    snapshot = store.load_snapshot(runtime.run_id)
    assert snapshot is not None
    again = FlowRuntime(CHAT, registry=script.registry, store=store, resume={"snapshot": snapshot})
    await again.resume("Please.")
    assert script.requests[2] == [
        ("user-prompt", "I am Ann."),
        ("text", "Hello."),
        ("user-prompt", "Tell me.\n\nPlease."),
    ]
    crashed.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await crashed


def sent_to(runtime: FlowRuntime, log: EventLog, text: str, message_id: str) -> None:
    run_id = log.of("node:start")[-1]["runId"]
    runtime.dispatch({"type": "send", "message": text, "runId": run_id, "messageId": message_id})


@pytest.mark.parametrize(("edited", "is_kept"), [("m1 m2", False), ("m1 new", False), ("m1 m2 m3", True)])
@pytest.mark.parametrize("how", ["running", "paused"])
async def test_an_edited_message_that_went_to_a_flow_which_had_begun_is_forgotten_too(
    how: str, edited: str, is_kept: bool
) -> None:
    store, waits = MemoryRunStore(), asyncio.Event()
    script = Script(["I think", waits], ["the end"], ["later"])
    runtime = FlowRuntime(CHAT, registry=script.registry, store=store)
    log = EventLog(runtime)
    if how == "paused":
        await paused_after(runtime, log, "agent:text:delta", turn("Tell me.", message_ids="m1"))
        request = ChatRequest(chat_id="c1", messages=[{"id": "m2", "role": "user", "parts": []}])

        async def resume() -> None:
            TurnContext(TurnInput(request)).enter()
            await runtime.resume("Faster.")

        await asyncio.create_task(resume())
    else:
        task = asyncio.create_task(runtime.run(turn("Tell me.", message_ids="m1")))
        async with asyncio.timeout(PATIENCE):
            while "agent:text:delta" not in log.types:  # noqa: ASYNC110 (the flow runs in this loop)
                await asyncio.sleep(0)
        sent_to(runtime, log, "Faster.", "m2")
        await asyncio.sleep(0)
        waits.set()
        await task
    assert ("user-prompt", "Faster.") in script.requests[1]
    await run(CHAT, turn("Slower.", message_ids=edited), store=store, registry=script.registry)
    beginning = [("user-prompt", "Tell me."), ("text", "I think")]
    reply = [("user-prompt", "Faster."), ("text", "the end")] if is_kept else []
    assert script.requests[2] == [*beginning, *reply, ("user-prompt", "Slower.")]


async def test_a_message_that_came_while_a_tool_ran_is_forgotten_and_the_call_keeps_its_result() -> None:
    """Providers refuse a history in which a call has none."""
    store = MemoryRunStore()
    script = Script([call("wait_for_a_message")], ["the end"], ["later"])
    described = flow(
        {
            "id": "a",
            "type": "agent",
            "input": {"prompt": "{{ flow.input.message }}", "tools": [f"{__name__}:wait_for_a_message"]},
        }
    )
    runtime = FlowRuntime(described, registry=script.registry, store=store)
    log = EventLog(runtime)
    WAITING.clear()
    task = asyncio.create_task(runtime.run(turn("Tell me.", message_ids="m1")))
    async with asyncio.timeout(PATIENCE):
        while not log.of("agent:tool"):  # noqa: ASYNC110 (the flow runs in this loop)
            await asyncio.sleep(0)
    sent_to(runtime, log, "Faster.", "m2")
    await asyncio.sleep(0)
    WAITING.set()
    await task
    assert ("user-prompt", "Faster.") in script.requests[1]
    await run(described, turn("Slower.", message_ids="m1 m2"), store=store, registry=script.registry)
    assert script.requests[2] == [
        ("user-prompt", "Tell me."),
        ("tool-call", "{}"),
        ("tool-return", "done"),
        ("user-prompt", "Slower."),
    ]


WAITING = asyncio.Event()


async def wait_for_a_message() -> str:
    await WAITING.wait()
    return "done"
