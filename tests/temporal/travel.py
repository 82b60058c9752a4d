"""A workflow of one's own, for the tests: a model of three steps and two tools. As a program it is a worker.

The body of a request says how fast the model writes, which file notes the tools that ran, and for which file (`gate`)
the tool `waiting` waits; without such a tool, the last step waits for it in mid-text.
"""

import asyncio
import sys
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from time import sleep
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client
from temporalio.worker import Worker

from usechat import replayable
from usechat.errors import PublicError
from usechat.parts import ApprovalRequest, Step, Text, ToolCall, ToolDenied, ToolResult
from usechat.temporal import WorkflowAnswer, publish, turn_of, worker_plugin

SCRIPT = (
    ("I look at the weather in Oslo first.", ToolCall("c1", "weather", {"city": "Oslo"})),
    ("It is sunny there, so I book the journey.", ToolCall("c2", "book", {"city": "Oslo"})),
    ("Your journey to Oslo is booked.", None),
)
TEXTS = [text for text, _ in SCRIPT]


@activity.defn
async def request(number: int, body: dict[str, Any]) -> None:
    """Say what the model says in one step, word by word."""
    text, call = SCRIPT[number]
    note(body, f"request {number}")
    async with publish() as say:
        for word in text.split(" "):
            if number == len(SCRIPT) - 1 and text.index(word) > len(text) // 2 and "waiting" not in body:
                await pass_gate(body)
            say(word if word == text.split(" ")[0] else f" {word}")
            await asyncio.sleep(body.get("delay", 0))
        if call is not None:
            say(call)


@activity.defn
@replayable
async def weather(given: dict[str, Any]) -> dict[str, Any]:
    note(given, f"weather {given['city']}")
    await wait_in("weather", given)
    await asyncio.sleep(given.get("tool_delay", 0))
    return {"celsius": 21}


@activity.defn
async def book(given: dict[str, Any]) -> str:
    note(given, f"book {given['city']}")
    await wait_in("book", given)
    await asyncio.sleep(given.get("tool_delay", 0))
    return "booked"


async def wait_in(tool: str, given: Mapping[str, Any]) -> None:
    if given.get("waiting") == tool:
        await pass_gate(given)


async def pass_gate(body: Mapping[str, Any]) -> None:
    if "gate" in body:
        await asyncio.to_thread(wait_for, Path(body["gate"]))


def wait_for(gate: Path) -> None:
    while not gate.exists():
        sleep(0.05)


def note(body: Any, line: str) -> None:
    if path := body.get("notes"):
        with Path(path).open("a", encoding="utf-8") as notes:
            notes.write(f"{line}\n")


TOOLS = {"weather": weather, "book": book}


@workflow.defn
class Travel:
    @workflow.init
    def __init__(self, _argument: dict[str, Any]) -> None:
        self.answer = WorkflowAnswer()

    @workflow.run
    async def run(self, argument: dict[str, Any]) -> None:
        await self.travel(turn_of(argument).body)

    async def travel(self, body: Mapping[str, Any]) -> None:
        async with self.answer:
            for number, (_, call) in enumerate(SCRIPT):
                await self.answer.step(request, number, dict(body), heartbeat_timeout=timedelta(seconds=1))
                if call is not None:
                    tool = TOOLS[call.tool_name]
                    given = ToolCall(call.tool_call_id, call.tool_name, {**body, **call.input})
                    await self.answer.tool(given, tool, heartbeat_timeout=timedelta(seconds=1))


@workflow.defn
class Gated(Travel):
    """The same, for pages. The text names a directory for `notes` and `gate`, and perhaps the tool that waits."""

    @workflow.init
    def __init__(self, _argument: dict[str, Any]) -> None:
        self.answer = WorkflowAnswer()

    @workflow.run
    async def run(self, argument: dict[str, Any]) -> None:
        directory, *waiting = turn_of(argument).text.split(" ")
        body = {"notes": f"{directory}/notes", "gate": f"{directory}/gate"}
        await self.travel({**body, **({"waiting": waiting[0]} if waiting else {})})


