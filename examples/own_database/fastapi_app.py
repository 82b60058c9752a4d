"""FastAPI: ``uvicorn examples.own_database.fastapi_app:app``."""

from fastapi import FastAPI, Request, Response

from examples.own_database.agent import agent
from examples.own_database.database import lifespan, load, save
from usechat import chat_response

app = FastAPI(lifespan=lifespan)


@app.post("/api/chat")
async def chat(request: Request) -> Response:
    """Answer a chat page."""
    return await chat_response(request, agent, load=load, on_finish=save)
