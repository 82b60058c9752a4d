"""An agent in a route of FastAPI ends before the route's dependencies are closed, also when the client leaves."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx2
from fastapi import Depends, FastAPI, Request

from tests.server.process import question
from usechat.server import chat_response
from usechat.turn import Turn


async def test_an_agent_that_saves_at_its_end_has_an_open_session() -> None:
    happened: list[str] = []
    beginning, closed = asyncio.Event(), asyncio.Event()

    async def session() -> AsyncIterator[str]:
        yield "session"
        happened.append("closed")
        closed.set()

    app = FastAPI()

    @app.post("/api/chat")
    async def chat(request: Request, session: Annotated[str, Depends(session)]) -> Any:
        async def agent(_turn: Turn) -> AsyncIterator[str]:
            try:
                yield "one"
                beginning.set()
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.01)
                happened.append(f"saved in the {session}")

        return await chat_response(request, agent)

    body = [{"type": "http.request", "body": httpx2.Request("POST", "/", json=question()).content}]

    async def receive() -> Any:
        if body:
            return body.pop()
        await beginning.wait()
        return {"type": "http.disconnect"}

    async def send(_event: Any) -> None:
        pass

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/api/chat", "query_string": b"", "headers": headers}
    async with asyncio.timeout(30):
        await app(scope, receive, send)
        await closed.wait()
    assert happened == ["saved in the session", "closed"]
