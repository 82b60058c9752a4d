"""What agents remember: per chat, per owner, over turns, pauses and restarts."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.open_harness.flow_runs import Heard, constant, edge, flow, run
from tests.open_harness.scripted_models import Script
from usechat.open_harness.engine.runtime import FlowRuntime
from usechat.open_harness.engine.sqlite_store import SqliteRunStore
from usechat.open_harness.engine.store import MemoryRunStore
from usechat.protocol.request import ChatRequest
from usechat.turn import Identity, TurnContext

CHAT: Final = flow({"id": "a", "type": "agent", "input": {"prompt": "{{ flow.input.message }}"}})
PATIENCE: Final = 30.0


def turn(text: str, chat_id: str = "c1", before: int | None = None) -> Mapping[str, Any]:
    """Return a flow's input; `before` says how many user's messages the page shows before this one."""
    given: dict[str, Any] = {"message": text, "chatId": chat_id}
    if before is not None:
        given["messages"] = [{"id": "1", "role": "user", "parts": []}] * (before + 1)
    return given


async def test_the_second_turn_of_a_chat_knows_the_first() -> None:
    store, script = MemoryRunStore(), Script(["Hello Ann."], ["You are Ann."])
    first, _ = await run(CHAT, turn("I am Ann."), store=store, registry=script.registry)
    second, _ = await run(CHAT, turn("Who am I?"), store=store, registry=script.registry)
    assert script.asked[1] == [("user-prompt", "I am Ann."), ("text", "Hello Ann."), ("user-prompt", "Who am I?")]
    assert first.of("agent:start")[0]["sessionId"] == second.of("agent:start")[0]["sessionId"]


async def test_a_chat_has_a_memory_without_any_store() -> None:
    script = Script(["one"], ["two"])
    for text in ("first", "second"):
        await run(CHAT, turn(text, "a chat of its own"), registry=script.registry)
    assert script.asked[1][0] == ("user-prompt", "first")


async def test_chats_and_owners_and_nodes_do_not_know_each_other() -> None:
    store, script = MemoryRunStore(), Script()
    for chat_id, owner in (("c1", "ann"), ("c2", "ann"), ("c1", "bob")):
        await run(CHAT, turn("hi", chat_id), store=store, registry=script.registry, owner=owner)
    assert script.asked == [[("user-prompt", "hi")]] * 3
    both = flow(*({"id": name, "type": "agent", "input": {"prompt": name}} for name in "xy"))
    await run(both, turn("hi"), store=store, registry=script.registry)
    assert script.asked[3:] == [[("user-prompt", "x")], [("user-prompt", "y")]]


async def test_who_asks_in_the_turn_that_runs_is_the_owner() -> None:
    store, script = MemoryRunStore(), Script()
    request = ChatRequest(chat_id="c1", messages=[{"id": "1", "role": "user", "parts": []}])

    async def ask(subject: str) -> Any:
        TurnContext(request, identity=Identity(subject)).enter()
        _, snapshot = await run(CHAT, turn("hi"), store=store, registry=script.registry)
        return snapshot["owner"]

    assert [await asyncio.create_task(ask(subject)) for subject in ("ann", "bob")] == ["ann", "bob"]
    assert script.asked[1] == [("user-prompt", "hi")]


async def test_an_answer_that_is_asked_for_anew_forgets_the_old_one() -> None:
    store, script = MemoryRunStore(), Script(["one"], ["two"], ["two again"])
    for text, before in (("first", 0), ("second", 1), ("second, but better", 1)):
        await run(CHAT, turn(text, before=before), store=store, registry=script.registry)
    assert script.asked[2] == [("user-prompt", "first"), ("text", "one"), ("user-prompt", "second, but better")]


async def test_an_agent_in_a_loop_remembers_its_rounds_and_items_of_a_list_are_strangers() -> None:
    loop = flow(
        {"id": "a", "type": "agent", "input": {"prompt": "round"}},
        edges=(edge("a->a", when="a.text != 'good'", maxIterations=5),),
    )
    script = Script(["bad"], ["good"])
    await run(loop, turn("x"), store=MemoryRunStore(), registry=script.registry)
    assert script.asked[1] == [("user-prompt", "round"), ("text", "bad"), ("user-prompt", "round")]
    items = flow(
        constant("list", ["x", "y"]),
        {"id": "a", "type": "agent", "input": {"prompt": "{{ it }}"}},
        edges=(edge("list->a", forEach={"in": "{{ list.value }}", "as": "it"}),),
    )
    script = Script()
    await run(items, turn("x"), store=MemoryRunStore(), registry=script.registry)
    assert script.asked == [[("user-prompt", "x")], [("user-prompt", "y")]]


async def paused_after(runtime: FlowRuntime, heard: Heard, events: str, given: Mapping[str, Any]) -> None:
    task = asyncio.create_task(runtime.run(given))
    async with asyncio.timeout(PATIENCE):
        while events not in heard.types:  # noqa: ASYNC110 (the flow runs in this loop)
            await asyncio.sleep(0)
    runtime.pause()
    assert (await task)["status"] == "paused"


async def test_a_paused_agent_goes_on_knowing_what_it_had_said() -> None:
    script = Script(["I think", asyncio.Event()], ["the end"])
    runtime = FlowRuntime(CHAT, registry=script.registry, store=MemoryRunStore())
    heard = Heard(runtime)
    await paused_after(runtime, heard, "agent:text:delta", turn("Tell me."))
    assert heard.types[-3:] == ["command:received", "flow:paused", "agent:paused"]
    snapshot = await runtime.resume("go on")
    assert script.asked[1] == [("user-prompt", "Tell me."), ("text", "I think"), ("user-prompt", "go on")]
    assert snapshot["outputs"]["a"]["text"] == "the end"


async def test_a_stopped_agent_says_so_after_the_flow_has() -> None:
    script = Script(["I think", asyncio.Event()])
    runtime = FlowRuntime(CHAT, registry=script.registry, store=MemoryRunStore())
    heard = Heard(runtime)
    task = asyncio.create_task(runtime.run(turn("Tell me.")))
    async with asyncio.timeout(PATIENCE):
        while "agent:text:delta" not in heard.types:  # noqa: ASYNC110 (the flow runs in this loop)
            await asyncio.sleep(0)
    runtime.stop()
    await task
    assert heard.types[-3:] == ["command:received", "flow:aborted", "agent:aborted"]


async def test_a_paused_agent_remembers_after_a_restart(tmp_path: Path) -> None:
    with SqliteRunStore(tmp_path / "runs.db") as store:
        runtime = FlowRuntime(CHAT, registry=Script(["I think", asyncio.Event()]).registry, store=store)
        await paused_after(runtime, Heard(runtime), "agent:text:delta", turn("Tell me."))
    script = Script(["the end"])
    with SqliteRunStore(tmp_path / "runs.db") as store:
        run_id = store.paused_run("c1")
        again = FlowRuntime(CHAT, registry=script.registry, store=store, resume={"runId": run_id})
        snapshot = await again.resume("go on")
    assert script.asked == [[("user-prompt", "Tell me."), ("text", "I think"), ("user-prompt", "go on")]]
    assert (snapshot["runId"], snapshot["status"]) == (runtime.run_id, "complete")