@workflow.defn
class Asking:
    """Waits for an approval. The text names a directory: the last step waits for the file `gate` in it."""

    @workflow.init
    def __init__(self, _argument: dict[str, Any]) -> None:
        self.answer = WorkflowAnswer()

    @workflow.run
    async def run(self, argument: dict[str, Any]) -> None:
        book_call, directory = ToolCall("c1", "book", {"city": "Oslo"}), turn_of(argument).text
        body = {"notes": f"{directory}/notes", "gate": f"{directory}/gate"}
        async with self.answer:
            self.answer.send("I book the journey.")
            self.answer.send(book_call)
            [approval] = await self.answer.ask(book_call)
            if approval.approved:
                await self.answer.tool(ToolCall("c1", "book", {**body, **book_call.input}), book)
            else:
                self.answer.send(ToolDenied("c1", approval.reason))
            await self.answer.step(request, len(SCRIPT) - 1, body)


@workflow.defn
class Located:
    """Waits for the output of a tool that the page runs."""

    @workflow.init
    def __init__(self, _argument: dict[str, Any]) -> None:
        self.answer = WorkflowAnswer()

    @workflow.run
    async def run(self, _argument: dict[str, Any]) -> None:
        async with self.answer:
            where = ToolCall("c2", "location", {})
            self.answer.send("Where do you start?")
            self.answer.send(where)
            [output] = await self.answer.outputs(where)
            self.answer.send(Step())
            self.answer.send(f"You start in {output.output['city']}.")


@workflow.defn
class Ending:
    """Ends its turn with a call that waits for an approval; the answer starts it again."""

    @workflow.init
    def __init__(self, _argument: dict[str, Any]) -> None:
        self.answer = WorkflowAnswer()

    @workflow.run
    async def run(self, argument: dict[str, Any]) -> None:
        turn, call = turn_of(argument), ToolCall("c1", "book", {"city": "Oslo"})
        async with self.answer:
            if turn.approvals:
                allowed = turn.approvals[0].approved
                self.answer.send(ToolResult("c1", "booked") if allowed else ToolDenied("c1"))
                self.answer.send(Step())
                self.answer.send("Booked." if allowed else "Not booked.")
            else:
                self.answer.send(call)
                self.answer.send(ApprovalRequest("a1", "c1"))


@workflow.defn
class Silent:
    """Hosts no stream."""

    @workflow.run
    async def run(self, _argument: dict[str, Any]) -> None:
        await asyncio.sleep(3600)


@workflow.defn
class Brief:
    """Has many short steps."""

    @workflow.init
    def __init__(self, _argument: dict[str, Any]) -> None:
        self.answer = WorkflowAnswer()

    @workflow.run
    async def run(self, _argument: dict[str, Any]) -> None:
        async with self.answer:
            for _ in range(20):
                await self.answer.step(speak)


@activity.defn
async def speak() -> None:
    async with publish() as say:
        say("At once.")


@workflow.defn
class Failing:
    """Says something, and fails with an error that is not for the page."""

    @workflow.init
    def __init__(self, _argument: dict[str, Any]) -> None:
        self.answer = WorkflowAnswer()

    @workflow.run
    async def run(self, argument: dict[str, Any]) -> None:
        async with self.answer:
            self.answer.send(Text("Well"))
            await self.answer.step(refuse, turn_of(argument).text)


@activity.defn
async def refuse(_text: str) -> None:
    raise PublicError("The booking system is closed.")


async def main(address: str, task_queue: str, namespace: str) -> None:
    client = await Client.connect(address, namespace=namespace)
    async with Worker(
        client,
        task_queue=task_queue,
        workflows=[Travel, Gated, Asking, Located, Ending, Silent, Brief, Failing],
        activities=[request, weather, book, speak, refuse],
        plugins=[worker_plugin()],
    ):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
