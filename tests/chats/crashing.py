"""A server process whose agent has effects, for the tests that kill it: each effect is a line of a file."""

import asyncio
import signal
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx2
import uvicorn

from tests.chats.dying import ServerProcess
from usechat import parts
from usechat.chats import SqlChats
from usechat.protocol.ui_messages import UIMessage, tool_parts_of
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

__all__ = ["CrashingServer"]

_LOOK_SECONDS: Final = 0.01


class _Agent:
    """Answers like a model that reads the history, and waits without end where the test kills its process."""

    def __init__(self, path: str) -> None:
        self._effects = Path(f"{path}.effects")
        self._gate = Path(f"{path}.gate")

    def _has(self, turn: Turn, call_id: str) -> bool:
        """Whether the history has the outcome of a call."""
        calls = [part for message in turn.messages for part in tool_parts_of(message)]
        return any(part["toolCallId"] == call_id and str(part["state"]).startswith("output-") for part in calls)

    def _do(self, effect: str) -> None:
        with self._effects.open("a") as file:
            file.write(f"{effect}\n")

    async def answer(self, turn: Turn) -> AsyncIterator[str | parts.Part]:
        match turn.text:
            case "pay" if turn.approvals:
                self._do("pay")
                yield parts.ToolResult("t1", "paid")
                yield "Paid."
                await asyncio.Event().wait()
            case "pay" if not self._has(turn, "t1"):
                yield parts.ToolCall("t1", "pay", {})
                yield parts.ApprovalRequest("p1", "t1")
            case "book" if self._has(turn, "t1") and not self._has(turn, "t2"):
                yield parts.ToolCall("t2", "book", {})
                self._do("book")
                yield parts.ToolResult("t2", "booked")
                yield "Booked."
                await asyncio.Event().wait()
            case "book" if not self._has(turn, "t1"):
                yield parts.ToolCall("t1", "location", {})
            case "search":
                yield "Let me see."
                yield parts.ToolCall("t1", "search", {"for": "owls"})
                self._do("search")
                yield parts.Data("progress", "searching", transient=True)
                await asyncio.Event().wait()
            case "gate":
                yield "Half"
                while not self._gate.exists():  # noqa: ASYNC110 - another process opens it
                    await asyncio.sleep(_LOOK_SECONDS)
                yield parts.ToolCall("t1", "open", {})
                self._do("open")
            case text:
                yield f"{len(turn.messages)}: {text}"

    def answer_in_a_thread(self, turn: Turn) -> Iterator[str | parts.Part]:
        if turn.text != "gate":
            yield f"{len(turn.messages)}: {turn.text}"
            return
        yield "Half"
        while not self._gate.exists():
            time.sleep(_LOOK_SECONDS)
        yield parts.ToolCall("t1", "open", {})
        self._do("open")


def _serve(listener: socket.socket, path: str, lease: float, in_thread: bool) -> None:
    chats = SqlChats(path, lease=lease)
    agent = _Agent(path)
    answer = agent.answer_in_a_thread if in_thread else agent.answer
    app = ChatApp(answer, chats=chats, settings=Settings(sdk="7", disconnect="continue"), metrics=False)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listener])


class CrashingServer(ServerProcess):
    """The process, with the requests of a page."""

    def __init__(self, path: Path, *, lease: float = 30, in_thread: bool = False) -> None:
        super().__init__(_serve, str(path), lease, in_thread)
        self._path = path
        self._client = httpx2.Client(base_url=self.url, timeout=60)
        self._effects = Path(f"{path}.effects")
        self._gate = Path(f"{path}.gate")

    @property
    def effects(self) -> list[str]:
        """What the agents of all processes have done."""
        return self._effects.read_text().splitlines() if self._effects.exists() else []

    def kill(self) -> None:
        super().kill()
        self._client.close()

    def pause(self) -> None:
        """Stop it with SIGSTOP, between two transactions: SQLite waits for a writer that was stopped in one."""
        self.signal(signal.SIGSTOP)
        with closing(sqlite3.connect(self._path, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                self.signal(signal.SIGCONT)
                self.pause()

    def claimed_for(self) -> float:
        """For how many seconds the chat is claimed still."""
        with closing(sqlite3.connect(self._path)) as connection:
            [(expires,)] = connection.execute("SELECT expires FROM usechat_claims").fetchall()
        return float(expires) - time.time()

    def has_saved(self) -> bool:
        """Whether a part of an answer is in the database, which is there when the server answers."""
        self._client.get("/healthz")
        with closing(sqlite3.connect(self._path)) as connection:
            return bool(connection.execute("SELECT 1 FROM usechat_messages WHERE role = 'assistant'").fetchone())

    def open_gate(self) -> None:
        """Let the agent go on that waits in the middle of its answer."""
        self._gate.touch()

    def load(self) -> Any:
        """What a page loads of the chat."""
        return self._client.get("/api/chat/c1/messages").json()

    def answer_of(self) -> UIMessage:
        """The last message of the chat."""
        message: UIMessage = self.load()["messages"][-1]
        return message
