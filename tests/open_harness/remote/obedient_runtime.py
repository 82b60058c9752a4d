"""A runtime that does what its input says, as somebody else's might."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from usechat.open_harness.runtime_protocol import Command, Event, Listener, Snapshot

START: Event = {"type": "node:start", "nodeId": "a", "runId": "a-1"}


def text(content: str) -> Event:
    return {"type": "agent:text:delta", "nodeId": "a", "runId": "a-1", "content": content}


class ObedientRuntime:
    """Says the words of the message; `wait` waits for a command, `pause` pauses, `raise` fails, `flood` says much."""

    def __init__(self) -> None:
        self.status = "idle"
        self.commands: list[Command] = []
        self._listeners: list[Listener] = []
        self._commanded = asyncio.Event()
        self._ending: str | None = None

    async def run(self, input: Mapping[str, Any] | None = None) -> Snapshot:  # noqa: A002
        self._emit({"type": "flow:start", "flowName": "scripted"})
        return await self._go((input or {}).get("message", ""))

    async def resume(self, message: str | None = None) -> Snapshot:
        self._emit({"type": "flow:resumed"})
        return await self._go(message or "")

    async def _go(self, script: str) -> Snapshot:
        self.status = "running"
        self._emit(START)
        for word in script.split():
            match word:
                case "raise":
                    raise ValueError("the script says so")
                case "pause":
                    self._ending = "paused"
                case "flood":
                    for _ in range(20):
                        self._emit(text(1024 * 1024 * "x"))
                case "wait":
                    self._commanded.clear()
                    await self._commanded.wait()
                case _:
                    self._emit(text(word))
            if self._ending is not None:
                self.status, self._ending = self._ending, None
                self._emit({"type": f"flow:{self.status}"})
                return self.get_snapshot()
        self.status = "complete"
        self._emit({"type": "node:complete", "nodeId": "a", "runId": "a-1", "output": {1, 2}})
        self._emit({"type": "flow:complete", "flowName": "scripted", "status": "complete"})
        return self.get_snapshot()

    def pause(self) -> None:
        self._ending = "paused"
        self._commanded.set()

    def stop(self) -> None:
        self._ending = "aborted"
        self._commanded.set()

    def dispatch(self, command: Command) -> None:
        self.commands.append(command)
        if command.get("type") == "reply":
            raise ValueError("nothing was asked")
        self._emit(text(str(command.get("message"))))
        self._commanded.set()

    def on_event(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def get_snapshot(self) -> Snapshot:
        return {"status": self.status}

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener({**event, "timestamp": 1})
