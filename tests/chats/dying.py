"""A server process for the tests that is ended with kill -9: by itself at a write, or by the test at any moment."""

import asyncio
import gc
import json
import multiprocessing
import os
import signal
import socket
import sqlite3
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import uvicorn

from tests.server.sockets import Body
from usechat import parts
from usechat.chats import Claim, SqlChats
from usechat.chats.recording import AnswerRecorder
from usechat.protocol.ui_messages import UIMessage
from usechat.runs.redis.store import RedisRuns
from usechat.runs.redis.turns import RedisTurns
from usechat.server import ChatApp, Settings
from usechat.turn import Turn

__all__ = ["FORKS", "DyingServer", "InRedis", "Kill", "ServerProcess", "agent", "answer_once"]

FORKS: Final = multiprocessing.get_context("forkserver")
"""Makes processes that have imported and compiled everything."""
FORKS.set_forkserver_preload(["tests.chats.warmed"])
_PAUSE: Final = 0.004
_CLIENT: Final = httpx2.Client(timeout=60, verify=False)


class Kill(NamedTuple):
    """At which write the process ends: ``before`` it, ``during`` it (nothing is committed), or ``after`` it."""

    write: int = 0
    when: str = ""


_NEVER: Final = Kill()


async def agent(turn: Turn) -> AsyncIterator[str | parts.Part]:
    """Answer in steps with pauses; ``wait`` stops in the middle and never goes on, other texts are answered at once."""
    for approval in turn.approvals:
        yield parts.ToolResult(str(approval.tool_call_id), "deleted")
        yield "Deleted."
        return
    match turn.text:
        case "wait":
            yield parts.ToolCall("t1", "search", {})
            yield "Half"
            await asyncio.Event().wait()
        case "story":
            for step in range(4):
                _expect_save()
                yield parts.Reasoning(f"Thinking {step}. ")
                await asyncio.sleep(_PAUSE)
                yield parts.ToolCall(f"call-{step}", "search", {"step": step})
                await asyncio.sleep(_PAUSE)
                yield parts.ToolResult(f"call-{step}", {"found": step})
                for word in ("It ", "is ", f"{step}. "):
                    yield word
                    await asyncio.sleep(_PAUSE)
                await _saved()
            yield parts.ToolCall("t1", "delete", {"path": "notes"})
            yield parts.ApprovalRequest("p1", "t1")
        case text:
            yield f"{len(turn.messages)}: {text}"


_saves: list[asyncio.Event] = []
"""In the process that dies: set when a save was made."""


def _expect_save() -> None:
    for event in _saves:
        event.clear()


async def _saved() -> None:
    """Wait until something was saved since it was expected; there is something new to save."""
    for event in _saves:
        await event.wait()


