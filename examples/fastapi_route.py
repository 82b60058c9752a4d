"""Your own route: `uvicorn examples.fastapi_route:app`, or `usechat serve examples/fastapi_route.py:app`."""

import asyncio
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request, Response

from usechat import Turn, chat_response

app = FastAPI()


async def agent(turn: Turn) -> AsyncIterator[str]:
    for word in f"You said: {turn.text}".split():
        yield f"{word} "
        await asyncio.sleep(0.05)


@app.post("/api/chat")
async def chat(request: Request) -> Response:
    return await chat_response(request, agent)
