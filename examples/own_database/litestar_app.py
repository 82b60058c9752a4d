"""Litestar: ``uvicorn examples.own_database.litestar_app:app``; with resume and stop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from litestar import Litestar, asgi
from litestar.types import Receive, Scope, Send

from examples.own_database import database
from examples.own_database.agent import agent
from usechat.server import ChatApp

chats = ChatApp(agent, load=database.load, on_finish=database.save, metrics=False)


@asynccontextmanager
async def lifespan(app: Litestar) -> AsyncIterator[None]:
    """Open and close the database around the chats."""
    async with database.lifespan(app):
        yield
        await chats.shut_down()  # frameworks send no lifespan events to mounted apps


@asgi("/", is_mount=True, copy_scope=True)
async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a chat page."""
    await chats(scope, receive, send)


app = Litestar([mounted], lifespan=[lifespan])
