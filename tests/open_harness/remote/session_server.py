"""A scripted server of sessions that behaves as Open Harness's own on the wire, which cannot be installed here.

Every event is stored, then sent; a workflow reads what users say.

A session runs the script that is its input: words are said; `ask` and `approve` request input, `hang` is silent, `die`
fails without any event, as a workflow does there, `error` leaves its phase so, `tool` calls one.
"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route


class Session:
    """The events of one session, who follows them, and the task of its workflow."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.inputs: list[str] = []
        self.asks_approval = False
        self.task: asyncio.Task[None] | None = None
        self.changed = asyncio.Condition()

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()

    async def emit(self, name: str, **payload: Any) -> None:
        number = len(self.events)
        self.events.append({"id": f"e{number}", "name": name, "payload": payload, "timestamp": number})
        async with self.changed:
            self.changed.notify_all()

    async def until(self, count: int) -> None:
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.events) >= count)


class SessionServer:
    """The routes, and what goes wrong with them: `miss` loses events between history and live, as the real one may.

    With `says_response` an answer is told as the newest server tells it: `input:received {response}`, without an id.
    """

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.requests: list[str] = []
        self.break_after: int | None = None
        self.miss: set[str] = set()
        self.status = 200
        self.noise: list[str] = []
        self.nameless = False
        self.says_response = False
        self.let_create = asyncio.Event()
        self.let_create.set()
        self.pause_status = 200
        self.let_pause = asyncio.Event()
        self.let_pause.set()
        self._numbers = itertools.count(1)
        self.app = Starlette(
            routes=[
                Route("/sessions", self._create, methods=["POST"]),
                Route("/sessions/{id}", self._state, methods=["GET"]),
                Route("/sessions/{id}/events", self._events, methods=["GET"]),
                Route("/sessions/{id}/input", self._input, methods=["POST"]),
                Route("/sessions/{id}/pause", self._pause, methods=["POST"]),
            ]
        )

    async def _create(self, request: Request) -> Response:
        script = (await request.json()).get("input")
        if not script or self.status != 200:
            return JSONResponse({"error": "input is required"}, 400 if self.status == 200 else self.status)
        session_id, session = f"s{next(self._numbers)}", Session()
        self.sessions[session_id] = session
        await self.let_create.wait()
        session.task = asyncio.create_task(workflow(session, session_id, script))
        return JSONResponse([] if self.nameless else {"sessionId": session_id}, 201)

    def _find(self, request: Request) -> Session:
        self.requests.append(f"{request.method} {request.url.path.rpartition('/')[2]} {request.url.query}".strip())
        return self.sessions[request.path_params["id"]]

    async def _state(self, request: Request) -> Response:
        return JSONResponse({"sessionId": request.path_params["id"], "running": self._find(request).running})

    async def _input(self, request: Request) -> Response:
        session = self._find(request)
        session.inputs.append((await request.json())["input"])
        value = session.inputs[-1]
        if self.says_response:
            await session.emit("input:received", response=value)
        else:
            # The engine takes what begins with "y" as an approval, and everything else as a refusal.
            approval = {"approved": value.lower().startswith("y")} if session.asks_approval else {}
            await session.emit("input:received", id="q1", value=value, **approval)
        return JSONResponse({"ok": True})

    async def _pause(self, request: Request) -> Response:
        session = self._find(request)
        await self.let_pause.wait()
        if self.pause_status != 200:
            return JSONResponse({"error": "Session is not running"}, self.pause_status)
        if session.task is not None:
            session.task.cancel()
        return JSONResponse({"ok": True, "wasPaused": True})

    async def _events(self, request: Request) -> Response:
        if self.status != 200:
            return JSONResponse({"error": "Server error"}, self.status)
        position = int(request.query_params["fromPosition"])
        stream = self._follow(self._find(request), position)
        return StreamingResponse(stream, media_type="text/event-stream")

    async def _follow(self, session: Session, position: int) -> AsyncIterator[str]:
        for frame in self.noise:
            yield frame
        for count in itertools.count():
            await session.until(position + 1)
            event = session.events[position]
            position += 1
            if event["id"] in self.miss:
                self.miss.discard(event["id"])
                continue
            yield f"event: {event['name']}\nid: {event['id']}\ndata: {json.dumps(event)}\n\n"
            if count == self.break_after:
                self.break_after = None
                raise ConnectionResetError("the network went away")


async def workflow(session: Session, session_id: str, script: str) -> None:
    """Do what the script says."""
    await session.emit("workflow:started", sessionId=session_id, workflow="scripted", input=script)
    await session.emit("agent:started", agent="writer")
    for word in script.split():
        match word:
            case "ask" | "approve":
                count = len(session.inputs)
                session.asks_approval = word == "approve"
                question = {"type": "approval"} if word == "approve" else {"type": "choice", "options": ["yes", "no"]}
                await session.emit("input:requested", id="q1", prompt="Really?", **question)
                while len(session.inputs) == count:
                    await session.until(len(session.events) + 1)
            case "hang":
                await asyncio.sleep(3600)
            case "die":
                return
            case "error":
                await session.emit("phase:exited", phase="writing", reason="error")
                return
            case "tool":
                await session.emit("tool:called", agent="writer", toolId="t1", toolName="look", input={"at": 1})
                await session.emit("tool:result", agent="writer", toolId="t1", output=[1], isError=False)
            case _:
                await session.emit("text:delta", agent="writer", delta=f"{word} ")
    await session.emit("agent:completed", agent="writer", output=None, durationMs=1)
    await session.emit("workflow:completed", sessionId=session_id, finalState={})
