"""Server processes that share nothing but a PostgreSQL: each shows, stops and answers what another one runs."""

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import uvicorn

from tests.chats.dying import ServerProcess
from usechat import parts
from usechat.chats import SqlChats
from usechat.server import ChatApp, Settings
from usechat.turn import PageQuestion, Turn, current_context

__all__ = ["SharingServer"]

_LOOK: Final = 0.01


class _Agent:
    """Answers in pieces; each waits until a file of its name lies in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __call__(self, turn: Turn) -> AsyncIterator[str | parts.Part]:
        if turn.text == "ask":
            yield parts.ToolCall("c1", "dig", {"depth": 3})
            context = current_context()
            answer = await context.ask(PageQuestion("c1", lambda: context.send(parts.ApprovalRequest("a1", "c1"))))
            yield parts.ToolResult("c1", f"approved: {getattr(answer, 'approved', None)}")
            yield "Dug."
            return
        for approval in turn.approvals:
            yield parts.ToolResult(str(approval.tool_call_id), "paid")
        yield "One. "
        await self._until("two")
        yield parts.ToolCall("t1", "look", {})
        yield parts.ToolResult("t1", "seen")
        yield "Two. "
        await self._until("three")
        if turn.text == "pay":
            yield parts.ToolCall("p1", "pay", {})
            yield parts.ApprovalRequest("a1", "p1")
        else:
            yield "Three."

    async def _until(self, name: str) -> None:
        while not (self._folder / name).exists():  # noqa: ASYNC110
            await asyncio.sleep(_LOOK)


def _serve(listener: socket.socket, database: str, folder: Path, settings: Settings, lease: float) -> None:
    app = ChatApp(_Agent(folder), chats=SqlChats(database, lease=lease), settings=settings, metrics=False, drain=0.1)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run([listener])


class SharingServer(ServerProcess):
    """A process that answers with an agent which waits for files in a folder."""

    def __init__(self, database: str, folder: Path, settings: Settings, *, lease: float = 30) -> None:
        super().__init__(_serve, database, folder, settings, lease)
