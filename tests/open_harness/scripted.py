"""A runtime that follows a script, in place of Open Harness's own, and the events that scripts are made of."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

from usechat.open_harness.runtime_protocol import Command, Event, Listener, Snapshot

Script = Callable[["ScriptedRuntime"], AsyncIterator[Event]]

_numbers = itertools.count(1)


def event(kind: str, run_id: str = "", **fields: Any) -> Event:
    """Return an event; a run id such as `a1` is the first invocation of node `a`."""
    ids = {"nodeId": run_id.rstrip("0123456789"), "runId": run_id} if run_id else {}
    return {"type": kind, "timestamp": 1000, **ids, **fields}


def flow(*events: Event, name: str = "flow", status: str = "complete") -> list[Event]:
    """Return the events of a whole flow around those of its nodes."""
    return [event("flow:start", flowName=name), *events, event("flow:complete", flowName=name, status=status)]


def node(run_id: str, *events: Event, output: Any = None) -> list[Event]:
    """Return the events of one invocation of a node around those of its agent."""
    return [event("node:start", run_id), *events, event("node:complete", run_id, output=output)]


def deltas(run_id: str, *texts: str, kind: str = "text") -> list[Event]:
    """Return a block that is streamed and then told in full."""
    streamed = [event(f"agent:{kind}:delta", run_id, content=text) for text in texts]
    return [*streamed, event(f"agent:{kind}", run_id, content="".join(texts))]


def recorded(*events: Event) -> Script:
    """Return a script that tells these events one by one."""

    async def script(_runtime: "ScriptedRuntime") -> AsyncIterator[Event]:
        for each in events:
            await asyncio.sleep(0)
            yield each

    return script


class ScriptedRuntime:
    """Tells the events of its script; with several scripts, each further one is for a `resume`."""

    def __init__(self, *scripts: Script, status: str = "idle") -> None:
        self.status = status
        self.input: Mapping[str, Any] = {}
        self.resumed_with: list[str | None] = []
        self.commands: list[Command] = []
        self.inbox: list[Command] = []
        self.arrived = asyncio.Event()
        self.number = next(_numbers)
        self._scripts = list(scripts)
        self._listeners: list[Listener] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    async def run(self, input: Mapping[str, Any] | None = None) -> Snapshot:  # noqa: A002
        self.input = input or {}
        return await self._follow()

    async def resume(self, message: str | None = None) -> Snapshot:
        self.resumed_with.append(message)
        return await self._follow()

    async def read(self) -> str:
        """Wait for a message, and take it out of the inbox."""
        while not self.inbox:
            self.arrived.clear()
            await self.arrived.wait()
        return str(self.inbox.pop(0)["message"])

    async def _follow(self) -> Snapshot:
        self.status = "running"
        self._task = asyncio.ensure_future(self._tell_script(self._scripts.pop(0)))
        try:
            await self._task
        except asyncio.CancelledError:
            self.status = "aborted"
            self.tell(event("flow:aborted"))
        return self.get_snapshot()

    async def _tell_script(self, script: Script) -> None:
        async for each in script(self):
            self.tell(each)
            if isinstance(each, dict) and each.get("type") in ("flow:complete", "flow:paused", "flow:aborted"):
                self.status = each["type"].removeprefix("flow:")
        if self.status == "running":
            self.status = "complete"

    def tell(self, *events: Event) -> None:
        for each in events:
            for listener in tuple(self._listeners):
                listener(each)

    def pause(self) -> None:
        self.commands.append({"type": "pause"})

    def stop(self) -> None:
        self.commands.append({"type": "stop"})
        if self._task is not None:
            self._task.cancel()

    def dispatch(self, command: Command) -> None:
        self.commands.append(command)
        self.inbox.append(command)
        self.arrived.set()

    def on_event(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def get_snapshot(self) -> Snapshot:
        return {"status": self.status, "inbox": list(self.inbox), "agentSessions": {}}


def kinds(events: Iterable[Event]) -> list[str]:
    return [each["type"] for each in events]