class _DyingChats(SqlChats):
    """Ends the process at a write, and notes in a file what was saved."""

    def __init__(self, path: str, kill: Kill, saved: str) -> None:
        super().__init__(path)
        self._kill = kill
        self._writes = 0
        self._saved = os.open(saved, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        _saves.append(asyncio.Event())

    @asynccontextmanager
    async def transaction(self, chat_id: str, *, writes: bool = True) -> AsyncIterator[Any]:
        self._writes += writes
        when = self._kill.when if writes and self._writes == self._kill.write else ""
        self._end_if(when == "before")
        async with super().transaction(chat_id, writes=writes) as transaction:
            yield transaction
            self._end_if(when == "during")
        self._end_if(when == "after")

    async def save(self, claim: Claim, message: UIMessage, *, chunks: int = 0, finished: int | None = None) -> None:
        await super().save(claim, message, chunks=chunks, finished=finished)
        os.write(self._saved, json.dumps(message).encode() + b"\n")
        _saves[0].set()

    def _end_if(self, condition: bool) -> None:
        if condition:
            os.kill(os.getpid(), signal.SIGKILL)


class InRedis(NamedTuple):
    """Where the runs of the process are; with a ``queue``, agents in other processes answer."""

    url: str
    prefix: str
    lease: float
    queue: str = ""


def _server(path: str, kill: Kill, sdk: str, redis: InRedis | None) -> uvicorn.Server:
    # An answer of a tenth of a second is saved a few times.
    defaults: Any = AnswerRecorder.__init__.__kwdefaults__
    defaults.update(interval=0.01, pause=0.002)
    runs = None if redis is None else RedisRuns(redis.url, prefix=redis.prefix, lease=redis.lease)
    answer = RedisTurns(runs, redis.queue) if runs is not None and redis is not None and redis.queue else agent
    chats = _DyingChats(path, kill, f"{path}.saved")
    settings = Settings(sdk=sdk, disconnect="continue")
    app = ChatApp(answer, chats=chats, runs=runs, settings=settings, metrics=False)
    return uvicorn.Server(uvicorn.Config(app, log_level="critical"))


def _serve(listener: socket.socket, path: str, kill: Kill, sdk: str, redis: InRedis | None) -> None:
    _server(path, kill, sdk, redis).run([listener])


def answer_once() -> None:
    """Serve one whole answer in this process, so that those forked from it have imported and compiled everything.

    Without that each of them spends half a second on it.
    """
    question = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "story"}]}
    with tempfile.TemporaryDirectory() as directory, socket.create_server(("127.0.0.1", 0)) as listener:
        server = _server(f"{directory}/chats.db", _NEVER, "7", None)

        def ask() -> None:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/api/chat"
            httpx2.post(url, json={"id": "c1", "messages": [question]}, timeout=60)
            server.should_exit = True

        asking = threading.Thread(target=ask)
        asking.start()
        server.run([listener])
        asking.join()
    _saves.clear()
    gc.collect()
    gc.freeze()  # a server collects when it starts: that would copy all pages that a process shares with this one


class ServerProcess:
    """A server in a process of its own; ``serve`` gets a listening socket and ``arguments``.

    A ``listener`` outlives the process, so that another one can serve at the same address.
    """

    def __init__(self, serve: Callable[..., None], *arguments: Any, listener: socket.socket | None = None) -> None:
        with listener.dup() if listener is not None else socket.create_server(("127.0.0.1", 0)) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            self.process = FORKS.Process(target=serve, args=(listener, *arguments), daemon=True)
            self.process.start()

    def ask(self, body: Any, *, until: Callable[[bytes], bool] = lambda _: False) -> Body:
        """Return what the page got until the process died; kill it when ``until`` holds of what was received."""
        received, complete = b"", True
        try:
            with _CLIENT.stream("POST", f"{self.url}/api/chat", json=body) as response:
                for piece in response.iter_raw():
                    received += piece
                    if until(received):
                        self.kill()
        except httpx2.TransportError:
            complete = False
        return Body(received, complete)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(int(self.process.pid or 0), number)

    def terminate(self) -> None:
        """End it with SIGTERM, and wait for its orderly end."""
        self.signal(signal.SIGTERM)
        self.process.join(60)
        assert not self.process.is_alive()

    def kill(self) -> None:
        """End it with kill -9; do nothing if it has ended."""
        self.process.kill()
        self.process.join(60)


class DyingServer(ServerProcess):
    """Answers with :func:`agent`, and ends itself at a write."""

    def __init__(self, path: Path, kill: Kill = _NEVER, *, sdk: str = "7", redis: InRedis | None = None) -> None:
        super().__init__(_serve, str(path), kill, sdk, redis)
        self.path = path
        self.sdk = sdk

    @property
    def saved(self) -> list[UIMessage]:
        """What it has saved for certain, the last one at the end."""
        file = Path(f"{self.path}.saved")
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def claimed_for(self) -> float:
        """Return for how many seconds the chat is claimed still."""
        with sqlite3.connect(self.path) as connection:
            [(expires,)] = connection.execute("SELECT expires FROM usechat_claims").fetchall()
        connection.close()
        return float(expires) - time.time()

    def expire(self) -> None:
        """Do as if the lease time was over."""
        with sqlite3.connect(self.path) as connection:
            connection.execute("UPDATE usechat_claims SET expires = 0")
        connection.close()
