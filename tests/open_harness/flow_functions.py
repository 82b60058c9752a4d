"""Functions that the flows of tests run."""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from typing import Any

from usechat.open_harness.nodes.context import NodeContext

attempts: dict[str, int] = {}
"""How often each failing node was tried, by the name its test gave."""

together: list[str] = []
"""The nodes that run at the same time, now."""

most_together: list[int] = []

left_behind = threading.Event()


def plain(fields: Mapping[str, Any]) -> Any:
    return {"doubled": fields["number"] * 2, "thread": threading.current_thread() is not threading.main_thread()}


async def asynchronous(fields: Mapping[str, Any], context: NodeContext) -> Any:
    await asyncio.sleep(0)
    return f"{context.node_id} got {fields}"


def without_arguments() -> str:
    return "nothing was asked"


async def said(fields: Mapping[str, Any], context: NodeContext) -> AsyncIterator[Any]:  # noqa: ARG001
    yield {"type": "agent:thinking:delta", "content": "hm"}
    yield {"type": "agent:thinking", "content": "hm"}
    yield "Hel"
    yield "lo"


def said_in_a_thread(fields: Mapping[str, Any]) -> Iterator[str]:
    yield from fields["words"]


def said_and_returned(_fields: Mapping[str, Any]) -> Generator[str, None, Any]:
    yield "working"
    return {"answer": 42}


async def garbage(_fields: Mapping[str, Any], _context: NodeContext) -> AsyncIterator[Any]:
    yield "good"
    yield object()


def fails(fields: Mapping[str, Any]) -> Any:
    raise RuntimeError(fields.get("text", "it broke"))


def fails_until(fields: Mapping[str, Any]) -> Any:
    name = fields["name"]
    attempts[name] = attempts.get(name, 0) + 1
    if attempts[name] < fields["good"]:
        raise RuntimeError(f"attempt {attempts[name]}")
    return attempts[name]


def leaves(_fields: Mapping[str, Any]) -> Any:
    sys.exit("good bye")


async def never_ends(_fields: Mapping[str, Any], _context: NodeContext) -> Any:
    await asyncio.Event().wait()


async def says_and_never_ends(_fields: Mapping[str, Any], context: NodeContext) -> AsyncIterator[Any]:
    yield "begun"
    await asyncio.Event().wait()
    yield context.node_id


def blocks(_fields: Mapping[str, Any], context: NodeContext) -> Any:
    while not context.stopped:
        time.sleep(0.005)
    left_behind.set()


async def ignores_its_stop(_fields: Mapping[str, Any], _context: NodeContext) -> Any:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    return "went on regardless"


async def waits_for_a_message(_fields: Mapping[str, Any], context: NodeContext) -> AsyncIterator[Any]:
    yield "What is your name? "
    command = await context.inbox.receive()
    yield f"Hello {command['message']}"


async def asks_and_pauses(_fields: Mapping[str, Any], context: NodeContext) -> Any:
    if context.resume_message is None:
        context.pause()
        await asyncio.Event().wait()
    return {"answer": context.resume_message, "inbox": [command["message"] for command in context.inbox.waiting()]}


async def counts(_fields: Mapping[str, Any], context: NodeContext) -> Any:
    context.state.set("count", (context.state.get("count") or 0) + 1)
    return {"count": context.state.get("count")}


def counts_in_a_thread(_fields: Mapping[str, Any], context: NodeContext) -> Any:
    context.state.merge("threads", {"main": threading.current_thread() is threading.main_thread()})


async def talks_until_bye(_fields: Mapping[str, Any], context: NodeContext) -> AsyncIterator[Any]:
    yield "Go on. "
    async for command in context.inbox:
        if command["message"] == "bye":
            return
        yield f"{command['message']}! "


async def pauses_at(fields: Mapping[str, Any], context: NodeContext) -> Any:
    if fields["item"] == fields["last"] and context.resume_message is None:
        context.pause()
        await asyncio.Event().wait()
    context.state.set("count", (context.state.get("count") or 0) + 1)
    return fields["item"]


async def meets(fields: Mapping[str, Any], context: NodeContext) -> Any:
    """Wait until as many nodes as expected run at the same time."""
    together.append(context.node_id)
    most_together.append(len(together))
    while fields.get("expected", 1) > max(most_together):  # noqa: ASYNC110 (the others are other nodes)
        await asyncio.sleep(0.001)
    together.remove(context.node_id)
    return context.node_id


async def waits_for_a_resume(_fields: Mapping[str, Any], context: NodeContext) -> Any:
    """Wait for ever, unless the flow was resumed."""
    if context.resume_message is None:
        sys.stdout.write("waiting\n")
        sys.stdout.flush()
        await asyncio.Event().wait()
    return {"text": context.resume_message}
